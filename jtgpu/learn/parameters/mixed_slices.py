"""`fit` of dynamic networks with numbers: EM, whose regressions are weighted by posteriors of the parents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from ...columns.files import in_memory
from ...dynamic.number_rows import NumberRows, families, read_rows, regression, sums, with_densities
from ...dynamic.posteriors import posteriors
from ...errors import ArgumentError, DataError
from ...model.editing import coefficient_name
from ...model.gaussian import Gaussian
from ...model.mixed_dynamic import MixedDynamicNetwork
from ...util.arguments import choice, mapping, names
from ...util.arrays import Floats, Ints
from ...util.cells import MissingReport
from .em import EMState, Theta, digest, fingerprints
from .expectation import PassResult
from .information import standard_errors
from .result import Fit
from .runs import FitRun, best_of_starts
from .setup import Columns, Model, Setup, hidden_states
from .slices import FirstSlices, SliceExpectation, Tables, holes_of, result_of, set_up, weights_of, without_order
from .template import known_states, mixed_template
from .value_steps import DensityEstimate, no_errors

FEW = 1e-6  # weight of rows below which a configuration keeps its regression
ROUNDED = 1e-12  # of the values: a range that rounding makes meaningless
LEAST = 1e-3  # of the standard deviation of all values: what a density keeps


class _SliceDensity(DensityEstimate):
    """The density of a number in slices, of columns less their means in units of their standard deviations."""

    def maximise(self, sums: Theta, old: Floats) -> Floats:
        lines = old.copy()
        for k, s in enumerate(sums[self.members[0]]):
            if s[0, 0] > FEW:
                lines[k] = _regression(s)
        lines[:, -1] = np.maximum(lines[:, -1], LEAST)  # where there are hidden states, the likelihood has no bound
        return lines

    def log_prior(self, theta: Floats) -> float:
        return 0.0

    def extrapolated(self, first: Floats, second: Floats, third: Floats, length: float) -> Floats:
        lines = super().extrapolated(first, second, third, length)
        lines[:, -1] = np.maximum(lines[:, -1], LEAST)
        return lines

    def line(self, g: Gaussian, centre: float) -> Floats:
        """A density in these units; `centre`: what is subtracted from the number."""
        b, sd = regression(g)
        b = b * np.append(1.0, self.scale[:-1]) / self.scale[-1]
        b[:, 0] += b[:, 1:] @ self.origin - centre / self.scale[-1]
        return np.column_stack([b, sd / self.scale[-1]])

    def density(self, line: Floats, centre: float) -> Gaussian:
        """The density with some parameters."""
        mean, *slopes, sd = line.T * self.scale[-1]
        mean = centre + (mean - np.array(slopes).T @ self.origin if slopes else mean)
        own = {p: (b / s).reshape(self.shape) for p, b, s in zip(self.parents, slopes, self.scale, strict=False)}
        return Gaussian(mean.reshape(self.shape), own, sd.reshape(self.shape))


def _regression(s: Floats) -> Floats:
    """Intercept, slopes and sd of the least squares of a number on its parents, from the sums of z z'."""
    mean = s[0, 1:] / s[0, 0]
    cov = s[1:, 1:] / s[0, 0] - np.outer(mean, mean)
    size = np.sqrt(np.maximum(np.diagonal(cov)[:-1], 0.0))
    size[size == 0] = 1.0
    slopes = np.linalg.lstsq(cov[:-1, :-1] / np.outer(size, size), cov[:-1, -1] / size, rcond=None)[0] / size
    contrast = np.append(-slopes, 1.0)
    return np.array([mean @ contrast, *slopes, max(float(contrast @ cov @ contrast), 0.0) ** 0.5])


