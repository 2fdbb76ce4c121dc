"""Which states of each variable are possible; see `jtgpu.plans.reduction`."""

from __future__ import annotations

import numpy as np

from ...util.jit import compiled

# mypy: disable-error-code="no-untyped-def"


@compiled()
def _read(scope, scope_ptr, n_variables):
    """The factors of each variable, one variable after another, and where each begins."""
    ptr, factors = np.zeros(n_variables + 2, np.int64), np.empty(len(scope), np.int64)
    for v in scope:
        ptr[v + 2] += 1
    for v in range(n_variables):
        ptr[v + 2] += ptr[v + 1]
    for f in range(len(scope_ptr) - 1):
        for a in range(scope_ptr[f], scope_ptr[f + 1]):
            factors[ptr[scope[a] + 1]] = f
            ptr[scope[a] + 1] += 1
    return ptr, factors


@compiled()
def _find(support, variables, cards, first, possible, agreed, state):
    """Set the states that some entry of a factor agrees with."""
    # support: Of the factor
    # variables: Its scope, at least one
    # state: Scratch memory, for each axis
    last = len(variables) - 1
    for i in range(last + 1):
        state[i] = 0
        agreed[first[variables[i]] : first[variables[i] + 1]] = 0
    inner, n = first[variables[last]], cards[variables[last]]
    for row in range(0, len(support), n):
        agrees, one = np.uint8(1), np.uint8(0)
        for i in range(last):
            agrees &= possible[first[variables[i]] + state[i]]
        for s in range(n if agrees else 0):
            here = support[row + s] & possible[inner + s]
            agreed[inner + s] |= here
            one |= here
        for i in range(last if one else 0):
            agreed[first[variables[i]] + state[i]] = 1
        for i in range(last - 1, -1, -1):
            state[i] += 1
            if state[i] < cards[variables[i]]:
                break
            state[i] = 0


@compiled("u1[:], i8[:], i8[:], const(i8[:]), const(i8[:]), u1[:]")
def narrow(support, cell_ptr, cards, scope, scope_ptr, possible):
    """Clear the states that no entry of some factor agrees with, until nothing changes."""
    # support: 1 for each entry above zero, factor after factor
    # cell_ptr: (F+1,) int64: First entry of each factor
    # cards: (V,) int64
    # scope, scope_ptr: Variables of each factor, in the order of its axes
    # possible: 1 for each possible state, variable after variable
    n_variables, n_factors = len(cards), len(scope_ptr) - 1
    first = np.zeros(n_variables + 1, np.int64)
    for v in range(n_variables):
        first[v + 1] = first[v] + cards[v]
    reader_ptr, readers = _read(scope, scope_ptr, n_variables)
    queue, waits, begin, end = np.empty(n_factors + 1, np.int64), np.zeros(n_factors, np.bool_), 0, 0
    for f in range(n_factors):
        if scope_ptr[f] < scope_ptr[f + 1] and not support[cell_ptr[f] : cell_ptr[f + 1]].all():
            queue[end], waits[f], end = f, True, end + 1
    agreed, state = np.empty(len(possible), np.uint8), np.zeros(len(scope) + 1, np.int64)
    while begin != end:
        f = queue[begin]
        begin, waits[f] = (begin + 1) % len(queue), False
        variables = scope[scope_ptr[f] : scope_ptr[f + 1]]
        _find(support[cell_ptr[f] : cell_ptr[f + 1]], variables, cards, first, possible, agreed, state)
        for v in variables:
            changed = False
            for s in range(first[v], first[v + 1]):
                if possible[s] and not agreed[s]:
                    possible[s], changed = 0, True
            for r in range(reader_ptr[v], reader_ptr[v + 1] if changed else reader_ptr[v]):
                g = readers[r]
                if g != f and not waits[g]:
                    queue[end], waits[g], end = g, True, (end + 1) % len(queue)
