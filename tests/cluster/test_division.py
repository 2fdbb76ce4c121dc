"""Tables are divided into parts that hold every row once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.cases import answer_file
from jtgpu.cluster import answer_files
from jtgpu.cluster import parts as parts_module
from jtgpu.cluster.parts import Division, divide
from jtgpu.cluster.tables import find_cases, inspect_files
from jtgpu.errors import ParseError
from jtgpu.options.tables import CsvDialect
from tests.cluster.local_workers import LocalWorkers, read_parts
from tests.support.examples import slow

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("size", [400, *slow(60, 5000)])
@pytest.mark.parametrize("block", [7, *slow(1 << 20)])
def test_a_large_csv_is_divided_between_rows(
    workers: LocalWorkers, tree: jtgpu.JunctionTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int,
    block: int, end: str,
) -> None:  # fmt: skip
    """Cells with commas, quotes and line ends in them, empty lines before the header, no line end at the end."""
    random = np.random.default_rng(size)
    notes = ["plain", '"a, b"', f'"two{end}lines"', '"he said ""yes"""', '""""', f'"{end}{end},"', ""]
    lines = [f"{i},{notes[random.integers(7)]},{['yes', 'no', ''][random.integers(3)]}" for i in range(150)]
    cases = tmp_path / "cases.csv"
    text = "\ufeff" + end + end.join(["id,note,xray", *lines])
    cases.write_bytes(text.encode())
    out = tmp_path / "one.parquet"
    ask: dict[str, Any] = {"targets": "lung", "keep": ["id", "note"], "chunk": 10}
    answer_file(tree, cases, out, **ask)
    monkeypatch.setattr(parts_module, "CSV_BYTES", size)
    monkeypatch.setattr(parts_module, "READ_SIZE", block)
    report = answer_files(tree, cases, tmp_path / "out", **ask)
    assert read_parts(tmp_path / "out").equals(pq.read_table(out))
    assert (report.parts > 1) == (size < 5000)
    assert report.parts <= 1 + len(text) // size
    # the line of a wrong cell is that of the file
    row = 97
    lines[row] = f"{row},x,perhaps"
    text = "\ufeff" + end + end.join(["id,note,xray", *lines])
    cases.write_bytes(text.encode())
    line = 1 + (end + end.join(["id,note,xray", *lines[:row]]) + end).count("\n")
    with pytest.raises(jtgpu.errors.UnknownState, match=rf"cases\.csv:{line}: column 'xray': 'perhaps'"):
        answer_files(tree, cases, tmp_path / "out2", **ask)
    lines[row] = "1,2,3,4,5"
    cases.write_bytes(("\ufeff" + end + end.join(["id,note,xray", *lines])).encode())
    with pytest.raises(ParseError, match=rf"cases\.csv:{line}:.*5 cells in a row of 3 columns"):
        answer_files(tree, cases, tmp_path / "out3", **ask)


def test_a_csv_is_not_divided_after_an_unmatched_quote(
    workers: LocalWorkers, tree: jtgpu.JunctionTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{i},{'yes' if i % 3 else 'no'},{'5 inch' if i != 30 else '5 inch' + chr(34)}" for i in range(60)]
    cases = tmp_path / "cases.csv"
    cases.write_text("\n".join(["id,xray,note", *lines]) + "\n")
    monkeypatch.setattr(parts_module, "CSV_BYTES", 100)
    ask: dict[str, Any] = {"targets": "lung", "keep": "id", "chunk": 10}
    report = answer_files(tree, cases, tmp_path / "out", **ask)
    assert read_parts(tmp_path / "out")["id"].to_pylist() == [str(i) for i in range(60)]
    assert 1 < report.parts < 6


@pytest.mark.parametrize("options", [{}, {"rows": 500}, {"rows": 1}])
def test_parts_hold_every_row_once(cases: Path, plan: Any, options: dict[str, int]) -> None:
    tables = inspect_files(find_cases(cases), plan.model, CsvDialect())
    parts, rows = divide(tables, '"', Division(100, 3, **options))
    assert rows % 100 == 0
    assert [p.number for p in parts] == list(range(len(parts)))
    for t in tables:
        covered = [r for p in parts if p.file == t.file.place.uri for r in range(p.first, p.first + p.rows)]
        assert covered == list(range(t.rows))
    assert divide(tables, '"', Division(100, 3, **options))[0] == parts
