"""The parts of every engine of single cases, and the measurement of its device time."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...device.context import Device, Launch, Memory
from ...device.driver import After, Kernels
from ...device.structs import JOB
from ...errors import JtgpuError
from ...plans.plan import Plan
from ..base import Evidence, Result
from .program.records import log_evidence, write_evidence

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

HOLD_NS = 40_000  # nanoseconds for which a stream is kept busy while a measured propagation is queued


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


class CaseEngine(ABC):
    """A plan and a model's numbers on one device, for one case at a time. Thread-safe."""
    # plan: The plan that runs
    # after: A stream of the user whose work precedes every case
    # weight_cell: (V,) See `write_evidence`
    # raises TableTooLarge: If the device has not enough memory. What was allocated is freed; the process stays usable.

    kind: str  # "dataflow" or "levels"
    _state: NDArray[Any]  # where the kernels read the states of a case

    def __init__(
        self, plan: Plan, device: Device, after: After | None, weight_cell: Sequence[int], n_posterior: int
    ):
        self.plan, self.device, self._weight_cell = plan, device, weight_cell
        with device.active():
            self.io = CaseIO(device, plan, n_posterior, after)
            try:
                self._load()
            except BaseException:
                self._release()
                raise

    @abstractmethod
    def _load(self) -> None:
        """Load the kernels, allocate everything and fix the kernels' parameters."""

    @property
    @abstractmethod
    def nanoseconds(self) -> int:
        """Predicted device time of a case; the same for the same plan and numbers."""

    @property
    @abstractmethod
    def log_least_root(self) -> float:
        """Natural logarithm of the least P(e) of which the engine is sure to give a reliable answer."""

    @property
    def exponent(self) -> int:
        """Power of two that was divided out of the factors."""
        return 0

    @abstractmethod
    def queue(self) -> None:
        """Queue one propagation."""

    @abstractmethod
    def _is_right(self) -> bool:
        """Whether the answer of the last case is reliable."""

    @abstractmethod
    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """Replace the model's numbers; memory, kernels and graph stay."""

    @property
    def n_bytes(self) -> int:
        """Device memory, in bytes."""
        return self.io.memory.n_bytes

    def run(self, evidence: Evidence) -> Result | None:
        """Propagate one case; None if the answer is not reliable, as for every P(e) = 0 and too small ones."""
        # raises ImpossibleEvidence: If P(e) = 0, where the engine is sure of it.
        # raises JtgpuError: If the engine is closed.
        io = self.io
        with io.lock:
            io.check_open()
            shift = write_evidence(evidence, self._weight_cell, self._state, io.weights)
            with self.device.active():
                if io.after is not None:
                    io.after.order(io.stream)
                if evidence.likelihood:
                    io.upload_weights()
                self.queue()
                io.stream.synchronize()
            if not self._is_right():
                return None
            return Result(io.posterior.copy(), log_evidence(io.root, io.exponent, shift + self.exponent))

    def measure(self, runs: int, cases: Sequence[Evidence]) -> list[float]:
        """Device microseconds of `runs` propagations, by events; the cases take turns.

        A kernel keeps the stream busy while each of them is queued, so that the host's part of a launch is not
        measured.
        """
        io, device = self.io, self.device
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
                    write_evidence(cases[i % len(cases)], self._weight_cell, self._state, io.weights)
                    io.upload_weights()
                    device.launch(hold, io.stream)
                    start.record(io.stream)
                    self.queue()
                    stop.record(io.stream)
                    stop.synchronize()
                    times.append(stop.time_since(start) * 1e3)
            finally:
                io.stream.synchronize()
                block.free()
                del start, stop  # must be destroyed while the context is current
            return times

    def _release(self) -> None:
        """Free everything; inside ``device.active()``."""
        self.io.release()

    def close(self) -> None:
        """Free the device's memory. May be called twice."""
        with self.io.lock:
            if self.io.is_open:
                self.io.is_open = False
                with self.device.active():
                    self.io.stream.synchronize()
                    self._release()
