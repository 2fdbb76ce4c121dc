"""Structural EM: the best graph of a table with gaps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...errors import DataError
from ...options.learning import EM
from ...util.elementary import log
from ..parameters.fit import fit
from .scores.coded import NO_STATE, CodedTable

if TYPE_CHECKING:
    from ...model.network import BayesianNetwork
    from ...util.arrays import Bools
    from .task import LearningTask

MOST, PATIENCE = 30, 3  # searches, and those that find nothing better in succession

Found = TypeVar("Found")


def improved(
    task: LearningTask, find: Callable[[CodedTable], tuple[Found, Bools]]
) -> tuple[Found, float, BayesianNetwork]:
    """The graph of the highest BIC of the observed cells among those that are best for a filled table."""
    # find: The best graph of a table without gaps, and its arcs [parent, child]
    # returns also the score, and the network whose CPTs EM estimates
    table, rng = task.coded, np.random.default_rng(task.seed)
    gaps, codes = table.codes == NO_STATE, table.codes.copy()
    for v, own in enumerate(gaps):
        if own.all():
            raise DataError(f"column {table.names[v]!r} has no known cell")
        codes[v, own] = rng.choice(codes[v, ~own], int(own.sum()))
    states = dict(zip(table.names, table.states, strict=True))
    columns = zip(table.names, table.states, table.codes, strict=True)
    rows = {v: [None if k == NO_STATE else own[k] for k in column] for v, own, column in columns}
    some = np.flatnonzero(gaps.any(axis=0))
    observed = np.where(gaps[:, some], -1, codes[:, some].astype(np.int32)).T
    best: tuple[Found, float, BayesianNetwork] | None = None
    seen, failed = set[bytes](), 0
    for _ in range(MOST):
        structure, arcs = find(replace(table, codes=codes))
        if arcs.tobytes() not in seen:
            seen.add(arcs.tobytes())
            parents = {v: [table.names[u] for u in np.flatnonzero(arcs[:, i])] for i, v in enumerate(table.names)}
            fitted = fit(
                parents, rows, states=states, weights=table.weights, pseudo_counts=f"bdeu:{task.rule.network_ess:g}",
                em=EM(seed=task.seed),
            )  # fmt: skip
            net = fitted.network
            free = sum(cpt.size // cpt.shape[-1] * (cpt.shape[-1] - 1) for cpt in map(net.cpt, net))
            score = fitted.log_likelihood - 0.5 * free * log(table.n_cases)
            task.say(f"a graph of {int(arcs.sum())} arcs, BIC of the observed cells {score:.6g}")
            failed = failed + 1 if best is not None and score <= best[1] else 0
            if best is None or score > best[1]:
                best = structure, score, net
        else:
            failed += 1
        if failed == PATIENCE:
            break
        assert best is not None  # the first graph is one
        with best[2].compile("cpu", threads=task.threads) as tree:
            drawn = tree.impute(np.ascontiguousarray(observed), seed=int(rng.integers(1 << 62))).states
        codes = codes.copy()
        codes[:, some] = drawn.T
    assert best is not None
    return best