class SliceValues(SliceExpectation):
    """Sequences with numbers: where EM starts, what it estimates, and its passes; see `Values`."""

    def __init__(  # noqa: PLR0913
        self, net: MixedDynamicNetwork, rows: NumberRows, slices: FirstSlices, setup: Setup, weights: Floats,
        run: FitRun, *, held: Sequence[str], is_start: bool,
    ):  # fmt: skip
        # held: numbers whose densities stay as they are
        # is_start: whether EM starts from the network
        super().__init__(slices, rows.sequences, weights, run)
        self._net, self._rows, self._setup, self._is_start, self._held = net, rows, setup, is_start, held
        self.names: list[tuple[str, str]] = []  # of each density that is estimated: the number, and in results
        self._own: list[tuple[_SliceDensity, float, str | None, Ints, Floats]] = []
        seen = {y: x[~np.isnan(x)] for y, x in rows.values.items()}
        mean, sd = ({y: float(f(x)) for y, x in seen.items()} for f in (np.mean, np.std))
        for y in net.numbers:
            every = families(net, rows, y)
            for t, (g, here, design) in enumerate(every if y not in held else ()):
                above = [p for p, lag in net.numeric_parents(y) if coefficient_name(p, lag) in g.coefficients]
                scale = np.array([sd[p] or 1.0 for p in (*above, y)])
                z = np.column_stack([design, rows.values[y][here]])
                z[:, 1:] = (z[:, 1:] - [mean[p] for p in (*above, y)]) / scale
                family = _SliceDensity(
                    (len(setup.model) + len(self._own),), np.zeros((g.mean.size, z.shape[1], z.shape[1])),
                    tuple(g.coefficients), g.mean.shape, scale, np.array([mean[p] for p in above]) / scale[:-1],
                )  # fmt: skip
                products = np.asarray((z[:, :, None] * z[:, None]).reshape(len(z), -1))
                self._own.append((family, mean[y], net.component[y], here, products))
                self.names.append((y, y if t == len(every) - 1 else f"{y}[{t}]"))
        self.families: Sequence[Any] = (*setup.families, *(own[0] for own in self._own))

    def start_tables(self, complete_counts: Callable[[], Tables], seed: int, n: int) -> Tables:
        """The n-th start: the network's, and densities around random rows."""
        setup, each = self._setup, (g for y in self._net.numbers if y not in self._held for g in self._net.gaussians(y))
        lines = [own[0].line(g, own[1]) for own, g in zip(self._own, each, strict=True)]
        if n or not self._is_start:
            setup, lines = replace(setup, start="random"), self._around_rows(lines, np.random.default_rng([seed, n]))
        return [*setup.start_tables(complete_counts, seed + n, 0), *lines]

    def _around_rows(self, lines: Sequence[Floats], rng: np.random.Generator) -> list[Floats]:
        """Regressions of all rows, whose means are moved to a random row for each configuration of states."""
        # lines: of densities without a row
        chosen: dict[str | None, Ints] = {}  # the same rows for all numbers with the same parents
        made = []
        for old, (_, _, component, here, products) in zip(lines, self._own, strict=True):
            if not len(here):
                made.append(old)
                continue
            k, width = old.shape
            line = _regression(products.sum(axis=0).reshape(width, width))
            left = np.full(len(self._rows.sequences.codes), np.nan)
            left[here] = (products[:, :width] * np.append(-line[:-1], 1.0)).sum(axis=1)
            if component not in chosen:
                chosen[component] = rng.choice(here, k, replace=len(here) < k)
            moved = left[chosen[component]]
            moved = np.where(np.isnan(moved), left[rng.choice(here, k)], moved)
            start = np.tile(line, (k, 1))
            start[:, 0] += moved if component is not None else 0.0
            start[:, -1] = max(line[-1], LEAST)
            made.append(start)
        return made

    def densities(self, theta: Tables) -> dict[str, list[Gaussian]]:
        """The densities of the numbers that are estimated."""
        made: dict[str, list[Gaussian]] = {}
        for (y, _), (family, centre, *_) in zip(self.names, self._own, strict=True):
            made.setdefault(y, []).append(family.density(theta[family.members[0]], centre))
        return made

    def evaluate(self, tables: Tables) -> PassResult:
        """Expected counts and sums of all sequences under some parameters."""
        offset = self._read(tables)
        evaluation = super().evaluate(tables)
        used = np.where(evaluation.impossible[0], 0.0, self.weights)
        log_density = float((used * sums(offset, self._sequences)).sum())
        moments = self._moments(self._shares(), used, slice(None))
        return evaluation._replace(
            sums=[*evaluation.sums, *moments], log_likelihood=evaluation.log_likelihood + log_density
        )

    def each(self, theta: Tables) -> Iterator[tuple[float, Tables]]:
        """The weight of each sequence, and its own sums."""
        self._read(theta)
        self._step.reload(self._slices.network_of(theta))
        shares, ptr = self._shares(), self._sequences.ptr
        for i, (weight, counts) in zip(np.flatnonzero(self.weights > 0).tolist(), super().each(theta), strict=True):
            yield weight, [*counts, *self._moments(shares, np.ones(len(self.weights)), slice(ptr[i], ptr[i + 1]))]

    def _read(self, theta: Tables) -> Floats:
        """Let the sequences have the densities under some parameters; (R,) ln of what these were divided by."""
        self._sequences, offset = with_densities(self._net.with_parameters(gaussians=self.densities(theta)), self._rows)
        return offset

    def _shares(self) -> dict[str, Floats]:
        """(R, K) posteriors of the discrete parents of numbers, in every slice."""
        read, net = self._sequences, self._net.discrete
        components = sorted({own[2] for own in self._own if own[2] is not None})
        answer = posteriors(
            (self._step, self._step), read, [*map(net.index, components)], None, None, "flag", smooth=True
        )  # fmt: skip
        sequence = np.repeat(np.arange(read.n), read.lengths)
        return {c: answer[c][sequence, read.slices] for c in components}

    def _moments(self, shares: Mapping[str, Floats], weights: Floats, rows: slice) -> list[Floats]:
        """The sums of the densities over some rows."""
        each = np.repeat(weights, self._sequences.lengths)[:, None]
        moments = []
        for family, _, component, here, products in self._own:
            first, last, _ = rows.indices(len(each))
            own = slice(*np.searchsorted(here, [first, last]).tolist())
            share = each if component is None else shares[component] * each
            sums = np.einsum("nk,nq->kq", share[here[own]], products[own])  # BLAS adds by thread
            moments.append(sums.reshape(family.prior.shape))
        return moments

    def digests(self) -> dict[str, str]:
        """Digests of all that decides the result of a run, by name."""
        own = {y: self._net.gaussians(y) for y in self._net.numbers}
        of_setup = fingerprints(self._setup, self.digest() + digest(*(self._rows.values[y] for y in own)))
        return of_setup | {"densities": repr((self.names, [(y, [regression(g) for g in own[y]]) for y in own]))}


