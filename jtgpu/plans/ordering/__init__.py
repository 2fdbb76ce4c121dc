"""Elimination orders: greedy rules, the search for good ones, ``.num`` and ``.td`` files, and a cache on disk."""

from __future__ import annotations

from .elimination import LEVEL_ENTRIES, OBJECTIVES, OrderCost, order_cost
from .files import Improvement, OrderResult, as_order, read_num, write_num
from .search import METHODS, find_order, warm_up
from .tree_decomposition import read_td, write_td

__all__ = [
    "LEVEL_ENTRIES",
    "METHODS",
    "OBJECTIVES",
    "Improvement",
    "OrderCost",
    "OrderResult",
    "as_order",
    "find_order",
    "order_cost",
    "read_num",
    "read_td",
    "warm_up",
    "write_num",
    "write_td",
]
