"""Networks of learned graphs: CPTs from the data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...model.network import BayesianNetwork
from ...util.arguments import number
from ..counting import cpt_from_counts
from .scores.coded import NO_STATE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .scores.coded import CodedTable


def fitted_network(
    table: CodedTable,
    arcs: NDArray[np.bool_],
    ess: float,
    known: dict[tuple[int, ...], NDArray[np.float64]] | None = None,
) -> BayesianNetwork:
    """The network of a graph whose CPTs are posterior means under the Dirichlet prior of BDeu."""
    # arcs: (n, n) ndarray of bool: [parent, child]
    # ess: Equivalent sample size; 0: relative frequencies, uniform where a configuration does not occur
    # known: CPTs by family (parents, child), which is looked up and extended: for several graphs of the same table
    # raises ArgumentError: If `ess` is negative or NaN.
    # raises TableTooLarge: If a CPT has more than 1e8 entries.
    ess = number("ess", ess, least=0.0)
    known = {} if known is None else known
    weights = np.ones(table.codes.shape[1]) if table.weights is None else table.weights.astype(np.float64)
    parents, cpts = {}, {}
    for v, name in enumerate(table.names):
        family = (*np.flatnonzero(arcs[:, v]).tolist(), v)
        if family not in known:
            cards = [len(table.states[u]) for u in family]
            columns = [table.codes[u].astype(np.int64) for u in family]
            if table.has_gaps:
                columns = [np.where(column == NO_STATE, -1, column) for column in columns]
            known[family] = cpt_from_counts(columns, cards, weights, ess / math.prod(cards))
        cpts[name] = known[family]
        parents[name] = [table.names[u] for u in family[:-1]]
    return BayesianNetwork(dict(zip(table.names, table.states, strict=True)), parents, cpts)
