"""The Typer application: one module of this folder per command."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ..util.version import __version__
from .batch import batch
from .convert import convert
from .info import info
from .mpe import mpe
from .plan import plan
from .query import query
from .sample import sample
from .sensitivity import sensitivity
from .solve import solve
from .time import time
from .tune import tune
from .voi import voi

__all__ = ["app", "main"]

app = typer.Typer(
    name="jtgpu",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Exact inference in discrete Bayesian networks by junction trees.",
    epilog="Exit codes: 0 success, 1 other error, 2 usage error, 3 does not fit in memory, 4 impossible evidence, "
    "5 unreadable file.",
)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"jtgpu {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Exact inference in discrete Bayesian networks by junction trees."""


for _command in (time, info, plan, query, batch, mpe, sample, sensitivity, voi, solve, convert, tune):
    app.command()(_command)


def main() -> None:
    """The console script."""
    try:
        app(prog_name="jtgpu")
    except KeyboardInterrupt:  # while the interpreter starts or exits
        sys.exit(130)
