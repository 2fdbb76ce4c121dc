"""One program on several cores: tasks that every thread takes from one list, in an order that can not lock up.

Contractions are sorted by level and large ones split along an axis that they keep, so that every number is added up in
the same order whoever does it: the bits do not depend on the number of threads. A thread takes the next task, waits
until the tables that it reads are there, and works. The task that has been taken longest never waits for one that has
not been taken yet.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...util.numba_cache import compiled
from . import atomics
from .kernels import contract
from .records import (
    A_EXP,
    B_EXP,
    INPUTS,
    KEPT,
    LISTED,
    LOOPS,
    OUT,
    OUT_EXP,
    ROW,
    ROW_A,
    ROW_B,
    ROW_OUT,
    SIZE,
    SUMMED,
    A,
    B,
    Program,
)
from .sweep import finish

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Tasks", "make_tasks", "run_tasks"]

GRAIN = 20_000  # terms of a task: 2 us or more, ten times what handing it over costs
RECORD = 500  # terms that take as long as what every contraction costs beside its terms
LISTED_TERM = 10  # terms that take as long as one that is listed
ROW_STEP = 8  # cells: rows are split at multiples of a vector
SPINS = 100_000  # looks at a flag, some 100 us, before a waiting thread lets others run

NEXT, FAILED, FINISHED, ACTIVE = 0, 8, 16, 24  # places of the counters, a cache line each
CONTROL = 32


class Tasks(NamedTuple):
    """A program cut up. A *part* is a contraction or a slice of one, as a record of its own."""

    parts: NDArray[np.int64]
    part_ptr: NDArray[np.int64]  # (n+1,)
    part_of: NDArray[np.int64]  # (n,) the contraction, in the order of these tasks
    first_part: NDArray[np.int64]  # (contractions+1,)
    whole: NDArray[np.int64]  # (contractions,) where its undivided record begins in the program
    task_ptr: NDArray[np.int64]  # (tasks+1,) parts
    need_ptr: NDArray[np.int64]  # (tasks+1,)
    need: NDArray[np.int64]  # tasks that each task waits for, all of them before it


@compiled()
def _terms(record):  # type: ignore[no-untyped-def]
    if record[LISTED] > 0:
        return record[LISTED] * record[SIZE]
    if record[LISTED] < 0:
        return LISTED_TERM * record[LOOPS + 1]
    k = record[INPUTS]
    terms = record[ROW]
    for j in range(record[KEPT] + record[SUMMED]):
        terms *= record[LOOPS + 3 * (k - 2) + (k + 2) * j]
    return terms


@compiled()
def _levels(records, record_ptr, n_exponents):  # type: ignore[no-untyped-def]
    level = np.zeros(n_exponents, np.int64)
    found = np.empty(len(record_ptr) - 1, np.int64)
    for p in range(len(found)):
        r = record_ptr[p]
        high = max(level[records[r + A_EXP]], level[records[r + B_EXP]])
        for t in range(2, records[r + INPUTS]):
            high = max(high, level[records[r + LOOPS + 3 * (t - 2) + 1]])
        found[p] = high + 1
        level[records[r + OUT_EXP]] = high + 1
    return found


@compiled()
def _axis(record, most):  # type: ignore[no-untyped-def]
    """The loop to split a record along: the first kept one that is long enough, else the longest; -1 is the row, and
    -2 is none."""
    if record[LISTED] != 0:
        return -2, 1
    k = record[INPUTS]
    best, extent = -2, 1
    for j in range(record[KEPT]):
        n = record[LOOPS + 3 * (k - 2) + (k + 2) * j]
        if n > extent:
            best, extent = j, n
            if n >= most:
                break
    if record[ROW_OUT] == 1 and extent < most and record[ROW] // ROW_STEP > extent:
        return -1, record[ROW] // ROW_STEP
    return best, extent


@compiled()
def _slice(record, axis, first, last, to):  # type: ignore[no-untyped-def]
    """Write the part of a record from `first` to `last` along a loop."""
    k = record[INPUTS]
    to[:] = record
    if axis < 0:
        to[ROW] = last - first
        out, a, b = record[ROW_OUT], record[ROW_A], record[ROW_B]
        for t in range(2, k):
            to[LOOPS + 3 * (t - 2)] += first * record[LOOPS + 3 * (t - 2) + 2]
    else:
        at = LOOPS + 3 * (k - 2) + (k + 2) * axis
        to[at] = last - first
        out, a, b = record[at + 1], record[at + 2], record[at + 3]
        for t in range(2, k):
            to[LOOPS + 3 * (t - 2)] += first * record[at + 2 + t]
    to[OUT] += first * out
    to[A] += first * a
    to[B] += first * b


@compiled()
def _cut(records, record_ptr, n_exponents, most, grain):  # type: ignore[no-untyped-def]
    n = len(record_ptr) - 1
    order = np.argsort(_levels(records, record_ptr, n_exponents), kind="mergesort")
    pieces = np.ones(n, np.int64)
    room = 0
    for i in range(n):
        record = records[record_ptr[order[i]] : record_ptr[order[i] + 1]]
        pieces[i] = max(1, min(_axis(record, most)[1], most, _terms(record) // grain))
        room += pieces[i] * len(record)
    parts, part_ptr = np.empty(room, np.int64), np.zeros(pieces.sum() + 1, np.int64)
    part_of, first_part = np.empty(len(part_ptr) - 1, np.int64), np.zeros(n + 1, np.int64)
    whole = np.empty(n, np.int64)
    task_ptr = np.zeros(len(part_ptr), np.int64)
    at, made, tasks, load = 0, 0, 0, 0
    for i in range(n):
        record = records[record_ptr[order[i]] : record_ptr[order[i] + 1]]
        axis, extent = _axis(record, most)
        step = ROW_STEP if axis == -1 else 1
        whole[i] = record_ptr[order[i]]
        for j in range(pieces[i]):
            to = parts[at : at + len(record)]
            if pieces[i] == 1:
                to[:] = record
            else:
                last = (j + 1) * extent // pieces[i] * step
                if axis == -1 and j == pieces[i] - 1:
                    last = record[ROW]
                _slice(record, axis, j * extent // pieces[i] * step, last, to)
            terms = _terms(to) + RECORD
            if load > 0 and load + terms > grain:
                tasks += 1
                task_ptr[tasks] = made
                load = 0
            load += terms
            part_of[made] = i
            at += len(record)
            made += 1
            part_ptr[made] = at
        first_part[i + 1] = made
    if made > 0:
        tasks += 1
        task_ptr[tasks] = made
    return parts, part_ptr, part_of, first_part, whole, task_ptr[: tasks + 1].copy()


@compiled()
def _needs(records, whole, first_part, part_of, task_ptr, n_exponents):  # type: ignore[no-untyped-def]
    """The tasks that make what each task reads."""
    n_tasks = len(task_ptr) - 1
    first, last = np.full(n_exponents, -1, np.int64), np.full(n_exponents, -1, np.int64)
    for t in range(n_tasks):
        for p in range(task_ptr[t], task_ptr[t + 1]):
            out = records[whole[part_of[p]] + OUT_EXP]
            if first[out] < 0:
                first[out] = t
            last[out] = t
    seen = np.full(n_tasks, -1, np.int64)
    ptr, need = np.zeros(n_tasks + 1, np.int64), np.empty(16, np.int64)
    n = 0
    for t in range(n_tasks):
        for p in range(task_ptr[t], task_ptr[t + 1]):
            r = whole[part_of[p]]
            for j in range(records[r + INPUTS]):
                e = r + A_EXP if j == 0 else r + B_EXP if j == 1 else r + LOOPS + 3 * (j - 2) + 1
                for u in range(max(first[records[e]], 0), last[records[e]] + 1):
                    if u != t and seen[u] != t:
                        seen[u] = t
                        if n == len(need):
                            need = np.append(need, np.empty(n, np.int64))
                        need[n] = u
                        n += 1
        ptr[t + 1] = n
    return ptr, need[:n].copy()


def make_tasks(program: Program, n_exponents: int, threads: int) -> Tasks:
    """Cut a program up for some threads."""
    cut = _cut(program.records, program.record_ptr, n_exponents, 4 * threads, GRAIN)
    _, _, part_of, first_part, whole, task_ptr = cut
    return Tasks(*cut, *_needs(program.records, whole, first_part, part_of, task_ptr, n_exponents))


@compiled()
def _work(  # type: ignore[no-untyped-def]
    control, place, tops, left, done, arena, exponent, records, parts, part_ptr, part_of, first_part, whole, task_ptr,
    need_ptr, need, limit, work, offsets, buffer,
):  # fmt: skip
    """Take tasks until there are no more, or until one has waited long; returns whether it waits. `place`: the thread's
    task and the next one that it waits for; -1 for none."""
    lowest, highest = 2.0**-limit, 2.0**limit
    memory, scratch = arena.ctypes.data, (work.ctypes.data, offsets.ctypes.data, buffer.ctypes.data)
    exponents = exponent.ctypes.data
    while True:
        if place[0] < 0:
            t = atomics.add(control, NEXT, 1)
            if t >= len(task_ptr) - 1:
                return False
            place[0], place[1] = t, need_ptr[t]
        t = place[0]
        spins = 0
        while place[1] < need_ptr[t + 1]:
            if atomics.read(done, need[place[1]]) != 0:
                place[1] += 1
                continue
            if atomics.read(control, FAILED) != 0:
                return False
            spins += 1
            if spins == SPINS:
                return True
        for p in range(task_ptr[t], task_ptr[t + 1]):
            i = part_of[p]
            top = contract(memory, parts.ctypes.data + 8 * part_ptr[p], *scratch)
            if first_part[i + 1] - first_part[i] > 1:  # whoever does the last part sees to the whole
                tops[p] = top
                if atomics.add(left, i, -1) > 1:
                    continue
                for q in range(first_part[i], first_part[i + 1]):
                    top = max(top, tops[q])
            if not top > 0.0:
                atomics.write(control, FAILED, 1)
                return False
            finish(memory, records.ctypes.data + 8 * whole[i], top, exponents, lowest, highest)
        atomics.write(done, t, 1)
        atomics.add(control, FINISHED, 1)
        place[0] = -1


@compiled()
def _enter(control):  # type: ignore[no-untyped-def]
    return atomics.add(control, ACTIVE, 1)


@compiled()
def _leave(control):  # type: ignore[no-untyped-def]
    return atomics.add(control, ACTIVE, -1)


@compiled()
def _is_over(control, n_tasks):  # type: ignore[no-untyped-def]
    """Whether everything is done, or given up and nobody at work any more."""
    if atomics.read(control, FAILED) != 0:
        atomics.write(control, NEXT, n_tasks)
        return atomics.read(control, ACTIVE) == 0
    return atomics.read(control, FINISHED) == n_tasks


def run_tasks(
    tasks: Tasks,
    program: Program,
    arena: NDArray[np.float64],
    exponent: NDArray[np.int64],
    limit: int,
    threads: int,
    scratch: Callable[[], tuple[Any, ...]],
) -> bool:
    """Make every table of a program whose loads are done.

    Parameters
    ----------
    scratch : callable
        Gives each thread its own ``(work, offsets, buffer)`` of `jtgpu.backends.cpu.kernels.contract`.

    Returns
    -------
    bool
        False when a table is zero everywhere.
    """
    n_tasks = len(tasks.task_ptr) - 1
    control = np.zeros(CONTROL, np.int64)
    tops = np.zeros(len(tasks.part_of))
    left = np.diff(tasks.first_part)
    done = np.zeros(n_tasks, np.int64)

    def help_out() -> None:
        place = np.full(2, -1, np.int64)
        own = scratch()
        _enter(control)
        try:
            while _work(
                control, place, tops, left, done, arena, exponent, program.records, tasks.parts, tasks.part_ptr,
                tasks.part_of, tasks.first_part, tasks.whole, tasks.task_ptr, tasks.need_ptr, tasks.need, limit, *own,
            ):  # fmt: skip
                time.sleep(2e-5)
        finally:
            _leave(control)

    for _ in range(min(threads, n_tasks) - 1):
        _helpers(threads - 1).put(help_out)
    try:
        help_out()
        while not _is_over(control, n_tasks):
            time.sleep(1e-5)
    except BaseException:  # Ctrl-C: the arena is the caller's again when nobody works in it
        control[FAILED] = 1
        while not _is_over(control, n_tasks):
            time.sleep(1e-5)
        raise
    return bool(control[FAILED] == 0)


# Threads that help. They sleep until a large program comes; daemons, so that they never keep a process from ending.
_lock = threading.Lock()
_queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
_started: dict[int, int] = {}  # process -> threads: after a fork there are none


def _helpers(n: int) -> SimpleQueue[Callable[[], None]]:
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
