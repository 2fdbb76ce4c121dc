"""Constraints on arcs, checked: forbidden and required arcs, tiers, limits on the number of parents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from ...errors import ArgumentError, UnknownVariable, closest
from ...model.directed import find_cycle
from ...util.arguments import described, several, whole_number
from ...util.arrays import Bools, Floats, Ints
from ...util.elementary import log, logs

Arc = tuple[str, str]
MAX_PARENTS = 4  # by default


@dataclass(frozen=True, eq=False)
class ArcLimits:
    """Limits of the parents of each variable."""

    # forbidden, required: (n, n) ndarray of bool: [u, v]: the arc from u to v
    forbidden: Bools
    required: Bools
    max_parents: Ints  # (n,)

    @property
    def is_empty(self) -> bool:
        """Whether no arc is forbidden or required."""
        return not (self.forbidden.any() or self.required.any())

    def requiring(self, arcs: Bools) -> ArcLimits:
        """The same with more required arcs, [parent, child]."""
        return replace(self, required=self.required | arcs)

    def possible(self, v: int, members: Ints) -> Bools:
        """Which parent sets of v are possible."""
        # members: (M, k) members of the sets, -1 where a set has fewer; not squeezed
        present = members >= 0
        is_possible = np.asarray(present.sum(axis=1) <= self.max_parents[v])
        if self.is_empty:
            return is_possible
        is_possible &= ~(self.forbidden[members, v] & present).any(axis=1)
        is_possible &= (self.required[members, v] & present).sum(axis=1) == self.required[:, v].sum()
        return is_possible

    def first_order(self, preferred: Ints | None = None) -> Ints:
        """An order of the variables in which required arcs point forward."""
        # preferred: (n,) the first possible variable of this order comes next. Default: the variables in order.
        n = len(self.required)
        preferred = np.arange(n) if preferred is None else preferred
        order: list[int] = []
        left = np.ones(n, np.bool_)
        while len(order) < n:
            is_ready = left & ~self.required[left].any(axis=0)
            v = int(preferred[np.argmax(is_ready[preferred])])
            order.append(v)
            left[v] = False
        return np.array(order, np.int64)


def make_constraints(
    names: Sequence[str], max_parents: int | Mapping[str, int], *, forbidden: Iterable[Arc] = (),
    required: Iterable[Arc] = (), tiers: Iterable[Iterable[str]] | None = None, within_tiers: bool = True,
    left_out: frozenset[str] = frozenset(),
) -> ArcLimits:  # fmt: skip
    """Check constraints and convert them to matrices."""
    # max_parents: int or mapping of str to int: Variables that a mapping does not name have at most 4 parents
    # forbidden, required: iterable of (parent, child)
    # tiers: iterable of iterables of str: No arc points from a later tier to an earlier one. Variables in no tier are
    #     free.
    # within_tiers: Whether arcs between variables of the same tier are possible
    # left_out: Names of columns that are no variables: only required arcs may not have them
    if left_out:
        for arc in _arcs(required, "required"):
            if gone := left_out & {*arc}:
                raise ArgumentError(f"the required arc {arc[0]!r} -> {arc[1]!r} has {min(gone)!r}, which is left out")
        forbidden = [arc for arc in _arcs(forbidden, "forbidden") if not left_out & {*arc}]
        if isinstance(max_parents, Mapping):
            max_parents = {v: most for v, most in max_parents.items() if v not in left_out}
        if tiers is not None and all(several(tier) is not None for tier in tiers):
            tiers = [[v for v in tier if v not in left_out] for tier in tiers]
    names = list(names)
    n = len(names)
    number = {name: i for i, name in enumerate(names)}
    no, yes = np.zeros((n, n), np.bool_), np.zeros((n, n), np.bool_)
    for matrix, arcs, what in ((no, forbidden, "forbidden"), (yes, required, "required")):
        for arc in _arcs(arcs, what):
            u, v = (_number(x, number) for x in arc)
            if u == v:
                raise ArgumentError(f"{what} has the arc {arc[0]!r} -> {arc[1]!r} of a variable to itself")
            matrix[u, v] = True
    limits = _limits(max_parents, names, number)
    both = np.argwhere(no & yes)
    if len(both):
        raise ArgumentError(f"the arc {_arc(names, *both[0])} is both required and forbidden")
    if tiers is not None:
        excluded = _against_tiers(tiers, number, within_tiers)
        both = np.argwhere(excluded & yes)
        if len(both):
            where = "points to an earlier tier" if within_tiers else "points to the same tier or an earlier one"
            raise ArgumentError(f"the required arc {_arc(names, *both[0])} {where}")
        no |= excluded
    n_required = yes.sum(axis=0)
    if (n_required > limits).any():
        v = int(np.argmax(n_required > limits))
        raise ArgumentError(f"{names[v]!r} has {n_required[v]} required parents, more than max_parents={limits[v]}")
    cycle = find_cycle([np.flatnonzero(column).tolist() for column in yes.T], [np.flatnonzero(r).tolist() for r in yes])
    if cycle:
        raise ArgumentError(f"the required arcs form a cycle: {' -> '.join(repr(names[v]) for v in cycle)}")
    return ArcLimits(no, yes, limits)


def _arcs(arcs: Iterable[Any] | None, what: str) -> list[Arc]:
    listed = [] if arcs is None else several(arcs)
    pairs = None if listed is None else [several(arc) for arc in listed]
    if pairs is None or any(pair is None or len(pair) != 2 for pair in pairs):
        raise ArgumentError(f"{what} must be pairs (parent, child), not {described(arcs)}")
    return [(u, v) for u, v in cast("list[Any]", pairs)]


def _number(name: Any, number: Mapping[str, int]) -> int:
    v = number.get(name) if isinstance(name, str) else None
    if v is None:
        raise UnknownVariable(f"there is no variable {name!r}{closest(str(name), number)}")
    return v


def variable_number(names: Sequence[str], name: str | int) -> int:
    """Number of a variable."""
    if isinstance(name, (int, np.integer)) and not isinstance(name, bool) and 0 <= name < len(names):
        return int(name)
    if name in names:
        return list(names).index(str(name))
    raise UnknownVariable(f"there is no variable {name!r}{closest(str(name), names)}")


def _limits(max_parents: Any, names: list[str], number: Mapping[str, int]) -> Ints:
    limits = np.full(len(names), min(MAX_PARENTS, len(names) - 1), np.int64)
    given = max_parents if isinstance(max_parents, Mapping) else dict.fromkeys(names, max_parents)
    for name, limit in given.items():
        limits[_number(name, number)] = min(whole_number("max_parents", limit, 0), len(names) - 1)
    return limits


def _against_tiers(tiers: Iterable[Any], number: Mapping[str, int], within: bool) -> Bools:
    """[u, v]: whether u is in a later tier than v, or in the same one unless arcs within tiers are possible."""
    tier = np.full(len(number), -1, np.int64)
    listed = several(tiers)
    if listed is None or any(several(members) is None for members in listed):
        raise ArgumentError(f"tiers must be lists of variables, not {described(tiers)}")
    for i, members in enumerate(listed):
        for name in members:
            v = _number(name, number)
            if tier[v] >= 0:
                raise ArgumentError(f"{name!r} is in two tiers")
            tier[v] = i
    known = tier >= 0
    excluded = tier[:, None] > tier[None, :]
    if not within:
        excluded |= (tier[:, None] == tier[None, :]) & ~np.eye(len(tier), dtype=np.bool_)
    return np.asarray(excluded & known[:, None] & known[None, :])


def _arc(names: Sequence[str], u: int, v: int) -> str:
    return f"{names[u]!r} -> {names[v]!r}"


# Prior weights of parent sets, by name.

PRIORS = ("uniform", "fair", "order", "edge")


class StructurePrior:
    """Prior weights of parent sets; a graph's weight is their product, not normalised.

    ``"uniform"`` weighs all graphs alike. ``"fair"`` weighs a set of k parents by 1 / C(n - 1, k), so that each number
    of parents has the same total. ``("edge", p)`` multiplies p / (1 - p) for each arc, where p is a number or an (n, n)
    matrix [parent, child]. ``"order"`` weighs a graph by the number of orders of the variables that it allows.
    """

    # name: One of `PRIORS`

    def __init__(self, name: str, log_odds: Floats | None = None):
        self.name, self._log_odds = name, log_odds

    def log_weights(self, v: int, members: Ints, n: int) -> Floats:
        """ln weight of parent sets of v."""
        # v, n: The child, and the number of variables
        # members: (M, k) members of the sets, -1 where a set has fewer; not squeezed
        present = members >= 0
        if self.name == "fair":
            of_size = [-log(math.comb(n - 1, k)) for k in range(min(members.shape[1], n - 1) + 1)]
            return np.asarray(np.array(of_size)[present.sum(axis=1)], np.float64)
        if self._log_odds is not None:
            return np.asarray(np.where(present, self._log_odds[members, v], 0.0).sum(axis=1), np.float64)
        return np.zeros(len(members))

    def parts(self, n: int) -> tuple[Floats, Floats]:
        """ln weights of the number of parents, (n,), and of each arc, (n, n): a set's weight is their sum."""
        of_size = np.zeros(n)
        if self.name == "fair":
            of_size = np.array([-log(math.comb(n - 1, k)) for k in range(n)])
        return of_size, np.zeros((n, n)) if self._log_odds is None else self._log_odds


