"""Factors copied for all lanes of a table of cases, and rows of lanes; see `jtgpu.backends.cpu.records`."""

from __future__ import annotations

from ....util.jit import inlined
from .. import records as rec
from .vector import LANES as WIDE
from .vector import fma, gather, load, peek, poke, splat, store, zero


@inlined
def copy_row(base, to, n, source, at):  # type: ignore[no-untyped-def]
    """Copy n float64, a multiple of eight, from ``source[at]`` to ``base[to]``; memory is given by address."""
    for i in range(0, n, WIDE):
        store(base, to + i, WIDE, load(source, at + i, WIDE))


@inlined
def times_row(base, to, n, source, at):  # type: ignore[no-untyped-def]
    """Multiply n float64 from ``source[at]`` into ``base[to]``; see `copy_row`."""
    whole = n - n % WIDE
    for i in range(0, whole, WIDE):
        store(base, to + i, WIDE, fma(load(base, to + i, WIDE), load(source, at + i, WIDE), zero()))
    for i in range(whole, n):
        poke(base, to + i, peek(base, to + i) * peek(source, at + i))


@inlined
def fill_row(base, to, n, x):  # type: ignore[no-untyped-def]
    """Write x to n float64 from ``base[to]`` on; see `copy_row`."""
    whole = n - n % WIDE
    for i in range(0, whole, WIDE):
        store(base, to + i, WIDE, splat(x))
    for i in range(whole, n):
        poke(base, to + i, x)


@inlined
def _copy_lanes(arena, load, states, lanes, source, count):  # type: ignore[no-untyped-def]
    """Copy the cells of a factor that agree with each lane's states; parameters as for `load_lanes`."""
    to, at = load[rec.LOAD_OUT], rec.LOAD_FIELDS
    for i in range(lanes):
        source[i] = load[rec.LOAD_FACTOR]
    for _ in range(load[rec.LOAD_OBSERVED]):
        v, step = load[at], load[at + 1]
        for i in range(lanes):
            source[i] += states[i, v] * step
        at += 2
    n_loops = load[rec.LOAD_LOOPS]
    for j in range(n_loops):
        count[j] = 0
    offset, observed, cells, own = 0, load[rec.LOAD_OBSERVED] > 0, arena.ctypes.data, source.ctypes.data
    for c in range(load[rec.LOAD_CELLS]):
        first = to + c * lanes
        if observed:
            for i in range(0, lanes, WIDE):
                store(cells, first + i, WIDE, gather(cells, offset, own + 8 * i))
        else:
            fill_row(cells, first, lanes, peek(cells, load[rec.LOAD_FACTOR] + offset))
        for j in range(n_loops - 1, -1, -1):
            count[j] += 1
            if count[j] < load[at + 2 * j]:
                offset += load[at + 2 * j + 1]
                break
            count[j] = 0
            offset -= (load[at + 2 * j] - 1) * load[at + 2 * j + 1]


@inlined
def _weigh_cells(m, row):  # type: ignore[no-untyped-def]
    """Copy a factor of one set variable, times its weights."""
    lanes, arena, weights = len(m.dead), m.arena.ctypes.data, m.weights.ctypes.data
    step, first = row[rec.LOAD_FIELDS + 1], m.weight_ptr[row[rec.LOAD_FIELDS + 2]]
    for c in range(row[rec.LOAD_CELLS]):
        x, at = splat(peek(arena, row[rec.LOAD_FACTOR] + c * step)), c * lanes
        for i in range(at, at + lanes, WIDE):
            store(arena, row[rec.LOAD_OUT] + i, WIDE, fma(load(weights, first + i, WIDE), x, zero()))


@inlined
def load_lanes(m, load):  # type: ignore[no-untyped-def]
    """Copy a factor for every lane, restricted to the lane's states and weighed."""
    # load: See `records`
    lanes, to = len(m.dead), load[rec.LOAD_OUT]
    one_row = load[rec.LOAD_OBSERVED] == 0 and load[rec.LOAD_LOOPS] == 1 and load[rec.LOAD_WEIGHTS] == 1
    if one_row and load[rec.LOAD_FIELDS + 4] == 0:
        _weigh_cells(m, load)
        return
    _copy_lanes(m.arena, load, m.chunk, lanes, m.source, m.scratch[rec.SCRATCH_FIELDS:])
    at = rec.LOAD_FIELDS + 2 * (load[rec.LOAD_OBSERVED] + load[rec.LOAD_LOOPS])
    arena, weights, factor = m.arena.ctypes.data, m.weights.ctypes.data, m.factor.ctypes.data
    for _ in range(load[rec.LOAD_WEIGHTS]):
        v, card, inner = load[at], load[at + 1], load[at + 2]
        first = m.weight_ptr[v]
        at += 3
        if inner == 0:  # of a set variable
            times_row(arena, to, load[rec.LOAD_CELLS] * lanes, weights, first)
            continue
        observed = first < 0
        for i in range(lanes):
            observed = observed or m.chunk[i, v] >= 0
        if observed:
            for d in range(card):
                for i in range(lanes):
                    state = m.chunk[i, v]
                    w = 1.0 if state < 0 or state == d else 0.0
                    if first >= 0:
                        w *= peek(weights, first + d * lanes + i)
                    poke(factor, d * lanes + i, w)
            weights_of, first = factor, 0
        else:
            weights_of = weights
        d, left = 0, inner
        for c in range(load[rec.LOAD_CELLS]):
            times_row(arena, to + c * lanes, lanes, weights_of, first + d * lanes)
            left -= 1
            if left == 0:
                left = inner
                d = 0 if d + 1 == card else d + 1
