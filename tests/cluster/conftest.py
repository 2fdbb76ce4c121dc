"""Fixtures of the tests of clusters: a plan, cases, their answers, and workers in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu.cases import answer_file
from jtgpu.cluster import Cluster
from jtgpu.cluster import files as files_module
from jtgpu.cluster import worker as worker_module
from tests.cluster.local_workers import ASK, LocalWorkers, _NoRay, table
from tests.conftest import ROOT

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


@pytest.fixture(scope="module")
def plan() -> Any:
    return jtgpu.read(ROOT / "nets" / "asia.net").plan("min-fill")


@pytest.fixture(scope="module")
def tree(plan: Any) -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = plan.compile("reference")
    return made


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """A folder of two Parquet files with uneven row groups, and what a reader leaves out."""
    folder = tmp_path / "cases"
    folder.mkdir()
    pq.write_table(table(1300), folder / "a.parquet", row_group_size=170)
    pq.write_table(table(700, 6, 1300), folder / "b.parquet", row_group_size=900)
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden").write_text("no table")
    return folder


@pytest.fixture
def expected(tree: jtgpu.JunctionTree, cases: Path, tmp_path: Path) -> Any:
    """What one process makes of the two files, one behind the other."""
    found = []
    for name in ("a", "b"):
        out = tmp_path / f"{name}.expected.parquet"
        answer_file(tree, cases / f"{name}.parquet", out, **ASK)
        found.append(pq.read_table(out))
    return pa.concat_tables(found)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> LocalWorkers:
    """Let `answer_files` run without Ray."""
    made = LocalWorkers()

    @contextmanager
    def connected(cluster: Cluster) -> Iterator[Any]:
        yield _NoRay

    monkeypatch.setattr(files_module, "connected", connected)
    monkeypatch.setattr(worker_module, "_results", made.results)
    return made
