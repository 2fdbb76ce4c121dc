"""Errors about cells of files name the line, in every command that reads a table."""

from __future__ import annotations

from pathlib import Path

import pytest

import jtgpu
from jtgpu.columns.files import read_file
from tests.cli import commands

pytest.importorskip("pyarrow")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("learn", "FILE", "--score", "bic-cg"), "cases.csv:7, column 'x': the value is infinite"),
        (("screen", "FILE", "-n", "1", "-k", "2"), "cases.csv:7, column 'x': the value is infinite"),
        (("explore", "FILE", "--no-serve"), "cases.csv:7, column 'x': the value inf is infinite"),
        (("whiten", "FILE", "--order", "1"), "cases.csv:2: 'a"),
        (("fit", "NET", "FILE", "-o", "OUT"), "cases.csv:7, column 'x': the value is infinite"),
        (("validate", "NET", "FILE", "-t", "s"), "cases.csv:7, column 'x': the value inf is infinite"),
        (("validate", "asia", "ASIA", "-t", "lung"), "asia.csv:3, column 'lung': 'maybe' is not a state"),
        (("screen", "ASIA", "--net", "asia", "-n", "1", "-k", "2"), "asia.csv:3, column 'lung': 'maybe' is not"),
    ],
)
def test_lines(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text('s,x\n"a\nb",1\n\nb,2\nb,3\nb,inf\n')  # a cell of two lines, and no cell
    (tmp_path / "asia.csv").write_text("smoke,lung\nyes,no\nno,maybe\n")
    net = jtgpu.MixedNetwork(
        {"s": ["a\nb", "b"], "x": float}, {"x": ["s"]}, {"s": [0.5, 0.5], "x": jtgpu.Gaussian([0.0, 1.0])}
    )
    jtgpu.write(net, tmp_path / "net.mixed.json")
    files = {"FILE": "cases.csv", "ASIA": "asia.csv", "NET": "net.mixed.json", "OUT": "out.mixed.json"}
    done = commands.run(*(str(tmp_path / files[w]) if w in files else w for w in words))
    assert done.exit_code == 2, done.output
    assert message in done.stderr


def test_an_empty_line_of_one_column_is_a_missing_cell(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    path.write_text("x\n1\n2\n\n4\n")
    assert read_file(path).to_pydict() == {"x": [1, 2, None, 4]}
    done = commands.run("whiten", str(path), "--order", "1")
    assert "series.csv:4: the value is missing" in done.stderr
    path.write_text("x,y\n1,2\n\n2,3\n")
    assert read_file(path).num_rows == 2


def test_folders_of_cases(tmp_path: Path) -> None:
    folder = tmp_path / "cases"
    folder.mkdir()
    for i, rows in enumerate(("no,no\nyes,yes\n" * 9, "no,no\n" * 9)):
        (folder / f"{i}.csv").write_text("lung,xray\n" + rows)
    out = str(tmp_path / "out.csv")
    done = commands.run("batch", "asia", str(folder), "-o", out)
    assert (done.exit_code, f"{folder} is a folder: name one file" in " ".join(done.stderr.split())) == (2, True)
    assert "27 cases" in commands.run("learn", str(folder)).stderr
    (folder / "2.csv").write_text("lung,xray\nno,no\nno,maybe\n")
    done = commands.run("validate", "asia", str(folder), "-t", "lung")
    assert f"{folder}/2.csv:3, column 'xray': 'maybe' is not a state" in " ".join(done.stderr.split())
