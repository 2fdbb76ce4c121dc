"""Decimal marks, thousands separators and dates: a network that was learned from a file reads this file."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.cases import frame_states
from jtgpu.columns import csv_file
from jtgpu.columns.coded import Encoder
from jtgpu.columns.files import read_file
from jtgpu.options.tables import CsvDialect
from jtgpu.util.cells import POINT, UNDECIDED, moment, numeral
from tests.cli.commands import run

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

WEIGHT = jtgpu.BayesianNetwork(
    {"weight": ["(-inf, 55)", "[55, 62)", "[62, inf)"], "y": ["a", "b"]}, {"y": ["weight"]},
    {"weight": [0.2, 0.3, 0.5], "y": [[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]},
)  # fmt: skip
DAY = jtgpu.BayesianNetwork(
    {"d": ["(-inf, 2024-05-03)", "[2024-05-03, 2024-08-15T12:00:00)", "[2024-08-15T12:00:00, inf)"],
     "on": ["2024-05-03", "2024-08-15"]}, {}, {"d": [0.2, 0.3, 0.5], "on": [0.5, 0.5]},
)  # fmt: skip


def test_numerals_by_the_marks_of_a_file() -> None:
    comma, both = (",", ""), (".", ",")
    for text, marks, number in [
        ("53,0", comma, 53.0), ("53,0", POINT, None), ("53,0", UNDECIDED, 53.0), ("1,200", UNDECIDED, None),
        ("1,200", comma, 1.2), ("1,200", both, 1200.0), ("1,20", both, None), ("1.200", comma, None),
        ("1.200,5", (",", "."), 1200.5), ("12", (",", "."), 12.0), ("1 200", (".", " "), 1200.0),
        ("1,2,3", comma, None),
    ]:  # fmt: skip
        assert numeral(text, marks) == number, (text, marks)
    for options in ({"decimal": ";"}, {"thousands": "x"}, {"thousands": "."}):
        with pytest.raises(jtgpu.ArgumentError, match=next(iter(options))):
            print(CsvDialect(**options).marks)


def test_a_file_with_decimal_commas(tmp_path: Path) -> None:
    net, file = str(tmp_path / "w.net"), tmp_path / "c.csv"
    jtgpu.write(WEIGHT, net)
    file.write_text("weight;y\n53,0;a\n61,5;b\n70;b\n62,125;b\n")
    tree = WEIGHT.compile("cpu")
    jtgpu.cases.answer_file(tree, file, tmp_path / "o.csv", targets="y")
    answers = [float(line.split(",")[0]) for line in (tmp_path / "o.csv").read_text().splitlines()[1:]]
    assert answers == pytest.approx([0.9, 0.5, 0.2, 0.2])
    fitted = jtgpu.learn.fit(WEIGHT, str(file)).counts["weight"]
    assert fitted.tolist() == [1, 1, 2]
    for words in (["validate", net, str(file), "-t", "y"], ["query", net, "-e", "weight=61,5"]):
        assert run(*words).exit_code == 0
    assert "0.5" in run("query", net, "-e", "weight=61,5", "-t", "y", "--digits", "3").output
    assert "may be 1200 or 1.200" in run("query", net, "-e", "weight=1,200").output
    file.write_text("weight;y\n1,200;a\n")
    with pytest.raises(jtgpu.UnknownState, match=r"may be 1200 or 1\.200: thousands=','"):
        jtgpu.cases.answer_file(tree, file, tmp_path / "p.csv")
    jtgpu.cases.answer_file(tree, file, tmp_path / "p.csv", targets="y", thousands=",")
    jtgpu.cases.answer_file(tree, file, tmp_path / "q.csv", targets="y", decimal=",")
    assert [(tmp_path / f).read_text().splitlines()[1][:3] for f in ("p.csv", "q.csv")] == ["0.2", "0.9"]
    out = tmp_path / "r.csv"
    assert run("batch", net, str(file), "-o", str(out), "-t", "y", "--thousands", ",").exit_code == 0
    assert out.read_text() == (tmp_path / "p.csv").read_text()
    assert run("batch", net, str(file), "-o", str(out), "--decimal", ";").exit_code == 2
    assert run("batch", net, str(file), "-o", str(out), "-f", "--thousands", ".").exit_code == 2
    mixed = jtgpu.MixedNetwork(
        {"y": ["a", "b"], "x": float}, {"x": ["y"]}, {"y": [0.5, 0.5], "x": jtgpu.Gaussian([0.0, 9.0])}
    )
    jtgpu.write(mixed, tmp_path / "m.mixed.json")
    assert run("query", str(tmp_path / "m.mixed.json"), "-e", "x=1,5").exit_code == 0


def test_whole_files_by_given_marks(tmp_path: Path) -> None:
    file = tmp_path / "c.csv"
    file.write_text('x,y\n"1,200",a\n"15",b\n')
    assert read_file(file, dialect=CsvDialect(thousands=","))["x"].to_pylist() == [1200, 15]
    assert read_file(file, dialect=CsvDialect(decimal=","))["x"].to_pylist() == [1.2, 15.0]
    file.write_text("x;y\n1.200,5;a\n15;b\n")
    assert read_file(file, dialect=CsvDialect(decimal=",", thousands="."))["x"].to_pylist() == [1200.5, 15.0]
    file.write_text("x;y\n1,200;a\n")
    with pytest.raises(jtgpu.DataError, match="--thousands"):
        read_file(file)


def test_dates_are_states_and_have_intervals(tmp_path: Path) -> None:
    days: list[Any] = ["2024-05-02", "2024-05-03", "2024-08-15 13:00", None]
    moments = [None if d is None else datetime.datetime.fromisoformat(d) for d in days]
    columns: list[Any] = [
        days, moments, np.array(moments, "datetime64[ns]"), np.array(moments, object), pa.array(moments),
        pa.array(moments, pa.timestamp("ns")), pa.array(days),
        [None if m is None else np.datetime64(m) for m in moments],
    ]  # fmt: skip
    for column in columns:
        assert frame_states(DAY, {"d": column})[:, 0].tolist() == [0, 1, 2, -1], column
    dates = [datetime.date(2024, 5, 3), datetime.datetime(2024, 8, 15), "2024-05-03T00:00", None]
    assert frame_states(DAY, {"on": dates})[:, 1].tolist() == [0, 1, 0, -1]
    assert Encoder(DAY, [0]).encode([pa.array([datetime.date(2024, 5, 3)])], 1).codes.tolist() == [[1]]
    tree = DAY.compile("cpu")
    for when in ("2024-06-01", datetime.date(2024, 6, 1), np.datetime64("2024-06-01")):
        assert tree.posterior("d", {"d": when})["[2024-05-03, 2024-08-15T12:00:00)"] == 1.0
    utc = datetime.datetime(2024, 6, 1, tzinfo=datetime.UTC)
    for wrong in (utc, datetime.date(2024, 5, 4), 7, "2024-13-01"):
        with pytest.raises(jtgpu.UnknownState, match="'on'"):
            tree.posterior("d", {"on": wrong})
    with pytest.raises(jtgpu.UnknownState, match="column 'on'"):
        frame_states(DAY, {"on": [datetime.date(2024, 5, 4)]})
    file, rng = tmp_path / "c.csv", np.random.default_rng(1)
    made = np.datetime64("2024-01-01") + rng.integers(0, 300, 60)
    file.write_text("\n".join(["d,y", *(f"{d},{'ab'[int(d > np.datetime64('2024-06-01'))]}" for d in made)]))
    assert run("learn", str(file), "--bins", "3", "-o", str(tmp_path / "d.net")).exit_code == 0
    for words in (
        ["batch", str(tmp_path / "d.net"), str(file), "-t", "y", "-o", str(tmp_path / "o.csv")],
        ["fit", str(tmp_path / "d.net"), str(file), "-o", str(tmp_path / "f.net")],
        ["validate", str(tmp_path / "d.net"), str(file), "-t", "y"],
        ["query", str(tmp_path / "d.net"), "-e", "d=2024-06-01"],
    ):  # fmt: skip
        found = run(*words)
        assert found.exit_code == 0, found.output


def test_thousands_merge_no_codes(tmp_path: Path) -> None:
    path = tmp_path / "z.csv"
    path.write_text("code;long;x;y\n" + "01;99999999999999999999;1,200;a\n1;99999999999999999998;900;b\n" * 9)
    table = read_file(path, dialect=CsvDialect(thousands=","))
    assert [table[v].to_pylist()[:2] for v in ("code", "long", "x")] == [
        ["01", "1"], ["99999999999999999999", "99999999999999999998"], [1200, 900]
    ]  # fmt: skip


def test_a_cell_that_the_sample_cuts_decides_nothing(tmp_path: Path) -> None:
    path, row = tmp_path / "cut.csv", "1,200;low\n"
    begin = "v;w\n"
    pad = (csv_file.MARKED - 4) % len(row)  # the sample ends inside a numeral
    path.write_text(begin + "9" * pad + ";low\n" + row * (csv_file.MARKED // len(row) + 9))
    assert csv_file.CsvFile(path, WEIGHT, CsvDialect(delimiter=";"), False).marks == UNDECIDED


def test_validation_reads_the_thousands_that_learning_reads(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text("x,y\n" + '"1,200",a\n900,b\n"2,500",a\n800,b\n' * 20)
    options = ("--thousands", ",")
    assert run("learn", str(path), *options, "--bins", "2", "-o", str(tmp_path / "q.net")).exit_code == 0
    assert run("validate", str(tmp_path / "q.net"), str(path), "-t", "y", *options).exit_code == 0


def test_times_of_any_precision_are_moments() -> None:
    hour = np.datetime64("2024-01-10T10:00", "us").astype(int)
    assert moment("2024-01-10 10") == moment("2024-01-10 10:00") == hour
    assert moment(f"2024-01-10 10:00:00.{123456789}") == hour + 123456
    assert moment("2024-01-10 10:") is None
