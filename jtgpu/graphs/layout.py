"""How a graph is divided: trees that are folded away, components, batches of 16 sources, and groups of batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ..util.arrays import Floats, Ints
from ..util.loops import loops
from .records import LONGEST, ArcLists

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .inputs import Arcs

# Sums of a whole graph from those of the graph without its trees, which are added in closed form.

class RawSums(NamedTuple):
    """Sums over ordered pairs of a source and a target."""

    node: Floats  # (n,)
    edge: Floats  # (E,); (0,) if they are not wanted


def with_trees(arcs: Arcs, layout: Layout, chosen: Floats, inner: RawSums, *, edges: bool, endpoints: bool) -> RawSums:
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


_arrange = loops("jtgpu.graphs.arrange_loops")

MAX_SUMS = 1 << 30  # bytes of the groups' results
EXACT = 2.0**53  # integers below are exact in float64
FRACTION = 2.0**20  # lengths are whole multiples of its reciprocal, if sums of them are exact


class Folded(NamedTuple):
    """Vertices and the trees that hang at them; see `jtgpu.graphs.arrange_loops.arrange`."""

    number: NDArray[np.int32]
    ends: Ints
    component: NDArray[np.int32]
    reach: Floats
    sources: Floats
    within: Floats
    parent: NDArray[np.int32]


class Group(NamedTuple):
    """Consecutive batches, whose results one worker adds up. The groups depend on the graph only."""

    batches: slice
    vertices: slice
    arcs: slice
    work: int  # sources times arcs
    n_sources: int


@dataclass(frozen=True)
class Layout:
    """A graph without its trees, in the order of components."""

    directed: bool
    folded: Folded
    graph: ArcLists  # vertices and arcs that are left, by their new numbers
    arc: Ints  # (A,) ndarray of int64: Their numbers in `Arcs`
    length: Floats  # (A,) ndarray of float64: (0,) if all are 1
    has_levels: bool  # lengths are whole numbers of levels
    sources: NDArray[np.int32]  # (S,) ndarray of int32
    multiplicity: Floats  # (S,) ndarray of float64: Sources that each one stands for
    batches: Ints  # (B, 4) ndarray of int64: First source and end, first vertex and end of the component
    groups: list[Group]
    largest: int  # vertices of the largest component

    @property
    def back(self) -> tuple[Ints, NDArray[np.int32]] | None:
        """The arcs by head: the first one of each vertex, and their tails; None for undirected graphs."""
        if not self.directed:
            return None
        first, head = self.graph.first, self.graph.head
        tail = np.repeat(np.arange(len(first) - 1, dtype=np.int32), np.diff(first))
        counts = np.bincount(head, minlength=len(first) - 1)
        return np.concatenate([[0], np.cumsum(counts)]), tail[np.argsort(head, kind="stable")]


def divide(arcs: Arcs, chosen: Floats, with_edges: bool, lanes: int, n_groups: int) -> Layout:
    """Divide a graph."""
    # chosen: (n,) ndarray of float64: 1 for sources
    # with_edges: Results have the sums of arcs, too
    # lanes: Sources of a batch
    # n_groups: Groups, at most
    units = _units(arcs.length)
    # paths from a leaf and from its neighbour are compared with different roundings, where there are any
    fold = not arcs.directed and units is not None
    folded = Folded(*_arrange.arrange(arcs.first, arcs.head, arcs.directed, fold, chosen))
    n = int(folded.ends[-1]) if arcs.n else 0
    first, head, arc = _arrange.inner_arcs(arcs.first, arcs.head, folded.number, n)
    inner = np.empty(n, np.int64)
    left = folded.number >= 0
    inner[folded.number[left]] = np.flatnonzero(left)
    length = arcs.length[arc] if len(arcs.length) else arcs.length
    longest = 0 if units is None else int(units.max(initial=1))
    has_levels = 0 < longest <= LONGEST
    levels = units[arc].astype(np.uint8) if units is not None and 1 < longest <= LONGEST else np.empty(0, np.uint8)
    graph = ArcLists(first, head, levels, folded.reach[inner])
    multiplicity = folded.sources[inner]
    starts = np.concatenate([[0], folded.ends[:-1]]).astype(np.int64) if n else np.empty(0, np.int64)
    sources, batches = _batches(graph, starts, folded.ends, multiplicity, lanes)
    return Layout(
        arcs.directed, folded, graph, arc, length, has_levels, sources, multiplicity[sources], batches,
        make_groups(graph, batches, with_edges, n_groups, MAX_SUMS), int((folded.ends - starts).max(initial=0)),
    )  # fmt: skip


def _units(length: Floats) -> Ints | None:
    """Lengths in units of their greatest common divisor; None if sums of them are rounded."""
    if not len(length) or length.min() == length.max():
        return np.ones(len(length), np.int64)
    with np.errstate(over="ignore"):
        scaled = length * FRACTION
    if scaled.sum() >= EXACT or (scaled != np.floor(scaled)).any():
        return None
    units = scaled.astype(np.int64)
    return cast("Ints", units // np.gcd.reduce(units))


def _batches(
    graph: ArcLists, starts: Ints, ends: Ints, multiplicity: Floats, lanes: int
) -> tuple[NDArray[np.int32], Ints]:
    """Sources and batches: neighbours share a batch."""
    is_source = (multiplicity > 0) & (np.diff(graph.first) > 0)
    sources = _arrange.source_order(graph.first, graph.head, ends, is_source, lanes)
    bounds = np.append(0, np.cumsum(is_source))[np.append(starts, ends[-1:])]  # sources of each component
    n_batches = -(-np.diff(bounds) // lanes)
    component = np.repeat(np.arange(len(starts)), n_batches)
    before = np.concatenate([[0], np.cumsum(n_batches)[:-1]]).astype(np.int64) if len(starts) else n_batches
    begin = bounds[component] + lanes * (np.arange(len(component)) - before[component])
    end = np.minimum(begin + lanes, bounds[component + 1])
    return sources, np.stack([begin, end, starts[component], ends[component]], axis=1).astype(np.int64)


def make_groups(graph: ArcLists, batches: Ints, with_edges: bool, n_groups: int, max_sums: int) -> list[Group]:
    """Groups of about equal work, not more than fit their results into `max_sums` bytes."""
    if not len(batches):
        return []
    size = 8 * (len(graph.reach) + (len(graph.head) if with_edges else 0))
    n_groups = max(min(n_groups, len(batches), max_sums // size), 1)
    n_sources = batches[:, 1] - batches[:, 0]
    work = np.cumsum(n_sources * (graph.first[batches[:, 3]] - graph.first[batches[:, 2]]))
    bounds = np.unique(np.searchsorted(work, work[-1] * np.arange(1, n_groups) / n_groups, side="left") + 1)
    bounds = np.unique(np.concatenate([[0], bounds[bounds < len(batches)], [len(batches)]]))
    groups = []
    for a, b in pairwise(bounds.tolist()):
        lo, hi = int(batches[a, 2]), int(batches[b - 1, 3])
        these = int(work[b - 1] - (work[a - 1] if a else 0))
        arcs = slice(int(graph.first[lo]), int(graph.first[hi]))
        groups.append(Group(slice(a, b), slice(lo, hi), arcs, these, int(n_sources[a:b].sum())))
    return groups


def runs(groups: Sequence[Group], n: int) -> list[Sequence[Group]]:
    """Divide groups into at most n runs of consecutive ones."""
    bounds = [len(groups) * i // n for i in range(n + 1)]
    return [groups[a:b] for a, b in pairwise(bounds) if a < b]
