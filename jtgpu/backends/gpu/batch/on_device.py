"""Tables of cases whose states come from device memory, or whose answers stay there."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ....device.arrays import DeviceArray, GpuArray, contiguous_strides, read_cases
from ....device.context import Device, Memory
from ....device.driver import Arguments, loaded_kernels
from ....errors import EvidenceError, UnknownState
from ....plans.plan import Plan
from ...table import DeviceAnswer, DeviceCases, Table
from ..counts.chunk import Codes, enter_codes
from ..host import LN2
from .buffers import GROUP, THREADS, TRANSPOSING, Slot, answers_to_rows
from .table import HostChunk, PinnedMemory, TableJob, Targets, scale_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..host import Host

T = TypeVar("T", bound=np.generic)
KERNELS = ("count_codes", "count_finish")


class OnDevice:
    """What the tables of an engine have in common. Used inside ``device.active()``, by one thread at a time."""
    # host: Answers the cases in which numbers were lost

    def __init__(self, plan: Plan, device: Device, stream: Any, host: Host):
        self.plan, self.device, self.stream, self.host = plan, device, stream, host
        self.memory = Memory(device)
        self.card = self.memory.put(plan.cardinality.astype(np.uint32), stream)
        self.bad = self.memory.put(np.zeros(2, np.uint32), stream)  # whether a state is wrong, and a case lost

    def states(self, table: Table[Any], memory: Memory) -> DeviceArray:
        """The states of a table on the device, checked for shape and type."""
        if not isinstance(table.feed, DeviceCases):
            states = np.ascontiguousarray(table.feed.rows())
            shape = (states.shape[0], states.shape[1])
            address = memory.put(states, self.stream)
            return DeviceArray(address, shape, states.strides, states.dtype, self.device.ordinal, None, memory)
        tensor, n_variables = read_cases(table.feed.states, self.device, self.stream), self.plan.n_variables
        if len(tensor.shape) != 2 or tensor.shape[1] != n_variables:
            raise EvidenceError(f"cases: the tensor has shape {tensor.shape}, expected (B, {n_variables})")
        if tensor.dtype.kind != "i":
            raise EvidenceError(f"cases: tensors on a GPU have states of int8 to int64, not {tensor.dtype}")
        if tensor.shape[0] > 1 and tensor.strides != contiguous_strides(tensor.shape, tensor.dtype.itemsize):
            raise EvidenceError("cases: the tensor is not contiguous; pass tensor.contiguous()")
        return tensor

    def read(self, address: int, to: NDArray[T]) -> NDArray[T]:
        """Copy from the device, and wait."""
        self.device.download(to, address, self.stream)
        self.stream.synchronize()
        return to


class DeviceJob(TableJob):
    """A table whose evidence and answers are on the device; one chunk after another, on one stream."""

    on_device = True
    width = state_bytes = 0
    variables = np.zeros(0, np.uint32)

    def __init__(self, on: OnDevice, asked: Table[Any], targets: Targets):
        self._on, self.asked, self.targets, device, stream = on, asked, targets, on.device, on.stream
        self._memory, self._answers = Memory(device), Memory(device)  # of the evidence, and of the answers
        try:
            self._tensor = on.states(asked, self._memory)
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
        self._kernels = loaded_kernels(device, "batch/counts", KERNELS)
        self._around = loaded_kernels(device, "batch/batch", TRANSPOSING)
        self._start, self._stop = device.event(timing=True), device.event(timing=True)

    def host_chunk(self, size: int, pinned: PinnedMemory) -> HostChunk:
        return HostChunk(*[np.zeros(0)] * 4)

    def enter(self, slot: Slot, first: int, last: int, device: Device) -> None:
        """Queue a chunk's evidence, from the table into case-minor order."""
        on, chunk, tensor = self._on, slot.chunk, self._tensor
        if not first:
            self._start.record(slot.stream)
        given = Codes(
            tensor.address + first * tensor.strides[0], self._values + 8 * first * chunk.n_weights, chunk.state,
            chunk.weight, last - first, chunk.size, chunk.n_weights, tensor.dtype.itemsize, on.card, on.bad,
        )  # fmt: skip
        enter_codes(self._kernels, given, on.plan.n_variables, slot.stream)

    def leave(self, slot: Slot, first: int, last: int, device: Device) -> None:
        """Queue the copy of a chunk's answers to where they stay."""
        groups, n_out = -(-(last - first) // GROUP), self.targets.n_out
        rows = answers_to_rows(replace(slot.chunk, rows=self._rows + 8 * n_out * first), n_out)
        if rows is not None:
            rows.queue(self._around, groups, slot.stream)
        device.copy(self._log_evidence + 8 * first, slot.chunk.log_evidence, 8 * GROUP * groups, slot.stream)

    def result(self) -> DeviceAnswer:
        on, n, n_out, us = self._on, self.n, self.targets.n_out, 0.0
        if n:
            all_right = on.host.is_exact(self.weights.smallest)
            least = np.array([-math.inf if all_right else LN2 * on.host.least()]).view(np.uint64)[0]
            words = [self._log_evidence, self._log_scale, self._rows, on.bad + 4, least, n | n_out << 32]
            finish = Arguments(np.array(words, np.uint64))
            self._kernels.launch("count_finish", -(-n // THREADS), THREADS, on.stream, finish)
            self._stop.record(on.stream)
            if self._some_lost():
                self._replace_lost()
            us = float(self._stop.time_since(self._start)) * 1e3
        answers, self._answers = self._answers, Memory(on.device)
        posterior = GpuArray.owning(on.device, answers, self._rows, (n, n_out))
        return DeviceAnswer(posterior, posterior.sharing(self._log_evidence, (n,)), us)

    def _some_lost(self) -> bool:
        """Wait, and raise if a state is wrong; whether a case is so improbable that numbers may be lost."""
        on = self._on
        bad = on.read(on.bad, np.zeros(2, np.uint32))
        if bad.any():
            on.device.upload(on.bad, np.zeros(2, np.uint32), on.stream)
            on.stream.synchronize()
        if bad[0]:
            raise UnknownState("cases: a state of the tensor is neither -1 nor the number of a state of its variable")
        return bool(bad[1])

    def _replace_lost(self) -> None:
        """Answer the cases in which numbers were lost on the host, and copy their answers to the device."""
        on, tensor, n_out = self._on, self._tensor, self.targets.n_out
        lost = on.host.lost(on.read(self._log_evidence, np.empty(self.n)) - self.weights.log_scale)
        for rows in np.split(lost, np.flatnonzero(np.diff(lost) != 1) + 1) if len(lost) else ():
            first = int(rows[0])
            states = np.empty((len(rows), on.plan.n_variables), tensor.dtype)
            on.read(tensor.address + first * tensor.strides[0], states)
            given = {v: np.asarray(w, np.float64)[rows] for v, w in self.asked.likelihood.items()}
            answered = on.host.run(Table.of(states, given, self.targets.variables))
            answers = (np.ascontiguousarray(answered.posterior), answered.log_evidence)
            addresses = self._rows + 8 * n_out * first, self._log_evidence + 8 * first
            for array, address in zip(answers, addresses, strict=True):
                if array.nbytes:
                    on.device.upload(address, array, on.stream)
            on.stream.synchronize()

    def __enter__(self) -> DeviceJob:
        return self

    def __exit__(self, *_: object) -> None:
        """Free the memory of what is not the caller's, once nothing uses it."""
        self._on.stream.synchronize()
        self._memory.close()
        self._answers.close()
        self._start = self._stop = None  # events must be destroyed while the context is current
