"""How small P(e) may be for doubles without scaling to be reliable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....plans.plan import Plan
from .contractions import OUT, A, B, Binary, Loop

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[np.float64]

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def least_root(plan: Plan, program: Binary, loops: Sequence[tuple[Loop, ...]], factors: Sequence[Table]) -> float:
    """log2 of the least P(e) for which doubles without scaling are right to 2^-43; inf if they may overflow.

    A product that is too small for a double has an error of at most 2^-1074. Every entry, and every derivative of an
    answer with respect to an entry, is largest without evidence, since all of them are sums of products of factors'
    entries and of evidence's weights, which are at most 1. So one propagation and its derivatives bound how much such
    errors change an answer.
    """
    # loops: sequence of tuples of Loop: Of every step
    # factors: In the axis order of the plan's tables
    sizes = [plan.size(s) for s in program.scopes]
    value: list[Table] = [np.asarray(x) for x in factors]
    value += [np.zeros(0)] * (len(sizes) - len(value))
    moves = [np.zeros(n) for n in sizes]
    n = 2 * sum(sizes)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for step, axes in zip(program.steps, loops, strict=True):
            tables = [(value[t], which) for t, which in zip(step.ins, (A, B), strict=False)]
            value[step.out] = _product(axes, tables, OUT)
            n += math.prod(extent for extent, _ in axes)
        for t in [*plan.posterior_table.tolist(), *plan.root_table.tolist()]:
            moves[t][:] = 1.0
        for step, axes in zip(reversed(program.steps), reversed(loops), strict=True):
            for k, t in enumerate(step.ins):
                others = [(value[o], (A, B)[i]) for i, o in enumerate(step.ins) if i != k]
                moves[t] += _product(axes, [(moves[step.out], OUT), *others], (A, B)[k])
    most = max(float(x.max(initial=0.0)) for x in (*value, *moves))
    if not most < 2.0**500:
        return math.inf
    moved = max(float(x.max(initial=0.0)) for x in moves)
    return -1074 + math.log2(max(moved, 1.0)) + math.log2(max(n, 1)) + 43


def _product(axes: tuple[Loop, ...], tables: Sequence[tuple[Table, int]], wanted: int) -> Table:
    """Tables multiplied and summed over the axes that the wanted one does not have; flat. What none of the tables has
    is no sum over equal numbers: every cell of the wanted table gets the number."""
    terms, shapes = [], []
    for table, which in tables:
        own = [i for i, (_, s) in enumerate(axes) if s[which]]
        terms.append("".join([_LETTERS[i] for i in own]))
        shapes.append(table.reshape([axes[i][0] for i in own]))
    there = set("".join(terms))
    out = [i for i, (_, s) in enumerate(axes) if s[wanted]]
    inside = [i for i in out if _LETTERS[i] in there]
    made = np.einsum(",".join(terms) + "->" + "".join([_LETTERS[i] for i in inside]), *shapes)
    if len(inside) < len(out):
        full = [axes[i][0] if _LETTERS[i] in there else 1 for i in out]
        made = np.broadcast_to(made.reshape(full), [axes[i][0] for i in out])
    return np.asarray(made, np.float64).reshape(-1)
