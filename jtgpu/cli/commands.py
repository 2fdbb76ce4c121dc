"""The Typer application. Each command is a module of this folder, imported when the command runs."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ..util.version import __version__

__all__ = ["COMMANDS", "app"]

# command (a function of the module of this name) -> its line in `jtgpu --help`, the first of the function's docstring
COMMANDS = {
    "time": "Time reading, planning, compiling and propagating.",
    "info": "Inspect a network file and report anything repaired while reading.",
    "plan": "Choose an elimination order and print the cost of propagation. No table is allocated.",
    "query": "Compute posterior probabilities given evidence, and answer questions.",
    "batch": "Compute the posteriors of every case in a file.",
    "mpe": "Find the most probable configuration given evidence, or the K most probable ones.",
    "sample": "Draw exact samples of all variables given evidence, as CSV: a header with the names, then one sample per "
    "line.",
    "sensitivity": "Show how P(target | evidence) changes with each parameter of each table.",
    "voi": "Rank variables by value of information: which to observe next.",
    "solve": "Solve a task of the UAI competitions (PR in log10, MAR, MPE, MMAP) and write the competitions' solution "
    "file.",
    "convert": "Convert a network to another format.",
    "tune": "Measure which engine or kernel configuration is fastest on this GPU.",
}

app = typer.Typer(
    name="jtgpu",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Exact inference in discrete Bayesian networks by junction trees.",
    epilog="Exit codes: 0 success, 1 other error, 2 usage error, 3 does not fit in memory, 4 impossible evidence, "
    "5 unreadable file.",
)


class CommandOnDemand(TyperCommand):
    """A name and a line of help; the command itself is imported when its arguments are parsed."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Return the context of the command; it runs the command's function, not this placeholder's."""
        module = importlib.import_module(f".{self.name}", __package__)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(self.name)(getattr(module, str(self.name)))
        return typer.main.get_command(alone).make_context(info_name, args, parent=parent, **extra)


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


def _placeholder() -> None:
    """The function of a command that is not imported yet; never called."""


for _name, _help in COMMANDS.items():
    app.command(_name, cls=CommandOnDemand, help=_help)(_placeholder)
