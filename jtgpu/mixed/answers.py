"""Answers of mixed networks for tables of cases: densities into the junction tree, mixtures out of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import EvidenceError
from ..util.lru import LRU
from .components import Component, Densities, build, component_members, scope_of
from .results import Mixtures, NumberTable
from .rows import ScaledRows, equal_rows
from .sets import SetEngine
from .truncated import log_mass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..model.mixed import MixedNetwork
    from ..util.arrays import Floats
    from .evidence import MixedCases
    from .sets import Sets

JOINT_CONFIGURATIONS = 1 << 12  # of a component up to which all targets are answered together
MERGED = 64  # numbers without discrete parents that are one component: one small factorisation, not several
CELLS = 1 << 23  # weights of a chunk of cases


class ObservedPattern(NamedTuple):
    """Components and sets of one pattern of observed numbers."""

    observed: frozenset[int]
    densities: tuple[tuple[int, ...], ...]  # members of the components that hold observed numbers
    answers: Mapping[int, tuple[int, ...]]  # unobserved target -> members of its component
    sets: Sets  # scopes of all of these, without the empty one
    scopes: Mapping[tuple[int, ...], tuple[int, ...]]  # of the members of each component


class Alike(NamedTuple):
    """Cases for which a component has the same numbers, of any pattern: patterns share most of their components."""

    members: tuple[int, ...]
    pattern: ObservedPattern  # of one of them
    rows: NDArray[np.intp] | slice


@dataclass(frozen=True)
class AnsweredCases:
    """Results of B cases."""

    posteriors: dict[str, Floats]  # discrete target -> (B, card)
    numbers: NumberTable  # of the targets that are numbers
    log_evidence: Floats
    impossible: NDArray[np.bool_]


class Answerer:
    """Answers cases of one network; caches patterns, components and compiled discrete networks."""

    def __init__(
        self, net: MixedNetwork, numbers: Densities, engine: Callable[[Sets], SetEngine], max_configurations: int
    ):
        self._net, self.numbers, self._engine, self.max_configurations = net, numbers, engine, max_configurations
        self._patterns: LRU[Hashable, ObservedPattern] = LRU(4096)
        self._components: LRU[Any, Component] = LRU(4096)
        self._nears: dict[tuple[int, ...], frozenset[int]] = {}

    def reload(self, net: MixedNetwork, numbers: Densities) -> None:
        """Replace the parameters: the patterns stay, and components whose numbers are the same."""
        old, self._net, self.numbers = self.numbers, net, numbers
        changed = {g for g in range(len(numbers.names)) if not _same(old, numbers, g)}
        self._components.clear(lambda key: not changed.isdisjoint(key[0]))

    # Patterns -------------------------------------------------------------------------------------------------

    def pattern(
        self, observed: frozenset[int], cut: frozenset[int], targets: tuple[int, ...], most: int = 0
    ) -> ObservedPattern:
        """The components of a set of observed numbers; those without discrete parents are one of up to `most`."""
        key = observed, cut, targets, most
        return self._patterns.get_or_make(key, lambda: self._make_pattern(*key))

    def _make_pattern(
        self, observed: frozenset[int], cut: frozenset[int], targets: tuple[int, ...], most: int
    ) -> ObservedPattern:
        numbers, asked = self.numbers, [t for t in targets if t not in observed]
        groups = component_members(numbers, observed, cut, asked, most)
        if all(self.size(scope_of(numbers, g)) <= JOINT_CONFIGURATIONS for g in groups):
            densities = [*map(tuple, groups)]
            group_of = {v: members for members in densities for v in members}
            answers = {t: group_of[t] for t in asked}
        else:  # each target by itself depends on fewer variables
            densities = [*map(tuple, component_members(numbers, observed, cut, ()))]
            answers, equal = {}, {g: g for g in densities}
            for t in asked:
                own = next((g for g in densities if t in g), None)
                own = own or next(tuple(g) for g in component_members(numbers, observed, cut, [t]) if t in g)
                answers[t] = equal.setdefault(own, own)
        densities = [g for g in densities if not observed.isdisjoint(g)]
        distinct = {id(g): g for g in [*densities, *answers.values()]}.values()
        scopes = {g: scope_of(numbers, g) for g in distinct}
        return ObservedPattern(observed, tuple(densities), answers, tuple(sorted({*scopes.values()} - {()})), scopes)

    def size(self, scope: Sequence[int]) -> int:
        return prod(self.numbers.cards[d] for d in scope)

    def pieces(
        self, members: tuple[int, ...], observed: frozenset[int], states: NDArray[np.int32]
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp] | slice, Component]]:
        """Rows of a component, the configurations of its scope that they allow, and its numbers for these."""
        scope = scope_of(self.numbers, members)
        if self.size(scope) <= JOINT_CONFIGURATIONS:
            yield np.arange(len(states)), slice(None), self.component(members, observed, ())
            return
        seen, rows_of = np.unique(states[:, list(scope)], axis=0, return_inverse=True)
        cards = tuple(self.numbers.cards[d] for d in scope)
        for i, row in enumerate(seen.tolist()):
            fixed = tuple((d, s) for d, s in zip(scope, row, strict=True) if s >= 0)
            component = self.component(members, observed, fixed)
            allowed = np.arange(prod(cards)).reshape(cards)[tuple(s if s >= 0 else slice(None) for s in row)]
            yield np.flatnonzero(rows_of.ravel() == i), allowed.ravel(), component

    def component(
        self, members: tuple[int, ...], observed: frozenset[int], fixed: tuple[tuple[int, int], ...]
    ) -> Component:
        """The numbers of a component; `fixed`: states of discrete variables."""
        key = members, observed & self._near(members), fixed
        return self._components.get_or_make(
            key, lambda: build(self.numbers, [*members], observed, dict(fixed), self.max_configurations)
        )

    def _near(self, members: tuple[int, ...]) -> frozenset[int]:
        if members not in self._nears:
            self._nears[members] = frozenset(members) | {p for v in members for p in self.numbers.parents[v]}
        return self._nears[members]

    # Answers --------------------------------------------------------------------------------------------------

    def answer(self, cases: MixedCases, discrete: Sequence[str], targets: tuple[int, ...]) -> AnsweredCases:
        """Posteriors of discrete variables and of numbers."""
        n, net = len(cases.states), self._net
        result = AnsweredCases(
            {v: np.zeros((n, len(net.states(v)))) for v in discrete},
            NumberTable([self.numbers.names[t] for t in targets], n),
            np.full(n, -np.inf), np.ones(n, np.bool_),
        )  # fmt: skip
        most = 0 if cases.bounds else MERGED
        for pattern, rows in self.by_pattern(cases, targets, most):
            for part in self._chunks(pattern, rows):
                self._answer_part(cases.part(part), pattern, part, discrete, targets, result)
        return result

    def by_pattern(
        self, cases: MixedCases, targets: tuple[int, ...], most: int = 0
    ) -> Iterator[tuple[ObservedPattern, NDArray[np.intp]]]:
        """Rows with the same observed numbers; see `pattern`."""
        seen = ~np.isnan(cases.values)
        if not len(seen):
            return
        if (seen[0] == seen).all():
            observed = frozenset(np.flatnonzero(seen[0]).tolist())
            yield self.pattern(observed, cases.cut, targets, most), np.arange(len(seen))
            return
        order, ends = equal_rows(np.packbits(seen, axis=1))
        for first, end in zip([0, *ends[:-1]], ends, strict=True):
            rows = order[first:end]
            observed = frozenset(np.flatnonzero(seen[rows[0]]).tolist())
            yield self.pattern(observed, cases.cut, targets, most), rows

    def _chunks(self, pattern: ObservedPattern, rows: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
        step = max(1, CELLS // max(1, sum(map(self.size, pattern.sets))))
        for first in range(0, len(rows), step):
            yield rows[first : first + step]

    def alike(self, patterns: Sequence[tuple[ObservedPattern, slice]]) -> list[Alike]:
        """The components of the densities of some patterns, each with its cases."""
        equal: dict[Any, tuple[ObservedPattern, list[slice]]] = {}
        for pattern, rows in patterns:
            for members in pattern.densities:
                key = members, pattern.observed & self._near(members)
                equal.setdefault(key, (pattern, []))[1].append(rows)
        return [
            Alike(members, pattern, np.concatenate([np.arange(own.start, own.stop) for own in places]))
            for (members, _), (pattern, places) in equal.items()
        ]

    def log_weights(
        self, cases: MixedCases, alike: Sequence[Alike], rows: ScaledRows | None = None
    ) -> tuple[dict[tuple[int, ...], Floats], Floats]:
        """ln of the density of the observed numbers by scope, (B, K), and its part without a scope, (B,)."""
        # -inf where the observed states exclude a configuration
        rows = ScaledRows(cases.values / self.numbers.scale, {}) if rows is None else rows
        logs: dict[tuple[int, ...], Floats] = {}
        constant = np.zeros(len(cases.states))
        for members, pattern, at in alike:
            scope = pattern.scopes[members]
            if isinstance(at, slice):
                total = self._log_densities(members, pattern, cases, rows)
            else:
                total = np.zeros((len(cases.states), self.size(scope)))
                total[at] = self._log_densities(members, pattern, cases.part(at), ScaledRows(rows.values[at], {}))
            if scope:
                logs[scope] = logs[scope] + total if scope in logs else total
            else:
                constant += total[:, 0]
        for scope, total in logs.items():
            self._exclude(scope, cases.states, total)
        return logs, constant

    def log_weights_of(
        self, cases: MixedCases, pattern: ObservedPattern, rows: ScaledRows | None = None
    ) -> tuple[dict[tuple[int, ...], Floats], Floats]:
        """`log_weights` of cases of one pattern."""
        bounded = {pattern.answers[g] for g in cases.bounds if g in pattern.answers}
        dense = dict.fromkeys([*pattern.densities, *sorted(bounded)])
        return self.log_weights(cases, [Alike(members, pattern, slice(None)) for members in dense], rows)

    def _log_densities(
        self, members: tuple[int, ...], pattern: ObservedPattern, cases: MixedCases, rows: ScaledRows
    ) -> Floats:
        """ln of the density of the observed numbers of a component, (B, K)."""
        total = np.zeros((0, 0))
        for part, allowed, component in self.pieces(members, pattern.observed, cases.states):
            if isinstance(allowed, slice):  # all rows and all configurations
                density = component.log_density(rows.values, rows.residual(component))
                return density + self._log_bounds(component, cases, rows.values) if cases.bounds else density
            own = rows.values[part]
            values = component.log_density(own) + self._log_bounds(component, cases, own)
            if not len(total):
                total = np.full((len(cases.states), self.size(pattern.scopes[members])), -np.inf)
            total[part[:, None], allowed] = values
        return total

    def _exclude(self, scope: tuple[int, ...], states: NDArray[np.int32], total: Floats) -> None:
        """Set configurations that the observed states exclude to -inf."""
        cards = [self.numbers.cards[d] for d in scope]
        for i, d in enumerate(scope):
            if len(states) == 1:  # in place, without the states of all configurations
                if (state := int(states[0, d])) >= 0:
                    table = total[0].reshape(-1, cards[i], prod(cards[i + 1 :]))
                    table[:, :state] = table[:, state + 1 :] = -np.inf
                continue
            seen = states[:, d]
            if seen.max(initial=-1) < 0:
                continue
            state_of = np.arange(total.shape[1]) // prod(cards[i + 1 :]) % cards[i]
            total[(seen[:, None] >= 0) & (seen[:, None] != state_of[None])] = -np.inf

    def _log_bounds(self, component: Component, cases: MixedCases, scaled: Floats) -> Floats | float:
        """ln of the probability of the intervals in a component, (B, K)."""
        inside = [g for g in component.unobserved if g in cases.bounds]
        if not inside:
            return 0.0
        g = inside[0]
        if len(component.unobserved) > 1:
            other = next(v for v in component.unobserved if v != g)
            raise EvidenceError(
                f"the interval of {self.numbers.names[g]!r} needs all numbers that depend on it, but "
                f"{self.numbers.names[other]!r} is not observed; observe it, or give a number"
            )
        mean, sd = component.means(scaled)[:, :, 0], np.sqrt(component.cov[:, 0, 0])
        low, high = (x / self.numbers.scale[g] for x in cases.bounds[g])
        return log_mass((low - mean) / sd, (high - mean) / sd)

    def _answer_part(
        self, cases: MixedCases, pattern: ObservedPattern, rows: NDArray[np.intp], discrete: Sequence[str],
        targets: tuple[int, ...], result: AnsweredCases,
    ) -> None:  # fmt: skip
        """Answer cases of one pattern, which are `rows` of the result."""
        scaled = ScaledRows(cases.values / self.numbers.scale, {})
        logs, constant = self.log_weights_of(cases, pattern, scaled)
        own = [logs[s] if s in logs else np.zeros((len(rows), self.size(s))) for s in pattern.sets]
        part = self._engine(pattern.sets).run(cases, own, discrete)
        part.log_evidence[:] += constant
        part.impossible[:] |= np.isneginf(part.log_evidence)
        result.log_evidence[rows], result.impossible[rows] = part.log_evidence, part.impossible
        for v, p in part.posteriors.items():
            result.posteriors[v][rows] = p
        if targets:
            joints = dict(zip(pattern.sets, part.joints, strict=True))
            self._answer_numbers(cases, pattern, rows, (joints, part.impossible, scaled), targets, result.numbers)

    def _answer_numbers(
        self, cases: MixedCases, pattern: ObservedPattern, rows: NDArray[np.intp],
        part: tuple[Mapping[tuple[int, ...], Floats], NDArray[np.bool_], ScaledRows], targets: tuple[int, ...],
        result: NumberTable,
    ) -> None:  # fmt: skip
        """Enter the mixtures of the targets that are numbers."""
        joints, impossible, own_rows = part
        possible, scaled = np.flatnonzero(~impossible), own_rows.values
        column = {t: i for i, t in enumerate(targets)}
        seen = [t for t in targets if t in pattern.observed]
        if seen:
            values = cases.values[possible].take(np.array(seen), 1)
            result.observe(rows[possible], [column[t] for t in seen], values)
        own: dict[int, tuple[tuple[int, ...], list[int]]] = {}  # by the identity of the members
        for t in targets:
            if t in pattern.answers:
                members = pattern.answers[t]
                own.setdefault(id(members), (members, []))[1].append(t)
        for members, asked in own.values():
            scope = pattern.scopes[members]
            for at, allowed, component in self.pieces(members, pattern.observed, cases.states):
                chosen = at if len(possible) == len(rows) else np.intersect1d(at, possible)
                if not len(chosen):
                    continue
                whole = len(chosen) == len(scaled)
                weight = np.ones((len(chosen), 1))
                if scope:
                    weight = (joints[scope] if whole else joints[scope][chosen])[:, allowed]
                place = {v: i for i, v in enumerate(component.unobserved)}
                places, scale = [place[t] for t in asked], self.numbers.scale.take(asked)
                sds = component.sds.take(places, 1) * scale
                means = component.means(scaled if whole else scaled[chosen], places, own_rows.known(component, whole))
                means *= scale
                result.add(Mixtures(rows if whole else rows[chosen], weight, means, sds), [column[t] for t in asked])


def _same(old: Densities, new: Densities, g: int) -> bool:
    """Whether a number has the same density."""
    pairs = [(old.mean[g], new.mean[g]), (old.variance[g], new.variance[g]),
             *zip(old.coefficients[g], new.coefficients[g], strict=True)]  # fmt: skip
    return all(np.array_equal(a, b) for a, b in pairs)
