"""Faults that users and testers found in `fit`: weights of 0, certain data, checkpoints of other runs, tied priors."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.errors import ArgumentError, DataError, ImpossibleEvidence, JtgpuError
from jtgpu.learn import EM, fit
from jtgpu.learn.parameters import em

CHAIN = {"b": ["a"], "c": ["b"]}
YES = {v: ["n", "y"] for v in "abc"}


def test_a_row_of_weight_zero_is_left_out() -> None:
    table = {"a": ["n", "y", "y", None, "y"], "b": ["n", "n", "y", "y", None]}
    found = fit({"b": ["a"]}, table, pseudo_counts=0, weights=[0, 1, 1, 1, 1])
    without = {v: cells[1:] for v, cells in table.items()}
    same = fit({"b": ["a"]}, without, pseudo_counts=0, states={"a": ["n", "y"]})
    assert np.array_equal(found.network.cpt("a"), same.network.cpt("a"))
    assert (found.n_rows, found.n_weightless) == (4, 1)
    assert "left out: 1 row of weight 0" in str(found)
    assert found.report()["rows_weightless"] == 1
    complete = fit({"b": ["a"]}, {"a": ["n", None], "b": ["n", "y"]}, weights=[1, 0], states={"b": ["n", "y"]})
    assert complete.method == "counts"


def test_an_objective_of_zero() -> None:
    structure = {"a": [], "b": [], "c": ["a", "b"], "d": ["c"]}
    table: dict[str, Any] = {"a": ["y"], "b": [None], "c": [None], "d": ["y"]}
    states = {v: ["n", "y"] for v in "abcd"}
    for seed in range(40):
        found = fit(structure, table, pseudo_counts=0, em=EM(start="random", seed=seed), states=states)
        assert found.converged, seed
        assert found.log_likelihood == pytest.approx(0.0, abs=1e-6)


cells = st.sampled_from(["n", "y", None])


@given(
    st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=5),
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 1e6]), min_size=5, max_size=5),
    st.sampled_from([0, 0.1, "bdeu:2", {"b": 2}]),
    st.integers(0, 5),
)
def test_small_tables(rows: list[Any], weights: list[float], prior: Any, seed: int) -> None:
    """EM ends with CPTs, never in an error about itself, and its likelihood is that of enumeration."""
    table = {v: [row[i] for row in rows] for i, v in enumerate("abc")}
    own = weights[: len(rows)]
    try:
        found = fit(
            CHAIN,
            table,
            pseudo_counts=prior,
            weights=own,
            states=YES,
            em=EM(start="random", seed=seed, iterations=50),
        )
    except DataError as error:
        assert "all weights are zero" in str(error) and not any(own)  # noqa: PT018, PT017
        return
    cpts = [found.network.cpt(v) for v in "abc"]
    assert all(np.isfinite(t).all() for t in cpts)
    total = 0.0
    for row, weight in zip(rows, own, strict=True):
        options = [[0, 1] if x is None else [["n", "y"].index(x)] for x in row]
        p = sum(cpts[0][a] * cpts[1][a, b] * cpts[2][b, c] for a, b, c in itertools.product(*options))
        total += weight * float(np.log(p)) if weight else 0.0
    assert found.log_likelihood == pytest.approx(total, rel=1e-9, abs=1e-9 * max(own))


class Interrupt(Exception):
    pass


def with_checkpoint(path: Path, options: dict[str, Any], resume: bool = True) -> dict[str, Any]:
    """The options of a fit with a checkpoint."""
    return {**options, "em": options.get("em", EM()).replaced(checkpoint=path, resume=resume)}


def interrupted(path: Path, monkeypatch: pytest.MonkeyPatch, structure: Any, options: dict[str, Any]) -> None:
    """Run one iteration with a checkpoint, as Ctrl-C ends it."""

    real = em.Checkpoint.write

    def write(*arguments: Any) -> None:
        real(*arguments)
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(em, "INTERVAL", 0.0)
        patch.setattr(em.Checkpoint, "write", write)
        with pytest.raises(Interrupt):
            fit(structure, TABLE, **with_checkpoint(path, options, False))
    assert path.is_file()


TABLE = {"a": ["n", "y", "y", None, "y"], "b": ["n", "n", "y", "y", None], "c": [None, "n", "y", "y", "n"]}


def network(p: float) -> jtgpu.BayesianNetwork:
    half = [[0.5, 0.5], [0.25, 0.75]]
    return jtgpu.BayesianNetwork(YES, {"a": [], **CHAIN}, {"a": [p, 1 - p], "b": half, "c": half})


BIG = np.ones((2, 2))


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ((network(0.2), {"fixed": ["a"]}), (network(0.9), {"fixed": ["a"]}), "CPTs of the given network"),
        (
            (network(0.2), {"em": EM(start="given")}),
            (network(0.9), {"em": EM(start="given")}),
            "CPTs of the given network",
        ),
        (
            (CHAIN, {"em": EM(start=network(0.2))}),
            (CHAIN, {"em": EM(start=network(0.9))}),
            "CPTs of the given network",
        ),
        ((network(0.2), {"pseudo_counts": "net:50"}), (network(0.9), {"pseudo_counts": "net:50"}), "prior"),
        ((CHAIN, {"pseudo_counts": {"b": BIG}}), (CHAIN, {"pseudo_counts": {"b": 2 * BIG}}), "prior"),
        ((CHAIN, {"weights": [1, 1, 1, 1, 1]}), (CHAIN, {"weights": [1, 1, 1, 1, 2]}), "data"),
        ((CHAIN, {"tied": [("b", "c")]}), (CHAIN, {}), "tied or fixed variables"),
        (
            (CHAIN, {"em": EM(seed=1, start="random")}),
            (CHAIN, {"em": EM(seed=2, start="random")}),
            "seed",
        ),
        (
            (CHAIN, {"em": EM(accelerate=True)}),
            (CHAIN, {"em": EM(accelerate=False)}),
            "accelerate",
        ),
        ((CHAIN, {}), ({"b": ["a"], "c": ["a"]}, {}), "structure"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(
    before: Any, after: Any, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.npz"
    interrupted(path, monkeypatch, before[0], before[1])
    with pytest.raises(JtgpuError, match=f"is that of another run: other .*{part}"):
        fit(after[0], TABLE, **with_checkpoint(path, after[1]))
    resumed = fit(before[0], TABLE, **with_checkpoint(path, before[1]))
    whole = fit(before[0], TABLE, **before[1])
    assert all(np.array_equal(resumed.network.cpt(v), whole.network.cpt(v)) for v in "abc")


def test_numbers_that_do_not_decide_the_result_do_not_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.npz"
    interrupted(path, monkeypatch, network(0.2), {})
    fit(network(0.9), TABLE, em=EM(checkpoint=path, resume=True))


def test_the_prior_of_tied_variables() -> None:
    structure: dict[str, list[str]] = {"a": [], "b": []}
    table = {"a": [*"nyy"], "b": [*"nny"]}
    first = fit(structure, table, tied=[("a", "b")], pseudo_counts={"a": 5})
    for tied, prior in [(("b", "a"), {"a": 5}), (("a", "b"), {"b": 5}), (("b", "a"), {"a": 5, "b": 5})]:
        same = fit(structure, table, tied=[tied], pseudo_counts=prior)
        assert np.array_equal(same.network.cpt("b"), first.network.cpt("a"))
    assert first.network.cpt("a").tolist() == [0.5, 0.5]
    with pytest.raises(ArgumentError, match="'a' and 'b' share one CPT, but have different priors"):
        fit(structure, table, tied=[("a", "b")], pseudo_counts={"a": 5, "b": 4})
    net = jtgpu.BayesianNetwork({v: ["n", "y"] for v in "ab"}, structure, {"a": [0.1, 0.9], "b": [0.5, 0.5]})
    both = [fit(net, table, tied=[t], pseudo_counts="net:10").network.cpt("a") for t in [("a", "b"), ("b", "a")]]
    assert both[0] == pytest.approx([(3 + 6) / 26, (3 + 14) / 26])
    assert both[1] == pytest.approx(both[0])


def test_an_impossible_row_is_still_named() -> None:
    with pytest.raises(ImpossibleEvidence, match="row 1"):
        fit(network(1.0), {"a": ["n", "y"], "b": ["n", "n"], "c": ["n", "n"]}, em=EM(start="given"))


def test_a_checkpoint_without_named_fields_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with path.open("wb") as file:
        np.savez(file, meta=np.array("[]"))
    with pytest.raises(JtgpuError, match="is of an earlier version"):
        fit(network(0.9), TABLE, em=EM(checkpoint=path, resume=True))
