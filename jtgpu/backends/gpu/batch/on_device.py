"""Tables of cases whose states come from device memory, or whose answers stay there."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ....device.arrays import CUDA, DeviceArray, Tensor, contiguous_strides, make_capsule, read_cases
from ....device.context import Device, Memory
from ....device.driver import Arguments, Kernels
from ....errors import EvidenceError, TableTooLarge, UnknownState, format_bytes
from ....plans.plan import Plan
from ...table import DeviceAnswer, DeviceCases, Likelihood, Table
from ..counts.chunk import Codes, enter_codes
from ..host import LN2
from .buffers import GROUP, MEMORY_SHARE, THREADS, Bound, Chunk, Program, answers_to_rows, chunk_size
from .table import Targets, scale_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..host import Host

T = TypeVar("T", bound=np.generic)

# Arrays in device memory that other libraries read without a copy.

class GpuArray:
    """An array in the memory of a GPU.

    It has ``__dlpack__`` and ``__cuda_array_interface__``: ``torch.from_dlpack(x)``, ``cupy.from_dlpack(x)`` and
    ``jax.dlpack.from_dlpack(x)`` share its memory. ``numpy.asarray(x)`` copies it to the host. The memory is freed with
    the last array that shares it. All work on it is complete when the caller gets it.
    """
    # strides: tuple of int: Bytes

    def __init__(
        self, device: Device, owner: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None
    ):
        self.device, self._owner, self._address = device, owner, address
        self.dtype: np.dtype[Any] = np.dtype(np.float64)
        self.shape = shape
        self.strides = contiguous_strides(shape, 8) if strides is None else strides

    @classmethod
    def owning(cls, device: Device, memory: Memory, address: int, shape: tuple[int, ...]) -> GpuArray:
        """An array whose memory, and everything else of its owner, is freed with it."""
        owner = _Owner()
        weakref.finalize(owner, _free, device, memory)
        return cls(device, owner, address, shape)

    def columns(self, first: int, last: int) -> GpuArray:
        """Columns of a matrix, in the same memory."""
        shape, strides = (self.shape[0], last - first), self.strides
        return GpuArray(self.device, self._owner, self._address + first * strides[1], shape, strides)

    def folded(self, extents: Sequence[int]) -> GpuArray:
        """A matrix with its columns as axes of these extents, in the same memory."""
        steps = (self.strides[1] * math.prod(extents[i + 1 :]) for i in range(len(extents)))
        shape = (self.shape[0], *extents)
        return GpuArray(self.device, self._owner, self._address, shape, (self.strides[0], *steps))

    def transposed(self, axes: Sequence[int]) -> GpuArray:
        """The axes in another order, in the same memory."""
        shape, strides = (tuple(x[i] for i in axes) for x in (self.shape, self.strides))
        return GpuArray(self.device, self._owner, self._address, shape, strides)

    def sharing(self, address: int, shape: tuple[int, ...]) -> GpuArray:
        """Another array in memory of the same owner."""
        return GpuArray(self.device, self._owner, address, shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        strides = None if self._is_contiguous else self.strides
        return {
            "shape": self.shape, "typestr": self.dtype.str, "data": (self._address, False), "strides": strides,
            "version": 3, "stream": None,
        }  # fmt: skip

    @property
    def _is_contiguous(self) -> bool:
        return self.strides == contiguous_strides(self.shape, self.dtype.itemsize)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device.ordinal

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("only the memory itself can be exchanged, not a copy of it")
        tensor = Tensor(
            self._address, self.shape, self.strides, self.dtype, self.__dlpack_device__(), lambda: None
        )
        return make_capsule(tensor, self._owner)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an array on a GPU cannot be read without a copy")
        host = self.to_host()
        return host if dtype is None else host.astype(dtype)

    def to_host(self) -> NDArray[Any]:
        """Copy to a NumPy array."""
        span = 1 + sum((n - 1) * stride // 8 for n, stride in zip(self.shape, self.strides, strict=True))
        cells = np.empty(span if math.prod(self.shape) else 0)
        if cells.size:
            with self.device.active():
                stream = self.device.stream()
                self.device.download(cells, self._address, stream)
                stream.synchronize()
                del stream
        strided = np.lib.stride_tricks.as_strided(cells, self.shape, self.strides)
        return np.array(strided, order="C")

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<GpuArray of {self.dtype} {self.shape} on {self.device.name} {self.device.ordinal}>"


class _Owner:
    """Lives as long as some array uses its memory."""


def _free(device: Device, memory: Memory) -> None:
    with suppress(Exception), device.active():  # at the end of the process the context may be gone
        memory.close()


KERNELS = ("count_codes", "count_finish")


class _Given(NamedTuple):
    """Weights in the device's memory; see `Weights`."""

    n_weights: int
    first: NDArray[np.uint32]
    smallest: float
    values: int  # addresses; 0: there are no weights
    log_scale: int


