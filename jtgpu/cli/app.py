"""The application: the commands, each a module of this folder, under one name."""

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
    epilog="Exit codes: 0 done, 1 other error, 2 wrong usage, 3 does not fit, 4 impossible evidence, "
    "5 a file that cannot be understood.",
)


def _version(asked: bool) -> None:
    if asked:
        print(f"jtgpu {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Exact inference in discrete Bayesian networks by junction trees."""


for _command in (time, info, plan, query, batch, mpe, sample, sensitivity, voi, solve, convert, tune):
    app.command()(_command)


def main() -> None:
    """The console script."""
    try:
        app(prog_name="jtgpu")
    except KeyboardInterrupt:  # between two commands of Python's own start and end
        sys.exit(130)
