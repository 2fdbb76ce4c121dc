"""Likelihoods and joint posteriors of several variables: from names to the cells of a plan's sets, and back.

A plan that keeps a set of variables together has a factor of ones over it, and a number for it behind those of the
variables: the *set variable* (`jtgpu.plans.program.Program`). A likelihood of the set is one of this number; so is a
target. A smaller set is part of a larger one: its weights are repeated, and its joint posterior is a sum.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np

from ..columns.arrow import number_array
from ..errors import EvidenceError, ImpossibleEvidence, shown
from ..util.arguments import described, several
from ..util.arrays import Floats
from ..util.equality import ByValue

if TYPE_CHECKING:
    from ..model.discrete import DiscreteModel
    from ..plans.plan import Plan

T = TypeVar("T")
Scope = tuple[int, ...]  # variables, in the order of a table's axes


def scopes_of(model: DiscreteModel, given: object, what: str) -> list[Scope]:
    """The sets that an argument lists, each as numbers in the user's order."""
    listed = several(given)
    if listed is None or any(isinstance(one, (str, int)) or several(one) is None for one in listed):
        raise EvidenceError(
            f"{what} must be a list of sets of variables such as [('lung', 'bronc')], not {described(given)}"
        )
    return [scope_of_set(model, tuple(several(one) or ()), what) for one in listed]


def scope_of_set(model: DiscreteModel, names: tuple[Hashable, ...], what: str) -> Scope:
    """The numbers of the variables of a set."""
    scope = tuple(model.index(v) for v in names)  # type: ignore[arg-type]
    if not scope:
        raise EvidenceError(f"{what} has a set without variables")
    if len(set(scope)) < len(scope):
        raise EvidenceError(f"{what} has the set {shown(names)}, which names a variable twice")
    return scope


def single(likelihood: object) -> Any:
    """The likelihoods of single variables."""
    if not isinstance(likelihood, Mapping) or not any(isinstance(v, tuple) for v in likelihood):
        return likelihood
    return {v: w for v, w in likelihood.items() if not isinstance(v, tuple)}


def of_sets(model: DiscreteModel, likelihood: object) -> Iterator[tuple[Scope, Any]]:
    """The likelihoods of sets, and their variables."""
    if isinstance(likelihood, Mapping):
        for names, value in likelihood.items():
            if isinstance(names, tuple):
                yield scope_of_set(model, names, "likelihood"), value


class Sets:
    """The sets that a plan keeps together."""

    def __init__(self, model: DiscreteModel, plan: Plan):
        self.model, self.scopes, self.first = model, plan.sets, len(model)

    def find(self, scope: Iterable[int]) -> int | None:
        """The number of the smallest set that contains these variables; None if there is none."""
        wanted = set(scope)
        sizes = [(self._size(s), i) for i, s in enumerate(self.scopes) if wanted <= set(s)]
        return self.first + min(sizes)[1] if sizes else None

    def scope(self, v: int) -> Scope:
        """The variables of a set, in the order of its cells."""
        return self.scopes[v - self.first]

    def size(self, v: int) -> int:
        """Cells of a set."""
        return self._size(self.scope(v))

    def _size(self, scope: Iterable[int]) -> int:
        return math.prod(int(self.model.cardinality[v]) for v in scope)

    def number(self, scope: Scope, what: str) -> int:
        """The number of a set that contains these variables."""
        v = self.find(scope)
        if v is None:
            names = tuple(self.model.variables[u] for u in scope)
            raise EvidenceError(
                f"{what} of {', '.join(map(repr, names))}: this tree does not keep these variables together; compile "
                f"with net.compile(together=[{names!r}])"
            )
        return v

    def names(self, v: int) -> str:
        """The variables of a set, for messages."""
        return ", ".join(self.model.variables[u] for u in self.scope(v))

    def cells(self, v: int, scope: Scope, table: Floats) -> Floats:
        """Weights (..., extents of `scope`) as weights (..., cells) of set v."""
        own = self.scope(v)
        n = table.ndim - len(scope)
        if own == scope:
            return np.ascontiguousarray(table).reshape(*table.shape[:n], -1)
        present = [u for u in own if u in scope]
        table = np.transpose(table, [*range(n), *(n + scope.index(u) for u in present)])
        extents = [int(self.model.cardinality[u]) for u in own]
        table = table.reshape(*table.shape[:n], *(c if u in scope else 1 for u, c in zip(own, extents, strict=True)))
        if len(present) < len(own):
            table = np.broadcast_to(table, (*table.shape[:n], *extents))
        return np.ascontiguousarray(table).reshape(*table.shape[:n], -1)

    def joint(self, v: int, scope: Scope, cells: Floats) -> Floats:
        """Probabilities (..., cells) of set v as the joint distribution (..., extents) of `scope`."""
        own, n = self.scope(v), cells.ndim - 1
        table = cells.reshape(*cells.shape[:n], *(int(self.model.cardinality[u]) for u in own))
        if own == scope:
            return table.copy()
        table = table.sum(axis=tuple(n + i for i, u in enumerate(own) if u not in scope))
        left = [u for u in own if u in scope]
        return np.ascontiguousarray(np.transpose(table, [*range(n), *(n + left.index(u) for u in scope)]))

    def split(
        self, posterior: Floats, targets: Iterable[int] | None, scopes: Sequence[Scope]
    ) -> tuple[Floats, dict[Scope, Floats]]:
        """The posteriors (n, columns) of variables, and the joint posteriors of sets, whose cells are behind them."""
        if not scopes:
            return posterior, {}
        at = int(sum(self.model.cardinality[v] for v in (range(self.first) if targets is None else targets)))
        numbers = [self.number(scope, "joint posterior") for scope in scopes]
        plain, cells = np.ascontiguousarray(posterior[:, :at]), {}
        for v in dict.fromkeys(numbers):
            cells[v] = posterior[:, at : at + self.size(v)]
            at += self.size(v)
        return plain, {scope: self.joint(v, scope, cells[v]) for scope, v in zip(scopes, numbers, strict=True)}

    def add(self, given: dict[int, Floats], likelihood: Any, n: int | None = None) -> None:
        """Multiply the likelihoods of sets into `given`, of one case or of n cases."""
        for scope, value in of_sets(self.model, likelihood):
            v = self.number(scope, "likelihood")
            cells = self.cells(v, scope, set_weights(self.model, scope, value, n))
            with np.errstate(over="ignore"):
                product = given[v] * cells if v in given else cells
            if not np.isfinite(product).all():
                raise EvidenceError(f"the product of the likelihoods of {self.names(v)} is too large for a number")
            given[v] = product


