"""Models with some variables fixed: split at observed variables, restricted to the others, or summed over a cutset."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import TableTooLarge
from ..model.discrete import DiscreteModel, Factor
from ..model.markov import MarkovNetwork
from .clique_tree import elimination_cliques, interaction_graph
from .compiler import model_factors, plan_model
from .ordering import find_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .ordering.files import OrderResult
    from .plan import Plan

# The split model: each factor gets its own copy of every variable that all cases observe.
#
# All copies of a variable are observed in its state, so the answers are those of the original model. A copy occurs in
# one factor, so it connects nothing: the graph is that of the original model without the observed variables. A plan
# for the split model depends on which variables are observed, not on their states.

class SplitModel:
    """Which variable of the split model is a copy of which original one."""
    # cardinality: (V,) int64
    # scopes: sequence of sequences of int: Of the factors
    # observed: (V,) bool: The variables that every case observes
    # origin: (W,) int64: The original variable of each variable of the split model
    # first: (V,) int64: The first copy of each original variable; the only one unless the variable is observed
    # scopes: list of list of int: Of the factors, in variables of the split model

    def __init__(self, cardinality: NDArray[np.int64], scopes: Sequence[Sequence[int]], observed: NDArray[np.bool_]):
        self.cardinality, self.observed = cardinality, observed
        origin: list[int] = []
        first = np.full(len(cardinality), -1, np.int64)
        self.scopes: list[list[int]] = []
        for scope in scopes:
            copies = []
            for v in scope:
                if observed[v] or first[v] < 0:
                    if first[v] < 0:
                        first[v] = len(origin)
                    copies.append(len(origin))
                    origin.append(v)
                else:
                    copies.append(int(first[v]))
            self.scopes.append(copies)
        for v in np.flatnonzero(first < 0).tolist():  # in no factor
            first[v] = len(origin)
            origin.append(v)
        self.origin, self.first = np.array(origin, np.int64), first

    def model(self, factors: Sequence[NDArray[np.float64]]) -> MarkovNetwork:
        """The split model as a network; shares the factors' numbers."""
        states = {str(i): list(map(str, range(n))) for i, n in enumerate(self.cardinality[self.origin].tolist())}
        return MarkovNetwork.of_checked(
            states, [Factor(tuple(scope), table) for scope, table in zip(self.scopes, factors, strict=True)]
        )


def split_model(model: DiscreteModel, observed: Sequence[int]) -> SplitModel:
    """A model split at some variables."""
    is_observed = np.zeros(len(model), np.bool_)
    is_observed[list(observed)] = True
    return SplitModel(model.cardinality, [f.scope for f in model_factors(model)], is_observed)


# Cutset conditioning: a model too large for the memory as a sum over the states of a few variables, the cutset.
#
# With the variables S fixed the model falls into smaller ones, one for each configuration s, and exactly
#
#     P(x, e) = sum_s P(x, e, s).
#
# Each term is one run of the same plan with S observed in another configuration (`jtgpu.plans.conditioning.split`),
# so it takes the memory of one run and the work of all of them (Pearl, Probabilistic Reasoning in Intelligent
# Systems, section 4.3; Darwiche, Recursive conditioning, AIJ 126, 2001). The cutset is chosen greedily: among some
# variables of the largest clique the one that leaves the least total work is added, until a run fits.

CANDIDATES = 6  # variables of the largest clique that are tried as the next cutset variable
MAX_RUNS = 1_000_000


class CutsetPlan(NamedTuple):
    """A plan that runs once for every configuration of the cutset."""

    plan: Plan  # of the model split at the cutset
    order: OrderResult | None
    cutset: tuple[int, ...]  # ascending; empty if the model fits as it is
    n_runs: int


def plan_with_cutset(
    model: DiscreteModel, cutset: Sequence[str | int] | str, together: Sequence[Sequence[str | int]] = (),
    **options: Any,
) -> CutsetPlan:  # fmt: skip
    """A plan of the model split at a cutset."""
    # cutset: Variables to fix; ``"auto"`` searches for them, and finds none if the model fits as it is
    # together: sequence of sequences: Sets of variables that must share a clique; those of the cutset do not count
    # **options: Of `jtgpu.plans.compiler.plan_model`, but no order of the variables: the split model has other ones
    # raises TableTooLarge: If a run does not fit; for "auto", if a million runs were not enough.
    chosen = [] if isinstance(cutset, str) else sorted({model.index(v) for v in cutset})
    cards = model.cardinality.tolist()
    while True:
        n_runs = math.prod(cards[v] for v in chosen)
        try:
            if not chosen:
                return CutsetPlan(*plan_model(model, together=together, **options), (), 1)
            split = split_model(model, chosen)
            sets = [[int(split.first[model.index(v)]) for v in s if model.index(v) not in chosen] for s in together]
            smaller = split.model([f.table for f in model_factors(model)])
            return CutsetPlan(*plan_model(smaller, together=sets, weighed=False, **options), tuple(chosen), n_runs)
        except TableTooLarge as error:
            if cutset != "auto":
                raise
            best = _next_variable(model, chosen)
            if best is None or n_runs * cards[best] > MAX_RUNS:
                raise TableTooLarge(
                    f"{error.message}; cut into up to {MAX_RUNS:,} slices it does not fit either",
                    error.entries, error.needed, error.limit,
                ) from None  # fmt: skip
            chosen = sorted([*chosen, best])


def _next_variable(model: DiscreteModel, chosen: list[int]) -> int | None:
    """The variable that leaves the least work of all runs once it joins the cutset."""
    before = _cliques(model, chosen)
    cards = model.cardinality.tolist()
    split = split_model(model, chosen)
    largest = max(before, key=lambda c: (_size(c, split), c))
    members = sorted({int(split.origin[v]) for v in largest}.difference(chosen))
    members.sort(key=lambda v: (-sum(v in f.scope for f in model.factors), -cards[v], v))
    best: tuple[int, int] | None = None
    for v in members[:CANDIDATES]:
        if cards[v] < 2:
            continue
        tried = [*chosen, v]
        after = split_model(model, tried)
        work = cards[v] * sum(_size(c, after) for c in _cliques(model, tried))
        if best is None or (work, v) < best:
            best = work, v
    return None if best is None else best[1]


def _cliques(model: DiscreteModel, chosen: Sequence[int]) -> list[tuple[int, ...]]:
    """Cliques of a fast elimination order of the model split at these variables."""
    split = split_model(model, chosen)
    neighbours = interaction_graph(len(split.origin), split.scopes)
    order = find_order(split.cardinality[split.origin], neighbours, "min-fill", seed=0)
    cliques, _ = elimination_cliques(neighbours, order.order.tolist())
    return [tuple(c) for c in cliques]


def _size(clique: Sequence[int], split: SplitModel) -> int:
    return math.prod(int(split.cardinality[split.origin[v]]) for v in clique)


# The restriction of a model to some observed variables: the other variables, and a part of each factor.
#
# An observed variable is no axis of any table. A factor is restricted to the observed states; these differ from case to
# case, so its numbers do, but the shapes, and so the plan, depend only on which variables are observed. A GPU loads the
# numbers for every case anyway, which makes restriction free there.

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
