"""``jtgpu query``: posteriors of one case."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from ..answers import Posteriors
from ..evidence import parse_findings
from .console import cell, guarded, print_json, shown, status, stdout
from .options import (
    Backend,
    File,
    Json,
    MaxTable,
    MemoryLimit,
    NoCache,
    Order,
    Seed,
    TimeLimit,
    chosen_order,
    plan_options,
    read_network,
)

__all__ = ["query"]

BAR = 40  # characters of a probability of 1
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@guarded
def query(
    file: File,
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
    backend: Backend = "auto",
    json: Json = False,
) -> None:
    """Posterior probabilities given evidence.

    Names and states may hold "=" and "," themselves: the longest variable name that fits wins, and a state of that
    very name before a list of states.
    """
    net = read_network(file)
    # what is asked is read before the work starts: a typing error shall not cost minutes
    findings = parse_findings(net, evidence or [])
    targets = [net.variables[net.index(t)] for t in dict.fromkeys(target or [])] or None
    with status("planning") as now:
        made = net.plan(chosen_order(order, file), **plan_options(time_limit, memory_limit, max_table, seed, no_cache))
        now("compiling (the first time on a machine this takes longer)")
        with made.compile(backend) as tree:
            now("propagating")
            answer = tree.posteriors(findings, targets=targets)
    if json:
        print_json(
            {
                "file": file,
                "evidence": {name: list(s) if isinstance(s, frozenset) else s for name, s in findings.items()},
                "log_evidence": answer.log_evidence,
                "posteriors": {
                    name: {"states": list(p.states), "probabilities": list(p)} for name, p in answer.items()
                },
            }
        )
        return
    print_posteriors(answer, given=bool(findings))


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


def bar(p: float) -> str:
    """A probability as a bar, to an eighth of a character."""
    eighths = round(8 * BAR * min(max(p, 0.0), 1.0))
    return _EIGHTHS[8] * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
