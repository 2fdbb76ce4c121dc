"""What a search hands back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Improvement", "OrderResult"]


class Improvement(NamedTuple):
    """One step down during a search.

    Attributes
    ----------
    seconds : float
        Since the search began.
    cost : float
        Value of the objective from then on.
    rule : str
        What found it: a greedy rule, "anneal", "exact", "cache" ...
    """

    seconds: float
    cost: float
    rule: str


@dataclass(frozen=True)
class OrderResult:
    """An elimination order and how it was found.

    Attributes
    ----------
    order : (V,) int64
        First eliminated first; read-only.
    cost : float
        Value of the objective (see `jtgpu.plans.ordering.OrderCost`).
    entries, largest : int
        Sum of the maximal cliques' table entries, and the largest of them.
    n_cliques, levels : int
        Number of maximal cliques, and levels of their forest rooted at its centre (a guide, see `OrderCost`).
    method, objective : str
        As asked for.
    trace : tuple of Improvement
        How the cost fell.
    lower_bound : float
        No order costs less; 0 where nothing was proven.
    optimal : bool
        The cost equals the lower bound.
    seed : int
    n_steps : int
        Steps of the search that were made, over all workers.
    seconds : float
        Wall-clock time.
    from_cache : bool
        The order was found by an earlier search.
    interrupted : bool
        Ctrl-C ended the search early.
    """

    order: NDArray[np.int64]
    cost: float
    entries: int
    largest: int
    n_cliques: int
    levels: int
    method: str
    objective: str
    trace: tuple[Improvement, ...] = field(default=(), repr=False)
    lower_bound: float = 0.0
    optimal: bool = False
    seed: int = 0
    n_steps: int = 0
    seconds: float = 0.0
    from_cache: bool = False
    interrupted: bool = False
