"""Times of rows of a table of cases on the CPU, one by one or side by side, in microseconds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...util.arrays import Ints
from .records import BY_CASE, FIRST_LOOP, INPUTS, KEPT, LISTED, PACKED, REDUCED, ROW, SIZE, Records

LANES = (64, 32, 16, 8)  # cases side by side: at most as many as have tables that fit a cache

# Fitted to eight networks from andes to munin4 with 10 and 30 % observed: side by side right within a tenth, row by row
# within 40 %. A term whose output exceeds LARGE cells waits for memory; other terms cost little more than their cells.
LARGE = 1 << 17  # cells, all cases together: 1 MB
PER_SWEEP, PER_RECORD, PER_CELL, PER_TERM, PER_LARGE_TERM = 5.0, 0.09, 2.4e-3, 6.3e-5, 4.3e-4
PER_ROW, PER_ROW_RECORD, PER_PACKED_TERM, PER_OTHER_TERM = 9.0, 0.06, 1.3e-4, 3.5e-4
PER_GROUP, PER_DERIVED_RECORD = 100.0, 0.6  # what a program of its own costs before its first sweep
PER_LISTED_TERM = 1.3e-3
# Of one case on several threads: microseconds to wake the others, and more for each. Parts of a packed contraction pack
# the same numbers again, which takes up to PACKING of its time; those below WHOLE are hardly split. Fitted on 16 cores.
WAKE, EACH_THREAD, PACKING, WHOLE = 500.0, 50.0, 1000.0, 30.0
MARGIN = 1.25  # rows are answered one by one where that is so many times quicker


class Config(NamedTuple):
    """How rows can be answered with programs of one kind, and what that takes."""

    lanes: int  # at most; 0: row by row
    bytes: int  # of the tables of that many lanes
    sweep: float  # of one sweep, whatever the number of lanes
    lane: float  # more for each lane
    program: float  # to derive one

    def best(self, n: int) -> int:
        """The number of lanes that answers n rows in least time."""
        return min((w for w in LANES if w <= self.lanes), key=lambda w: -(-n // w) * (self.sweep + w * self.lane))

    @property
    def row(self) -> float:
        """Time of a row among many."""
        return self.lane + self.sweep / self.lanes


ROW_BY_ROW = Config(0, 1, 0.0, 0.0, 0.0)


def _terms(records: Records) -> Ints:
    """(n,) products that each contraction accumulates; of the few with more than two inputs, about."""
    r, at = records.records, records.record_ptr[:-1]
    loops = r[at + KEPT] + r[at + REDUCED]
    j = np.arange(int(loops.max(initial=0)))
    extents = r[np.minimum(at[:, None] + FIRST_LOOP + 4 * j, len(r) - 1)]
    terms = np.where(j < loops[:, None], extents, 1).prod(axis=1) * r[at + ROW]
    return np.asarray(np.where(r[at + INPUTS] == 2, terms, 3 * r[at + SIZE]))


class Times(NamedTuple):
    """Time that a program takes."""

    sweep: float  # of one sweep, whatever the number of cases side by side
    case: float  # more for each case
    derivation: float


def splittable(records: Records) -> float:
    """Microseconds of one case on one thread that several can share without loss."""
    r, at = records.records, records.record_ptr[:-1]
    terms, listed, packed = _terms(records), r[at + LISTED], r[at + PACKED] == 1
    time = np.where(packed, PER_PACKED_TERM, PER_OTHER_TERM) * terms
    time = np.where(listed > 0, PER_LISTED_TERM * listed * r[at + SIZE], time)
    second = r[np.minimum(at + FIRST_LOOP + 1, len(r) - 1)]  # a record without loops may be the last
    time = np.where(listed < 0, PER_LISTED_TERM * second, time)
    useful = np.where(packed & (listed == 0) & (time > WHOLE), np.maximum(time - PACKING, 0.0), time)
    return float(useful.sum() + PER_ROW_RECORD * len(at))


def threads_of(shared: float, most: int) -> int:
    """The number of threads, at most so many, that answers one case soonest; see `splittable`."""
    n = max(1, min(most, round(math.sqrt(shared / EACH_THREAD))))
    return n if shared / n + WAKE + EACH_THREAD * n < shared else 1


def times_of(records: Records, lanes: int) -> Times:
    """Estimate the time of a program for so many cases at once; tables that do not depend on the case are made once."""
    # records: Before structural zeros are left out
    at, terms = records.record_ptr[:-1], _terms(records)
    derivation = PER_GROUP + PER_DERIVED_RECORD * len(at)
    if lanes == 1:
        packed = float(terms[records.records[at + PACKED] == 1].sum())
        others = float(terms.sum()) - packed
        row = PER_ROW + PER_ROW_RECORD * len(at) + PER_PACKED_TERM * packed + PER_OTHER_TERM * others
        return Times(0.0, row, derivation)
    by_case = records.records[at + BY_CASE] == 1
    size, terms = records.records[at + SIZE][by_case], terms[by_case]
    is_large = size > LARGE
    case = (
        PER_CELL * float(size[~is_large].sum()) + PER_TERM * float(terms[~is_large].sum())
        + PER_LARGE_TERM * float(terms[is_large].sum())
    ) / lanes
    return Times(PER_SWEEP + PER_RECORD * (len(size) + len(records.load_ptr) - 1), case, derivation)
