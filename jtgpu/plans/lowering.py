"""From a junction tree to the contractions that run: a contraction forest, and its reverse sweep.

A *contraction forest* has the model's factors as leaves. An inner node multiplies its children and sums out every
variable that nothing outside the node's subtree needs, so its scope is what the rest of the model still sees. The
roots have empty scope; their product is P(e).

Every lowering is such a forest, cut along the junction tree from the leaf cliques to the root. With
``"clique"`` a node is a clique, its children are the clique's factors and the incoming messages: the sweep is
Shafer-Shenoy propagation (Shafer and Shenoy, Probability propagation, 1990). With ``"pairwise"`` a clique's work is
split into contractions of two tables, which are the nodes of a binary join tree (Shenoy, Binary join trees for
computing marginals in the Shenoy-Shafer architecture, 1997); the clique's full table then never exists. With
``"shallow"`` branches of that tree are exchanged afterwards until its longest way is short (`jtgpu.plans.balance`): a few
more products, and down to half as many levels, which is what a GPU waits for in a single case.

The reverse sweep is the derivative of the forward one (Darwiche, A differential approach to inference in Bayesian
networks, JACM 50, 2003): with D_root = 1, the child a of a node n with siblings b has
D_a = sum D_n * prod U_b. The posterior of a variable is U_n * D_n summed onto it, at whichever node that is
cheapest. Nothing is divided, so zeros need no care.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from .balance import shorten
from .plan import COLLECT, DISTRIBUTE, POSTERIOR, Plan, ragged

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LOWERINGS", "PRICE", "Program", "lay_out", "lower", "program_arrays", "relowered"]

LOWERINGS = ("pairwise", "clique", "shallow")
ALIGNMENT = 8  # cells: one cache line of float64
PRICE = 64.0  # microseconds of the longest way that one of the whole GPU is worth

UNIT = -1  # stands for a table of empty scope that holds 1
MOST_EXACT = 7  # children of a clique up to which the best split into pairs is searched exactly (3^7 splits)


@dataclass
class Program:
    """Tables and contractions, before they are frozen into a plan's arrays. Table t < F is factor t."""

    scopes: list[tuple[int, ...]]  # of every table, in axis order
    kinds: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    outs: list[int] = field(default_factory=list)
    ins: list[tuple[int, ...]] = field(default_factory=list)
    posterior_table: list[int] = field(default_factory=list)
    root_table: list[int] = field(default_factory=list)


class _Forest:
    """The contraction forest while it is built: nodes 0..F-1 are factors, inner nodes follow."""

    def __init__(self, scopes: Sequence[Iterable[int]], cardinality: Sequence[int]):
        self.scope: list[frozenset[int]] = [frozenset(s) for s in scopes]
        self.children: list[tuple[int, ...]] = [() for _ in scopes]
        self.cardinality = cardinality
        self.live = [0] * len(cardinality)  # nodes without a parent that contain each variable
        for s in self.scope:
            for v in s:
                self.live[v] += 1

    def size(self, scope: Iterable[int]) -> int:
        return math.prod(self.cardinality[v] for v in scope)

    def needed_outside(self, nodes: Sequence[int]) -> frozenset[int]:
        """Variables of some parentless nodes that parentless nodes elsewhere contain too."""
        count: dict[int, int] = {}
        for n in nodes:
            for v in self.scope[n]:
                count[v] = count.get(v, 0) + 1
        return frozenset(v for v, k in count.items() if self.live[v] > k)

    def contract(self, nodes: Sequence[int]) -> int:
        """A new node with the given parentless nodes as children."""
        out = self.needed_outside(nodes)
        for n in nodes:
            for v in self.scope[n]:
                self.live[v] -= 1
        for v in out:
            self.live[v] += 1
        self.scope.append(out)
        self.children.append(tuple(nodes))
        return len(self.scope) - 1


