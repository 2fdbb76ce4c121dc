"""`BayesianNetwork`: a directed acyclic graph with a conditional probability table for each variable.

A model consists of names, states and numbers, and is independent of trees, plans, files and devices. Computations take
a `DiscreteModel`: variables numbered 0..V-1 and a list of factors over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ..errors import EvidenceError, NetworkError, TableTooLarge, closest, shown
from ..util.arguments import check_keywords, having, mapping
from ..util.text_table import counted
from .cpt import Axis, Cpt, bound_noisy, checked_cpt
from .cpts import RowReport, known_states, relevant_part, renamed_attributes
from .directed import check_axes
from .discrete import Factor
from .editing import EditableModel, NetworkParts
from .network_text import summary
from .noisy import EXPANDED, NoisyMax, is_noisy

if TYPE_CHECKING:
    import networkx
    from numpy.typing import NDArray

    from .cpt import CptLike
    from .directed import DirectedModel


def network_graph(model: DirectedModel, cpts: Sequence[NDArray[np.float64]]) -> networkx.DiGraph[str]:
    """The graph of a model with the CPTs of its variables."""
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph(name=model.name)
    for v, cpt in zip(model.variables, cpts, strict=True):
        graph.add_node(v, states=model.states(v), parents=model.parents(v), cpt=cpt)
    graph.add_edges_from(model.arcs)
    return graph


def graph_parts(graph: networkx.DiGraph[Any]) -> tuple[dict[str, Any], dict[str, list[str]], dict[str, Any]]:
    """States, parents and CPTs of a graph's nodes."""
    states: dict[str, Any] = {}
    parents: dict[str, list[str]] = {}
    cpts: dict[str, Any] = {}
    having("graph", graph, "nodes", "a networkx.DiGraph")
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
    return states, parents, cpts


T = TypeVar("T")


