"""Discrete graphical models: `BayesianNetwork`, and the `MarkovNetwork` of plain factors.

A model is names, states and numbers; it knows nothing of trees, plans, files or devices. Everything below a
model works on `DiscreteModel`: variables numbered 0..V-1 and a list of factors over them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import NetworkError, UnknownState, UnknownVariable, closest
from ..util import doors
from .cpts import ROW_TOLERANCE, RowReport, check_numbers, freeze

if TYPE_CHECKING:
    import networkx
    from numpy.typing import ArrayLike, NDArray

__all__ = ["BayesianNetwork", "DiscreteModel", "Factor", "MarkovNetwork"]

class Factor(NamedTuple):
    """A non-negative table over some variables of a model."""

    scope: tuple[int, ...]  # variable ids, one an axis of the table, in the order of the axes
    table: NDArray[np.float64]  # shape: the cardinalities of the scope


class DiscreteModel:
    """Variables with states, and factors over them: what the compiler takes.

    Not made directly: see `BayesianNetwork` and `MarkovNetwork`.
    """

    def __init__(self, states: Mapping[str, Sequence[str]], *, name: str = ""):
        self._name = str(name)
        self._variables = tuple(states)
        self._index = {v: i for i, v in enumerate(self._variables)}
        self._states = tuple(tuple(str(s) for s in states[v]) for v in self._variables)
        for v, labels in zip(self._variables, self._states, strict=True):
            if not isinstance(v, str):
                raise NetworkError(f"variable names are strings, not {v!r}")
            if not labels:
                raise NetworkError(f"variable {v!r} has no states")
        self._cardinality = np.array([len(s) for s in self._states], np.int64)
        self._cardinality.flags.writeable = False
        self._factors: tuple[Factor, ...] = ()

    # What it is -----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The model's own name; may be empty."""
        return self._name

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables; the position is the variable's number."""
        return self._variables

    @property
    def cardinality(self) -> NDArray[np.int64]:
        """Number of states of every variable, shape (V,), read-only."""
        return self._cardinality

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The factors whose product is the (for Markov networks: unnormalised) joint distribution."""
        return self._factors

    def states(self, variable: str | int) -> tuple[str, ...]:
        """Names of the variable's states, in order. They may be empty or equal in real files."""
        return self._states[self.index(variable)]

    def index(self, variable: str | int) -> int:
        """The number of a variable given by name or number.

        Raises
        ------
        UnknownVariable
            With the closest names.
        """
        if isinstance(variable, str):
            found = self._index.get(variable)
            if found is None:
                raise UnknownVariable(
                    f"there is no variable {variable!r}{closest(variable, self._variables)}"
                )
            return found
        try:
            i = _as_int(variable)
        except TypeError:
            raise UnknownVariable(f"a variable is named by a string or a number, not by {variable!r}") from None
        if not 0 <= i < len(self._variables):
            raise UnknownVariable(f"there is no variable number {i}; the model has 0 to {len(self._variables) - 1}")
        return i

    def state_index(self, variable: str | int, state: str | int) -> int:
        """The number of a state given by name or number.

        Raises
        ------
        UnknownState
            With the closest names; also for a name that several states share.
        """
        v = self.index(variable)
        labels = self._states[v]
        if isinstance(state, (bool, np.bool_)):
            # a bare index would silently turn True into the second state, whatever that means
            folded = [s.casefold() for s in labels]
            if folded.count(str(bool(state)).casefold()) == 1:
                return folded.index(str(bool(state)).casefold())
            raise UnknownState(
                f"variable {self._variables[v]!r} has no state {bool(state)!r}; its states are {_listed(labels)}"
            )
        if isinstance(state, str):
            if state not in labels:
                raise UnknownState(
                    f"variable {self._variables[v]!r} has no state {state!r}{closest(state, labels)}"
                    f" (its states are {_listed(labels)})"
                )
            if labels.count(state) > 1:
                raise UnknownState(
                    f"variable {self._variables[v]!r} has {labels.count(state)} states named {state!r}; "
                    "give the state's number instead"
                )
            return labels.index(state)
        try:
            i = _as_int(state)
        except TypeError:
            raise UnknownState(
                f"a state of {self._variables[v]!r} is given by name or number, not by {state!r}"
            ) from None
        if not 0 <= i < len(labels):
            raise UnknownState(
                f"variable {self._variables[v]!r} has no state number {i}; it has 0 to {len(labels) - 1}"
            )
        return i

    def __len__(self) -> int:
        return len(self._variables)

    # Sent to another process ----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrays come out of a pickle writeable; a model's are not."""
        self.__dict__.update(state)
        for array in (self._cardinality, *(f.table for f in self._factors)):
            array.flags.writeable = False

    # What it becomes: thin doors to the layers above, imported on use -------------------------------------------

    def plan(self, order: Any = "auto", **options: Any) -> Any:
        """Choose an elimination order and lay out the work; allocates no tables.

        Takes the options of `jtgpu.inference.network_plan.make_plan` (``order``, ``time_limit``, ``memory_limit``,
        ``max_table``, ``seed``, ``lowering``) and returns a `jtgpu.NetworkPlan`.
        """
        return doors.planning().make_plan(self, order, **options)

    def compile(
        self, backend: str = "auto", *, order: Any = "auto", devices: Any = None, dtype: str = "float64", **options: Any
    ) -> Any:
        """`plan` and `compile` in one call: a `jtgpu.inference.tree.JunctionTree` ready for queries."""
        made = self.plan(order, backend=backend, devices=devices, **options)
        more = {} if devices is None else {"devices": devices}
        return made.compile(backend, **more) if dtype == "float64" else made.compile(backend, dtype=dtype, **more)


