"""Hill climbing and tabu search over graphs, by adding, deleting and reversing arcs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ....errors import NetworkError
from ....util.loops import loops
from ..scores.rules import PSEUDO_COUNTS
from ..scores.set_values import MAX_CELLS
from .best_graph import BestGraph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..constraints import Constraints
    from ..priors import StructurePrior
    from ..scores.coded import CodedTable
    from ..scores.rules import ScoreRule

__all__ = ["climb"]

_greedy = loops("jtgpu.learn.dags.loops.greedy")

N_TABU, PATIENCE = 100, 100  # graphs that are not visited again; moves without a better graph
SEED = 0x9E3779B9  # of the numbers by which graphs are known


def climb(
    coded: CodedTable, rule: ScoreRule, prior: StructurePrior, constraints: Constraints, *, tabu: bool
) -> BestGraph:
    """A local optimum of the weight, from the graph of the required arcs.

    Parameters
    ----------
    coded : CodedTable
    rule, prior, constraints
    tabu : bool
        Whether to go on from a local optimum, to the best graph that is not among the last 100, until 100 moves have
        not found a better one.

    Raises
    ------
    NetworkError
        If the table of a family of required arcs has more than 1e6 cells.
    """
    n, card = len(coded.names), coded.cardinality
    arcs = constraints.required.astype(np.uint8)
    kind, a = 0, float(rule.ess)
    if rule.name in PSEUDO_COUNTS:
        kind, a = 2, PSEUDO_COUNTS[rule.name]
    elif rule.name != "bdeu":
        kind = 1 if rule.name == "bds" else 3
    weights = np.zeros(0, np.int64) if coded.weights is None else coded.weights
    counted = np.ascontiguousarray(coded.codes), weights, card, kind, a, rule.penalty(coded.n_cases)
    of_size, of_arc = prior.parts(n)
    marks = np.random.Generator(np.random.Philox(key=SEED)).integers(1, 2**63, (n, n), np.uint64)
    cells = np.empty(MAX_CELLS, np.int32)
    start = [_greedy.family_weight(v, *_padded(arcs[:, v]), *counted, cells) for v in range(n)]
    if -math.inf in start:
        name = coded.names[start.index(-math.inf)]
        raise NetworkError(f"the required parents of {name!r} have too many configurations")
    _greedy.climb(
        arcs, constraints.forbidden.astype(np.uint8), constraints.required.astype(np.uint8), constraints.max_parents,
        *counted, of_size, of_arc, *((N_TABU, PATIENCE) if tabu else (0, 0)), marks, cells,
    )  # fmt: skip
    weight, parents = 0.0, [np.flatnonzero(arcs[:, v]).tolist() for v in range(n)]
    for v, members in enumerate(parents):
        weight += _greedy.family_weight(v, *_padded(arcs[:, v]), *counted, cells)
        weight += float(of_size[len(members)] + of_arc[members, v].sum())
    return BestGraph(parents, _order_of(arcs), weight)


def _padded(column: NDArray[np.uint8]) -> tuple[NDArray[np.int64], int]:
    """The parents of a variable in an array of all variables' length, and their number."""
    found = np.flatnonzero(column)
    return np.concatenate([found, np.zeros(len(column) - len(found), np.int64)]), len(found)


def _order_of(arcs: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The smallest order in which all arcs point forward."""
    left, order = np.ones(len(arcs), np.bool_), []
    while left.any():
        v = int(np.flatnonzero(left & ~arcs[left].any(axis=0))[0])
        order.append(v)
        left[v] = False
    return np.array(order, np.int64)
