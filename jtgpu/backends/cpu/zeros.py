"""Structural zeros: contractions most of whose terms are zero whatever the states, as lists of the others.

Many networks are full of zeros: of water's terms 1.5 % remain, of mildew's 15 %. Which ones depends on the factors and
on the pattern of a program, not on the states that are observed. So a program that runs again and again is run once
with ones for numbers, and every contraction is listed whose terms that are left take less time one by one than all of
them side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...util.numba_cache import compiled
from .kernels import LIST, contract
from .records import (
    BY_CASE,
    INPUTS,
    KEPT,
    LISTED,
    LOAD_FIELDS,
    LOOPS,
    OUT,
    ROW,
    ROW_A,
    ROW_B,
    ROW_OUT,
    SIZE,
    SPARSE,
    SUMMED,
    A,
    B,
    Program,
)
from .vector import LANES
from .workspace import Numbers, Scratch, aligned

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["without_zeros"]

# Measured on a Xeon with AVX-512: a dense term takes 0.07 to 0.2 ns, a listed one 1.3 ns; of eight cases at once, 2 ns.
MOST_LEFT = 0.08  # share of the terms of a contraction up to which those left are listed
MOST_LEFT_OF_LANES = 0.08
FEWEST_TERMS = 200
MOST_NUMBERS = 8_000_000  # of a program's records: 64 MB


@compiled()
def _load_support(arena, load, cards, lanes):  # type: ignore[no-untyped-def]
    """A factor cut to observed variables: 1 where some of their states leave more than zero."""
    to, cells, n_observed, n_loops = load[1], load[5], load[6], load[7]
    loops = LOAD_FIELDS + 2 * n_observed
    for i in range(to, to + cells * lanes):
        arena[i] = 0.0
    ways = 1
    for j in range(n_observed):
        ways *= cards[load[LOAD_FIELDS + 2 * j]]
    for way in range(ways):
        source, rest = load[3], way
        for j in range(n_observed):
            card = cards[load[LOAD_FIELDS + 2 * j]]
            source += rest % card * load[LOAD_FIELDS + 2 * j + 1]
            rest //= card
        for c in range(cells):
            at, rest = source, c
            for j in range(n_loops - 1, -1, -1):
                at += rest % load[loops + 2 * j] * load[loops + 2 * j + 1]
                rest //= load[loops + 2 * j]
            if arena[at] > 0.0:
                for i in range(lanes):
                    arena[to + c * lanes + i] = 1.0


@compiled()
def _support(arena, records, record_ptr, loads, load_ptr, cards, lanes, work, offsets, buffer):  # type: ignore[no-untyped-def]
    """1 in every cell of the arena that may be more than zero, 0 in the others."""
    for p in range(len(load_ptr) - 1):
        _load_support(arena, loads[load_ptr[p] : load_ptr[p + 1]], cards, lanes)
    for p in range(len(record_ptr) - 1):
        record = records[record_ptr[p] : record_ptr[p + 1]]
        contract(
            arena.ctypes.data, records.ctypes.data + 8 * record_ptr[p], work.ctypes.data, offsets.ctypes.data,
            buffer.ctypes.data,
        )  # fmt: skip
        for i in range(record[OUT], record[OUT] + record[SIZE]):
            arena[i] = 1.0 if arena[i] > 0.0 else 0.0


@compiled()
def _entries(arena, record, lanes, fewest, share, loops, count, to, at):  # type: ignore[no-untyped-def]
    """Write the terms of a contraction that are left at `to[at:]`; returns their end, or `at` for too many."""
    n_loops = record[KEPT] + record[SUMMED]
    terms = 1
    for j in range(n_loops):
        loops[j] = record[LOOPS + 4 * j : LOOPS + 4 * j + 4]
    # the row as a loop, without the cases: a kept one before the summed ones, a summed one behind them
    last = n_loops
    if record[ROW_OUT] != 0:
        last = record[KEPT]
        for j in range(n_loops, last, -1):
            loops[j] = loops[j - 1]
    loops[last, 0] = record[ROW] // lanes
    loops[last, 1], loops[last, 2], loops[last, 3] = (
        record[ROW_OUT] * lanes,
        record[ROW_A] * lanes,
        record[ROW_B] * lanes,
    )
    n_loops += 1
    rows = 1
    for j in range(n_loops):
        terms *= loops[j, 0]
        count[j] = 0
        if j != last and j >= record[KEPT]:
            rows *= loops[j, 0]
    if record[ROW_OUT] == 0 and rows > LIST:  # added up in several goes, see kernels
        return at
    most = int(terms * share)
    if terms * lanes < fewest or at + LOOPS + 2 + 4 * most > len(to):
        return at
    to[at : at + LOOPS] = record[:LOOPS]
    o, a, b = record[OUT], record[A], record[B]
    end, cell, rows, left = at + LOOPS + 2, -1, 0, 0
    row = end
    for _ in range(terms):
        if arena[a] > 0.0 and arena[b] > 0.0:
            if left == most:
                return at
            if o != cell:
                cell, row = o, end
                to[row], to[row + 1] = o, 0
                end += 2
                rows += 1
            to[row + 1] += 1
            to[end], to[end + 1] = a * LANES + count[last] % LANES if record[ROW_OUT] == 0 else a, b
            end += 2
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
    to[at], to[at + LISTED], to[at + ROW] = end - at, SPARSE, lanes
    to[at + LOOPS], to[at + LOOPS + 1] = rows, left
    return end


@compiled()
def _rewrite(arena, records, record_ptr, lanes, fewest, share, share_of_lanes):  # type: ignore[no-untyped-def]
    room = len(records)
    for p in range(len(record_ptr) - 1):
        record = records[record_ptr[p] : record_ptr[p + 1]]
        if record[INPUTS] == 2 and record[LISTED] == 0:
            terms = record[ROW]
            for j in range(record[KEPT] + record[SUMMED]):
                terms *= record[LOOPS + 4 * j]
            room += 4 * int(terms * (share if record[BY_CASE] == 0 else share_of_lanes / lanes)) + 2
    to, ptr = np.empty(min(room, MOST_NUMBERS), np.int64), np.zeros(len(record_ptr), np.int64)
    loops, count = np.empty((64, 4), np.int64), np.empty(64, np.int64)
    at, changed = 0, 0
    for p in range(len(record_ptr) - 1):
        record = records[record_ptr[p] : record_ptr[p + 1]]
        end = at
        if record[INPUTS] == 2 and record[LISTED] == 0:
            by_case = record[BY_CASE] == 1
            most = share_of_lanes if by_case else share
            end = _entries(arena, record, lanes if by_case else 1, fewest, most, loops, count, to, at)
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


def without_zeros(
    program: Program, numbers: Numbers, cards: NDArray[np.int64], lanes: int, cells: int = 0
) -> Program:
    """A program whose contractions leave out what is zero in every case; the same one where that does not pay.

    Parameters
    ----------
    program : Program
    numbers : Numbers
        The model's factors.
    cards : (V,) int64
        Cardinalities by rank.
    lanes : int
        Cases that the program answers at once.
    cells : int
        Of the arena, where the program's own count is not all of it.
    """
    arena = aligned(max(int(program.counts[0]), cells))
    numbers.fill(arena)
    np.greater(arena[: numbers.answers], 0, out=arena[: numbers.answers], casting="unsafe")
    scratch = Scratch()
    scratch.fit(program)
    _support(
        arena, program.records, program.record_ptr, program.loads, program.load_ptr, cards, lanes, *scratch.arrays
    )
    records, record_ptr, changed = _rewrite(
        arena, program.records, program.record_ptr, lanes, FEWEST_TERMS, MOST_LEFT, MOST_LEFT_OF_LANES
    )
    return program._replace(records=records, record_ptr=record_ptr) if changed else program
