"""From a model's graph to a plan: order, junction tree, program, and whether it fits."""

from __future__ import annotations

import functools
import heapq
import math
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, NetworkError, OrderError, TableTooLarge, format_bytes, shown
from ..model.discrete import DiscreteModel, Factor
from ..model.noisy import is_noisy
from ..util.arguments import choice, described, number, several
from ..util.system import free_memory
from . import ordering
from .arrays import PlanArrays, ragged
from .clique_tree import (
    CliqueTree,
    clique_tree,
    elimination_cliques,
    interaction_graph,
    networkx_forest,
    spanning_forest,
)
from .lowering import LOWERINGS, lay_out, lower, program_arrays
from .ordering.files import OrderResult
from .ordering.reduce import symmetric
from .plan import Plan

# A lower bound of the largest clique that every elimination order makes.

UNIT = 256  # weights are integers, in 1/256 bit: the result is the same on every machine
SPARSE = 5  # neighbours of a vertex on average below which contraction finds no high bound; munin has 3


@functools.cache
def _weight(card: int) -> int:
    """``log2(card)`` in units, rounded down."""
    return int(card**UNIT).bit_length() - 1


def least_clique_bits(card: Sequence[int], neighbours: Sequence[Collection[int]], enough: int) -> int:
    """Bits of the number of entries that the largest clique of every triangulation has at least, rounded down.

    Minor-min-width (Gogate and Dechter 2004) with weights: the vertex whose closed neighbourhood has the fewest entries
    is contracted into a neighbour; the largest of these neighbourhoods is a bound. In every minor, a leaf of a tree
    decomposition contains a vertex with all its neighbours; a merged vertex weighs as its lightest member, since a bag
    contains at least one of them.
    """
    # enough: Bits from which the bound matters; the result is 0 if it is lower, and for sparse graphs
    weight, goal = [_weight(c) for c in card], enough * UNIT
    left = sum(weight)
    if left < goal or sum(map(len, neighbours)) < SPARSE * len(weight):
        return 0
    adjacent = symmetric(neighbours)
    closed = [weight[v] + sum(weight[u] for u in around) for v, around in enumerate(adjacent)]
    queue = [(w, v) for v, w in enumerate(closed)]
    heapq.heapify(queue)
    best = 0
    while queue and left > best and (best >= goal or left >= goal):
        w, v = heapq.heappop(queue)
        if closed[v] != w:  # an earlier weight
            continue
        best = max(best, w)
        around = adjacent[v]
        closed[v] = -1
        left -= weight[v]
        if not around:
            continue
        into = min(around, key=lambda u: (closed[u], u))
        lighter = max(weight[into] - weight[v], 0)
        for u in around:
            adjacent[u].discard(v)
            closed[u] -= weight[v]
        for u in around - adjacent[into] - {into}:
            adjacent[u].add(into)
            adjacent[into].add(u)
            closed[u] += weight[into]
            closed[into] += weight[u]
        if lighter:
            weight[into] -= lighter
            left -= lighter
            for u in (into, *adjacent[into]):
                closed[u] -= lighter
        for u in {*around, *(adjacent[into] if lighter else ())}:
            heapq.heappush(queue, (closed[u], u))
    return best // UNIT if best >= goal else 0


HOPELESS = 20  # bits above the limit at which a fast order's clique ends the planning: searches have saved up to 15


def fast_order(
    card: Sequence[int], neighbours: Sequence[Collection[int]], enough: int
) -> tuple[list[int], list[int]]:
    """An elimination order, of the lightest vertex first: 1 ms for a hundred vertices."""
    # enough: Bits of a clique at which the elimination ends
    # returns The order so far, and that clique; no clique if the order is complete
    weight = [_weight(c) for c in card]
    adjacent = symmetric(neighbours)
    closed = [weight[v] + sum(weight[u] for u in around) for v, around in enumerate(adjacent)]
    queue = [(w, v) for v, w in enumerate(closed)]
    heapq.heapify(queue)
    order: list[int] = []
    while queue:
        w, v = heapq.heappop(queue)
        if closed[v] != w:  # an earlier weight, or eliminated
            continue
        if w >= enough * UNIT:
            return order, [v, *adjacent[v]]
        order.append(v)
        closed[v] = -1
        around = adjacent[v]
        for u in around:
            new = around - adjacent[u]
            new.discard(u)
            adjacent[u] |= new
            adjacent[u].discard(v)
            closed[u] += sum(weight[x] for x in new) - weight[v]
            heapq.heappush(queue, (closed[u], u))
    return order, []


