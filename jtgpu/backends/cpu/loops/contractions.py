"""Records of contractions, written from what remains of a program; see `jtgpu.backends.cpu.records`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....plans.program import FAMILY
from ....util.jit import compiled, inlined
from .. import records as rec
from .fields import input_field
from .panels import is_packed
from .reassociate import SPLIT_A, SPLIT_B, SPLIT_C, SPLIT_MADE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Terms up to which a contraction is listed. Loops cost about 100 ns before they begin and a list 1 ns a term; the loops
# of more than two tables cost ten times as much a term.
MOST_LISTED, MOST_LISTED_OF_MANY = 100, 500


class ReducedTables(NamedTuple):
    """The result of `reduce_flat`, and the places of its tables. F factors, T tables."""

    rep: NDArray[np.int64]  # see `jtgpu.plans.specialise.Reduced`
    length: NDArray[np.int64]
    scope: NDArray[np.int64]
    use: NDArray[np.int64]
    needed: NDArray[np.uint8]
    cut: NDArray[np.uint8]
    cell: NDArray[np.int64]  # (T,) first cell of each table
    exponent: NDArray[np.int64]  # (T,) place of its exponent


class ContractionRoom(NamedTuple):
    """Scratch memory for one contraction of k inputs over n variables and m loops."""

    strides: NDArray[np.int64]  # (k+1, V+1) zeros: of the output, then of each input
    joint: NDArray[np.int64]  # (n,) variables of the inputs, ascending
    loops: NDArray[np.int64]  # (m, k+2) extent, then strides
    tables: NDArray[np.int64]  # (k,) the inputs
    there: NDArray[np.int64]  # (V+2,) contraction whose joint scope has the variable; behind them the last one
    order: NDArray[np.int64]  # (m,)
    rounds: NDArray[np.int64]  # (m,)
    base: NDArray[np.int64]  # (k,)


@inlined
def _strides(sk, t, s, into):  # type: ignore[no-untyped-def]
    """Write the stride of each variable of table t to `into` (V+1,); returns the table's cells (int64)."""
    step = 1
    for j in range(sk.table_ptr[t] + s.length[t] - 1, sk.table_ptr[t] - 1, -1):
        into[s.scope[j]] = step
        step *= sk.card[s.scope[j]]
    return step


@inlined
def _kept_first(loops, n_loops, order):  # type: ignore[no-untyped-def]
    """Write to `order` the loops of the output, then the reduced ones; returns how many are kept (int64)."""
    kept = 0
    for j in range(n_loops):
        if loops[j, 1] != 0:
            order[kept] = j
            kept += 1
    n = kept
    for j in range(n_loops):
        if loops[j, 1] == 0:
            order[n] = j
            n += 1
    return kept


