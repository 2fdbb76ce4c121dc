"""Patterns of observed numbers as affine maps, which cuda/mixed/tables.cu evaluates; host memory only.

Given a configuration of states, the whitened residuals of the observed numbers and the means of the others are affine
in the observed numbers. Components of numbers that can share unobserved ones have one *set* of discrete parents, that
of the pattern without observations, so that one compiled discrete network serves all patterns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .components import Component, Numbers, component_members, scope_of
from .moments import configurations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from .answers import Pattern
    from .sets import Sets

    Floats = NDArray[np.float64]

NONE = 0xFFFFFFFF
THREADS = 128  # cases of a block
MOST_CONFIGURATIONS = 64  # of a set: bits of a word, and what the backend's extended plans take


class Affine(NamedTuple):
    """Affine maps of the observed numbers of a pattern, for each of K configurations of a set."""

    group: int
    base: Floats  # (K, n)
    coefficients: Floats  # (K, n, observed numbers)
    extra: Floats  # (K,) ln of the density's constant, or (K, n) variances
    targets: tuple[int, ...] = ()  # n numbers


@dataclass(frozen=True)
class Groups:
    """Groups of numbers that share unobserved ones if no number is observed, and their discrete parents."""

    numbers: Numbers
    members: list[list[int]]
    scopes: list[tuple[int, ...]]  # discrete parents of each group, in the order of its configurations

    @classmethod
    def of(cls, numbers: Numbers) -> Groups:
        everything = component_members(numbers, frozenset(), frozenset(), range(len(numbers.names)))
        by_scope: dict[tuple[int, ...], list[int]] = {}
        for group in everything:
            by_scope.setdefault(scope_of(numbers, group), []).extend(group)
        return cls(numbers, [*by_scope.values()], [*by_scope])

    @property
    def sets(self) -> Sets:
        """The scopes that are not empty."""
        return tuple(sorted(tuple(sorted(s)) for s in self.scopes if s))

    @cached_property
    def group_of(self) -> dict[int, int]:
        """Number to its group."""
        return {v: i for i, group in enumerate(self.members) for v in group}

    @cached_property
    def centres(self) -> Floats:
        """Prior means, roughly: numbers far from 0 keep their digits."""
        result = np.zeros(len(self.numbers.names))
        for v in self.numbers.order:
            slopes = zip(self.numbers.parents[v], self.numbers.coefficients[v], strict=True)
            result[v] = self.numbers.mean[v].mean() + sum(c.mean() * result[p] for p, c in slopes)
        return result

    def size(self, group: int) -> int:
        """Configurations of a group's scope."""
        return prod(self.numbers.cards[d] for d in self.scopes[group])


@dataclass(frozen=True)
class PatternMaps:
    """Affine maps of one pattern."""

    observed: list[int]
    densities: list[Affine]  # of every group
    moments: list[Affine]  # of the unobserved targets, one of each component


def pattern_maps(
    groups: Groups, pattern: Pattern, targets: Sequence[int],
    component_of: Callable[[tuple[int, ...], frozenset[int]], Component],
) -> PatternMaps:  # fmt: skip
    """The affine maps of a pattern."""
    observed = sorted(pattern.observed)
    slot = {v: i for i, v in enumerate(observed)}
    parts: list[list[Affine]] = [[] for _ in groups.members]
    for members in pattern.densities:
        c, group = component_of(members, pattern.observed), groups.group_of[members[0]]
        centre_y, centre_p = groups.centres[[*c.observed]], groups.centres[[*c.given]]
        shift = centre_y - c.mean_y - c.slope_y @ centre_p
        dense = np.zeros((*c.whiten.shape[:2], len(observed)))
        dense[..., [slot[v] for v in c.observed]] += c.whiten
        dense[..., [slot[v] for v in c.given]] -= c.whiten @ c.slope_y
        made = Affine(group, (c.whiten @ shift[..., None])[..., 0], dense, c.log_norm)
        parts[group].append(_spread(groups, made, c.scope))
    densities = []
    for group, own in enumerate(parts):
        k = groups.size(group)
        base = np.concatenate([np.zeros((k, 0)), *(a.base for a in own)], axis=1)
        dense = np.concatenate([np.zeros((k, 0, len(observed))), *(a.coefficients for a in own)], axis=1)
        densities.append(Affine(group, base, dense, sum((a.extra for a in own), np.zeros(k))))
    asked: dict[tuple[int, ...], list[int]] = {}
    for v in targets:
        if v in pattern.answers:
            asked.setdefault(pattern.answers[v], []).append(v)
    moments = []
    for members, own_targets in asked.items():
        c, group = component_of(members, pattern.observed), groups.group_of[members[0]]
        u = [c.unobserved.index(v) for v in own_targets]
        centre_y, centre_p = groups.centres[[*c.observed]], groups.centres[[*c.given]]
        shift = centre_y - c.mean_y - c.slope_y @ centre_p
        gain, slope = c.gain[:, u], c.slope_u[:, u]
        dense = np.zeros((len(c.gain), len(u), len(observed)))
        dense[..., [slot[v] for v in c.observed]] += gain
        dense[..., [slot[v] for v in c.given]] += slope - gain @ c.slope_y
        base = c.mean_u[:, u] + slope @ centre_p + (gain @ shift[..., None])[..., 0]
        variances = np.diagonal(c.cov, axis1=1, axis2=2)[:, u]
        moments.append(_spread(groups, Affine(group, base, dense, variances, tuple(own_targets)), c.scope))
    return PatternMaps(observed, densities, moments)


