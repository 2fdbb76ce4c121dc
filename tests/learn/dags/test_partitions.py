"""Compiled chains over partitions: detailed balance of their moves pair by pair, the reference, exact probabilities.

The random words of a step are given, so that each proposal is made with its exact probability.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from jtgpu.learn.dags.candidate_tables import CandidateTables
from jtgpu.learn.dags.chain_records import Ladder, SetTables
from jtgpu.learn.dags.chains.partitions import (
    PartitionChains,
    PartitionSampler,
    parts_of,
    run_chains,
    start_chains,
)
from jtgpu.learn.dags.exact import exact_by_partitions
from jtgpu.learn.dags.scores.ranks import parent_masks
from jtgpu.learn.dags.set_tables import OuterSets, set_tables
from jtgpu.util.loops import loops
from tests.learn.dags import oracle
from tests.learn.dags.runs import arc_probabilities
from tests.learn.dags.test_reference_partitions import PARTITIONS, random_weights
from tests.support.partitions_reference import (
    ADJACENT,
    Graph,
    Partition,
    partition_of,
    partition_score,
    relocations,
    reversals,
    splits_and_merges,
    swaps,
)
from tests.support.structures_reference import Weights

_partitions = loops("jtgpu.learn.dags.loops.partitions")

N = 4
WIDTH = 8 + 3 * N
HIGH = 2**32 - 1


def tables_of(weights: Weights, n: int) -> CandidateTables:
    """Tables in which all variables are candidates of each other."""
    candidates = np.array([[u for u in range(n) if u != v] for v in range(n)], np.int64)
    bit_in = np.zeros((n, n), np.int64)
    for v in range(n):
        bit_in[candidates[v], v] = 1 << np.arange(n - 1)
    masks = parent_masks(n, n - 1)
    log_weights = np.array(
        [
            [weights[v, tuple(int(u) for j, u in enumerate(candidates[v]) if m >> j & 1)] for m in masks.tolist()]
            for v in range(n)
        ]
    )
    return CandidateTables(candidates, bit_in, masks, log_weights)


def chain_tables(weights: Weights, n: int, k: int | None = None) -> SetTables:
    """Tables of chains in which the first k others are candidates of each variable; the rest is in outer sets."""
    every = tables_of(weights, n)
    if k is None:
        return set_tables(every)
    inner, few = every.masks < 1 << k, parent_masks(k + 1, k)
    assert (np.sort(every.masks[inner]) == np.sort(few)).all()
    numbers = {int(mask): i for i, mask in enumerate(every.masks)}
    chosen = [numbers[int(mask)] for mask in few]
    tables = CandidateTables(every.candidates[:, :k].copy(), every.bit_in, few, every.log_weights[:, chosen].copy())
    outer = [np.flatnonzero(~inner & np.isfinite(row)) for row in every.log_weights]
    masks, logs = [every.masks[i] for i in outer], [w[i] for w, i in zip(every.log_weights, outer, strict=True)]
    return set_tables(tables, OuterSets(every.candidates, masks, logs))


def word(i: int, n: int) -> int:
    """A word from which the loops take number i of n."""
    return -(-(i << 32) // n)


def of_share(p: float) -> int:
    """A word that is a uniform number close to p."""
    return min(max(int(p * 2**32), 0), HIGH)


class Moves:
    """Runs single steps of the compiled chain with given words."""

    def __init__(self, weights: Weights, k: int | None = None):
        self.tables = chain_tables(weights, N, k)

    def step(
        self, part: Partition, parents: Graph | None, kind: int, words: dict[int, int], beta: float = 1.0
    ) -> tuple[Partition, Graph, float]:
        script = np.full((1, WIDTH), 1 << 31, np.uint64)
        script[0, 0], script[0, 5:7] = 1 << 31, 0  # accepted whenever the ratio is above 1e-10
        for i, x in words.items():
            script[0, i] = x
        of = np.array([next(i for i, p in enumerate(part) if v in p) for v in range(N)], np.int64)
        masks = np.full(N, -1, np.int64)
        if parents is not None:
            masks = np.array([sum(1 << u - (u > v) for u in parents[v]) for v in range(N)], np.int64)
        shares, ratio = np.array([float(k == kind) for k in range(3)]), np.empty(1)
        ladder = Ladder(np.array([beta]), np.zeros(1, np.int64), np.empty((0, 2)), 1)
        _partitions.partition_steps(
            1, 0, 2, 0, np.uint64(0), shares, self.tables, ladder, of[None], masks[None], np.zeros((N, N), np.uint64),
            np.empty(0), np.empty(N, np.int64), np.zeros(8, np.int64), script, ratio,
        )  # fmt: skip
        found = tuple(tuple(np.flatnonzero(of == i).tolist()) for i in range(of.max() + 1))
        graph = tuple(
            tuple(u for u in range(N) if u != v and masks[v] >= 0 and masks[v] >> u - (u > v) & 1) for v in range(N)
        )
        return found, graph, float(ratio[0])


def swap_words(parts: Partition) -> Iterator[tuple[dict[int, int], float]]:
    """Words of all swaps, with their probabilities."""
    m = len(parts)
    if m == 1:
        yield {}, 1.0
        return
    pairs = [((a, a + 1), {1: 0, 2: word(a, m - 1)}, ADJACENT / (m - 1)) for a in range(m - 1)]
    every = [*itertools.combinations(range(m), 2)]
    pairs += [(p, {1: HIGH, 2: word(i, len(every))}, (1 - ADJACENT) / len(every)) for i, p in enumerate(every)]
    for (a, b), words, share in pairs:
        for i, j in itertools.product(range(len(parts[a])), range(len(parts[b]))):
            yield (
                {**words, 3: word(i, len(parts[a])), 4: word(j, len(parts[b]))},
                share / (len(parts[a]) * len(parts[b])),
            )


def split_words(parts: Partition) -> Iterator[tuple[dict[int, int], float]]:
    large = [i for i, part in enumerate(parts) if len(part) > 1]
    if not large:
        yield {1: 0}, 0.5
    for number, i in enumerate(large):
        k = len(parts[i])
        for c in range(1, k):
            for first in itertools.combinations(range(k), c):
                chosen = {8 + 2 * N + at: 0 if at in first else HIGH for at in range(k)}
                share = 0.5 / (len(large) * (k - 1) * math.comb(k, c))
                yield {1: 0, 2: word(number, len(large)), 3: word(c - 1, k - 1), **chosen}, share
    if len(parts) == 1:
        yield {1: HIGH}, 0.5
    for i in range(len(parts) - 1):
        yield {1: HIGH, 2: word(i, len(parts) - 1)}, 0.5 / (len(parts) - 1)


def relocation_words(parts: Partition) -> Iterator[tuple[dict[int, int], float]]:
    for v in range(N):
        places = 2 * (len(parts) - ((v,) in parts))
        for place in range(places):
            yield {1: word(v, N), 2: word(place, places)}, 1.0 / (N * places)


MOVES = {1: (split_words, splits_and_merges), 2: (swap_words, swaps), 3: (relocation_words, relocations)}


@pytest.mark.parametrize("kind", MOVES)
@pytest.mark.parametrize("forbidden", [0, 1])
@pytest.mark.parametrize(("k", "beta"), [(None, 1.0), (1, 1.0), (2, 1.0), (None, 0.3), (2, 0.3)])
def test_every_pair_of_partitions_is_in_balance(kind: int, forbidden: int, k: int | None, beta: float) -> None:
    """pi(x) q(x, y) a(x, y) = pi(y) q(y, x) a(y, x), with q and a as the loops have them; q is the reference's."""
    weights = random_weights(2, forbidden)
    moves, (words_of, reference) = Moves(weights, k), MOVES[kind]
    pi = {parts: math.exp(beta * partition_score(weights, parts)) for parts in PARTITIONS}
    flow: dict[tuple[Partition, Partition], float] = {}
    for x in PARTITIONS:
        if pi[x]:
            found: dict[Partition, float] = {}
            for words, share in words_of(x):
                y, _, log_ratio = moves.step(x, None, kind, words, beta)
                if y != x:
                    found[y] = found.get(y, 0.0) + share
                    flow[x, y] = flow.get((x, y), 0.0) + pi[x] * share * min(1.0, math.exp(log_ratio))
            expected: dict[Partition, float] = {}
            for y, share in reference(x):
                if y != x and pi[y]:
                    expected[y] = expected.get(y, 0.0) + share
            assert found == pytest.approx(expected, abs=1e-12)
    assert len(flow) > 40
    for (x, y), forth in flow.items():
        assert forth == pytest.approx(flow[y, x], rel=1e-10)


