"""Cutset conditioning: a model too large for the memory as a sum over the states of a few variables, the cutset.

With the variables S fixed the model falls into smaller ones, one for each configuration s, and exactly

    P(x, e) = sum_s P(x, e, s).

Each term is one run of the same plan with S observed in another configuration (`jtgpu.plans.conditioning.split`), so it
takes the memory of one run and the work of all of them (Pearl, Probabilistic Reasoning in Intelligent Systems, section
4.3; Darwiche, Recursive conditioning, AIJ 126, 2001). The cutset is chosen greedily: among some variables of the
largest clique the one that leaves the least total work is added, until a run fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import TableTooLarge
from ...model.discrete import DiscreteModel
from ..clique_tree import elimination_cliques
from ..compiler import model_factors, plan_model
from ..moral import interaction_graph
from ..ordering import find_order
from .split import SplitModel, split_model

if TYPE_CHECKING:
    from ..ordering.result import OrderResult
    from ..plan import Plan

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
            return CutsetPlan(*plan_model(smaller, together=sets, **options), tuple(chosen), n_runs)
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