MAX_TABLE = 100_000_000  # entries: the limit of Gottoli and Pettenuzzo (2014)
MEMORY_SHARE = 0.8  # of what is free, where no memory_limit is given


def model_factors(model: DiscreteModel) -> list[Factor]:
    """The model's factors, and a factor of ones for every variable that none mentions."""
    mentioned = {v for f in model.factors for v in f.scope}
    ones = [
        Factor((v,), np.ones(int(model.cardinality[v]))) for v in range(len(model.variables)) if v not in mentioned
    ]
    return [*model.factors, *ones]


def plan_tables(plan: Plan, model: DiscreteModel) -> list[NDArray[np.float64]]:
    """The numbers of the plan's factors: the model's, and ones for each set of variables that stand together."""
    sizes = [[int(plan.cardinality[v]) for v in scope] for scope in plan.sets]
    noisy = {model.index(v): strengths for v, strengths in getattr(model, "noisy", {}).items()}
    if plan.is_planned:
        own = [f.table.cpt if is_noisy(f.table) else f.table for f in model_factors(model)]
    else:
        own = [noisy.get(i, f.table) for i, f in enumerate(model_factors(model))]
    return [*own, *(np.ones(size) for size in sizes)]


def sets_of(model: DiscreteModel, together: Sequence[Sequence[str | int]] = ()) -> list[tuple[int, ...]]:
    """The sets of variables that stand together, each ascending."""
    groups = several(together)
    if groups is None:
        raise ArgumentError(f"together must be a list of lists of variables, not {described(together)}")
    sets = []
    for variables in groups:
        names = several(variables)
        if names is None:
            raise ArgumentError(f"together must be a list of lists of variables, but contains {described(variables)}")
        sets.append(tuple(sorted({model.index(v) for v in names})))
    return sets


def order_graph(model: DiscreteModel, together: Sequence[Sequence[str | int]] = ()) -> list[tuple[int, ...]]:
    """Sorted neighbours of every variable in the model's interaction (moral) graph; sets of variables that stand
    together are neighbours too."""
    return interaction_graph(len(model), [*(f.scope for f in model.factors), *sets_of(model, together)])


def plan_model(  # noqa: PLR0913 (the limits)
    model: DiscreteModel,
    order: object = "auto",
    *,
    memory_limit: int | None = None,
    max_table: int | float | None = MAX_TABLE,
    lowering: str = "pairwise",
    together: Sequence[Sequence[str | int]] = (),
    weighed: bool = True,
    by_networkx: bool = False,
    **search: object,
) -> tuple[Plan, OrderResult | None]:
    """The plan of a model, and how its elimination order was found; see `jtgpu.inference.planning.make_plan`."""
    # memory_limit: Bytes that one propagation may take; default: 80 % of the memory that is free on this host
    # weighed: Whether each set of `together` gets a factor of ones, for likelihoods and joint posteriors of the set
    # by_networkx: See `build_plan`
    # **search: Options of `jtgpu.plans.ordering.find_order`
    if not len(model):
        raise NetworkError("the model has no variables")
    choice("lowering", lowering, LOWERINGS)
    entries = 2**62 if max_table is None else int(min(number("max_table", max_table, above=0), 2**62))
    neighbours = order_graph(model, together)
    if memory_limit is None:
        memory_limit = int(MEMORY_SHARE * free_memory())
    if lowering != "clique" and not several(together) and isinstance(order, str) and order in ordering.METHODS:
        card = model.cardinality.tolist()
        family = max((math.prod(card[v] for v in f.scope).bit_length() - 1 for f in model.factors), default=0)
        check_bound(card, neighbours, memory_limit, entries, by_search=order != "auto", known=family)
    chosen, result = _choose_order(model, neighbours, order, **search)
    sets = [s for s in dict.fromkeys(sets_of(model, together)) if s] if weighed else []
    plan = build_plan(
        model.cardinality,
        [f.scope for f in model_factors(model)],
        neighbours,
        chosen,
        sets,
        lowering=lowering,
        memory_limit=memory_limit,
        max_table=entries,
        by_networkx=by_networkx,
    )
    return plan, result


