"""Messages through the slices of dynamic networks on GPUs: programs, evidence and messages in device memory."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....device.context import Device, Memory
from ....device.driver import Arguments, Kernels, loaded_kernels, most_shared
from ...slices import Between, Side, observed
from ..batch.table import scale_weights
from .program import Pattern, SliceArrays, SliceMaker, Way, slice_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....plans.plan import Plan

KERNELS = ("slices_forward_shared", "slices_forward_global", "slices_backward_shared", "slices_backward_global")
MEMORY_SHARE = 0.6  # of the free memory
MOST_KEPT = 16 << 30  # bytes of messages of a group up to which those of all slices are kept
LEAST_GROUP, MOST_GROUP = 1 << 12, 1 << 16  # sequences
WORKERS = 2  # of a device: one computes while another one copies answers
ROUNDS = 2  # groups of a worker, at least, if they are large enough
MOST_LANES = 32
MOST_THREADS = 256
SM_BYTES, SM_THREADS = 232_448, 1024  # shared memory of an SM; threads that keep it busy
GLOBAL_LANES = 8
BLOCKS_PER_SM = 2  # that share an SM's memory, where at least so many lanes fit:
ENOUGH_LANES = 4
LN2 = float(np.log(2.0))


class GpuPasses:
    """`jtgpu.backends.slices.SlicePasses` of a plan on some GPUs."""
    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], devices: Sequence[Device]):
        self.plan, self.devices = plan, list(devices)
        self._factors, self._lock = list(factors), threading.Lock()
        self._makers: dict[Pattern, SliceMaker] = {}
        self._programs: dict[Any, GpuProgram | None] = {}
        self.times: dict[int, float] = {}  # microseconds of the last call's kernels by the number of the device

    def slice_table(
        self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]], before: Side, after: Side,
        lengths: NDArray[np.int64], most_kept: int,
    ) -> GpuSliceTable | None:  # fmt: skip
        """The evidence of a call on sequences; None if not even one sequence fits the GPU."""
        table = GpuSliceTable(self, states, likelihood, (before, after), lengths)
        return table if table.lanes else None

    def joined(self, others: Sequence[GpuPasses]) -> GpuPasses:
        """The same passes on more devices."""
        if len(self.devices) == 1:
            self.devices += [d for other in others for d in other.devices]
        return self

    def program(self, table: GpuSliceTable, way: Way, pairs: Sequence[Any], device: Device) -> GpuProgram | None:
        """The kernels' arguments for one way through a slice; None where it is not supported."""
        key = (table.pattern, *_hashable(way), *((e.tobytes(), c) for e, c in pairs), device.ordinal)
        with self._lock:
            if key not in self._programs:
                if table.pattern not in self._makers:
                    self._makers[table.pattern] = SliceMaker(self.plan, self._factors, table.pattern)
                made = _arrays(self._makers[table.pattern], way, pairs, most_shared(device) - 1024)
                self._programs[key] = GpuProgram(device, made) if made is not None else None
            return self._programs[key]

    def close(self) -> None:
        """Free the memory of all programs."""
        with self._lock:
            for program in self._programs.values():
                if program is not None:
                    program.close()
            self._programs.clear()


def _hashable(way: Way) -> tuple[Any, ...]:
    return (way.source.number, way.target.number, way.others, way.columns, way.ahead)


def _arrays(maker: SliceMaker, way: Way, pairs: Sequence[Any], most: int) -> SliceArrays | None:
    """The program with as many lanes as pay."""
    lanes, share = MOST_LANES, most // BLOCKS_PER_SM - 1024
    while lanes:
        made = slice_arrays(maker, way, pairs, lanes)
        if made is None or shared_bytes(made) <= (share if lanes > ENOUGH_LANES else most):
            return made
        lanes //= 2
    return slice_arrays(maker, way, pairs, GLOBAL_LANES)


def threads_of(made: SliceArrays) -> int:
    """Threads of a block: as many units as keep an SM busy with the sequences that its memory holds."""
    units, sequences = 1, SM_BYTES * made.lanes // (8 * made.n_cells)
    while units < made.most_tiles and 2 * units * sequences <= SM_THREADS:
        units *= 2
    return max(min(units * made.lanes, MOST_THREADS), 32)


