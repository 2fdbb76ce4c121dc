"""``jtgpu mpe``, ``voi`` and ``sensitivity``: explanations, what to observe next, and what a probability depends on."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import EvidenceError, closest
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..model.quick import parse_finding
from ..util.arguments import Option
from ..util.text_table import printable as shown
from .console import command, print_json, warn
from .networks import case_of, findings_as_json, load_any, one_target, read_network, target_names, with_codes
from .numbers import as_json, compiled_numbers, mixed_findings
from .options import Codes, Digits, Evidence, EvidenceFile, File, Json, Without
from .planning import PlanOptions, RunOptions, compiled
from .query import BIT, observation_table
from .tables import on_terminal, print_rows, show_number

if TYPE_CHECKING:
    from ..inference.results.sensitivities import Bar

EXAMPLES = (
    "jtgpu mpe asia -e xray=yes -k 3",
    "jtgpu mpe asia -e xray=yes -t lung,bronc",
    "jtgpu voi asia -t lung -e dysp=yes",
    "jtgpu voi asia -t lung -c smoke,xray",
    "jtgpu sensitivity asia -t lung=yes -e xray=yes -n 5",
)


@command
def mpe(  # noqa: PLR0913 (a Typer command)
    file: File,
    evidence: Evidence = None,
    evidence_file: EvidenceFile = None,
    codes: Codes = None,
    k: Annotated[int, Option("-k K", "Number of configurations, best first.", least=1)] = 1,
    target: Annotated[list[str] | None, Option(
        "-t, --target NAME", "Variable to maximize over, or several separated by commas; all others are summed out "
        "(marginal MAP, which may cost far more). Repeatable. Default: all variables.", complete="targets")] = None,
    *,
    plan: PlanOptions,
    run: Annotated[RunOptions, Without("dtype", "devices")],
    json: Json = False,
    digits: Digits = None,
) -> None:
    """Find the most probable configuration given evidence, or the K most probable ones.

    Prints one variable per line and one configuration per column, then P(configuration | evidence) and
    ln P(configuration, evidence).
    """
    net = with_codes(read_network(file), codes)
    findings = case_of(net, evidence, evidence_file)
    targets = target_names(net, target)
    with compiled(net, file, plan, run) as (tree, _):
        if targets:
            most = 2**62 if plan.max_table == 0 else plan.max_table
            best = tree.map(targets, findings, k=k, memory_limit=plan.memory, max_table=most)
        else:
            best = tree.mpe(findings, k=k)
        ranked = [(dict(e), e.probability, e.log_joint) for e in best.ranked]
        log_evidence = best.log_evidence
    if len(ranked) < k:
        warn(f"only {len(ranked)} configurations have a probability above 0")
    if json:
        print_json({
            "file": file,
            "evidence": findings_as_json(findings),
            "log_evidence": log_evidence,
            "explanations": [
                {"states": states, "probability": p, "log_joint": log_joint} for states, p, log_joint in ranked
            ],
        })
        return
    table = on_terminal()
    print_rows(
        ("variable", *("state" if len(ranked) == 1 else str(i + 1) for i in range(len(ranked)))),
        [
            *((v, *(states[v] for states, _, _ in ranked)) for v in ranked[0][0]),
            ("P" if table else "# P(configuration | evidence)", *(p for _, p, _ in ranked)),
            ("ln P" if table else "# ln P(configuration, evidence)", *(log_joint for _, _, log_joint in ranked)),
        ],
        digits=digits,
    )


Variable = Annotated[str | None, Option("TARGET", "Variable to learn about; also -t.", complete="targets")]
Candidates = Annotated[list[str] | None, Option(
    "-c, --candidate NAME",
    "Variable that could be observed, or several separated by commas. Repeatable. Default: all.", complete="targets")]


@command
def voi(  # noqa: PLR0913 (a Typer command)
    file: File,
    variable: Variable = None,
    evidence: Evidence = None,
    evidence_file: EvidenceFile = None,
    codes: Codes = None,
    target: Annotated[str | None, Option("-t, --target NAME", "Variable to learn about.", complete="targets")] = None,
    candidate: Candidates = None,
    *,
    plan: PlanOptions,
    run: Annotated[RunOptions, Without("devices")],
    json: Json = False,
    digits: Digits = None,
) -> None:
    """Rank variables by value of information: which to observe next.

    Prints for each candidate, best first: the expected reduction of the target's entropy by observing it, the
    expected entropy, both in bits, and the expected probability of the target's most probable state; of a target
    that is a number, the expected standard deviation.
    """
    net: Any = with_codes(load_any(file), codes)
    numbers = isinstance(net, MixedNetwork)
    if numbers and evidence_file is not None:
        raise typer.BadParameter(f"{file} has numbers, for which voi takes --evidence only", param_hint=file)
    findings: Any = mixed_findings(net, evidence or []) if numbers else case_of(net, evidence, evidence_file)
    name = net.variables[net.index(one_target(variable, target, "TARGET"))]
    candidates = target_names(net, candidate) or None
    with ExitStack() as closed:
        tree: Any
        if numbers:
            tree = closed.enter_context(compiled_numbers(net, file, plan, run))
        else:
            tree, _ = closed.enter_context(compiled(net, file, plan, run))
        entropy = tree.entropy(name, findings) / BIT
        observations = tree.value_of_information(name, candidates, findings)
    if json:
        print_json({
            "file": file, "target": name, "evidence": (as_json if numbers else findings_as_json)(findings),
            "unit": "bits", "entropy": entropy,
            "observations": [
                dict(vars(o)) | {"gain": o.gain / BIT, "expected_entropy": o.expected_entropy / BIT}
                for o in observations
            ],
        })
        return
    if on_terminal():
        print(f"H({shown(name)}) now: {show_number(entropy, digits)} bits\n")
    else:
        print(f"# H({shown(name)}) now\t{show_number(entropy, digits)} bits")
    answer = observation_table(observations)
    print_rows(answer.header, answer.rows, digits=digits)


@command
def sensitivity(  # noqa: PLR0913 (a Typer command)
    file: File,
    event: Annotated[str | None, Option(
        "NAME=STATE", "The variable and state of the probability; also -t.", complete="findings")] = None,
    evidence: Evidence = None,
    evidence_file: EvidenceFile = None,
    codes: Codes = None,
    target: Annotated[str | None, Option(
        "-t, --target NAME=STATE", "The variable and state of the probability.", complete="findings")] = None,
    n: Annotated[int, Option("-n N", "Number of parameters to print.", least=0)] = 20,
    spread: Annotated[float, Option("--spread", "Change of each parameter, relative to its value.", least=0.0)] = 0.1,
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
    net = with_codes(read_network(file), codes)
    name, state = _parse_target(net, one_target(event, target, "NAME=STATE"))
    findings = case_of(net, evidence, evidence_file)
    if not spread > 0:
        raise typer.BadParameter("must be greater than 0", param_hint="--spread")
    with compiled(net, file, plan, run) as (tree, _):
        result = tree.sensitivity((name, state), findings)
        bars = result.tornado(n, spread)
    if json:
        print_json({
            "file": file, "target": list(result.target), "evidence": findings_as_json(findings),
            "probability": result.probability, "log_evidence": result.log_evidence, "spread": spread,
            "parameters": [_bar_as_json(b) for b in bars],
        })
        return
    about = f"P({shown(name)} = {shown(result.target[1])}) now"
    p = show_number(result.probability, digits)
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
        "variable": bar.parameter.variable, "state": bar.parameter.state, "given": dict(bar.parameter.given),
        "value": bar.parameter.value, "derivative": bar.parameter.derivative, "low": bar.low, "high": bar.high,
        "at_low": bar.at_low, "at_high": bar.at_high,
    }
