"""From what remains of a program to the records that the CPU runs; see `jtgpu.backends.cpu.records`."""

from __future__ import annotations

import numpy as np

from ....plans.loops.specialise import part, reduce_flat, shrink_room, unpack, with_card
from ....plans.program import FAMILY
from ....plans.specialise import FREE, HARD, SOFT
from ....util.jit import compiled, inlined
from .. import records as rec
from .contractions import ContractionRoom, ReducedTables, measure, take_inputs, write_record
from .panels import CELLS as PANEL_CELLS
from .reassociate import SPLIT_FIELDS, SPLIT_MADE, SPLIT_NUMBERS, SPLIT_OP, choose_orders, order_room


@inlined
def _write_observed(sk, seen, f, to, n):  # type: ignore[no-untyped-def]
    """Write the observed variables and the loops of a load; parameters and result as for `_write_load`."""
    first, at = sk.table_ptr[f], n + rec.LOAD_FIELDS
    step, cells, n_observed, n_loops = 1, 1, 0, 0
    for j in range(sk.table_end[f] - 1, first - 1, -1):
        v = sk.table_var[j]
        if seen[v] == HARD:
            to[at], to[at + 1] = v, step
            at += 2
            n_observed += 1
        else:
            cells *= sk.card[v]
        step *= sk.card[v]
    for j in range(first, sk.table_end[f]):
        v = sk.table_var[j]
        step //= sk.card[v]
        if seen[v] != HARD and sk.card[v] > 1:
            if n_loops > 0 and to[at - 1] == step * sk.card[v]:
                to[at - 2] *= sk.card[v]
                to[at - 1] = step
            else:
                to[at], to[at + 1] = sk.card[v], step
                at += 2
                n_loops += 1
    to[n + rec.LOAD_CELLS], to[n + rec.LOAD_OBSERVED], to[n + rec.LOAD_LOOPS] = cells, n_observed, n_loops
    return at


@compiled(allocates=False)
def _write_load(sk, seen, f, s, source, to, n):  # type: ignore[no-untyped-def]
    """Write the load of factor f at `to[n:]`, but for where it goes to."""
    # seen: (V+1,) uint8: `FREE`, `HARD` or `SOFT` by rank
    # source: First cell of the factor
    # returns The load's end.
    to[n + rec.LOAD_FACTOR], to[n + rec.LOAD_FACTOR_EXP] = source, f
    at = _write_observed(sk, seen, f, to, n)
    inner, n_weights = 1, 0
    for j in range(sk.table_ptr[f] + s.length[f] - 1, sk.table_ptr[f] - 1, -1):
        v = s.scope[j]
        if v == len(sk.evidence_factor):
            continue  # the case axis
        if seen[v] == SOFT and sk.evidence_factor[v] == f:
            to[at], to[at + 1], to[at + 2] = v, sk.card[v], inner
            at += 3
            n_weights += 1
        inner *= sk.card[v]
    v = len(sk.evidence_factor) - 1
    while v >= 0 and sk.uses[v] == 0:  # a set variable: no factor has it
        if seen[v] == SOFT and sk.evidence_factor[v] == f:
            to[at], to[at + 1], to[at + 2] = v, to[n + rec.LOAD_CELLS], 0
            at += 3
            n_weights += 1
        v -= 1
    to[n + rec.LOAD_WEIGHTS] = n_weights
    to[n + rec.LOAD_LENGTH] = at - n
    return at


