"""Starts of EM for dynamic networks with numbers: templates of structures, and densities around random rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...columns import is_frame, open_table
from ...dynamic.number_rows import NumberRows, families
from ...errors import ArgumentError, DataError
from ...model.gaussian import Gaussian
from ...model.mixed_dynamic import MixedDynamicNetwork, label
from .likelihood_cells import hidden_states, of_discretiser, states_given
from .numbers import column_kinds
from .template import parents_of, states_of, uniform_tables

if TYPE_CHECKING:
    from ...util.arrays import Floats

ROUNDED = 1e-12  # of the values: a range that rounding makes meaningless
MOST_CONDITION = 1e8  # of products of parents, for which slopes keep half of the digits
LEAST = 1e-3  # standard deviation that a regression keeps, of that of all observed values


def mixed_template(structure: Any, cases: Any, numbers: Any, states: Any, hidden: Any, bins: Any) -> Any:
    """The dynamic network with numbers of a structure: uniform CPTs, and standard normal densities."""
    if isinstance(structure, MixedDynamicNetwork):
        return structure
    if not isinstance(structure, Mapping):
        raise ArgumentError(
            "continuous= is for parents, such as {'state': [('state', 1)], 'load': ['state']}, and a "
            f"jtgpu.MixedDynamicNetwork has its numbers; got a {type(structure).__name__}"
        )
    if not is_frame(cases) and not isinstance(cases, Mapping):
        raise DataError("continuous= is read from a long frame only; of other sequences give a MixedDynamicNetwork")
    parents = parents_of(structure)
    given = of_discretiser(states, [*parents])[0]
    known = states_given(given, None, [*parents]) | hidden_states(hidden, None, [*parents])
    table = open_table(None, cases)
    if not table.n:
        raise DataError("there are no rows to fit")
    kinds = column_kinds(table, [v for v in parents if v not in known], numbers, {})
    if cut := [v for v, kind in kinds.items() if kind == "intervals"]:
        raise ArgumentError(
            f"continuous: {cut[0]!r} cannot be made intervals in sequences; use bins=, without continuous="
        )
    own = {v: float for v, kind in kinds.items() if kind == "gaussian"}
    if not own:
        raise DataError("no column of the structure has numbers; leave continuous= out")
    known |= states_of([v for v in parents if v not in known and v not in own], cases, bins)
    cpts, start = uniform_tables(known, {v: above for v, above in parents.items() if v in known})
    for y in own:
        pairs = [p if isinstance(p, tuple) else (p, 0) for p in parents[y]]
        axes = [len(known[p]) for p, _ in pairs if p in known]
        lagged = [(p, lag) for p, lag in pairs if p in own]
        cpts[y], *first = (
            Gaussian(np.zeros(axes), {label(*p): 0.0 for p in lagged if p[1] <= t}, 1.0)
            for t in (np.inf, *range(max((lag for _, lag in lagged), default=0)))
        )
        if first:
            start[y] = first
    labels: dict[str, Any] = {v: own.get(v, known.get(v)) for v in parents}
    return MixedDynamicNetwork(labels, parents, cpts, start=start)


def random_densities(
    net: MixedDynamicNetwork, rows: NumberRows, rng: np.random.Generator
) -> dict[str, list[Gaussian]]:
    """Regressions of all rows, whose means are moved to a random row for each configuration of states."""
    n = len(rows.sequences.codes)
    chosen: dict[str | None, Any] = {}  # the same rows for all numbers with the same parents
    made: dict[str, list[Gaussian]] = {}
    for y in net.numbers:
        made[y] = []
        least = least_sd(y, rows.values[y])
        for g, here, design in families(net, rows, y):
            if not len(here):
                made[y].append(g)
                continue
            left = np.full(n, np.nan)
            b, spread, left[here] = weighted_regression(rows.values[y][here], design, np.ones(len(here)))
            if net.component[y] not in chosen:
                chosen[net.component[y]] = rng.choice(here, g.mean.size, replace=len(here) < g.mean.size)
            moved = left[chosen[net.component[y]]]
            moved = np.where(np.isnan(moved), left[rng.choice(here, g.mean.size)], moved)
            if net.component[y] is None:
                moved = np.zeros(1)
            coefficients = {p: np.full(g.mean.shape, b[j]) for j, p in enumerate(g.coefficients, 1)}
            sd = np.full(g.mean.shape, max(spread, least))
            made[y].append(Gaussian((b[0] + moved).reshape(g.mean.shape), coefficients, sd))
    return made


def weighted_regression(x: Floats, design: Floats, weights: Floats) -> tuple[Floats, float, Floats]:
    """Coefficients of a regression, that of the ones first, the standard deviation, and (n,) residuals."""
    # x, design, weights: (n,), (n, 1 + parents), the ones first, and (n,)
    share = (weights / weights.sum())[:, None]  # sums over rows are NumPy's: BLAS divides them between its threads
    middle, at = float(np.add.reduce(share[:, 0] * x)), np.add.reduce(share * design[:, 1:])
    left, parents = x - middle, design[:, 1:] - at  # large values with a small spread lose no digits
    scale = np.sqrt(np.add.reduce(share * parents**2))
    scale[scale == 0] = 1.0
    own = parents / scale
    a, b = (own * share).T @ own, np.add.reduce(own * share * left[:, None])
    if a.size and np.linalg.cond(a) > MOST_CONDITION:  # that of rows is the root of it
        a, b = own * np.sqrt(share), left * np.sqrt(share[:, 0])
    slopes = np.linalg.lstsq(a, b, rcond=None)[0] / scale
    left = left - parents @ slopes
    return np.append(middle - at @ slopes, slopes), float(np.sqrt(np.add.reduce(share[:, 0] * left**2))), left


def least_sd(y: str, values: Floats) -> float:
    """The standard deviation below which none of a number falls."""
    known = values[~np.isnan(values)]
    if not len(known):
        raise DataError(f"no sequence has a value of {y!r}")
    if known.min() == known.max():
        raise DataError(f"column {y!r} is constant, {known[0]:g} in all rows; leave it out")
    if known.max() - known.min() < ROUNDED * np.abs(known).max():
        raise DataError(f"column {y!r} varies in the last digits of {known[0]:g} only; subtract that from it")
    return LEAST * float(np.std(known))
