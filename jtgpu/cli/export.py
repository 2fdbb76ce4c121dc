"""``jtgpu convert`` and ``show``: a network in another format, or as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..draw import Drawing
from ..draw import show as draw
from ..errors import JtgpuError
from ..formats import open_text, save_text, writer_of
from ..formats.bundled import network_path
from ..formats.conversion import Conversion, carry
from ..formats.dynamic_writers import dumps_dynamic
from ..formats.mixed_writers import dumps_mixed
from ..formats.network_files import find_comments
from ..formats.registry import format_of_suffix
from ..model.decisions import DecisionNetwork
from ..model.dynamic import DynamicNetwork
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..util.arguments import Option
from ..util.atomic_file import write_text
from ..util.text_table import printable as shown
from .console import command, print_json, warn
from .networks import (
    case_of,
    check_output,
    check_picture,
    one_target,
    read_network,
    split_names,
    target_names,
    warn_of_repairs,
    with_codes,
)
from .options import OUTPUT, ChanceOnly, Codes, Evidence, EvidenceFile, File, Force, Json, Targets
from .planning import PlanOptions, RunOptions, compiled
from .tables import status

EXAMPLES = (
    "jtgpu convert asia asia.xdsl",
    "jtgpu convert asia -o asia.bif.gz --force",
    "jtgpu show asia -e xray=yes -o asia.svg",
    "jtgpu show munin --around R_MEDD2_LD_WD --hops 2 -o part.html",
    "jtgpu show alarm --tree -o tree.svg",
)


@command
def convert(  # noqa: PLR0913 (a Typer command)
    file: Annotated[str, Option(
        "FROM", "Network file (.net, .bif, ...), optionally compressed (.gz, .xz), or the name of a bundled network.",
        complete="networks")],
    to: Annotated[str | None, Option(
        "TO", "Output file; the suffix selects the format, append .gz or .xz to compress.")] = None,
    output: Annotated[str | None, Option("-o, --output PATH", "The same as TO.")] = None,
    force: Force = False,
    strict: Annotated[bool, Option(
        "--strict", "Fail if the format cannot represent everything in the network.")] = False,
    zero_rows: Annotated[str, Option(
        "--zero-rows HOW", "How to treat a row of zeros: error or uniform.", choices=("error", "uniform"))] = "error",
    chance_only: ChanceOnly = False,
    json: Json = False,
) -> None:
    """Convert a network to another format.

    Whatever the format cannot represent (attributes, names, digits, comments) is reported on stderr. Before the file is
    written, its text is parsed again and compared with the network.
    """
    target, source = one_target(to, output, "output", "--output"), file
    wanted = format_of_suffix(target) if target.lower().endswith((".mixed.json", ".dynamic.json")) else None
    wanted = wanted or writer_of(target)  # fails before the computation starts
    check_output(target, force)
    opened = open_text(network_path(source))
    decisions = "chance" if chance_only else "network"
    model: Any = opened.format.parse(opened.text, source, zero_rows=zero_rows, decisions=decisions)
    warn_of_repairs(model.discrete if isinstance(model, MixedNetwork) else model, source)
    if isinstance(model, (DynamicNetwork, MixedDynamicNetwork)):
        made = Conversion(dumps_dynamic(model, wanted.name), ())
        if wanted.parse(made.text, target) != model:
            raise JtgpuError(f"{target}: not written: the network would not be read back equal")
    elif isinstance(model, MixedNetwork):
        made = Conversion(dumps_mixed(model, wanted.name), ())
    else:
        made = carry(model, writer_of(target))
    n_comments = find_comments(opened.text, opened.format.name).n
    lost = [*made.losses, *([f"{n_comments} comment{'s' if n_comments > 1 else ''} of {source}"] if n_comments else [])]
    for text in (*made.notes, *(f"{wanted.name} cannot represent {text}" for text in lost)):
        warn(text)
    if strict and lost:
        raise JtgpuError(f"{target}: not written: {wanted.name} cannot represent everything in {source} (--strict)")
    n_bytes = save_text(made.text, target)
    if json:
        print_json({
            "from": source, "to": target, "format": {"from": opened.format.name, "to": wanted.name},
            "variables": len(model), "bytes": n_bytes, "not_carried": lost,
        })
    else:
        print(f"{shown(target)}: {wanted.name}, {len(model):,} variables, {n_bytes:,} bytes")


Picture = Annotated[Path | None, Option(
    "-o, --output PATH", "The .svg or .html file to write. Default in a pipe: SVG to stdout.", panel=OUTPUT)]


@command
def show(  # noqa: PLR0913 (a Typer command)
    file: File,
    evidence: Evidence = None,
    evidence_file: EvidenceFile = None,
    codes: Codes = None,
    target: Targets = None,
    around: Annotated[list[str] | None, Option(
        "--around NAME", "Draw the neighbourhood of this variable, or of several separated by commas. Repeatable.",
        complete="targets")] = None,
    hops: Annotated[int, Option("--hops N", "Arcs from --around to the farthest variable.", least=0)] = 2,
    most: Annotated[int, Option("--most N", "Variables, or cliques, to draw.", least=1)] = 150,
    tree: Annotated[bool, Option("--tree", "Draw the junction tree: cliques and separators.")] = False,
    names: Annotated[bool, Option("--names", "Draw names without posteriors.")] = False,
    *,
    plan: PlanOptions,
    run: RunOptions,
    output: Picture = None,
    force: Force = False,
) -> None:
    """Draw a network with its posteriors and evidence, or its junction tree, as SVG or HTML.

    Networks of more variables than --most are drawn in part: around the evidence and the targets, or else around the
    variable with the most neighbours. --target draws a ring.
    """
    suffix = _suffix(output, force)
    net = with_codes(read_network(file), codes)
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
    elif names or isinstance(net, DecisionNetwork):
        drawn = net.compile() if isinstance(net, DecisionNetwork) and not names else net
        drawing = draw(drawn, findings or None, targets=targets, around=centre, hops=hops, most=most)
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
    check_picture(output, force)
    return output.suffix
