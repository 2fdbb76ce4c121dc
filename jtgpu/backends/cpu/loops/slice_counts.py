"""Expected counts of slices, between messages that have passed them; see `jtgpu.backends.cpu.slices`."""

from __future__ import annotations

import math

from ....util.jit import compiled, inlined
from .. import records as rec
from ..records import LaneMemory, Records
from ..slice_records import LaneCounts, Passing, Slices
from .lanes import chunk
from .slices import fill, weigh
from .vector import LANES as WIDE
from .vector import (
    add,
    fma,
    load,
    lost_digits,
    peek,
    peek_int,
    plain_arithmetic,
    poke,
    restore_arithmetic,
    splat,
    store,
    total,
    zero,
)

LEAST = -900  # log2 of P of a slice between its messages from which on nothing that is too small changes counts


@inlined
def _share(m, family, out):  # type: ignore[no-untyped-def]
    """Write the weight of each lane over the sum of a family's table to `top`."""
    lanes, arena, start, size = len(m.dead), m.arena.ctypes.data, family[rec.LOAD_OUT], family[rec.LOAD_CELLS]
    for i in range(0, lanes, WIDE):
        sums = zero()
        for c in range(size):
            if family[rec.LOAD_OUT_EXP] != 0:
                sums = add(sums, load(arena, start + c * lanes + i, WIDE))
            else:
                sums = add(sums, splat(peek(arena, start + c)))
        store(m.top.ctypes.data, i, WIDE, sums)
    for i in range(lanes):
        m.top[i] = out.scale[i] / m.top[i] if m.top[i] > 0.0 else 0.0


@inlined
def _add_cell(m, family, out, c, offset):  # type: ignore[no-untyped-def]
    """Add one cell of a family's table, times `top`, to the counts of the family's cell, in every lane."""
    lanes, arena, cells, top = len(m.dead), m.arena.ctypes.data, out.cells.ctypes.data, m.top.ctypes.data
    start, by_case = family[rec.LOAD_OUT], family[rec.LOAD_OUT_EXP] != 0
    if family[rec.LOAD_OBSERVED] > 0:
        for i in range(lanes):
            x = peek(arena, start + c * lanes + i) if by_case else peek(arena, start + c)
            place = peek_int(m.source.ctypes.data, i) + offset
            poke(cells, place, peek(cells, place) + x * peek(top, i))
    else:
        sums, place = zero(), family[rec.LOAD_FACTOR] + offset
        for i in range(0, lanes, WIDE):
            x = load(arena, start + c * lanes + i, WIDE) if by_case else splat(peek(arena, start + c))
            sums = fma(x, load(top, i, WIDE), sums)
        poke(cells, place, peek(cells, place) + total(sums))


@inlined
def _add_lanes(m, family, out, count):  # type: ignore[no-untyped-def]
    """Add the distributions of one family in all lanes to the expected counts; see `lane_counts`."""
    # family: A store, see `records`
    # count: Scratch memory, a number a loop
    lanes, cells = len(m.dead), out.cells.ctypes.data
    for i in range(lanes):
        m.source[i] = family[rec.LOAD_FACTOR]
    at = rec.LOAD_FIELDS
    for _ in range(family[rec.LOAD_OBSERVED]):
        v, step = family[at], family[at + 1]
        for i in range(lanes):
            m.source[i] += m.chunk[i, v] * step
        at += 2
    if family[rec.LOAD_OUT] < 0:  # all observed
        for i in range(lanes):
            poke(cells, m.source[i], peek(cells, m.source[i]) + out.scale[i])
        return
    _share(m, family, out)
    n_loops = family[rec.LOAD_LOOPS]
    for j in range(n_loops):
        count[j] = 0
    offset = 0
    for c in range(family[rec.LOAD_CELLS]):
        _add_cell(m, family, out, c, offset)
        for j in range(n_loops - 1, -1, -1):
            count[j] += 1
            if count[j] < family[at + 2 * j]:
                offset += family[at + 2 * j + 1]
                break
            count[j] = 0
            offset -= (family[at + 2 * j] - 1) * family[at + 2 * j + 1]


@inlined
def _note_loss(m, code, p):  # type: ignore[no-untyped-def]
    """Note the lanes in which numbers that were too small may change counts."""
    for i in range(len(m.dead)):
        value, exponent = 1.0, 0
        for r in range(len(code.roots)):
            value, shift = math.frexp(value * m.arena[code.roots[r, 0] + (i if code.roots[r, 2] > 0 else 0)])
            exponent += shift
            if m.scaled[code.roots[r, 1]]:
                exponent += m.exponent[code.roots[r, 1], i]
        p.unsure[i] |= not (value > 0.0 and exponent > LEAST)


@compiled(allocates=False)
def _add_counts(m, code, s, p, out, limit, begin, end):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    lanes, first, word = len(m.dead), True, plain_arithmetic()
    for t in range(end - 1, begin - 1, -1):
        fill(m, s, p, p.later[t - p.base], t)
        weigh(m, p, p.kept[t - p.base])
        chunk(m, code, limit, first, True)
        first = False
        if lost_digits():
            _note_loss(m, code, p)
        for i in range(lanes):
            used = t < s.lengths[i] and p.failed[i] < 0 and not m.dead[i]
            out.scale[i] = out.weights[i] if used else 0.0
        for j in range(len(code.store_ptr) - 1):
            family = code.stores[code.store_ptr[j] : code.store_ptr[j + 1]]
            _add_lanes(m, family, out, m.scratch[rec.SCRATCH_FIELDS :])
    restore_arithmetic(word)


@compiled("LaneMemory, Records, Slices, Passing, LaneCounts, i8, i8, i8")
def add_counts(m, code, s, p, out, limit, begin, end):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Add the expected counts of slice ``end - 1`` to slice `begin`, between the messages in `p.kept` and `p.later`."""
    # code: Lowered for L lanes; has the distributions of all families
    _add_counts(m, code, s, p, out, limit, begin, end)
