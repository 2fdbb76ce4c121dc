"""`find_order`: exact preprocessing, a portfolio of greedy rules, annealing, and a cache of orders on disk."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from ...util.system import cores
from . import store
from .elimination import OrderCost, check_objective
from .greedy import RULES
from .incumbents import Incumbents, Progress, SearchOptions
from .result import OrderResult
from .rounds import Budget, anneal_once, anneal_until

__all__ = ["BEST_SECONDS", "METHODS", "find_order"]

METHODS = ("auto", "best", *RULES)
BEST_SECONDS = 10.0  # default time limit of "best"


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

    Parameters
    ----------
    cardinality : (V,) int
        States of every variable, at least 1.
    neighbours : V iterables of int
        The graph: the variables that share a factor with each variable.
    method : str
        "auto": the greedy rules, followed by a fixed number of annealing steps on atoms that cost 131,072 entries or
        more; takes a fraction of a second and is deterministic. "best": search until `time_limit` (10 s by default) or
        `n_steps` is reached, or until many rounds have brought no improvement. "min-fill", "min-weight",
        "weighted-min-fill", "min-neighbours": one run of that rule; ties are broken by variable number, or at random
        with a seed other than 0.
    time_limit : float, optional
        Seconds for "best".
    n_steps : int, optional
        Annealing steps for "best", instead of or in addition to a time limit. Unless the time limit ends the search
        first, the result then depends on the seed and this number only, not on the machine or the workers.
    seed : int
    objective : {"entries", "largest", "time"}
        Total entries of the clique tables; the largest table (ties by the total); entries plus a cost per level
        (`jtgpu.plans.ordering.LEVEL_ENTRIES`).
    workers : int, optional
        Threads; default: the cores available to this process.
    progress : callable, optional
        Called as ``progress(cost, elapsed_seconds, fraction_done)`` during "best", from the calling thread.
    cache : bool
        Whether to use an order that an earlier search saved on disk, and to save the result. A search by `n_steps`
        never uses a saved order.
    clock : callable
        Returns seconds; for tests.

    Returns
    -------
    OrderResult

    Raises
    ------
    ValueError
        If the method or the objective is unknown, or a limit is out of range.

    Notes
    -----
    The first search that anneals compiles the annealer. This takes some seconds (see `warm_up`), which do not count
    against the time limit. The machine code is cached on disk; loading it takes half a second. "auto" needs it only for
    large atoms, so small networks do not import Numba here. Ctrl-C during "best" returns the best order so far, with
    ``interrupted`` set.
    """
    check_objective(objective)
    _check_options(method, time_limit, n_steps, workers)
    cards = [int(c) for c in np.asarray(cardinality).reshape(-1)]
    if len(cards) != len(neighbours) or any(c < 1 for c in cards):
        raise ValueError("every vertex needs one cardinality of at least 1 and one collection of neighbours")
    options = SearchOptions(method, seed, objective, workers or cores(), progress, clock)
    search = Incumbents(cards, neighbours, options)
    limit = BEST_SECONDS if time_limit is None and n_steps is None else time_limit
    saved = None
    key = ""
    if cache and method in ("auto", "best"):
        key = store.digest(cards, neighbours, objective)
        saved = store.recall(key, cards, neighbours, objective) if n_steps is None else None
    if saved is not None and (method == "auto" or (limit is not None and saved.seconds >= limit)):
        return search.result(saved.order, saved.cost, "cache", from_cache=True)
    _search(search, Budget(math.inf if limit is None else limit, n_steps))
    order, cost = search.assemble()
    if saved is not None and _key(saved.cost, objective) <= _key(cost, objective):
        order, cost = saved.order, saved.cost
    if key and (search.n_steps or search.elapsed() > 0.1):
        known = saved if n_steps is None else store.recall(key, cards, neighbours, objective)
        if n_steps is None or known is None or _key(cost, objective) < _key(known.cost, objective):
            spent = search.elapsed() + (saved.seconds if saved else 0.0)
            completed = method == "best" and not search.interrupted
            store.save(key, order, cost, spent if completed else 0.0, search.n_steps)
    return search.result(order, cost, method)


def _search(search: Incumbents, budget: Budget) -> None:
    """Run the method that the options name."""
    method, seed = search.options.method, search.options.seed
    if method in RULES:
        search.greedy([RULES[method]], seed or None)
        return
    search.portfolio()
    if method == "auto":
        anneal_once(search)
    else:
        anneal_until(search, budget)


def _key(cost: OrderCost, objective: str) -> tuple[float, int]:
    if objective == "time":
        return cost.cost, cost.entries
    return (cost.largest, cost.entries) if objective == "largest" else (cost.entries, cost.largest)


def _check_options(method: str, time_limit: float | None, n_steps: int | None, workers: int | None) -> None:
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, not {method!r}")
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"time_limit must be positive seconds, not {time_limit!r}")
    if n_steps is not None and n_steps < 0:
        raise ValueError(f"n_steps must not be negative: {n_steps!r}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers!r}")
