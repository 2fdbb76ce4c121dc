"""The classifier: counts by hand, missing cells by brute force, and what scikit-learn expects."""

from __future__ import annotations

import importlib
import math
import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import jtgpu
from jtgpu import JunctionTreeClassifier, errors
from jtgpu.model.network import BayesianNetwork
from jtgpu.util.estimator import NotFitted
from jtgpu.util.options import BackendName
from tests.conftest import ROOT
from tests.support import oracle
from tests.support.examples import some


def data(n: int = 300, seed: int = 4) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """A class, two features that depend on it and on each other, one of noise."""
    rng = np.random.default_rng(seed)
    y = rng.choice(["bad", "good"], n, p=[0.4, 0.6])
    a = np.where(rng.random(n) < np.where(y == "good", 0.8, 0.3), "hi", "lo")
    b = (rng.random(n) < np.where(a == "hi", 0.6, 0.1)).astype(int) + 2 * (y == "good")
    return {"a": a, "b": b, "noise": rng.integers(0, 3, n)}, y


TREE = {"class": [], "a": ["class"], "b": ["class", "a"], "noise": []}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_the_cpts_are_counted(backend: BackendName) -> None:
    X, y = data()
    model = JunctionTreeClassifier(TREE, pseudo_counts=0.5, backend=backend).fit(X, y)
    net = model.network_
    assert model.classes_.tolist() == ["bad", "good"]
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ["a", "b", "noise"]
    assert net.states("b") == ("0", "1", "2", "3")
    good = y == "good"
    assert net.cpt("class")[1] == pytest.approx((good.sum() + 0.5) / (len(y) + 1.0))
    hi = good & (X["a"] == "hi")
    assert net.cpt("a")[1, 0] == pytest.approx((hi.sum() + 0.5) / (good.sum() + 1.0))
    assert net.parents("b") == ("class", "a")
    assert net.cpt("b")[1, 0, 3] == pytest.approx(((hi & (X["b"] == 3)).sum() + 0.5) / (hi.sum() + 2.0))
    assert net.cpt("noise").shape == (3,)
    assert model.score(X, y) > 0.95
    # P(class | row) is the definition's, empty cells summed out
    noise = [0.0, np.nan, 2, None]
    rows: dict[str, list[Any]] = {"a": ["hi", None, "lo", None], "b": [0, 1, None, None], "noise": noise}
    found = model.predict_proba(rows)
    for i in range(4):
        weights = {}
        for v, name in enumerate(net.variables[:3]):
            value = rows[name][i]
            if value is not None and value == value:
                label = str(int(value) if name == "noise" else value)
                weights[v] = np.eye(len(net.states(name)))[net.states(name).index(label)]
        np.testing.assert_allclose(found[i], oracle.posteriors(net, weights)[3], atol=1e-12)
    np.testing.assert_array_equal(model.predict(rows), model.classes_[found.argmax(axis=1)])
    np.testing.assert_allclose(np.exp(model.predict_log_proba(rows)), found)


def test_weights_count_rows_more_than_once() -> None:
    X, y = data(60)
    weight = np.arange(60) % 3
    twice = {k: np.repeat(v, weight) for k, v in X.items()}
    one = JunctionTreeClassifier(TREE, backend="reference").fit(X, y, sample_weight=weight)
    other = JunctionTreeClassifier(TREE, backend="reference", states={"b": [0, 1, 2, 3], "noise": [0, 1, 2]}).fit(
        twice, np.repeat(y, weight)
    )
    for v in one.network_.variables:
        np.testing.assert_allclose(one.network_.cpt(v), other.network_.cpt(v))
    assert one.score(X, y, weight) == pytest.approx(other.score(twice, np.repeat(y, weight)))


def test_plain_arrays_and_naive_bayes() -> None:
    X, y = data()
    table = np.stack([X["b"], X["noise"]], axis=1)
    model = JunctionTreeClassifier(backend="reference").fit(table, y)
    assert model.network_.variables == ("x0", "x1", "class")
    assert model.network_.parents("x0") == ("class",)
    assert not hasattr(model, "feature_names_in_")
    assert model.score(table, y) > 0.9
    by_structure = JunctionTreeClassifier({"n": ["class"], "m": ["class"]}, backend="reference").fit(table, y)
    assert by_structure.network_.variables == ("n", "m", "class")
    np.testing.assert_allclose(by_structure.predict_proba(table), model.predict_proba(table))
    assert JunctionTreeClassifier(backend="reference").fit([["u", 1], ["v", 2]], [0, 1]).predict([["u", 1]]) == [0]


