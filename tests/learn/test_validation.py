"""`validate` against scikit-learn's metrics, and cross-validation against models that are fitted by hand."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.errors import ArgumentError, DataError, ImpossibleEvidence, JtgpuError, UnknownState, UnknownVariable
from jtgpu.learn import Validation, validate
from jtgpu.learn.validation_result import BINS

metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")

CHAIN = jtgpu.network("a -> b -> c", "{x|y|z}", seed=3)


def cases(n: int = 200, seed: int = 1) -> dict[str, list[Any]]:
    with CHAIN.compile("cpu") as tree:
        drawn = tree.sample(n, seed=seed).states
    return {v: [CHAIN.states(v)[s] for s in drawn[:, i].tolist()] for i, v in enumerate(CHAIN)}


@st.composite
def validations(draw: st.DrawFn) -> Validation:
    c, n = draw(st.integers(2, 4)), draw(st.integers(8, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    p = rng.integers(1, 6, (n, c)).astype(np.float64)  # ties are frequent
    observed = np.concatenate([np.arange(c), rng.integers(0, c, n - c)])
    fold = rng.integers(0, 2, n)
    return Validation("t", tuple("abcd"[:c]), p / p.sum(axis=1, keepdims=True), observed, np.arange(n), fold)


@given(validations())
def test_metrics_are_those_of_scikit_learn(v: Validation) -> None:
    labels, p = np.arange(len(v.states)), v.probabilities
    assert v.accuracy == pytest.approx(metrics.accuracy_score(v.observed, v.predicted), abs=1e-12)
    assert v.log_loss == pytest.approx(metrics.log_loss(v.observed, p, labels=labels), abs=1e-9)
    assert (v.confusion == metrics.confusion_matrix(v.observed, v.predicted, labels=labels)).all()
    binary = [metrics.brier_score_loss(v.observed == k, p[:, k]) for k in labels]
    assert v.brier == pytest.approx(sum(binary), abs=1e-9)
    for k, state in enumerate(v.states):
        if (v.observed == k).all():
            continue
        assert v.auc(state) == pytest.approx(metrics.roc_auc_score(v.observed == k, p[:, k]), abs=1e-12)
        false, true, threshold = metrics.roc_curve(v.observed == k, p[:, k], drop_intermediate=False)
        for own, expected in zip(v.roc(state), (false, true, threshold), strict=True):
            assert np.allclose(own, expected, rtol=0, atol=1e-12, equal_nan=False)
    names, columns, _ = v._table()
    p_r_f = metrics.precision_recall_fscore_support(v.observed, v.predicted, labels=labels, zero_division=0)
    for name, values in zip(("precision", "recall", "F1"), p_r_f, strict=False):
        shares = np.ma.filled(columns[names.index(name)], 0.0)
        assert np.allclose(shares, values, rtol=0, atol=1e-12)


@given(validations())
def test_calibration_is_a_mean_by_interval(v: Validation) -> None:
    for state in (None, *v.states):
        lower, predicted, observed, count = v.calibration(state)
        p = v.probabilities.max(axis=1) if state is None else v.probabilities[:, v.states.index(state)]
        event = v.observed == (v.predicted if state is None else v.states.index(state))
        at = np.minimum(np.floor(p * BINS), BINS - 1)
        assert count.sum() == len(p)
        for i, low in enumerate(lower):
            own = at == round(low * BINS)
            assert (predicted[i], observed[i]) == pytest.approx((p[own].mean(), event[own].mean()), abs=1e-12)
    assert 0.0 <= v.calibration_error <= 1.0


def test_rounding_changes_no_rank_and_no_prediction() -> None:
    """Equal cases in different rows have posteriors whose last digits differ."""
    rng = np.random.default_rng(0)
    p = rng.integers(0, 11, 400) / 10.0
    observed = (rng.random(400) > p).astype(np.int64)
    noisy = np.clip(p + rng.uniform(-1e-14, 1e-14, 400), 0.0, 1.0)
    exact, v = (
        Validation("t", ("a", "b"), np.column_stack([q, 1.0 - q]), observed, np.arange(400), np.zeros(400, np.int64))
        for q in (p, noisy)
    )
    assert v.auc("a") == v.auc("b") == exact.auc("a")
    assert v.auc("a") == pytest.approx(metrics.roc_auc_score(observed == 0, p), abs=1e-12)
    assert len(v.roc("a")[2]) == 12
    assert (v.predicted == exact.predicted).all()
    assert (v.calibration("a")[3] == exact.calibration("a")[3]).all()


def test_a_network_predicts_from_all_other_cells() -> None:
    table = cases()
    result = validate(CHAIN, table, "b")
    with CHAIN.compile("cpu") as tree:
        for i in (0, 7, 199):
            own = tree.posteriors({"a": table["a"][i], "c": table["c"][i]})["b"].probabilities
            assert np.allclose(result.probabilities[i], own, rtol=0, atol=1e-12)
        by_tree = validate(tree, table, "b")
    assert (by_tree.probabilities == result.probabilities).all()
    assert np.isclose(result.log_loss, -np.log(result.probabilities[np.arange(200), result.observed]).mean())


def test_folds_are_predicted_by_models_of_the_others() -> None:
    table = cases(60)
    result = validate(CHAIN, table, "b", folds=3, pseudo_counts=0.5)
    counts = [np.bincount(result.fold[result.observed == k], minlength=3) for k in range(3)]
    assert all(np.ptp(c) <= 1 for c in counts)
    assert sorted(result.rows.tolist()) == [*range(60)]
    for f in range(3):
        train = {v: [x for x, own in zip(c, result.fold, strict=True) if own != f] for v, c in table.items()}
        net = jtgpu.learn.fit(CHAIN, train, pseudo_counts=0.5).network
        test = {v: [x for x, own in zip(c, result.fold, strict=True) if own == f] for v, c in table.items()}
        assert np.allclose(validate(net, test, "b").probabilities, result.probabilities[result.fold == f], atol=1e-12)
    assert (
        validate(CHAIN, table, "b", folds=result.fold, pseudo_counts=0.5).probabilities == result.probabilities
    ).all()
    by_function = validate(
        lambda train: jtgpu.learn.fit(CHAIN, train, pseudo_counts=0.5).network, table, "b", folds=result.fold
    )
    assert np.allclose(by_function.probabilities, result.probabilities, rtol=0, atol=1e-12)


def test_a_classifier_is_fitted_in_each_fold() -> None:
    table = cases(90)
    model = jtgpu.JunctionTreeClassifier({"c": ["b"], "b": ["a"]}, target="b", backend="cpu")
    result = validate(model, table, folds=3)
    assert result.target == "b"
    assert result.states == ("x", "y", "z")
    features = {v: c for v, c in table.items() if v != "b"}
    fitted = model.fit(features, table["b"])
    assert np.allclose(validate(fitted, table).probabilities, fitted.predict_proba(features), rtol=0, atol=1e-12)


def test_rows_without_a_target_are_left_out(tmp_path: Path) -> None:
    table = cases(30)
    table["b"][4] = None
    table["a"][5] = None
    table["id"] = list(range(30))
    result = validate(CHAIN, table, "b")
    assert (result.n_missing, len(result.rows), 4 in result.rows) == (1, 29, False)
    frame = pytest.importorskip("pandas").DataFrame(table)
    frame.to_csv(tmp_path / "cases.csv", index=False)
    for other in (frame, str(tmp_path / "cases.csv")):
        assert (validate(CHAIN, other, "b").probabilities == result.probabilities).all()
    assert "1 row left out: target missing" in str(result)
    assert [*result.to_frame()["b"]] == ["x", "y", "z"]
    assert len(result.predictions()) == 29


def test_the_picture_has_every_part() -> None:
    drawing = validate(CHAIN, cases(), "b").draw()
    assert drawing.svg.count("<polyline") == 4
    assert "AUC" in drawing.svg
    assert "rows: observed" in drawing.svg


def test_impossible_rows() -> None:
    net = jtgpu.network("a -> b", "{x|y}", cpts={"a": [1.0, 0.0], "b": [[0.5, 0.5], [0.5, 0.5]]})
    table = {"a": ["x", "y", "x"], "b": ["x", "x", "y"]}
    with pytest.raises(ImpossibleEvidence, match="row 1 has probability 0"):
        validate(net, table, "b")
    result = validate(net, table, "b", on_error="flag")
    assert (result.n_impossible, result.rows.tolist()) == (1, [0, 2])
    assert validate(net, table, "a").log_loss == np.inf


def test_wrong_arguments() -> None:
    table = cases(20)
    with pytest.raises(UnknownVariable, match="no column 'd', the target"):
        validate(CHAIN, table, "d")
    with pytest.raises(ArgumentError, match="pseudo_counts= is an option of fitting"):
        validate(CHAIN, table, "b", pseudo_counts=1)
    with pytest.raises(ArgumentError, match="validate needs a network, a tree"):
        validate({"b": ["a"]}, table, "b")
    with pytest.raises(DataError, match="21 folds, but only 20 rows"):
        validate(CHAIN, table, "b", folds=21)
    with pytest.raises(ArgumentError, match="folds must be a number, or 20 whole numbers"):
        validate(CHAIN, table, "b", folds=[0, 1])
    with pytest.raises(UnknownState, match="row 0, column 'b': 'q' is not a state"):
        validate(CHAIN, table | {"b": ["q"] * 20}, "b")
    with pytest.raises(UnknownState, match="no state 'w'"):
        validate(CHAIN, table, "b").auc("w")


@pytest.mark.parametrize("dtype", ["int64", "float64", "Int64", "str", "category"])
def test_cells_of_the_target_mean_states_as_elsewhere(dtype: str) -> None:
    pandas = pytest.importorskip("pandas")
    a, b = [1, 2, 3, 1, 2, 3] * 5, [1, 2, 3, 3, 2, 1] * 5
    net = jtgpu.learn.fit({"b": ["a"]}, {"a": a, "b": b}).network
    expected, folded = (validate(net, {"a": a, "b": b}, "b", folds=k) for k in (None, 3))
    frame = pandas.DataFrame({"a": a, "b": b})
    frame["b"] = frame["b"].astype(dtype)
    assert np.array_equal(validate(net, frame, "b").confusion, expected.confusion)
    for model in (net, {"b": ["a"]}):
        assert np.array_equal(validate(model, frame, "b", folds=3).probabilities, folded.probabilities)
    if dtype == "float64":
        frame.loc[0, "b"] = None
        assert validate(net, frame, "b").n_missing == 1


def test_measured_targets_are_in_intervals() -> None:
    net = jtgpu.BayesianNetwork({"q": ["[0, 5)", "[5, 10)"]}, {}, {"q": [0.4, 0.6]})
    assert validate(net, {"q": [1.5, 7, 9]}, "q").confusion.tolist() == [[0, 1], [0, 2]]
    with pytest.raises(UnknownState, match="row 1, column 'q': 12 is not a state"):
        validate(net, {"q": [1.5, 12]}, "q")


def test_a_state_that_one_fold_alone_has() -> None:
    """The folds without it knew no such state; its row was named by its number in the fold."""
    cases = {"x": ["a", "b"] * 20, "y": ["u", "v", "v", "u"] * 10}
    cases["x"][3] = "rare"
    for options in ({}, {"bins": 2}, {"states": {"y": ["v", "u"]}}):
        assert validate({"y": ["x"]}, cases, "y", folds=4, **options).accuracy > 0

    def learner(rows: Any) -> Any:
        return jtgpu.learn.fit({"y": ["x"]}, rows).network

    with pytest.raises(UnknownState, match=r"row 3, column 'x': 'rare' is not a state.*states= declares"):
        validate(learner, cases, "y", folds=4)


@pytest.mark.parametrize(
    ("cells", "states"),
    [([" a", "a", "b"], ("a", "b")), ([1.0, 2.0], ("1", "2")), ([b"b", b"a"], ("a", "b")), (["10", "9"], ("9", "10")),
     ([datetime.datetime(2024, 1, 2), datetime.datetime(2024, 1, 1)], ("2024-01-01", "2024-01-02"))],
)  # fmt: skip
def test_states_of_a_target_are_named_as_by_fits(cells: list[Any], states: tuple[str, ...]) -> None:
    n = 12 * len(cells)
    table = {"x": ["u", "v"] * (n // 2), "y": cells * 12}
    found = validate(lambda train: jtgpu.learn.fit({"x": ["y"]}, train).network, table, "y", folds=2)
    assert (found.states, found.support.sum()) == (states, n)


def test_declared_states_of_a_target_keep_their_order() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": ["u", "v"] * 12, "y": pd.Categorical(["low", "high"] * 12, ["low", "mid", "high"])})
    for model in ({"x": ["y"]}, jtgpu.learn.JunctionTreeClassifier()):
        assert validate(model, frame, "y", folds=2).states == ("low", "mid", "high")


def test_a_network_over_time() -> None:
    """The target of a slice is predicted from the others up to it; folds are sequences."""
    cpts = {"rain": [[0.9, 0.1], [0.1, 0.9]], "wet": [[0.8, 0.2], [0.1, 0.9]]}
    states = {"rain": ["no", "yes"], "wet": ["no", "yes"]}
    net = jtgpu.DynamicNetwork(states, {"rain": [("rain", 1)], "wet": ["rain"]}, cpts, start={"rain": [0.5, 0.5]})
    tree = net.compile("reference")
    frame = tree.sample(8, length=6, seed=1).to_frame()
    keys = jtgpu.learn.Keys(id="sequence", time="slice")
    found = jtgpu.learn.validate(tree, frame, "rain", keys=keys)
    expected = tree.filter(frame.drop(columns="rain"), keys=keys)["rain"].reshape(-1, 2)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-12)
    assert found.observed.tolist() == (frame["rain"] == "yes").astype(int).tolist()
    arrays = {v: frame[v].to_numpy().reshape(8, 6) for v in net}
    parts = np.arange(8) % 2
    found = jtgpu.learn.validate(net, arrays, "rain", folds=parts, pseudo_counts=0.5)
    half = {v: x[1::2] for v, x in arrays.items()}
    fitted = jtgpu.learn.fit(net, half, pseudo_counts=0.5).network.compile("reference")
    expected = fitted.filter({"wet": arrays["wet"][::2]})["rain"].reshape(-1, 2)
    np.testing.assert_allclose(found.probabilities[np.repeat(parts, 6) == 0], expected, atol=1e-9)
    assert len(np.unique(jtgpu.learn.validate(net, arrays, "rain", folds=4, seed=3).fold)) == 4
    arrays["rain"][0, 0] = None
    assert jtgpu.learn.validate(net, arrays, "rain").n_missing == 1
    for more, message in (
        ({"folds": 9}, "only 8 sequences"),
        ({"folds": [0] * 8}, "each sequence is in the same part"),
        ({"pseudo_counts": 1.0}, "needs folds="),
    ):
        with pytest.raises(JtgpuError, match=message):
            jtgpu.learn.validate(net, arrays, "rain", **more)
