"""From a junction tree to the contractions that run: a contraction forest and its reverse sweep.

A *contraction forest* has the model's factors as leaves. An inner node multiplies its children and sums out every
variable that no node outside its subtree contains; its scope is what the rest of the model still needs. The roots have
empty scope, and their product is P(e).

Every lowering is such a forest, built along the junction tree from the leaf cliques to the root:

* ``"clique"``: a node is a clique, its children are the clique's factors and the incoming messages. The sweep is
  Shafer-Shenoy propagation (Shafer and Shenoy, Probability propagation, 1990).
* ``"pairwise"``: the work of a clique is split into contractions of two tables, the nodes of a binary join tree
  (Shenoy, Binary join trees for computing marginals in the Shenoy-Shafer architecture, 1997); the clique's full table
  is never built.
* ``"shallow"``: as ``"pairwise"``, then the tree is balanced until its critical path is short (`jtgpu.plans.balance`):
  somewhat more products and up to half the levels, which is what single cases on a GPU wait for.

The reverse sweep is the derivative of the forward one (Darwiche, A differential approach to inference in Bayesian
networks, JACM 50, 2003): with D_root = 1, the child a of a node n with siblings b has D_a = sum D_n * prod U_b. The
posterior of a variable is U_n * D_n summed onto it, at the node where that is cheapest. There are no divisions, so
zeros need no special treatment.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from ..util.options import Lowering
from .arrays import ragged
from .balance import ContractionForest, Tree, shorten
from .plan import Plan
from .program import ContractionProgram, emit

# Build the contraction forest along a junction tree and turn it into a program.

# Where the tables of a program are stored, and the program as arrays of a plan.

ALIGNMENT = 8  # cells: one cache line of float64


def lay_out(
    sizes: Sequence[int], n_factors: int, outs: Sequence[int], posterior: Sequence[int]
) -> tuple[list[int], int]:
    """Place the tables in one array, the arena: factors first, then all posteriors, then the other tables in the order
    in which they are written.
    """
    # returns offsets: list of int: First cell of each table
    # returns cells: Length of the arena
    offsets = [0] * len(sizes)
    at = 0
    last = set(posterior)
    for t in range(n_factors):
        offsets[t] = at
        at += -(-sizes[t] // ALIGNMENT) * ALIGNMENT
    for t in posterior:  # without gaps, so that all posteriors form one block
        offsets[t] = at
        at += sizes[t]
    at = -(-at // ALIGNMENT) * ALIGNMENT
    for t in outs:
        if t not in last:
            offsets[t] = at
            at += -(-sizes[t] // ALIGNMENT) * ALIGNMENT
    return offsets, at


def program_arrays(program: ContractionProgram, offsets: Sequence[int], cells: int) -> dict[str, NDArray[np.int64]]:
    """The fields of a plan that follow from its program and the placement by `lay_out`."""
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


# The contractions of one clique: all tables at once, or two at a time.

MAX_EXACT = 7  # children of a clique up to which the best split into pairs is searched exactly (3^7 splits)


def contract_all(forest: ContractionForest, nodes: list[int]) -> int:
    """One node over all of the given ones: the lowering ``"clique"``."""
    if len(nodes) > MAX_EXACT:  # a star: one product of a thousand messages would be slow and underflow
        nodes = _merge_equals(forest, sorted(nodes))
    if len(nodes) == 1 and forest.needed_outside(nodes) == forest.scope[nodes[0]]:
        return nodes[0]
    return forest.contract(nodes)


def contract_pairwise(forest: ContractionForest, nodes: list[int]) -> int:
    """Contract the nodes two at a time: greedily while there are many, by the best of all splits at the end."""
    nodes = sorted(nodes)
    if len(nodes) > MAX_EXACT:
        nodes = _merge_greedily(forest, _merge_equals(forest, nodes))
    if len(nodes) == 1:
        return contract_all(forest, nodes)
    return _contract_split(forest, nodes, _best_splits(forest, nodes), (1 << len(nodes)) - 1)


def _merge_equals(forest: ContractionForest, nodes: list[int]) -> list[int]:
    """Multiply nodes of equal outer scope by a balanced tree, so that a star has few levels."""
    groups: dict[frozenset[int], list[int]] = {}
    for n in nodes:
        groups.setdefault(forest.needed_outside([n]), []).append(n)
    merged = []
    for group in groups.values():
        while len(group) > 1:
            pairs = zip(group[::2], group[1::2], strict=False)
            group = [contract_pair(forest, a, b) for a, b in pairs] + group[len(group) & ~1 :]
        merged.append(group[0])
    return sorted(merged)


def _merge_greedily(forest: ContractionForest, nodes: list[int]) -> list[int]:
    """Contract the pair that shrinks the tables most until few enough nodes are left for an exact search."""
    reduced = {n: forest.needed_outside([n]) for n in nodes}
    size = {n: forest.size(reduced[n]) for n in nodes}

    def entry(a: int, b: int) -> tuple[int, int, int, int]:
        joint = forest.size(reduced[a] | reduced[b])
        return (joint - size[a] - size[b], joint, min(a, b), max(a, b))

    heap = [entry(a, b) for i, a in enumerate(nodes) for b in nodes[i + 1 :] if reduced[a] & reduced[b]]
    heapq.heapify(heap)
    while len(reduced) > MAX_EXACT:
        if not heap:  # no two nodes share variables: take the smallest two
            first, second, *_ = sorted(reduced, key=lambda n: (size[n], n))
            heap.append(entry(first, second))
        _, _, a, b = heapq.heappop(heap)
        if a not in reduced or b not in reduced:
            continue
        new = contract_pair(forest, a, b)
        del reduced[a], reduced[b]
        reduced[new] = forest.scope[new]
        size[new] = forest.size(forest.scope[new])
        for n in reduced:
            if n != new and reduced[n] & reduced[new]:
                heapq.heappush(heap, entry(n, new))
    return sorted(reduced)


def contract_pair(forest: ContractionForest, a: int, b: int) -> int:
    """One node over a pair; where it makes the joint table smaller, a child is summed onto what others need first."""
    for first, second in ((a, b), (b, a)):
        kept = forest.needed_outside([first])
        if kept < forest.scope[first] and not forest.scope[second] <= forest.scope[first]:
            summed = forest.contract([first])
            a, b = (summed, b) if first == a else (a, summed)
    return forest.contract([a, b])


def _best_splits(forest: ContractionForest, nodes: list[int]) -> dict[int, int]:
    """For each subset of the nodes (as a bit mask), one half of its cheapest split, by dynamic programming."""
    k = len(nodes)
    if k == 2:
        return {3: 2}
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


def _contract_split(forest: ContractionForest, nodes: list[int], half: dict[int, int], subset: int) -> int:
    """Contract a subset of the nodes by its cheapest splits."""
    if subset & (subset - 1) == 0:
        return nodes[subset.bit_length() - 1]
    a = half[subset]
    return contract_pair(
        forest, _contract_split(forest, nodes, half, a), _contract_split(forest, nodes, half, subset ^ a)
    )


LOWERINGS: tuple[Lowering, ...] = ("pairwise", "clique", "shallow")
SLIM = "slim"  # as "pairwise", then rearranged by `jtgpu.plans.lowering`; engines choose it
GPU_US_PER_CRITICAL_US = 64.0  # microseconds of critical path that one microsecond of the whole GPU is worth


def lower(  # noqa: PLR0913 (a tree and its factors)
    cardinality: Sequence[int],
    factor_scopes: Sequence[Sequence[int]],
    factor_clique: Sequence[int],
    clique_parent: Sequence[int],
    axis_rank: Sequence[int],
    lowering: str = "pairwise",
    price: float = GPU_US_PER_CRITICAL_US,
    sets: Sequence[int] = (),
) -> ContractionProgram:
    """Lower a junction tree to tables and contractions."""
    # cardinality: (V,): States of each variable
    # factor_scopes: F sequences of int: Variables of each factor
    # factor_clique: (F,): The clique that each factor belongs to
    # clique_parent: (C,): The rooted junction forest, -1 at roots
    # axis_rank: (V,): Position of each variable in the axis order of all tables
    # lowering: {"pairwise", "clique", "shallow"}: See `jtgpu.plans.lowering`
    # price: For ``"shallow"``: see `jtgpu.plans.balance.shorten`. The higher, the fewer products are added.
    # sets: Factors whose scopes have a posterior too; see `emit`
    if lowering not in (*LOWERINGS, SLIM):
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
    if lowering in ("shallow", SLIM):
        change = slim if lowering == SLIM else partial(shorten, price=price)
        forest, roots = _rearranged(forest, roots, change)
    return emit(forest, roots, axis_rank, lowering not in ("shallow", SLIM), sets)


def relowered(plan: Plan, price: float = GPU_US_PER_CRITICAL_US, lowering: str = "shallow") -> Plan:
    """The same junction tree and factors with another lowering: ``"shallow"``, or `SLIM` for tables on GPUs."""
    # price: See `lower`
    cards = plan.cardinality.tolist()
    rank = plan.axis_rank.tolist()
    program = lower(
        cards, plan.factor_scopes, plan.factor_clique.tolist(), plan.clique_parent.tolist(),
        rank, lowering, price, plan.evidence_factor[len(cards) :].tolist(),
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


def _rearranged(
    forest: ContractionForest, roots: Sequence[int], change: Callable[..., dict[int, tuple[int, int]] | None]
) -> tuple[ContractionForest, list[int]]:
    """The forest with other trees, where `change` finds better ones."""
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
        better = change(forest.scope, children, top, forest.cardinality) if children else None
        trees.append((top, better or children, better is not None))
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


# A tree for tables of many cases. On a GPU a table of all cases is written to and read from device memory, and how
# often an operand is loaded again depends on what the contraction's other edges have for themselves. Two neighbouring
# vertices exchange branches (`jtgpu.plans.balance`) as long as that makes the sum smaller: small tables are multiplied
# with each other before they meet a large one, which is then read once and not written in between.

CELL = 6.0  # two messages go over an edge, each is written once and read twice
LOAD = 0.7  # of an operand from the L2, in cells of device memory
SIDE = 16.0  # most outputs of a block that share an operand
LEAST_GAIN = 0.98  # otherwise the tree stays as it is
MAX_SWEEPS = 64


def slim(
    scopes: Sequence[frozenset[int]], children: Mapping[int, tuple[int, int]], top: int, cardinality: Sequence[int]
) -> dict[int, tuple[int, int]] | None:
    """Another tree over the same leaves that moves fewer numbers; None if there is none nearby."""
    # See `jtgpu.plans.balance.shorten`
    tree = _Slim(scopes, children, top, cardinality)
    before = tree.cost()
    for _ in range(MAX_SWEEPS):
        if not tree.descend():
            break
    if tree.cost() > LEAST_GAIN * before:
        return None
    return {n: (a, b) for n, (a, b) in tree.kids.items()}


class _Slim(Tree):
    """The tree while branches are exchanged."""

    def __init__(
        self, scopes: Sequence[frozenset[int]], children: Mapping[int, tuple[int, int]], top: int,
        cardinality: Sequence[int],
    ):  # fmt: skip
        super().__init__(scopes, children, top, cardinality)
        self._loads = functools.lru_cache(1 << 16)(self.loads)
        self._waiting = {n for n in self.kids if n != top}  # vertices near which something has changed

    def descend(self) -> int:
        """Make every exchange that pays, vertex after vertex; their number."""
        moved = 0
        for n in self.kids:
            if n not in self._waiting:
                continue
            self._waiting.remove(n)
            other = self.across(n)
            if other is None:
                continue
            third, last = self.beyond(n, other)
            a, b = self.kids[n]
            now = self._cost(a, b, third, last)
            cost, given = min((self._cost(a, third, b, last), b), (self._cost(b, third, a, last), a))
            if cost < now * (1.0 - 1e-9):
                self.give(n, other, given, third)
                near = (n, other, *self.kids[n], *self.kids[other])
                self._waiting.update(x for x in near if x in self.kids)
                moved += 1
        return moved

    def cost(self) -> float:
        """Cells that all messages move, but for those of the root."""
        inner = [n for n in self.kids if n != self.top]
        loads = sum(self._loads(*(self.scope[c] for c in self.kids[n]), self.scope[n]) for n in inner)
        return CELL * sum(self.size(self.scope[n]) for n in inner) + LOAD * loads

    def _cost(self, a: int, b: int, c: int, d: int) -> float:
        """Cells that edges a and b at one vertex and c and d at its neighbour make them move."""
        here, there, far, last = self.scope[a], self.scope[b], self.scope[c], self.scope[d]
        between = (here | there) & (far | last)
        loads = self._loads(here, there, between) + self._loads(far, last, between)
        return CELL * self.size(between) + LOAD * loads

    def loads(self, a: frozenset[int], b: frozenset[int], c: frozenset[int]) -> float:
        """Operands that the three messages of a vertex load, by the scopes of its edges."""
        common = a & b & c
        own = [min(self.size((x & y) - common), SIDE) for x, y in ((b, c), (a, c), (a, b))]
        return self.size(a | b | c) * 2.0 * sum(1.0 / n for n in own)
