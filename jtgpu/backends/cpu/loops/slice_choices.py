"""Entries of messages chosen from the last slice to the first; see `jtgpu.backends.cpu.slices`."""

from __future__ import annotations

from ....util.jit import compiled, inlined
from ..records import LaneMemory, Records
from ..slice_records import Choices, Passing, Slices
from .lane_loads import fill_row
from .slices import MOST_LOST, end_lanes, fill, run_back, weigh
from .vector import peek, peek_int, plain_arithmetic, poke, poke_int, restore_arithmetic


@inlined
def _find_best(m, p, c):  # type: ignore[no-untyped-def]
    """Write the first of the largest entries of the message in every lane to `best`."""
    lanes, message, best, top = len(m.dead), p.message.ctypes.data, c.best.ctypes.data, m.top.ctypes.data
    for i in range(lanes):
        poke_int(best, i, 0)
        poke(top, i, peek(message, i))
    for k in range(1, len(p.message)):
        for i in range(lanes):
            x = peek(message, k * lanes + i)
            poke_int(best, i, k if x > peek(top, i) else peek_int(best, i))
            poke(top, i, max(x, peek(top, i)))


@inlined
def _find_last(m, s, p, c, t):  # type: ignore[no-untyped-def]
    """The entry after slice t, the best one, in lanes that end there."""
    message = p.kept[t + 1 - p.base]
    for i in range(len(m.dead)):
        if t + 1 == s.lengths[i]:
            c.best[i] = 0
            for k in range(1, len(message)):
                if message[k, i] > message[c.best[i], i]:
                    c.best[i] = k
            c.chosen[s.first[i] + t] = c.best[i]
            for k in range(len(message)):
                p.message[k, i] = 1.0 if k == c.best[i] else 0.0


@inlined
def _draw(m, s, p, c, t):  # type: ignore[no-untyped-def]
    """Draw an entry in every lane; the probabilities are the message."""
    message, best, top, n = p.message, c.best, m.top, len(p.message)
    for i in range(len(m.dead)):
        uniform = c.uniforms[s.first[i] + min(t, max(s.lengths[i] - 1, 0))]
        best[i], top[i] = 0, 0.0
        for k in range(n):
            top[i] += message[k, i]
            best[i] = k + 1 if top[i] <= uniform else best[i]
        while best[i] > 0 and (best[i] == n or message[best[i], i] == 0.0):
            best[i] -= 1


@inlined
def _be_certain(m, p, c):  # type: ignore[no-untyped-def]
    """The message becomes 1 in the entry that is chosen, and 0 in all others."""
    fill_row(p.message.ctypes.data, 0, p.message.size, 0.0)
    for i in range(len(m.dead)):
        p.message[c.best[i], i] = 1.0


@compiled(allocates=False)
def _choose(m, code, s, p, c, limit, begin, end):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    lanes, first, is_known, at_random = len(m.dead), True, len(c.ranks) > 0, len(c.uniforms) > 0
    word, lost = plain_arithmetic(), False
    if is_known:
        _find_best(m, p, c)
    for t in range(end - 1, begin - 1, -1):
        if not is_known:
            end_lanes(s, p, t)
        if not at_random:
            _find_last(m, s, p, c, t)
        if t == 0:
            break
        fill(m, s, p, p.message, t)
        for j in range(len(c.ranks)):
            rank = c.ranks[j]
            for i in range(lanes):
                m.chunk[i, rank] = c.states[j, c.best[i]]
        weigh(m, p, p.kept[t - p.base])
        lost = run_back(m, code, s, p, limit, t, first, lost)
        first = False
        if lost:
            for i in range(lanes):  # what was chosen before has lost nothing
                p.unsure[i] |= not p.late[i] < MOST_LOST
                p.late[i] = 0.0
        if at_random:
            _draw(m, s, p, c, t)
        else:
            _find_best(m, p, c)
        for i in range(lanes):
            if t < s.lengths[i]:
                c.chosen[s.first[i] + t - 1] = c.best[i]
        if not is_known:
            _be_certain(m, p, c)
    if is_known:
        _be_certain(m, p, c)
    restore_arithmetic(word)


@compiled("LaneMemory, Records, Slices, Passing, Choices, i8, i8, i8")
def choose(m, code, s, p, c, limit, begin, end):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Choose an entry of the message before each slice, from slice ``end - 1`` to slice `begin`.

    The message out of the last slice is certain of one entry. In a lane that ends there it is the best entry; none if
    entries are drawn: the message is ones.
    """
    # code: Lowered for L lanes; its one answer is the distribution of the entries before the slice, given the one after
    #     it: by the message as a weight, or, faster, by the states of its variables if `c.ranks` has these. Entries
    #     cannot be drawn in the second way where a lane ends.
    _choose(m, code, s, p, c, limit, begin, end)
