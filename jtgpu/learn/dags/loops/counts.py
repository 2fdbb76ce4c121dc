"""Compiled loops that count the table of every set of variables of one size, and sum a function of its cells.

A set {a < b < ... < z} has the colexicographic rank C(a, 1) + C(b, 2) + ... Its table has one cell for each
configuration; the smallest variable is the slowest axis. Sets are visited by prefix: all members but the smallest.

The last state of a variable has no bit plane. Cells in which no variable has its last state are counted by AND and
population count; every other cell is a marginal, taken from the table of a smaller set, minus its sibling cells. All
numbers are integers, so this is exact. A set whose planes would take longer than its rows is counted row by row.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ....util.elementary.loops.functions import popcount
from ....util.jit import compiled
from ..chain_records import BY_CELLS, BY_ROWS, MAX_COMBOS
from .scores import advance, family_score, sum_of_cells, unrank


@compiled(allocates=False)
def _refresh_ands(top, n_prefix, members, card, planes, plane_ptr, ands, n_ands, place, stride):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Compute the ANDs of planes of a prefix again, from its member number `top` down."""
    # members: (L,) int64: The prefix, ascending
    # card, planes, plane_ptr: See `count_sets`
    # ands: (L + 1, C, W) uint64: ``ands[t]``: of the members t, t + 1, ..., one row for each combination of their
    #     states but the last
    # n_ands: (L + 1,) int64: Number of these combinations; 0 if there are too many
    # place: (L + 1, C) int64: Cell of each combination in the table of these members
    # stride: (L + 1,) int64: Cells of the table of the members after t
    width = planes.shape[1]
    for t in range(top, -1, -1):
        v = members[t]
        inner = n_ands[t + 1]
        n_ands[t] = inner * (card[v] - 1) if inner * (card[v] - 1) <= ands.shape[1] else 0
        if n_ands[t] == 0:
            continue
        for s in range(card[v] - 1):
            row = plane_ptr[v] + s
            for c in range(inner):
                to = s * inner + c
                place[t, to] = s * stride[t] + place[t + 1, c]
                for w in range(width):
                    ands[t, to, w] = ands[t + 1, c, w] & planes[row, w]


@compiled(allocates=False)
def _list_last_states(n_prefix, members, card, stride, to, source, ptr):  # type: ignore[no-untyped-def]
    """List the cells of a prefix's table in which a variable has its last state.

    Each cell belongs to the largest variable that is in its last state: its value is a marginal without that variable,
    minus the cells of the other states.
    """
    # n_prefix, members, card, stride: See `_refresh_ands`
    # to, source: (cells,) int64: The cell, and the cell of the marginal, variable by variable
    # ptr: (L + 1,) int64: First entry of each variable
    at = 0
    for t in range(n_prefix):
        ptr[t] = at
        r = card[members[t]]
        outer = 1
        for i in range(t):
            outer *= card[members[i]]
        for o in range(outer):
            base = o * r * stride[t] + (r - 1) * stride[t]
            for inside in range(stride[t]):
                rest, reduced = inside, True
                for i in range(t + 1, n_prefix):
                    if rest // stride[i] == card[members[i]] - 1:
                        reduced = False
                        break
                    rest %= stride[i]
                if reduced:
                    to[at] = base + inside
                    source[at] = o * stride[t] + inside
                    at += 1
    ptr[n_prefix] = at


