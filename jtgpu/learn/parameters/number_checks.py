"""Predictive checks of numbers: their moments in the data against those that the fitted network predicts."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ...columns import open_table
from ...columns.files import in_memory
from ...errors import DataError
from ...inference.results.result import Result
from ...mixed.evidence import read_cases
from ...mixed.moments import joint_parts
from ...model.mixed import MixedNetwork
from ...options.tables import ReadOptions
from ...util.arguments import check_keywords
from ...util.arrays import Floats
from ...util.text_table import counted
from ..columns import sample_weights
from .numbers import column_weights

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

    def _columns(self) -> dict[str, Any]:
        states = {v: [cell[v] for cell in self.cells] for v in self.cells[0]}
        numbers = {name: getattr(self, name) for name in ("rows", "observed", "expected", "deviation", "z")}
        return {**states, "quantity": self.quantities, **numbers}


def check_numbers(net: MixedNetwork, cases: Any, names: list[str], weights: Any, read: ReadOptions) -> NumberCheck:
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
