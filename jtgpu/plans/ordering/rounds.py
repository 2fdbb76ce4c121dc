"""Rounds of annealing chains on the atoms of a search, run by a pool of threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .anneal import Chain, chains_of_round, run_chain
from .exact import best_order
from .incumbents import Incumbents
from .reduce import Atom
from .triangulation import atom_cost

AUTO_STEPS_PER_VERTEX = 6_000  # and chain; about 0.2 s for the largest benchmark networks on two cores
AUTO_MIN_ENTRIES = 1 << 17  # smallest atom that "auto" anneals: propagation in smaller ones takes microseconds
ROUND_STEPS_PER_VERTEX = 8_000
CHAINS = 4  # per round; constant, so that the result does not depend on the number of workers
EXACT_VERTICES = 32  # largest atom whose order "best" tries to prove optimal
EXACT_STATES = 100_000  # sets of eliminated vertices visited before the proof is given up: seconds of pure Python
EXACT_SHARE = 0.4  # of the time limit, for proofs
PATIENCE = 40  # rounds without improvement after which an atom is left alone

Job = tuple[int, Chain]  # number of the atom, what to run on it
Found = tuple[tuple[int, int], list[int]]  # cost and order that a chain found


class Budget(NamedTuple):
    """What a search may spend."""

    seconds: float  # since the search began; may be infinite
    n_steps: int | None = None  # annealing steps


def warm_up() -> None:
    """Compile the annealer, or load it from the cache, so that no later search waits for it; for installers."""
    path = Atom(((0,), (1,), (2,)), (2, 2, 2), (2, 5, 2), frozenset())
    run_chain(path, [0, 1, 2], Chain(1, 0, 0.1, 0.5, 3, 0.0, 0), 1.0, np.zeros(1, np.uint8), atom_cost)


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


def anneal_until(search: Incumbents, budget: Budget) -> None:
    """Rounds of chains until time, steps or patience run out, for "best"."""
    idle = [0 if len(a.card) > 3 else PATIENCE for a in search.atoms]  # rounds since each atom's last improvement
    if all(i >= PATIENCE for i in idle):
        return
    _compile(search)
    turn = 0
    while not search.interrupted and search.elapsed() < budget.seconds:
        live = [i for i, n in enumerate(idle) if n < PATIENCE]
        jobs = _jobs_of_round(search, live, turn, budget)
        if not jobs:
            return
        before = list(search.costs)
        try:
            _run_round(search, jobs, budget)
        except KeyboardInterrupt:  # between the end of the chains and the next round
            search.interrupted = True
        for i in live:
            idle[i] = 0 if search.costs[i] < before[i] else idle[i] + 1
        turn += 1
        if turn == 1 and not search.interrupted:
            _prove(search, budget)
            idle = [PATIENCE if proven else n for n, proven in zip(idle, search.proven, strict=True)]


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
