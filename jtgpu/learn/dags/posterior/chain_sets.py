"""`ChainSets`: the candidate parents and the parent sets of chains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import ArgumentError
from ....util.arguments import described, several
from ..candidates.coverage import covered_shares
from ..candidates.family_weights import family_weights
from ..candidates.outer_sets import outer_sets
from ..candidates.preparation import number_of_candidates, screened_candidates, screened_size, wide_size
from ..candidates.tables import CandidateTables
from ..chains.set_tables import set_tables, table_bytes
from ..graphs import adjacency
from ..search.best_graph import BestGraph
from .arc_tables import variable_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..chain_records import SetTables
    from .problem import Problem

MAX_CANDIDATES = 12  # by default; of the search for the best graph: 16


@dataclass(frozen=True)
class ChainSets:
    """Parent sets of chains."""

    tables: CandidateTables
    best: BestGraph
    chain_tables: SetTables
    # Returns the shares of the posterior of each variable's parents that are summed, (n,), given some orders; None if
    #     all sets are
    coverage: Callable[[NDArray[np.int64]], NDArray[np.float64]] | None
    by_lists: bool  # whether the candidates were given by name, so that other parents are impossible
    notes: tuple[str, ...]


def chain_sets(problem: Problem, candidates: Any) -> ChainSets:
    """Select candidates and outer sets: they do not depend on the seed."""
    n, limit, threads = len(problem.coded.names), problem.limit, problem.threads
    k, notes = 0, tuple[str, ...]()
    if not isinstance(candidates, Mapping):
        k, notes = _number(problem, candidates)
    if k == n - 1:
        tables = problem.tables(_all_others(n))
        chain_tables = set_tables(tables, memory_limit=limit, threads=threads)
        return ChainSets(tables, problem.best(tables), chain_tables, None, False, notes)
    by_lists = k == 0
    size = screened_size(n, problem.most) if by_lists else wide_size(problem.coded.cardinality, problem.most)
    scores = problem.scores(size)
    rows = family_weights(scores, problem.prior, problem.constraints)
    if by_lists:
        chosen, outer = _named_candidates(problem, candidates), None
        tables = problem.tables(chosen)
        best = problem.best(tables)
    else:
        few, constraints = scores.with_max_parents(screened_size(n, problem.most)), problem.constraints
        more = max(number_of_candidates("auto", n, limit), k)
        best = problem.best(problem.tables(screened_candidates(few, problem.prior, constraints, more)))
        # chains over orders first run on candidates alone: they have to find the region of the best graph
        wanted = constraints.requiring(adjacency(best.parents))
        k = max(k, int(wanted.required.sum(axis=0).max()))
        chosen = screened_candidates(few, problem.prior, wanted, k)
        outer = outer_sets(rows, scores.max_parents, chosen, threads)
        tables = problem.tables(chosen)
    chain_tables = set_tables(tables, outer, memory_limit=limit, threads=threads)

    def coverage(some: NDArray[np.int64]) -> NDArray[np.float64]:
        return covered_shares(rows, scores.max_parents, chosen, outer, some)

    return ChainSets(tables, best, chain_tables, coverage, by_lists, notes)


def _named_candidates(problem: Problem, given: Mapping[str, Iterable[str]]) -> NDArray[np.int64]:
    """Candidate parents from lists by name, (n, k)."""
    names, required = problem.coded.names, problem.constraints.required
    n = len(names)
    sets = {v: {u for u in range(n) if required[u, v]} for v in range(n)}
    for name, parents in given.items():
        listed = several(parents)
        if listed is None:
            raise ArgumentError(f"the candidates of {name!r} must be a list of variables, not {described(parents)}")
        v = variable_number(names, name)
        own = {variable_number(names, u) for u in listed} - {v}
        if missing := sorted(sets[v] - own):
            raise ArgumentError(
                f"the required arc {names[missing[0]]!r} -> {name!r} is excluded by candidates, which do not list "
                f"{names[missing[0]]!r} for {name!r}"
            )
        sets[v] = own
    k = max(max(map(len, sets.values())), 1)
    return np.array([[*sorted(sets[v]), *[-1] * (k - len(sets[v]))] for v in range(n)], np.int64)


def restricted(problem: Problem, candidates: Any) -> Problem:
    """The problem whose constraints exclude what lists of candidates exclude; numbers of candidates exclude nothing."""
    n = len(problem.coded.names)
    if not isinstance(candidates, Mapping):
        number_of_candidates(candidates, n, problem.limit)  # checked, though exact posteriors do not depend on it
        return problem
    possible = np.eye(n, dtype=np.bool_)
    for v, row in enumerate(_named_candidates(problem, candidates)):
        possible[row[row >= 0], v] = True
    constraints = replace(problem.constraints, forbidden=problem.constraints.forbidden | ~possible)
    return replace(problem, constraints=constraints)


def _number(problem: Problem, given: int | str) -> tuple[int, tuple[str, ...]]:
    """Number of candidate parents, and what to say about it."""
    n, needed = len(problem.coded.names), int(problem.constraints.required.sum(axis=0).max())
    k = max(number_of_candidates(given, n, problem.limit, MAX_CANDIDATES), needed)
    if given != "auto":
        return k, ()
    fits = k
    while fits > max(needed, 1) and table_bytes(n, fits) > problem.limit // 2:
        fits -= 1
    if fits == k:
        return k, ()
    return fits, (f"{fits} candidate parents instead of {k}: the tables of more exceed half of the memory limit",)


def _all_others(n: int) -> NDArray[np.int64]:
    """All other variables of each, (n, n - 1)."""
    return np.array([[u for u in range(n) if u != v] for v in range(n)], np.int64)
