"""Chains over orders: detailed balance in the reference, the loops against the reference, and exact posteriors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from jtgpu.learn.dags.candidate_tables import (
    CandidateTables,
    candidate_tables,
    choose_candidates,
    family_weights,
    select_candidates,
    unsqueeze,
)
from jtgpu.learn.dags.chains.orders import OrderSampler, run_chains, start_chains
from jtgpu.learn.dags.constraints import make_constraints, make_prior
from jtgpu.learn.dags.exact import exact_by_orders
from jtgpu.learn.dags.scores.ranks import parent_members
from jtgpu.learn.dags.scores.rules import ScoreRule
from jtgpu.learn.dags.scores.score_table import score_families
from jtgpu.util.loops import loops
from tests.learn.dags import oracle
from tests.learn.dags.data import random_table
from tests.learn.dags.runs import arc_probabilities
from tests.support import structures_reference as reference

_orders = loops("jtgpu.learn.dags.loops.orders")


def tables_of(seed: int, n: int, k: int, max_parents: int, **options: object) -> CandidateTables:
    table = random_table(seed, n=n, n_rows=40)
    rule, prior = ScoreRule("bdeu", 2.0), make_prior("uniform", n)
    constraints = make_constraints(table.names, max_parents, **options)  # type: ignore[arg-type]
    weights = family_weights(score_families(table, rule, 2), prior, constraints)
    return candidate_tables(table, rule, prior, constraints, choose_candidates(weights, 2, k, constraints), max_parents)


def weights_of(tables: CandidateTables) -> dict[tuple[int, tuple[int, ...]], float]:
    """The weights of all families, by numbers of variables."""
    found = {}
    for v, own in enumerate(tables.candidates):
        for mask, x in zip(tables.masks.tolist(), tables.log_weights[v].tolist(), strict=True):
            parents = tuple(int(u) for i, u in enumerate(own) if mask >> i & 1)
            if x > -math.inf:
                found[v, parents] = x
    return found


class Chain:
    """The state of a chain in the compiled loops."""

    def __init__(self, order: list[int], tables: CandidateTables, sums: NDArray[np.float64]):
        n = len(order)
        self.tables, self.sums, self.order = tables, sums, np.array(order, np.int64)
        self.position, self.masks, self.values = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
        _orders.start_order(self.order, tables.bit_in, sums, self.position, self.masks, self.values)

    def state(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        return self.order, self.position, self.masks, self.values

    def check(self) -> None:
        """The state is that of its order."""
        again = Chain(self.order.tolist(), self.tables, self.sums)
        assert all((a == b).all() for a, b in zip(self.state(), again.state(), strict=True))


def test_scores_of_candidates_are_those_of_the_table() -> None:
    table = random_table(2, n=8, n_rows=40)
    for name in ("bdeu", "k2", "bds", "bic"):
        rule, constraints = ScoreRule(name, 2.0), make_constraints(table.names, 3)
        chosen = np.array([[u for u in range(8) if u != v][:4] for v in range(8)])
        found = weights_of(candidate_tables(table, rule, make_prior("fair", 8), constraints, chosen, 3))
        scores = score_families(table, rule, 3)
        assert len(found) == 8 * 15
        for (v, parents), x in found.items():
            score = scores.score(table.names[v], [table.names[u] for u in parents])
            assert x == pytest.approx(score - math.log(math.comb(7, len(parents))), abs=1e-9)


def test_sums_over_candidates_are_the_reference() -> None:
    tables = tables_of(4, 6, 4, 3, required=[("a", "b")])
    weights = weights_of(tables)
    sums, best, hits = tables.sums(), tables.best(), tables.hits()
    for v in range(6):
        own = tables.candidates[v].tolist()
        for mask in range(16):
            allowed = {u for i, u in enumerate(own) if mask >> i & 1}
            assert sums[v, mask] == pytest.approx(reference.tau(weights, v, allowed), abs=1e-11)
            inside = [x for (child, p), x in weights.items() if child == v and allowed.issuperset(p)]
            assert best[v, mask] == max(inside, default=-math.inf)
            for j, u in enumerate(own):
                if mask >> j & 1:
                    at = mask & (1 << j) - 1 | mask >> (j + 1) << j
                    assert hits[v, j, at] == pytest.approx(reference.hit(weights, v, u, allowed), abs=1e-11)


def test_relocation_is_in_balance_with_the_weights() -> None:
    """pi(x) q(x, y) = pi(y) q(y, x) for every pair of the 24 orders of 4 variables, for each variable."""
    weights = weights_of(tables_of(5, 4, 3, 3, forbidden=[("a", "b")], required=[("c", "d")]))
    orders = [list(o) for o in itertools.permutations(range(4))]
    log_pi = {tuple(o): reference.order_score(weights, o) for o in orders}
    orders = [o for o in orders if log_pi[tuple(o)] > -math.inf]
    assert len(orders) == 12  # c precedes d
    for v in range(4):
        q: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
        for order in orders:
            scores = reference.relocation_scores(weights, order, v)
            total = reference.log_sum(scores)
            rest = [u for u in order if u != v]
            for p, x in enumerate(scores):
                target = (*rest[:p], v, *rest[p:])
                assert x == pytest.approx(log_pi[target], abs=1e-12)
                if x > -math.inf:
                    q[tuple(order), target] = math.exp(x - total)
        for (a, b), forth in q.items():
            assert math.exp(log_pi[a]) * forth == pytest.approx(math.exp(log_pi[b]) * q[b, a], abs=1e-12)


@pytest.mark.parametrize("options", [{}, {"required": [("a", "c"), ("c", "e")], "forbidden": [("b", "a")]}])
def test_relocations_are_the_reference(options: dict[str, object]) -> None:
    tables = tables_of(6, 6, 4, 3, **options)
    weights, sums = weights_of(tables), tables.sums()
    rng, scratch = np.random.default_rng(1), np.empty((3, 6))
    chain = Chain(make_constraints("abcdef", 3, **options).first_order().tolist(), tables, sums)  # type: ignore[arg-type]
    for _ in range(300):
        v, u, before = int(rng.integers(6)), float(rng.random()), chain.order.tolist()
        expected = reference.relocation_scores(weights, before, v)
        total = _orders.relocate(v, u, 1.0, *chain.state(), tables.bit_in, sums, scratch)
        assert scratch[0] == pytest.approx(expected, abs=1e-9)
        shares = np.exp(np.array(expected) - reference.log_sum(expected)).cumsum()
        p = int(np.searchsorted(shares, u))
        assert chain.position[v] == p or abs(shares[min(p, chain.position[v])] - u) < 1e-9
        assert total == pytest.approx(expected[chain.position[v]], abs=1e-9)
        chain.check()


def test_swaps_are_the_reference() -> None:
    tables = tables_of(7, 6, 4, 3)
    weights, sums = weights_of(tables), tables.sums()
    rng = np.random.default_rng(2)
    chain = Chain(list(range(6)), tables, sums)
    n_swapped = 0
    for _ in range(300):
        i, u, before = int(rng.integers(5)), float(rng.random()), chain.order.tolist()
        swapped = before.copy()
        swapped[i], swapped[i + 1] = before[i + 1], before[i]
        gain = reference.order_score(weights, swapped) - reference.order_score(weights, before)
        done = _orders.swap(i, u, 1.0, *chain.state(), tables.bit_in, sums)
        assert done == (math.log(u) < gain) or abs(math.log(u) - gain) < 1e-9
        assert chain.order.tolist() == (swapped if done else before)
        chain.check()
        n_swapped += done
    assert 0 < n_swapped < 300


def edges(tables: CandidateTables, seed: int, share: float, steps: int, chains: int = 4) -> NDArray[np.float64]:
    """Probabilities of arcs of several chains, (chains, n, n), after a tenth of the steps."""
    sampler = OrderSampler(tables, tables.sums(), tables.hits(), seed, share)
    free = make_constraints([str(v) for v in range(len(tables.candidates))], 3)
    state, _ = run_chains(sampler, start_chains(free, chains, seed), steps // 10, 5)
    state = state._replace(arcs=np.zeros_like(state.arcs), n_samples=0)
    return arc_probabilities(run_chains(sampler, state, steps, 5)[0])


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_chains_have_the_exact_probabilities_of_arcs(share: float) -> None:
    tables = tables_of(8, 6, 5, 3)  # all variables are candidates
    found = edges(tables, 3, share, 20000)
    log_weights = np.full((6, len(tables.masks)), -np.inf)
    log_weights[:] = tables.log_weights  # candidates in ascending order are squeezed parents
    families = exact_by_orders(log_weights, tables.masks).families
    exact = np.zeros((6, 6))
    for v in range(6):
        for j, u in enumerate(tables.candidates[v]):
            exact[u, v] = families[v, (tables.masks >> j & 1) > 0].sum()
    mcse = found.std(axis=0, ddof=1) / 2.0
    assert (np.abs(found.mean(axis=0) - exact) < 5 * mcse + 2e-3).all()


def test_seed_and_steps_determine_a_chain() -> None:
    tables = tables_of(8, 6, 4, 2)
    first, again, other = (edges(tables, seed, 0.5, 500, chains=2) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    assert (first[0] != first[1]).any()


def test_chains_continue_with_the_same_bits() -> None:
    tables = tables_of(8, 6, 4, 2)
    sampler = OrderSampler(tables, tables.sums(), tables.hits(), 7)
    start = start_chains(make_constraints("abcdef", 2), 3, 7)
    whole, info = run_chains(sampler, start, 600, 6, threads=1)
    half, first = run_chains(sampler, start, 240, 6, threads=2)
    again, second = run_chains(sampler, half, 360, 6, threads=3)
    assert (start.n_steps, half.n_steps, again.n_steps, again.n_samples) == (0, 240, 600, 100)
    assert (whole.order == again.order).all()
    assert (whole.arcs == again.arcs).all()
    assert (info.trace == np.hstack([first.trace, second.trace])).all()
    assert (info.best_weight == np.maximum(first.best_weight, second.best_weight)).all()
    weights = weights_of(tables)
    for order, x in zip(info.best.tolist(), info.best_weight, strict=True):
        assert reference.order_score(weights, order) == pytest.approx(x, abs=1e-9)


def test_candidates_by_exclusion() -> None:
    # parents 1 and 2 are best together; without 1 the best set is {3}; without 2 it is {4}; 5 is in no good set
    best = {(1, 2): 10.0, (3,): 9.0, (4,): 8.0, (5,): 1.0, (): 0.0, (1,): 2.0}
    members = np.array([[*s, *[-1] * (2 - len(s))] for s in best])
    weights = np.array(list(best.values()))
    nothing = np.zeros(0, np.int64)
    assert select_candidates(weights, members, 6, 2, nothing).tolist() == [1, 2]
    assert select_candidates(weights, members, 6, 3, nothing).tolist() == [1, 2, 3]
    assert select_candidates(weights, members, 6, 4, nothing).tolist() == [1, 2, 3, 4]
    assert select_candidates(weights, members, 6, 5, nothing).tolist() == [1, 2, 3, 4, 5]
    assert select_candidates(weights, members, 6, 3, np.array([5])).tolist() == [1, 2, 5]
    weights[1] = -np.inf  # impossible
    assert select_candidates(weights, members, 6, 5, nothing).tolist() == [1, 2, 4, 5]


def test_candidates_cover_the_posterior() -> None:
    table = random_table(12, n=9, n_rows=150)
    constraints = make_constraints(table.names, 3)
    scores = score_families(table, ScoreRule(), 3)
    weights = family_weights(scores, make_prior("uniform", 9), constraints)
    chosen = choose_candidates(weights, 3, 5, constraints)
    members = parent_members(9, 3)
    for v in range(9):
        own = unsqueeze(members, v)
        inside = np.isin(own, [-1, *chosen[v]]).all(axis=1)
        assert reference.log_sum(weights[v, inside]) - reference.log_sum(weights[v]) > math.log(0.9)
    assert oracle.log_sum([0.0, 0.0]) == pytest.approx(math.log(2))
