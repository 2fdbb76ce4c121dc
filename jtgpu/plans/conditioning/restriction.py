"""The restriction of a model to some observed variables: the other variables, and a part of each factor.

An observed variable is no axis of any table. A factor is restricted to the observed states; these differ from case to
case, so its numbers do, but the shapes, and so the plan, depend only on which variables are observed. A GPU loads the
numbers for every case anyway, which makes restriction free there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import TableTooLarge
from ...model.discrete import Factor
from ...model.markov import MarkovNetwork
from ..compiler import plan_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..plan import Plan


class Restriction:
    """Which variables remain, and which scope each factor has then."""
    # cardinality: (V,) int64
    # scopes: sequence of sequences of int: Of the factors
    # observed: (V,) bool: The variables that every case observes
    # free: (W,) int64: The variables that remain, ascending; variable w of the restriction is variable ``free[w]`` of
    #     the model
    # scopes: list of list of int: Of the factors, in variables of the restriction

    def __init__(self, cardinality: NDArray[np.int64], scopes: Sequence[Sequence[int]], observed: NDArray[np.bool_]):
        self.cardinality, self.observed = cardinality, observed
        self.free = np.flatnonzero(~observed)
        number = {v: w for w, v in enumerate(self.free.tolist())}
        self.scopes = [[number[v] for v in scope if not observed[v]] for scope in scopes]

    def plans(self, order: Sequence[int]) -> list[Plan]:
        """Plans of the restriction: of its own elimination order, and of the model's one, which may have fewer levels.

        Raises the errors of `jtgpu.plans.compiler.plan_model`.
        """
        # order: (V,) ints: The model's elimination order
        cards = self.cardinality[self.free].tolist()
        states = {str(w): list(map(str, range(n))) for w, n in enumerate(cards)}
        factors = [Factor(tuple(s), np.broadcast_to(1.0, [cards[w] for w in s])) for s in self.scopes]
        model = MarkovNetwork.of_checked(states, factors)
        number = {v: w for w, v in enumerate(self.free.tolist())}
        plans = [plan_model(model, cache=False)[0]]
        with contextlib.suppress(TableTooLarge):
            other, _ = plan_model(model, [number[v] for v in order if v in number])
            if other.elimination_order.tolist() != plans[0].elimination_order.tolist():
                plans.append(other)
        return plans
