"""The result of a search for an elimination order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Improvement(NamedTuple):
    """One improvement during a search."""

    seconds: float  # time since the search began
    cost: float  # new value of the objective
    rule: str  # how it was found: a greedy rule, "anneal", "exact", "cache"


@dataclass(frozen=True)
class OrderResult:
    """An elimination order and how it was found."""

    order: NDArray[np.int64]  # (V,) int64: First eliminated first; read-only
    cost: float  # value of the objective (see `jtgpu.plans.ordering.OrderCost`)
    # entries, largest: Sum of the maximal cliques' table entries, and the largest of them
    entries: int
    largest: int
    # n_cliques, levels: Number of maximal cliques, and levels of their forest rooted at its centre (an estimate, see
    #     `OrderCost`)
    n_cliques: int
    levels: int
    # method, objective: The options of the search
    method: str
    objective: str
    trace: tuple[Improvement, ...] = field(default=(), repr=False)  # tuple of Improvement: The improvements, in order
    lower_bound: float = 0.0  # no order costs less; 0 if nothing was proven
    optimal: bool = False  # whether the cost equals the lower bound
    seed: int = 0
    n_steps: int = 0  # annealing steps of all workers
    seconds: float = 0.0  # wall-clock time
    from_cache: bool = False  # whether the order was saved by an earlier search ("best" and "saved" only)
    interrupted: bool = False  # whether Ctrl-C ended the search early
