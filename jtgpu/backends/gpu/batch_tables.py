"""Many cases at once by records: one copy of every table a case, a kernel a level (cuda/resident/batch.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plan import Plan
from ..device import Device
from .batch_live import Live, live_program
from .batch_sums import split_sums
from .driver import Arguments, Kernels
from .engine import Memory
from .records import ANSWER, CASE_FACTOR, OP, SLOT, STEP, TASK
from .schedule import Schedule, load_factors, make_schedule
from .shapes import BATCH_TILE, binary_program

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GROUP", "THREADS", "Bound", "Chunk", "TableProgram", "answers_of", "batch_layout", "rows_struct", "span_of"]

THREADS = 256
GROUP = 32  # cases of a warp
MOST_CASES = 1 << 14  # of a chunk
MOST_BLOCKS = 2**31 - 1
LIST_TERM, LIST_ROW, LIST_GAIN = 2.5, 14.0, 1.4  # a product and an output of a list against a tile's loads
LOOK = 40_000_000  # multiply-adds of a propagation up to which anybody looks for what is never zero
MOST_SPAN = 8  # groups of cases that a warp takes one after another
ENOUGH_WARPS = 132 * 16 * 4  # which keep a card busy, and even


@dataclass(frozen=True)
class BatchLayout:
    """The schedule of a batch, with tables renumbered: only what differs between cases has cells for every case."""

    schedule: Schedule
    n_cells: int  # of one case
    ops: NDArray[Any]
    factors: NDArray[Any]  # evidence factors
    table_cell: NDArray[np.int64]  # (T,) in a case's arena; -1: shared by all cases
    roots: NDArray[np.uint32]  # (components, 3) cell, table, whether shared
    tasks: NDArray[Any]
    levels: tuple[tuple[int, int, bool], ...]  # first task, tasks, whether all of them are rows of lists
    rows: NDArray[Any]  # of contractions that are lists: cell of the output, first term
    terms: NDArray[Any]  # cells of A and B


def batch_layout(plan: Plan, factors: Sequence[NDArray[np.float64]] | None = None) -> BatchLayout:
    """What the batch kernels read, but for the answers that are wanted; with `factors`, lists where they are shorter
    than tiles."""
    program = split_sums(plan, binary_program(plan))
    live = live_program(plan, factors, program) if factors is not None else None
    s = make_schedule(plan, "batch", program=program)
    where = np.full(s.n_tables, -1, np.int64)
    at = 0
    own = sorted({int(t) for t in plan.evidence_factor} | set(range(s.n_factors, s.n_tables - 1)))
    for t in own:
        where[t] = at
        at += int(s.table_size[t])
    ops = s.ops.copy()
    for side, bit in (("a", 1), ("b", 2)):
        table = ops[f"slot_{side}"]
        shared = where[table] < 0
        ops["pad"] |= np.where(shared, bit, 0).astype(np.uint32)
        ops[side] = np.where(shared, s.table_cell[table], where[table])
    # the single 1 lies behind the factors
    for side in ("a", "b"):
        ops[side][ops[f"slot_{side}"] == s.n_tables - 1] = s.factor_cells
    ops["out"] = where[ops["slot_out"]]
    first = s.chunks[s.chunks["from"] == 0]
    holders = np.zeros(len(first), CASE_FACTOR)
    for name in ("cell", "table", "known", "n_known"):
        holders[name] = first[name]
    holders["n"], holders["to"] = s.table_size[first["table"]], where[first["table"]]
    roots = [(int(s.table_cell[t]) if where[t] < 0 else where[t], t, where[t] < 0) for t in plan.root_table.tolist()]
    lists = chosen_lists(live, s) if live is not None else np.zeros(len(ops), np.bool_)
    rows, terms = _write_lists(live, lists, ops) if live is not None else (np.zeros(1, STEP), np.zeros(1, STEP))
    tasks, levels = _tasks(s, ops)
    return BatchLayout(
        s, at, ops.astype(OP), holders, where, np.array(roots, np.uint32).reshape(-1, 3), tasks, levels, rows, terms
    )


def chosen_lists(live: Live, s: Schedule) -> NDArray[np.bool_]:
    """Which contractions are run as lists: those whose live products are fewer than what their tiles load."""
    outs = np.array([int(live.live(x.out).sum()) for x in live.program.steps])
    tm, tn = (s.ops["shape"] // 8).astype(np.int64), (s.ops["shape"] % 8).astype(np.int64)
    tiled = s.ops["n_tiles"].astype(np.int64) * (s.ops["n_steps"] * (tm + tn) + tm * tn + BATCH_TILE)
    pays: NDArray[np.bool_] = np.less(LIST_TERM * live.count + LIST_ROW * outs, LIST_GAIN * tiled)
    return pays & np.array([len(x.ins) == 2 for x in live.program.steps], np.bool_)


def _write_lists(
    live: Live, lists: NDArray[np.bool_], ops: NDArray[Any]
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """The lists, and their contractions' records changed to say so. A table that a tile reads needs all its cells."""
    steps, sizes = live.program.steps, [len(x) for x in live.support]
    needed = [np.zeros(n, np.bool_) for n in sizes]
    posteriors = {s.out for s in steps if s.posterior}
    read = {t for s in steps for t in s.ins}
    rows: list[NDArray[np.void]] = []
    terms: list[NDArray[np.void]] = []
    n_rows = n_terms = 0
    for i in range(len(steps) - 1, -1, -1):
        s = steps[i]
        if s.out in posteriors or s.out not in read:
            needed[s.out][:] = True
        if not lists[i]:
            for t in s.ins:
                needed[t][:] = True
            continue
        found = live.terms(i, needed[s.out])
        needed[s.ins[0]][found.a] = True
        needed[s.ins[1]][found.b] = True
        cells = np.flatnonzero(needed[s.out])
        here = np.zeros(len(cells) + 1, STEP)
        here["a"][:-1] = cells
        here["b"] = n_terms + np.searchsorted(found.out, np.append(cells, sizes[s.out]))
        made = np.zeros(len(found.out), STEP)
        made["a"], made["b"] = (found.a, found.b) if ops["slot_a"][i] == s.ins[0] else (found.b, found.a)
        ops["shape"][i], ops["digits"][i], ops["n_tiles"][i] = 0, n_rows, len(cells)
        rows.append(here)
        terms.append(made)
        n_rows, n_terms = n_rows + len(here), n_terms + len(made)
    empty = np.zeros(1, STEP)
    return np.concatenate([*rows, empty]), np.concatenate([*terms, empty])


