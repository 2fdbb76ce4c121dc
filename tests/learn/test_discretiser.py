"""`jtgpu.learn.Discretiser`: scikit-learn's interface, dates, ordinal scales, and the way back to numbers."""

from __future__ import annotations

import datetime
import importlib
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, DataError, UnknownState
from jtgpu.learn import Discretiser, discretise


def table(n: int = 200, seed: int = 3) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.normal(50, 10, n)
    return pd.DataFrame({"x": x, "z": rng.random(n), "k": np.where(x > 55, "high", "low")})


def test_it_is_a_transformer_without_scikit_learn() -> None:
    frame = table()
    model = Discretiser(bins=4)
    made = model.fit_transform(frame)
    assert made.equals(discretise(frame, bins=4).transform(frame))
    assert made["k"].equals(frame["k"])
    assert [*model.get_feature_names_out()] == ["x", "z", "k"]
    assert model.ends["x"] == (frame["x"].min(), frame["x"].max())
    assert model.set_params(bins=2, how="width").get_params() == {
        "how": "width", "bins": 2, "target": None, "columns": None, "encode": "names",
    }  # fmt: skip
    assert repr(model) == "Discretiser(how='width', bins=2)"
    again = pickle.loads(pickle.dumps(model))
    assert again.transform(frame).equals(made)
    with pytest.raises(jtgpu.JtgpuError, match="not fitted yet"):
        Discretiser().transform(frame)
    with pytest.raises(jtgpu.JtgpuError, match="not fitted yet"):
        _ = Discretiser().states


def test_numbers_of_intervals_for_other_estimators() -> None:
    x = np.array([[1.0, 5.0], [2.0, np.nan], [3.0, 7.0], [4.0, 8.0]])
    model = Discretiser(bins=2, encode="numbers").fit(x)
    made = model.transform(x)
    assert made.dtype == np.float64
    assert made[:, 0].tolist() == [0, 0, 1, 1]
    assert np.isnan(made[1, 1])
    assert [*model.get_feature_names_out()] == ["x0", "x1"]
    names = Discretiser(bins=2).fit_transform(x)
    assert names.dtype == object
    assert names[1].tolist() == ["(-inf, 2.5)", None]
    with pytest.raises(DataError, match="X has 3 features, but Discretiser is expecting 2"):
        model.transform(np.zeros((1, 3)))
    with pytest.raises(ArgumentError, match="input_features"):
        model.get_feature_names_out(["a"])


def test_pipelines_fit_the_intervals_in_each_fold() -> None:
    pipeline: Any = pytest.importorskip("sklearn.pipeline")
    selection: Any = importlib.import_module("sklearn.model_selection")
    base: Any = importlib.import_module("sklearn.base")
    frame = table(300)
    X, y = frame[["x", "z"]], frame["k"].to_numpy()
    chain = pipeline.make_pipeline(Discretiser("mdl"), jtgpu.JunctionTreeClassifier(backend="reference"))
    scores = selection.cross_val_score(chain, X, y, cv=3)
    by_hand = []
    for train, test in selection.StratifiedKFold(3).split(X, y):
        cut = Discretiser("mdl").fit(X.iloc[train], y[train])
        model = jtgpu.JunctionTreeClassifier(backend="reference").fit(cut.transform(X.iloc[train]), y[train])
        by_hand.append(model.score(cut.transform(X.iloc[test]), y[test]))
    assert scores.tolist() == by_hand
    assert min(by_hand) > 0.9
    search = selection.GridSearchCV(
        pipeline.Pipeline([("cut", Discretiser()), ("model", jtgpu.JunctionTreeClassifier(backend="reference"))]),
        {"cut__bins": [2, 8]}, cv=3,
    )  # fmt: skip
    assert search.fit(X, y).best_params_ == {"cut__bins": 8}
    assert base.clone(Discretiser(bins=3)).bins == 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("encode", ["numbers", "names"])
def test_checks_of_scikit_learn(encode: Any) -> None:
    checks: Any = pytest.importorskip("sklearn.utils.estimator_checks")
    # the check subtracts the two results
    expected = {"check_fit_idempotent": "names of intervals have no difference"} if encode == "names" else {}
    done = checks.check_estimator(Discretiser(encode=encode), on_skip=None, expected_failed_checks=expected)
    assert {check["status"] for check in done} <= {"passed", "skipped", "xfail"}


@pytest.mark.parametrize("kind", ["pandas", "date", "numpy", "polars", "mapping"])
def test_dates(kind: str) -> None:
    days = pd.date_range("2024-01-01", periods=4)
    if kind == "polars":
        cases: Any = pytest.importorskip("polars").DataFrame({"visit": [d.date() for d in days]})
    else:
        cells = {
            "pandas": days, "date": days.date, "numpy": days.to_numpy("datetime64[ns]"), "mapping": [*days.date],
        }[kind]  # fmt: skip
        cases = {"visit": cells} if kind in ("mapping", "numpy") else pd.DataFrame({"visit": cells})
    found = discretise(cases, bins=2)
    assert found.states["visit"] == ("(-inf, 2024-01-03)", "[2024-01-03, inf)")
    assert found.edges["visit"].tolist() == [datetime.datetime(2024, 1, 3)]
    assert found.ends["visit"] == (datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 4))
    labels = [*found.transform(cases)["visit"]]
    assert labels == [found.states["visit"][i] for i in (0, 0, 1, 1)]
    assert found.evidence({"visit": datetime.date(2023, 5, 1)}) == {"visit": "(-inf, 2024-01-03)"}
    back = np.asarray(found.inverse_transform({"visit": labels[1:3]})["visit"], "datetime64[s]")
    assert back.tolist() == [datetime.datetime(2024, 1, 2), datetime.datetime(2024, 1, 3, 12)]


