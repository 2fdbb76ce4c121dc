"""The parts of every engine of single cases, and the measurement of its device time."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...device.context import Device, Launch, Memory
from ...device.driver import After, Kernels
from ...device.structs import JOB
from ...errors import ImpossibleEvidence, JtgpuError
from ...plans.plan import Plan
from ..base import Evidence, Result
from .host import LN2

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHTS = -2  # state of a variable whose evidence is a vector of weights
HOLD_NS = 40_000  # nanoseconds for which a stream is kept busy while a measured propagation is queued


class CaseEngine(ABC):
    """A plan and a model's numbers on one device, for one case at a time. Thread-safe."""
    # plan: The plan that runs
    # after: A stream of the user whose work precedes every case
    # weight_cell: (V,) See `write_evidence`
    # weights: (W,) float64: The evidence's weight vectors; `queue_weights` copies them to the device
    # root, exponent: (components,) float64, int32: P(e) of each component is ``root * 2^exponent``
    # raises TableTooLarge: If the device has not enough memory. What was allocated is freed; the process stays usable.

    kind: str  # "dataflow" or "levels"
    shift = 0  # power of two that was divided out of the factors
    _state: NDArray[Any]  # where the kernels read the states of a case
    _kernels: Kernels | None = None
    _is_open = True

    def __init__(
        self, plan: Plan, device: Device, after: After | None, weight_cell: Sequence[int], n_posterior: int
    ):
        self.plan, self.device, self._after, self._weight_cell = plan, device, after, weight_cell
        self.lock = threading.Lock()  # held while a case is on the device
        with device.active():
            self.memory = Memory(device)
            self.stream: Any = device.stream()
            try:
                host, n_weights = self.memory.host, int(plan.posterior_ptr[-1])
                self.weights: NDArray[np.float64] = host(n_weights, np.float64)
                self.posterior: NDArray[np.float64] = host(n_posterior, np.float64)
                self.root: NDArray[np.float64] = host(len(plan.root_table), np.float64)
                self.exponent: NDArray[np.int32] = host(len(plan.root_table), np.int32)
                self._device_weights = self.memory.empty(8 * n_weights)
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
        return self.memory.n_bytes

    def put(self, array: NDArray[Any]) -> int:
        """Address of a copy of an array on the device."""
        return self.memory.put(array, self.stream)

    def upload(self, *copies: tuple[int, NDArray[Any]]) -> None:
        """Copy arrays to device addresses; complete when this returns."""
        for address, array in copies:
            if array.nbytes:
                self.device.upload(address, np.ascontiguousarray(array), self.stream)
        self.stream.synchronize()

    def queue_weights(self) -> None:
        """Queue the copy of the weights."""
        self.device.upload(self._device_weights, self.weights, self.stream)

    def check_open(self) -> None:
        """Raise if the engine is closed."""
        if not self._is_open:
            raise JtgpuError("this backend is closed")

    def run(self, evidence: Evidence) -> Result | None:
        """Propagate one case; None if the answer is not reliable, as for every P(e) = 0 and too small ones."""
        # raises ImpossibleEvidence: If P(e) = 0, where the engine is sure of it.
        # raises JtgpuError: If the engine is closed.
        with self.lock:
            self.check_open()
            shift = self.shift + write_evidence(evidence, self._weight_cell, self._state, self.weights)
            with self.device.active():
                if self._after is not None:
                    self._after.order(self.stream)
                if evidence.likelihood:
                    self.queue_weights()
                self.queue()
                self.stream.synchronize()
            if not self._is_right():
                return None
            return Result(self.posterior.copy(), log_evidence(self.root, self.exponent, shift))

    def measure(self, runs: int, cases: Sequence[Evidence]) -> list[float]:
        """Device microseconds of `runs` propagations, by events; the cases take turns.

        A kernel keeps the stream busy while each of them is queued, so that the host's part of a launch is not
        measured.
        """
        device, stream = self.device, self.stream
        with self.lock, device.active():
            self.check_open()
            start, stop = device.event(timing=True), device.event(timing=True)
            job = np.zeros(1, JOB)
            job["total"] = HOLD_NS
            block = device.alloc(job.nbytes)
            times = []
            try:
                device.upload(int(block), job, stream)
                hold = Launch(device.function("common/hold", "hold"), (1, 1, 1), (1, 1, 1), int(block), 0)
                for i in range(runs):
                    write_evidence(cases[i % len(cases)], self._weight_cell, self._state, self.weights)
                    self.queue_weights()
                    device.launch(hold, stream)
                    start.record(stream)
                    self.queue()
                    stop.record(stream)
                    stop.synchronize()
                    times.append(stop.time_since(start) * 1e3)
            finally:
                stream.synchronize()
                block.free()
                del start, stop  # must be destroyed while the context is current
            return times

    def _release(self) -> None:
        """Free everything; inside ``device.active()``."""
        if self._kernels is not None:
            self._kernels.close()
        self.memory.close()
        self.stream = None  # must be destroyed while the context is current

    def close(self) -> None:
        """Free the device's memory. May be called twice."""
        with self.lock:
            if self._is_open:
                self._is_open = False
                with self.device.active():
                    self.stream.synchronize()
                    self._release()


# Evidence as the kernels read it, and ln P(e) from what they write.


def write_evidence(
    evidence: Evidence, weight_cell: Sequence[int], state: NDArray[Any], weights: NDArray[np.float64]
) -> int:
    """Fill `state` and `weights`; the power of two by which the weights were divided."""
    # weight_cell: (V,) sequence of int: First cell of each variable in `weights`; negative: its weights are left out
    # state: (V,) array of int: Becomes the observed states, -1 = not observed, `WEIGHTS` = a vector of weights
    # weights: Becomes the weights, divided by a power of two so that the largest of a vector is between 1/2 and 1
    # raises ImpossibleEvidence: For a vector of zeros.
    state[:] = evidence.state
    exponent = 0
    for v, given in evidence.likelihood.items():
        at = weight_cell[v]
        if at < 0:
            continue
        vector = np.asarray(given, np.float64)
        hard = int(evidence.state[v])
        if hard >= 0:
            vector = np.where(np.arange(len(vector)) == hard, vector, 0.0)
        top = float(vector.max(initial=0.0))
        if not top > 0:
            raise ImpossibleEvidence("the evidence has probability 0")
        shift = math.frexp(top)[1]
        weights[at : at + len(vector)] = np.ldexp(vector, -shift)
        state[v] = WEIGHTS
        exponent += shift
    return exponent


def log_evidence(root: NDArray[np.float64], exponent: NDArray[np.int32], shift: int) -> float:
    """ln P(e): ln(root) + exponent * ln 2 summed over the components, plus shift * ln 2."""
    # raises ImpossibleEvidence: When a component has probability 0.
    total = shift * LN2
    for value, e in zip(root.tolist(), exponent.tolist(), strict=True):
        if not value > 0:
            raise ImpossibleEvidence("the evidence has probability 0")
        total += math.log(value) + e * LN2
    return total
