"""From a plan to what cuda/single/levels.cu reads: table places, and records and tasks of every level.

Arrays only; knows no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from .....plans.plan import Plan
from ...program.contractions import Binary, Loop, Step, binary_program, loops_of, mirrored
from ...program.layout import Places, make_places
from ...program.records import RecordPool, contraction_record, record_array
from ...program.structs import NONE, TASK, WARPS
from ..reference_device import REFERENCE_SMS
from .tiling import HEAVY, Tiling, best_tiling

if TYPE_CHECKING:
    from numpy.typing import NDArray

EMPTY_WEIGHT, FULL_WEIGHT = 0.25, 4.0  # of the GPU's time, in a level that leaves it half empty or fills it often
FULL = 3.0  # waves of a level from which on it fills the GPU often
LEVEL_NS, START_NS = 1200.0, 6000.0  # nanoseconds on an H100 that the time model omits: of a level, and of a run


@dataclass(frozen=True)
class Level:
    """One kernel launch."""

    first: int  # its first task
    n_blocks: int
    heavy: bool  # whether a contraction has a tile of many registers
    floor: float  # nanoseconds by the time model: of the slowest thread or of the whole GPU, whichever is longer


@dataclass(frozen=True)
class Schedule(Places):
    """What the kernels of the level engine read."""

    ops: NDArray[Any]  # (N,) OP, one a contraction
    digits: NDArray[Any]  # (D,) DIGIT
    steps: NDArray[Any]  # (K,) STEP
    tasks: NDArray[Any]  # (U,) TASK, level after level
    levels: tuple[Level, ...]
    n_scratch: int  # cells
    n_counters: int

    @property
    def nanoseconds(self) -> int:
        """Predicted time of a propagation on the device."""
        return round(START_NS + sum(LEVEL_NS + level.floor for level in self.levels))


Choice = tuple[tuple[Loop, ...], tuple[int, ...], Tiling]  # axes; inputs in the order A, B; tiling


def make_schedule(plan: Plan, real: str = "float64", n_sms: int = REFERENCE_SMS) -> Schedule:
    """Everything that the level engine needs on the device for a plan."""
    # real: {"float64", "float32"}: Type of the tables
    # n_sms: Streaming multiprocessors of the GPU
    # raises TableTooLarge: If the cells cannot be numbered in 32 bits.
    program = binary_program(plan)
    places = make_places(plan, program, real)
    cells = places.table_cell.tolist()
    one = len(cells) - 1
    maker = _RecordMaker()
    chosen = _choose_all(plan, program, np.dtype(real).itemsize, REFERENCE_SMS / n_sms)
    for step, (loops, ins, tiling) in zip(program.steps, chosen, strict=True):
        tables = (*(*ins, one)[:2], step.out)
        maker.add(loops, tiling, [cells[t] for t in tables], tables)
    tasks: list[NDArray[Any]] = []
    levels: list[Level] = []
    n_tasks = 0
    for _, steps in sorted(_by_level(program).items()):
        members = [(i, chosen[i][2]) for i in steps]
        made = _tasks_of(members)
        floor = max(max(t.latency for _, t in members), sum(t.share for _, t in members) * REFERENCE_SMS / n_sms)
        heavy = any(t.shape in HEAVY for _, t in members)
        levels.append(Level(n_tasks, len(made) // WARPS, heavy, floor))
        tasks.append(made)
        n_tasks += len(made)
    digits, offsets = maker.pool.arrays()
    return Schedule(
        **{f.name: getattr(places, f.name) for f in fields(places)},
        ops=record_array(maker.ops),
        digits=digits,
        steps=offsets,
        tasks=np.concatenate(tasks) if tasks else np.zeros(0, TASK),
        levels=tuple(levels),
        n_scratch=maker.n_scratch,
        n_counters=maker.n_counters,
    )


class _RecordMaker:
    """Collects the records of contractions."""

    def __init__(self) -> None:
        self.ops: list[dict[str, int]] = []
        self.pool = RecordPool()
        self.n_scratch = 0
        self.n_counters = 0

    def add(self, loops: tuple[Loop, ...], tiling: Tiling, cells: Sequence[int], tables: Sequence[int]) -> None:
        """Add a contraction; `cells` and `tables` of the inputs A and B and of the output."""
        op = contraction_record(self.pool, loops, tiling, cells)
        op |= zip(("slot_a", "slot_b", "slot_out"), tables, strict=True)
        op |= {"shape": tiling.shape[0] * 8 + tiling.shape[1], "wide": int(tiling.wide)}
        op |= {"scratch": self.n_scratch, "counter": self.n_counters}
        self.ops.append(op)
        if tiling.splits > 1:
            self.n_scratch += tiling.n_units * (32 >> tiling.log_lanes) * tiling.shape[0] * tiling.shape[1]
            self.n_counters += tiling.n_units // tiling.splits


def _choose(loops: tuple[Loop, ...], step: Step, cell_bytes: int, weight: float) -> Choice:
    """The tiling of a contraction, with the better of the two orders of its inputs."""
    two = len(step.ins) == 2
    one = best_tiling(loops, two, weight, cell_bytes)
    if two:
        other = best_tiling(mirrored(loops), two, weight, cell_bytes)
        if other.cost(weight) < one.cost(weight):
            return mirrored(loops), step.ins[::-1], other
    return loops, step.ins, one


def _choose_all(plan: Plan, program: Binary, cell_bytes: int, scale: float) -> list[Choice]:
    """Tilings of all contractions.

    Those of a level that leaves the GPU half empty may take more of it, those of a level that fills it several times
    take less. `scale`: the GPU's time in units of the time model's.
    """
    loops = [loops_of(plan, program.scopes, step) for step in program.steps]
    made = [_choose(x, step, cell_bytes, scale) for x, step in zip(loops, program.steps, strict=True)]
    for members in _by_level(program).values():
        filled = scale * sum(made[i][2].share for i in members) / max(made[i][2].latency for i in members)
        if not 1.0 <= filled <= FULL:
            weight = scale * (EMPTY_WEIGHT if filled < 1.0 else FULL_WEIGHT)
            for i in members:
                made[i] = _choose(loops[i], program.steps[i], cell_bytes, weight)
    return made


def _by_level(program: Binary) -> dict[int, list[int]]:
    """The steps of every level."""
    made: dict[int, list[int]] = {}
    for i, level in enumerate(program.level):
        made.setdefault(level, []).append(i)
    return made


def _tasks_of(members: Sequence[tuple[int, Tiling]]) -> NDArray[Any]:
    """Tasks of one level, block after block: the slowest first, so that short ones fill the gaps."""
    made: list[NDArray[Any]] = []
    ordered = sorted(members, key=lambda m: (-m[1].latency, m[0]))
    for op, tiling in (m for m in ordered if m[1].wide):
        block = np.zeros(tiling.n_units * WARPS, TASK)
        block["op"], block["unit"] = op, np.repeat(np.arange(tiling.n_units), WARPS)
        made.append(block)
    for op, tiling in (m for m in ordered if not m[1].wide):
        warps = np.zeros(tiling.n_units, TASK)
        warps["op"], warps["unit"] = op, np.arange(tiling.n_units)
        made.append(warps)
    idle = np.zeros(-sum(len(m) for m in made) % WARPS, TASK)
    idle["op"] = NONE
    return np.concatenate([*made, idle])
