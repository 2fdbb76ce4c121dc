"""``jtgpu sensitivity``: how a probability depends on each parameter of the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import EvidenceError, closest
from ..model.discrete import DiscreteModel
from ..model.findings import parse_finding
from ..util.text_table import printable as shown
from .completion import complete_findings
from .console import command, print_json
from .networks import case_of, findings_as_json, one_target, read_network
from .options import Digits, Evidence, EvidenceFile, File, Json, Without
from .planning import PlanOptions, RunOptions, compiled
from .tables import on_terminal, print_rows, show_number

if TYPE_CHECKING:
    from ..inference.results.sensitivities import Bar

EXAMPLES = ("jtgpu sensitivity asia -t lung=yes -e xray=yes -n 5",)

Event = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME=STATE",
        help="The variable and state of the probability; also -t.",
        autocompletion=complete_findings,
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--target",
        metavar="NAME=STATE",
        help="The variable and state of the probability.",
        autocompletion=complete_findings,
    ),
]


@command
def sensitivity(  # noqa: PLR0913 (a Typer command)
    file: File,
    event: Event = None,
    evidence: Evidence = None,
    evidence_file: EvidenceFile = None,
    target: Target = None,
    n: Annotated[int, typer.Option("-n", metavar="N", min=0, help="Number of parameters to print.")] = 20,
    spread: Annotated[
        float, typer.Option("--spread", min=0.0, help="Change of each parameter, relative to its value.")
    ] = 0.1,
    *,
    plan: PlanOptions,
    run: Annotated[RunOptions, Without("dtype", "devices")],
    json: Json = False,
    digits: Digits = None,
) -> None:
    """Show how P(target | evidence) changes with each parameter of each CPT.

    Prints the most influential parameters with value, derivative, and the probability at (1 - spread) and
    (1 + spread) times the value; the other entries of the row are scaled proportionally. All derivatives are exact and
    come from one computation.
    """
    net = read_network(file)
    name, state = _parse_target(net, one_target(event, target, "NAME=STATE"))
    findings = case_of(net, evidence, evidence_file)
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
    about = f"P({shown(name)} = {shown(found.target[1])}) now"
    p = show_number(found.probability, digits)
    print(f"{about}: {p}\n" if on_terminal() else f"# {about}\t{p}")
    print_rows(
        ("parameter", "value", "derivative", "P at low", "P at high"),
        [(str(b.parameter), b.parameter.value, b.parameter.derivative, b.at_low, b.at_high) for b in bars],
        digits=digits,
    )
    change = f"{100 * spread:.4g} %"
    meaning = f"P at low, P at high: the probability if the parameter is {change} lower, {change} higher (at most 1)"
    print(f"\n{meaning}" if on_terminal() else f"# {meaning}")


def _parse_target(net: DiscreteModel, text: str) -> tuple[str, int]:
    """The variable and the state of a target ``name=state``."""
    if "=" not in text:
        example = (
            f"; for example {text}={net.states(text)[0]}" if text in net.variables else closest(text, net.variables)
        )
        raise EvidenceError(f"expected a target as name=state, got {text!r}{example}")
    name, state = parse_finding(net, text)
    if isinstance(state, frozenset):
        raise EvidenceError(f"the target must be one state, not several: {text!r}")
    return name, state


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
