"""The same table in every container: the same states, answers and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.columns import read_states
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT
from tests.support.examples import examples

pd = pytest.importorskip("pandas", reason="pandas is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pl = pytest.importorskip("polars", reason="Polars is not installed")
pytest.importorskip("narwhals", reason="narwhals is not installed")

Columns = dict[str, list[Any]]

STATES = {"n": ["1", "2", "3"], "w": ["low", "mid", "high"], "b": ["0", "1"], "t": ["false", "true"]}
CELLS: dict[str, list[Any]] = {  # of one type each, since Arrow and Polars have no mixed columns
    "names": [None],
    "numbers": [None],
}


def net() -> BayesianNetwork:
    return BayesianNetwork(STATES, {}, {v: np.full(len(s), 1 / len(s)) for v, s in STATES.items()})


@pytest.fixture(scope="module")
def model() -> BayesianNetwork:
    return net()


@pytest.fixture(scope="module")
def asia() -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = jtgpu.read(ROOT / "nets" / "asia.net").compile(backend="reference")
    return made


class Stream:
    """A table of a library that exports Arrow's streams, such as a relation of DuckDB."""

    def __init__(self, columns: Columns):
        self._table = pa.table(columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


CONTAINERS: dict[str, Callable[[Columns], Any]] = {
    "lists": lambda c: c,
    "tuples": lambda c: {k: tuple(v) for k, v in c.items()},
    "object arrays": lambda c: {k: np.array(v, object) for k, v in c.items()},
    "series of pandas": lambda c: {k: pd.Series(v, dtype=object) for k, v in c.items()},
    "series of Polars": lambda c: {k: pl.Series(v) for k, v in c.items()},
    "arrays of Arrow": lambda c: {k: pa.array(v) for k, v in c.items()},
    "rows": lambda c: [dict(zip(c, row, strict=True)) for row in zip(*c.values(), strict=True)],
    "rows without empty cells": lambda c: [
        {k: x for k, x in zip(c, row, strict=True) if x is not None or i == 0}  # some row has each column
        for i, row in enumerate(zip(*c.values(), strict=True))
    ],
    "pandas": lambda c: pd.DataFrame(c),
    "pandas with an index": lambda c: pd.DataFrame(c, index=[f"r{i}" for i in range(len(c["w"]))]),
    "pandas objects": lambda c: pd.DataFrame({k: pd.Series(v, dtype=object) for k, v in c.items()}),
    "Polars": lambda c: pl.DataFrame(c),
    "Arrow": lambda c: pa.table(c),
    "streams": Stream,
}


@st.composite
def tables(draw: st.DrawFn) -> Columns:
    """Columns of names or of numbers, and a column that is not a variable."""
    n = draw(st.integers(1, 12))
    columns: Columns = {"remark": ["x"] * n}
    for v, states in STATES.items():
        if v == "w" or draw(st.booleans()):
            by_name = v == "w" or draw(st.booleans())
            numbers = [int(s) for s in states] if states[0].isdigit() else [s == "true" for s in states]
            cells = [*states, *CELLS["names"]] if by_name else [*numbers, *CELLS["numbers"]]
            columns[v] = draw(st.lists(st.sampled_from(cells), min_size=n, max_size=n))
    columns["w"][0] = "low"  # rows without empty cells have no columns where all cells are empty
    return columns


def expected_states(columns: Columns) -> list[list[int]]:
    """By definition, a cell at a time."""
    found = []
    for row in zip(*columns.values(), strict=True):
        states = []
        for v, names in STATES.items():
            cell = dict(zip(columns, row, strict=True)).get(v)
            name = str(cell).lower() if isinstance(cell, bool) else str(cell)
            states.append(names.index(name) if name in names else -1)
        found.append(states)
    return found


@examples(60)
@given(tables())
def test_cells_mean_the_same_in_every_container(columns: Columns) -> None:
    expected = expected_states(columns)
    for kind, make in CONTAINERS.items():
        assert read_states(net(), make(columns))[0].tolist() == expected, kind


@examples(20)
@given(st.lists(st.lists(st.sampled_from([-1, 0, 1]), min_size=8, max_size=8), min_size=1, max_size=6))
def test_arrays_hold_numbers_of_states(rows: list[list[int]]) -> None:
    asia = jtgpu.read(ROOT / "nets" / "asia.net").with_codes("index")
    table = np.array(rows)
    named = [[None if s < 0 else asia.states(v)[s] for v, s in enumerate(row)] for row in rows]
    structured = np.array([tuple(row) for row in rows], [(v, "i8") for v in asia.variables])
    for given_as in (
        rows, table.astype(np.int8), table.astype(np.uint8).view(np.int8), np.where(table < 0, np.nan, table),
        table.astype(object), named, np.array(named, object), structured, np.asfortranarray(table),
        {v: table[:, i] for i, v in enumerate(asia.variables)}, {i: table[:, i] for i in range(8)},
    ):  # fmt: skip
        assert read_states(asia, given_as)[0].tolist() == rows


def test_numbers_in_arrays_are_never_names(model: BayesianNetwork) -> None:
    assert read_states(model, np.array([[1, 1, 1, 1], [-1, 0, 0, 0]]))[0].tolist() == [[1, 1, 1, 1], [-1, 0, 0, 0]]
    assert read_states(model, np.array([[1, "mid", None, np.nan]], object))[0].tolist() == [[1, 1, -1, -1]]
    assert read_states(model, {"n": [1], "b": [1]})[0].tolist() == [[0, -1, 1, -1]]


@pytest.mark.parametrize(
    ("column", "states"),
    [
        (np.array([1, 3, 2], np.int8), [0, 2, 1]),
        (np.array([1, 3], np.uint64), [0, 2]),
        (np.array([1.0, 3.0, np.nan]), [0, 2, -1]),
        (np.array(["1", "3", None]), [0, 2, -1]),
        (np.array(["1", "3"]), [0, 2]),
        (np.array([b"1", b"3"]), [0, 2]),
        (np.ma.masked_array([1, 2, 3], [False, True, False]), [0, -1, 2]),
        (range(1, 4), [0, 1, 2]),
        (dict.fromkeys([1, 2]).keys(), None),
        ((x for x in ("1", None)), [0, -1]),
        ([1, True, 1.0, "1.0", np.int8(2), pd.NA], [0, 0, 0, 0, 1, -1]),
        (pd.Categorical(["3", None, "1"]), [2, -1, 0]),
        (pd.Series(pd.Categorical([3, None, 1])), [2, -1, 0]),
        (pd.Series([1, None, 3], dtype="Int64"), [0, -1, 2]),
        (pa.chunked_array([["1"], [None, "3"]]), [0, -1, 2]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_every_type_of_column(model: BayesianNetwork, column: Any, states: list[int] | None) -> None:
    if states is None:  # a set has no order
        with pytest.raises(jtgpu.EvidenceError, match="sequence of states"):
            read_states(model, {"n": column})
    else:
        assert read_states(model, {"n": column})[0][:, 0].tolist() == states


WRONG: Columns = {"w": ["low", "hgih", "mid"], "b": ["0", "0", None]}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_errors_name_row_and_column(model: BayesianNetwork, kind: str) -> None:
    index = r" \(index 'r1'\)" if kind == "pandas with an index" else ""
    reason = "'hgih' is not a state; the states are 'low', 'mid', 'high'; did you mean 'high'"
    with pytest.raises(jtgpu.UnknownState, match=rf"^row 1{index}, column 'w': {reason}"):
        read_states(model, CONTAINERS[kind](WRONG))


@pytest.mark.parametrize("kind", CONTAINERS)
def test_columns_that_are_almost_variables_are_errors(asia: jtgpu.JunctionTree, kind: str) -> None:
    make = CONTAINERS[kind]
    for name, meant in (("smok", "smoke"), ("Smoke ", "smoke"), ("x-ray", "xray"), ("lugn", "lung"), ("dispp", "")):
        columns = {name: ["yes", "no"], "tub": ["no", "no"], "w": ["a", "b"]}
        if not meant:
            assert asia.log_likelihood(make(columns)).shape == (2,)
            continue
        with pytest.raises(jtgpu.UnknownVariable, match=f"column {name!r}, but the variable is named {meant!r}"):
            asia.log_likelihood(make(columns))
    with pytest.raises(jtgpu.UnknownVariable, match="no column of the table is a variable"):
        asia.log_likelihood(make({"w": ["a"], "remark": ["b"]}))
    assert asia.log_likelihood(make({"w": ["a"], "smok": ["b"], "smoke": ["yes"]})).shape == (1,)  # both are there


def test_names_that_differ_in_a_digit_are_different() -> None:
    names = [f"x{i}" for i in range(12)]
    model = BayesianNetwork({v: ["a", "b"] for v in names}, {}, {v: [0.5, 0.5] for v in names})
    states, _ = read_states(model, {"x1": ["a"], "x12": ["b"], "x1b": ["c"], "y1": ["d"]})
    assert states.tolist() == [[-1, 0, *[-1] * 10]]


@pytest.mark.parametrize("kind", CONTAINERS)
def test_every_query_of_a_table_takes_every_container(asia: jtgpu.JunctionTree, kind: str) -> None:
    columns: Columns = {"xray": ["yes", None, "no"], "w": ["a", "b", "c"], "smoke": ["no", "yes", None]}
    table = CONTAINERS[kind](columns)
    plain = {v: columns[v] for v in ("xray", "smoke")}
    np.testing.assert_array_equal(asia.posteriors_batch(table).flat, asia.posteriors_batch(plain).flat)
    np.testing.assert_array_equal(asia.log_likelihood(table), asia.log_likelihood(plain))
    np.testing.assert_array_equal(asia.mpe_batch(table).states, asia.mpe_batch(plain).states)
    np.testing.assert_array_equal(asia.impute(table, seed=1).states, asia.impute(plain, seed=1).states)
    found, expected = asia.predict_proba(table, "lung"), asia.predict_proba(pd.DataFrame(plain), "lung")
    if isinstance(found, list):
        found = pd.DataFrame(found)
    assert np.asarray(found["lung=yes"]).tolist() == expected["lung=yes"].tolist()
    assert len(asia.predict(table, ["lung", "bronc"], keep="w")) == 3  # rows, or columns


def test_streams_are_tables_where_data_are_read(asia: jtgpu.JunctionTree) -> None:
    columns: Columns = {"xray": ["yes", "no", "no", "yes"], "smoke": ["no", "yes", "no", "no"]}
    table: Any = Stream(columns)
    structure = {"xray": ["smoke"]}
    assert jtgpu.learn.fit(structure, table).network == jtgpu.learn.fit(structure, columns).network
    assert str(jtgpu.learn.structure(table)) == str(jtgpu.learn.structure(columns))
    classes = ["a", "b", "a", "b"]
    a, b = (jtgpu.JunctionTreeClassifier().fit(x, classes).predict_proba(x) for x in (table, columns))
    np.testing.assert_array_equal(a, b)
    one = pa.table({"xray": ["yes"]})
    rows: list[Any] = [Stream({"xray": ["yes"]}), one.to_reader()]
    for row in rows:
        assert asia.log_likelihood(row).tolist() == [asia.log_evidence({"xray": "yes"})]
    assert asia.posterior("lung", one.to_reader())["yes"] == asia.posterior("lung", {"xray": "yes"})["yes"]
    for wrong, message in [(pl.DataFrame(columns).lazy(), "collect"), (one["xray"], "not ChunkedArray")]:
        with pytest.raises(jtgpu.EvidenceError, match=message):
            asia.posteriors_batch(wrong)


def test_answers_are_of_the_type_of_the_table(asia: jtgpu.JunctionTree) -> None:
    rows = asia.predict([{"id": 1, "xray": "yes"}, {"id": 2}], "lung", keep="id")
    assert rows == [{"id": 1, "lung": "no"}, {"id": 2, "lung": "no"}]
    columns = asia.predict_proba({"xray": ["yes", None]}, "lung", log_evidence=True)
    assert list(columns) == ["lung=yes", "lung=no", "log_evidence"]
    assert all(isinstance(c, np.ndarray) and c.dtype == np.float64 for c in columns.values())
    array = asia.predict_proba(np.full((2, 8), -1), "lung", evidence_columns="xray")
    assert array["lung=yes"].tolist() == pytest.approx([0.055, 0.055])


def test_tables_without_rows(asia: jtgpu.JunctionTree) -> None:
    empty: dict[str, list[Any]] = {"xray": []}
    tables: tuple[Any, ...] = ({}, [], empty, np.zeros((0, 8), int), pd.DataFrame(empty), pa.table(empty))
    for table in tables:
        assert asia.log_likelihood(table).shape == (0,)
    assert asia.log_likelihood([{}, {}]).tolist() == pytest.approx([0.0, 0.0])
    assert asia.posteriors_batch([], targets="lung").to_frame().shape == (0, 3)


def test_plain_tables_need_no_packages(asia: jtgpu.JunctionTree, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pyarrow", "narwhals", "pandas"):
        monkeypatch.setitem(__import__("sys").modules, package, None)
    for table in ({"xray": ["yes"]}, [{"xray": "yes"}], np.full((1, 8), -1), {"xray": np.array(["yes"])}):
        assert asia.log_likelihood(table).shape == (1,)


def test_large_columns_are_read_without_a_loop(model: BayesianNetwork) -> None:
    n = 300_000
    random = np.random.default_rng(1)
    numbers = random.integers(1, 4, n)
    columns = {"n": numbers, "w": np.array(STATES["w"])[numbers - 1], "b": (numbers > 1).astype(float)}
    states, _ = read_states(model, columns)
    assert (states[:, 0] == numbers - 1).all()
    assert (states[:, 1] == numbers - 1).all()
    assert (states[:, 2] == (numbers > 1)).all()
    wrong = {"w": np.array(["lo"] * n)}
    with pytest.raises(jtgpu.UnknownState, match=r"^row 0, column 'w': 'lo'"):
        read_states(model, wrong)
