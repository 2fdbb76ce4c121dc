"""Mean, sd and quantiles of a posterior whose states are intervals; uniform inside each interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ...columns import Table, as_numbers
from ...errors import ArgumentError, shown
from ...model.discrete import DiscreteModel
from ...util.arguments import random_generator, whole_number
from ...util.arrays import Floats
from ...util.text_table import intervals_of


def ends_of(model: DiscreteModel, variable: str) -> tuple[float, float] | None:
    """Least and greatest number of a variable whose states are intervals, kept in a network's attributes."""
    ends = model.labels.ends.get(variable)
    if not isinstance(ends, tuple) or len(ends) != 2 or not all(isinstance(x, float) for x in ends):
        return None
    return ends if math.isfinite(ends[0]) and ends[0] <= ends[1] < math.inf else None


def _ends(
    variable: str, states: Sequence[str], probabilities: Floats, ends: tuple[float, float] | None
) -> tuple[Floats, Floats, Floats]:
    """Lower ends, upper ends and probabilities of the intervals, ascending."""
    intervals = intervals_of(states)
    if intervals is None:
        raise ArgumentError(
            f"the states of {variable!r}, {shown([*states])}, are not intervals such as '[2.5, 4)': it has no mean, sd "
            "or quantiles"
        )
    bounds = intervals.bounds
    if ends is not None:  # the outer intervals end at the least and greatest number of the data
        bounds[0, 0] = min(ends[0], bounds[0, 1]) if math.isinf(bounds[0, 0]) else bounds[0, 0]
        bounds[-1, 1] = max(ends[1], bounds[-1, 0]) if math.isinf(bounds[-1, 1]) else bounds[-1, 1]
    return bounds[:, 0], bounds[:, 1], probabilities[intervals.order]


def _refuse(variable: str, low: float, high: float, p: float) -> NoReturn:
    raise ArgumentError(
        f"the interval from {low:g} to {high:g} of {variable!r} has no bound and the probability {p:.3g}; name its "
        "state with two ends, as '[0, 2.5)', or fit the network with bins= or states=Discretiser"
    )


def moments(
    variable: str, states: Sequence[str], probabilities: Floats, ends: tuple[float, float] | None
) -> tuple[float, float]:
    """Mean and sd."""
    low, high, p = _ends(variable, states, probabilities, ends)
    used = p > 0
    low, high, p = low[used], high[used], p[used] / p.sum()
    for at in np.flatnonzero(~(np.isfinite(low) & np.isfinite(high)))[:1]:
        _refuse(variable, low[at], high[at], p[at])
    middle = 0.5 * low + 0.5 * high
    mean = float(p @ middle)
    return mean, math.sqrt(float(p @ ((middle - mean) ** 2 + (high - low) ** 2 / 12)))


def quantiles(
    variable: str, states: Sequence[str], probabilities: Floats, ends: tuple[float, float] | None, q: Floats
) -> Floats:
    """Quantiles (Q,) of the probabilities q."""
    low, high, p = _ends(variable, states, probabilities, ends)
    used = p > 0
    low, high, p = low[used], high[used], p[used] / p.sum()
    upto = np.cumsum(p)
    at = np.minimum(np.searchsorted(upto, q), len(p) - 1)
    for i in at[~(np.isfinite(low[at]) & np.isfinite(high[at]))][:1]:
        _refuse(variable, low[i], high[i], p[i])
    share = np.clip((q - (upto[at] - p[at])) / p[at], 0.0, 1.0)
    return np.asarray(low[at] + share * (high[at] - low[at]))


def draw_inside(model: Any, states: NDArray[np.int32], seed: Any, table: Table | None = None) -> dict[str, Floats]:
    """Numbers (n,) in the intervals of variables whose states are intervals; those of the cells of a table are kept."""
    # states: (n, V), -1 in impossible rows, whose numbers are NaN
    whole = isinstance(seed, (int, np.integer))  # of a seed: other draws than those of the states
    rng = random_generator(np.random.SeedSequence(whole_number("seed", seed, least=0)).spawn(1)[0] if whole else seed)
    drawn: dict[str, Floats] = {}
    uniforms = rng.random(states.shape)  # a smaller n draws the first of them
    for i, v in enumerate(model.variables):
        intervals = intervals_of(model.states(v))
        if intervals is None:
            continue
        low, high, _ = _ends(v, model.states(v), np.ones(len(model.states(v))), ends_of(model, v))
        column, place = states[:, i], np.argsort(intervals.order)
        share = np.bincount(column[column >= 0], minlength=len(place)) / max(len(column), 1)
        for s in np.flatnonzero((share > 0) & ~np.isfinite((high - low)[place]))[:1]:
            _refuse(v, low[place[s]], high[place[s]], share[s])
        at = place[column]
        x = low[at] + uniforms[:, i] * (high - low)[at]
        x[column < 0] = np.nan
        given = as_numbers(table.column(v)) if table is not None and v in table.names else None
        drawn[v] = x if given is None else np.where(np.isnan(given), x, given)
    if not drawn:
        raise ArgumentError("numbers=True is for networks with states that are intervals, such as '[2.5, 4)'")
    return drawn


def checked_probabilities(q: object) -> Floats:
    """Probabilities of quantiles, each above 0 and below 1."""
    try:
        p = np.atleast_1d(np.asarray(q, np.float64))
    except (TypeError, ValueError):
        p = np.zeros(1)
    if p.ndim != 1 or not ((p > 0) & (p < 1)).all():
        raise ArgumentError(f"quantiles must be probabilities above 0 and below 1, as [0.05, 0.95], got {shown(q)}")
    return p
