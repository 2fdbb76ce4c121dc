"""`KNNWeight` with scikit-learn's interface."""

from __future__ import annotations

import numpy as np
import pytest

from jtgpu import DataError, screen
from jtgpu.screen import KNNWeight


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Estimator KNNWeight does not inherit")
def test_checks_of_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    from sklearn.utils.estimator_checks import check_estimator  # type: ignore[import-untyped,unused-ignore]

    found = check_estimator(KNNWeight(), on_skip=None)
    assert {check["status"] for check in found} <= {"passed", "skipped"}


def test_labels_scores_and_threshold_agree() -> None:
    x = np.random.default_rng(1).standard_normal((300, 3))
    model = KNNWeight(k=5, contamination=0.02).fit(x)
    wanted = screen.top_outliers(x, 6, 5)
    assert np.flatnonzero(model.labels_ < 0).tolist() == sorted(wanted.index.tolist())
    assert model.predict(x).tolist() == model.labels_.tolist() == KNNWeight(k=5, n_outliers=6).fit_predict(x).tolist()
    np.testing.assert_array_equal(model.decision_scores_, screen.weights(x, 5))
    np.testing.assert_array_equal(model.score_samples(x), -model.decision_scores_)
    assert (model.decision_function(x) < 0).sum() == 6
    assert KNNWeight(k=500).fit(x).k_ == 300
    assert repr(model) == "KNNWeight(k=5, contamination=0.02)"


def test_tables_with_states() -> None:
    table = {"a": ["u", "u", "v", "w"] * 5, "x": np.arange(20.0)}
    model = KNNWeight(k=3, metric="auto", n_outliers=1).fit(table)
    assert model.feature_names_in_.tolist() == ["a", "x"]
    assert model.predict({"a": ["new", "u"], "x": [1e6, 3.0]}).tolist() == [-1, 1]


def test_errors() -> None:
    with pytest.raises(DataError, match="at least 2 rows"):
        KNNWeight().fit(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="contamination must be at most"):
        KNNWeight(contamination=0.7).fit(np.zeros((5, 2)))
    with pytest.raises(ValueError, match="not fitted"):
        KNNWeight().predict(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="'contamination'"):
        KNNWeight().set_params(contaminatoin=0.1)
    with pytest.raises(DataError, match="X has 3 features"):
        KNNWeight(k=2).fit(np.zeros((5, 2))).predict(np.zeros((1, 3)))
