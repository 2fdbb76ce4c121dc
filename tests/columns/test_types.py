"""Columns of the types that libraries of tables have: the states that `structure` and `fit` learn, or an error."""

from __future__ import annotations

import datetime
import fractions
import pathlib
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import learn
from tests.columns.table import Error
from tests.columns.verbs import answer

pd = pytest.importorskip("pandas", reason="pandas is not installed")
pl = pytest.importorskip("polars", reason="Polars is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

Y = ["u", "v", "u", "u"] * 10
UTC = datetime.UTC
NO = Error("'x'")


def series(values: Any, dtype: Any = None) -> Any:
    return pd.DataFrame({"x": pd.Series(values, dtype=dtype), "y": Y})


def polars(values: Any, dtype: Any = None) -> Any:
    return pl.DataFrame({"x": pl.Series(values, dtype=dtype), "y": Y})


def array(values: Any) -> Any:
    return {"x": values, "y": np.array(Y)}


def arrow(values: Any, kind: Any = None) -> Any:
    return pa.table({"x": pa.array(values, kind) if isinstance(values, list) else values, "y": Y})


DAYS = [datetime.datetime(2024, 1, d, tzinfo=UTC) for d in (2, 3)] * 20
NAIVE = ["2024-01-02", "2024-01-03"] * 20

# the column, its states, the verbs that disagree today, the rule that they break
TYPES: dict[str, tuple[Callable[[], Any], Any, str, str]] = {
    "pandas Int64": (lambda: series([1, None, 2, 1] * 10, "Int64"), ("1", "2"), "", ""),
    "pandas boolean": (lambda: series([True, None, False, True] * 10, "boolean"), ("False", "True"), "", ""),
    "pandas string": (lambda: series(["a", None, "b", "a"] * 10, "string"), ("a", "b"), "", ""),
    "pandas Float64": (lambda: series([1.0, None, 2.0, 1] * 10, "Float64"), ("1", "2"), "", ""),
    "pandas int64[pyarrow]": (lambda: series([1, 2, None, 1] * 10, "int64[pyarrow]"), ("1", "2"), "", ""),
    "pandas uint64": (
        lambda: series([2**63, 2**63 + 1] * 20, "uint64"), (str(2**63), str(2**63 + 1)), "", "",
    ),
    "pandas sparse": (lambda: series(pd.arrays.SparseArray([0, 1, 0, 1] * 10)), ("0", "1"), "", ""),
    "pandas ordered numbers": (
        lambda: series(pd.Categorical([3, 1, 2, 1] * 10, [3, 2, 1, 7], ordered=True)), ("3", "2", "1", "7"), "", "",
    ),
    "pandas category of floats": (lambda: series(pd.Categorical([3.0, 1.0] * 20)), ("1", "3"), "", ""),
    "pandas category of truth values": (
        lambda: series(pd.Categorical([True, False, None, True] * 10)), ("False", "True"), "", "",
    ),
    "pandas category of times": (
        lambda: series(pd.Categorical(pd.to_datetime(NAIVE))), ("2024-01-02", "2024-01-03"), "",
        "",
    ),
    "pandas cut": (lambda: series(pd.cut(pd.Series([1, 2, 3, 4] * 10), 2)), ("(0.997, 2.5]", "(2.5, 4.0]"), "", ""),
    "pandas Period": (
        lambda: series(pd.period_range("2024-01", "2024-02", freq="M").tolist() * 20), ("2024-01", "2024-02"), "", "",
    ),
    "pandas time zone": (
        lambda: series(pd.to_datetime(NAIVE).tz_localize("Europe/Berlin")), NO, "",
        "",
    ),
    "pandas Timedelta": (
        lambda: series(pd.to_timedelta([1, 2] * 20, unit="D")), NO, "", "",
    ),
    "pandas 1 and '1'": (
        lambda: series([1, "1", 2, 2] * 10, object), ("1", "2"), "", "",
    ),
    "pandas 1 and True": (
        lambda: series([1, True] * 20, object), ("1", "True"), "", "",
    ),
    "pandas mixed": (
        lambda: series([1, "1", "a", 1.5] * 10, object), ("1", "1.5", "a"), "",
        "",
    ),
    "Polars Enum": (lambda: polars(["a", "b"] * 20, pl.Enum(["c", "b", "a"])), ("c", "b", "a"), "", ""),
    "Polars Categorical": (lambda: polars(["b", "a"] * 20, pl.Categorical), ("a", "b"), "", ""),
    "Polars Decimal": (
        lambda: polars([Decimal("1.50"), Decimal("2")] * 20), ("1.5", "2"), "",
        "",
    ),
    "Polars Duration": (
        lambda: polars([datetime.timedelta(1), datetime.timedelta(2)] * 20), NO, "",
        "",
    ),
    "Polars Time": (
        lambda: polars([datetime.time(1), datetime.time(2)] * 20), NO, "", "",
    ),
    "Polars List": (lambda: polars([["a"], ["b"]] * 20), NO, "", ""),
    "Polars Struct": (lambda: polars([{"q": 1}, {"q": 2}] * 20), NO, "", ""),
    "Polars Binary": (lambda: polars([b"a", b"b"] * 20), ("a", "b"), "", ""),
    "Polars time zone": (lambda: polars(DAYS), NO, "", ""),
    "Polars Null": (lambda: polars([None] * 40), NO, "", ""),
    "Arrow dictionary": (lambda: arrow(pa.array(["b", "a"] * 20).dictionary_encode()), ("b", "a"), "", ""),
    "Arrow dictionary of numbers": (lambda: arrow(pa.array([7, 3] * 20).dictionary_encode()), ("7", "3"), "", ""),
    "Arrow decimal": (
        lambda: arrow([Decimal("1.50"), Decimal("2")] * 20), ("1.5", "2"), "",
        "",
    ),
    "Arrow time": (lambda: arrow([1, 2] * 20, pa.time32("s")), NO, "", ""),
    "Arrow duration": (
        lambda: arrow([1, 2] * 20, pa.duration("s")), NO, "", "",
    ),
    "Arrow nulls": (lambda: arrow(pa.nulls(40)), NO, "", ""),
    "Arrow views": (lambda: arrow(["a", "b"] * 20, pa.string_view()), ("a", "b"), "", ""),
    "masked array": (lambda: array(np.ma.masked_equal([1, 2, 9, 1] * 10, 9)), ("1", "2"), "", ""),
    "array of text": (lambda: array(np.array(["a", "b", "", "a"] * 10)), ("", "a", "b"), "", ""),
    "array of bytes": (lambda: array(np.array([b"a", b"b"] * 20)), ("a", "b"), "", ""),
    "array of days": (lambda: array(np.array(NAIVE, "M8[D]")), ("2024-01-02", "2024-01-03"), "", ""),
    "array of durations": (
        lambda: array(np.array([1, 2] * 20, "m8[D]")), NO, "", "",
    ),
    "array of truth values": (lambda: array(np.array([True, False] * 20)), ("False", "True"), "", ""),
    "array of bytes as numbers": (lambda: array(np.array([1, 200] * 20, np.uint8)), ("1", "200"), "", ""),
    "array of float16": (
        lambda: array(np.array([0.1, 2] * 20, np.float16)), ("0.1", "2"), "",
        "",
    ),
    "array of longdouble": (
        lambda: array(np.array([1, 2] * 20, np.longdouble)), ("1", "2"), "", "",
    ),
    "structured array": (
        lambda: np.array([*zip("ab" * 20, Y, strict=True)], dtype=[("x", "U1"), ("y", "U1")]), ("a", "b"), "", "",
    ),
}  # fmt: skip
VERBS: dict[str, Callable[[Any], Any]] = {
    "structure": lambda t: learn.structure(t, missing="drop").network(),
    "fit": lambda t: learn.fit({"y": ["x"]}, t).network,
}


def cases() -> list[Any]:
    found = []
    for name, (*_, fails, rule) in TYPES.items():
        for verb in VERBS:
            marks = [pytest.mark.xfail(reason=rule)] if verb in fails.split() else []
            found.append(pytest.param(name, verb, marks=marks, id=f"{name}-{verb}"))
    return found


@pytest.mark.parametrize(("name", "verb"), cases())
def test_states_of_typed_columns(name: str, verb: str) -> None:
    make, states, *_ = TYPES[name]

    nets: list[Any] = []

    def learned() -> Any:
        nets.append(VERBS[verb](make()))
        return nets[0].states("x")

    assert answer(learned, states) == states
    for net in nets:
        assert learn.fit(net, make()).n_rows == 40  # the network reads the table that it was learned from


@pytest.mark.parametrize(
    "cells",
    [
        [pd.Interval(0, 1), pd.Interval(1, 2)], [pd.Period("2024-01"), pd.Period("2024-02")],
        [uuid.UUID(int=1), uuid.UUID(int=2)], [pathlib.PurePosixPath("a"), pathlib.PurePosixPath("b")],
        [fractions.Fraction(1, 2), fractions.Fraction(1, 3)], [10**25, 10**25 + 1], [1e22, 1.0],
        [2**53, 2**53 + 1], [Decimal("1.50"), 1], [np.float32(0.1), np.float32(0.2)], [True, "False"],
    ],
    ids=str,
)  # fmt: skip
def test_a_single_case_reads_what_a_table_reads(cells: list[Any]) -> None:
    column = cells * 10
    net = learn.fit({"x": [], "y": ["x"]}, {"x": column, "y": ["u", "v"] * 10}).network
    assert net.cardinality[0] == 2
    tree = net.compile("reference")
    table = tree.posteriors_batch({"x": cells})["x"]
    for cell, row in zip(cells, table, strict=True):
        assert tree.posterior("x", {"x": cell}).probabilities.tolist() == row.tolist()
        assert sorted(row) == [0, 1]
    assert np.asarray(tree.posterior("x", {"x": 10**22})).tolist() == table[0].tolist() if 1e22 in cells else True


def test_halves_of_characters_are_errors() -> None:
    for verb in (lambda t: learn.fit({"y": ["x"]}, t), learn.structure):
        with pytest.raises(jtgpu.DataError, match=r"'x' has .*, half a character"):
            verb({"x": ["a\ud800", "b"] * 20, "y": Y})


def test_endless_integers_are_errors_in_words() -> None:
    for cell in (10**5000, Decimal("1e5000")):
        with pytest.raises(jtgpu.DataError, match="'x' has a number of more than 4,000 digits"):
            learn.structure({"x": [cell, 1] * 20, "y": Y})
    tree = jtgpu.BayesianNetwork({"x": ["1", "2"]}, {}, {"x": [0.5, 0.5]}).compile("reference")
    with pytest.raises(jtgpu.UnknownState, match="no state an int of too many digits"):
        tree.posterior("x", {"x": 10**5000})
    with pytest.raises(jtgpu.UnknownState, match="an int of too many digits is not a state"):
        tree.posteriors_batch({"x": [10**5000]})


def test_uuids_and_short_floats(tmp_path: Any) -> None:
    ids = [uuid.UUID(int=1), uuid.UUID(int=2), None, uuid.UUID(int=1)] * 10
    table = pd.DataFrame({"x": ids, "y": Y})
    table.to_parquet(tmp_path / "t.parquet")
    states = (str(ids[0]), str(ids[1]))
    storage = pa.array([None if i is None else i.bytes for i in ids], pa.binary(16))
    tables = [table, str(tmp_path / "t.parquet")]
    if hasattr(pa, "uuid"):
        tables.append(pa.table({"x": pa.ExtensionArray.from_storage(pa.uuid(), storage), "y": Y}))
    net = learn.fit({"y": ["x"]}, table).network
    for each in tables:
        assert learn.fit({"y": ["x"]}, each).network.states("x") == states
        assert np.array_equal(learn.fit(net, each).network.cpt("y"), net.cpt("y"))
    floats = [np.float16(0.1), np.float32(0.2)] * 20
    slices = jtgpu.series.two_slices(pd.DataFrame({"x": pd.Series(floats, dtype=object)}), bins=None)
    assert [*slices["x[t]"].cat.categories] == [0.1, 0.2]
