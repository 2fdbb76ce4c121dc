"""Sums of the dependencies of all sources: which backend computes the groups of batches, and their sum in order."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from ..errors import ArgumentError, BackendUnavailable, TableTooLarge, format_bytes
from ..util import late_imports
from ..util.arguments import callback, choice, whole_number
from ..util.arrays import Floats
from ..util.loops import loops
from ..util.system import cores, free_memory
from . import gpu
from .layout import Group, Layout, RawSums, divide, runs, with_trees
from .records import DEEPEST, LANES, LONGEST, PathTables, Sums, SweepScratch

if TYPE_CHECKING:
    from .inputs import Arcs

# The definition: one source at a time (Brandes, 2001); numbers of paths are Python's integers, of any size.

def reference_dependencies(arcs: Arcs, chosen: Floats, *, edges: bool, endpoints: bool) -> RawSums:
    node, on_arc = np.zeros(arcs.n), np.zeros(len(arcs.head))
    for source in np.flatnonzero(chosen).tolist():
        order, paths, before = _shortest_paths(arcs, source)
        delta = dict.fromkeys(order, 0.0)
        for v in reversed(order):
            for u, arc in before[v]:
                share = paths[u] / paths[v] * (1.0 + delta[v])  # a quotient of integers is rounded once
                delta[u] += share
                on_arc[arc] += share
            if v != source:
                node[v] += delta[v] + (1.0 if endpoints else 0.0)
        node[source] += len(order) - 1.0 if endpoints else 0.0
    edge = np.zeros(len(arcs.of_edge) if edges else 0)
    for column in arcs.of_edge.T if edges else ():
        edge[column >= 0] += on_arc[column[column >= 0]]
    return RawSums(node, edge)


def _shortest_paths(arcs: Arcs, source: int) -> tuple[list[int], dict[int, int], dict[int, list[tuple[int, int]]]]:
    """Vertices by distance, the number of shortest paths to each, and the last arcs of these paths with their tails."""
    distance, paths = {source: 0.0}, {source: 1}
    before: dict[int, list[tuple[int, int]]] = {source: []}
    order: dict[int, None] = {}
    heap = [(0.0, source)]
    while heap:
        _, u = heappop(heap)
        if u in order:
            continue
        order[u] = None
        for arc in range(int(arcs.first[u]), int(arcs.first[u + 1])):
            v = int(arcs.head[arc])
            to = distance[u] + (float(arcs.length[arc]) if len(arcs.length) else 1.0)
            if v in order:
                continue
            if v not in distance or to < distance[v]:
                distance[v], paths[v], before[v] = to, paths[u], [(u, arc)]
                heappush(heap, (to, v))
            elif to == distance[v]:
                paths[v] += paths[u]
                before[v].append((u, arc))
    return list(order), paths, before


# The CPU backend: groups of batches in threads, each with its own memory.

_sweep = loops("jtgpu.graphs.sweep_loops")

GROUPS = 64  # whose results are added in order, whichever thread computes them
ENOUGH = 1_000_000  # sources times arcs, some milliseconds, that pay for a thread
STEP = 20_000_000  # sources times arcs, after which a thread looks whether it is to stop


def group_sums(
    layout: Layout, groups: list[Group], *, edges: bool, endpoints: bool, threads: int | None = None
) -> Iterator[tuple[Group, Sums]]:
    """The sums of each group, in order; bit-identical for any number of threads."""
    # edges: Sum paths through arcs, too
    # endpoints: Count the ends of a path
    # threads: Default: one for each core, fewer where memory is short
    # raises TableTooLarge: If the memory of one thread is not available.
    spare: list[_Memory] = []
    stopped = threading.Event()

    def work(group: Group) -> tuple[Group, Sums]:
        scratch = spare.pop() if spare else _Memory(layout)
        out = Sums(
            np.zeros(group.vertices.stop - group.vertices.start),
            np.zeros(group.arcs.stop - group.arcs.start if edges else 0),
            group.vertices.start, group.arcs.start, endpoints,
        )  # fmt: skip
        scratch.sweep(layout, group, out, stopped)
        spare.append(scratch)
        return group, out

    n = _n_threads(layout, groups, threads)
    if n == 1:
        yield from map(work, groups)
        return
    with ThreadPoolExecutor(n, "jtgpu-graphs") as pool:
        try:
            yield from pool.map(work, groups)
        finally:
            stopped.set()  # after Ctrl-C, groups take minutes


class _Memory:
    """Memory of one thread, and the loops that use it."""

    def __init__(self, layout: Layout):
        n, levels = layout.largest, layout.graph.levels
        self._lanes: SweepScratch | None = None
        if layout.has_levels:
            n_buckets = 1 + int(levels.max(initial=1))
            self._lanes = SweepScratch(
                np.zeros(36 * n + 24), np.empty(LANES * n, np.int32), np.empty(DEEPEST + 2, np.int64),
                np.empty(n_buckets * n, np.int32), np.zeros(n, np.int32), np.zeros(LONGEST + 2, np.int64),
            )  # fmt: skip
        self._tables: PathTables | None = None

    def sweep(self, layout: Layout, group: Group, out: Sums, stopped: threading.Event) -> None:
        """Add the dependencies of a group's sources to its sums, until it is stopped."""
        batches = layout.batches[group.batches]
        step = len(batches) * STEP // max(group.work, 1) + 1
        if self._lanes is not None:
            failed = np.zeros(len(batches), np.bool_)
            for i in range(0, len(batches), step):
                if not stopped.is_set():
                    args = batches[i : i + step], layout.sources, layout.multiplicity, self._lanes, out
                    _sweep.sweep(layout.graph, *args, failed[i : i + step])
            batches = batches[failed]
        if self._tables is None and len(batches):
            n = layout.largest
            self._tables = PathTables(
                np.empty(n), np.empty(n), np.empty(n, np.int32), np.empty(n), *(np.empty(n, np.int32) for _ in range(4))
            )
        for i in range(0, len(batches), step):
            if not stopped.is_set():
                some = batches[i : i + step]
                _sweep.sweep_single(
                    layout.graph, layout.length, some, layout.sources, layout.multiplicity, self._tables, out
                )


