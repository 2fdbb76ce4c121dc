"""Options of commands: how a command is made of declared options, and the options that several commands share."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import typer

from ..backends import BACKENDS
from ..errors import closest
from ..util.arguments import Option
from ..util.system import parse_bytes
from .shell_request import SPLIT, match_findings, match_networks, match_variables, read_names

P = ParamSpec("P")
R = TypeVar("R")

# Panels of --help
PLANNING, RUNNING, OUTPUT, CSV, CLUSTER = "Planning", "Computation", "Output", "CSV files", "Cluster"


# Option groups: a dataclass whose fields are options, as one parameter of a command.

@dataclass(frozen=True)
class Without:
    """Fields of a group that a command does not offer; they keep their defaults.

    Use it as ``Annotated[PlanOptions, Without("seed")]``.
    """

    names: tuple[str, ...]

    def __init__(self, *names: str):
        object.__setattr__(self, "names", names)


def expand_groups(command: Callable[P, R]) -> Callable[..., R]:
    """A command that Typer can read: its options are Typer's, and those of groups take the place of the groups."""
    # command: A parameter whose type is a dataclass is a group: the annotated fields of the dataclass are its options.
    # returns Takes the options one by one and calls `command` with the groups built from them.
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        group, omitted = _as_group(hints[name])
        if group is None:
            parameters.append(_parameter(name, hints[name], parameter.default))
            continue
        types = get_type_hints(group, include_extras=True)
        offered = [f for f in fields(group) if f.name not in omitted and get_origin(types[f.name]) is Annotated]
        groups[name] = group, [f.name for f in offered]
        parameters += [
            _parameter(f.name, types[f.name], inspect.Parameter.empty if f.default is MISSING else f.default)
            for f in offered
        ]

    @functools.wraps(command)
    def run(**options: Any) -> R:
        for name, (group, members) in groups.items():
            given = {member: options.pop(member) for member in members}
            options[name] = group(**{member: value for member, value in given.items() if value is not None})
        return command(**options)  # type: ignore[call-arg]

    signature = inspect.Signature(parameters)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _as_group(hint: Any) -> tuple[Any, tuple[str, ...]]:
    """The dataclass that a type hint names and the fields left out; None for a single option."""
    omitted: tuple[str, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        omitted = next((note.names for note in notes if isinstance(note, Without)), ())
    return (hint, omitted) if is_dataclass(hint) else (None, ())


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    """The parameter that Typer reads."""
    kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    option = next((note for note in notes if isinstance(note, Option)), None)
    if option is not None:
        if Iterable in (get_origin(each) for each in get_args(kind)):  # of names, in Python
            kind, default = list[str] | None, None
        hint = Annotated[kind, _as_typer(option, default)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _as_typer(option: Option, default: Any) -> Any:
    """An option or, without flags, an argument as Typer declares it."""
    complete = (lambda: list(option.choices)) if option.complete == "choices" else COMPLETE.get(option.complete)
    more: dict[str, Any] = {
        "help": option.help, "callback": one_of(*option.choices) if option.choices else option.check,
        "min": option.least, "max": option.most, "autocompletion": complete, "rich_help_panel": option.panel,
        "show_default": default is not None,
    }  # fmt: skip
    if not option.flags.startswith("-"):
        return typer.Argument(metavar=option.flags, **more)
    *first, last = option.flags.split(", ")
    last, _, metavar = last.partition(" ")
    return typer.Option(*first, last, metavar=metavar or None, **more)


def one_of(*names: str) -> Callable[[str | None], str | None]:
    """A callback that rejects values which are not one of `names`, and suggests the closest one."""

    def check(name: str | None) -> str | None:
        if name is not None and name not in names:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(names)}{closest(name, names)}")
        return name

    return check


# Completion by a shell, which ``jtgpu --install-completion`` installs. `shell_request` completes these
# before Typer is imported; Typer calls these functions where the command line has another form.

def complete_networks(incomplete: str) -> list[str]:
    """Bundled networks by name, network files and folders."""
    return match_networks(incomplete)


def complete_targets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Variables of the network on the command line."""
    return match_variables(read_names(ctx.params.get("file")), incomplete)


def complete_findings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Findings ``name=state`` of the network on the command line: names first, then the states of one variable."""
    before = os.environ.get(SPLIT, "")
    return [text[len(before) :] for text in match_findings(read_names(ctx.params.get("file")), before + incomplete)]


COMPLETE: dict[str, Any] = {
    "networks": complete_networks, "targets": complete_targets, "findings": complete_findings,
}  # fmt: skip


# Shared options. Each is spelt the same in all commands.

def _check_bytes(size: str | None) -> str | None:
    if size is not None and size != "none":
        try:
            parse_bytes(size)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    return size


def _check_devices(text: str | None) -> str | None:
    if text is not None and text != "all":
        words = [w.strip() for w in text.split(",")]
        if not all(w.isascii() and w.isdigit() for w in words):
            raise typer.BadParameter(f"{text!r} is neither 'all' nor a comma-separated list of GPU numbers")
    return text


FILE_HELP = (
    "Network file (.net, .bif, .xdsl, .uai, ...), optionally compressed (.gz, .xz), or the name of a bundled network "
    "such as asia."
)
File = Annotated[str, Option("FILE", FILE_HELP, complete="networks")]
ChanceOnly = Annotated[bool, Option(
    "--chance-only", "Read what can be read as chance variables: decisions are uniform; utilities and other nodes are "
    "left out.")]
Evidence = Annotated[list[str] | None, Option(
    "-e, --evidence NAME=STATE",
    "Observed state, by name or number; several states separated by commas: one of them. Repeatable.",
    complete="findings")]
EvidenceFile = Annotated[str | None, Option(
    "--evidence-file PATH", "File with the evidence of one case: lines name=state, JSON, or UAI. -e adds to it.")]
Codes = Annotated[list[str] | None, Option(
    "--codes NAME:CODE=STATE,...", "What codes in evidence and cells mean, such as xray:1=yes,0=no; index: numbers are "
    "numbers of states, from 0. Repeatable. Default: a number is the name of a state.")]
Targets = Annotated[list[str] | None, Option(
    "-t, --target NAME", "Variable to compute, or several separated by commas. Repeatable. Default: all.",
    complete="targets")]

Columns = Annotated[list[str] | None, Option(
    "--columns A,B,...", "Columns to use; exclude identifier columns. Repeatable. Default: all.")]

# Output
Json = Annotated[bool, Option("--json", "Print the result as JSON.", panel=OUTPUT)]
Digits = Annotated[int | None, Option(
    "--digits N", "Significant digits of numbers. Default: 6 on a terminal, all in a pipe or a file.", least=1, most=17,
    panel=OUTPUT)]
Force = Annotated[bool, Option("-f, --force", "Replace an existing output.", panel=OUTPUT)]
EscapeFormulas = Annotated[bool, Option(
    "--escape-formulas", "Put an apostrophe before cells of a CSV that a spreadsheet would run as a formula (=, +, -, "
    "@ first), as OWASP recommends.", panel=OUTPUT)]
Progress = Annotated[bool | None, Option(
    "--progress/--no-progress", "Show progress on stderr. Default: if it is a terminal.", panel=OUTPUT)]

# Computation
Backend = Annotated[str, Option(
    "--backend NAME", f"One of auto, {', '.join(BACKENDS)}.", choices=("auto", *BACKENDS), complete="choices",
    panel=RUNNING)]
Threads = Annotated[int | None, Option(
    "--threads N", "Number of CPU cores to use; selects the CPU unless --backend does. Default: all.", least=1,
    panel=RUNNING)]
Devices = Annotated[str | None, Option(
    "--devices all|0,1", "GPUs to use; cases and slices are distributed among them. Default: one.",
    check=_check_devices, panel=RUNNING)]
ClusterAddress = Annotated[str | None, Option(
    "--cluster ADDRESS", "Run on a Ray cluster: auto (the cluster of this job), local, ray://host:10001 or host:6379.",
    panel=CLUSTER)]

# Planning
MemoryLimit = Annotated[str | None, Option(
    "--memory-limit SIZE",
    "Memory that propagation may use: 8GiB, 500MB, or none for no limit. Default: 80 % of the free memory.",
    check=_check_bytes, panel=PLANNING)]
