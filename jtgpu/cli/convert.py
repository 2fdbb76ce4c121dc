"""``jtgpu convert``: a network in another format, and what that format cannot carry."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..errors import JtgpuError
from .console import guarded, print_json, shown, warn
from .options import Json

__all__ = ["convert"]


@guarded
def convert(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A network file: .net, .bif ..., plain or .gz.")],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="The file to write; its suffix says the format, .gz behind it packs.")
    ],
    force: Annotated[bool, typer.Option("--force", "-f", help="Write over a file that is there.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Write nothing if the format cannot carry all that the network holds.")
    ] = False,
    zero_rows: Annotated[
        str, typer.Option("--zero-rows", metavar="HOW", help="A row of zeros is an error, or is made uniform.")
    ] = "error",
    json: Json = False,
) -> None:
    """Write a network in another format.

    What the format cannot carry is said on stderr: attributes, names, digits, comments. The text is read back and
    compared with the network before anything is written.
    """
    if zero_rows not in ("error", "uniform"):
        raise typer.BadParameter(f"{zero_rows!r} is neither error nor uniform", param_hint="--zero-rows")
    from ..formats import open_text, save_text, writer_of
    from ..formats.carry import carry
    from ..formats.comments import find_comments

    wanted = writer_of(target)  # before the work: a typing error shall not cost minutes
    if os.path.exists(target) and not force:
        raise typer.BadParameter(f"{shown(target)!r} is there already; --force writes over it", param_hint="TO")
    opened = open_text(source)
    model = opened.format.parse(opened.text, source, zero_rows=zero_rows)
    said = []
    report = getattr(model, "row_report", None)
    if report is not None and (report.n_off or report.zero_rows):
        said.append(f"{source}: {report}")
    made = carry(model, wanted)
    lost = list(made.losses)
    n_comments = find_comments(opened.text, opened.format.name).n
    if n_comments:
        lost.append(f"{n_comments} comment{'s' if n_comments > 1 else ''} of {source}")
    for text in [*said, *made.notes]:
        warn(text)
    for text in lost:
        warn(f"{wanted.name} does not carry {text}")
    if strict and lost:
        raise JtgpuError(f"{target}: not written, for {wanted.name} does not carry all of {source} (--strict)")
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