def shared_bytes(made: SliceArrays) -> int:
    """Shared memory of a block with all tables."""
    return 8 * made.n_cells + _sums_bytes(made)


def _sums_bytes(made: SliceArrays) -> int:
    return 16 * threads_of(made) // 32 * made.lanes


class GpuProgram:
    """A program in the memory of a device."""

    def __init__(self, device: Device, made: SliceArrays):
        self.device, self.lanes, self.n_cells = device, made.lanes, made.n_cells
        self.threads, self.is_shared = threads_of(made), shared_bytes(made) <= most_shared(device) - 1024
        self.shared = shared_bytes(made) if self.is_shared else _sums_bytes(made)
        with device.active():
            self.kernels: Kernels = loaded_kernels(device, "batch/slices", KERNELS)
            self._memory = Memory(device)
            stream = device.stream()
            arrays = (made.ops, _padded(made.tiles), made.steps, made.loads, made.observed, made.targets, made.pool)
            try:
                words = [self._memory.put(x, stream) for x in (*arrays, made.consts, made.values)]
            except BaseException:
                self._memory.close()
                raise
            del stream
        head = np.array([*words, 0], np.uint64)
        head[-1:] = np.array([made.least]).view(np.uint64)
        self.struct = np.concatenate([head, np.array(made.words, np.uint32).view(np.uint64)])

    def launch(
        self, way: str, sequences: NDArray[np.uint64], n: int, arenas: Callable[[int], int], stream: Any
    ) -> None:
        """Queue the kernel; `arenas`: gives so many bytes of memory."""
        blocks = n // self.lanes
        if not self.is_shared:
            blocks = min(blocks, self.device.multiprocessors * 2)
            sequences[_ARENAS] = arenas(8 * self.n_cells * blocks)
        name = f"slices_{way}_{'shared' if self.is_shared else 'global'}"
        self.kernels.allow_shared(name, max(self.shared, 48 << 10))
        arguments = Arguments(self.struct, sequences)
        self.kernels.launch(name, blocks, self.threads, stream, arguments, shared=self.shared)

    def close(self) -> None:
        """Free the memory."""
        with self.device.active():
            self._memory.close()


_ARENAS = 13  # place of the address among those of struct Sequences


