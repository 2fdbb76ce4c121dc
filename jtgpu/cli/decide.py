"""``jtgpu decide``: the best policy of a decision network, its options, and what to observe first."""

from __future__ import annotations

from typing import Any

from click import BadParameter

from ..decisions.results import Policy
from ..errors import ArgumentError, EvidenceError
from ..model.decisions import DecisionNetwork
from ..model.quick import parse_findings
from ..util.atomic_file import write_bytes
from .console import csv_text, print_json
from .declared import Decide
from .networks import check_outputs, load_any, with_codes
from .tables import on_terminal, print_note, print_rows

ANY = "any"  # option of a policy


def decide(o: Decide) -> None:
    """Run ``jtgpu decide``."""
    if o.option is not None and o.voi is not None:
        raise EvidenceError("--option and --voi are different questions; give one of them")
    check_outputs(o.force, o.policy)
    net: Any = load_any(o.file)
    if not isinstance(net, DecisionNetwork):
        raise ArgumentError(f"{o.file} has no decisions; jtgpu query computes its posteriors")
    net = with_codes(net, o.codes)
    tree = (net.no_forgetting() if o.recall else net).compile()
    if observed := {text.partition("=")[0].strip() for text in o.evidence}.intersection(net.utilities):
        raise BadParameter(f"{min(observed)!r} is a utility, which cannot be observed", param_hint="--evidence")
    findings = parse_findings(net, o.evidence)
    best = tree.policy(findings, restarts=o.restarts)
    if o.policy is not None:
        write_bytes(o.policy, csv_text(("decision", "known", "option"), _rows(best)).encode())
    if o.option is not None:
        options = tree.options(o.option, findings)
        if o.json:
            print_json({"file": o.file, "decision": options.decision, "options": dict(options), "best": options.best})
            return
        print_rows(("option", "expected_utility"), [*options.items()], digits=o.digits)
        if unknown := [v for v in net.parents(o.option) if v not in findings]:
            if on_terminal():
                print()
            were = "were" if len(unknown) > 1 else "was"
            print_note(f"as if {' and '.join(unknown)} {were} not known when deciding; --evidence says what is")
    elif o.voi is not None:
        gains = tree.value_of_information(o.voi, evidence=findings)
        if o.json:
            print_json({"file": o.file, "decision": gains.decision, "gains": dict(gains)})
            return
        print_rows(("variable", "gain"), [*gains.items()], digits=o.digits)
    elif o.json:
        print_json({
            "file": o.file, "expected_utility": best.expected_utility, "method": best.method,
            "policy": {d: [{"known": row, "option": o} for row, o in best.rows(d)] for d in best},
        })  # fmt: skip
    else:
        print_rows(("decision", "known", "option"), _rows(best))
        if on_terminal():
            print()
        print_rows(("expected_utility", "method"), [(best.expected_utility, best.method)], digits=o.digits)
        if any(option == ANY for *_, option in _rows(best)):
            print_note(f"{ANY}: in a situation that does not occur")


def _rows(best: Policy) -> list[tuple[str, str, str]]:
    _, (decisions, known, options), _ = best._table()
    return [*zip(decisions, known, options, strict=True)]
