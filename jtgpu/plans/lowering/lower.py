"""Build the contraction forest along a junction tree and turn it into a program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..balance import shorten
from ..plan import Plan
from .forest import ContractionForest
from .layout import lay_out, program_arrays
from .pairing import contract_all, contract_pair, contract_pairwise
from .program import ContractionProgram, emit

if TYPE_CHECKING:
    from ...util.options import Lowering

LOWERINGS: tuple[Lowering, ...] = ("pairwise", "clique", "shallow")
PRICE = 64.0  # microseconds of critical path that one microsecond of the whole GPU is worth


def lower(
    cardinality: Sequence[int],
    factor_scopes: Sequence[Sequence[int]],
    factor_clique: Sequence[int],
    clique_parent: Sequence[int],
    axis_rank: Sequence[int],
    lowering: str = "pairwise",
    price: float = PRICE,
) -> ContractionProgram:
    """Lower a junction tree to tables and contractions."""
    # cardinality: (V,): States of each variable
    # factor_scopes: F sequences of int: Variables of each factor
    # factor_clique: (F,): The clique that each factor belongs to
    # clique_parent: (C,): The rooted junction forest, -1 at roots
    # axis_rank: (V,): Position of each variable in the axis order of all tables
    # lowering: {"pairwise", "clique", "shallow"}: See `jtgpu.plans.lowering`
    # price: For ``"shallow"``: see `jtgpu.plans.balance.shorten`. The higher, the fewer products are added.
    if lowering not in LOWERINGS:
        raise ValueError(f"lowering must be one of {', '.join(map(repr, LOWERINGS))}, not {lowering!r}")
    forest = ContractionForest(factor_scopes, cardinality)
    waiting: list[list[int]] = [[] for _ in clique_parent]
    for f, c in enumerate(factor_clique):
        waiting[c].append(f)
    roots: list[int] = []
    depth = _depths(clique_parent)
    for c in sorted(range(len(clique_parent)), key=lambda c: (-depth[c], c)):
        left = waiting[c]
        if not left:
            continue  # all factors of the clique are assigned to its neighbours
        top = contract_all(forest, left) if lowering == "clique" else contract_pairwise(forest, left)
        if clique_parent[c] >= 0:
            waiting[clique_parent[c]].append(top)
        else:
            roots.append(forest.contract([top]) if forest.scope[top] else top)
    if lowering == "shallow":
        forest, roots = _shortened(forest, roots, price)
    return emit(forest, roots, axis_rank, all_derivatives=lowering != "shallow")


def relowered(plan: Plan, price: float = PRICE) -> Plan:
    """The same junction tree and factors with the lowering ``"shallow"``."""
    # price: See `lower`
    cards = plan.cardinality.tolist()
    rank = plan.axis_rank.tolist()
    program = lower(
        cards, plan.factor_scopes, plan.factor_clique.tolist(), plan.clique_parent.tolist(),
        rank, "shallow", price,
    )  # fmt: skip
    sizes = [math.prod(cards[v] for v in s) for s in program.scopes]
    offsets, cells = lay_out(sizes, plan.n_factors, program.outs, program.posterior_table)
    return replace(plan, **program_arrays(program, offsets, cells))


def _depths(parent: Sequence[int]) -> list[int]:
    """Depth of each node of a forest, 0 for roots."""
    depth = [-1] * len(parent)
    for start in range(len(parent)):
        path = []
        at = start
        while at >= 0 and depth[at] < 0:
            path.append(at)
            at = parent[at]
        above = depth[at] if at >= 0 else -1
        for n in reversed(path):
            above += 1
            depth[n] = above
    return depth


def _shortened(forest: ContractionForest, roots: Sequence[int], price: float) -> tuple[ContractionForest, list[int]]:
    """The forest with a shorter critical path, if balancing finds one."""
    n_factors = sum(1 for c in forest.children if not c)

    def pair_below(n: int) -> int:
        while len(forest.children[n]) == 1:  # sums without products: inserted again where needed
            n = forest.children[n][0]
        return n

    trees = []
    for root in roots:
        top = pair_below(root)
        children: dict[int, tuple[int, int]] = {}
        stack = [top]
        while stack:
            n = stack.pop()
            if n >= n_factors:
                a, b = (pair_below(c) for c in forest.children[n])
                children[n] = a, b
                stack += [a, b]
        shorter = shorten(forest.scope, children, top, forest.cardinality, price) if children else None
        trees.append((top, shorter or children, shorter is not None))
    if not any(moved for _, _, moved in trees):
        return forest, list(roots)
    made = ContractionForest(forest.scope[:n_factors], forest.cardinality)
    return made, [_grown(made, top, children) for top, children, _ in trees]


def _grown(forest: ContractionForest, top: int, children: Mapping[int, tuple[int, int]]) -> int:
    """Contract a tree in a forest that contains factors only; its root."""
    order, stack = [], [top]
    while stack:
        n = stack.pop()
        if n in children:
            order.append(n)
            stack += children[n]
    node: dict[int, int] = {}
    for n in reversed(order):
        a, b = (node.get(c, c) for c in children[n])
        node[n] = contract_pair(forest, a, b)
    last = node.get(top, top)
    return forest.contract([last]) if forest.scope[last] else last