@compiled(allocates=False)
def _count_ands(ands, n_ands, planes, row, n_rows, place, q, cells, first):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Count the cells in which no variable has its last state; arguments as in `_refresh_ands` and `_fill_cells`."""
    width = planes.shape[1]
    for s in range(n_rows):
        for c in range(n_ands):
            count = 0
            for w in range(width):
                count += popcount(ands[c, w] & planes[row + s, w])
            cells[first + s * q + place[c]] = count


@compiled(allocates=False)
def _fill_cells(r, q, n_ands, below, first_below, prefix, cells, first):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Fill in the cells in which a variable has its last state."""
    # r, q: States of the smallest variable, cells of the prefix's table
    # n_ands: Number of combinations of the prefix's states but the last ones
    # below: (..) int32: Tables of the sets that are smaller by one
    # first_below: First cell of the prefix's table in it
    # prefix: With ``first_of``: first cell in `below` of the table without each variable of the prefix
    # cells, first: (..) int32, int64: The table
    to, source, ptr, stride = prefix.to, prefix.source, prefix.ptr, prefix.stride
    for c in range(n_ands):
        at = prefix.place[0, c]
        value = below[first_below + at]
        for s in range(r - 1):
            value -= cells[first + s * q + at]
        cells[first + (r - 1) * q + at] = value
    for t in range(len(prefix.cards)):
        n, step = prefix.cards[t], stride[t]
        for x in range(r):
            base, from_ = first + x * q, prefix.first_of[t] + x * (q // n)
            for e in range(ptr[t], ptr[t + 1]):
                at = base + to[e]
                value = below[from_ + source[e]]
                for s in range(1, n):
                    value -= cells[at - s * step]
                cells[at] = value


@compiled(allocates=False)
def _scan_rows(codes, weights, a, prefix_cell, q, n_cells, cells, first):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Count a table row by row; `prefix_cell` is the cell of each row in the prefix's table."""
    for i in range(first, first + n_cells):
        cells[i] = 0
    if len(weights):
        for t in range(codes.shape[1]):
            cells[first + codes[a, t] * q + prefix_cell[t]] += weights[t]
    else:
        for t in range(codes.shape[1]):
            cells[first + codes[a, t] * q + prefix_cell[t]] += 1


class _Prefix(NamedTuple):
    """Scratch memory for a prefix, the members of a set but the smallest; see `_refresh_ands`, `_list_last_states`."""

    members: Any
    ands: Any
    n_ands: Any
    place: Any
    stride: Any
    to: Any
    source: Any
    ptr: Any
    cards: Any
    first_of: Any
    shifts: Any
    row_cell: Any
    cells: Any


@compiled()
def _make_prefix(n_prefix, card, width, n_rows, max_cells, has_own):  # type: ignore[no-untyped-def]
    """Allocate a `_Prefix` for sets of ``n_prefix + 1`` variables."""
    most = 2
    for r in card:
        most = max(most, r)
    depth = n_prefix + 1
    n_combos = 1
    for _ in range(n_prefix):
        n_combos = min(n_combos * max(most - 1, 1), MAX_COMBOS)
    capacity = 1
    for _ in range(n_prefix):
        capacity = min(capacity * most, max_cells)
    made = _Prefix(
        np.zeros(depth, np.int64),
        np.empty((depth, n_combos, width), np.uint64),
        np.zeros(depth, np.int64),
        np.zeros((depth, n_combos), np.int64),
        np.ones(depth, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.zeros(depth, np.int64),
        np.ones(n_prefix, np.int64),
        np.zeros(n_prefix, np.int64),
        np.zeros(n_prefix, np.int64),
        np.zeros(n_rows, np.int64),
        np.empty(0 if has_own else max_cells, np.int32),
    )
    for w in range(width):
        made.ands[n_prefix, 0, w] = ~np.uint64(0)
    made.n_ands[n_prefix] = 1
    return made


@compiled(allocates=False)
def _enter_prefix(prefix, top, codes, card, planes, plane_ptr, binomials):  # type: ignore[no-untyped-def]
    """Prepare a prefix whose members up to number `top` are new: ANDs or cells of rows, lists, and ranks."""
    # returns Rank of the set with this prefix whose smallest member is variable 0.
    n_prefix, members, stride = len(prefix.cards), prefix.members, prefix.stride
    rank = 0
    for t in range(n_prefix - 1, -1, -1):
        prefix.cards[t] = card[members[t]]
        stride[t] = 1 if t == n_prefix - 1 else stride[t + 1] * card[members[t + 1]]
        rank += binomials[members[t], t + 2]
        prefix.shifts[t] = 0
        for i in range(n_prefix):
            if i != t:
                prefix.shifts[t] += binomials[members[i], i + 2 if i < t else i + 1]
    if len(planes):
        _refresh_ands(top, n_prefix, members, card, planes, plane_ptr, prefix.ands, prefix.n_ands, prefix.place, stride)
    else:
        prefix.n_ands[0] = 0
    if prefix.n_ands[0]:
        _list_last_states(n_prefix, members, card, stride, prefix.to, prefix.source, prefix.ptr)
    prefix.row_cell[0] = -1  # not computed yet
    return rank


@compiled(allocates=False)
def _find_row_cells(prefix, codes):  # type: ignore[no-untyped-def]
    """Compute the cell of every row in the prefix's table, unless that was done."""
    if prefix.row_cell[0] < 0:
        for i in range(codes.shape[1]):
            prefix.row_cell[i] = 0
        for t in range(len(prefix.cards)):
            v, step = prefix.members[t], prefix.stride[t]
            for i in range(codes.shape[1]):
                prefix.row_cell[i] += codes[v, i] * step


@compiled(allocates=False)
def _score_set(mode, shapes, functions, products, ess, values, column, cells, first, r, below, first_below, prefix, q):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Write the values of a set; arguments as in `count_sets` and `_fill_cells`."""
    n_cells = r * q
    if mode == BY_CELLS:
        g = 0
        while products[g] < n_cells:
            g += 1
        values[0, column] = sum_of_cells(cells, first, n_cells, shapes[g], functions[g])
    elif mode == BY_ROWS:
        for g in range(len(shapes)):
            values[g, column] = sum_of_cells(cells, first, n_cells, shapes[g], functions[g])
    else:
        values[0, column] = family_score(cells, first, n_cells, below, first_below, q, r, ess)
        for t in range(len(prefix.cards)):
            n, at = prefix.cards[t], prefix.first_of[t]
            values[t + 1, column] = family_score(cells, first, n_cells, below, at, n_cells // n, n, ess)


@compiled(
    "i8, i8, i8, u1[:, :], i8[:], i8[:], u8[:, :], i8[:], i8[:, :], i4[:], i8[:], i4[:], i8[:], i8, f8[:], f8[:, :], "
    "i8[:], f8, i8, f8[:, :]"
)
def count_sets(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    size, begin, end, codes, weights, card, planes, plane_ptr, binomials, below, below_ptr, own, own_ptr, mode, shapes,
    functions, products, ess, max_cells, values
):  # fmt: skip
    """Count the sets of one size whose prefixes have the ranks begin to end - 1."""
    # size, begin, end: Members of a set; range of ranks of sets of ``size - 1`` variables
    # codes, card: (n, N) uint8, (n,) int64
    # weights: (N,) int64: Empty if all are 1
    # planes, plane_ptr: (P, W) uint64, (n,) int64: Bit planes, and the first one of each variable. No planes if there
    #     are weights.
    # binomials: (n + 1, L) int64: L > size
    # below, below_ptr: (..) int32, (C(n, size - 1) + 1,) int64: Tables of the sets of ``size - 1`` variables, by rank;
    #     those without cells were too large
    # own, own_ptr: (..) int32, (C(n, size) + 1,) int64: Tables of these sets; `own` is empty if they are not stored
    # mode: `BY_CELLS`: one value, by the function whose entry of `products` is the number of cells. `BY_ROWS`: one
    #     value by each function. `BY_FAMILY`: BDs scores with each member as the child.
    # shapes, functions, products: (G,) float64, (G, F) float64, (G,) int64: Functions of a count, see `sum_of_cells`
    # max_cells: Values of larger tables are -inf
    # values: (K, C(n, size)) float64
    prefix = _make_prefix(size - 1, card, planes.shape[1], codes.shape[1], max_cells, len(own) > 0)
    cells = own if len(own) else prefix.cells
    if size > 1:
        unrank(begin, size - 1, binomials, prefix.members)
    top = size - 2
    for rank in range(begin, end):
        if rank > begin:
            top = max(top, advance(prefix.members, size - 1))
        n_smallest = prefix.members[0] if size > 1 else len(card)
        first_below, q = below_ptr[rank], below_ptr[rank + 1] - below_ptr[rank]
        column = 0
        if q:
            column = _enter_prefix(prefix, top, codes, card, planes, plane_ptr, binomials)
            top = -1
        else:
            for t in range(size - 1):
                column += binomials[prefix.members[t], t + 2]
        for a in range(n_smallest):
            r = card[a]
            if q == 0 or r * q > max_cells:
                for i in range(values.shape[0]):
                    values[i, column + a] = -math.inf
                continue
            first = own_ptr[column + a] if len(own) else 0
            for t in range(size - 1):
                prefix.first_of[t] = below_ptr[prefix.shifts[t] + a]
            n_ands = prefix.n_ands[0]
            if n_ands and n_ands * (r - 1) <= MAX_COMBOS:
                _count_ands(prefix.ands[0], n_ands, planes, plane_ptr[a], r - 1, prefix.place[0], q, cells, first)
                _fill_cells(r, q, n_ands, below, first_below, prefix, cells, first)
            else:
                _find_row_cells(prefix, codes)
                _scan_rows(codes, weights, a, prefix.row_cell, q, r * q, cells, first)
            _score_set(
                mode, shapes, functions, products, ess, values, column + a, cells, first, r, below, first_below, prefix,
                q,
            )  # fmt: skip
