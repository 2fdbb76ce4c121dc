"""``jtgpu sensitivity``: how a probability depends on each parameter of the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import EvidenceError
from ..model.findings import parse_finding, parse_findings
from .answers import format_number, print_rows
from .console import command, print_json, shown, stdout
from .option_groups import Without
from .options import Evidence, File, Json, PlanOptions, RunOptions, compiled, findings_as_json, read_network

if TYPE_CHECKING:
    from ..inference.results.sensitivities import Bar

__all__ = ["sensitivity"]


@command
def sensitivity(  # noqa: PLR0913 (a Typer command)
    file: File,
    target: Annotated[str, typer.Argument(metavar="NAME=STATE", help="The variable and state of the probability.")],
    evidence: Evidence = None,
    n: Annotated[int, typer.Option("-n", metavar="N", min=0, help="Number of parameters to print.")] = 20,
    spread: Annotated[
        float, typer.Option("--spread", min=0.0, help="Change of each parameter, relative to its value.")
    ] = 0.1,
    *,
    plan: PlanOptions,
    run: Annotated[RunOptions, Without("dtype", "devices")],
    json: Json = False,
) -> None:
    """Show how P(target | evidence) changes with each parameter of each table.

    Prints the most influential parameters with value, derivative, and the probability at (1 - spread) and
    (1 + spread) times the value; the other entries of the row are scaled proportionally. All derivatives are exact and
    come from one computation.
    """
    net = read_network(file)
    name, state = parse_finding(net, target)
    if isinstance(state, frozenset):
        raise EvidenceError(f"the target must be one state, not several: {target!r}")
    findings = parse_findings(net, evidence or [])
    if not spread > 0:
        raise typer.BadParameter("must be greater than 0", param_hint="--spread")
    with compiled(net, file, plan, run) as (tree, _):
        found = tree.sensitivity((name, state), findings)
        bars = found.tornado(n, spread)
    if json:
        print_json(
            {
                "file": file,
                "target": list(found.target),
                "evidence": findings_as_json(findings),
                "probability": found.probability,
                "log_evidence": found.log_evidence,
                "spread": spread,
                "parameters": [_bar_as_json(b) for b in bars],
            }
        )
        return
    p = format_number(found.probability) if stdout().is_terminal else repr(found.probability)
    print(f"# P({shown(name)} = {shown(found.target[1])}) now\t{p}")
    print_rows(
        ("parameter", "value", "derivative", "P at low", "P at high"),
        [(str(b.parameter), b.parameter.value, b.parameter.derivative, b.at_low, b.at_high) for b in bars],
    )


def _bar_as_json(bar: Bar) -> dict[str, Any]:
    return {
        "variable": bar.parameter.variable,
        "state": bar.parameter.state,
        "given": dict(bar.parameter.given),
        "value": bar.parameter.value,
        "derivative": bar.parameter.derivative,
        "low": bar.low,
        "high": bar.high,
        "at_low": bar.at_low,
        "at_high": bar.at_high,
    }
