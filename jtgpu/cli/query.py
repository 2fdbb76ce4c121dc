"""``jtgpu query``: posteriors of one case, and questions in text form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.table import Table

from ..errors import JtgpuError
from ..inference.queries import text
from ..inference.results.marginals import Posteriors
from ..inference.tree import JunctionTree
from ..model.findings import parse_findings
from .answers import BAR, answer_table, as_json, bar, print_answer
from .console import cell, command, print_json, shown, stdout
from .options import Evidence, File, Json, RunOptions, SlicedPlanOptions, compiled, findings_as_json, read_network

__all__ = ["query"]


@command
def query(
    file: File,
    question: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[QUESTION]...",
            help='For example "P(a, b | c=x)", "P(a | b, c=x)", "P(a=x)", "H(a)", "MI(a)", "MI(a; b)", "VOI(a)", '
            '"MPE(3 | c=x)", "MAP(a, b | c=x)", "CONFLICT(b=x, c=y)", "IMPORTANCE(a | b=x)". After the bar also '
            '"c={x, y}", "do(c=x)", "soft(c: 0.7, 0.3)", "likelihood(c: x=0.9, y=0.2)".',
            show_default=False,
        ),
    ] = None,
    evidence: Evidence = None,
    target: Annotated[
        list[str] | None,
        typer.Option("-t", "--target", metavar="NAME", help="Variable to compute. Repeatable. Default: all."),
    ] = None,
    *,
    plan: SlicedPlanOptions,
    run: RunOptions,
    json: Json = False,
) -> None:
    """Compute posterior probabilities given evidence, and answer questions.

    Without questions, print the posterior of every variable, or of the targets. The evidence of --evidence applies to
    every question.

    Names and states may contain "=" and ",": the longest variable name that matches is used, and a state with exactly
    that name takes precedence over a list of states.
    """
    net = read_network(file)
    # validate everything before the computation starts
    findings = parse_findings(net, evidence or [])
    if question and target:
        raise typer.BadParameter("a question names its own targets", param_hint="--target")
    questions = [text.parse(net, q).also(net, findings) for q in question or []]
    targets = [net.variables[net.index(t)] for t in dict.fromkeys(target or [])] or None
    with compiled(net, file, plan, run) as (tree, _):
        posteriors = None if questions else tree.posteriors(findings, targets=targets)
        answers, error = answer_questions(tree, questions, as_json if json else answer_table)
    if posteriors is None:
        print_answers(file, questions, answers, error, json)
    elif json:
        print_json(
            {
                "file": file,
                "evidence": findings_as_json(findings),
                "log_evidence": posteriors.log_evidence,
                "posteriors": {
                    name: {"states": list(p.states), "probabilities": list(p)} for name, p in posteriors.items()
                },
            }
        )
    else:
        print_posteriors(posteriors, given=bool(findings))


def answer_questions(
    tree: JunctionTree, questions: list[text.Question], convert: Callable[[text.Question, Any], Any]
) -> tuple[list[Any], JtgpuError | None]:
    """Converted answers up to the first question that fails, and its error."""
    found: list[Any] = []
    for q in questions:
        try:
            found.append(convert(q, text.ask(tree, q)))
        except JtgpuError as error:
            return found, error
    return found, None


def print_answers(
    file: str, questions: list[text.Question], answers: list[Any], error: JtgpuError | None, json: bool
) -> None:
    """Print the answers, then raise the error; with JSON print either everything or nothing."""
    if not json:
        for q, found in zip(questions, answers, strict=False):
            print_answer(q, found)
    if error is not None:
        raise error
    if json:
        print_json({"file": file, "questions": answers})


def print_posteriors(answer: Posteriors, *, given: bool) -> None:
    """Print one state per line: a table with bars on a terminal, tab-separated values elsewhere."""
    console = stdout()
    if not console.is_terminal:
        for name, posterior in answer.items():
            for state, p in zip(posterior.states, posterior, strict=True):
                print(f"{shown(name)}\t{shown(state)}\t{p!r}")
        if given:
            print(f"# ln P(evidence)\t\t{answer.log_evidence!r}")
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column()
    table.add_column(justify="right")
    table.add_column(width=BAR, no_wrap=True)
    for name, posterior in answer.items():
        for i, (state, p) in enumerate(zip(posterior.states, posterior, strict=True)):
            table.add_row(cell("" if i else name, "bold"), cell(state), f"{p:.6f}", cell(bar(p), "cyan"))
    console.print(table)
    if given:
        print(f"ln P(evidence) = {answer.log_evidence:.9g}")
