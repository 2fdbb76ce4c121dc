"""The CPU backend: sums of the dependencies of all sources, exact and the same bits for any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import TableTooLarge, format_bytes
from ..util.loops import loops
from ..util.system import cores, free_memory
from .layout import Group, Layout, divide
from .records import DEEPEST, LANES, LONGEST, Scratch, Sums, Tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .arcs import Arcs

__all__ = ["Progress", "RawSums", "dependencies"]

_sweep = loops("jtgpu.graphs.loops.sweep")
_single = loops("jtgpu.graphs.loops.single")

ENOUGH = 1_000_000  # sources times arcs, some milliseconds, that pay for a thread
Progress = Callable[[int, int, str], object]  # done, total, what


class RawSums(NamedTuple):
    """Sums over ordered pairs of a source and a target."""

    node: NDArray[np.float64]  # (n,)
    edge: NDArray[np.float64]  # (E,); (0,) if they are not wanted


def dependencies(
    arcs: Arcs, chosen: NDArray[np.float64], *, edges: bool, endpoints: bool, threads: int | None = None,
    progress: Progress | None = None,
) -> RawSums:  # fmt: skip
    """Sum the shortest paths through every vertex, or every edge.

    Parameters
    ----------
    arcs : Arcs
    chosen : (n,) ndarray of float64
        1 for sources, else 0. All vertices are targets.
    edges : bool
        Sum paths through edges, too.
    endpoints : bool
        Count the ends of a path.
    threads : int, optional
        Default: one for each core, fewer where memory is short.
    progress : callable, optional

    Raises
    ------
    TableTooLarge
        If the memory of one thread is not available.
    """
    layout = divide(arcs, chosen, edges)
    node, edge = np.zeros(len(layout.graph.reach)), np.zeros(len(layout.graph.head) if edges else 0)
    counts_ends = endpoints and arcs.directed
    spare: list[Any] = []

    def work(group: Group) -> tuple[Group, Sums]:
        scratch = spare.pop() if spare else _Memory(layout)
        out = Sums(
            np.zeros(group.vertices.stop - group.vertices.start),
            np.zeros(group.arcs.stop - group.arcs.start if edges else 0),
            group.vertices.start, group.arcs.start, counts_ends,
        )  # fmt: skip
        scratch.sweep(layout, group, out)
        spare.append(scratch)
        return group, out

    done, total = 0, sum(g.batches.stop - g.batches.start for g in layout.groups)
    for group, out in _in_order(work, layout, threads):  # in this order, whichever thread was faster
        node[group.vertices] += out.node
        if edges:
            edge[group.arcs] += out.edge
        done += group.batches.stop - group.batches.start
        if progress is not None:
            progress(min(LANES * done, len(layout.sources)), len(layout.sources), f"{done} of {total} batches")
    return _with_trees(arcs, layout, chosen, RawSums(node, edge), edges=edges, endpoints=endpoints)


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

    def sweep(self, layout: Layout, group: Group, out: Sums) -> None:
        """Add the dependencies of a group's sources to its sums."""
        batches = layout.batches[group.batches]
        if self._lanes is not None:
            failed = np.zeros(len(batches), np.bool_)
            _sweep.sweep(layout.graph, batches, layout.sources, layout.multiplicity, self._lanes, out, failed)
            batches = batches[failed]
        if not len(batches):
            return
        if self._tables is None:
            n = layout.largest
            self._tables = Tables(
                np.empty(n), np.empty(n), np.empty(n, np.int32), np.empty(n), *(np.empty(n, np.int32) for _ in range(4))
            )
        args = batches, layout.sources, layout.multiplicity, self._tables, out
        _single.sweep_single(layout.graph, layout.length, *args)


def _bytes_of_thread(layout: Layout) -> int:
    n = layout.largest
    lanes = n * (36 * 8 + 4 * LANES + 4 * (2 + int(layout.graph.levels.max(initial=1)))) if layout.has_levels else 0
    return lanes + 44 * n + (1 << 19)


def _in_order(
    work: Callable[[Group], tuple[Group, Sums]], layout: Layout, threads: int | None
) -> Iterator[tuple[Group, Sums]]:
    """The results of the groups, in order."""
    total = sum(g.work for g in layout.groups)
    n = max(min(threads or cores(), len(layout.groups), total // ENOUGH), 1)
    if layout.largest > 100_000:  # asking the system takes longer than small graphs
        needed, free = _bytes_of_thread(layout), free_memory()
        if needed > free:
            raise TableTooLarge(
                f"shortest paths among {layout.largest:,} vertices need {format_bytes(needed)} for each thread, but "
                f"{format_bytes(free)} are free",
                needed=needed,
                limit=free,
            )
        n = max(min(n, int(0.8 * free) // needed), 1)
    if n == 1:
        yield from map(work, layout.groups)
        return
    with ThreadPoolExecutor(n, "jtgpu-graphs") as pool:
        yield from pool.map(work, layout.groups)


def _with_trees(
    arcs: Arcs, layout: Layout, chosen: NDArray[np.float64], inner: RawSums, *, edges: bool, endpoints: bool
) -> RawSums:
    """Sums of all vertices and edges, those of folded trees in closed form."""
    f = layout.folded
    left = f.number >= 0
    node = np.zeros(arcs.n)
    node[left] = inner.node[f.number[left]]
    n_targets = np.bincount(f.component, minlength=1)[f.component].astype(np.float64)
    n_sources: NDArray[Any] = n_targets
    if not arcs.directed:
        n_sources = np.bincount(f.component, chosen, minlength=1)[f.component]
        node += f.within + (f.sources - chosen) * (n_targets - f.reach) + (n_sources - f.sources) * (f.reach - 1.0)
        if endpoints:
            node += chosen * (n_targets - 1.0) + (n_sources - chosen)
    if not edges:
        return RawSums(node, np.empty(0))
    edge = np.zeros(len(arcs.of_edge))
    on_arc = np.zeros(len(arcs.head))
    on_arc[layout.arc] = inner.edge
    there, back = arcs.of_edge.T
    edge[there >= 0] = on_arc[there[there >= 0]]
    if not arcs.directed:
        e = np.flatnonzero(back >= 0)
        edge[e] += on_arc[back[e]]
        tail, head = arcs.head[back[e]], arcs.head[there[e]]
        is_up, is_down = f.parent[tail] == head, f.parent[head] == tail
        leaf = np.where(is_up, tail, head)
        crossing = f.sources * (n_targets - f.reach) + (n_sources - f.sources) * f.reach
        edge[e] += np.where(is_up | is_down, crossing[leaf], 0.0)
    return RawSums(node, edge)
