"""Which contractions of a plan get code of their own, level by level, where the time model says that it pays.

A level's time is that of its slowest block or of the whole machine, whichever is longer, and a little of the other.
Code that runs for the first time in a propagation is fetched from L2: a fixed price a level, and one a function.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...program.structs import JOB
from ...program.tiling import HEAVY, OUT, A, B, Loop, Tiling, best_tiling
from .shape_code import Chosen, Code, Variant, best_codes, longest

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Coded", "Kernel", "Shaped", "ShapedLevel", "choose_codes", "light_tiling", "shaped_levels"]

VARIANTS: tuple[Variant, ...] = tuple((r, crowded) for r in (2, 3) for crowded in (False, True))
RECORD_LEVEL, RECORD_WAY, RECORD_POWER = 770.0, 1.48, 4.8  # of a level of records: what it takes beside the model
CODE_LEVEL, COLD_CODE = 160.0, 5.0  # nanoseconds
WORTH_A_LOOK = 100.0  # nanoseconds of the machine's time that a contraction takes as a record
LESS_SHARE, LESS_LATENCY = 20.0, 300.0  # nanoseconds that code must save a contraction
LEAST_GAIN = 400.0  # of a level
NEAR_BYTES, FAR = 25_000_000, 1.3  # what half of L2 holds; how much longer records take beyond it
LEAST_LEVEL = 3000.0  # nanoseconds of a level of records, of which something may be gained
MOST_CODES = 120  # of a network: nvcc takes a tenth of a second for one
KERNEL_CODES = 24  # of a kernel: several kernels are compiled side by side

Choice = tuple[tuple[Loop, ...], tuple[int, ...], Tiling]  # as in schedule.py


@dataclass(frozen=True)
class Coded:
    """The contractions that get code, and for each level that has some: its time in nanoseconds by the model, and how
    many blocks share an SM."""

    codes: Mapping[int, Chosen]  # by contraction
    levels: Mapping[int, float]
    resident: Mapping[int, int]  # blocks of an SM, by level


@dataclass(frozen=True)
class Kernel:
    """Codes that are one kernel."""

    codes: tuple[Code, ...]
    resident: int  # blocks of an SM


@dataclass(frozen=True)
class ShapedLevel:
    """A level that some kernel with codes runs, instead of the one that knows records only."""

    kernel: int
    first: int  # of its blocks in `Shaped.jobs`
    n_blocks: int


@dataclass(frozen=True)
class Shaped:
    """What the kernels with codes are made of and read."""

    kernels: tuple[Kernel, ...]
    levels: tuple[ShapedLevel | None, ...]  # of every level of the schedule
    jobs: NDArray[Any]  # a block each


def _time_of_records(records: Sequence[Tiling]) -> float:
    way = RECORD_WAY * max(t.latency for t in records)
    return RECORD_LEVEL + longest(way, math.fsum(t.share for t in records), power=RECORD_POWER)


def _cells(loops: Sequence[Loop]) -> int:
    """Of a contraction's three tables."""
    return sum(math.prod(n for n, s in loops if s[table]) for table in (OUT, A, B))


def _time_of_codes(records: Sequence[Tiling], codes: Sequence[Chosen], far: float) -> float:
    """Of a level, nanoseconds; records beside codes take the blocks' places, `far` times as long."""
    way = max([RECORD_WAY * t.latency for t in records] + [c.latency for c in codes])
    busy = [math.fsum(c.busy[k] for c in codes) for k in range(4)]
    busy[3] += far * math.fsum(t.share for t in records)
    return CODE_LEVEL + COLD_CODE * len({c.code for c in codes}) + longest(way, *busy)


def choose_codes(chosen: Sequence[Choice], levels: Mapping[int, Sequence[int]], cell_bytes: int) -> Coded:
    """The contractions that get code.

    Parameters
    ----------
    chosen : sequence
        Every contraction's axes, inputs and tiling.
    levels : mapping
        The contractions of every level.
    cell_bytes : int
        Of an entry.
    """
    options: list[tuple[float, int, int, dict[int, Chosen], float]] = []
    for level, members in sorted(levels.items()):
        far = FAR if sum(_cells(chosen[i][0]) for i in members) * cell_bytes > NEAR_BYTES else 1.0
        before = far * _time_of_records([chosen[i][2] for i in members])
        if before < LEAST_LEVEL:
            continue
        tries = []
        for variant in VARIANTS:
            found, after = _of_level(chosen, members, cell_bytes, variant, far)
            tries.append((before - after, level, variant[0], found, after))
        best = max(tries, key=lambda t: (t[0], -t[2]))
        if best[3] and best[0] >= LEAST_GAIN:
            options.append(best)
    codes: dict[int, Chosen] = {}
    times: dict[int, float] = {}
    blocks: dict[int, int] = {}
    kinds: set[tuple[int, Code]] = set()
    for _, level, resident, found, after in sorted(options, key=lambda o: (-o[0], o[1])):
        more = kinds | {(resident, c.code) for c in found.values()}
        if len(more) > MOST_CODES:
            continue
        kinds = more
        codes.update(found)
        times[level], blocks[level] = after, resident
    return Coded(codes, times, blocks)