@pytest.mark.parametrize("forbidden", [0, 1])
def test_reversals_are_the_reference_on_all_graphs(forbidden: int) -> None:
    """The same proposals with the same probabilities and ratios, for which the reference is in balance."""
    weights = random_weights(4, forbidden)
    moves = Moves(weights)
    tables = tables_of(weights, N)
    graphs = [g for g in oracle.all_graphs(N) if sum(weights[v, g[v]] for v in range(N)) > -math.inf]
    n_moves = 0
    for graph in graphs[:: 1 if forbidden else 7]:
        arcs = [(i, j) for j in range(N) for i in graph[j]]
        expected = {new: (share, accept) for new, share, accept in reversals(weights, graph)}
        reached = {}
        for number, (i, j) in enumerate(arcs):
            ends = [(new, *p) for new, p in expected.items() if j in new[i]]
            ends = [e for e in ends if all(e[0][v] == graph[v] for v in range(N) if v not in (i, j))]
            by_i: dict[tuple[int, ...], float] = {}
            for new, share, _ in ends:
                by_i[new[i]] = by_i.get(new[i], 0.0) + share * len(arcs)
            for new, share, accept in ends:
                # middle of the interval of uniform numbers by which the loops choose the set: by descending weight
                u_i = middle(tables, i, new[i], by_i)
                u_j = middle(
                    tables, j, new[j], {e[0][j]: e[1] * len(arcs) / by_i[new[i]] for e in ends if e[0][i] == new[i]}
                )
                words = {1: word(number, len(arcs)), 2: of_share(u_i), 3: of_share(u_j)}
                _, found, log_ratio = moves.step(partition_of(graph), graph, 0, words)
                assert found == new
                assert min(1.0, math.exp(log_ratio)) == pytest.approx(accept, rel=1e-10)
                reached[new] = share
                n_moves += 1
        assert len(reached) == len(expected)
        assert sum(reached.values()) == pytest.approx(sum(s for s, _ in expected.values()), abs=1e-12)
    assert n_moves > 200


