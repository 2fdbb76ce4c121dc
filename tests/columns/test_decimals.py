"""Decimal numbers, as databases have them: the same as floats in tables of every kind."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
TEXTS = ["0.3", "0.6", "0.7", None, "0.3", "-2.9"] * 5
OTHER = [float(i % 7) / 3 for i in range(len(TEXTS))]
LIBRARIES = ("mapping", "rows", "pandas", "polars", "arrow")


def table(library: str) -> Any:
    cells = [None if x is None else Decimal(x) for x in TEXTS]
    if library == "rows":
        return [{"x": x, "y": y} for x, y in zip(cells, OTHER, strict=True)]
    columns = {"x": cells, "y": OTHER}
    if library == "arrow":
        return pa.table({"x": pa.array(cells, pa.decimal128(9, 1)), "y": OTHER})
    if library == "mapping":
        return columns
    return pytest.importorskip(library).DataFrame(columns)


@pytest.mark.parametrize("library", LIBRARIES)
def test_decimals_name_states(library: str) -> None:
    cases = table(library)
    fitted = jtgpu.learn.fit({"x": []}, cases, states={"x": ["-2.9", "0.3", "0.6", "0.7"]}, pseudo_counts=0)
    assert np.asarray(fitted.network.cpt("x")) == pytest.approx([0.2, 0.4, 0.2, 0.2])
    learned = jtgpu.learn.fit({"x": []}, cases)
    assert set(learned.network.states("x")) == {"-2.9", "0.3", "0.6", "0.7"}
    assert learned.missing.cells == {"x": 5}


@pytest.mark.parametrize("library", LIBRARIES)
def test_decimals_are_numbers(library: str, tmp_path: Path) -> None:
    cases: Any = table(library)
    x = [None if t is None else float(t) for t in TEXTS]
    floats = {"x": x, "y": OTHER}
    expected = jtgpu.learn.fit({"y": ["x"]}, floats, continuous="gaussian").network
    assert jtgpu.learn.fit({"y": ["x"]}, cases, continuous="gaussian").network == expected
    assert jtgpu.learn.fit({"y": ["x"]}, cases, continuous={"x": "gaussian", "y": "gaussian"}).network == expected
    wanted = jtgpu.learn.structure(floats, score="bge", missing="drop")
    assert jtgpu.learn.structure(cases, score="bge", missing="drop").score == wanted.score
    assert jtgpu.learn.discretise(cases, bins=2).states == jtgpu.learn.discretise(floats, bins=2).states
    with expected.compile("cpu") as tree:
        assert np.array_equal(tree.log_likelihood(cases), tree.log_likelihood(floats))
    if library == "arrow":
        pq.write_table(cases, tmp_path / "cases.parquet")
        again = jtgpu.learn.fit({"y": ["x"]}, tmp_path / "cases.parquet", continuous="gaussian")
        assert again.network == expected


def test_a_cell_that_is_no_number_is_named() -> None:
    net = jtgpu.MixedNetwork({"x": float}, {}, {"x": jtgpu.Gaussian(0)})
    with net.compile("cpu") as tree, pytest.raises(jtgpu.EvidenceError, match=r"row 1, column 'x'.*got 'a'"):
        tree.log_likelihood({"x": [Decimal("0.5"), "a", 1.0]})
