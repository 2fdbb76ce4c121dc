"""Tables of cases whose states come from device memory, or whose answers stay there."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ....device.arrays import DeviceArray, GpuArray, contiguous_strides, read_cases
from ....device.context import Device, Memory
from ....device.driver import Arguments, loaded_kernels
from ....errors import EvidenceError, UnknownState
from ...table import DeviceAnswer, DeviceCases, Table
from ..host import LN2
from .chunk import ENTERING, GROUP, THREADS, TRANSPOSING, Codes, HostChunk, Slot, answers_to_rows, enter_codes
from .table import PinnedMemory, TableJob, TargetColumns, scale_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....plans.plan import Plan
    from ..host import Host

T = TypeVar("T", bound=np.generic)


class OnDevice(NamedTuple):
    """A device for one plan, and what its tables need there."""

    plan: Plan
    device: Device
    stream: Any
    host: Host  # answers the cases in which numbers were lost
    card: int  # address of (V,) uint32, numbers of states
    bad: int  # of two flags: whether a state is wrong, and a case lost


class DeviceJob(TableJob):
    """A table whose evidence and answers are on the device; one chunk after another, on one stream."""

    on_device = True
    width = state_bytes = 0
    variables = np.zeros(0, np.uint32)

    def __init__(self, on: OnDevice, asked: Table[Any], targets: TargetColumns):
        self._on_device, self.asked, self.targets, device, stream = on, asked, targets, on.device, on.stream
        self._memory, self._answers = Memory(device), Memory(device)  # of the evidence, and of the answers
        try:
            self._tensor = self._states()
            self.n = n = self._tensor.shape[0]
            self.weights = w = scale_weights(asked.likelihood, n, on.plan.cardinality)
            self._values = self._log_scale = 0  # addresses of weights; 0: there are none
            if w.values.shape[1]:
                self._values, self._log_scale = (self._memory.put(x, stream) for x in (w.values, w.log_scale))
            size = -(-n // GROUP) * GROUP
            self._rows, self._log_evidence = (self._answers.empty(8 * m * size) if n else 0 for m in (targets.n_out, 1))
        except BaseException:
            self.__exit__()
            raise
        self._kernels = loaded_kernels(device, "batch/counts", ENTERING)
        self._around = loaded_kernels(device, "batch/batch", TRANSPOSING)
        self._start, self._stop = device.event(timing=True), device.event(timing=True)

    def _states(self) -> DeviceArray:
        """The states of the table on the device, checked for shape and type."""
        feed, (plan, device, stream, *_) = self.asked.feed, self._on_device
        if not isinstance(feed, DeviceCases):
            states = np.ascontiguousarray(feed.rows())
            address, shape = self._memory.put(states, stream), (states.shape[0], states.shape[1])
            return DeviceArray(address, shape, states.strides, states.dtype, device.ordinal, None, None)
        tensor, n_variables = read_cases(feed.states, device, stream), plan.n_variables
        if len(tensor.shape) != 2 or tensor.shape[1] != n_variables:
            raise EvidenceError(f"cases: the tensor has shape {tensor.shape}, expected (B, {n_variables})")
        if tensor.dtype.kind != "i":
            raise EvidenceError(f"cases: tensors on a GPU have states of int8 to int64, not {tensor.dtype}")
        if tensor.shape[0] > 1 and tensor.strides != contiguous_strides(tensor.shape, tensor.dtype.itemsize):
            raise EvidenceError("cases: the tensor is not contiguous; pass tensor.contiguous()")
        return tensor

    def _read(self, address: int, to: NDArray[T]) -> NDArray[T]:
        """Copy from the device, and wait."""
        self._on_device.device.download(to, address, self._on_device.stream)
        self._on_device.stream.synchronize()
        return to

    def host_chunk(self, size: int, pinned: PinnedMemory) -> HostChunk:
        return HostChunk(*[np.zeros(0)] * 4)

    def enter(self, slot: Slot, first: int, last: int, device: Device) -> None:
        """Queue a chunk's evidence, from the table into case-minor order."""
        chunk, tensor, on = slot.chunk, self._tensor, self._on_device
        if not first:
            self._start.record(slot.stream)
        given = Codes(
            tensor.address + first * tensor.strides[0], self._values + 8 * first * chunk.n_weights, chunk.state,
            chunk.weight, last - first, chunk.size, chunk.n_weights, tensor.dtype.itemsize, on.card, on.bad,
        )  # fmt: skip
        enter_codes(self._kernels, given, on.plan.n_variables, slot.stream)

    def leave(self, slot: Slot, first: int, last: int, device: Device) -> None:
        """Queue the copy of a chunk's answers to where they stay."""
        chunk, n, n_out = slot.chunk, last - first, self.targets.n_out
        answers_to_rows(self._around, replace(chunk, rows=self._rows + 8 * n_out * first), n_out, n, slot.stream)
        device.copy(self._log_evidence + 8 * first, chunk.log_evidence, 8 * -(-n // GROUP) * GROUP, slot.stream)

    def result(self) -> DeviceAnswer:
        host, n, n_out, us = self._on_device.host, self.n, self.targets.n_out, 0.0
        if n:
            all_right = host.is_exact(self.weights.smallest)
            least = np.array([-math.inf if all_right else LN2 * host.least()]).view(np.uint64)[0]
            words = [self._log_evidence, self._log_scale, self._rows, self._on_device.bad + 4, least, n | n_out << 32]
            finish = Arguments(np.array(words, np.uint64))
            self._kernels.launch("count_finish", -(-n // THREADS), THREADS, self._on_device.stream, finish)
            self._stop.record(self._on_device.stream)
            if self._some_lost():
                self._replace_lost()
            us = float(self._stop.time_since(self._start)) * 1e3
        answers, self._answers = self._answers, Memory(self._on_device.device)
        posterior = GpuArray.owning(self._on_device.device, answers, self._rows, (n, n_out))
        return DeviceAnswer(posterior, posterior.sharing(self._log_evidence, (n,)), us)

    def _some_lost(self) -> bool:
        """Wait, and raise if a state is wrong; whether a case is so improbable that numbers may be lost."""
        bad = self._read(self._on_device.bad, np.zeros(2, np.uint32))
        if bad.any():
            self._on_device.device.upload(self._on_device.bad, np.zeros(2, np.uint32), self._on_device.stream)
            self._on_device.stream.synchronize()
        if bad[0]:
            raise UnknownState("cases: a state of the tensor is neither -1 nor the number of a state of its variable")
        return bool(bad[1])

    def _replace_lost(self) -> None:
        """Answer the cases in which numbers were lost on the host, and copy their answers to the device."""
        on, tensor, n_out = self._on_device, self._tensor, self.targets.n_out
        lost = on.host.lost(self._read(self._log_evidence, np.empty(self.n)) - self.weights.log_scale)
        for rows in np.split(lost, np.flatnonzero(np.diff(lost) != 1) + 1) if len(lost) else ():
            first = int(rows[0])
            states = np.empty((len(rows), on.plan.n_variables), tensor.dtype)
            self._read(tensor.address + first * tensor.strides[0], states)
            given = {v: np.asarray(w, np.float64)[rows] for v, w in self.asked.likelihood.items()}
            answered = on.host.run(Table.of(states, given, self.targets.variables))
            answers = (np.ascontiguousarray(answered.posterior), answered.log_evidence)
            addresses = self._rows + 8 * n_out * first, self._log_evidence + 8 * first
            for array, address in zip(answers, addresses, strict=True):
                if array.nbytes:
                    on.device.upload(address, array, on.stream)
            self._on_device.stream.synchronize()

    def __enter__(self) -> DeviceJob:
        return self

    def __exit__(self, *_: object) -> None:
        """Free the memory of what is not the caller's, once nothing uses it."""
        self._on_device.stream.synchronize()
        self._memory.close()
        self._answers.close()
        self._start = self._stop = None  # events must be destroyed while the context is current
