"""Exact samples: their frequencies, what fixes them, cells filled in."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import jtgpu
from jtgpu.backends.cpu import queries
from jtgpu.cli import app
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans.lowering import LOWERINGS
from jtgpu.util.options import BackendName
from tests.conftest import ROOT
from tests.support import judge, oracle
from tests.support.bundled import bundled
from tests.support.examples import examples, slow
from tests.support.random_nets import all_weights, bayesian_networks, evidence_weights, markov_networks

BACKENDS: tuple[BackendName, ...] = ("reference", "cpu")


def chi_square(counts: NDArray[np.float64], probabilities: NDArray[np.float64]) -> float:
    """Probability of a fit as bad as this one, rare cells put together."""
    from scipy.stats import chi2

    n = counts.sum()
    assert not counts[probabilities <= 0].any()
    order = np.argsort(probabilities)
    sums = np.cumsum(probabilities[order]) * n
    last = int(np.searchsorted(sums, 5.0))  # the rarest cells, until five of them are expected
    observed = np.append(counts[order[: last + 1]].sum(), counts[order[last + 1 :]])
    expected = np.append(probabilities[order[: last + 1]].sum(), probabilities[order[last + 1 :]]) * n
    if len(observed) == 1:
        return 1.0
    return float(chi2.sf(((observed - expected) ** 2 / expected).sum(), len(observed) - 1))


def check_frequencies(model: DiscreteModel, tree: jtgpu.JunctionTree, hard: Any, soft: Any, n: int) -> None:
    table = oracle.joint(model, all_weights(model, hard, soft))
    if not table.any():
        with pytest.raises(jtgpu.ImpossibleEvidence):
            tree.sample(n, hard, likelihood=soft, seed=1)
        return
    states = tree.sample(n, hard, likelihood=soft, seed=1).states
    assert states.shape == (n, len(model))
    assert states.dtype == np.int32
    counts = np.zeros(table.shape)
    np.add.at(counts, tuple(states.T), 1.0)
    assert not counts[table == 0].any()  # what is impossible is never drawn
    # some sixty networks at a fixed seed: the smallest of the values is about 0.01
    assert chi_square(counts.ravel(), table.ravel() / table.sum()) > 1e-6


@given(st.data())
def test_bayesian_networks(data: st.DataObject) -> None:
    model = data.draw(bayesian_networks())
    hard, soft = data.draw(evidence_weights(model))
    lowering = data.draw(st.sampled_from(LOWERINGS))
    check_frequencies(model, model.compile("cpu", order="min-fill", lowering=lowering), hard, soft, 4000)


@given(st.data())
def test_markov_networks(data: st.DataObject) -> None:
    model = data.draw(markov_networks())
    hard, soft = data.draw(evidence_weights(model))
    check_frequencies(model, model.compile("cpu", order="min-fill"), hard, soft, 4000)


@given(st.data())
@examples(25)
def test_backends_draw_the_same(data: st.DataObject) -> None:
    model = data.draw(bayesian_networks())
    hard, soft = data.draw(evidence_weights(model))
    found = []
    for backend in BACKENDS:
        tree = model.compile(backend, order="min-fill")
        try:
            found.append(tree.sample(20, hard, likelihood=soft, seed=7).states.tolist())
        except jtgpu.ImpossibleEvidence:
            found.append([])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("name", "share"), [("alarm", 0.0), ("alarm", 0.2), ("hailfinder", 0.1), *slow(("munin1", 0.1))]
)
def test_frequencies_are_the_posteriors(name: str, share: float) -> None:
    net = bundled(name)
    tree = net.compile("cpu")
    evidence = judge.sampled_evidence(net, share, seed=8)
    n = 20_000 if name != "munin1" else 3000
    states = tree.sample(n, evidence, seed=3).states
    worst = 1.0
    for v, posterior in enumerate(tree.posteriors(evidence).values()):
        p = np.asarray(posterior)
        counts = np.bincount(states[:, v], minlength=len(p)).astype(float)
        if counts.max() < n:
            worst = min(worst, chi_square(counts, p))
        else:
            assert p.max() > 0.99
    assert worst > 1e-5
    logs = [
        sum(math.log(net.cpt(v)[tuple(row[net.index(u)] for u in (*net.parents(v), v))]) for v in net.variables)
        for row in states[:20].tolist()
    ]
    assert min(logs) > -math.inf


def test_joint_frequencies_of_neighbours() -> None:
    net = bundled("alarm")
    tree = net.compile("cpu")
    states = tree.sample(50_000, {"BP": 0}, seed=11).states
    for a, b in (("HR", "CO"), ("LVEDVOLUME", "CVP"), ("TPR", "HISTORY")):
        table = np.asarray(tree.joint([a, b], {"BP": 0}))
        counts = np.zeros(table.shape)
        np.add.at(counts, (states[:, net.index(a)], states[:, net.index(b)]), 1.0)
        assert chi_square(counts.ravel(), table.ravel()) > 1e-4


def test_pyagrum() -> None:
    gum: Any = pytest.importorskip("pyagrum")
    net = bundled("alarm")
    evidence = judge.sampled_evidence(net, 0.1, seed=4)
    engine = gum.LazyPropagation(judge.to_pyagrum(net))
    engine.setEvidence(evidence)
    pair = {"HR", "CO"}
    engine.addJointTarget(pair)
    engine.makeInference()
    joint = engine.jointPosterior(pair)
    states = net.compile("cpu").sample(20_000, evidence, seed=1).states
    cards = [len(net.states(v)) for v in ("HR", "CO")]
    table, counts = np.zeros(cards), np.zeros(cards)
    for x in np.ndindex(*cards):
        table[x] = joint[dict(zip(("HR", "CO"), x, strict=True))]
    np.add.at(counts, tuple(states[:, net.index(v)] for v in ("HR", "CO")), 1.0)
    assert chi_square(counts.ravel(), table.ravel()) > 1e-4


@pytest.mark.parametrize("backend", BACKENDS)
def test_seeds(backend: BackendName) -> None:
    tree = bundled("asia").compile(backend)
    states = tree.sample(60, {"xray": "yes"}, seed=5).states
    assert (tree.sample(60, {"xray": "yes"}, seed=5).states == states).all()
    assert (tree.sample(7, {"xray": "yes"}, seed=5).states == states[:7]).all()
    assert (tree.sample(60, {"xray": "yes"}, seed=6).states != states).any()
    generator = np.random.default_rng(5)
    again = np.vstack([tree.sample(n, {"xray": "yes"}, seed=generator).states for n in (20, 40)])
    assert (again == states).all()  # a generator goes on where it stopped
    assert tree.sample(0).states.shape == (0, 8)
    assert tree.sample(2).states.shape == (2, 8)
    with pytest.raises(ValueError, match="n must be an integer of at least 0, not -1"):
        tree.sample(-1)


def test_any_number_of_cores_draws_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "WORTH_THREADS", 0)
    monkeypatch.setattr(queries, "BLOCK", 37 * 700)  # several blocks
    plan = bundled("alarm").plan()
    found = [plan.compile("cpu", threads=n).sample(2000, {"BP": 0}, seed=3).states for n in (1, 2, 5)]
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()
    assert (plan.compile("cpu", threads=2).sample(1, {"BP": 0}, seed=3).states == found[0][:1]).all()


def test_rare_evidence_rejects_no_samples() -> None:
    # a chain of hundred findings of probability 1/1000 each
    net = BayesianNetwork(
        {f"{k}{i}": ["no", "yes"] for i in range(100) for k in "xe"},
        {**{f"x{i}": [f"x{i - 1}"] for i in range(1, 100)}, **{f"e{i}": [f"x{i}"] for i in range(100)}},
        {
            "x0": [0.5, 0.5],
            **{f"x{i}": [[0.8, 0.2], [0.3, 0.7]] for i in range(1, 100)},
            **{f"e{i}": [[0.999, 0.001], [0.998, 0.002]] for i in range(100)},
        },
    )
    tree = net.compile("cpu")
    evidence = {f"e{i}": "yes" for i in range(100)}
    assert tree.log_evidence(evidence) < -600
    samples = tree.sample(4000, evidence, seed=2)
    for v in ("x0", "x50", "x99"):
        frequency = float((samples[v] == "yes").mean())
        assert frequency == pytest.approx(tree.posterior(v, evidence)["yes"], abs=0.04)
    assert (samples["e7"] == "yes").all()


def test_samples_are_mappings() -> None:
    net = bundled("asia")
    samples = net.compile("cpu").sample(50, {"xray": "yes"}, seed=1)
    assert list(samples) == list(net.variables)
    assert len(samples) == 8
    assert set(samples["lung"]) <= {"yes", "no"}
    assert np.asarray(samples, np.int32).shape == (50, 8)
    assert np.asarray(samples, np.float64).dtype == np.float64
    for row, label in zip(samples.states[:, net.index("lung")], samples["lung"], strict=True):
        assert net.states("lung")[row] == label
    assert "50 rows" in repr(samples)


@pytest.mark.parametrize("backend", BACKENDS)
def test_interventions_and_soft_evidence(backend: BackendName) -> None:
    net = bundled("asia")
    tree = net.compile(backend)
    n = 4000 if backend == "cpu" else 400
    wide = 4.5 / math.sqrt(n)
    forced = tree.sample(n, do={"smoke": "yes"}, seed=1)
    assert (forced["smoke"] == "yes").all()
    assert (forced["lung"] == "yes").mean() == pytest.approx(0.1, abs=wide)
    soft = tree.sample(n, soft={"smoke": [0.2, 0.8]}, seed=1)
    assert (soft["smoke"] == "yes").mean() == pytest.approx(0.2, abs=wide)


# Tables with missing cells -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_imputation(backend: BackendName) -> None:
    net = bundled("asia")
    tree = net.compile(backend)
    whole = tree.sample(30, seed=3).states
    holes = np.random.default_rng(1).random(whole.shape) < 0.4
    cases = np.where(holes, -1, whole).astype(np.int32)
    filled = tree.impute(cases, seed=9)
    assert (filled.states[~holes] == whole[~holes]).all()
    assert (filled.missing == holes).all()
    assert (filled.states >= 0).all()
    assert (tree.impute(cases, seed=9).states == filled.states).all()
    assert (tree.impute(cases[:11], seed=9).states == filled.states[:11]).all()
    best = tree.impute(cases, how="mpe")
    for row, case in enumerate(cases):
        evidence = {int(v): int(case[v]) for v in np.flatnonzero(case >= 0)}
        assert best.states[row].tolist() == tree.mpe(evidence).states.tolist()
    if backend == "cpu":
        definition = net.compile("reference").impute(cases, seed=9)
        assert (definition.states == filled.states).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_imputation_of_impossible_cases(backend: BackendName) -> None:
    tree = bundled("asia").compile(backend)
    cases = {"tub": ["yes", "yes", None], "either": ["no", None, "no"], "lung": [None, None, "no"]}
    with pytest.raises(jtgpu.ImpossibleEvidence, match=r"row 0: .*either = 'no'"):
        tree.impute(cases, seed=1)
    for how in ("sample", "mpe"):
        found = tree.impute(cases, seed=1, how=how, on_error="flag")
        assert found.impossible.tolist() == [True, False, False]
        assert (found.states[0] == -1).all()
        assert found["either"].tolist() == [None, "yes", "no"]
        assert found["tub"].tolist() == [None, "yes", "no"]
    with pytest.raises(ValueError, match="how must be"):
        tree.impute(cases, how="mean")  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", BACKENDS)
def test_imputation_with_weights(backend: BackendName) -> None:
    tree = bundled("asia").compile(backend)
    cases = {"smoke": ["yes", None, None]}
    weights = {"lung": [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]}
    found = tree.impute(cases, seed=1, likelihood=weights, on_error="flag")
    assert found.impossible.tolist() == [False, False, True]
    assert found["lung"].tolist() == ["yes", "no", None]


def test_frequencies_of_imputed_cells() -> None:
    net = bundled("asia")
    tree = net.compile("cpu")
    cases = np.full((20_000, 8), -1, np.int32)
    cases[:, net.index("xray")] = 0
    cases[::2, net.index("smoke")] = 1  # two patterns in turn
    states = tree.impute(cases, seed=2).states
    for rows, evidence in ((slice(1, None, 2), {"xray": 0}), (slice(0, None, 2), {"xray": 0, "smoke": 1})):
        for v, posterior in tree.posteriors(evidence).items():
            frequency = np.bincount(states[rows, net.index(v)], minlength=2) / 10_000
            np.testing.assert_allclose(frequency, np.asarray(posterior), atol=0.025)


# Command line -------------------------------------------------------------------------------------------------------


def run(*words: str) -> Any:
    """One command within this process; a traceback is a failure."""
    result = CliRunner().invoke(app, [*words, "--backend", "reference"])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    return result


ASIA = str(ROOT / "nets" / "asia.net")


def test_the_command(tmp_path: Path) -> None:
    done = run("sample", ASIA, "25", "-e", "xray=yes", "--seed", "4")
    assert done.exit_code == 0
    samples = bundled("asia").compile("reference").sample(25, {"xray": "yes"}, seed=4)
    lines = [*csv.reader(io.StringIO(done.stdout))]
    assert lines[0] == list(samples)
    assert lines[1:] == [list(row) for row in zip(*samples.values(), strict=True)]
    for name in ("out.csv", "out.csv.gz"):
        path = tmp_path / name
        assert run("sample", ASIA, "25", "-e", "xray=yes", "--seed", "4", "-o", str(path)).stdout == ""
        data = path.read_bytes()
        assert (gzip.decompress(data) if name.endswith(".gz") else data).decode() == done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.csv", "out.csv.gz"]
    found = json.loads(run("sample", ASIA, "25", "-e", "xray=yes", "--seed", "4", "--json").stdout)
    assert found["samples"] == lines[1:]
    assert found["variables"] == lines[0]
    run("sample", ASIA, "3", "--seed", "4", "--json", "-o", str(tmp_path / "out.json"))
    assert len(json.loads((tmp_path / "out.json").read_text())["samples"]) == 3
    numbers = run("sample", ASIA, "25", "-e", "xray=yes", "--seed", "4", "--numbers").stdout.splitlines()[1:]
    assert [[int(x) for x in line.split(",")] for line in numbers] == samples.states.tolist()
    assert run("sample", ASIA, "0").stdout.splitlines() == [",".join(lines[0])]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["5", "-e", "tub=yes", "-e", "either=no"], 4, "either = 'no'"),
        (["5", "-o", "/nowhere/at/all.csv"], 2, "does not"),
        (["-5"], 2, ""),
        (["5", "-e", "xray"], 2, "name=state"),
    ],
)
def test_invalid_commands(tmp_path: Path, words: list[str], code: int, says: str) -> None:
    path = tmp_path / "out.csv"
    done = run("sample", ASIA, *words, *(() if "-o" in words else ("-o", str(path))))
    assert done.exit_code == code
    assert says in " ".join(done.stderr.split())
    assert not path.exists()
