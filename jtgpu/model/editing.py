"""`Editable`: networks of every kind with one change, whose tables keep what is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NetworkError, closest, shown
from ..util.arguments import check_keywords, choice, mapping, several, whole_number
from ..util.arrays import Floats
from .cpts import (
    average_rows,
    checked_shape,
    new_names,
    new_states,
    numbers_by_state,
    renamed_attributes,
)
from .described import DescribedModel
from .discrete import DiscreteModel, checked_states
from .gaussian import Gaussian
from .noisy import is_noisy

if TYPE_CHECKING:
    from typing import Literal, Self

    from numpy.typing import ArrayLike

    from .cpt import CptLike
    from .noisy import NoisyMax

    Weights = Literal["prior", "uniform"] | ArrayLike | Mapping[str, float]
    Node = str | int
    Parent = str | int | tuple[str | int, int]

Pair = tuple[str, int]  # a parent, and how many slices earlier it is
UTILITY: Any = object()  # the states of a utility


def coefficient_name(name: str, lag: int) -> str:
    """The name of a numeric parent's coefficient."""
    return f"{name}[t-{lag}]" if lag else name


class Parts:
    """The parts of a network of any kind, to be changed."""

    def __init__(self, net: Any):
        self.states: dict[str, Any] = {v: net.states(v) or float for v in net.variables}  # or UTILITY
        self.parents: dict[str, list[Pair]] = {
            v: [p if isinstance(p, tuple) else (p, 0) for p in net.parents(v)] for v in net.variables
        }
        self.tables: dict[str, Any] = {}  # CPTs, Gaussians and tables of utilities; decisions have none
        self.start: dict[str, list[Any]] = {}  # tables of the first slices
        self.static: set[str] = set()
        self.decisions: list[str] = []
        self.changed: set[str] = set()  # whose file attributes no longer hold
        self.attributes: dict[str, Any] = {}

    def lag(self, v: str) -> int:
        """The largest lag of a parent."""
        return max((lag for _, lag in self.parents[v]), default=0)

    def table(self, v: str, t: int) -> Any:
        """The table of a node in slice t."""
        return self.start[v][t] if t < len(self.start.get(v, ())) else self.tables[v]

    def axes(self, v: str, t: int | None = None) -> list[Pair]:
        """The parents that are axes of a node's table: in a Gaussian, those with states."""
        above = [p for p in self.parents[v] if t is None or p[1] <= t]
        return [p for p in above if self.states[p[0]] is not float]

    def each(self, v: str, change: Callable[[Any, int | None], Any], lag: int | None = None) -> None:
        """Change the tables of a node, of which those of the first `lag` slices are apart."""
        made = [change(self.table(v, t), t) for t in range(self.lag(v) if lag is None else lag)]
        self.tables[v] = change(self.tables[v], None)
        self.start[v] = made
        self.changed.add(v)

    def own_start(self) -> dict[str, Any]:
        """The tables of the first slices as `DynamicNetwork` takes them."""
        return {v: s[0] if len(s) == 1 else s for v, s in self.start.items() if s}

    def own_parents(self) -> dict[str, list[Any]]:
        """Names of the parents, and pairs where they are earlier."""
        return {v: [p if lag else p[0] for p in above for lag in [p[1]]] for v, above in self.parents.items()}

    def rename(self, names: Mapping[str, str]) -> None:
        """Give nodes other names."""

        def renamed(table: Any, v: str) -> Any:
            if not isinstance(table, Gaussian):
                return table
            new = {coefficient_name(*p): coefficient_name(names[p[0]], p[1]) for p in self.parents[v]}
            return Gaussian(table.mean, {new.get(p, p): c for p, c in table.coefficients.items()}, table.sd)

        self.tables = {names[v]: renamed(table, v) for v, table in self.tables.items()}
        self.start = {names[v]: [renamed(table, v) for table in tables] for v, tables in self.start.items()}
        self.states = {names[v]: x for v, x in self.states.items()}
        self.parents = {names[v]: [(names[p], lag) for p, lag in x] for v, x in self.parents.items()}
        self.static, self.decisions = {names[v] for v in self.static}, [names[v] for v in self.decisions]