class MarkovNetwork(DiscreteModel):
    """Variables and plain factors; the joint distribution is their product divided by its sum.

    Parameters
    ----------
    states : mapping of str to sequences of str
        The variables in order, with their states' names.
    factors : iterable of (scope, table)
        ``scope``: variables by name or number, one an axis of ``table``. A scope may be empty (a constant).
    name : str, optional

    Raises
    ------
    NetworkError
        For a shape that does not fit, a scope with a variable twice, a negative or non-finite number.
    """

    def __init__(
        self,
        states: Mapping[str, Sequence[str]],
        factors: Iterable[tuple[Sequence[str | int], ArrayLike]],
        *,
        name: str = "",
    ):
        super().__init__(states, name=name)
        made = []
        for k, (scope, table) in enumerate(factors):
            ids = tuple(self.index(v) for v in scope)
            shape = tuple(int(self._cardinality[i]) for i in ids)
            frozen = freeze(table)
            if len(set(ids)) != len(ids):
                raise NetworkError(f"factor {k}: a variable stands twice in its scope {tuple(scope)}")
            if frozen.shape != shape:
                raise NetworkError(f"factor {k}: its table has shape {frozen.shape}, its variables need {shape}")
            check_numbers(f"factor {k}", frozen)
            made.append(Factor(ids, frozen))
        self._factors = tuple(made)

    @classmethod
    def of_checked(
        cls, states: Mapping[str, Sequence[str]], factors: Iterable[Factor], *, name: str = ""
    ) -> MarkovNetwork:
        """A model of factors that are right by construction: nothing is looked at again.

        For readers of files with many small factors, where the checks would take most of the time. Scopes are
        numbers, tables read-only, C-contiguous float64 of the right shapes, finite and not negative.
        """
        made = cls(states, (), name=name)
        made._factors = tuple(factors)
        return made

    def __repr__(self) -> str:
        return f"MarkovNetwork({self._name!r}, {len(self)} variables, {len(self._factors)} factors)"


