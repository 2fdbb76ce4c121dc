"""Answers in page-locked memory: the device writes them where the caller reads them, so they are not copied.

An array, or a view of it, may be kept for any time. When the last view is gone, its memory is used for another answer.
Writing to fresh memory takes longer than the device's copy, and page-locking memory takes longer still. So only a few
arrays are lent at a time, and a caller that keeps all answers gets ordinary memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import TableTooLarge

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST, MOST = 1 << 22, 144 << 20  # bytes of an array that is lent
AT_ONCE = 2  # arrays lent: the last answer, which a caller still has while it asks, and the next one
IDLE = 2  # arrays kept for the next calls


class _Loan:
    """The owner of a lent array: NumPy keeps it until no view of the array is left."""

    def __init__(self, pinned: NDArray[Any], returned: deque[NDArray[Any]]):
        self._pinned, self._returned = pinned, returned
        self.__array_interface__ = pinned.__array_interface__

    def __del__(self) -> None:
        self._returned.append(self._pinned)  # in any thread, at any time: nothing is freed here


class Lender:
    """Page-locked arrays of one device that are lent to callers. Thread-safe; used inside ``device.active()``."""
    # pinned, unpin: See `jtgpu.device.context.Device`

    def __init__(self, pinned: Callable[[int, Any], NDArray[Any]], unpin: Callable[[NDArray[Any]], None]):
        self._pinned, self._unpin = pinned, unpin
        self._lock = threading.Lock()
        self._idle: list[NDArray[Any]] = []
        self._returned: deque[NDArray[Any]] = deque()
        self._n_lent = 0

    def lend(self, cells: int) -> NDArray[np.float64] | None:
        """An array, (cells,) float64; None if ordinary memory is the better choice."""
        if not LEAST <= 8 * cells <= MOST:
            return None
        with self._lock:
            self._take_back()
            if self._n_lent == AT_ONCE:
                return None
            at = next((i for i, x in enumerate(self._idle) if cells <= len(x) <= 2 * cells), None)
            try:
                pinned = self._pinned(cells, np.float64) if at is None else self._idle.pop(at)
            except TableTooLarge:  # pages cannot be locked
                return None
            self._n_lent += 1
        lent: NDArray[np.float64] = np.asarray(_Loan(pinned, self._returned))[:cells]
        return lent

    def _take_back(self) -> None:
        while self._returned:
            self._idle.append(self._returned.popleft())
            self._n_lent -= 1
        while len(self._idle) > IDLE:  # those used last stay
            self._unpin(self._idle.pop(0))

    def close(self) -> None:
        """Free what is not lent; what is lent stays valid."""
        with self._lock:
            self._take_back()
            while self._idle:
                self._unpin(self._idle.pop())
