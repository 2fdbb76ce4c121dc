"""Frames through a backend that computes columns: the same answers as case by case, for every option."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.base import Backend, Capabilities
from jtgpu.backends.table import ColumnCases, Table
from jtgpu.cases.answer_table import highest
from jtgpu.cases.query import resolve_query
from jtgpu.cases.solver import CaseAnswers, CaseSolver
from jtgpu.columns import coded as table_columns
from jtgpu.columns import column
from jtgpu.model.network import BayesianNetwork
from jtgpu.options.tables import TableOptions
from tests.conftest import ROOT

pd = pytest.importorskip("pandas", reason="pandas is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("narwhals", reason="narwhals is not installed")

N = 700


class Columns:
    """A backend that turns columns into rows and back."""

    def __init__(self, backend: Backend, n_variables: int):
        self._backend, self._n, self.calls = backend, n_variables, 0
        self.capabilities = Capabilities(native_columns=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def run(self, table: Table[Any]) -> Any:
        if isinstance(table.feed, ColumnCases):
            self.calls += 1
            assert table.feed.codes.dtype == np.int8
        return self._backend.run(table)


@pytest.fixture(scope="module")
def asia() -> BayesianNetwork:
    net = jtgpu.read(ROOT / "nets" / "asia.net")
    assert isinstance(net, BayesianNetwork)
    return net


@pytest.fixture
def trees(asia: BayesianNetwork, monkeypatch: pytest.MonkeyPatch) -> tuple[jtgpu.JunctionTree, jtgpu.JunctionTree]:
    """A plain tree, and one whose backend has columns."""
    monkeypatch.setattr(table_columns, "PIECE", 128)  # so that several threads encode a column
    plain, wrapped = asia.compile(backend="cpu"), asia.compile(backend="cpu")
    assert wrapped._backend is not None
    columns: Any = Columns(wrapped._backend, len(asia))
    wrapped._backend = columns
    return plain, wrapped


def frames(asia: BayesianNetwork) -> dict[str, Any]:
    random = np.random.default_rng(5)
    columns = {
        v: np.array([*asia.states(v), None], object)[random.choice(3, N, p=[0.4, 0.4, 0.2])]
        for v in ("asia", "smoke", "xray", "dysp")
    }
    pandas = pd.DataFrame(columns, index=pd.Index([*range(7, 6 + N), 5], name="case"))
    pandas["weight"] = random.random(N)
    table = pa.table({**columns, "weight": pandas["weight"].to_numpy()})
    made = {
        "pandas": pandas,
        "pandas categories": pandas.astype(dict.fromkeys(columns, "category")),
        "arrow": table,
        "arrow dictionary": table.set_column(0, "asia", table["asia"].combine_chunks().dictionary_encode()),
        "arrow chunks": pa.concat_tables([table[:300], table[300:]]),
        "no rows": pandas[:0],
    }
    try:
        import polars
    except ImportError:
        return made
    frame: Any = polars.from_arrow(table)
    categories = frame.with_columns(polars.col("smoke").cast(polars.Categorical))
    return made | {"polars": frame, "polars categories": categories}


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"targets": ["lung", "bronc"], "log_evidence": True, "conflict": True},
        {"targets": ["lung"], "on_error": "flag", "keep": ["weight"]},
        {"targets": ["tub", "either"], "mpe": True, "log_evidence": True},
        {"targets": ["lung"], "do": {"smoke": "yes"}, "evidence_columns": ["xray", "dysp"]},
    ],
    ids=["all", "more columns", "flag", "mpe", "do"],
)
def test_the_same_answers(
    asia: BayesianNetwork, trees: tuple[jtgpu.JunctionTree, jtgpu.JunctionTree], question: dict[str, Any]
) -> None:
    plain, wrapped = trees
    for kind, frame in frames(asia).items():
        expected, found = plain.predict_proba(frame, **question), wrapped.predict_proba(frame, **question)
        assert type(found) is type(expected), kind
        if kind.startswith("pandas") or kind == "no rows":
            pd.testing.assert_frame_equal(found, expected, rtol=1e-12, atol=1e-12)
            continue
        left, right = pa.table(found), pa.table(expected)
        assert left.schema.names == right.schema.names, kind
        for name in left.schema.names:
            if pa.types.is_floating(left[name].type):
                np.testing.assert_allclose(left[name].to_numpy(), right[name].to_numpy(), rtol=0, atol=1e-12)
            else:
                assert left[name].to_pylist() == right[name].to_pylist()
    backend: Any = wrapped._backend
    assert bool(backend.calls) == ("mpe" not in question and "do" not in question)


def test_labels(asia: BayesianNetwork, trees: tuple[jtgpu.JunctionTree, jtgpu.JunctionTree]) -> None:
    plain, wrapped = trees
    frame = frames(asia)["pandas"]
    pd.testing.assert_frame_equal(wrapped.predict(frame, ["lung", "bronc"]), plain.predict(frame, ["lung", "bronc"]))


def test_rows_that_cannot_be_answered(
    asia: BayesianNetwork, trees: tuple[jtgpu.JunctionTree, jtgpu.JunctionTree]
) -> None:
    plain, wrapped = trees
    frame = frames(asia)["pandas"].astype(object)
    frame.loc[300, "xray"] = "perhaps"
    frame["either"] = None
    frame.loc[[20, 500], ["either", "lung"]] = ["no", "yes"]
    for tree in trees:
        with pytest.raises(jtgpu.JtgpuError, match=r"300.*perhaps"):
            tree.predict_proba(frame, ["bronc"])
        with pytest.raises(jtgpu.ImpossibleEvidence, match="20"):
            tree.predict_proba(frame.drop(index=300), ["bronc"])
    found, expected = (t.predict_proba(frame, ["bronc"], on_error="flag") for t in (wrapped, plain))
    pd.testing.assert_frame_equal(found, expected, rtol=1e-12, atol=1e-12)
    assert found["error"].notna().sum() == 3


def test_equal_cases_are_answered_once(
    asia: BayesianNetwork, trees: tuple[jtgpu.JunctionTree, jtgpu.JunctionTree]
) -> None:
    plain, wrapped = trees
    codes = np.random.default_rng(1).integers(-1, 2, (2, N)).astype(np.int8)
    query, _ = resolve_query(asia, ["smoke", "xray"], TableOptions(targets=["lung"]))
    whole = CaseSolver(wrapped, query).solve(codes)  # a backend that takes columns merges equal cases itself
    assert whole.posterior.shape == (N, 2)
    answers = CaseSolver(plain, query).solve(codes)
    assert answers.posterior.shape == (9, 2)
    np.testing.assert_allclose(answers.expand(answers.posterior.T).T, whole.posterior, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64"])
def test_nulls_of_signed_numbers(kind: str) -> None:
    random = np.random.default_rng(8)
    values = random.integers(0, 100, 1000).astype(kind)
    for gone in (random.random(1000) < 0.3, np.zeros(1000, bool), np.ones(1000, bool)):
        array, expected = pa.array(values, mask=gone), np.where(gone, -1, values)
        for first, last in ((0, 1000), (3, 999), (8, 16), (17, 18), (500, 500)):
            found = column._signed(array[first:last])
            np.testing.assert_array_equal(found, expected[first:last])
            assert found.dtype == kind


def testhighest() -> None:
    values = np.random.default_rng(3).integers(0, 3, (4, 500)).astype(float)  # ties
    np.testing.assert_array_equal(highest(values), values.argmax(axis=0))
    assert CaseAnswers(values.T, values[0], values[0] > 0).posterior.shape == (500, 4)