def _numbers_equal(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    """Whether two CPTs are equal, by their strengths where both have them."""
    if is_noisy(a) and is_noisy(b):
        return a.shape == b.shape and all(np.array_equal(p, q) for p, q in zip(a.weaker, b.weaker, strict=True))
    return a.shape == b.shape and np.array_equal(a, b)


@check_keywords()
class BayesianNetwork(EditableModel):
    """A discrete Bayesian network; immutable, and checked on construction.

    Parameters
    ----------
    states : mapping of str to sequences of str
        The variables in order, with the names of their states. A variable may have one state.
    parents : mapping of str to sequences of str
        Parents of each variable, in the order of its CPT's axes. Variables that are left out have no parents.
    cpts : mapping of str to array_like or mapping
        Conditional probability tables, float64; axes: parents in order, then the variable itself. Each row (last axis)
        must sum to 1 within 1e-6; use `normalize_rows` first if it does not. A mapping gives a table by the names of
        states: ``{("yes", "no"): {"low": 0.2, "high": 0.8}, ...}`` has a row for each configuration of the parents,
        and a row is a mapping or a sequence. A single parent needs no tuple, nor does a mapping for each axis:
        ``{"yes": {"no": [0.2, 0.8], ...}, ...}``.
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
        is negative or not finite, or a row does not sum to 1. The message names the variable, and the row by the
        states of the parents.

    Examples
    --------
    >>> from jtgpu import BayesianNetwork
    >>> net = BayesianNetwork(
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     {"wet": ["rain"]},
    ...     {"rain": [0.8, 0.2], "wet": {"no": [0.9, 0.1], "yes": {"no": 0.2, "yes": 0.8}}},
    ... )
    >>> net.parents("wet")
    ('rain',)
    >>> print(net.cpt("wet"))
    P(wet | rain)
    rain  wet=no  wet=yes
    no       0.9      0.1
    yes      0.2      0.8

    `jtgpu.network` creates a network from a line of text.
    """

    _has_tables = False  # of some children there are strengths

    def __init__(
        self,
        states: Mapping[str, Sequence[str]],
        parents: Mapping[str, Sequence[str]],
        cpts: Mapping[str, CptLike],
        *,
        name: str = "",
        attributes: Mapping[str, Mapping[str, object]] | None = None,
        row_report: RowReport | None = None,
    ):
        super().__init__(states, parents, name=name, attributes=attributes, row_report=row_report)
        cpts = mapping("cpts", cpts)
        for v in cpts:
            if v not in self._index:
                raise NetworkError(f"a CPT given for {v!r}, which is not declared{closest(str(v), self._index)}")
        for v in self._variables:
            if v not in cpts:
                check_axes(v, len(self._parents[self._index[v]]))
                raise NetworkError(f"variable {v!r} has no CPT")
        scopes = [(*ids, i) for i, ids in enumerate(self._parents)]
        self._noisy: dict[str, NoisyMax] = {}
        self._cpts = tuple(self._checked(scope, cpts[self._variables[scope[-1]]]) for scope in scopes)
        self._factors = tuple(Factor(scope, cpt) for scope, cpt in zip(scopes, self._cpts, strict=True))
        kept = self._attributes.get("potential", {})
        new = {v: noisy for v, noisy in self._noisy.items() if "noisy_max" not in kept.get(v, ())}
        if given := {v: about for v, noisy in new.items() if (about := noisy.attributes)}:
            merged = {**kept, **{v: {**numbers, **kept.get(v, {})} for v, numbers in given.items()}}
            self._attributes = MappingProxyType({**self._attributes, "potential": merged})

    def _checked(self, scope: tuple[int, ...], given: CptLike) -> NDArray[np.float64]:
        """The array of a CPT, or the strengths in its place where it would be large; strengths are kept in any case."""
        if not isinstance(given, NoisyMax):
            check_axes(self._variables[scope[-1]], len(scope) - 1)
            return checked_cpt(self, scope, given)
        noisy = self._noisy[self._variables[scope[-1]]] = bound_noisy(self, scope, given)
        return cast("NDArray[np.float64]", noisy) if noisy.size > EXPANDED else checked_cpt(self, scope, noisy.cpt)

    # Attributes -----------------------------------------------------------------------------------------------

    def cpt(self, variable: str | int) -> Cpt:
        """P(variable | parents): float64, read-only; axes: parents in order, then the variable.

        The array prints as a labelled table: ``print(net.cpt("lung"))``. See `jtgpu.model.cpt.Cpt`.
        """
        i = self.index(variable)
        return Cpt.of(self._table(i), [Axis(self._variables[v], self._states[v]) for v in (*self._parents[i], i)])

    def _table(self, i: int) -> NDArray[np.float64]:
        table = self._cpts[i]
        try:
            return table.cpt if is_noisy(table) else table
        except TableTooLarge as error:
            raise error.saying(f"variable {self._variables[i]!r}: {error.message}") from None

    @property
    def noisy(self) -> Mapping[str, NoisyMax]:
        """The strengths of variables whose CPTs were given as `NoisyOr` or `NoisyMax`, by variable.

        Where the table has more than 256 entries, the network holds the strengths alone: `cpt` computes the table,
        and questions are answered without it.
        """
        return MappingProxyType(self._noisy)

    def expand(self, *, limit: int = 2**12) -> BayesianNetwork:
        """Return this network with tables in place of strengths, for programs and formats that have none.

        Parameters
        ----------
        limit : int, default 4096
            Entries of the largest table that is made.

        Raises
        ------
        TableTooLarge
            If a table would have more entries; the message names the variable.

        Examples
        --------
        >>> import jtgpu
        >>> net = jtgpu.network("flu->fever<-cold", "{no|yes}")
        >>> net = net.replace(cpt={"fever": jtgpu.NoisyOr({"flu": 0.8, "cold": 0.5})})
        >>> list(net.noisy), list(net.expand().noisy)
        (['fever'], [])
        """
        for v, noisy in self._noisy.items():
            if noisy.size > limit:
                raise TableTooLarge(
                    f"the table of {v!r} would have {shown(noisy.size)} entries, more than the limit of {limit:,}; "
                    "net.expand(limit=...) allows larger ones, up to 2**28", noisy.size,
                )  # fmt: skip
        return self.replace(cpt={v: self.cpt(v) for v in self._noisy})

    @property
    def n_parameters(self) -> int:
        """Number of free parameters: a row of k probabilities has k - 1, also the rows of strengths that are kept."""
        rows = (sum(t.shape[:-1]) + 1 if is_noisy(t) else t.size // t.shape[-1] for t in self._cpts)
        return sum(n * (t.shape[-1] - 1) for n, t in zip(rows, self._cpts, strict=True))

    # Derived networks -----------------------------------------------------------------------------------------

    def _made(self, parts: NetworkParts, name: str) -> BayesianNetwork:
        return BayesianNetwork(
            parts.states, parts.own_parents(), parts.tables, name=name, attributes=parts.attributes,
            row_report=self._row_report,
        )  # fmt: skip

    def prune(
        self, targets: str | int | Iterable[str | int], evidence: Mapping[Any, object] | None = None
    ) -> BayesianNetwork:
        """Return the part of the network that determines the posterior of some variables given the evidence.

        The posteriors of the targets, single and joint, are those of the whole network. Three things are removed:
        variables that are neither ancestors of a target nor of evidence (barren), variables that the evidence
        d-separates from the targets, and arcs from observed variables, whose states are entered in the CPTs of their
        children.

        Parameters
        ----------
        targets : str, int or iterable of these
            One variable or several.
        evidence : mapping, optional
            Variable to its state, or to a collection of states one of which holds. For virtual or soft evidence, give
            all states of the variable: it remains, and its arcs do.

        Returns
        -------
        BayesianNetwork
            The variables in their order. Evidence on a variable that was removed is irrelevant to the targets and must
            be left out of queries: ``{v: s for v, s in evidence.items() if v in pruned}``.

        Raises
        ------
        UnknownVariable, UnknownState
            If the network has no such variable or state.
        EvidenceError
            If there is no target, the evidence is not a mapping, or it has no state for a variable.

        Notes
        -----
        The pruned network holds for this evidence only. Its P(evidence) is that of the evidence that remains.
        Compiled models prune by themselves: this method is for looking at a model, and for other programs.

        Examples
        --------
        >>> import jtgpu
        >>> net = jtgpu.network("smoke->lung->xray; smoke->bronc->dysp<-lung; asia->tub", "{yes|no}")
        >>> net.prune("xray", {"lung": "yes"}).variables
        ('xray',)
        >>> net.prune("bronc", {"lung": "yes"}).arcs
        (('smoke', 'lung'), ('smoke', 'bronc'))
        """
        wanted = self._numbers(targets)
        if not wanted:
            raise EvidenceError("prune needs at least one target")
        known = known_states(self, evidence)
        left = relevant_part(self._parents, sorted(wanted), known)
        parents, cpts, cut = {}, {}, []
        for i in left:
            v = self._variables[i]
            parents[v] = [self._variables[p] for p in self._parents[i] if p not in known.observed]
            states = tuple(known.observed.get(p, slice(None)) for p in self._parents[i])
            noisy, known_at = self._noisy.get(v), enumerate(self._parents[i])
            cpts[v] = self._cpts[i][states] if noisy is None else noisy.without({
                at: np.eye(noisy.shape[at])[known.observed[p]] for at, p in known_at if p in known.observed
            })  # fmt: skip
            if len(parents[v]) < len(states):
                cut.append(v)
        names = {v: v for v in parents}
        return BayesianNetwork(
            {v: self.states(v) for v in parents},
            parents,
            cpts,
            name=self._name,
            attributes=renamed_attributes(self._attributes, names, cut),
            row_report=self._row_report,
        )

    # Comparison and text --------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        """Whether names, states, parents and CPTs are equal, bit for bit. Attributes are not compared."""
        if not isinstance(other, BayesianNetwork):
            return NotImplemented
        return (
            self._variables == other._variables
            and self._states == other._states
            and self._parents == other._parents
            and all(a is b or _numbers_equal(a, b) for a, b in zip(self._cpts, other._cpts, strict=True))
        )

    def __hash__(self) -> int:
        return hash((self._variables, self._states, self._parents))

    def __repr__(self) -> str:
        return f"BayesianNetwork({self._name!r}, {counted(len(self), 'variable')}, {counted(self.n_arcs, 'arc')})"

    def __str__(self) -> str:
        """The variables with their states and parents, as an aligned table."""
        sizes = counted(len(self), "variable"), counted(self.n_arcs, "arc"), counted(self.n_parameters, "parameter")
        above = [self.parents(v) for v in self._variables]
        return summary("Bayesian network", self._name, sizes, self._variables, self._states, above)

    # networkx -------------------------------------------------------------------------------------------------

    def to_networkx(self) -> networkx.DiGraph[str]:
        """Convert to a `networkx.DiGraph` whose nodes have the attributes ``states``, ``parents`` and ``cpt``."""
        return network_graph(self, [self.cpt(v) for v in self])

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
        return cls(*graph_parts(graph), name=str(graph.graph.get("name", "")))