def _spread(groups: Groups, maps: Affine, scope: tuple[int, ...]) -> Affine:
    """Maps of the configurations of a component's scope, repeated for those of its group."""
    at = configurations(groups.numbers, groups.scopes[maps.group], scope)
    return maps._replace(base=maps.base[at], coefficients=maps.coefficients[at], extra=maps.extra[at])


@dataclass
class Records:
    """Records of some patterns, as cuda/mixed/tables.cu reads them."""

    groups: Groups
    cells: Sequence[int]  # of each group, the first column of its weights
    posteriors: Sequence[int]  # and of its posteriors
    columns: dict[int, int]  # number -> column of the results
    integers: list[NDArray[np.uint32]] = field(default_factory=list)
    doubles: list[Floats] = field(default_factory=list)
    maps: list[tuple[int, ...]] = field(default_factory=list)
    patterns: list[tuple[int, ...]] = field(default_factory=list)
    allowed: list[int] = field(default_factory=list)
    most_observed: int = 0
    n_integers: int = 0
    n_doubles: int = 0

    def __post_init__(self) -> None:
        self._masks = [self._masks_of(scope) for scope in self.groups.scopes]

    def _masks_of(self, scope: tuple[int, ...]) -> int:
        """Enter which configurations of a scope each state of its variables leaves."""
        cards, records = self.groups.numbers.cards, []
        for d in scope:
            records += [d, cards[d], len(self.allowed)]
            states = configurations(self.groups.numbers, scope, (d,))
            self.allowed += [sum(1 << int(k) for k in np.flatnonzero(states == s)) for s in range(cards[d])]
        return self._put(records)

    def add(self, maps: PatternMaps) -> None:
        """Append a pattern."""
        self.most_observed = max(self.most_observed, len(maps.observed))
        columns = [self.columns.get(v, NONE) for v in maps.observed]
        observed, first = self._put([*maps.observed, *columns]), len(self.maps)
        for a in maps.densities:
            self._add(a, self.cells[a.group], 0)
        for a in maps.moments:
            named = self._put([*(self.columns[v] for v in a.targets), *a.targets])
            self._add(a, self.posteriors[a.group], named)
        counts = len(maps.densities), len(maps.moments)
        self.patterns.append((len(maps.observed), observed, first, counts[0], first + counts[0], counts[1]))

    def _add(self, a: Affine, cells: int, targets: int) -> None:
        rows, columns = np.nonzero((a.coefficients != 0).any(axis=0))
        ends = np.searchsorted(rows, np.arange(a.base.shape[1]), side="right")
        scope = self.groups.scopes[a.group]
        self.maps.append((
            *a.base.shape, self._put(ends), self._put(columns), self._put_doubles(a.base),
            self._put_doubles(a.coefficients[:, rows, columns]), self._put_doubles(a.extra), cells, targets,
            self._masks[a.group], len(scope), len(columns),
        ))  # fmt: skip

    def _put(self, values: Sequence[int] | NDArray[np.intp]) -> int:
        self.integers.append(np.asarray(values, np.uint32))
        self.n_integers += len(values)
        return self.n_integers - len(values)

    def _put_doubles(self, values: Floats) -> int:
        self.doubles.append(values.ravel())
        self.n_doubles += values.size
        return self.n_doubles - values.size

    def arrays(self, ends: Sequence[int]) -> list[NDArray[np.generic]]:
        """Blocks of cases that are sorted by pattern, patterns, maps, integers, doubles, and allowed configurations."""
        # ends: of the cases of each pattern
        blocks = [
            (i, at, min(THREADS, end - at), 0)
            for i, (first, end) in enumerate(pairwise([0, *ends]))
            for at in range(first, end, THREADS)
        ]
        words = [np.array(x, np.uint32) for x in (blocks, self.patterns, self.maps)]
        return [
            *words, np.concatenate([*self.integers, np.zeros(1, np.uint32)]),
            np.concatenate([*self.doubles, np.zeros(1)]), np.array([*self.allowed, 0], np.uint64),
        ]  # fmt: skip
