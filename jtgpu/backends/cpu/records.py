"""From what remains of a plan to the program that the CPU runs: flat records of loads and contractions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...plans.specialise import Skeleton, reduce_flat
from ...util.numba_cache import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Layout", "Program", "specialise"]

ALIGNMENT = 8  # cells: a cache line of float64

# A record: one contraction. The fields up to LOOPS, then (extent, stride of the output, of A, of B) a loop:
# kept loops, then summed loops, each slowest first, without the innermost, which is in the fields.
# With more than two inputs A is the first; the others' cells, exponents and row strides stand between LOOPS and the
# loops, which have a stride for every input.
# A small contraction has no loops: LISTED terms add up to each cell of the output, and in their place stand the cells
# of the inputs, for one term after the other.
(
    LENGTH, INPUTS, ANSWER, OUT, OUT_EXP, SIZE, BY_CASE, LISTED, KEPT, SUMMED, ROW, ROW_OUT, A, A_EXP, ROW_A, B, B_EXP,
    ROW_B, LOOPS,
) = range(19)  # fmt: skip
SPARSE = -1  # LISTED of a contraction without its zeros, see `zeros`: then rows, terms; for each row its cell, its
# terms, and the cells of A and B of each

# A load: [length, destination, its exponent, source, its exponent, cells, n_observed, n_loops, n_weighed,
# (variable, stride) an observed one, (extent, stride in the source) a loop, (variable, extent, inner cells) a weight]
LOAD_FIELDS = 9

# Terms up to which a contraction is listed. Loops cost about 100 ns before they begin and a list 1 ns a term; the loops
# of more than two tables cost ten times as much a term.
MOST_LISTED, MOST_LISTED_OF_MANY = 100, 500


_NO_ROOM = np.zeros(0, np.int64)


class Layout(NamedTuple):
    """Where a backend keeps what outlives a query, in cells of every arena."""

    factor: NDArray[np.int64]  # (F,) first cell of each factor
    answer: NDArray[np.int64]  # (V,) first cell of each posterior, by rank
    first: int  # first cell that a program may use
    # (F + T,) first cell of each cut factor and of each table, the same in every program; empty: one after another
    places: NDArray[np.int64]


class Program(NamedTuple):
    """What runs for one pattern and one set of targets."""

    records: NDArray[np.int64]  # contractions one after the other
    record_ptr: NDArray[np.int64]  # (n+1,)
    loads: NDArray[np.int64]  # factors that are cut or weighed first
    load_ptr: NDArray[np.int64]
    roots: NDArray[np.int64]  # (components, 3) cell and exponent of the numbers whose product is P(e); whether by case
    answers: NDArray[np.int64]  # (targets, 3) variable by rank, first cell of its posterior, whether by case
    counts: NDArray[np.int64]  # (4,) cells of the arena, most inputs of a contraction, longest row, terms added


@compiled()
def _strides(sk, t, length, scope, into):  # type: ignore[no-untyped-def]
    """Write the stride of each variable of a table; returns the table's cells."""
    step = 1
    for j in range(sk.table_ptr[t] + length[t] - 1, sk.table_ptr[t] - 1, -1):
        into[scope[j]] = step
        step *= sk.card[scope[j]]
    return step


