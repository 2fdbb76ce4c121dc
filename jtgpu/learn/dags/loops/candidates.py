"""Compiled loop that selects the candidate parents of a child."""

from __future__ import annotations

import numpy as np

from ....util.jit import compiled

__all__ = ["search_exclusions"]


@compiled(allocates=False)
def _first_disjoint(sets, excluded, first):  # type: ignore[no-untyped-def]
    """The first set from a position on without an excluded member; -1 if there is none."""
    for i in range(first, len(sets)):
        free = True
        for j in range(sets.shape[1]):
            u = sets[i, j]
            if u >= 0 and excluded[u]:
                free = False
                break
        if free:
            return i
    return -1


@compiled(allocates=False)
def _is_known(excluded, sets_excluded, n):  # type: ignore[no-untyped-def]
    """Whether one of the first n rows is equal to a row."""
    for i in range(n):
        equal = True
        for u in range(len(excluded)):
            if sets_excluded[i, u] != excluded[u]:
                equal = False
                break
        if equal:
            return True
    return False


@compiled("i8[:, :], i8, i8, u1[:], u1[:, :], i8[:]")
def search_exclusions(sets, n_chosen, k, chosen, excluded, found):  # type: ignore[no-untyped-def]
    """Choose the members of the best set, then those of the best sets without one of them, and so on."""
    # sets: (M, j) int64: Parent sets by descending weight: members, or -1
    # n_chosen, k: Number of variables that are chosen at first, and at most at last
    # chosen: (n,) uint8: The chosen variables, which are updated. Those that are chosen at first are never excluded.
    # excluded: (E, n) uint8: Scratch memory: the exclusions that were tried, of which there are at most E
    # found: (E,) int64: Scratch memory: the best set without each of them; -1 once it was used
    fixed = chosen.copy()
    n_entries = 1
    for u in range(len(chosen)):
        excluded[0, u] = 0
    found[0] = 0 if len(sets) else -1
    while n_chosen < k:
        entry = -1
        for e in range(n_entries):
            if found[e] >= 0 and (entry < 0 or found[e] < found[entry]):
                entry = e
        if entry < 0:
            return n_chosen
        best = found[entry]
        found[entry] = -1
        for j in range(sets.shape[1]):
            u = sets[best, j]
            if u >= 0 and not chosen[u] and n_chosen < k:
                chosen[u] = 1
                n_chosen += 1
        for j in range(sets.shape[1]):
            u = sets[best, j]
            if u < 0 or fixed[u] or n_entries == len(excluded):
                continue
            for i in range(len(chosen)):
                excluded[n_entries, i] = excluded[entry, i]
            excluded[n_entries, u] = 1
            if not _is_known(excluded[n_entries], excluded, n_entries):
                found[n_entries] = _first_disjoint(sets, excluded[n_entries], best)
                n_entries += 1
    return n_chosen
