"""``jtgpu voi``: what to observe next to learn about a variable."""

from __future__ import annotations

from typing import Annotated

import typer

from ..model.findings import parse_findings
from .answers import print_rows
from .console import guarded, print_json, shown, status
from .options import (
    Backend,
    Dtype,
    File,
    Json,
    MaxTable,
    MemoryLimit,
    NoCache,
    Order,
    Seed,
    TimeLimit,
    chosen_order,
    dtype_of,
    plan_options,
    read_network,
)

__all__ = ["voi"]


@guarded
def voi(
    file: File,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Variable to learn about.")],
    evidence: Annotated[
        list[str] | None,
        typer.Option("-e", "--evidence", metavar="NAME=STATE", help="What is known already. Repeat it."),
    ] = None,
    candidate: Annotated[
        list[str] | None,
        typer.Option(
            "-c", "--candidate", metavar="NAME", help="Variable that could be observed. Repeat it. [default: all]"
        ),
    ] = None,
    order: Order = "auto",
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    max_table: MaxTable = None,
    seed: Seed = 0,
    no_cache: NoCache = False,
    backend: Backend = "auto",
    dtype: Dtype = "float64",
    json: Json = False,
) -> None:
    """Value of information: what to observe next.

    For each candidate the expected entropy of the target once it is observed, how much less that is than now (nats),
    and the expected probability of the target's most probable state. Best first.
    """
    net = read_network(file)
    findings = parse_findings(net, evidence or [])
    name = net.variables[net.index(target)]
    candidates = [net.variables[net.index(c)] for c in dict.fromkeys(candidate or [])] or None
    with status("planning") as now:
        made = net.plan(chosen_order(order, file), **plan_options(time_limit, memory_limit, max_table, seed, no_cache))
        now("compiling (the first time on a machine this takes longer)")
        with made.compile(backend, progress=now, **dtype_of(dtype)) as tree:
            now("propagating")
            entropy = tree.entropy(name, findings)
            found = tree.value_of_information(name, candidates, findings)
    if json:
        print_json(
            {
                "file": file,
                "target": name,
                "evidence": {v: list(s) if isinstance(s, frozenset) else s for v, s in findings.items()},
                "entropy": entropy,
                "observations": [dict(vars(o)) for o in found],
            }
        )
        return
    print(f"# H({shown(name)}) now\t{entropy!r} nats")
    print_rows(
        ("variable", "gain", "expected entropy", "expected accuracy"),
        [(o.variable, o.gain, o.expected_entropy, o.expected_accuracy) for o in found],
    )
