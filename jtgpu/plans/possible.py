"""Models without states that no configuration can have: every table of their plan is smaller.

A state is impossible where every entry of some factor that agrees with it is zero, given the states that are possible
for the factor's other variables (arc consistency). Half of munin2's variables and two thirds of water's have such
states, most of them all but one; so do all variables of the UAI competition's ObjectDetection networks. What cannot be
is found once, from the factors alone; evidence makes nothing possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .lowering import lay_out

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .plan import Plan


def possible_states(
    cards: NDArray[np.int64], scopes: Sequence[Sequence[int]], factors: Sequence[NDArray[np.float64]]
) -> list[NDArray[np.bool_]] | None:
    """Which states of each variable are possible; None if all are, or if no configuration is."""
    # cards: (V,) int64
    # scopes: Of the factors
    support = {f: table > 0 for f, table in enumerate(factors) if not table.all()}
    if not support:
        return None
    possible = [np.ones(n, np.bool_) for n in cards.tolist()]
    members: dict[int, list[int]] = {}
    for f in support:
        for v in scopes[f]:
            members.setdefault(v, []).append(f)
    waiting = dict.fromkeys(support)  # factors whose support has changed, in order
    while waiting:
        f = next(iter(waiting))
        del waiting[f]
        table, before = support[f], 1
        for axis, v in enumerate(scopes[f]):
            n = table.shape[axis]
            left = table.reshape(before, n, -1).any(axis=(0, 2))
            before *= n
            if left.all() or not (possible[v] & ~left).any():
                continue
            possible[v] = possible[v] & left
            if not possible[v].any():
                return None
            for g in members[v]:
                axes = [1] * support[g].ndim
                axes[list(scopes[g]).index(v)] = n
                support[g] = support[g] & possible[v].reshape(axes)
                if g != f:
                    waiting[g] = None
    return None if all(states.all() for states in possible) else possible


def restricted_plan(plan: Plan, cards: NDArray[np.int64]) -> Plan:
    """The same contractions of tables with fewer states of some variables, (V,) int64."""
    sizes = [math.prod(cards[list(scope)].tolist()) for scope in plan.table_scopes]
    offsets, cells = lay_out(sizes, plan.n_factors, plan.op_out.tolist(), plan.posterior_table.tolist())
    return replace(
        plan, cardinality=cards, table_off=np.array(offsets, np.int64), arena_cells=np.array([cells], np.int64)
    )