def _mapped(table: Any, change: Callable[[Any], Any]) -> Any:
    """A table, or all arrays of a Gaussian, changed alike."""
    if isinstance(table, Gaussian):
        return Gaussian(change(table.mean), {p: change(c) for p, c in table.coefficients.items()}, change(table.sd))
    return change(np.asarray(table))


@check_keywords()
class Editable:
    """A network of any kind, and copies of it with one change each."""

    def _parts(self) -> Parts:
        raise NotImplementedError

    def _made(self, parts: Parts, name: str) -> Any:
        """A network of this kind of these parts."""
        raise NotImplementedError

    # Nodes ----------------------------------------------------------------------------------------------------

    def add(
        self, variable: str, states: Sequence[str] | type[float], parents: Sequence[Parent] = (),
        cpt: CptLike | Gaussian | None = None,
    ) -> Self:  # fmt: skip
        """Return this network with one more variable, the last.

        Parameters
        ----------
        variable : str
            Its name.
        states : sequence of str, or float
            Names of its states; the type ``float`` for a number, in a network that can have numbers.
        parents : sequence of str
            Its parents, in the order of the axes of its CPT; in a network over time also pairs such as ``("rain", 1)``.
        cpt : array_like, mapping or Gaussian, optional
            Its CPT or density, as for the class. Default: all rows are uniform; a number is standard normal whatever
            its parents are.

        Raises
        ------
        NetworkError
            If there is a variable of this name, or the parents or the CPT are wrong.
        TableTooLarge
            If a default CPT would have more than 2^28 entries.

        Examples
        --------
        >>> import jtgpu
        >>> net = jtgpu.network("smoke->lung", "{yes|no}")
        >>> more = net.add("cough", ["yes", "no"], ["lung"], {"yes": [0.8, 0.2], "no": [0.1, 0.9]})
        >>> more.arcs, more.remove("cough") == net
        ((('smoke', 'lung'), ('lung', 'cough')), True)
        """
        return self._changed(self._with_node(variable, states, parents, cpt))

    def _with_node(self, name: str, states: Any, parents: Sequence[Parent], table: Any) -> Parts:
        """The parts of this network and of a further node; without a table it has the default one."""
        parts = self._parts()
        if name in parts.states:
            kind = "utility" if parts.states[name] is UTILITY else "variable"
            raise NetworkError(f"there is already a {kind} {name!r}; change it by replace(), or remove it first")
        if states is float and not hasattr(self, "is_number"):
            kind = "MixedDynamicNetwork" if isinstance(self, EditableOverTime) else "MixedNetwork"
            raise NetworkError(f"{name!r} has the type float: numbers are in a jtgpu.{kind}")
        is_plain = states is not float and states is not UTILITY
        parts.states[name] = new_states(name, (), checked_states(name, states)) if is_plain else states
        parts.parents[name] = _pairs(parts, name, parents)
        parts.tables[name] = table
        if table is None:
            parts.each(name, lambda _, t: self._default(parts, name, t))
        return parts

    def _default(self, parts: Parts, v: str, t: int | None) -> Any:
        """A uniform CPT, a standard normal density, or a utility of zeros."""
        shape, states = [len(parts.states[p]) for p, _ in parts.axes(v, t)], parts.states[v]
        if states is float:
            zeros = np.zeros(checked_shape(v, shape))
            numeric = [p for p in parts.parents[v] if parts.states[p[0]] is float and (t is None or p[1] <= t)]
            return Gaussian(zeros, {coefficient_name(*p): zeros for p in numeric}, np.ones(shape))
        if states is UTILITY:
            return np.zeros(checked_shape(v, shape))
        return np.full(checked_shape(v, [*shape, len(states)]), 1 / len(states))

    def remove(self, variable: Node, *, weights: Weights = "prior") -> Self:
        """Return this network without a variable. Its arcs go, as by `remove_arc` for each of its children.

        The joint distribution of the other variables is the same if the variable is a leaf, or a root with one child.

        Parameters
        ----------
        variable : str or int
            Name or number; of a network with decisions also the name of a utility.
        weights : {"prior", "uniform"} or array_like or mapping
            Weights of the variable's states in the rows of its children; see `remove_arc`.

        Raises
        ------
        UnknownVariable
            If there is no such variable.
        NetworkError
            If the weights do not fit.
        """
        name, less = self._node(variable), self._parts()
        for child in less.parents:
            if child != name:
                for pair in [p for p in less.parents[child] if p[0] == name]:
                    self._cut(less, pair, child, weights)
        for part in (less.states, less.parents, less.tables, less.start):
            part.pop(name, None)
        less.static.discard(name)
        less.decisions = [d for d in less.decisions if d != name]
        return self._changed(less)

    def rename(self, old: Node, new: str) -> Self:
        """Return this network with another name of one variable; `replace` renames several, and states.

        Raises
        ------
        UnknownVariable
            If there is no such variable.
        NetworkError
            If the new name is taken.
        """
        return self.replace(rename={self._node(old): new})

    # Arcs -----------------------------------------------------------------------------------------------------

    def add_arc(self, parent: Parent, child: Node, cpt: CptLike | Gaussian | None = None) -> Self:
        """Return this network with one more arc; the parent becomes the child's last.

        Parameters
        ----------
        parent, child : str or int
            Names or numbers. In a network over time the parent may be a pair such as ``("rain", 1)``; the child of a
            network with decisions may be a decision, which then knows the parent, or a utility.
        cpt : array_like, mapping or Gaussian, optional
            The child's new CPT, density or table. Default: its rows, repeated for each state of the new parent, and a
            coefficient of 0 for a number, so that the joint distribution is the same.

        Raises
        ------
        UnknownVariable
            If there is no such variable.
        NetworkError
            If there is this arc, it closes a cycle (the message has the path), or the CPT is wrong.
        TableTooLarge
            If the CPT would have more than 2^28 entries.

        Examples
        --------
        >>> import jtgpu
        >>> net = jtgpu.network("smoke; lung", "{yes|no}", cpts={"smoke": [0.3, 0.7], "lung": [0.1, 0.9]})
        >>> more = net.add_arc("smoke", "lung")
        >>> more.cpt("lung").tolist(), more.remove_arc("smoke", "lung") == net
        ([[0.1, 0.9], [0.1, 0.9]], True)
        """
        (p, lag), c, more = self._parent(parent), self._node(child), self._parts()
        if (p, lag) in more.parents[c]:
            raise NetworkError(f"there is already an arc {_shown(p, lag)} -> {c!r}")
        states = more.states[p]
        _check_no_utility(more, c, p)
        most = max(lag, more.lag(c))

        def with_parent(table: Any, t: int | None) -> Any:
            if t is not None and lag > t:
                return table
            if is_noisy(table):
                return table.with_neutral(len(states))
            if states is not float:
                k = len(more.axes(c, t))

                def repeated(array: Any) -> Any:
                    shape = [*array.shape[:k], len(states), *array.shape[k:]]
                    return np.broadcast_to(np.expand_dims(array, k), checked_shape(c, shape))

                return _mapped(table, repeated)
            if not isinstance(table, Gaussian):
                return table  # the class says that a number has no children with states
            return Gaussian(table.mean, {**table.coefficients, coefficient_name(p, lag): table.mean * 0}, table.sd)

        if c in more.decisions and cpt is not None:
            raise NetworkError(f"{c!r} is a decision, which has no CPT")
        if c not in more.decisions and (cpt is None or most):
            more.each(c, with_parent, most)
        if cpt is not None:
            more.tables[c] = cpt
            more.changed.add(c)
        more.parents[c].append((p, lag))
        return self._changed(more)

    def remove_arc(self, parent: Parent, child: Node, *, weights: Weights = "prior") -> Self:
        """Return this network without an arc; the child's rows are averaged over the states of the parent.

        Parameters
        ----------
        parent, child : str or int
            Names or numbers; see `add_arc`.
        weights : {"prior", "uniform"} or array_like or mapping
            Weights of the parent's states: its probabilities in this network, all equal, or given, such as
            ``tree.posterior("smoke", evidence)``; they are divided by their sum. With the prior the child's probability
            given its other parents is the same wherever these are independent of the parent.

        Raises
        ------
        UnknownVariable
            If there is no such variable.
        NetworkError
            If there is no such arc, or the weights do not fit.

        Notes
        -----
        A number gets the mean and the variance of its mixture over the states of the parent; those of a numeric parent
        are entered in the regression, which needs ``weights="prior"``. In a network over time the prior is that of the
        first slice in which the CPT holds; CPTs of first slices that have all their parents now go. Decisions are
        uniform in the prior.
        """
        (p, lag), c, less = self._parent(parent), self._node(child), self._parts()
        if (p, lag) not in less.parents[c]:
            turned = f"; there is one from {c!r}" if any(q == c for q, _ in less.parents[p]) else ""
            raise NetworkError(f"there is no arc {_shown(p, lag)} -> {c!r}{turned}")
        self._cut(less, (p, lag), c, weights)
        return self._changed(less)

    # Several changes ------------------------------------------------------------------------------------------

    def replace(
        self,
        *,
        cpt: Mapping[str, Any] | None = None,
        states: Mapping[str, Mapping[str, str] | Sequence[str]] | None = None,
        parents: Mapping[str, Sequence[Any]] | None = None,
        rename: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> Self:
        """Return this network with some changes. The network itself is immutable.

        Parameters
        ----------
        cpt : mapping, optional
            Variable to its new CPT, an array or a mapping by the names of states, as for the class; a number to its
            `Gaussian`, a utility to its table.
        states : mapping, optional
            Variable to a mapping from old to new names of states, or to the sequence of all names. Where their number
            changes, the CPTs of the variable and of its children must be given, too.
        parents : mapping, optional
            Variable to its new parents. It needs a new CPT unless only the order of the parents changes.
        rename : mapping, optional
            Old to new names of variables. All other arguments use the old names.
        name : str, optional
            The name of the new network.

        Raises
        ------
        UnknownVariable, UnknownState
            If the network has no such variable or state.
        NetworkError
            If the new network is invalid, or two variables have the same name.

        Examples
        --------
        >>> import jtgpu
        >>> net = jtgpu.network("smoke->lung", "{yes|no}")
        >>> net = net.replace(cpt={"smoke": [0.3, 0.7]}, states={"lung": {"yes": "ill"}}, rename={"smoke": "smoker"})
        >>> net.parents("lung"), net.states("lung"), net.cpt("smoker").tolist()
        (('smoker',), ('ill', 'no'), [0.3, 0.7])
        """
        return self._replaced(cpt, states, parents, rename, name, {})

    def _replaced(self, cpt: Any, states: Any, parents: Any, rename: Any, name: str | None, start: Any) -> Self:
        parts = self._parts()
        tables, labels = self._by_node("cpt", cpt), self._by_node("states", states)
        above, firsts = self._by_node("parents", parents), self._by_node("start", start)
        new = self._by_node("rename", rename)
        for v, given in labels.items():
            if parts.states[v] is float or parts.states[v] is UTILITY:
                raise NetworkError(f"{v!r} has no states, which cannot be changed")
            parts.states[v] = new_states(v, parts.states[v], given)
        for v, given in above.items():
            self._reorder(parts, v, given, v in tables)
        for v, table in tables.items():
            if v in parts.decisions:
                raise NetworkError(f"the decision {v!r} has a CPT; what is decided has no probabilities")
            parts.tables[v] = table
        for v, table in firsts.items():
            parts.start[v] = [table] if parts.lag(v) <= 1 else table
        parts.changed |= {*tables, *labels, *above}
        names = new_names(tuple(parts.states), new)
        return self._changed(parts, names, name)

    def _reorder(self, parts: Parts, v: str, given: Any, has_table: bool) -> None:
        """Give a node other parents; its table is kept where only their order changes."""
        pairs, before = _pairs(parts, v, given), parts.axes(v)
        if v in parts.decisions or sorted(pairs) != sorted(parts.parents[v]):
            if v not in parts.decisions and not has_table:
                raise NetworkError(f"variable {v!r} has other parents than before, so it needs a new CPT")
            old, parts.parents[v] = parts.parents[v], pairs
            start, slices = parts.start.pop(v, []), range(parts.lag(v))
            if all([p for p in old if p[1] <= t] == [p for p in pairs if p[1] <= t] for t in slices):
                parts.start[v] = start[: len(slices)]
            return
        olds = {t: parts.axes(v, t) for t in range(parts.lag(v))} | {None: before}
        parts.parents[v] = pairs
        own = 0 if parts.states[v] is float or parts.states[v] is UTILITY else 1

        def turned(table: Any, t: int | None) -> Any:
            order = [olds[t].index(p) for p in parts.axes(v, t)]
            if is_noisy(table):
                return table.like([table.effects[i] for i in order])
            return _mapped(table, lambda array: array.transpose([*order, *range(len(order), len(order) + own)]))

        if has_table:  # in the new order; those of the first slices are in the old one
            parts.start[v] = [turned(table, t) for t, table in enumerate(parts.start.get(v, []))]
        else:
            parts.each(v, turned)

    # Helpers --------------------------------------------------------------------------------------------------

    def _node(self, given: Any) -> str:
        """The name of a variable or a utility."""
        net: Any = self
        return given if given in getattr(net, "utilities", ()) else net.variables[net.index(given)]  # type: ignore[no-any-return]

    def _parent(self, given: Any) -> Pair:
        """A parent as a pair."""
        if isinstance(given, tuple) and len(given) == 2:
            return self._node(given[0]), whole_number("the lag of a parent", given[1], 0)
        return self._node(given), 0

    def _by_node(self, what: str, given: Any) -> dict[str, Any]:
        """An argument of `replace` by the names of nodes."""
        return {self._node(v): value for v, value in mapping(what, given).items()}

    def _changed(
        self, parts: Parts, names: Mapping[str, str] | None = None, name: str | None = None
    ) -> Self:
        """A network of these parts, whose nodes have other names."""
        net: Any = self
        new = {v: v for v in parts.states} if names is None else names
        parts.attributes = renamed_attributes(getattr(net, "attributes", {}), new, [*parts.changed])
        codes = getattr(net, "discrete", net).state_codes
        if any(parts.states.get(v, ()) not in (net.states(v), (), float) for v in net.variables):
            codes = "names"
        elif isinstance(codes, Mapping):
            codes = {v: given for v, given in codes.items() if v in parts.states}
        if any(old != v for old, v in new.items()):
            parts.rename(new)
            codes = "names"
        made: Any = self._made(parts, net.name if name is None else name)
        return made if codes == "names" else made.with_codes(codes)  # type: ignore[no-any-return]

    def _cut(self, parts: Parts, parent: Pair, child: str, weights: Weights) -> None:
        """Take a parent from a node, whose rows are averaged."""
        (p, lag), first = parent, parts.lag(child)

        def without(table: Any, t: int | None) -> Any:
            if t is not None and lag > t:
                return table
            at = (first if t is None else t) - lag
            if parts.states[p] is float:
                mean, sd = self._moments(p, at, weights)
                left = dict(table.coefficients)
                slope = left.pop(coefficient_name(p, lag))
                return Gaussian(table.mean + slope * mean, left, np.sqrt(table.sd**2 + (slope * sd) ** 2))
            mix, axis = self._weights(p, weights, at), parts.axes(child, t).index(parent)
            if is_noisy(table):
                return table.without({axis: mix})
            return _averaged(table, axis, mix)

        if child not in parts.decisions:
            parts.each(child, without, max((pair[1] for pair in parts.parents[child] if pair != parent), default=0))
        parts.parents[child].remove(parent)

    def _model(self) -> DiscreteModel:
        """The variables with the names of their states."""
        return self  # type: ignore[return-value]

    def _at(self, p: str, t: int) -> tuple[Any, str]:
        """A network that has the prior of a variable in slice t, and its name there."""
        return self, p

    def _moments(self, p: str, t: int, given: Weights) -> tuple[float, float]:
        """Mean and standard deviation of a number."""
        if not isinstance(given, str) or given != "prior":
            raise NetworkError(f"{p!r} is a number: weights must be 'prior', not {shown(given)}")
        net, name = self._at(p, t)
        with net.compile("cpu") as tree:
            posterior = tree.posterior(name)
        return float(posterior.mean), float(posterior.sd)

    def _weights(self, p: str, given: Weights, t: int = 0) -> Floats:
        """Weights of the states of a variable, with sum 1."""
        model = self._model()
        if isinstance(given, str):
            if choice("weights", given, ("prior", "uniform")) == "uniform":
                return np.full(len(model.states(p)), 1 / len(model.states(p)))
            net, name = self._at(p, t)
            net = getattr(net, "discrete", net)
            if not net.parents(name):
                return np.asarray(net.cpt(name))
            with net.prune(name).compile("cpu") as tree:
                return np.asarray(tree.posterior(name), np.float64)
        weights = numbers_by_state(model, model.index(p), given, "weights")
        if not (np.isfinite(weights).all() and weights.min() >= 0 and weights.sum() > 0):
            raise NetworkError(f"weights of {p!r} must be finite numbers of at least 0, not all 0; got {shown(given)}")
        return np.asarray(weights / weights.sum(), np.float64)


@check_keywords()
class EditableOverTime(Editable):
    """A template of slices, and copies of it with one change each."""

    def add(
        self, variable: str, states: Sequence[str] | type[float], parents: Sequence[Parent] = (),
        cpt: CptLike | Gaussian | None = None, *, start: Any = None, static: bool = False,
    ) -> Self:  # fmt: skip
        """Return this network with one more variable, the last; see `BayesianNetwork.add`.

        Parameters
        ----------
        variable, states, parents, cpt
            See `BayesianNetwork.add`; a parent may be a pair such as ``("rain", 1)``.
        start : optional
            The CPT or density of the first slice, or of each of the first m slices, without the parents that do not
            exist there. Needed if `cpt` is given and a parent is earlier.
        static : bool
            Whether the variable exists once, for all slices.
        """
        parts = self._with_node(variable, states, parents, cpt)
        if static:
            parts.static.add(variable)
        if start is not None:
            parts.start[variable] = [start] if parts.lag(variable) <= 1 else start
        return self._changed(parts)

    def replace(
        self,
        *,
        cpt: Mapping[str, Any] | None = None,
        start: Mapping[str, Any] | None = None,
        states: Mapping[str, Mapping[str, str] | Sequence[str]] | None = None,
        parents: Mapping[str, Sequence[Any]] | None = None,
        rename: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> Self:
        """Return this network with some changes; see `BayesianNetwork.replace`.

        Parameters
        ----------
        cpt, states, parents, rename, name
            See `BayesianNetwork.replace`; parents may be pairs such as ``("rain", 1)``.
        start : mapping, optional
            Variable to its CPT or density in the first slice, or to those of each of the first m slices.
        """
        return self._replaced(cpt, states, parents, rename, name, start)


def _pairs(parts: Parts, v: str, given: Any) -> list[Pair]:
    """Parents that are declared, as pairs."""
    listed = several(given)
    if listed is None:
        what = f"the string {given!r}" if isinstance(given, str) else shown(given)
        raise NetworkError(f"variable {v!r}: its parents must be a sequence of names, not {what}")
    pairs = [p if isinstance(p, tuple) and len(p) == 2 else (p, 0) for p in listed]
    for p, lag in pairs:
        if p not in parts.states:
            near = closest(str(p), parts.states)
            raise NetworkError(f"variable {v!r} has the parent {p!r}, which is not declared{near}")
        _check_no_utility(parts, v, p)
        whole_number("the lag of a parent", lag, 0)
    return [(str(p), int(lag)) for p, lag in pairs]


def _check_no_utility(parts: Parts, v: str, p: str) -> None:
    if parts.states[p] is UTILITY:
        raise NetworkError(f"{v!r} has the parent {p!r}, which is a utility; nothing can depend on a utility")


def _averaged(table: Any, axis: int, mix: Floats) -> Any:
    """A table, or the density of the same mean and variance, without an axis."""
    if not isinstance(table, Gaussian):
        return average_rows(np.moveaxis(np.asarray(table), axis, 0), mix)
    mean, sd = np.moveaxis(table.mean, axis, 0), np.moveaxis(table.sd, axis, 0)
    centre = average_rows(mean, mix)
    spread = average_rows(sd, mix) if (mean == centre).all() and (sd == sd[0]).all() else (
        np.sqrt(average_rows(sd**2 + (mean - centre) ** 2, mix))
    )  # fmt: skip
    slopes = {p: average_rows(np.moveaxis(c, axis, 0), mix) for p, c in table.coefficients.items()}
    return Gaussian(centre, slopes, spread)


def _shown(p: str, lag: int) -> str:
    return repr((p, lag)) if lag else repr(p)


@check_keywords()
class EditableModel(Editable, DescribedModel):
    """A directed model with CPTs, and copies of it with one change each; the base of `BayesianNetwork`."""

    _cpts: tuple[Floats, ...]
    _noisy: dict[str, NoisyMax]

    def _parts(self) -> Parts:
        parts = Parts(self)
        parts.tables = {**dict(zip(self._variables, self._cpts, strict=True)), **self._noisy}
        return parts

    # Rows and states ------------------------------------------------------------------------------------------

    def replace_row(
        self, variable: str | int, given: Mapping[str, str | int], row: Sequence[float] | Mapping[str, float]
    ) -> Self:
        """Return this network with another row of a CPT.

        Parameters
        ----------
        variable : str or int
            Name or number.
        given : mapping of str to str
            States of the parents. Where parents are left out, all rows that match are replaced.
        row : sequence or mapping of float
            The probabilities of all states, in order or by name.

        Raises
        ------
        UnknownVariable, UnknownState
            If there is no such variable or state.
        NetworkError
            If `given` names a variable that is no parent, or the row is wrong.

        Examples
        --------
        >>> import jtgpu
        >>> net = jtgpu.network("smoke->lung", "{yes|no}")
        >>> net.replace_row("lung", {"smoke": "no"}, [0.01, 0.99]).cpt("lung")[{"smoke": "no"}]
        array([0.01, 0.99])
        """
        v = self.index(variable)
        name, changed = self._variables[v], self._parts()
        at: list[Any] = [slice(None)] * len(self._parents[v])
        for parent, state in mapping("given", given).items():
            p = self.index(parent)
            if p not in self._parents[v]:
                raise NetworkError(f"{self._variables[p]!r} is no parent of {name!r}; its parents: {self.parents(v)}")
            at[self._parents[v].index(p)] = self.state_position(p, state)
        table = self._cpts[v].copy()
        table[tuple(at)] = numbers_by_state(self, v, row, "row")
        changed.tables[name] = table
        changed.changed.add(name)
        return self._changed(changed)

    def add_state(self, variable: str | int, state: str) -> Self:
        """Return this network with one more state of a variable, the last.

        It has probability 0, and the rows of the children for it are uniform: give them by `replace_row`.

        Raises
        ------
        UnknownVariable
            If there is no such variable.
        NetworkError
            If there is this state.
        """
        v = self.index(variable)
        name, more = self._variables[v], self._parts()
        if state in self._states[v]:
            raise NetworkError(f"variable {name!r} has already a state {state!r}")
        more.states[name] = [*self._states[v], state]
        more.tables[name] = np.concatenate([self._cpts[v], np.zeros((*self._cpts[v].shape[:-1], 1))], axis=-1)
        for c in self._children[v]:
            table, axis, noisy = self._cpts[c], self._parents[c].index(v), self._noisy.get(self._variables[c])
            if noisy is not None and is_noisy(table):
                k = noisy.shape[-1]
                rows = np.vstack([noisy.effects[axis], np.full(k, 1 / k)])
                more.tables[self._variables[c]] = noisy.like([*noisy.effects[:axis], rows, *noisy.effects[axis + 1 :]])
                continue
            shape = [*table.shape]
            shape[axis] = 1
            more.tables[self._variables[c]] = np.concatenate([table, np.full(shape, 1 / shape[-1])], axis=axis)
        more.changed.update([name, *self.children(v)])
        return self._changed(more)

    def merge_states(
        self, variable: str | int, states: Sequence[str | int], name: str, *, weights: Weights = "prior"
    ) -> Self:
        """Return this network with several states of a variable as one, in the place of the first of them.

        Their probabilities are added, and the rows of the children are averaged.

        Parameters
        ----------
        variable : str or int
            Name or number.
        states : sequence of str or int
            Names or numbers of at least two states.
        name : str
            The name of the new state.
        weights : {"prior", "uniform"} or array_like or mapping
            Weights of all states of the variable, of which those of the merged states count; see `remove_arc`. States
            that all have weight 0 count equally.

        Raises
        ------
        UnknownVariable, UnknownState
            If there is no such variable or state.
        NetworkError
            If there are fewer than two states, another state has the name, or the weights do not fit.
        """
        v = self.index(variable)
        own, changed = self._variables[v], self._parts()
        merged = sorted({self.state_position(v, s) for s in states})
        if len(merged) < 2:
            raise NetworkError(f"merge_states of {own!r} needs at least two different states, got {shown(states)}")
        kept = [s for s in range(len(self._states[v])) if s not in merged[1:]]
        at = kept.index(merged[0])
        labels = [name if s == merged[0] else self._states[v][s] for s in kept]
        if labels.count(name) > 1:
            raise NetworkError(f"variable {own!r} has already a state {name!r}, which is not among the merged ones")
        changed.states[own] = labels
        table = self._cpts[v][..., kept]
        table[..., at] = self._cpts[v][..., merged].sum(axis=-1)
        changed.tables[own] = table
        mix = self._weights(own, weights)[merged] if self._children[v] else np.ones(len(merged))
        mix = mix / mix.sum() if mix.sum() > 0 else np.full(len(merged), 1 / len(merged))
        for c in self._children[v]:
            noisy, axis = self._noisy.get(self._variables[c]), self._parents[c].index(v)
            rows = np.moveaxis(self._cpts[c], axis, 0) if noisy is None else noisy.effects[axis]
            left = rows[kept]
            left[at] = average_rows(rows[merged], mix)
            changed.tables[self._variables[c]] = np.moveaxis(left, 0, axis) if noisy is None else (
                noisy.like([*noisy.effects[:axis], left, *noisy.effects[axis + 1 :]])
            )  # fmt: skip
        changed.changed.update([own, *self.children(v)])
        return self._changed(changed)
