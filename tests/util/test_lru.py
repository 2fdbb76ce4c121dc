"""`jtgpu.util.lru`: what is cached, what is dropped, and in which order."""

from __future__ import annotations

import threading

from jtgpu.util.lru import LRU


def test_the_value_used_longest_ago_is_dropped_first() -> None:
    cache: LRU[str, int] = LRU(max_items=2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert "a" in cache
    assert "c" in cache
    assert "b" not in cache
    assert cache.values() == [1, 3]
    assert len(cache) == 2
    assert cache.get("b") is None


def test_bytes_are_bounded_but_the_newest_value_stays() -> None:
    cache: LRU[int, bytes] = LRU(max_bytes=10, size_of=len)
    for i in range(4):
        cache.put(i, b"1234")
    assert cache.values() == [b"1234"] * 2
    assert cache.bytes == 8
    cache.put(9, b"x" * 100)
    assert cache.values() == [b"x" * 100]
    assert cache.bytes == 100
    cache.put(10, b"")
    assert cache.values() == [b""]
    assert cache.bytes == 0


def test_a_second_value_of_a_key() -> None:
    cache: LRU[str, int] = LRU(size_of=lambda _: 8)
    assert cache.add("a", 1) == 1
    assert cache.add("a", 2) == 1
    assert cache.get_or_make("a", lambda: 3) == 1
    cache.put("a", 4)
    assert cache.get_or_make("a", lambda: 3) == 4
    assert cache.get_or_make("b", lambda: 5) == 5
    assert cache.bytes == 16
    cache.clear()
    assert cache.bytes == 0
    assert len(cache) == 0


def test_threads_agree_on_one_value() -> None:
    cache: LRU[int, object] = LRU(max_items=64)
    barrier = threading.Barrier(4)
    found: list[list[object]] = [[] for _ in range(4)]

    def work(to: list[object]) -> None:
        barrier.wait()
        to.extend(cache.get_or_make(i, object) for i in range(32))

    threads = [threading.Thread(target=work, args=(to,)) for to in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(to == found[0] for to in found)


def test_what_was_made_before_the_cache_was_cleared_is_not_kept() -> None:
    cache: LRU[str, int] = LRU()

    def make() -> int:
        cache.clear()
        return 1

    assert cache.get_or_make("a", make) == 1
    assert cache.get("a") is None
