"""Work by several threads, delivered in order: errors, interrupts, and how much is under way."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from jtgpu.cases.inorder import AHEAD, in_order


def ours() -> list[str]:
    """Threads that are left; the one that rings at the end may need a moment more."""
    kinds = ("jtgpu-reader", "jtgpu-writer", "jtgpu-worker")
    deadline = time.monotonic() + 5
    while (left := [t.name for t in threading.enumerate() if t.name.startswith(kinds)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


@pytest.mark.parametrize("at_once", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 2, 100])
def test_results_come_in_order(at_once: int, n: int) -> None:
    pauses = np.random.default_rng(n).random(max(n, 1)) * 2e-3
    found: list[int] = []

    def work(i: int) -> int:
        time.sleep(float(pauses[i - 1]))
        return 10 * i

    in_order(iter(range(1, n + 1)), work, found.append, at_once)
    assert found == [10 * i for i in range(1, n + 1)]
    assert not ours()


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("where", ["read", "work", "deliver"])
def test_an_error_comes_after_everything_before_it(at_once: int, where: str) -> None:
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
        in_order(items(), work, deliver, at_once)
    assert error.value.args == (20,)
    assert found == list(range(1, 21))
    assert closed == [True]
    assert not ours()


@pytest.mark.parametrize("at_once", [1, 4])
def test_little_is_under_way(at_once: int) -> None:
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
        time.sleep(0.001)
        with lock:
            working -= 1
        return i

    def deliver(_: int) -> None:
        nonlocal delivered
        time.sleep(0.003)
        with lock:
            delivered += 1

    in_order(items(), work, deliver, at_once)
    assert delivered == 60
    assert together == at_once
    assert most <= at_once + AHEAD


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_caller_interrupted_keeps_what_has_no_gap(at_once: int) -> None:
    found: list[int] = []

    def work(i: int) -> int:
        if i == 10:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.002)
        return i

    with pytest.raises(KeyboardInterrupt):
        in_order(iter(range(1000)), work, found.append, at_once)
    assert found == list(range(len(found)))
    assert 10 <= len(found) < 40
    assert not ours()


def test_an_interrupt_at_any_moment_loses_nothing() -> None:
    """Whatever the caller's thread is doing just then, from the start of the first thread to the end of the last."""
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
                in_order(items(), lambda i: i, found.append, 2)
                assert len(found) == 40
            finally:
                timer.join()
        except KeyboardInterrupt:
            interrupted += 1
        assert found == list(range(len(found)))
        assert len(read) - len(found) <= 2 + AHEAD + 1
        assert not ours()
    assert interrupted > 20


@pytest.mark.parametrize("missing", ["jtgpu-reader", "jtgpu-writer", "jtgpu-worker-0", "jtgpu-worker-1"])
def test_a_system_without_threads_is_an_error(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def limited(self: threading.Thread) -> None:
        if self.name == missing:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(RuntimeError, match="new thread"):
        in_order(iter(range(10)), abs, lambda _: None, 2)
    assert not ours()


def test_an_error_while_the_items_end_is_told() -> None:
    class Items:
        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            raise StopIteration

        def close(self) -> None:
            raise KeyError("closing")

    with pytest.raises(KeyError, match="closing"):
        in_order(iter(Items()), abs, lambda _: None, 2)
    assert not ours()


def test_items_and_results_are_forgotten() -> None:
    class Counted:
        alive = most = 0

        def __init__(self) -> None:
            Counted.alive += 1
            Counted.most = max(Counted.most, Counted.alive)

        def __del__(self) -> None:
            Counted.alive -= 1

    in_order((Counted() for _ in range(200)), lambda _: Counted(), lambda _: None, 2)
    assert Counted.alive == 0
    assert Counted.most <= 2 * (2 + AHEAD) + 4
