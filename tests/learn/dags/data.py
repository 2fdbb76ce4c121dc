"""Random tables of discrete data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jtgpu.learn.dags.scores.coded import CodedTable
from jtgpu.options.compute import Compute
from jtgpu.options.learning import Chains, Constraints, Search
from jtgpu.options.record import fields_of
from jtgpu.options.tables import ReadOptions

__all__ = ["in_records", "random_table", "table_of"]


def table_of(codes: Any, cards: Any, weights: Any = None) -> CodedTable:
    """A coded table whose variables are a, b, c, ..."""
    codes = np.array(codes, np.uint8)
    names = tuple(chr(97 + i) if i < 26 else f"v{i}" for i in range(len(codes)))
    states = tuple(tuple(f"s{j}" for j in range(r)) for r in cards)
    return CodedTable(names, states, codes, None if weights is None else np.array(weights, np.int64))


def random_table(seed: int, n: int = 5, n_rows: int = 60, most: int = 4, weighted: bool = False) -> CodedTable:
    """Columns that depend on each other: each is the sum of two earlier ones and noise."""
    rng = np.random.default_rng(seed)
    cards = rng.integers(2, most + 1, n)
    codes = np.zeros((n, n_rows), np.int64)
    for v in range(n):
        codes[v] = rng.integers(0, cards[v], n_rows) * (rng.random(n_rows) < 0.5)
        if v > 1:
            codes[v] += codes[rng.integers(0, v)] + codes[rng.integers(0, v)]
        codes[v] %= cards[v]
    return table_of(codes, cards, rng.integers(1, 5, n_rows) if weighted else None)


def in_records(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name as arguments of `jtgpu.learn.posterior`: fields of records in their records."""
    records: dict[str, type[Any]] = {
        "constraints": Constraints, "search": Search, "chains": Chains, "read": ReadOptions, "compute": Compute,
    }  # fmt: skip
    made = dict(options)
    for keyword, record in records.items():
        own = {name: made.pop(name) for name in [*made] if name in fields_of(record)}
        if own:
            made[keyword] = record(**own)
    return made
