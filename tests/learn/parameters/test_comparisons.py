"""`jtgpu.learn.fit` against pyAgrum, enumeration and the truth; structures of other libraries; rows on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.learn import fit
from jtgpu.learn.parameters import coded_cases
from tests.support import oracle
from tests.support.bundled import bundled


def holes(net: jtgpu.BayesianNetwork, n: int, missing: float, seed: int = 0) -> np.ndarray:
    """(n, V) states drawn from a network, cells missing at random."""
    states = net.compile("cpu").sample(n, seed=seed).states.astype(np.int32)
    states[np.random.default_rng(seed).random(states.shape) < missing] = -1
    return states


def test_one_iteration_is_the_next_of_pyagrum(tmp_path: Path) -> None:
    gum: Any = pytest.importorskip("pyagrum")
    net = bundled("cancer")
    states = holes(net, 300, 0.15)
    path = tmp_path / "cases.csv"
    cells = [["?" if s < 0 else net.states(v)[s] for v, s in enumerate(row)] for row in states.tolist()]
    path.write_text("\n".join(",".join(row) for row in [list(net), *cells]) + "\n")
    theirs = jtgpu.to_pyagrum(net)

    def after(n: int) -> jtgpu.BayesianNetwork:
        gum.initRandom(1)
        learner = gum.BNLearner(str(path), theirs, ["?"])
        learner.useSmoothingPrior(1.0)
        learner.useEM(1e-20)
        learner.EMenableMaxIter()
        learner.EMsetMaxIter(n)
        return jtgpu.from_pyagrum(learner.learnParameters(theirs.dag(), False))

    for n in (1, 2, 3):
        before, following = after(n), after(n + 1)
        mine = fit(before, states, em=jtgpu.learn.EM(start="given", iterations=1), pseudo_counts=1).network
        for v in net:
            np.testing.assert_allclose(mine.cpt(v), following.cpt(v), atol=1e-12)
        assert max(np.abs(before.cpt(v) - following.cpt(v)).max() for v in net) > 1e-4


def test_one_iteration_is_enumeration() -> None:
    net = bundled("survey")
    states = holes(net, 12, 0.4)
    counts, _ = oracle.expected_counts(net, states, np.ones(12))
    found = fit(net, states, em=jtgpu.learn.EM(start="given", iterations=1), pseudo_counts=0.5).network
    for v, count in zip(net, counts, strict=True):
        exact = (count + 0.5) / (count + 0.5).sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(found.cpt(v), exact, rtol=1e-10)


def test_structures_of_other_libraries() -> None:
    nx: Any = pytest.importorskip("networkx")
    net = bundled("cancer")
    states = holes(net, 50, 0.2)
    cells = {v: [None if s < 0 else net.states(v)[s] for s in states[:, i]] for i, v in enumerate(net)}
    plain = fit({v: net.parents(v) for v in net}, cells, states={v: net.states(v) for v in net}).network
    own = fit(net, states).network
    graph = nx.DiGraph()
    graph.add_nodes_from(net)
    graph.add_edges_from(net.arcs)
    drawn = fit(graph, cells, states={v: net.states(v) for v in net}).network
    with_numbers = fit(net.to_networkx(), cells).network
    for v in net:
        for other in (plain, drawn, with_numbers):
            assert set(other.parents(v)) == set(net.parents(v))
        np.testing.assert_allclose(plain.cpt(v), own.cpt(v), rtol=1e-9)
        np.testing.assert_allclose(with_numbers.cpt(v), own.cpt(v), rtol=1e-9)
    with pytest.raises(jtgpu.NetworkError, match="no directions"):
        fit(graph.to_undirected(), cells)
    gum: Any = pytest.importorskip("pyagrum")
    assert gum
    assert fit(jtgpu.to_pyagrum(net), cells).network == own


def test_states_from_the_data_are_sorted() -> None:
    found = fit({"a": [], "b": []}, {"a": [10, 9, None, 2], "b": ["x", "10", "9", "y"]})
    assert found.network.states("a") == ("2", "9", "10")
    assert found.network.states("b") == ("10", "9", "x", "y")
    assert found.states_from_data == ("a", "b")
    assert fit({"a": []}, {"a": [1.0, float("nan"), 0.0]}).network.states("a") == ("0", "1")
    assert fit({"a": []}, {"a": ["[10, inf)", "(-inf, 2)", "[2, 10)"]}).network.states("a")[0] == "(-inf, 2)"


def test_rows_beyond_the_memory_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    net = bundled("asia")
    states = holes(net, 400, 0.2)
    path = tmp_path / "cases.csv"
    rows = [["" if s < 0 else net.states(v)[s] for v, s in enumerate(row)] for row in states.tolist()]
    path.write_text("\n".join(",".join(row) for row in [list(net), *rows]) + "\n")
    whole = fit(net, path)
    monkeypatch.setattr(coded_cases, "MEMORY_SHARE", 0.0)
    monkeypatch.setattr(coded_cases, "BLOCK_CELLS", 1 << 14)
    parts = fit(net, path, read=jtgpu.ReadOptions(chunk=100))
    assert parts.objective == pytest.approx(whole.objective, rel=1e-12)
    for v in net:
        np.testing.assert_allclose(parts.network.cpt(v), whole.network.cpt(v), rtol=1e-9)


def test_available_counts_use_complete_families() -> None:
    table = {"a": ["x", "x", None, "y"], "b": ["u", None, "u", "w"]}
    found = fit({"b": ["a"]}, table, missing="available", pseudo_counts=0)
    assert found.method == "available"
    assert found.network.cpt("a").tolist() == pytest.approx([2 / 3, 1 / 3])
    assert found.network.cpt("b").tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert fit({"b": ["a"]}, table, missing="drop").n_dropped == 2


@pytest.mark.slow
def test_em_recovers_the_network() -> None:
    """With 20 % of the cells missing the CPTs are nearly as close to the truth as with complete rows.

    KL is inversely proportional to the rows that say something, and no row says anything about a missing root: the
    observed information allows a factor of 1.3 (docs/parameters.rst), which EM reaches.
    """
    net = bundled("alarm")
    states = net.compile("cpu").sample(100_000, seed=1).states.astype(np.int32)
    complete = fit(net, states).network
    states[np.random.default_rng(2).random(states.shape) < 0.2] = -1
    partial = fit(net, states, em=jtgpu.learn.EM(tolerance=1e-6)).network

    def divergence(found: jtgpu.BayesianNetwork) -> float:
        """Mean KL of the rows of the CPTs, weighted by how often their parents occur."""
        rows, total = 0.0, 0.0
        weights = net.compile("cpu").expected_counts([{}])
        for v in net:
            p, q = np.asarray(net.cpt(v)), np.asarray(found.cpt(v))
            each = np.where(p > 0, p * np.log(np.where(p > 0, p, 1) / q), 0).sum(axis=-1)
            weight = weights[v].sum(axis=-1)
            rows, total = rows + float((each * weight).sum()), total + float(weight.sum())
        return rows / total

    assert divergence(partial) <= 1.4 * divergence(complete)