def make_prior(prior: Any, n: int) -> StructurePrior:
    """Check a prior over structures."""
    # prior: {"uniform", "fair", "order"} or ("edge", p)
    # n: Number of variables
    if isinstance(prior, str) and prior in ("uniform", "fair", "order"):
        return StructurePrior(prior)
    if isinstance(prior, tuple) and len(prior) == 2 and prior[0] == "edge":
        try:
            p = np.asarray(prior[1], np.float64)
        except (TypeError, ValueError):
            raise ArgumentError(f"the probabilities of arcs must be numbers, not {described(prior[1])}") from None
        if p.shape not in ((), (n, n)):
            raise ArgumentError(f"the probabilities of arcs have shape {p.shape}; expected a number or ({n}, {n})")
        of_arcs = p if p.shape == () else p[~np.eye(n, dtype=np.bool_)]
        if not ((of_arcs > 0) & (of_arcs < 1)).all():
            raise ArgumentError("probabilities of arcs must be above 0 and below 1; else use forbidden= and required=")
        full = np.broadcast_to(p, (n, n)).copy()
        np.fill_diagonal(full, 0.5)
        return StructurePrior("edge", logs(full) - logs(1.0 - full))
    raise ArgumentError(f"graph_prior must be 'uniform', 'fair', 'order' or ('edge', p), not {prior!r}")
