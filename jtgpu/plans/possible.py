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

from ..util.loops import loops
from .arrays import ragged
from .lowering import lay_out

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .plan import Plan

_loops = loops("jtgpu.plans.loops.possible")


def possible_states(
    cards: NDArray[np.int64], scopes: Sequence[Sequence[int]], factors: Sequence[NDArray[np.float64]]
) -> list[NDArray[np.bool_]] | None:
    """Which states of each variable are possible; None if all are, or if no configuration is."""
    # cards: (V,) int64
    # scopes: Of the factors
    flat = [np.zeros(0), *(table.reshape(-1) for table in factors)]
    support = np.concatenate(flat, dtype=np.bool_, casting="unsafe")
    if support.all():
        return None
    possible = np.ones(int(cards.sum()), np.bool_)
    scope_ptr, scope = ragged(scopes)
    _loops.narrow(
        support.view(np.uint8), np.cumsum([*map(len, flat)]), np.array(cards), scope, scope_ptr,
        possible.view(np.uint8),
    )  # fmt: skip
    if possible.all():
        return None
    by_variable = np.split(possible, np.cumsum(cards)[:-1])
    return by_variable if all(states.any() for states in by_variable) else None


def restricted_plan(plan: Plan, cards: NDArray[np.int64]) -> Plan:
    """The same contractions of tables with fewer states of some variables, (V,) int64."""
    own = cards.tolist()
    sizes = [math.prod([own[v] for v in scope]) for scope in plan.table_scopes]
    offsets, cells = lay_out(sizes, plan.n_factors, plan.op_out.tolist(), plan.posterior_table.tolist())
    return replace(
        plan, cardinality=cards, table_off=np.array(offsets, np.int64), arena_cells=np.array([cells], np.int64)
    )
