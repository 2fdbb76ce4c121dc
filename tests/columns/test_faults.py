"""Faults of readers that users met, a test a row; the others are tested with the code that had them.

T2, T4: tests/learn/test_codes.py. T3, N9: test_closure.py. T5: tests/cases/test_header.py.
T6, R14, N18: tests/learn/dags (test_missing_cells, test_time_limit, test_coded). T8, N8: tests/cli/test_explore.py.
T10: tests/learn/parameters/test_fit.py. N20, F10, O11: test_cells.py. R2, R5: tests/cases/test_irregular_rows.py.
R4: tests/plans/test_plan.py, tests/cases/test_table_files.py.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
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


def test_a_fit_of_a_file_asks_for_the_mark_of_thousands(tmp_path: Path) -> None:
    """T1's sibling: a fit read the words 1,200 and 900 where a structure refused."""
    path = tmp_path / "price.tsv"
    path.write_text("price\tclass\n" + "900\tlow\n1,200\thigh\n" * 20)
    for learner in (jtgpu.learn.structure, lambda table: jtgpu.learn.fit({"class": ["price"]}, table)):
        with pytest.raises(jtgpu.DataError, match=r"column 'price': 1,200 may be 1200 or 1\.200"):
            learner(path)


@pytest.mark.parametrize("kind", [np.int64, np.float64, object])
def test_a_fit_of_an_array_counts_the_numbers_that_it_names(kind: Any) -> None:
    """States were 5 and 9 by name, and read by number; -1, not observed in arrays, was a state, so that 0 was '-1'."""
    array = np.array([[0, 5], [0, 9], [1, -1], [1, 5], [-1, 5]] * 4).astype(kind)
    fit = jtgpu.learn.fit({"x": [], "y": []}, array, pseudo_counts=0)
    assert (fit.network.states("x"), fit.network.states("y")) == (("0", "1"), ("5", "9"))
    assert fit.network.cpt("x").tolist() == pytest.approx([1 / 2, 1 / 2])
    assert fit.network.cpt("y").tolist() == pytest.approx([3 / 4, 1 / 4])
    assert fit.missing.cells == {"x": 4, "y": 4}


def test_a_fit_of_no_rows_names_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("x,y\n")
    tables: list[Any] = [path, {"x": [], "y": []}]
    for table in tables:
        with pytest.raises(jtgpu.DataError, match="has no rows"):
            jtgpu.learn.fit({"y": ["x"]}, table)
