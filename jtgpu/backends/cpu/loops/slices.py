"""Messages through the slices of a dynamic network; see `jtgpu.backends.cpu.slices`."""

from __future__ import annotations

import math

from ....util.jit import compiled, inlined
from ..records import LaneMemory, Records
from ..slice_records import Marginals, Passing, Slices
from .lane_loads import copy_row, fill_row, times_row
from .lanes import chunk
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
    zero,
)

# A message has the sum 1. Products that are too small for a number change it by less than TINY an entry: CPTs enlarge
# no error, dividing by P of a slice does. As long as the bound that this gives is below MOST_LOST, answers are right.
TINY = 2.0**-1021
MOST_LOST = 2.0**-42
SMALL, LARGE = 2.0**-256, 2.0**256
LOW, HIGH = 2.0**-200, 2.0**200  # of P of a slice whose tables need no bounds


@inlined
def fill(m, s, p, message, t):  # type: ignore[no-untyped-def]
    """Copy states, likelihoods and a message of slice t to the lanes; those that have ended repeat their last row."""
    lanes = len(m.dead)
    for i in range(lanes):
        m.dead[i] = False
        m.source[i] = s.first[i] + min(t, max(s.lengths[i] - 1, 0))
    for j in range(len(s.ranks)):
        r, column = s.ranks[j], s.columns[j]
        for i in range(lanes):
            m.chunk[i, r] = s.codes[m.source[i], column]
    weights = m.weights.ctypes.data
    for c in range(s.weights.shape[1]):
        for i in range(lanes):
            poke(weights, c * lanes + i, s.weights[m.source[i], c])
    into, times = p.numbers[0], p.numbers[1]
    for c in range(len(p.source)):
        first = (into + p.source[c]) * lanes
        copy_row(weights, first, lanes, message.ctypes.data, c * lanes)
        if times >= 0:
            times_row(weights, first, lanes, weights, (times + p.source[c]) * lanes)


@inlined
def sum_cells(m, code, p):  # type: ignore[no-untyped-def]
    """Write the sum of the answer's cells to `top`, lane by lane."""
    lanes, cell, top = len(m.dead), code.answers[0, 1], m.top.ctypes.data
    arena, n, i = m.arena.ctypes.data, len(p.target), 0
    if code.answers[0, 2] == 0:
        sum_ = 0.0
        for c in range(n):
            sum_ += peek(arena, cell + p.target[c])
        fill_row(top, 0, lanes, sum_)
        return
    while i + 4 * WIDE <= lanes:
        x0 = x1 = x2 = x3 = zero()
        for c in range(n):
            at = cell + p.target[c] * lanes + i
            x0, x1 = add(x0, load(arena, at, WIDE)), add(x1, load(arena, at + WIDE, WIDE))
            x2, x3 = add(x2, load(arena, at + 2 * WIDE, WIDE)), add(x3, load(arena, at + 3 * WIDE, WIDE))
        store(top, i, WIDE, x0)
        store(top, i + WIDE, WIDE, x1)
        store(top, i + 2 * WIDE, WIDE, x2)
        store(top, i + 3 * WIDE, WIDE, x3)
        i += 4 * WIDE
    while i < lanes:
        x0 = zero()
        for c in range(n):
            x0 = add(x0, load(arena, cell + p.target[c] * lanes + i, WIDE))
        store(top, i, WIDE, x0)
        i += WIDE


@inlined
def take(m, code, p):  # type: ignore[no-untyped-def]
    """The answer of the slice over its sum, `top`, becomes the message; zeros in dead lanes, ones in failed ones."""
    lanes, cell, by_case, failed = len(m.dead), code.answers[0, 1], code.answers[0, 2] != 0, False
    arena, message, top = m.arena.ctypes.data, p.message.ctypes.data, m.top.ctypes.data
    for i in range(lanes):
        failed |= p.failed[i] >= 0
        m.top[i] = 0.0 if m.dead[i] or m.top[i] == 0.0 else 1.0 / m.top[i]
    for c in range(len(p.target)):
        for i in range(0, lanes, WIDE):
            if by_case:
                x = load(arena, cell + p.target[c] * lanes + i, WIDE)
            else:
                x = splat(peek(arena, cell + p.target[c]))
            store(message, c * lanes + i, WIDE, fma(x, load(top, i, WIDE), zero()))
    if failed:  # with a probability of the next slice: no lane slows the others down
        for i in range(lanes):
            if p.failed[i] >= 0:
                for c in range(len(p.target)):
                    p.message[c, i] = 1.0


