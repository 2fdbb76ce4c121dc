"""The rows of a table, distributed in chunks to workers on demand, so that several GPUs answer one table."""

from __future__ import annotations

import threading
from collections import deque


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
        """The next rows, as (first, last + 1); None: no rows are left for this worker now, or `stop` was called."""
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
