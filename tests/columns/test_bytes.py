"""Any bytes after a header: the rows of a tokenizer that reads one character at a time, or an error with its line."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from tests.columns.verbs import Known, known
from tests.support.examples import examples

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

PIECES = ["x", "y", "z", '"', '"', '""', ",", ",", "\n", "\r\n", "\r", " ", "\t", ";", "'", "ü", "NA"]
STATES = ("x", "y", "z")


def tokens(text: str) -> list[list[str]] | None:
    """The rows of a CSV text, without empty lines; None if a quote is not closed."""
    rows: list[list[str]] = []
    row: list[str] = []
    cell, place = "", "start"  # of the cell: its start, in quotes, or after them
    text += "\n"
    at = 0
    while at < len(text):
        c = text[at]
        if place == "quotes":
            if text[at : at + 2] == '""':
                cell, at = cell + c, at + 1
            elif c == '"':
                place = "after"
            else:
                cell += c
        elif c in "\r\n":
            if row or cell or place == "after":
                rows.append([*row, cell])
            row, cell, place = [], "", "start"
        elif c == ",":
            row, cell, place = [*row, cell], "", "start"
        elif c == '"' and place == "start":
            place = "quotes"
        else:
            cell, place = cell + c, "after"
        at += 1
    return None if place == "quotes" else rows


def answered(net: Known, path: Path, folder: Path) -> list[dict[str, str]]:
    output = folder / "answers.csv"
    jtgpu.cases.answer_file(net.tree, path, output, targets="y", keep=["k"], on_error="flag", force=True)
    with output.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


@examples(300)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_rows_of_any_text(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    path = folder / "c.csv"
    path.write_bytes(f"x,k\n{text}".encode())
    net, rows = known(STATES), tokens(text)
    if rows is None:
        with pytest.raises(jtgpu.ParseError, match=r"c\.csv:\d+:1: a quote is not closed"):
            answered(net, path, folder)
        return
    found = answered(net, path, folder)
    assert len(found) == len(rows)
    for row, answer in zip(rows, found, strict=True):
        cell, *kept = row
        state = cell.strip()
        if len(row) != 2:
            n = len(row)
            assert answer["error"] == f"{n} cell{'s' * (n != 1)} in a row of 2 columns"
        elif state in STATES or state in ("", "NA"):
            assert answer["error"] == ""
            assert net.by_up(float(answer["y=u"])) == (state if state in STATES else None)
        else:
            assert "is not a state" in answer["error"]
        if len(row) == 2:
            assert answer["k"] == kept[0]


def test_an_open_quote_takes_no_rows_in_silence(tmp_path: Path) -> None:
    """The rows after it would be one cell, of a column that may be ignored."""
    lines = [f"{i},{'x' if i % 3 else 'y'},note" for i in range(60)]
    lines[40] = '40,x,"5 pipe'
    path = tmp_path / "c.csv"
    path.write_text("\n".join(["k,x,note", *lines]) + "\n")
    asks: list[Callable[[], Any]] = [
        lambda: answered(known(STATES), path, tmp_path),
        lambda: jtgpu.learn.fit(known(STATES).net, path, hidden=["y"]),
        lambda: jtgpu.learn.fit({"x": []}, path),
        lambda: jtgpu.learn.structure(path),
        lambda: jtgpu.learn.validate(known(STATES).tree, path, "x"),
    ]
    for ask in asks:
        with pytest.raises(jtgpu.ParseError, match="a quote is not closed"):
            ask()
