"""Files and rows that cannot be read are rejected or flagged."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.columns import csv_file
from tests.cases.asia_files import N, answers, assert_same, csv_text, parquet, rows_done, run
from tests.support.examples import slow

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (b"", jtgpu.ParseError, "empty"),
        (b"\n\n", jtgpu.ParseError, "empty"),
        (b"id,xray\n1,yes\n2\n", jtgpu.ParseError, r"c\.csv:3:1: 1 cell in a row of 2 columns"),
        (b"id,xray\n1,yes\n\n2,no,3\n", jtgpu.ParseError, r"c\.csv:4:1: 3 cells"),
        (b"id,xray\n1,yes\n2,jes\n", jtgpu.UnknownState, r"c\.csv:3: column 'xray': 'jes'.*'yes'"),
        (b'id,xray\n"a\nb",yes\n2,jes\n', jtgpu.UnknownState, r"c\.csv:4: column 'xray'"),
        (b"id,xray\n1,\xff\n", jtgpu.ParseError, r"c\.csv:2:1: byte 0xff is not UTF-8"),
        (b"id,xrai\n1,yes\n", jtgpu.UnknownVariable, "no column of"),
        (b"xray,xray\nno,yes\n", jtgpu.EvidenceError, "2 columns named 'xray'"),
        (b"id,XRay\n1,yes\n", jtgpu.UnknownVariable, "'XRay'|no column"),
        (b"id,xray,Smoke\n1,yes,no\n", jtgpu.UnknownVariable, "'Smoke'"),
        (b"either,tub,id\nyes,yes,1\n\nno,yes,2\n", jtgpu.ImpossibleEvidence, r"c\.csv:4: .*tub = 'yes'"),
        ("id,xray\n1,yes\n".encode("utf-16"), jtgpu.ParseError, "UTF-16"),
        (b"\x00\x01\x02\x00", jtgpu.ParseError, "not text"),
        (gzip.compress(b"id,xray\n1,yes\n" * 9, mtime=0)[:30], jtgpu.ParseError, "decompressed"),
        (b"PAR1 and then no Parquet PAR1", jtgpu.ParseError, "Parquet"),
        (b"ARROW1\0\0", jtgpu.FormatError, "Arrow"),
    ],
)
def test_invalid_files_are_rejected(
    tree: jtgpu.JunctionTree, tmp_path: Path, text: bytes, error: type, said: str
) -> None:
    (tmp_path / "c.csv").write_bytes(text)
    with pytest.raises(error, match=said):
        run(tree, tmp_path / "c.csv", tmp_path / "o.csv", keep=())
    assert not (tmp_path / "o.csv").exists()


LARGE = {
    "cell": (b"id,xray\n1,yes\n2," + b"y" * 20_000_000 + b"\n", jtgpu.UnknownState, r"c\.csv:3: column 'xray': 'yyy"),
    "quoted cell": (b'id,xray\n1,"' + b"y" * 20_000_000 + b'"\n', jtgpu.UnknownState, r"c\.csv:2: column 'xray'"),
    "row": (b"id,xray\n1,yes\n2," + b"y" * (70 << 20), jtgpu.ParseError, r"c\.csv:3:1: a row is longer than 64 MiB"),
    "header": (b"x" * 2_000_000 + b",y\n1,yes\n", jtgpu.UnknownVariable, r"c\.csv"),
    "blank header": (b" " * (130 << 20), jtgpu.ParseError, r"c\.csv:1:1: the first row is longer than 64 MiB"),
    "open quote": (b'id,xray\n1,"' + b"yes,no\n" * 2_000_000, jtgpu.JtgpuError, r"c\.csv:2"),
    "columns": (
        b",".join(b"column %d" % i for i in range(100_000)) + b"\n" + b",".join([b"1"] * 100_000) + b"\n",
        jtgpu.UnknownVariable, r"c\.csv",
    ),
    "quoted columns": (
        b",".join(b'"column ""%d"""' % i for i in range(100_000)) + b"\n" + b",".join([b"1"] * 100_000) + b"\n",
        jtgpu.UnknownVariable, r"c\.csv",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("packed", [False, *slow(True)], ids=["plain", "gzip"])
def test_large_cells_and_rows(tree: jtgpu.JunctionTree, tmp_path: Path, name: str, packed: bool) -> None:
    """Errors that name the file, in a short message."""
    text, error, said = LARGE[name]
    (tmp_path / "c.csv").write_bytes(gzip.compress(text, 1) if packed else text)
    with pytest.raises(error, match=said) as caught:
        run(tree, tmp_path / "c.csv", tmp_path / "o.csv", keep=())
    assert len(str(caught.value)) < 1500


def test_files_of_many_columns_and_large_cells_are_read(tree: jtgpu.JunctionTree, tmp_path: Path) -> None:
    names = b",".join(b'"column ""%d"""' % i for i in range(100_000))
    (tmp_path / "c.csv").write_bytes(names + b",xray,id\n" + b"," * 100_000 + b"yes," + b"y" * 3_000_000 + b"\n")
    assert run(tree, tmp_path / "c.csv", tmp_path / "o.csv", keep=['column "7"', "id"]).cases == 1
    assert (tmp_path / "o.csv").read_bytes().count(b"y" * 3_000_000) == 1


