"""A table of cases on the host: rows as the kernels read them, weights scaled, equal rows found.

Arrays only; knows no device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....errors import EvidenceError
from ....util.rows import Each, extremes, taken, threads_for

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Rows", "checked_states", "read_rows"]

SAMPLE = 512  # rows looked at before all are compared
WORTH = 0.9  # share of different rows in the sample below which comparing all pays
WIDE = 1 << 21  # bytes of rows that are made numbers of at a time: each takes the interpreter's lock twice
PIECES = 4  # of those, that a thread is sent for at a time
NO_WEIGHTS = 0xFFFFFFFF  # NONE of the kernels


@dataclass(frozen=True)
class Rows:
    """B cases, each different row once where that was worth finding out."""

    states: NDArray[np.int32]  # (n, V) observed states, -1 = not observed
    weights: NDArray[np.float64]  # (n, W) of all weighed variables side by side, the largest of a row in [0.5, 1)
    weight_row: NDArray[np.uint32]  # (V,) where a variable's weights begin; NO_WEIGHTS
    log_scale: NDArray[np.float64]  # (n,) what was taken out of the weights, natural logarithm
    smallest: float  # lower bound of log2 of the product of a row's weights, one a variable; 0 without weights
    place: NDArray[np.int64] | None  # (B,) the row that answers each case; None: its own


def checked_states(states: ArrayLike, cardinality: NDArray[np.int64]) -> NDArray[np.int32]:
    """Observed states as (B, V) int32.

    Raises
    ------
    EvidenceError
        For an array of another shape or type, or a state that a variable does not have.
    """
    table = np.asarray(states)
    if table.ndim != 2 or table.shape[1] != len(cardinality) or table.dtype.kind not in "iu":
        raise EvidenceError(
            f"cases are integers of shape (B, {len(cardinality)}), not {table.dtype} of shape {table.shape}"
        )
    low, high = extremes(table)  # twice as fast as comparing every cell
    if (low < -1).any() or (high >= cardinality).any():
        row, v = np.argwhere((table < -1) | (table >= cardinality))[0].tolist()
        raise EvidenceError(f"case {row}: variable {v} has {cardinality[v]} states, not a state {table[row, v]}")
    return np.ascontiguousarray(table, np.int32)


def read_rows(
    states: NDArray[np.int32],
    likelihood: Mapping[int, NDArray[np.float64]] | None,
    cardinality: NDArray[np.int64],
    *,
    merge: bool,
) -> Rows:
    """Rows as the kernels read them.

    Parameters
    ----------
    states : (B, V) int32
    likelihood : mapping, optional
        Variable to weights >= 0, (B, card).
    cardinality : (V,)
    merge : bool
        Whether to look for equal rows in any case; else only where a sample of rows has many.

    Raises
    ------
    EvidenceError
        For weights of another shape, or that are negative or not finite.
    """
    n, n_variables = states.shape
    weight_row = np.full(n_variables, NO_WEIGHTS, np.uint32)
    log_scale = np.zeros(n)
    smallest = 0.0
    parts: list[NDArray[np.float64]] = []
    at = 0
    for v, given in sorted((likelihood or {}).items()):
        table = np.asarray(given, np.float64)
        card = int(cardinality[v])
        if table.shape != (n, card):
            raise EvidenceError(f"the weights of variable {v} have shape {table.shape}, not ({n}, {card})")
        if not np.isfinite(table).all() or (table < 0).any():
            raise EvidenceError(f"the weights of variable {v} need finite numbers >= 0")
        top = table.max(axis=1, initial=0.0)
        shift = np.where(top > 0, np.frexp(top)[1], 0)
        log_scale += shift * np.log(2.0)
        scaled = np.ldexp(table, -shift[:, None])
        positive = scaled[scaled > 0]
        smallest += float(np.log2(positive.min())) if len(positive) else 0.0
        weight_row[v] = at
        parts.append(scaled)
        at += card
    weights = np.ascontiguousarray(np.hstack(parts)) if parts else np.zeros((n, 0))
    place = None
    if n > 1:
        both = [states.view(np.uint32)] + ([weights.view(np.uint32)] if at else [])
        keep, place = _distinct(np.hstack(both) if at else both[0], merge)
        if place is not None:
            states, weights, log_scale = taken(states, keep), weights[keep], log_scale[keep]
    return Rows(states, weights, weight_row, log_scale, smallest, place)


def _distinct(rows: NDArray[np.uint32], merge: bool) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Numbers of the different rows, in ascending order, and for each row which of them it equals; None: all differ,
    or it was not worth looking."""
    n = len(rows)
    every = np.arange(n)
    if not merge:
        sample = rows[:: max(n // SAMPLE, 1)]
        if len(np.unique(_hashes(sample, map))) > WORTH * len(sample):
            return every, None
    with threads_for(rows.nbytes) as each:
        hashes = _hashes(rows, each)
        ordered = np.sort(hashes)
        if not (ordered[1:] == ordered[:-1]).any():  # in a tenth of the time that finding out who equals whom takes
            return every, None
        _, first, place = np.unique(hashes, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        keep = first[order]
        turned = np.empty(len(order), np.int64)
        turned[order] = np.arange(len(order))
        place = turned[place.reshape(-1)]
        if not _equal(rows, keep[place], each):  # a hash is no proof
            return every, None
    return keep, place


def _equal(rows: NDArray[np.uint32], to: NDArray[np.int64], each: Each) -> bool:
    """Does each row equal the one that is said to be the same?"""
    step = _at_a_time(rows)

    def look(first: int) -> bool:
        some = slice(first, first + step)
        return np.array_equal(rows[to[some]], rows[some])

    return all(each(look, range(0, len(rows), step)))


def _hashes(rows: NDArray[np.uint32], each: Each) -> NDArray[np.uint64]:
    """One number a row: a sum of random multiples of its numbers, the same ones in every process."""
    odd = np.random.default_rng(20141).integers(0, 2**63, rows.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    found = np.zeros(len(rows), np.uint64)
    few = _at_a_time(rows)

    def add(first: int) -> None:
        wide = np.empty((min(few, len(rows) - first), rows.shape[1]), np.uint64)  # once: fresh memory is slow to touch
        for at in range(first, min(first + PIECES * few, len(rows)), few):
            some = rows[at : at + few]
            np.copyto(wide[: len(some)], some)
            np.einsum("ij,j->i", wide[: len(some)], odd, out=found[at : at + few])

    list(each(add, range(0, len(rows), PIECES * few)))
    mixed: NDArray[np.uint64] = found ^ (found >> np.uint64(29))
    return mixed


def _at_a_time(rows: NDArray[np.uint32]) -> int:
    """Rows that are widened at a time."""
    return max(WIDE // max(8 * int(rows.shape[1]), 1), 1)
