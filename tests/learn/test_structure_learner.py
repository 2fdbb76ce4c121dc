"""The estimator of structures: the posterior's graph and network, and what scikit-learn expects."""

from __future__ import annotations

import importlib
import inspect
import math
import pickle
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import DataError
from jtgpu.learn import StructureLearner
from jtgpu.util.estimator import NotFitted


def data(n: int = 200, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    b = np.where(rng.random(n) < 0.9, a, 1 - a)
    return {"a": a, "b": b, "c": rng.integers(0, 3, n)}


def test_fit() -> None:
    found = StructureLearner(constraints=jtgpu.learn.Constraints(forbidden=[("b", "a")]), ess=2.0).fit(data())
    post = jtgpu.learn.posterior(data(), constraints=jtgpu.learn.Constraints(forbidden=[("b", "a")]), ess=2.0)
    assert [*found.graph_.edges] == [("a", "b")]
    assert found.edge_probabilities_.values.tobytes() == post.edge_probabilities.values.tobytes()
    assert found.n_features_in_ == 3
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]
    net = found.network_
    assert net.parents("b") == ("a",)
    expected = [
        sum(math.log(jtgpu_cpt(net, v, row)) for v in net.variables) for row in zip(*data(50, 2).values(), strict=True)
    ]
    assert found.score_samples(data(50, 2)) == pytest.approx(expected)
    assert found.score(data(50, 2)) == pytest.approx(np.mean(expected))
    tree = net.compile("reference")
    assert expected[0] == pytest.approx(tree.posteriors({v: str(x[0]) for v, x in data(50, 2).items()}).log_evidence)


def jtgpu_cpt(net: jtgpu.BayesianNetwork, v: str, row: tuple[int, ...]) -> float:
    state = dict(zip("abc", row, strict=True))
    return float(np.asarray(net.cpt(v))[tuple(state[u] for u in (*net.parents(v), v))])


def test_threshold_weights_and_arrays() -> None:
    table = data()
    array = np.column_stack([*table.values()])
    found = StructureLearner(threshold=0.9).fit(array)
    assert not hasattr(found, "feature_names_in_")
    assert [*found.graph_.edges] == []  # either direction of x0 - x1 has a probability of 1/2
    assert found.network_.variables == ("x0", "x1", "x2")
    assert found.score(array) < 0.0
    twice = StructureLearner().fit(table, sample_weight=np.full(200, 2))
    doubled = StructureLearner().fit({v: np.concatenate([x, x]) for v, x in table.items()})
    assert twice.edge_probabilities_.values == pytest.approx(doubled.edge_probabilities_.values, abs=1e-12)


def test_parameters() -> None:
    learner = StructureLearner(ess=3.0, constraints=jtgpu.learn.Constraints(tiers=[["a"], ["b"]]))
    assert repr(learner) == "StructureLearner(ess=3.0, constraints=Constraints(tiers=[['a'], ['b']]))"
    assert learner.get_params()["ess"] == 3.0
    assert learner.get_params()["constraints__tiers"] == [["a"], ["b"]]
    assert "constraints__tiers" not in learner.get_params(deep=False)
    assert learner.set_params(ess=1.0).ess == 1.0
    learner.set_params(chains__steps=1000, constraints__within_tiers=False)
    assert learner.chains == jtgpu.learn.Chains(steps=1000)
    assert learner.constraints == jtgpu.learn.Constraints(tiers=[["a"], ["b"]], within_tiers=False)
    with pytest.raises(ValueError, match="no argument 'step'"):
        learner.set_params(chains__step=1)
    with pytest.raises(ValueError, match="no parameter 'es'"):
        learner.set_params(es=1.0)
    with pytest.raises(NotFitted):
        learner.score(data())
    with pytest.raises(DataError):
        learner.fit({"a": [0.5, 1.5], "b": [1, 2]})
    with pytest.raises(ValueError, match="ess"):
        StructureLearner(ess=-1.0).fit(data())


def test_pickle() -> None:
    found = StructureLearner().fit(data())
    again = pickle.loads(pickle.dumps(found))
    assert again.score(data()) == found.score(data())
    assert [*again.graph_.edges] == [*found.graph_.edges]
    assert not hasattr(again, "posterior_")


@pytest.mark.slow
def test_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    base: Any = importlib.import_module("sklearn.base")
    selection: Any = importlib.import_module("sklearn.model_selection")
    validation: Any = importlib.import_module("sklearn.utils.validation")
    pandas = pytest.importorskip("pandas")
    learner = StructureLearner(states={"a": [0, 1], "b": [0, 1], "c": [0, 1, 2]})
    cloned = base.clone(learner)
    assert cloned is not learner
    assert cloned.get_params() == learner.get_params()
    with pytest.raises(importlib.import_module("sklearn.exceptions").NotFittedError):
        validation.check_is_fitted(learner)
    frame = pandas.DataFrame(data())
    search = selection.GridSearchCV(learner, {"ess": [1.0, 100.0]}, cv=3).fit(frame)
    validation.check_is_fitted(search.best_estimator_)
    assert search.best_params_["ess"] in (1.0, 100.0)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert selection.cross_val_score(learner, frame, cv=3).shape == (3,)


EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "the check fits continuous data; columns must be discrete",
    "check_estimators_nan_inf": "the check fits continuous data, of which the first cell is reported; NaN is missing",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_checks_of_scikit_learn() -> None:
    checks: Any = pytest.importorskip("sklearn.utils.estimator_checks")
    found = checks.check_estimator(StructureLearner(), on_skip=None, expected_failed_checks=EXPECTED_FAILURES)
    assert {check["status"] for check in found} <= {"passed", "skipped", "xfail"}
    assert {check["check_name"] for check in found if check["status"] == "xfail"} == {*EXPECTED_FAILURES}


def test_arrays_that_are_no_cases() -> None:
    for array, message in (
        (np.ones((1, 3)), "1 sample"), (np.ones((5, 1)), "1 feature"), (np.ones((5, 2), complex), "Complex"),
        (np.array([[1.0, 2.0], [np.inf, 1.0]]), "inf"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=message):
            StructureLearner().fit(array)
    found = StructureLearner().fit(np.array([[0, 1], [1, 0], [1, 1]]))
    with pytest.raises(DataError, match="X has 3 features"):
        found.score(np.zeros((2, 3), int))


def test_parameters_are_those_of_the_posterior() -> None:
    known = {*inspect.signature(jtgpu.learn.posterior).parameters} - {"data", "score", "weights", "interventions"}
    assert known | {"family_score", "threshold"} == {*StructureLearner().get_params()}


def test_constant_columns_are_left_out() -> None:
    rng = np.random.default_rng(0)
    X = np.stack([rng.integers(0, 2, 50), np.zeros(50, int), rng.integers(0, 3, 50)], 1)
    with pytest.raises(DataError, match="'x1' has only one value"):
        StructureLearner().fit(X)
    with pytest.warns(UserWarning, match="left out, as they have only one value or none: 'x1'"):
        learner = StructureLearner(read=jtgpu.ReadOptions(constant="drop")).fit(X)
    assert learner.network_.variables == ("x0", "x2")
    assert learner.n_features_in_ == 3
    assert np.isfinite(learner.score(X))
