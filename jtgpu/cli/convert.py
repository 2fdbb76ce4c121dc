"""``jtgpu convert``: a network in another format, and what that format cannot represent."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import JtgpuError
from ..formats import open_text, save_text, writer_of
from ..formats.bundled import network_path
from ..formats.comments import find_comments
from ..formats.conversion import carry
from ..util.text_table import printable as shown
from .completion import complete_networks
from .console import command, print_json, warn
from .networks import check_output, one_target, warn_of_repairs
from .options import Force, Json, one_of

EXAMPLES = ("jtgpu convert asia asia.xdsl", "jtgpu convert asia -o asia.bif.gz --force")

Source = Annotated[
    str,
    typer.Argument(
        metavar="FROM",
        help="Network file (.net, .bif, ...), optionally compressed (.gz, .xz), or the name of a bundled network.",
        autocompletion=complete_networks,
    ),
]
Destination = Annotated[
    str | None,
    typer.Argument(
        metavar="TO",
        help="Output file; the suffix selects the format, append .gz or .xz to compress.",
        show_default=False,
    ),
]
ZeroRows = Annotated[
    str,
    typer.Option(
        "--zero-rows",
        metavar="HOW",
        callback=one_of("error", "uniform"),
        help="How to treat a row of zeros: error or uniform.",
    ),
]


@command
def convert(
    file: Source,
    to: Destination = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="PATH", help="The same as TO.", show_default=False)
    ] = None,
    force: Force = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if the format cannot represent everything in the network.")
    ] = False,
    zero_rows: ZeroRows = "error",
    json: Json = False,
) -> None:
    """Convert a network to another format.

    Whatever the format cannot represent (attributes, names, digits, comments) is reported on stderr. Before the file is
    written, its text is parsed again and compared with the network.
    """
    target, source = one_target(to, output, "output", "--output"), file
    wanted = writer_of(target)  # fails before the computation starts
    check_output(target, force)
    opened = open_text(network_path(source))
    model = opened.format.parse(opened.text, source, zero_rows=zero_rows)
    warn_of_repairs(model, source)
    made = carry(model, wanted)
    n_comments = find_comments(opened.text, opened.format.name).n
    lost = [*made.losses, *([f"{n_comments} comment{'s' if n_comments > 1 else ''} of {source}"] if n_comments else [])]
    for text in (*made.notes, *(f"{wanted.name} cannot represent {text}" for text in lost)):
        warn(text)
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