@inlined
def _write_terms(to, n, k, n_loops, terms, room):  # type: ignore[no-untyped-def]
    """Write the cells of every term behind the fields at `to[n:]`; returns the record's end. See `_write_loops`."""
    loops, order, count, base = room.loops, room.order, room.rounds, room.base
    to[n + rec.LISTED] = terms // to[n + rec.SIZE]
    to[n + rec.PACKED] = 0
    to[n + rec.KEPT], to[n + rec.REDUCED], to[n + rec.ROW], to[n + rec.ROW_OUT] = 0, 0, 1, 1
    _kept_first(loops, n_loops, order)
    for j in range(n_loops):
        count[j] = 0
    for t in range(k):
        base[t] = to[n + input_field(t)]
    at = n + rec.FIRST_LOOP + 3 * (k - 2)
    inner = 1 if n_loops == 0 else loops[order[n_loops - 1], 0]
    for _ in range(terms // inner):
        for t in range(k):
            cell, step = base[t], 0 if n_loops == 0 else loops[order[n_loops - 1], 2 + t]
            for i in range(at + t, at + t + k * inner, k):
                to[i] = cell
                cell += step
        at += k * inner
        for i in range(n_loops - 2, -1, -1):
            j = order[i]
            count[i] += 1
            rounds = 1
            if count[i] == loops[j, 0]:
                count[i] = 0
                rounds -= loops[j, 0]
            for t in range(k):
                base[t] += rounds * loops[j, 2 + t]
            if rounds == 1:
                break
    return at


@inlined
def _merge_loops(sk, k, n_joint, room):  # type: ignore[no-untyped-def]
    """The loops over the joint scope of a contraction, as few as possible, in `room.loops`; zeroes `room.strides`."""
    # k, n_joint: Inputs, and variables of `room.joint`
    # returns tuple of int64: Loops and terms.
    strides, loops = room.strides, room.loops
    n_loops, terms = 0, 1
    for j in range(n_joint):
        v = room.joint[j]
        card = sk.card[v]
        if card > 1:
            terms *= card
            merge = n_loops > 0
            for t in range(k + 1):
                merge = merge and loops[n_loops - 1, 1 + t] == strides[t, v] * card
            if not merge:
                loops[n_loops, 0] = 1
                n_loops += 1
            loops[n_loops - 1, 0] *= card
            for t in range(k + 1):
                loops[n_loops - 1, 1 + t] = strides[t, v]
        for t in range(k + 1):
            strides[t, v] = 0
    return n_loops, terms


@inlined
def _write_loops(to, n, k, n_loops, room, one_case):  # type: ignore[no-untyped-def]
    """Write the loops of a contraction of k inputs behind the fields at `to[n:]`."""
    # returns The record's end.
    loops, row = room.loops, n_loops - 1
    to[n + rec.LISTED], to[n + rec.PACKED] = 0, 0
    if k == 2 and one_case:
        to[n + rec.PACKED] = is_packed(loops, n_loops)
    to[n + rec.ROW], to[n + rec.ROW_OUT] = loops[row, 0], loops[row, 1]
    for t in range(k):
        to[n + input_field(t) + 2] = loops[row, 2 + t]
    at = n + rec.FIRST_LOOP + 3 * (k - 2)
    kept = _kept_first(loops, row, room.order)
    for i in range(row):
        for c in range(k + 2):
            to[at + c] = loops[room.order[i], c]
        at += k + 2
    to[n + rec.KEPT], to[n + rec.REDUCED] = kept, row - kept
    return at


@inlined
def _most_listed(k):  # type: ignore[no-untyped-def]
    """Terms up to which a contraction of k inputs is listed (int64)."""
    return MOST_LISTED if k == 2 else MOST_LISTED_OF_MANY


@inlined
def _join(sk, s, room, k):  # type: ignore[no-untyped-def]
    """The strides and the joint scope of the first k tables of `room.tables`; returns the variables of that."""
    n_joint, n_vars = 0, len(sk.card)
    room.there[n_vars] += 1  # another mark than for any contraction before
    mark = room.there[n_vars]
    for j in range(k):
        t = room.tables[j]
        _strides(sk, t, s, room.strides[1 + j])
        for q in range(sk.table_ptr[t], sk.table_ptr[t] + s.length[t]):
            v = s.scope[q]
            if room.there[v] != mark:
                room.there[v] = mark
                p = n_joint
                while p > 0 and room.joint[p - 1] > v:
                    room.joint[p] = room.joint[p - 1]
                    p -= 1
                room.joint[p] = v
                n_joint += 1
    return n_joint


@inlined
def take_inputs(sk, i, s, split, pieces, piece, room):  # type: ignore[no-untyped-def]
    """Write the inputs of contraction i, or of one of its two pieces, to `room.tables`; returns their number."""
    # split, pieces, piece: See `reassociate`; of two pieces number 0 makes the output
    if pieces == 2 and piece == 0:
        room.tables[0], room.tables[1] = split[SPLIT_MADE], split[SPLIT_C]
        return 2
    if pieces == 2:
        room.tables[0], room.tables[1] = split[SPLIT_A], split[SPLIT_B]
        return 1 if split[SPLIT_B] < 0 else 2
    k = 0
    for j in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
        if s.use[j] >= 0:
            room.tables[k] = s.use[j]
            k += 1
    return k


@inlined
def write_record(sk, i, s, room, k, out, answer, to, n):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Write the record of a contraction at `to[n:]`, whose output has its cell in `s` already."""
    # i: The contraction whose maximum or sum it is
    # k: Its inputs, which stand in `room.tables`
    # out, answer: Its output, and whose answer that is; -1: nobody's
    # returns tuple of int64: The record's end, and the terms that it accumulates.
    n_tables, case = len(sk.table_ptr), len(sk.card) - 1
    n_joint = _join(sk, s, room, k)
    to[n + rec.MAXIMAL], to[n + rec.ANSWER] = sk.op_maximal[i], answer
    to[n + rec.INPUTS], to[n + rec.SIZE] = max(k, 2), _strides(sk, out, s, room.strides[0])
    last = sk.table_ptr[out] + s.length[out] - 1
    to[n + rec.BY_CASE] = s.length[out] > 0 and s.scope[last] == case
    to[n + rec.OUT], to[n + rec.OUT_EXP] = s.cell[out], s.exponent[out]
    to[n + rec.A], to[n + rec.A_EXP], to[n + rec.ROW_A] = 0, n_tables, 0  # the cell that holds 1
    to[n + rec.B], to[n + rec.B_EXP], to[n + rec.ROW_B] = 0, n_tables, 0
    for j in range(k):
        where, t = n + input_field(j), room.tables[j]
        to[where], to[where + 1], to[where + 2] = s.cell[t], s.exponent[t], 0
    k = max(k, 2)
    n_loops, terms = _merge_loops(sk, k, n_joint, room)
    if terms <= _most_listed(k) and sk.card[case] == 1:
        end = _write_terms(to, n, k, n_loops, terms, room)
    else:
        if n_loops == 0:
            for c in range(k + 2):
                room.loops[0, c] = 1 if c < 2 else 0
            n_loops = 1
        end = _write_loops(to, n, k, n_loops, room, sk.card[case] == 1)
    to[n + rec.LENGTH] = end - n
    return end, terms


@compiled(allocates=False)
def measure(sk, s, splits, n_splits):  # type: ignore[no-untyped-def]
    """Contractions that are made, posteriors among them, and numbers that their records take at most."""
    # splits, n_splits: See `reassociate.choose_orders`
    n_ops, n_answers, room = n_splits, 0, 0
    for k in range(n_splits):
        wide = s.length[splits[k, SPLIT_A]] + 2 * s.length[splits[k, SPLIT_MADE]] + s.length[splits[k, SPLIT_C]]
        if splits[k, SPLIT_B] >= 0:
            wide += s.length[splits[k, SPLIT_B]]
        room += 2 * (rec.FIRST_LOOP + 6 + 2 * _most_listed(2)) + 4 * (wide + 2)
    for i in range(len(sk.op_out)):
        out = sk.op_out[i]
        if s.needed[out] != 0 and s.rep[out] == out:
            n_ops += 1
            n_answers += sk.answers[i] >= 0 and sk.op_kind[i] != FAMILY
            k, wide = 0, 0
            for j in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
                if s.use[j] >= 0:
                    k += 1
                    wide += s.length[s.use[j]]
            k = max(k, 2)
            room += rec.FIRST_LOOP + 3 * k + max((k + 2) * (wide + 1), k * _most_listed(k))
    return n_ops, n_answers, room
