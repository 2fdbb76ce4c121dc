"""`MixedDynamicNetwork`: a dynamic network whose slices have numbers as well as states."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NetworkError, closest, shown
from ..util import late_imports
from ..util.arguments import check_keywords, mapping, names, plain, several
from ..util.text_table import counted
from .discrete import DiscreteModel
from .dynamic import DynamicNetwork
from .editing import EditableOverTime, NetworkParts, coefficient_name
from .gaussian import Gaussian, checked_gaussian
from .mixed import NUMBER, MixedNetwork
from .network_text import summary
from .templates import check_cycle, children

if TYPE_CHECKING:
    from typing import Self, Unpack

    from ..util.late_imports import MixedDynamicTree
    from ..util.options import BackendName, CompileOptions
    from .cpt import Cpt, CptLike
    from .states import CodesByVariable

Pair = tuple[str, int]
NO_STATES = "no variable has states"
ALONE = ","  # a static variable of one state where no variable with states joins the slices


@check_keywords(but=("index", "states"))
class MixedDynamicNetwork(late_imports.Shown, EditableOverTime):
    """A dynamic network whose slices have numbers as well as states, such as a hidden Markov model of measurements.

    Given the states of its parents, which are in the same slice, a number is a linear regression on its numeric
    parents, which may be earlier ones: ``("y", 1)``. A number has no children with states.

    Parameters
    ----------
    states : mapping of str to sequence of str, or float
        The variables of a slice in order: the names of the states, or the type ``float`` for a number.
    parents, static, name
        See `DynamicNetwork`.
    cpts : mapping of str to array_like, mapping or Gaussian
        A CPT for each variable with states, a `Gaussian` for each number. ``"y[t-1]"`` names the coefficient of the
        parent ``("y", 1)``.
    start : mapping, optional
        See `DynamicNetwork`; for a number whose parents are up to m slices earlier, its Gaussians in the first m
        slices, without the parents that do not exist there.

    Attributes
    ----------
    discrete : DynamicNetwork
        The variables with states, and one more for several parents of a number together, named ``a,b``; one of a single
        state if only numbers join the slices.
    numbers : tuple of str
        The numbers, in order.

    Raises
    ------
    NetworkError
        As `DynamicNetwork`; if a number has a child with states, a parent with states in another slice, a CPT, or a
        `Gaussian` of other axes.

    Examples
    --------
    >>> import jtgpu
    >>> dyn = jtgpu.MixedDynamicNetwork(
    ...     {"state": ["calm", "busy"], "load": float}, {"state": [("state", 1)], "load": ["state"]},
    ...     {"state": [[0.9, 0.1], [0.2, 0.8]], "load": jtgpu.Gaussian([1.0, 4.0], sd=1.0)},
    ...     start={"state": [0.5, 0.5]},
    ... )
    >>> answer = dyn.compile("reference").filter({"load": [[0.8, 3.9, None]]})
    >>> answer["state"][0, :, 1].round(3).tolist(), answer.mean["load"].round(2).tolist()
    ([0.006, 0.886, 0.72], [[0.8, 3.9, 3.16]])
    """

    def __init__(
        self, states: Mapping[str, Sequence[str] | type[float]], parents: Mapping[str, Sequence[str | Pair]],
        cpts: Mapping[str, CptLike | Gaussian], *, start: Mapping[str, object] | None = None,
        static: Iterable[str] = (), name: str = "",
    ):  # fmt: skip
        states, parents, cpts = mapping("states", states), mapping("parents", parents), mapping("cpts", cpts)
        self.numbers = tuple(v for v, s in states.items() if s is float)
        if not self.numbers:
            raise NetworkError("no variable is a number (float); networks of states are jtgpu.DynamicNetwork")
        self._names = DiscreteModel({v: NUMBER if s is float else s for v, s in states.items()})  # type: ignore[misc]
        self._order = tuple(states)
        first: dict[str, Any] = dict(mapping("start", start))
        for what, given in (("parents", parents), ("parameters", cpts), ("start", first)):
            for v in given:
                if v not in states:
                    raise NetworkError(f"{what} given for {v!r}, which is not declared{closest(str(v), states)}")
        above = {v: _pairs(v, parents.get(v, ())) for v in states}
        for v, listed in above.items():
            for p, lag in listed:
                self._check_parent(v, p, lag)
            if v not in cpts:
                raise NetworkError(f"variable {v!r} has no {'Gaussian' if v in self.numbers else 'CPT'}")
            if v not in self.numbers and isinstance(cpts[v], Gaussian):
                raise NetworkError(f"variable {v!r} has states and needs a CPT, got a Gaussian")
        self._parents = {y: above[y] for y in self.numbers}
        check_cycle(self._order, [[(self._order.index(p), lag) for p, lag in above[v]] for v in self._order])
        labels: dict[str, Any] = {v: s for v, s in states.items() if s is not float}
        tables: dict[str, Any] = {v: cpts[v] for v in labels}
        discrete: dict[str, Any] = {v: above[v] for v in labels}
        fixed, self.component = {*names("static", static)}, dict[str, str | None]()
        if odd := fixed.intersection(self.numbers):
            raise NetworkError(f"the number {min(odd)!r} is static; numbers exist in every slice")
        for y in self.numbers:
            axes = self.discrete_parents(y)
            self.component[y] = axes[0] if len(axes) == 1 and axes[0] not in fixed else ",".join(axes) or None
            own = self.component[y]
            if len(axes) == 1 and own in fixed:
                own = self.component[y] = f"{own},"
            if own is not None and own not in labels:
                labels[own] = [", ".join(s) for s in product(*(labels[p] for p in axes))]
                cards = [len(labels[p]) for p in axes]
                tables[own] = np.eye(len(labels[own])).reshape(*cards, -1)
                discrete[own] = axes
        lags = [lag for v in labels for _, lag in above.get(v, ())]
        if not fixed and not any(lags) and any(lag for listed in above.values() for _, lag in listed):
            alone = ALONE if labels else NO_STATES  # only numbers join the slices
            labels[alone], tables[alone], discrete[alone] = [NO_STATES], [1.0], ()
            fixed.add(alone)
        own_start = {v: table for v, table in first.items() if v not in self.numbers}
        self.discrete = DynamicNetwork(labels, discrete, tables, start=own_start, static=sorted(fixed), name=name)
        self.joined = tuple(v for v in self.discrete if v not in states)
        self._gaussians = {y: self._read_gaussians(y, cpts[y], first.get(y)) for y in self.numbers}

    def _check_parent(self, v: str, p: str, lag: int) -> None:
        if p not in self._order:
            near = closest(str(p), self._order)
            raise NetworkError(f"variable {v!r} has the parent {p!r}, which is not declared{near}")
        if p in self.numbers and v not in self.numbers:
            raise NetworkError(
                f"the number {p!r} is a parent of {v!r}, which has states: exact answers need arcs from states to "
                f"numbers only; make intervals of {p!r}, or turn the arc"
            )
        if v in self.numbers and p not in self.numbers and lag:
            raise NetworkError(
                f"the number {v!r} has the parent {p!r} {counted(lag, 'slice')} earlier; parents of numbers that have "
                f"states must be in the same slice: add a variable whose parent is ({p!r}, {lag})"
            )

    def _read_gaussians(self, y: str, given: object, start: object) -> tuple[Gaussian, ...]:
        """Of the first slices, and of later ones."""
        above, axes = self.numeric_parents(y), self.discrete_parents(y)
        cards = tuple(len(self.discrete.states(p)) for p in axes)
        m = max((lag for _, lag in above), default=0)
        first = [start] if isinstance(start, Gaussian) else several(start) if start is not None else []
        if first is None or len(first) != m:
            raise NetworkError(
                f"the number {y!r} needs {counted(m, 'Gaussian')} of the first slices in start=, one for each slice "
                "that lacks some of its parents"
            )
        made = [
            checked_gaussian(y, g, [coefficient_name(*p) for p in above if p[1] <= t], axes, cards)
            for t, g in enumerate([*first, given])
        ]
        return tuple(made)

    # Attributes -----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the network; may be empty."""
        return self.discrete.name

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables of a slice, in order."""
        return self._order

    @property
    def order(self) -> int:
        """Largest lag of a parent."""
        return max(lag for v in self for _, lag in [(v, 0), *self.parents(v)])

    @property
    def static(self) -> tuple[str, ...]:
        """Names of the static variables, in order."""
        return tuple(v for v in self.discrete.static if v in self._order)

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, variable: object) -> bool:
        return variable in self._names

    def index(self, variable: str | int) -> int:
        """Position of a variable among `variables`; see `BayesianNetwork.index`."""
        return self._names.index(variable)

    def is_number(self, variable: str | int) -> bool:
        """Whether a variable is a number."""
        return self._order[self.index(variable)] in self._parents

    def states(self, variable: str | int) -> tuple[str, ...]:
        """Names of the states of a variable; empty for a number."""
        return () if self.is_number(variable) else self._names.states(variable)

    def parents(self, variable: str | int) -> tuple[Pair, ...]:
        """The parents of a variable as pairs (name, lag), in order."""
        name = self._order[self.index(variable)]
        return tuple(self._parents[name]) if name in self._parents else self.discrete.parents(name)

    def children(self, variable: str | int) -> tuple[Pair, ...]:
        """The children of a variable as pairs (name, lag); see `DynamicNetwork.children`."""
        return children(self, self._order[self.index(variable)])

    def cpt(self, variable: str | int, slice: int | None = None) -> Cpt:
        """The CPT of a variable with states; see `DynamicNetwork.cpt`."""
        name = self._order[self.index(variable)]
        if name in self._parents:
            raise NetworkError(f"variable {name!r} is a number; its parameters are gaussian({name!r})")
        return self.discrete.cpt(name, slice)

    def start(self, variable: str | int) -> tuple[Cpt | Gaussian, ...]:
        """The CPTs or densities of a variable in the first slices; empty if it has no parents in earlier slices."""
        name = self._order[self.index(variable)]
        return self._gaussians[name][:-1] if name in self._parents else self.discrete.start(name)

    def _require_number(self, variable: str) -> None:
        if variable not in self.numbers:
            known = ", ".join(self.numbers)
            raise NetworkError(f"{shown(variable)} is no number of this network; its numbers are {known}")

    def numeric_parents(self, variable: str) -> tuple[Pair, ...]:
        """The parents of a number that are numbers."""
        self._require_number(variable)
        return tuple(p for p in self._parents[variable] if p[0] in self.numbers)

    def with_codes(self, codes: CodesByVariable | None) -> Self:
        """This network, which also understands codes of states; see `jtgpu.DiscreteModel.with_codes`."""
        if codes is None:
            return self
        net = copy.copy(self)
        net.discrete = self.discrete.with_codes(codes)
        return net

    def discrete_parents(self, variable: str) -> tuple[str, ...]:
        """The parents of a number that have states: the axes of its `Gaussian`."""
        self._require_number(variable)
        return tuple(p for p, _ in self._parents[variable] if p not in self.numbers)

    def gaussian(self, variable: str, slice: int | None = None) -> Gaussian:
        """The density of a number in later slices, or in one of the first."""
        self._require_number(variable)
        own = self._gaussians[variable]
        return own[-1 if slice is None else min(slice, len(own) - 1)]

    def gaussians(self, variable: str) -> tuple[Gaussian, ...]:
        """The densities of a number in the first slices, and in later ones."""
        self._require_number(variable)
        return self._gaussians[variable]

    def _parts(self) -> NetworkParts:
        parts = NetworkParts(self)
        parts.tables = {v: self._gaussians[v][-1] if v in self._gaussians else self.discrete.cpt(v) for v in self}
        parts.start, parts.static = {v: [*self.start(v)] for v in self}, {*self.static}
        return parts

    def _made(self, parts: NetworkParts, name: str) -> Any:
        kind: Any = MixedDynamicNetwork if float in parts.states.values() else DynamicNetwork
        return kind(
            parts.states, parts.own_parents(), parts.tables, start=parts.own_start(), static=sorted(parts.static),
            name=name,
        )  # fmt: skip

    def _model(self) -> DiscreteModel:
        return self._names

    def _at(self, p: str, t: int) -> tuple[MixedNetwork, str]:
        return self.unroll(t + 1), p if p in self.static else f"{p}[{t}]"

    def with_parameters(
        self, discrete: DynamicNetwork | None = None, gaussians: Mapping[str, Sequence[Gaussian]] | None = None
    ) -> Self:
        """Return this network with the CPTs of another `discrete`, and other densities: `gaussians` of some numbers."""
        dyn, own = discrete or self.discrete, mapping("gaussians", gaussians)
        labels = [v for v in dyn if v in self._order]
        return self.replace(
            cpt={v: dyn.cpt(v) for v in labels} | {y: g[-1] for y, g in own.items()},
            start={v: s[0] if len(s) == 1 else s for v in labels for s in [dyn.start(v)] if s}
            | {y: g[0] if len(g) == 2 else g[:-1] for y, g in own.items() if len(g) > 1},
        )

    def stationary(self, limit: int = 10_000) -> MixedDynamicNetwork:
        """Start from the distribution of states that the slices converge to; see `DynamicNetwork.stationary`."""
        return self.with_parameters(self.discrete.stationary(limit))

    def unroll(self, n_slices: int) -> MixedNetwork:
        """Return the mixed network of so many slices, named as by `DynamicNetwork.unroll`."""
        parents: dict[str, Any] = {}
        own: dict[str, Any] = {}
        whole = self.discrete.unroll(n_slices)
        joined = {f"{v}[{t}]" for v in self.joined for t in range(n_slices)} | {ALONE, NO_STATES}
        states: dict[str, Any] = {v: whole.states(v) for v in whole if v not in joined}
        parents |= {v: whole.parents(v) for v in states}
        own |= {v: whole.cpt(v) for v in states}
        for t, y in product(range(n_slices), self.numbers):
            g, name = self.gaussian(y, t), f"{y}[{t}]"
            there = {(p, lag): p if p in self.discrete.static else f"{p}[{t - lag}]" for p, lag in self._parents[y]}
            states[name], parents[name] = float, [v for (_, lag), v in there.items() if lag <= t]
            own_terms = {v: g.coefficients.get(coefficient_name(*p)) for p, v in there.items()}
            terms = {v: c for v, c in own_terms.items() if c is not None}
            own[name] = Gaussian(g.mean, terms, g.sd)
        return MixedNetwork(states, parents, own, name=self.name)

    def compile(self, backend: BackendName = "auto", **options: Unpack[CompileOptions]) -> MixedDynamicTree:
        """Plan one slice; see `DynamicNetwork.compile`."""
        made: MixedDynamicTree = late_imports.dynamic_numbers().MixedDynamicTree(self, backend, **options)
        return made

    def __eq__(self, other: object) -> bool:
        """Whether names, parents, CPTs and densities are equal, bit for bit."""
        if not isinstance(other, MixedDynamicNetwork):
            return NotImplemented
        return (self._order, self._parents, self._gaussians, self.discrete) == (
            other._order, other._parents, other._gaussians, other.discrete
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self._order, self.discrete))

    def __str__(self) -> str:
        """The variables of a slice with their states and parents, as an aligned table."""
        static = self.static
        above = [[p if p in static else f"{p}[t-{lag}]" if lag else f"{p}[t]" for p, lag in self.parents(v)]
                 for v in self]  # fmt: skip
        labels = [self.states(v) or ("(number)",) for v in self]
        names = [v if v in static else f"{v}[t]" for v in self]
        n = f"{counted(len(self), 'variable')} in a slice"
        sizes = n, f"order {self.order}", counted(len(self.numbers), "number")
        return summary("Dynamic network", self.name, sizes, names, labels, above)

    def __repr__(self) -> str:
        more = f"{counted(len(self.numbers), 'number')} among them"
        return f"MixedDynamicNetwork({self.name!r}, {counted(len(self), 'variable')}, {more})"


def _pairs(v: str, given: object) -> tuple[Pair, ...]:
    """Parents as pairs of a name and a lag."""
    listed = several(given)
    if listed is None:
        raise NetworkError(f"variable {v!r}: its parents must be a sequence, not {given!r}")
    pairs = [tuple(map(plain, p)) if isinstance(p, (tuple, list)) else (p, 0) for p in listed]
    for p in pairs:
        if len(p) != 2 or not isinstance(p[1], (int, np.integer)) or isinstance(p[1], bool) or p[1] < 0:
            raise NetworkError(f"variable {v!r} has the parent {p!r}; expected a name, or a pair such as ('rain', 1)")
    if len({*pairs}) < len(pairs):
        raise NetworkError(f"variable {v!r} has a parent twice")
    if (v, 0) in pairs:
        raise NetworkError(f"variable {v!r} is its own parent; ({v!r}, 1) is {v!r} one slice earlier")
    return tuple((p, int(lag)) for p, lag in pairs)
