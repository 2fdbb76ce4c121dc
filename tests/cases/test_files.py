"""Files of cases: dialects, rows that are wrong, runs that are stopped at any moment, and the command `jtgpu batch`."""

from __future__ import annotations

import base64
import bz2
import contextlib
import csv
import errno
import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import jtgpu
from jtgpu.cases import Report, answer_file
from jtgpu.cases.fingerprint import file_fingerprint
from jtgpu.cases.reading import csv_file as csv_module
from jtgpu.cases.reading import open_cases
from jtgpu.cases.writing import resumable as output_module
from jtgpu.cases.writing.parquet_footer import MAGIC, body_and_footer, join_footers, shifted_row_groups
from jtgpu.cli import app
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT
from tests.support.examples import examples, slow

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

ASIA = str(ROOT / "nets" / "asia.net")
N = 500


@pytest.fixture(scope="module")
def asia() -> BayesianNetwork:
    net = jtgpu.read(ASIA)
    assert isinstance(net, BayesianNetwork)
    return net


@pytest.fixture(scope="module")
def tree(asia: BayesianNetwork) -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = asia.compile(backend="reference")
    return made


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    """Cases as text: an id, and four variables of which some are empty."""
    random = np.random.default_rng(11)
    kinds = np.array(["yes", "no", ""])
    cells = kinds[random.choice(3, (N, 4), p=[0.4, 0.4, 0.2])]
    return [[f"r{i}", *row] for i, row in enumerate(cells.tolist())]


NAMES = ["id", "smoke", "xray", "dysp", "asia"]


def csv_text(rows: list[list[str]], delimiter: str = ",", end: str = "\n", quoting: int = csv.QUOTE_MINIMAL) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting)  # type: ignore[arg-type]
    writer.writerows([NAMES, *rows])
    return out.getvalue().encode()


def parquet(path: Path, rows: list[list[str]], **options: Any) -> Path:
    columns = list(zip(*rows, strict=True)) or [()] * len(NAMES)
    arrays = [pa.array([c or None for c in column], pa.string()) for column in columns]
    pq.write_table(pa.table(arrays, names=NAMES), path, **options)
    return path


def answers(path: Path) -> dict[str, list[Any]]:
    """What a file of answers holds, by column."""
    if path.suffix == ".parquet":
        return dict(pq.read_table(path).to_pydict())
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    elif path.suffix == ".zst":
        data = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    delimiter = "\t" if ".tsv" in path.name else ","
    names, *body = csv.reader(io.StringIO(data.decode()), delimiter=delimiter)
    assert all(len(r) == len(names) for r in body)
    text = ("id", "error", "lung")
    return {n: [r[i] if n in text else float(r[i] or "nan") for r in body] for i, n in enumerate(names)}


@pytest.fixture(scope="module")
def expected(tree: jtgpu.JunctionTree, rows: list[list[str]]) -> dict[str, list[Any]]:
    """The answers of `rows`, each different case by `posteriors`."""
    found: dict[tuple[str, ...], Any] = {}
    for _, *case in rows:
        if tuple(case) not in found:
            post = tree.posteriors({v: s for v, s in zip(NAMES[1:], case, strict=True) if s})
            found[tuple(case)] = post["lung"]["yes"], post["lung"]["no"], post.log_evidence
    answer = [found[tuple(case)] for _, *case in rows]
    return {
        "id": [r[0] for r in rows],
        "lung=yes": [a[0] for a in answer],
        "lung=no": [a[1] for a in answer],
        "log_evidence": [a[2] for a in answer],
    }


def run(tree: jtgpu.JunctionTree, cases: Path, output: Path, **options: Any) -> Report:
    return answer_file(tree, cases, output, **{"targets": "lung", "keep": "id", "log_evidence": True, **options})


def assert_same(found: dict[str, list[Any]], expected: dict[str, list[Any]]) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        if name == "id":
            assert found[name] == values
        else:
            np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-12)


