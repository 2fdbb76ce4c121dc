"""All readers of tables agree which cells are missing, and which numbers no table may have."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.series import two_slices
from jtgpu.util.cells import is_missing

pd = pytest.importorskip("pandas", reason="pandas is not installed")

NET = jtgpu.network("a->b", "{0|1}", cpts={"a": [0.5, 0.5], "b": [[0.9, 0.1], [0.2, 0.8]]})
TREE = NET.compile("reference")
READERS: dict[str, Callable[[Any], Any]] = {
    "fit": lambda t: jtgpu.learn.fit({"b": ["a"]}, t),
    "fit of a network": lambda t: jtgpu.learn.fit(NET, t),
    "structure": lambda t: jtgpu.learn.structure(t, missing="drop"),
    "posterior": lambda t: jtgpu.learn.posterior(t, missing="drop"),
    "score_table": lambda t: jtgpu.learn.score_table(t, missing="drop"),
    "StructureLearner": lambda t: jtgpu.learn.StructureLearner(missing="drop").fit(t),
    "classifier": lambda t: jtgpu.JunctionTreeClassifier(backend="reference").fit(t, [0, 1] * 10),
    "check": lambda t: jtgpu.learn.check(NET, t, "b"),
    "Online": lambda t: jtgpu.learn.Online(NET).update(t),
    "discretise": lambda t: jtgpu.learn.discretise(t, columns=["a"]),
    "predict_proba": lambda t: TREE.predict_proba(t, "b"),
    "expected_counts": lambda t: TREE.expected_counts(t),
    "screen": lambda t: jtgpu.screen.top_outliers(t, 2, 2, "gower"),
    "screen by states": lambda t: jtgpu.screen.top_outliers(t, 2, 2, "hamming"),
    "two_slices": lambda t: two_slices(t, bins=2),
}


def table(cell: Any, kind: str) -> Any:
    columns = {"a": [0, 1, 1, 0] * 5, "b": [1, 1, 0, 0] * 5}
    columns["a"][5] = cell
    if kind == "frame":
        return pd.DataFrame(columns)
    return columns if kind == "lists" else {v: np.array(x) for v, x in columns.items()}


@pytest.mark.parametrize("kind", ["lists", "arrays", "frame"])
@pytest.mark.parametrize("cell", [np.inf, -np.inf, 1 + 2j], ids=str)
@pytest.mark.parametrize("reader", READERS)
def test_infinite_and_complex_numbers_are_refused(reader: str, cell: complex, kind: str) -> None:
    with pytest.raises(jtgpu.JtgpuError, match=r"'a'") as caught:
        READERS[reader](table(cell, kind))
    row = 5 if kind == "lists" or isinstance(cell, float) else 0  # all cells of a complex array are complex
    assert f"row {row}" in str(caught.value) or "dtype complex" in str(caught.value)


@pytest.mark.parametrize("reader", sorted({*READERS} - {"predict_proba"}))
def test_missing_cells_are_no_states(reader: str) -> None:
    for cell in (None, np.nan, pd.NA, pd.NaT, np.float32("nan"), np.ma.masked, decimal.Decimal("nan")):
        READERS[reader](table(cell, "lists"))


@pytest.mark.parametrize(
    ("value", "missing"),
    [
        (None, True), (float("nan"), True), (np.float32("nan"), True), (np.datetime64("NaT"), True), (pd.NA, True),
        (pd.NaT, True), (np.ma.masked, True), (decimal.Decimal("nan"), True), ("", False), ("NA", False),
        ("nan", False), (0, False), (False, False), (np.False_, False), (np.inf, False), (np.str_("None"), False),
        ((), False), (np.datetime64("2026-01-01"), False), (decimal.Decimal(1), False),
    ],
)  # fmt: skip
def test_what_is_missing(value: Any, missing: bool) -> None:
    assert is_missing(value) is missing


def test_masked_arrays() -> None:
    cells = np.ma.masked_array([[0, 1], [1, 1], [1, 0], [0, 0]], [[True, False], *[[False] * 2] * 3])
    assert TREE.posteriors_batch(cells)["a"][0].tolist() == [*TREE.posterior("a", {"b": 1}).values()]
    assert jtgpu.learn.fit(NET, cells).missing.cells == {"a": 1}
    assert jtgpu.learn.structure(cells, missing="drop").n_dropped == 1


def test_arrays_and_pandas_frames_of_samples_are_errors() -> None:
    drawn = TREE.sample(3, seed=1)
    for wrong in (pd.DataFrame, np.asarray):
        with pytest.raises(jtgpu.JtgpuError, match=r"to_frame\(\).*\.states"):
            wrong(drawn)
    assert drawn.to_frame("pandas")["a"].isin(["0", "1"]).all()


def test_na_values_are_words() -> None:
    with pytest.raises(jtgpu.errors.ArgumentError, match="na_values must be words"):
        jtgpu.learn.fit(NET, table(0, "lists"), read=jtgpu.ReadOptions(na_values=[-9]))  # type: ignore[list-item]
