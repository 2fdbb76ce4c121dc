"""The cliques of an elimination order and the maximum-weight tree that joins them.

Variables are numbers, a clique is a sorted tuple of variables. The `CliqueTree` is the graph structure that a plan is
built from; what users compile and query is `jtgpu.inference.tree.JunctionTree`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from ..errors import OrderError, PlanError

# The interaction graph of a model: variables are neighbours if a factor contains both.
#
# For a Bayesian network this is the moral graph. Variables are numbers; names and states do not occur here.

def interaction_graph(n_variables: int, scopes: Iterable[Sequence[int]]) -> list[tuple[int, ...]]:
    """The graph in which the variables of each scope are pairwise neighbours.

    If the scopes are the families of a Bayesian network, this is its moral graph (Lauritzen and Spiegelhalter,
    Journal of the Royal Statistical Society B 50, 1988, section 4).
    """
    # scopes: iterable of sequences of int: Variables that are pairwise neighbours
    # returns list of tuple of int: The neighbours of every variable, sorted.
    around: list[set[int]] = [set() for _ in range(n_variables)]
    for scope in scopes:
        for v in scope:
            around[v].update(scope)
    return [tuple(sorted(neighbours - {v})) for v, neighbours in enumerate(around)]


Clique = tuple[int, ...]
Forest = Callable[[Sequence[Clique], Sequence[tuple[int, int]]], list[list[int]]]

# Candidate edges of the clique graph. Above this many, Kruskal gets only the edges that elimination itself gives: they
# contain a maximum-weight spanning tree, and a star of n cliques has n^2 / 2 edges.
MAX_CLIQUE_EDGES = 200_000


def elimination_cliques(
    neighbours: Sequence[Iterable[int]], order: Sequence[int]
) -> tuple[list[Clique], list[tuple[int, int]]]:
    """Maximal cliques of the triangulation that an elimination order induces."""
    # returns cliques: list of sorted tuples of int: In the order in which elimination finds them
    # returns links: list of (int, int): Edges of a junction tree (not necessarily the one of maximum weight): each
    #     clique except the last of its component, and the clique in which elimination continues
    # raises OrderError: If `order` is not a permutation of the vertices.
    n = len(neighbours)
    position = [-1] * n
    for at, v in enumerate(order):
        if not 0 <= v < n or position[v] >= 0:
            raise OrderError(
                f"an elimination order contains each of the {n} variables once; number {v} is out of range or repeated"
            )
        position[v] = at
    if len(order) != n:
        raise OrderError(f"an elimination order contains each of the {n} variables once; this one has {len(order)}")
    later = [{u for u in neighbours[v] if position[u] > position[v]} for v in range(n)]
    clique_of = [-1] * n  # the maximal clique that contains {v} and later[v]
    children: list[list[int]] = [[] for _ in range(n)]  # of the elimination tree
    cliques: list[Clique] = []
    links: list[tuple[int, int]] = []
    for v in order:
        # {v} + later[v] holds later[u] for every child u; it is no maximal clique when it equals one of them
        same = [u for u in children[v] if len(later[u]) == len(later[v]) + 1]
        if same:
            clique_of[v] = min(clique_of[u] for u in same)
        else:
            clique_of[v] = len(cliques)
            cliques.append(tuple(sorted((v, *later[v]))))
        links.extend((clique_of[u], clique_of[v]) for u in children[v] if clique_of[u] != clique_of[v])
        if later[v]:
            after = min(later[v], key=position.__getitem__)
            children[after].append(v)
            later[after] |= later[v]
            later[after].discard(after)
    return cliques, links


@dataclass(frozen=True)
class CliqueTree:
    """A rooted forest over numbered cliques with one root per component of the graph."""

    cliques: tuple[Clique, ...]
    parent: tuple[int, ...]  # -1 for a root
    depth: tuple[int, ...]  # 0 for a root

    def separator(self, clique: int) -> Clique:
        """The variables that a clique shares with its parent; empty for a root."""
        up = self.parent[clique]
        return () if up < 0 else tuple(sorted(set(self.cliques[clique]) & set(self.cliques[up])))

    def top_cliques(self, n_variables: int) -> list[int]:
        """For each variable, the clique nearest to the root that contains it."""
        # raises PlanError: If the running intersection property fails: the cliques of some variable are not connected.
        tops = [-1] * n_variables
        for c, members in enumerate(self.cliques):
            up = set(self.cliques[self.parent[c]]) if self.parent[c] >= 0 else set()
            for v in members:
                if v not in up:
                    if tops[v] >= 0:
                        raise PlanError(
                            f"the running intersection property fails: variable {v} has two topmost cliques, "
                            f"{tops[v]} and {c}"
                        )
                    tops[v] = c
        return tops


def spanning_forest(cliques: Sequence[Clique], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Sorted neighbours of every clique in the maximum-weight spanning forest; of equal weights, the first edge."""
    members = [frozenset(c) for c in cliques]
    leader = list(range(len(cliques)))  # union-find: follow to the component's representative

    def component(c: int) -> int:
        while leader[c] != c:
            leader[c] = leader[leader[c]]  # halve the path
            c = leader[c]
        return c

    neighbours: list[list[int]] = [[] for _ in cliques]
    for a, b in sorted(edges, key=lambda edge: -len(members[edge[0]] & members[edge[1]])):
        one, other = component(a), component(b)
        if one != other:
            leader[one] = other
            neighbours[a].append(b)
            neighbours[b].append(a)
    return [sorted(around) for around in neighbours]


