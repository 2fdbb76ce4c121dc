"""Whole tables from files: numbers, text and dates, and what is wrong with a file, with the line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from jtgpu.errors import DataError, ParseError, TableTooLarge
from jtgpu.options.tables import CsvDialect

pa = pytest.importorskip("pyarrow")

from jtgpu.columns.files import read_file  # noqa: E402

ROWS = "a,b\n1,u\n2.5,NA\n,w\n"


def written(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    """A file."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content",
    [
        ROWS,
        ROWS.replace("\n", "\r\n"),
        ROWS.replace("\n", "\r"),
        b"\xef\xbb\xbf" + ROWS.encode(),
        "\n\n" + ROWS,
        ROWS.replace(",", ";"),
        ROWS.replace(",", ";").replace("2.5", "2,5"),  # a decimal comma, and none in the first row
        ROWS.replace("u", '"u"'),
        gzip.compress(ROWS.encode(), mtime=0),
    ],
)
def test_numbers_and_missing_cells(tmp_path: Path, content: str | bytes) -> None:
    table = read_file(written(tmp_path, content))
    assert table.to_pydict() == {"a": [1.0, 2.5, None], "b": ["u", None, "w"]}


def test_text_dates_and_line_ends_in_cells(tmp_path: Path) -> None:
    path = written(tmp_path, 'day,a\n2026-01-02,"x\ny"\n2026-01-03,1\n')
    assert pa.types.is_temporal(read_file(path).schema.field("day").type)
    assert read_file(path).column("a").to_pylist() == ["x\ny", "1"]
    assert read_file(written(tmp_path, ROWS), as_text=True).to_pydict() == {
        "a": ["1", "2.5", ""],
        "b": ["u", "NA", "w"],
    }
    long = "a,b\n" + "".join(f'{i},"{"x" * 50}\n{i}"\n' for i in range(40_000))  # more than one of Arrow's blocks
    assert read_file(written(tmp_path, long)).column("a").to_pylist() == [*range(40_000)]


def test_codes_and_decimal_commas_with_cells_of_several_lines(tmp_path: Path) -> None:
    long = "a;b;c;d\n" + "".join(f'0x{i:X};{i},5;"{"x" * 50}\n{i}";{i}\n' for i in range(30_000))
    table = read_file(written(tmp_path, long))
    assert [str(kind) for kind in table.schema.types] == ["string", "double", "string", "int64"]
    assert table.slice(31, 1).to_pydict() == {"a": ["0x1F"], "b": [31.5], "c": ["x" * 50 + "\n31"], "d": [31]}


def test_a_header_alone_is_a_table_without_rows(tmp_path: Path) -> None:
    for content in ("a,b", "a,b\n"):
        table = read_file(written(tmp_path, content))
        assert (table.column_names, table.num_rows) == (["a", "b"], 0)


def test_other_dialects(tmp_path: Path) -> None:
    path = written(tmp_path, "a:b\n1:caf\xe9\n".encode("latin-1"))
    table = read_file(path, dialect=CsvDialect(delimiter=":", encoding="latin-1"))
    assert table.to_pydict() == {"a": [1], "b": ["caf\xe9"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"a,b\n1,2\n1,2,3\n", "t.csv:3:1: 3 cells in a row of 2 columns"),
        (b"a,b\n1,2\n1\n", "t.csv:3:1: 1 cell in a row of 2 columns"),
        (b"a,b\n1,2\n1,caf\xe9\n", "t.csv:3:1: byte 0xe9 is not UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "the file is UTF-16"),
        (b'a,b\n1,2\n1,"x\n3,4\n', "a quote is not closed"),
        (bytes(range(256)) * 4, "the file is not text"),
        (b"\x1f\x8b\x08\x00garbage", "cannot be decompressed"),
        (gzip.compress(ROWS.encode() * 1000, mtime=0)[:-10], "cannot be decompressed"),
        (b"PAR1garbage", "this Parquet file cannot be read"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        read_file(written(tmp_path, content))


def test_equal_names_of_columns(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.csv has 2 columns named 'a'"):
        read_file(written(tmp_path, "a,b,a\n1,2,3\n"))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_the_memory_of_a_table_follows_from_the_size_of_its_file(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "a,b,c\n" + "yes,no,1\n" * 50_000
    path = written(tmp_path, gzip.compress(text.encode()) if name.endswith("gz") else text, name)
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow.parquet").write_table(read_file(written(tmp_path, text)), path)
    monkeypatch.setattr("jtgpu.columns.files.free_memory", lambda: 10**6)
    with pytest.raises(TableTooLarge, match=rf"{name}: about 50,00\d rows of 3 columns need about (2.9|3)") as caught:
        read_file(path)
    assert 3_000_000 < caught.value.needed < 4_000_000
