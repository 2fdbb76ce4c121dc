"""Which rules win, from measurements of every choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One measurement: the seconds of an operation on an (n, m) table with one choice."""

    operation: str  # "marginalise_m", "marginalise_n", "scatter", "gpu_...", "cpu_..."
    n: int
    m: int
    choice: int  # threads per block; for "..._ways" cells per thread (negative: fused); 0 without a choice
    seconds: float


def best_rules(rows: Sequence[Row]) -> dict[str, Any]:
    """The rules of least loss: the mean logarithm, over all tables, of a choice's time relative to the best."""
    scatter = _least_loss(rows, ("scatter_ways",))
    rules: dict[str, Any] = {
        "marginalise_threads": max(_least_loss(rows, ("marginalise_m", "marginalise_n")), 64),
        "scatter_threads": _least_loss(rows, ("scatter",)),
        "ways": _least_loss(rows, ("marginalise_m_ways", "marginalise_n_ways")),
        "scatter": "fused" if scatter < 0 else "two_phase",
        "scatter_ways": abs(scatter),
    }
    rules["split_n"] = _split(rows, rules["ways"])
    rules["min_entries"] = _threshold(rows)
    return rules


def _least_loss(rows: Sequence[Row], operations: tuple[str, ...]) -> int:
    best: dict[tuple[str, int, int], float] = {}
    for r in rows:
        if r.operation in operations:
            key = (r.operation, r.n, r.m)
            best[key] = min(best.get(key, math.inf), r.seconds)
    losses: dict[int, list[float]] = {}
    for r in rows:
        if r.operation in operations:
            losses.setdefault(r.choice, []).append(math.log(r.seconds / best[r.operation, r.n, r.m]))
    return min(sorted(losses), key=lambda c: sum(losses[c]) / len(losses[c]))


def _split(rows: Sequence[Row], ways: int) -> int:
    """The least n from which the n-parallel kernel is faster over all measured tables of that n."""
    over_m: dict[int, float] = {}
    over_n: dict[int, float] = {}
    for r in rows:
        if r.operation == "marginalise_m_ways" and r.choice == ways:
            over_m[r.n] = over_m.get(r.n, 0.0) + math.log(r.seconds)
        if r.operation == "marginalise_n_ways" and r.choice == ways:
            over_n[r.n] = over_n.get(r.n, 0.0) + math.log(r.seconds)
    both = sorted(set(over_m) & set(over_n))
    for at, n in enumerate(both):
        if all(over_n[later] <= over_m[later] for later in both[at:]):
            return n
    return min(both[-1] + 1, 1025) if both else 512


def _threshold(rows: Sequence[Row]) -> int:
    """The least table size from which the device, transfers included, is faster than the CPU on both operations."""
    cpu: dict[int, float] = {}
    gpu: dict[int, float] = {}
    for r in rows:
        for found, prefix in ((cpu, "cpu_"), (gpu, "gpu_")):
            if r.operation.startswith(prefix):
                found[r.n * r.m] = found.get(r.n * r.m, 0.0) + r.seconds
    sizes = sorted(set(cpu) & set(gpu))
    for at, size in enumerate(sizes):
        if all(gpu[later] <= cpu[later] for later in sizes[at:]):
            return size
    return sizes[-1] + 1 if sizes else 5000
