"""Weights, outliers and solving sets by brute force in exact arithmetic."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

__all__ = ["distance", "solving_set_holds", "top", "weights"]

Row = Sequence[Any]  # None: missing


def distance(a: Row, b: Row, metric: str, ranges: Sequence[Fraction | None] = ()) -> Fraction:
    """The distance of two rows; of ``"euclidean"`` for rows of one column only."""
    if metric in ("manhattan", "euclidean"):
        assert metric == "manhattan" or len(a) == 1
        return sum((abs(Fraction(x) - Fraction(y)) for x, y in zip(a, b, strict=True)), Fraction(0))
    both = [j for j in range(len(a)) if a[j] is not None and b[j] is not None]
    total = Fraction(0)
    for j in both:
        scale = ranges[j] if ranges else None
        total += Fraction(int(a[j] != b[j])) if scale is None else abs(Fraction(a[j]) - Fraction(b[j])) / (scale or 1)
    return total / len(both) if both else Fraction(1)


def weights(
    rows: Sequence[Row], others: Sequence[Row], k: int, metric: str, ranges: Sequence[Fraction | None] = ()
) -> list[Fraction]:
    """The sums of the k smallest distances of some rows to others."""
    return [sum(heapq.nsmallest(k, (distance(a, b, metric, ranges) for b in others)), Fraction(0)) for a in rows]


def top(found: Sequence[Fraction], n: int) -> list[int]:
    """The n rows of largest weight; of equal weights the first."""
    return sorted(range(len(found)), key=lambda i: (-found[i], i))[:n]


def solving_set_holds(
    rows: Sequence[Row], chosen: Sequence[int], n: int, k: int, metric: str, ranges: Sequence[Fraction | None] = ()
) -> bool:
    """Whether rows are a solving set by its definition."""
    inside = [rows[i] for i in chosen]
    if len(chosen) < max(n, k):
        return False
    least = sorted(weights(inside, rows, k, metric, ranges))[-n]
    others = [rows[i] for i in sorted({*range(len(rows))} - {*chosen})]
    return all(w < least for w in weights(others, inside, k, metric, ranges))