def lower(
    cardinality: Sequence[int],
    factor_scopes: Sequence[Sequence[int]],
    factor_clique: Sequence[int],
    clique_parent: Sequence[int],
    clique_depth: Sequence[int],
    axis_rank: Sequence[int],
    lowering: str = "pairwise",
    price: float = PRICE,
) -> Program:
    """Lower a junction tree to tables and contractions; integers in, integers out.

    Parameters
    ----------
    cardinality : (V,)
        States of each variable.
    factor_scopes : F sequences of int
        Variables of each factor.
    factor_clique : (F,)
        The clique that each factor belongs to.
    clique_parent, clique_depth : (C,)
        The rooted junction forest.
    axis_rank : (V,)
        Place of each variable in the axis order of every table.
    lowering : {"pairwise", "clique", "shallow"}
        What an inner node of the contraction forest is.
    price : float
        Of ``"shallow"``: see `jtgpu.plans.balance.shorten`. The higher, the fewer products are added.
    """
    if lowering not in LOWERINGS:
        raise ValueError(f"lowering must be one of {', '.join(map(repr, LOWERINGS))}, not {lowering!r}")
    forest = _Forest(factor_scopes, cardinality)
    waiting: list[list[int]] = [[] for _ in clique_parent]
    for f, c in enumerate(factor_clique):
        waiting[c].append(f)
    roots: list[int] = []
    for c in sorted(range(len(clique_parent)), key=lambda c: (-clique_depth[c], c)):
        left = waiting[c]
        if not left:
            continue  # only in a model whose factors all moved to neighbouring cliques
        top = _join_all(forest, left) if lowering == "clique" else _join_pairwise(forest, left)
        if clique_parent[c] >= 0:
            waiting[clique_parent[c]].append(top)
        else:
            roots.append(forest.contract([top]) if forest.scope[top] else top)
    if lowering == "shallow":
        forest, roots = _shortened(forest, roots, price)
    return _emit(forest, roots, axis_rank, every=lowering != "shallow")


def relowered(plan: Plan, price: float = PRICE) -> Plan:
    """The plan of the same junction tree and the same tables of factors with the lowering ``"shallow"``.

    Parameters
    ----------
    plan : Plan
    price : float
        See `lower`.
    """
    cards = plan.cardinality.tolist()
    rank = plan.axis_rank.tolist()
    program = lower(
        cards, plan.factor_scopes, plan.factor_clique.tolist(), plan.clique_parent.tolist(),
        plan.clique_depth.tolist(), rank, "shallow", price,
    )  # fmt: skip
    sizes = [math.prod(cards[v] for v in s) for s in program.scopes]
    offsets, cells = lay_out(sizes, plan.n_factors, program.outs, program.posterior_table)
    return replace(plan, **program_arrays(program, offsets, cells))


def program_arrays(program: Program, offsets: Sequence[int], cells: int) -> dict[str, NDArray[np.int64]]:
    """The fields of a plan that its program decides, where tables lie as `lay_out` says."""
    table_ptr, table_var = ragged(program.scopes)
    op_in_ptr, op_in = ragged(program.ins)
    numbers = {
        "table_off": offsets,
        "op_kind": program.kinds,
        "op_level": program.levels,
        "op_out": program.outs,
        "posterior_table": program.posterior_table,
        "root_table": program.root_table,
        "arena_cells": [cells],
    }
    made = {name: np.array(values, np.int64) for name, values in numbers.items()}
    return made | {"table_ptr": table_ptr, "table_var": table_var, "op_in_ptr": op_in_ptr, "op_in": op_in}


