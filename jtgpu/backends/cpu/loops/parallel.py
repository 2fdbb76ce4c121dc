"""A program on several cores; see `jtgpu.backends.cpu.parallel`."""

from __future__ import annotations

import numpy as np

from ....util.jit import compiled, inlined
from .. import records as rec
from ..parallel import ACTIVE, FAILED, FINISHED, LOST, NEXT, Tasks, ThreadedRun
from . import atomics
from .fields import input_field
from .growth import longer
from .kernels import contract
from .sweep import finish
from .vector import lost_digits, plain_arithmetic, restore_arithmetic

__all__ = ["enter", "is_over", "leave", "needs", "split_all", "work"]

RECORD = 500  # terms that take as long as what every contraction costs in addition to its terms
LISTED_TERM = 10  # terms that take as long as one that is listed
ROW_STEP = 8  # cells: rows are split at multiples of a vector
SPINS = 100_000  # looks at a flag, some 100 us, before a waiting thread lets others run


@compiled()
def _terms(record):  # type: ignore[no-untyped-def]
    """Terms (int64) that take as long as a record (int64)."""
    if record[rec.LISTED] > 0:
        return record[rec.LISTED] * record[rec.SIZE]
    if record[rec.LISTED] < 0:
        return LISTED_TERM * record[rec.FIRST_LOOP + 1]
    k = record[rec.INPUTS]
    terms = record[rec.ROW]
    for j in range(record[rec.KEPT] + record[rec.REDUCED]):
        terms *= record[rec.FIRST_LOOP + 3 * (k - 2) + (k + 2) * j]
    return terms


@compiled()
def _levels(records, record_ptr, n_exponents):  # type: ignore[no-untyped-def]
    """(n,) int64: 1 for a contraction that reads factors alone, else one more than the largest of its inputs."""
    level = np.zeros(n_exponents, np.int64)
    level_of = np.empty(len(record_ptr) - 1, np.int64)
    for p in range(len(level_of)):
        r = record_ptr[p]
        high = max(level[records[r + rec.A_EXP]], level[records[r + rec.B_EXP]])
        for t in range(2, records[r + rec.INPUTS]):
            high = max(high, level[records[r + input_field(t) + 1]])
        level_of[p] = high + 1
        level[records[r + rec.OUT_EXP]] = high + 1
    return level_of


@compiled()
def _ascending(level):  # type: ignore[no-untyped-def]
    """(n,) int64: places of small positive numbers in ascending order; equal ones in the order in which they stand."""
    top = 0
    for x in level:
        top = max(top, x)
    first = np.zeros(top + 2, np.int64)
    for x in level:
        first[x + 1] += 1
    for x in range(top + 1):
        first[x + 1] += first[x]
    order = np.empty(len(level), np.int64)
    for i in range(len(level)):
        order[first[level[i]]] = i
        first[level[i]] += 1
    return order


@compiled()
def _axis(record, most):  # type: ignore[no-untyped-def]
    """The loop along which a record is split: the first kept one that is long enough, else the longest."""
    # most: Parts that are wanted
    # returns tuple of int64: The loop (-1: the row, -2: none) and its extent.
    if record[rec.LISTED] != 0:
        return -2, 1
    k = record[rec.INPUTS]
    best, extent = -2, 1
    for j in range(record[rec.KEPT]):
        n = record[rec.FIRST_LOOP + 3 * (k - 2) + (k + 2) * j]
        if n > extent:
            best, extent = j, n
            if n >= most:
                break
    if record[rec.ROW_OUT] == 1 and extent < most and record[rec.ROW] // ROW_STEP > extent:
        return -1, record[rec.ROW] // ROW_STEP
    return best, extent


