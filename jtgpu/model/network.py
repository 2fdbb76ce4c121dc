"""`BayesianNetwork`: a directed acyclic graph with a conditional probability table for each variable.

A model consists of names, states and numbers, and is independent of trees, plans, files and devices. Computations take
a `DiscreteModel`: variables numbered 0..V-1 and a list of factors over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NetworkError, closest
from .cpts import ROW_TOLERANCE, RowReport, check_numbers, freeze
from .discrete import DiscreteModel, Factor
from .markov import MarkovNetwork

if TYPE_CHECKING:
    import networkx
    from numpy.typing import ArrayLike, NDArray

__all__ = ["BayesianNetwork", "DiscreteModel", "Factor", "MarkovNetwork"]


class BayesianNetwork(DiscreteModel):
    """A discrete Bayesian network; immutable, and checked on construction.

    Parameters
    ----------
    states : mapping of str to sequences of str
        The variables in order, with the names of their states. A variable may have one state.
    parents : mapping of str to sequences of str
        Parents of each variable, in the order of its CPT's axes. Variables that are left out have no parents.
    cpts : mapping of str to array_like
        Conditional probability tables, float64; axes: parents in order, then the variable itself. Each row (last axis)
        must sum to 1 within 1e-6; use `normalize_rows` first if it does not.
    name : str, optional
    attributes : mapping, optional
        Further contents of a file about the network, its nodes and potentials, preserved for writing:
        ``{"net": {...}, "node": {variable: {...}}, "potential": {variable: {...}}}``.
    row_report : RowReport, optional
        Rows that the reader of a file normalised.

    Raises
    ------
    NetworkError
        If a parent is undeclared or repeated, the arcs form a cycle, a CPT is missing or has the wrong shape, a number
        is negative or not finite, or a row does not sum to 1. The message names the variable.

    Examples
    --------
    >>> from jtgpu import BayesianNetwork
    >>> net = BayesianNetwork(
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     {"wet": ["rain"]},
    ...     {"rain": [0.8, 0.2], "wet": [[0.9, 0.1], [0.2, 0.8]]},
    ... )
    >>> net.parents("wet")
    ('rain',)
    """

    def __init__(
        self,
        states: Mapping[str, Sequence[str]],
        parents: Mapping[str, Sequence[str]],
        cpts: Mapping[str, ArrayLike],
        *,
        name: str = "",
        attributes: Mapping[str, Mapping[str, Any]] | None = None,
        row_report: RowReport | None = None,
    ):
        super().__init__(states, name=name)
        self._attributes = MappingProxyType(dict(attributes or {}))
        self._row_report = row_report
        for given, what in ((parents, "parents"), (cpts, "a CPT")):
            for v in given:
                if v not in self._index:
                    raise NetworkError(f"{what} given for {v!r}, which is not declared{closest(str(v), self._index)}")
        self._parents = tuple(self._checked_parents(v, parents.get(v, ())) for v in self._variables)
        self._check_acyclic()
        self._cpts = tuple(self._checked_cpt(i, cpts) for i in range(len(self._variables)))
        self._factors = tuple(
            Factor((*self._parents[i], i), cpt) for i, cpt in enumerate(self._cpts)
        )

    def _checked_parents(self, variable: str, given: Sequence[str]) -> tuple[int, ...]:
        if isinstance(given, str):
            raise NetworkError(
                f"variable {variable!r}: its parents must be a sequence of names, not the string {given!r}"
            )
        ids = []
        for p in given:
            if p not in self._index:
                raise NetworkError(
                    f"variable {variable!r} has the parent {p!r}, which is not declared{closest(str(p), self._index)}"
                )
            ids.append(self._index[p])
        if self._index[variable] in ids:
            raise NetworkError(f"variable {variable!r} is its own parent")
        if len(set(ids)) != len(ids):
            twice = next(p for p in given if list(given).count(p) > 1)
            raise NetworkError(f"variable {variable!r} has the parent {twice!r} twice")
        return tuple(ids)

    def _check_acyclic(self) -> None:
        """Kahn's algorithm; if variables are left over, a cycle among them is found and named."""
        n_waiting = [len(p) for p in self._parents]
        children: list[list[int]] = [[] for _ in self._parents]
        for child, ids in enumerate(self._parents):
            for p in ids:
                children[p].append(child)
        ready = [i for i, n in enumerate(n_waiting) if n == 0]
        done = 0
        while ready:
            v = ready.pop()
            done += 1
            for c in children[v]:
                n_waiting[c] -= 1
                if n_waiting[c] == 0:
                    ready.append(c)
        if done == len(self._parents):
            return
        v = next(i for i, n in enumerate(n_waiting) if n > 0)
        walk: list[int] = []
        while v not in walk:
            walk.append(v)
            v = next(p for p in self._parents[v] if n_waiting[p] > 0)
        cycle = [*walk[walk.index(v) :], v][::-1]
        raise NetworkError("the arcs form a cycle: " + " -> ".join(repr(self._variables[i]) for i in cycle))

    def _checked_cpt(self, i: int, cpts: Mapping[str, ArrayLike]) -> NDArray[np.float64]:
        name = self._variables[i]
        if name not in cpts:
            raise NetworkError(f"variable {name!r} has no CPT")
        shape = tuple(int(self._cardinality[j]) for j in (*self._parents[i], i))
        try:
            table = freeze(cpts[name])
        except (TypeError, ValueError) as error:
            raise NetworkError(f"variable {name!r}: its CPT must be an array of numbers ({error})") from None
        if table.shape != shape:
            axes = ", ".join([*(self._variables[p] for p in self._parents[i]), name])
            raise NetworkError(
                f"variable {name!r}: its CPT has shape {table.shape}, expected {shape} for the axes ({axes})"
            )
        check_numbers(name, table)
        gap = np.abs(table.sum(axis=-1) - 1.0)
        if gap.max() > ROW_TOLERANCE:
            row = np.unravel_index(int(gap.argmax()), gap.shape) if gap.ndim else ()
            raise NetworkError(
                f"variable {name!r}: the row of its CPT at parent configuration {tuple(int(r) for r in row)} sums to "
                f"{table.sum(axis=-1)[row]:.9g}, expected 1 (jtgpu.normalize_rows divides rows by their sums)"
            )
        return table

    # Attributes -----------------------------------------------------------------------------------------------

    @property
    def attributes(self) -> Mapping[str, Mapping[str, Any]]:
        """Contents of a file beyond the model: keys ``net``, ``node``, ``potential`` (see the class)."""
        return self._attributes

    @property
    def row_report(self) -> RowReport | None:
        """Rows that the reader normalised; None if the network was not read from a file."""
        return self._row_report

    def parents(self, variable: str | int) -> tuple[str, ...]:
        """Names of the parents of a variable, in the order of its CPT's axes."""
        return tuple(self._variables[p] for p in self._parents[self.index(variable)])

    def cpt(self, variable: str | int) -> NDArray[np.float64]:
        """P(variable | parents): float64, read-only; axes: parents in order, then the variable."""
        return self._cpts[self.index(variable)]

    @property
    def n_arcs(self) -> int:
        """Number of arcs."""
        return sum(len(p) for p in self._parents)

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
        return tuple(self._variables[v] for v in placed)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_attributes": dict(self._attributes)}  # a mapping proxy cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_attributes": MappingProxyType(state["_attributes"])})

    def __eq__(self, other: object) -> bool:
        """Whether names, states, parents and CPTs are equal, bit for bit. Attributes are not compared."""
        if not isinstance(other, BayesianNetwork):
            return NotImplemented
        return (
            self._variables == other._variables
            and self._states == other._states
            and self._parents == other._parents
            and all(np.array_equal(a, b) for a, b in zip(self._cpts, other._cpts, strict=True))
        )

    def __hash__(self) -> int:
        return hash((self._variables, self._states, self._parents))

    def __repr__(self) -> str:
        return f"BayesianNetwork({self._name!r}, {len(self)} variables, {self.n_arcs} arcs)"

    # networkx -------------------------------------------------------------------------------------------------

    def to_networkx(self) -> networkx.DiGraph[str]:
        """Convert to a `networkx.DiGraph` whose nodes have the attributes ``states``, ``parents`` and ``cpt``."""
        import networkx

        graph: networkx.DiGraph[str] = networkx.DiGraph(name=self._name)
        for v in self._variables:
            graph.add_node(v, states=self.states(v), parents=self.parents(v), cpt=self.cpt(v))
        graph.add_edges_from((p, v) for v in self._variables for p in self.parents(v))
        return graph

    @classmethod
    def from_networkx(cls, graph: networkx.DiGraph[str]) -> BayesianNetwork:
        """Create a network from a `networkx.DiGraph`; the inverse of `to_networkx`.

        Every node needs the attributes ``states`` and ``cpt``. ``parents`` is the order of the CPT's parent axes; nodes
        with at most one parent may omit it.

        Raises
        ------
        NetworkError
            If a node lacks an attribute, or its ``parents`` are not its predecessors.
        """
        states, parents, cpts = {}, {}, {}
        for node, data in graph.nodes(data=True):
            name = str(node)
            if name in states:
                raise NetworkError(f"two nodes of the graph have the name {name!r}")
            for needed in ("states", "cpt"):
                if needed not in data:
                    raise NetworkError(f"node {name!r} of the graph has no attribute {needed!r}")
            before = [str(p) for p in graph.predecessors(node)]
            given = [str(p) for p in data.get("parents", before)]
            if sorted(given) != sorted(before):
                raise NetworkError(
                    f"node {name!r}: its attribute 'parents' is {given}, but the graph's arcs come from {before}"
                )
            if len(before) > 1 and "parents" not in data:
                raise NetworkError(
                    f"node {name!r} has several parents, so it needs an attribute 'parents' that orders them"
                )
            states[name], parents[name], cpts[name] = data["states"], given, data["cpt"]
        return cls(states, parents, cpts, name=str(graph.graph.get("name", "")))
