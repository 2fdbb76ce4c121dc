"""CSV files whose first row is a case (T5): a warning, and the option for the names of the columns."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu.columns.files import read_file
from jtgpu.errors import ArgumentError, DataError
from jtgpu.learn.dags.scores.numeric_table import code_table
from jtgpu.options.tables import CsvDialect
from tests.cli.commands import run

pytest.importorskip("pyarrow")

ROWS = ["2,3,x", "3,4,y", "3,3,y", "4,2,x", "2,2,y"] * 8


@pytest.fixture
def headless(tmp_path: Path) -> Path:
    path = tmp_path / "headless.csv"
    path.write_text("\n".join(ROWS) + "\n")
    return path


def test_a_first_row_that_looks_like_a_case_is_a_warning(headless: Path) -> None:
    with pytest.warns(UserWarning, match=r"the first row \(.*2.*3.*x.*\) looks like a case.*--header none"):
        assert read_file(headless).num_rows == 39
    headless.write_text("5.1,3.5,setosa\n4.9,3.0,setosa\n6.3,2.5,virginica\n")
    with pytest.warns(UserWarning, match="looks like a case"):
        read_file(headless)
    headless.write_text("4,4,x\n2,3,y\n")
    with pytest.raises(DataError, match=r"2 columns named '4'.*--header none"):
        read_file(headless)


@pytest.mark.parametrize("text", [
    "age,job,x\n1,a,x\n2,b,y\n", "0,1,2\n0,1,2\n0,0,1\n", "1990,1991\n1990.5,3\n2,1991\n", "a\na\nb\n", "2,3,x\n",
])  # fmt: skip
def test_names_are_no_case(tmp_path: Path, text: str) -> None:
    (tmp_path / "named.csv").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_file(tmp_path / "named.csv")


def test_the_columns_of_such_a_file_get_names(headless: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = read_file(headless, dialect=CsvDialect(header="none"))
        assert (table.column_names, table.num_rows) == (["x0", "x1", "x2"], 40)
        table = read_file(headless, dialect=CsvDialect(header="a, b,c"))
        assert (table.column_names, table["c"][0].as_py()) == (["a", "b", "c"], "x")
    with pytest.raises(ArgumentError, match="has 3 columns, and 'a,b' names 2"):
        read_file(headless, dialect=CsvDialect(header="a,b"))


def test_commands(headless: Path, tmp_path: Path) -> None:
    done = run("learn", str(headless), "--header", "a,b,c", "--json")
    assert done.exit_code == 0, done.output
    assert (json.loads(done.stdout)["cases"], json.loads(done.stdout)["variables"]) == (40, ["a", "b", "c"])
    done = run("explore", str(headless), "--no-serve", "--seconds", "0")
    assert "looks like a case" in done.stderr
    states = {"c": ["x", "y"], "d": ["u", "v"]}
    net = jtgpu.BayesianNetwork(states, {"d": ["c"]}, {"c": [0.5, 0.5], "d": [[0.9, 0.1]] * 2})
    jtgpu.write(net, tmp_path / "net.bif")
    out = tmp_path / "out.csv"
    done = run("batch", str(tmp_path / "net.bif"), str(headless), "-o", str(out), "-t", "d", "--header", "a,b,c")
    assert done.exit_code == 0, done.output
    assert len(out.read_text().splitlines()) == 41
    broken = headless.read_text().replace("4,2,x", "4,2,z", 1)
    headless.write_text(broken)
    done = run("batch", str(tmp_path / "net.bif"), str(headless), "-o", str(out), "-t", "d", "--header", "a,b,c", "-f")
    assert "headless.csv:4: column 'c': 'z' is not a state" in done.stderr


def test_columns_without_names_at_the_end(tmp_path: Path) -> None:
    """As spreadsheets write them."""
    path = tmp_path / "sheet.csv"
    path.write_text("a,b,,\n1,x,,\n2,y,,\n")
    with pytest.raises(DataError, match=r"sheet.csv: 2 columns without names at the end; delete them"):
        jtgpu.learn.structure(path)
    assert read_file(path, dialect=CsvDialect(header="a,b,c,d")).num_rows == 3


def test_the_only_column_has_another_delimiter(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text("a,b\n1,x\n2,y\n")
    with pytest.raises(DataError, match=r"the delimiter seems to be ','"):
        code_table(path, dialect=CsvDialect(delimiter="\t"))
    tree, output = jtgpu.load("asia").compile("cpu"), tmp_path / "answers.csv"
    path.write_text("xray;smoke\nyes;no\n")
    with pytest.raises(jtgpu.UnknownVariable, match=r"the delimiter seems to be ';'"):
        jtgpu.cases.answer_file(tree, path, output, delimiter=",")


@pytest.mark.parametrize("learner", [jtgpu.learn.structure, jtgpu.learn.posterior, jtgpu.learn.score_table])
def test_what_learns_takes_the_options_of_files(headless: Path, learner: Any) -> None:
    read = jtgpu.ReadOptions(header="a,b,c")
    assert learner(headless, read=read).names == ("a", "b", "c")
    assert jtgpu.learn.fit({"b": ["a"]}, headless, read=read).n_rows == len(ROWS)
