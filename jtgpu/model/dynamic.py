"""`DynamicNetwork`: variables that repeat in every slice of time, with arcs from earlier slices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..errors import NetworkError, TableTooLarge, closest
from ..util import late_imports
from ..util.arguments import check_keywords, mapping, whole_number
from ..util.text_table import counted
from .cpt import Axis, Cpt, checked_cpt
from .cpts import freeze
from .discrete import MAX_STATES, DiscreteModel
from .editing import EditableOverTime, NetworkParts
from .network import BayesianNetwork
from .network_text import summary
from .templates import Parent, check_cycle, checked_static, children, from_slices, read_parents, stationary

if TYPE_CHECKING:
    from ..util.arrays import Floats
    from ..util.late_imports import DynamicTree
    from ..util.options import BackendName
    from .cpt import CptLike


def tables_of(net: DynamicNetwork, v: int) -> tuple[Floats, tuple[Floats, ...]]:
    """The CPT of a variable in later slices, and those in the first ones, without labels."""
    return net._cpts[v], net._start[v]


def with_tables(net: DynamicNetwork, cpts: Iterable[Floats], start: Iterable[Sequence[Floats]]) -> DynamicNetwork:
    """The network with other CPTs, of all variables, that are known to be valid."""
    made = copy(net)
    made._cpts, made._start = tuple(map(freeze, cpts)), tuple(tuple(map(freeze, tables)) for tables in start)
    return made


@check_keywords()
class DynamicNetwork(EditableOverTime, DiscreteModel):
    """A dynamic Bayesian network: a template that repeats in every slice; immutable, and checked on construction.

    Parameters
    ----------
    states : mapping of str to sequences of str
        The variables of a slice in order, with the names of their states.
    parents : mapping of str to sequences
        Parents of each variable, in the order of its CPT's axes: a name for the same slice, ``("rain", 2)`` for two
        slices earlier. Variables that are left out have no parents.
    cpts : mapping of str to array_like or mapping
        A CPT for each variable, as for `BayesianNetwork`. It holds in all slices in which every parent exists.
    start : mapping of str to array_like, mapping or sequence of these, optional
        For a variable whose parents are up to m slices earlier: its CPTs in the first m slices, whose axes are the
        parents that exist there. One table if m = 1, else a sequence of m tables.
    static : sequence of str
        Variables that exist once, for all slices. Their parents are static.
    name : str, optional

    Raises
    ------
    NetworkError
        As `BayesianNetwork`; if a lag is negative or no integer, the arcs inside a slice form a cycle, a static
        variable has a parent that is none, a table of the first slices is missing, or nothing joins the slices.

    Notes
    -----
    K. P. Murphy, "Dynamic Bayesian Networks: Representation, Inference and Learning", PhD thesis, UC Berkeley, 2002.

    Examples
    --------
    >>> import jtgpu
    >>> dyn = jtgpu.DynamicNetwork(
    ...     {"rain": ["no", "yes"], "umbrella": ["no", "yes"]},
    ...     {"rain": [("rain", 1)], "umbrella": ["rain"]},
    ...     {"rain": [[0.7, 0.3], [0.3, 0.7]], "umbrella": [[0.8, 0.2], [0.1, 0.9]]},
    ...     start={"rain": [0.5, 0.5]},
    ... )
    >>> dyn.parents("rain"), dyn.order
    ((('rain', 1),), 1)
    >>> dyn.unroll(3).arcs[:3]
    (('rain[0]', 'umbrella[0]'), ('rain[0]', 'rain[1]'), ('rain[1]', 'umbrella[1]'))
    """

    def __init__(
        self,
        states: Mapping[str, Sequence[str]],
        parents: Mapping[str, Sequence[str | tuple[str, int]]],
        cpts: Mapping[str, CptLike],
        *,
        start: Mapping[str, object] | None = None,
        static: Iterable[str] = (),
        name: str = "",
    ):
        super().__init__(states, name=name)
        self._static = checked_static(self, static)
        parents, cpts, start = mapping("parents", parents), mapping("cpts", cpts), mapping("start", start)
        for what, given in (("parents", parents), ("a CPT", cpts), ("start", start)):
            for v in given:
                if v not in self:
                    raise NetworkError(f"{what} given for {v!r}, which is not declared{closest(str(v), self._index)}")
        self._parents = tuple(read_parents(self, self._static, v, parents.get(v, ())) for v in self._variables)
        check_cycle(self._variables, self._parents)
        self._order = max((lag for above in self._parents for _, lag in above), default=0)
        if self._order == 0 and not self._static:
            raise NetworkError(
                "no variable has a parent in an earlier slice, such as ('rain', 1), and none is static: the slices are "
                "independent cases of a BayesianNetwork"
            )
        missing = [v for v in self._variables if v not in cpts]
        if missing:
            raise NetworkError(f"variable {missing[0]!r} has no CPT")
        self._cpts = tuple(self._table(i, cpts[v], None) for i, v in enumerate(self._variables))
        self._start = tuple(self._read_start(i, start.get(v)) for i, v in enumerate(self._variables))

    # Reading --------------------------------------------------------------------------------------------------

    def _label(self, v: int, lag: int) -> str:
        """``rain[t-1]``; a static variable has its name."""
        name = self._variables[v]
        return name if v in self._static else f"{name}[t-{lag}]" if lag else f"{name}[t]"

    def _family(self, v: int, slice_: int | None) -> tuple[Parent, ...]:
        """The parents of a variable in a slice, where earlier ones may not exist, and the variable itself."""
        return (*(p for p in self._parents[v] if slice_ is None or p[1] <= slice_), (v, 0))

    def _table(self, v: int, given: CptLike, slice_: int | None) -> Floats:
        """The checked CPT of a variable in a slice, or of all later ones; errors name its family by slices."""
        family = self._family(v, slice_)
        model = DiscreteModel({self._label(*p): self._states[p[0]] for p in family})
        try:
            return checked_cpt(model, tuple(range(len(family))), given)
        except NetworkError as error:
            raise (error if slice_ is None else NetworkError(f"start, slice {slice_}: {error}")) from None

    def _read_start(self, v: int, given: object) -> tuple[Floats, ...]:
        name, m = self._variables[v], max((lag for _, lag in self._parents[v]), default=0)
        if m == 0:
            if given is not None:
                raise NetworkError(f"start has {name!r}, which has no parent in an earlier slice: its CPT holds always")
            return ()
        if given is None:
            raise NetworkError(
                f"variable {name!r} has parents in earlier slices: start must give its CPT{'s' * (m > 1)} in the first "
                f"{'slice' if m == 1 else f'{m} slices'}, without the parents that do not exist there"
            )
        tables = [given] if m == 1 else given
        if isinstance(tables, Mapping) or not isinstance(tables, Iterable) or len(tables := [*tables]) != m or (
            any(isinstance(t, (int, float)) for t in tables)
        ):
            raise NetworkError(f"variable {name!r}: start must be a sequence of {m} tables, one for each of the slices")
        return tuple(self._table(v, table, t) for t, table in enumerate(tables))

    # Attributes -----------------------------------------------------------------------------------------------

    @property
    def order(self) -> int:
        """Largest lag of a parent."""
        return self._order

    @property
    def static(self) -> tuple[str, ...]:
        """Names of the static variables, in order."""
        return tuple(self._variables[v] for v in sorted(self._static))

    @property
    def interface(self) -> tuple[tuple[str, int], ...]:
        """The variables of earlier slices that a slice needs: pairs of a name and a lag, 0 for static variables."""
        return tuple((self._variables[v], lag) for v, lag in self.interface_numbers)

    @property
    def interface_numbers(self) -> tuple[Parent, ...]:
        """`interface` by number; variables in order, then by lag."""
        most = [0] * len(self._variables)
        for above in self._parents:
            for p, lag in above:
                most[p] = max(most[p], lag)
        both = [[(v, 0)] if v in self._static else [(v, lag) for lag in range(1, n + 1)] for v, n in enumerate(most)]
        return tuple(p for one in both for p in one)

    def parents(self, variable: str | int) -> tuple[tuple[str, int], ...]:
        """The parents of a variable as pairs (name, lag), in the order of its CPT's axes."""
        return tuple((self._variables[p], lag) for p, lag in self._parents[self.index(variable)])

    def children(self, variable: str | int) -> tuple[tuple[str, int], ...]:
        """The children of a variable as pairs (name, lag), in order: that many slices later."""
        return children(self, self._variables[self.index(variable)])

    def cpt(self, variable: str | int, slice: int | None = None) -> Cpt:
        """The CPT of a variable; axes: parents in order, named ``rain[t-1]``, then the variable.

        Parameters
        ----------
        variable : str or int
        slice : int, optional
            The CPT in this slice, counted from 0, where earlier parents may not exist. Default: that of later slices.
        """
        v = self.index(variable)
        first = self._start[v]
        given = slice is not None and whole_number("slice", slice, 0) < len(first)
        table = first[slice] if given and slice is not None else self._cpts[v]
        family = self._family(v, slice if given else None)
        return Cpt.of(table, [Axis(self._label(*p), self._states[p[0]]) for p in family])

    def start(self, variable: str | int) -> tuple[Cpt, ...]:
        """The CPTs of a variable in the first slices; empty if it has no parents in earlier slices."""
        return tuple(self.cpt(variable, t) for t in range(len(self._start[self.index(variable)])))

    # Derived networks -----------------------------------------------------------------------------------------

    @classmethod
    def from_slices(cls, net: BayesianNetwork, *, start: Mapping[str, object] | None = None) -> DynamicNetwork:
        """Make a template of a network over slices, whose variables are named as by `jtgpu.series.two_slices`.

        Parameters
        ----------
        net : BayesianNetwork
            ``x[t]`` is a variable of a slice, ``x[t-2]`` the same two slices earlier; variables of other names are
            static. CPTs of earlier slices do not count.
        start : mapping, optional
            As for `DynamicNetwork`. Default: P(x[t] | the parents that exist) in `net`; rows that are impossible there
            are uniform.

        Raises
        ------
        NetworkError
            If a variable of an earlier slice has no ``x[t]`` or other states than it, or a parent in a later one.
        """
        return cls(**from_slices(net, start))

    def stationary(self, limit: int = 10_000) -> DynamicNetwork:
        """Start from the distribution that the slices converge to.

        Parameters
        ----------
        limit : int
            Slices until which the distribution between slices must have converged, to 1e-13 in every entry.

        Returns
        -------
        DynamicNetwork
            Its CPTs of the first slices are P(x[t] | the parents that exist) in the limit. One variable between slices,
            or several that are independent there, start exactly from it.

        Raises
        ------
        NetworkError
            If the distribution has not converged, as in a periodic chain.
        """
        return self.replace(start=stationary(self, limit))

    def unroll(self, n_slices: int) -> BayesianNetwork:
        """Return the Bayesian network of so many slices.

        Parameters
        ----------
        n_slices : int

        Returns
        -------
        BayesianNetwork
            The static variables, then those of slice 0, named ``rain[0]``, of slice 1, and so on.

        Raises
        ------
        TableTooLarge
            If the network would have more states than a network can have.
        """
        n = whole_number("n_slices", n_slices, 1)
        if n * int(self._cardinality.sum()) > MAX_STATES:
            raise TableTooLarge(
                f"{n:,} slices would have more than {MAX_STATES:,} states; compile() answers sequences of any length"
            )
        copies = [(v, 0) for v in sorted(self._static)]
        copies += [(v, t) for t in range(n) for v in range(len(self)) if v not in self._static]

        def label(v: int, t: int) -> str:
            return self._variables[v] if v in self._static else f"{self._variables[v]}[{t}]"

        parents, cpts = {}, {}
        for v, t in copies:
            family = self._family(v, t)
            parents[label(v, t)] = [label(p, t - lag) for p, lag in family[:-1]]
            cpts[label(v, t)] = self._start[v][t] if t < len(self._start[v]) else self._cpts[v]
        return BayesianNetwork({label(v, t): self._states[v] for v, t in copies}, parents, cpts, name=self._name)

    def _parts(self) -> NetworkParts:
        parts = NetworkParts(self)
        parts.tables = dict(zip(self._variables, self._cpts, strict=True))
        parts.start = {v: [*tables] for v, tables in zip(self._variables, self._start, strict=True) if tables}
        parts.static = {*self.static}
        return parts

    def _made(self, parts: NetworkParts, name: str) -> DynamicNetwork:
        return DynamicNetwork(
            parts.states, parts.own_parents(), parts.tables, start=parts.own_start(), static=sorted(parts.static),
            name=name,
        )  # fmt: skip

    def _at(self, p: str, t: int) -> tuple[BayesianNetwork, str]:
        return self.unroll(t + 1), p if p in self.static else f"{p}[{t}]"

    # Computation ----------------------------------------------------------------------------------------------

    def plan(self, *_: object, **__: Any) -> NoReturn:
        """A dynamic network has no plan: the number of slices is that of each sequence."""
        raise NetworkError(
            "a dynamic network has no plan of its own: dyn.compile() answers sequences of any length, and "
            "dyn.unroll(10) is the Bayesian network of ten slices"
        )

    def compile(self, backend: BackendName = "auto", **options: Any) -> DynamicTree:  # type: ignore[override]
        """Plan one slice, and prepare a backend that answers sequences of any length.

        Parameters
        ----------
        backend : {"auto", "cpu", "gpu", "reference"}
        **options
            Options of plans and backends; see `BayesianNetwork.compile`.

        Returns
        -------
        jtgpu.dynamic.DynamicTree

        Raises
        ------
        TableTooLarge
            If the interface between slices has too many configurations; the message names it.
        """
        made: DynamicTree = late_imports.dynamic().DynamicTree(self, backend, **options)
        return made

    # Comparison and text --------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        """Whether names, states, parents, CPTs and those of the first slices are equal, bit for bit."""
        if not isinstance(other, DynamicNetwork):
            return NotImplemented
        mine, theirs = ((*n._cpts, *(t for s in n._start for t in s)) for n in (self, other))
        return self.has_structure_of(other) and all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))

    def has_structure_of(self, other: object) -> bool:
        """Whether this is a dynamic network with the same variables, states and arcs."""
        return isinstance(other, DynamicNetwork) and (self._variables, self._states, self._parents, self._static) == (
            other._variables, other._states, other._parents, other._static
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self._variables, self._states, self._parents, self._static))

    def __repr__(self) -> str:
        return f"DynamicNetwork({self._name!r}, {counted(len(self), 'variable')}, order {self._order})"

    def __str__(self) -> str:
        """The variables of a slice with their states and parents, as an aligned table."""
        sizes = f"{counted(len(self), 'variable')} in a slice", f"order {self._order}"
        names = [self._label(v, 0) for v in range(len(self))]
        above = [tuple(self._label(*p) for p in self._parents[v]) for v in range(len(self))]
        return summary("Dynamic network", self._name, sizes, names, self._states, above)
