"""Worker pools: every task runs once, failures, Ctrl-C, calls from several threads; row queues."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import pytest

from jtgpu.backends.wrappers.cutset import in_order
from jtgpu.backends.wrappers.row_queue import RowQueue
from jtgpu.backends.wrappers.workers import Lazy, WorkerPool
from jtgpu.errors import BackendUnavailable, EvidenceError, JtgpuError, TableTooLarge


def pool_of(n: int) -> WorkerPool[str]:
    return WorkerPool([(f"card {i}", f"w{i}") for i in range(n)])


def slow_square(worker: str, task: int) -> int:
    time.sleep(0.0005 * (1 + task % 3))
    return task * task


@pytest.mark.parametrize("n", [1, 2, 5])
def test_every_task_runs_once(n: int) -> None:
    pool = pool_of(n)
    found = list(pool.run(range(40), slow_square))
    assert sorted(found) == [(i, i * i) for i in range(40)]
    assert list(in_order(pool.run(range(40), slow_square))) == [i * i for i in range(40)]
    assert list(pool.run([], slow_square)) == []
    assert not any(m.holder for m in pool.workers)


def test_idle_workers_take_tasks() -> None:
    taken = []

    def tasks() -> Iterator[int]:
        for i in range(1000):
            taken.append(i)
            yield i

    pool = pool_of(2)
    results = pool.run(tasks(), lambda worker, task: task)
    next(results)
    time.sleep(0.05)
    assert len(taken) < 30
    results.close()
    assert not any(m.holder for m in pool.workers)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_an_error_of_the_task_ends_the_call(n: int) -> None:
    def work(worker: str, task: int) -> int:
        if task == 7:
            raise EvidenceError("no such state")
        return task

    pool = pool_of(n)
    with pytest.raises(EvidenceError, match="no such state"):
        list(pool.run(range(100), work))
    assert all(m.error is None and not m.holder for m in pool.workers)
    assert len(list(pool.run(range(5), work))) == 5


@pytest.mark.parametrize(
    "error", [TableTooLarge("full"), BackendUnavailable("gone"), RuntimeError("cuda"), MemoryError()]
)
def test_other_workers_take_the_task_of_one_that_fails(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []

    def work(worker: str, task: int) -> int:
        time.sleep(0.001)
        if worker == "w1":
            raise error
        done.append(worker)
        return task

    pool = pool_of(3)
    with caplog.at_level(logging.WARNING, "jtgpu"):
        assert sorted(pool.run(range(30), work)) == [(i, i) for i in range(30)]
    assert "card 1 failed" in caplog.text
    assert set(done) == {"w0", "w2"}
    # a card that is lost is lost; memory may be there the next time
    assert (pool.workers[1].error is None) == isinstance(error, (TableTooLarge, MemoryError))


def test_a_programming_error_is_not_a_failure_of_the_worker() -> None:
    class DriverError(Exception):
        """An error class of a driver's binding."""

    def work(worker: str, task: Exception | None) -> None:
        if task is not None and (worker == "w0" or isinstance(task, IndexError)):
            raise task

    pool = pool_of(2)
    with pytest.raises(IndexError):
        list(pool.run([IndexError("no such column")], work))
    assert all(m.error is None for m in pool.workers)
    assert len(list(pool.run([DriverError("launch failed"), None, None], work))) == 3


def test_the_error_names_all_workers_if_none_is_left() -> None:
    def work(worker: str, task: int) -> int:
        raise RuntimeError(f"{worker} fell off the bus")

    pool = pool_of(2)
    with pytest.raises(BackendUnavailable, match=r"card \d: w\d fell off the bus; card \d: w\d fell off the bus"):
        list(pool.run(range(3), work))
    with pytest.raises(BackendUnavailable, match=r"no worker is left.*card 0: w0 fell"):
        list(pool.run(range(3), work))


@pytest.mark.parametrize("n", [1, 3])
def test_too_little_memory_everywhere_is_table_too_large(n: int) -> None:
    def work(worker: str, task: int) -> int:
        raise TableTooLarge("32 cases take 9 GiB", 5, 9, 1)

    pool = pool_of(n)
    with pytest.raises(TableTooLarge, match="card 0: 32 cases take 9 GiB") as caught:
        list(pool.run(range(3), work))
    assert caught.value.needed == 9
    assert all(m.error is None for m in pool.workers)


def test_an_error_of_the_iterable_is_raised() -> None:
    def tasks() -> Iterator[int]:
        yield 1
        raise ValueError("bad table")

    for n in (1, 3):
        with pytest.raises(ValueError, match="bad table"):
            list(pool_of(n).run(tasks(), slow_square))


