"""`DirectedModel`: variables, states and arcs; the questions that depend on the graph alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ArgumentError, NetworkError, closest, shown
from ..util.arguments import check_keywords, mapping, several
from ..util.arrays import Bools
from .discrete import MAX_AXES, DiscreteModel
from .equivalence import are_equivalent, cpdag_of, digraph, experimental_arcs

if TYPE_CHECKING:
    import networkx

# Directed graphs as lists of parents and children: cycles, descendants, d-separation, components.
#
# Vertices are numbers 0..V-1. ``parents[v]`` and ``children[v]`` are the neighbours of vertex v.

Adjacency = Sequence[Sequence[int]]


def find_cycle(parents: Adjacency, children: Adjacency) -> list[int]:
    """The vertices of a directed cycle, the first one repeated at the end; an empty list if there is none."""
    n_waiting = [len(p) for p in parents]
    ready = [v for v, n in enumerate(n_waiting) if n == 0]  # Kahn's algorithm
    done = 0
    while ready:
        v = ready.pop()
        done += 1
        for c in children[v]:
            n_waiting[c] -= 1
            if n_waiting[c] == 0:
                ready.append(c)
    if done == len(parents):
        return []
    v = next(i for i, n in enumerate(n_waiting) if n > 0)
    walk: dict[int, None] = {}
    while v not in walk:  # against the arcs, among the vertices that are left
        walk[v] = None
        v = next(p for p in parents[v] if n_waiting[p] > 0)
    path = list(walk)
    return [*path[path.index(v) :], v][::-1]


def descendants(successors: Adjacency, sources: Iterable[int]) -> set[int]:
    """The sources and every vertex that a directed path from one of them reaches.

    With lists of parents in place of children: the sources and their ancestors.
    """
    reached = set(sources)
    stack = list(reached)
    while stack:
        for v in successors[stack.pop()]:
            if v not in reached:
                reached.add(v)
                stack.append(v)
    return reached


def reachable(
    parents: Adjacency, children: Adjacency, sources: Iterable[int], observed: AbstractSet[int],
    until: AbstractSet[int] = frozenset(),
) -> set[int]:  # fmt: skip
    """Unobserved vertices that are d-connected to a source given the observed vertices, the sources included.

    With `until`, those that were visited up to the first of these.

    Koller and Friedman, Probabilistic Graphical Models, 2009, algorithm 3.1.
    """
    above_observed = descendants(parents, observed)
    # a vertex, and whether a path enters it from a child (True) or from a parent (False)
    stack = [(v, True) for v in sources]
    visited = set(stack)
    while stack:
        v, from_child = stack.pop()
        if v in until and v not in observed:
            break
        following: list[tuple[int, bool]] = []
        if (from_child and v not in observed) or (not from_child and v in above_observed):
            following += [(p, True) for p in parents[v]]
        if v not in observed:  # children last, so first from the stack: `until` often is below
            following += [(c, False) for c in children[v]]
        for step in following:
            if step not in visited:
                visited.add(step)
                stack.append(step)
    return {v for v, _ in visited if v not in observed}


@check_keywords()
class DirectedModel(DiscreteModel):
    """A directed acyclic graph over variables with states; the base of `BayesianNetwork`.

    Parameters
    ----------
    states : mapping of str to sequences of str
        The variables in order, with the names of their states.
    parents : mapping of str to sequences of str
        Parents of each variable, in order. Variables that are left out have no parents.
    name : str, optional

    Raises
    ------
    NetworkError
        If a parent is undeclared or repeated, or the arcs form a cycle.
    """

    def __init__(self, states: Mapping[str, Sequence[str]], parents: Mapping[str, Sequence[str]], *, name: str = ""):
        super().__init__(states, name=name)
        parents = mapping("parents", parents)
        for v in parents:
            if v not in self._index:
                raise NetworkError(f"parents given for {v!r}, which is not declared{closest(str(v), self._index)}")
        self._parents = tuple(self._checked_parents(v, parents.get(v, ())) for v in self._variables)
        children: list[list[int]] = [[] for _ in self._parents]
        for child, ids in enumerate(self._parents):
            for p in ids:
                children[p].append(child)
        self._children = tuple(map(tuple, children))
        cycle = find_cycle(self._parents, self._children)
        if cycle:
            walk = " -> ".join(repr(self._variables[v]) for v in cycle)
            raise NetworkError(f"the arcs form a cycle: {walk}")

    def _checked_parents(self, variable: str, given: Sequence[str]) -> tuple[int, ...]:
        above = several(given)
        if above is None:
            what = f"the string {given!r}" if isinstance(given, str) else shown(given)
            raise NetworkError(f"variable {variable!r}: its parents must be a sequence of names, not {what}")
        ids = []
        for p in above:
            if p not in self._index:
                raise NetworkError(
                    f"variable {variable!r} has the parent {p!r}, which is not declared{closest(str(p), self._index)}"
                )
            ids.append(self._index[p])
        if self._index.get(variable) in ids:
            raise NetworkError(f"variable {variable!r} is its own parent")
        if len(set(ids)) != len(ids):
            twice = next(p for p in given if list(given).count(p) > 1)
            raise NetworkError(f"variable {variable!r} has the parent {twice!r} twice")
        if len(ids) >= MAX_AXES:
            raise NetworkError(
                f"variable {variable!r} has {len(ids)} parents; a CPT can have {MAX_AXES - 1} (a limit of NumPy)"
            )
        return tuple(ids)

    def _named(self, ids: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._variables[v] for v in ids)

    # The graph ------------------------------------------------------------------------------------------------

    @property
    def arcs(self) -> tuple[tuple[str, str], ...]:
        """The arcs as pairs (parent, child), by child in the order of the variables, then by parent."""
        return tuple(
            (self._variables[p], self._variables[child]) for child, ids in enumerate(self._parents) for p in ids
        )

    @property
    def n_arcs(self) -> int:
        """Number of arcs."""
        return sum(len(p) for p in self._parents)

    def parents(self, variable: str | int) -> tuple[str, ...]:
        """Names of the parents of a variable, in the order of its CPT's axes."""
        return self._named(self._parents[self.index(variable)])

    def children(self, variable: str | int) -> tuple[str, ...]:
        """Names of the children of a variable, in the order of the variables."""
        return self._named(self._children[self.index(variable)])

    def ancestors(self, variable: str | int) -> tuple[str, ...]:
        """Names of the ancestors of a variable (without itself), in the order of the variables."""
        v = self.index(variable)
        return self._named(sorted(descendants(self._parents, [v]) - {v}))

    def descendants(self, variable: str | int) -> tuple[str, ...]:
        """Names of the descendants of a variable (without itself), in the order of the variables."""
        v = self.index(variable)
        return self._named(sorted(descendants(self._children, [v]) - {v}))

    def markov_blanket(self, variable: str | int) -> tuple[str, ...]:
        """Names of the parents, the children and the other parents of the children, in the order of the variables.

        Given these, the variable is independent of all others.
        """
        v = self.index(variable)
        blanket = {*self._parents[v], *self._children[v], *(p for c in self._children[v] for p in self._parents[c])}
        return self._named(sorted(blanket - {v}))

    def cpdag(self, *, interventions: Iterable[str | Iterable[str]] = ()) -> networkx.DiGraph[str]:
        """Return the equivalence class of the graph as a `networkx.DiGraph`.

        Graphs are equivalent if they imply the same independences. An arc that has the same direction in all equivalent
        graphs is an arc, every other one is a pair of arcs in both directions.

        Parameters
        ----------
        interventions : list of variables, or of lists of variables
            Experiments besides observations, by the variables that are set: the class is that of the graphs that imply
            the same in each of them, too (Hauser and Bühlmann, JMLR 2012).

        Examples
        --------
        >>> import jtgpu
        >>> [*jtgpu.network("rain->wet<-sprinkler; wet->slippery").cpdag().edges]
        [('rain', 'wet'), ('wet', 'slippery'), ('sprinkler', 'wet')]
        """
        arcs = self._matrix()
        return digraph(self._variables, cpdag_of(arcs, experimental_arcs(arcs, self._targets(interventions))))

    def is_equivalent(self, other: DirectedModel, *, interventions: Iterable[str | Iterable[str]] = ()) -> bool:
        """Whether another graph over the same variables implies the same independences, also of experiments.

        Parameters
        ----------
        other : network
        interventions : list of variables, or of lists of variables
            See `cpdag`.

        Raises
        ------
        NetworkError
            If the other model has other variables.
        """
        if {*getattr(other, "variables", ())} != {*self._variables}:
            raise NetworkError(f"is_equivalent compares graphs of the same variables, not {self!r} and {other!r}")
        order = [other.index(v) for v in self._variables]
        theirs = other._matrix()[np.ix_(order, order)]
        return are_equivalent(self._matrix(), theirs, self._targets(interventions))

    def _targets(self, interventions: Iterable[str | Iterable[str]]) -> Bools:
        """The variables that are set in each experiment, (K, n)."""
        if isinstance(interventions, str):
            raise ArgumentError(f"interventions must be a list such as [{interventions!r}], not a text")
        targets = [[v] if isinstance(v, str) else [*v] for v in interventions]
        rows = np.zeros((len(targets), len(self)), np.bool_)
        for row, target in zip(rows, targets, strict=True):
            row[[self.index(v) for v in target]] = True
        return rows

    def _matrix(self) -> Bools:
        """[u, v]: whether the graph has the arc u -> v."""
        arcs = np.zeros((len(self), len(self)), np.bool_)
        for v, parents in enumerate(self._parents):
            arcs[list(parents), v] = True
        return arcs

    def topological_order(self) -> tuple[str, ...]:
        """Names of the variables, parents before children; ties by number."""
        placed: dict[int, None] = {}
        for start in range(len(self)):
            stack = [start]
            while stack:
                v = stack[-1]
                missing = [p for p in self._parents[v] if p not in placed]
                if v in placed or not missing:
                    placed.setdefault(v)
                    stack.pop()
                else:
                    stack.extend(reversed(missing))
        return self._named(placed)

    def d_separated(
        self,
        x: str | int | Iterable[str | int],
        y: str | int | Iterable[str | int],
        given: str | int | Iterable[str | int] = (),
    ) -> bool:
        """Whether the graph implies that `x` and `y` are independent given `given`.

        Parameters
        ----------
        x, y, given : str, int or iterable of these
            A variable or several. The three sets must be disjoint.

        Raises
        ------
        UnknownVariable
            If the model has no such variable.
        NetworkError
            If the sets overlap.

        Notes
        -----
        Every path between `x` and `y` is blocked: it contains a chain or fork at a variable of `given`, or a collider
        without a descendant in `given` (Pearl, Probabilistic Reasoning in Intelligent Systems, 1988). The algorithm is
        linear in the number of arcs (Koller and Friedman, Probabilistic Graphical Models, 2009, algorithm 3.1).

        Examples
        --------
        >>> import jtgpu
        >>> net = jtgpu.network("rain->wet<-sprinkler")
        >>> net.d_separated("rain", "sprinkler"), net.d_separated("rain", "sprinkler", given="wet")
        (True, False)
        """
        sets = {"x": self._numbers(x), "y": self._numbers(y), "given": self._numbers(given)}
        for a, b in (("x", "y"), ("x", "given"), ("y", "given")):
            common = sets[a] & sets[b]
            if common:
                raise NetworkError(
                    f"d_separated takes disjoint sets: {self._variables[min(common)]!r} is in {a} and in {b}"
                )
        return not reachable(self._parents, self._children, sets["x"], sets["given"]) & sets["y"]

    def _numbers(self, variables: str | int | Iterable[str | int]) -> set[int]:
        """Numbers of a variable or of several."""
        if isinstance(variables, str) or not isinstance(variables, Iterable):
            return {self.index(variables)}
        return {self.index(v) for v in variables}
