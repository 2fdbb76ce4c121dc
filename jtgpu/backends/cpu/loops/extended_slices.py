"""One sequence's messages in extended numbers; see `jtgpu.backends.cpu.extended_slices`.

The message's largest exponent is 0, so sequences of any length have exponents that are integers of 32 bits.
"""

from __future__ import annotations

import math

from ....util.jit import compiled, inlined
from .. import records as rec
from ..records import ExtendedArena, ExtendedWeights, Records
from ..slice_records import Ends, Line
from .extended import run
from .lane_counts import add_counts
from .sweep import states_by_rank

LEAST = -(1 << 40)  # below all exponents


@inlined
def _sum(x, e, y, f):  # type: ignore[no-untyped-def]
    """The sum of two pairs."""
    if x == 0.0 or y == 0.0:
        return (y, f) if x == 0.0 else (x, e)
    top = max(e, f)
    return math.ldexp(x, max(e - top, -rec.FAR)) + math.ldexp(y, max(f - top, -rec.FAR)), top


@inlined
def _likelihoods(w, s, i):  # type: ignore[no-untyped-def]
    """Copy the likelihoods of slice i; number 0 of the weights is not used."""
    for c in range(s.value.shape[1]):
        w.value[1 + c], w.power[1 + c] = s.value[i, c], s.power[i, c]


@inlined
def _weigh(w, place, first, own, cell, power):  # type: ignore[no-untyped-def]
    """Write a message as weights of an interface, times a likelihood of it."""
    for j in range(len(place)):
        x, e = cell[place[j]], power[place[j]]
        if own > 0:
            x, e = x * w.value[own + j], e + w.power[own + j]
        w.value[first + j], w.power[first + j] = x, e


@inlined
def _bound(cell, power):  # type: ignore[no-untyped-def]
    """Make the largest exponent of a message 0; returns what it was, `LEAST` if the message is zeros."""
    top = LEAST
    for k in range(len(cell)):
        cell[k], shift = math.frexp(cell[k])
        power[k] += shift
        if cell[k] > 0.0:
            top = max(top, power[k])
    for k in range(len(cell)):
        power[k] = power[k] - top if cell[k] > 0.0 else 0
    return top


@inlined
def _take(t, code, place, s, maximal):  # type: ignore[no-untyped-def]
    """The answer becomes the message."""
    first = code.answers[0, 1]
    for k in range(len(s.cell)):
        s.cell[k], s.power_of[k] = 0.0, 0
    for j in range(len(place)):
        k, x, e = place[j], t.cell[first + j], int(t.power[first + j])
        if not maximal:
            s.cell[k], s.power_of[k] = _sum(s.cell[k], s.power_of[k], x, e)
        elif x > 0.0 and (s.cell[k] == 0.0 or e > s.power_of[k] or (e == s.power_of[k] and x > s.cell[k])):
            s.cell[k], s.power_of[k] = x, e
    _bound(s.cell, s.power_of)


@inlined
def _multiply(t, code, s, i):  # type: ignore[no-untyped-def]
    """Multiply P of slice i into the total: the roots over the sum of the message that went in.

    That into slice 0 says only which states are possible: P of static variables is in the slice itself.
    """
    x, e = (0.0, 0) if i > 0 else (1.0, 0)
    for k in range(len(s.cell) if i > 0 else 0):
        x, e = _sum(x, e, s.cell[k], s.power_of[k])
    value, shift = s.total[0] / x, s.exponent[0] - e
    for r in range(len(code.roots)):
        value, more = math.frexp(value * t.cell[code.roots[r, 0]])
        shift += more + t.power[code.roots[r, 0]]
    s.total[0], s.exponent[0] = value, shift


@inlined
def _no(s):  # type: ignore[no-untyped-def]
    """False, not as a literal, for which Numba would compile the callee once more."""
    return len(s.failed) == 0


@inlined
def _keep(s, cells, powers, i, base, stride):  # type: ignore[no-untyped-def]
    n = (i - base) // stride
    if i >= base and (i - base) % stride == 0 and n < len(cells):
        for k in range(len(s.cell)):
            cells[n, k], powers[n, k] = s.cell[k], s.power_of[k]


@compiled(
    "ExtendedArena, Records, const(i8[:]), const(i4[:, :]), const(i8[:]), Line, Ends, ExtendedWeights, "
    "f8[:, :], i8[:, :], "
    "(i8, i8, i8, i8), f8[:]"
)
def forward(t, code, by_rank, states, mapped, s, p, w, cells, powers, where, arena):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """The message passes slices `begin` to `end`; those into slices base, base + stride ... are kept."""
    # cells, powers: Get the messages
    # where: begin, end, base, stride
    begin, end, base, stride = where
    for i in range(begin, end):
        _keep(s, cells, powers, i, base, stride)
        if s.failed[0] >= 0:
            continue
        _likelihoods(w, s, i)
        _weigh(w, p.before, p.first_before, p.own_before, s.cell, s.power_of)
        if run(t, code, by_rank, states[i], mapped, w, _no(s), arena) == rec.IMPOSSIBLE:
            s.failed[0] = i
            continue
        if not p.maximal:
            _multiply(t, code, s, i)
        _take(t, code, p.after, s, p.maximal)
    _keep(s, cells, powers, end, base, stride)


@inlined
def _be_certain(s, k):  # type: ignore[no-untyped-def]
    for j in range(len(s.cell)):
        s.cell[j], s.power_of[j] = (0.5, 1) if j == k else (0.0, 0)


