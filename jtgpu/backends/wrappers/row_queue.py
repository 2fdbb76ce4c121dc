"""Rows of a table, dealt out in chunks to whoever asks next: so several GPUs answer one table."""

from __future__ import annotations

import threading
from collections import deque

__all__ = ["Deal"]


class Deal:
    """Rows 0..n-1 of a table; safe to use from several threads.

    Each taker has a seat, and rows of its own before it: equal takers end at the same time however small their shares
    are. Whoever is through with its own helps the others, chunk by chunk.

    Parameters
    ----------
    n : int
    takers : int
        How many there are to share the rows.

    Attributes
    ----------
    n : int
    """

    def __init__(self, n: int, takers: int = 1):
        self.n = n
        self._takers = max(takers, 1)
        self._ends = [min((i + 1) * self.share, n) for i in range(self._takers)]
        self._next = [0, *self._ends[:-1]]
        self._seats = 0
        self._back: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()
        self._stopped = False

    def seat(self) -> int:
        """A seat for a taker: the next one that is free, or one of the others."""
        with self._lock:
            self._seats += 1
            return (self._seats - 1) % self._takers

    def take(self, most: int, seat: int = 0, idle: bool = True) -> tuple[int, int] | None:
        """The next rows, as (first, last + 1); None: nothing is left for this taker now, or `stop` was called.

        Parameters
        ----------
        most : int
            Rows at most.
        seat : int
            Where the taker sits.
        idle : bool
            Whether it has nothing else to do. A taker that has still rows to answer gets none of those that lie before
            somebody else: they may well be answered there before it is through.
        """
        with self._lock:
            if self._stopped:
                return None
            if self._back:
                first, last = self._back.popleft()
                if last - first > most:
                    self._back.appendleft((first + most, last))
                    last = first + most
                return first, last
            at = seat
            if not self._rest(at):
                there = range(self._takers) if idle else range(min(self._seats, self._takers), self._takers)
                at = max(there, key=self._rest, default=seat)
                if not self._rest(at):
                    return None
            first = self._next[at]
            self._next[at] = min(first + most, self._ends[at])
            return first, self._next[at]

    def _rest(self, seat: int) -> int:
        return self._ends[seat] - self._next[seat]

    def give_back(self, first: int, last: int) -> None:
        """Rows that were taken and are not answered."""
        if last > first:
            with self._lock:
                self._back.append((first, last))

    def stop(self) -> None:
        """Nothing is dealt any more."""
        with self._lock:
            self._stopped = True

    @property
    def share(self) -> int:
        """Rows that each taker gets on average."""
        return -(-self.n // self._takers)

    @property
    def left(self) -> int:
        """Rows that nobody has taken."""
        with self._lock:
            return sum(map(self._rest, range(self._takers))) + sum(last - first for first, last in self._back)
