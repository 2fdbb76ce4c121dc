"""A least-recently-used cache: thread-safe, bounded by the number of its values and by their bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from .system import new_lock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRU(Generic[K, V]):
    """A cache of the most recently used values. The least recently used one is dropped first, but never the newest.

    All methods may be called from several threads. The `make` of `get_or_make` runs without the cache's lock, so it may
    call other caches and may be slow.
    """
    # max_items: Values that are cached at most. Default: any number.
    # max_bytes: Bytes that all values occupy at most, by `size_of`. Default: any number.
    # size_of: Returns the bytes of a value; called once, when the value is inserted. Default: 0.

    def __init__(
        self, max_items: int | None = None, max_bytes: int | None = None, size_of: Callable[[V], int] | None = None
    ):
        self._max_items, self._max_bytes, self._size_of = max_items, max_bytes, size_of
        self._lock = new_lock()
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()  # the value and its bytes, used last at the end
        self.bytes = 0  # that the cached values occupy
        self._cleared = 0  # how many times

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def values(self) -> list[V]:
        """The cached values, the one used longest ago first; does not count as use."""
        with self._lock:
            return [value for value, _ in self._entries.values()]

    def get(self, key: K) -> V | None:
        """Return the value cached for a key and mark it as used; None if the key is not cached."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V) -> None:
        """Cache a value and drop the previous value of the key."""
        size = self._size_of(value) if self._size_of else 0
        with self._lock:
            self._insert(key, value, size)

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Return the value cached for a key, or make and cache it.

        When two threads made a value for the same key, both continue with the first one. A value is not cached if the
        cache was cleared while it was made: it may depend on what is out of date.
        """
        cleared, value = self._cleared, self.get(key)
        if value is not None:
            return value
        made = make()
        return made if self._cleared != cleared else self.add(key, made)

    def add(self, key: K, value: V) -> V:
        """Cache a value unless the key has one; returns the value that is cached now."""
        size = self._size_of(value) if self._size_of else 0
        with self._lock:
            if key not in self._entries:
                self._insert(key, value, size)
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def clear(self, which: Callable[[K], bool] = lambda _: True) -> None:
        """Drop all values, or those of some keys."""
        with self._lock:
            for key in [*filter(which, self._entries)]:
                self.bytes -= self._entries.pop(key)[1]
            self._cleared += 1

    def _insert(self, key: K, value: V, size: int) -> None:
        """Cache a value, with the lock held."""
        old = self._entries.pop(key, None)
        self.bytes += size - (old[1] if old else 0)
        self._entries[key] = value, size
        most, most_bytes = self._max_items, self._max_bytes
        while len(self._entries) > 1 and (
            (most is not None and len(self._entries) > most) or (most_bytes is not None and self.bytes > most_bytes)
        ):
            self.bytes -= self._entries.popitem(last=False)[1][1]