@inlined
def _padded(cells):  # type: ignore[no-untyped-def]
    """Cells (int64) of a table with what keeps the next one aligned."""
    return -(-cells // rec.ALIGNMENT) * rec.ALIGNMENT


@inlined
def _load_room(sk, f):  # type: ignore[no-untyped-def]
    """Numbers that the load of factor f takes at most (int64)."""
    return rec.LOAD_FIELDS + 5 * (sk.table_end[f] - sk.table_ptr[f]) + 3


@compiled(allocates=False)
def _measure_loads(sk, s):  # type: ignore[no-untyped-def]
    """Loads, stores, and the numbers that both take at most."""
    n_loads, n_stores, room = 0, 0, 0
    for f in range(len(sk.factor_head)):
        if s.cut[f] != 0 and s.needed[f] != 0:
            n_loads += 1
            room += _load_room(sk, f)
    for i in range(len(sk.op_out)):
        if sk.op_kind[i] == FAMILY:
            n_stores += 1
            room += _load_room(sk, sk.answers[i])
    return n_loads, n_stores, room


@compiled(allocates=False)
def _make_loads(sk, seen, s, source, places, at, loads, load_ptr):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Write the loads of the factors that are restricted or weighed; notes cell and exponent of every factor in `s`."""
    # seen: (V+1,) uint8
    # source: (F,) int64: First cell of each factor
    # places: (F + T,) or (0,) int64: See `Layout.places`
    # at: First free cell
    # loads, load_ptr: Written; see `Records`
    # returns tuple of int64: Numbers of the loads, and the first free cell behind the copies.
    n_tables, n_factors, lanes = len(sk.table_ptr), len(source), sk.card[-1]
    n, n_loads = 0, 0
    load_ptr[0] = 0
    for f in range(n_factors):
        s.cell[f], s.exponent[f] = source[f], f
        if s.cut[f] == 0 or s.needed[f] == 0:
            continue
        s.cell[f], s.exponent[f] = places[f] if len(places) else at, n_tables + 1 + f
        end = _write_load(sk, seen, f, s, source[f], loads, n)
        loads[n + rec.LOAD_OUT], loads[n + rec.LOAD_OUT_EXP] = s.cell[f], s.exponent[f]
        if not len(places):
            at += _padded(loads[n + rec.LOAD_CELLS] * lanes)
        n = end
        n_loads += 1
        load_ptr[n_loads] = n
    return n, at


@compiled(allocates=False)
def _make_stores(sk, seen, s, source, stores, store_ptr):  # type: ignore[no-untyped-def]
    """Write the stores of all families, in the order of their contractions; parameters as for `_make_loads`."""
    n, n_stores, case = 0, 0, len(sk.card) - 1
    store_ptr[0] = 0
    for i in range(len(sk.op_out)):
        if sk.op_kind[i] == FAMILY:
            out, f = sk.op_out[i], sk.answers[i]
            end = _write_load(sk, seen, f, s, source[f], stores, n)
            last = sk.table_ptr[out] + s.length[out] - 1
            needed = s.needed[out] != 0
            stores[n + rec.LOAD_OUT] = s.cell[out] if needed else -1
            stores[n + rec.LOAD_OUT_EXP] = 1 if needed and s.scope[last] == case else 0
            n = end
            n_stores += 1
            store_ptr[n_stores] = n
    return n


@compiled(allocates=False)
def _fill_records(sk, s, splits, answer_cell, places, at, room, records, record_ptr, answers):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Write the records of the contractions that are made."""
    # splits: See `reassociate.choose_orders`
    # answer_cell: (V,) int64: See `Layout.answer`
    # places: (T,) or (0,) int64: See `Layout.places`, without the restricted factors
    # at: First free cell
    # records, record_ptr, answers: Written; see `Records`
    # returns tuple of int64: Numbers of the records, cells of the arena, most inputs, longest row, terms.
    lanes = sk.card[-1]
    n, n_ops, most, longest, work, n_answers, split = 0, 0, 2, 1, 0, 0, 0
    record_ptr[0] = 0
    for i in range(len(sk.op_out)):
        out, v = sk.op_out[i], sk.answers[i]
        if s.needed[out] == 0 or s.rep[out] != out:
            continue
        is_posterior, pieces = v >= 0 and sk.op_kind[i] != FAMILY, 1
        if splits[split, SPLIT_OP] == i:  # what it reads is made by a record of its own
            split, pieces = split + 1, 2
        for piece in range(pieces - 1, -1, -1):
            t = out if piece == 0 else splits[split - 1, SPLIT_MADE]
            k = take_inputs(sk, i, s, splits[split - 1], pieces, piece, room)
            s.exponent[t] = t
            if piece == 0 and is_posterior and lanes == 1:
                s.cell[t] = answer_cell[v]
            else:
                s.cell[t] = places[t] if len(places) else at
            end, terms = write_record(sk, i, s, room, k, t, v if piece == 0 else -1, records, n)
            if not len(places) and s.cell[t] == at:
                at += _padded(records[n + rec.SIZE])
            work += terms
            most = max(most, records[n + rec.INPUTS])
            if records[n + rec.INPUTS] > 2:
                longest = max(longest, records[n + rec.ROW])
            if records[n + rec.PACKED] == 1:
                longest = max(longest, PANEL_CELLS)
            n = end
            n_ops += 1
            record_ptr[n_ops] = n
        if is_posterior:
            answers[n_answers], answers[n_answers + 1] = v, s.cell[out]
            answers[n_answers + 2] = records[record_ptr[n_ops - 1] + rec.BY_CASE]
            n_answers += 3
    return n, at, most, longest, work


@compiled(allocates=False)
def _locate(tables, s, places):  # type: ignore[no-untyped-def]
    """Write cell, exponent and length of some tables that are made or are factors; returns how many numbers."""
    n = 0
    for r in range(len(tables)):
        t = s.rep[tables[r]]
        if t >= 0:
            places[n], places[n + 1], places[n + 2] = s.cell[t], s.exponent[t], s.length[t]
            n += 3
    return n


@inlined
def _lowering_room(sk, most, widest):  # type: ignore[no-untyped-def]
    """Numbers of scratch memory besides `shrink_room`; parameters as for `_take_room`."""
    n_vars, n_tables = len(sk.card), len(sk.table_ptr)
    return (most + 4) * n_vars + (widest + 1) * (most + 6) + 2 * most + 2 * n_tables + SPLIT_NUMBERS + 1


@compiled()
def _take_room(sk, most, widest, room):  # type: ignore[no-untyped-def]
    """A `ContractionRoom` at the beginning of `room`, and where it ends."""
    # most, widest: Inputs of a contraction, and variables of all its inputs, at most
    # room: The strides come first: they are zeros before and after every program
    n_vars = len(sk.card)
    strides, at = part(room, 0, (most + 1) * n_vars)
    joint, at = part(room, at, widest)
    loops, at = part(room, at, (widest + 1) * (most + 2))
    tables, at = part(room, at, most)
    there, at = part(room, at, n_vars + 1)
    order, at = part(room, at, widest + 1)
    rounds, at = part(room, at, widest + 1)
    base, at = part(room, at, most)
    there[:] = 0
    return (
        ContractionRoom(
            strides.reshape((most + 1, n_vars)), joint, loops.reshape((widest + 1, most + 2)), tables, there, order,
            rounds, base,
        ),
        at,
    )  # fmt: skip


@compiled()
def _reduce_pattern(sk, axis_rank, seen, soft, targets, room):  # type: ignore[no-untyped-def]
    """`reduce_flat` of a pattern by number: what it leaves, and the pattern by rank."""
    # axis_rank, seen, soft, targets: See `specialise`
    # room: Scratch memory
    n_vars = len(sk.card)
    flags = room[: n_vars // 4 + 1].view(np.uint8)
    pattern, target = flags[:n_vars], flags[n_vars : 2 * n_vars]
    pattern[n_vars - 1], target[n_vars - 1] = FREE, 1
    everything = len(targets) == 1 and targets[0] < 0
    for v in range(n_vars - 1):
        pattern[axis_rank[v]] = HARD if seen[v] else FREE
        target[axis_rank[v]] = everything and sk.uses[axis_rank[v]] > 0
    for v in soft:
        pattern[axis_rank[v]] = SOFT
    if not everything:
        for v in targets:
            target[axis_rank[v]] = 1
    return reduce_flat(sk, pattern, target, room[n_vars // 4 + 1 :]), pattern


@inlined
def _write_code(sk, pattern, s, splits, layout, counts, loops, code):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Write the code of what `reduce_flat` leaves; returns its length."""
    # pattern: (V+1,) uint8
    # splits: See `reassociate.choose_orders`
    # layout: The fields of a `Layout`, the first free cell last
    # counts: tuple of int64: Loads, contractions, stores, posteriors
    # code: Written; see `Records`
    factor_cell, answer_cell, places, free = layout
    n_loads, n_ops, n_stores, n_answers = counts
    n_factors = len(factor_cell)
    roots = code[rec.HEADER:]
    wanted = roots[3 * len(sk.roots) :]
    answers, at = part(code, rec.HEADER + 3 * (len(sk.roots) + len(sk.wanted)), 3 * n_answers)
    code[rec.END_ANSWERS] = at
    load_ptr, at = part(code, at, n_loads + 1)
    code[rec.END_LOAD_PTR] = at
    record_ptr, at = part(code, at, n_ops + 1)
    code[rec.END_RECORD_PTR] = at
    store_ptr, at = part(code, at, n_stores + 1)
    code[rec.END_STORE_PTR] = at
    n, free = _make_loads(sk, pattern, s, factor_cell, places, free, code[at:], load_ptr)
    at += n
    code[rec.END_LOADS] = at
    n, code[rec.CELLS], code[rec.MOST_INPUTS], code[rec.LONGEST_ROW], code[rec.TERMS] = _fill_records(
        sk, s, splits, answer_cell, places[n_factors:], free, loops, code[at:], record_ptr, answers
    )
    at += n
    code[rec.END_RECORDS] = at
    at += _make_stores(sk, pattern, s, factor_cell, code[at:], store_ptr)
    code[rec.END_STORES] = at
    first_wanted = rec.HEADER + 3 * len(sk.roots)
    code[rec.END_ROOTS] = rec.HEADER + _locate(sk.roots, s, roots)
    code[rec.END_WANTED] = first_wanted + _locate(sk.wanted, s, wanted)
    code[rec.FIRST_WANTED], code[rec.FIRST_ANSWER] = first_wanted, first_wanted + 3 * len(sk.wanted)
    return at


@compiled("i8[:], i8[:], const(i8[:]), i8[:], i8[:], i8[:], b1[:], i8[:], i8[:], i8[:]")
def specialise(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    image, sizes, axis_rank, factor_cell, answer_cell, places, seen, soft, targets, room
):
    """Write the code of a pattern at the end of the scratch memory."""
    # image: A program, see `jtgpu.plans.specialise.pack`
    # sizes: (5+n,) int64: Inputs of a contraction, variables of all its inputs, at most; first cell that it may use;
    #     lanes; cells from which a table may be avoided, and contractions of such tables, see `reassociate`
    # axis_rank: (V,) int64
    # factor_cell, answer_cell, places: See `Layout`
    # seen: (V,) bool: Observed variables, by number
    # soft, targets: Variables with weights, and variables whose posteriors are wanted, by number; -1 for all variables
    # room: Scratch memory
    # returns tuple of int64: Where the code begins in `room` and where it ends. If the first is negative, nothing was
    #     written, and the second is the size that `room` needs.
    sk = unpack(image)
    most, widest, free, lanes = sizes[0], sizes[1], sizes[2], sizes[3]
    begin = _lowering_room(sk, most, widest) + order_room(sk, sizes[5:]) + shrink_room(sk) + len(sk.card) // 4 + 1
    if begin + rec.HEADER > len(room):
        return -1, 2 * begin
    loops, at = _take_room(sk, most, widest, room)
    card, at = part(room, at, len(sk.card))
    card[:] = sk.card
    card[-1] = lanes
    sk = with_card(sk, card)
    cell, at = part(room, at, len(sk.table_ptr))
    exponent, at = part(room, at, len(sk.table_ptr))
    numbers, at = part(room, at, SPLIT_NUMBERS)
    splits = numbers.reshape((-1, SPLIT_FIELDS))
    order, at = part(room, at, order_room(sk, sizes[5:]))
    left, pattern = _reduce_pattern(sk, axis_rank, seen, soft, targets, room[at:begin])
    exponent[:] = len(sk.table_ptr)
    s = ReducedTables(left.rep, left.length, left.scope, left.use, left.needed, left.cut, cell, exponent)
    n_loads, n_stores, load_room = _measure_loads(sk, s)
    splits[0, SPLIT_OP], n_splits = -1, 0
    if lanes == 1 and len(places) == 0 and len(sizes) > 5:
        n_splits = choose_orders(sk, s, sizes[4], widest, sizes[5:], splits, order)
    n_ops, n_answers, record_room = measure(sk, s, splits, n_splits)
    fixed = rec.HEADER + 3 * (len(sk.roots) + len(sk.wanted) + n_answers) + n_loads + n_ops + n_stores + 3
    if begin + fixed + load_room + record_room > len(room):
        return -1, begin + fixed + load_room + record_room
    end = _write_code(
        sk, pattern, s, splits, (factor_cell, answer_cell, places, free), (n_loads, n_ops, n_stores, n_answers), loops,
        room[begin:],
    )  # fmt: skip
    return begin, begin + end
