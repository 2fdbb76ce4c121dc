"""Tables most of whose cells are observed: a warp a case (cuda/batch/warps.cuh).

An observed variable has one state, so a case's tables have no axis of it. With a tenth of the cells missing, networks
whose tables have 10 to 500 million products then need 2,000 to 20,000 a case. `WarpKernels.take` says for which tables
this pays; cases that take too much are left to records. `jtgpu.backends.gpu.counts.warps` counts the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device, Memory
from ....device.driver import Arguments, loaded_kernels
from ....device.structs import filled, struct
from ....plans.plan import Plan
from ..lower import Contraction, Lowered, lowered
from ..program.layout import scaled_factors
from ..program.records import NONE
from .buffers import GROUP, THREADS, Bound, Chunk
from .records import RecordProgram
from .table import Room

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .table import TableJob

WARPS = 4  # of a block
CAPACITY, PRODUCTS, EACH = 1 << 18, 1 << 16, 128  # most of a case of a warp; more products for each contraction
MOST_CELLS, MOST_PRODUCTS = 1 << 20, 1 << 23  # of a case of a block
FEW, MOST_FEW = 32, 256  # cases a piece of memory for such a case; most pieces
MOST_VARIABLES, MOST_STATES = 3000, 1 << 16
GAIN = 2.0  # least one
UNITS = 64.0  # of log2 of a number of states: integers of 16 bits, so that sums of them are exact
TABLE_BYTES = 16  # of a case's table, without its cells
IN_A, IN_B, IN_OUT, WEIGHED = 1 << 16, 1 << 17, 1 << 18, 1 << 19
STEP, PRODUCT = 1.2e-9, 1e-11  # seconds of a contraction and of a product, on an H100
BLOCK_STEP = 2e-8  # seconds of a contraction by a block
MOST_CASES, CHUNK_CELLS = 1 << 14, 1 << 31  # of a chunk
MOST_SHARED = 48 << 10  # bytes of a block
FITTING, SPARE = 0.95, 4  # share of the cases of a sample that shall have so many times the room that they need
LEAST_CAPACITY = 1 << 10
SAMPLE = 32  # cases that say what a table's cases observe
FEWER, SLACK = 8, 4.0  # every eighth of these comes first, and decides if it takes four times as long as records
MOST_MISSING = 0.8  # share of the cells of a table that suits
LEAST_SECONDS = 0.01  # of the other kernels, of a table for which this is considered
CELL = 2.5e-12  # seconds that a cell of a table costs by records, on an H100


class WarpSteps:
    """A plan's contractions in an order in which they can run."""
    # level: Of each step; steps of one level are independent
    # joint: The axes of each step
    # cells: (F + 1,) first cell of each factor

    def __init__(self, program: Lowered, level: Sequence[int]):
        self.plan = plan = program.plan
        self.steps, self.scopes, self.level = program.steps, program.scopes, np.array(level, np.int64)
        n, rank, scopes = plan.n_factors, plan.axis_rank, self.scopes
        self.joint = [sorted(set().union(*(scopes[t] for t in x.ins)), key=lambda v: int(rank[v])) for x in self.steps]
        self.cells = np.cumsum([0, *program.sizes[:n]])
        self.roots = np.array(program.roots, np.uint32)
        self.families = [(NONE, 0)] * n  # table of the derivative by each factor; table of its component's P(e)
        self.shared = plan.n_variables + 1  # words of a case in shared memory
        self.supported = bool(
            n and not plan.sets and plan.n_variables <= MOST_VARIABLES and 2 * self.cells[-1] < NONE
            and plan.cardinality.max(initial=1) < MOST_STATES
            and max(map(len, (*self.joint, *scopes[:n])), default=0) <= GROUP
        )  # fmt: skip

    def records(self) -> tuple[NDArray[Any], ...]:
        """Steps level by level, where levels begin, families, their axes, and axes of steps and families a lane."""
        plan, steps, scopes, n = self.plan, self.steps, self.scopes, self.plan.n_factors
        order = np.argsort(self.level, kind="stable")
        first = np.flatnonzero(np.diff(self.level[order], prepend=-1, append=-1)) if steps else np.zeros(1)
        made = np.array([(x.out, x.ins[0], x.ins[1] if len(x.ins) == 2 else NONE, 0) for x in steps], np.uint32)
        axes = np.zeros((len(steps) + n, GROUP, 2), np.uint32)
        axes[:, :, 0] = plan.n_variables  # a state that every case observes
        for i, k in enumerate(order.tolist()):
            inside = [scopes[t] for t in (*steps[k].ins, steps[k].out)]
            for lane, v in enumerate(self.joint[k]):
                flags = [bit for bit, scope in zip((IN_A, IN_B)[: len(inside) - 1], inside, strict=False) if v in scope]
                axes[i, lane, 0] = v | sum(flags) | (IN_OUT if v in inside[-1] else 0)
        of_families = []
        for f, (d, root) in enumerate(self.families):
            of_families.append((int(self.cells[f]), d, root, len(scopes[f])))
            for lane, v in enumerate(scopes[f]):
                flags = [IN_A | IN_OUT, IN_B * (d != NONE and v in scopes[d]), WEIGHED * (plan.evidence_factor[v] == f)]
                axes[len(steps) + f, lane] = v | int(sum(flags)), plan.size(scopes[f][lane + 1 :])
        most = max(map(len, scopes[:n]), default=0)
        by_axis = np.ascontiguousarray(axes[len(steps) :, :most].swapaxes(0, 1))
        return (
            made.reshape(-1, 4)[order], first.astype(np.uint32), np.array(of_families, np.uint32).reshape(-1, 4),
            by_axis, axes,
        )  # fmt: skip


