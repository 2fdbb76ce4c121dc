"""``jtgpu mpe``: most probable explanations, of all variables or of some."""

from __future__ import annotations

from typing import Annotated

import typer

from ..model.findings import parse_findings
from .answers import print_rows
from .console import guarded, print_json, status, warn
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

__all__ = ["mpe"]


@guarded
def mpe(
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
    k: Annotated[int, typer.Option("-k", metavar="K", min=1, help="How many, most probable first.")] = 1,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--target",
            metavar="NAME",
            help="Variable to choose, all others summed out (marginal MAP, which may cost far more). Repeat it. "
            "[default: all variables]",
        ),
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
    """The most probable configuration given evidence, or the K most probable ones.

    A line a variable, a column a configuration; then P(configuration | evidence) and ln P(configuration, evidence).
    """
    net = read_network(file)
    findings = parse_findings(net, evidence or [])
    targets = [net.variables[net.index(t)] for t in dict.fromkeys(target or [])]
    with status("planning") as now:
        made = net.plan(chosen_order(order, file), **plan_options(time_limit, memory_limit, max_table, seed, no_cache))
        now("compiling (the first time on a machine this takes longer)")
        with made.compile(backend, progress=now) as tree:
            now("propagating")
            if targets:
                limit = float("inf") if memory_limit == "none" else memory_limit
                most = 2**62 if max_table == 0 else max_table
                best = tree.map(targets, findings, k=k, memory_limit=limit, max_table=most)
            else:
                best = tree.mpe(findings, k=k)
            ranked = [(dict(e), e.probability, e.log_joint) for e in best.ranked]
            log_evidence = best.log_evidence
    if len(ranked) < k:
        warn(f"there are only {len(ranked)} configurations of a probability above 0")
    if json:
        print_json(
            {
                "file": file,
                "evidence": {name: list(s) if isinstance(s, frozenset) else s for name, s in findings.items()},
                "log_evidence": log_evidence,
                "explanations": [
                    {"states": states, "probability": p, "log_joint": log_joint} for states, p, log_joint in ranked
                ],
            }
        )
        return
    print_rows(
        ("variable", *("state" if len(ranked) == 1 else str(i + 1) for i in range(len(ranked)))),
        [
            *((v, *(states[v] for states, _, _ in ranked)) for v in ranked[0][0]),
            ("# P(configuration | evidence)", *(p for _, p, _ in ranked)),
            ("# ln P(configuration, evidence)", *(log_joint for _, _, log_joint in ranked)),
        ],
    )
