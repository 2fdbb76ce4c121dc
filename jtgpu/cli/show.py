"""``jtgpu show``: a picture of a network with its posteriors, or of its junction tree."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..draw import Drawing
from ..draw import show as draw
from ..util.atomic_file import write_text
from .completion import complete_targets
from .console import command
from .networks import case_of, check_output, read_network, split_names, target_names
from .options import OUTPUT, Evidence, EvidenceFile, File, Force, Targets
from .planning import PlanOptions, RunOptions, compiled
from .tables import status

EXAMPLES = (
    "jtgpu show asia -e xray=yes -o asia.svg",
    "jtgpu show munin --around R_MEDD2_LD_WD --hops 2 -o part.html",
    "jtgpu show alarm --tree -o tree.svg",
)

Around = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Draw the neighbourhood of this variable, or of several separated by commas. Repeatable.",
        autocompletion=complete_targets,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="PATH", rich_help_panel=OUTPUT,
        help="The .svg or .html file to write. Default in a pipe: SVG to stdout.",
    ),
]  # fmt: skip


@command
def show(  # noqa: PLR0913 (a Typer command)
    file: File,
    evidence: Evidence = None,
    evidence_file: EvidenceFile = None,
    target: Targets = None,
    around: Around = None,
    hops: Annotated[int, typer.Option(metavar="N", min=0, help="Arcs from --around to the farthest variable.")] = 2,
    most: Annotated[int, typer.Option(metavar="N", min=1, help="Variables, or cliques, to draw.")] = 150,
    tree: Annotated[bool, typer.Option("--tree", help="Draw the junction tree: cliques and separators.")] = False,
    names: Annotated[bool, typer.Option("--names", help="Draw names without posteriors.")] = False,
    *,
    plan: PlanOptions,
    run: RunOptions,
    output: Output = None,
    force: Force = False,
) -> None:
    """Draw a network with its posteriors and evidence, or its junction tree, as SVG or HTML.

    Networks of more variables than --most are drawn in part: around the evidence and the targets, or else around the
    variable with the most neighbours. --target draws a ring.
    """
    suffix = _suffix(output, force)
    net = read_network(file)
    findings = case_of(net, evidence, evidence_file)
    if findings and (tree or names):
        raise typer.BadParameter("a picture without posteriors has no evidence", param_hint="--evidence")
    centre = split_names(around, net.variables, "variable") if around else None
    targets = target_names(net, target) or None
    drawing: Drawing
    if tree:
        with status("planning", run.progress):
            made = plan.make(net, file, run)
        drawing = draw(made, around=centre, hops=hops, most=most)
    elif names:
        drawing = draw(net, targets=targets, around=centre, hops=hops, most=most)
    else:
        with compiled(net, file, plan, run) as (answering, _):
            drawing = draw(answering, findings, targets=targets, around=centre, hops=hops, most=most)
    if output is None:
        sys.stdout.write(drawing.text())
    else:
        write_text(output, drawing.text(suffix))


def _suffix(output: Path | None, force: bool) -> str:
    """The format of the output, checked before the computation starts."""
    if output is None:
        if sys.stdout.isatty():
            raise typer.BadParameter("name a file to draw into: -o picture.svg, or .html", param_hint="--output")
        return ".svg"
    if output.suffix.lower() not in (".svg", ".html"):
        raise typer.BadParameter(f"{output.name!r} ends in neither .svg nor .html", param_hint="--output")
    check_output(output, force)
    return output.suffix