def lay_out(
    sizes: Sequence[int], n_factors: int, outs: Sequence[int], posterior: Sequence[int]
) -> tuple[list[int], int]:
    """First cell of each table and the arena's length: factors, then posteriors one after the other, then the rest
    in the order in which they are written."""
    offsets = [0] * len(sizes)
    at = 0
    last = set(posterior)
    for t in range(n_factors):
        offsets[t] = at
        at += -(-sizes[t] // ALIGNMENT) * ALIGNMENT
    for t in posterior:  # without gaps: all posteriors are one block
        offsets[t] = at
        at += sizes[t]
    at = -(-at // ALIGNMENT) * ALIGNMENT
    for t in outs:
        if t not in last:
            offsets[t] = at
            at += -(-sizes[t] // ALIGNMENT) * ALIGNMENT
    return offsets, at


def _shortened(forest: _Forest, roots: Sequence[int], price: float) -> tuple[_Forest, list[int]]:
    """The forest with shorter ways, where there are any."""
    n_factors = sum(1 for c in forest.children if not c)

    def pair_below(n: int) -> int:
        while len(forest.children[n]) == 1:  # sums alone: they are made again where they are wanted
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
    made = _Forest(forest.scope[:n_factors], forest.cardinality)
    return made, [_grown(made, top, children) for top, children, _ in trees]


def _grown(forest: _Forest, top: int, children: Mapping[int, tuple[int, int]]) -> int:
    """A tree, contracted in a forest of nothing but factors."""
    order, stack = [], [top]
    while stack:
        n = stack.pop()
        if n in children:
            order.append(n)
            stack += children[n]
    node: dict[int, int] = {}
    for n in reversed(order):
        a, b = (node.get(c, c) for c in children[n])
        node[n] = _contract_pair(forest, a, b)
    last = node.get(top, top)
    return forest.contract([last]) if forest.scope[last] else last


def _join_all(forest: _Forest, nodes: list[int]) -> int:
    if len(nodes) > MOST_EXACT:  # a star: the product of a thousand messages at once would be slow, and underflow
        nodes = _merge_equals(forest, sorted(nodes))
    if len(nodes) == 1 and forest.needed_outside(nodes) == forest.scope[nodes[0]]:
        return nodes[0]
    return forest.contract(nodes)


def _join_pairwise(forest: _Forest, nodes: list[int]) -> int:
    """Contract the nodes two at a time, greedily while they are many, by the best of all splits at the end."""
    nodes = sorted(nodes)
    if len(nodes) > MOST_EXACT:
        nodes = _merge_greedily(forest, _merge_equals(forest, nodes))
    if len(nodes) == 1:
        return _join_all(forest, nodes)
    return _contract_split(forest, nodes, _best_splits(forest, nodes), (1 << len(nodes)) - 1)


def _merge_equals(forest: _Forest, nodes: list[int]) -> list[int]:
    """Multiply nodes that others see with the same scope, as a balanced tree: a star stays shallow."""
    groups: dict[frozenset[int], list[int]] = {}
    for n in nodes:
        groups.setdefault(forest.needed_outside([n]), []).append(n)
    merged = []
    for group in groups.values():
        while len(group) > 1:
            pairs = zip(group[::2], group[1::2], strict=False)
            group = [_contract_pair(forest, a, b) for a, b in pairs] + group[len(group) & ~1 :]
        merged.append(group[0])
    return sorted(merged)


def _merge_greedily(forest: _Forest, nodes: list[int]) -> list[int]:
    """Contract the pair that shrinks the tables most, until few enough are left for an exact search."""
    reduced = {n: forest.needed_outside([n]) for n in nodes}
    size = {n: forest.size(reduced[n]) for n in nodes}

    def entry(a: int, b: int) -> tuple[int, int, int, int]:
        joint = forest.size(reduced[a] | reduced[b])
        return (joint - size[a] - size[b], joint, min(a, b), max(a, b))

    heap = [entry(a, b) for i, a in enumerate(nodes) for b in nodes[i + 1 :] if reduced[a] & reduced[b]]
    heapq.heapify(heap)
    while len(reduced) > MOST_EXACT:
        if not heap:  # what is left shares nothing: the smallest two
            first, second, *_ = sorted(reduced, key=lambda n: (size[n], n))
            heap.append(entry(first, second))
        _, _, a, b = heapq.heappop(heap)
        if a not in reduced or b not in reduced:
            continue
        new = _contract_pair(forest, a, b)
        del reduced[a], reduced[b]
        reduced[new] = forest.scope[new]
        size[new] = forest.size(forest.scope[new])
        for n in reduced:
            if n != new and reduced[n] & reduced[new]:
                heapq.heappush(heap, entry(n, new))
    return sorted(reduced)


def _contract_pair(forest: _Forest, a: int, b: int) -> int:
    """One node over a pair; a child is summed onto what others need first where the pair's table is larger."""
    for first, second in ((a, b), (b, a)):
        kept = forest.needed_outside([first])
        if kept < forest.scope[first] and not forest.scope[second] <= forest.scope[first]:
            summed = forest.contract([first])
            a, b = (summed, b) if first == a else (a, summed)
    return forest.contract([a, b])


def _best_splits(forest: _Forest, nodes: list[int]) -> dict[int, int]:
    """For every subset of the nodes (as bits) the half of its cheapest split; dynamic programme over subsets."""
    k = len(nodes)
    bit: dict[int, int] = {}
    for n in nodes:
        for v in sorted(forest.scope[n]):
            bit.setdefault(v, len(bit))
    cards = [forest.cardinality[v] for v in bit]
    inside = [0] * len(bit)
    for n in nodes:
        for v in forest.scope[n]:
            inside[bit[v]] += 1
    outside = sum(1 << i for v, i in bit.items() if forest.live[v] > inside[i])
    scope = [sum(1 << bit[v] for v in forest.scope[n]) for n in nodes]

    @cache
    def size(mask: int) -> int:
        return math.prod(cards[i] for i in range(mask.bit_length()) if mask >> i & 1)

    union = [0] * (1 << k)
    for s in range(1, 1 << k):
        low = (s & -s).bit_length() - 1
        union[s] = union[s & (s - 1)] | scope[low]
    full = (1 << k) - 1
    out = [union[s] & (outside | union[full ^ s]) for s in range(1 << k)]
    cost: list[float] = [0.0] * (1 << k)
    half = {}
    for s in range(1, 1 << k):
        if s & (s - 1) == 0:
            cost[s] = float(size(union[s])) if out[s] != union[s] else 0.0
            continue
        best = math.inf
        a = (s - 1) & s
        while a:
            b = s ^ a
            if a > b:  # each split once
                # forward once, backward at most twice over the pair's joint table; each result is written and read
                c = cost[a] + cost[b] + 3.0 * size(out[a] | out[b]) + 2.0 * size(out[s])
                if c < best:
                    best, half[s] = c, a
            a = (a - 1) & s
        cost[s] = best
    return half


def _contract_split(forest: _Forest, nodes: list[int], half: dict[int, int], subset: int) -> int:
    if subset & (subset - 1) == 0:
        return nodes[subset.bit_length() - 1]
    a = half[subset]
    return _contract_pair(
        forest, _contract_split(forest, nodes, half, a), _contract_split(forest, nodes, half, subset ^ a)
    )


class _Writer:
    """Collects tables and contractions, with the level of each."""

    def __init__(self, scopes: Sequence[Iterable[int]], axis_rank: Sequence[int]):
        self.rank = axis_rank
        self.program = Program([self.ordered(s) for s in scopes])
        self.table_level = [0] * len(scopes)

    def ordered(self, scope: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted(scope, key=self.rank.__getitem__))

    def add(self, kind: int, scope: Iterable[int], ins: Iterable[int]) -> int:
        used = tuple(t for t in ins if t != UNIT)
        out = len(self.program.scopes)
        level = 1 + max(self.table_level[t] for t in used)
        self.program.scopes.append(self.ordered(scope))
        self.table_level.append(level)
        self.program.kinds.append(kind)
        self.program.levels.append(level)
        self.program.outs.append(out)
        self.program.ins.append(used)
        return out


def _emit(forest: _Forest, roots: list[int], axis_rank: Sequence[int], every: bool = True) -> Program:
    """The forward sweep, the backward sweep and every posterior of a finished forest; D of every inner node, or only
    of those that a posterior is read at or below."""
    n_factors = sum(1 for c in forest.children if not c)
    writer = _Writer([forest.scope[f] for f in range(n_factors)], axis_rank)
    up = list(range(n_factors))  # table of U of each node
    for n in range(n_factors, len(forest.children)):
        up.append(writer.add(COLLECT, forest.scope[n], (up[c] for c in forest.children[n])))
    down: dict[int, int] = dict.fromkeys(roots, UNIT)  # table of D of each node; children on demand for leaves
    where = _posterior_places(forest, n_factors)
    wanted = _wanted(forest, where)
    if every:
        wanted.update(range(n_factors, len(forest.children)))
    scopes = writer.program.scopes
    for n in reversed(range(n_factors, len(forest.children))):
        for a in forest.children[n]:
            if a not in wanted:
                continue
            ins = [down[n], *(up[b] for b in forest.children[n] if b != a)]
            used = [t for t in ins if t != UNIT]
            seen = frozenset(v for t in used for v in scopes[t]) & forest.scope[a]
            if not used:
                down[a] = UNIT
            elif len(used) == 1 and len(seen) == len(scopes[used[0]]):
                down[a] = used[0]  # nothing to sum and nothing to multiply: the same table
            else:
                down[a] = writer.add(DISTRIBUTE, seen, used)
    posterior = []
    for v, (n, through) in enumerate(where):
        above = [up[n]] if through == "down" else [up[c] for c in forest.children[n]]
        posterior.append(writer.add(POSTERIOR, (v,), [*above, down[n]]))
    program = writer.program
    program.posterior_table, program.root_table = posterior, [up[r] for r in roots]
    by_level = sorted(range(len(program.outs)), key=lambda i: (program.levels[i], i))
    program.kinds = [program.kinds[i] for i in by_level]
    program.levels = [program.levels[i] for i in by_level]
    program.outs = [program.outs[i] for i in by_level]
    program.ins = [program.ins[i] for i in by_level]
    return program


def _wanted(forest: _Forest, where: Sequence[tuple[int, str]]) -> set[int]:
    """Nodes whose D is needed for posteriors read at these places."""
    parent = {c: n for n, children in enumerate(forest.children) for c in children}
    wanted: set[int] = set()
    for n in {n for n, _ in where}:
        at: int | None = n
        while at is not None and at not in wanted:
            wanted.add(at)
            at = parent.get(at)
    return wanted


def _posterior_places(forest: _Forest, n_factors: int) -> list[tuple[int, str]]:
    """Where each variable's posterior is read: ``(node, "down")`` from U and D of the node, ``(node, "joint")``
    from the children of a node and its D.

    A variable in the scope of an inner node is read at the smallest such node. Any other is summed out where its
    factors meet: with several such variables in one leaf the leaf's own D is worth making, with one it is not.
    """
    parent = [-1] * len(forest.children)
    for n, children in enumerate(forest.children):
        for c in children:
            parent[c] = n
    place: list[tuple[int, str] | None] = [None] * len(forest.cardinality)
    best = [math.inf] * len(forest.cardinality)
    for n in range(n_factors, len(forest.children)):
        size = forest.size(forest.scope[n])
        for v in forest.scope[n]:
            if size < best[v]:
                best[v], place[v] = size, (n, "down")
    leaf_only: dict[int, list[int]] = {}
    smallest: dict[int, tuple[int, int]] = {}
    for f in range(n_factors):
        size = forest.size(forest.scope[f])
        for v in sorted(forest.scope[f]):
            if place[v] is None and (v not in smallest or (size, f) < smallest[v]):
                smallest[v] = (size, f)
    for v, (_, f) in sorted(smallest.items()):
        leaf_only.setdefault(f, []).append(v)
    for f, variables in leaf_only.items():
        n = parent[f]
        joint = forest.size(frozenset().union(*(forest.scope[c] for c in forest.children[n])))
        # two-table D over the joint table, then the leaf, against a three-table product over the joint a variable
        with_leaf = 2 * joint + 2 * len(variables) * forest.size(forest.scope[f])
        alone = len(forest.children[n]) == 1
        choice = "down" if alone or with_leaf < 3 * joint * len(variables) else "joint"
        for v in variables:
            place[v] = (f, "down") if choice == "down" else (n, "joint")
    assert all(p is not None for p in place)
    return [p for p in place if p is not None]
