"""Cells that are likelihoods, such as ``[0.4;0.8]``, and likelihoods given as arrays."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, DataError, EvidenceError, UnknownState
from jtgpu.learn import fit
from jtgpu.util.cells import is_likelihood
from jtgpu.util.iteration import Iteration
from tests.support.bundled import bundled


def table_with_likelihoods(n: int = 30) -> tuple[jtgpu.BayesianNetwork, np.ndarray, np.ndarray, dict[str, list[Any]]]:
    """A network, states with holes, likelihoods of `Xray`, and the same as cells: likelihoods in every third row."""
    net = bundled("cancer")
    states = net.compile("reference").sample(n, seed=1).states.astype(np.int32)
    rng = np.random.default_rng(0)
    states[rng.random(states.shape) < 0.2] = -1
    v = net.index("Xray")
    likelihood = np.ones((n, 2))
    likelihood[::3] = rng.integers(1, 9, (len(likelihood[::3]), 2)) / 8
    states[::3, v] = -1
    cells: dict[str, list[Any]] = {
        x: [None if s < 0 else net.states(x)[s] for s in states[:, i]] for i, x in enumerate(net)
    }
    for row in range(0, n, 3):
        cells["Xray"][row] = f"[{likelihood[row, 0]};{likelihood[row, 1]}]"
    return net, states, likelihood, cells


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_one_iteration_is_that_of_expected_counts(backend: Any) -> None:
    net, states, likelihood, cells = table_with_likelihoods()
    found = fit(net, cells, em=jtgpu.learn.EM(start="given", iterations=1), pseudo_counts=0.5, compute=backend)
    counts = net.compile("reference").expected_counts(states, likelihood={"Xray": likelihood})
    assert found.history[0].log_likelihood == pytest.approx(counts.log_likelihood, rel=1e-12)
    for v in net:
        exact = (counts[v] + 0.5) / (counts[v] + 0.5).sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(found.network.cpt(v), exact, rtol=1e-10)


def test_a_likelihood_weighs_the_states() -> None:
    net = bundled("cancer")
    cells = [{"Cancer": "[0.25;0.75]", "Smoker": "True"}]
    hidden = [v for v in net if v not in cells[0]]
    found = fit(net, cells, hidden=hidden, em=jtgpu.learn.EM(start="given", iterations=1), compute="reference")
    joint = net.compile("reference").joint(["Smoker", "Cancer"]).probabilities[net.states("Smoker").index("True")]
    expected = np.log(joint @ [0.25, 0.75])
    assert found.history[0].log_likelihood == pytest.approx(expected, rel=1e-12)


def test_arrays_are_cells_are_files(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    net, states, likelihood, cells = table_with_likelihoods()
    by_cells = fit(net, cells)
    path = tmp_path / "cases.csv"
    rows = [["" if c is None else c for c in row] for row in zip(*cells.values(), strict=True)]
    path.write_text("\n".join(",".join(row) for row in [list(net), *rows]) + "\n")
    for found in (
        fit(net, states, likelihood={"Xray": likelihood}), fit(net, path),
        fit(net, path, read=jtgpu.ReadOptions(chunk=7)),
        fit(net, {v: c for v, c in cells.items() if v != "Xray"} | {"Xray": np.array(cells["Xray"], object)}),
    ):  # fmt: skip
        assert found.objective == pytest.approx(by_cells.objective, rel=1e-12)
        for v in net:
            np.testing.assert_allclose(found.network.cpt(v), by_cells.network.cpt(v), rtol=1e-9)


def test_a_variable_may_have_likelihoods_and_no_column() -> None:
    net, states, _, cells = table_with_likelihoods()
    column = cells.pop("Xray")
    sure = np.ones((30, 2))
    for row, s in enumerate(states[:, net.index("Xray")]):
        if s >= 0:
            sure[row] = np.eye(2)[s]
    options: Any = {"em": jtgpu.learn.EM(start="given", iterations=4, accelerate=False)}
    plain = fit(net, {**cells, "Xray": [None if str(c).startswith("[") else c for c in column]}, **options)
    found = fit(net, cells, likelihood={"Xray": sure}, **options)
    assert found.log_likelihood == pytest.approx(plain.log_likelihood)
    for v in net:
        np.testing.assert_allclose(found.network.cpt(v), plain.network.cpt(v), rtol=1e-6)
    with pytest.raises(DataError, match="'Xray' has likelihoods and no column, so its states must be given"):
        fit({v: net.parents(v) for v in net}, cells, likelihood={"Xray": sure})


def test_many_different_likelihoods_need_larger_codes() -> None:
    net, states, _, _ = table_with_likelihoods(300)
    weights = np.random.default_rng(2).random((300, 2))
    found = fit(
        net,
        states.astype(np.int8),
        likelihood={"Xray": weights},
        em=jtgpu.learn.EM(start="given", iterations=1),
        pseudo_counts=0,
    )
    counts = net.compile("reference").expected_counts(states, likelihood={"Xray": weights})
    assert found.history[0].log_likelihood == pytest.approx(counts.log_likelihood, rel=1e-12)


def test_states_from_the_data_are_not_likelihoods() -> None:
    found = fit({"b": ["a"]}, {"a": ["x", "y", "[0.9;0.1]"], "b": ["u", "w", "u"]})
    assert found.network.states("a") == ("x", "y")
    assert found.method == "em"
    named = {"a": ["[0.9;0.1]", "x"], "b": ["u", "w"]}  # the name of a state, if that is declared
    assert fit({"b": ["a"]}, named, states={"a": ["[0.9;0.1]", "x"]}).method == "counts"
    assert fit({"b": ["a"]}, {"a": ["x", "y", "[1;0]"], "b": ["u", "w", "u"]}, missing="error").n_rows == 3


def test_a_checkpoint_knows_its_likelihoods(tmp_path: Path) -> None:

    net, states, likelihood, _ = table_with_likelihoods()

    def stop(entry: Iteration) -> None:
        if entry.number == 2:
            raise KeyboardInterrupt

    path = tmp_path / "run.npz"
    fit(
        net,
        states,
        likelihood={"Xray": likelihood},
        em=jtgpu.learn.EM(checkpoint=path),
        compute=jtgpu.Compute(progress=stop),
    )
    with pytest.raises(jtgpu.JtgpuError, match="another run: other data"):
        fit(net, states, likelihood={"Xray": likelihood * 0.5}, em=jtgpu.learn.EM(checkpoint=path, resume=True))


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("[0.4;0.8;1]", r"column 'a': the likelihood '\[0.4;0.8;1\]' has 3 weights, but the variable has 2 states"),
        ("[0.4;-1]", "column .a.: .*must be finite, >= 0 and not all 0"),
        ("[0;0]", "column .a.: .*must be finite, >= 0 and not all 0"),
        ("[0.4;nan]", "column .a.: .*must be finite, >= 0 and not all 0"),
        ("[0.4;z]", "column .a.: .*has parts that are not numbers"),
    ],
)
def test_wrong_cells(cell: str, text: str) -> None:
    with pytest.raises(UnknownState, match=f"row 2, {text}"):
        fit({"b": ["a"]}, {"a": ["x", "y", cell], "b": ["u", "w", "u"]})


def test_wrong_arrays(tmp_path: Path) -> None:
    net, states, likelihood, _ = table_with_likelihoods()
    with pytest.raises(EvidenceError, match=r"the likelihood of 'Xray' has shape \(29, 2\), expected \(30, 2\)"):
        fit(net, states, likelihood={"Xray": likelihood[1:]})
    with pytest.raises(DataError, match="likelihood: there is no variable 'Xra'; did you mean 'Xray'"):
        fit(net, states, likelihood={"Xra": likelihood})
    with pytest.raises(DataError, match="is declared hidden, but has likelihoods"):
        fit(net, {"Smoker": ["True"]}, hidden=["Xray"], likelihood={"Xray": likelihood})
    with pytest.raises(ArgumentError, match=r"needs a table in memory; in files, likelihoods are cells"):
        fit(net, tmp_path / "cases.csv", likelihood={"Xray": likelihood})


def test_long_cells_take_time_in_proportion() -> None:
    begun = time.process_time()
    for cell in ("[" + ";" * 300_000, "[" + "1;" * 150_000 + "]x", " " * 300_000 + "["):
        assert not is_likelihood(cell)
    assert time.process_time() - begun < 10  # a fraction of a second; with two ways to match, minutes
