"""`find_order`: exact preprocessing, a portfolio of greedy rules, annealing, and saved orders."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import OrderError
from ...util.arguments import choice, flag, number, whole_number
from ...util.system import cache_folder, cores
from . import files as store
from .anneal import RULES, AnnealingRun, chains_of_round, run_chain
from .elimination import OrderCost, as_order_array, atom_cost, check_objective, order_cost
from .files import Improvement, OrderResult, SavedOrder
from .incumbents import Incumbents, Progress, SearchOptions
from .reduce import Atom
from .tree_decomposition import best_order

# Rounds of annealing chains on the atoms of a search, run by a pool of threads.

AUTO_STEPS_PER_VERTEX = 6_000  # and chain; about 0.2 s for the largest benchmark networks on two cores
AUTO_MIN_ENTRIES = 1 << 17  # smallest atom that "auto" anneals: propagation in smaller ones takes microseconds
ROUND_STEPS_PER_VERTEX = 8_000
CHAINS = 4  # per round; constant, so that the result does not depend on the number of workers
EXACT_VERTICES = 32  # largest atom whose order "best" tries to prove optimal
EXACT_STATES = 100_000  # sets of eliminated vertices visited before the proof is given up: seconds of pure Python
EXACT_SHARE = 0.4  # of the time limit, for proofs
PATIENCE = 40  # rounds without improvement after which an atom is left alone

Job = tuple[int, AnnealingRun]  # number of the atom, what to run on it
Found = tuple[tuple[int, int], list[int]]  # cost and order that a chain found


class Budget(NamedTuple):
    """Limits of a search."""

    seconds: float  # since the search began; may be infinite
    n_steps: int | None = None  # annealing steps


def warm_up() -> None:
    """Compile the annealer, or load it from the cache, so that no later search waits for it; for installers."""
    path = Atom(((0,), (1,), (2,)), (2, 2, 2), (2, 5, 2), frozenset())
    run_chain(path, [0, 1, 2], AnnealingRun(1, 0, 0.1, 0.5, 3, 0.0, 0), 1.0, np.zeros(1, np.uint8), atom_cost)


def anneal_once(search: Incumbents) -> None:
    """One round of few steps on the large atoms, for "auto"."""
    jobs: list[Job] = []
    for i, atom in enumerate(search.atoms):
        n = len(atom.card)
        if n > 3 and max(search.costs[i]) >= AUTO_MIN_ENTRIES:
            steps = AUTO_STEPS_PER_VERTEX * n // _relative_step_time(atom)
            jobs += [
                (i, chain._replace(n_start=0, high_size=min(n, 60)))
                for chain in chains_of_round(n, 0, 2, steps, search.options.seed)
            ]
    if jobs:
        _run_round(search, jobs, Budget(math.inf))


def anneal_until(search: Incumbents, budget: Budget, first: int) -> int:
    """Rounds of chains until time, steps or patience run out, for "best".

    Those of an earlier search have the numbers below `first`, so that this one tries others; returns the next number.
    """
    idle = [0 if len(a.card) > 3 else PATIENCE for a in search.atoms]  # rounds since each atom's last improvement
    if all(i >= PATIENCE for i in idle):
        return first
    _compile(search)
    turn = first
    while not search.interrupted and search.elapsed() < budget.seconds:
        live = [i for i, n in enumerate(idle) if n < PATIENCE]
        jobs = _jobs_of_round(search, live, turn, budget)
        if not jobs:
            break
        before = list(search.costs)
        try:
            _run_round(search, jobs, budget)
        except KeyboardInterrupt:  # between the end of the chains and the next round
            search.interrupted = True
        for i in live:
            idle[i] = 0 if search.costs[i] < before[i] else idle[i] + 1
        turn += 1
        if turn == first + 1 and not search.interrupted:
            _prove(search, budget)
            idle = [PATIENCE if proven else n for n, proven in zip(idle, search.proven, strict=True)]
    return turn


def _jobs_of_round(search: Incumbents, live: Sequence[int], turn: int, budget: Budget) -> list[Job]:
    """The chains of one round, cut to the steps that are left."""
    jobs: list[Job] = []
    left = math.inf if budget.n_steps is None else budget.n_steps - search.n_steps
    for i in live:
        n = len(search.atoms[i].card)
        steps = max(1, ROUND_STEPS_PER_VERTEX * n // _relative_step_time(search.atoms[i]))
        for chain in chains_of_round(n, turn, CHAINS, steps, search.options.seed):
            if left > 0:
                steps = int(min(chain.n_steps, left))
                jobs.append((i, chain._replace(n_steps=steps, n_start=min(chain.n_start, steps // 2))))
                left -= steps
    return jobs


def _compile(search: Incumbents) -> None:
    """Load the annealer before the clock counts: compilation takes seconds, once per machine."""
    clock = search.options.clock
    before = clock()
    warm_up()
    search.started += clock() - before


def _prove(search: Incumbents, budget: Budget) -> None:
    """Prove the orders of small atoms optimal, or find optimal ones."""
    if search.objective == "largest" or min(search.cards, default=2) < 2:
        return
    until = search.elapsed() + EXACT_SHARE * budget.seconds
    for i, atom in enumerate(search.atoms):
        if len(atom.card) <= EXACT_VERTICES and search.elapsed() < until:
            try:
                order, search.proven[i] = best_order(
                    atom, search.costs[i][0], EXACT_STATES, lambda: search.elapsed() > until
                )
            except KeyboardInterrupt:
                search.interrupted = True
                return
            if order is not None:
                search.offer(i, search.measure(atom, order), order, "exact")


def _run_round(search: Incumbents, jobs: Sequence[Job], budget: Budget) -> None:
    """Run chains from the atoms' present orders; improvements are accepted in the order of the jobs."""
    exponent = 4.0 if search.objective == "largest" else 1.0
    stop = np.zeros(1, np.uint8)
    starts = list(search.orders)
    fraction = search.n_steps / budget.n_steps if budget.n_steps else 0.0
    pool = ThreadPoolExecutor(max_workers=min(search.options.workers, len(jobs)))
    tasks: list[Future[Found]] = []
    try:
        try:
            # submitting the longest chains first would be faster, but a stopped round should have run the first ones
            for i, chain in jobs:
                tasks.append(pool.submit(run_chain, search.atoms[i], starts[i], chain, exponent, stop, search.measure))
            _watch(search, tasks, stop, budget, fraction)
        except KeyboardInterrupt:
            search.interrupted = True
    finally:
        if search.interrupted:
            stop[0] = 1
            for task in tasks:
                task.cancel()
        pool.shutdown(wait=True)
    for (i, chain), task in zip(jobs, tasks, strict=False):
        if not task.cancelled():
            cost, order = task.result()
            search.n_steps += chain.n_steps
            search.offer(i, cost, order, "anneal from scratch" if chain.n_start else "anneal")
    _report(search, budget, search.n_steps / (budget.n_steps or math.inf))