def test_a_network_gives_arcs_and_states() -> None:
    net = jtgpu.read(ROOT / "nets" / "asia.net")
    assert isinstance(net, BayesianNetwork)
    rng = np.random.default_rng(1)
    rows = {v: rng.choice(["yes", "no"], 50) for v in net.variables}
    y = rows.pop("bronc")
    rows["asia"] = np.full(50, "no")  # the other state is not in the data, but remains a state
    model = JunctionTreeClassifier(net, target="bronc", backend="reference").fit(rows, y)
    assert model.network_.states("asia") == ("yes", "no")
    assert set(model.network_.parents("dysp")) == set(net.parents("dysp"))
    assert model.predict_proba({k: v[:3] for k, v in rows.items()}).shape == (3, 2)


def test_values_and_columns_that_are_not_in_the_training_data() -> None:
    X, y = data(50)
    strict = JunctionTreeClassifier(TREE, backend="reference").fit(X, y)
    strange = {"a": ["hi", "high"], "b": [0, 1], "noise": [0, 1]}
    with pytest.raises(errors.EvidenceError, match="row 1, column 'a': unknown value 'high'; did you"):
        strict.predict(strange)
    lenient = JunctionTreeClassifier(TREE, backend="reference", unknown="missing").fit(X, y)
    known = {"a": ["hi", None], "b": [0, 1], "noise": [0, 1]}
    np.testing.assert_array_equal(lenient.predict_proba(strange), strict.predict_proba(known))
    with pytest.raises(errors.EvidenceError, match="no column 'noise'"):
        strict.predict({"a": ["hi"], "b": [0], "nois": [0]})
    zero = JunctionTreeClassifier({"class": [], "a": ["class"], "b": ["a"], "noise": []}, pseudo_counts=0.0,
                                  backend="reference").fit(X, y)  # fmt: skip
    impossible = {"a": ["lo"], "b": [7], "noise": [0]}
    with pytest.raises(errors.EvidenceError, match="unknown value 7"):
        zero.predict(impossible)
    apart = {"a": np.array(["x", "y"]), "b": np.array([0, 1])}
    never = JunctionTreeClassifier(pseudo_counts=0.0, backend="reference").fit(apart, [0, 1])
    with pytest.raises(errors.ImpossibleEvidence, match="row 0 has probability 0; fit with a pseudo_counts"):
        never.predict({"a": ["x"], "b": [1]})
    np.testing.assert_array_equal(zero.predict_proba(X).sum(axis=1).round(12), 1.0)


