"""Compiled loops over a model's factors: derivatives by every entry, and products at whole configurations."""

from __future__ import annotations

import math

import numpy as np

from ....util.jit import compiled
from .sweep import LOG2

__all__ = ["score", "spread"]


@compiled("f8[:], i8[:], i8[:], (i8[:], i8[:]), const(i8[:]), i4[:, :], f8[:]")
def score(arena, exponent, cells, scopes, cards, configurations, logs):  # type: ignore[no-untyped-def]
    """ln of the product of all factors at each configuration."""
    # exponent: (E,) int64: Of the factors first; see `workspace.Numbers`
    # cells: (F,) int64: First cell of each factor
    # scopes: tuple of int64: CSR arrays of the factors' variables, in axis order
    # cards: (V,) int64
    # configurations: (n, V) int32
    # logs: (n,) float64: Written
    ptr, scope = scopes
    for row in range(len(configurations)):
        total = 0.0
        for f in range(len(cells)):
            at = 0
            for j in range(ptr[f], ptr[f + 1]):
                at = at * cards[scope[j]] + configurations[row, scope[j]]
            value = arena[cells[f] + at]
            total += math.log(value) + exponent[f] * LOG2 if value > 0.0 else -math.inf
        logs[row] = total


@compiled()
def _spread_factor(arena, cell, observed, own_weights, cards, scope, stride, out):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Write the derivative of every entry of one factor."""
    # cell: First cell of the derivatives' table
    # observed: (V,) int32
    # own_weights: The likelihood vectors (float64), first number of each variable's (V,), the factor that has it (V,),
    #     and this factor (int64)
    # cards: (V,) int64
    # scope: Variables of the factor, in the order of the model's axes
    # stride: (V,) int64: Of the derivatives' table
    weights, weight_ptr, weighed, f = own_weights
    count = np.zeros(64, np.int64)
    for i in range(len(out)):
        at, scale = cell, 1.0
        for j in range(len(scope)):
            v, state = scope[j], count[j]
            at += state * stride[v]
            if observed[v] >= 0 and observed[v] != state:
                scale = 0.0
            if weighed[v] == f:
                scale *= weights[weight_ptr[v] + state]
        out[i] = arena[at] * scale
        for j in range(len(scope) - 1, -1, -1):
            count[j] += 1
            if count[j] < cards[scope[j]]:
                break
            count[j] = 0


@compiled("f8[:], i8[:], i4[:], (f8[:], i8[:], i8[:]), const(i8[:]), (i8[:], i8[:]), (i8[:], i8[:]), i8[:], f8[:]")
def spread(arena, cell, observed, weighed, cards, scopes, derivative_scopes, first, out):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Write the derivative of every entry of every factor, in the order of the model's axes.

    A table of derivatives lacks what is observed and what no other factor mentions; entries that contradict an
    observation have derivative zero, and weights are factors of their own.
    """
    # cell: (F,) int64: First cell of each factor's table of derivatives
    # observed: (V,) int32: -1 = not observed
    # weighed: Likelihood vectors (float64), the first number of each variable's (V,) int64, and the factor into which
    #     they are multiplied (V,) int64, -1 for none
    # cards: (V,) int64
    # scopes, derivative_scopes: tuple of int64: CSR arrays of the variables of each factor, and of each table of
    #     derivatives
    # first: (F+1,) int64: Place of each factor in `out`
    # out: Written
    weights, weight_ptr, weighing = weighed
    ptr, scope = scopes
    derivative_ptr, derivative_scope = derivative_scopes
    stride = np.zeros(len(cards), np.int64)
    for f in range(len(cell)):
        step = 1
        for j in range(derivative_ptr[f + 1] - 1, derivative_ptr[f] - 1, -1):
            v = derivative_scope[j]
            if observed[v] < 0:
                stride[v] = step
                step *= cards[v]
        _spread_factor(
            arena, cell[f], observed, (weights, weight_ptr, weighing, f), cards, scope[ptr[f] : ptr[f + 1]], stride,
            out[first[f] : first[f + 1]],
        )  # fmt: skip
        for j in range(derivative_ptr[f], derivative_ptr[f + 1]):
            stride[derivative_scope[j]] = 0
