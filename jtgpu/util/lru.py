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

    All methods may be called from several threads. `on_drop` and the `make` of `get_or_make` run without the cache's
    lock, so they may call other caches and may be slow.
    """
    # max_items: Values that are cached at most. Default: any number.
    # max_bytes: Bytes that all values occupy at most, by `size_of`. Default: any number.
    # size_of: Returns the bytes of a value; called once, when the value is inserted. Default: 0.
    # on_drop: Called with the key and the value of every entry that leaves: evicted, replaced, discarded or cleared,
    #     but not popped (the caller of `pop` has it). The thread whose call made it leave calls it.

    def __init__(
        self,
        max_items: int | None = None,
        max_bytes: int | None = None,
        size_of: Callable[[V], int] | None = None,
        on_drop: Callable[[K, V], object] | None = None,
    ):
        self._max_items, self._max_bytes = max_items, max_bytes
        self._size_of, self._on_drop = size_of, on_drop
        self._lock = new_lock()
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()  # the value and its bytes, used last at the end
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    @property
    def bytes(self) -> int:
        """Bytes that the cached values occupy."""
        return self._bytes

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
            dropped = self._insert(key, value, size)
        self._drop(dropped)

    def add(self, key: K, value: V) -> V:
        """Cache a value unless the key has one; returns the value that is cached now.

        When two threads made a value for the same key, both continue with the first one. The second value is not
        passed to `on_drop`: compare the result with `value` to free a value that was not inserted.
        """
        size = self._size_of(value) if self._size_of else 0
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry[0]
            dropped = self._insert(key, value, size)
        self._drop(dropped)
        return value

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Return the value cached for a key, or make and cache it; see `add` for concurrent calls."""
        value = self.get(key)
        return self.add(key, make()) if value is None else value

    def pop(self, key: K) -> V | None:
        """Remove a key and return its value; None if the key is not cached."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is None:
                return None
            self._bytes -= entry[1]
            return entry[0]

    def discard(self, key: K) -> None:
        """Drop the value of a key, if there is one."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self._bytes -= entry[1]
        self._drop([] if entry is None else [(key, entry[0])])

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            dropped = [(key, value) for key, (value, _) in self._entries.items()]
            self._entries.clear()
            self._bytes = 0
        self._drop(dropped)

    def _insert(self, key: K, value: V, size: int) -> list[tuple[K, V]]:
        """Cache a value, with the lock held; returns what leaves."""
        dropped = []
        old = self._entries.pop(key, None)
        if old is not None:
            self._bytes -= old[1]
            dropped.append((key, old[0]))
        self._entries[key] = value, size
        self._bytes += size
        while len(self._entries) > 1 and self._is_full():
            oldest, (gone, its_size) = self._entries.popitem(last=False)
            self._bytes -= its_size
            dropped.append((oldest, gone))
        return dropped

    def _is_full(self) -> bool:
        return (self._max_items is not None and len(self._entries) > self._max_items) or (
            self._max_bytes is not None and self._bytes > self._max_bytes
        )

    def _drop(self, dropped: list[tuple[K, V]]) -> None:
        if self._on_drop is not None:
            for key, value in dropped:
                self._on_drop(key, value)
