"""Rows of a table, dealt out in chunks to whoever asks next: so several GPUs answer one table."""

from __future__ import annotations

import threading
from collections import deque

__all__ = ["Deal"]


class Deal:
    """Rows 0..n-1 of a table; safe to use from several threads.

    Parameters
    ----------
    n : int
    takers : int
        How many there are to share the rows; the last chunks are cut so that none of them waits long for another.

    Attributes
    ----------
    n : int
    """

    def __init__(self, n: int, takers: int = 1):
        self.n = n
        self._takers = max(takers, 1)
        self._next = 0
        self._back: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()
        self._stopped = False

    def take(self, most: int, least: int = 1) -> tuple[int, int] | None:
        """The next rows, as (first, last + 1); None: nothing is left, or `stop` was called.

        Parameters
        ----------
        most : int
            Rows at most.
        least : int
            Rows below which a chunk is not cut for the sake of an even end.
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
            left = self.n - self._next
            if not left:
                return None
            if self._takers > 1:
                most = min(most, max(-(-left // self._takers), least))
            first, self._next = self._next, self._next + min(most, left)
            return first, self._next

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
            return self.n - self._next + sum(last - first for first, last in self._back)
