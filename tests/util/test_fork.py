"""Forks while threads of the parent hold locks: the child answers queries and never waits."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial

import numpy as np
import pytest

import jtgpu
from jtgpu.util import system
from jtgpu.util.lru import LRU
from tests.conftest import ROOT
from tests.support.examples import slow
from tests.support.patience import patience

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

FORKS = 12
# Their objects belong to one call, so that the child of a fork cannot use them, to a CUDA device, or to a server, whose
# threads a child does not have.
CALL_LOCKS = {
    "backends/cpu/batch.py", "backends/cpu/engine.py", "backends/cpu/runner.py", "backends/gpu",
    "published/junction_trees/backend.py",
    "backends/wrappers/row_queue.py", "backends/wrappers/workers.py", "cases/pipeline.py",
    "cases/writing/resumable.py", "cli", "device", "graphs/engine.py", "screen/gpu_engine.py",
    "serve", "series/gpu_batch.py", "util/system.py",
}  # fmt: skip


def child(work: Callable[[], bool]) -> None:
    """Fork, run `work` in the child, and fail if it is false, raises or does not end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks with threads
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    end = time.monotonic() + patience(30.0)
    while (done := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail("the child of a fork waits for a lock that no thread releases")
        time.sleep(0.002)
    assert os.waitstatus_to_exitcode(done[1]) == 0


@contextmanager
def busy(work: Callable[[], object], n: int = 3) -> Iterator[None]:
    """Threads that call `work` all the time."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(n)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors


@contextmanager
def held(locks: list[threading.Lock]) -> Iterator[None]:
    """Another thread holds these locks."""
    ready, stop = threading.Event(), threading.Event()

    def hold() -> None:
        taken = [lock for lock in locks if lock.acquire(timeout=1)]
        ready.set()
        stop.wait()
        for lock in taken:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_lock_is_free_in_the_child_and_taken_in_the_parent() -> None:
    lock = system.new_lock()
    with lock:
        child(partial(lock.acquire, timeout=1))
        assert lock.locked()
    n = len(system._locks)
    del lock
    gc.collect()
    assert len(system._locks) < n


def test_objects_reset_themselves_in_the_child() -> None:
    class Owner:
        n = 1

        def reset(self) -> None:
            self.n = 2

    owner = Owner()
    system.reset_in_child(owner, Owner.reset)
    child(lambda: owner.n == 2)
    assert owner.n == 1


def test_cached_properties_are_computed_in_the_child() -> None:
    """Up to Python 3.11 they have a lock."""
    program = jtgpu.read(ROOT / "nets" / "asia.net").plan().plan
    found = [p for cls in type(program).__mro__ for p in vars(cls).values() if isinstance(p, cached_property)]
    locks = [p.lock for p in found if hasattr(p, "lock")]
    with held(locks):
        child(lambda: len(program.cliques) > 0)


def test_the_locks_of_the_compiler_are_free_in_the_child() -> None:
    binding = pytest.importorskip("llvmlite.binding", reason="llvmlite is not installed")
    pytest.importorskip("numba", reason="Numba is not installed")
    locks = list(system._compiler_locks())
    assert len(locks) == 2
    with held(locks):
        child(lambda: len(binding.get_default_triple()) > 0)


def test_the_child_answers_while_another_thread_holds_every_lock() -> None:
    tree = jtgpu.read(ROOT / "nets" / "asia.net").plan().compile("cpu", threads=2)
    session = tree.session({"xray": "yes"})
    expected = tree.posteriors({"xray": "yes"})["lung"]["yes"]

    def answers() -> bool:
        return bool(
            tree.posteriors({"xray": "yes"})["lung"]["yes"] == expected
            and tree.posteriors({"smoke": "yes"}, do={"lung": "yes"})["xray"]["yes"] > 0
            and session.posteriors()["lung"]["yes"] == expected
            and tree.mpe({"xray": "yes"})["xray"] == "yes"
            and tree.sample(3, {"xray": "yes"}, seed=1).states.shape == (3, 8)
            and tree.posteriors_batch({"xray": ["yes", "no", None] * 50}).log_evidence.shape == (150,)
        )

    assert answers()
    with held(list(system._locks)):
        child(answers)
    assert answers()


@pytest.mark.parametrize("kind", ["posteriors", *slow("patterns", "batch", "session", "do")])
def test_forks_while_threads_query_the_same_tree(kind: str) -> None:
    net = jtgpu.read(ROOT / "nets" / "alarm.net").with_codes("index")
    tree = net.plan().compile("cpu", threads=2)
    rng = np.random.default_rng(7)
    table = tree.sample(64, seed=1).states
    table = np.where(rng.random(table.shape) < 0.3, table, -1).astype(np.int32)
    session = tree.session()

    def work() -> bool:
        row = table[int(time.perf_counter_ns() // 1000) % len(table)]
        case = {v: int(s) for v, s in enumerate(row.tolist()) if s >= 0}
        if kind == "batch":
            return len(tree.posteriors_batch(table).log_evidence) == len(table)
        if kind == "session":
            return session.posteriors(targets=[0]).log_evidence <= 0
        if kind == "do":
            free = next(v for v in range(len(net)) if v not in case)
            return tree.posteriors(case, do={free: 0}, targets=[1]).log_evidence <= 1e-9
        targets = [time.perf_counter_ns() % len(net)] if kind == "patterns" else None  # a Generator has a lock
        return tree.posteriors(case, targets=targets).log_evidence <= 0

    for _ in range(200):  # everything is compiled: LLVM cannot be used in the child of a fork during a compilation
        assert work()
    with busy(work):
        for _ in range(FORKS):
            child(lambda: all(work() for _ in range(4)))
    assert work()


@pytest.mark.slow
def test_forks_while_a_cache_changes() -> None:
    cache: LRU[int, int] = LRU(8)
    counter = iter(range(10**9))
    with busy(lambda: cache.put(next(counter) % 13, 1), 4):
        for _ in range(FORKS):
            child(lambda: cache.get_or_make(5, lambda: 1) == 1 and len(cache) <= 9)


def test_locks_of_lasting_objects_are_renewed() -> None:
    """`threading.Lock` and its relatives are for objects of one call only; all others use `new_lock`."""
    found = {
        str(path.relative_to(ROOT / "jtgpu"))
        for path in sorted((ROOT / "jtgpu").rglob("*.py"))
        if re.search(r"threading\.(R?Lock|Condition|Event|Barrier)\(", path.read_text(encoding="utf-8"))
    }
    assert {f for f in found if not any(f.startswith(known) for known in CALL_LOCKS)} == set()