def set_weights(model: DiscreteModel, scope: Scope, value: object, n: int | None = None) -> Floats:
    """Weights of the configurations of several variables, of one case or of n cases (n, extents)."""
    what = f"the likelihood of {', '.join(repr(model.variables[v]) for v in scope)}"
    shape = tuple(int(model.cardinality[v]) for v in scope)
    table = number_array(value, what, copy=False, states={model.variables[v]: model.states(v) for v in scope})
    if table.shape != shape and (n is None or table.shape != (n, *shape)):
        more = "" if n is None else f" or {(n, *shape)}"
        raise EvidenceError(f"{what} has shape {table.shape}, expected {shape}{more}: an axis for each variable")
    if not np.isfinite(table).all() or (table < 0).any():
        raise EvidenceError(f"{what} must have finite weights >= 0")
    if n is None:
        if not table.any():
            raise ImpossibleEvidence(f"{what} is zero in every configuration")
        return table
    return table if table.ndim > len(shape) else np.asarray(np.broadcast_to(table, (n, *shape)))


class Joints(ByValue, Mapping[tuple[str, ...], T], Generic[T]):
    """Joint posteriors of sets of variables, by the names of the variables in any order.

    ``joint["lung", "bronc"]`` is the joint posterior of the two: the axes are in the order of the key. Of one case it
    is a `Joint`, of a table of B cases an array of float64 of shape (B, states of the first, states of the second ...).
    """

    def __init__(self, model: DiscreteModel, tables: Mapping[Scope, Any], make: Any = None, turn: Any = np.transpose):
        self._model, self._tables, self._make, self._turn = model, dict(tables), make, turn

    def __getitem__(self, variables: Sequence[str | int]) -> T:
        names = several(variables)
        if isinstance(variables, str) or names is None:
            names = [variables]
        scope = tuple(self._model.index(v) for v in names)
        for own, table in self._tables.items():
            if own == scope or set(own) == set(scope):
                n = len(table.shape) - len(own)
                turned = self._turn(table, [*range(n), *(n + own.index(v) for v in scope)])
                made: Any = turned if self._make is None else self._make(scope, turned)
                return cast(T, made)
        raise KeyError(f"{shown(tuple(names))} is not among the joints of this query; add it to joints=")

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return (tuple(self._model.variables[v] for v in scope) for scope in self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        return f"Joints of {', '.join(map(str, self))}" if self else "Joints of nothing"

    @property
    def tables(self) -> dict[Scope, Any]:
        """The arrays by number of their variables."""
        return self._tables