def _bytes_of_thread(layout: Layout) -> int:
    n = layout.largest
    lanes = n * (36 * 8 + 4 * LANES + 4 * (2 + int(layout.graph.levels.max(initial=1)))) if layout.has_levels else 0
    return lanes + 44 * n + (1 << 19)


def _n_threads(layout: Layout, groups: list[Group], threads: int | None) -> int:
    n = max(min(threads or cores(), len(groups), sum(g.work for g in groups) // ENOUGH), 1)
    if layout.largest <= 100_000:  # asking the system takes longer than small graphs
        return n
    needed, free = _bytes_of_thread(layout), free_memory()
    if needed > free:
        raise TableTooLarge(
            f"shortest paths among {layout.largest:,} vertices need {format_bytes(needed)} for each thread, but "
            f"{format_bytes(free)} are free",
            needed=needed,
            limit=free,
        )
    return max(min(n, int(0.8 * free) // needed), 1)


# Groups of batches, shared by the workers of a cluster.

RUNS = 4  # tasks for each worker without a GPU


def cluster_sums(
    cluster: object, layout: Layout, *, backend: str, edges: bool, endpoints: bool
) -> Iterator[tuple[Group, Sums]]:
    """The sums of each group, in order; bit-identical on any cluster."""
    # backend: {"cpu", "gpu"}
    # edges, endpoints: See `group_sums`
    on_gpu = backend == "gpu"
    shared = layout, on_gpu, {"edges": edges, "endpoints": endpoints}
    results = late_imports.cluster().run_tasks(
        cluster, _sums_of_run, shared, lambda n: runs(layout.groups, n * (1 if on_gpu else RUNS)), backend
    )
    groups = iter(layout.groups)
    for result in results:
        for out in result:
            yield next(groups), out


def _sums_of_run(shared: Any, groups: Sequence[Group], threads: int) -> list[Sums]:
    """The task of a worker."""
    layout, on_gpu, options = copy.deepcopy(shared)  # compiled loops do not take read-only arrays
    if on_gpu:
        return [out for _, out in gpu.group_sums(layout, groups, gpu.numbers_of(None), **options)]
    return [out for _, out in group_sums(layout, [*groups], threads=threads, **options)]


BACKENDS = ("auto", "cpu", "gpu", "reference")
RATE = 1e8  # sources times arcs that a core does in a second
GPU_RATE, GPU_START = 2e10, 1.0  # the same for an H100, and the seconds until it starts
Progress = Callable[[int, int, str], object]  # done, total, what


class Target(NamedTuple):
    """Engine, devices and threads of one run; see `jtgpu.graphs.betweenness`."""

    backend: str = "auto"
    threads: int | None = None
    devices: Any = None
    cluster: Any = None
    progress: Progress | None = None

    @classmethod
    def checked(cls, backend: str, threads: int | None, devices: Any, cluster: Any, progress: Any) -> Self:
        """The options, if they are of the right types."""
        choice("backend", backend, BACKENDS)
        if threads is not None:
            whole_number("threads", threads, 1)
        callback("progress", progress)
        return cls(backend, threads, devices, cluster, progress)


def dependencies(
    arcs: Arcs, chosen: Floats, *, edges: bool, endpoints: bool, target: Target
) -> RawSums:  # fmt: skip
    """Sum the shortest paths through every vertex, or every edge."""
    # chosen: (n,) ndarray of float64: 1 for sources, else 0. All vertices are targets.
    # edges: Sum paths through edges, too
    # endpoints: Count the ends of a path
    # raises BackendUnavailable: If there is no GPU, and one is requested.
    # raises TableTooLarge: If the memory of one thread, or of one block of a GPU, is not available.
    if target.devices is not None and target.cluster is not None:
        raise ArgumentError("devices are GPUs of this machine; a cluster's workers have one each")
    if target.devices is not None and target.backend in ("cpu", "reference"):
        raise ArgumentError(f"devices are GPUs, which backend={target.backend!r} does not use")
    if target.backend == "reference":
        return reference_dependencies(arcs, chosen, edges=edges, endpoints=endpoints)
    task = _Task(arcs, chosen, edges, endpoints)
    numbers = _devices(task, target)
    if not _is_optional(target):
        return task.run(target, numbers)
    try:
        return task.run(target, numbers)
    except (BackendUnavailable, TableTooLarge) as error:
        if not numbers:
            raise
        logging.getLogger("jtgpu").warning('backend="auto" uses the CPU, since the GPU failed: %s', error)
        return task.run(target, [])


class _Task(NamedTuple):
    """One computation; see `dependencies`."""

    arcs: Arcs
    chosen: Floats
    edges: bool
    endpoints: bool

    def run(self, target: Target, numbers: list[int]) -> RawSums:
        """The sums, on these GPUs; without any on the CPU."""
        shape = (gpu.LANES, gpu.CHUNKS) if numbers else (LANES, GROUPS)
        layout = divide(self.arcs, self.chosen, self.edges, *shape)
        options = {"edges": self.edges, "endpoints": self.endpoints and self.arcs.directed}
        results: Iterator[tuple[Group, Sums]]
        if target.cluster is not None:
            backend = "gpu" if numbers else "cpu"
            results = cluster_sums(target.cluster, layout, backend=backend, **options)
        elif numbers:
            results = gpu.group_sums(layout, layout.groups, numbers, **options)
        else:
            results = group_sums(layout, layout.groups, threads=target.threads, **options)
        raw = _add_in_order(results, layout, self.edges, target.progress)
        return with_trees(self.arcs, layout, self.chosen, raw, edges=self.edges, endpoints=self.endpoints)


def _is_optional(target: Target) -> bool:
    """Whether a GPU is used only if it is there and pays."""
    return target.backend == "auto" and target.devices is None and target.cluster is None


def _devices(task: _Task, target: Target) -> list[int]:
    """The GPUs to use; an empty list for the CPU."""
    if target.backend == "cpu" or (target.cluster is not None and target.backend != "gpu"):
        return []
    reason = gpu.reason_against(task.arcs)
    if _is_optional(target):
        if reason or not _pays(float(task.chosen.sum()), len(task.arcs.head), target.threads or cores()):
            return []
        with suppress(BackendUnavailable):
            return gpu.numbers_of(None)
        return []
    if reason:
        logging.getLogger("jtgpu").warning("betweenness runs on the CPU: %s", reason)
        return []
    return [0] if target.cluster is not None else gpu.numbers_of(target.devices)  # on a cluster a worker's own


def _pays(n_sources: float, n_arcs: int, n_cores: int) -> bool:
    """Whether a GPU takes less time than the cores."""
    work = n_sources * n_arcs
    share = min(n_sources / gpu.FULL, 1.0)  # of the GPU that has batches
    return work / (RATE * n_cores) > GPU_START + work / (GPU_RATE * max(share, 1e-9))


def _add_in_order(
    results: Iterator[tuple[Group, Sums]], layout: Layout, edges: bool, progress: Progress | None
) -> RawSums:
    node, edge = np.zeros(len(layout.graph.reach)), np.zeros(len(layout.graph.head) if edges else 0)
    done, total = 0, len(layout.sources)
    for group, out in results:
        node[group.vertices] += out.node
        if edges:
            edge[group.arcs] += out.edge
        done += group.n_sources
        if progress is not None:
            progress(done, total, f"{done:,} of {total:,} sources")
    return RawSums(node, edge)
