"""Rows of a table grouped by what they observe; see `jtgpu.backends.cpu.batch`."""

from __future__ import annotations

import numpy as np

from ....util.jit import compiled
from .growth import longer

__all__ = ["grouped"]

FIRST_TABLE = 64  # places of the hash table at the beginning; a power of two


@compiled()
def _hashed(bits, row):  # type: ignore[no-untyped-def]
    """A hash (uint64) of a row (int64) of `bits` (n, words) uint64."""
    h = np.uint64(0x9E3779B97F4A7C15)
    for w in range(bits.shape[1]):
        h = (h ^ bits[row, w]) * np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(33)
    return h


@compiled()
def _find(table, bits, first, row):  # type: ignore[no-untyped-def]
    """The place (int64) of a row's pattern in the hash table, or the free place where it belongs."""
    # table: Groups by place, -1 for none; its length is a power of two
    # bits: (n, words) uint64: Observed variables of each row
    # first: A row of each group
    mask = np.uint64(len(table) - 1)
    at = _hashed(bits, row) & mask
    while table[at] >= 0:
        other = first[table[at]]
        same = True
        for w in range(bits.shape[1]):
            same = same and bits[row, w] == bits[other, w]
        if same:
            break
        at = (at + np.uint64(1)) & mask
    return at


@compiled("i4[:, :], b1[:]")
def grouped(states, ignored):  # type: ignore[no-untyped-def]
    n, n_vars = states.shape
    bits = np.zeros((n, (n_vars + 63) // 64), np.uint64)
    table, first = np.full(FIRST_TABLE, -1, np.int64), np.empty(FIRST_TABLE // 2, np.int64)
    group, n_groups = np.empty(n, np.int64), 0
    for row in range(n):
        for v in range(n_vars):
            known = states[row, v] >= 0 and not ignored[v]
            bits[row, v >> 6] |= np.uint64(known) << np.uint64(v & 63)
        at = _find(table, bits, first, row)
        if table[at] < 0:
            if n_groups == len(first):  # half full
                table, first = np.full(2 * len(table), -1, np.int64), longer(first)
                for g in range(n_groups):
                    table[_find(table, bits, first, first[g])] = g
                at = _find(table, bits, first, row)
            table[at], first[n_groups] = n_groups, row
            n_groups += 1
        group[row] = table[at]
    ptr = np.zeros(n_groups + 1, np.int64)
    for row in range(n):
        ptr[group[row] + 1] += 1
    for g in range(n_groups):
        ptr[g + 1] += ptr[g]
    rows, to = np.empty(n, np.int64), ptr[:-1].copy()
    for row in range(n):
        rows[to[group[row]]] = row
        to[group[row]] += 1
    return rows, ptr
