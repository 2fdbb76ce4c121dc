"""The CPU backend: groups of batches in threads, each with its own memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..errors import TableTooLarge, format_bytes
from ..util.loops import loops
from ..util.system import cores, free_memory
from .layout import Group, Layout
from .records import DEEPEST, LANES, LONGEST, Scratch, Sums, Tables

_sweep = loops("jtgpu.graphs.loops.sweep")
_single = loops("jtgpu.graphs.loops.sweep")

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
        self._lanes: Scratch | None = None
        if layout.has_levels:
            n_buckets = 1 + int(levels.max(initial=1))
            self._lanes = Scratch(
                np.zeros(36 * n + 24), np.empty(LANES * n, np.int32), np.empty(DEEPEST + 2, np.int64),
                np.empty(n_buckets * n, np.int32), np.zeros(n, np.int32), np.zeros(LONGEST + 2, np.int64),
            )  # fmt: skip
        self._tables: Tables | None = None

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
            self._tables = Tables(
                np.empty(n), np.empty(n), np.empty(n, np.int32), np.empty(n), *(np.empty(n, np.int32) for _ in range(4))
            )
        for i in range(0, len(batches), step):
            if not stopped.is_set():
                some = batches[i : i + step]
                _single.sweep_single(
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
