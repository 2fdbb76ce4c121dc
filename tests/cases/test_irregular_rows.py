"""Rows of other widths and quotes within cells: no row is lost, and every error has its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import jtgpu
from tests.cli.commands import run

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

NET = jtgpu.BayesianNetwork(
    {"smoke": ["yes", "no"], "lung": ["yes", "no"]}, {"lung": ["smoke"]},
    {"smoke": [0.5, 0.5], "lung": [[0.9, 0.1], [0.2, 0.8]]},
)  # fmt: skip


def rows_of(tmp_path: Path, text: str, *words: str) -> Any:
    (tmp_path / "r.csv").write_bytes(text.encode())
    jtgpu.write(NET, tmp_path / "s.net")
    result = run(
        "batch", str(tmp_path / "s.net"), str(tmp_path / "r.csv"), "-t", "lung", "-o", str(tmp_path / "o.csv"),
        "--on-error", "flag", "--force", *words,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return (tmp_path / "o.csv").read_text().splitlines()[1:]


def test_quotes_within_cells_and_short_rows(tmp_path: Path) -> None:
    text = 'id,smoke,note\n1,yes,5" pipe\n2,no,6" pipe\n3,no\n4,yes,x\n5,no,y\n'
    found = rows_of(tmp_path, text, "--keep", "id")
    assert len(found) == 5
    assert "2 cells in a row of 3 columns" in found[2]
    assert [row.split(",")[0] for row in found if "cells" not in row] == ['"1"', '"2"', '"4"', '"5"']


def test_no_row_is_lost_between_chunks(tmp_path: Path) -> None:
    n, short = 3001, {100, 1500, 2999}
    cells = ['"a\nb"', '5" pipe', "x", '"say ""no"""', '"', 'y"z']
    lines = [f"{i},no" if i in short else f"{i},{'yes' if i % 2 else 'no'},{cells[i % 6]}" for i in range(n)]
    lines = [line for line in lines if not line.endswith(',"')]  # an open quote would take the rest of the file
    found = rows_of(tmp_path, "\n".join(["id,smoke,note", *lines]) + "\n", "--chunk", "100", "--keep", "id")
    assert len(found) == len(lines)
    good = [line.split(",")[0] for line in lines if line.count(",") > 1]
    assert [row.split(",")[0].strip('"') for row in found if "cells" not in row] == good


@pytest.mark.parametrize(
    "text", ['smoke,note\nyes,5"\nno\n', "smoke,lung\nyes,no\rno\n", '"smoke";"lung"\n""""""s";"\n"']
)
@pytest.mark.parametrize("command", ["batch", "learn", "fit", "validate"])
def test_broken_files_are_errors_with_a_place(text: str, command: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes(text.encode())
    jtgpu.write(NET, tmp_path / "s.net")
    net, csv = str(tmp_path / "s.net"), str(tmp_path / "r.csv")
    words = {
        "batch": ["batch", net, csv, "-t", "lung", "-o", str(tmp_path / "o.csv")],
        "learn": ["learn", csv],
        "fit": ["fit", net, csv, "-o", str(tmp_path / "f.net")],
        "validate": ["validate", net, csv, "-t", "lung"],
    }
    result = run(*words[command])
    assert result.exit_code in (2, 5), result.output
    assert "error: " in result.stderr
