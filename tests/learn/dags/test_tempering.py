"""Parallel tempering: balance of exchanges pair by pair, compiled chains against the reference, exact probabilities."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import jtgpu
from jtgpu.learn.dags.chain_records import Ladder
from jtgpu.learn.dags.chains import run as driver
from jtgpu.learn.dags.chains.diagnostics import nested_r_hat, nested_r_hat_of_arcs
from jtgpu.learn.dags.chains.partitions import (
    REJECTED,
    SWAP_STEPS,
    PartitionSampler,
    ReplicaStates,
    TemperedChains,
    even_ladder,
    run_chains,
    start_chains,
    start_tempered,
    tuned,
)
from jtgpu.learn.dags.chains.run import ChainRun
from tests.learn.dags import oracle
from tests.learn.dags.data import in_records, random_table
from tests.learn.dags.runs import same, short_posterior
from tests.learn.dags.test_partitions import chain_tables
from tests.learn.dags.test_reference_partitions import random_weights
from tests.support.partitions_reference import (
    Partition,
    exchange_probability,
    exchanges,
    exchanges_of_graphs,
    log_target,
    partition_of,
    partition_score,
)
from tests.support.structures_reference import Weights, all_families

BETAS = (1.0, 0.6, 0.25)


class Alone(NamedTuple):
    """The state of chains that share nothing but the number of their steps."""

    chains: list[ReplicaStates]
    n_steps: int
    n_samples: int = 0

    def replicas(self) -> list[ReplicaStates]:
        return self.chains


def weights_of_three(seed: int) -> Weights:
    """Weights of all families of three variables; c is no parent of b."""
    families = list(all_families(3, 2))
    weights = dict(zip(families, np.random.default_rng(seed).normal(0.0, 2.0, len(families)).tolist(), strict=True))
    return {(v, s): -math.inf if v == 1 and 2 in s else w for (v, s), w in weights.items()}


def balanced(states: list[Any], log_pi: Callable[[Any], float], outcomes: Callable[[Any], Any]) -> int:
    """Asserts pi(x) P(x, y) = pi(y) P(y, x) for all pairs of states; the number of pairs."""
    rows: dict[Any, dict[Any, float]] = {}
    for x in states:
        rows[x] = {}
        for y, p in outcomes(x):
            rows[x][y] = rows[x].get(y, 0.0) + p
        assert sum(rows[x].values()) == pytest.approx(1.0, abs=1e-12)
    n_pairs = 0
    for x, row in rows.items():
        for y, forth in row.items():
            if x != y and forth > 0.0:
                flow = math.exp(log_pi(x)) * forth
                assert flow == pytest.approx(math.exp(log_pi(y)) * rows[y][x], rel=1e-12)
                n_pairs += 1
    return n_pairs


@pytest.mark.parametrize("first", [0, 1])
def test_exchanges_of_partitions_are_in_balance(first: int) -> None:
    weights = weights_of_three(1)
    parts = sorted({partition_of(g) for g in oracle.all_graphs(3)})
    possible = [p for p in parts if partition_score(weights, p) > -math.inf]
    assert (len(parts), len(possible)) == (13, 10)
    states = [*itertools.product(possible, repeat=3)]
    n_pairs = balanced(
        states, lambda x: log_target(weights, BETAS, x), lambda x: exchanges(weights, BETAS, x, first)
    )  # fmt: skip
    assert n_pairs == 10 * 10 * 9


def test_exchanges_of_graphs_are_in_balance() -> None:
    """The state is the graph of the first level and the partition of the second."""
    weights = weights_of_three(2)

    def log_weight(g: oracle.Graph) -> float:
        return sum(weights[v, g[v]] for v in range(3))

    graphs = [g for g in oracle.all_graphs(3) if log_weight(g) > -math.inf]
    parts = sorted({partition_of(g) for g in graphs})
    states = [*itertools.product(graphs, parts)]

    def log_pi(state: tuple[oracle.Graph, Partition]) -> float:
        return log_weight(state[0]) + BETAS[1] * partition_score(weights, state[1])

    assert balanced(states, log_pi, lambda x: exchanges_of_graphs(weights, BETAS, x, graphs)) == 272


def tempered(k: int | None, replicas: int = 4, n_chains: int = 2) -> tuple[PartitionSampler, TemperedChains, Weights]:
    weights = random_weights(3, forbidden=1)
    tables = chain_tables(weights, 4, k)
    start = np.zeros((n_chains, 4), np.int64)
    start[:, 3] = 1  # d must have the parent a
    return PartitionSampler(tables, 5), start_tempered(start_chains(start, tables.candidates), replicas), weights


@pytest.mark.parametrize("k", [pytest.param(None, marks=pytest.mark.slow), 2])
def test_compiled_replicas_and_exchanges_are_those_of_the_reference(k: int | None) -> None:
    """Between exchanges each replica makes the steps of a chain alone; exchanges have the reference's probabilities."""
    sampler, state, weights = tempered(k)
    n_chains, n_replicas, n = state.part.shape
    n_exchanged, expected = 0, 0.0
    for block in range(200):
        parents = state.parents.copy()
        alone = [
            ReplicaStates(
                Ladder(state.betas[state.levels[c, r]][None], np.zeros(1, np.int64), np.empty((0, 2)), 1),
                state.part[c, r][None].copy(), parents[c, r][None], np.zeros((n, n), np.uint64),
                np.zeros((4, 2), np.int64),
            )
            for c in range(n_chains)
            for r in range(n_replicas)
        ]  # fmt: skip
        run_chains(sampler, Alone(alone, state.n_steps), SWAP_STEPS, 10**6, threads=1)  # type: ignore[type-var]
        new, _ = run_chains(sampler, state, SWAP_STEPS, 10**6, threads=1)
        assert (new.part.reshape(-1, n) == np.concatenate([one.part for one in alone])).all()
        for c in range(n_chains):
            at = [int(np.flatnonzero(state.levels[c] == level)[0]) for level in range(n_replicas)]
            parts = tuple(
                tuple(tuple(np.flatnonzero(own == i).tolist()) for i in range(own.max() + 1)) for own in new.part[c, at]
            )
            first = block % 2
            for level in range(first, n_replicas - 1, 2):
                p = exchange_probability(weights, state.betas.tolist(), parts, level)
                assert new.swaps[c, level, 0] - state.swaps[c, level, 0] == 1.0
                assert new.swaps[c, level, 1] - state.swaps[c, level, 1] == pytest.approx(p, abs=1e-9)
                pair = new.levels[c, at[level]], new.levels[c, at[level + 1]]
                assert pair in ((level, level + 1), (level + 1, level))
                n_exchanged += pair[0] > level
                expected += p
                if level == 0 and pair[0] > level:
                    assert (new.parents[c, at[:2]] == -1).all()  # its graph is drawn again
            assert new.swaps[c, 1 - first :: 2, 0].tolist() == state.swaps[c, 1 - first :: 2, 0].tolist()
        state = new
    assert 100 < n_exchanged < 600
    assert abs(n_exchanged - expected) < 60.0