def _tasks(s: Schedule, ops: NDArray[Any]) -> tuple[NDArray[Any], tuple[tuple[int, int, bool], ...]]:
    """Tasks of every level: a tile or a row of a list each, the longest first."""
    made, levels, first = [], [], 0
    work = ops["n_steps"].astype(np.int64)
    for level in s.levels:
        members = np.unique(s.tasks["op"][level.first : level.first + level.n_blocks])
        members = members[np.argsort(-work[members], kind="stable")]
        counts = ops["n_tiles"][members].astype(np.int64)
        here = np.zeros(int(counts.sum()), TASK)
        here["op"] = np.repeat(members, counts)
        here["unit"] = np.arange(len(here)) - np.repeat(np.cumsum(counts) - counts, counts)
        made.append(here)
        levels.append((first, len(here), bool((ops["shape"][members] == 0).all())))
        first += len(here)
    return (np.concatenate(made) if made else np.zeros(0, TASK)), tuple(levels)


def answers_of(plan: Plan, layout: BatchLayout, targets: Sequence[int]) -> tuple[NDArray[Any], int]:
    """The posteriors that are wanted, one variable after another, and their cells in all."""
    made, at = [], 0
    for v in targets:
        card = int(plan.cardinality[v])
        made.append((int(layout.table_cell[plan.posterior_table[v]]), card, at))
        at += card
    return np.array(made, ANSWER), at


@dataclass(frozen=True)
class Chunk:
    """Where a chunk's evidence and answers lie on the card."""

    size: int  # cases, a multiple of GROUP
    n_weights: int
    states: int  # address of (size, V) int32
    weights: int  # address of (size, n_weights) float64
    state: int  # the same, (V, size)
    weight: int  # the same, (n_weights, size)
    posterior: int  # address of (size, n_out) float64
    log_evidence: int  # address of (size,) float64


@dataclass(frozen=True)
class Bound:
    """The parameters of a chunk's kernels."""

    rows: NDArray[np.uint64]
    struct: NDArray[np.uint64]
    n_turned: int  # numbers that are put into case-minor order
    size: int
    n_answers: int