def check_bound(
    card: Sequence[int], neighbours: Sequence[Collection[int]], memory_limit: int, max_table: int, *,
    by_search: bool = False, known: int = 0,
) -> list[int]:  # fmt: skip
    """Raise `TableTooLarge` before the search for an order if no order has tables within the limits, or none is likely;
    else return an order that may exceed them.

    A program multiplies two tables at a time. The scopes of its products form a tree decomposition, so one product has
    the entries of the largest clique, and one of its two tables at least the square root of them.
    """
    # by_search: Whether the order is to be searched for unless it is certain that there is none; none is returned
    # known: Bits of a clique of the graph, such as a noisy child and its parents, for which a bound need not be sought
    limit = min(max_table, int(min(max(memory_limit, 0), 2**62)) // 8)
    enough, how = 2 * limit.bit_length(), "every elimination order"
    bits = (known if known >= enough else least_clique_bits(card, neighbours, enough)) // 2
    more, order = "", list[int]()
    if not bits and not by_search:
        order, clique = fast_order(card, neighbours, limit.bit_length() + HOPELESS)
        bits = sum(_weight(card[v]) for v in clique) // UNIT
        how, more = "a fast elimination order", 'order="best" searches for a better one; '
    if bits:
        by_memory = limit < max_table
        allowed = f"{format_bytes(memory_limit)} (memory_limit)" if by_memory else f"{max_table:,} entries (max_table)"
        what = "clique" if more else "table"
        raise TableTooLarge(
            f"with {how} the largest {what} would have at least 2^{bits} entries, more than the limit of {allowed}; "
            f'{more}try slices="auto", which goes through the states of some variables one by one; evidence '
            "that is always observed can be made part of the model",
            2**bits, 8 * 2**bits, memory_limit if by_memory else -1,
        )  # fmt: skip
    return order


def _choose_order(
    model: DiscreteModel, neighbours: Sequence[Sequence[int]], order: object, **search: Any
) -> tuple[list[int], OrderResult | None]:
    """The elimination order that an ``order`` argument names, and how it was found if it was searched for."""
    if isinstance(order, str) and order in ordering.METHODS:
        result = ordering.find_order(model.cardinality, neighbours, order, **search)
        return result.order.tolist(), result
    if isinstance(order, os.PathLike) or (isinstance(order, str) and Path(order).suffix in (".num", ".td")):
        read = ordering.read_td if Path(order).suffix == ".td" else ordering.read_num
        return [int(v) for v in read(order, model)], None
    if isinstance(order, str):
        raise OrderError(
            f"order={shown(order)} is neither a method ({', '.join(ordering.METHODS)}) nor the path of a .num or .td "
            "file"
        )
    variables = several(order)
    if variables is None:
        raise OrderError(
            f"order must be a method ({', '.join(ordering.METHODS)}), the path of a .num or .td file, or the variables "
            f"in the order of their elimination, not {described(order)}"
        )
    return [int(v) for v in ordering.as_order(model, variables)], None


def build_plan(  # noqa: PLR0913 (the last two are limits)
    cardinality: NDArray[np.int64],
    factor_scopes: Sequence[Sequence[int]],
    neighbours: Sequence[Sequence[int]],
    order: Sequence[int],
    sets: Sequence[Sequence[int]] = (),
    *,
    lowering: str = "pairwise",
    memory_limit: int = 2**62,
    max_table: int = 2**62,
    by_networkx: bool = False,
) -> Plan:
    """The plan of a given elimination order: integers in, integers out; the same input gives the same bytes.

    With `by_networkx`, networkx builds the junction tree, as in `jtgpu.published.junction_trees`; the plan is the same.
    """
    # sets: Neighbours of each other; each gets a factor of its own behind those of `factor_scopes`
    cards = [int(c) for c in cardinality]
    own = range(len(factor_scopes), len(factor_scopes) + len(sets))  # factors of the sets
    cliques, links = elimination_cliques(neighbours, order)
    tree = clique_tree(cliques, links, cards, networkx_forest if by_networkx else spanning_forest)
    rank = _axis_ranks(tree, cards)
    factor_scopes = [*factor_scopes, *(sorted(s, key=rank.__getitem__) for s in sets)]
    homes = _factor_homes(cliques, factor_scopes, cards)
    program = lower(cards, factor_scopes, homes, tree.parent, rank, lowering, sets=own)
    sizes = [math.prod(cards[v] for v in s) for s in program.scopes]
    offsets, cells = lay_out(sizes, len(factor_scopes), program.outs, program.posterior_table)
    _check_limits(sizes, cells, [math.prod(cards[v] for v in c) for c in cliques], memory_limit, max_table)

    def ordered(scope: Sequence[int]) -> list[int]:
        return sorted(scope, key=rank.__getitem__)

    factor_ptr, factor_var = ragged([list(s) for s in factor_scopes])
    clique_ptr, clique_var = ragged([ordered(c) for c in cliques])
    separator_ptr, separator_var = ragged([ordered(tree.separator(c)) for c in range(len(cliques))])
    return Plan(
        cardinality=np.array(cards, np.int64),
        factor_ptr=factor_ptr,
        factor_var=factor_var,
        elimination_order=np.array(order, np.int64),
        clique_ptr=clique_ptr,
        clique_var=clique_var,
        clique_parent=np.array(tree.parent, np.int64),
        clique_depth=np.array(tree.depth, np.int64),
        separator_ptr=separator_ptr,
        separator_var=separator_var,
        factor_clique=np.array(homes, np.int64),
        axis_rank=np.array(rank, np.int64),
        evidence_factor=np.array([*_evidence_factors(cards, factor_scopes[: own.start]), *own], np.int64),
        **program_arrays(program, offsets, cells),
    )


def unplanned(model: DiscreteModel, together: Sequence[Sequence[str | int]] = ()) -> Plan:
    """The shape of a model whose questions are planned one by one: a plan without cliques and contractions."""
    factors = [f.scope for f in model_factors(model)]
    sets = [s for s in dict.fromkeys(sets_of(model, together)) if s]
    factor_ptr, factor_var = ragged([list(s) for s in (*factors, *sets)])
    n, none = len(model), np.zeros(0, np.int64)
    own = np.arange(len(factors), len(factors) + len(sets))
    empty = dict.fromkeys(PlanArrays.__dataclass_fields__, none)
    return Plan(**empty | {
        "cardinality": model.cardinality, "factor_ptr": factor_ptr, "factor_var": factor_var,
        "elimination_order": np.arange(n), "axis_rank": np.arange(n),
        "evidence_factor": np.concatenate([np.zeros(n, np.int64), own]), "arena_cells": np.zeros(1, np.int64),
        **{name: np.zeros(1, np.int64) for name in ("clique_ptr", "separator_ptr", "table_ptr", "op_in_ptr")},
    })  # fmt: skip


def _axis_ranks(tree: CliqueTree, cards: Sequence[int]) -> list[int]:
    """One order of the variables for the axes of every table: those of the deepest top cliques outermost.

    A clique's own variables then come before its separator's, so a message to the root sums over the slow axes
    and keeps the fast ones; the largest cardinality last, so that inner loops are long.
    """
    tops = tree.top_cliques(len(cards))
    by_rank = sorted(range(len(cards)), key=lambda v: (-tree.depth[tops[v]], tops[v], cards[v], v))
    rank = [0] * len(cards)
    for r, v in enumerate(by_rank):
        rank[v] = r
    return rank


def _factor_homes(
    cliques: Sequence[Sequence[int]], scopes: Sequence[Sequence[int]], cards: Sequence[int]
) -> list[int]:
    """The smallest clique that contains each factor's scope."""
    members = [frozenset(c) for c in cliques]
    by_size = sorted(range(len(cliques)), key=lambda c: (math.prod(cards[v] for v in cliques[c]), c))
    holders: list[list[int]] = [[] for _ in cards]
    for c in by_size:
        for v in cliques[c]:
            holders[v].append(c)
    homes = []
    for scope in scopes:
        rarest = min(scope, key=lambda v: (len(holders[v]), v), default=None)
        candidates = by_size if rarest is None else holders[rarest]
        homes.append(next(c for c in candidates if members[c].issuperset(scope)))
    return homes


def _evidence_factors(cards: Sequence[int], scopes: Sequence[Sequence[int]]) -> list[int]:
    """For every variable the smallest factor that contains it."""
    best: list[tuple[int, int] | None] = [None] * len(cards)
    for f, scope in enumerate(scopes):
        key = (math.prod(cards[v] for v in scope), f)
        for v in scope:
            old = best[v]
            if old is None or key < old:
                best[v] = key
    return [b[1] for b in best if b is not None]


def _check_limits(
    sizes: Sequence[int], cells: int, clique_sizes: Sequence[int], memory_limit: int, max_table: int
) -> None:
    largest = max(sizes, default=0)
    needed = 8 * cells
    tree = f"the junction tree's cliques have {sum(clique_sizes):,} entries, the largest {max(clique_sizes):,}"
    advice = (
        'try order="best" with a longer time_limit, an elimination order of your own (order="file.num"), or '
        'slices="auto", which goes through the states of some variables one by one; '
        "evidence that is always observed can be made part of the model"
    )
    if largest > max_table:
        raise TableTooLarge(
            f"the largest table would have {largest:,} entries ({format_bytes(8 * largest)}), more than the limit of "
            f"{max_table:,} (max_table); {tree}; {advice}, or raise max_table",
            largest,
            needed,
            -1,
        )
    if needed > memory_limit:
        raise TableTooLarge(
            f"one propagation would take {format_bytes(needed)} ({sum(sizes):,} entries, the largest table "
            f"{largest:,}), more than the limit of {format_bytes(memory_limit)} (memory_limit, by default 80 % of what "
            f"is free); {tree}; {advice}, or raise memory_limit",
            largest,
            needed,
            memory_limit,
        )


def rerooted(plan: Plan, factor: int) -> Plan:
    """The plan with one more clique, the scope of a factor, as root: its posterior takes the contractions of P(e)."""
    cards, rank = plan.cardinality.tolist(), plan.axis_rank.tolist()
    parent, homes = plan.clique_parent.tolist(), plan.factor_clique.tolist()
    at, above = homes[factor], len(parent)
    homes[factor] = above
    while at >= 0:  # turn the path to the root
        parent[at], above, at = above, at, parent[at]
    parent.append(-1)
    depth = [0] * len(parent)
    for c in range(len(parent)):
        up = parent[c]
        while up >= 0:
            depth[c], up = depth[c] + 1, parent[up]
    scopes = [*plan.cliques, sorted(plan.factor_scopes[factor], key=rank.__getitem__)]
    clique_ptr, clique_var = ragged([list(c) for c in scopes])
    cliques = [frozenset(c) for c in scopes]
    separators = [cliques[c] & cliques[up] if up >= 0 else () for c, up in enumerate(parent)]
    separator_ptr, separator_var = ragged([sorted(s, key=rank.__getitem__) for s in separators])
    sets = plan.evidence_factor[len(cards) :].tolist()
    program = lower(cards, plan.factor_scopes, homes, parent, rank, sets=sets)
    sizes = [math.prod(cards[v] for v in s) for s in program.scopes]
    offsets, cells = lay_out(sizes, plan.n_factors, program.outs, program.posterior_table)
    return replace(
        plan, clique_ptr=clique_ptr, clique_var=clique_var, factor_clique=np.array(homes),
        clique_parent=np.array(parent), clique_depth=np.array(depth), separator_ptr=separator_ptr,
        separator_var=separator_var, **program_arrays(program, offsets, cells),
    )  # fmt: skip
