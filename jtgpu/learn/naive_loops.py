"""Compiled loop of naive Bayes: one product for each class, as a mantissa and an exponent of two."""

from __future__ import annotations

import math

from ..util.jit import compiled

FACTORS = 1000  # of a product, each at least a half: no double is too small


@compiled("i4[:, :], i8[:], f8[:, :], i4[:, :], f8[:, :], i8[:, :]")
def products(states, first, mantissa, exponent, cells, power):  # type: ignore[no-untyped-def]
    """P(class, row) of each row: ``cells * 2**power``, (n, classes), with cells in [0.5, 1), or 0."""
    # states: (n, features): -1 = missing
    # first: (features,) row of each feature's first state in
    # mantissa, exponent: (rows, classes): P(class) in row 0, then P(state | class): in [0.5, 1), or 0
    for i in range(len(states)):
        for c in range(mantissa.shape[1]):
            cells[i, c], power[i, c] = mantissa[0, c], exponent[0, c]
        left = FACTORS
        for f in range(states.shape[1]):
            if states[i, f] < 0:
                continue
            at = first[f] + states[i, f]
            for c in range(mantissa.shape[1]):
                cells[i, c] *= mantissa[at, c]
                power[i, c] += exponent[at, c]
            left -= 1
            if left == 0:
                _split(cells[i], power[i])
                left = FACTORS
        _split(cells[i], power[i])


@compiled(allocates=False)
def _split(cells, power):  # type: ignore[no-untyped-def]
    for c in range(len(cells)):
        cells[c], shift = math.frexp(cells[c])
        power[c] += shift
