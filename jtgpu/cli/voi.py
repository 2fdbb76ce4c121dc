"""``jtgpu voi``: value of information."""

from __future__ import annotations

from typing import Annotated

import typer

from ..util.text_table import printable as shown
from .completion import complete_targets
from .console import command, print_json
from .networks import case_of, findings_as_json, one_target, read_network, target_names
from .options import Digits, Evidence, EvidenceFile, File, Json, Without
from .planning import PlanOptions, RunOptions, compiled
from .query import observation_table
from .tables import on_terminal, print_rows, show_number

EXAMPLES = ("jtgpu voi asia -t lung -e dysp=yes", "jtgpu voi asia -t lung -c smoke,xray")

Variable = Annotated[
    str | None,
    typer.Argument(
        metavar="TARGET",
        help="Variable to learn about; also -t.",
        autocompletion=complete_targets,
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option("-t", "--target", metavar="NAME", help="Variable to learn about.", autocompletion=complete_targets),
]
Candidates = Annotated[
    list[str] | None,
    typer.Option(
        "-c",
        "--candidate",
        metavar="NAME",
        autocompletion=complete_targets,
        help="Variable that could be observed, or several separated by commas. Repeatable. Default: all.",
    ),
]


@command
def voi(  # noqa: PLR0913 (a Typer command)
    file: File,
    variable: Variable = None,
    evidence: Evidence = None,
    evidence_file: EvidenceFile = None,
    target: Target = None,
    candidate: Candidates = None,
    *,
    plan: PlanOptions,
    run: Annotated[RunOptions, Without("devices")],
    json: Json = False,
    digits: Digits = None,
) -> None:
    """Rank variables by value of information: which to observe next.

    Prints for each candidate, best first: the expected reduction of the target's entropy by observing it (nats), the
    expected entropy, and the expected probability of the target's most probable state.
    """
    net = read_network(file)
    findings = case_of(net, evidence, evidence_file)
    name = net.variables[net.index(one_target(variable, target, "TARGET"))]
    candidates = target_names(net, candidate) or None
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
    if on_terminal():
        print(f"H({shown(name)}) now: {show_number(entropy, digits)} nats\n")
    else:
        print(f"# H({shown(name)}) now\t{show_number(entropy, digits)} nats")
    answer = observation_table(found)
    print_rows(answer.header, answer.rows, digits=digits)