@compiled()
def _load(sk, seen, f, length, scope, cell, source, to, n):  # type: ignore[no-untyped-def]
    """Write the load of a factor at `to[n:]`; returns its end."""
    first = sk.table_ptr[f]
    to[n + 1], to[n + 2], to[n + 3], to[n + 4] = cell, len(sk.table_ptr) + 1 + f, source, f
    at = n + LOAD_FIELDS
    step, cells = 1, 1
    n_observed = 0
    for j in range(sk.table_end[f] - 1, first - 1, -1):
        v = sk.table_var[j]
        if seen[v] == 1:
            to[at], to[at + 1] = v, step
            at += 2
            n_observed += 1
        else:
            cells *= sk.card[v]
        step *= sk.card[v]
    to[n + 5], to[n + 6] = cells, n_observed
    n_loops = 0
    stride = step
    for j in range(first, sk.table_end[f]):
        v = sk.table_var[j]
        stride //= sk.card[v]
        if seen[v] != 1 and sk.card[v] > 1:
            if n_loops > 0 and to[at - 1] == stride * sk.card[v]:
                to[at - 2] *= sk.card[v]
                to[at - 1] = stride
            else:
                to[at], to[at + 1] = sk.card[v], stride
                at += 2
                n_loops += 1
    to[n + 7] = n_loops
    inner, n_weighed = 1, 0
    for j in range(first + length[f] - 1, first - 1, -1):
        v = scope[j]
        if v == len(sk.evidence_factor):
            continue  # the case axis
        if seen[v] == 2 and sk.evidence_factor[v] == f:
            to[at], to[at + 1], to[at + 2] = v, sk.card[v], inner
            at += 3
            n_weighed += 1
        inner *= sk.card[v]
    to[n + 8] = n_weighed
    to[n] = at - n
    return at


@compiled()
def _list(to, n, k, loops, n_loops, terms, scratch):  # type: ignore[no-untyped-def]
    """Write the cells of every term behind the fields at `to[n:]`; returns the record's end."""
    to[n + LISTED] = terms // to[n + SIZE]
    to[n + KEPT], to[n + SUMMED], to[n + ROW], to[n + ROW_OUT] = 0, 0, 1, 1
    order, count, base = scratch[0], scratch[1], scratch[2]
    kept = 0  # kept loops first
    for j in range(n_loops):
        if loops[j, 1] != 0:
            order[kept] = j
            kept += 1
    for j in range(n_loops):
        if loops[j, 1] == 0:
            order[kept] = j
            kept += 1
        count[j] = 0
    for t in range(k):
        base[t] = to[n + A] if t == 0 else to[n + B] if t == 1 else to[n + LOOPS + 3 * (t - 2)]
    at = n + LOOPS + 3 * (k - 2)
    inner = 1 if n_loops == 0 else loops[order[n_loops - 1], 0]
    rounds = terms // inner
    for _ in range(rounds):
        for t in range(k):
            cell, step = base[t], 0 if n_loops == 0 else loops[order[n_loops - 1], 2 + t]
            i = at + t
            for _ in range(inner):
                to[i] = cell
                cell += step
                i += k
        at += k * inner
        for i in range(n_loops - 2, -1, -1):
            j = order[i]
            count[i] += 1
            ahead = 1
            if count[i] == loops[j, 0]:
                count[i] = 0
                ahead -= loops[j, 0]
            for t in range(k):
                base[t] += ahead * loops[j, 2 + t]
            if ahead == 1:
                break
    return at


@compiled()
def _record(sk, k, strides, joint, n_joint, loops, scratch, to, n):  # type: ignore[no-untyped-def]
    """Write the loops of a contraction of k tables behind the fields at `to[n:]`; returns the record's end and the
    terms it adds. `strides`: of the output, then of each table; they are zeroed again."""
    width = k + 2
    n_loops, terms = 0, 1
    for j in range(n_joint):
        v = joint[j]
        card = sk.card[v]
        if card > 1:
            terms *= card
            same = n_loops > 0
            if same:
                for t in range(k + 1):
                    if loops[n_loops - 1, 1 + t] != strides[t, v] * card:
                        same = False
                        break
            if not same:
                loops[n_loops, 0] = 1
                n_loops += 1
            loops[n_loops - 1, 0] *= card
            for t in range(k + 1):
                loops[n_loops - 1, 1 + t] = strides[t, v]
        for t in range(k + 1):
            strides[t, v] = 0
    if terms <= (MOST_LISTED if k == 2 else MOST_LISTED_OF_MANY) and sk.card[-1] == 1:
        return _list(to, n, k, loops, n_loops, terms, scratch), terms
    to[n + LISTED] = 0
    if n_loops == 0:
        loops[0, 0], loops[0, 1] = 1, 1
        loops[0, 2 : 2 + k] = 0
        n_loops = 1
    row = n_loops - 1
    at = n + LOOPS
    to[n + ROW], to[n + ROW_OUT], to[n + ROW_A] = loops[row, 0], loops[row, 1], loops[row, 2]
    if k > 1:
        to[n + ROW_B] = loops[row, 3]
    if k > 2:
        for t in range(2, k):
            to[at + 2] = loops[row, 2 + t]
            at += 3
    kept = 0
    for j in range(row):
        if loops[j, 1] != 0:
            to[at : at + width] = loops[j, :width]
            at += width
            kept += 1
    for j in range(row):
        if loops[j, 1] == 0:
            to[at : at + width] = loops[j, :width]
            at += width
    to[n + KEPT], to[n + SUMMED] = kept, row - kept
    return at, terms


