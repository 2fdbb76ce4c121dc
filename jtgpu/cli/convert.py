"""``jtgpu convert``: a network in another format, and what that format cannot represent."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..errors import JtgpuError
from ..formats import open_text, save_text, writer_of
from ..formats.comments import find_comments
from ..formats.conversion import carry
from .console import command, print_json, shown, warn
from .options import Json, warn_of_repairs

__all__ = ["convert"]


@command
def convert(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="Network file (.net, .bif, ...), optionally gzipped (.gz).")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="Output file; the suffix selects the format, append .gz to compress.")
    ],
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite an existing file.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if the format cannot represent everything in the network.")
    ] = False,
    zero_rows: Annotated[
        str, typer.Option("--zero-rows", metavar="HOW", help="How to treat a row of zeros: error or uniform.")
    ] = "error",
    json: Json = False,
) -> None:
    """Convert a network to another format.

    Whatever the format cannot represent (attributes, names, digits, comments) is reported on stderr. Before the file is
    written, its text is parsed again and compared with the network.
    """
    if zero_rows not in ("error", "uniform"):
        raise typer.BadParameter(f"{zero_rows!r} is neither error nor uniform", param_hint="--zero-rows")
    wanted = writer_of(target)  # fails before the computation starts
    if os.path.exists(target) and not force:
        raise typer.BadParameter(f"{shown(target)!r} exists; pass --force to overwrite it", param_hint="TO")
    opened = open_text(source)
    model = opened.format.parse(opened.text, source, zero_rows=zero_rows)
    warn_of_repairs(model, source)
    made = carry(model, wanted)
    lost = list(made.losses)
    n_comments = find_comments(opened.text, opened.format.name).n
    if n_comments:
        lost.append(f"{n_comments} comment{'s' if n_comments > 1 else ''} of {source}")
    for text in made.notes:
        warn(text)
    for text in lost:
        warn(f"{wanted.name} cannot represent {text}")
    if strict and lost:
        raise JtgpuError(f"{target}: not written: {wanted.name} cannot represent everything in {source} (--strict)")
    n_bytes = save_text(made.text, target)
    if json:
        print_json(
            {
                "from": source,
                "to": target,
                "format": {"from": opened.format.name, "to": wanted.name},
                "variables": len(model),
                "bytes": n_bytes,
                "not_carried": lost,
            }
        )
    else:
        print(f"{shown(target)}: {wanted.name}, {len(model):,} variables, {n_bytes:,} bytes")
