"""Predictive checks: the counts of some variables in the data against those that the fitted network predicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...columns import open_table
from ...columns.files import in_memory
from ...errors import ArgumentError, DataError, TableTooLarge
from ...inference.results.result import Result
from ...mixed.evidence import read_cases
from ...mixed.regressions import joint_parts
from ...model.mixed import MixedNetwork
from ...model.network import BayesianNetwork
from ...options.record import require_only
from ...options.tables import OF_TABLES, ReadOptions
from ...util.arguments import check_keywords, described
from ...util.arguments import names as given_names
from ...util.arrays import Floats
from ...util.text_table import configurations, counted
from ..columns import sample_weights
from .coded_cases import weighted_chunks
from .numbers import column_weights
from .sources import open_source

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ...util.options import Data

MAX_CELLS = 1_000_000  # configurations of a check


@check_keywords()
class PredictiveCheck(Result):
    """Observed and expected counts of the joint states of some variables.

    The data frame has a row for each configuration: the state of each variable, ``observed``, ``expected``,
    ``deviation`` and ``z``.

    Attributes
    ----------
    variables : tuple of str
    observed : ndarray
        Weight of the rows with each configuration, an axis for each variable; only rows in which none of the variables
        is missing.
    expected : ndarray
        What the network predicts for as many rows: n P(configuration).
    deviation : ndarray
        Standard deviation of a count of n rows drawn from the network, sqrt(n P (1 - P)).
    z : ndarray
        (observed - expected) / deviation, 0 where both counts are certain or differ by rounding (1e-6). Values beyond
        3 or so in many configurations say that the structure misses a dependence.
    chi_squared : float
        Sum of (observed - expected)^2 / expected; about the number of free cells where the network is right.
    rows : float
        n, the weight of the complete rows.

    Examples
    --------
    >>> import jtgpu
    >>> data = jtgpu.load("asia").compile("cpu").sample(500, seed=1)
    >>> fit = jtgpu.learn.fit(jtgpu.load("asia"), data)
    >>> print(jtgpu.learn.check(fit.network, data, ["smoke", "dysp"]))
    Counts of smoke, dysp in 500 rows, chi-squared 0.187035
    smoke  dysp  observed  expected  deviation          z
    yes    yes   137.000   139.276    10.0240   -0.227088
    yes    no    113.000   110.724     9.28462   0.245172
    no     yes    83.0000   80.6276    8.22350   0.288486
    no     no    167.000   169.372    10.5829   -0.224169
    """

    _picture = "counts"

    def __init__(
        self, variables: tuple[str, ...], states: tuple[tuple[str, ...], ...], observed: Floats, probability: Floats
    ):
        self.variables, self.states, self.observed = variables, states, observed
        self.rows = float(observed.sum())
        self.expected = self.rows * probability
        self.deviation = np.sqrt(np.maximum(self.expected * (1.0 - probability), 0.0))
        difference = observed - self.expected
        is_certain = self.deviation <= 1e-12 * max(self.rows, 1.0)
        least = np.where(is_certain, 1e-9 * max(self.rows, 1.0), NO_DIFFERENCE * self.deviation)
        agrees = np.abs(difference) <= least
        with np.errstate(divide="ignore", invalid="ignore"):
            z, parts = difference / self.deviation, difference**2 / self.expected
        self.z = np.where(agrees, 0.0, np.where(is_certain, np.copysign(np.inf, difference), z))
        self.chi_squared = float(np.where(agrees, 0.0, parts).sum())

    def _columns(self) -> dict[str, object]:
        states = dict(zip(self.variables, configurations(self.states), strict=True))
        return {**states, **{name: getattr(self, name).ravel() for name in ("observed", "expected", "deviation", "z")}}

    def labels(self) -> list[str]:
        """Names of the configurations, in the order of the cells: ``"yes, no"``."""
        cells = np.ndindex(*self.observed.shape)
        return [", ".join(s[i] for s, i in zip(self.states, cell, strict=True)) for cell in cells]

    def _counts(self) -> tuple[list[str], tuple[list[float], list[float], list[float]], str]:
        """The data of a chart in notebooks: labels; observed and expected counts, and deviations; and a title."""
        numbers = (self.observed, self.expected, self.deviation)
        return self.labels(), tuple(x.ravel().tolist() for x in numbers), self._title()  # type: ignore[return-value]

    def _title(self) -> str:
        return f"Counts of {', '.join(self.variables)} in {self.rows:,.6g} rows, chi-squared {self.chi_squared:.6g}"


def check(
    network: BayesianNetwork | MixedNetwork,
    cases: Data,
    variables: str | Iterable[str],
    *,
    weights: ArrayLike | str | None = None,
    read: ReadOptions = ReadOptions(),
) -> PredictiveCheck:
    """Compare the counts of some variables in a table with those that a network predicts; of numbers, their moments.

    Parameters
    ----------
    network : BayesianNetwork or MixedNetwork
        Such as ``fit.network``.
    cases : table, path, or list of paths
        See `jtgpu.learn.fit`; only columns of `variables` are read.
    variables : str, or iterable of str
        A name alone stands for its family, the parents and the variable. Other sets, such as two variables without an
        arc, show what the structure misses.
    weights : (B,) array_like, or name of a column, optional
    read : ReadOptions
        How the table is read; see `jtgpu.learn.fit`.

    Returns
    -------
    PredictiveCheck
        ``.observed``, ``.expected``, ``.z``; prints as a table. `jtgpu.draw.plots.counts` plots it. With
        numbers among the variables a `jtgpu.learn.NumberCheck`: means, standard deviations and correlations of the
        numbers, for each configuration of the variables with states.

    Raises
    ------
    DataError
        If a variable has no column, or no row has all of them.
    TableTooLarge
        If the variables have too many configurations.

    Examples
    --------
    >>> import jtgpu
    >>> net = jtgpu.network("a; b", "{x|y}", cpts={"a": [0.5, 0.5], "b": [0.5, 0.5]})
    >>> found = jtgpu.learn.check(net, {"a": [*"xxyy"] * 5, "b": [*"xxyy"] * 5}, ["a", "b"])
    >>> found.expected.tolist(), found.z.round(1).tolist()
    ([[5.0, 5.0], [5.0, 5.0]], [[2.6, -2.6], [-2.6, 2.6]])
    """
    if not isinstance(network, (BayesianNetwork, MixedNetwork)):
        raise ArgumentError(f"check needs a Bayesian network, such as fit.network, not {described(network)}")
    require_only(read, OF_TABLES + " codes chunk", "check")
    network = network.with_codes(read.codes)
    if isinstance(variables, str):
        names = [*network.parents(variables), network.variables[network.index(variables)]]
    else:
        names = list(dict.fromkeys(network.variables[network.index(v)] for v in given_names("variables", variables)))
    if not names:
        raise ArgumentError("check needs at least one variable")
    if isinstance(network, MixedNetwork):
        if any(map(network.is_number, names)):
            of_numbers: PredictiveCheck = cast(Any, check_numbers)(network, cases, names, weights, read)
            return of_numbers  # a NumberCheck, which has no place in the type of the result
        network = network.discrete
    source = open_source(cases, network.variables, read, read.chunk or 100_000, read.na_values)
    for v in names:
        if v not in source.names:
            raise DataError(f"the table has no column {v!r}")
    shape = tuple(len(network.states(v)) for v in names)
    if math.prod(shape) > MAX_CELLS:
        raise TableTooLarge(
            f"{len(names)} variables have {math.prod(shape):,} configurations, more than the limit of {MAX_CELLS:,}",
            math.prod(shape), 8 * math.prod(shape), -1,
        )  # fmt: skip
    numbers = [network.index(v) for v in names]
    observed = np.zeros(math.prod(shape))
    for block, _ in weighted_chunks(network, source, names, weights):
        chosen = block.states[:, numbers]
        complete = (chosen >= 0).all(axis=1)
        at = np.ravel_multi_index(tuple(chosen[complete].T.astype(np.int64)), shape)
        observed += np.bincount(at, block.weights[complete], len(observed))
    if not observed.any():
        raise DataError(f"no row has all of {', '.join(names)}")
    with network.compile("cpu") as tree:
        probability = np.asarray(tree.joint(names).probabilities)
    return PredictiveCheck(
        tuple(names), tuple(network.states(v) for v in names), observed.reshape(shape), probability.reshape(shape)
    )


# Predictive checks of numbers: their moments in the data against those that the fitted network predicts.

NO_DIFFERENCE = 1e-6  # z: what rounding leaves of equal numbers, which depends on the processor, is below it
LEAST_ROWS = 4  # of a configuration: fewer have no spread that could be compared


@check_keywords()
class NumberCheck(Result):
    """Observed and expected means, standard deviations and correlations of numbers; the data frame has a row for each.

    Attributes
    ----------
    cells : list of dict
        Of each row of the result: the states of the variables with states that were given.
    quantities : list of str
        ``"mean x"``, ``"sd x"``, ``"correlation x, y"``.
    rows : (M,) ndarray
        Weight of the complete rows with these states.
    observed, expected : (M,) ndarray
        In the data, and under the network.
    deviation : (M,) ndarray
        Standard deviation of the observed quantity of as many rows drawn from the network; of a correlation in the
        scale of its inverse hyperbolic tangent, for normal numbers.
    z : (M,) ndarray
        Difference in units of the deviation. Values beyond 3 or so say that the structure misses a dependence, or that
        a number is not normal. Below 1e-6, 0: what rounding leaves depends on the processor.

    Examples
    --------
    >>> import jtgpu
    >>> net = jtgpu.MixedNetwork({"x": float}, {}, {"x": jtgpu.Gaussian(0)})
    >>> found = jtgpu.learn.check(net, {"x": [0.5, 1.5, 1.5, 0.5]}, "x")
    >>> found.quantities, found.observed.tolist(), found.z[:1].tolist()
    (['mean x', 'sd x'], [1.0, 0.5], [2.0])
    """

    def __init__(self, entries: list[tuple[dict[str, str], str, float, float, float, float, float]]):
        self.cells, self.quantities = [e[0] for e in entries], [e[1] for e in entries]
        self.rows, self.observed, self.expected, self.deviation, z = np.array([e[2:] for e in entries]).T
        self.z = np.where(np.abs(z) < NO_DIFFERENCE, 0.0, z)

    def _title(self) -> str:
        return f"Moments of numbers in {self.rows.max():,.6g} rows or fewer"

    def _columns(self) -> dict[str, object]:
        states = {v: [cell[v] for cell in self.cells] for v in self.cells[0]}
        numbers = {name: getattr(self, name) for name in ("rows", "observed", "expected", "deviation", "z")}
        return {**states, "quantity": self.quantities, **numbers}


def check_numbers(
    net: MixedNetwork, cases: object, names: list[str], weights: object, read: ReadOptions
) -> NumberCheck:
    """Compare the moments of some numbers, in each configuration of some variables with states."""
    table = open_table(net.graph, in_memory(cases, read, read.na_values, {v: net.states(v) for v in net.discrete}))
    for v in names:
        if v not in table.names:
            raise DataError(f"the table has no column {v!r}")
    w = sample_weights(column_weights(table, weights), table.n)
    coded = read_cases(net, {v: table.column(v) for v in names}, None, None)
    if coded.likelihood:
        raise DataError("predictive checks take states, not likelihoods such as [0.4;0.8]")
    discrete, asked = [v for v in names if not net.is_number(v)], [v for v in names if net.is_number(v)]
    given, numbers = [net.discrete.index(v) for v in discrete], [net.numbers.index(v) for v in asked]
    states, values = coded.states[:, given], coded.values[:, numbers]
    used = (states >= 0).all(axis=1) & ~np.isnan(values).any(axis=1) & (w > 0)
    if not used.any():
        raise DataError(f"no row has all of {', '.join(names)}")
    shape = tuple(len(net.states(v)) for v in discrete)
    tree = net.compile("cpu")
    scale = tree.answerer.numbers.scale[numbers]
    parts = joint_parts(tree, numbers, given)
    sums = parts.sums(prod(shape))
    cells = np.ravel_multi_index(tuple(states[used].T), shape) if given else np.zeros(int(used.sum()), np.intp)
    entries: list[Any] = []
    for cell in np.unique(cells).tolist():
        at = np.unravel_index(cell, shape) if given else ()
        labels = {v: net.states(v)[int(s)] for v, s in zip(discrete, at, strict=True)}
        own, own_weights = values[used][cells == cell] / scale, w[used][cells == cell]
        if len(own) < LEAST_ROWS:
            continue
        if sums[cell, 0, 0] <= 0:
            raise DataError(f"the network gives probability 0 to {labels}, the states of {counted(len(own), 'row')}")
        share = np.where(parts.cell == cell, parts.weights, 0.0) / sums[cell, 0, 0]
        mean = share @ parts.means  # moments about it: those about 0 of seconds since 1970 have no digits left
        away, variance = parts.means - mean, np.diagonal(parts.cov, axis1=1, axis2=2)
        cov = np.tensordot(share, parts.cov + away[:, :, None] * away[:, None, :], 1)
        fourth = share @ (3 * variance**2 + 6 * variance * away**2 + away**4)
        for quantity, unit, *entry in _compared(own, own_weights, mean, cov, fourth):
            name = " ".join((quantity[0], ", ".join(asked[i] for i in quantity[1:])))
            factor = float(scale[quantity[1]]) if unit else 1.0
            entries.append((labels, name, float(own_weights.sum()), *(x * factor for x in entry[:3]), entry[3]))
    if not entries:
        where = f"no configuration of {', '.join(discrete)} has" if discrete else "there are fewer than"
        raise DataError(f"{where} {LEAST_ROWS} rows with all of {', '.join(asked)}")
    return NumberCheck(entries)


def _compared(x: Floats, w: Floats, mean: Floats, cov: Floats, fourth: Floats) -> Iterator[tuple[Any, ...]]:
    """Of each quantity: its name and numbers, whether it has a unit; observed, expected, deviation, z."""
    n, sd = float(w.sum()), np.sqrt(np.diagonal(cov))
    centre = np.add.reduce(x * w[:, None]) / n
    products = (x - centre).T @ ((x - centre) * w[:, None]) / n
    spread = np.sqrt(np.diagonal(products))
    of_sd = np.sqrt(np.maximum(fourth - sd**4, 0.0)) / (2 * sd * np.sqrt(n))
    for i in range(len(mean)):
        deviation = float(sd[i]) / np.sqrt(n)
        yield ("mean", i), True, centre[i], mean[i], deviation, (centre[i] - mean[i]) / deviation
        yield ("sd", i), True, spread[i], sd[i], of_sd[i], (spread[i] - sd[i]) / of_sd[i]
    for i in range(len(mean)):
        for j in range(i):
            if spread[i] and spread[j] and n > LEAST_ROWS - 1:
                r, rho = products[i, j] / (spread[i] * spread[j]), cov[i, j] / (sd[i] * sd[j])
                z = (np.arctanh(np.clip(r, -1 + 1e-15, 1 - 1e-15)) - np.arctanh(rho)) * np.sqrt(n - 3)
                yield ("correlation", j, i), False, r, rho, 1 / np.sqrt(n - 3), z
