"""``jtgpu sensitivity``: what a probability owes to each parameter of the network."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import EvidenceError
from ..model.findings import parse_finding, parse_findings
from .answers import print_rows, said
from .console import guarded, print_json, shown, status, stdout
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

__all__ = ["sensitivity"]


@guarded
def sensitivity(
    file: File,
    target: Annotated[str, typer.Argument(metavar="NAME=STATE", help="The variable and state that are asked for.")],
    evidence: Annotated[
        list[str] | None,
        typer.Option(
            "-e",
            "--evidence",
            metavar="NAME=STATE",
            help="What is observed: a state by name or number, or several with commas of which one holds. Repeat it.",
        ),
    ] = None,
    n: Annotated[int, typer.Option("-n", metavar="N", min=0, help="How many parameters.")] = 20,
    spread: Annotated[
        float, typer.Option("--spread", min=0.0, help="How far each parameter is moved, relative to its value.")
    ] = 0.1,
    order: Order = "auto",
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    max_table: MaxTable = None,
    seed: Seed = 0,
    no_cache: NoCache = False,
    backend: Backend = "auto",
    json: Json = False,
) -> None:
    """How P(target | evidence) changes with each parameter of each table, the rest of its row kept in proportion.

    The parameters that move it most: value, derivative, and the probability at (1 - spread) and (1 + spread) times the
    value. All of them are computed at once, exactly.
    """
    net = read_network(file)
    name, state = parse_finding(net, target)
    if isinstance(state, frozenset):
        raise EvidenceError(f"the target is one state, not several: {target!r}")
    findings = parse_findings(net, evidence or [])
    if not spread > 0:
        raise typer.BadParameter("a width above 0", param_hint="--spread")
    with status("planning") as now:
        made = net.plan(chosen_order(order, file), **plan_options(time_limit, memory_limit, max_table, seed, no_cache))
        now("compiling (the first time on a machine this takes longer)")
        with made.compile(backend, progress=now) as tree:
            now("propagating")
            found = tree.sensitivity((name, state), findings)
            bars = found.tornado(n, spread)
    if json:
        print_json(
            {
                "file": file,
                "target": list(found.target),
                "evidence": {v: list(s) if isinstance(s, frozenset) else s for v, s in findings.items()},
                "probability": found.probability,
                "log_evidence": found.log_evidence,
                "spread": spread,
                "parameters": [
                    {
                        "variable": b.parameter.variable,
                        "state": b.parameter.state,
                        "given": dict(b.parameter.given),
                        "value": b.parameter.value,
                        "derivative": b.parameter.derivative,
                        "low": b.low,
                        "high": b.high,
                        "at_low": b.at_low,
                        "at_high": b.at_high,
                    }
                    for b in bars
                ],
            }
        )
        return
    p = said(found.probability) if stdout().is_terminal else repr(found.probability)
    print(f"# P({shown(name)} = {shown(found.target[1])}) now\t{p}")
    print_rows(
        ("parameter", "value", "derivative", "P at low", "P at high"),
        [(str(b.parameter), b.parameter.value, b.parameter.derivative, b.at_low, b.at_high) for b in bars],
    )
