"""``jtgpu convert`` and ``show``: a network in another format, or as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from click import BadParameter

from ..draw import Drawing
from ..draw import show as draw
from ..errors import JtgpuError
from ..formats import open_text, save_text, writer_of
from ..formats.bundled import network_path
from ..formats.conversion import carry
from ..formats.network_files import find_comments
from ..model.dynamic import DynamicNetwork
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..options.compute import Compute, Planning
from ..util.atomic_file import write_text
from ..util.text_table import counted
from ..util.text_table import printable as shown
from .console import print_json
from .declared import Convert, Show
from .networks import (
    case_of,
    check_outputs,
    check_picture,
    load_any_kind,
    one_target,
    split_names,
    target_names,
    warn_of_repairs,
    with_codes,
)
from .planning import compiled, make_plan
from .saving import warn_of_changes
from .tables import status


def convert(o: Convert) -> None:
    """Run ``jtgpu convert``."""
    target, source = one_target(o.to, o.output, "output", "--output"), o.file
    wanted = writer_of(target, every=True)  # fails before the computation starts
    check_outputs(o.force, target)
    opened = open_text(network_path(source))
    decisions = "chance" if o.chance_only else "network"
    model: Any = opened.format.parse(opened.text, source, zero_rows=o.zero_rows, decisions=decisions)
    warn_of_repairs(model.discrete if isinstance(model, MixedNetwork) else model, source)
    has_slices = isinstance(model, (DynamicNetwork, MixedDynamicNetwork))
    made = carry(model, writer_of(target, every=has_slices or isinstance(model, MixedNetwork)))
    if has_slices and wanted.parse(made.text, target) != model:
        raise JtgpuError(f"{target}: not written: the network would not be read back equal")
    n_comments = find_comments(opened.text, opened.format.name).n
    lost = [*made.losses, *([f"{counted(n_comments, 'comment')} of {source}"] if n_comments else [])]
    warn_of_changes(made.notes, lost, wanted)
    if o.strict and lost:
        raise JtgpuError(f"{target}: not written: {wanted.name} cannot represent everything in {source} (--strict)")
    n_bytes = save_text(made.text, target)
    if o.json:
        print_json({
            "from": source, "to": target, "format": {"from": opened.format.name, "to": wanted.name},
            "variables": len(model), "bytes": n_bytes, "not_carried": lost,
        })
    else:
        print(f"{shown(target)}: {wanted.name}, {counted(len(model), 'variable')}, {counted(n_bytes, 'byte')}")


def show(o: Show, plan: Planning, run: Compute) -> None:
    """Run ``jtgpu show``."""
    suffix = _suffix(o.output, o.force)
    net: Any = load_any_kind(o.file)
    if isinstance(net, (DynamicNetwork, MixedDynamicNetwork)):
        net = net.unroll(net.order + 1)
    net = with_codes(net, o.codes)
    findings = case_of(net, o.evidence, o.evidence_file)
    if findings and (o.tree or o.names):
        raise BadParameter("a picture without posteriors has no evidence", param_hint="--evidence")
    centre = split_names(o.around, net.variables, "variable") if o.around else None
    targets = target_names(net, o.target) or None
    drawing: Drawing
    if o.tree:
        with status("planning", run.progress):
            made = net if isinstance(net, MixedNetwork) else make_plan(plan, net, o.file, run)
        drawing = draw(made, tree=True, around=centre, hops=o.hops, most=o.most)
    elif o.names:
        drawing = draw(net, findings or None, targets=targets, around=centre, hops=o.hops, most=o.most)
    else:
        with compiled(net, o.file, plan, run, decisions=True) as (answering, _):
            drawing = draw(answering, findings, targets=targets, around=centre, hops=o.hops, most=o.most)
    if o.output is None:
        sys.stdout.write(drawing.text())
    else:
        write_text(o.output, drawing.text(suffix))


def _suffix(output: Path | None, force: bool) -> str:
    """The format of the output, checked before the computation starts."""
    if output is None:
        if sys.stdout.isatty():
            raise BadParameter("name a file to draw into: -o picture.svg, or .html", param_hint="--output")
        return ".svg"
    check_picture(output, force)
    return output.suffix
