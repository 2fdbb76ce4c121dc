"""Files of cases in every dialect and format give the same answers."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.columns import csv_file
from jtgpu.columns.files import open_cases
from jtgpu.model.network import BayesianNetwork
from tests.cases.asia_files import NAMES, N, answers, assert_same, csv_text, only, parquet, run
from tests.support.examples import examples, slow

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


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
    "words": (lambda r: csv_text([[c or ("NA", "None", "NaN")[i % 3] for c in x] for i, x in enumerate(r)]), {}),
    "own words": (lambda r: csv_text([[c or "-9" for c in x] for x in r]), {"na_values": ["-9"]}),
    "latin-1": (
        lambda r: csv_text(r).replace(b"id,", b"id,\xe4,").replace(b"\nr", b"\nr\xdf,r"), {"encoding": "latin-1"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("dialect", [*list(DIALECTS)[:2], *slow(*list(DIALECTS)[2:])])
@pytest.mark.parametrize("chunk", [7, *slow(None, 10**9)])
def test_every_csv_dialect_gives_the_same_answers(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, dialect: str,
    chunk: int | None, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    make, options = DIALECTS[dialect]
    if chunk == 7:  # many blocks, cut at any byte
        monkeypatch.setattr(csv_file, "MIN_BLOCK", 160)
    (tmp_path / "cases.csv").write_bytes(make(rows))
    keep = {"keep": ()} if dialect == "latin-1" else {}
    report = run(tree, tmp_path / "cases.csv", tmp_path / "out.parquet", chunk=chunk, **options, **keep)
    found = answers(tmp_path / "out.parquet")
    assert_same(found, {k: v for k, v in expected.items() if k != "id" or not keep})
    assert (report.cases, report.flagged, report.resumed) == (N, 0, 0)
    only(tmp_path, "cases.csv", "out.parquet")


@pytest.mark.parametrize("size", [100, *slow(50, 1 << 20)])
def test_parquet_gives_the_same_answers_for_any_chunk_size(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, size: int
) -> None:
    for chunk in (None, 1, 30, 333, 10**9):
        cases = parquet(tmp_path / "cases", rows, row_group_size=size)
        run(tree, cases, tmp_path / "out.parquet", chunk=chunk, force=True)
        assert_same(answers(tmp_path / "out.parquet"), expected)


@pytest.mark.parametrize("name", ["o.parquet", "o.csv.gz", *slow("o.csv", "o.tsv", "o.csv.zst", "o.tsv.gz")])
@pytest.mark.parametrize("n", [0, 1, N])
def test_every_output_format_has_the_same_answers(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, name: str, n: int
) -> None:
    (tmp_path / "cases.csv").write_bytes(csv_text(rows[:n]))
    run(tree, tmp_path / "cases.csv", tmp_path / name, chunk=100)
    found = answers(tmp_path / name)
    assert_same(found, {k: v[:n] for k, v in expected.items()})
    run(tree, parquet(tmp_path / "cases", rows[:n]), tmp_path / name, chunk=100, force=True)
    assert answers(tmp_path / name) == found


def test_compressed_parquet_is_readable_by_other_libraries(
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


def test_an_empty_line_of_a_single_column_is_an_empty_cell(tree: jtgpu.JunctionTree, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_bytes(b"xray\nyes\n\nno\n\n")
    run(tree, tmp_path / "c.csv", tmp_path / "o.csv", keep=())  # an empty line is an empty cell
    p = [tree.posterior("lung", e)["yes"] for e in ({"xray": "yes"}, {}, {"xray": "no"}, {})]
    np.testing.assert_allclose(answers(tmp_path / "o.csv")["lung=yes"], p, atol=1e-12)


def test_quoted_cells_may_contain_line_ends_and_delimiters(
    tree: jtgpu.JunctionTree, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(csv_file, "MIN_BLOCK", 64)
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


def test_quotes_within_unquoted_cells_are_text(tree: jtgpu.JunctionTree, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(csv_file, "MIN_BLOCK", 64)
    lines = [f'5" pipe {i},yes\n' for i in range(50)]
    (tmp_path / "c.csv").write_text("note,xray\n" + "".join(lines))
    for quote in ('"', ""):
        run(tree, tmp_path / "c.csv", tmp_path / "o.parquet", keep="note", quote=quote, force=True)
        assert pq.read_table(tmp_path / "o.parquet")["note"].to_pylist() == [x.split(",")[0] for x in lines]


@given(st.data())
@examples(40)
def test_copied_cells_are_unchanged(
    tree: jtgpu.JunctionTree, tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
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
        patch.setattr(csv_file, "MIN_BLOCK", block)
        run(tree, folder / "c.csv", folder / "o.parquet", keep="note", chunk=1)
    assert [t or "" for t in pq.read_table(folder / "o.parquet")["note"].to_pylist()] == texts


def test_sources_report_columns_rows_and_locations(
    asia: BayesianNetwork, rows: list[list[str]], tmp_path: Path
) -> None:
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
