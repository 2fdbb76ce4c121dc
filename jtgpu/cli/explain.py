"""``jtgpu mpe``, ``voi`` and ``sensitivity``: explanations, what to observe next, and what a probability depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import EvidenceError, closest
from ..model.discrete import DiscreteModel
from ..model.quick import parse_finding
from ..options.compute import Compute, Planning
from ..util.text_table import counted
from ..util.text_table import printable as shown
from .console import print_json, warn
from .declared import Mpe, Sensitivity, Voi
from .networks import case_of, findings_as_json, load_any, one_target, read_network, target_names, with_codes
from .planning import compiled
from .query import BIT, observation_table
from .tables import on_terminal, print_note, print_rows, show_number

if TYPE_CHECKING:
    from ..inference.results.sensitivities import Bar


def mpe(o: Mpe, plan: Planning, run: Compute) -> None:
    """Run ``jtgpu mpe``."""
    net = with_codes(read_network(o.file), o.codes)
    findings = case_of(net, o.evidence, o.evidence_file)
    targets = target_names(net, o.target)
    with compiled(net, o.file, plan, run, decisions=True) as (tree, _):
        if targets:
            most = 2**62 if plan.max_table == 0 else plan.max_table
            best = tree.map(targets, findings, k=o.k, memory_limit=plan.memory_limit, max_table=most)
        else:
            best = tree.mpe(findings, k=o.k)
        ranked = [(dict(e), e.probability, e.log_joint) for e in best.ranked]
        log_evidence = best.log_evidence
    if len(ranked) < o.k:
        has = "has" if len(ranked) == 1 else "have"
        warn(f"only {counted(len(ranked), 'configuration')} {has} a probability above 0")
    if o.json:
        print_json({
            "file": o.file, "evidence": findings_as_json(findings), "log_evidence": log_evidence,
            "explanations": [dict(zip(("states", "probability", "log_joint"), e, strict=True)) for e in ranked],
        })  # fmt: skip
        return
    table = on_terminal()
    print_rows(
        ("variable", *("state" if len(ranked) == 1 else str(i + 1) for i in range(len(ranked)))),
        [
            *((v, *(states[v] for states, _, _ in ranked)) for v in ranked[0][0]),
            ("P" if table else "# P(configuration | evidence)", *(p for _, p, _ in ranked)),
            ("ln P" if table else "# ln P(configuration, evidence)", *(log_joint for _, _, log_joint in ranked)),
        ],
        digits=o.digits,
    )


def voi(o: Voi, plan: Planning, run: Compute) -> None:
    """Run ``jtgpu voi``."""
    net: Any = with_codes(load_any(o.file), o.codes)
    findings = case_of(net, o.evidence, o.evidence_file)
    name = net.variables[net.index(one_target(o.variable, o.target, "TARGET"))]
    candidates = target_names(net, o.candidate) or None
    with compiled(net, o.file, plan, run) as (tree, _):
        entropy = tree.entropy(name, findings) / BIT
        observations = tree.value_of_information(name, candidates, findings)
    if o.json:
        print_json({
            "file": o.file, "target": name, "evidence": findings_as_json(findings),
            "unit": "bits", "entropy": entropy,
            "observations": [
                dict(vars(o)) | {"gain": o.gain / BIT, "expected_entropy": o.expected_entropy / BIT}
                for o in observations
            ],
        })
        return
    if on_terminal():
        print(f"H({shown(name)}) now: {show_number(entropy, o.digits)} bits\n")
    else:
        print(f"# H({shown(name)}) now\t{show_number(entropy, o.digits)} bits")
    print_rows(*observation_table(observations), digits=o.digits)


def sensitivity(o: Sensitivity, plan: Planning, run: Compute) -> None:
    """Run ``jtgpu sensitivity``."""
    net = with_codes(read_network(o.file), o.codes)
    name, state = _parse_target(net, one_target(o.event, o.target, "NAME=STATE"))
    findings = case_of(net, o.evidence, o.evidence_file)
    with compiled(net, o.file, plan, run) as (tree, _):
        result = tree.sensitivity((name, state), findings)
        bars = result.tornado(o.n, o.spread)
    if o.json:
        print_json({
            "file": o.file, "target": list(result.target), "evidence": findings_as_json(findings),
            "probability": result.probability, "log_evidence": result.log_evidence, "spread": o.spread,
            "parameters": [_bar_as_json(b) for b in bars],
        })
        return
    about = f"P({shown(name)} = {shown(result.target[1])}) now"
    p = show_number(result.probability, o.digits)
    print(f"{about}: {p}\n" if on_terminal() else f"# {about}\t{p}")
    print_rows(
        ("parameter", "value", "derivative", "P at low", "P at high"),
        [(str(b.parameter), b.parameter.value, b.parameter.derivative, b.at_low, b.at_high) for b in bars],
        digits=o.digits,
    )
    change = f"{100 * o.spread:.4g} %"
    meaning = f"P at low, P at high: the probability if the parameter is {change} lower, {change} higher (at most 1)"
    if on_terminal():
        print()
    print_note(meaning)


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