def _padded(tiles: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return tiles if len(tiles) else np.zeros((1, tiles.shape[1]), np.uint32)


class GpuSliceTable:
    """`jtgpu.backends.slices.SliceTable`: evidence as compact columns, and what all groups share."""

    takes_others, chooses = True, False

    def __init__(
        self, passes: GpuPasses, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]],
        sides: tuple[Side, Side], lengths: NDArray[np.int64],
    ):  # fmt: skip
        self.passes, self.sides, plan = passes, sides, passes.plan
        self.n_entries = len(sides[0].place)
        cards = plan.cardinality
        some, always = (np.zeros(len(cards), np.bool_) for _ in range(2))
        some[: states.shape[1]], always[: states.shape[1]] = observed(states)
        for side in sides:
            always[list(_members(plan, side.number))] = False
        always[list(likelihood)] = False
        columns = np.flatnonzero(some)
        column = np.full(len(cards), -1)
        column[columns] = np.arange(len(columns))
        dtype = np.int8 if int(cards.max()) <= 127 else np.int32
        self.codes: NDArray[Any] = np.ascontiguousarray(states[:, columns], dtype)
        scaled = scale_weights(likelihood, len(states), cards)
        self.weights, self.log_scale = scaled.values, scaled.log_scale
        weight = scaled.first.astype(np.int64)
        weight[weight == 0xFFFFFFFF] = -1
        self.pattern = Pattern(tuple(always.tolist()), tuple(column.tolist()), tuple(weight.tolist()))
        passes.times = self._times = dict.fromkeys((d.ordinal for d in passes.devices), 0.0)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._lengths = lengths
        self.most_kept, self.lanes = self._size()

    def _size(self) -> tuple[int, int]:
        """Bytes of messages that a group may keep, and sequences of a group; 0 if there is no memory."""
        devices, longest = self.passes.devices, int(self._lengths.max())
        free = 1 << 62
        for device in devices:
            with device.active():
                free = min(free, int(MEMORY_SHARE * device.free_memory()))
        free //= WORKERS
        share = -(-len(self._lengths) // len(devices))
        share = _whole(min(share, max(-(-share // (WORKERS * ROUNDS)), LEAST_GROUP), MOST_GROUP))
        wave = min(share, devices[0].multiprocessors * MOST_LANES)
        message, row = 8 * self.n_entries, self.codes.itemsize * self.codes.shape[1] + 8 * self.weights.shape[1]
        each = longest * (row + 8 * int(self.passes.plan.cardinality.sum())) + 8 * message + 64
        everything = message * (longest + 1)
        if wave * everything <= min(MOST_KEPT, free // 2):
            lanes = min(free // (each + everything), MOST_KEPT // everything)
        else:
            lanes, everything = free // (each + 2 * message * math.isqrt(longest)), 0
        lanes = min(lanes // MOST_LANES * MOST_LANES, share)
        return lanes * everything, lanes

    def group(
        self, first: NDArray[np.int64], lengths: NDArray[np.int64], message: NDArray[np.float64]
    ) -> GpuSliceGroup:
        """Some sequences, at most as many as there are lanes."""
        place = self.place()
        with place.device.active():
            return GpuSliceGroup(self, place, first, lengths, message)

    def place(self) -> _Place:
        """The device of this thread, and memory of groups that have ended."""
        if not hasattr(self._local, "place"):
            self._local.place = _Place(self.passes.devices[0])
        made: _Place = self._local.place
        return made

    def run_all(self, work: Callable[[Any], None], parts: Sequence[Any], each: int) -> None:
        """Call a function with every part, on a few threads a device."""
        waiting, errors = deque(parts), list[BaseException]()

        def serve(device: Device) -> None:
            place = self._local.place = _Place(device)
            try:
                while waiting and not errors:
                    try:
                        part = waiting.popleft()
                    except IndexError:
                        return
                    work(part)
            except BaseException as error:
                errors.append(error)
            finally:
                place.close()
                del self._local.place

        devices = (self.passes.devices * WORKERS)[: max(len(parts), 1)]
        threads = [threading.Thread(target=serve, args=(d,), name=f"jtgpu-GPU {d.ordinal}") for d in devices[1:]]
        for thread in threads:
            thread.start()
        serve(devices[0])
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def note_time(self, device: Device, microseconds: float) -> None:
        """Add the time of kernels on a device."""
        with self._lock:
            self._times[device.ordinal] += microseconds


def _members(plan: Plan, number: int) -> tuple[int, ...]:
    """The variables of a side."""
    return (number,) if number < plan.n_variables else plan.sets[number - plan.n_variables]


class _Place:
    """A device with a stream, and blocks of memory that groups use one after another."""

    def __init__(self, device: Device):
        self.device = device
        self._free: dict[int, list[int]] = {}
        with device.active():
            self.memory, self.stream = Memory(device), device.stream()
            self.events = device.event(timing=True), device.event(timing=True)

    def take(self, n_bytes: int) -> tuple[int, int]:
        """Memory: bytes and address."""
        free = self._free.get(n_bytes)
        return n_bytes, free.pop() if free else self.memory.empty(n_bytes)

    def put_back(self, block: tuple[int, int]) -> None:
        self._free.setdefault(block[0], []).append(block[1])

    def close(self) -> None:
        """Free everything."""
        with self.device.active():
            self.stream.synchronize()
            self.memory.close()
            del self.stream, self.events


class _Messages:
    """n messages of a group in device memory, each (K, lanes)."""

    def __init__(self, address: int, n: int, block: tuple[int, int]):
        self.address, self.n, self.block = address, n, block


def _whole(n: int) -> int:
    """Sequences of whole warps."""
    return -(-n // MOST_LANES) * MOST_LANES


class GpuSliceGroup:
    """`jtgpu.backends.slices.SliceGroup` on a device."""

    def __init__(
        self, table: GpuSliceTable, place: _Place, first: NDArray[np.int64], lengths: NDArray[np.int64],
        message: NDArray[np.float64],
    ):  # fmt: skip
        self.table, self.place, self.n = table, place, len(first)
        self.size = size = _whole(self.n)
        self.first, self.lengths = np.full(size, first[-1]), np.zeros(size, np.int64)
        self.first[: self.n], self.lengths[: self.n] = first, lengths
        self._blocks: list[tuple[int, int]] = []
        self._between: tuple[Between, NDArray[np.int64], int, int] | None = None
        ends = np.cumsum(lengths)
        rows: Any = slice(int(first[0]), int(first[0] + ends[-1]))
        if not np.array_equal(first, first[0] + ends - lengths):
            rows = np.repeat(first - (ends - lengths), lengths) + np.arange(int(ends[-1]))
        codes, weights = table.codes[rows], table.weights[rows]
        self.log_scale: Any = 0.0
        if weights.shape[1]:
            self.log_scale = np.add.reduceat(table.log_scale[rows], ends - lengths)
        starts = np.full(size, int(ends[-1] - lengths[-1]), np.uint32)
        starts[: self.n] = ends - lengths
        self.message = self._put(np.repeat(np.asarray(message, np.float64)[:, None], size, axis=1))
        self._codes, self._weights, self._first = self._put(codes), self._put(weights), self._put(starts)
        self._lengths = self._put(self.lengths.astype(np.int32))
        self._total, self._exponent = self._put(np.ones(size)), self._put(np.zeros(size, np.int32))
        self._failed, self._lost = self._put(np.full(size, -1, np.int32)), self._put(np.zeros(size, np.int32))
        self._nothing = _Messages(0, 0, (0, 0))

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
            with self.place.device.active():
                self.place.device.download(to[first : first + shape[0]], address, self.place.stream)
                self.place.stream.synchronize()
            return
        where = (rows[:, None] + np.arange(n_rows)).ravel()
        to[where] = self._get(address, shape, np.float64)

    def _get(self, address: int, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        array = np.empty(shape, dtype)
        if array.nbytes:
            with self.place.device.active():
                self.place.device.download(array, address, self.place.stream)
                self.place.stream.synchronize()
        return array

    @property
    def failed(self) -> NDArray[np.int64]:
        """(lanes,) the first slice that is impossible, or too improbable; -1: none."""
        return self._get(self._failed, (self.size,), np.int32).astype(np.int64)

    @property
    def log_evidence(self) -> NDArray[np.float64]:
        """(n,) ln P of the evidence of each sequence; -inf where it failed."""
        total = self._get(self._total, (self.size,), np.float64)[: self.n]
        exponent = self._get(self._exponent, (self.size,), np.int32)[: self.n]
        made = np.log(np.maximum(total, 5e-324)) + exponent * LN2 + self.log_scale
        return np.where(self.failed[: self.n] >= 0, -np.inf, made)

    @property
    def _message_bytes(self) -> int:
        return 8 * self.table.n_entries * self.size

    def messages(self, n: int) -> _Messages:
        if not n:
            return self._nothing
        with self.place.device.active():
            address = self._take(n * self._message_bytes)
        return _Messages(address, n, self._blocks[-1])

    def ones(self) -> _Messages:
        made = self.messages(1)
        with self.place.device.active():
            ones = np.ones(self.table.n_entries * self.size)
            self.place.device.upload(made.address, ones, self.place.stream)
            self.place.stream.synchronize()
        return made

    def load(self, messages: _Messages, i: int) -> None:
        with self.place.device.active():
            source = messages.address + i * self._message_bytes
            self.place.device.copy(self.message, source, self._message_bytes, self.place.stream)

    def store(self, messages: _Messages, i: int) -> None:
        with self.place.device.active():
            target = messages.address + i * self._message_bytes
            self.place.device.copy(target, self.message, self._message_bytes, self.place.stream)

    def read(self, messages: _Messages) -> NDArray[np.float64]:
        return self._get(messages.address, (messages.n, self.table.n_entries, self.size), np.float64)

    def marginals(self, between: Between | None, rows: NDArray[np.int64]) -> _Out:
        if between is None:
            return _Out((), (), (), 0, 0, 0, 1)
        device, stream, width = self.place.device, self.place.stream, int(between.columns[-1])
        n_rows = 1 if not len(between.place) else int(between.place.max()) + 1
        with device.active():
            cells = self._take(8 * self.size * n_rows * width)
            words = Arguments(np.array([cells], np.uint64), n_rows * width, self.size)
            loaded_kernels(device, "batch/batch", ("batch_clear",)).launch("batch_clear", 1024, 256, stream, words)
            place = self._put(between.place.astype(np.int32)) if len(between.place) else 0
        self._between = (between, rows, cells, n_rows)
        pairs = []
        for j, states in enumerate(between.states):
            first, last = between.columns[j : j + 2].tolist()
            pairs += [(np.flatnonzero(states == k - first), k) for k in range(first, last)]
        columns = tuple(between.columns[len(between.states) : -1].tolist())
        return _Out(tuple(pairs), between.others, columns, cells, place, width, n_rows)

    def forward(
        self, passes: GpuPasses, begin: int, end: int, kept: _Messages, base: int, stride: int, out: _Out
    ) -> None:
        before, after = self.table.sides
        self._run(passes, Way(before, after, True), (begin, end, base, stride), kept, self._nothing, out)

    def again(self, passes: GpuPasses, begin: int, end: int, kept: _Messages, base: int) -> None:
        before, after = self.table.sides
        out, way = self.marginals(None, self.first), Way(before, after, True)
        self._run(passes, way, (begin, end, base, 1), kept, self._nothing, out, count=0)

    def backward(
        self, passes: GpuPasses, begin: int, end: int, kept: _Messages, base: int, later: _Messages, out: _Out
    ) -> bool:
        before, after = self.table.sides
        self._run(passes, Way(after, before, False), (begin, end, base, 1), kept, later, out)
        return False

    def choose(self, *_: Any) -> None:
        raise NotImplementedError

    def _run(
        self, passes: GpuPasses, way: Way, slices: tuple[int, int, int, int], kept: _Messages, later: _Messages,
        out: _Out, count: int = 1,
    ) -> None:  # fmt: skip
        device, stream = self.place.device, self.place.stream
        way = way._replace(others=out.others, columns=out.columns)
        program = passes.program(self.table, way, out.pairs, device)
        assert program is not None
        table = self.table
        words = [
            self._codes, self._weights, self._first, self._lengths, self.message, kept.address, later.address,
            self._total, self._exponent, self._failed, self._lost, out.cells, out.place, 0,
        ]  # fmt: skip
        numbers = [
            self.size, table.codes.itemsize, table.codes.shape[1], table.weights.shape[1], out.n_rows, out.width,
            *slices, kept.n, later.n, count, 0,
        ]  # fmt: skip
        struct = np.concatenate([np.array(words, np.uint64), np.array(numbers, np.uint32).view(np.uint64)])
        with device.active():
            start, stop = self.place.events
            start.record(stream)
            program.launch("forward" if way.ahead else "backward", struct, self.size, self._take, stream)
            stop.record(stream)
            stream.synchronize()
            table.note_time(device, stop.time_since(start) * 1e3)

    def finish(self) -> NDArray[np.bool_]:
        """Copy distributions to their places; (n,) whether each sequence has to be computed again."""
        lost = self._get(self._lost, (self.size,), np.int32)[: self.n] != 0
        if self._between is not None:
            between, rows, cells, n_rows = self._between
            self._download(cells, between.cells, rows, n_rows)
        unsure: NDArray[np.bool_] = lost | (self.failed[: self.n] >= 0)
        for block in self._blocks:
            self.place.put_back(block)
        self._blocks = []
        return unsure


class _Out(NamedTuple):
    """Distributions that a kernel writes."""

    pairs: tuple[tuple[NDArray[np.int64], int], ...]  # see `slice_arrays`
    others: tuple[int, ...]
    columns: tuple[int, ...]  # first one of each of the others
    cells: int  # addresses
    place: int
    width: int
    n_rows: int  # of a sequence
