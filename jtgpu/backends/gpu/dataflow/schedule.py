"""From a plan to what cuda/single/dataflow.cu reads: the work graph of a propagation, assigned to warps' queues.

Arrays only; knows no device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....plans.plan import Plan
from ..lower import Lowered, lowered
from ..program.layout import least_root, scaled_factors
from ..program.records import KNOWN
from ..tile import REFERENCE_SMS
from .assignment import assign, critical_paths, hints, queues
from .graph import RestrictedFactors, WorkGraph, choose_tilings
from .tiling import MAX_WARPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .assignment import Assigned

MAX_VARIABLES = 1792  # their states are a parameter of the kernel, of 4 KB in all
MAX_CELLS = 1 << 27  # of the plan's tables; with more, a level fills the GPU and the level engine is as quick
MAX_OPERATIONS = 1_000_000_000  # of a propagation; with more, making the schedule takes many seconds
MAX_LOG2_ROOT = -300.0  # a schedule is made only if all P(e) from 2^this on need no scaling
RESERVED = (0, 4)  # warps of a block that only the critical path uses: the numbers that the simulation compares
LONG_BATCHES_GAIN = 0.9  # share of the time that longer batches may leave: they load entries that are not needed
# Of the time model, microseconds on an H100: before the first unit and after the last; and what the simulation omits
# (everything else on the GPU, the slowest of hundreds of units), as a factor.
START_US, CONTENTION = 6.0, 1.45


@dataclass(frozen=True)
class DataflowNumbers:
    """The model's numbers on the device; the rest of a `DataflowSchedule` depends on the plan alone."""

    # (cells,) float64: First cells of the arena before the first run: the factors, and last the constant 1
    arena: NDArray[np.float64]
    pristine: NDArray[np.float64]  # (P,) float64: Evidence factors
    exponent: int  # power of two that was divided out of the factors
    least_root: float  # below this P(e), doubles without scaling are not reliable; inf if they may overflow


@dataclass(frozen=True)
class DataflowSchedule:
    """The input of the kernel."""

    n_cells: int  # of the arena
    n_states: int  # variables whose states a run is given
    ops: NDArray[Any]  # (N,) OP: One record a node of the work graph
    # digits, steps: See `jtgpu.backends.gpu.program.records`
    digits: NDArray[Any]
    steps: NDArray[Any]
    tasks: NDArray[Any]  # (U,) TASK: Warp after warp
    starts: NDArray[np.uint32]  # (warps + 1,) uint32: First task of each warp; number ``block * warps + warp``
    known: NDArray[Any]  # (K,) KNOWN
    roots: NDArray[np.uint32]  # (components, 2) uint32: Cell of P(e); all ones if every run writes it, else 0
    factor_cell: NDArray[np.int64]  # (F,) int64: First cell of each factor
    one: int  # cell of the constant 1, the last one that no run writes
    pristine_factors: tuple[int, ...]  # tuple of int: The factors that ``pristine`` consists of
    numbers: DataflowNumbers
    microseconds: float  # predicted time of a propagation on the device

    @property
    def n_blocks(self) -> int:
        """Blocks that must be on the device at once."""
        return (len(self.starts) - 1) // MAX_WARPS


@dataclass(frozen=True)
class _Candidate:
    """One way to lay out the work, and when it ends by the simulation."""

    graph: WorkGraph
    assigned: Assigned
    ends: list[float]  # of every node
    end: float


