"""``jtgpu decide``: the best policy of a decision network, its options, and what to observe first."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Any

from ..decisions.results import Policy
from ..errors import ArgumentError, EvidenceError
from ..formats import load
from ..model.decisions import DecisionNetwork
from ..model.quick import parse_findings
from ..util.arguments import Option
from ..util.atomic_file import write_bytes
from .console import command, print_json
from .networks import check_output, with_codes
from .options import OUTPUT, Codes, Digits, Evidence, File, Force, Json
from .tables import print_rows

EXAMPLES = (
    "jtgpu decide oil.net",
    "jtgpu decide oil.net -e test=yes -e seismic=closed --option drill",
    "jtgpu decide pigs.xdsl --recall --policy policy.csv",
    "jtgpu decide oil.net --voi drill",
)


@command
def decide(  # noqa: PLR0913 (a Typer command)
    file: File,
    evidence: Evidence = None,
    codes: Codes = None,
    decision: Annotated[str | None, Option(
        "--option DECISION", "Print the expected utility of each option of this decision.")] = None,
    voi: Annotated[str | None, Option(
        "--voi DECISION", "Print by how much observing each variable before this decision raises the utility.")] = None,
    recall: Annotated[bool, Option(
        "--recall", "Let every decision know earlier decisions and what was known at them.")] = False,
    restarts: Annotated[int, Option(
        "--restarts N", "Random policies to start from where decisions depend on each other.", least=0)] = 10,
    policy: Annotated[str | None, Option(
        "--policy PATH", "Write the policy to this CSV file.", panel=OUTPUT)] = None,
    force: Force = False,
    json: Json = False,
    digits: Digits = None,
) -> None:
    """Find the policy of a decision network with the highest expected utility.

    Prints what to choose in each situation, or the options of one decision (--option), or what to observe before it
    (--voi). Files of HUGIN, GeNIe, pyAgrum and Netica hold decision networks.
    """
    if decision is not None and voi is not None:
        raise EvidenceError("--option and --voi are different questions; give one of them")
    if policy is not None:
        check_output(policy, force)
    net: Any = load(file)
    if not isinstance(net, DecisionNetwork):
        raise ArgumentError(f"{file} has no decisions; jtgpu query computes its posteriors")
    net = with_codes(net, codes)
    tree = (net.no_forgetting() if recall else net).compile()
    findings = parse_findings(net, evidence or [])
    best = tree.policy(findings, restarts=restarts)
    if policy is not None:
        _write(best, policy)
    if decision is not None:
        options = tree.options(decision, findings)
        if json:
            print_json({"file": file, "decision": options.decision, "options": dict(options), "best": options.best})
            return
        print_rows(("option", "expected_utility"), [*options.items()], digits=digits)
    elif voi is not None:
        gains = tree.value_of_information(voi, evidence=findings)
        if json:
            print_json({"file": file, "decision": gains.decision, "gains": dict(gains)})
            return
        print_rows(("variable", "gain"), [*gains.items()], digits=digits)
    elif json:
        print_json({
            "file": file, "expected_utility": best.expected_utility, "method": best.method,
            "policy": {d: [{"known": row, "option": o} for row, o in best.rows(d)] for d in best},
        })  # fmt: skip
    else:
        print_rows(("decision", "known", "option"), _rows(best))
        print_rows(("expected_utility", "method"), [(best.expected_utility, best.method)], digits=digits)


def _rows(best: Policy) -> list[tuple[str, str, str]]:
    _, (decisions, known, options), _ = best._table()
    return [*zip(decisions, known, options, strict=True)]


def _write(best: Policy, path: str) -> None:
    text = io.StringIO(newline="")
    out = csv.writer(text, lineterminator="\n")
    out.writerow(("decision", "known", "option"))
    out.writerows(_rows(best))
    write_bytes(path, text.getvalue().encode())
