"""``jtgpu query``: posteriors of one case, and any question as people write it."""

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
from .console import cell, guarded, print_json, shown, status, stdout
from .options import (
    Backend,
    Devices,
    Dtype,
    File,
    Json,
    MaxTable,
    MemoryLimit,
    NoCache,
    Order,
    Seed,
    Slices,
    TimeLimit,
    chosen_order,
    devices_of,
    dtype_of,
    plan_options,
    read_network,
)

__all__ = ["BAR", "bar", "query"]


@guarded
def query(
    file: File,
    question: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[QUESTION]...",
            help='For example "P(a, b | c=x)", "P(a | b, c=x)", "P(a=x)", "H(a)", "MI(a)", "MI(a; b)", "VOI(a)", '
            '"MPE(3 | c=x)", "MAP(a, b | c=x)", "CONFLICT(b=x, c=y)", "IMPORTANCE(a | b=x)". Behind the bar also '
            '"c={x, y}", "do(c=x)", "soft(c: 0.7, 0.3)", "likelihood(c: x=0.9, y=0.2)".',
            show_default=False,
        ),
    ] = None,
    evidence: Annotated[
        list[str] | None,
        typer.Option(
            "-e",
            "--evidence",
            metavar="NAME=STATE",
            help="What is observed: a state by name or number, or several with commas of which one holds. Repeat it.",
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option("-t", "--target", metavar="NAME", help="Variable to answer for. Repeat it. [default: all]"),
    ] = None,
    order: Order = "auto",
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    max_table: MaxTable = None,
    seed: Seed = 0,
    no_cache: NoCache = False,
    slices: Slices = None,
    backend: Backend = "auto",
    dtype: Dtype = "float64",
    devices: Devices = None,
    json: Json = False,
) -> None:
    """Posterior probabilities given evidence, and answers to questions.

    Without questions: the posterior of every variable, or of the targets. Evidence of --evidence holds for every
    question.

    Names and states may hold "=" and "," themselves: the longest variable name that fits wins, and a state of that
    very name before a list of states.
    """
    net = read_network(file)
    # what is asked is read before the work starts: a typing error shall not cost minutes
    findings = parse_findings(net, evidence or [])
    if question and target:
        raise typer.BadParameter("a question names its own targets", param_hint="--target")
    questions = [text.parse(net, q).also(net, findings) for q in question or []]
    targets = [net.variables[net.index(t)] for t in dict.fromkeys(target or [])] or None
    with status("planning") as now:
        options = plan_options(time_limit, memory_limit, max_table, seed, no_cache, slices, backend, devices)
        made = net.plan(chosen_order(order, file), **options)
        now("compiling (the first time on a machine this takes longer)")
        with made.compile(backend, progress=now, **devices_of(devices), **dtype_of(dtype)) as tree:
            now("propagating")
            posteriors = None if questions else tree.posteriors(findings, targets=targets)
            answers, failed = answered(tree, questions, as_json if json else answer_table)
    if posteriors is None:
        print_answers(file, questions, answers, failed, json)
    elif json:
        print_json(
            {
                "file": file,
                "evidence": {name: list(s) if isinstance(s, frozenset) else s for name, s in findings.items()},
                "log_evidence": posteriors.log_evidence,
                "posteriors": {
                    name: {"states": list(p.states), "probabilities": list(p)} for name, p in posteriors.items()
                },
            }
        )
    else:
        print_posteriors(posteriors, given=bool(findings))


def answered(
    tree: JunctionTree, questions: list[text.Question], told: Callable[[text.Question, Any], Any]
) -> tuple[list[Any], JtgpuError | None]:
    """Answers while the tree is open, up to the first question that has none, and why."""
    found: list[Any] = []
    for q in questions:
        try:
            found.append(told(q, text.ask(tree, q)))
        except JtgpuError as error:
            return found, error
    return found, None


def print_answers(
    file: str, questions: list[text.Question], answers: list[Any], failed: JtgpuError | None, json: bool
) -> None:
    """What was answered before a question failed, and then the failure; of JSON all or nothing."""
    if not json:
        for q, found in zip(questions, answers, strict=False):
            print_answer(q, found)
    if failed is not None:
        raise failed
    if json:
        print_json({"file": file, "questions": answers})


def print_posteriors(answer: Posteriors, *, given: bool) -> None:
    """Every state a line, with bars on a terminal and tabs elsewhere."""
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