def rows_struct(chunk: Chunk, n_variables: int) -> NDArray[np.uint64]:
    """struct Rows."""
    counts = np.array([chunk.size, n_variables, chunk.n_weights, 0], np.uint32)
    words = np.array([chunk.states, chunk.weights, chunk.state, chunk.weight], np.uint64)
    return np.concatenate([words, counts.view(np.uint64)])


def span_of(n_tasks: int, groups: int) -> int:
    """Groups of cases that a warp takes where there are only lists: as many as leave the card busy. (Tiles lose up
    to five times that way, on Link: tiles that run at the same time then share less in L2.)"""
    return max(1, min(MOST_SPAN, groups, n_tasks * groups // ENOUGH_WARPS))


class TableProgram:
    """A plan and a model's numbers on one card, by records. Used inside ``device.active()``."""

    kind = "tables"

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        device: Device,
        memory: Memory,
        stream: Any,
    ):
        self.plan = plan
        self.layout = layout = batch_layout(plan, factors if plan.cost().flops <= 2 * LOOK else None)
        s = self.layout.schedule
        pristine, slots = load_factors(plan, s, factors)
        kept = (np.append(pristine, 1.0), slots.astype(SLOT), layout.ops, s.digits, s.steps, layout.tasks)
        more = (layout.rows, layout.terms, layout.factors, s.known, layout.roots)
        self._records = [memory.put(x, stream) for x in (*kept, *more)]
        names = ("batch_turn", "batch_enter", "batch_level", "batch_finish")
        self._kernels = Kernels(device, "resident/batch", names)

    @property
    def case_bytes(self) -> int:
        """Scratch memory of a case."""
        return 8 * (self.layout.n_cells + self.layout.schedule.n_tables)

    @property
    def most_cases(self) -> int:
        """Of a chunk."""
        most_tiles = max((n for _, n, _ in self.layout.levels), default=1)
        return min(MOST_CASES, MOST_BLOCKS // most_tiles // GROUP * GROUP)

    def takes(self, smallest: float) -> bool:
        """Whether weights so small (log2) leave every number in range: always, for tables are scaled."""
        return True

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, int]:
        """Memory that all chunks of a size use one after another."""
        slots = np.zeros((self.layout.schedule.n_tables, size), SLOT)
        return memory.empty(8 * self.layout.n_cells * size), memory.put(slots, stream)

    def bind(
        self, chunk: Chunk, scratch: tuple[int, int], targets: Sequence[int], weight_row: int, memory: Memory,
        stream: Any,
    ) -> Bound:  # fmt: skip
        """The kernels' parameters for a chunk."""
        s = self.layout.schedule
        answers, n_out = answers_of(self.plan, self.layout, targets)
        pristine, shared, ops, digits, steps, tasks, rows, terms, factors, known, roots = self._records
        words = [scratch[0], pristine, scratch[1], shared, ops, digits, steps, tasks, rows, terms, factors, known]
        words += [chunk.state, chunk.weight, weight_row, memory.put(answers, stream), roots]
        words += [chunk.posterior, chunk.log_evidence]
        counts = [chunk.size, len(self.layout.factors), len(answers), len(self.layout.roots), n_out, s.n_tables]
        struct = np.concatenate([np.array(words, np.uint64), np.array(counts, np.uint32).view(np.uint64)])
        turned = self.plan.n_variables + chunk.n_weights
        return Bound(rows_struct(chunk, self.plan.n_variables), struct, turned, chunk.size, len(answers))

    def queue(self, bound: Bound, stream: Any) -> None:
        """Queue one chunk's kernels."""
        groups, whole = bound.size // GROUP, Arguments(bound.struct)

        def call(name: str, warps: int, arguments: Arguments) -> None:
            self._kernels.launch(name, -(-warps * groups * GROUP // THREADS), THREADS, stream, arguments)

        call("batch_turn", bound.n_turned, Arguments(bound.rows))
        if len(self.layout.factors):
            call("batch_enter", len(self.layout.factors), whole)
        for first, n_tasks, lists in self.layout.levels:
            span = span_of(n_tasks, groups) if lists else 1
            warps = n_tasks * -(-groups // span)
            arguments = Arguments(bound.struct, first, n_tasks, span)
            self._kernels.launch("batch_level", -(-warps * GROUP // THREADS), THREADS, stream, arguments)
        call("batch_finish", bound.n_answers + 1, whole)

    def close(self) -> None:
        """Unload the kernels."""
        self._kernels.close()