def fit_mixed_sequences(
    structure: Any, cases: Any, columns: Columns, model: Model, run: FitRun, numbers: Any = "gaussian"
) -> Fit[MixedDynamicNetwork]:
    """Fit a dynamic network with numbers; see `jtgpu.learn.fit`."""
    choice("missing", columns.missing, ("em", "error"))
    without_order(run.em.order)
    cases = in_memory(cases, columns.dialect, columns.na_values, known_states(structure, model.states))
    given = model.start
    if isinstance(given, MixedDynamicNetwork):
        parents = structure if isinstance(structure, Mapping) else {v: structure.parents(v) for v in structure}
        if {v: [*given.parents(v)] for v in given if given.parents(v)} != {
            v: [p if isinstance(p, tuple) else (p, 0) for p in above] for v, above in parents.items() if above
        }:
            raise ArgumentError("start: the network has other variables or parents than the structure")
        structure, model = given, model._replace(start="given")
    has_numbers = isinstance(structure, MixedDynamicNetwork)
    choice("start", model.start, ("auto", "given", "random"))
    if model.start == "given" and not has_numbers:
        raise ArgumentError("start='given' requires a network with CPTs and Gaussians as the structure")
    net: MixedDynamicNetwork = mixed_template(structure, cases, numbers, model.states, model.hidden, model.bins)
    net = net.with_codes(model.codes)
    rows = read_rows(
        net, cases, likelihood=mapping("likelihood", columns.likelihood), keys=columns.keys,
    )  # fmt: skip
    for y in net.numbers:
        _check_spread(y, rows.values[y])
    own = hidden_states(model.hidden, net.discrete, net.discrete.variables)
    hidden = (*own, *net.joined)
    weights = weights_of(columns.weights, rows.sequences, cases)
    holes = holes_of(net.discrete, rows.sequences, hidden, columns.missing, {y: rows.values[y] for y in net.numbers})
    slices = FirstSlices(net.discrete)
    fixed = list(names("fixed", model.fixed))
    held = [y for y in fixed if y in net.numbers]
    if held and not has_numbers:
        raise ArgumentError("fixed requires a network with CPTs and Gaussians as the structure")
    model = model._replace(fixed=[*(v for v in fixed if v not in held), *net.joined])
    setup = set_up(slices, True, model, hidden, "given")
    is_start = has_numbers and model.start != "random"
    with closing(SliceValues(net, rows, slices, setup, weights, run, held=held, is_start=is_start)) as values:
        state, more = best_of_starts(values, values, run, values.digests)
        if run.em.standard_errors:
            more["_errors"] = _errors(values, slices, setup, state, net, held, run)
        used = values.weights
    more |= {"n_weightless": int((weights <= 0).sum()), "missing": MissingReport(holes)}
    fit: Fit[Any] = result_of(slices, setup, state, "em", rows.sequences, used, more)
    return replace(
        fit, network=net.with_parameters(fit.network, values.densities(state.tables)),
        hidden=tuple(v for v in fit.hidden if v not in net.joined),
        fixed=(*(v for v in fit.fixed if v not in net.joined), *held),
        counts={v: counts for v, counts in fit.counts.items() if v not in net.joined},
    )  # fmt: skip


def _check_spread(y: str, values: Floats) -> None:
    """Raise an error if the values of a number are not several ones."""
    known = values[~np.isnan(values)]
    if not len(known):
        raise DataError(f"no sequence has a value of {y!r}")
    if known.min() == known.max():
        raise DataError(f"column {y!r} is constant, {known[0]:g} in all rows; leave it out")
    if known.max() - known.min() < ROUNDED * np.abs(known).max():
        raise DataError(f"column {y!r} varies in the last digits of {known[0]:g} only; subtract that from it")


def _errors(
    values: SliceValues, slices: FirstSlices, setup: Setup, state: EMState, net: MixedDynamicNetwork,
    held: Sequence[str], run: FitRun,
) -> dict[str, Any]:  # fmt: skip
    """Standard errors by the names of CPTs and densities; 0 for fixed ones."""
    by_family = standard_errors(values.families, state.tables, state.evaluation.sums, values, **run.kind_of_errors)
    joined = {name for v in net.joined for name in slices.every(v)}
    errors: dict[str, Any] = {
        title: by_family.get(v, np.zeros(state.tables[v].shape)) for v, name in enumerate(setup.model)
        if name not in joined and (title := slices.title(name)) is not None
    }  # fmt: skip
    errors |= {title: by_family[len(setup.model) + i] for i, (_, title) in enumerate(values.names)}
    return errors | {y: no_errors(net.gaussian(y)) for y in held}
