"""``jtgpu voi``: value of information."""

from __future__ import annotations

from typing import Annotated

import typer

from ..model.findings import parse_findings
from .answers import print_rows
from .console import command, print_json, shown
from .option_groups import Without
from .options import File, Json, PlanOptions, RunOptions, compiled, findings_as_json, read_network

__all__ = ["voi"]


@command
def voi(
    file: File,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Variable to learn about.")],
    evidence: Annotated[
        list[str] | None,
        typer.Option("-e", "--evidence", metavar="NAME=STATE", help="Observed state. Repeatable."),
    ] = None,
    candidate: Annotated[
        list[str] | None,
        typer.Option(
            "-c", "--candidate", metavar="NAME", help="Variable that could be observed. Repeatable. Default: all."
        ),
    ] = None,
    *,
    plan: PlanOptions,
    run: Annotated[RunOptions, Without("devices")],
    json: Json = False,
) -> None:
    """Rank variables by value of information: which to observe next.

    Prints for each candidate, best first: the expected reduction of the target's entropy by observing it (nats), the
    expected entropy, and the expected probability of the target's most probable state.
    """
    net = read_network(file)
    findings = parse_findings(net, evidence or [])
    name = net.variables[net.index(target)]
    candidates = [net.variables[net.index(c)] for c in dict.fromkeys(candidate or [])] or None
    with compiled(net, file, plan, run) as (tree, _):
        entropy = tree.entropy(name, findings)
        found = tree.value_of_information(name, candidates, findings)
    if json:
        print_json(
            {
                "file": file,
                "target": name,
                "evidence": findings_as_json(findings),
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
