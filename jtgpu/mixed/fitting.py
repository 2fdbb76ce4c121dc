"""Parameters of a mixed network from data: counting and regression, or EM where cells are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..model.gaussian import Gaussian
from ..model.mixed import MixedNetwork
from ..util.arrays import Floats
from .answers import CELLS, Answerer, ObservedPattern
from .components import Densities, with_lines
from .evidence import MixedCases
from .regressions import FamilyRows, Moments, add_moments, empty_moments, regression
from .tree import MixedTree

JOINED = 1 << 12  # configurations of the variables of sets that are added to those of a pattern
MANY = 500  # rows of a pattern from which it is a call of its own
FAR = 1e3  # standard deviations from 0 from which the mean of a number is subtracted
FEW_DIGITS = 1e-6  # of a sum of squares over its terms, from which it is computed from rows


class Strength(NamedTuple):
    """How strong the prior is."""

    rows: float  # of the pooled regression, added to each configuration of a number's discrete parents
    each: float | str  # added to the counts of each entry of a CPT, or "bdeu:ESS"
    keeps_zeros: bool = False  # but for entries that are 0 in the network where the fit begins


class Prior(NamedTuple):
    """Counts and sums that are added to those of the rows."""

    counts: Mapping[str, Floats]  # of each variable with states
    moments: Moments  # pooled regressions of the numbers, in scaled units


class PassSums(NamedTuple):
    """Result of a pass over the rows."""

    counts: dict[str, Floats]  # expected counts of each variable with states
    moments: Moments
    log_likelihood: float
    impossible: NDArray[np.bool_] = np.zeros(0, np.bool_)  # (B,) rows that add nothing


def one_pass(tree: MixedTree, cases: MixedCases, weights: Floats) -> PassSums:
    """Expected counts and sums of all families."""
    answerer, net, n = tree.answerer, tree.network, len(weights)
    counts = {v: np.zeros(net.cpt(v).shape) for v in net.discrete}
    sums = PassSums(counts, empty_moments(answerer.numbers), 0.0, np.zeros(n, np.bool_))
    log_likelihood = sum((_add_group(tree, group, sums) for group in _groups(answerer, cases, weights)), 0.0)
    return sums._replace(log_likelihood=log_likelihood)


class _PatternGroup:
    """Cases of patterns, one pattern after the other, which are one call."""

    def __init__(
        self, answerer: Answerer, cases: MixedCases, weights: Floats,
        patterns: Sequence[tuple[ObservedPattern, NDArray[np.intp]]],
    ):  # fmt: skip
        self.rows = np.concatenate([own for _, own in patterns])
        self.part, self.weights = cases.part(self.rows), weights[self.rows]
        ends = np.cumsum([len(own) for _, own in patterns]).tolist()
        self.parts = [(p, slice(end - len(own), end)) for (p, own), end in zip(patterns, ends, strict=True)]
        self.sets = {s for pattern, _ in patterns for s in pattern.sets}
        self.alike = answerer.alike(self.parts)


def _groups(answerer: Answerer, cases: MixedCases, weights: Floats, families: int = 0) -> Iterator[_PatternGroup]:
    """Cases whose patterns have the same sets, or others of few variables, together; a large pattern by itself."""
    # families: cells of each case besides those of the sets
    waiting: dict[Any, list[tuple[ObservedPattern, NDArray[np.intp]]]] = {}
    for pattern, rows in answerer.by_pattern(cases, ()):
        step = max(CELLS // (families + sum(map(answerer.size, pattern.scopes.values())) or 1), 1)
        for at in range(0, len(rows), step):
            own = pattern, rows[at : at + step]
            if len(rows) > MANY:
                yield _PatternGroup(answerer, cases, weights, [own])
            else:
                waiting.setdefault(pattern.sets, []).append(own)
    joined: list[tuple[ObservedPattern, NDArray[np.intp]]] = []
    variables: set[int] = set()  # of the sets that the first pattern does not have; a plan has each one by itself
    cells = 0
    for sets, patterns in waiting.items():
        for pattern, rows in patterns:
            own_cells = len(rows) * (families + sum(map(answerer.size, pattern.scopes.values())))
            others = {s for s in sets if len(s) > 1}.difference(joined[0][0].sets) if joined else set()
            more = variables.union(*others)
            if joined and (cells + own_cells > CELLS or answerer.size([*more]) > JOINED):
                yield _PatternGroup(answerer, cases, weights, joined)
                joined, more, cells = [], set(), 0
            joined.append((pattern, rows))
            variables, cells = more, cells + own_cells
    if joined:
        yield _PatternGroup(answerer, cases, weights, joined)


def _add_group(tree: MixedTree, group: _PatternGroup, sums: PassSums) -> float:
    """Add a group of cases; their ln P."""
    part, each, sets = group.part, group.weights, tuple(sorted(group.sets))
    logs, constant = tree.answerer.log_weights(part, group.alike)
    answers, expected = tree.engine(sets).run_counts(part, [logs[s] for s in sets], each)
    for v, table in expected.items():
        sums.counts[v] += table
    log_evidence = answers.log_evidence + constant
    sums.impossible[group.rows] = dead = np.isneginf(log_evidence)
    each[dead] = log_evidence[dead] = 0.0
    add_moments(tree.answerer, part, group.alike, each, dict(zip(sets, answers.joints, strict=True)), sums.moments)
    return float(np.add.reduce(each * log_evidence))  # BLAS adds by thread


def moved_passes(
    tree: MixedTree, cases: MixedCases, weights: Floats, names: Sequence[str], tables: Iterable[Floats]
) -> Iterator[PassSums]:
    """The sums of cases with each of some tables of a family: the lines of a number, or the CPT of variables."""
    # What a table leaves alone is shared: densities of components without the number; a CPT is a likelihood of its
    # family, and plans have no other numbers.
    net, answerer = tree.network, tree.answerer
    g = net.numbers.index(names[0]) if net.is_number(names[0]) else -1
    families = _families(net)
    groups = [*_groups(answerer, cases, weights, sum(map(answerer.size, families.values())))]
    numbers = answerer.numbers
    moving = [[own for own in group.alike if g in own.members] for group in groups]
    shared = [
        answerer.log_weights(group.part, [own for own in group.alike if g not in own.members])[0] for group in groups
    ]
    for table in tables:
        if g >= 0:
            answerer.reload(net, with_lines(numbers, g, table))
        sums = PassSums({v: np.zeros(np.shape(net.cpt(v))) for v in families}, empty_moments(numbers), 0.0)
        for i, group in enumerate(groups):
            logs = dict(shared[i])
            for scope, own in answerer.log_weights(group.part, moving[i])[0].items():
                logs[scope] = logs[scope] + own if scope in logs else own
            for v in names if g < 0 else ():
                old, scope = np.asarray(net.cpt(v)), families[v]
                ratio = np.log(np.where(old > 0, table / np.where(old > 0, old, 1.0), 1.0)).transpose(np.argsort(scope))
                key = tuple(sorted(scope))
                logs[key] = logs.get(key, np.zeros((len(group.rows), 1))) + ratio.ravel()
            joints, used = _joints(tree, group, logs)
            add_moments(answerer, group.part, group.alike, used, joints, sums.moments)
            for v, table in _counts(tree, joints, used).items():
                sums.counts[v][:] += table
        yield sums
    answerer.reload(net, numbers)


def passes_of_rows(tree: MixedTree, cases: MixedCases, weights: Floats) -> Iterator[tuple[float, PassSums]]:
    """The weight of each possible case, and its own sums."""
    answerer = tree.answerer
    for group in _groups(answerer, cases, weights, sum(map(answerer.size, _families(tree.network).values()))):
        joints, used = _joints(tree, group, dict(answerer.log_weights(group.part, group.alike)[0]))
        for pattern, rows in group.parts:
            for r in (np.flatnonzero(used[rows]) + rows.start).tolist():
                own, moments = {s: cells[r : r + 1] for s, cells in joints.items()}, empty_moments(answerer.numbers)
                case = group.part.part(np.array([r]))
                add_moments(answerer, case, answerer.alike([(pattern, slice(0, 1))]), np.ones(1), own, moments)
                yield float(used[r]), PassSums(_counts(tree, own, np.ones(1)), moments, 0.0)


def _families(net: MixedNetwork) -> dict[str, tuple[int, ...]]:
    """The parents of each variable with states, and itself, by number."""
    return {v: tuple(map(net.discrete.index, (*net.parents(v), v))) for v in net.discrete}


def _joints(
    tree: MixedTree, group: _PatternGroup, logs: Mapping[tuple[int, ...], Floats]
) -> tuple[dict[tuple[int, ...], Floats], Floats]:
    """Joint posteriors of the sets of a group and of the families; weights of the cases, 0 of impossible ones."""
    sets = tuple(sorted({*group.sets, *(tuple(sorted(f)) for f in _families(tree.network).values())}))
    each = [logs[s] if s in logs else np.zeros((len(group.rows), tree.answerer.size(s))) for s in sets]
    answers = tree.engine(sets).run(group.part, each, [])
    return dict(zip(sets, answers.joints, strict=True)), np.where(answers.impossible, 0.0, group.weights)


def _counts(tree: MixedTree, joints: Mapping[tuple[int, ...], Floats], weights: Floats) -> dict[str, Floats]:
    """Weighted sums of the joint posteriors of families, with the axes of their CPTs."""
    counts, cards = {}, tree.answerer.numbers.cards
    for v, scope in _families(tree.network).items():
        own = sorted(scope)
        cells = np.add.reduce(weights[:, None] * joints[tuple(own)])
        counts[v] = cells.reshape([cards[d] for d in own]).transpose([own.index(d) for d in scope])
    return counts


def pooled_prior(tree: MixedTree, cases: MixedCases, weights: Floats, strength: Strength) -> Prior:
    """Rows of the regression of all rows whose family is complete, for each configuration; counts for CPTs."""
    rows, count, keeps_zeros = strength
    numbers, net = tree.answerer.numbers, tree.network
    scaled = cases.values / numbers.scale
    moments = empty_moments(numbers)
    for g, sums in enumerate(moments):
        z = np.column_stack([np.ones(len(scaled)), scaled[:, [*numbers.parents[g], g]]])
        complete = ~np.isnan(z).any(axis=1)
        z, w = z[complete], weights[complete]
        total = float(w.sum())
        if rows > 0 and total > 0:
            sums[:] = (z * w[:, None]).T @ z * (rows / total)
    counts: dict[str, Floats] = {}
    for v in net.discrete:
        shape = net.cpt(v).shape
        each = float(count) if not isinstance(count, str) else float(count.partition(":")[2]) / prod(shape)
        counts[v] = np.where(np.asarray(net.cpt(v)) > 0, each, 0.0) if keeps_zeros else np.full(shape, each)
    return Prior(counts, moments)


def lines_of(numbers: Densities, g: int, density: Gaussian) -> Floats:
    """(K, m + 2) intercept, slopes and sd of a number in each configuration of its discrete parents, scaled."""
    scale = numbers.scale
    slopes = zip(numbers.parents[g], density.coefficients.values(), strict=True)
    columns = [density.mean / scale[g], *(c * (scale[p] / scale[g]) for p, c in slopes), density.sd / scale[g]]
    return np.column_stack([c.ravel() for c in columns])


def density_of(numbers: Densities, g: int, lines: Floats) -> Gaussian:
    """The density of a number in its units."""
    shape, scale = tuple(numbers.cards[d] for d in numbers.scope[g]), numbers.scale
    mean, *slopes, sd = (column.reshape(shape) for column in lines.T)
    coefficients = {
        numbers.names[p]: c * (scale[g] / scale[p]) for p, c in zip(numbers.parents[g], slopes, strict=True)
    }
    return Gaussian(mean * scale[g], coefficients, sd * scale[g])


def regressions(
    numbers: Densities, g: int, sums: Floats, old: Floats, rows: FamilyRows | None = None
) -> tuple[Floats, float]:
    """`lines_of` the highest likelihood, and the relative error that rounding of sums may have made."""
    # sums: (K, m + 2, m + 2); a configuration without any keeps its line
    # rows: complete ones: no digit is lost
    name, parents, lines, largest = numbers.names[g], [numbers.names[p] for p in numbers.parents[g]], old.copy(), 0.0
    for k in np.flatnonzero(sums[:, 0, 0] > 0).tolist():
        root = None if rows is None else partial(rows.root, g, k)
        lines[k, :-1], lines[k, -1], error = regression(name, parents, sums[k], root)
        largest = max(largest, error)
    return lines, largest


def log_prior_of(prior: Floats, lines: Floats, exact: Callable[[Floats], Floats] | None = None) -> float:
    """ln prior of the density of a number."""
    # prior: (K, m + 2, m + 2) sums of its rows
    # exact: sums of squares of these rows times (K, m + 2) contrasts, with all digits
    variance, contrast = lines[:, -1] ** 2, np.column_stack([-lines[:, :-1], np.ones(len(lines))])
    squares = np.einsum("ki,kij,kj->k", contrast, prior, contrast)
    if exact is not None:
        few = squares < FEW_DIGITS * np.einsum("ki,kij,kj->k", np.abs(contrast), np.abs(prior), np.abs(contrast))
        if few.any():
            squares[few] = exact(contrast[few])
    return -0.5 * float((prior[:, 0, 0] * np.log(variance) + squares / variance).sum())


def far_from_zero(net: MixedNetwork, cases: MixedCases, weights: Floats) -> dict[str, float]:
    """Means of numbers that are far from 0 in standard deviations: sums of their squares would lose digits."""
    far = {}
    for y, x in zip(net.numbers, cases.values.T, strict=True):
        seen = x[~np.isnan(x) & (weights > 0)]
        if len(seen) and abs(mean := float(seen.mean())) > FAR * float(seen.std()):
            far[y] = mean
    return far


def moved(net: MixedNetwork, by: Mapping[str, float]) -> MixedNetwork:
    """The network of numbers to which something is added."""
    changed = {}
    for y in net.numbers if by else ():
        g = net.gaussian(y)
        moved = g.mean + by.get(y, 0.0) - sum((c * by.get(p, 0.0) for p, c in g.coefficients.items()), np.float64(0.0))
        changed[y] = Gaussian(moved, g.coefficients, g.sd)
    return net.replace(cpt=changed) if changed else net


def uniform_network(states: Mapping[str, Any], parents: Mapping[str, Sequence[str]]) -> MixedNetwork:
    """The network of some arcs with uniform CPTs and standard normal distributions."""
    cpts: dict[str, Any] = {}
    for v, own in states.items():
        shape = tuple(len(states[p]) for p in parents[v] if states[p] is not float)
        if own is float:
            cpts[v] = Gaussian(np.zeros(shape), {p: np.zeros(shape) for p in parents[v] if states[p] is float})
        else:
            cpts[v] = np.full((*shape, len(own)), 1.0 / len(own))
    return MixedNetwork(states, parents, cpts)


def with_spread(net: MixedNetwork, cases: MixedCases, weights: Floats) -> MixedNetwork:
    """The network whose numbers have the mean and sd of their observed values."""
    made = {}
    for v, x in zip(net.numbers, cases.values.T, strict=True):
        seen = ~np.isnan(x) & (weights > 0)
        if not seen.any():
            raise DataError(f"the column {v!r} has no value; a number needs some")
        mean = float(np.average(x[seen], weights=weights[seen]))
        sd = float(np.sqrt(np.average((x[seen] - mean) ** 2, weights=weights[seen])))
        if not sd > 1e-12 * max(abs(mean), 1e-300):
            raise DataError(f"the column {v!r} is constant ({mean:g}); a number needs different values")
        old = net.gaussian(v)
        made[v] = Gaussian(old.mean + mean, old.coefficients, sd)
    return net.replace(cpt=made)