def networkx_forest(cliques: Sequence[Clique], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The result of `spanning_forest` by networkx, as Gottoli and Pettenuzzo (2014) do; its import takes 0.2 s."""
    import networkx

    graph: networkx.Graph[int] = networkx.Graph()
    graph.add_nodes_from(range(len(cliques)))
    graph.add_weighted_edges_from((a, b, len({*cliques[a]} & {*cliques[b]})) for a, b in edges)
    forest = networkx.maximum_spanning_tree(graph, weight="weight", algorithm="kruskal")
    return [sorted(forest[c]) for c in range(len(cliques))]


def clique_tree(
    cliques: Sequence[Clique],
    links: Sequence[tuple[int, int]],
    cardinality: Sequence[int],
    forest: Forest = spanning_forest,
) -> CliqueTree:
    """Maximum-weight spanning tree of the clique graph by Kruskal, rooted at the centre of each component.

    The weight of an edge is the number of shared variables (Jensen and Jensen, Optimal junction trees, UAI 1994);
    ties are broken by clique number. Of two centres, the one with the larger table becomes the root.
    """
    # cliques: sequence of sorted tuples of int: Maximal cliques of a triangulated graph
    # links: sequence of (int, int): Edges of any junction tree of these cliques, as `elimination_cliques` gives them
    # cardinality: sequence of int: States of every variable
    # forest: `spanning_forest` or `networkx_forest`, which give the same edges
    neighbours = forest(cliques, _candidate_edges(cliques, links, len(cardinality)))
    parent, depth = [-1] * len(cliques), [-1] * len(cliques)
    for start in range(len(cliques)):
        if depth[start] < 0:
            root = max(
                _centres(neighbours, start),
                key=lambda c: (math.prod(cardinality[v] for v in cliques[c]), -c),
            )
            depth[root] = 0
            for c in _walk(neighbours, root):
                for d in neighbours[c]:
                    if depth[d] < 0:
                        parent[d], depth[d] = c, depth[c] + 1
    return CliqueTree(tuple(cliques), tuple(parent), tuple(depth))


def _candidate_edges(
    cliques: Sequence[Clique], links: Sequence[tuple[int, int]], n_variables: int
) -> list[tuple[int, int]]:
    """Pairs of cliques that share a variable, lower number first, sorted."""
    holders: list[list[int]] = [[] for _ in range(n_variables)]
    for c, clique in enumerate(cliques):
        for v in clique:
            holders[v].append(c)
    if sum(len(h) * (len(h) - 1) // 2 for h in holders) > MAX_CLIQUE_EDGES:
        return sorted({(min(a, b), max(a, b)) for a, b in links})
    return sorted({pair for h in holders for pair in combinations(h, 2)})


def _walk(neighbours: Sequence[Sequence[int]], start: int) -> list[int]:
    """Vertices of a tree, breadth first."""
    seen = {start: None}
    for v in (queue := [start]):
        for u in neighbours[v]:
            if u not in seen:
                seen[u] = None
                queue.append(u)
    return queue


def _centres(neighbours: Sequence[Sequence[int]], start: int) -> list[int]:
    """The one or two middle vertices of a tree's longest path (two walks find its ends)."""
    end = _walk(neighbours, start)[-1]
    before = {end: -1}
    last = end
    for v in _walk(neighbours, end):
        last = v
        for u in neighbours[v]:
            before.setdefault(u, v)
    path = [last]
    while before[path[-1]] >= 0:
        path.append(before[path[-1]])
    return sorted(path[(len(path) - 1) // 2 : len(path) // 2 + 1])
