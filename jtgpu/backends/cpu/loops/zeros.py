"""Contractions as lists of their non-zero terms; see `jtgpu.backends.cpu.programs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....util.jit import compiled
from .. import records as rec
from ..records import Records
from .kernels import contract
from .vector import LANES

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["rewrite", "support"]

MOST_NUMBERS = 8_000_000  # of a program's records: 64 MB
MOST_CELLS = 1 << 31  # of an arena: two cells are one number


class _Zeros(NamedTuple):
    """Facts about all contractions for `_write_sparse`."""

    arena: NDArray[np.float64]  # 1 where a cell can be above 0
    loops: NDArray[np.int64]  # (n, 4) scratch memory
    rounds: NDArray[np.int64]  # (n,) scratch memory
    terms: NDArray[np.int64]  # (m, 2) scratch memory: the terms of a contraction, see `records.SPARSE`, and their lanes
    cells: NDArray[np.int64]  # (m, 2) scratch memory: cells of its output, and the number of their terms
    to: NDArray[np.int64]  # gets the records
    fewest: int  # terms of a contraction that may become a list


@compiled()
def _load_support(arena, load, cards, lanes):  # type: ignore[no-untyped-def]
    """Restrict a factor to observed variables: 1 in the cells that are above 0 for some of their states."""
    # load: See `records`
    # cards: (V,) int64: Cardinalities by rank
    to, cells = load[rec.LOAD_OUT], load[rec.LOAD_CELLS]
    n_observed, n_loops = load[rec.LOAD_OBSERVED], load[rec.LOAD_LOOPS]
    loops = rec.LOAD_FIELDS + 2 * n_observed
    for i in range(to, to + cells * lanes):
        arena[i] = 0.0
    configs = 1
    for j in range(n_observed):
        configs *= cards[load[rec.LOAD_FIELDS + 2 * j]]
    for config in range(configs):
        source, rest = load[rec.LOAD_FACTOR], config
        for j in range(n_observed):
            card = cards[load[rec.LOAD_FIELDS + 2 * j]]
            source += rest % card * load[rec.LOAD_FIELDS + 2 * j + 1]
            rest //= card
        for c in range(cells):
            at, rest = source, c
            for j in range(n_loops - 1, -1, -1):
                at += rest % load[loops + 2 * j] * load[loops + 2 * j + 1]
                rest //= load[loops + 2 * j]
            if arena[at] > 0.0:
                for i in range(lanes):
                    arena[to + c * lanes + i] = 1.0


@compiled("f8[:], Records, i8[:], i8, i8[:]")
def support(arena, code, cards, lanes, scratch):  # type: ignore[no-untyped-def]
    """Run a program so that every cell is 1 where it can be above 0, else 0."""
    # arena: Its factors are 1 where they are above 0
    # cards: (V,) int64: Cardinalities by rank
    # scratch: `workspace.KernelScratch.block`
    for p in range(len(code.load_ptr) - 1):
        _load_support(arena, code.loads[code.load_ptr[p] : code.load_ptr[p + 1]], cards, lanes)
    for p in range(len(code.record_ptr) - 1):
        record = code.records[code.record_ptr[p] : code.record_ptr[p + 1]]
        contract(arena.ctypes.data, record.ctypes.data, scratch.ctypes.data)
        for i in range(record[rec.OUT], record[rec.OUT] + record[rec.SIZE]):
            arena[i] = 1.0 if arena[i] > 0.0 else 0.0


@compiled()
def _term_loops(record, lanes, loops):  # type: ignore[no-untyped-def]
    """The loops of a contraction of two tables with the row among them, without the cases.

    A kept row stands before the reduced loops, a reduced one behind them.
    """
    # lanes: Cases that the row has for each cell
    # loops: (n, 4) int64: Written: extent, stride of the output, of A, of B
    # returns tuple of int64: Loops, the row's place among them, all terms, and the rounds of the reduced loops but the
    #     row.
    n_loops, n_kept = record[rec.KEPT] + record[rec.REDUCED], record[rec.KEPT]
    last = n_loops if record[rec.ROW_OUT] == 0 else n_kept
    terms, rows = 1, 1
    for j in range(n_loops):
        to = j if j < last else j + 1
        for c in range(4):
            loops[to, c] = record[rec.FIRST_LOOP + 4 * j + c]
        terms *= loops[to, 0]
        if j >= n_kept:
            rows *= loops[to, 0]
    loops[last, 0] = record[rec.ROW] // lanes
    loops[last, 1], loops[last, 2] = record[rec.ROW_OUT] * lanes, record[rec.ROW_A] * lanes
    loops[last, 3] = record[rec.ROW_B] * lanes
    return n_loops + 1, last, terms * loops[last, 0], rows


@compiled()
def _list_terms(z, record, loops, n_loops, last, all_terms, most):  # type: ignore[no-untyped-def]
    """List the terms that are structurally non-zero in `z.terms`, and the cells that have any in `z.cells`."""
    # loops, n_loops, last, all_terms: See `_term_loops`
    # most: Terms that may remain
    # returns tuple of int64: Cells and terms; -1 and 0 if more terms remain.
    count, o, a, b = z.rounds, record[rec.OUT], record[rec.A], record[rec.B]
    for j in range(n_loops):
        count[j] = 0
    cells, left, cell = 0, 0, -1
    for _ in range(all_terms):
        if z.arena[a] > 0.0 and z.arena[b] > 0.0:
            if left == most:
                return -1, 0
            if o != cell:
                cell = o
                z.cells[cells, 0], z.cells[cells, 1] = o, 0
                cells += 1
            z.cells[cells - 1, 1] += 1
            z.terms[left, 0], z.terms[left, 1] = a | b << 32, count[last] % LANES
            left += 1
        for j in range(n_loops - 1, -1, -1):
            count[j] += 1
            ahead = 1
            if count[j] == loops[j, 0]:
                count[j] = 0
                ahead -= loops[j, 0]
            o += ahead * loops[j, 1]
            a += ahead * loops[j, 2]
            b += ahead * loops[j, 3]
            if ahead == 1:
                break
    return cells, left


@compiled()
def _write_groups(z, cells, end):  # type: ignore[no-untyped-def]
    """Write cells, those of the fewest terms first, and their terms to `z.to[end:]`; see `records.SPARSE`."""
    # returns tuple of int64: Groups, and where they end; -1 and `end` if there is no room.
    to, longest = z.to, 0
    for c in range(cells):
        longest = max(longest, z.cells[c, 1])
    number, groups, at = np.zeros(longest + 1, np.int64), 0, end
    for c in range(cells):
        number[z.cells[c, 1]] += 1
    for n in range(1, longest + 1):
        if number[n] > 0:
            groups += 1
            at += 2 + number[n] * (1 + n)
    if at > len(to):
        return -1, end
    at = end
    for n in range(1, longest + 1):
        if number[n] > 0:
            to[at], to[at + 1] = n, number[n]
            size, number[n] = number[n] * (1 + n), at + 2
            at += 2 + size
    t = 0
    for c in range(cells):
        n = z.cells[c, 1]
        place = number[n]
        to[place] = z.cells[c, 0]
        for i in range(n):
            to[place + 1 + i] = z.terms[t + i, 0]
        number[n] += 1 + n
        t += n
    return groups, at


@compiled()
def _write_lanes(z, cells, end):  # type: ignore[no-untyped-def]
    """Write cells and their terms by lanes to `z.to[end:]`; parameters and result as for `_write_groups`."""
    to, t, number, at = z.to, 0, np.empty(LANES, np.int64), end
    for c in range(cells):
        number[:] = 0
        for i in range(t, t + z.cells[c, 1]):
            number[z.terms[i, 1]] += 1
        longest = number.max()
        if at + 2 + LANES * longest > len(to):
            return -1, end
        to[at], to[at + 1] = z.cells[c, 0], longest
        at += 2
        to[at : at + LANES * longest] = rec.NO_TERM
        number[:] = 0
        for i in range(t, t + z.cells[c, 1]):
            lane = z.terms[i, 1]
            to[at + LANES * number[lane] + lane] = z.terms[i, 0]
            number[lane] += 1
        at += LANES * longest
        t += z.cells[c, 1]
    return cells, at


@compiled()
def _write_sparse(z, record, lanes, share, at):  # type: ignore[no-untyped-def]
    """Write a contraction as a list of its terms that are structurally non-zero."""
    # share: Of the terms that may remain at most
    # at: Where in ``z.to`` to write
    # returns The record's end; `at` if it is better left as it is.
    to = z.to
    n_loops, last, terms, rounds = _term_loops(record, lanes, z.loops)
    reduced = record[rec.ROW_OUT] == 0 and record[rec.PACKED] == 0
    if reduced and rounds > rec.LIST:  # accumulated in several rounds, see `kernels`
        return at
    begin, most = at + rec.FIRST_LOOP + 2, min(int(terms * share), len(z.terms))
    if terms * lanes < z.fewest or begin > len(to):
        return at
    cells, left = _list_terms(z, record, z.loops, n_loops, last, terms, most)
    if cells < 0:
        return at
    groups, end = _write_lanes(z, cells, begin) if reduced else _write_groups(z, cells, begin)
    if groups < 0:
        return at
    to[at : at + rec.FIRST_LOOP] = record[: rec.FIRST_LOOP]
    to[at + rec.LENGTH], to[at + rec.LISTED], to[at + rec.ROW] = end - at, rec.SPARSE, lanes
    to[at + rec.ROW_OUT] = 0 if reduced else 1
    to[at + rec.FIRST_LOOP], to[at + rec.FIRST_LOOP + 1] = groups, left
    return end


@compiled()
def _can_be_sparse(record):  # type: ignore[no-untyped-def]
    """Whether a record is a sum of products of two tables by loops, whose bits a list of terms can repeat."""
    if record[rec.PACKED] == 1:  # an input that is summed while it is copied adds in another order
        n = record[rec.KEPT] + record[rec.REDUCED]
        for j in range(rec.FIRST_LOOP + 4 * record[rec.KEPT], rec.FIRST_LOOP + 4 * n, 4):
            if record[j + 2] == 0 or record[j + 3] == 0:
                return False
        if record[rec.ROW_OUT] == 0 and (record[rec.ROW_A] == 0 or record[rec.ROW_B] == 0):
            return False
    return record[rec.INPUTS] == 2 and record[rec.LISTED] == 0 and record[rec.MAXIMAL] == 0


@compiled("f8[:], i8[:], i8[:], i8, f8, f8, i8")
def rewrite(arena, records, record_ptr, lanes, share, share_of_lanes, fewest):  # type: ignore[no-untyped-def]
    """The records with lists in place of loops where few terms remain."""
    # arena: See `_Zeros`
    # share, share_of_lanes: Of the terms that may remain at most, of tables without and with cases
    # fewest: Terms of a contraction that may become a list
    # returns changed: Contractions that are lists now
    room, most = len(records), 0
    for p in range(len(record_ptr) - 1):
        record = records[record_ptr[p] : record_ptr[p + 1]]
        if _can_be_sparse(record):
            terms = record[rec.ROW]
            for j in range(record[rec.KEPT] + record[rec.REDUCED]):
                terms *= record[rec.FIRST_LOOP + 4 * j]
            listed = int(terms * (share if record[rec.BY_CASE] == 0 else share_of_lanes / lanes))
            most = max(most, listed)
            room += 3 * listed + 2
    if len(arena) > MOST_CELLS:
        return records[:0], record_ptr, 0
    most = min(most, MOST_NUMBERS)
    to, ptr = np.empty(min(room, MOST_NUMBERS), np.int64), np.zeros(len(record_ptr), np.int64)
    scratch = np.empty((2 * most, 2), np.int64)
    z = _Zeros(
        arena, np.empty((64, 4), np.int64), np.empty(64, np.int64), scratch[:most], scratch[most:], to, fewest
    )
    at, changed = 0, 0
    for p in range(len(record_ptr) - 1):
        record = records[record_ptr[p] : record_ptr[p + 1]]
        end = at
        if _can_be_sparse(record):
            by_case = record[rec.BY_CASE] == 1
            end = _write_sparse(z, record, lanes if by_case else 1, share_of_lanes if by_case else share, at)
        if end == at:
            if at + len(record) > len(to):
                return to[:0], ptr, 0
            to[at : at + len(record)] = record
            end = at + len(record)
        else:
            changed += 1
        at = end
        ptr[p + 1] = at
    return to[:at].copy(), ptr, changed