@inlined
def is_far(m, s, p, t, base, first):  # type: ignore[no-untyped-def]
    """Whether numbers of running lanes, from ``base[first]`` (an address), are out of `LOW` to `HIGH`.

    If not, no table of the slice has left the numbers of a float64.
    """
    wrong, lengths, failed = 0, s.lengths.ctypes.data, p.failed.ctypes.data
    for i in range(len(m.dead)):
        wrong += 0 if (peek(base, first + i) >= LOW) & (peek(base, first + i) <= HIGH) else 1
    if wrong > 0:  # perhaps of lanes that have ended
        wrong = 0
        for i in range(len(m.dead)):
            runs = (t < peek_int(lengths, i)) & (peek_int(failed, i) < 0)
            wrong += 0 if not runs or (LOW <= peek(base, first + i) <= HIGH) else 1
    return wrong > 0


@inlined
def lose(m, s, p, bound, t, far):  # type: ignore[no-untyped-def]
    """Take a bound of what was lost, see `TINY`, through slice t, P of which is `top`; `far`: it is not known."""
    each = TINY * len(p.message)
    for i in range(len(m.dead)):
        if t < s.lengths[i] and p.failed[i] < 0:
            bound[i] = math.inf if far or not m.top[i] > 0.0 else (bound[i] + each) / m.top[i]


@inlined
def begin_loss(bound):  # type: ignore[no-untyped-def]
    """Whether a bound is above 0 in some lane."""
    lost = False
    for i in range(len(bound)):
        lost = lost or bound[i] > 0.0
    return lost


@inlined
def end_loss(bound):  # type: ignore[no-untyped-def]
    """Note what the last slice of a call lost."""
    if lost_digits():
        for i in range(len(bound)):
            bound[i] = max(bound[i], TINY)


@inlined
def _multiply(m, code, s, p, t):  # type: ignore[no-untyped-def]
    """`_note` where P of the slice is one number that is not far out; returns whether it is."""
    if len(code.roots) != 1 or code.roots[0, 2] == 0 or m.scaled[code.roots[0, 1]] or len(s.log_scale) > 0:
        return False
    lanes, wrong, arena, top = len(m.dead), 0, m.arena.ctypes.data + 8 * code.roots[0, 0], m.top.ctypes.data
    total, lengths, failed = p.total.ctypes.data, s.lengths.ctypes.data, p.failed.ctypes.data
    for i in range(lanes):
        x = peek(total, i) * peek(arena, i)
        x = x if (t < peek_int(lengths, i)) & (peek_int(failed, i) < 0) else peek(total, i)
        poke(top, i, x)
        wrong += 0 if (x > SMALL) & (x < LARGE) else 1
    copy_row(total, 0, lanes, top, 0)
    if wrong > 0:
        for i in range(lanes):
            p.total[i], shift = math.frexp(p.total[i])
            p.exponent[i] += shift
    return True


@inlined
def _note(m, code, s, p, t, possible):  # type: ignore[no-untyped-def]
    """Multiply P of the slice into the total; note the sequences that are impossible from here on."""
    roots = code.roots
    for i in range(len(m.dead)):
        if not possible:
            m.dead[i] = True
        if t < s.lengths[i] and p.failed[i] < 0:
            value = p.total[i]
            for r in range(len(roots)):
                value *= m.arena[roots[r, 0] + (i if roots[r, 2] > 0 else 0)]
                if m.scaled[roots[r, 1]]:
                    p.exponent[i] += m.exponent[roots[r, 1], i]
                if not SMALL < value < LARGE:
                    value, shift = math.frexp(value)
                    p.exponent[i] += shift
            if m.dead[i] or value == 0.0:
                p.failed[i] = t
            else:
                p.total[i] = value
                if len(s.log_scale) > 0:
                    p.log_scale[i] += s.log_scale[s.first[i] + t]