@inlined
def _chosen(s, cell, power, uniform):  # type: ignore[no-untyped-def]
    """An entry of the message times another one: the first of the best ones if `uniform` < 0, else one at random."""
    top, total, best, last = LEAST, 0.0, -1, 0
    for k in range(len(cell)):
        s.cell[k], s.power_of[k] = s.cell[k] * cell[k], s.power_of[k] + power[k]
    _bound(s.cell, s.power_of)
    for k in range(len(cell)):
        if uniform < 0.0:
            if s.cell[k] > 0.0 and (s.power_of[k] > top or (s.power_of[k] == top and s.cell[k] > s.cell[best])):
                top, best = s.power_of[k], k
        else:
            total += math.ldexp(s.cell[k], max(s.power_of[k], -rec.FAR))
    if uniform < 0.0:
        return max(best, 0)
    below = 0.0
    for k in range(len(cell)):
        x = math.ldexp(s.cell[k], max(s.power_of[k], -rec.FAR))
        below += x
        if x > 0.0:
            last = k
            if below > uniform * total:
                break
    return last


@compiled(
    "ExtendedArena, Records, const(i8[:]), const(i4[:, :]), const(i8[:]), Line, Ends, ExtendedWeights, "
    "f8[:, :], i8[:, :], "
    "f8[:, :], i8[:, :], i8[:], f8[:], (i8, i8, i8, i8), f8[:]"
)
def backward(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    t, code, by_rank, states, mapped, s, p, w, cells, powers, later, later_powers, chosen, uniforms, where, arena
):
    """The message passes slices ``end - 1`` to `begin`; with `chosen` it becomes certain of an entry before each."""
    # cells, powers: Messages into slices base, base + 1 ...; of no meaning without `chosen`
    # later, later_powers: Get those out of slices base, base + 1 ...; empty: not kept
    # chosen: (T,) gets the entry after each slice, or empty
    # uniforms: (T,) numbers in [0, 1) that choose the entry before each slice; empty: the best ones
    # where: begin, end, base, slices of the sequence
    begin, end, base, length = where
    for i in range(end - 1, begin - 1, -1):
        if len(chosen) and not len(uniforms) and i == length - 1:
            chosen[i] = _chosen(s, cells[i + 1 - base], powers[i + 1 - base], -1.0)
            _be_certain(s, chosen[i])
        if len(later):
            _keep(s, later, later_powers, i, base, 1)
        if i == 0:
            break
        _likelihoods(w, s, i)
        _weigh(w, p.after, p.first_after, p.own_after, s.cell, s.power_of)
        run(t, code, by_rank, states[i], mapped, w, _no(s), arena)
        _take(t, code, p.before, s, p.maximal)
        if len(chosen):
            uniform = uniforms[i] if len(uniforms) else -1.0
            chosen[i - 1] = _chosen(s, cells[i - base], powers[i - base], uniform)
            _be_certain(s, chosen[i - 1])


@inlined
def _weigh_both(w, s, p, before, before_power, after, after_power, i):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """The likelihoods of slice i, and the messages into it and, if there is one, from what follows, as weights."""
    _likelihoods(w, s, i)
    _weigh(w, p.before, p.first_before, p.own_before, before, before_power)
    if len(after):
        _weigh(w, p.after, p.first_after, p.own_after, after, after_power)


@compiled(
    "ExtendedArena, Records, const(i8[:]), const(i4[:, :]), const(i8[:]), Line, Ends, ExtendedWeights, "
    "f8[:, :], i8[:, :], "
    "f8[:, :], i8[:, :], (i8, i8), i8[:], f8[:, :], f8[:]"
)
def answer(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    t, code, by_rank, states, mapped, s, p, w, cells, powers, later, later_powers, where, cards, out, arena
):
    """Distributions of a program's answers in slices `begin` to `end`, side by side in the rows of `out`."""
    # cells, powers, later, later_powers: Messages into and out of each of these; the latter may be empty
    # cards: (V,) cardinalities by rank
    begin, end = where
    none = later.shape[0] == 0
    for i in range(begin, end):
        n = i - begin
        if none:
            _weigh_both(w, s, p, cells[n], powers[n], cells[n][:0], powers[n][:0], i)
        else:
            _weigh_both(w, s, p, cells[n], powers[n], later[n], later_powers[n], i)
        if run(t, code, by_rank, states[i], mapped, w, _no(s), arena) == rec.IMPOSSIBLE:
            continue
        at = 0
        for a in range(len(code.answers)):
            for d in range(cards[code.answers[a, 0]]):
                out[n, at] = arena[code.answers[a, 1] + d]
                at += 1


@compiled(
    "ExtendedArena, Records, const(i8[:]), const(i4[:, :]), const(i8[:]), Line, Ends, ExtendedWeights, "
    "f8[:, :], i8[:, :], "
    "f8[:, :], i8[:, :], (i8, i8, i8), f8, f8[:], f8[:], i8[:]"
)
def count(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    t, code, by_rank, states, mapped, s, p, w, cells, powers, later, later_powers, where, weight, counts, arena, scratch
):
    """Add the expected counts of slices ``end - 1`` to `begin`; messages as of `answer`, from slice base on."""
    # where: begin, end, base
    begin, end, base = where
    for i in range(end - 1, begin - 1, -1):
        n = i - base
        _weigh_both(w, s, p, cells[n], powers[n], later[n], later_powers[n], i)
        if run(t, code, by_rank, states[i], mapped, w, _no(s), arena) != rec.IMPOSSIBLE:
            add_counts(arena, code, states_by_rank(by_rank, states[i], mapped), weight, counts, scratch)
