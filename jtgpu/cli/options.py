"""Options that several commands share. Each is spelt the same in all of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import typer

from ..backends import BACKENDS
from ..errors import closest
from ..util.system import parse_bytes
from .completion import complete_findings, complete_networks, complete_targets

# Option groups: a dataclass whose fields are command-line options, as one parameter of a command.

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Without:
    """Fields of a group that a command does not offer; they keep their defaults.

    Use it as ``Annotated[PlanOptions, Without("seed")]``.
    """

    names: tuple[str, ...]

    def __init__(self, *names: str):
        object.__setattr__(self, "names", names)


def expand_groups(command: Callable[P, R]) -> Callable[..., R]:
    """A command that Typer can read: every parameter that is a group is replaced by the group's options."""
    # command: A parameter whose type is a dataclass is a group. The fields of the dataclass carry Typer's annotations.
    # returns Takes the options one by one and calls `command` with the groups built from them.
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        group, omitted = _as_group(hints[name])
        if group is None:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        types = get_type_hints(group, include_extras=True)
        offered = [f for f in fields(group) if f.name not in omitted]
        groups[name] = group, [f.name for f in offered]
        parameters += [_parameter(f, types[f.name]) for f in offered]

    @functools.wraps(command)
    def run(**options: Any) -> R:
        for name, (group, members) in groups.items():
            options[name] = group(**{member: options.pop(member) for member in members})
        return command(**options)  # type: ignore[call-arg]

    signature = inspect.Signature(parameters)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _as_group(hint: Any) -> tuple[Any, tuple[str, ...]]:
    """The dataclass that a type hint names and the fields left out; None for an ordinary option."""
    omitted: tuple[str, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        omitted = next((note.names for note in notes if isinstance(note, Without)), ())
    return (hint, omitted) if is_dataclass(hint) else (None, ())


def _parameter(field: Field[Any], annotation: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


# Panels of --help
PLANNING, RUNNING, OUTPUT, CSV, CLUSTER = "Planning", "Computation", "Output", "CSV files", "Cluster"


def one_of(*names: str) -> Callable[[str | None], str | None]:
    """A callback that rejects values which are not one of `names`, and suggests the closest one."""

    def check(name: str | None) -> str | None:
        if name is not None and name not in names:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(names)}{closest(name, names)}")
        return name

    return check


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


def _running(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=RUNNING, **more)


def _planning(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=PLANNING, **more)


def _output(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=OUTPUT, **more)


FILE_HELP = (
    "Network file (.net, .bif, .xdsl, .uai, ...), optionally compressed (.gz, .xz), or the name of a bundled network "
    "such as asia."
)
File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help=FILE_HELP,
        autocompletion=complete_networks,
    ),
]
Evidence = Annotated[
    list[str] | None,
    typer.Option(
        "-e",
        "--evidence",
        metavar="NAME=STATE",
        help="Observed state, by name or number; several states separated by commas: one of them. Repeatable.",
        autocompletion=complete_findings,
    ),
]
EvidenceFile = Annotated[
    str | None,
    typer.Option(
        "--evidence-file",
        metavar="PATH",
        help="File with the evidence of one case: lines name=state, JSON, or UAI. -e adds to it.",
        show_default=False,
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "-t",
        "--target",
        metavar="NAME",
        help="Variable to compute, or several separated by commas. Repeatable. Default: all.",
        autocompletion=complete_targets,
    ),
]

Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="A,B,...",
        show_default=False,
        help="Columns to use; leave out those that number or name the rows. Repeatable. Default: all.",
    ),
]

# Output
Json = Annotated[bool, _output("--json", help="Print the result as JSON.")]
Digits = Annotated[
    int | None,
    _output(
        "--digits",
        metavar="N",
        min=1,
        max=17,
        help="Significant digits of numbers. Default: 6 on a terminal, all in a pipe or a file.",
        show_default=False,
    ),
]
Force = Annotated[bool, _output("-f", "--force", help="Replace an existing output.")]
EscapeFormulas = Annotated[
    bool,
    _output(
        "--escape-formulas",
        help="Put an apostrophe before cells of a CSV that a spreadsheet would run as a formula (=, +, -, @ first), as "
        "OWASP recommends.",
    ),
]
Progress = Annotated[
    bool | None,
    _output(
        "--progress/--no-progress", help="Show progress on stderr. Default: if it is a terminal.", show_default=False
    ),
]

# Computation
Backend = Annotated[
    str,
    _running(
        "--backend",
        metavar="NAME",
        callback=one_of("auto", *BACKENDS),
        help=f"One of auto, {', '.join(BACKENDS)}.",
        autocompletion=lambda: ["auto", *BACKENDS],
    ),
]
Threads = Annotated[
    int | None,
    _running(
        "--threads",
        metavar="N",
        min=1,
        help="Number of CPU cores to use; selects the CPU unless --backend does. Default: all.",
        show_default=False,
    ),
]
Devices = Annotated[
    str | None,
    _running(
        "--devices",
        metavar="all|0,1",
        callback=_check_devices,
        help="GPUs to use; cases and slices are distributed among them. Default: one.",
        show_default=False,
    ),
]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        rich_help_panel=CLUSTER,
        help="Run on a Ray cluster: auto (the cluster of this job), local, ray://host:10001 or host:6379.",
        show_default=False,
    ),
]
Dtype = Annotated[
    str,
    _running(
        "--dtype",
        metavar="NAME",
        callback=one_of("float64", "float32"),
        help="GPU precision: float64, or float32 (half the memory, posteriors accurate to about 1e-6).",
        autocompletion=lambda: ["float64", "float32"],
    ),
]

# Planning
Order = Annotated[
    str,
    _planning(
        "--order",
        metavar="HOW",
        help="Elimination order: auto, best (searches for --order-time seconds and saves the order), saved (what best "
        "saved), num (the .num file next to the network), the name of a greedy rule, or the path of a .num or .td "
        "file.",
    ),
]
PlanFile = Annotated[
    str | None,
    _planning("--plan", metavar="FILE", help="Use a plan that 'jtgpu plan -o FILE' saved for this network."),
]
TimeLimit = Annotated[
    float | None, _planning("--order-time", metavar="S", min=0.0, help="Time limit of --order best in seconds.")
]
NoCache = Annotated[bool, _planning("--no-cache", help="Do not read or write saved elimination orders.")]
OrderSeed = Annotated[int, _planning("--order-seed", metavar="N", min=0, help="Random seed of the order search.")]
MemoryLimit = Annotated[
    str | None,
    _planning(
        "--memory-limit",
        metavar="SIZE",
        callback=_check_bytes,
        help="Memory that propagation may use: 8GiB, 500MB, or none for no limit. Default: 80 % of the free memory.",
    ),
]
MaxTable = Annotated[
    int | None,
    _planning(
        "--max-table",
        metavar="N",
        min=0,
        help="Maximum number of entries in one table; 0 for no limit. Default: 100,000,000.",
    ),
]
Slices = Annotated[
    list[str] | None,
    _planning(
        "--slice",
        metavar="VARIABLE",
        help="Condition on this variable, one state at a time, for networks that do not fit in memory. Repeatable; "
        "auto chooses the variables if any are needed.",
    ),
]
