"""Faults of readers that users met, a test a row; the others are tested with the code that had them.

T2, T4: tests/learn/test_codes.py. T3, N9: test_closure.py. T5: tests/cases/test_header.py.
T6, R14, N18: tests/learn/dags (test_missing_cells, test_time_limit, test_coded). T8, N8: tests/cli/test_explore.py.
T10: tests/learn/parameters/test_fit.py. N20, F10, O11: test_cells.py. R2, R5: tests/cases/test_irregular_rows.py.
R4: tests/plans/test_plan.py, tests/cases/test_table_files.py.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import jtgpu
from tests.cli.commands import run

pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def test_n1_zero_and_one_are_no_state_numbers() -> None:
    """A fit of asia to its own samples, as 0 and 1, gave P(lung = yes) = 0.922."""
    asia = jtgpu.load("asia")
    samples = asia.compile("cpu").sample(5000, seed=1)
    numbers = {v: [int(s == "yes") for s in samples[v]] for v in samples}
    with pytest.raises(jtgpu.UnknownState, match=r"row 0, column 'asia': 0 is not a state.*with_codes"):
        jtgpu.learn.fit(asia, numbers)
    fit = jtgpu.learn.fit(asia, numbers, read=jtgpu.ReadOptions(codes={v: {1: "yes", 0: "no"} for v in asia}))
    assert fit.network.compile("cpu").posterior("lung")["yes"] == pytest.approx(0.055, abs=0.02)


def test_t1_thousands_are_no_decimals(tmp_path: Path) -> None:
    """1,200 was 1.2, and 900 was 900."""
    path, net = tmp_path / "price.tsv", str(tmp_path / "price.net")
    path.write_text("price\tclass\n" + "500\tlow\n700\tlow\n900\tlow\n1,200\thigh\n2,500\thigh\n4,000\thigh\n" * 20)
    assert "decimal" in run("learn", str(path), "--bins", "3", "-o", net).stderr
    assert run("learn", str(path), "--bins", "3", "--thousands", ",", "-o", net).exit_code == 0
    assert jtgpu.read(net).compile("cpu").posterior("class", {"price": 2500})["high"] > 0.98


def test_r15_brackets_take_no_quadratic_time(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("x,y\n" + "".join(f"[{';' * n}{n},a\nb,b\n" for n in (100_000, 100_001, 100_002)))
    begun = time.process_time()
    assert len(jtgpu.learn.fit({"x": []}, path).network.states("x")) == 4
    assert time.process_time() - begun < 10.0  # 0.9 s for each 16 KB before
