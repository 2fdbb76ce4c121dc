"""From a plan to what cuda/single/levels.cu reads: table places, and records and tasks of every level.

Arrays only; knows no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.structs import struct
from ....plans.plan import Plan
from ..lower import Loop, Lowered, lowered
from ..program.layout import TablePlaces, make_places
from ..program.records import NONE, TASK, RecordPool, contraction_record, record_array
from ..tile import REFERENCE_SMS, WARPS, TiledStep, TileWork, Tiling, candidates, in_better_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

# How threads cover a contraction in the level engine: a tile of outputs a thread, lanes or warps that share a sum.
#
# The choice follows a time model: how long the slowest thread of a contraction takes, and how much of
# the whole GPU the contraction takes. Balancing by entries instead is wrong by factors of six (the blocks of a level
# then run between 10,000 and 400,000 cycles).

# The time model, in nanoseconds on the reference device. Latency: one trip to L2 and back for each batch of unrolled
# steps, a shuffle for each exchange of `fold`. Share: loads, and threads' fixed work, divided by what the whole device
# does in a nanosecond. A block takes 3 us from its first instruction to its last however little it computes, and a
# multiprocessor holds 2 or 3, so a thread is expensive.
L2_TRIP = 330.0
INSTRUCTION = 1.5  # of a warp that has its scheduler almost to itself
LOAD_CODE, ADD_CODE, STORE_CODE, KEEP_CODE, FOLD_CODE = 6, 2, 10, 25, 12  # instructions for one of each
WIDE_STEP = 250.0  # more if the warps of a block share a sum
SPLIT_STEP = 1300.0  # more if blocks share a sum
LOAD_SHARE = 1 / 800  # a double loaded by a lane
THREAD_SHARE = {False: 1 / 34, True: 1 / 22}  # a thread's fixed work; of a tile of many registers
SHAPES = {(1, 1): 4, (4, 1): 2, (2, 2): 2, (4, 2): 2, (4, 4): 1}  # tile -> steps whose loads are issued together
HEAVY = frozenset([(4, 2), (4, 4)])  # tiles that take many registers
MIN_WIDE_LOG = 3  # log2 of the lanes that share a sum, from which on warps may share it
MAX_SPLITS = 64


class LevelModel:
    """The time model, in nanoseconds."""

    shapes = tuple((*shape, unroll) for shape, unroll in SHAPES.items())
    one_load = 0.0

    def shared(self, n_steps: int) -> list[tuple[int, bool, int]]:
        made = []
        for log in range(MIN_WIDE_LOG, 6):
            splits = 1
            while splits <= MAX_SPLITS and n_steps >= (WARPS * splits) << log:
                made.append((log, True, splits))
                splits *= 2
        return made

    def times(self, work: TileWork) -> tuple[float, float]:
        (tm, tn), log, wide = work.shape, work.log_lanes, work.wide
        code = work.steps * ((tm + tn) * LOAD_CODE + tm * tn * ADD_CODE)
        code += tm * tn * KEEP_CODE + (tm * tn + log) * FOLD_CODE if log else tm * tn * STORE_CODE
        latency = L2_TRIP * (1 + -(-work.steps // work.unroll)) + INSTRUCTION * code
        latency += WIDE_STEP * wide + SPLIT_STEP * (work.splits > 1)
        threads = work.n_units * 32 * (WARPS if wide else 1)
        share = threads * (work.steps * work.loads * LOAD_SHARE + THREAD_SHARE[(tm, tn) in HEAVY])
        return latency, share + work.n_out * LOAD_SHARE

    def again(self, n_out: int, splits: int) -> None:
        return None  # the last block adds the parts


MODEL = LevelModel()


@lru_cache(maxsize=4096)
def best_tiling(loops: tuple[Loop, ...], two: bool, weight: float) -> Tiling:
    """The cheapest tiling of a contraction; `weight`: of the whole device's time against a thread's."""
    return min(candidates(loops, two, MODEL), key=lambda t: t.cost(weight))


EMPTY_WEIGHT, FULL_WEIGHT = 0.25, 4.0  # of the GPU's time, in a level that leaves it half empty or fills it often
FULL = 3.0  # waves of a level from which on it fills the GPU often
LEVEL_NS, START_NS = 1200.0, 6000.0  # nanoseconds on an H100 that the time model omits: of a level, and of a run


@dataclass(frozen=True)
class LevelLaunch:
    """One kernel launch."""

    first: int  # its first task
    n_blocks: int
    heavy: bool  # whether a contraction has a tile of many registers
    floor: float  # nanoseconds by the time model: of the slowest thread or of the whole GPU, whichever is longer


@dataclass(frozen=True)
class LevelSchedule(TablePlaces):
    """The input of the kernels of the level engine."""

    answers: NDArray[Any]  # (V,) ANSWER
    roots: NDArray[np.uint32]  # (2 * components,) cell and table of each P(e)
    ops: NDArray[Any]  # (N,) OP, one a contraction
    digits: NDArray[Any]  # (D,) DIGIT
    steps: NDArray[Any]  # (K,) STEP
    tasks: NDArray[Any]  # (U,) TASK, level after level
    levels: tuple[LevelLaunch, ...]
    n_scratch: int  # cells
    n_counters: int

    @property
    def nanoseconds(self) -> int:
        """Predicted time of a propagation on the device."""
        return round(START_NS + sum(LEVEL_NS + level.floor for level in self.levels))


ANSWER = struct("single/levels.cu", "Answer")


def make_schedule(plan: Plan, n_sms: int = REFERENCE_SMS) -> LevelSchedule:
    """Everything that the level engine needs on the device for a plan."""
    # n_sms: Streaming multiprocessors of the GPU
    # raises TableTooLarge: If the cells cannot be numbered in 32 bits.
    program = lowered(plan)
    places = make_places(program)
    cells = places.table_cell.tolist()
    one = len(cells) - 1
    pool, ops = RecordPool(), list[dict[str, Any]]()
    n_scratch = n_counters = 0
    chosen = _choose_all(program, REFERENCE_SMS / n_sms)
    for step, (loops, ins, tiling) in zip(program.steps, chosen, strict=True):
        tables, (m, n) = (*(*ins, one)[:2], step.out), tiling.shape
        op = contraction_record(pool, loops, tiling, [cells[t] for t in tables])
        op |= zip(("slot_a", "slot_b", "slot_out"), tables, strict=True)
        ops.append(op | {"shape": m * 8 + n, "wide": int(tiling.wide), "scratch": n_scratch, "counter": n_counters})
        if tiling.splits > 1:
            n_scratch += tiling.n_units * (32 >> tiling.log_lanes) * m * n
            n_counters += tiling.n_units // tiling.splits
    tasks: list[NDArray[Any]] = []
    levels: list[LevelLaunch] = []
    n_tasks = 0
    for _, steps in sorted(_by_level(program).items()):
        members = [(i, chosen[i].tiling) for i in steps]
        made = _tasks_of(members)
        floor = max(max(t.latency for _, t in members), sum(t.share for _, t in members) * REFERENCE_SMS / n_sms)
        heavy = any(t.shape in HEAVY for _, t in members)
        levels.append(LevelLaunch(n_tasks, len(made) // WARPS, heavy, floor))
        tasks.append(made)
        n_tasks += len(made)
    digits, offsets = pool.arrays()
    answers = zip((cells[t] for t in program.answers), plan.cardinality, plan.posterior_ptr, strict=False)
    return LevelSchedule(
        **{f.name: getattr(places, f.name) for f in fields(places)},
        answers=np.array(list(answers), ANSWER),
        roots=np.array([x for t in program.roots for x in (cells[t], t)], np.uint32),
        ops=record_array(ops),
        digits=digits,
        steps=offsets,
        tasks=np.concatenate(tasks) if tasks else np.zeros(0, TASK),
        levels=tuple(levels),
        n_scratch=n_scratch,
        n_counters=n_counters,
    )


def _choose_all(program: Lowered, scale: float) -> list[TiledStep]:
    """Tilings of all contractions.

    Those of a level that leaves the GPU half empty may take more of it, those of a level that fills it several times
    take less. `scale`: the GPU's time in units of the time model's.
    """
    each = list(zip(program.loops, (step.ins for step in program.steps), strict=True))
    made = [in_better_order(*x, scale, best_tiling) for x in each]
    for members in _by_level(program).values():
        filled = scale * sum(made[i].tiling.share for i in members) / max(made[i].tiling.latency for i in members)
        if not 1.0 <= filled <= FULL:
            weight = scale * (EMPTY_WEIGHT if filled < 1.0 else FULL_WEIGHT)
            for i in members:
                made[i] = in_better_order(*each[i], weight, best_tiling)
    return made


def _by_level(program: Lowered) -> dict[int, list[int]]:
    """The steps of every level."""
    made: dict[int, list[int]] = {}
    for i, level in enumerate(program.level):
        made.setdefault(level, []).append(i)
    return made


def _tasks_of(members: Sequence[tuple[int, Tiling]]) -> NDArray[Any]:
    """Tasks of one level, block after block: the slowest first, so that short ones fill the gaps."""
    made: list[NDArray[Any]] = []
    for op, tiling in sorted(members, key=lambda m: (not m[1].wide, -m[1].latency, m[0])):
        of_unit = WARPS if tiling.wide else 1
        made.append(np.zeros(tiling.n_units * of_unit, TASK))
        made[-1]["op"], made[-1]["unit"] = op, np.repeat(np.arange(tiling.n_units), of_unit)
    idle = np.zeros(-sum(len(m) for m in made) % WARPS, TASK)
    idle["op"] = NONE
    return np.concatenate([*made, idle])