def numbers_of(plan: Plan, factors: Sequence[NDArray[np.float64]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """All factors' cells, and the powers of two that multiply them."""
    scaled = list(scaled_factors(plan, factors))
    return np.concatenate([x for x, _ in scaled]), np.array([e for _, e in scaled], np.int32)


class Sizes:
    """Cells of some scopes without the variables that a case observes, rounded up a little."""

    def __init__(self, plan: Plan, scopes: Sequence[Sequence[int]]):
        self._logs = np.ceil(UNITS * np.log2(plan.cardinality)).astype(np.uint16)
        self._first = np.cumsum([0, *(len(x) + 1 for x in scopes)])[:-1]
        self._variables = np.array([v for x in scopes for v in (*x, plan.n_variables)], np.int64)

    def of(self, missing: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(scopes, n) for cases of which (V, n) says what they do not observe."""
        logs = np.zeros((len(missing) + 1, missing.shape[1]), np.uint16)
        np.multiply(missing, self._logs[:, None], out=logs[:-1])
        return np.exp2(np.add.reduceat(logs[self._variables], self._first, axis=0, dtype=np.uint16) / UNITS)


class TableSteps(WarpSteps):
    """A plan's contractions: messages to the roots, then the others. Step i makes table F + i."""

    def __init__(self, plan: Plan):
        program, n = lowered(plan), plan.n_factors
        self._up = program.needed(program.roots)
        order = sorted(range(len(program.steps)), key=lambda i: (i not in self._up, program.level[i]))
        self.number = {f: f for f in range(n)} | {program.steps[i].out: n + k for k, i in enumerate(order)}
        steps = [Contraction(self.number[x.out], tuple(self.number[t] for t in x.ins))
                 for x in (program.steps[i] for i in order)]  # fmt: skip
        scopes = [*program.scopes[:n], *(program.scopes[program.steps[i].out] for i in order)]
        behind = 1 + max(program.level, default=0)
        level = [program.level[i] + behind * (i not in self._up) for i in order]
        super().__init__(program.with_steps(steps, scopes, ()), level)
        self.n_up_levels = len({x for x in level if x < behind})
        self.roots = np.array([self.number[t] for t in self.roots.tolist()], np.uint32)
        self.shared += -(-(len(steps) - len(self._up)) // 32)
        self.supported &= 4 * WARPS * self.shared <= MOST_SHARED

    def room(self, missing: NDArray[np.bool_], whole: float) -> Room | None:
        """Room for each case of a table, some of which do not observe these variables; None: kernels that take `whole`
        seconds a case are quicker."""
        out, joint, factors = (x.of(missing) for x in (self._out, self._joint, self._factors))
        joint[len(self._up) :] *= out[len(self._up) :] > 1
        joint *= joint > 1
        factors *= factors > 1
        cells = (out * (out > 1)).sum(axis=0) + factors.sum(axis=0)
        products = joint.sum(axis=0) + factors.sum(axis=0)
        room = SPARE << int(np.frexp(np.sort(cells)[int(FITTING * (len(cells) - 1))])[1])
        room = min(max(room, LEAST_CAPACITY), CAPACITY)
        n_steps = np.count_nonzero(joint, axis=0) + np.count_nonzero(factors, axis=0)
        most = PRODUCTS + EACH * len(self.steps)
        if BLOCK_STEP * n_steps.mean() > PRODUCT * products.mean():  # blocks are slow
            most = max(most, SPARE * int(np.median(products)))
        most = min(1 << (most.bit_length() - 1), MOST_PRODUCTS)
        fits = (cells <= MOST_CELLS) & (products <= MOST_PRODUCTS)
        step = np.where((cells <= room) & (products <= most), STEP, BLOCK_STEP)
        seconds = step * n_steps + PRODUCT * products
        return Room(room, most) if np.where(fits, seconds, whole).mean() * GAIN <= whole else None

    @cached_property
    def _out(self) -> Sizes:
        return Sizes(self.plan, self.scopes[self.plan.n_factors :])

    @cached_property
    def _joint(self) -> Sizes:
        return Sizes(self.plan, self.joint)

    @cached_property
    def _factors(self) -> Sizes:
        return Sizes(self.plan, self.scopes[: self.plan.n_factors])


class CaseWarps:
    """Kernels of a warp a case, and a model's numbers, on one GPU. Used inside ``device.active()``."""
    # file, names: Of the kernels: that of a warp a case, that of a block for larger cases, and others

    kind = "warps"
    is_direct = True

    def __init__(
        self, steps: WarpSteps, factors: Sequence[NDArray[np.float64]], file: str, names: Sequence[str],
        device: Device, memory: Memory, stream: Any,
    ):  # fmt: skip
        self.steps, self.plan, self.device, self._names = steps, steps.plan, device, names
        cards, records = steps.plan.cardinality.astype(np.uint32), steps.records()
        self._n_levels = len(records[1]) - 1
        arrays = (*numbers_of(self.plan, factors), *records, cards, steps.roots)
        self._records = [memory.put(x, stream) for x in arrays]
        self._kernels = loaded_kernels(device, file, names)

    def reload(self, factors: Sequence[NDArray[np.float64]], stream: Any) -> None:
        """Replace the model's numbers."""
        for address, array in zip(self._records, numbers_of(self.plan, factors), strict=False):
            self.device.upload(address, array, stream)
        stream.synchronize()

    def bytes_of(self, room: int, most_cells: int) -> int:
        """Scratch memory of a case with so much room, and its share of that of larger cases."""
        return 8 * (room + most_cells // FEW) + TABLE_BYTES * len(self.steps.scopes)

    def takes(self, smallest: float) -> bool:
        """Whether weights as small as this (log2) can be represented: always, since tables are scaled."""
        return True

    def few(self, size: int) -> int:
        """Large cases of a chunk that are answered at the same time."""
        return max(min(size // FEW, MOST_FEW), 1)

    def cases(self, chunk: Any, scratch: Sequence[int], **fields: Any) -> NDArray[Any]:
        """struct Cases of a chunk."""
        # scratch: Of cells and tables
        names = ("factors", "exponents", "steps", "levels", "families", "scopes", "axes", "card", "roots")
        plan, steps = self.plan, self.steps
        of = dict(zip((*names, "cells", "tables"), (*self._records, *scratch), strict=True)) | fields
        return filled(
            struct("batch/warps.cuh", "Cases"), **of, n_variables=plan.n_variables, n_families=plan.n_factors,
            n_steps=len(steps.steps), n_tables=len(steps.scopes), n_roots=len(steps.roots), weights=chunk.weights,
            weight_row=chunk.weight_row, log_evidence=chunk.log_evidence, n_weights=chunk.n_weights, width=chunk.width,
        )  # fmt: skip

    def answer(
        self, cases: Any, large: tuple[int, int, int], more: NDArray[Any], few: int, stream: Any
    ) -> None:
        """Queue the kernel of all cases, and that of those which are too large for it, with memory of their own."""
        # large: cells, capacity and most products of the latter
        # few: of them at the same time
        larger = cases.copy()
        larger["cells"], larger["capacity"], larger["most_products"] = large
        both = ((-(-int(cases["n"]) // WARPS), WARPS * GROUP), cases, WARPS), ((few, THREADS), larger, 1)
        for name, (grid, of, at_once) in zip(self._names, both, strict=False):
            shared = 4 * at_once * self.steps.shared
            self._kernels.launch(name, *grid, stream, Arguments(of, more), shared=shared)

    def close(self) -> None:
        """The kernels stay loaded."""


class WarpTables(CaseWarps):
    """Tables of cases of a model on one GPU; see `Program`.

    A case that takes more than its `room` gets a block; one that takes much more gets NaN for ln P(e).
    """

    steps: TableSteps

    def __init__(
        self, steps: TableSteps, room: Room, factors: Sequence[NDArray[np.float64]], device: Device, memory: Memory,
        stream: Any,
    ):  # fmt: skip
        super().__init__(steps, factors, "batch/warp_tables", ("answer_cases", "answer_large"), device, memory, stream)
        self._room, self.case_bytes = room, self.bytes_of(room.cells, MOST_CELLS)
        self.most_cases = max(min(MOST_CASES, CHUNK_CELLS // room.cells), GROUP)

    @property
    def wave(self) -> int:
        """See `Program.wave`; warps start independently."""
        return GROUP

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, int]:
        cells = self._room.cells * size + MOST_CELLS * self.few(size)
        return memory.empty(8 * cells), memory.empty(TABLE_BYTES * len(self.steps.scopes) * size)

    def bind(
        self, chunk: Chunk, scratch: tuple[int, int], targets: Sequence[int], memory: Memory, stream: Any
    ) -> Bound:
        plan, steps = self.plan, self.steps
        answers = [(v, steps.number[int(plan.posterior_table[v])]) for v in targets]
        numbers = [(v | state << 16, t) for v, t in answers for state in range(int(plan.cardinality[v]))]
        n_out = len(numbers)
        wanted, cells = (memory.put(np.array(x, np.uint32).reshape(-1, 2), stream) for x in (answers, numbers))
        cases = self.cases(
            chunk, scratch, codes=chunk.states, of_case=0, counts=0, left=0, n=0, n_levels=steps.n_up_levels,
            capacity=self._room.cells, most_products=self._room.products, shift=0,
        )  # fmt: skip
        by_number, by_case, to = (1, n_out, chunk.rows) if chunk.rows else (chunk.size, 1, chunk.posterior)
        of = filled(
            struct("batch/warp_tables.cu", "Wanted"), columns=0 if chunk.rows else chunk.columns, answers=wanted,
            numbers=cells, posterior=to, by_number=by_number, by_case=by_case, n_columns=chunk.n_columns,
            stride=chunk.size, n_answers=len(answers), n_out=n_out, words=steps.shared,
            n_down=self._n_levels - steps.n_up_levels,
        )  # fmt: skip
        both = np.array((cases, of), [("cases", cases.dtype), ("wanted", of.dtype)])
        return Bound(both, len(answers))

    def queue(self, bound: Bound, stream: Any, n: int) -> None:
        both: Any = bound.struct
        cases, wanted = both["cases"].copy(), both["wanted"].copy()
        cases["n"] = n
        size = int(wanted["stride"])
        large = int(cases["cells"]) + 8 * self._room.cells * size, MOST_CELLS, MOST_PRODUCTS
        self.answer(cases, large, wanted, self.few(size), stream)


class WarpKernels:
    """A plan's kernels of a warp a case, and the tables for which they are quicker than the others."""
    # program: The kernels of all cases

    def __init__(self, program: RecordProgram):
        self._plan = program.plan
        self._whole = CELL * program.cost

    @cached_property
    def steps(self) -> TableSteps:
        """Their contractions, made for the first table that may need them."""
        return TableSteps(self._plan)

    def take(self, table: TableJob) -> bool:
        """Whether these kernels answer a table, whose room is set then: depends on the table alone."""
        if self._plan.sets or not table.n or table.n * self._whole < LEAST_SECONDS or not self.steps.supported:
            return False
        some = table.subset(np.arange(0, table.n, -(-table.n // SAMPLE)))
        missing = ~some.observed(range(self._plan.n_variables))
        if missing.mean() > MOST_MISSING or self.steps.room(missing[:, ::FEWER], SLACK * self._whole) is None:
            return False  # early: estimates for the whole sample take milliseconds
        room = self.steps.room(missing, self._whole)
        if room is not None:
            table.by_warps, table.room = True, room
        return room is not None

    def of_room(
        self, room: Room, factors: Sequence[NDArray[np.float64]], device: Device, memory: Memory, stream: Any
    ) -> WarpTables:
        """The kernels of a warp a case."""
        return WarpTables(self.steps, room, factors, device, memory, stream)
