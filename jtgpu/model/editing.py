"""`EditableModel`: networks with one change, whose CPTs keep what is known; base of `BayesianNetwork`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NetworkError, shown
from ..util.arguments import check_keywords, choice, mapping
from ..util.arrays import Floats
from .cpts import average_rows, checked_shape, numbers_by_state, renamed_attributes
from .described import DescribedModel
from .discrete import checked_states

if TYPE_CHECKING:
    from typing import Literal, Self

    from numpy.typing import ArrayLike

    from .cpt import CptLike
    from .noisy import NoisyMax

    Weights = Literal["prior", "uniform"] | ArrayLike | Mapping[str, float]


@check_keywords()
class EditableModel(DescribedModel):
    """A directed model with CPTs, and copies of it with one change each."""

    _cpts: tuple[Floats, ...]
    _noisy: dict[str, NoisyMax]

    # Variables ------------------------------------------------------------------------------------------------

    def add(
        self, variable: str, states: Sequence[str], parents: Sequence[str] = (), cpt: CptLike | None = None
    ) -> Self:
        """Return this network with one more variable, the last.

        Parameters
        ----------
        variable : str
            Its name.
        states : sequence of str
            Names of its states.
        parents : sequence of str
            Its parents, in the order of the axes of its CPT.
        cpt : array_like or mapping, optional
            Its CPT, as for the class. Default: all rows are uniform.

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
        if variable in self:
            raise NetworkError(f"there is already a variable {variable!r}; change it by replace(), or remove it first")
        if cpt is None:
            n = len(checked_states(variable, states))
            shape = [*(len(self._states[p]) for p in self._checked_parents(variable, parents)), n]
            cpt = np.full(checked_shape(variable, shape), 1 / n)
        more = _Parts(self)
        more.states[variable], more.parents[variable], more.cpts[variable] = states, parents, cpt
        return self._changed(more)

    def remove(self, variable: str | int, *, weights: Weights = "prior") -> Self:
        """Return this network without a variable. Its arcs go, as by `remove_arc` for each of its children.

        The joint distribution of the other variables is the same if the variable is a leaf, or a root with one child.

        Parameters
        ----------
        variable : str or int
            Name or number.
        weights : {"prior", "uniform"} or array_like or mapping
            Weights of the variable's states in the rows of its children; see `remove_arc`.

        Raises
        ------
        UnknownVariable
            If there is no such variable.
        NetworkError
            If the weights do not fit.
        """
        v = self.index(variable)
        name, less = self._variables[v], _Parts(self)
        if self._children[v]:
            mix = self._weights(v, weights)
            for child in self._children[v]:
                self._cut(less, v, child, mix)
        for part in (less.states, less.parents, less.cpts):
            del part[name]
        return self._changed(less, [self._variables[c] for c in self._children[v]])

    def rename(self, old: str | int, new: str) -> Self:
        """Return this network with another name of one variable; `replace` renames several, and states.

        Raises
        ------
        UnknownVariable
            If there is no such variable.
        NetworkError
            If the new name is taken.
        """
        made: Self = self.replace(rename={self._variables[self.index(old)]: new})  # type: ignore[attr-defined]
        return made

    # Arcs -----------------------------------------------------------------------------------------------------

    def add_arc(self, parent: str | int, child: str | int, cpt: CptLike | None = None) -> Self:
        """Return this network with one more arc; the parent becomes the child's last.

        Parameters
        ----------
        parent, child : str or int
            Names or numbers.
        cpt : array_like or mapping, optional
            The child's new CPT. Default: its rows, repeated for each state of the new parent, so that the joint
            distribution is the same.

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
        p, c = self.index(parent), self.index(child)
        name, more = self._variables[c], _Parts(self)
        if p in self._parents[c]:
            raise NetworkError(f"there is already an arc {self._variables[p]!r} -> {name!r}")
        more.parents[name] = [*more.parents[name], self._variables[p]]
        if cpt is None:
            table = self._cpts[c]
            shape = checked_shape(name, [*table.shape[:-1], len(self._states[p]), table.shape[-1]])
            cpt = np.broadcast_to(table[..., None, :], shape)
        more.cpts[name] = cpt
        return self._changed(more, [name])

    def remove_arc(self, parent: str | int, child: str | int, *, weights: Weights = "prior") -> Self:
        """Return this network without an arc; the child's rows are averaged over the states of the parent.

        Parameters
        ----------
        parent, child : str or int
            Names or numbers.
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
        """
        p, c = self.index(parent), self.index(child)
        name, less = self._variables[c], _Parts(self)
        if p not in self._parents[c]:
            turned = f"; there is one from {name!r}" if c in self._parents[p] else ""
            raise NetworkError(f"there is no arc {self._variables[p]!r} -> {name!r}{turned}")
        self._cut(less, p, c, self._weights(p, weights))
        return self._changed(less, [name])

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
        name, changed = self._variables[v], _Parts(self)
        at: list[Any] = [slice(None)] * len(self._parents[v])
        for parent, state in mapping("given", given).items():
            p = self.index(parent)
            if p not in self._parents[v]:
                raise NetworkError(f"{self._variables[p]!r} is no parent of {name!r}; its parents: {self.parents(v)}")
            at[self._parents[v].index(p)] = self.state_position(p, state)
        table = self._cpts[v].copy()
        table[tuple(at)] = numbers_by_state(self, v, row, "row")
        changed.cpts[name] = table
        return self._changed(changed, [name])

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
        name, more = self._variables[v], _Parts(self)
        if state in self._states[v]:
            raise NetworkError(f"variable {name!r} has already a state {state!r}")
        more.states[name] = [*self._states[v], state]
        more.cpts[name] = np.concatenate([self._cpts[v], np.zeros((*self._cpts[v].shape[:-1], 1))], axis=-1)
        for c in self._children[v]:
            table, axis = self._cpts[c], self._parents[c].index(v)
            shape = [*table.shape]
            shape[axis] = 1
            more.cpts[self._variables[c]] = np.concatenate([table, np.full(shape, 1 / shape[-1])], axis=axis)
        return self._changed(more, [name, *self.children(v)])

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
        own, changed = self._variables[v], _Parts(self)
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
        changed.cpts[own] = table
        mix = self._weights(v, weights)[merged] if self._children[v] else np.ones(len(merged))
        mix = mix / mix.sum() if mix.sum() > 0 else np.full(len(merged), 1 / len(merged))
        for c in self._children[v]:
            rows = np.moveaxis(self._cpts[c], self._parents[c].index(v), 0)
            left = rows[kept]
            left[at] = average_rows(rows[merged], mix)
            changed.cpts[self._variables[c]] = np.moveaxis(left, 0, self._parents[c].index(v))
        return self._changed(changed, [own, *self.children(v)])

    # Helpers --------------------------------------------------------------------------------------------------

    def _changed(self, parts: _Parts, changed: Sequence[str] = ()) -> Self:
        """A network of these parts; `changed` names the variables whose old CPTs no longer hold."""
        make: Any = type(self)
        attributes = renamed_attributes(self._attributes, {v: v for v in parts.states}, changed)
        made: Self = make(
            parts.states, parts.parents, parts.cpts, name=self._name, attributes=attributes, row_report=self._row_report
        )
        return made

    def _cut(self, parts: _Parts, parent: int, child: int, weights: Floats) -> None:
        name = self._variables[child]
        rows = np.moveaxis(self._cpts[child], self._parents[child].index(parent), 0)
        parts.cpts[name] = average_rows(rows, weights)
        parts.parents[name] = [p for p in self.parents(child) if p != self._variables[parent]]

    def _weights(self, v: int, given: Weights) -> Floats:
        """Weights of the states of a variable, with sum 1."""
        n = len(self._states[v])
        if isinstance(given, str):
            if choice("weights", given, ("prior", "uniform")) == "uniform":
                return np.full(n, 1 / n)
            if not self._parents[v]:
                return self._cpts[v]
            part = self.prune(v)  # type: ignore[attr-defined]
            with part.compile("cpu") as tree:
                return np.asarray(tree.posterior(self._variables[v]), np.float64)
        weights = numbers_by_state(self, v, given, "weights")
        if not (np.isfinite(weights).all() and weights.min() >= 0 and weights.sum() > 0):
            raise NetworkError(
                f"weights of {self._variables[v]!r} must be finite numbers of at least 0, not all 0; got {shown(given)}"
            )
        return np.asarray(weights / weights.sum(), np.float64)


class _Parts:
    """The arguments of the class, to be changed."""

    def __init__(self, model: EditableModel):
        names = model.variables
        self.states: dict[str, Sequence[str]] = {v: model.states(v) for v in names}
        self.parents: dict[str, Sequence[str]] = {v: model.parents(v) for v in names}
        self.cpts: dict[str, CptLike] = {**dict(zip(names, model._cpts, strict=True)), **model._noisy}