def _watch(
    search: Incumbents, tasks: Sequence[Future[Found]], stop: NDArray[np.uint8], budget: Budget, fraction: float
) -> None:
    """Wait for the chains; stop them at the time limit and report progress meanwhile."""
    waiting = set(tasks)
    while waiting:
        left = budget.seconds - search.elapsed()
        if left <= 0:
            stop[0] = 1
            for task in waiting:
                task.cancel()
            wait(waiting)
            return
        _, waiting = wait(waiting, timeout=min(left, 0.1), return_when=FIRST_COMPLETED)
        _report(search, budget, fraction)


def _report(search: Incumbents, budget: Budget, fraction: float) -> None:
    options = search.options
    if options.progress is not None and options.method == "best":
        now = search.elapsed()
        of_time = now / budget.seconds if budget.seconds < math.inf else 0.0
        options.progress(search.estimate(), now, min(1.0, max(fraction, of_time)))


def _relative_step_time(atom: Atom) -> int:
    """How many times slower a rotation is than in a sparse graph: in dense ones the lists of children are long."""
    return max(1, sum(m.bit_count() for m in atom.masks) // (16 * len(atom.card)))


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
    #     brought no improvement; a search by time begins with the best order that earlier ones saved, and tries others
    #     than they did; a better order replaces it. "saved":
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
        result = _auto(search)
        if search.n_steps and not search.interrupted:
            order = result.order.tolist()
            cost = order_cost(cards, around, order, options.objective)
            store.save(key, SavedOrder(order, cost, result.n_steps, result.lower_bound, result.optimal))
        return result
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
    begun = None if by_steps else saved
    if begun is not None and begun.optimal:
        return replace(search.result(begun.order, begun.cost, "saved", from_cache=True), optimal=True,
                       lower_bound=begun.lower_bound)  # fmt: skip
    search.portfolio()
    if begun is not None:
        search.begin_with(begun.order)
    rounds = anneal_until(search, budget, begun.rounds if begun is not None else 0)
    order, cost = search.assemble()
    result = search.result(order, cost, "best")
    if cache:  # perhaps another process has saved one meanwhile
        saved = store.recall(key, search.cards, search.neighbours, search.objective)
    is_better = saved is None or _key(cost, search.objective) < _key(saved.cost, search.objective)
    if saved is not None and not is_better:
        order, cost = saved.order, saved.cost
        if not by_steps:
            result = search.result(order, cost, "saved", from_cache=True)
    if cache and (is_better or not by_steps):
        store.save(key, SavedOrder(order, cost, search.n_steps, result.lower_bound, result.optimal, rounds))
    return result


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
