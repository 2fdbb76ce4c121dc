"""Files of cases of the network asia, and what the tests of files share."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.cases import Report, answer_file
from tests.conftest import ROOT

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


ASIA = str(ROOT / "nets" / "asia.net")

N = 500

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


def rows_done(folder: Path) -> int:
    journal = folder / "journal.jsonl"  # what has done nothing leaves nothing
    return int(json.loads(journal.read_text().splitlines()[-1]).get("rows", 0)) if journal.exists() else 0