def only(folder: Path, *names: str) -> None:
    assert sorted(p.name for p in folder.iterdir()) == sorted(names)


# What is read ---------------------------------------------------------------------------------------------------

DIALECTS: dict[str, tuple[Callable[[list[list[str]]], bytes], dict[str, Any]]] = {
    "plain": (csv_text, {}),
    "semicolon": (lambda r: csv_text(r, ";"), {}),
    "tab": (lambda r: csv_text(r, "\t"), {}),
    "bar": (lambda r: csv_text(r, "|"), {}),
    "given": (lambda r: csv_text(r, "!"), {"delimiter": "!"}),
    "windows": (lambda r: csv_text(r, end="\r\n"), {}),
    "old mac": (lambda r: csv_text(r, end="\r"), {}),
    "all quoted": (lambda r: csv_text(r, quoting=csv.QUOTE_ALL), {}),
    "byte order mark": (lambda r: b"\xef\xbb\xbf" + csv_text(r), {}),
    "mark and quotes": (lambda r: b"\xef\xbb\xbf" + csv_text(r, quoting=csv.QUOTE_ALL, end="\r\n"), {}),
    "no end": (lambda r: csv_text(r).rstrip(b"\n"), {}),
    "empty lines": (lambda r: b"\n\n" + csv_text(r).replace(b"\nr7,", b"\n\n\nr7,") + b"\n\n", {}),
    "spaces": (lambda r: csv_text(r).replace(b"yes", b" yes ").replace(b"id,smoke", b"id, smoke "), {}),
    "gzip": (lambda r: gzip.compress(csv_text(r)), {}),
    "gzip in parts": (lambda r: gzip.compress(csv_text(r[:9])) + gzip.compress(csv_text(r[9:]).split(b"\n", 1)[1]), {}),
    "zstd": (lambda r: bytes(pa.compress(csv_text(r), "zstd", asbytes=True)), {}),
    "bzip2": (lambda r: bz2.compress(csv_text(r)), {}),
    "words": (lambda r: csv_text([[c or ("NA", "?", "NaN")[i % 3] for c in x] for i, x in enumerate(r)]), {}),
    "own words": (lambda r: csv_text([[c or "-9" for c in x] for x in r]), {"missing": ["-9"]}),
    "latin-1": (
        lambda r: csv_text(r).replace(b"id,", b"id,\xe4,").replace(b"\nr", b"\nr\xdf,r"), {"encoding": "latin-1"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("chunk", [7, *slow(None, 10**9)])
def test_dialects(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, dialect: str,
    chunk: int | None, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    make, options = DIALECTS[dialect]
    if chunk == 7:  # many blocks, cut at any byte
        monkeypatch.setattr(csv_module, "MIN_BLOCK", 160)
    (tmp_path / "cases.csv").write_bytes(make(rows))
    keep = {"keep": ()} if dialect == "latin-1" else {}
    report = run(tree, tmp_path / "cases.csv", tmp_path / "out.parquet", chunk=chunk, **options, **keep)
    found = answers(tmp_path / "out.parquet")
    assert_same(found, {k: v for k, v in expected.items() if k != "id" or not keep})
    assert (report.cases, report.flagged, report.resumed) == (N, 0, 0)
    only(tmp_path, "cases.csv", "out.parquet")


@pytest.mark.parametrize("size", [50, 100, 1 << 20])
def test_parquet(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, size: int
) -> None:
    for chunk in (None, 1, 30, 333, 10**9):
        cases = parquet(tmp_path / "cases", rows, row_group_size=size)
        run(tree, cases, tmp_path / "out.parquet", chunk=chunk, force=True)
        assert_same(answers(tmp_path / "out.parquet"), expected)


@pytest.mark.parametrize("name", ["o.parquet", "o.csv", "o.tsv", "o.csv.gz", "o.csv.zst", "o.tsv.gz"])
@pytest.mark.parametrize("n", [0, 1, N])
def test_every_output(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, name: str, n: int
) -> None:
    (tmp_path / "cases.csv").write_bytes(csv_text(rows[:n]))
    run(tree, tmp_path / "cases.csv", tmp_path / name, chunk=100)
    found = answers(tmp_path / name)
    assert_same(found, {k: v[:n] for k, v in expected.items()})
    run(tree, parquet(tmp_path / "cases", rows[:n]), tmp_path / name, chunk=100, force=True)
    assert answers(tmp_path / name) == found


def test_compressed_parquet_and_other_libraries(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    (tmp_path / "cases.csv").write_bytes(csv_text(rows))
    out = tmp_path / "out.parquet"
    for compression in ("zstd", "gzip", "lz4", "none"):
        run(
            tree,
            tmp_path / "cases.csv",
            out,
            chunk=50,
            compression=compression,
            labels=True,
            on_error="flag",
            force=True,
        )
        table = pq.read_table(out)
        assert [str(f.type) for f in table.schema] == ["string", "string", "double", "string"]
        polars = pytest.importorskip("polars", reason="Polars is not installed")
        assert polars.read_parquet(out)["log_evidence"].to_list() == table["log_evidence"].to_pylist()
        assert polars.scan_parquet(out).filter(polars.col("id") == "r77").collect()["id"].to_list() == ["r77"]
        np.testing.assert_allclose(table["log_evidence"].to_numpy(), expected["log_evidence"], atol=1e-12)


def test_a_column_alone(tree: jtgpu.JunctionTree, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_bytes(b"xray\nyes\n\nno\n\n")
    run(tree, tmp_path / "c.csv", tmp_path / "o.csv", keep=())  # an empty line is an empty cell
    p = [tree.posterior("lung", e)["yes"] for e in ({"xray": "yes"}, {}, {"xray": "no"}, {})]
    np.testing.assert_allclose(answers(tmp_path / "o.csv")["lung=yes"], p, atol=1e-12)


def test_cells_with_line_ends_and_delimiters(tree: jtgpu.JunctionTree, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(csv_module, "MIN_BLOCK", 64)
    texts = ["a\nb", 'c,"d"', "", 'e\r\n"', '5" pipe', "x" * 300, '"', ",", "\n\n\n"] * 5
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([["note", "xray"], *([t, ("yes", "no")[i % 2]] for i, t in enumerate(texts))])
    (tmp_path / "c.csv").write_text(out.getvalue(), newline="")
    run(tree, tmp_path / "c.csv", tmp_path / "o.parquet", keep="note", chunk=1)
    table = pq.read_table(tmp_path / "o.parquet")
    assert [t or "" for t in table["note"].to_pylist()] == texts
    yes, no = (tree.posterior("lung", {"xray": s})["yes"] for s in ("yes", "no"))
    np.testing.assert_allclose(table["lung=yes"].to_numpy(), [(yes, no)[i % 2] for i in range(len(texts))], atol=1e-12)


def test_quotes_amidst_cells(tree: jtgpu.JunctionTree, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(csv_module, "MIN_BLOCK", 64)
    lines = [f'5" pipe {i},yes\n' for i in range(50)]
    (tmp_path / "c.csv").write_text("note,xray\n" + "".join(lines))
    for quote in ('"', ""):
        run(tree, tmp_path / "c.csv", tmp_path / "o.parquet", keep="note", quote=quote, force=True)
        assert pq.read_table(tmp_path / "o.parquet")["note"].to_pylist() == [x.split(",")[0] for x in lines]


@given(st.data())
@examples(40)
def test_any_cells_come_back(tree: jtgpu.JunctionTree, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    cell = st.text(st.sampled_from('ab,;"\n\r\t \xe9'), max_size=6)
    texts = data.draw(st.lists(cell, max_size=30))
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    block = data.draw(st.sampled_from([8, 30, 1 << 16]))
    folder = tmp_path_factory.mktemp("any")
    out = io.StringIO()
    writer = csv.writer(
        out, lineterminator=end, quoting=data.draw(st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]))
    )
    writer.writerows([["note", "xray"], *([t, "yes"] for t in texts)])
    (folder / "c.csv").write_text(out.getvalue(), newline="", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_module, "MIN_BLOCK", block)
        run(tree, folder / "c.csv", folder / "o.parquet", keep="note", chunk=1)
    assert [t or "" for t in pq.read_table(folder / "o.parquet")["note"].to_pylist()] == texts


# What is refused ------------------------------------------------------------------------------------------------


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
def test_what_is_refused(tree: jtgpu.JunctionTree, tmp_path: Path, text: bytes, error: type, said: str) -> None:
    (tmp_path / "c.csv").write_bytes(text)
    with pytest.raises(error, match=said):
        run(tree, tmp_path / "c.csv", tmp_path / "o.csv", keep=())
    assert not (tmp_path / "o.csv").exists()


def test_files_that_cannot_be(tree: jtgpu.JunctionTree, tmp_path: Path) -> None:
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
def test_wrong_rows_are_flagged_and_the_others_answered(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(csv_module, "MIN_BLOCK", 700)
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


# Runs that stop -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["plain", "gzip", "parquet"])
@pytest.mark.parametrize("name", ["o.parquet", "o.csv", "o.csv.gz"])
def test_a_bad_row_in_the_middle_loses_nothing(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, source: str,
    name: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(csv_module, "MIN_BLOCK", 300)
    cases, out = tmp_path / "cases", tmp_path / name

    def write(r: list[list[str]]) -> None:
        if source == "parquet":
            parquet(cases, r, row_group_size=64)
        else:
            cases.write_bytes(gzip.compress(csv_text(r), mtime=0) if source == "gzip" else csv_text(r))
        os.utime(cases, (1e9, 1e9))  # as if it had never been touched

    wrong = [list(r) for r in rows]
    wrong[321][2] = "ja"
    write(wrong)
    with pytest.raises(jtgpu.UnknownState, match=r"row 322: column|cases:323: column"):
        run(tree, cases, out, chunk=20)
    assert not out.exists()
    with pytest.raises(jtgpu.JtgpuError, match="pass --resume to continue"):
        run(tree, cases, out, chunk=20)
    # mended; the size and what is hashed of the file differ, which is another file to the journal
    write(rows)
    with pytest.raises(jtgpu.JtgpuError, match=r"different (size|digest)"):
        run(tree, cases, out, chunk=20, resume=True)
    journal = tmp_path / f"{name}.unfinished" / "journal.jsonl"
    first, *rest = journal.read_text().splitlines()
    head = json.loads(first)
    head["identity"]["cases"] = file_fingerprint(cases)
    journal.write_text("\n".join([json.dumps(head), *rest]) + "\n")
    report = run(tree, cases, out, chunk=20, resume=True)
    assert 250 < report.resumed < 322
    assert report.cases == N
    assert_same(answers(out), expected)
    only(tmp_path, "cases", name)


@pytest.mark.parametrize("stop", ["read", "solve", "write"])
@pytest.mark.parametrize("name", ["o.parquet", "o.tsv"])
def test_interrupted_anywhere_and_resumed(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, stop: str,
    name: str,
) -> None:  # fmt: skip
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / name
    resumed = -1
    for after in (0, 1, 3, 7):
        with pytest.MonkeyPatch.context() as patch:
            place = {
                "read": ("jtgpu.cases.encoder.Encoder.encode"), "solve": "jtgpu.cases.solver.Solver.solve",
                "write": "jtgpu.cases.writing.resumable.ResumableFile.append",
            }[stop]  # fmt: skip
            module, kind, method = place.rsplit(".", 2)
            owner = getattr(sys.modules[module], kind)
            original, count = getattr(owner, method), [0]

            def failing(*given: Any, original: Any = original, count: list[int] = count, after: int = after) -> Any:
                count[0] += 1
                if count[0] > after:
                    raise KeyboardInterrupt
                return original(*given)

            patch.setattr(owner, method, failing)
            with pytest.raises(KeyboardInterrupt):
                run(tree, cases, out, chunk=20, resume=True)
        assert not out.exists()
        done = rows_done(tmp_path / f"{name}.unfinished")
        assert done >= max(resumed, 0)
        resumed = done
    report = run(tree, cases, out, chunk=20, resume=True)
    assert report.resumed == resumed >= 20 * (0 + 1 + 3 + 7 - 3)
    assert_same(answers(out), expected)
    only(tmp_path, "cases", name)


def rows_done(folder: Path) -> int:
    journal = folder / "journal.jsonl"  # what has done nothing leaves nothing
    return int(json.loads(journal.read_text().splitlines()[-1]).get("rows", 0)) if journal.exists() else 0


@pytest.mark.parametrize("name", ["o.parquet", "o.csv"])
def test_a_full_disk(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / name
    original = output_module.ResumableFile._open

    class Full:
        """A file on a disk with room for so many bytes."""

        def __init__(self, file: Any, room: int):
            self.file, self.room = file, room

        def write(self, data: Any) -> int:
            if len(data) > self.room:
                self.file.write(bytes(data)[: self.room])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.room -= len(data)
            return int(self.file.write(data))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    def opened(self: Any, resume: bool) -> None:
        original(self, resume)
        self._data = Full(self._data, 9000)

    with monkeypatch.context() as patch:
        patch.setattr(output_module.ResumableFile, "_open", opened)
        with pytest.raises(jtgpu.JtgpuError, match=r"no space left.*cases are saved.*--resume"):
            run(tree, cases, out, chunk=20)
    assert not out.exists()
    folder = tmp_path / f"{name}.unfinished"
    done = rows_done(folder)
    assert 0 < done < N
    assert (folder / "data").stat().st_size <= 9004
    report = run(tree, cases, out, chunk=20, resume=True)
    assert report.resumed == done
    assert_same(answers(out), expected)


@pytest.mark.parametrize("damage", ["torn line", "lost data", "no data", "more data", "finished but for the name"])
def test_what_a_crash_leaves(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, damage: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / "o.parquet"
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(tree, cases, out, chunk=20)
    folder = tmp_path / "o.parquet.unfinished"
    data, journal = folder / "data", folder / "journal.jsonl"
    if damage == "torn line":
        journal.write_bytes(journal.read_bytes()[:-30])
    elif damage == "lost data":
        data.write_bytes(data.read_bytes()[:5000])
    elif damage == "no data":
        data.unlink()
    elif damage == "more data":
        data.write_bytes(data.read_bytes() + b"half a chunk")
    report = run(tree, cases, out, chunk=33, resume=True)
    low, high = {"torn line": (1, N - 1), "lost data": (1, N - 1), "no data": (0, 0)}.get(damage, (N, N))
    assert low <= report.resumed <= high
    assert_same(answers(out), expected)
    only(tmp_path, "cases", "o.parquet")


def test_only_one_run_writes(tree: jtgpu.JunctionTree, rows: list[list[str]], tmp_path: Path) -> None:
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / "o.csv"
    said: list[str] = []

    def progress(*_: int) -> None:
        if not said:
            for how in ({"resume": True}, {"force": True}):
                with pytest.raises(jtgpu.JtgpuError, match="another run is writing") as error:
                    run(tree, cases, out, **how)
                said.append(str(error.value))

    run(tree, cases, out, progress=progress, chunk=100)
    assert len(said) == 2
    assert len(answers(out)["id"]) == N


def test_a_run_that_did_nothing_leaves_nothing(tree: jtgpu.JunctionTree, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_bytes(b"xray\nja\n")
    for _ in range(2):  # a typing error, and the next try is not in the way of itself
        with pytest.raises(jtgpu.UnknownState):
            run(tree, tmp_path / "c.csv", tmp_path / "o.csv", keep=())
        only(tmp_path, "c.csv")


def test_a_killed_run_that_did_nothing_is_no_run(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    cases, folder = parquet(tmp_path / "cases", rows), tmp_path / "o.parquet.unfinished"
    folder.mkdir()
    (folder / "data").write_bytes(b"PAR1")
    (folder / "journal.jsonl").write_bytes(b'{"identity": {"cases": "others"}, "end": 4}\n')
    run(tree, cases, tmp_path / "o.parquet")
    assert_same(answers(tmp_path / "o.parquet"), expected)
    only(tmp_path, "cases", "o.parquet")


def test_going_on_can_be_stopped_at_once(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    """What an earlier run did is in the journal at every moment of the next one."""
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / "o.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(tree, cases, out, chunk=50)
    journal = tmp_path / "o.parquet.unfinished" / "journal.jsonl"
    whole = journal.read_bytes()
    cut = whole[: whole.rindex(b"\n", 0, len(whole) - 1) + 20]  # the last line is torn
    journal.write_bytes(cut)
    seen: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: seen.append(journal.read_bytes()))
        patch.setattr(output_module.ResumableFile, "append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(tree, cases, out, chunk=50, resume=True)
    seen.append(journal.read_bytes())
    assert all(s == cut[: cut.rindex(b"\n") + 1] for s in seen)
    assert run(tree, cases, out, chunk=50, resume=True).resumed == 450
    assert_same(answers(out), expected)


def test_rows_before_a_broken_page_are_kept(tree: jtgpu.JunctionTree, rows: list[list[str]], tmp_path: Path) -> None:
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


def test_pipes_and_missing_folders(tree: jtgpu.JunctionTree, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(OSError, match="must be in a regular file"):
        run(tree, tmp_path / "pipe.csv", tmp_path / "o.csv")
    (tmp_path / "c.csv").write_bytes(b"id,xray\n1,yes\n")
    with pytest.raises(jtgpu.JtgpuError, match="does not exist"):
        run(tree, tmp_path / "c.csv", tmp_path / "nowhere" / "o.csv")


def test_another_question_is_another_run(tree: jtgpu.JunctionTree, rows: list[list[str]], tmp_path: Path) -> None:
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / "o.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(tree, cases, out)
    for changed in ({"targets": "tub"}, {"keep": ()}, {"on_error": "flag"}, {"do": {"asia": "no"}}):
        with pytest.raises(jtgpu.JtgpuError, match=r"different (targets|keep|flag|do)"):
            run(tree, cases, out, resume=True, **changed)
    os.utime(cases)
    with pytest.raises(jtgpu.JtgpuError, match="different modified"):
        run(tree, cases, out, resume=True)
    run(tree, cases, out, force=True)
    with pytest.raises(jtgpu.JtgpuError, match="--force to overwrite it"):
        run(tree, cases, out)


# Parquet's footers ----------------------------------------------------------------------------------------------


def test_joined_footers_read_as_one_file(tmp_path: Path) -> None:
    parts, first, n = bytearray(MAGIC), b"", 0
    groups: list[bytes] = []
    tables = []
    for k in range(17):
        rows = 10 * k
        table = pa.table(
            {
                "a=b": np.arange(rows) / 7 + k,
                "t": pa.array([("x", None, "y")[i % 3] for i in range(rows)], pa.string()),
                "empty": pa.nulls(rows, pa.float64()),
                "list": pa.array([[1, 2]] * rows, pa.list_(pa.int64())),
            }
        )
        out = pa.BufferOutputStream()
        pq.write_table(table, out, row_group_size=25, write_page_index=bool(k % 2), use_dictionary=["t"])
        body, footer = body_and_footer(memoryview(out.getvalue()))
        groups += shifted_row_groups(footer, len(parts) - 4, len(groups))
        parts += body
        first, n = first or footer, n + rows
        tables.append(table)
    path = tmp_path / "joined.parquet"
    path.write_bytes(bytes(parts) + join_footers(first, groups, n))
    whole = pa.concat_tables(tables)
    assert pq.read_table(path).equals(whole)
    metadata = pq.read_metadata(path)
    assert (metadata.num_rows, metadata.num_row_groups) == (n, len(groups))
    last = metadata.row_group(len(groups) - 1).column(0).statistics
    assert last.max == whole["a=b"][-1].as_py()
    polars = pytest.importorskip("polars", reason="Polars is not installed")
    assert polars.read_parquet(path)["a=b"].to_list() == whole["a=b"].to_pylist()


# The command ----------------------------------------------------------------------------------------------------


def invoke(*words: object) -> Any:
    return CliRunner().invoke(app, ["batch", ASIA, *map(str, words), "--backend", "reference"])


def test_the_command(rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_bytes(csv_text(rows))
    out = tmp_path / "o.csv"
    done = invoke(tmp_path / "c.csv", "-o", out, "-t", "lung", "--keep", "id", "--log-evidence")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "500 cases, 1 target" in done.stdout
    assert_same(answers(out), expected)
    done = invoke(tmp_path / "c.csv", "-o", out, "-t", "lung,tub", "--json", "--force")
    found = json.loads(done.stdout)
    assert (found["cases"], found["targets"], found["ignored"]) == (N, ["lung", "tub"], ["id"])
    assert "not variables: id" in done.stderr
    assert list(answers(out)) == ["lung=yes", "lung=no", "tub=yes", "tub=no"]


def test_codes_of_the_command(rows: list[list[str]], tmp_path: Path) -> None:
    cases, out = tmp_path / "c.csv", tmp_path / "o.csv"
    cases.write_bytes(csv_text(rows))
    (tmp_path / "bad.csv").write_bytes(b"xray,asia\nyes,no\nja,no\n")
    (tmp_path / "ragged.csv").write_bytes(b"xray,asia\nyes\n")
    (tmp_path / "never.csv").write_bytes(b"either,tub\nno,yes\n")
    assert [
        invoke(*words, "-o", out).exit_code
        for words in (
            (cases, "-t", "lungs"), (cases, "--evidence-columns", "smoky"), (tmp_path / "no.csv",),
            (cases, "--on-error", "maybe"), (cases, "--delimiter", "ab"), (cases, "--encoding", "utf-16"),
            (cases, "--compression", "zip"), (tmp_path / "bad.csv",), (tmp_path / "ragged.csv", "-f"),
            (tmp_path / "never.csv", "-f"),
        )
    ] == [2, 2, 2, 2, 2, 2, 2, 2, 5, 4]  # fmt: skip
    assert not out.exists()
    assert invoke(cases, "-o", tmp_path / "o.doc").exit_code == 5
    done = invoke(tmp_path / "never.csv", "-o", out, "-f", "--on-error", "flag")
    assert done.exit_code == 0
    assert "1 of 1 cases have no answer" in done.stderr


SLOW = """
import sys, time
import jtgpu.cases.solver as solve
original = solve.Solver.solve
def slow(self, codes):
    time.sleep(0.05)
    return original(self, codes)
solve.Solver.solve = slow
import jtgpu.cases.writing.resumable as output
output.SYNC_INTERVAL = 0.0
from jtgpu.cli import main
sys.argv = ["jtgpu", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), *slow((signal.SIGKILL, -9), (signal.SIGTERM, 130))])
def test_killed_half_way_and_resumed(
    rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, how: signal.Signals, code: int
) -> None:
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / "o.parquet"
    words = ["batch", ASIA, str(cases), "-o", str(out), "-t", "lung", "--keep", "id", "--log-evidence",
             "--backend", "reference", "--chunk", "10", "--resume"]  # fmt: skip
    journal = tmp_path / "o.parquet.unfinished" / "journal.jsonl"
    for lines in (4, 9):
        process = subprocess.Popen([sys.executable, "-c", SLOW, *words], cwd=ROOT, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if journal.exists() and journal.read_bytes().count(b"\n") >= lines:
                break
            time.sleep(0.01)
        process.send_signal(how)
        process.communicate()
        assert process.returncode == code
        assert not out.exists()
    done = rows_done(journal.parent)
    assert done >= 80
    finished = subprocess.run(
        [sys.executable, "-m", "jtgpu", *words, "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(finished.stdout)["resumed"] >= done
    assert_same(answers(out), expected)
    only(tmp_path, "cases", "o.parquet")


def test_a_bar_on_a_terminal_and_nothing_elsewhere(rows: list[list[str]], tmp_path: Path) -> None:
    cases = parquet(tmp_path / "cases", rows)
    words = ["batch", ASIA, str(cases), "-t", "lung", "--backend", "reference", "--chunk", "20", "-o"]
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        process = subprocess.Popen(
            [sys.executable, "-c", SLOW, *words, str(tmp_path / "a.csv")], cwd=ROOT, stderr=theirs,
            stdout=subprocess.PIPE, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        )  # fmt: skip
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # what a terminal says when nobody is left at its other end
            while part := terminal.read(4096):
                seen += part
        out = process.communicate()[0]
    assert process.returncode == 0
    assert b" cases" in seen
    assert b"cases/s" in seen
    assert re.search(rb"\d:\d\d:\d\d", seen)  # the time left
    assert out.startswith(str(tmp_path).encode())
    plain = subprocess.run(
        [sys.executable, "-m", "jtgpu", *words, str(tmp_path / "b.csv")], cwd=ROOT, capture_output=True, check=True
    )
    assert plain.stderr.decode().splitlines() == [
        f"jtgpu: warning: {cases}: ignored columns that are not variables: id"
    ]
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_reading_runs_only_a_little_ahead_of_writing(
    tree: jtgpu.JunctionTree, rows: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jtgpu.cases.encoder import Encoder

    cases = parquet(tmp_path / "cases", rows)
    encode, append = Encoder.encode, output_module.ResumableFile.append
    ahead, most = 0, 0
    lock = threading.Lock()

    def reading(*given: Any) -> Any:
        nonlocal ahead, most
        with lock:
            ahead += 1
            most = max(most, ahead)
        return encode(*given)

    def writing(*given: Any) -> None:
        nonlocal ahead
        time.sleep(0.01)
        append(*given)
        with lock:
            ahead -= 1

    monkeypatch.setattr(Encoder, "encode", reading)
    monkeypatch.setattr(output_module.ResumableFile, "append", writing)
    run(tree, cases, tmp_path / "o.csv", chunk=10)
    assert ahead == 0
    assert most <= 5  # read, waiting, answered, waiting, written


def test_a_journal_is_text(tree: jtgpu.JunctionTree, rows: list[list[str]], tmp_path: Path) -> None:
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / "o.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(tree, cases, out, chunk=100)
    first, *entries = map(json.loads, (tmp_path / "o.parquet.unfinished" / "journal.jsonl").read_text().splitlines())
    assert set(first) == {"identity", "end"}
    assert [e["rows"] for e in entries] == [100, 200, 300, 400, 500]
    assert base64.b64decode(entries[0]["chunk"]["footer"])


def test_sources_say_what_they_are(asia: BayesianNetwork, rows: list[list[str]], tmp_path: Path) -> None:
    cases = parquet(tmp_path / "p", rows)
    assert (open_cases(cases, asia).rows, open_cases(cases, asia).size) == (N, N)
    (tmp_path / "c").write_bytes(csv_text(rows, ";"))
    source = open_cases(tmp_path / "c", asia)
    assert (source.columns, source.rows, source.size) == (NAMES, None, len(csv_text(rows, ";")))
    chunks = list(source.chunks(["xray"], ["id"], 100))
    for chunk in chunks:
        chunk.load()
    assert chunks[-1].done == source.size
    assert sum(c.n for c in chunks) == N
    places = [c.locate(i) for c in chunks for i in range(c.n)]
    assert places == [(str(tmp_path / "c"), i + 2) for i in range(N)]