@pytest.mark.parametrize(
    ("change", "X", "y", "says"),
    [
        ({"structure": {"class": [], "z": ["class"]}}, {"a": [1]}, [1], "the structure has 'z'"),
        ({"structure": {"class": []}}, {"a": [1]}, [1], "the column 'a'"),
        ({"structure": {"a": []}}, {"a": [1]}, [1], "does not have the class"),
        ({"structure": {"class": ["a"], "a": ["class"]}}, {"a": [1]}, [1], "cycle"),
        ({"target": "a"}, {"a": [1]}, [1], "the name of the class"),
        ({}, {"a": [1, 2]}, [1], "2 rows and y 1"),
        ({}, {"a": []}, [], "at least one"),
        ({}, {"a": [1], "b": [1, 2]}, [1], "equal lengths"),
        ({}, [1, 2], [1, 2], "a list of int"),
        ({}, np.array([1, 2]), [1, 2], r"shape \(2,\)"),
        ({"structure": {"a": ["class"]}}, [[1, 2]], [1], "2 columns, but the structure has 1"),
        ({}, {"a": [None]}, [1], "column 'a' has only missing values"),
        ({}, {"a": [1]}, [None], "missing value"),
        ({}, {"a": [1, 2]}, ["u", float("nan")], "missing value"),
        ({}, {"a": [1]}, [[1, 2]], "one class for each row"),
        ({}, {"a": [[1]]}, [1], "not a single value|has shape"),
        ({"states": {"a": [2]}}, {"a": [1]}, [1], "unknown value 1"),
        ({"pseudo_counts": -1}, {"a": [1]}, [1], "pseudo_counts"),
        ({"unknown": "guess"}, {"a": [1]}, [1], "'missing'"),
        ({"missing": "x"}, {"a": [1]}, [1], "'available' or 'em', not"),
        ({"structure": 5}, {"a": [1]}, [1], "structure must be a network, a mapping.*not the int 5"),
        ({"structure": "forest"}, {"a": [1]}, [1], "structure"),
        ({"structure": {"a": 5, "class": []}}, {"a": [1]}, [1], "parents of 'a'"),
        ({"structure": {"a": "class"}}, {"a": [1]}, [1], "parents of 'a'"),
        ({"pseudo_counts": "x"}, {"a": [1]}, [1], "pseudo_counts"),
        ({"pseudo_counts": np.inf}, {"a": [1]}, [1], "pseudo_counts"),
        ({"target": 5}, {"a": [1]}, [1], "target must be a string"),
        ({"states": 5}, {"a": [1]}, [1], "states must be a mapping"),
        ({"states": {"a": 5}}, {"a": [1]}, [1], r"states\['a'\] must be a list"),
        ({"backend": "x"}, {"a": [1]}, [1], "backend"),
        ({"order": 5}, {"a": [1]}, [1], "order"),
    ],
)
def test_invalid_training_data(change: dict[str, Any], X: Any, y: Any, says: str) -> None:
    with pytest.raises(errors.JtgpuError, match=says):
        JunctionTreeClassifier(**change).fit(X, y)


@pytest.mark.parametrize("weights", ["x", [1j], [0.0], [np.nan], [[1.0]], 5])
def test_wrong_weights(weights: Any) -> None:
    with pytest.raises(errors.DataError, match="sample_weight"):
        JunctionTreeClassifier().fit({"a": [1]}, [1], weights)


def test_arrays_of_another_width_or_rank() -> None:
    model = JunctionTreeClassifier(backend="reference").fit(np.array([[0, 1], [1, 0]]), [0, 1])
    for X, says in ((np.zeros((1, 4)), "X has 4 features"), (np.zeros(2), "Reshape"), (np.eye(2) * 1j, "Complex")):
        with pytest.raises(errors.DataError, match=says):
            model.predict(X)


# Both fit continuous data to some rows and predict others, whose values are unknown.
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "continuous data; rows of weight zero still name their values",
    "check_classifiers_one_label_sample_weights": "continuous data; values that no row of fit has are errors",
}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_checks_of_scikit_learn() -> None:
    checks: Any = pytest.importorskip("sklearn.utils.estimator_checks")
    model = JunctionTreeClassifier(backend="reference")
    found = checks.check_estimator(model, on_skip=None, expected_failed_checks=EXPECTED_FAILURES)
    assert {check["status"] for check in found} <= {"passed", "skipped", "xfail"}
    assert {check["check_name"] for check in found if check["status"] == "xfail"} == {*EXPECTED_FAILURES}


def test_a_cpt_that_would_be_too_large() -> None:
    X = {f"x{i}": np.arange(100) for i in range(5)}
    structure = {"class": [f"x{i}" for i in range(5)]}
    with pytest.raises(errors.TableTooLarge, match=r"20,000,000,000"):
        JunctionTreeClassifier(structure).fit(X, np.arange(100) % 2)
    with pytest.raises(errors.DataError, match="sample_weight"):
        JunctionTreeClassifier().fit({"a": [1]}, [1], sample_weight=[-1])


def test_parameters() -> None:
    model = JunctionTreeClassifier(TREE, pseudo_counts=2.0)
    assert model.get_params()["structure"] is TREE
    assert model.set_params(pseudo_counts=3.0, backend="cpu") is model
    assert model.pseudo_counts == 3.0
    with pytest.raises(ValueError, match="did you mean 'backend'"):
        model.set_params(backnd="cpu")
    assert repr(JunctionTreeClassifier(pseudo_counts=2.0)) == "JunctionTreeClassifier(pseudo_counts=2.0)"
    with pytest.raises(NotFitted, match="call fit first"):
        model.predict({"a": [1]})


