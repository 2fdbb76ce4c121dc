"""The parts of every engine of single cases, and the measurement of its device time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...device.context import Device, Launch, Memory
from ...device.driver import After, Kernels
from ...device.nvcc import JOB
from ...errors import JtgpuError
from ...plans.plan import Plan
from ..base import Evidence, Result

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

HOLD_NS = 40_000  # nanoseconds for which a stream is kept busy while a measured propagation is queued


class CaseEngine(Protocol):
    """A plan and a model's numbers on one device, for one case at a time. Thread-safe."""

    @property
    def kind(self) -> str:
        """``"dataflow"`` or ``"levels"``."""

    @property
    def plan(self) -> Plan:
        """The plan that runs."""

    @property
    def nanoseconds(self) -> int:
        """Predicted device time of a case; the same for the same plan and numbers."""

    @property
    def n_bytes(self) -> int:
        """Device memory, in bytes."""

    @property
    def log_least_root(self) -> float:
        """Natural logarithm of the least P(e) of which the engine is sure to give a reliable answer."""

    def run(self, evidence: Evidence) -> Result | None:
        """Propagate one case; None if the answer is not reliable, as for every P(e) = 0 and too small ones."""
        # raises ImpossibleEvidence: If P(e) = 0, where the engine is sure of it.
        # raises JtgpuError: If the engine is closed.

    def measure(self, runs: int, cases: Sequence[Evidence]) -> list[float]:
        """Device microseconds of `runs` propagations; the cases take turns."""

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """Replace the model's numbers; memory, kernels and graph stay."""

    def close(self) -> None:
        """Free the device's memory. May be called twice."""


class CaseIO:
    """Stream, memory, kernels and lock of an engine, and the page-locked arrays of a case and its answer.

    Made and released inside ``device.active()``.
    """
    # lock: Held while a case is on the device
    # after: A stream of the user whose work precedes every case
    # weights: (W,) float64: The evidence's weight vectors; on the device at ``device_weights`` when `upload_weights`
    #     was called
    # root, exponent: (components,) float64, int32: P(e) of each component is ``root * 2^exponent``

    def __init__(self, device: Device, plan: Plan, n_posterior: int, after: After | None):
        self.device, self.after = device, after
        self.lock = threading.Lock()
        self.memory = Memory(device)
        self.stream: Any = None
        self.is_open = True
        self._kernels: list[Kernels] = []
        try:
            self.stream = device.stream()
            n_weights = int(plan.posterior_ptr[-1])
            self.weights: NDArray[np.float64] = self.memory.host(n_weights, np.float64)
            self.posterior: NDArray[np.float64] = self.memory.host(n_posterior, np.float64)
            self.root: NDArray[np.float64] = self.memory.host(len(plan.root_table), np.float64)
            self.exponent: NDArray[np.int32] = self.memory.host(len(plan.root_table), np.int32)
            self.device_weights = self.memory.empty(8 * n_weights)
        except BaseException:
            self.release()
            raise

    def load_kernels(self, file: str, names: Sequence[str]) -> Kernels:
        """Compile (or take from the cache) and load a kernel file; unloaded by `release`."""
        made = Kernels(self.device, file, names)
        self._kernels.append(made)
        return made

    def put(self, array: NDArray[Any]) -> int:
        """Address of a copy of an array on the device."""
        return self.memory.put(array, self.stream)

    def host(self, cells: int, dtype: DTypeLike) -> NDArray[Any]:
        """Page-locked memory that kernels read and write directly."""
        return self.memory.host(cells, dtype)

    def upload(self, *copies: tuple[int, NDArray[Any]]) -> None:
        """Copy arrays to device addresses; complete when this returns."""
        for address, array in copies:
            if array.nbytes:
                self.device.upload(address, np.ascontiguousarray(array), self.stream)
        self.stream.synchronize()

    def upload_weights(self) -> None:
        """Queue the copy of the weights."""
        self.device.upload(self.device_weights, self.weights, self.stream)

    def least_root(self) -> float:
        """Least root of a component. There is often one, for which NumPy's minimum would take microseconds."""
        return min(self.root.tolist(), default=1.0)

    def check_open(self) -> None:
        """Raise if the engine is closed."""
        if not self.is_open:
            raise JtgpuError("this backend is closed")

    def release(self) -> None:
        """Free everything; inside ``device.active()``."""
        for kernels in self._kernels:
            kernels.close()
        self._kernels = []
        self.memory.close()
        self.stream = None  # must be destroyed while the context is current


def device_times(
    io: CaseIO, runs: int, cases: Sequence[Evidence], write: Callable[[Evidence], Any], launch: Callable[[], None]
) -> list[float]:
    """Device microseconds of propagations, by events.

    A kernel keeps the stream busy while each of them is queued, so that the host's part of a launch is not measured.
    """
    # io: Of the engine
    # cases: sequence of Evidence: They take turns
    # write, launch: Of the engine: put a case where the kernels read it; queue its propagation
    device = io.device
    with io.lock, device.active():
        io.check_open()
        start, stop = device.event(timing=True), device.event(timing=True)
        job = np.zeros(1, JOB)
        job["total"] = HOLD_NS
        block = device.alloc(job.nbytes)
        times = []
        try:
            device.upload(int(block), job, io.stream)
            hold = Launch(device.function("common/hold", "hold"), (1, 1, 1), (1, 1, 1), int(block), 0)
            for i in range(runs):
                write(cases[i % len(cases)])
                device.launch(hold, io.stream)
                start.record(io.stream)
                launch()
                stop.record(io.stream)
                stop.synchronize()
                times.append(stop.time_since(start) * 1e3)
        finally:
            io.stream.synchronize()
            block.free()
            del start, stop  # must be destroyed while the context is current
        return times