class BayesianNetwork(DiscreteModel):
    """A discrete Bayesian network: immutable, and checked when it is made.

    Parameters
    ----------
    states : mapping of str to sequences of str
        The variables in order, with their states' names. A variable may have one state.
    parents : mapping of str to sequences of str
        Parents in the order of the CPT's axes; a variable left out has none.
    cpts : mapping of str to array_like
        float64, axes: parents in order, child last. Rows (the last axis) sum to 1 within 1e-6; use
        `normalize_rows` first for numbers that do not.
    name : str, optional
    attributes : mapping, optional
        What a file said about the network, a node or a potential beyond the model itself, kept for writing
        back: ``{"net": {...}, "node": {variable: {...}}, "potential": {variable: {...}}}``.
    row_report : RowReport, optional
        What a reader had to normalise.

    Raises
    ------
    NetworkError
        Naming the variable: undeclared or repeated parents, a cycle (named in full), a CPT that is missing or
        of the wrong shape, a negative or non-finite number, a row that does not sum to 1.

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
            raise NetworkError(f"variable {variable!r}: its parents are a sequence of names, not the string {given!r}")
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
        """Kahn's algorithm; what is left has a cycle, which is walked out and named."""
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
            raise NetworkError(f"variable {name!r}: its CPT is no array of numbers ({error})") from None
        if table.shape != shape:
            axes = ", ".join([*(self._variables[p] for p in self._parents[i]), name])
            raise NetworkError(f"variable {name!r}: its CPT has shape {table.shape}, ({axes}) needs {shape}")
        check_numbers(name, table)
        gap = np.abs(table.sum(axis=-1) - 1.0)
        if gap.max() > ROW_TOLERANCE:
            row = np.unravel_index(int(gap.argmax()), gap.shape) if gap.ndim else ()
            raise NetworkError(
                f"variable {name!r}: the row of its CPT at parent configuration {tuple(int(r) for r in row)} sums to "
                f"{table.sum(axis=-1)[row]:.9g}, not to 1 (jtgpu.normalize_rows divides rows by their sums)"
            )
        return table

    # What it is -----------------------------------------------------------------------------------------------

    @property
    def attributes(self) -> Mapping[str, Mapping[str, Any]]:
        """What a file said beyond the model: keys ``net``, ``node``, ``potential`` (see the class)."""
        return self._attributes

    @property
    def row_report(self) -> RowReport | None:
        """What the reader had to normalise; None for a network that was not read from a file."""
        return self._row_report

    def parents(self, variable: str | int) -> tuple[str, ...]:
        """Names of the variable's parents, in the order of its CPT's axes."""
        return tuple(self._variables[p] for p in self._parents[self.index(variable)])

    def cpt(self, variable: str | int) -> NDArray[np.float64]:
        """P(variable | parents): float64, read-only, axes: parents in order, the variable last."""
        return self._cpts[self.index(variable)]

    @property
    def n_arcs(self) -> int:
        """Number of arcs."""
        return sum(len(p) for p in self._parents)

    def topological_order(self) -> tuple[str, ...]:
        """The variables, every parent before its children; ties by number."""
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
        return {**super().__getstate__(), "_attributes": dict(self._attributes)}  # a view of a mapping has no pickle

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_attributes": MappingProxyType(state["_attributes"])})

    def __eq__(self, other: object) -> bool:
        """Equal names, states, parents and CPTs, bit for bit; attributes are not compared."""
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
        """A `networkx.DiGraph`; every node has the attributes ``states``, ``parents`` and ``cpt``."""
        import networkx

        graph: networkx.DiGraph[str] = networkx.DiGraph(name=self._name)
        for v in self._variables:
            graph.add_node(v, states=self.states(v), parents=self.parents(v), cpt=self.cpt(v))
        graph.add_edges_from((p, v) for v in self._variables for p in self.parents(v))
        return graph

    @classmethod
    def from_networkx(cls, graph: networkx.DiGraph[str]) -> BayesianNetwork:
        """The opposite of `to_networkx`.

        Every node needs ``states`` and ``cpt``; ``parents`` names the order of the CPT's parent axes and may be
        left out where a node has at most one parent.

        Raises
        ------
        NetworkError
            For a node without what it needs, or parents that are not the node's predecessors.
        """
        states, parents, cpts = {}, {}, {}
        for node, data in graph.nodes(data=True):
            name = str(node)
            if name in states:
                raise NetworkError(f"two nodes of the graph are both named {name!r}")
            for needed in ("states", "cpt"):
                if needed not in data:
                    raise NetworkError(f"node {name!r} of the graph has no attribute {needed!r}")
            before = [str(p) for p in graph.predecessors(node)]
            given = [str(p) for p in data.get("parents", before)]
            if sorted(given) != sorted(before):
                raise NetworkError(f"node {name!r}: its parents are {given}, the graph's arcs come from {before}")
            if len(before) > 1 and "parents" not in data:
                raise NetworkError(f"node {name!r} has several parents and no attribute 'parents' to order them")
            states[name], parents[name], cpts[name] = data["states"], given, data["cpt"]
        return cls(states, parents, cpts, name=str(graph.graph.get("name", "")))


def _listed(labels: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(repr(s) for s in labels[:most])
    return shown if len(labels) <= most else f"{shown}, ... ({len(labels)} in all)"


def _as_int(value: Any) -> int:
    """A Python int from an int or a NumPy integer; TypeError for anything else (floats and bools too)."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    return operator.index(value)