@pytest.mark.parametrize("quote", ['"', "'"])
def test_headers_are_split_as_the_module_csv_does(quote: str) -> None:
    rows = [
        "a,b", "a", "", ",", "a,", ",a", '"a"', '"a,b",c', '"a""b",c', '"a"b,c', 'a"b,c', '"a', '"a""',
        '""', '"",""', '"""",a',
        '"a\nb",c', "'a,b',c", "'a''b'", '"a" ,b', ' "a,b"',
    ]  # fmt: skip
    for row in rows:
        if "\n" in row and quote == "'":
            continue  # the end of the row
        expected = next(csv.reader([row], quotechar=quote), [""])
        assert csv_file._split_row(row, ",", quote) == (expected or [""]), row


def test_impossible_inputs_and_outputs_are_rejected(tree: jtgpu.JunctionTree, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="absent"):
        run(tree, tmp_path / "absent.csv", tmp_path / "o.csv")
    (tmp_path / "c.csv").write_bytes(b"id,xray\n1,yes\n")
    with pytest.raises(jtgpu.FormatError, match="parquet"):
        run(tree, tmp_path / "c.csv", tmp_path / "o.xlsx")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(jtgpu.JtgpuError, match="folder"):
        run(tree, tmp_path / "c.csv", tmp_path / "d.csv", force=True)
    with pytest.raises(ValueError, match="chunk"):
        run(tree, tmp_path / "c.csv", tmp_path / "o.csv", chunk=0)
    with pytest.raises(jtgpu.EvidenceError, match="two columns"):
        run(
            tree,
            tmp_path / "c.csv",
            tmp_path / "o.csv",
            keep="xray",
            targets="xray",
            evidence_columns="xray",
            labels=True,
        )


@pytest.mark.parametrize("name", ["o.parquet", "o.csv"])
def test_invalid_rows_are_flagged_and_the_others_answered(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(csv_file, "MIN_BLOCK", 700)
    wrong = [list(r) for r in rows]
    wrong[40][1], wrong[41], wrong[300], wrong[499][4] = "jes", ["r41", "yes"], ["r300", *"abcdef"], "nope"
    (tmp_path / "c.csv").write_bytes(csv_text(wrong))
    report = run(tree, tmp_path / "c.csv", tmp_path / name, on_error="flag", chunk=50)
    assert (report.cases, report.flagged) == (N, 4)
    found = answers(tmp_path / name)
    bad = [40, 41, 300, 499]
    assert [i for i, e in enumerate(found["error"]) if e] == bad
    assert found["error"][41] == "2 cells in a row of 5 columns"
    assert "did you mean 'yes'" in found["error"][40]
    assert all(v is None or np.isnan(v) for i in bad for v in (found["lung=yes"][i], found["log_evidence"][i]))
    good = [i for i in range(N) if i not in bad]
    assert_same(
        {k: [found[k][i] for i in good] for k in expected}, {k: [v[i] for i in good] for k, v in expected.items()}
    )


def test_rows_before_a_damaged_page_are_saved(tree: jtgpu.JunctionTree, rows: list[list[str]], tmp_path: Path) -> None:
    cases = parquet(tmp_path / "cases", rows, row_group_size=100)
    at = pq.read_metadata(cases).row_group(3).column(1).dictionary_page_offset
    data = bytearray(cases.read_bytes())
    data[at : at + 20] = b"\xff" * 20
    cases.write_bytes(data)
    for chunk in (30, None):  # None: all of them would be one
        with pytest.raises(jtgpu.ParseError, match=r"cannot be read after row 300: [^\n]+$"):
            run(tree, cases, tmp_path / f"{chunk}.csv", chunk=chunk)
        assert rows_done(tmp_path / f"{chunk}.csv.unfinished") == 300


def test_answers_do_not_replace_the_cases(tree: jtgpu.JunctionTree, rows: list[list[str]], tmp_path: Path) -> None:
    cases = parquet(tmp_path / "c.parquet", rows)
    before = cases.read_bytes()
    (tmp_path / "link.parquet").symlink_to(cases)
    for out in (cases, tmp_path / "link.parquet"):
        with pytest.raises(jtgpu.JtgpuError, match="contains the cases"):
            run(tree, cases, out, force=True)
    assert cases.read_bytes() == before


def test_pipes_and_missing_folders_are_rejected(tree: jtgpu.JunctionTree, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(OSError, match="must be in a regular file"):
        run(tree, tmp_path / "pipe.csv", tmp_path / "o.csv")
    (tmp_path / "c.csv").write_bytes(b"id,xray\n1,yes\n")
    with pytest.raises(jtgpu.JtgpuError, match="does not exist"):
        run(tree, tmp_path / "c.csv", tmp_path / "nowhere" / "o.csv")