def test_fitted_classifiers_can_be_pickled() -> None:
    X, y = data(50)
    net = BayesianNetwork({"class": ["bad", "good"], "a": ["hi", "lo"]}, {"a": ["class"]},
                          {"class": [0.5, 0.5], "a": [[0.5, 0.5]] * 2})  # fmt: skip
    model = JunctionTreeClassifier(net, backend="cpu").fit({"a": X["a"]}, y)
    model.predict({"a": ["hi"]})
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba({"a": X["a"]}), model.predict_proba({"a": X["a"]}))
    assert again.structure == net


def test_scikit_learn_accepts_it() -> None:
    sklearn = pytest.importorskip("sklearn")
    base: Any = importlib.import_module("sklearn.base")
    selection: Any = importlib.import_module("sklearn.model_selection")
    assert sklearn.__version__
    X, y = data()
    table = np.stack([X["b"], X["noise"]], axis=1)
    model = JunctionTreeClassifier(backend="reference")
    assert base.is_classifier(model)
    copy = base.clone(model.set_params(pseudo_counts=0.25))
    assert copy is not model
    assert copy.pseudo_counts == 0.25
    net = BayesianNetwork({"class": ["bad", "good"]}, {}, {"class": [0.5, 0.5]})
    assert base.clone(JunctionTreeClassifier(net)).structure is net
    assert selection.cross_val_score(model, table, y, cv=3).mean() > 0.9
    search = selection.GridSearchCV(model, {"pseudo_counts": [0.1, 1.0, 10.0]}, cv=3).fit(table, y)
    assert search.best_score_ > 0.9
    importlib.import_module("sklearn.utils.validation").check_is_fitted(search.best_estimator_)
    naive = pytest.importorskip("sklearn.naive_bayes").CategoricalNB(alpha=1.0, fit_prior=True).fit(table, y)
    # its class prior has no pseudo-counts
    odds = model.set_params(pseudo_counts=1.0).fit(table, y).predict_proba(table) / naive.predict_proba(table)
    np.testing.assert_allclose(odds[:, 0] / odds[:, 1], (odds[:, 0] / odds[:, 1])[0], rtol=1e-9)


def test_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = data(80)
    frame = pandas.DataFrame(X)
    frame.loc[3, "a"] = None
    frame["noise"] = frame["noise"].astype("Int64")
    frame.loc[5, "noise"] = pandas.NA
    model = JunctionTreeClassifier(TREE, backend="reference").fit(frame, pandas.Series(y))
    assert model.feature_names_in_.tolist() == ["a", "b", "noise"]
    shuffled = frame[["noise", "a", "b"]]
    np.testing.assert_array_equal(model.predict_proba(shuffled), model.predict_proba(frame))


