"""Every wrong table, structure and option of `jtgpu.learn.fit` has its message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, DataError, ImpossibleEvidence, NetworkError, TableTooLarge, UnknownState
from jtgpu.learn import EM, fit

CHAIN = {"lung": ["smoke"], "xray": ["lung"]}
UNTYPED: Any = jtgpu.Compute
TABLE = {"smoke": ["yes", "no", "no"], "lung": ["yes", "no", None], "xray": ["a", "b", "a"]}


def without(*names: str) -> dict[str, Any]:
    return {k: v for k, v in TABLE.items() if k not in names}


@pytest.mark.parametrize(
    ("structure", "table", "options", "error", "text"),
    [
        (CHAIN, {**without("xray"), "Xray": ["a"] * 3}, {}, jtgpu.UnknownVariable, "has a column 'Xray', but"),
        (CHAIN, without("xray"), {}, DataError, r"no column 'xray'; .*hidden=\{'xray': 2\}"),
        (CHAIN, {**TABLE, "xray": [None, float("nan"), None]}, {}, DataError, "column 'xray' has only missing cells"),
        (CHAIN, TABLE, {"states": {"xray": ["a", "c"]}}, UnknownState, "row 1, column 'xray': 'b' is not a state"),
        ({"lung": ["xray"], "xray": ["lung"]}, TABLE, {}, NetworkError, "the arcs form a cycle"),
        (CHAIN, TABLE, {"tied": [("smoke", "lung")]}, ArgumentError, r"have the shapes \(2,\) and \(2, 2\)"),
        (CHAIN, TABLE, {"tied": [("lung",)]}, ArgumentError, "at least two variables"),
        (CHAIN, TABLE, {"tied": [("lung", "xray"), ("xray", "lung")]}, ArgumentError, "'xray' occurs twice"),
        (CHAIN, TABLE, {"tied": [("lung", "xra")]}, ArgumentError, "did you mean 'xray'"),
        (CHAIN, TABLE, {"weights": [1, -1, 1]}, DataError, "row 1: the weight -1 is negative"),
        (CHAIN, TABLE, {"weights": [1, float("nan"), 1]}, DataError, "row 1: the weight nan is not"),
        (CHAIN, TABLE, {"weights": [0, 0, 0]}, DataError, "all weights are zero"),
        (CHAIN, TABLE, {"weights": [1, 1]}, DataError, "weights has 2 numbers, but the table has more rows"),
        (CHAIN, TABLE, {"weights": [1] * 4}, DataError, "weights has 4 numbers, but the table has 3 rows"),
        (CHAIN, TABLE, {"weights": [[1, 1, 1]]}, DataError, r"weights has shape \(1, 3\)"),
        (CHAIN, TABLE, {"weights": "w"}, DataError, "there is no column 'w' of weights"),
        (CHAIN, {**TABLE, "w": [1, "x", 2]}, {"weights": "w"}, DataError, "row 1, column 'w': the weight is 'x'"),
        (CHAIN, {k: [] for k in TABLE}, {"states": {k: [*"ab"] for k in TABLE}}, DataError, "no rows to fit"),
        (CHAIN, TABLE, {"missing": "error"}, DataError, "row 2: the cell of 'lung' is missing"),
        (CHAIN, {**TABLE, "lung": ["yes", None, None], "smoke": [None, "yes", "no"]}, {"missing": "drop"}, DataError,
         "all 3 rows have missing cells"),
        (CHAIN, TABLE, {"missing": "EM"}, ArgumentError, "did you mean 'em'"),
        (CHAIN, TABLE, {"hidden": {"lung": 2}}, DataError, "'lung' is declared hidden, but the table has a column"),
        (CHAIN, without("lung"), {"hidden": {"lung": 1}}, ArgumentError, "needs at least 2 different states, not 1"),
        (CHAIN, without("lung"), {"hidden": "lung"}, ArgumentError, "give its number of states"),
        (CHAIN, TABLE, {"hidden": {"lun": 2}}, ArgumentError, "no variable 'lun'; did you mean 'lung'"),
        (CHAIN, without("lung"), {"hidden": {"lung": 2}, "em": EM(start="uniform")}, ArgumentError, "alike"),
        (CHAIN, without("lung"), {"hidden": {"lung": 2}, "missing": "available"}, ArgumentError, "cannot fit hidden"),
        (CHAIN, TABLE, {"em": EM(max_cpt=3)}, TableTooLarge, "the CPT of 'lung' would have 4 entries"),
        (CHAIN, TABLE, {"fixed": ["lung"]}, ArgumentError, "fixed requires a network"),
        (CHAIN, TABLE, {"em": EM(start="given")}, ArgumentError, "requires a network with CPTs"),
        (CHAIN, TABLE, {"pseudo_counts": -1}, ArgumentError, "finite numbers >= 0"),
        (CHAIN, TABLE, {"pseudo_counts": "bdeu:x"}, ArgumentError, "equivalent sample size above 0"),
        (CHAIN, TABLE, {"pseudo_counts": "net:3"}, ArgumentError, "requires a network"),
        (CHAIN, TABLE, {"pseudo_counts": {"lung": [1, 2, 3]}}, ArgumentError, r"shape \(2, 2\)"),
        (CHAIN, TABLE, {"compute": UNTYPED(progress=3)}, ArgumentError, "True, False or a function"),
        (CHAIN, {**TABLE, "xray": np.arange(3000.0) * 0.1}, {}, jtgpu.EvidenceError, "columns must have equal"),
        ({"lung": "smoke"}, TABLE, {}, NetworkError, "parents must be a list of names"),
        (3, TABLE, {}, NetworkError, "the structure must be"),
        (CHAIN, {**TABLE, "xray": [["a"], ["b"], ["a"]]}, {}, DataError, "row 0, .*is not a single value"),
    ],
)  # fmt: skip
def test_messages(structure: Any, table: Any, options: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        fit(structure, table, **options)


def test_a_column_of_many_numbers_is_to_be_discretised() -> None:
    table = {"x": np.arange(5000.0) / 7, "y": ["a", "b"] * 2500}
    with pytest.raises(DataError, match=r"5,000 different numbers.*discretise"):
        fit({"y": ["x"]}, table)
    assert len(fit({"y": ["x"]}, table, bins=5).network.states("x")) == 5


def test_rows_of_probability_zero() -> None:
    net = jtgpu.network("a->b", "{x|y}", cpts={"a": [1.0, 0.0], "b": [[0.5, 0.5], [0.5, 0.5]]})
    table = {"a": ["x", "y", None, "y"], "b": ["x", "x", "y", "x"]}
    with pytest.raises(ImpossibleEvidence, match="row 1: this row has probability 0 at the start: a = 'y'; b = 'x'"):
        fit(net, table, em=EM(start="given"))
    found = fit(net, table, em=EM(start="given", on_error="flag"))
    assert found.n_impossible == 1  # two equal rows
    assert found.network.cpt("a").tolist() == [1.0, 0.0]
    assert fit(net, table, em=EM(start="given", zeros="free")).network.cpt("a")[1] > 0
    with pytest.raises(ImpossibleEvidence):
        fit(net, {"a": ["y"], "b": ["x"]}, em=EM(start="given", on_error="flag"))


def test_files(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "cases.csv"
    net = jtgpu.network("a->b", "{x|y}", cpts={"a": [1.0, 0.0], "b": [[0.5, 0.5], [0.5, 0.5]]})
    path.write_text("a,b,w\nx,x,1\nx,z,1\n")
    with pytest.raises(UnknownState, match=r"cases\.csv:3: column 'b': 'z' is not a state"):
        fit(net, path)
    path.write_text("a,b,w\nx,x,1\nx,y\n")
    with pytest.raises(jtgpu.ParseError, match=r"cases\.csv:3"):
        fit(net, path)
    path.write_text("a,b,w\nx,x,1\ny,y,1\n")
    with pytest.raises(ImpossibleEvidence, match=r"cases\.csv:3: this row has probability 0"):
        fit(net, path, em=EM(start="given"))
    path.write_text("a,b,w\nx,x,1\nx,y,-2\n")
    with pytest.raises(DataError, match=r"cases\.csv:3: the weight -2 is negative"):
        fit(net, path, weights="w")
    with pytest.raises(OSError, match="No such file"):
        fit(net, tmp_path / "none.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no files of cases"):
        fit(net, tmp_path / "empty")
    other = tmp_path / "other.csv"
    other.write_text("a,c\nx,x\n")
    with pytest.raises(DataError, match="differ in the column"):
        fit(net, [path, other])


def test_cells_of_a_file_that_are_not_single_values(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({**without("xray"), "xray": [[1, 2], [3], []]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="column 'xray' has cells that are not single values"):
        fit(CHAIN, tmp_path / "t.parquet")


def test_measurements_are_no_states() -> None:
    numbers = [i / 8 + 0.1 for i in range(21)] * 2
    table = {"a": numbers, "b": ["x", "y"] * 21}
    with pytest.raises(DataError, match=r"column 'a' has 21 different numbers with fractions.*bins=5"):
        jtgpu.learn.fit({"b": ["a"]}, table)
    assert len(jtgpu.learn.fit({"b": ["a"]}, table, bins=5).network.states("a")) == 5
    with pytest.raises(DataError, match=r"column 'a' has numbers with decimal commas, such as '0,1'"):
        jtgpu.learn.fit({"b": ["a"]}, table | {"a": [str(x).replace(".", ",") for x in numbers]}, bins=5)
    few = {"a": [x for x in numbers if x < 2.5], "b": ["x", "y"] * 20}
    assert len(jtgpu.learn.fit({"b": ["a"]}, few).network.states("a")) == 20
    assert len(jtgpu.learn.fit({"b": ["a"]}, table | {"a": [*range(42)]}).network.states("a")) == 42


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stepwise": 0.3}, "stepwise must be a number above 0.5 and at most 1"), ({"iterations": 0}, "at least 1"),
        ({"accelerate": 1}, "True or False"), ({"restarts": 1.5}, "restarts must be an integer"),
        ({"errors": True}, r"EM\(\) has no argument 'errors'; it is standard_errors="),
    ],
)  # fmt: skip
def test_wrong_options_of_em(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        EM(**options)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("prior", "it is pseudo_counts="), ("restarts", r"it is em=EM\(restarts=...\)"),
        ("step", r"it is em=EM\(stepwise=...\)"), ("id", r"it is keys=Keys\(id=...\)"), ("numbers", "continuous="),
        ("threads", r"it is compute=Compute\(threads=...\)"), ("weigths", "did you mean 'weights'"),
    ],
)  # fmt: skip
def test_a_former_argument_is_an_error_that_says_where_it_is(option: str, said: str) -> None:
    untyped: Any = fit
    with pytest.raises(ArgumentError, match=said):
        untyped(CHAIN, TABLE, **{option: 1})
