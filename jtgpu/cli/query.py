"""``jtgpu query``: posteriors of one case, and queries in text form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from ..errors import JtgpuError
from ..inference.queries import text
from ..inference.results.marginals import Posteriors
from ..inference.tree import JunctionTree
from .answers import answer_table, print_answer
from .console import command, print_json
from .networks import case_of, findings_as_json, read_network, target_names
from .options import Digits, Evidence, EvidenceFile, File, Json, Targets
from .planning import SlicedPlanOptions
from .running import RunOptions
from .tables import on_terminal, print_rows, show_number
from .trees import compiled

EXAMPLES = (
    "jtgpu query asia -e xray=yes -e smoke=no -t lung,bronc",
    'jtgpu query asia "P(lung, bronc | xray=yes)" "MPE(| xray=yes)" "MI(lung)"',
    "jtgpu query asia -e smoke=yes,no --json",
)


@command
def query(  # noqa: PLR0913 (a Typer command)
    file: File,
    question: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUERY",
            help='For example "P(a, b | c=x)", "P(a | b, c=x)", "P(a=x)", "H(a)", "MI(a)", "MI(a; b)", "VOI(a)", '
            '"MPE(3 | c=x)", "MAP(a, b | c=x)", "CONFLICT(b=x, c=y)", "IMPORTANCE(a | b=x)". After the bar also '
            '"c={x, y}", "do(c=x)", "soft(c: 0.7, 0.3)", "likelihood(c: x=0.9, y=0.2)".',
            show_default=False,
        ),
    ] = None,
    evidence: Evidence = None,
    evidence_file: EvidenceFile = None,
    target: Targets = None,
    *,
    plan: SlicedPlanOptions,
    run: RunOptions,
    json: Json = False,
    digits: Digits = None,
) -> None:
    """Compute posterior probabilities given evidence, and queries in text form.

    Without queries, print the posterior of every variable, or of the targets. The evidence of --evidence applies to
    every query.

    Names and states may contain "=" and ",": the longest variable name that matches is used, and a state with exactly
    that name takes precedence over a list of states.
    """
    net = read_network(file)
    # validate everything before the computation starts
    findings = case_of(net, evidence, evidence_file)
    if question and target:
        raise typer.BadParameter("a query names its own targets", param_hint="--target")
    questions = [text.parse(net, q).also(net, findings) for q in question or []]
    if question and getattr(findings, "likelihood", None):
        raise typer.BadParameter("queries take no likelihoods from a file", param_hint="--evidence-file")
    targets = target_names(net, target) or None
    with compiled(net, file, plan, run) as (tree, _):
        posteriors = None if questions else tree.posteriors(findings, targets=targets)
        answers, error = answer_questions(tree, questions, text.as_json if json else answer_table)
    if posteriors is None:
        print_answers(file, questions, answers, error, json, digits)
    elif json:
        print_json(
            {
                "file": file,
                "evidence": findings_as_json(findings),
                "log_evidence": posteriors.log_evidence,
                "posteriors": {
                    name: {"states": list(p.states), "probabilities": p.probabilities.tolist()}
                    for name, p in posteriors.items()
                },
            }
        )
    else:
        print_posteriors(posteriors, given=bool(findings), digits=digits)


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
    file: str, questions: list[text.Question], answers: list[Any], error: JtgpuError | None, json: bool,
    digits: int | None = None,
) -> None:  # fmt: skip
    """Print the answers, then raise the error; with JSON print either everything or nothing."""
    if not json:
        for i, (q, found) in enumerate(zip(questions, answers, strict=False)):
            print_answer(q, found, digits, first=i == 0)
    if error is not None:
        raise error
    if json:
        print_json({"file": file, "questions": answers})


def print_posteriors(answer: Posteriors, *, given: bool, digits: int | None = None) -> None:
    """Print one state per line: a table with bars on a terminal, tab-separated values elsewhere."""
    rows = [
        ("" if i and on_terminal() else name, state, p)
        for name, posterior in answer.items()
        for i, (state, p) in enumerate(zip(posterior.states, posterior.probabilities.tolist(), strict=True))
    ]
    print_rows(("variable", "state", "P"), rows, digits=digits, bars=True, named=on_terminal())
    if given and on_terminal():
        print(f"ln P(evidence) = {show_number(answer.log_evidence, digits)}")
    elif given:
        print(f"# ln P(evidence)\t\t{show_number(answer.log_evidence, digits)}")
