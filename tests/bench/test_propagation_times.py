"""The picture of GPU times: every kind of row lands where it belongs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT

pytest.importorskip("matplotlib")
sys.path.insert(0, str(ROOT / "bench"))

from propagation_times import draw_bench, figure_bench, read_rows

ROWS = [
    {"network": "water", "device_us": {"median": 62.0}, "cpu_us": 8000.0, "roofline_us": 20.0},
    {"network": "alarm", "device_us": {"median": 99.0}, "cpu_us": 30.0, "roofline_us": 25.0},
    {"network": "alarm", "device_us": {"median": 27.0}, "cpu_us": 30.0, "roofline_us": 25.0},  # the last counts
    {"network": "alarm", "device_cases_per_s": 2e8, "cases_per_s": 1e7, "cpu_cases_per_s": 2e5},
    {"network": "alarm", "peer": "jax", "batch": 0, "device_us": 216.0, "cases_per_s": 4600},
    {"network": "alarm", "peer": "jax", "batch": 32768, "device_us": 430.0, "cases_per_s": 7.5e7},
    {"network": "alarm", "peer": "jax-sum", "batch": 0, "device_us": 88.0, "cases_per_s": 11364},  # the better counts
    {"network": "water", "peer": "torch", "batch": 0, "failed": "did not compile in 150 s"},
    {"network": "water", "peer": "jax", "batch": 0, "device_us": 389.0, "cases_per_s": 2571, "earlier": True},
    {
        "network": "alarm",
        "peer": "jax",
        "batch": 0,
        "device_us": 10.0,
        "cases_per_s": 1,
        "earlier": True,
    },  # was measured
    {"network": "alarm", "device_us": {"median": 1.0}, "cpu_us": 1.0, "roofline_us": 1.0, "dtype": "float32"},
]


def test_every_row_finds_its_place() -> None:
    figure = figure_bench(ROWS)
    single, many = figure.axes
    assert [t.get_text() for t in single.get_xticklabels()] == ["alarm", "water"]
    assert single.get_yscale() == many.get_yscale() == "log"
    points = {c.get_label(): np.asarray(c.get_offsets()).tolist() for c in single.collections}
    assert points["jtgpu, gpu"] == [[0.0, 27.0], [1.0, 62.0]]
    assert points["JAX"] == [[0.0, 88.0]]
    assert points["JAX, earlier"] == [[1.0, 389.0]]
    assert points["published 2014, GTX 680"] == [[1.0, 140_000.0]]
    assert "torch" not in points
    many_points = {c.get_label(): np.asarray(c.get_offsets()).tolist() for c in many.collections}
    assert many_points == {"JAX": [[0.0, 7.5e7]], "jtgpu, cpu": [[0.0, 2e5]], "jtgpu, gpu": [[0.0, 2e8]]}


@pytest.mark.slow
def test_the_same_rows_give_the_same_file(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join(json.dumps(r) for r in ROWS) + "\n\n", encoding="utf-8")
    for name in ("a.svg", "b.svg"):
        draw_bench(read_rows(source), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
