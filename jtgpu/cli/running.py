"""Where a plan runs: an option group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..inference.network_plan import NetworkPlan
from ..inference.tree import JunctionTree
from .options import Backend, Devices, Dtype, Progress, Threads

if TYPE_CHECKING:
    from ..util.options import BackendName

COMPILING = "compiling (takes longer the first time on a machine)"


@dataclass(frozen=True)
class RunOptions:
    """Where a plan runs."""

    backend: Backend = "auto"
    threads: Threads = None
    dtype: Dtype = "float64"
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
