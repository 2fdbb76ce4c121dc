"""`MixedNetwork`: a Bayesian network of variables with states and of numbers."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import NetworkError
from ..util import late_imports
from ..util.arguments import check_keywords, mapping
from ..util.text_table import counted
from .directed import DirectedModel
from .editing import Editable, NetworkParts
from .gaussian import Gaussian, checked_gaussian
from .network import BayesianNetwork
from .network_text import summary

if TYPE_CHECKING:
    from typing import Self, Unpack

    import networkx

    from ..util.late_imports import MixedTree
    from ..util.options import BackendName, CompileOptions, Order
    from .cpt import Cpt, CptLike
    from .states import CodesByVariable

NUMBER = ("number",)  # the states of a number in the graph of all variables


@check_keywords(but=("index", "states"))
class MixedNetwork(late_imports.Shown, Editable):
    """A Bayesian network of variables with states and of numbers; immutable, and checked on construction.

    Numbers are conditionally Gaussian: given the states of its discrete parents, a number is a linear regression on its
    numeric parents (Lauritzen, JASA 87 (1992) 1098). A number cannot be the parent of a variable with states.

    Parameters
    ----------
    states : mapping of str to sequence of str, or float
        The variables in order: the names of the states, or the type ``float`` for a number.
    parents : mapping of str to sequences of str
        Parents of each variable. Variables that are left out have no parents.
    cpts : mapping of str to array_like, mapping or Gaussian
        A CPT for each variable with states, as for `BayesianNetwork`; a `Gaussian` for each number.
    name : str, optional
    attributes : mapping, optional
        Labels, positions and more of the variables, as files keep them; see `BayesianNetwork`.

    Attributes
    ----------
    discrete : BayesianNetwork
        The variables with states.
    graph : DirectedModel
        All variables and arcs; a number has one state, ``"number"``.

    Raises
    ------
    NetworkError
        As `BayesianNetwork`; if a number has a child with states, a CPT, or a `Gaussian` of other axes.

    Examples
    --------
    >>> import jtgpu
    >>> net = jtgpu.MixedNetwork(
    ...     {"sex": ["f", "m"], "height": float, "weight": float},
    ...     {"height": ["sex"], "weight": ["height"]},
    ...     {"sex": [0.5, 0.5], "height": jtgpu.Gaussian([166, 179], sd=7),
    ...      "weight": jtgpu.Gaussian(-80, {"height": 0.9}, sd=9)},
    ... )
    >>> post = net.compile("reference").posteriors({"weight": 90.0})
    >>> round(post["sex"]["m"], 3), round(post["height"].mean, 1)
    (0.807, 180.6)
    """

    def __init__(
        self,
        states: Mapping[str, Sequence[str] | type[float]],
        parents: Mapping[str, Sequence[str]],
        cpts: Mapping[str, CptLike | Gaussian],
        *,
        name: str = "",
        attributes: Mapping[str, Mapping[str, object]] | None = None,
    ):
        states, cpts = mapping("states", states), mapping("cpts", cpts)
        numbers = [v for v, s in states.items() if s is float]
        for v, s in states.items():
            if isinstance(s, type) and s is not float:
                raise NetworkError(f"variable {v!r}: its states must be names, or float for a number, got {s.__name__}")
        loose = next((v for v, cpt in cpts.items() if isinstance(cpt, Gaussian) and v not in states), None)
        if loose is not None:
            raise NetworkError(f"the number {loose!r} is not declared: add it to the states, {{{loose!r}: float}}")
        labels = {v: NUMBER if s is float else s for v, s in states.items()}
        self.graph = DirectedModel(labels, parents, name=name)  # type: ignore[arg-type]
        self._numbers = tuple(numbers)
        is_number = set(numbers)
        for p, child in self.graph.arcs:
            if p in is_number and child not in is_number:
                raise NetworkError(
                    f"the number {p!r} is a parent of {child!r}, which has states: exact answers need arcs from states "
                    f"to numbers only; make intervals of {p!r}, or turn the arc"
                )
        for v in cpts:
            self.graph.index(v)
        missing = [v for v in self.graph.variables if v not in cpts]
        if missing:
            kind = "Gaussian" if missing[0] in is_number else "CPT"
            raise NetworkError(f"variable {missing[0]!r} has no {kind}")
        with_states = [v for v in self.graph.variables if v not in is_number]
        for v in with_states:
            if isinstance(cpts[v], Gaussian):
                raise NetworkError(f"variable {v!r} has states and needs a CPT, got a Gaussian")
        self.discrete = BayesianNetwork(
            {v: self.graph.states(v) for v in with_states},
            {v: self.graph.parents(v) for v in with_states},
            {v: cpts[v] for v in with_states},  # type: ignore[misc]
            name=name,
            attributes=attributes,
        )
        self._gaussians: dict[str, Gaussian] = {}
        for v in numbers:
            numeric, axes = self.numeric_parents(v), self.discrete_parents(v)
            cards = tuple(len(self.graph.states(p)) for p in axes)
            self._gaussians[v] = checked_gaussian(v, cpts[v], numeric, axes, cards)

    # Attributes -----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the network; may be empty."""
        return self.graph.name

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of all variables, in order."""
        return self.graph.variables

    @property
    def attributes(self) -> Mapping[str, Mapping[str, Any]]:
        """Contents of a file beyond the model, of variables of both kinds; see `BayesianNetwork`."""
        return self.discrete.attributes

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the numbers, in order."""
        return self._numbers

    @property
    def arcs(self) -> tuple[tuple[str, str], ...]:
        """The arcs as pairs (parent, child)."""
        return self.graph.arcs

    def is_number(self, variable: str | int) -> bool:
        """Whether a variable is a number."""
        return variable in self._gaussians or self.graph.variables[self.graph.index(variable)] in self._gaussians

    def index(self, variable: str | int) -> int:
        """Position of a variable among `variables`; see `BayesianNetwork.index`."""
        return self.graph.index(variable)

    def states(self, variable: str | int) -> tuple[str, ...]:
        """Names of the states of a variable; empty for a number."""
        return () if self.is_number(variable) else self.graph.states(variable)

    def parents(self, variable: str | int) -> tuple[str, ...]:
        """Names of the parents of a variable, in order."""
        return self.graph.parents(variable)

    def children(self, variable: str | int) -> tuple[str, ...]:
        """Names of the children of a variable, in the order of the variables."""
        return self.graph.children(variable)

    def numeric_parents(self, variable: str | int) -> tuple[str, ...]:
        """Names of the parents of a variable that are numbers."""
        return tuple(p for p in self.graph.parents(variable) if p in set(self._numbers))

    def with_codes(self, codes: CodesByVariable | None) -> Self:
        """This network, which also understands codes of states; see `jtgpu.DiscreteModel.with_codes`."""
        if codes is None:
            return self
        net = copy.copy(self)
        net.discrete = self.discrete.with_codes(codes)
        return net

    def discrete_parents(self, variable: str | int) -> tuple[str, ...]:
        """Names of the parents of a variable that have states: the axes of its CPT or `Gaussian`."""
        return tuple(p for p in self.graph.parents(variable) if p not in set(self._numbers))

    def cpt(self, variable: str | int) -> Cpt:
        """The CPT of a variable with states; see `BayesianNetwork.cpt`."""
        name = self.variables[self.index(variable)]
        if name in self._gaussians:
            raise NetworkError(f"variable {name!r} is a number; its parameters are gaussian({name!r})")
        return self.discrete.cpt(name)

    def gaussian(self, variable: str | int) -> Gaussian:
        """The density of a number; its arrays have all axes, read-only."""
        name = self.variables[self.index(variable)]
        if name not in self._gaussians:
            raise NetworkError(f"variable {name!r} has states; its parameters are cpt({name!r})")
        return self._gaussians[name]

    def d_separated(
        self,
        x: str | int | Iterable[str | int],
        y: str | int | Iterable[str | int],
        given: str | int | Iterable[str | int] = (),
    ) -> bool:
        """Whether the graph implies that `x` and `y` are independent given `given`; see `BayesianNetwork`."""
        return self.graph.d_separated(x, y, given)

    def topological_order(self) -> tuple[str, ...]:
        """Names of all variables, parents before children."""
        return self.graph.topological_order()

    # Derived objects ------------------------------------------------------------------------------------------

    def _parts(self) -> NetworkParts:
        parts = NetworkParts(self)
        parts.tables = {v: self._parameters(v) for v in self}
        return parts

    def _made(self, parts: NetworkParts, name: str) -> MixedNetwork:
        return MixedNetwork(parts.states, parts.own_parents(), parts.tables, name=name, attributes=parts.attributes)

    def _model(self) -> DirectedModel:
        return self.graph

    def _parameters(self, v: str) -> Cpt | Gaussian:
        return self._gaussians[v] if v in self._gaussians else self.discrete.cpt(v)

    def compile(
        self, backend: BackendName = "auto", *, order: Order = "auto", max_configurations: int = 1 << 22,
        **options: Unpack[CompileOptions],
    ) -> MixedTree:  # fmt: skip
        """Compile for queries.

        Parameters
        ----------
        backend : {"auto", "cpu", "gpu", "reference"}
            Where the discrete part runs; see `BayesianNetwork.compile`.
        order : optional
            How the variables with states are ordered; see `BayesianNetwork.plan`.
        max_configurations : int, default 2**22
            Largest number of configurations of the discrete variables that one component of numbers may depend on.
        **options
            Options of plans and backends; see `BayesianNetwork.compile`.

        Returns
        -------
        MixedTree
        """
        planned = dict(options)
        if not isinstance(order, str) or order != "auto":  # plans are made more than once
            planned["order"] = order if isinstance(order, (str, os.PathLike)) else [*order]
        tree: MixedTree = late_imports.mixed().MixedTree(
            self, backend, max_configurations=max_configurations, options=planned
        )
        return tree

    def to_networkx(self) -> networkx.DiGraph[str]:
        """Convert to a `networkx.DiGraph`; nodes have ``states`` (None for numbers), ``parents``, and ``cpt``."""
        import networkx

        graph: networkx.DiGraph[str] = networkx.DiGraph(name=self.name)
        for v in self:
            graph.add_node(v, states=self.states(v) or None, parents=self.parents(v), cpt=self._parameters(v))
        graph.add_edges_from(self.arcs)
        return graph

    # Comparison and text --------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __len__(self) -> int:
        return len(self.variables)

    def __contains__(self, variable: object) -> bool:
        return variable in self.graph

    def __eq__(self, other: object) -> bool:
        """Whether names, states, parents and all parameters are equal, bit for bit."""
        if not isinstance(other, MixedNetwork):
            return NotImplemented
        return (
            self.variables == other.variables
            and all(self.parents(v) == other.parents(v) for v in self)
            and self.discrete == other.discrete
            and self._gaussians == other._gaussians
        )

    def __hash__(self) -> int:
        return hash((self.variables, self.arcs))

    def __repr__(self) -> str:
        sizes = counted(len(self), "variable"), counted(len(self._numbers), "number"), counted(len(self.arcs), "arc")
        return f"MixedNetwork({self.name!r}, {', '.join(sizes)})"

    def __str__(self) -> str:
        """The variables with their states and parents, as an aligned table."""
        sizes = counted(len(self), "variable"), counted(len(self._numbers), "number"), counted(len(self.arcs), "arc")
        labels = [("(number)",) if self.is_number(v) else self.states(v) for v in self]
        return summary("Mixed network", self.name, sizes, self.variables, labels, [self.parents(v) for v in self])
