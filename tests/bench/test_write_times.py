"""The generated tables of times: their contents, and that the documents are up to date."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jtgpu.formats.bundled import BENCHMARK
from tests.conftest import ROOT

pytest.importorskip("matplotlib")
sys.path.insert(0, str(ROOT / "tools"))

import gpu_times
import write_times

HEAD = {"device": "H100", "driver": "13.0", "commit": "abc", "dtype": "float64"}
OURS = {"roofline_us": 20.0, "cpu_us": 500.0, "engine": "flow"}
ROWS: list[dict[str, Any]] = [
    {"network": "water", "device_us": {"median": 99.0, "p10": 98.0, "p90": 100.0}, "call_us": {"median": 110.0}}
    | {"indexed_us": 6800.0, **OURS},
    {"network": "water", "device_us": {"median": 20.0, "p10": 19.0, "p90": 21.0}, "call_us": {"median": 31.0}, **OURS},
    {"network": "water", "device_us": {"median": 9.0, "p10": 8.0, "p90": 9.0}, "call_us": {"median": 9.0}, **OURS}
    | {"dtype": "float32"},
    {"network": "water", "peer": "jax-sum", "batch": 0, "device_us": 134.0, "cases_per_s": 7467, "steps": 63}
    | {"path": "elimination order", "compile_s": 16.9},
    {"network": "water", "peer": "jax-sum", "batch": 0, "failed": "did not compile in 9 s, others compiled, too"},
    {"network": "water", "peer": "jax", "batch": 0, "device_us": 1.0, "cases_per_s": 1, "earlier": True},
    {"network": "water", "peer": "jax", "batch": 0, "device_us": 190.0, "cases_per_s": 5263, "compile_s": 15.4},
    {"network": "water", "peer": "torch", "batch": 0, "failed": "did not compile in 9 s"},
    {"network": "link", "peer": "jax", "batch": 0, "device_us": 3700.0, "cases_per_s": 270, "earlier": True},
    {"network": "alarm", "batch": 131072, "device_cases_per_s": 2.4e8, "cases_per_s": 1e7, "share": 0.08}
    | {"kernels": "lanes", "cpu_cases_per_s": 2.5e5},
    {"network": "alarm", "peer": "jax-sum", "batch": 131072, "device_us": 1556.0, "cases_per_s": 8e7},
]


@pytest.fixture
def rows(tmp_path: Path) -> gpu_times.GpuRows:
    path = tmp_path / "gpu.jsonl"
    path.write_text("".join(json.dumps(HEAD | r) + "\n" for r in ROWS), encoding="utf-8")
    return gpu_times.GpuRows.read(path)


def cells(table: gpu_times.Table, first: str) -> list[str]:
    """The other cells of the row whose first cell is given."""
    return [*next(row for row in table.rows if row[0] == first)][1:]


def test_single_cases_are_compared_with_the_best_peer_and_the_published_time(rows: gpu_times.GpuRows) -> None:
    assert cells(gpu_times.single(rows), "water") == [
        *("dataflow", "20 (19 - 21)", "1.0", "134 (JAX, sums)", "6.7", "140,000", "7,000")
    ]


def test_tables_of_cases(rows: gpu_times.GpuRows) -> None:
    assert cells(gpu_times.tables(rows), "alarm") == [
        *("lanes", "131,072", "2.4e+08", "1e+07", "8.0 %", "8e+07 (JAX, sums)", "3.0", "250,000")
    ]


def test_tables_of_cases_by_columns(rows: gpu_times.GpuRows) -> None:
    rows.batch["alarm"] = rows.batch["alarm"] | {"columns_device_cases_per_s": 4.0e8}
    assert cells(gpu_times.tables(rows), "alarm")[2:] == [
        *("2.4e+08", "4e+08", "1e+07", "8.0 %", "8e+07 (JAX, sums)", "5.0", "250,000")
    ]


def test_a_table_has_one_run_and_peers_of_its_gpu(tmp_path: Path) -> None:
    other = HEAD | {"device": "H200", "commit": "def"}
    more = [other | ROWS[1], other | ROWS[1] | {"network": "child"}, other | ROWS[4] | {"device_us": 1.0}]
    path = tmp_path / "gpu.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in [*more, *(HEAD | r for r in ROWS)]), encoding="utf-8")
    table = gpu_times.single(gpu_times.GpuRows.read(path))
    assert [row[0] for row in table.rows] == ["water"]  # not together with child of another GPU
    assert "134 (JAX, sums)" in cells(table, "water")
    assert "H100, driver 13.0, commit abc" in table.caption


def cpu_rows(commit: str, networks: Sequence[str], seconds: float, **more: Any) -> list[dict[str, Any]]:
    head = {"commit": commit, "device": "a CPU", "date": "2026-01-01", "question": "posteriors", "until": "arrays"}
    times = {"median": seconds, "low": seconds, "high": seconds, "largest": 8, "variables": 9, "version": "1"}
    return [
        head | times | {"network": n, "percent": p, "engine": e} | more
        for n in networks for p in (10.0, 0.0) for e in ("jtgpu cpu", "pyagrum")
    ]  # fmt: skip


def test_a_table_has_the_newest_run_of_all_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cpu.jsonl"
    monkeypatch.setattr(write_times, "ROWS", path)
    bare = cpu_rows("bare", BENCHMARK, 1e-6)
    for r in bare:
        del r["until"]  # the call alone was timed
    rows = [*cpu_rows("old", BENCHMARK, 1e-3), *cpu_rows("new", BENCHMARK, 2e-3), *bare]
    path.write_text("".join(json.dumps(r) + "\n" for r in [*rows, *cpu_rows("part", ["link"], 9.0)]), encoding="utf-8")
    found = write_times.Rows(("posteriors",))
    assert (found.commit, found.names) == ("new", sorted(BENCHMARK))
    assert cells(write_times.posteriors(found), "link") == ["2", "2", "1", "2", "2", "1"]
    text = write_times.overview(found)
    assert text.index("jtgpu, 10 %") < text.index("pyAgrum, 10 %") < text.index("jtgpu, 0 %")
    assert "commit new" in text


def test_a_run_that_lacks_networks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cpu.jsonl"
    monkeypatch.setattr(write_times, "ROWS", path)
    path.write_text("".join(json.dumps(r) + "\n" for r in cpu_rows("part", ["link"], 9.0)), encoding="utf-8")
    with pytest.raises(SystemExit, match="make bench"):
        write_times.Rows(("posteriors",))


def test_peers_that_failed_and_peers_measured_earlier_are_marked(rows: gpu_times.GpuRows) -> None:
    table = gpu_times.peers(rows)
    assert cells(table, "water") == [
        *("1", "63", "elimination order", "did not compile in 9 s", "--", "--", "190 (15)", "134 (17)")
    ]
    assert cells(table, "link") == ["1", "--", "--", "--", "--", "--", "3,700*", "--"]


def test_tables_are_empty_without_rows(tmp_path: Path) -> None:
    assert gpu_times.single(gpu_times.GpuRows.read(tmp_path / "none.jsonl")).rows == []


def test_a_csv_file_has_one_row_a_line() -> None:
    table = gpu_times.Table("x", "words", ["a", "b"], [["1", "2,000"]])
    assert write_times.as_csv(table) == 'a,b\n1,"2,000"\n'
    assert ":file: benchmarks/x.csv" in write_times.section(table)


def test_only_text_between_the_marks_is_replaced() -> None:
    assert write_times.between("a\n.. x\nold\n.. y\nb\n", ".. x\n", ".. y\n", ["new"]) == "a\n.. x\n\nnew\n.. y\nb\n"
    assert write_times.between("a\nb\n", ".. x\n", ".. y\n", ["new"]) == "a\nb\n"


def test_the_documents_are_up_to_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["write_times.py", "--check"])
    assert write_times.main() == 0, capsys.readouterr().err
