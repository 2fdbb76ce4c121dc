"""Hill climbing and tabu search over graphs, by adding, deleting and reversing arcs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ....errors import NetworkError
from ....util.loops import loops
from ..chain_records import TABULATED
from ..graphs import start_order
from ..scores.set_values import MAX_CELLS
from .best_graph import BestGraph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..constraints import Constraints, StructurePrior
    from ..scores.coded import CodedTable
    from ..scores.rules import ScoreRule

_greedy = loops("jtgpu.learn.dags.loops.greedy")

N_TABU, PATIENCE = 100, 100  # graphs that are not visited again; moves without a better graph
MIN_SHAKEN = 5  # random moves before another climb
SEED = 0x9E3779B9  # of the numbers by which graphs are known


def climb(  # noqa: PLR0913
    coded: CodedTable,
    rule: ScoreRule,
    prior: StructurePrior,
    constraints: Constraints,
    *,
    tabu: bool,
    start: NDArray[np.bool_] | None = None,
    restarts: int = 0,
    seed: int = 0,
) -> BestGraph:
    """A local optimum of the weight."""
    # tabu: Whether to go on from a local optimum, to the best graph that is not among the last 100, until 100 moves
    #     have not found a better one
    # start: (n, n) ndarray of bool: The first graph, [parent, child]. Default: that of the required arcs.
    # restarts: How often to climb again, from the best graph after some random moves: one for every two variables, at
    #     least 5
    # seed: Of these moves
    # raises NetworkError: If the table of a family of required arcs has more than 1e6 cells.
    n, card = len(coded.names), coded.cardinality
    first = (constraints.required if start is None else start).astype(np.uint8)
    values, of_parents = np.zeros((0, 0)), np.zeros(n, np.int64)
    if rule.score.formula == TABULATED:
        functions = rule.functions(card, 1, MAX_CELLS, coded.n_cases)
        values, of_parents = functions.values, np.array([functions.parent_row(r) for r in card.tolist()], np.int64)
    weights = np.zeros(0, np.int64) if coded.weights is None else coded.weights
    counted = (
        np.ascontiguousarray(coded.codes), weights, card, rule.score.formula, rule.score.pseudo_count(float(rule.ess)),
        rule.penalty(coded.n_cases), values, of_parents,
    )  # fmt: skip
    of_size, of_arc = prior.parts(n)
    marks = np.random.Generator(np.random.Philox(key=SEED)).integers(1, 2**63, (n, n), np.uint64)
    cells = np.empty(MAX_CELLS, np.int32)
    limits = constraints.forbidden.astype(np.uint8), constraints.required.astype(np.uint8), constraints.max_parents

    def weight_of(arcs: NDArray[np.uint8]) -> float:
        weight = 0.0
        for v in range(n):
            members, n_members = _padded(arcs[:, v])
            weight += _greedy.family_weight(v, members, n_members, *counted, cells)
            weight += float(of_size[n_members] + of_arc[members[:n_members], v].sum())
        return weight

    for v in range(n):
        if _greedy.family_weight(v, *_padded(first[:, v]), *counted, cells) == -math.inf:
            whose = "required parents" if start is None else "parents in the start graph"
            raise NetworkError(f"the {whose} of {coded.names[v]!r} have too many configurations")
    best, weight, n_moves = first, -math.inf, 0
    for number in range(restarts + 1):
        arcs = best.copy() if number == 0 else _shaken(best, constraints, [seed, number])
        n_moves += _greedy.climb(
            arcs, *limits, *counted, of_size, of_arc, *((N_TABU, PATIENCE) if tabu else (0, 0)), marks, cells
        )
        found = weight_of(arcs)
        if found > weight + (1e-9 if number else 0.0):
            best, weight = arcs, found
    parents = [np.flatnonzero(best[:, v]).tolist() for v in range(n)]
    return BestGraph(parents, start_order(best.astype(np.bool_)), weight, n_moves)


def _shaken(arcs: NDArray[np.uint8], constraints: Constraints, key: list[int]) -> NDArray[np.uint8]:
    """A graph after random moves: arcs are added, deleted or reversed where the constraints allow it."""
    rng, n = np.random.Generator(np.random.Philox(key=key)), len(arcs)
    found = arcs.copy()
    for _ in range(max(n // 2, MIN_SHAKEN)):
        u, v = rng.choice(n, 2, replace=False).tolist()
        after = found.copy()
        after[u, v] ^= 1
        if found[u, v] and rng.random() < 0.5:
            after[v, u] = 1
        allowed = not (after.astype(np.bool_) & constraints.forbidden).any()
        allowed = allowed and not (constraints.required & (after == 0)).any()
        allowed = allowed and bool((after.sum(axis=0) <= constraints.max_parents).all())
        added = (v, u) if after[v, u] else (u, v)
        if allowed and not (after[added] and _leads(after, added[1], added[0])):
            found = after
    return found


def _leads(arcs: NDArray[np.uint8], u: int, v: int) -> bool:
    """Whether a path leads from u to v."""
    seen = np.zeros(len(arcs), np.bool_)
    front = np.array([u])
    while len(front):
        seen[front] = True
        front = np.flatnonzero(arcs[front].any(axis=0) & ~seen)
    return bool(seen[v])


def _padded(column: NDArray[np.uint8]) -> tuple[NDArray[np.int64], int]:
    """The parents of a variable in an array of all variables' length, and their number."""
    found = np.flatnonzero(column)
    return np.concatenate([found, np.zeros(len(column) - len(found), np.int64)]), len(found)

