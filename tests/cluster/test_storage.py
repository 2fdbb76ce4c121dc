"""Files are found by name, folder and pattern; storage may be remote."""

from __future__ import annotations

import errno
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu.cli.console import exit_code
from jtgpu.cluster import answer_files
from jtgpu.cluster.files import SUCCESS
from jtgpu.cluster.parts import part_name
from jtgpu.cluster.tables import find_cases, locate
from jtgpu.errors import JtgpuError
from tests.cluster.local_workers import ASK, LocalWorkers, N, files_of, read_parts, table

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


def test_files_are_found_by_folder_pattern_and_name(tmp_path: Path) -> None:
    for name in ("a/1.csv", "a/b/2.csv", "a/b/_3.csv", "a/.c/4.csv", "a/5.txt", "a/[6].csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")

    def found(given: Any) -> list[str]:
        return [f.place.path[len(str(tmp_path)) + 1 :] for f in find_cases(given)]

    assert found(tmp_path) == ["a/5.txt", "a/[6].csv", "a/1.csv", "a/b/2.csv"] or found(tmp_path) == sorted(
        ["a/1.csv", "a/5.txt", "a/[6].csv", "a/b/2.csv"]
    )
    assert found(f"{tmp_path}/a/*.csv") == ["a/1.csv", "a/[6].csv"]
    assert found(f"{tmp_path}/a/**/?.csv") == ["a/1.csv", "a/b/2.csv"]
    assert found(f"{tmp_path}/a/[15].*") == ["a/1.csv", "a/5.txt"]
    assert found(f"{tmp_path}/a/[6].csv") == ["a/[6].csv"]
    assert found([f"{tmp_path}/a/b/2.csv", f"file://{tmp_path}/a/1.csv"]) == ["a/b/2.csv", "a/1.csv"]
    with pytest.raises(JtgpuError, match="no such file or folder"):
        find_cases(tmp_path / "nothing.csv")
    with pytest.raises(JtgpuError, match="no file matches") as missing:
        find_cases(f"{tmp_path}/a/*.xyz")
    assert exit_code(missing.value) == 2
    with pytest.raises(JtgpuError, match="given twice"):
        find_cases([tmp_path / "a" / "1.csv", tmp_path / "a" / "1.csv"])
    with pytest.raises(JtgpuError, match="unsupported kind of storage"):
        find_cases("nonsense://bucket/file.csv")


@pytest.mark.slow
def test_storage_without_rename_marks_success(
    workers: LocalWorkers, tree: jtgpu.JunctionTree, cases: Path, expected: Any, tmp_path: Path
) -> None:
    """By fsspec, as object storage is reached: no folder is renamed there, and `_SUCCESS` tells that all is there."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    local = importlib.import_module("fsspec.implementations.local").LocalFileSystem
    strip = staticmethod(lambda path: local._strip_protocol(str(path).removeprefix("bucket://")))
    fsspec.register_implementation("bucket", type("Bucket", (local,), {"_strip_protocol": strip}), clobber=True)
    writing = pytest.importorskip("pyarrow.csv")
    out = f"bucket://{tmp_path}/bucket/out"
    assert not locate(out).local
    answer_files(tree, f"bucket://{cases}/*.parquet", out, part_rows=700, **ASK)
    assert read_parts(tmp_path / "bucket" / "out").equals(expected)
    assert SUCCESS in files_of(tmp_path / "bucket" / "out")
    assert not any(n.startswith("_tmp") for n in files_of(tmp_path / "bucket" / "out"))
    with pytest.raises(JtgpuError, match="exists; pass force=True"):
        answer_files(tree, f"bucket://{cases}/*.parquet", out, part_rows=700, **ASK)
    (tmp_path / "bucket" / "out" / SUCCESS).unlink()
    (tmp_path / "bucket" / "out" / part_name(1)).unlink()
    workers.answered = []
    assert answer_files(tree, f"bucket://{cases}/*.parquet", out, resume=True, **ASK).resumed == N - 600
    assert set(workers.answered) == {1}
    with pytest.raises(JtgpuError, match="object storage requires a folder"):
        answer_files(tree, f"bucket://{cases}/*.parquet", f"bucket://{tmp_path}/bucket/out.parquet", **ASK)
    # a CSV is fetched; its rows are named by what the user knows
    writing.write_csv(table(50).set_column(2, "xray", pa.array(["yes"] * 40 + ["so"] * 10)), tmp_path / "x.csv")
    with pytest.raises(jtgpu.errors.UnknownState, match=rf"^bucket://{tmp_path}/x\.csv:42: column 'xray': 'so'"):
        answer_files(tree, f"bucket://{tmp_path}/x.csv", tmp_path / "out2", **ASK)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty bucket of a server that speaks S3, on this machine."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    s3 = pytest.importorskip("pyarrow.fs").S3FileSystem
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "anything")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fs = s3(endpoint_override=f"http://{host}:{port}", allow_bucket_creation=True)
    fs.create_dir("bucket")
    yield fs
    server.stop()


@pytest.mark.slow
def test_cases_and_answers_can_be_in_object_storage(
    workers: LocalWorkers, tree: jtgpu.JunctionTree, expected: Any, bucket: Any
) -> None:
    """Cases and answers in object storage; a run that is stopped leaves no `_SUCCESS`, and goes on."""
    pq.write_table(table(1300), "bucket/cases/a.parquet", filesystem=bucket, row_group_size=170)
    pq.write_table(table(700, 6, 1300), "bucket/cases/b.parquet", filesystem=bucket, row_group_size=900)

    def names() -> list[str]:
        found = bucket.get_file_info(pa.fs.FileSelector("bucket/out", allow_not_found=True))
        return sorted(f.base_name for f in found)

    workers.fail, workers.error = 2, OSError(errno.EIO, "the worker's machine is gone")
    with pytest.raises(OSError, match="machine is gone"):
        answer_files(tree, "s3://bucket/cases/*.parquet", "s3://bucket/out", part_rows=700, **ASK)
    assert SUCCESS not in names()
    there = sum(n.startswith("part-") for n in names())
    assert there
    with pytest.raises(JtgpuError, match="pass resume=True to continue"):
        answer_files(tree, "s3://bucket/cases/*.parquet", "s3://bucket/out", part_rows=700, **ASK)
    workers.fail, workers.answered = None, []
    report = answer_files(tree, "s3://bucket/cases/*.parquet", "s3://bucket/out", part_rows=700, resume=True, **ASK)
    assert (report.cases, report.resumed > 0) == (N, True)
    parts = [n for n in names() if n.startswith("part-")]
    assert len(workers.answered) == len(parts) - there
    assert pa.concat_tables(pq.read_table(f"bucket/out/{n}", filesystem=bucket) for n in parts).equals(expected)
    assert SUCCESS in names()
    assert not any(n.startswith("_tmp") for n in names())
    with pytest.raises(JtgpuError, match="exists; pass force=True"):
        answer_files(tree, "s3://bucket/cases", "s3://bucket/out", **ASK)
    with pytest.raises(JtgpuError, match="no such file or folder"):
        answer_files(tree, "s3://bucket/nothing.parquet", "s3://bucket/other", **ASK)
