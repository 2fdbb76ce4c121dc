"""How a network is planned: option groups, and the plan that they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ..errors import FormatError, PlanError
from ..formats.bundled import network_path, order_file
from ..inference.network_plan import NetworkPlan
from ..inference.planning import plan_or_questions
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..util.arguments import Option
from .options import PLANNING, RUNNING, Backend, Devices, MemoryLimit, Progress, Threads
from .tables import status

if TYPE_CHECKING:
    from ..util.options import BackendName

# Where a plan runs: an option group.

COMPILING = "compiling (takes longer the first time on a machine)"


@dataclass(frozen=True)
class RunOptions:
    """Where a plan runs."""

    backend: Backend = "auto"
    threads: Threads = None
    dtype: Annotated[str, Option(
        "--dtype NAME", "GPU precision: float64, or float32 (half the memory, posteriors accurate to about 1e-6).",
        choices=("float64", "float32"), complete="choices", panel=RUNNING)] = "float64"
    devices: Devices = None
    progress: Progress = None

    def device_option(self) -> dict[str, Any]:
        """The keyword ``devices`` of ``plan`` and ``compile``; empty if ``--devices`` was not given."""
        if self.devices is None:
            return {}
        return {"devices": self.devices if self.devices == "all" else [int(n) for n in self.devices.split(",")]}

    def threads_option(self) -> dict[str, Any]:
        """The keyword ``threads`` of ``compile``; empty if ``--threads`` was not given."""
        return {} if self.threads is None else {"threads": self.threads}

    def compile_options(self) -> dict[str, Any]:
        """Keywords of ``compile`` apart from the backend and its threads; empty for the defaults."""
        return self.device_option() | ({} if self.dtype == "float64" else {"dtype": self.dtype})

    def compile(self, made: NetworkPlan, step: Callable[[str], None]) -> JunctionTree:
        """Compile a plan; ``--threads`` without a backend or devices selects the CPU."""
        # step: Shows the steps of a long compilation
        backend, options = cast("BackendName", self.backend), self.compile_options()
        if self.threads and self.devices is None and backend in ("auto", "cpu"):
            backend, options = "cpu", options | {"threads": self.threads}
        tree: JunctionTree = made.compile(backend, progress=step, **options)
        return tree


@dataclass(frozen=True)
class PlanOptions:
    """How a network is planned."""

    order: Annotated[str, Option(
        "--order HOW",
        "Elimination order: auto, best (searches for --order-time seconds and saves the order), saved (what best "
        "saved), num (the .num file next to the network), the name of a greedy rule, or the path of a .num or .td "
        "file.", panel=PLANNING)] = "auto"
    saved: Annotated[str | None, Option(
        "--plan FILE", "Use a plan that 'jtgpu plan -o FILE' saved for this network.", panel=PLANNING)] = None
    time_limit: Annotated[float | None, Option(
        "--order-time S", "Time limit of --order best in seconds.", least=0.0, panel=PLANNING)] = None
    memory_limit: MemoryLimit = None
    max_table: Annotated[int | None, Option(
        "--max-table N", "Maximum number of entries in one table; 0 for no limit. Default: 100,000,000.", least=0,
        panel=PLANNING)] = None
    order_seed: Annotated[int, Option(
        "--order-seed N", "Random seed of the order search.", least=0, panel=PLANNING)] = 0
    no_cache: Annotated[bool, Option(
        "--no-cache", "Do not read or write saved elimination orders.", panel=PLANNING)] = False

    @property
    def memory(self) -> float | str | None:
        """The keyword ``memory_limit``: infinity for ``none``."""
        return math.inf if self.memory_limit == "none" else self.memory_limit

    def keywords(self, run: RunOptions | None = None) -> dict[str, Any]:
        """Keywords of ``net.plan`` except the order; those that were not given are left to its defaults."""
        # run: The plan has to fit in the memory of the devices named here
        options: dict[str, Any] = {"seed": self.order_seed, "cache": not self.no_cache}
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
        """Plan a network that was read from a file, or load the plan that ``--plan`` names.

        Where the whole tree does not fit, questions are planned one by one.
        """
        if self.saved is not None:
            return self.load(net)
        return plan_or_questions(net, cast("Any", self.how(net, file)), **self.keywords(run), **more)

    def how(self, net: DiscreteModel, file: str) -> str | Path | Sequence[str]:
        """The argument `order` of ``net.plan``: names if ``--plan`` gives them."""
        if self.saved is not None:
            return self.load(net).order
        return order_file(network_path(file)) if self.order == "num" else self.order

    def load(self, net: DiscreteModel) -> NetworkPlan:
        """Load the plan that ``--plan`` names."""
        # raises FormatError: If the file holds no plan, or the plan of another network.
        assert self.saved is not None
        if self.order != "auto" or self.time_limit is not None:
            raise typer.BadParameter("a saved plan has its order; omit --order and --order-time", param_hint="--plan")
        if not Path(self.saved).exists():
            raise typer.BadParameter(f"{self.saved}: No such file or directory", param_hint="--plan")
        try:
            return NetworkPlan.load(self.saved, net)
        except PlanError as error:
            raise FormatError(f"{self.saved}: {error}") from None


@dataclass(frozen=True)
class SlicedPlanOptions(PlanOptions):
    """How a network is planned, with cutset conditioning."""

    slices: Annotated[list[str] | None, Option(
        "--slice VARIABLE", "Condition on this variable, one state at a time, for networks that do not fit in memory. "
        "Repeatable; auto chooses the variables if any are needed.", panel=PLANNING)] = None

    def keywords(self, run: RunOptions | None = None) -> dict[str, Any]:
        options = super().keywords(run)
        if self.slices:
            options["slices"] = "auto" if self.slices == ["auto"] else self.slices
        return options

    def load(self, net: DiscreteModel) -> NetworkPlan:
        if self.slices:
            raise typer.BadParameter("a saved plan has no slices; omit --slice", param_hint="--plan")
        return super().load(net)


# The tree of a command: a network, planned and compiled.

@contextmanager
def compiled(
    net: DiscreteModel, file: str, plan: PlanOptions, run: RunOptions
) -> Iterator[tuple[JunctionTree, Callable[[str], None]]]:
    """Plan and compile a network, with a status line on stderr."""
    # file: The file that it was read from
    # run: The plan has to fit in the memory of the devices named here
    # yields (JunctionTree, callable): The tree, closed on exit, and the function that sets the text of the status line.
    with status("planning", run.progress) as step:
        made = plan.make(net, file, run)
        step(COMPILING)
        with run.compile(made, step) as tree:
            step("propagating")
            yield tree, step
