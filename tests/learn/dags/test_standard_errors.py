"""Standard errors of chains: they say how far estimates are from the truth, and from those of another seed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.learn.dags.posterior.result import StructurePosterior
from tests.learn.dags.data import in_records, random_table


def chains(table: Any, **options: Any) -> StructurePosterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return jtgpu.learn.posterior(table, method="mcmc", **in_records(options))


@pytest.mark.slow
@pytest.mark.parametrize("k", [3])
def test_true_probabilities_are_within_two_standard_errors_at_the_nominal_rate(k: int) -> None:
    """With 16 chains, |error| <= 2 mcse has the probability of |t| <= 2 with 15 degrees of freedom: 0.936."""
    within: list[np.ndarray[Any, Any]] = []
    for number in range(4):
        table = random_table(20 + number, n=6, n_rows=60)
        exact = jtgpu.learn.posterior(table, max_parents=3).edge_probabilities.values
        is_open = (exact > 0.02) & (exact < 0.98)
        for seed in range(8):
            found = chains(table, seed=seed, n_chains=16, steps=12_000, tolerance=1e-9, candidates=k, max_parents=3)
            gap = np.abs(found.edge_probabilities.values - exact)[is_open]
            within.append(gap <= 2.0 * found.mcse.values[is_open])
    assert sum(map(len, within)) > 300
    assert 0.90 < float(np.concatenate(within).mean()) < 0.97


def four_standard_errors(first: StructurePosterior, second: StructurePosterior, slack: float) -> bool:
    gap = np.abs(first.edge_probabilities.values - second.edge_probabilities.values)
    return bool((gap <= 4.0 * np.hypot(first.mcse.values, second.mcse.values) + slack).all())


def test_a_short_run_is_within_four_standard_errors() -> None:
    table = random_table(31, n=4, n_rows=40)
    exact = jtgpu.learn.posterior(table, max_parents=3)
    found = chains(table, seed=2, n_chains=8, steps=4_000, tolerance=1e-9, max_parents=3)
    assert four_standard_errors(found, exact, 5e-3)


@pytest.mark.slow
def test_two_seeds_agree_whatever_the_candidates() -> None:
    """Sachs' 11 variables with 500 rows: two seeds, two numbers of candidates, and the exact posterior."""
    net = jtgpu.load("sachs")
    assert isinstance(net, jtgpu.BayesianNetwork)
    data = net.compile("cpu").sample(500, seed=3)
    exact = jtgpu.learn.posterior(data, states=net)
    found = [
        chains(data, states=net, seed=seed, candidates=k, tolerance=0.008, n_chains=16, steps=100_000)
        for seed, k in ((0, 5), (1, 5), (0, 7))
    ]
    for post in found:
        assert four_standard_errors(post, exact, 2e-3)
        assert post.coverage is not None
        assert post.coverage > 0.999
    assert four_standard_errors(found[0], found[1], 1e-3)
    assert four_standard_errors(found[0], found[2], 1e-3)


SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
import jtgpu
from jtgpu.learn.dags.posterior import chain_posterior
from tests.learn.dags.data import random_table
chain_posterior.INTERVAL = 0.0
post = jtgpu.learn.posterior(
    random_table(8, n=9, n_rows=90), method="mcmc", seed=4, search=jtgpu.learn.Search(candidates=5),
    chains=jtgpu.learn.Chains(tolerance=1e-9, steps=120_000, checkpoint=sys.argv[1]),
    compute=jtgpu.Compute(progress=lambda line: print("round", flush=True) if "R-hat" in line else None),
)
post.save(sys.argv[2])
"""


@pytest.mark.slow
def test_a_killed_run_continues_with_the_same_bits(tmp_path: Path) -> None:
    """Killed by SIGKILL at random moments, at least three times."""
    whole, parts, run = tmp_path / "whole.npz", tmp_path / "parts.npz", tmp_path / "run.npz"
    subprocess.run([sys.executable, "-c", SCRIPT, tmp_path / "other.npz", whole], check=True, timeout=300)
    rng, killed = np.random.default_rng(5), 0
    for _ in range(40):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, run, parts], stdout=subprocess.PIPE)
        assert process.stdout is not None
        rounds = int(rng.integers(1, 5)) if killed < 3 else 10**6
        while rounds and process.stdout.readline():
            rounds -= 1
        if rounds == 0:
            time.sleep(float(rng.random()) * 0.05)
            os.kill(process.pid, signal.SIGKILL)
        if process.wait(300) == 0:
            break
        killed += 1
        assert run.exists()
        with np.load(run) as file:  # never half a file
            assert len(file["state_arcs"]) == 8
    assert killed >= 3
    assert parts.read_bytes() == whole.read_bytes()


@pytest.mark.slow
def test_chains_do_not_stop_before_they_leave_the_first_peak() -> None:
    """13 variables of alarm with two peaks, of weights .87 and .13: 32,000 steps saw one of them only."""
    net = jtgpu.load("alarm")
    assert isinstance(net, jtgpu.BayesianNetwork)
    names = (
        "PCWP", "LVEDVOLUME", "ERRLOWOUTPUT", "HRSAT", "INSUFFANESTH", "PVSAT", "SAO2", "INTUBATION", "PRESS",
        "MINVOLSET", "VENTLUNG", "ARTCO2", "HR",
    )  # fmt: skip
    cases = net.compile("cpu").sample(3000, seed=13)
    data, states = {v: cases[v] for v in names}, {v: net.states(v) for v in names}
    exact = jtgpu.learn.posterior(data, states=states, graph_prior="fair")
    found = chains(data, states=states, graph_prior="fair", seed=0, steps=150_000)
    gap = np.abs(found.edge_probabilities.values - exact.edge_probabilities.values)
    assert (gap <= 5.0 * found.mcse.values + 1e-3).all()