@pytest.mark.parametrize("kind", ["lists", "rows", "pandas", "pandas categories", "Polars", "Arrow"])
def test_every_container_gives_the_same_classifier(kind: str) -> None:
    pandas, polars, arrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    pytest.importorskip("narwhals", reason="narwhals is not installed")
    X, y = data(100)
    columns: dict[str, list[Any]] = {k: [None if i % 7 == 3 else x for i, x in enumerate(v)] for k, v in X.items()}
    columns = {k: [x if x is None or isinstance(x, str) else int(x) for x in map(plain, v)] for k, v in columns.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    made = {
        "lists": columns, "rows": rows, "pandas": pandas.DataFrame(columns).convert_dtypes(),
        "pandas categories": pandas.DataFrame({k: pandas.Categorical(v) for k, v in columns.items()}),
        "Polars": polars.DataFrame(columns), "Arrow": arrow.table(columns),
    }[kind]  # fmt: skip
    expected = JunctionTreeClassifier(TREE, backend="reference").fit(columns, y)
    found = JunctionTreeClassifier(TREE, backend="reference").fit(made, y)
    for v in expected.network_.variables:
        assert found.network_.states(v) == expected.network_.states(v)
        np.testing.assert_array_equal(found.network_.cpt(v), expected.network_.cpt(v))
    np.testing.assert_array_equal(found.predict_proba(made), expected.predict_proba(rows))


def plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def test_em_uses_rows_with_missing_values() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    X = {f"x{i}": np.where(rng.random(400) < 0.8, y, 1 - y).astype(object) for i in range(3)}
    for column in X.values():
        column[rng.random(400) < 0.3] = None
    weights = rng.random(400)
    structure = {"x0": ["class"], "x1": ["class", "x0"], "x2": ["x1"], "class": []}
    counted = JunctionTreeClassifier(structure).fit(X, y, weights)
    model = JunctionTreeClassifier(structure, missing="em").fit(X, y, weights)
    direct = jtgpu.learn.fit(structure, {**X, "class": y}, weights=weights).network
    for v in direct:
        np.testing.assert_allclose(model.network_.cpt(v), direct.cpt(v), atol=1e-9)
    assert model.network_ != counted.network_
    assert model.predict(X).shape == (400,)
    assert model.tree_.log_likelihood({**X, "class": y}) @ weights > counted.tree_.log_likelihood(
        {**X, "class": y}
    ) @ weights
    with pytest.raises(ValueError, match="missing must be 'available' or 'em'"):
        JunctionTreeClassifier(missing="drop").fit(X, y)  # type: ignore[arg-type]


def test_a_column_of_measurements_is_reported() -> None:
    """Each of 300 numbers became a state without a word."""
    X, y = {"u": [1.1 * i for i in range(300)]}, ["yes", "no"] * 150
    with pytest.warns(UserWarning, match=r"column 'u' has 300 values, each of which is a state; .*Discretiser"):
        JunctionTreeClassifier(backend="reference").fit(X, y)


def topics(structure: Any, words: int, pseudo_counts: float = 1.0) -> JunctionTreeClassifier:
    """Two topics with words of their own, in 20 texts each."""
    texts = np.repeat([[1] * words + [0] * words, [0] * words + [1] * words], 20, axis=0)
    return JunctionTreeClassifier(structure, pseudo_counts=pseudo_counts, backend="cpu").fit(
        {f"w{i}": texts[:, i] for i in range(2 * words)}, np.repeat(["one", "two"], 20)
    )


@pytest.mark.parametrize(("words", "others"), [(320, 315), (250, 250), (1500, 1497)])
def test_rows_with_words_of_both_topics(words: int, others: int) -> None:
    model = topics("naive", words)
    row = {f"w{i}": [int(i < words + others)] for i in range(2 * words)}
    # of each topic: words that are there and expected, there and not, missing and expected, missing and not
    right, wrong = math.log(21 / 22), math.log(1 / 22)
    lacking = words - others
    logs = np.array([(words + lacking) * right + others * wrong, (words + lacking) * wrong + others * right])
    expected = logs - logs.max() - math.log(math.fsum(np.exp(logs - logs.max())))
    np.testing.assert_allclose(model.predict_log_proba(row), [expected], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(row), [np.exp(expected)], rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(model.tree_.posteriors_batch(row)["class"], [np.exp(expected)], rtol=1e-11, atol=1e-300)


def test_logarithms_of_classes_whose_probability_is_no_number() -> None:
    row = {f"w{i}": [int(i < 300)] for i in range(600)}
    assert topics("naive", 300).predict_log_proba(row)[0] == pytest.approx([0.0, -600 * math.log(21)], abs=1e-9)
    # no text of the other topic has w0, so w1 is a half there
    arcs = {"class": [], **{f"w{i}": ["class"] for i in range(600)}, "w1": ["class", "w0"]}
    logs = topics(arcs, 300).predict_log_proba(row)[0]
    assert logs == pytest.approx([0.0, math.log(0.5 / (21 / 22)) - 599 * math.log(21)], abs=1e-9)


@pytest.mark.parametrize("seed", some(6, 2))
def test_naive_products_are_the_trees_posteriors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, classes = 200, int(rng.integers(2, 6))
    X = rng.integers(0, 4, (n, 30)).astype(float)
    y = rng.integers(0, classes, n)
    model = JunctionTreeClassifier(backend="reference").fit(X, y, sample_weight=10.0 ** -rng.uniform(0, 250, n))
    X[rng.random(X.shape) < 0.4] = np.nan
    codes = np.column_stack([np.where(np.isnan(X), -1, X).astype(np.int32), np.full(n, -1, np.int32)])
    tree = model.tree_.posteriors_batch(codes[:40])
    np.testing.assert_allclose(model.predict_proba(X[:40]), tree["class"], rtol=1e-10, atol=1e-300)
