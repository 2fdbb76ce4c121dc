"""The ordered pool: order of delivery, errors, interrupts, and the number of items in flight."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from jtgpu.cases.pipeline import PREFETCH, map_in_order


def ours() -> list[str]:
    """Names of the pool's threads that are still alive, after a moment for the last one to end."""
    kinds = ("jtgpu-reader", "jtgpu-writer", "jtgpu-worker")
    deadline = time.monotonic() + 5
    while (left := [t.name for t in threading.enumerate() if t.name.startswith(kinds)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


@pytest.mark.parametrize("concurrency", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 2, 100])
def test_results_are_delivered_in_order(concurrency: int, n: int) -> None:
    pauses = np.random.default_rng(n).random(max(n, 1)) * 2e-3
    found: list[int] = []

    def work(i: int) -> int:
        time.sleep(float(pauses[i - 1]))
        return 10 * i

    map_in_order(iter(range(1, n + 1)), work, found.append, concurrency)
    assert found == [10 * i for i in range(1, n + 1)]
    assert not ours()


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("where", ["read", "work", "deliver"])
def test_an_error_is_raised_after_all_earlier_results(concurrency: int, where: str) -> None:
    found: list[int] = []
    closed: list[bool] = []

    def items() -> Iterator[int]:
        try:
            for i in range(50):
                if where == "read" and i == 20:
                    raise KeyError(i)
                yield i + 1
        finally:
            closed.append(True)

    def work(i: int) -> int:
        time.sleep(0.002 if i % 3 else 0.0)
        if where == "work" and i in (21, 22, 40):  # the first in the order of items wins
            raise KeyError(i - 1)
        return i

    def deliver(i: int) -> None:
        if where == "deliver" and i == 21:
            raise KeyError(i - 1)
        found.append(i)

    with pytest.raises(KeyError) as error:
        map_in_order(items(), work, deliver, concurrency)
    assert error.value.args == (20,)
    assert found == list(range(1, 21))
    assert closed == [True]
    assert not ours()


@pytest.mark.parametrize("concurrency", [1, 4])
def test_few_items_are_in_flight(concurrency: int) -> None:
    lock = threading.Lock()
    taken = delivered = most = working = together = 0

    def items() -> Iterator[int]:
        nonlocal taken, most
        for i in range(60):
            with lock:
                taken += 1
                most = max(most, taken - delivered)
            yield i

    def work(i: int) -> int:
        nonlocal working, together
        with lock:
            working += 1
            together = max(together, working)
        time.sleep(0.01)
        with lock:
            working -= 1
        return i

    def deliver(_: int) -> None:
        nonlocal delivered
        time.sleep(0.003)
        with lock:
            delivered += 1

    map_in_order(items(), work, deliver, concurrency)
    assert delivered == 60
    assert together == concurrency
    assert most <= concurrency + PREFETCH


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_interrupt_delivers_results_up_to_the_first_gap(concurrency: int) -> None:
    found: list[int] = []

    def work(i: int) -> int:
        if i == 10:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.002)
        return i

    with pytest.raises(KeyboardInterrupt):
        map_in_order(iter(range(1000)), work, found.append, concurrency)
    assert found == list(range(len(found)))
    assert 10 <= len(found) < 40
    assert not ours()


def test_an_interrupt_at_any_moment_loses_no_result() -> None:
    """From the start of the first thread to the end of the last, whatever the calling thread is doing."""
    random = np.random.default_rng(11)
    interrupted = 0
    for _ in range(300):
        read: list[int] = []
        found: list[int] = []

        def items(read: list[int] = read) -> Iterator[int]:
            for i in range(40):
                read.append(i)
                yield i

        timer = threading.Timer(float(random.random()) * 4e-3, os.kill, (os.getpid(), signal.SIGINT))
        try:
            try:
                timer.start()
                map_in_order(items(), lambda i: i, found.append, 2)
                assert len(found) == 40
            finally:
                timer.join()
        except KeyboardInterrupt:
            interrupted += 1
        assert found == list(range(len(found)))
        assert len(read) - len(found) <= 2 + PREFETCH + 1
        assert not ours()
    assert interrupted > 20


@pytest.mark.parametrize("missing", ["jtgpu-reader", "jtgpu-writer", "jtgpu-worker-0", "jtgpu-worker-1"])
def test_a_thread_that_cannot_start_is_an_error(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def limited(self: threading.Thread) -> None:
        if self.name == missing:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(RuntimeError, match="new thread"):
        map_in_order(iter(range(10)), abs, lambda _: None, 2)
    assert not ours()


def test_an_error_while_closing_the_items_is_raised() -> None:
    class Items:
        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            raise StopIteration

        def close(self) -> None:
            raise KeyError("closing")

    with pytest.raises(KeyError, match="closing"):
        map_in_order(iter(Items()), abs, lambda _: None, 2)
    assert not ours()


def test_items_and_results_are_released_when_delivered() -> None:
    class Counted:
        alive = most = 0

        def __init__(self) -> None:
            Counted.alive += 1
            Counted.most = max(Counted.most, Counted.alive)

        def __del__(self) -> None:
            Counted.alive -= 1

    map_in_order((Counted() for _ in range(200)), lambda _: Counted(), lambda _: None, 2)
    assert Counted.alive == 0
    assert Counted.most <= 2 * (2 + PREFETCH) + 4