def middle(tables: CandidateTables, v: int, chosen: tuple[int, ...], shares: dict[tuple[int, ...], float]) -> float:
    weight = {s: tables.log_weights[v, tables.masks.tolist().index(sum(1 << u - (u > v) for u in s))] for s in shares}
    ranked = sorted(shares, key=lambda s: -weight[s])
    before = sum(shares[s] for s in ranked[: ranked.index(chosen)])
    return before + shares[chosen] / 2


def chains(
    weights: Weights, n: int, steps: int, seed: int, shares: tuple[float, float, float], k: int | None
) -> NDArray[np.float64]:
    """Probabilities of arcs of four chains from different graphs, (4, n, n), after a tenth of the steps."""
    tables = tables_of(weights, n)
    sampler = PartitionSampler(chain_tables(weights, n, k), seed, shares)
    start = np.zeros((4, n), np.int64)
    for v in range(1, n):
        start[1, v] = 1 << v - 1  # a path
        start[2, v] = 1  # a star
    state, _ = run_chains(sampler, start_chains(start, tables.candidates), steps // 10, 3)
    state = state._replace(arcs=np.zeros_like(state.arcs), n_samples=0)
    state, info = run_chains(sampler, state, steps, 3)
    for row, best, part in zip(info.best, info.best_weight, state.part, strict=True):
        assert best == pytest.approx(
            sum(tables.log_weights[v, tables.masks.tolist().index(m)] for v, m in enumerate(row))
        )
        assert len(np.unique(part)) == part.max() + 1
    return np.asarray(state.arcs / 2.0**32 / state.n_samples)


@pytest.mark.parametrize(
    ("shares", "k"),
    [
        ((0.6, 0.13, 0.13), None), ((0.0, 0.3, 0.3), None), ((0.0, 1.0, 0.0), None), ((0.0, 0.0, 0.0), None),
        ((0.6, 0.13, 0.13), 2), ((0.9, 0.04, 0.03), 2), ((0.0, 0.3, 0.3), 1),
    ],
)  # fmt: skip
def test_chains_have_the_exact_probabilities_of_arcs(shares: tuple[float, float, float], k: int | None) -> None:
    rng = np.random.default_rng(7)
    n = 5
    weights = {
        (v, s): float(rng.normal(0.0, 1.5))
        for v in range(n)
        for size in range(n)
        for s in itertools.combinations([u for u in range(n) if u != v], size)
    }
    tables = tables_of(weights, n)
    families = exact_by_partitions(tables.log_weights, tables.masks).families
    exact = np.zeros((n, n))
    for v in range(n):
        for j, u in enumerate(tables.candidates[v]):
            exact[u, v] = families[v, (tables.masks >> j & 1) > 0].sum()
    found = chains(weights, n, 60_000, 3, shares, k)
    mcse = found.std(axis=0, ddof=1) / 2.0
    assert (np.abs(found.mean(axis=0) - exact) < 5 * mcse + 4e-3).all()
    assert mcse.max() < 0.04


def some_state() -> tuple[PartitionSampler, PartitionChains]:
    tables = tables_of(random_weights(3, forbidden=1), N)
    start = np.zeros((3, N), np.int64)
    start[:, 3] = 1  # d must have the parent a
    return PartitionSampler(set_tables(tables), 7), start_chains(start, tables.candidates)


def test_chains_continue_with_the_same_bits() -> None:
    sampler, start = some_state()
    whole, info = run_chains(sampler, start, 600, 6, threads=1)
    half, first = run_chains(sampler, start, 240, 6, threads=2)
    again, second = run_chains(sampler, half, 360, 6, threads=3)
    assert (start.n_steps, half.n_steps, again.n_steps, again.n_samples) == (0, 240, 600, 100)
    for name in ("part", "parents", "arcs", "moves"):
        assert np.array_equal(getattr(whole, name), getattr(again, name))
    assert (info.trace == np.hstack([first.trace, second.trace])).all()
    assert (info.best_weight == np.maximum(first.best_weight, second.best_weight)).all()
    assert (whole.arcs[:, 0, 3] == 100 << 32).all()  # required
    assert (whole.arcs[:, 2, 1] == 0).all()  # forbidden
    assert (whole.moves[..., 0].sum(axis=1) == 600).all()
    assert arc_probabilities(whole).max() == 1.0
    assert not np.array_equal(whole.arcs[0], whole.arcs[1])


def test_parts_are_longest_paths() -> None:
    candidates = tables_of(random_weights(1), N).candidates
    for graph in oracle.all_graphs(N)[::5]:
        masks = np.array([sum(1 << u - (u > v) for u in graph[v]) for v in range(N)], np.int64)
        part = parts_of(masks, candidates)
        assert tuple(tuple(np.flatnonzero(part == i).tolist()) for i in range(part.max() + 1)) == partition_of(graph)