def test_tempered_chains_continue_with_the_same_bits() -> None:
    sampler, start, _ = tempered(2)
    whole, info = run_chains(sampler, start, 630, 30, threads=1)
    half, first = run_chains(sampler, start, 270, 30, threads=2)
    again, second = run_chains(sampler, half, 360, 30, threads=3)
    for name in ("part", "parents", "levels", "swaps", "arcs", "moves"):
        assert np.array_equal(getattr(whole, name), getattr(again, name))
    assert (info.trace == np.hstack([first.trace, second.trace])).all()
    assert (again.n_steps, again.n_samples) == (630, 21)
    assert (whole.arcs[:, 0, 3] == 21 << 32).all()  # required
    assert (whole.moves[..., 0].sum(axis=1) == 630).all()  # of the first level
    one = run_chains(sampler._replace(first_chain=1), start._replace(
        **{f: getattr(start, f)[1:] for f in ("part", "parents", "levels", "swaps", "arcs", "moves")}
    ), 630, 30)[0]  # fmt: skip
    assert (one.arcs[0] == whole.arcs[1]).all()  # chains by global number


def test_the_ladder_is_even() -> None:
    betas, rejected = np.asarray(0.85 ** np.arange(8), np.float64), np.zeros(7)
    for _ in range(6):
        barrier = 2.0 * (-np.log(betas)) ** 1.5  # of a model: cumulative rejection
        rejected = np.minimum(np.diff(barrier), 1.0)
        betas = even_ladder(betas, rejected)
        assert betas[0] == 1.0
        assert (np.diff(betas) < 0.0).all()
    assert rejected == pytest.approx(np.full(7, REJECTED), abs=0.03)


@pytest.mark.parametrize("share", [0.0, 1e-9, 1.0])
def test_the_ladder_stays_descending(share: float) -> None:
    betas = np.asarray(0.85 ** np.arange(8), np.float64)
    for _ in range(20):
        betas = even_ladder(betas, np.full(7, share))
    assert betas[0] == 1.0
    assert (np.diff(betas) < 0.0).all()
    assert betas[-1] >= 0.01 - 1e-12


def test_tuning_needs_attempts() -> None:
    sampler, state, _ = tempered(None)
    assert (tuned(state).betas == state.betas).all()
    state, _ = run_chains(sampler, state, 2000, 10)
    new = tuned(state)
    assert not (new.betas == state.betas).all()
    assert not new.swaps.any()
    assert ((state.swap_rates() > 0.0) & (state.swap_rates() <= 1.0)).all()


