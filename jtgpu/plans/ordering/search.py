"""`find_order`: exact preprocessing, a portfolio of greedy rules, annealing, and saved orders."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from ...errors import OrderError
from ...util.arguments import choice, flag, number, whole_number
from ...util.system import cache_folder, cores
from . import store
from .elimination import OrderCost, as_order_array, check_objective, order_cost
from .greedy import RULES
from .incumbents import Incumbents, Progress, SearchOptions
from .result import Improvement, OrderResult
from .rounds import Budget, anneal_once, anneal_until
from .store import SavedOrder

METHODS = ("auto", "best", "saved", *RULES)
BEST_SECONDS = 10.0  # default time limit of "best"
MEMO_VERTICES = 100  # the search for smaller graphs takes about as long as reading the memo


def find_order(  # noqa: PLR0913 (public)
    cardinality: ArrayLike,
    neighbours: Sequence[Iterable[int]],
    method: str = "auto",
    *,
    time_limit: float | None = None,
    n_steps: int | None = None,
    seed: int = 0,
    objective: str = "entries",
    workers: int | None = None,
    progress: Progress | None = None,
    cache: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> OrderResult:
    """Find an elimination order of low cost.

    The first search that anneals compiles the annealer. This takes some seconds (see `warm_up`), which do not count
    against the time limit. The machine code is cached on disk; loading it takes half a second. "auto" needs it only for
    large atoms, so small networks do not import Numba here. Ctrl-C during "best" returns the best order so far, with
    ``interrupted`` set.
    """
    # cardinality: (V,) int: States of every variable, at least 1
    # neighbours: V iterables of int: The graph: the variables that share a factor with each variable
    # method: "auto": the greedy rules, followed by a fixed number of annealing steps on atoms that cost 131,072 entries
    #     or more; takes a fraction of a second. The same graph and seed give the same order, whatever was computed
    #     before. "best": search until `time_limit` (10 s by default) or `n_steps` is reached, or until many rounds have
    #     brought no improvement; starts from the best order that earlier searches saved, and saves the result. "saved":
    #     the order that "best" saved. "min-fill", "min-weight", "weighted-min-fill", "min-neighbours": one run of that
    #     rule; ties are broken by variable number, or at random with a seed other than 0.
    # time_limit: Seconds for "best"
    # n_steps: Annealing steps for "best", instead of or in addition to a time limit. Unless the time limit ends the
    #     search first, the result then depends on the seed and this number only, not on the machine or the workers.
    # objective: {"entries", "largest", "time"}: Total entries of the clique tables; the largest table (ties by the
    #     total); entries plus a cost per level (`jtgpu.plans.ordering.LEVEL_ENTRIES`)
    # workers: Threads; default: the cores available to this process
    # progress: Called as ``progress(cost, elapsed_seconds, fraction_done)`` during "best", from the calling thread
    # cache: Whether "best" uses and saves orders on disk (a search by `n_steps` saves its order, and never uses a saved
    #     one), and whether "auto" remembers the orders of large graphs there, which saves time and never changes the
    #     order
    # clock: Returns seconds; for tests
    # raises ArgumentError: If the method or the objective is unknown, or a limit is out of range.
    # raises OrderError: If the method is "saved" and no order is saved for this graph.
    check_objective(objective)
    _check_options(method, (time_limit, n_steps, workers), seed, cache)
    cards = [int(c) for c in np.asarray(cardinality).reshape(-1)]
    if len(cards) != len(neighbours) or any(c < 1 for c in cards):
        raise ValueError("every vertex needs one cardinality of at least 1 and one collection of neighbours")
    options = SearchOptions(method, seed, objective, workers or cores(), progress, clock)
    if method == "auto" and cache and len(cards) >= MEMO_VERTICES:
        return _auto_by_memo(cards, neighbours, options)
    search = Incumbents(cards, neighbours, options)
    if method == "saved":
        return _saved(search)
    if method == "auto":
        return _auto(search)
    if method == "best":
        limit = BEST_SECONDS if time_limit is None and n_steps is None else time_limit
        return _best(search, Budget(math.inf if limit is None else limit, n_steps), cache)
    search.greedy([RULES[method]], seed or None)
    return search.result(*search.assemble(), method)


def _auto(search: Incumbents) -> OrderResult:
    """The portfolio of greedy rules and one round of annealing."""
    search.portfolio()
    anneal_once(search)
    return search.result(*search.assemble(), "auto")


def _auto_by_memo(cards: list[int], neighbours: Sequence[Iterable[int]], options: SearchOptions) -> OrderResult:
    """The result of `_auto`, as an earlier process saved it if the search anneals."""
    started = options.clock()
    around = [tuple(near) for near in neighbours]
    key = store.auto_key(store.digest(cards, around, options.objective), options.seed)
    memo = store.recall(key, cards, around, options.objective)
    if memo is None:
        search = Incumbents(cards, around, options)
        found = _auto(search)
        if search.n_steps and not search.interrupted:
            order = found.order.tolist()
            cost = order_cost(cards, around, order, options.objective)
            store.save(key, SavedOrder(order, cost, 0.0, found.n_steps, found.lower_bound, found.optimal))
        return found
    seconds = options.clock() - started
    cost = memo.cost
    return OrderResult(
        order=as_order_array(memo.order), cost=cost.cost, entries=cost.entries, largest=cost.largest,
        n_cliques=cost.n_cliques, levels=cost.levels, method="auto", objective=options.objective,
        trace=(Improvement(seconds, cost.cost, "memo"),), lower_bound=memo.lower_bound, optimal=memo.optimal,
        seed=options.seed, seconds=seconds,
    )  # fmt: skip


def _best(search: Incumbents, budget: Budget, cache: bool) -> OrderResult:
    """A search within a budget, which starts where saved ones ended, and saves its result."""
    key = search.key() if cache else ""
    by_steps = budget.n_steps is not None
    saved = store.recall(key, search.cards, search.neighbours, search.objective) if cache else None
    if saved is not None and not by_steps and saved.seconds >= budget.seconds:
        return search.result(saved.order, saved.cost, "saved", from_cache=True)
    search.portfolio()
    anneal_until(search, budget)
    order, cost = search.assemble()
    is_better = saved is None or _key(cost, search.objective) < _key(saved.cost, search.objective)
    if cache and (is_better or not by_steps):
        spent = search.elapsed() + (0.0 if saved is None or by_steps else saved.seconds)
        best = (order, cost) if saved is None or is_better else (saved.order, saved.cost)
        store.save(key, SavedOrder(*best, 0.0 if search.interrupted else spent, search.n_steps))
    if saved is not None and not is_better and not by_steps:
        return search.result(saved.order, saved.cost, "saved", from_cache=True)
    return search.result(order, cost, "best")


def _saved(search: Incumbents) -> OrderResult:
    """The order that an earlier "best" saved; raises `OrderError` if there is none."""
    saved = store.recall(search.key(), search.cards, search.neighbours, search.objective)
    if saved is None:
        raise OrderError(
            'order="saved": no order is saved for this network; order="best" searches for one and saves it '
            f"(in {cache_folder() / 'orders'})"
        )
    return search.result(saved.order, saved.cost, "saved", from_cache=True)


def _key(cost: OrderCost, objective: str) -> tuple[float, int]:
    if objective == "time":
        return cost.cost, cost.entries
    return (cost.largest, cost.entries) if objective == "largest" else (cost.entries, cost.largest)


def _check_options(method: str, limits: tuple[float | None, int | None, int | None], seed: int, cache: bool) -> None:
    choice("method", method, METHODS)
    time_limit, n_steps, workers = limits
    if time_limit is not None:
        number("time_limit", time_limit, above=0)
    if n_steps is not None:
        whole_number("n_steps", n_steps, least=0)
    if workers is not None:
        whole_number("workers", workers, least=1)
    whole_number("seed", seed, least=0)
    flag("cache", cache)
