"""Parquet files are concatenated by merging their footers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jtgpu.cases.writing.formats import MAGIC, body_and_footer, join_footers, shifted_row_groups

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")



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
