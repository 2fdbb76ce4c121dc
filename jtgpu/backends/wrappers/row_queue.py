"""The rows of a table, distributed in chunks to workers on demand, so that several GPUs answer one table."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..table import CountSums, Feed, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan
    from ..base import Backend

class RowQueue:
    """Rows 0..n-1 of a table. Thread-safe.

    The rows are divided into one lane per worker, so equal workers finish at the same time however small their chunks
    are. A worker whose lane is empty takes chunks from the other lanes.
    """
    # workers: Number of workers that share the rows

    def __init__(self, n: int, workers: int = 1):
        self.n = n
        self._n_lanes = max(workers, 1)
        self._ends = [min((i + 1) * self.share, n) for i in range(self._n_lanes)]
        self._next = [0, *self._ends[:-1]]
        self._n_joined = 0
        self._returned: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()
        self._stopped = False

    def join(self) -> int:
        """A lane for a worker: the next free one; once all are taken, they are shared."""
        with self._lock:
            self._n_joined += 1
            return (self._n_joined - 1) % self._n_lanes

    def take(self, most: int, lane: int = 0, idle: bool = True) -> tuple[int, int] | None:
        """The next rows as (first, last + 1). None if no rows are left for this worker now, or `stop` was called."""
        # most: Rows at most
        # lane: The worker's lane
        # idle: Whether the worker has nothing else to do. A busy worker gets no rows of other workers' lanes: they may
        #     be answered there sooner.
        with self._lock:
            if self._stopped:
                return None
            if self._returned:
                first, last = self._returned.popleft()
                if last - first > most:
                    self._returned.appendleft((first + most, last))
                    last = first + most
                return first, last
            at = lane
            if not self._rest(at):
                others = range(self._n_lanes) if idle else range(min(self._n_joined, self._n_lanes), self._n_lanes)
                at = max(others, key=self._rest, default=lane)
                if not self._rest(at):
                    return None
            first = self._next[at]
            self._next[at] = min(first + most, self._ends[at])
            return first, self._next[at]

    def _rest(self, lane: int) -> int:
        return self._ends[lane] - self._next[lane]

    def put_back(self, first: int, last: int) -> None:
        """Return rows that were taken and are not answered."""
        if last > first:
            with self._lock:
                self._returned.append((first, last))

    def stop(self) -> None:
        """Distribute no more rows."""
        with self._lock:
            self._stopped = True

    @property
    def share(self) -> int:
        """Rows of a lane."""
        return -(-self.n // self._n_lanes)

    @property
    def left(self) -> int:
        """Rows that no worker has taken."""
        with self._lock:
            return sum(map(self._rest, range(self._n_lanes))) + sum(last - first for first, last in self._returned)


# `JoinedCases`: parts of a table of cases that one or several devices hold, counted together.
#
# A part is the same rows whatever the number of devices, and sums are added in the order of the parts: so the counts
# are bit-identical for any number of devices.

class HeldParts(Protocol):
    """Some parts of a table of cases, on one device."""

    def part_sums(self) -> Mapping[int, NDArray[np.float64]]:
        """Of each part by its number: the counts of all families, axes in the plan's order, then the sum of ln P(e)
        times weight, and the number of impossible cases."""

    def write_log_evidence(self, out: NDArray[np.float64]) -> None:
        """Write ln P(e) of the cases of these parts to their places in (B,)."""

    def close(self) -> None:
        """Free the memory. May be called twice."""


class JoinedCases:
    """The `Feed` of a table that is held."""
    # held: sequence of HeldParts: One a device; together all parts

    def __init__(self, plan: Plan, feed: Feed, held: Sequence[HeldParts]):
        self._plan, self._feed, self._held = plan, feed, list(held)
        self._pool = ThreadPoolExecutor(len(held), "jtgpu-count") if len(held) > 1 else None

    @property
    def n(self) -> int:
        return self._feed.n

    def rows(self) -> NDArray[np.int32]:
        return self._feed.rows()

    def some(self, which: Any) -> Feed:
        return self._feed.some(which)

    def sums(self) -> CountSums:
        """Expected counts with the present numbers."""
        if self._pool is None:
            part_sums = [held.part_sums() for held in self._held]
        else:
            part_sums = list(self._pool.map(lambda held: held.part_sums(), self._held))
        parts = {number: sums for some in part_sums for number, sums in some.items()}
        total = np.zeros(sum(self._sizes()) + 2)
        for number in sorted(parts):
            total += parts[number]
        return CountSums(self._families(total), float(total[-2]), int(total[-1]), self.log_evidence)

    def _sizes(self) -> list[int]:
        plan = self._plan
        return [plan.size(plan.table_scopes[f]) for f in range(plan.n_factors)]

    def _families(self, total: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """The counts of each factor in its own shape."""
        turned, at, families = total[self._places], 0, []
        for scope in self._plan.factor_scopes:
            shape = [int(self._plan.cardinality[v]) for v in scope]
            families.append(turned[at : at + math.prod(shape)].reshape(shape))
            at += families[-1].size
        return families

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """Where each count of the factors, in their own shapes, is among the sums."""
        plan, at, places = self._plan, 0, [np.zeros(0, np.int64)]
        for f, size in enumerate(self._sizes()):
            scope = plan.table_scopes[f]
            table = np.arange(at, at + size).reshape([int(plan.cardinality[v]) for v in scope])
            places.append(np.transpose(table, [scope.index(v) for v in plan.factor_scopes[f]]).ravel())
            at += size
        return np.concatenate(places)

    def log_evidence(self) -> NDArray[np.float64]:
        """(B,) ln P(e) of each case as of the last `sums`; -inf if impossible."""
        values = np.zeros(self.n)
        for held in self._held:
            held.write_log_evidence(values)
        return values

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        for held in self._held:
            held.close()


def count(backend: Backend, table: Table[CountSums]) -> CountSums:
    """Expected counts of a table that a device holds, or holds during the call."""
    if isinstance(table.feed, JoinedCases):
        return table.feed.sums()
    held = backend.hold(table)
    try:
        counts = count(backend, held)
        return counts._replace(each=counts.log_evidence)
    finally:
        held.feed.close()
