"""Results as data frames: every class of result, every library, and the index of the cases."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.base import TableAnswer
from jtgpu.inference.results import frames
from tests.conftest import ROOT

pd = pytest.importorskip("pandas", reason="pandas is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("narwhals", reason="narwhals is not installed")
pl = pytest.importorskip("polars", reason="Polars is not installed")

E = {"xray": "yes"}
CASES = {"xray": ["yes", None, "no"], "either": ["no", "yes", None], "tub": ["yes", None, None]}


@pytest.fixture(scope="module")
def tree() -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = jtgpu.read(ROOT / "nets" / "asia.net").compile(backend="reference")
    return made


def test_posteriors_have_a_row_for_each_state(tree: jtgpu.JunctionTree) -> None:
    post = tree.posteriors(E, targets=["lung", "bronc"])
    frame = post.to_frame()
    assert frame.columns.tolist() == ["variable", "state", "probability"]
    assert frame["variable"].tolist() == ["lung", "lung", "bronc", "bronc"]
    assert frame["state"].tolist() == ["yes", "no"] * 2
    assert frame["probability"].tolist() == [*post["lung"].values(), *post["bronc"].values()]
    assert post["lung"].to_frame()["probability"].tolist() == [*post["lung"].values()]
    assert tree.posteriors(E, targets=()).to_frame().shape == (0, 3)


def test_tables_have_a_row_for_each_configuration(tree: jtgpu.JunctionTree) -> None:
    joint = tree.joint(["lung", "bronc"], E)
    frame = joint.to_frame()
    assert frame.columns.tolist() == ["lung", "bronc", "probability"]
    for lung, bronc, p in frame.itertuples(index=False):
        assert p == joint[lung, bronc]
    table = tree.conditional("lung", ["either", "tub"])
    frame = table.to_frame()
    assert frame.columns.tolist() == ["either", "tub", "lung", "probability"]
    impossible = (frame["either"] == "no") & (frame["tub"] == "yes")
    assert frame["probability"].isna().tolist() == impossible.tolist()
    assert table.to_frame("pyarrow")["probability"].null_count == 2


def test_cases_have_a_row_each_with_their_index(tree: jtgpu.JunctionTree) -> None:
    cases = pd.DataFrame({**CASES, "id": [7, 8, 9]}, index=["ann", "bob", "eve"])
    found = tree.posteriors_batch(cases, targets=["lung"], on_error="flag")
    frame = found.to_frame()
    assert frame.index.tolist() == ["ann", "bob", "eve"]
    assert frame.columns.tolist() == ["lung=yes", "lung=no", "log_evidence"]
    assert frame["lung=yes"].isna().tolist() == [True, False, False]
    assert frame["lung=yes"].iloc[1] == found["lung"][1, 0]
    best = tree.mpe_batch(cases, on_error="flag").to_frame()
    assert best.index.tolist() == ["ann", "bob", "eve"]
    assert best["xray"].tolist()[2] == "no"
    assert best.iloc[0, :-1].isna().all()
    assert best.columns[-1] == "log_joint"
    again = pickle.loads(pickle.dumps(found))
    assert again.to_frame().equals(frame)


def test_expected_counts_have_a_row_for_each_entry_of_a_cpt(tree: jtgpu.JunctionTree) -> None:
    found = tree.expected_counts(CASES, on_error="flag")
    frame = found.to_frame()
    assert frame.columns.tolist() == ["variable", "given", "state", "count"]
    assert frame["count"].tolist() == [x for v in found for x in found[v].ravel()]
    entries = frame[frame["variable"] == "either"].set_index(["given", "state"])["count"]
    assert entries["lung = no, tub = yes", "yes"] == found["either"][1, 0, 0]
    assert frame[frame["variable"] == "smoke"][["given", "state"]].to_numpy().tolist() == [["", "yes"], ["", "no"]]
    assert found.to_frame("polars").to_dict(as_series=False) == frame.to_dict("list")
    assert tree.expected_counts(CASES, variables=(), on_error="flag").to_frame("pyarrow").shape == (0, 4)
    again = pickle.loads(pickle.dumps(found))
    assert again.to_frame().equals(frame)
    assert str(again) == str(found)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_frames_are_of_the_library_of_the_cases(tree: jtgpu.JunctionTree, kind: str) -> None:
    make = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
    cases = make[kind](CASES)
    found = tree.impute(cases, seed=1, on_error="flag")
    assert type(found.to_frame()) is type(cases)
    assert type(tree.posteriors_batch(cases, on_error="flag").to_frame()) is type(cases)
    for other, plain in make.items():
        frame = tree.sample(3, E, seed=1).to_frame(other)
        assert type(frame) is type(plain(CASES))
        assert (frame["xray"].to_pylist() if other == "pyarrow" else [*frame["xray"]]) == ["yes"] * 3


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_imputed_cases_keep_their_other_columns(tree: jtgpu.JunctionTree, backend: Any) -> None:
    when = pd.date_range("2026-01-01", periods=2, tz="Europe/Vienna")
    cases = pd.DataFrame({"when": when, "xray": ["yes", None], "id": pd.Categorical(["p", "q"])}, index=[5, 3])
    found = tree.impute(cases, seed=1)
    frame = found.to_frame(backend)
    names = frame.schema.names if backend == "pyarrow" else list(frame.columns)
    assert names == ["when", "xray", "id", *(v for v in tree.model.variables if v != "xray")]
    if backend == "pandas":
        assert frame.index.tolist() == [5, 3]
        assert frame["when"].dtype == cases["when"].dtype
        assert frame["xray"].tolist() == found["xray"].tolist()
    plain = tree.impute([{"xray": "yes", "id": 1}, {"id": 2}], seed=1).to_frame(backend)
    assert len(plain) == 2


def test_rankings_and_scores(tree: jtgpu.JunctionTree) -> None:
    ranking = tree.value_of_information("lung", evidence=E)
    assert ranking.to_frame()["gain"].tolist() == [o.gain for o in ranking]
    assert ranking.to_frame("polars")["variable"].to_list() == [o.variable for o in ranking]
    scores = tree.mutual_information("lung", evidence=E)
    assert scores.to_frame()["mutual_information"].tolist() == list(scores.values())
    importance = tree.evidence_importance("lung", {"xray": "yes", "dysp": ["yes", "no"]})
    assert set(importance.to_frame()["states"]) == {"yes", "yes or no"}
    for result in (ranking, scores, importance):
        again = pickle.loads(pickle.dumps(result))
        assert type(again) is type(result)
        assert str(again) == str(result)
    sensitivity = tree.sensitivity(("lung", "yes"), E)
    frame = sensitivity.to_frame()
    assert len(frame) > 3
    assert (frame["derivative"] != 0).all()
    assert frame["parameter"].iloc[0] == str(sensitivity.top(1)[0])
    best = tree.mpe(E, k=3)
    assert best.to_frame()["log_joint"].tolist() == [one.log_joint for one in best.ranked]
    assert best.to_frame().iloc[0, :-1].to_dict() == dict(best)


def test_a_variable_may_have_the_name_of_a_column() -> None:
    net = jtgpu.BayesianNetwork({"probability": ["a", "b"], "log_joint": ["c"]}, {}, {
        "probability": [0.25, 0.75], "log_joint": [1.0],
    })  # fmt: skip
    tree = net.compile("reference")
    assert tree.joint(["probability"]).to_frame().columns.tolist() == ["probability", "probability_"]
    assert tree.mpe().to_frame().columns.tolist() == ["probability", "log_joint", "log_joint_"]


def test_libraries_that_are_not_there(tree: jtgpu.JunctionTree, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(jtgpu.JtgpuError, match="'panda'"):
        tree.posterior("lung").to_frame("panda")
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(jtgpu.JtgpuError, match="pip install pandas"):
        frames.make_frame({"a": np.zeros(1)})


def test_large_results_are_not_copied_cell_by_cell(tree: jtgpu.JunctionTree) -> None:
    n = 1_000_000
    result = TableAnswer(np.full((n, 2), 0.5), np.zeros(n), np.arange(n) % 2 == 0)
    found = jtgpu.CasePosteriors(tree.model, result, [3])
    frame = found.to_frame()
    assert frame["lung=yes"].isna().sum() == n // 2
    assert found.to_frame("pyarrow")["lung=no"].null_count == n // 2
    assert len(str(found).splitlines()) == 14
