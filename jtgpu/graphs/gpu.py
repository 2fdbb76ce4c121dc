"""The GPU backend: 32 sources a block at a time, all batches in one launch (cuda/graphs/betweenness.cu)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backends.wrappers.workers import WorkerPool
from ..device.context import Device, Launch, Memory, device_numbers, open_device
from ..device.structs import struct
from ..errors import TableTooLarge, format_bytes
from ..util.arrays import Bools, Ints
from .layout import Group, Layout, make_groups, runs
from .records import Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .inputs import Arcs

FILE = "graphs/betweenness"
LANES = 32  # sources side by side
CHUNKS = 16  # groups whose sums a GPU returns, whichever GPUs there are
PARTS = 128  # of a group: each is added up by one block
MAX_SUMS = 1 << 28  # bytes of the sums of the parts of a group
FULL = 8000  # sources whose batches keep all multiprocessors busy
SHARE = 0.9  # of the free memory that may be used

BATCH = struct("graphs/betweenness.cu", "Batch")
PART = struct("graphs/betweenness.cu", "Part")
CHUNK = struct("graphs/betweenness.cu", "Chunk")
JOB = struct("graphs/betweenness.cu", "Job")


class Shape(NamedTuple):
    """How a launch divides a GPU."""

    threads: int  # of a block
    blocks: int  # of each multiprocessor, at most
    few_lanes: int = 8  # of vertices that get a thread


SHAPE: Shape | None = None  # in place of `shape_of`, for measurements


def shape_of(largest: int) -> Shape:
    """Threads and blocks for a component of so many vertices."""
    if SHAPE is not None:
        return SHAPE
    return Shape(64, 16) if largest <= 256 else Shape(128, 8) if largest <= 2048 else Shape(512, 2)


def reason_against(arcs: Arcs) -> str:
    """Why the GPU cannot take a graph; empty if it can."""
    if len(arcs.length) and arcs.length.min() < arcs.length.max():
        return "its kernels do not know lengths of edges"
    if len(arcs.head) >= 2**32 or arcs.n >= 2**26:
        return f"{arcs.n:,} vertices and {len(arcs.head):,} arcs are more than its kernels can number"
    return ""


def numbers_of(devices: Any) -> list[int]:
    """The GPUs of an option; None: the fastest one."""
    # raises BackendUnavailable: If there is none.
    return [open_device().ordinal] if devices is None else device_numbers(devices)


def group_sums(
    layout: Layout, groups: Sequence[Group], devices: Sequence[int], *, edges: bool, endpoints: bool
) -> Iterator[tuple[Group, Sums]]:
    """The sums of each group, in order; bit-identical for any number of GPUs."""
    # layout: With batches of `LANES` sources
    # devices: sequence of int: Each takes consecutive groups
    # edges, endpoints: See `jtgpu.graphs.engine.group_sums`
    # raises TableTooLarge: If the memory for one batch is not available.
    pool = WorkerPool([(f"GPU {number}", open_device(number)) for number in devices])
    tasks = runs(groups, len(devices))

    def work(device: Device, task: Sequence[Group]) -> list[Sums]:
        with device.active(), Memory(device) as memory:
            return _Sweep(device, memory, layout, edges=edges, endpoints=endpoints).run(task)

    sums = dict(pool.run(tasks, work))
    for i, task in enumerate(tasks):
        yield from zip(task, sums[i], strict=True)


class _Sweep:
    """A graph on one GPU. Used inside ``device.active()``; the caller frees the memory."""

    def __init__(self, device: Device, memory: Memory, layout: Layout, *, edges: bool, endpoints: bool):
        self.device, self.memory, self.layout = device, memory, layout
        self.edges = edges
        self.stream = device.stream()
        self.job = np.zeros(1, JOB)
        graph = layout.graph
        out = self._put(graph.first, np.uint32), self._put(graph.head, np.uint32)
        into = out if layout.back is None else tuple(self._put(a, np.uint32) for a in layout.back)
        self._set(
            **{"out": out, "in": into}, reach=self._put(graph.reach, np.float64),
            sources=self._put(layout.sources, np.uint32), multiplicity=self._put(layout.multiplicity, np.float64),
            largest=layout.largest, endpoints=endpoints,
        )  # fmt: skip

    def _put(self, array: NDArray[Any], dtype: Any) -> int:
        return self.memory.put(np.ascontiguousarray(array, dtype), self.stream)

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            self.job[name] = value

    def run(self, groups: Sequence[Group]) -> list[Sums]:
        """The sums of each group."""
        batches = [self.layout.batches[g.batches] for g in groups]
        sums, failed = self._launch(groups, batches, scaled=False)
        again = [i for i, bad in enumerate(failed) if bad.any()]
        if again:  # numbers of paths beyond the range of float64: once more, with exponents
            those = [batches[i][failed[i]] for i in again]
            more, _ = self._launch([groups[i] for i in again], those, scaled=True)
            for i, again_sums in zip(again, more, strict=True):
                sums[i].node[:] += again_sums.node
                sums[i].edge[:] += again_sums.edge
        return sums

    def _launch(self, groups: Sequence[Group], batches: list[Ints], *, scaled: bool) -> tuple[list[Sums], list[Bools]]:
        """The sums of some batches of each group, and which of them have too many paths."""
        memory = Memory(self.device)
        try:
            return self._sums(memory, groups, batches, scaled)
        finally:
            self.stream.synchronize()
            memory.close()

    def _sums(
        self, memory: Memory, groups: Sequence[Group], batches: list[Ints], scaled: bool
    ) -> tuple[list[Sums], list[Bools]]:
        all_batches = np.concatenate(batches)
        starts = np.cumsum([0, *map(len, batches)])
        divided = [make_groups(self.layout.graph, b, self.edges, PARTS, MAX_SUMS) for b in batches]
        parts = _records(PART, [g for d in divided for g in d])
        chunks = _records(CHUNK, groups)
        ends = np.cumsum([len(d) for d in divided])
        chunks["part"], chunks["part_end"] = np.append(0, ends[:-1]), ends
        for d, start, chunk in zip(divided, starts, chunks, strict=False):
            own = parts[chunk["part"] : chunk["part_end"]]
            own["batch"] = [g.batches.start + start for g in d]
            own["batch_end"] = [g.batches.stop + start for g in d]

        def put(array: NDArray[Any]) -> int:
            return memory.put(array, self.stream)

        cells = _cells(parts, self.edges), _cells(chunks, self.edges)
        failed = np.zeros(len(all_batches), np.uint32)
        self._set(
            batches=put(all_batches.astype(np.uint32)), parts=put(parts), chunks=put(chunks), n_parts=len(parts),
            n_chunks=len(chunks), node=memory.empty(8 * cells[0][0]), edge=memory.empty(8 * cells[0][1]),
            chunk_node=memory.empty(8 * cells[1][0]), chunk_edge=memory.empty(8 * cells[1][1]),
            next=put(np.zeros(4, np.uint32)), failed=put(failed),
        )  # fmt: skip
        shape = shape_of(self.layout.largest)
        stride = _bytes_of_block(self.layout.largest, scaled)
        n_blocks = min(shape.blocks * self.device.multiprocessors, len(parts), self._fitting(stride))
        self._set(scratch=memory.empty(stride * n_blocks), stride=stride, few_lanes=shape.few_lanes)
        job = put(self.job)
        name = ("edges" if self.edges else "nodes") + ("_scaled" if scaled else "")
        self._queue(name, n_blocks, shape.threads, job, 0)
        n_sums = -(-int(max(cells[1])) // 256)
        self._queue("sum_parts", max(min(n_sums, 16 * self.device.multiprocessors), 1), 256, job, int(self.edges) * job)
        node, edge = np.empty(cells[1][0]), np.empty(cells[1][1])
        for array, field in ((node, "chunk_node"), (edge, "chunk_edge"), (failed, "failed")):
            if len(array):
                self.device.download(array, int(self.job[field][0]), self.stream)
        self.device.synchronize()
        sums = [
            Sums(node[a : a + g.vertices.stop - g.vertices.start],
                 edge[b : b + g.arcs.stop - g.arcs.start] if self.edges else edge,
                 g.vertices.start, g.arcs.start, False)
            for g, a, b in zip(groups, chunks["node"].tolist(), chunks["edge"].tolist(), strict=True)
        ]  # fmt: skip
        return sums, [failed[a:b] > 0 for a, b in pairwise(starts)]

    def _fitting(self, stride: int) -> int:
        """Blocks that fit the free memory."""
        free = int(SHARE * self.device.free_memory())
        if free < stride:
            raise TableTooLarge(
                f"shortest paths among {self.layout.largest:,} vertices need {format_bytes(stride)} of memory on "
                f"{self.device.name}, but {format_bytes(free)} are free; pass backend='cpu'",
                needed=stride,
                limit=free,
            )
        return free // stride

    def _queue(self, name: str, blocks: int, threads: int, job: int, second: int) -> None:
        function = self.device.function(FILE, name)
        self.device.launch(Launch(function, (blocks, 1, 1), (threads, 1, 1), job, second), self.stream)


def _records(dtype: Any, groups: Sequence[Group]) -> NDArray[Any]:
    """Parts or chunks, with the places of their sums."""
    records = np.zeros(len(groups), dtype)
    for side, slices in (("vertex", [g.vertices for g in groups]), ("arc", [g.arcs for g in groups])):
        records[side], records[f"{side}_end"] = [s.start for s in slices], [s.stop for s in slices]
        sizes = np.array([s.stop - s.start for s in slices])
        records["node" if side == "vertex" else "edge"] = np.cumsum(sizes) - sizes
    return records


def _cells(records: NDArray[Any], edges: bool) -> tuple[int, int]:
    """Numbers of all sums of vertices and arcs."""
    last = records[-1]
    n_edges = int(last["edge"]) + int(last["arc_end"]) - int(last["arc"]) if edges else 0
    return int(last["node"]) + int(last["vertex_end"]) - int(last["vertex"]), n_edges


def _bytes_of_block(n: int, scaled: bool) -> int:
    """Scratch memory: `struct Scratch`."""
    needed = n * (8 * LANES + 4 * 4 + 2 * 4 * LANES + (4 * LANES if scaled else 0)) + 4 * (n + 2)
    return -(-needed // 256) * 256