@inlined
def _note_zeros(m, s, p, t, possible):  # type: ignore[no-untyped-def]
    """`_note` where P of the slice is not known: sequences whose answer, the sum of which is `top`, is zeros."""
    for i in range(len(m.dead)):
        if t < s.lengths[i] and p.failed[i] < 0 and (not possible or m.dead[i] or m.top[i] == 0.0):
            p.failed[i] = t


@inlined
def _wanted(s, x, t):  # type: ignore[no-untyped-def]
    """Whether some lane's distributions of slice t are wanted."""
    wanted = False
    if len(x.states) == 0:
        wanted = False
    elif len(x.place) > 0:
        wanted = x.place[t] >= 0
    else:
        for i in range(len(s.lengths)):
            wanted = wanted or t + 1 == s.lengths[i]
    return wanted


@inlined
def _scale(m, s, p, before, t):  # type: ignore[no-untyped-def]
    """Write 1 / sum of the products of messages to `top`; parameters as of `_write`."""
    lanes = len(m.dead)
    one, other, top = before.ctypes.data, p.message.ctypes.data, m.top.ctypes.data
    for i in range(0, lanes, WIDE):
        sums = zero()
        for c in range(i, len(before) * lanes, lanes):
            sums = fma(load(one, c, WIDE), load(other, c, WIDE), sums)
        store(top, i, WIDE, sums)
    for i in range(lanes):
        m.top[i] = 0.0 if m.top[i] == 0.0 else 1.0 / m.top[i]


@inlined
def _is_right(m, s, p, t, lost):  # type: ignore[no-untyped-def]
    """Note the lanes in which the product of two messages, 1 / sum of which is `top`, may be wrong."""
    for i in range(len(m.dead)):
        if t < s.lengths[i] and p.failed[i] < 0:
            bound = p.late[i] + (TINY * len(p.message) if lost else 0.0)
            p.unsure[i] |= not (m.top[i] > 0.0 and bound * m.top[i] < MOST_LOST)


@inlined
def _write(m, s, p, x, before, t):  # type: ignore[no-untyped-def]
    """Write the distributions of variables of slice t: `before`, the message out of it, times `p.message`."""
    lanes, at_end = len(m.dead), len(x.place) == 0
    one, other, factor = before.ctypes.data, p.message.ctypes.data, m.factor.ctypes.data
    cells, columns = x.cells.ctypes.data, x.cells.shape[1]
    for j in range(len(x.states)):
        first, card = x.columns[j], x.columns[j + 1] - x.columns[j]
        fill_row(factor, 0, card * lanes, 0.0)
        for c in range(len(before)):
            at = x.states[j, c] * lanes
            for i in range(0, lanes, WIDE):
                k = c * lanes + i
                y = fma(load(one, k, WIDE), load(other, k, WIDE), load(factor, at + i, WIDE))
                store(factor, at + i, WIDE, y)
        for d in range(card):
            times_row(factor, d * lanes, lanes, m.top.ctypes.data, 0)
        for i in range(lanes):
            if t < s.lengths[i] and p.failed[i] < 0 and (not at_end or t + 1 == s.lengths[i]):
                row = x.rows[i]
                if not at_end:
                    row += x.place[t]
                row = row * columns + first
                for d in range(card):
                    poke(cells, row + d, peek(factor, d * lanes + i))


@inlined
def keep(p, t, message):  # type: ignore[no-untyped-def]
    """Copy the message into slice t, if it is one of those that are kept."""
    n = (t - p.base) // p.stride
    if t >= p.base and (t - p.base) % p.stride == 0 and n < len(p.kept):
        copy_row(p.kept[n].ctypes.data, 0, message.size, message.ctypes.data, 0)


@inlined
def end_lanes(s, p, t):  # type: ignore[no-untyped-def]
    """The message is ones in lanes whose sequence has no slice behind slice t."""
    for i in range(len(s.lengths)):
        if t + 1 >= s.lengths[i]:
            for c in range(len(p.message)):
                p.message[c, i] = 1.0


