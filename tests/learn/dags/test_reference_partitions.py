"""Moves of partition MCMC: detailed balance for every pair of states, without sampling; every state is reached."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.learn.dags import oracle
from tests.support.partitions_reference import (
    Partition,
    Proposals,
    partition_of,
    partition_score,
    relocations,
    relocations_by_weight,
    reversals,
    splits_and_merges,
    swaps,
)
from tests.support.structures_reference import Weights, all_families

N = 4
PARTITIONS = sorted({partition_of(graph) for graph in oracle.all_graphs(N)})
MOVES = {"swaps": swaps, "splits and merges": splits_and_merges, "relocations": relocations}


def random_weights(seed: int, forbidden: int = 0) -> Weights:
    """Weights of all families of four variables, some of which are impossible, and d has a as a parent."""
    rng = np.random.default_rng(seed)
    families = list(all_families(N, 3))
    weights = dict(zip(families, rng.normal(0.0, 2.0, len(families)).tolist(), strict=True))
    for family in families:
        if forbidden and ((family[0] == 1 and 2 in family[1]) or (family[0] == 3 and 0 not in family[1])):
            weights[family] = -math.inf
    return weights


def transitions(propose: Callable[[Partition], Proposals], parts: Partition) -> dict[Partition, float]:
    """Total probability of each new state."""
    found: dict[Partition, float] = {}
    for new, share in propose(parts):
        found[new] = found.get(new, 0.0) + share
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
    return found


def test_there_are_75_partitions() -> None:
    assert len(PARTITIONS) == 75
    assert all(sorted(v for part in parts for v in part) == [0, 1, 2, 3] for parts in PARTITIONS)


@pytest.mark.parametrize("forbidden", [0, 1])
def test_weight_of_a_partition_is_that_of_its_graphs(forbidden: int) -> None:
    weights = random_weights(1, forbidden)
    totals: dict[Partition, list[float]] = {parts: [] for parts in PARTITIONS}
    for graph in oracle.all_graphs(N):
        totals[partition_of(graph)].append(sum(weights[v, graph[v]] for v in range(N)))
    for parts, logs in totals.items():
        exact = oracle.log_sum([*logs, -1e9])
        assert partition_score(weights, parts) == pytest.approx(exact, abs=1e-10) or exact == -1e9


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("forbidden", [0, 1])
def test_detailed_balance(name: str, forbidden: int) -> None:
    """pi(x) q(x, y) min(1, r) = pi(y) q(y, x) min(1, 1/r), with r = pi(y) q(y, x) / (pi(x) q(x, y))."""
    weights = random_weights(2, forbidden)
    q = {parts: transitions(MOVES[name], parts) for parts in PARTITIONS}
    for x in PARTITIONS:
        for y, forth in q[x].items():
            back = q[y].get(x, 0.0)
            assert back > 0.0  # else the way back would be impossible, and y never reached
            if name != "splits and merges":
                assert forth == pytest.approx(back, abs=1e-12)  # the ratio of proposals is 1
            px, py = (math.exp(partition_score(weights, s)) for s in (x, y))
            if px > 0.0 and py > 0.0:
                ratio = py * back / (px * forth)
                assert px * forth * min(1.0, ratio) == pytest.approx(py * back * min(1.0, 1.0 / ratio), rel=1e-10)


def test_ratio_of_a_split_is_the_formula() -> None:
    parts: Partition = ((0,), (1, 2, 3))
    forth, back = transitions(splits_and_merges, parts), transitions(splits_and_merges, ((0,), (1,), (2, 3)))
    assert forth[(0,), (1,), (2, 3)] == pytest.approx(0.5 / (1 * 2 * 3))  # g = 1, k - 1 = 2, C(3, 1)
    assert back[parts] == pytest.approx(0.5 / 2)  # 1 / (m' - 1)


def test_relocations_by_weight_need_no_rejection() -> None:
    weights = random_weights(3, forbidden=1)
    possible = [parts for parts in PARTITIONS if partition_score(weights, parts) > -math.inf]
    assert 10 < len(possible) < 75
    for v in range(N):

        def propose(parts: Partition, v: int = v) -> Proposals:
            return relocations_by_weight(weights, parts, v)

        q = {parts: transitions(propose, parts) for parts in possible}
        for x in possible:
            for y, forth in q[x].items():
                if forth > 0.0:
                    px, py = (math.exp(partition_score(weights, s)) for s in (x, y))
                    assert px * forth == pytest.approx(py * q[y][x], rel=1e-10)


@pytest.mark.parametrize("forbidden", [0, 1])
def test_edge_reversal_on_all_543_graphs(forbidden: int) -> None:
    weights = random_weights(4, forbidden)

    def log_weight(graph: oracle.Graph) -> float:
        return sum(weights[v, graph[v]] for v in range(N))

    graphs = [graph for graph in oracle.all_graphs(N) if log_weight(graph) > -math.inf]
    moves = {graph: {new: (q, a) for new, q, a in reversals(weights, graph)} for graph in graphs}
    n_pairs = 0
    for x in graphs:
        assert len(moves[x]) == len(reversals(weights, x))  # each new graph comes from one arc
        for y, (forth, accept) in moves[x].items():
            assert oracle.is_acyclic(y)
            back, accept_back = moves[y][x]
            flow, reverse = math.exp(log_weight(x)) * forth * accept, math.exp(log_weight(y)) * back * accept_back
            assert flow == pytest.approx(reverse, rel=1e-12)
            n_pairs += 1
    assert n_pairs > 500


@pytest.mark.parametrize("forbidden", [0, 1])
def test_every_state_is_reached(forbidden: int) -> None:
    weights = random_weights(5, forbidden)
    possible = {parts for parts in PARTITIONS if partition_score(weights, parts) > -math.inf}
    seen: set[Partition] = set()
    waiting = [next(iter(sorted(possible)))]
    while waiting:
        parts = waiting.pop()
        if parts not in seen:
            seen.add(parts)
            waiting += [new for move in MOVES.values() for new, _ in move(parts) if new in possible]
    assert seen == possible
