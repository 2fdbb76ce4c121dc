"""Expected counts of many cases at once; see `lanes`."""

from __future__ import annotations

from ....util.jit import compiled, inlined
from .. import records as rec
from ..records import Cases, CountedCells, LaneMemory, PosteriorCells, Records
from .lanes import chunk, fill_chunk, note_evidence, note_loss
from .vector import plain_arithmetic, restore_arithmetic


@compiled(allocates=False)
def _add_store(arena, store, lanes, i, states, weight, cells, count):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Add the distribution of one family in one case to the expected counts."""
    # store: See `records`
    # lanes, i: Lanes of the arena's tables, and the case's
    # states: (V,) int32: Observed states by rank
    # cells: See `CountedCells.cells`
    # count: Scratch memory, a number a loop
    to, at = store[rec.LOAD_FACTOR], rec.LOAD_FIELDS
    for _ in range(store[rec.LOAD_OBSERVED]):
        to += states[store[at]] * store[at + 1]
        at += 2
    if store[rec.LOAD_OUT] < 0:  # all observed
        cells[to] += weight
        return
    start, step = store[rec.LOAD_OUT], 1
    if store[rec.LOAD_OUT_EXP] != 0:
        start, step = start + i, lanes
    total = 0.0
    for c in range(store[rec.LOAD_CELLS]):
        total += arena[start + c * step]
    scale = weight / total if total > 0.0 else 0.0
    n_loops = store[rec.LOAD_LOOPS]
    for j in range(n_loops):
        count[j] = 0
    for c in range(store[rec.LOAD_CELLS]):
        cells[to] += arena[start + c * step] * scale
        for j in range(n_loops - 1, -1, -1):
            count[j] += 1
            if count[j] < store[at + 2 * j]:
                to += store[at + 2 * j + 1]
                break
            count[j] = 0
            to -= (store[at + 2 * j] - 1) * store[at + 2 * j + 1]


@compiled(allocates=False)
def _add_all(arena, code, lanes, i, states, weight, cells, count):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Add the distributions of all families in one case; `code`: `records.Records`; others see `_add_store`."""
    for p in range(len(code.store_ptr) - 1):
        store = code.stores[code.store_ptr[p] : code.store_ptr[p + 1]]
        _add_store(arena, store, lanes, i, states, weight, cells, count)


@compiled("f8[:], Records, i4[:], f8, f8[:], i8[:]")
def add_counts(arena, code, states, weight, cells, scratch):  # type: ignore[no-untyped-def]
    """Add the distributions of all families in the one case that a program has run for to the expected counts."""
    # code: Lowered for one lane
    # states: (V,) int32: Observed states by rank
    # cells: See `CountedCells.cells`
    # scratch: `workspace.KernelScratch.block`
    _add_all(arena, code, 1, 0, states, weight, cells, scratch[rec.SCRATCH_FIELDS:])


@compiled(allocates=False)
def _count_lanes(m, code, cases, out, limit, first, last):  # type: ignore[no-untyped-def]
    lanes, possible, always = len(m.dead), True, False
    for begin in range(first, last, lanes):
        n = min(lanes, last - begin)
        word = plain_arithmetic()
        fill_chunk(m, cases, begin, n)
        possible = possible and chunk(m, code, limit, begin == first, True)
        note_evidence(m, code.roots, cases, begin, n, possible)
        always = note_loss(cases, begin, n, begin == first, always)
        restore_arithmetic(word)
        for i in range(n):
            row = cases.rows[begin + i]
            weight = 0.0 if cases.lost[row] else out.weights[row]
            if not m.dead[i] and weight != 0.0:
                _add_all(m.arena, code, lanes, i, m.chunk[i], weight, out.cells, m.scratch[rec.SCRATCH_FIELDS:])


@compiled("LaneMemory, Records, Cases, CountedCells, i8, i8, i8")
def count_lanes(m, code, cases, out, limit, first, last):  # type: ignore[no-untyped-def]
    """`run_lanes` for expected counts, added in the order of the rows; without rows in which digits were lost."""
    # m, code, cases, limit, first, last: See `run_lanes`
    _count_lanes(m, code, cases, out, limit, first, last)