class _Scratch:
    """Memory of one chunk, and the parameters of its kernels."""

    def __init__(self, owner: OnDevice, program: Program, targets: Targets, weights: _Given, size: int):
        plan, stream = owner.plan, owner.stream
        n_weights = weights.n_weights
        self.size, self.memory = size, Memory(owner.device)
        try:
            tables = program.scratch(self.memory, stream, size)
            self.chunk = Chunk(
                size, n_weights, 0, 0, self.memory.empty(4 * plan.n_variables * size),
                self.memory.empty(8 * n_weights * size), self.memory.put(weights.first, stream),
                self.memory.empty(8 * targets.n_out * size), 0, self.memory.empty(8 * size),
            )  # fmt: skip
            self.bound: Bound = program.bind(self.chunk, tables, targets.variables, self.memory, stream)
        except BaseException:
            self.memory.close()
            raise


class OnDevice:
    """Answers tables on the device. Used inside ``device.active()``, by one thread at a time."""
    # program: The kernels of a call; see `BatchEngine.program`
    # host: Answers the cases in which numbers were lost

    def __init__(self, plan: Plan, device: Device, stream: Any, program: Callable[..., Program], host: Host):
        self.plan, self.device, self.stream = plan, device, stream
        self._program, self._host = program, host
        self._kernels = Kernels(device, "batch/counts", KERNELS)
        self._transposing = Kernels(device, "batch/batch", ("batch_rows",))
        self._memory = Memory(device)
        self._card = self._memory.put(plan.cardinality.astype(np.uint32), stream)
        self._bad = self._memory.put(np.zeros(2, np.uint32), stream)  # whether a state is wrong, and a case lost
        self._scratch: _Scratch | None = None
        self._key: tuple[Any, ...] = ()
        self._n = 0  # cases of the call for which the scratch memory was made

    def run(self, table: Table[DeviceAnswer], targets: Targets) -> DeviceAnswer:
        """Answer a table on the device, as `jtgpu.backends.base.Backend.run` declares."""
        # raises TableTooLarge: If the answers, or not even 32 cases, fit the memory.
        likelihood, temporary = table.likelihood, Memory(self.device)
        try:
            if isinstance(table.feed, DeviceCases):
                tensor = read_cases(table.feed.states, self.device, self.stream)
                self._check(tensor)
            else:
                tensor = self._uploaded(table.feed.rows(), temporary)
            return self._answer(tensor, self._given(likelihood, tensor.shape[0], temporary), targets, likelihood)
        finally:
            self.stream.synchronize()
            temporary.close()

    def _given(self, likelihood: Likelihood | None, n: int, memory: Memory) -> _Given:
        """The weights of n cases on the device."""
        w = scale_weights(likelihood, n, self.plan.cardinality)
        if not w.values.shape[1]:
            return _Given(0, w.first, w.smallest, 0, 0)
        put = (memory.put(np.ascontiguousarray(a), self.stream) for a in (w.values, w.log_scale))
        return _Given(w.values.shape[1], w.first, w.smallest, *put)

    def _uploaded(self, states: NDArray[Any], memory: Memory) -> DeviceArray:
        """States of the host, which have been checked."""
        states = np.ascontiguousarray(states)
        address, shape = memory.put(states, self.stream), (states.shape[0], states.shape[1])
        return DeviceArray(address, shape, states.strides, states.dtype, self.device.ordinal, None, memory)

    def _check(self, tensor: DeviceArray) -> None:
        n_variables = self.plan.n_variables
        if len(tensor.shape) != 2 or tensor.shape[1] != n_variables:
            raise EvidenceError(f"cases: the tensor has shape {tensor.shape}, expected (B, {n_variables})")
        if tensor.dtype.kind != "i":
            raise EvidenceError(f"cases: tensors on a GPU have states of int8 to int64, not {tensor.dtype}")
        if tensor.shape[0] > 1 and tensor.strides != contiguous_strides(tensor.shape, tensor.dtype.itemsize):
            raise EvidenceError("cases: the tensor is not contiguous; pass tensor.contiguous()")

    def _answer(
        self, tensor: DeviceArray, weights: _Given, targets: Targets, likelihood: Likelihood
    ) -> DeviceAnswer:
        n, n_out, n_weights = tensor.shape[0], targets.n_out, weights.n_weights
        program = self._program(weights=n_weights > 0, smallest=weights.smallest)
        answers = Memory(self.device)
        try:
            if not n:
                empty = GpuArray.owning(self.device, answers, 0, (0, n_out))
                return DeviceAnswer(empty, empty.sharing(0, (0,)))
            scratch = self._fitting(program, weights, targets, n)
            n_chunks = -(-n // scratch.size)
            rows = answers.empty(8 * n_out * scratch.size * n_chunks)
            log_evidence = answers.empty(8 * scratch.size * n_chunks)
            start, stop = self.device.event(timing=True), self.device.event(timing=True)
            start.record(self.stream)
            for first in range(0, n, scratch.size):
                self._queue(
                    program, scratch, (tensor.address + first * tensor.strides[0], tensor.dtype.itemsize),
                    weights.values + 8 * first * n_weights, min(scratch.size, n - first),
                    (rows + 8 * n_out * first, log_evidence + 8 * first, n_out),
                )  # fmt: skip
            all_right = self._host.is_exact(weights.smallest)
            least = np.array([-math.inf if all_right else LN2 * self._host.least()]).view(np.uint64)
            words = [log_evidence, weights.log_scale, rows, self._bad + 4, least[0], n | n_out << 32]
            finish = Arguments(np.array(words, np.uint64))
            self._kernels.launch("count_finish", -(-n // THREADS), THREADS, self.stream, finish)
            stop.record(self.stream)
            some_lost = self._raise_if_bad()
            device_us = float(stop.time_since(start)) * 1e3
            if some_lost:
                self._replace_lost(tensor, weights, targets, likelihood, (rows, log_evidence))
        except BaseException:
            self.stream.synchronize()
            answers.close()
            raise
        posterior = GpuArray.owning(self.device, answers, rows, (n, n_out))
        return DeviceAnswer(posterior, posterior.sharing(log_evidence, (n,)), device_us)

    def _queue(
        self, program: Program, scratch: _Scratch, codes: tuple[int, int], weights: int, n: int,
        out: tuple[int, int, int],
    ) -> None:  # fmt: skip
        """Queue the kernels of a chunk: from states (address, bytes of each) to posteriors and ln P(e)."""
        chunk, stream = scratch.chunk, self.stream
        given = Codes(
            codes[0], weights, chunk.state, chunk.weight, n, chunk.size, chunk.n_weights, codes[1], self._card,
            self._bad,
        )  # fmt: skip
        enter_codes(self._kernels, given, self.plan.n_variables, stream)
        program.queue(scratch.bound, stream, n)
        rows = answers_to_rows(replace(chunk, rows=out[0]), out[2])
        if rows is not None:
            rows.queue(self._transposing, -(-n // GROUP), stream)
        self.device.copy(out[1], chunk.log_evidence, 8 * chunk.size, stream)

    def _raise_if_bad(self) -> bool:
        """Wait, and raise if a state is wrong; whether a case is so improbable that numbers may be lost."""
        bad = self._read(self._bad, np.zeros(2, np.uint32))
        if bad.any():
            self.device.upload(self._bad, np.zeros(2, np.uint32), self.stream)
            self.stream.synchronize()
        if bad[0]:
            raise UnknownState("cases: a state of the tensor is neither -1 nor the number of a state of its variable")
        return bool(bad[1])

    def _read(self, address: int, to: NDArray[T]) -> NDArray[T]:
        """Copy from the device, and wait."""
        self.device.download(to, address, self.stream)
        self.stream.synchronize()
        return to

    def _replace_lost(
        self, tensor: DeviceArray, weights: _Given, targets: Targets, likelihood: Likelihood,
        out: tuple[int, int],
    ) -> None:  # fmt: skip
        """Answer the cases in which numbers were lost on the host, and copy their answers to the device."""
        # out: Addresses of posteriors and of ln P(e)
        n, n_out = tensor.shape[0], targets.n_out
        log_evidence = self._read(out[1], np.empty(n))
        scale = self._read(weights.log_scale, np.empty(n)) if weights.log_scale else np.zeros(n)
        lost = self._host.lost(log_evidence - scale)
        for rows in np.split(lost, np.flatnonzero(np.diff(lost) != 1) + 1) if len(lost) else ():
            first, m = int(rows[0]), len(rows)
            states = np.empty((m, self.plan.n_variables), tensor.dtype)
            self._read(tensor.address + first * tensor.strides[0], states)
            given = {v: np.asarray(w, np.float64)[rows] for v, w in likelihood.items()}
            answered = self._host.run(Table.of(states, given, targets.variables))
            answers = (np.ascontiguousarray(answered.posterior), answered.log_evidence)
            for array, address in zip(answers, (out[0] + 8 * n_out * first, out[1] + 8 * first), strict=True):
                if array.nbytes:
                    self.device.upload(address, array, self.stream)
            self.stream.synchronize()

    def _fitting(self, program: Program, weights: _Given, targets: Targets, n: int) -> _Scratch:
        """Scratch memory, the last call's if it fits."""
        n_weights = weights.n_weights
        key = (id(program), *targets.variables, -1, *weights.first.tolist())
        each = program.case_bytes + 8 * (2 * targets.n_out + 3 + n_weights) + 4 * self.plan.n_variables
        fits_already = self._scratch is not None and (n == self._n or n <= self._scratch.size <= 2 * max(n, GROUP))
        if key != self._key or not fits_already:
            free = int(MEMORY_SHARE * self.device.free_memory())
            if self._scratch is not None:
                free += int(MEMORY_SHARE * each * self._scratch.size)
            free -= 8 * (targets.n_out + 1) * n
            fits = min(free // each, program.most_cases) // GROUP * GROUP
            if fits < GROUP:
                needed = 8 * (targets.n_out + 1) * n + GROUP * each
                raise TableTooLarge(
                    f"the answers of {n:,} cases take {format_bytes(needed)} of GPU memory, of which "
                    f"{format_bytes(max(free, 0) + 8 * (targets.n_out + 1) * n)} may be allocated",
                    needed=needed,
                )
            size, _ = chunk_size(n, fits, program.wave)
            if self._scratch is None or key != self._key or self._scratch.size != size:
                self.drop()
                self._scratch, self._key = _Scratch(self, program, targets, weights, size), key
            self._n = n
        assert self._scratch is not None
        return self._scratch

    def drop(self) -> None:
        """Free the scratch memory."""
        if self._scratch is not None:
            self._scratch.memory.close()
        self._scratch, self._key = None, ()

    def close(self) -> None:
        """Free all memory and unload the kernels."""
        self.drop()
        self._memory.close()
        self._kernels.close()
        self._transposing.close()
