"""EM of networks with numbers: densities as families, and the E-step over rows of states and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...columns import Table as Cells
from ...columns import at_row
from ...errors import ImpossibleEvidence
from ...mixed.components import Densities
from ...mixed.evidence import MixedCases
from ...mixed.fitting import (
    Strength,
    density_of,
    far_from_zero,
    lines_of,
    log_prior_of,
    moved,
    moved_passes,
    one_pass,
    passes_of_rows,
    pooled_prior,
    regressions,
)
from ...mixed.regressions import FamilyRows
from ...mixed.tree import MixedTree
from ...model.gaussian import Gaussian
from ...model.mixed import MixedNetwork
from ...util.arrays import Bools, Floats, Ints
from ...util.elementary import exp, exps, logs
from ...util.iteration import Iteration
from .em import EMState, Problem, Theta, digest, first_state, maximise
from .expectation import PassResult
from .families import LEAST_ROWS, CptFamily, Sharing
from .information import GaussianErrors, standard_errors

LEAST_SD = 0.1  # of a standard deviation: what an extrapolation leaves of it


@dataclass(frozen=True, eq=False)
class DensityEstimate:
    """The density of a number, as EM estimates it: (K, m + 2) intercept, slopes and sd, scaled."""

    members: tuple[int, ...]
    prior: Floats  # (K, m + 2, m + 2) sums of z z', z = (1, numeric parents, number), as those of rows
    parents: tuple[str, ...]
    shape: tuple[int, ...]  # states of the discrete parents
    scale: Floats  # (m + 1,) units of the numeric parents, and of the number
    origin: Floats  # (m,) scaled, what has been subtracted from the numeric parents

    def extrapolated(self, first: Floats, second: Floats, third: Floats, length: float) -> Floats:
        a, b, c = (np.column_stack([x[:, :-1], logs(x[:, -1])]) for x in (first, second, third))
        lines = a + 2 * length * (b - a) + length**2 * (c - 2 * b + a)
        lines[:, -1] = np.clip(exps(np.clip(lines[:, -1], -700, 700)), LEAST_SD * third[:, -1], third[:, -1] / LEAST_SD)
        return lines

    @property
    def cells(self) -> int:
        return int(self.prior[0].size)

    # Standard errors: `jtgpu.learn.parameters.information.Curved`. The parameters are the coefficients of the ones and
    # of the standardised parents, in units of the sd, and ln sd; `unit`: means and sds of the parents.

    def parameters(self, data: Floats, total: Floats, theta: Floats) -> Iterator[tuple[int, int, Any]]:
        m = theta.shape[1] - 2
        for k in np.flatnonzero(data[:, 0, 0] > LEAST_ROWS * float(data[:, 0, 0].sum())).tolist():
            s = total[k] / total[k, 0, 0]
            centre = s[0, 1 : m + 1]
            variance = np.diagonal(s)[1 : m + 1] - centre**2
            if (variance > 1e-18 * (1 + centre**2)).all():
                yield k, m + 2, (centre, np.sqrt(variance))

    def score(self, total: Floats, theta: Floats, k: int, unit: Any) -> Floats:
        sd, contrast = theta[k, -1], np.append(-theta[k, :-1], 1.0)  # z @ contrast is the residual
        by_z = _standardised(unit) @ (total[k] @ contrast)[:-1] / sd
        return np.append(by_z, contrast @ total[k] @ contrast / sd**2 - total[k, 0, 0])

    def curvature(self, total: Floats, theta: Floats, k: int, unit: Any) -> Floats:
        m, contrast, to = len(theta[k]) - 2, np.append(-theta[k, :-1], 1.0), _standardised(unit)
        result = np.zeros((m + 2, m + 2))
        result[:-1, :-1] = to @ total[k, :-1, :-1] @ to.T
        result[-1, -1] = 2.0 * (contrast @ total[k] @ contrast) / theta[k, -1] ** 2
        return result

    def covariance(self, total: Floats, theta: Floats, k: int, unit: Any) -> Floats | None:
        return None

    def moved(self, theta: Floats, k: int, unit: Any, i: int, step: float) -> Floats:
        lines = theta.copy()
        if i == theta.shape[1] - 1:
            lines[k, -1] *= exp(step)
        else:
            lines[k, :-1] += step * lines[k, -1] * _standardised(unit)[i]
        return lines

    def unknown(self, theta: Floats) -> GaussianErrors:
        mean, sd, *slopes = (np.full(self.shape, np.inf) for _ in range(len(self.parents) + 2))
        return GaussianErrors(mean, dict(zip(self.parents, slopes, strict=True)), sd)

    def enter(self, errors: GaussianErrors, theta: Floats, k: int, unit: Any, covariance: Floats, gone: Bools) -> None:
        (centre, size), sd = unit, theta[k, -1] * self.scale[-1]
        *slopes, width = (np.where(gone, np.inf, np.sqrt(np.maximum(np.diagonal(covariance), 0.0))) * sd)[1:]
        at_zero = np.array([1.0, *(-(centre + self.origin) / size), 0.0])
        variance = max(float(at_zero @ covariance @ at_zero), 0.0)
        errors.mean.flat[k] = np.inf if gone[at_zero != 0].any() else np.sqrt(variance) * sd
        errors.sd.flat[k] = width
        for own, error, spread in zip(errors.coefficients.values(), slopes, size * self.scale[:-1], strict=True):
            own.flat[k] = error / spread


@dataclass(frozen=True, eq=False)
class DensityFamily(DensityEstimate):
    """The density of a number of rows."""

    numbers: Densities
    g: int  # its number among the numbers
    rows: FamilyRows | None  # where all are complete
    errors: dict[str, float]  # gets what rounding of sums may have changed, relative

    def maximise(self, sums: Theta, old: Floats) -> Floats:
        lines, error = regressions(self.numbers, self.g, sums[self.members[0]] + self.prior, old, self.rows)
        self.errors[self.numbers.names[self.g]] = error
        return lines

    def log_prior(self, theta: Floats) -> float:
        rows, g = self.rows, self.g
        return log_prior_of(self.prior, theta, None if rows is None else lambda contrast: rows.squares(g, contrast))

    def covariance(self, total: Floats, theta: Floats, k: int, unit: Any) -> Floats | None:
        if self.rows is None:
            return None
        factor, centre, _ = self.rows.root(self.g, k)  # of sums of products, the condition would be squared
        m, (middle, size) = len(centre) - 1, unit
        standardised = np.diag(np.append(1.0, 1.0 / size))
        standardised[0, 1:] = (centre[:m] - middle) / size
        root = np.linalg.inv(factor[: m + 1, : m + 1] @ standardised)
        result = np.zeros((m + 2, m + 2))
        result[:-1, :-1], result[-1, -1] = root @ root.T, 0.5 / total[k, 0, 0]
        return result


def _standardised(unit: Any) -> Floats:
    """(m + 1, m + 1) of the ones and the standardised parents in terms of the ones and the parents."""
    centre, size = unit
    result = np.diag(np.append(1.0, 1.0 / size))
    result[1:, 0] = -centre / size
    return result


class Values:
    """Rows of states and values: where EM starts, what it estimates, and its passes."""

    def __init__(  # noqa: PLR0913
        self, start: MixedNetwork, cases: MixedCases, weights: Floats, strength: Strength,
        options: Mapping[str, Any], *, fixed: Sequence[str] = (), sharing: Sharing | None = None,
        hidden: Sequence[str] = (), source: tuple[Cells, Ints] | None = None, is_random: bool = False,
    ):  # fmt: skip
        # start: gives the units, too
        # fixed: variables whose parameters stay
        # sharing: of variables with states, by number among these; None: each by itself
        # source: the table, and the row of each case in it
        # is_random: whether EM starts around random rows
        self._far = far_from_zero(start, cases, weights)
        shift = np.array([self._far.get(y, 0.0) for y in start.numbers])
        if self._far:
            cases = replace(cases, values=cases.values - shift)
            start = moved(start, {y: -x for y, x in self._far.items()})
        self.cases, self.weights, self.hidden, self._source, self._is_random = cases, weights, hidden, source, is_random
        self.tree = MixedTree(start, "cpu", max_configurations=1 << 22, options=options)
        self.is_complete = not (hidden or cases.likelihood or np.isnan(cases.values).any() or (cases.states < 0).any())
        self.errors: dict[str, float] = {}
        numbers, prior = self.tree.answerer.numbers, pooled_prior(self.tree, cases, weights, strength)
        rows = FamilyRows(numbers, cases, weights, strength.rows, shift) if self.is_complete else None
        names = start.discrete.variables
        groups = [(i,) for i, v in enumerate(names) if v not in fixed] if sharing is None else sharing.groups
        families: list[Any] = [
            CptFamily(tuple(start.index(names[i]) for i in group), prior.counts[names[group[0]]]) for group in groups
        ]
        families += [
            DensityFamily(
                (start.index(v),), prior.moments[g], tuple(numbers.names[p] for p in numbers.parents[g]),
                tuple(numbers.cards[d] for d in numbers.scope[g]), numbers.scale[[*numbers.parents[g], g]],
                (shift / numbers.scale)[[*numbers.parents[g]]], numbers, g, rows, self.errors,
            ) for g, v in enumerate(start.numbers) if v not in fixed
        ]  # fmt: skip
        self.families = tuple(families)

        self.first: Theta = [
            lines_of(numbers, start.numbers.index(v), start.gaussian(v)) if start.is_number(v) else
            np.asarray(start.cpt(v)) for v in start
        ]  # fmt: skip

    def start_tables(self, complete_counts: object, seed: int, n: int) -> Theta:
        """The n-th start: the network's, and random ones."""
        if n == 0 and not self._is_random:
            return self.first
        rng, net, theta = np.random.default_rng([seed, n]), self.tree.network, [*self.first]
        chosen: dict[Any, Ints] = {}  # the same rows for all numbers with the same parents
        for family in self.families:
            first, *others = family.members
            own = np.array(theta[first])
            if not isinstance(family, DensityFamily):
                own = rng.standard_exponential(own.shape) + 1e-9
                own /= own.sum(axis=-1, keepdims=True)
            elif len(own) > 1:  # around rows
                parents, values = net.discrete_parents(first), self.cases.values[:, family.g]
                if parents not in chosen:
                    chosen[parents] = rng.choice(len(values), len(own), replace=len(values) < len(own))
                x = values[chosen[parents]] / family.numbers.scale[family.g]
                own[:, 0] = np.where(np.isnan(x), own[:, 0], x)
                own[:, 1:-1] = 0.0
            for v in (first, *others):
                theta[v] = own
        return theta

    def _network(self, theta: Theta) -> MixedNetwork:
        net, numbers = self.tree.network, self.tree.answerer.numbers
        return net.replace(cpt={
            v: density_of(numbers, net.numbers.index(v), own) if net.is_number(v) else own
            for v, own in zip(net, theta, strict=True)
        })  # fmt: skip

    def network(self, theta: Theta) -> MixedNetwork:
        """The network with some parameters, in the units of the rows."""
        return moved(self._network(theta), self._far)

    def evaluate(self, theta: Theta) -> PassResult:
        """Expected counts and sums of all rows under some parameters."""
        net, weights = self._network(theta), self.weights
        self.tree.reload(net)
        sums = one_pass(self.tree, self.cases, weights)
        own = [sums.moments[net.numbers.index(v)] if net.is_number(v) else sums.counts[v] for v in net]
        dead = sums.impossible & (weights > 0)
        return PassResult(own, sums.log_likelihood, [dead], float(weights[~dead].sum()))

    def incomplete(self, members: Sequence[int], k: int) -> Ints | None:
        """Rows that miss a part of the family of one of some variables, and may have its parents in configuration k."""
        net, cases, result = self.tree.network, self.cases, np.zeros(len(self.weights), np.bool_)
        for v in (net.variables[i] for i in members):
            states = {u: cases.states[:, net.discrete.index(u)] for u in (*net.discrete_parents(v), v)
                      if not net.is_number(u)}  # fmt: skip
            numbers = [net.numbers.index(u) for u in (*net.parents(v), v) if net.is_number(u)]
            gaps = np.isnan(cases.values[:, numbers]).any(axis=1)
            for column in states.values():
                gaps |= column < 0
            parents = net.discrete_parents(v)
            for u, s in zip(parents, np.unravel_index(k, [len(net.states(u)) for u in parents]), strict=True):
                gaps &= (states[u] < 0) | (states[u] == s)
            result |= gaps
        return np.flatnonzero(result) if result.any() else None

    def some(self, theta: Theta, members: Sequence[int], tables: Sequence[Floats], rows: Ints) -> Iterator[Theta]:
        """The sums of some rows with each of some tables of a family."""
        net = self._network(theta)
        self.tree.reload(net)
        names = [net.variables[v] for v in members]
        for sums in moved_passes(self.tree, self.cases.part(rows), self.weights[rows], names, tables):
            yield [sums.moments[net.numbers.index(v)] if net.is_number(v) else sums.counts[v] for v in net]

    def each(self, theta: Theta) -> Iterator[tuple[float, Theta]]:
        """The weight of each row, and its own sums."""
        net = self._network(theta)
        self.tree.reload(net)
        for weight, sums in passes_of_rows(self.tree, self.cases, self.weights):
            yield weight, [sums.moments[net.numbers.index(v)] if net.is_number(v) else sums.counts[v] for v in net]

    def counted(self, listen: Callable[[Iteration], None]) -> EMState:
        """The parameters where nothing is missing: one M-step."""
        problem = Problem(self.evaluate, self.families)
        start = first_state(problem, self.first)
        listen(start.history[0])
        state = first_state(problem, maximise(self.families, start.evaluation.sums, start.tables))
        last = state.history[0]._replace(number=1, change=state.objective - start.objective)
        listen(last)
        return replace(state, history=(*start.history, last), converged=True)

    def complete_counts(self) -> Theta:
        """Not needed: starts are the network, or random."""
        return []

    def error(self, evaluation: PassResult) -> ImpossibleEvidence | None:
        """The error for the first row of probability 0."""
        row = next(iter(np.flatnonzero(evaluation.impossible[0]).tolist()), None)
        if row is None:
            return None
        listed = ", ".join(self.cases.findings(self.tree.network, row))
        reason = f'this row has probability 0 at the start: {listed} (on_error="flag" leaves such rows out)'
        if self._source is not None:
            reason = at_row(self._source[0], int(self._source[1][row]), reason)
        return ImpossibleEvidence(reason)

    def leave_out(self, evaluation: PassResult) -> tuple[int, bool]:
        """Leave out the rows of probability 0."""
        dead = evaluation.impossible[0]
        self.weights = np.where(dead, 0.0, self.weights)
        return int(dead.sum()), bool((self.weights > 0).any())

    def digests(self) -> dict[str, str]:
        """Digests of all that decides the result of a run, by name."""
        net = self.tree.network
        return {
            "data": digest(self.cases.states, self.cases.values, self.weights, *self.cases.likelihood.values()),
            "structure": repr([(v, net.states(v), net.parents(v)) for v in net]),
            "start": "random" if self._is_random else digest(*self.first),
            "prior": digest(*(f.prior for f in self.families)), "hidden variables": repr(self.hidden),
            "tied or fixed variables": repr([f.members for f in self.families]),
        }  # fmt: skip

    def close(self) -> None:
        """Free the memory."""
        self.tree.close()


def errors_of(net: MixedNetwork, method: str, *rows: Any, **how: Any) -> dict[str, Any]:
    """Standard errors of all parameters of a network that was fitted to some rows; see `Values`."""
    cases, weights, strength, fixed, sharing, hidden = rows
    with closing(Values(net, cases, weights, strength, {}, fixed=fixed, sharing=sharing, hidden=hidden)) as values:
        sums = values.evaluate(values.first).sums
        passes = None if method == "counts" else values
        errors = standard_errors(values.families, values.first, sums, passes, **how)
    own = {net.variables[v]: one for v, one in errors.items()}
    return {v: own[v] if v in own else no_errors(net.gaussian(v)) if net.is_number(v) else np.zeros(net.cpt(v).shape)
            for v in net}  # fmt: skip


def no_errors(density: Gaussian) -> GaussianErrors:
    """Errors of a density that stays."""
    zeros = np.zeros(density.mean.shape)
    return GaussianErrors(zeros, dict.fromkeys(density.coefficients, zeros), zeros)