def test_dates_with_times_gaps_and_given_edges() -> None:
    moments = pd.to_datetime(["2024-01-01 06:00", None, "2024-01-01 18:00", "2024-01-02 06:00"])
    frame = pd.DataFrame({"t": moments})
    found = discretise(frame, bins=2, columns=["t"])
    assert found.states["t"] == ("(-inf, 2024-01-01T18:00:00)", "[2024-01-01T18:00:00, inf)")
    assert found.transform(frame)["t"].isna().tolist() == [False, True, False, False]
    given = discretise(frame, "edges", {"t": ["2024-01-02"]})
    assert given.states["t"] == ("(-inf, 2024-01-02)", "[2024-01-02, inf)")


def test_dates_that_cannot_be_cut() -> None:
    texts = {"visit": ["2024-01-01", "2024-01-02"]}
    with pytest.raises(DataError, match=r"column 'visit': '2024-01-01' is text; make dates of the column first"):
        discretise(texts, columns=["visit"])
    with pytest.raises(DataError, match="has a time zone; convert the column to UTC"):
        discretise(pd.DataFrame({"visit": pd.date_range("2024-01-01", periods=9, tz="Asia/Tokyo")}))
    found = discretise({"visit": [1.0, 2.0, 3.0]}, bins=2)
    with pytest.raises(DataError, match="is a date; the column had numbers"):
        found.transform({"visit": [datetime.date(2024, 1, 1)]})


def test_ordinal_scales_join_neighbours() -> None:
    order = ["none", "mild", "moderate", "severe", "worst"]
    cells = pd.Categorical(["none"] * 3 + ["mild"] * 3 + ["severe"] * 2 + ["worst", None], order, ordered=True)
    frame = pd.DataFrame({"pain": cells, "x": range(10)})
    assert [*discretise(frame, bins=2).states] == ["x"]  # only where the column is named
    found = discretise(frame, bins=3, columns=["pain"])
    assert found.states["pain"] == ("none", "mild", "moderate to worst")
    made = found.transform(frame)["pain"]
    assert made.tolist()[:4] == [*["none"] * 3, "mild"]
    assert made.tolist()[6:9] == ["moderate to worst"] * 3
    assert found.evidence({"pain": "severe"}) == {"pain": "moderate to worst"}
    assert discretise(frame, bins=9, columns=["pain"]).states["pain"] == tuple(order)
    given = discretise(frame, "edges", {"pain": ["moderate", "worst"]})
    assert given.states["pain"] == ("none to mild", "moderate to severe", "worst")
    with pytest.raises(DataError, match="'awful' is none of the categories"):
        found.transform({"pain": ["awful"]})


def test_numbers_inside_the_intervals() -> None:
    frame = table(500)
    found = discretise(frame[["x"]], bins=5)
    made = found.transform(frame)
    least, greatest = found.ends["x"]
    middle = found.inverse_transform(made)["x"]
    drawn = found.inverse_transform(made, seed=1)["x"]
    assert (drawn >= least).all()
    assert (drawn <= greatest).all()
    assert found.transform({"x": drawn})["x"] == made["x"].tolist()  # each draw is in its interval
    assert drawn.equals(found.inverse_transform(made, seed=1)["x"])
    assert middle.nunique() == 5
    assert abs(drawn.mean() - frame["x"].mean()) < 1.5
    with pytest.raises(UnknownState, match="row 0, column 'x': 'tall' is none of its intervals"):
        found.inverse_transform({"x": ["tall"]})
    outside = discretise({"x": [1.0, 2.0]}, "edges", {"x": [5.0, 6.0]})  # the two upper intervals are empty
    assert outside.inverse_transform({"x": [*outside.states["x"]]})["x"].tolist() == [3.0, 5.5, 6.0]


def test_networks_keep_where_their_intervals_end(tmp_path: Any) -> None:
    frame = table(400)
    found = discretise(frame, bins=5)  # also of "x", which is not in the structure
    by_states = jtgpu.learn.fit({"z": ["k"]}, frame, states=found, pseudo_counts=0).network
    by_names = jtgpu.learn.fit({"z": ["k"]}, found.transform(frame), states=found, pseudo_counts=0).network
    by_bins = jtgpu.learn.fit({"z": ["k"]}, frame, bins=5, pseudo_counts=0).network
    frame.to_csv(tmp_path / "cases.csv", index=False)
    by_file = jtgpu.learn.fit({"z": ["k"]}, tmp_path / "cases.csv", bins=5, pseudo_counts=0).network
    jtgpu.write(by_bins, tmp_path / "x.net")
    for net in (by_states, by_names, by_bins, by_file, jtgpu.read(tmp_path / "x.net")):
        tree = net.compile("reference")
        for post in (tree.posterior("z"), tree.posteriors()["z"]):
            assert abs(post.mean - frame["z"].mean()) < 0.02
            assert abs(post.sd - frame["z"].std()) < 0.02
            assert frame["z"].min() <= post.quantiles([0.001])[0] <= post.quantiles([0.999])[0] <= frame["z"].max()
        assert tree.posterior("z", {"k": "high"}).mean != post.mean
    bare = jtgpu.learn.fit({"z": ["k"]}, frame, states={"z": found.states["z"]}).network.compile("reference")
    with pytest.raises(ArgumentError, match="has no bound"):
        _ = bare.posterior("z").mean
