"""Tables as state numbers: every kind of table, and every reason to refuse one."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import DataError, ParseError
from jtgpu.formats import FileError
from jtgpu.learn.dags.scores.numeric_table import code_table

RAIN = ["no", "yes", "no", "yes", "no"]
WET = [0, 1, 1, 1, 0]


def check(data: Any, **options: Any) -> None:
    table = code_table(data, **options)
    assert table.names == ("rain", "wet")
    assert table.states == (("no", "yes"), ("0", "1"))
    assert table.codes.tolist() == [[0, 1, 0, 1, 0], [0, 1, 1, 1, 0]]
    assert table.codes.dtype == np.uint8
    assert table.n_cases == 5


def test_tables_of_every_kind(tmp_path: Path) -> None:
    check({"rain": RAIN, "wet": WET})
    check({"rain": np.array(RAIN), "wet": np.array(WET, float)})
    check([{"rain": r, "wet": w} for r, w in zip(RAIN, WET, strict=True)])
    (tmp_path / "a.csv").write_text("rain;wet\n" + "".join(f"{r};{w}\n" for r, w in zip(RAIN, WET, strict=True)))
    check(tmp_path / "a.csv")
    check(str(tmp_path / "a.csv"), states={"rain": ["no", "yes"]})
    array = code_table(np.array([RAIN, list(map(str, WET))]).T)
    assert array.names == ("x0", "x1")
    assert code_table(array) is array


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames(library: str, tmp_path: Path) -> None:
    package = pytest.importorskip(library)
    pq = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("narwhals")
    make = package.table if library == "pyarrow" else package.DataFrame
    frame = make({"rain": RAIN, "wet": WET})
    check(frame)
    if library == "pyarrow":
        pq.write_table(frame, tmp_path / "a.parquet")
        check(tmp_path / "a.parquet")
    gaps = make({"rain": [*RAIN, None], "wet": [*WET, 1]})
    with pytest.raises(DataError, match=r"row 5: column 'rain' has a missing value \(1 of 6 rows"):
        code_table(gaps)
    check(gaps, missing="drop")
    assert code_table(gaps, missing="drop").dropped == 1


def test_categories_keep_their_order() -> None:
    pandas = pytest.importorskip("pandas")
    rain = pandas.Categorical(RAIN, categories=["yes", "maybe", "no"])
    table = code_table(pandas.DataFrame({"rain": rain, "wet": WET}))
    assert table.states[0] == ("yes", "maybe", "no")
    assert table.codes[0].tolist() == [2, 0, 2, 0, 2]


def test_declared_states() -> None:
    table = code_table({"rain": RAIN, "wet": WET}, states={"rain": ["yes", "no", "snow"]})
    assert table.states[0] == ("yes", "no", "snow")
    assert table.codes[0].tolist() == [1, 0, 1, 0, 1]
    net = jtgpu.BayesianNetwork(
        {"wet": ["0", "1"], "rain": ["no", "yes"]}, {}, {"wet": [0.5, 0.5], "rain": [0.5, 0.5]}
    )
    of_net = code_table({"rain": RAIN, "id": range(5), "wet": WET}, states=net)
    assert of_net.names == ("wet", "rain")
    with pytest.raises(DataError, match=r"row 3: column 'rain': 'snwo' is not a state.*did you mean 'snow'"):
        code_table({"rain": ["no", "yes", "no", "snwo"], "wet": WET[:4]}, states={"rain": ["no", "yes", "snow"]})
    with pytest.raises(DataError, match="no such column; did you mean 'rain'"):
        code_table({"rain": RAIN, "wet": WET}, states={"rian": ["no", "yes"]})
    with pytest.raises(DataError, match="not distinct"):
        code_table({"rain": RAIN, "wet": WET}, states={"rain": ["no", "no"]})
    with pytest.raises(DataError, match="no column 'wet', a variable of the network"):
        code_table({"rain": RAIN, "wind": WET}, states=net)
    with pytest.raises(TypeError, match="states must be a mapping"):
        code_table({"rain": RAIN, "wet": WET}, states=["no", "yes"])  # type: ignore[arg-type]


def test_a_declared_state_may_be_called_none(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("flow,age\nNone,1\nLt_to_Rt,2\nNone,2\n,2\n")
    states = {"flow": ["None", "Lt_to_Rt"], "age": ["1", "2"]}
    net = jtgpu.BayesianNetwork(states, {}, {v: [0.5, 0.5] for v in states})
    table = code_table(path, states=net, missing="drop")
    assert table.codes.tolist() == [[0, 1, 0], [0, 1, 1]]
    assert table.dropped == 1
    given = {"flow": ["None", None, "Lt_to_Rt", "None"], "age": [1, 2, 2, 2]}
    assert code_table(given, states=net, missing="drop").codes.tolist() == [[0, 1, 0], [0, 1, 1]]


def test_digest_depends_on_the_content() -> None:
    first = code_table({"rain": RAIN, "wet": WET})
    assert first.digest == code_table({"rain": RAIN, "wet": WET}).digest
    assert first.digest != code_table({"rain": RAIN, "wet": [1, *WET[1:]]}).digest
    assert first.digest != code_table({"rain": RAIN, "wet": WET}, weights=[1, 1, 1, 1, 2]).digest


def test_weights() -> None:
    table = code_table({"rain": RAIN, "wet": WET}, weights=[1, 2, 1, 0, 3.0])
    assert table.codes.shape == (2, 4)
    assert table.n_cases == 7
    assert table.codes.tolist() == [[0, 1, 0, 0], [0, 1, 1, 0]]
    for weights, message in (
        ([1, 1, -1, 1, 1], "row 2: the weight"),
        ([1, 0.5, 1, 1, 1], "row 1: the weight 0.5 is not a whole number"),
        ([1, np.nan, 1, 1, 1], "row 1"),
        ([1, 1], "weights must be 5"),
        (["a"] * 5, "weights must be 5"),
        ([0] * 5, "all weights are zero"),
    ):
        with pytest.raises(DataError, match=message):
            code_table({"rain": RAIN, "wet": WET}, weights=weights)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rain": [], "wet": []}, "no rows"),
        ({"rain": RAIN}, "at least two"),
        ({"rain": RAIN, "wet": WET[:4]}, "wet.*4 cells|different lengths|4 rows"),
        ({"rain": RAIN, "wet": [0.5, 1, 2, 3, 4]}, "'wet' has 5 .*fractions, such as 0.5: discretise"),
        ({"rain": RAIN, "wet": [1] * 5}, "'wet' has only one value; read=.*'drop'. leaves it out"),
        ({"rain": RAIN, "wet": [None] * 5}, "'wet' has only missing cells"),
        ({"rain": RAIN, "wet": [0, 1, None, 1, 0]}, "row 2: column 'wet' has a missing value"),
        ({"rain": RAIN, "wet": [0, 1, [1], 1, 0]}, "row 2, column 'wet': .1. is not a single value"),
        ({"rain": RAIN * 5, "id": list(range(25))}, "'id' has a different value in each of its 25 rows"),
        ({"rain": RAIN * 200, "code": [i // 2 for i in range(1000)]}, "500 different numbers, too many"),
        ({"rain": RAIN, "wet": np.zeros((5, 2))}, r"shape \(5, 2\)"),
        ({"rain": RAIN, "wet": [0, 1, np.inf, 1, 0]}, "row 2, column 'wet': the value inf is infinite"),
        ({"rain": RAIN, "wet": [0, 1, 1j, 1, 0]}, "row 2, column 'wet': the value 1j is a complex number"),
        (np.zeros(3), "expected .n_rows, n_columns."),
        (3, "got int"),
    ],
)
def test_bad_tables(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        code_table(data)


def test_equal_columns_are_reported() -> None:
    with pytest.warns(UserWarning, match="columns 'rain' and 'umbrella' are equal up to"):
        code_table({"rain": RAIN, "umbrella": ["down" if r == "no" else "up" for r in RAIN], "wet": WET})


def test_repeated_column_names() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(jtgpu.JtgpuError, match=r"2 columns named 'a'"):
        code_table(pandas.DataFrame([[0, 1], [1, 0]], columns=["a", "a"]))


def test_numbers_are_sorted_as_numbers_and_other_values_by_text() -> None:
    table = code_table({"a": [10, 9, 9, 10], "b": [True, True, False, True], "c": list("xyzx")})
    assert table.states == (("9", "10"), ("False", "True"), ("x", "y", "z"))
    day = datetime.date(2026, 11, 22)
    days = code_table({"a": [day, day + datetime.timedelta(1), day], "b": [0, 1, 1]})
    assert days.states[0] == ("2026-11-22", "2026-11-23")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(FileError, match=r"nowhere.csv: No such file"):
        code_table("nowhere.csv")
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n1,2,3\n")
    (tmp_path / "empty.csv").write_text("")
    for name in ("ragged.csv", "empty.csv"):
        with pytest.raises(ParseError, match=name):
            code_table(tmp_path / name)


CONSTANT = {"rain": RAIN, "one": [1] * 5, "none": [None] * 5, "wet": RAIN[::-1], "two": ["x"] * 5}


@pytest.mark.parametrize("learn", [jtgpu.learn.structure, jtgpu.learn.posterior, jtgpu.learn.score_table])
def test_constant_columns_are_named_at_once_or_left_out(learn: Any) -> None:
    """N18: the first one stopped the learning, and then the next one."""
    with pytest.raises(DataError, match=r"3 columns have only one value or none: .*one.*none.*two.*constant='drop'"):
        learn(CONSTANT)
    with pytest.warns(UserWarning, match=r"left out, as they have only one value or none: .*one.*none.*two"):
        assert learn(CONSTANT, read=jtgpu.ReadOptions(constant="drop")).names == ("rain", "wet")
    with pytest.raises(DataError, match=r"1 column left, without those of one value or none: .*one"):
        learn({"rain": RAIN, "one": [1] * 5}, read=jtgpu.ReadOptions(constant="drop"))
    numbers = {"a": [1.5, 2.5, 3.0, 1.0, 0.5], "b": [0.1, 0.9, 0.4, 0.3, 0.8], "c": [2.0] * 5, "d": [3.0] * 5}
    with pytest.raises(DataError, match="2 columns have only one value or none"):
        learn(numbers, score="bge")
    with pytest.warns(UserWarning, match="left out"):
        assert learn({**numbers, "e": ["x"] * 5}, score="bic-cg", read=jtgpu.ReadOptions(constant="drop")).names == (
            "a",
            "b",
        )


@pytest.mark.parametrize("learn", [jtgpu.learn.structure, jtgpu.learn.posterior, jtgpu.learn.score_table])
@pytest.mark.parametrize("option", [{"chunk": 2}, {"codes": "names"}])
def test_options_of_reading_that_do_not_apply(learn: Any, option: Any) -> None:
    with pytest.raises(jtgpu.ArgumentError, match=f"{next(iter(option))}= is not offered with learning of graphs"):
        learn({"rain": RAIN, "wet": WET}, read=jtgpu.ReadOptions(**option))


@pytest.mark.parametrize("learn", [jtgpu.learn.structure, jtgpu.learn.posterior])
def test_numbers_that_are_constant_without_the_rows_with_gaps(learn: Any) -> None:
    data = {"x": [0.5, 0.5, 0.5, 2.25] * 5, "y": [1.5, 2.5, 3.5, None] * 5, "z": [*range(19), 7.5]}
    with pytest.raises(DataError, match=r"'x' has only one value \(0.5\) in the rows without gaps; leave it out"):
        learn(data, score="bic-cg", missing="drop")
    with pytest.warns(UserWarning, match=r"left out, as they .*: 'x'"):
        assert learn(data, score="bic-cg", missing="drop", read=jtgpu.ReadOptions(constant="drop")).names == ("y", "z")


@pytest.mark.parametrize("learn", [jtgpu.learn.structure, lambda data: jtgpu.learn.fit({"b": ["a"]}, data)])
def test_states_that_are_nearly_equal(learn: Any) -> None:
    data = {"a": ["North", "north ", "South", "South"] * 3, "b": ["x", "y", "x"] * 4}
    with pytest.warns(UserWarning, match=r"states that are nearly equal: a: 'North' and 'north ?'; make them one"):
        learn(data)


@pytest.mark.filterwarnings("ignore:left out")
def test_constraints_may_name_columns_that_are_left_out() -> None:
    options: Any = {
        "constraints": jtgpu.learn.Constraints(tiers=[["one", "rain"], ["wet"]], forbidden=[("two", "rain")]),
        "max_parents": {"one": 1},
    }
    assert jtgpu.learn.structure(CONSTANT, read=jtgpu.ReadOptions(constant="drop"), **options).names == ("rain", "wet")
    with pytest.raises(jtgpu.ArgumentError, match="has 'one', which is left out"):
        jtgpu.learn.structure(
            CONSTANT,
            read=jtgpu.ReadOptions(constant="drop"),
            constraints=jtgpu.learn.Constraints(required=[("one", "rain")]),
        )
