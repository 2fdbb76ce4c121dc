"""Templates of dynamic networks with numbers, for structures without parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...columns import is_frame, open_table
from ...errors import ArgumentError, DataError
from ...model.gaussian import Gaussian
from ...model.mixed_dynamic import MixedDynamicNetwork, label
from .likelihood_cells import hidden_states, of_discretiser, states_given
from .numbers import column_kinds
from .template import parents_of, states_of, uniform_tables

if TYPE_CHECKING:
    from ...util.arrays import Floats

ROUNDED = 1e-12  # of the values: a range that rounding makes meaningless


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


def check_spread(y: str, values: Floats) -> None:
    """Raise an error if the values of a number are not several ones."""
    known = values[~np.isnan(values)]
    if not len(known):
        raise DataError(f"no sequence has a value of {y!r}")
    if known.min() == known.max():
        raise DataError(f"column {y!r} is constant, {known[0]:g} in all rows; leave it out")
    if known.max() - known.min() < ROUNDED * np.abs(known).max():
        raise DataError(f"column {y!r} varies in the last digits of {known[0]:g} only; subtract that from it")
