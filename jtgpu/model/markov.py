"""`MarkovNetwork`: a model of plain factors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, NetworkError
from ..util.arguments import check_keywords, described, mapping, several
from ..util.text_table import counted
from .cpt import with_labels
from .cpts import check_numbers, checked_shape, freeze, new_names, new_states
from .discrete import MAX_AXES, DiscreteModel, Factor
from .network_text import summary

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def with_tables(net: DiscreteModel, tables: Iterable[ArrayLike]) -> DiscreteModel:
    """A model with other tables of its factors that are known to be valid."""
    made = copy(net)
    made._factors = tuple(Factor(f.scope, freeze(table)) for f, table in zip(net.factors, tables, strict=True))
    return made


@check_keywords()
class MarkovNetwork(DiscreteModel):
    """Variables and plain factors. The joint distribution is their product divided by its sum.

    Parameters
    ----------
    states : mapping of str to sequences of str
        The variables in order, with the names of their states.
    factors : iterable of (scope, table)
        ``scope`` has a variable, by name or number, for each axis of ``table``; it may be empty.
    name : str, optional

    Raises
    ------
    NetworkError
        If the shape of a table does not match its scope, a scope repeats a variable, or a number is negative or not
        finite.

    Examples
    --------
    >>> import jtgpu
    >>> states = {"a": ["no", "yes"], "b": ["no", "yes"]}
    >>> net = jtgpu.MarkovNetwork(states, [(("a", "b"), [[4.0, 1.0], [1.0, 4.0]])])
    >>> net.compile("cpu").posterior("a", {"b": "yes"})["yes"]
    0.8
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
        for k, factor in enumerate(factors):
            pair: Any = several(factor)
            if pair is None or len(pair) != 2:
                raise ArgumentError(f"factor {k} must be a pair of variables and table, not {described(factor)}")
            scope, table = pair
            ids = tuple(self.index(v) for v in scope)
            if len(ids) > MAX_AXES:
                raise NetworkError(f"factor {k} has {len(ids)} variables; a table can have {MAX_AXES} (NumPy)")
            shape = tuple(int(self._cardinality[i]) for i in ids)
            try:
                frozen = freeze(with_labels(self, ids, table, f"factor {k}"))
            except (TypeError, ValueError) as error:
                raise NetworkError(f"factor {k}: its table must be an array of numbers ({error})") from None
            if len(set(ids)) != len(ids):
                raise NetworkError(f"factor {k}: a variable is repeated in its scope {tuple(scope)}")
            if frozen.shape != shape:
                raise NetworkError(f"factor {k}: its table has shape {frozen.shape}, expected {shape}")
            check_numbers(f"factor {k}", frozen)
            made.append(Factor(ids, frozen))
        self._factors = tuple(made)

    def replace(
        self, *, states: Mapping[str, Mapping[str, str] | Sequence[str]] | None = None,
        rename: Mapping[str, str] | None = None, name: str | None = None,
    ) -> MarkovNetwork:  # fmt: skip
        """Return this network with other names of states, of variables, or of itself; the factors stay.

        Parameters
        ----------
        states : mapping, optional
            Variable to a mapping from old to new names of states, or to the sequence of all names.
        rename : mapping, optional
            Old to new names of variables.
        name : str, optional
            The name of the new network.

        Raises
        ------
        UnknownVariable, UnknownState
            If the network has no such variable or state.
        NetworkError
            If two variables would have the same name, or a variable another number of states.
        """
        labels, new = (
            {self._variables[self.index(v)]: value for v, value in mapping(what, given).items()}
            for what, given in (("states", states), ("rename", rename))
        )
        names = new_names(self._variables, new)
        made = {names[v]: new_states(v, self.states(v), labels[v]) if v in labels else self.states(v) for v in self}
        net = MarkovNetwork(made, self._factors, name=self._name if name is None else name)
        return net if states or rename else net.with_codes(self.state_codes)

    def rename(self, old: str | int, new: str) -> MarkovNetwork:
        """Return this network with another name of one variable; `replace` renames several, and states."""
        return self.replace(rename={self._variables[self.index(old)]: new})

    def add(self, variable: str, states: Sequence[str]) -> MarkovNetwork:
        """Return this network with one more variable, the last, which is in no factor.

        Raises
        ------
        NetworkError
            If there is a variable of this name.

        Examples
        --------
        >>> import jtgpu
        >>> net = jtgpu.MarkovNetwork({"a": ["no", "yes"]}, [(("a",), [1.0, 3.0])])
        >>> net = net.add("b", ["no", "yes"]).add_factor(["a", "b"], [[4.0, 1.0], [1.0, 4.0]])
        >>> round(net.compile("cpu").posterior("b")["yes"], 6), net.remove("b").factors[-1].table.tolist()
        (0.65, [5.0, 5.0])
        """
        if variable in self._variables:
            raise NetworkError(f"there is already a variable {variable!r}; remove it first")
        made = {v: self.states(v) for v in self} | {variable: states}
        return MarkovNetwork(made, self._factors, name=self._name).with_codes(self.state_codes)

    def remove(self, variable: str | int) -> MarkovNetwork:
        """Return this network without a variable, over whose states its factors are summed.

        The distribution of the other variables is the same; one factor of all variables that shared a factor with it
        replaces these factors.

        Raises
        ------
        NetworkError
            If the sums leave the range of float64.
        TableTooLarge
            If the new factor would have more than 2^28 entries.
        """
        v = self.index(variable)
        own = [f for f in self._factors if v in f.scope]
        scope = sorted({u for f in own for u in f.scope})
        rest = [u for u in scope if u != v]
        made = {u: self.states(u) for k, u in enumerate(self._variables) if k != v}
        kept: list[tuple[Sequence[Any], Any]] = [(f.scope, f.table) for f in self._factors if v not in f.scope]
        if own:
            checked_shape(self._variables[v], [int(self._cardinality[u]) for u in scope])
            table, possible = np.ones([1] * len(scope)), np.ones([1] * len(scope), np.bool_)
            for f in own:
                shape = [int(self._cardinality[u]) if u in f.scope else 1 for u in scope]
                part = np.transpose(f.table, np.argsort(f.scope)).reshape(shape)
                table, possible = table * part, possible & (part > 0)
            if not np.isfinite(table).all() or (possible & (table == 0)).any():
                raise NetworkError(f"products of the factors of {self._variables[v]!r} leave the range of float64")
            kept.append((rest, table.sum(axis=scope.index(v))))
        factors = [([self._variables[u] for u in ids], table) for ids, table in kept]
        net = MarkovNetwork(made, factors, name=self._name)
        codes = self.state_codes
        return net.with_codes({u: c for u, c in codes.items() if u in made} if isinstance(codes, Mapping) else codes)

    def add_factor(self, scope: Sequence[str | int], table: ArrayLike) -> MarkovNetwork:
        """Return this network with one more factor, the last; see the class."""
        return self._with_factors([*self._factors, (scope, table)])

    def _with_factors(self, factors: Iterable[tuple[Sequence[str | int], Any]]) -> MarkovNetwork:
        given = ((tuple(self.index(v) for v in scope), table) for scope, table in factors)
        states = {v: self.states(v) for v in self}
        return MarkovNetwork(states, given, name=self._name).with_codes(self.state_codes)

    def remove_factor(self, scope: Sequence[str | int]) -> MarkovNetwork:
        """Return this network without the factors of exactly these variables, in any order.

        Raises
        ------
        NetworkError
            If there is none.
        """
        ids = sorted(self.index(v) for v in scope)
        kept = [f for f in self._factors if sorted(f.scope) != ids]
        if len(kept) == len(self._factors):
            raise NetworkError(f"there is no factor of {', '.join(self._variables[v] for v in ids) or 'no variables'}")
        return self._with_factors(kept)

    @classmethod
    def of_checked(
        cls, states: Mapping[str, Sequence[str]], factors: Iterable[Factor], *, name: str = ""
    ) -> MarkovNetwork:
        """Create a model from factors that are known to be valid, without checking them.

        This is for readers of files with many small factors, where the checks would take most of the time. Scopes are
        tuples of numbers; tables are read-only, C-contiguous float64 of the right shapes, finite and not negative.
        """
        made = cls(states, (), name=name)
        made._factors = tuple(factors)
        return made

    def __repr__(self) -> str:
        sizes = f"{counted(len(self), 'variable')}, {counted(len(self._factors), 'factor')}"
        return f"MarkovNetwork({self._name!r}, {sizes})"

    def __str__(self) -> str:
        """The variables with their states, as an aligned table."""
        sizes = counted(len(self), "variable"), counted(len(self._factors), "factor")
        return summary("Markov network", self._name, sizes, self._variables, self._states, None)

    def __eq__(self, other: object) -> bool:
        """Whether names, states and factors are equal, bit for bit."""
        if not isinstance(other, MarkovNetwork):
            return NotImplemented
        return (
            self._variables == other._variables
            and self._states == other._states
            and len(self._factors) == len(other._factors)
            and all(
                a.scope == b.scope and np.array_equal(a.table, b.table)
                for a, b in zip(self._factors, other._factors, strict=True)
            )
        )

    def __hash__(self) -> int:
        return hash((self._variables, self._states, tuple(f.scope for f in self._factors)))
