"""The Typer application. Each command is a function of a module of this folder, imported when the command runs."""

from __future__ import annotations

import importlib
import inspect
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..util.version import __version__
from .coercion import coerce_plain_values

QUERIES, TABLES, NETWORKS, SPEED = "Queries of one case", "Tables of cases", "Networks and plans", "Speed"

# command, a function of this name -> its panel and line in `jtgpu --help`, the first of its docstring
COMMANDS = {
    "query": (QUERIES, "Compute posterior probabilities given evidence, and queries in text form."),
    "mpe": (QUERIES, "Find the most probable configuration given evidence, or the K most probable ones."),
    "voi": (QUERIES, "Rank variables by value of information: which to observe next."),
    "sensitivity": (QUERIES, "Show how P(target | evidence) changes with each parameter of each CPT."),
    "decide": (QUERIES, "Find the policy of a decision network with the highest expected utility."),
    "solve": (QUERIES, "Solve a task of the UAI competitions and write the competitions' solution file."),
    "batch": (TABLES, "Compute the posteriors of every case in a file."),
    "dynamic": (TABLES, "Compute posteriors of sequences by a dynamic network."),
    "fit": (TABLES, "Estimate the CPTs of a network from cases."),
    "validate": (TABLES, "Measure how well a network predicts a variable: accuracy, log loss, AUC, calibration."),
    "screen": (TABLES, "Find outlier rows of a table, by nearest-neighbour distance or by likelihood under a network."),
    "whiten": (TABLES, "Fit autoregressive models to time series, and write residuals or cases over time slices."),
    "sample": (TABLES, "Draw exact samples of all variables given evidence, as CSV."),
    "learn": (NETWORKS, "Learn a network's structure from data, with the posterior probability of each arc."),
    "explore": (NETWORKS, "Explore a table: types, gaps, bins, a network with its certainty, accuracy and page."),
    "info": (NETWORKS, "Inspect a network file and report anything repaired while reading."),
    "convert": (NETWORKS, "Convert a network to another format."),
    "show": (NETWORKS, "Draw a network with its posteriors and evidence, or its junction tree, as SVG or HTML."),
    "serve": (NETWORKS, "Serve networks over HTTP, with a page for a browser, until Ctrl-C."),
    "rank": (NETWORKS, "Rank the variables of a network by betweenness: the share of shortest paths through each."),
    "plan": (NETWORKS, "Choose an elimination order and print the cost of propagation. No table is allocated."),
    "time": (SPEED, "Time reading, planning, compiling and propagating."),
    "warmup": (SPEED, "Compile the loops of the CPU backend before the first query, for container images."),
    "tune": (SPEED, "Measure which engine or kernel configuration is fastest on this GPU."),
}

# modules of several commands; the others have the name of their command
_MODULES = {
    "mpe": "explain", "voi": "explain", "sensitivity": "explain", "convert": "export", "show": "export",
    "screen": "preprocess", "whiten": "preprocess", "time": "speed", "tune": "speed", "warmup": "speed",
}  # fmt: skip


def module_of(name: str) -> Any:
    """The module of a command, imported."""
    return importlib.import_module(f".{_MODULES.get(name, name)}", __package__)


def examples_of(name: str) -> list[str]:
    """The examples of a command: those lines of its module that begin with it."""
    return [line for line in getattr(module_of(name), "EXAMPLES", ()) if line.split()[1] == name]


PLANNERS = ("plan", "serve", "time", "tune", "solve")  # commands whose help lists the options of planning

# Earlier spellings of options, accepted but not shown.
_PLANNED = {"--time": "--order-time", "--seed": "--order-seed"}
ALIASES = {
    **{name: {"--targets": "--target", **_PLANNED} for name in COMMANDS},
    **{name: {} for name in ("decide", "dynamic", "explore", "fit", "learn", "rank", "screen", "validate", "whiten")},
    "sample": {"--time": "--order-time"},
    "batch": {"--targets": "--target", **_PLANNED, "-e": "--evidence-columns"},
    "time": {"--evidence": "--observed", "--time": "--order-time"},
    "plan": {"--save": "--output", **_PLANNED},
}


class _PlainParameters:
    """Help shows no type for a flag, and plain values need no pydantic."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, ``--help`` included."""
        parameters = super().get_params(ctx)  # type: ignore[misc]
        coerce_plain_values(parameters)
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
        return parameters


class _Group(_PlainParameters, TyperGroup):
    """``jtgpu``."""


class _Command(_PlainParameters, TyperCommand):
    """A command, imported. Options of planning are in the help of the commands that are about plans."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, ``--help`` included."""
        from .options import PLANNING  # the command is imported: costs nothing

        parameters = super().get_params(ctx)
        for parameter in parameters:
            if self.name not in PLANNERS and getattr(parameter, "rich_help_panel", None) == PLANNING:
                parameter.hidden = True
        return parameters


app = typer.Typer(
    name="jtgpu",
    cls=_Group,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Exact inference in discrete Bayesian networks by junction trees.",
    epilog="Exit codes: 0 success, 1 other error, 2 usage error (an unknown file, variable, state or option), "
    "3 does not fit in memory, 4 impossible evidence, 5 unreadable file, 6 the output exists (--force replaces it), "
    "130 interrupted.\n\n"
    "Results go to stdout: aligned tables on a terminal, tab-separated values in a pipe. Run any command with --help.",
)


class CommandOnDemand(TyperCommand):
    """A name and a line of help; the command itself is imported when its arguments are parsed."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Return the context of the command; it runs the command's function, not this placeholder's."""
        name = str(self.name)
        function = getattr(module_of(name), name)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
        alone.command(name, cls=_Command, epilog=_epilog(name, function))(function)
        command = typer.main.get_command(alone)
        args = _without_aliases(list(args), ALIASES.get(name, {}))
        if extra.get("resilient_parsing") and args and args[-1].startswith("-"):
            args.pop()  # the option whose value the shell completes
        if name == "sample" and "-n" in args and not extra.get("resilient_parsing"):
            raise typer.BadParameter("the number of samples has no option: jtgpu sample asia 5", param_hint="-n")
        return command.make_context(info_name, args, parent=parent, **extra)


def _epilog(name: str, function: Any) -> str | None:
    """The examples of a command, one per line, and where the options of planning are."""
    examples = examples_of(name)
    lines = ["Examples:", *(f"  {line}" for line in examples)] if examples else []
    if name not in PLANNERS and "order_seed" in inspect.signature(function).parameters:
        lines.append("Options of planning, such as --order, --memory-limit and --plan: jtgpu plan --help")
    return "\n\n".join(lines) or None


def _without_aliases(args: list[str], aliases: dict[str, str]) -> list[str]:
    """Replace earlier spellings of options, up to ``--``."""
    end = args.index("--") if "--" in args else len(args)
    for i, word in enumerate(args[:end]):
        name, equals, value = word.partition("=")
        if name in aliases:
            args[i] = f"{aliases[name]}{equals}{value}"
    return args


def _print_version(requested: bool) -> None:
    if requested:
        print(f"jtgpu {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, metavar="", help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Exact inference in discrete Bayesian networks by junction trees."""


def _placeholder() -> None:
    """The function of a command that is not imported yet; never called."""


for _name, (_panel, _help) in COMMANDS.items():
    app.command(_name, cls=CommandOnDemand, help=_help, rich_help_panel=_panel)(_placeholder)
