"""``jtgpu mpe``: most probable explanations, of all variables or of some."""

from __future__ import annotations

from typing import Annotated

import typer

from .completion import complete_targets
from .console import command, print_json, warn
from .networks import case_of, findings_as_json, read_network, target_names
from .options import Digits, Evidence, EvidenceFile, File, Json, Without
from .planning import PlanOptions, RunOptions, compiled
from .tables import on_terminal, print_rows

EXAMPLES = ("jtgpu mpe asia -e xray=yes -k 3", "jtgpu mpe asia -e xray=yes -t lung,bronc")

Maximized = Annotated[
    list[str] | None,
    typer.Option(
        "-t",
        "--target",
        metavar="NAME",
        help="Variable to maximize over, or several separated by commas; all others are summed out (marginal MAP, "
        "which may cost far more). Repeatable. Default: all variables.",
        autocompletion=complete_targets,
    ),
]


@command
def mpe(  # noqa: PLR0913 (a Typer command)
    file: File,
    evidence: Evidence = None,
    evidence_file: EvidenceFile = None,
    k: Annotated[int, typer.Option("-k", metavar="K", min=1, help="Number of configurations, best first.")] = 1,
    target: Maximized = None,
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
    net = read_network(file)
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
        print_json(
            {
                "file": file,
                "evidence": findings_as_json(findings),
                "log_evidence": log_evidence,
                "explanations": [
                    {"states": states, "probability": p, "log_joint": log_joint} for states, p, log_joint in ranked
                ],
            }
        )
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