@inlined
def run_back(m, code, s, p, limit, t, first, lost):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """The answer of slice t, whose evidence is in place, becomes the message; parameters as of `lanes.chunk`.

    Returns whether numbers were too small, as before if `lost`.
    """
    chunk(m, code, limit, first, False)
    sum_cells(m, code, p)
    far = is_far(m, s, p, t, m.top.ctypes.data, 0)
    if far:
        if not lost:  # what tables that are not scaled lost does not count
            plain_arithmetic()
        chunk(m, code, limit, first, True)
        sum_cells(m, code, p)
    if lost_digits() or lost:
        lost = True
        lose(m, s, p, p.late, t, far)
    take(m, code, p)
    return lost


@inlined
def weigh(m, p, kept):  # type: ignore[no-untyped-def]
    """Copy the message into the slice to the weights of the interface before it."""
    lanes = len(m.dead)
    for c in range(len(p.before)):
        first = (p.before_column + p.before[c]) * lanes
        copy_row(m.weights.ctypes.data, first, lanes, kept.ctypes.data, c * lanes)


@compiled(allocates=False)
def _forward(m, code, s, p, ones, x, limit, begin, end):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    possible, arena, top = True, m.arena.ctypes.data, m.top.ctypes.data
    word, lost = plain_arithmetic(), begin_loss(p.loss)
    for t in range(begin, end):
        keep(p, t, p.message)
        fill(m, s, p, p.message, t)
        possible = possible and chunk(m, code, limit, t == begin, False)
        far = not possible
        for r in range(len(code.roots)):
            far = far or (code.roots[r, 2] > 0 and is_far(m, s, p, t, arena, code.roots[r, 0]))
        if len(code.roots) == 0:
            sum_cells(m, code, p)
            far = far or is_far(m, s, p, t, top, 0)
        if far:
            if not lost:  # what tables that are not scaled lost does not count
                plain_arithmetic()
            possible = possible and chunk(m, code, limit, t == begin, True)
        if lost_digits() or lost:
            lost = True
            sum_cells(m, code, p)
            lose(m, s, p, p.loss, t, far)
        if len(code.roots) == 0:
            if far:
                sum_cells(m, code, p)
                _note_zeros(m, s, p, t, possible)
        else:
            if far or not _multiply(m, code, s, p, t):
                _note(m, code, s, p, t, possible)
            sum_cells(m, code, p)
        take(m, code, p)
        if _wanted(s, x, t):
            _scale(m, s, ones, p.message, t)
            _write(m, s, ones, x, p.message, t)
    keep(p, end, p.message)
    end_loss(p.loss)
    restore_arithmetic(word)


@compiled("LaneMemory, Records, Slices, Passing, Passing, Marginals, i8, i8, i8")
def forward(m, code, s, p, ones, x, limit, begin, end):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Messages from slice `begin` to slice `end`; distributions given the evidence so far."""
    # code: Lowered for L lanes; its one answer is the message to the next slice. Without roots P of the slices is not
    #     known, and a sequence that is impossible may not be noticed.
    # ones: `p` with a message of ones
    # limit: See `sweep.run`
    _forward(m, code, s, p, ones, x, limit, begin, end)


@compiled(allocates=False)
def _backward(m, code, s, p, x, limit, begin, end):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    word, lost, first = plain_arithmetic(), begin_loss(p.late), True
    for t in range(end - 1, begin - 1, -1):
        end_lanes(s, p, t)
        wanted = _wanted(s, x, t)
        if wanted or lost:
            _scale(m, s, p, p.kept[t + 1 - p.base], t)
        if wanted:
            _write(m, s, p, x, p.kept[t + 1 - p.base], t)
            lost = lost or lost_digits()
        if lost:
            _is_right(m, s, p, t, lost)
        if len(p.later) > 0:
            copy_row(p.later[t - p.base].ctypes.data, 0, p.message.size, p.message.ctypes.data, 0)
        if t > 0:
            fill(m, s, p, p.message, t)
            lost = run_back(m, code, s, p, limit, t, first, lost)
            first = False
    end_loss(p.late)
    restore_arithmetic(word)


@compiled("LaneMemory, Records, Slices, Passing, Marginals, i8, i8, i8")
def backward(m, code, s, p, x, limit, begin, end):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Messages from slice ``end - 1`` to slice `begin`; distributions given all evidence."""
    # code: Lowered for L lanes; its one answer is the message to the slice before
    _backward(m, code, s, p, x, limit, begin, end)
