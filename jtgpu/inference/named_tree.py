"""The junction tree of a plan by the names of its variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..model.discrete import DiscreteModel
from ..plans.conditioning import SplitModel
from ..plans.plan import Plan

if TYPE_CHECKING:
    import networkx


class NamedTree(NamedTuple):
    """Cliques by name, and the parent of each."""

    cliques: tuple[tuple[str, ...], ...]
    parent: tuple[int, ...]  # number of a clique, -1 for a root

    @property
    def separators(self) -> tuple[tuple[str, ...], ...]:
        """The variables that each clique shares with its parent, in the order of the clique; empty for a root."""
        found = []
        for clique, up in zip(self.cliques, self.parent, strict=True):
            above = frozenset(self.cliques[up]) if up >= 0 else frozenset[str]()
            found.append(tuple(v for v in clique if v in above))
        return tuple(found)

    def graph(self, model: DiscreteModel) -> networkx.Graph[tuple[str, ...]]:
        """The tree as a graph: cliques are nodes, separators are edges."""
        import networkx

        graph: networkx.Graph[tuple[str, ...]] = networkx.Graph(name=model.name)
        for number, clique in enumerate(self.cliques):
            graph.add_node(clique, size=_size(model, clique), number=number)
        for clique, up, separator in zip(self.cliques, self.parent, self.separators, strict=True):
            if up >= 0:
                graph.add_edge(self.cliques[up], clique, separator=separator, size=_size(model, separator))
        return graph


def named_tree(model: DiscreteModel, plan: Plan) -> NamedTree:
    """The junction tree of a plan, the variables of a clique in the order of the model."""
    cliques = tuple(tuple(model.variables[v] for v in sorted(clique)) for clique in plan.cliques)
    return NamedTree(cliques, tuple(plan.clique_parent.tolist()))


def named_tree_of_slice(model: DiscreteModel, plan: Plan, split: SplitModel) -> NamedTree:
    """The junction tree of the plan of a slice, without the variables whose states are fixed.

    A clique that is part of a neighbour once these are left out is merged with it.
    """
    members = [
        frozenset(v for v in split.origin[list(clique)].tolist() if not split.observed[v]) for clique in plan.cliques
    ]
    parent = _absorb(members, plan.clique_parent.tolist())
    left = [c for c in parent if members[c]]
    number = {c: i for i, c in enumerate(left)}
    cliques = tuple(tuple(model.variables[v] for v in sorted(members[c])) for c in left)
    return NamedTree(cliques, tuple(number.get(parent[c], -1) for c in left))


def _absorb(members: Sequence[frozenset[int]], parents: Sequence[int]) -> dict[int, int]:
    """Merge each clique that is part of a neighbour with it; the parent of each clique that remains.

    A neighbour's variables include the separator, so the result is a junction tree, too.
    """
    parent = dict(enumerate(parents))
    changed = True
    while changed:
        changed = False
        for c in list(parent):
            up = parent.get(c, -1)
            if up < 0 or not (members[c] <= members[up] or members[up] <= members[c]):
                continue
            gone, into = (c, up) if members[c] <= members[up] else (up, c)
            if gone == up:
                parent[into] = parent[up]
            del parent[gone]
            for child, above in parent.items():
                if above == gone:
                    parent[child] = into
            changed = True
    return parent


def _size(model: DiscreteModel, variables: Sequence[str]) -> int:
    """Entries of a table over some variables."""
    return math.prod(len(model.states(v)) for v in variables)