@compiled()
def _padded(cells):  # type: ignore[no-untyped-def]
    return -(-cells // ALIGNMENT) * ALIGNMENT


@compiled()
def _make_loads(sk, seen, length, scope, needed, cut, source, places, at, cell, exponent):  # type: ignore[no-untyped-def]
    """Loads of the factors that are cut; `cell` and `exponent` of every factor. Returns the first free cell too."""
    n_tables, n_factors, lanes = len(sk.table_ptr), len(source), sk.card[-1]
    n_loads, room = 0, 0
    for f in range(n_factors):
        cell[f], exponent[f] = source[f], f
        if cut[f] and needed[f]:
            n_loads += 1
            room += LOAD_FIELDS + 5 * (sk.table_end[f] - sk.table_ptr[f])
    loads, load_ptr = np.empty(room, np.int64), np.zeros(n_loads + 1, np.int64)
    n, n_loads = 0, 0
    for f in range(n_factors):
        if not (cut[f] and needed[f]):
            continue
        cell[f], exponent[f] = places[f] if len(places) else at, n_tables + 1 + f
        end = _load(sk, seen, f, length, scope, cell[f], source[f], loads, n)
        if not len(places):
            at += _padded(loads[n + 5] * lanes)
        n = end
        n_loads += 1
        load_ptr[n_loads] = n
    return loads[:n].copy(), load_ptr, at


@compiled()
def _join(sk, i, use, length, scope, tables, strides, joint, there):  # type: ignore[no-untyped-def]
    """The inputs of a contraction and their joint scope, ascending; returns the number of both."""
    k, n_joint = 0, 0
    for j in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
        t = use[j]
        if t < 0:
            continue
        tables[k] = t
        k += 1
        _strides(sk, t, length, scope, strides[k])
        for s in range(sk.table_ptr[t], sk.table_ptr[t] + length[t]):
            v = scope[s]
            if there[v] != i:
                there[v] = i
                p = n_joint
                while p > 0 and joint[p - 1] > v:
                    joint[p] = joint[p - 1]
                    p -= 1
                joint[p] = v
                n_joint += 1
    return k, n_joint


@compiled()
def _make_records(sk, rep, length, scope, use, needed, answer_cell, places, at, cell, exponent, records):  # type: ignore[no-untyped-def]
    """Records of the contractions that are made, and where the answers stand. `records`: memory to write them in."""
    n_tables, case, lanes = len(sk.table_ptr), len(sk.card) - 1, sk.card[-1]
    n_ops, room, most, widest = 0, 0, 2, 0
    for i in range(len(sk.op_out)):
        out = sk.op_out[i]
        if needed[out] and rep[out] == out:
            n_ops += 1
            k, wide = 0, 0
            for j in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
                if use[j] >= 0:
                    k += 1
                    wide += length[use[j]]
            k = max(k, 2)
            most, widest = max(most, k), max(widest, wide)
            room += LOOPS + 3 * k + max((k + 2) * (wide + 1), k * (MOST_LISTED if k == 2 else MOST_LISTED_OF_MANY))
    if len(records) < room:
        records = np.empty(room, np.int64)
    record_ptr = np.zeros(n_ops + 1, np.int64)
    strides, joint = np.zeros((most + 1, case + 1), np.int64), np.empty(widest, np.int64)
    loops, tables = np.empty((widest + 1, most + 2), np.int64), np.empty(most, np.int64)
    there, scratch = np.full(case + 1, -1, np.int64), np.empty((3, max(widest, most) + 1), np.int64)
    answers = np.empty((n_ops, 3), np.int64)
    n, n_ops, longest, work, n_answers = 0, 0, 1, 0, 0
    for i in range(len(sk.op_out)):
        out = sk.op_out[i]
        if not (needed[out] and rep[out] == out):
            continue
        k, n_joint = _join(sk, i, use, length, scope, tables, strides, joint, there)
        size = _strides(sk, out, length, scope, strides[0])
        v = sk.answers[i]
        records[n + INPUTS], records[n + ANSWER], records[n + SIZE] = max(k, 2), v, size
        if v >= 0 and lanes == 1:
            cell[out] = answer_cell[v]
        elif len(places):
            cell[out] = places[out]
        else:
            cell[out] = at
            at += _padded(size)
        exponent[out] = out
        by_case = length[out] > 0 and scope[sk.table_ptr[out] + length[out] - 1] == case
        records[n + BY_CASE] = by_case
        if v >= 0:
            answers[n_answers, 0], answers[n_answers, 1], answers[n_answers, 2] = v, cell[out], by_case
            n_answers += 1
        records[n + OUT], records[n + OUT_EXP] = cell[out], out
        records[n + B], records[n + B_EXP] = 0, n_tables  # the cell that holds 1
        for j in range(k):
            where = (n + A) if j == 0 else (n + B) if j == 1 else n + LOOPS + 3 * (j - 2)
            records[where], records[where + 1] = cell[tables[j]], exponent[tables[j]]
        end, terms = _record(sk, max(k, 2), strides, joint, n_joint, loops, scratch, records, n)
        work += terms
        if k > 2:
            longest = max(longest, records[n + ROW])
        records[n] = end - n
        n = end
        n_ops += 1
        record_ptr[n_ops] = n
    return records[:n].copy(), record_ptr, answers[:n_answers].copy(), np.array([at, most, longest, work])


@compiled()
def _specialise(sk, seen, target, source, answer_cell, first, places, room):  # type: ignore[no-untyped-def]
    rep, length, scope, use, needed, cut = reduce_flat(sk, seen, target)
    cell, exponent = np.empty(len(sk.table_ptr), np.int64), np.empty(len(sk.table_ptr), np.int64)
    loads, load_ptr, at = _make_loads(sk, seen, length, scope, needed, cut, source, places, first, cell, exponent)
    records, record_ptr, answers, counts = _make_records(
        sk, rep, length, scope, use, needed, answer_cell, places[len(source) :], at, cell, exponent, room
    )
    n_roots = 0
    roots = np.empty((len(sk.roots), 3), np.int64)
    for r in range(len(sk.roots)):
        t = rep[sk.roots[r]]
        if t >= 0:
            roots[n_roots, 0], roots[n_roots, 1], roots[n_roots, 2] = cell[t], exponent[t], length[t]
            n_roots += 1
    return records, record_ptr, loads, load_ptr, roots[:n_roots].copy(), answers, counts


def specialise(
    sk: Skeleton,
    layout: Layout,
    seen: NDArray[np.uint8],
    target: NDArray[np.bool_],
    lanes: int = 1,
    room: NDArray[np.int64] = _NO_ROOM,
) -> Program:
    """The program for a pattern and targets.

    With several lanes the program answers as many cases at once: every table that depends on the evidence has one
    more axis, its fastest, that runs over the cases; all others are made once for all.

    Parameters
    ----------
    sk : Skeleton
    layout : Layout
    seen : (V,) uint8
        `jtgpu.plans.specialise.FREE`, ``HARD`` or ``SOFT`` for each variable, by rank.
    target : (V,) bool
        Variables whose posteriors are wanted, by rank; those of observed ones are never made.
    lanes : int
        Cases that the program answers at once.
    room : int64
        Scratch memory.
    """
    card = sk.card.copy()
    card[-1] = lanes
    return Program(
        *_specialise(
            sk._replace(card=card),
            np.append(seen, np.uint8(0)),
            np.append(target, True),
            layout.factor,
            layout.answer,
            layout.first,
            layout.places,
            room,
        )
    )