def _of_level(
    chosen: Sequence[Choice], members: Sequence[int], cell_bytes: int, variant: Variant, far: float
) -> tuple[dict[int, Chosen], float]:
    """The contractions of a level that are better off with code, and the level's time with it."""
    tilings = [chosen[i][2] for i in members]
    slow = 0.7 * max(t.latency for t in tilings)
    found: dict[int, Chosen] = {}
    left: list[Tiling] = []
    for i, tiling in zip(members, tilings, strict=True):
        loops, ins, _ = chosen[i]
        if tiling.share >= WORTH_A_LOOK or (tiling.latency >= slow and tiling.share >= LESS_SHARE):
            code = best_codes(loops, len(ins) == 2, cell_bytes)[variant]
            if far * tiling.share - max(code.busy) >= LESS_SHARE or (
                tiling.latency >= slow and RECORD_WAY * tiling.latency - code.latency >= LESS_LATENCY
            ):
                found[i] = code
                continue
        left.append(tiling if tiling.shape not in HEAVY else light_tiling(loops, len(ins) == 2, cell_bytes))
    if not found:
        return found, math.inf
    return found, _time_of_codes(left, list(found.values()), far)


def light_tiling(loops: tuple[Loop, ...], two: bool, cell_bytes: int) -> Tiling:
    """How a contraction runs as a record beside codes, where tiles of many registers have no place."""
    return best_tiling(loops, two, cell_bytes=cell_bytes, heavy=False)


def shaped_levels(
    coded: Coded,
    levels: Mapping[int, Sequence[int]],
    tables: Sequence[Sequence[int]],
    cells: Sequence[int],
    scratch: tuple[int, int],
) -> tuple[Shaped, int, int]:
    """The kernels' codes, jobs and blocks.

    Parameters
    ----------
    coded : Coded
    levels : mapping
    tables : sequence
        (A, B, output) of every contraction.
    cells : sequence
        First cell of every table.
    scratch : (int, int)
        Cells of scratch memory and counters that are taken already.

    Returns
    -------
    shaped : Shaped
    n_scratch, n_counters : int
        Taken in all.
    """
    n_scratch, n_counters = scratch
    kernels: list[tuple[int, dict[Code, int]]] = []
    made: list[ShapedLevel | None] = []
    jobs: list[NDArray[Any]] = []
    at = 0
    for level, members in sorted(levels.items()):
        if level not in coded.levels:
            made.append(None)
            continue
        mine = sorted((i for i in members if i in coded.codes), key=lambda i: (-coded.codes[i].latency, i))
        kernel = _kernel_for(kernels, coded.resident[level], [coded.codes[i].code for i in mine])
        first = at
        for i in mine:
            code = coded.codes[i].code
            a, b, out = tables[i]
            job = (kernels[kernel][1][code], 0, cells[a], cells[b], cells[out], a, b, out, n_scratch, n_counters, 0, 0)
            blocks = np.full(code.n_blocks, np.array(job, np.uint32).view(JOB)[0], JOB)
            blocks["unit"] = np.arange(code.n_blocks)
            if code.splits > 1:
                n_scratch += code.n_scratch
                n_counters += code.n_groups
            jobs.append(blocks)
            at += len(blocks)
        made.append(ShapedLevel(kernel, first, at - first))
    all_jobs = np.concatenate(jobs) if jobs else np.zeros(0, JOB)
    shaped = Shaped(tuple(Kernel(tuple(k), r) for r, k in kernels), tuple(made), all_jobs)
    return shaped, n_scratch, n_counters


def _kernel_for(kernels: list[tuple[int, dict[Code, int]]], resident: int, codes: Sequence[Code]) -> int:
    """The kernel that a level runs in: one that has its codes, or has room for them, or a new one."""
    wanted = dict.fromkeys(codes)
    alike = [k for k, (r, _) in enumerate(kernels) if r == resident]
    for k in alike:
        if all(c in kernels[k][1] for c in wanted):
            return k
    if not alike or len(kernels[alike[-1]][1].keys() | wanted.keys()) > KERNEL_CODES:
        kernels.append((resident, {}))
        alike.append(len(kernels) - 1)
    codes_there = kernels[alike[-1]][1]
    for c in wanted:
        codes_there.setdefault(c, len(codes_there))
    return alike[-1]