def make_schedule(
    plan: Plan,
    factors: Sequence[NDArray[np.float64]],
    n_blocks: int,
    restricted: RestrictedFactors | None = None,
) -> DataflowSchedule | None:
    """Assign a plan's work to warps."""
    # factors: sequence of float64 arrays: With `restricted`, its ``largest``
    # n_blocks: Blocks, one a multiprocessor
    # restricted: If the plan is one of the unobserved variables: what its factors are selected from in every run
    # returns None if the engine does not support the plan: too many variables or cells, or doubles without scaling are
    #     not reliable.
    n_states = plan.n_variables if restricted is None else len(restricted.observed)
    if not _fits(plan, n_states):
        return None
    program = lowered(plan)
    scaled, shifts = zip(*scaled_factors(plan, factors), strict=True)
    bound = least_root(program, scaled)
    if bound > MAX_LOG2_ROOT:
        return None
    default, longer = (_candidate(program, restricted, n_blocks, x) for x in (False, True))
    work = longer if longer.end < LONG_BATCHES_GAIN * default.end else default
    graph = work.graph
    tasks, starts = queues(work.assigned, n_blocks * MAX_WARPS)
    ops, digits, steps = graph.records()
    ops["counter"] = hints(graph.nodes, work.ends)
    factor_cell = np.array(graph.cells[: plan.n_factors], np.int64)
    pristine = [scaled[f] for f in graph.pristine]
    if restricted is not None:
        pristine = [np.ldexp(restricted.tables[f].ravel(), -shifts[f]) for f in graph.pristine]
    return DataflowSchedule(
        n_cells=graph.n_cells,
        n_states=n_states,
        ops=ops,
        digits=digits,
        steps=steps,
        tasks=tasks,
        starts=starts,
        known=np.array(graph.known, KNOWN),
        roots=np.array([(graph.cells[t], graph.awaited(t)) for t in plan.root_table.tolist()], np.uint32),
        factor_cell=factor_cell,
        one=graph.one,
        pristine_factors=tuple(graph.pristine),
        numbers=_numbers(scaled, shifts, bound, pristine, (factor_cell, graph.one)),
        microseconds=START_US + CONTENTION * work.end,
    )


def _fits(plan: Plan, n_states: int) -> bool:
    """Whether the kernel supports a plan of this size, and its schedule is made in seconds."""
    n_cells, n_operations = int(plan.arena_cells[0]), plan.cost().flops
    fits = n_states <= MAX_VARIABLES and n_cells <= MAX_CELLS and n_operations <= MAX_OPERATIONS
    return fits and len(plan.op_out) > 0


def _candidate(
    program: Lowered, restricted: RestrictedFactors | None, n_blocks: int, long_batches: bool
) -> _Candidate:
    """The work graph with or without longer batches of loads, assigned with the better number of reserved warps."""
    scale = REFERENCE_SMS / n_blocks
    graph = WorkGraph(program, restricted, choose_tilings(program, long_batches, scale))
    paths = critical_paths([x.ins for x in graph.nodes], [x.unit.latency for x in graph.nodes])
    made = (assign(graph.nodes, n_blocks, paths, n) for n in RESERVED)
    assigned, ends = min(made, key=lambda x: max(x[1]))
    return _Candidate(graph, assigned, ends, max(max(ends), scale * sum(n.unit.share for n in graph.nodes)))


def make_numbers(plan: Plan, schedule: DataflowSchedule, factors: Sequence[NDArray[np.float64]]) -> DataflowNumbers:
    """The numbers on the device for other factors of the same shapes; not for a schedule of restricted factors."""
    scaled, shifts = zip(*scaled_factors(plan, factors), strict=True)
    bound = least_root(lowered(plan), scaled)
    pristine = (scaled[f] for f in schedule.pristine_factors)
    return _numbers(scaled, shifts, bound, pristine, (schedule.factor_cell, schedule.one))


def _numbers(
    scaled: Sequence[NDArray[np.float64]], shifts: Sequence[int], bound: float, pristine: Iterable[NDArray[np.float64]],
    cells: tuple[NDArray[np.int64], int],
) -> DataflowNumbers:  # fmt: skip
    """The device's numbers before the first run."""
    # cells: First ones of the factors, and that of the constant 1
    arena = np.zeros(cells[1] + 1)
    for at, table in zip(cells[0].tolist(), scaled, strict=True):
        arena[at : at + len(table)] = table
    arena[-1] = 1.0
    least = math.inf if bound > MAX_LOG2_ROOT else math.ldexp(1.0, math.ceil(bound))
    return DataflowNumbers(arena, np.concatenate([np.zeros(0), *pristine]), sum(shifts), least)
