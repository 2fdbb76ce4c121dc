"""The result of a search for an elimination order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Improvement", "OrderResult"]


class Improvement(NamedTuple):
    """One improvement during a search.

    Attributes
    ----------
    seconds : float
        Time since the search began.
    cost : float
        New value of the objective.
    rule : str
        How it was found: a greedy rule, "anneal", "exact", "cache" ...
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
        Number of maximal cliques, and levels of their forest rooted at its centre (an estimate, see `OrderCost`).
    method, objective : str
        The options of the search.
    trace : tuple of Improvement
        The improvements, in order.
    lower_bound : float
        No order costs less; 0 if nothing was proven.
    optimal : bool
        Whether the cost equals the lower bound.
    seed : int
    n_steps : int
        Annealing steps of all workers.
    seconds : float
        Wall-clock time.
    from_cache : bool
        Whether the order was saved by an earlier search ("best" and "saved" only).
    interrupted : bool
        Whether Ctrl-C ended the search early.
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
