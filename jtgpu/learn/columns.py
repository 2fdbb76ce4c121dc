"""Columns of values: read from tables of any kind, and converted to state numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import EvidenceError, closest

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["class_column", "named_columns", "sample_weights", "sorted_values", "state_labels", "state_numbers"]


def named_columns(X: Any) -> tuple[list[str], list[NDArray[Any]]] | None:
    """Names and columns of a data frame or a mapping of columns; None for a table without names.

    Raises
    ------
    EvidenceError
        If two columns have the same name, or columns differ in length.
    """
    if not (isinstance(X, Mapping) or hasattr(X, "columns")):
        return None
    keys = list(X if isinstance(X, Mapping) else X.columns)
    names = [str(key) for key in keys]
    columns = [_as_column(X[key]) for key in keys]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise EvidenceError(f"X has two columns named {twice!r}")
    if len({len(c) for c in columns}) > 1:
        raise EvidenceError(f"the columns of X have different lengths: {sorted({len(c) for c in columns})}")
    return names, columns


def _as_column(column: Any) -> NDArray[Any]:
    # an object array keeps labels, numbers and None of a list apart
    found = column if isinstance(column, np.ndarray) else np.asarray(getattr(column, "array", column), object)
    if found.ndim != 1:
        raise EvidenceError(f"a column of X has shape {found.shape}, expected one dimension")
    return found


def class_column(y: Any) -> NDArray[Any]:
    """The classes as an array, (n,).

    Raises
    ------
    EvidenceError
        If `y` has another shape, or a missing value.
    """
    classes = np.asarray(y)
    if classes.ndim != 1:
        raise EvidenceError(f"y has shape {classes.shape}, expected (n,): one class for each row")
    if classes.dtype.kind in "fO" and any(_is_missing(v) for v in classes.tolist()):
        raise EvidenceError("y has a missing value; remove rows without a class")
    return classes


def sample_weights(weights: ArrayLike | None, n: int) -> NDArray[np.float64]:
    """Weights of n rows, (n,); ones by default.

    Raises
    ------
    EvidenceError
        If the shape is wrong, or a weight is negative or not finite.
    """
    if weights is None:
        return np.ones(n)
    found = np.asarray(weights, np.float64)
    if found.shape != (n,) or not (found >= 0).all() or not np.isfinite(found).all():
        raise EvidenceError(f"sample_weight must be {n} finite numbers >= 0, got an array of shape {found.shape}")
    return found


def sorted_values(column: NDArray[Any]) -> list[Any]:
    """Distinct values of a column, ascending; those of different types by type."""
    found = list(dict.fromkeys(v for v in column.tolist() if not _is_missing(v)))
    try:
        return sorted(found)
    except TypeError:
        return sorted(found, key=lambda v: (type(v).__name__, str(v)))


def state_labels(values: Iterable[Any]) -> list[str]:
    """Names of states for values; values with the same text are distinguished by their type."""
    values = list(values)
    names = [str(v) for v in values]
    return names if len(set(names)) == len(names) else [f"{type(v).__name__}:{v}" for v in values]


def state_numbers(name: str, column: NDArray[Any], values: list[Any], unknown: str) -> NDArray[np.int64]:
    """Numbers of a column's values, -1 for missing ones.

    Parameters
    ----------
    name : str
        The column's name, for messages.
    column : (n,) ndarray
    values : list
        The values with a number, in order.
    unknown : {"error", "missing"}
        How other values are treated.
    """
    place = {v: i for i, v in enumerate(values)}
    by_name = {str(v): i for i, v in enumerate(values)} if all(isinstance(v, str) for v in values) else {}
    found: dict[Any, int] = {}
    numbers = np.empty(len(column), np.int64)
    for row, value in enumerate(column.tolist()):
        try:
            number = found.get(value)
        except TypeError:
            raise EvidenceError(f"row {row}: column {name!r} has {value!r}, which is not a single value") from None
        if number is None:
            number = -1 if _is_missing(value) else place.get(value, by_name.get(str(value)))
            if number is None:
                if unknown == "error":
                    raise EvidenceError(
                        f"row {row}: column {name!r} has the unknown value {value!r}{closest(str(value), by_name)}"
                        ' (unknown="missing" treats it as missing)'
                    )
                number = -1
            found[value] = number
        numbers[row] = number
    return numbers


def _is_missing(value: Any) -> bool:
    # pandas.NA by its type's name: comparing it gives NA, which has no truth value
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))