def test_ctrl_c_stops_all_workers() -> None:
    deal = RowQueue(10**9, 3)
    answered: list[int] = []

    def work(worker: str, task: int) -> int:
        if worker == "w1":
            raise KeyboardInterrupt
        while (rows := deal.take(10)) is not None:
            answered.append(rows[0])
            time.sleep(0.001)
        return task

    pool = pool_of(3)
    before = threading.active_count()
    begun = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        list(pool.run(range(3), work, stop=deal.stop))
    assert time.perf_counter() - begun < 5
    assert threading.active_count() == before
    assert not any(m.holder or m.error for m in pool.workers)
    assert len(answered) < 10_000


def test_closing_the_results_early_releases_the_workers() -> None:
    pool = pool_of(3)
    kept = in_order(pool.run(range(1000), slow_square))  # as a traceback keeps it
    assert next(kept) == 0
    kept.close()
    assert not any(m.holder for m in pool.workers)
    assert len(list(pool.run(range(5), slow_square))) == 5


def test_calls_from_several_threads_share_the_workers() -> None:
    pool = pool_of(3)
    at_work: set[str] = set()
    both = threading.Lock()

    def work(worker: str, task: int) -> int:
        with both:
            assert worker not in at_work, "two tasks on one worker"
            at_work.add(worker)
        time.sleep(0.001)
        with both:
            at_work.remove(worker)
        return task

    answers: list[list[tuple[int, int]]] = []
    threads = [threading.Thread(target=lambda: answers.append(sorted(pool.run(range(20), work)))) for _ in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert answers == [[(i, i) for i in range(20)]] * 5


def test_a_lazy_object_is_made_once_and_stays_closed() -> None:
    class Thing:
        made = closed = 0

        def __init__(self) -> None:
            Thing.made += 1
            time.sleep(0.01)

        def close(self) -> None:
            Thing.closed += 1

    lazy = Lazy(Thing)
    threads = [threading.Thread(target=lazy.get) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert Thing.made == 1
    lazy.close()
    lazy.close()
    assert Thing.closed == 1
    with pytest.raises(JtgpuError, match="closed"):
        lazy.get()
    untouched = Lazy(Thing)
    untouched.close()
    assert (Thing.made, Thing.closed) == (1, 1)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_a_row_queue_covers_all_rows_once(workers: int) -> None:
    for n in (0, 5, 1000):
        rows_left = RowQueue(n, workers)
        lanes = [rows_left.join() for _ in range(workers)]
        assert sorted(lanes) == list(range(workers))
        rows: list[int] = []
        n_chunks = 0
        while (chunk := rows_left.take(128, lanes[n_chunks % workers])) is not None:
            first, last = chunk
            assert 0 < last - first <= 128
            rows += range(first, last)
            n_chunks += 1
        assert sorted(rows) == list(range(n))
        assert n_chunks == workers * -(-rows_left.share // 128) or n < 1000
        assert not rows_left.left


def test_each_worker_has_its_own_lane_and_takes_others_rows_when_idle() -> None:
    rows_left = RowQueue(300, 3)
    first, second = rows_left.join(), rows_left.join()
    assert rows_left.take(60, second) == (100, 160)
    assert rows_left.take(60, first) == (0, 60)
    assert rows_left.take(60, first) == (60, 100)
    assert rows_left.take(60, first, False) == (200, 260)  # no worker has joined for these
    third = rows_left.join()
    assert rows_left.take(60, first, False) is None  # the rest is in lanes of workers that have joined
    assert rows_left.left == 80
    assert rows_left.take(60, third, False) == (260, 300)
    assert rows_left.take(60, third, False) is None
    assert rows_left.take(30, third, True) == (160, 190)
    rows_left.put_back(0, 60)
    assert rows_left.take(60, third, False) == (0, 60)  # their worker has failed
    assert rows_left.take(60, second, False) == (190, 200)
    assert rows_left.take(60, first) is None
    assert rows_left.join() == first  # lanes are shared once all are taken


def test_rows_that_are_put_back_are_distributed_again() -> None:
    rows_left = RowQueue(100, 2)
    assert rows_left.take(60) == (0, 50)
    rows_left.put_back(0, 50)
    rows_left.put_back(5, 5)
    assert rows_left.left == 100
    assert rows_left.take(40) == (0, 40)
    assert rows_left.take(40) == (40, 50)
    assert rows_left.take(50) == (50, 100)
    assert rows_left.take(50) is None
    rows_left.put_back(60, 100)
    rows_left.stop()
    assert rows_left.take(50) is None
    assert rows_left.left == 40
