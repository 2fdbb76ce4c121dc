"""Files of cases on a cluster give the answers of a single process."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.cluster import answer_files
from jtgpu.cluster.files import SUCCESS
from jtgpu.cluster.parts import part_name
from tests.cluster.local_workers import ASK, LocalWorkers, N, files_of, read_parts, table
from tests.support.examples import slow

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


@pytest.mark.slow
def test_a_folder_has_the_answers_of_a_single_process(
    workers: LocalWorkers, plan: Any, cases: Path, expected: Any, tmp_path: Path
) -> None:
    calls: list[tuple[int, int, int]] = []
    report = answer_files(
        plan, cases, tmp_path / "out", backend="reference", part_rows=300, progress=lambda *a: calls.append(a), **ASK
    )
    assert read_parts(tmp_path / "out").equals(expected)
    n_parts = 5 + 3
    assert files_of(tmp_path / "out") == sorted([SUCCESS, "_run.json", *map(part_name, range(n_parts))])
    assert (report.cases, report.flagged, report.resumed, report.parts) == (N, 0, 0, n_parts)
    assert json.loads((tmp_path / "out" / SUCCESS).read_text())["rows"] == N
    assert calls == sorted(calls)
    assert calls[0][0] == 0
    assert calls[-1][0] == N
    assert calls[-1][1] == calls[-1][2] == sum(p.stat().st_size for p in cases.glob("*.parquet"))
    assert not (tmp_path / "out.unfinished").exists()


@pytest.mark.parametrize("name", ["out.csv", *slow("out.parquet", "out.tsv.gz")])
def test_the_output_can_be_a_single_file(
    workers: LocalWorkers, tree: jtgpu.JunctionTree, cases: Path, expected: Any, tmp_path: Path, name: str
) -> None:
    report = answer_files(tree, [cases / "a.parquet", cases / "b.parquet"], tmp_path / name, part_rows=300, **ASK)
    assert report.cases == N
    assert (tmp_path / name).is_file()
    assert not (tmp_path / f"{name}.unfinished").exists()
    if name.endswith(".parquet"):
        assert pq.read_table(tmp_path / name).equals(expected)
        return
    data = (tmp_path / name).read_bytes()
    lines = (gzip.decompress(data) if name.endswith(".gz") else data).decode().splitlines()
    assert len(lines) == N + 1
    delimiter = "\t" if ".tsv" in name else ","
    assert [r.split(delimiter)[0] for r in lines[1:]] == [str(i) for i in range(N)]


@pytest.mark.slow
def test_csv_files_may_be_compressed(
    workers: LocalWorkers, tree: jtgpu.JunctionTree, expected: Any, cases: Path, tmp_path: Path
) -> None:
    writing = pytest.importorskip("pyarrow.csv")
    folder = tmp_path / "text"
    folder.mkdir()
    writing.write_csv(pq.read_table(cases / "a.parquet"), folder / "1.csv")
    with pa.CompressedOutputStream(str(folder / "2.csv.gz"), "gzip") as file:
        writing.write_csv(pq.read_table(cases / "b.parquet"), file)
    report = answer_files(tree, folder, tmp_path / "out", **ASK)
    assert report.parts == 2
    found = read_parts(tmp_path / "out")
    assert found["id"].to_pylist() == [str(i) for i in range(N)]
    np.testing.assert_array_equal(found["lung=yes"], expected["lung=yes"])


def test_a_file_without_rows_has_an_answer_without_rows(
    workers: LocalWorkers, tree: jtgpu.JunctionTree, tmp_path: Path
) -> None:
    pq.write_table(table(0), tmp_path / "none.parquet")
    report = answer_files(tree, tmp_path / "none.parquet", tmp_path / "out", **ASK)
    assert report.cases == 0
    assert read_parts(tmp_path / "out").column_names == ["id", "lung=yes", "lung=no", "log_evidence"]