@pytest.mark.parametrize("candidates", [pytest.param("all", marks=pytest.mark.slow), 3])
def test_tempered_chains_have_the_exact_probabilities(candidates: Any) -> None:
    table = random_table(5, n=6, n_rows=80)
    exact = jtgpu.learn.posterior(table, max_parents=3)
    found = jtgpu.learn.posterior(
        table,
        max_parents=3,
        method="mcmc",
        chains=jtgpu.learn.Chains(tempering=3, tolerance=0.01),
        search=jtgpu.learn.Search(candidates=candidates),
    )
    assert found.method == "tempered partition MCMC"
    assert found.converged
    gap = np.abs(found.edge_probabilities.values - exact.edge_probabilities.values)
    assert (gap <= 5.0 * found.mcse.values + 1e-3).all()
    assert found.map_score == pytest.approx(exact.map_score, abs=1e-9)
    assert "tempered: 3 replicas of each chain, beta 1, 0." in found.describe()
    assert all(0.2 < rate < 1.0 for rate in found._record.diagnostics.swap_rates)


@pytest.mark.slow
def test_tempered_posteriors_have_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any number of threads, in two parts, after an interruption, and from a file."""
    whole = short_posterior(30_000, tempering=4, threads=1)
    assert same(whole, short_posterior(30_000, tempering=4, threads=3))
    short = short_posterior(8_000, tempering=4)
    assert same(whole, short.more(steps=whole.n_steps - short.n_steps))
    monkeypatch.setattr("jtgpu.learn.dags.posterior.chain_posterior.INTERVAL", 0.0)
    path, original = tmp_path / "run.npz", ChainRun._run_round

    def killed(self: ChainRun) -> None:
        if self.n_rounds == 3:  # while the ladder is tuned
            raise SystemExit
        original(self)

    monkeypatch.setattr(ChainRun, "_run_round", killed)
    with pytest.raises(SystemExit):
        short_posterior(30_000, tempering=4, checkpoint=path)
    monkeypatch.setattr(ChainRun, "_run_round", original)
    assert same(whole, short_posterior(30_000, tempering=4, checkpoint=path))
    whole.save(tmp_path / "post.npz")
    assert jtgpu.learn.load(tmp_path / "post.npz").describe() == whole.describe()


@pytest.mark.slow
def test_tempering_turns_on_where_chains_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = short_posterior(60_000)
    assert same(plain, short_posterior(60_000, tempering="auto"))  # they mix
    monkeypatch.setattr(driver, "largest_nested_r_hat", lambda *_: 1.2)
    monkeypatch.setattr("jtgpu.learn.dags.posterior.chain_posterior.INTERVAL", 0.0)
    whole = short_posterior(60_000, tempering="auto")
    assert whole.method == "tempered partition MCMC"
    assert "nested R-hat was 1.200 after" in whole.describe()
    assert np.abs(whole.edge_probabilities.values - plain.edge_probabilities.values).max() < 0.05
    path, original = tmp_path / "run.npz", ChainRun._run_round
    for at, rounds in (("partition MCMC", 3), ("tempered partition MCMC", 6)):

        def killed(self: ChainRun, at: str = at, rounds: int = rounds) -> None:
            if self.mover.name == at and self.n_rounds == rounds:
                raise SystemExit
            original(self)

        monkeypatch.setattr(ChainRun, "_run_round", killed)
        with pytest.raises(SystemExit):
            short_posterior(60_000, tempering="auto", checkpoint=path)
    monkeypatch.setattr(ChainRun, "_run_round", original)
    assert same(whole, short_posterior(60_000, tempering="auto", checkpoint=path))


def test_nested_r_hat_is_the_formula() -> None:
    means = np.random.default_rng(3).random((5, 4, 1, 1))
    between = means[..., 0, 0].mean(axis=1).var(ddof=1)
    within = np.mean([c.var(ddof=1) + (c * (1.0 - c)).mean() for c in means[..., 0, 0]])
    assert nested_r_hat_of_arcs(means) == pytest.approx(math.sqrt(1.0 + between / within), rel=1e-12)
    stuck = np.repeat(np.arange(4.0), 10).reshape(4, 1, 10)
    assert nested_r_hat(stuck) == math.inf
    assert nested_r_hat(np.zeros((4, 2, 10))) == 1.0
    assert nested_r_hat(stuck[:1]) == 1.0
    mixed = np.random.default_rng(1).normal(size=(4, 3, 500))
    assert 1.0 <= nested_r_hat(mixed) < 1.01
    assert nested_r_hat(mixed + np.arange(4.0)[:, None, None]) > 1.3
    assert nested_r_hat_of_arcs(np.array([0.0, 0.0, 1.0, 1.0]).reshape(4, 1, 1, 1)) == math.inf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tempering": 1}, "at least 2"), ({"tempering": True}, "must be False, 'auto' or a number"),
        ({"tempering": "yes"}, "must be False, 'auto' or a number"), ({"tempering": 2.5}, "tempering"),
        ({"tempering": 4, "graph_prior": "order"}, "chains over partitions"),
        ({"tempering": "auto", "backend": "gpu"}, "on the CPU"),
    ],
)  # fmt: skip
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jtgpu.learn.posterior(random_table(8, n=6, n_rows=90), method="mcmc", **in_records(options))
