"""The graph of the highest weight: exactly, by annealed search over orders, or by hill climbing and tabu search."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import NetworkError, TableTooLarge, format_bytes
from ...util.arguments import number
from ...util.arrays import Bools, Floats, Ints
from ...util.loops import loops
from ...util.system import cores, free_memory
from .chain_records import TABULATED
from .chains.orders import start_order
from .graphs import topological_order
from .scores.set_values import MAX_CELLS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .candidate_tables import CandidateTables
    from .constraints import ArcLimits, StructurePrior
    from .scores.coded import CodedTable
    from .scores.rules import ScoreRule


TRIAL = 64  # share of the steps that are run to learn their pace: one in so many


@dataclass(frozen=True)
class TimeLimit:
    """A moment by `time.monotonic`; infinity: there is no limit, and results do not depend on the machine."""

    until: float = math.inf

    @staticmethod
    def of(seconds: float | None) -> TimeLimit:
        """The limit of a call that begins now."""
        return TimeLimit() if seconds is None else TimeLimit(monotonic() + number("seconds", seconds, above=0.0))

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self.until < math.inf

    @property
    def left(self) -> float:
        """Seconds until the limit, at least 0."""
        return max(self.until - monotonic(), 0.0)

    def steps(self, wanted: int, run: Callable[[int], object], share: float) -> int:
        """So many steps, or as many as a share of the time that is left allows by the pace of a few."""
        if not self.is_set:
            return wanted
        few, begin = max(wanted // TRIAL, 1), monotonic()
        run(few)
        pace = max((monotonic() - begin) / few, 1e-9)
        return max(min(wanted, int(share * self.left / pace)), few)


_set_sums = loops("jtgpu.learn.dags.loops.set_sums")
_orders = loops("jtgpu.learn.dags.loops.orders")

MAX_EXACT = 24  # variables
FIRST_BETA, LAST_BETA = 0.2, 5.0  # of the annealed search
STEPS = 1600  # of a chain, for each variable
RESTARTS = 4  # annealed chains
TIE = 1e-12  # relative difference of weights that is rounding
SHARE_OF_SEARCH = 0.3  # of the time that is left, if it is limited


class BestGraph(NamedTuple):
    """A graph, and an order of its variables."""

    parents: list[list[int]]  # Ascending
    order: Ints  # (n,)
    weight: float  # sum of the weights of its families
    n_steps: int = 0  # steps of the search


def exact_best(
    log_weights: Floats, masks: Ints, *, memory_limit: int | None = None, threads: int | None = None
) -> BestGraph:
    """The graph of the highest weight (Silander and Myllymaki, 2006); time and memory grow like n 2^n."""
    # log_weights (n, M)
    # masks: (M,) the parent sets as bits; bits above the child are squeezed down by one
    n = len(log_weights)
    half = 1 << max(n - 1, 0)
    limit = int(0.8 * free_memory()) if memory_limit is None else memory_limit
    needed = 8 * half * (n + 3)
    if n > MAX_EXACT or needed > limit:
        reason = f"at most {MAX_EXACT} are supported" if n > MAX_EXACT else f"the limit is {format_bytes(limit)}"
        raise TableTooLarge(
            f"the exact search over {n} variables needs {format_bytes(needed)}; {reason}", half, needed, limit
        )
    best_sets, order = np.empty((n, half)), np.empty(n, np.int64)
    rows = np.ascontiguousarray(log_weights)
    with ThreadPoolExecutor(threads or cores(), "jtgpu-learn") as pool:
        list(pool.map(lambda v: _set_sums.best_of_subsets(rows[v], masks, best_sets[v]), range(n)))
    if _set_sums.best_order(best_sets, np.empty(2 * half), order) == -math.inf:
        raise NetworkError("no graph satisfies the constraints")
    return graph_of_best_order(order, rows, masks)


def graph_of_best_order(order: Ints, log_weights: Floats, masks: Ints) -> BestGraph:
    """The best graph that an order of the variables allows, among all parent sets of `exact_best`."""
    n, position = len(order), np.argsort(order)
    parents, weight = [], 0.0
    for v in range(n):
        others = [u for u in range(n) if u != v]
        before = sum(1 << i for i, u in enumerate(others) if position[u] < position[v])
        best = _best_within(log_weights[v], masks, before)
        parents.append([u for i, u in enumerate(others) if masks[best] >> i & 1])
        weight += float(log_weights[v, best])
    return BestGraph(parents, order, weight)


def best_by_orders(
    tables: CandidateTables, constraints: ArcLimits, *, seed: int = 0, threads: int | None = None,
    first: Ints | None = None, limit: TimeLimit | None = None,
) -> BestGraph:  # fmt: skip
    """A graph of high weight: the best of the orders that annealed chains of relocations visit."""
    # constraints: Start orders satisfy the required arcs
    # the first chain starts from the order of the variables, the others from random ones
    # first: (n,) order from which the first chain starts. No graph that it allows is better than the result.
    n = len(tables.candidates)
    best_sets = tables.best(threads)

    def search(chain: int, steps: int) -> tuple[float, Ints]:
        order = start_order(constraints, chain, seed) if chain or first is None else first.copy()
        position, masks, values = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
        _orders.start_order(order, tables.bit_in, best_sets, position, masks, values)
        best, settings = np.empty(n, np.int64), np.array([FIRST_BETA, LAST_BETA, 0.0])
        nothing = np.empty((n, 1, 0)), np.zeros((n, n), np.uint64), np.empty(1)
        weight = _orders.order_steps(
            steps, 0, steps, chain, np.uint64(seed), settings, order, position, masks, values, tables.bit_in,
            best_sets, tables.candidates, *nothing, best,
        )  # fmt: skip
        return weight, best

    def search_all(steps: int) -> list[tuple[float, Ints]]:
        with ThreadPoolExecutor(threads or cores(), "jtgpu-learn") as pool:
            return list(pool.map(partial(search, steps=steps), range(RESTARTS)))

    steps = (limit or TimeLimit()).steps(STEPS * n, search_all, SHARE_OF_SEARCH)
    chains = search_all(steps)
    _, order = max(chains, key=lambda item: item[0])  # the first one of the best
    best = graph_of_order(tables, order)
    if first is not None:
        best = max(best, graph_of_order(tables, first), key=lambda graph: graph.weight)
    return best._replace(n_steps=RESTARTS * steps)


def graph_of_order(tables: CandidateTables, order: Ints) -> BestGraph:
    """The best graph that an order of the variables allows, among the candidate parents."""
    parents: list[list[int]] = [[] for _ in order]
    weight, before = 0.0, np.zeros(len(order), np.bool_)
    for v in order:
        own = tables.candidates[v]
        allowed = sum(1 << i for i, u in enumerate(own) if u >= 0 and before[u])
        best = _best_within(tables.log_weights[v], tables.masks, allowed)
        parents[v] = [int(u) for i, u in enumerate(own) if tables.masks[best] >> i & 1]
        weight += float(tables.log_weights[v, best])
        before[v] = True
    return BestGraph(parents, order, weight)


def _best_within(weights: Floats, masks: Ints, allowed: int) -> int:
    """Number of the best parent set within some parents; of those that only rounding tells apart, the smallest."""
    inside = np.flatnonzero(masks & ~np.int64(allowed) == 0)
    own = weights[inside]
    best = float(own.max())
    return int(inside[np.argmax(own >= best - TIE * max(abs(best), 1.0))]) if math.isfinite(best) else int(inside[0])


# Hill climbing and tabu search, by adding, deleting and reversing arcs.

_greedy = loops("jtgpu.learn.dags.loops.greedy")

N_TABU, PATIENCE = 100, 100  # graphs that are not visited again; moves without a better graph
MIN_SHAKEN = 5  # random moves before another climb
SEED = 0x9E3779B9  # of the numbers by which graphs are known


def climb(  # noqa: PLR0913
    coded: CodedTable, rule: ScoreRule, prior: StructurePrior, constraints: ArcLimits, *, tabu: bool,
    start: Bools | None = None, restarts: int = 0, seed: int = 0,
) -> BestGraph:  # fmt: skip
    """A local optimum of the weight."""
    # tabu: Whether to go on from a local optimum, to the best graph that is not among the last 100, until 100 moves
    #     have not found a better one
    # start: (n, n) the first graph, [parent, child]. Default: that of the required arcs.
    # restarts: How often to climb again, from the best graph after some random moves: one for every two variables, at
    #     least 5
    # seed: Of these moves
    n, card = len(coded.names), coded.cardinality
    first = (constraints.required if start is None else start).astype(np.uint8)
    values, of_parents = np.zeros((0, 0)), np.zeros(n, np.int64)
    if rule.score.formula == TABULATED:
        functions = rule.functions(card, 1, MAX_CELLS, coded.n_cases)
        values, of_parents = functions.values, np.array([functions.parent_row(r) for r in card.tolist()], np.int64)
    weights = np.zeros(0, np.int64) if coded.weights is None else coded.weights
    counted = (
        np.ascontiguousarray(coded.codes), weights, card, rule.score.formula, rule.score.pseudo_counts(float(rule.ess)),
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
    for attempt in range(restarts + 1):
        arcs = best.copy() if attempt == 0 else _shaken(best, constraints, [seed, attempt])
        n_moves += _greedy.climb(
            arcs, *limits, *counted, of_size, of_arc, *((N_TABU, PATIENCE) if tabu else (0, 0)), marks, cells
        )
        now = weight_of(arcs)
        if now > weight + (1e-9 if attempt else 0.0):
            best, weight = arcs, now
    parents = [np.flatnonzero(best[:, v]).tolist() for v in range(n)]
    return BestGraph(parents, topological_order(best.astype(np.bool_)), weight, n_moves)


def _shaken(arcs: NDArray[np.uint8], constraints: ArcLimits, key: list[int]) -> NDArray[np.uint8]:
    """A graph after random moves: arcs are added, deleted or reversed where the constraints allow it."""
    rng, n = np.random.Generator(np.random.Philox(key=key)), len(arcs)
    shaken = arcs.copy()
    for _ in range(max(n // 2, MIN_SHAKEN)):
        u, v = rng.choice(n, 2, replace=False).tolist()
        after = shaken.copy()
        after[u, v] ^= 1
        if shaken[u, v] and rng.random() < 0.5:
            after[v, u] = 1
        allowed = not (after.astype(np.bool_) & constraints.forbidden).any()
        allowed = allowed and not (constraints.required & (after == 0)).any()
        allowed = allowed and bool((after.sum(axis=0) <= constraints.max_parents).all())
        added = (v, u) if after[v, u] else (u, v)
        if allowed and not (after[added] and _leads(after, added[1], added[0])):
            shaken = after
    return shaken


def _leads(arcs: NDArray[np.uint8], u: int, v: int) -> bool:
    """Whether a path leads from u to v."""
    seen = np.zeros(len(arcs), np.bool_)
    front = np.array([u])
    while len(front):
        seen[front] = True
        front = np.flatnonzero(arcs[front].any(axis=0) & ~seen)
    return bool(seen[v])


def _padded(column: NDArray[np.uint8]) -> tuple[Ints, int]:
    """The parents of a variable in an array of all variables' length, and their number."""
    members = np.flatnonzero(column)
    return np.concatenate([members, np.zeros(len(column) - len(members), np.int64)]), len(members)
