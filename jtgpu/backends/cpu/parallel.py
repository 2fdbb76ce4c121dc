"""One program on several cores: tasks that all threads take from one list, in an order that cannot deadlock.

Contractions are sorted by level, and large ones are split along an axis of their output, so that every number is summed
in the same order by any thread: the bits do not depend on the number of threads. A thread takes the next task, waits
until the tables that it reads are written, and runs it. The task that was taken first never waits for one that has not
been taken yet.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...util.loops import loops
from ...util.system import new_lock
from .records import IMPOSSIBLE, Records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .workspace import Workspace

_loops = loops("jtgpu.backends.cpu.loops.parallel")

GRAIN = 20_000  # terms of a task: 2 us or more, ten times what handing it over costs

NEXT, FAILED, FINISHED, ACTIVE, LOST = 0, 8, 16, 24, 32  # places of the counters, a cache line each
CONTROL = 40


class Tasks(NamedTuple):
    """A program split into tasks. A *part* is a contraction or a slice of one, as a record of its own."""

    parts: NDArray[np.int64]
    part_ptr: NDArray[np.int64]  # (n+1,)
    part_of: NDArray[np.int64]  # (n,) the contraction, in the order of these tasks
    first_part: NDArray[np.int64]  # (contractions+1,)
    whole: NDArray[np.int64]  # (contractions,) where its undivided record begins in the program
    task_ptr: NDArray[np.int64]  # (tasks+1,) parts
    need_ptr: NDArray[np.int64]  # (tasks+1,)
    need: NDArray[np.int64]  # tasks that each task waits for, all of them before it


def make_tasks(program: Records, n_exponents: int, threads: int) -> Tasks:
    """Split a program into tasks for some threads."""
    cut = _loops.split_all(program.records, program.record_ptr, n_exponents, 4 * threads, GRAIN)
    _, _, part_of, first_part, whole, task_ptr = cut
    return Tasks(*cut, *_loops.needs(program.records, whole, first_part, part_of, task_ptr, n_exponents))


class ThreadedRun(NamedTuple):
    """One run of a program by several threads."""

    control: NDArray[np.int64]  # (CONTROL,) counters, see NEXT
    tops: NDArray[np.float64]  # (parts,) largest entry that each part wrote
    left: NDArray[np.int64]  # (contractions,) parts that are not done
    done: NDArray[np.int64]  # (tasks,) 1 for a task that is done
    arena: NDArray[np.float64]
    exponent: NDArray[np.int64]
    records: NDArray[np.int64]


def run_tasks(tasks: Tasks, records: NDArray[np.int64], space: Workspace, limit: int, threads: int) -> float:
    """Make every table of a program whose loads are done."""
    # records: See `jtgpu.backends.cpu.records.Records`
    # space: Its arena and exponents; every thread has scratch memory of its own, as large
    # limit: See `jtgpu.backends.cpu.sweep.run`
    # returns 0; `IMPOSSIBLE` when a table is zero everywhere; NaN when digits were lost.
    n_tasks = len(tasks.task_ptr) - 1
    control = np.zeros(CONTROL, np.int64)
    job = ThreadedRun(
        control, np.zeros(len(tasks.part_of)), np.diff(tasks.first_part), np.zeros(n_tasks, np.int64), space.arena,
        space.exponent, records,
    )  # fmt: skip

    def take_part() -> None:
        place = np.full(2, -1, np.int64)
        own = space.another_scratch()
        _loops.enter(control)
        try:
            while _loops.work(job, tasks, place, limit, own.block):
                time.sleep(2e-5)
        finally:
            _loops.leave(control)

    for _ in range(min(threads, n_tasks) - 1):
        _pool(threads - 1).put(take_part)
    try:
        take_part()
        while not _loops.is_over(control, n_tasks):
            time.sleep(1e-5)
    except BaseException:  # Ctrl-C: the caller gets the arena back when no thread works in it
        control[FAILED] = 1
        while not _loops.is_over(control, n_tasks):
            time.sleep(1e-5)
        raise
    return math.nan if control[LOST] else IMPOSSIBLE if control[FAILED] else 0.0


# The worker pool. Its threads sleep until a large program runs; they are daemons, so that a process can end.
_lock = new_lock()
_queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
_started: dict[int, int] = {}  # process -> threads: after a fork there are none


def _pool(n: int) -> SimpleQueue[Callable[[], None]]:
    global _queue
    with _lock:
        if os.getpid() not in _started:
            _started.clear()
            _started[os.getpid()] = 0
            _queue = SimpleQueue()
        while _started[os.getpid()] < n:
            _started[os.getpid()] += 1
            threading.Thread(target=_serve, args=(_queue,), name="jtgpu-cpu", daemon=True).start()
    return _queue


def _serve(queue: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        queue.get()()
