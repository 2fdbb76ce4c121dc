"""`find_order`: greedy portfolio, annealing chains and the cache, on what exact preprocessing leaves."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import numpy as np
from numpy.typing import ArrayLike

from ...util.system import cores
from . import store
from .anneal import Chain, chains_of_round, run_chain
from .assemble import fill_masks, join_orders, remove_needless_fill
from .elimination import OrderCost, as_order_array, check_objective, order_cost
from .exact import best_order
from .greedy import RULES, Rule, bits, greedy_order
from .reduce import Atom, Reduction, reduce_graph
from .result import Improvement, OrderResult

__all__ = ["BEST_SECONDS", "METHODS", "find_order", "warm_up"]

METHODS = ("auto", "best", *RULES)
BEST_SECONDS = 10.0  # time limit of "best" where none is given
AUTO_STEPS_PER_VERTEX = 6_000  # and chain; some 0.2 s for the largest benchmark networks on two cores
AUTO_WORTH = 1 << 17  # entries of an atom from which "auto" anneals: below, a propagation takes microseconds
ROUND_STEPS_PER_VERTEX = 8_000
CHAINS = 4  # of a round; a constant, so that the number of workers does not show in the result
EXACT_VERTICES = 32  # of an atom up to which "best" tries to prove its order the best
EXACT_STATES = 100_000  # sets of eliminated vertices looked at before that is given up: some seconds of pure Python
EXACT_SHARE = 0.4  # of the time limit that proofs may take
PATIENCE = 40  # rounds without improvement after which an atom is left alone
MIXTURE_WORK = 100_000  # vertices x edges of an atom up to which mixtures of rules are tried

Progress = Callable[[float, float, float], None]


def find_order(
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
    """Find an elimination order of small cost.

    Parameters
    ----------
    cardinality : (V,) int
        States of every variable, at least 1.
    neighbours : V iterables of int
        The graph: who shares a factor with whom.
    method : str
        "auto": the greedy rules, then, where an atom costs 131,072 entries or more, a fixed number of annealing steps;
        a fraction of a second, and the same for the same seed. "best": search until `time_limit` (10 s by default) or
        `n_steps`, or until nothing has improved for long. "min-fill", "min-weight", "weighted-min-fill",
        "min-neighbours": one run of that rule, ties by number (at random with a seed other than 0).
    time_limit : float, optional
        Seconds for "best".
    n_steps : int, optional
        Annealing steps for "best", instead of or beside a time limit: the result then depends on the seed and this
        number alone (unless the time limit ends the search first), not on the machine or the workers.
    seed : int
    objective : {"entries", "largest", "time"}
        Total entries of the clique tables; the largest (ties by the total); entries plus a price for every level
        (`jtgpu.plans.ordering.LEVEL_ENTRIES`).
    workers : int, optional
        Threads; default: the processors this process may use.
    progress : callable, optional
        Called as ``progress(cost, elapsed_seconds, fraction_done)`` during "best", from this thread.
    cache : bool
        Look for the order on disk, and keep what is found. A search by `n_steps` never starts from what is kept.
    clock : callable
        Seconds; for tests.

    Returns
    -------
    OrderResult

    Raises
    ------
    ValueError
        For an unknown method or objective, or a limit that makes no sense.

    Notes
    -----
    The first search on a machine that anneals compiles the annealer, some seconds (see `warm_up`) that "best" does not
    count against its limit; the machine code is kept on disk and then loads in half a second. "auto" needs it only
    where an atom is worth annealing, so small networks never import Numba here. Ctrl-C during "best" returns the best
    so far, with ``interrupted`` set.
    """
    check_objective(objective)
    _check_options(method, time_limit, n_steps, workers)
    cards = [int(c) for c in np.asarray(cardinality).reshape(-1)]
    if len(cards) != len(neighbours) or any(c < 1 for c in cards):
        raise ValueError("every vertex needs one cardinality of at least 1 and one collection of neighbours")
    search = _Search(cards, neighbours, method, seed, objective, workers or cores(), progress, clock)
    kept = None
    key = ""
    if cache and method in ("auto", "best"):
        key = store.digest(cards, neighbours, objective)
        kept = store.recall(key, cards, neighbours, objective) if n_steps is None else None
    limit = BEST_SECONDS if time_limit is None and n_steps is None else time_limit
    if kept is not None and (method == "auto" or (limit is not None and kept.seconds >= limit)):
        return search.result(kept.order, kept.cost, "cache", from_cache=True)
    if method in RULES:
        search.greedy([RULES[method]], seed or None)
    else:
        search.portfolio()
        if method == "auto":
            search.anneal_auto()
        else:
            search.anneal_best(limit, n_steps)
    order, cost = search.assemble()
    if kept is not None and _key(kept.cost, objective) <= _key(cost, objective):
        order, cost = kept.order, kept.cost
    if key and (search.n_steps or search.elapsed() > 0.1):
        spent = search.elapsed() + (kept.seconds if kept else 0.0)
        if n_steps is None or (before := store.recall(key, cards, neighbours, objective)) is None or (
            _key(cost, objective) < _key(before.cost, objective)
        ):
            store.keep(key, order, cost, spent if method == "best" and not search.interrupted else 0.0, search.n_steps)
    return search.result(order, cost, method)


def warm_up() -> None:
    """Compile the annealer now, or load what is compiled; an installer calls it so that nobody waits later."""
    path = Atom(((0,), (1,), (2,)), (2, 2, 2), (2, 5, 2), frozenset())
    run_chain(path, [0, 1, 2], Chain(1, 0, 0.1, 0.5, 3, 0.0, 0), 1.0, np.zeros(1, np.uint8), _atom_cost)


class _Search:
    """The state of one search: the reduced graph, the best order of every atom, the trace."""

    def __init__(
        self,
        cards: list[int],
        neighbours: Sequence[Iterable[int]],
        method: str,
        seed: int,
        objective: str,
        workers: int,
        progress: Progress | None,
        clock: Callable[[], float],
    ):
        self.cards, self.neighbours = cards, [tuple(around) for around in neighbours]
        self.method, self.seed, self.objective = method, seed, objective
        self.workers, self.progress, self.clock = workers, progress, clock
        self.started = clock()
        self.trace: list[Improvement] = []
        self.n_steps = 0
        self.interrupted = False
        self.reduction: Reduction = reduce_graph(cards, self.neighbours, largest=objective == "largest")
        self.atoms = self.reduction.atoms
        self.orders: list[list[int]] = [list(range(len(a.card))) for a in self.atoms]
        self.costs = [self.measure(a, o) for a, o in zip(self.atoms, self.orders, strict=True)]
        self.began = False
        self.proven = [False] * len(self.atoms)
        self.prefix_cliques = [math.prod(cards[v] for v in c) for c in _maximal_prefix(self.reduction)]

    def elapsed(self) -> float:
        return self.clock() - self.started

    def measure(self, atom: Atom, order: Sequence[int]) -> tuple[int, int]:
        """What is minimised on an atom: (total, largest), or the other way round."""
        total, largest = _atom_cost(atom, order)
        return (largest, total) if self.objective == "largest" else (total, largest)

    def offer(self, i: int, cost: tuple[int, int], order: list[int], rule: str) -> bool:
        """Take an atom's order if it is better than what there is."""
        if self.began and cost >= self.costs[i]:
            return False
        self.costs[i], self.orders[i] = cost, order
        if self.began:
            self.note(rule)
        return True

    def note(self, rule: str) -> None:
        value = self.estimate()
        if not self.trace or value < self.trace[-1].cost:
            self.trace.append(Improvement(self.elapsed(), value, rule))

    def estimate(self) -> float:
        """The objective's value now, without building the whole order (levels are left out)."""
        parts = [c[0] for c in self.costs] + self.prefix_cliques
        return _as_float(max(parts, default=0) if self.objective == "largest" else sum(parts))

    # Greedy -----------------------------------------------------------------------------------------------------

    def greedy(self, rules: Sequence[Rule], seed: int | None, clean: bool = False) -> None:
        """Run rules on every atom, each rule on all atoms first."""
        for rule in rules:
            for i, atom in enumerate(self.atoms):
                logs = [math.log(c) for c in atom.card]
                order = greedy_order(atom.masks, logs, atom.card, rule, seed)
                cost = self.measure(atom, order)
                if not self.trace or cost < self.costs[i]:
                    self.costs[i], self.orders[i] = cost, order
                if clean:
                    cleaned = remove_needless_fill(atom.masks, order)
                    self.costs[i], self.orders[i] = min(
                        (self.costs[i], self.orders[i]), (self.measure(atom, cleaned), cleaned)
                    )
            self.note(rule.name)
        self.began = True

    def portfolio(self) -> None:
        """The classic rules; then, on what is small enough, mixtures with random ties and noise."""
        self.greedy(list(RULES.values()), None)
        chance = random.Random(self.seed)
        for turn in range(6):
            rule = Rule(
                f"mixture {turn}",
                weighted_fill=chance.uniform(0.3, 1.0),
                weight=chance.uniform(0.0, 0.7),
                fill=chance.uniform(0.0, 0.3),
                own=-chance.uniform(0.0, 0.5),
                noise=chance.uniform(0.0, 0.3),
            )
            for i, atom in enumerate(self.atoms):
                n_edges = sum(m.bit_count() for m in atom.masks) // 2
                if len(atom.card) > 2 and len(atom.card) * n_edges < MIXTURE_WORK:
                    logs = [math.log(c) for c in atom.card]
                    order = greedy_order(atom.masks, logs, atom.card, rule, chance.getrandbits(32))
                    self.offer(i, self.measure(atom, order), order, rule.name)

    # Annealing --------------------------------------------------------------------------------------------------

    def anneal_auto(self) -> None:
        """One round of few steps on the atoms that matter."""
        jobs = []
        for i, atom in enumerate(self.atoms):
            n = len(atom.card)
            if n > 3 and max(self.costs[i]) >= AUTO_WORTH:
                steps = AUTO_STEPS_PER_VERTEX * n // _weight_of_step(atom)
                jobs += [
                    (i, chain._replace(n_start=0, high_size=min(n, 60)))
                    for chain in chains_of_round(n, 0, 2, steps, self.seed)
                ]
        if jobs:
            self._round(jobs, math.inf, 0.0, 1.0)

    def anneal_best(self, limit: float | None, n_steps: int | None) -> None:
        """Rounds of chains until time, steps or patience is spent."""
        idle = [0 if len(a.card) > 3 else PATIENCE for a in self.atoms]
        if all(i >= PATIENCE for i in idle):
            return
        self._compile()
        allowed = math.inf if limit is None else limit
        turn = 0
        while not self.interrupted and self.elapsed() < allowed and (n_steps is None or self.n_steps < n_steps):
            live = [i for i, n in enumerate(idle) if n < PATIENCE]
            if not live:
                return
            jobs: list[tuple[int, Chain]] = []
            left = math.inf if n_steps is None else n_steps - self.n_steps
            for i in live:
                n = len(self.atoms[i].card)
                steps = max(1, ROUND_STEPS_PER_VERTEX * n // _weight_of_step(self.atoms[i]))
                for chain in chains_of_round(n, turn, CHAINS, steps, self.seed):
                    if left > 0:
                        steps = int(min(chain.n_steps, left))
                        jobs.append((i, chain._replace(n_steps=steps, n_start=min(chain.n_start, steps // 2))))
                        left -= steps
            done = self.n_steps / n_steps if n_steps else 0.0
            before = list(self.costs)
            try:
                self._round(jobs, allowed, done, n_steps or math.inf)
            except KeyboardInterrupt:  # between the chains' end and the next round
                self.interrupted = True
            for i in live:
                idle[i] = 0 if self.costs[i] < before[i] else idle[i] + 1
            turn += 1
            if turn == 1 and not self.interrupted:
                self.prove(allowed)
                idle = [PATIENCE if proven else n for n, proven in zip(idle, self.proven, strict=True)]

    def prove(self, allowed: float) -> None:
        """Show that the orders of small atoms are the best, or find those that are."""
        if self.objective == "largest" or min(self.cards, default=2) < 2:
            return
        until = self.elapsed() + EXACT_SHARE * allowed
        for i, atom in enumerate(self.atoms):
            if len(atom.card) <= EXACT_VERTICES and self.elapsed() < until:
                try:
                    order, self.proven[i] = best_order(
                        atom, self.costs[i][0], EXACT_STATES, lambda: self.elapsed() > until
                    )
                except KeyboardInterrupt:
                    self.interrupted = True
                    return
                if order is not None:
                    self.offer(i, self.measure(atom, order), order, "exact")

    def _compile(self) -> None:
        """Have the annealer ready before the clock counts: compiling takes seconds once per machine."""
        before = self.clock()
        warm_up()
        self.started += self.clock() - before

    def _round(self, jobs: Sequence[tuple[int, Chain]], allowed: float, done: float, n_steps: float) -> None:
        """Run chains from the atoms' present orders and take what is better, in the order of the jobs."""
        exponent = 4.0 if self.objective == "largest" else 1.0
        stop = np.zeros(1, np.uint8)
        starts = list(self.orders)
        pool = ThreadPoolExecutor(max_workers=min(self.workers, len(jobs)))
        tasks: list[Future[tuple[tuple[int, int], list[int]]]] = []
        try:
            try:
                # a round's longest chains first would be faster; in order, a stopped round still makes sense
                for i, chain in jobs:
                    tasks.append(
                        pool.submit(run_chain, self.atoms[i], starts[i], chain, exponent, stop, self.measure)
                    )
                self._watch(tasks, stop, allowed, done)
            except KeyboardInterrupt:
                self.interrupted = True
        finally:
            if self.interrupted:
                stop[0] = 1
                for task in tasks:
                    task.cancel()
            pool.shutdown(wait=True)
        for (i, chain), task in zip(jobs, tasks, strict=False):
            if not task.cancelled():
                cost, order = task.result()
                self.n_steps += chain.n_steps
                self.offer(i, cost, order, "anneal anew" if chain.n_start else "anneal")
        self._report(allowed, self.n_steps / n_steps)

    def _watch(
        self,
        tasks: Sequence[Future[tuple[tuple[int, int], list[int]]]],
        stop: np.ndarray[tuple[int], np.dtype[np.uint8]],
        allowed: float,
        done: float,
    ) -> None:
        waiting = set(tasks)
        while waiting:
            left = allowed - self.elapsed()
            if left <= 0:
                stop[0] = 1
                for task in waiting:
                    task.cancel()
                wait(waiting)
                return
            _, waiting = wait(waiting, timeout=min(left, 0.1), return_when=FIRST_COMPLETED)
            self._report(allowed, done)

    def _report(self, allowed: float, done: float) -> None:
        if self.progress is not None and self.method == "best":
            now = self.elapsed()
            self.progress(self.estimate(), now, min(1.0, max(done, now / allowed if allowed < math.inf else 0.0)))

    # The end ----------------------------------------------------------------------------------------------------

    def assemble(self) -> tuple[list[int], OrderCost]:
        """The whole order and its exact cost."""
        order = join_orders(self.neighbours, self.reduction, self.orders)
        return order, order_cost(self.cards, self.neighbours, order, self.objective)

    def result(self, order: Sequence[int], cost: OrderCost, rule: str, *, from_cache: bool = False) -> OrderResult:
        trace = self.trace
        if from_cache or not trace or trace[-1].cost != cost.cost:
            trace = [*trace, Improvement(self.elapsed(), cost.cost, rule)]
        bound = self.lower_bound()
        return OrderResult(
            order=as_order_array(order), cost=cost.cost, entries=cost.entries, largest=cost.largest,
            n_cliques=cost.n_cliques, levels=cost.levels, method=self.method, objective=self.objective,
            trace=tuple(trace), lower_bound=_as_float(bound), seed=self.seed, n_steps=self.n_steps,
            optimal=bound == (cost.largest if self.objective == "largest" else cost.entries)
            and self.objective != "time" and min(self.cards, default=2) > 1,
            seconds=self.elapsed(), from_cache=from_cache, interrupted=self.interrupted,
        )  # fmt: skip

    def lower_bound(self) -> int:
        """Tables that every triangulation has: those of simplicial vertices and complete atoms, and proven totals."""
        if min(self.cards, default=2) < 2:
            return 0
        parts = list(self.prefix_cliques)
        for i, atom in enumerate(self.atoms):
            if self.proven[i]:
                parts.append(self.costs[i][0])
                continue
            full = all(m.bit_count() == len(atom.card) - 1 for m in atom.masks)
            if full and (1 << len(atom.card)) - 1 not in atom.free:
                parts.append(math.prod(atom.card))
        return max(parts, default=0) if self.objective == "largest" else sum(parts)


def _maximal_prefix(reduction: Reduction) -> list[tuple[int, ...]]:
    """The cliques of the vertices eliminated first that are maximal."""
    place = {v: i for i, v in enumerate(reduction.prefix)}
    members = {c[0]: frozenset(c) for c in reduction.prefix_cliques}
    covered = set()
    for v, clique in members.items():
        inner = [u for u in clique if u != v and u in place]
        if inner:
            p = min(inner, key=place.__getitem__)
            if members[p] == clique - {v}:
                covered.add(p)
    return [c for c in reduction.prefix_cliques if c[0] not in covered]


def _weight_of_step(atom: Atom) -> int:
    """How many times dearer a rotation is than in a sparse graph: dense ones have long lists of children."""
    return max(1, sum(m.bit_count() for m in atom.masks) // (16 * len(atom.card)))


def _atom_cost(atom: Atom, order: Sequence[int]) -> tuple[int, int]:
    """Total and largest entries of the maximal cliques of an order of an atom."""
    later = fill_masks(atom.masks, order)
    position = [0] * len(order)
    for i, v in enumerate(order):
        position[v] = i
    sizes = [m.bit_count() for m in later]
    keep = [True] * len(order)
    members = [bits(m) for m in later]
    for v, above in enumerate(members):
        if above:
            p = min(above, key=position.__getitem__)
            if sizes[v] == sizes[p] + 1:
                keep[p] = False
    tables = [
        math.prod([atom.card[u] for u in members[v]]) * atom.card[v]
        for v in range(len(order))
        if keep[v] and later[v] | 1 << v not in atom.free
    ]
    return sum(tables), max(tables, default=0)


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


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
