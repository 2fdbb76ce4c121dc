"""A group of sequences on a GPU: evidence, messages and answers in device memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ....device.context import Device
from ....device.driver import Arguments, loaded_kernels
from ....device.structs import filled, struct
from ...slices import Between
from .kernels import KERNELS, MOST_LANES
from .place import Place
from .program import SliceWay

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .contractions import SlicePattern
    from .evidence import SliceEvidence
    from .kernels import GpuProgram

LN2 = float(np.log(2.0))
LEAST_PRODUCT = -1000.0  # log2 of a product that has all its digits


class Programs(Protocol):
    """The programs of slices with the same tables."""

    lower: float  # log2 of a number that no product of their entries is below

    def program(self, pattern: SlicePattern, way: SliceWay, wanted: Sequence[Any], device: Device) -> GpuProgram:
        """The kernels' arguments for one way through a slice."""


class _GroupMessages(NamedTuple):
    """n messages of a group in device memory, each (K, lanes)."""

    address: int
    n: int


_NOTHING = _GroupMessages(0, 0)


def whole(n: int) -> int:
    """Sequences of whole warps."""
    return -(-n // MOST_LANES) * MOST_LANES


class GpuSliceGroup:
    """`jtgpu.backends.slices.SliceGroup` on a device."""

    def __init__(
        self, evidence: SliceEvidence, note: Callable[[Device, float], None], place: Place,
        first: NDArray[np.int64], lengths: NDArray[np.int64], message: NDArray[np.float64],
    ):  # fmt: skip
        self.evidence, self._note, self.place, self.n = evidence, note, place, len(first)
        self.size = size = whole(self.n)
        self.first, self.lengths = np.full(size, first[-1]), np.zeros(size, np.int64)
        self.first[: self.n], self.lengths[: self.n] = first, lengths
        self._blocks: list[tuple[int, int]] = []
        self._between: tuple[Between, NDArray[np.int64], int, int] | None = None
        ends = np.cumsum(lengths)
        rows: Any = slice(int(first[0]), int(first[0] + ends[-1]))
        if not np.array_equal(first, first[0] + ends - lengths):
            rows = np.repeat(first - (ends - lengths), lengths) + np.arange(int(ends[-1]))
        codes, weights = evidence.codes[rows], evidence.weights[rows]
        self.log_scale: Any = 0.0
        if weights.shape[1]:
            self.log_scale = np.add.reduceat(evidence.log_scale[rows], ends - lengths)
        starts = np.full(size, int(ends[-1] - lengths[-1]), np.uint32)
        starts[: self.n] = ends - lengths
        self.message = self._take(8 * len(message) * size)
        start = np.array([self._put(np.asarray(message, np.float64)), self.message], np.uint64)
        self._kernels = loaded_kernels(place.device, "batch/slices", KERNELS)
        words = Arguments(start[:1], start[1:], len(message), size)
        self._kernels.launch("slices_start", 256, 256, place.stream, words)
        self._codes, self._weights, self._first = self._put(codes), self._put(weights), self._put(starts)
        self._lengths = self._put(self.lengths.astype(np.int32))
        self._total, self._exponent = self._put(np.ones(size)), self._put(np.zeros(size, np.int32))
        self._failed, self._lost = self._put(np.full(size, -1, np.int32)), self._put(np.zeros(size, np.int32))
        self._loss, self._late = self._put(np.zeros(size)), self._put(np.zeros(size))

    def _take(self, n_bytes: int) -> int:
        block = self.place.take(max(n_bytes, 16))
        self._blocks.append(block)
        return block[1]

    def _put(self, array: NDArray[Any]) -> int:
        address = self._take(array.nbytes)
        if array.nbytes:
            self.place.device.upload(address, np.ascontiguousarray(array), self.place.stream)
            self.place.stream.synchronize()
        return address

    def _download(self, address: int, to: NDArray[np.float64], rows: NDArray[np.int64], n_rows: int) -> None:
        """Copy rows of each sequence to their places."""
        first, shape = int(rows[0]), (self.n * n_rows, to.shape[1])
        if (np.diff(rows) == n_rows).all():
            self.place.download(to[first : first + shape[0]], address)
            return
        where = (rows[:, None] + np.arange(n_rows)).ravel()
        to[where] = self._get(address, shape, np.float64)

    def _get(self, address: int, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        array = np.empty(shape, dtype)
        if array.nbytes:
            self.place.download(array, address)
        return array

    @property
    def failed(self) -> NDArray[np.int64]:
        """(lanes,) the first slice that is impossible, or too improbable; -1: none."""
        return self._get(self._failed, (self.size,), np.int32).astype(np.int64)

    @property
    def _unsure(self) -> NDArray[np.bool_]:
        """(n,) whether each sequence has to be computed again."""
        lost = self._get(self._lost, (self.size,), np.int32) != 0
        unsure: NDArray[np.bool_] = (lost | (self.failed >= 0))[: self.n]
        return unsure

    @property
    def log_evidence(self) -> NDArray[np.float64]:
        """(n,) ln P of the evidence of each sequence; -inf where it failed."""
        total = self._get(self._total, (self.size,), np.float64)[: self.n]
        exponent = self._get(self._exponent, (self.size,), np.int32)[: self.n]
        made = np.log(np.maximum(total, 5e-324)) + exponent * LN2 + self.log_scale
        return np.where(self.failed[: self.n] >= 0, -np.inf, made)

    @property
    def _message_bytes(self) -> int:
        return 8 * self.evidence.n_entries * self.size

    def messages(self, n: int) -> _GroupMessages:
        with self.place.device.active():
            return _GroupMessages(self._take(n * self._message_bytes), n) if n else _NOTHING

    def ones(self) -> _GroupMessages:
        return self.messages(1)  # the kernel writes ones where a sequence ends

    def load(self, messages: _GroupMessages, i: int) -> None:
        with self.place.device.active():
            source = messages.address + i * self._message_bytes
            self.place.device.copy(self.message, source, self._message_bytes, self.place.stream)

    def store(self, messages: _GroupMessages, i: int) -> None:
        with self.place.device.active():
            target = messages.address + i * self._message_bytes
            self.place.device.copy(target, self.message, self._message_bytes, self.place.stream)

    def read(self, messages: _GroupMessages) -> NDArray[np.float64]:
        return self._get(messages.address, (messages.n, self.evidence.n_entries, self.size), np.float64)

    def marginals(self, between: Between | None, rows: NDArray[np.int64]) -> _Out:
        if between is None:
            return _Out((), (), (), 0, 0, 0, 1, False)
        device, width = self.place.device, int(between.columns[-1])
        n_rows = 1 if not len(between.place) else int(between.place.max()) + 1
        with device.active():
            cells = self._zeros(n_rows * width)
            place = self._put(between.place.astype(np.int32)) if len(between.place) else 0
        self._between = (between, rows, cells, n_rows)
        wanted = tuple(zip(between.states, between.columns.tolist(), strict=False))
        columns = tuple(between.columns[len(between.states) : -1].tolist())
        return _Out(wanted, between.others, columns, cells, place, width, n_rows, False)

    def adding(self, numbers: Sequence[int], columns: Sequence[int]) -> _Out:
        width = columns[-1]
        with self.place.device.active():
            cells = self._zeros(width)
        return _Out((), tuple(numbers), tuple(columns[:-1]), cells, 0, width, 1, True)

    def added(self, out: _Out, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        each = np.zeros(self.size)
        each[: self.n] = np.where(self._unsure, 0.0, weights)
        n_blocks, place = self.size // MOST_LANES, self.place
        with place.device.active():
            to = self._take(8 * n_blocks * out.width)
            addresses = np.array([out.cells, self._put(each), to], np.uint64)
            words = Arguments(*(addresses[i : i + 1] for i in range(3)), out.width, self.size)
            self._kernels.launch("slices_added", 1024, 256, place.stream, words)
        return self._get(to, (n_blocks, out.width), np.float64)

    def _zeros(self, times: int) -> int:
        """Memory of so many numbers of each sequence."""
        cells = self._take(8 * self.size * times)
        words = Arguments(np.array([cells], np.uint64), times, self.size)
        kernels = loaded_kernels(self.place.device, "batch/batch", ("batch_clear",))
        kernels.launch("batch_clear", 1024, 256, self.place.stream, words)
        return cells

    def forward(
        self, passes: Programs, begin: int, end: int, kept: _GroupMessages, base: int, stride: int, out: _Out
    ) -> None:
        before, after = self.evidence.sides
        self._run(passes, SliceWay(before, after, True), (begin, end, base, stride), kept, _NOTHING, out)

    def again(self, passes: Programs, begin: int, end: int, kept: _GroupMessages, base: int) -> None:
        before, after = self.evidence.sides
        out, way = self.marginals(None, self.first), SliceWay(before, after, True)
        self._run(passes, way, (begin, end, base, 1), kept, _NOTHING, out, count=0)

    def backward(
        self, passes: Programs, begin: int, end: int, kept: _GroupMessages, base: int, later: _GroupMessages, out: _Out
    ) -> bool:
        before, after = self.evidence.sides
        self._run(passes, SliceWay(after, before, False), (begin, end, base, 1), kept, later, out)
        return False

    def choose(self, *_: Any) -> None:
        raise NotImplementedError

    def count(self, *_: Any) -> NDArray[np.float64]:
        raise NotImplementedError

    def families(self, *_: Any) -> list[NDArray[np.float64]]:
        raise NotImplementedError

    def _run(
        self, passes: Programs, way: SliceWay, slices: tuple[int, int, int, int], kept: _GroupMessages,
        later: _GroupMessages, out: _Out, count: int = 1,
    ) -> None:  # fmt: skip
        device, stream = self.place.device, self.place.stream
        way = way._replace(others=out.others, columns=out.columns, adds=out.adds)
        program = passes.program(self.evidence.pattern, way, out.wanted, device)
        codes, weights = self.evidence.codes, self.evidence.weights
        begin, end, base, stride = slices
        sequences = filled(
            struct("batch/slices.cu", "Sequences"), codes=self._codes, weights=self._weights, first=self._first,
            lengths=self._lengths, message=self.message, kept=kept.address, later=later.address, total=self._total,
            exponent=self._exponent, failed=self._failed, lost=self._lost, loss=self._loss, late=self._late,
            cells=out.cells, place=out.place, arenas=0,
            small=2.0 ** min(LEAST_PRODUCT - passes.lower - self.evidence.smallest, 1000.0), n=self.size,
            width=codes.itemsize, n_columns=codes.shape[1], n_weights=weights.shape[1], n_rows=out.n_rows,
            n_out=out.width, begin=begin, end=end, base=base, stride=stride, n_kept=kept.n, n_later=later.n,
            count=count, adds=out.adds,
        )  # fmt: skip
        with device.active():
            start, stop = self.place.events
            start.record(stream)
            program.launch("forward" if way.ahead else "backward", sequences, self.size, self._take, stream)
            stop.record(stream)
            stream.synchronize()
            self._note(device, stop.time_since(start) * 1e3)

    def finish(self) -> NDArray[np.bool_]:
        """Copy distributions to their places; (n,) whether each sequence has to be computed again."""
        unsure = self._unsure
        if self._between is not None:
            between, rows, cells, n_rows = self._between
            self._download(cells, between.cells, rows, n_rows)
        for block in self._blocks:
            self.place.put_back(block)
        self._blocks = []
        return unsure


class _Out(NamedTuple):
    """Distributions that a kernel writes."""

    wanted: tuple[tuple[NDArray[np.int64], int], ...]  # see `sums_of`
    others: tuple[int, ...]
    columns: tuple[int, ...]  # first one of each of the others
    cells: int  # addresses
    place: int
    width: int
    n_rows: int  # of a sequence
    adds: bool  # see `SliceWay`