@compiled()
def _slice(record, axis, first, last, to):  # type: ignore[no-untyped-def]
    """Write the part of a record from `first` to `last` (int64) along a loop (`axis`, see `_axis`) to `to` (int64)."""
    k = record[rec.INPUTS]
    to[:] = record
    if axis < 0:
        to[rec.ROW] = last - first
        out, a, b = record[rec.ROW_OUT], record[rec.ROW_A], record[rec.ROW_B]
        for t in range(2, k):
            to[rec.FIRST_LOOP + 3 * (t - 2)] += first * record[rec.FIRST_LOOP + 3 * (t - 2) + 2]
    else:
        at = rec.FIRST_LOOP + 3 * (k - 2) + (k + 2) * axis
        to[at] = last - first
        out, a, b = record[at + 1], record[at + 2], record[at + 3]
        for t in range(2, k):
            to[rec.FIRST_LOOP + 3 * (t - 2)] += first * record[at + 2 + t]
    to[rec.OUT] += first * out
    to[rec.A] += first * a
    to[rec.B] += first * b


@compiled()
def _split(record, pieces, most, to):  # type: ignore[no-untyped-def]
    """Write the parts of a record one after the other."""
    # pieces, most: Number of parts, and the largest number that is wanted of any record
    # to: Room for the parts
    n = len(record)
    if pieces == 1:
        to[:n] = record
        return
    axis, extent = _axis(record, most)
    step = ROW_STEP if axis == -1 else 1
    for j in range(pieces):
        last = (j + 1) * extent // pieces * step
        if axis == -1 and j == pieces - 1:
            last = record[rec.ROW]
        _slice(record, axis, j * extent // pieces * step, last, to[j * n : (j + 1) * n])


@compiled("i8[:], i8[:], i8, i8, i8")
def split_all(records, record_ptr, n_exponents, most, grain):  # type: ignore[no-untyped-def]
    """The fields of `Tasks` but the last two."""
    # n_exponents, most, grain: E of `sweep.run`; parts of a contraction at most; terms of a task
    n = len(record_ptr) - 1
    order = _ascending(_levels(records, record_ptr, n_exponents))
    pieces = np.ones(n, np.int64)
    room = 0
    for i in range(n):
        record = records[record_ptr[order[i]] : record_ptr[order[i] + 1]]
        pieces[i] = max(1, min(_axis(record, most)[1], most, _terms(record) // grain))
        room += pieces[i] * len(record)
    parts, part_ptr = np.empty(room, np.int64), np.zeros(pieces.sum() + 1, np.int64)
    part_of, first_part = np.empty(len(part_ptr) - 1, np.int64), np.zeros(n + 1, np.int64)
    whole, task_ptr = np.empty(n, np.int64), np.zeros(len(part_ptr), np.int64)
    at, made, tasks, load = 0, 0, 0, 0
    for i in range(n):
        record = records[record_ptr[order[i]] : record_ptr[order[i] + 1]]
        whole[i] = record_ptr[order[i]]
        _split(record, pieces[i], most, parts[at : at + pieces[i] * len(record)])
        for _ in range(pieces[i]):
            terms = _terms(parts[at : at + len(record)]) + RECORD
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


@compiled("i8[:], i8[:], i8[:], i8[:], i8[:], i8")
def needs(records, whole, first_part, part_of, task_ptr, n_exponents):  # type: ignore[no-untyped-def]
    """``Tasks.need_ptr`` and ``Tasks.need`` (int64) from the other fields; `n_exponents` (int64): E of `sweep.run`."""
    n_tasks = len(task_ptr) - 1
    first, last = np.full(n_exponents, -1, np.int64), np.full(n_exponents, -1, np.int64)
    for t in range(n_tasks):
        for p in range(task_ptr[t], task_ptr[t + 1]):
            out = records[whole[part_of[p]] + rec.OUT_EXP]
            if first[out] < 0:
                first[out] = t
            last[out] = t
    seen = np.full(n_tasks, -1, np.int64)
    ptr, need = np.zeros(n_tasks + 1, np.int64), np.empty(16, np.int64)
    n = 0
    for t in range(n_tasks):
        for p in range(task_ptr[t], task_ptr[t + 1]):
            r = whole[part_of[p]]
            for j in range(records[r + rec.INPUTS]):
                e = r + input_field(j) + 1
                for u in range(max(first[records[e]], 0), last[records[e]] + 1):
                    if u != t and seen[u] != t:
                        seen[u] = t
                        if n == len(need):
                            need = longer(need)
                        need[n] = u
                        n += 1
        ptr[t + 1] = n
    return ptr, need[:n].copy()


@inlined
def _wait(job, tasks, t, place):  # type: ignore[no-untyped-def]
    """Wait until task t can run; returns 1 when it can, 0 when the run has failed, -1 after a long wait.

    Parameters as for `_work`.
    """
    spins = 0
    while place[1] < tasks.need_ptr[t + 1]:
        if atomics.read(job.done, tasks.need[place[1]]) != 0:
            place[1] += 1
            continue
        if atomics.read(job.control, FAILED) != 0:
            return 0
        spins += 1
        if spins == SPINS:
            return -1
    return 1


@inlined
def _run_task(job, tasks, t, limit, scratch):  # type: ignore[no-untyped-def]
    """Run the parts of task t; returns whether every table has an entry above 0. Parameters as for `_work`."""
    memory, room = job.arena.ctypes.data, scratch.ctypes.data
    for p in range(tasks.task_ptr[t], tasks.task_ptr[t + 1]):
        i = tasks.part_of[p]
        top = contract(memory, tasks.parts.ctypes.data + 8 * tasks.part_ptr[p], room)
        if tasks.first_part[i + 1] - tasks.first_part[i] > 1:  # the thread that does the last part finishes the table
            job.tops[p] = top
            if atomics.add(job.left, i, -1) > 1:
                continue
            for q in range(tasks.first_part[i], tasks.first_part[i + 1]):
                top = max(top, job.tops[q])
        if not top > 0.0:
            return False
        record = job.records.ctypes.data + 8 * tasks.whole[i]
        finish(memory, record, top, job.exponent.ctypes.data, 2.0**-limit, 2.0**limit)
    return True


@compiled("ThreadedRun, Tasks, i8[:], i8, i8[:]")
def work(job, tasks, place, limit, scratch):  # type: ignore[no-untyped-def]
    """Take tasks until there are no more, or until one has waited for long."""
    # place: (2,) int64: The thread's task, and the next one in ``tasks.need`` that it waits for; -1 for none
    # limit: See `sweep.run`
    # scratch: The thread's `workspace.KernelScratch.block`
    # returns Whether the thread still has a task.
    while True:
        if place[0] < 0:
            t = atomics.add(job.control, NEXT, 1)
            if t >= len(tasks.task_ptr) - 1:
                return False
            place[0], place[1] = t, tasks.need_ptr[t]
        t = place[0]
        ready = _wait(job, tasks, t, place)
        if ready <= 0:
            return ready < 0
        word = plain_arithmetic()
        possible = _run_task(job, tasks, t, limit, scratch)
        if lost_digits():
            atomics.write(job.control, LOST, 1)
        restore_arithmetic(word)
        if not possible:
            atomics.write(job.control, FAILED, 1)
            return False
        atomics.write(job.done, t, 1)
        atomics.add(job.control, FINISHED, 1)
        place[0] = -1


@compiled("i8[:]")
def enter(control):  # type: ignore[no-untyped-def]
    return atomics.add(control, ACTIVE, 1)


@compiled("i8[:]")
def leave(control):  # type: ignore[no-untyped-def]
    return atomics.add(control, ACTIVE, -1)


@compiled("i8[:], i8")
def is_over(control, n_tasks):  # type: ignore[no-untyped-def]
    """Whether everything is done, or given up and no thread is at work; `control`: see `_Job`."""
    if atomics.read(control, FAILED) != 0:
        atomics.write(control, NEXT, n_tasks)
        return atomics.read(control, ACTIVE) == 0
    return atomics.read(control, FINISHED) == n_tasks
