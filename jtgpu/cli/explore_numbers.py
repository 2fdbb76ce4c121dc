"""``jtgpu explore --numbers``: how well networks with numbers predict a column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError, JtgpuError
from ..inference.tables import as_numbers
from ..util.text_table import counted


class Predictions(NamedTuple):
    """Predictions of rows that did not help to learn the networks."""

    n: int
    folds: int
    error: float  # root mean square error of a number; share of wrong states
    baseline: float  # the same of the mean, or of the most frequent state, of the other rows
    is_number: bool

    def text(self, target: str) -> str:
        """A line about them."""
        rows = f"{counted(self.n, 'row')}, by {self.folds}-fold cross-validation"
        if self.is_number:
            return f"Error for {target}: {self.error:.4g} (root mean square) of {rows} (mean: {self.baseline:.4g})"
        return (
            f"Accuracy for {target}: {100 * (1 - self.error):.1f} % of {rows} (most frequent state: "
            f"{100 * (1 - self.baseline):.1f} %)"
        )

    def as_json(self) -> dict[str, Any]:
        """The same as values that JSON can hold."""
        if self.is_number:
            return {"n": self.n, "rmse": self.error, "baseline_rmse": self.baseline}
        return {"n": self.n, "accuracy": 1 - self.error, "baseline": 1 - self.baseline}


def numeric_options(cases: Any, numeric: Sequence[str], seed: int) -> dict[str, Any]:
    """Options of the structure of a table with numbers."""
    gaps = any(column.null_count for column in cases.columns)
    only_numbers = len(numeric) == cases.num_columns
    return {
        "seed": seed, "score": "bge" if only_numbers else "bic-cg", "numbers": list(numeric),
        "missing": "drop" if gaps else "error",
    }  # fmt: skip


def judge(
    cases: Any, target: str, numeric: Sequence[str], network: Callable[[Any], Any], folds: int, seed: int
) -> Predictions | None:
    """Predict a column of each fold by a network of the others; None if there are too few rows."""
    # cases: Arrow table
    # network: makes a network from a part of the table
    fold = np.random.default_rng(seed).permutation(cases.num_rows) % folds
    column, others = cases.column(target), cases.drop_columns([target])
    known = np.array([x is not None for x in column.to_pylist()])
    total, expected, n = 0.0, 0.0, 0
    with suppress(JtgpuError):
        for k in range(folds):
            own, rest = known & (fold == k), known & (fold != k)
            if not own.any() or not rest.any():
                raise DataError("too few rows")
            tree = network(cases.filter(fold != k)).compile()
            predicted = tree.predict(others.filter(own), target)
            if target in numeric:
                x = as_numbers(column)
                assert x is not None
                total += float(((np.asarray(predicted, np.float64) - x[own]) ** 2).sum())
                expected += float(((x[rest].mean() - x[own]) ** 2).sum())
            else:
                words = np.array([str(s) for s in column.to_pylist()])
                states, counts = np.unique(words[rest], return_counts=True)
                total += float((np.asarray(predicted).astype(str) != words[own]).sum())
                expected += float((words[own] != states[np.argmax(counts)]).sum())
            n += int(own.sum())
        is_number = target in numeric
        return Predictions(n, folds, _mean(total, n, is_number), _mean(expected, n, is_number), is_number)
    return None


def _mean(total: float, n: int, is_number: bool) -> float:
    return float(np.sqrt(total / n)) if is_number else total / n
