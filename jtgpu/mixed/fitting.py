"""Parameters of a mixed network from data: counting and regression, or EM where cells are missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import DataError
from ..model.gaussian import Gaussian
from ..model.mixed import MixedNetwork
from ..util.text_table import record_repr
from .answers import CELLS
from .evidence import MixedCases
from .moments import Moments, add_moments, empty_moments
from .regressions import FamilyRows, regression, warn_of_errors
from .tree import MixedTree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .answers import Pattern

    Floats = NDArray[np.float64]

FALL = 1e-9  # of the objective, relative, that rounding explains
FAR = 1e3  # standard deviations from 0 from which the mean of a number is subtracted
FEW_DIGITS = 1e-6  # of a sum of squares over its terms, from which it is computed from rows


class Pass(NamedTuple):
    """One iteration of EM."""

    number: int
    objective: float  # ln P(data) + ln prior, up to a constant
    log_likelihood: float
    change: float  # of the objective
    seconds: float

    def __repr__(self) -> str:  # a NamedTuple takes no assignment
        return record_repr(self)


class Strength(NamedTuple):
    """How strong the prior is."""

    rows: float  # of the pooled regression, added to each configuration of a number's discrete parents
    each: float | str  # added to the counts of each entry of a CPT, or "bdeu:ESS"
    keeps_zeros: bool = False  # but for entries that are 0 in the network where the fit begins


class Prior(NamedTuple):
    """Counts and sums that are added to those of the rows."""

    counts: Mapping[str, Floats]  # of each variable with states
    moments: Moments  # pooled regressions of the numbers, in scaled units


class Sums(NamedTuple):
    """Result of a pass over the rows."""

    counts: dict[str, Floats]  # expected counts of each variable with states
    moments: Moments
    log_likelihood: float


def one_pass(tree: MixedTree, cases: MixedCases, weights: Floats) -> Sums:
    """Expected counts and sums of all families."""
    answerer, net = tree.answerer, tree.network
    sums = Sums({v: np.zeros(net.cpt(v).shape) for v in net.discrete}, empty_moments(answerer.numbers), 0.0)
    waiting: dict[Any, list[tuple[Pattern, NDArray[np.intp]]]] = {}  # those of equal sets are one call each
    cells = 0
    for pattern, rows in answerer.by_pattern(cases, ()):
        waiting.setdefault(pattern.sets, []).append((pattern, rows))
        cells += len(rows) * sum(map(answerer.size, pattern.scopes.values()))
        if cells > CELLS:
            sums = _with_patterns(tree, cases, weights, waiting, sums)
            cells = 0
    return _with_patterns(tree, cases, weights, waiting, sums)


def _with_patterns(
    tree: MixedTree, cases: MixedCases, weights: Floats, waiting: dict[Any, list[tuple[Pattern, NDArray[np.intp]]]],
    sums: Sums,
) -> Sums:  # fmt: skip
    """Add the cases of some patterns, which wait no longer."""
    log_likelihood = sums.log_likelihood
    for sets, patterns in waiting.items():
        rows = np.concatenate([own for _, own in patterns])
        part, own = cases.part(rows), weights[rows]
        ends = np.cumsum([len(own) for _, own in patterns]).tolist()
        parts = [(p, slice(end - len(own), end)) for (p, own), end in zip(patterns, ends, strict=True)]
        logs, constant = tree.answerer.log_weights(part, parts)
        answers, expected = tree.engine(sets).run_counts(part, [logs[s] for s in sets], own)
        for v, table in expected.items():
            sums.counts[v] += table
        log_likelihood += float(np.add.reduce(own * (answers.log_evidence + constant)))  # BLAS adds by thread
        add_moments(tree.answerer, part, parts, own, dict(zip(sets, answers.joints, strict=True)), sums.moments)
    waiting.clear()
    return sums._replace(log_likelihood=log_likelihood)


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


def maximise(tree: MixedTree, sums: Sums, prior: Prior) -> MixedNetwork:
    """The parameters of the highest posterior given sums; warns of digits that these have lost."""
    net, errors = best_parameters(tree, sums, prior)
    warn_of_errors(errors)
    return net


def best_parameters(
    tree: MixedTree, sums: Sums, prior: Prior, rows: FamilyRows | None = None
) -> tuple[MixedNetwork, dict[str, float]]:
    """The same, and the relative errors that rounding of sums may have made in numbers; none if `rows` are at hand."""
    net, numbers = tree.network, tree.answerer.numbers
    cpts: dict[str, Any] = {}
    errors: dict[str, float] = {}
    for v in net.discrete:
        table = sums.counts[v] + prior.counts[v]
        total = table.sum(axis=-1, keepdims=True)
        cpts[v] = np.where(total > 0, table / np.where(total > 0, total, 1.0), np.asarray(net.cpt(v)))
    scale = numbers.scale
    for g, name in enumerate(numbers.names):
        shape = tuple(numbers.cards[d] for d in numbers.scope[g])
        both = sums.moments[g] + prior.moments[g]
        m, old = len(numbers.parents[g]), net.gaussian(name)
        beta, sd = np.empty((len(both), m + 1)), np.empty(len(both))
        for k, s in enumerate(both):
            if s[0, 0] <= 0:  # no row: the parameters stay
                at = np.unravel_index(k, shape) if shape else ()
                beta[k, 0], sd[k] = old.mean[at] / scale[g], old.sd[at] / scale[g]
                slopes = zip(numbers.parents[g], old.coefficients.values(), strict=True)
                beta[k, 1:] = [c[at] * scale[p] / scale[g] for p, c in slopes]
                continue
            root = None if rows is None else partial(rows.root, g, k)
            beta[k], sd[k], error = regression(name, [numbers.names[p] for p in numbers.parents[g]], s, root)
            errors[name] = max(error, errors.get(name, 0.0))
        coefficients = {
            numbers.names[p]: beta[:, i + 1].reshape(shape) * (scale[g] / scale[p])
            for i, p in enumerate(numbers.parents[g])
        }
        cpts[name] = Gaussian(beta[:, 0].reshape(shape) * scale[g], coefficients, sd.reshape(shape) * scale[g])
    return net.replace(cpts), errors


def log_prior(tree: MixedTree, net: MixedNetwork, prior: Prior, rows: FamilyRows | None = None) -> float:
    """ln prior of the parameters, up to a constant."""
    numbers, total = tree.answerer.numbers, 0.0
    for v, counts in prior.counts.items():
        cpt, used = np.asarray(net.cpt(v)), counts > 0
        total += float(counts[used] @ np.log(np.maximum(cpt[used], 1e-300)))
    scale = numbers.scale
    for i, name in enumerate(numbers.names):
        g = net.gaussian(name)
        parents = zip(numbers.parents[i], g.coefficients.values(), strict=True)
        slopes = [c.ravel() * scale[p] / scale[i] for p, c in parents]
        contrast = np.column_stack([-g.mean.ravel() / scale[i], *(-c for c in slopes), np.ones(g.mean.size)])
        variance = (g.sd.ravel() / scale[i]) ** 2
        squares = np.einsum("ki,kij,kj->k", contrast, prior.moments[i], contrast)
        if rows is not None:
            terms = np.einsum("ki,kij,kj->k", np.abs(contrast), np.abs(prior.moments[i]), np.abs(contrast))
            few = squares < FEW_DIGITS * terms
            if few.any():
                squares[few] = rows.squares(i, contrast[few])
        total -= 0.5 * float((prior.moments[i][:, 0, 0] * np.log(variance) + squares / variance).sum())
    return total


class Fitted(NamedTuple):
    """A fitted network: the last whole iteration of EM if `run` was interrupted."""

    network: MixedNetwork
    history: list[Pass]
    converged: bool
    method: str
    sums: Sums
    interrupted: bool = False


def run(  # noqa: PLR0913
    net: MixedNetwork, cases: MixedCases, weights: Floats, strength: Strength, *, iterations: int, tolerance: float,
    progress: Callable[[Pass], None] | None, options: Mapping[str, Any],
) -> Fitted:  # fmt: skip
    """Fit by counting, or by EM where cells are missing. `net` is where EM starts, and gives the units."""
    far = _far_from_zero(net, cases, weights)
    if far:
        cases = replace(cases, values=cases.values - [far.get(y, 0.0) for y in net.numbers])
        net = _moved(net, {y: -x for y, x in far.items()})
    tree = MixedTree(net, "cpu", max_configurations=1 << 22, options=options)
    prior = pooled_prior(tree, cases, weights, strength)
    is_complete = not np.isnan(cases.values).any() and not (cases.states < 0).any()
    method = "counts" if is_complete else "em"
    shift = np.array([far.get(y, 0.0) for y in net.numbers])
    complete = FamilyRows(tree.answerer.numbers, cases, weights, strength.rows, shift) if is_complete else None
    errors: dict[str, float] = {}
    history: list[Pass] = []
    begun = time.perf_counter()
    sums = one_pass(tree, cases, weights)
    last = tree.network, sums
    try:
        while True:
            objective = sums.log_likelihood + log_prior(tree, tree.network, prior, complete)
            before = history[-1].objective if history else None
            change = 0.0 if before is None else objective - before
            entry = Pass(len(history), objective, sums.log_likelihood, change, time.perf_counter() - begun)
            last = tree.network, sums
            history.append(entry)
            if progress is not None:
                progress(entry)
            size = abs(objective) + float(weights.sum())
            if before is not None and not is_complete and change < -FALL * size:
                raise DataError(f"iteration {entry.number}: the objective fell from {before:.12g} to {objective:.12g}")
            calm = before is not None and abs(change) <= tolerance * size
            if calm or (is_complete and before is not None) or len(history) > iterations:
                warn_of_errors(errors)
                return Fitted(_moved(tree.network, far), history, calm or is_complete, method, sums)
            best, errors = best_parameters(tree, sums, prior, complete)
            tree.reload(best)
            sums = one_pass(tree, cases, weights)
    except KeyboardInterrupt:
        if len(history) < 2:  # of the start, at most
            raise
        return Fitted(_moved(last[0], far), history, False, method, last[1], interrupted=True)


def _far_from_zero(net: MixedNetwork, cases: MixedCases, weights: Floats) -> dict[str, float]:
    """Means of numbers that are far from 0 in standard deviations: sums of their squares would lose digits."""
    far = {}
    for y, x in zip(net.numbers, cases.values.T, strict=True):
        seen = x[~np.isnan(x) & (weights > 0)]
        if len(seen) and abs(mean := float(seen.mean())) > FAR * float(seen.std()):
            far[y] = mean
    return far


def _moved(net: MixedNetwork, by: Mapping[str, float]) -> MixedNetwork:
    """The network of numbers to which something is added."""
    changed = {}
    for y in net.numbers if by else ():
        g = net.gaussian(y)
        moved = g.mean + by.get(y, 0.0) - sum((c * by.get(p, 0.0) for p, c in g.coefficients.items()), np.float64(0.0))
        changed[y] = Gaussian(moved, g.coefficients, g.sd)
    return net.replace(changed) if changed else net


def starting_network(
    states: Mapping[str, Any], parents: Mapping[str, Sequence[str]], cases: MixedCases, weights: Floats
) -> MixedNetwork:
    """Uniform CPTs, and normal distributions with the mean and sd of the observed values of each number."""
    numbers = [v for v, s in states.items() if s is float]
    cpts: dict[str, Any] = {}
    for v, s in states.items():
        shape = tuple(len(states[p]) for p in parents.get(v, ()) if states[p] is not float)
        if s is not float:
            cpts[v] = np.full((*shape, len(s)), 1.0 / len(s))
            continue
        x = cases.values[:, numbers.index(v)]
        seen = ~np.isnan(x) & (weights > 0)
        if not seen.any():
            raise DataError(f"the column {v!r} has no value; a number needs some")
        mean = float(np.average(x[seen], weights=weights[seen]))
        sd = float(np.sqrt(np.average((x[seen] - mean) ** 2, weights=weights[seen])))
        if not sd > 1e-12 * max(abs(mean), 1e-300):
            raise DataError(f"the column {v!r} is constant ({mean:g}); a number needs different values")
        cpts[v] = Gaussian(
            np.full(shape, mean), {p: np.zeros(shape) for p in parents.get(v, ()) if states[p] is float}, sd
        )
    return MixedNetwork(states, parents, cpts)


MAX_LISTED = 1000  # configurations


def empty_configurations(net: MixedNetwork, sums: Sums) -> tuple[dict[str, list[dict[str, str]]], dict[str, int]]:
    """Configurations of discrete parents without any row, of each variable that has some, and how many there are."""
    rows: dict[str, list[dict[str, str]]] = {}
    n_empty: dict[str, int] = {}
    numbers = net.numbers
    for v in net:
        if net.is_number(v):
            weight = sums.moments[numbers.index(v)][:, 0, 0]
        else:
            weight = sums.counts[v].sum(axis=-1).ravel()
        parents = net.discrete_parents(v)
        shape = tuple(len(net.states(p)) for p in parents)
        empty = np.flatnonzero(weight <= 0)
        if parents and len(empty):
            n_empty[v] = len(empty)
            rows[v] = [
                {p: net.states(p)[s] for p, s in zip(parents, np.unravel_index(i, shape), strict=True)}
                for i in empty[:MAX_LISTED].tolist()
            ]
    return rows, n_empty
