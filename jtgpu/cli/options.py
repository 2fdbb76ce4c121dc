"""Options that several commands share, and functions that create networks, plans and trees from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..backends import BACKENDS
from ..errors import closest
from ..formats import formats, read
from ..formats.bundled import order_file
from ..inference.network_plan import NetworkPlan
from ..inference.tree import JunctionTree
from ..model.network import BayesianNetwork, DiscreteModel
from ..util.system import parse_bytes
from .console import shown, status, warn

__all__ = [
    "Backend",
    "Dtype",
    "Evidence",
    "File",
    "Json",
    "PlanOptions",
    "RunOptions",
    "SlicedPlanOptions",
    "compiled",
    "findings_as_json",
    "network_files",
    "read_network",
    "resolve_order",
    "warn_of_repairs",
]


def _check_backend(name: str) -> str:
    if name not in ("auto", *BACKENDS):
        raise typer.BadParameter(f"{name!r} is not one of auto, {', '.join(BACKENDS)}{closest(name, BACKENDS)}")
    return name


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


def _check_dtype(name: str) -> str:
    if name not in ("float64", "float32"):
        raise typer.BadParameter(f"{name!r} is neither float64 nor float32")
    return name


File = Annotated[str, typer.Argument(metavar="FILE", help="Network file (.net, .bif, ...), optionally gzipped (.gz).")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Evidence = Annotated[
    list[str] | None,
    typer.Option(
        "-e",
        "--evidence",
        metavar="NAME=STATE",
        help="Observed state, by name or number; several states separated by commas mean one of them. Repeatable.",
    ),
]
Backend = Annotated[
    str,
    typer.Option(
        "--backend", callback=_check_backend, help=f"One of auto, {', '.join(BACKENDS)}.", metavar="NAME"
    ),
]
Devices = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="all|0,1",
        callback=_check_devices,
        show_default=False,
        help="GPUs to use; cases and slices are distributed among them. Default: one.",
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        "--dtype",
        metavar="NAME",
        callback=_check_dtype,
        help="GPU precision: float64, or float32 (half the memory, posteriors accurate to about 1e-6).",
    ),
]
Order = Annotated[
    str,
    typer.Option(
        "--order",
        metavar="HOW",
        help="Elimination order: auto, best (searches for --time seconds and saves the order), saved (what best saved), "
        "num (the .num file next to the network), the name of a greedy rule, or the path of a .num or .td file.",
    ),
]
TimeLimit = Annotated[
    float | None, typer.Option("--time", metavar="S", min=0.0, help="Time limit of --order best in seconds.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Do not read or write saved elimination orders.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed of the order search.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="SIZE",
        callback=_check_bytes,
        help="Memory that propagation may use: 8GiB, 500MB, or none for no limit. Default: 80 % of the free memory.",
    ),
]
MaxTable = Annotated[
    int | None,
    typer.Option(
        "--max-table",
        metavar="N",
        min=0,
        help="Maximum number of entries in one table; 0 for no limit. Default: 100,000,000.",
    ),
]
Slices = Annotated[
    list[str] | None,
    typer.Option(
        "--slice",
        metavar="VARIABLE",
        help="Condition on this variable, one state at a time, for networks that do not fit in memory. Repeatable; "
        "auto chooses the variables if any are needed.",
    ),
]


@dataclass(frozen=True)
class RunOptions:
    """Where a plan runs."""

    backend: Backend = "auto"
    dtype: Dtype = "float64"
    devices: Devices = None

    def device_option(self) -> dict[str, Any]:
        """The keyword ``devices`` of ``plan`` and ``compile``; empty if ``--devices`` was not given."""
        if self.devices is None:
            return {}
        return {"devices": self.devices if self.devices == "all" else [int(n) for n in self.devices.split(",")]}

    def compile_options(self) -> dict[str, Any]:
        """Keywords of ``compile`` apart from the backend; empty for the defaults."""
        return self.device_option() | ({} if self.dtype == "float64" else {"dtype": self.dtype})


@dataclass(frozen=True)
class PlanOptions:
    """How a network is planned."""

    order: Order = "auto"
    time_limit: TimeLimit = None
    memory_limit: MemoryLimit = None
    max_table: MaxTable = None
    seed: Seed = 0
    no_cache: NoCache = False

    @property
    def memory(self) -> float | str | None:
        """The keyword ``memory_limit``: infinity for ``none``."""
        return math.inf if self.memory_limit == "none" else self.memory_limit

    def keywords(self, run: RunOptions | None = None) -> dict[str, Any]:
        """Keywords of ``net.plan`` except the order; those that were not given are left to its defaults.

        Parameters
        ----------
        run : RunOptions, optional
            The plan has to fit in the memory of the devices named here.
        """
        options: dict[str, Any] = {"seed": self.seed, "cache": not self.no_cache}
        if self.time_limit is not None:
            options["time_limit"] = self.time_limit
        if self.memory_limit is not None:
            options["memory_limit"] = self.memory
        if self.max_table is not None:
            options["max_table"] = self.max_table or None
        if run is not None and (run.backend != "auto" or run.devices is not None):
            options["backend"] = "gpu" if run.backend == "auto" else run.backend
            options |= run.device_option()
        return options

    def make(self, net: DiscreteModel, file: str, run: RunOptions | None = None, **more: Any) -> NetworkPlan:
        """Plan a network that was read from a file."""
        made: NetworkPlan = net.plan(resolve_order(self.order, file), **self.keywords(run), **more)
        return made


@dataclass(frozen=True)
class SlicedPlanOptions(PlanOptions):
    """How a network is planned, with cutset conditioning."""

    slices: Slices = None

    def keywords(self, run: RunOptions | None = None) -> dict[str, Any]:
        """See `PlanOptions.keywords`."""
        options = super().keywords(run)
        if self.slices:
            options["slices"] = "auto" if self.slices == ["auto"] else self.slices
        return options


@contextmanager
def compiled(
    net: DiscreteModel, file: str, plan: PlanOptions, run: RunOptions
) -> Iterator[tuple[JunctionTree, Callable[[str], None]]]:
    """Plan and compile a network, with a status line on stderr.

    Parameters
    ----------
    net : DiscreteModel
    file : str
        The file that it was read from.
    plan : PlanOptions
    run : RunOptions
        The plan has to fit in the memory of the devices named here.

    Yields
    ------
    (JunctionTree, callable)
        The tree, closed on exit, and the function that sets the text of the status line.
    """
    with status("planning") as step:
        made = plan.make(net, file, run)
        step("compiling (takes longer the first time on a machine)")
        with made.compile(run.backend, progress=step, **run.compile_options()) as tree:
            step("propagating")
            yield tree, step


def resolve_order(order: str, file: str) -> str | Path:
    """Resolve the value of ``--order`` for a network file."""
    return order_file(file) if order == "num" else order


def read_network(file: str) -> DiscreteModel:
    """Read a network and warn about rows that had to be repaired."""
    net = read(file)
    warn_of_repairs(net, file)
    return net


def warn_of_repairs(net: DiscreteModel, file: str) -> None:
    """Warn about table rows that did not sum to 1 in the file."""
    report = net.row_report if isinstance(net, BayesianNetwork) else None
    if report is not None and (report.n_off or report.zero_rows):
        warn(f"{file}: {report}")


def findings_as_json(findings: Mapping[str, int | frozenset[int]]) -> dict[str, Any]:
    """Evidence as JSON: the number of a state, or a list of numbers."""
    return {name: list(state) if isinstance(state, frozenset) else state for name, state in findings.items()}


def network_files(given: list[str]) -> list[str]:
    """The files as they are, and the network files of folders, sorted by name."""
    suffixes = tuple(s + z for _, known, _ in formats() for s in known for z in ("", ".gz"))
    files = []
    for name in given:
        if not Path(name).is_dir():
            files.append(name)
            continue
        found = sorted(str(p) for p in Path(name).iterdir() if p.name.lower().endswith(suffixes) and p.is_file())
        if not found:
            raise typer.BadParameter(f"folder {shown(name)!r} contains no network file ({', '.join(suffixes)})")
        files += found
    return files
