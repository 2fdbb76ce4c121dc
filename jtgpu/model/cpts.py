"""Rows of conditional probability tables: normalisation, checks, and read-only arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NetworkError
from ..util.arguments import choice

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ..util.options import ZeroRows

ROW_TOLERANCE = 1e-6  # largest difference between 1 and the sum of a CPT row that the constructor accepts


@dataclass(frozen=True)
class RowReport:
    """Result of `normalize_rows`: the CPT rows that did not sum to one.

    Attributes
    ----------
    n_rows, n_off : int
        Number of rows, and of those whose sum differed from 1 by more than `tolerance`.
    worst_variable : str or None
        Variable of the row whose sum was furthest from 1; None if all rows summed to 1.
    worst_sum : float
        Sum of that row before normalisation.
    variables : tuple of str
        Variables with at least one such row.
    zero_rows : tuple of (str, int)
        Variables with rows of zeros, and their number; these rows were made uniform.
    tolerance : float
    """

    n_rows: int = 0
    n_off: int = 0
    worst_variable: str | None = None
    worst_sum: float = 1.0
    variables: tuple[str, ...] = ()
    zero_rows: tuple[tuple[str, int], ...] = ()
    tolerance: float = ROW_TOLERANCE

    def __str__(self) -> str:
        if not self.n_off and not self.zero_rows:
            return f"all {self.n_rows} CPT rows sum to 1"
        text = (
            f"{self.n_off} of {self.n_rows} CPT rows in {len(self.variables)} variables did not sum to 1 and were "
            f"normalised; the worst summed to {self.worst_sum:.6g} ({self.worst_variable!r})"
        )
        if self.zero_rows:
            n = sum(count for _, count in self.zero_rows)
            text += f"; {n} rows were all zeros and were made uniform ({', '.join(v for v, _ in self.zero_rows)})"
        return text


def normalize_rows(
    cpts: Mapping[str, NDArray[np.float64]],
    *,
    zero_rows: ZeroRows = "error",
    tolerance: float = ROW_TOLERANCE,
    in_place: bool = False,
) -> tuple[dict[str, NDArray[np.float64]], RowReport]:
    """Divide every row (last axis) of every CPT by its sum.

    A row of k numbers whose sum differs from 1 by at most k * 1e-15 is unchanged, bit for bit.

    Parameters
    ----------
    cpts : mapping of str to float64 arrays
        Axes: parents in order, then the variable.
    zero_rows : {"error", "uniform"}
        How to treat a row of zeros.
    tolerance : float
        Difference between a row's sum and 1 above which the row is counted in the report.
    in_place : bool
        Write to the given arrays if they are float64 and writeable, instead of allocating new ones.

    Returns
    -------
    dict of str to float64 arrays
    RowReport

    Raises
    ------
    NetworkError
        If a number is negative or not finite, or, unless ``zero_rows="uniform"``, a row is all zeros.
    """
    choice("zero_rows", zero_rows, ("error", "uniform"))
    out: dict[str, NDArray[np.float64]] = {}
    n_rows = n_off = 0
    worst, worst_sum, worst_variable = 0.0, 1.0, None
    off_variables, zeroed = [], []
    for name, cpt in cpts.items():
        table = np.asarray(cpt, np.float64)
        check_numbers(name, table)
        table, sums, zero = _row_sums(name, table, zero_rows)
        n_rows += sums.size
        if zero.any():
            zeroed.append((name, int(zero.sum())))
        gap = np.where(zero, 0.0, np.abs(sums - 1.0))
        off = int((gap > tolerance).sum())
        if off:
            n_off += off
            off_variables.append(name)
            # by ratio: a sum of 0.01 is as far from 1 as a sum of 100
            with np.errstate(divide="ignore", over="ignore"):
                ratio = np.where(zero, 0.0, np.maximum(sums, 1.0 / sums))
            at = int(ratio.argmax())
            if ratio.flat[at] > worst:
                worst, worst_sum, worst_variable = float(ratio.flat[at]), float(sums.flat[at]), name
        exact = (gap <= 1e-15 * table.shape[-1]) & ~zero  # zero rows are ones by now and must be divided
        if not exact.all():
            mine = in_place and table is cpt and table.flags.writeable
            table = np.divide(table, np.where(exact, 1.0, sums), out=table if mine else None)
        out[name] = table
    report = RowReport(
        n_rows, n_off, worst_variable, worst_sum, tuple(off_variables), tuple(zeroed), tolerance
    )
    return out, report


def _row_sums(
    name: str, table: NDArray[np.float64], zero_rows: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """The table, scaled if its sums overflow and with ones in rows of zeros; sums of the rows; rows of zeros."""
    with np.errstate(over="ignore"):
        sums = table.sum(axis=-1, keepdims=True)
    if not np.isfinite(sums).all():  # numbers near the largest double: scale before adding
        table = table / table.max(axis=-1, keepdims=True, initial=1.0)
        sums = table.sum(axis=-1, keepdims=True)
    zero = sums == 0
    if zero.any():
        if zero_rows == "error":
            row = np.argwhere(zero[..., 0])[0].tolist()
            raise NetworkError(
                f"variable {name!r}: {int(zero.sum())} rows of its CPT are all zeros (first at parent "
                f'configuration {tuple(row)}); pass zero_rows="uniform" to make them uniform'
            )
        table = np.where(zero, 1.0, table)
        sums = table.sum(axis=-1, keepdims=True)
    return table, sums, zero


def check_numbers(name: str, table: NDArray[np.float64]) -> None:
    """Raise `NetworkError` if a number is negative or not finite."""
    if table.size and not np.isfinite(table).all():
        bad = table.flat[int(np.argmax(~np.isfinite(table)))]
        raise NetworkError(f"variable {name!r}: its table holds {bad}, which is not a probability")
    if table.size and table.min() < 0:
        raise NetworkError(f"variable {name!r}: its table holds the negative number {table.min():g}")


def freeze(table: ArrayLike) -> NDArray[np.float64]:
    """A read-only float64 array of `table`: the array itself if nothing can write to it, else a copy."""
    if isinstance(table, np.ndarray) and table.dtype == np.float64 and table.flags.c_contiguous:
        array: Any = table
        while isinstance(array, np.ndarray) and not array.flags.writeable:
            array = array.base
        if array is None:
            return np.asarray(table)  # without the labels of a Cpt
    frozen = np.array(table, dtype=np.float64, order="C", copy=True)
    frozen.flags.writeable = False
    return frozen
