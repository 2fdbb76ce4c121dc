"""Cells of CSV read by compiled code: what the general reader reads, or nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.columns.csv_cells import CsvRows, parse_plain_cells
from jtgpu.columns.csv_records import MAX_TEXTS
from tests.support.examples import examples

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
arrow_csv = pytest.importorskip("pyarrow.csv", reason="pyarrow is not installed")


def read(
    text: bytes, n_columns: int, evidence: Sequence[int], kept: Sequence[int] = (), delimiter: str = ",",
    quote: bytes = b'"',
) -> list[list[Any]] | None:  # fmt: skip
    bound = text.count(b"\n") + text.count(b"\r") + 1
    rows = CsvRows("cases.csv", quote, "utf-8", False, delimiter=delimiter, n_columns=n_columns)
    found = parse_plain_cells(text, bound, rows, evidence, kept)
    if found is None:
        return None
    n, columns = found
    cells: list[list[Any]] = []
    for column in columns[: len(evidence)]:
        assert len(column) == n
        cells.append([column.cells[i] for i in column.index.tolist()])
        assert len(set(column.cells)) == len(column.cells)
        assert sorted(set(column.index.tolist())) == list(range(len(column.cells)))
    for column in columns[len(evidence) :]:
        column.validate(full=True)
        cells.append(column.to_pylist())
    return cells


def general(text: bytes, n_columns: int, delimiter: str = ",") -> list[list[str]] | None:
    """The cells that Arrow's reader gives."""
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(text),
            arrow_csv.ReadOptions(column_names=[str(i) for i in range(n_columns)]),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=n_columns > 1),
            arrow_csv.ConvertOptions(
                column_types={str(i): pa.string() for i in range(n_columns)}, strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        return None
    return [c.to_pylist() for c in table.columns]


@given(st.data())
@examples(300)
def test_any_text_is_parsed_like_arrow_does_or_rejected(data: st.DataObject) -> None:
    n_columns = data.draw(st.integers(1, 3))
    text = data.draw(st.text(st.sampled_from('ab,"\n\r \xe9'), max_size=40)).encode()
    if n_columns > 1 and data.draw(st.booleans()):  # make it a table more often
        cell = st.sampled_from(["a", "b", "", " a", "\xe9x", '"a"', '"a,b"', '""'])
        rows = data.draw(st.lists(st.lists(cell, min_size=n_columns, max_size=n_columns), max_size=6))
        text = data.draw(st.sampled_from(["\n", "\r\n", "\r"])).join(map(",".join, rows)).encode()
    columns = list(range(n_columns))
    found = read(text, n_columns, columns, columns)
    if found is None:
        return
    expected = general(text, n_columns) if text.strip(b"\r\n") else [[""] * len(found[0])] * n_columns
    assert expected is not None
    assert found[:n_columns] == expected
    assert [[c or "" for c in column] for column in found[n_columns:]] == expected


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", "!"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_plain_tables(delimiter: str, end: str, quoting: Any) -> None:
    random = np.random.default_rng(1)
    rows = random.choice(["yes", "no", "", "a rather long label of a state", "\u00fc"], (500, 6)).tolist()
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(rows)
    text = out.getvalue().encode()
    found = read(text, 6, [4, 0], [1, 4], delimiter)
    assert found is not None
    columns = list(map(list, zip(*rows, strict=True)))
    assert found[:2] == [columns[4], columns[0]]
    assert found[2:] == [[c or None for c in columns[1]], [c or None for c in columns[4]]]
    without_end = read(text[: -len(end)], 6, [4, 0], [1, 4], delimiter)
    assert without_end == found


@pytest.mark.parametrize(
    "text",
    [
        b"a,b\na\n", b"a,b\na,b,c\n", b'"a""b",b\n', b'"a\nb",b\n', b'"a,b\n', b'"a"x,b\n', b"a,\xff\n", b'a,"',
        "\n".join(f"a,{i}" for i in range(MAX_TEXTS + 1)).encode(),
    ],
    ids=["too few", "too many", "doubled", "line end", "open", "text behind", "no UTF-8", "open at the end", "texts"],
)  # fmt: skip
def test_rows_that_are_not_plain_are_rejected(text: bytes) -> None:
    assert read(text, 2, [1], [1]) is None


def test_quotes_within_cells_and_without_a_quote_character() -> None:
    assert read(b'5" pipe,"b"\n', 2, [0, 1]) == [['5" pipe'], ["b"]]
    assert read(b'5" pipe,"b"\n', 2, [0, 1], quote=b"") == [['5" pipe'], ['"b"']]


def test_many_texts_of_equal_length() -> None:
    texts = [f"{i:05d}" for i in range(MAX_TEXTS)]
    assert read("\n".join(f"{t},{t}" for t in texts + texts).encode(), 2, [0], [1]) == [texts + texts] * 2


def test_empty_lines() -> None:
    assert read(b"\n\na,b\r\n\r\n\nc,d\n\n", 2, [0, 1]) == [["a", "c"], ["b", "d"]]
    assert read(b"a\n\nb\n\n", 1, [0], [0]) == [["a", "", "b", ""], ["a", None, "b", None]]
    assert read(b"", 2, [0]) == [[]]
    assert read(b"a,b\n" * 3, 2, []) == []
