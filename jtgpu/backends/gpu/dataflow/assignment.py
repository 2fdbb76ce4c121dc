"""Which warp runs which unit of work, in which order: list scheduling by a simulation.

A node of the work graph is a factor that evidence is multiplied into, a contraction, one posterior, or P(e); an edge is
a table. A node is divided into units, each the work of one warp. The simulation (list scheduling: Graham, "Bounds on
multiprocessing timing anomalies", 1969) takes the node with the longest path to the end first and assigns its units to
the warps that are free first. Every queue holds its units in an order in which all of them can run, whatever the real
times are: no warp can wait forever.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..program.records import NONE, TASK
from ..tile import Tiling
from .tiling import MAX_WARPS, READY, Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Assigned = list[tuple[int, NDArray[np.int64]]]  # a node, and the queue of each of its units

CRITICAL_SLACK = 4.0  # microseconds to the longest path, up to which a node may use reserved warps


@dataclass(frozen=True)
class WorkNode:
    """A node of the work graph, which has a record."""

    unit: Unit | Tiling  # its cost
    ins: tuple[int, ...]  # the nodes whose tables it reads
    last: int  # the last cell of its own table


@dataclass(frozen=True)
class Paths:
    """Longest paths of a work graph, in microseconds."""

    users: list[list[int]]  # who reads each node
    head: list[float]  # until a node's inputs are complete
    tail: list[float]  # from a node's start to the end of everything


def critical_paths(ins: Sequence[Sequence[int]], latency: Sequence[float]) -> Paths:
    """The longest path to each node, and from its start to the end; each node is after those that it reads."""
    users: list[list[int]] = [[] for _ in ins]
    head, tail = [0.0] * len(ins), [0.0] * len(ins)
    for i, read in enumerate(ins):
        for m in set(read):
            users[m].append(i)
        head[i] = max((head[m] + latency[m] for m in read), default=0.0)
    for i in range(len(ins) - 1, -1, -1):
        tail[i] = latency[i] + max((tail[u] for u in users[i]), default=0.0)
    return Paths(users, head, tail)


class _Warps:
    """When each warp of the GPU is free; the first ones are reserved for the critical path."""

    def __init__(self, n_blocks: int, n_reserved: int):
        self.size = n_blocks * MAX_WARPS
        self.reserved = n_reserved * n_blocks
        # the units of a node go to as many multiprocessors as there are: slot s is warp s // n_blocks of s % n_blocks
        slots = np.arange(self.size)
        self._queue = slots % n_blocks * MAX_WARPS + slots // n_blocks
        self._spread = slots // n_blocks * 0.02
        self._ties = np.stack([(slots + turn) % n_blocks * 1e-6 for turn in range(n_blocks)])
        self.free = np.zeros(self.size)
        self._turn = 0

    def take(self, unit: Unit | Tiling, ready: float, critical: bool) -> tuple[NDArray[np.int64], float]:
        """Assign a node's units; the queue of each of them, and when the last ends."""
        taken, last = [], 0.0
        part = slice(self.reserved, self.size)
        if self.reserved and critical:
            part = slice(0, self.reserved if unit.n_units <= self.reserved else self.size)
        size = part.stop - part.start
        for first in range(0, unit.n_units, size):
            n = min(size, unit.n_units - first)
            begin = np.maximum(self.free[part], ready - READY)
            key = begin + self._spread[part] + self._ties[self._turn % len(self._ties), part]
            chosen = np.sort(np.argpartition(key, n - 1)[:n])
            begin = begin[chosen] + READY + unit.latency
            chosen += part.start
            self.free[chosen] = begin
            last = max(last, float(begin.max()))
            taken.append(self._queue[chosen])
            self._turn -= n
        return np.concatenate(taken), last


def assign(
    nodes: Sequence[WorkNode], n_blocks: int, paths: Paths, n_reserved: int = 0
) -> tuple[Assigned, list[float]]:
    """Assign units to warps.

    A node is assigned after everything that it reads, so the order of assignment is one in which everything can run.
    """
    # nodes: sequence of WorkNode: Each after those that it reads
    # n_blocks: Blocks, each on a multiprocessor of its own
    # n_reserved: Warps of each block that only nodes on the critical path use
    # returns assigned: In the order of assignment: a node, and the queue of each of its units
    # returns ends: list of float: When each node ends, in microseconds of the simulation
    missing, ready, ends = [len(set(n.ins)) for n in nodes], [0.0] * len(nodes), [0.0] * len(nodes)
    critical = max(paths.tail) - CRITICAL_SLACK
    pool = _Warps(n_blocks, n_reserved)
    assigned: Assigned = []
    coming = [(0.0, i) for i in range(len(nodes)) if not missing[i]]
    heapq.heapify(coming)
    waiting: list[tuple[float, int]] = []
    now = 0.0
    while coming or waiting:
        if not waiting:
            now = max(now, coming[0][0])
        while coming and coming[0][0] <= now:
            i = heapq.heappop(coming)[1]
            heapq.heappush(waiting, (-paths.tail[i], i))
        i = heapq.heappop(waiting)[1]
        taken, ends[i] = pool.take(nodes[i].unit, ready[i], paths.head[i] + paths.tail[i] >= critical)
        assigned.append((i, taken))
        now = max(now, float(pool.free[pool.reserved :].min()))
        for u in paths.users[i]:
            ready[u] = max(ready[u], ends[i])
            missing[u] -= 1
            if not missing[u]:
                heapq.heappush(coming, (ready[u], u))
    return assigned, ends


def hints(nodes: Sequence[WorkNode], ends: Sequence[float]) -> list[int]:
    """For each node a cell whose arrival tells that its inputs are soon complete: the last cell of the latest input of
    its latest input. `NONE` if there is no such table."""

    def latest(node: WorkNode) -> int:
        return max(node.ins, key=lambda m: (ends[m], m), default=-1)

    made = []
    for node in nodes:
        before = latest(node)
        first = latest(nodes[before]) if before >= 0 else -1
        made.append(nodes[first].last if first >= 0 else NONE)
    return made


def queues(assigned: Assigned, n_queues: int) -> tuple[NDArray[Any], NDArray[np.uint32]]:
    """The tasks of every queue, one queue after another, and where each begins."""
    queue = np.concatenate([q for _, q in assigned])
    tasks = np.zeros(len(queue), TASK)
    counts = [len(q) for _, q in assigned]
    tasks["op"] = np.repeat([i for i, _ in assigned], counts)
    tasks["unit"] = np.concatenate([np.arange(n) for n in counts])
    starts = np.concatenate([[0], np.cumsum(np.bincount(queue, minlength=n_queues))])
    return tasks[np.argsort(queue, kind="stable")], starts.astype(np.uint32)
