"""The same columns in every kind of table."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("polars", reason="Polars is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

Columns = Mapping[str, Sequence[Any]]


def arrow_table(columns: Columns) -> pa.Table:
    """The columns in Arrow's types; whole numbers above those of int64 are uint64."""
    arrays = {}
    for name, cells in columns.items():
        is_large = any(isinstance(c, int) and c >= 2**63 for c in cells)
        arrays[name] = pa.array(cells, pa.uint64() if is_large else None)
    return pa.table(arrays)


class Capsule:
    """A table that only exports itself as an Arrow stream."""

    def __init__(self, columns: Columns):
        self.table = arrow_table(columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def text_of(columns: Columns, delimiter: str = ",", quoted: bool = False) -> str:
    """The text of a CSV file; None is an empty cell."""
    output = io.StringIO()
    writer = csv.writer(output, delimiter=delimiter, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL)
    writer.writerows([list(columns), *zip(*columns.values(), strict=True)])
    return output.getvalue()


def written(folder: Path, suffix: str, content: bytes) -> Path:
    """A new file of the folder."""
    path = folder / f"cases{next(NUMBERS)}{suffix}"
    path.write_bytes(content)
    return path


def parquet_file(columns: Columns, folder: Path) -> Path:
    """A Parquet file of row groups of three rows."""
    output = io.BytesIO()
    pq.write_table(arrow_table(columns), output, row_group_size=3)
    return written(folder, ".parquet", output.getvalue())


NUMBERS = itertools.count()
Writer = Callable[[Columns, Path], Any]
TEXT_FILES: dict[str, Writer] = {
    "CSV": lambda c, folder: written(folder, ".csv", text_of(c).encode()),
    "TSV": lambda c, folder: written(folder, ".tsv", text_of(c, "\t").encode()),
    "quoted": lambda c, folder: written(folder, ".csv", text_of(c, ";", quoted=True).encode()),
    "gz": lambda c, folder: written(folder, ".csv.gz", gzip.compress(text_of(c).encode())),
}
FRAMES: dict[str, Writer] = {
    "pandas": lambda c, folder: pd.DataFrame(dict(c)),
    "Polars": lambda c, folder: pl.DataFrame(dict(c), strict=False),
    "Arrow": lambda c, folder: arrow_table(c),
    "capsule": lambda c, folder: Capsule(c),
    "mapping": lambda c, folder: dict(c),
    "rows": lambda c, folder: [dict(zip(c, row, strict=True)) for row in zip(*c.values(), strict=True)],
    "arrays": lambda c, folder: {v: np.array(cells, dtype=object) for v, cells in c.items()},
}
TYPED: dict[str, Writer] = {**FRAMES, "Parquet": parquet_file}
SOURCES: dict[str, Writer] = {**TEXT_FILES, **TYPED}
