"""Elimination orders on disk: saved ones, and a memo of "auto".

"best" saves the best order of a graph, for later searches and for "saved". The memo contains what "auto" computed: it
depends on graph, seed and algorithm only, so that it saves time and never changes an order. Both have one file per key,
named by its SHA-256, in the folder ``orders`` of `jtgpu.util.system.cache_folder`. Files that cannot be read, or whose
order does not have the recorded cost, are ignored and replaced.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ...errors import OrderError
from ...util import atomic_file
from ...util.system import cache_folder
from .elimination import OrderCost, order_cost

_VERSION = 1
# Version of "auto": increase it when the order of any graph changes (a test compares orders with recorded ones).
AUTO_VERSION = 2


class SavedOrder(NamedTuple):
    """An order from the cache, its cost, the seconds and annealing steps spent on it, and what the search proved."""

    order: list[int]
    cost: OrderCost
    seconds: float
    n_steps: int
    lower_bound: float = 0.0
    optimal: bool = False


def digest(cards: Sequence[int], neighbours: Sequence[Iterable[int]], objective: str) -> str:
    """A key for the graph, its cardinalities and the objective: 64 hexadecimal digits."""
    import hashlib  # takes longer than to plan a small network, which needs no key

    pairs = {(v, int(u)) if v < u else (int(u), v) for v, around in enumerate(neighbours) for u in around if u != v}
    edges = np.array(sorted(pairs), "<i8")
    hashed = hashlib.sha256(f"jtgpu order {_VERSION} {objective} {len(cards)} {len(pairs)} ".encode())
    hashed.update(np.array(cards, "<i8").tobytes())
    hashed.update(edges.tobytes())
    return hashed.hexdigest()


def auto_key(key: str, seed: int) -> str:
    """The key of "auto" with a seed, for the graph and objective of a `digest`."""
    import hashlib

    return hashlib.sha256(f"auto {AUTO_VERSION} {seed} {key}".encode()).hexdigest()


def recall(
    key: str, cards: Sequence[int], neighbours: Sequence[Iterable[int]], objective: str
) -> SavedOrder | None:
    """The order saved under `key`, checked against the graph; None if there is no valid one."""
    try:
        data = json.loads((cache_folder() / "orders" / f"{key}.json").read_text("utf-8"))
        order = [int(v) for v in data["order"]]
        cost = order_cost(cards, neighbours, order, objective)
        seconds, n_steps = float(data["seconds"]), int(data["n_steps"])
        lower_bound, optimal = float(data.get("lower_bound", 0.0)), data.get("optimal") is True
        if data["version"] != _VERSION or data["entries"] != cost.entries or not math.isfinite(seconds + lower_bound):
            return None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, OrderError):
        return None
    return SavedOrder(order, cost, seconds, n_steps, lower_bound, optimal)


def save(key: str, found: SavedOrder) -> None:
    """Save an order; a folder that is not writable is ignored."""
    data = {
        "version": _VERSION,
        "entries": found.cost.entries,
        "seconds": round(found.seconds, 3),
        "n_steps": found.n_steps,
        "order": [int(v) for v in found.order],
    }
    if found.lower_bound:
        data |= {"lower_bound": found.lower_bound, "optimal": found.optimal}
    with contextlib.suppress(OSError):
        path = cache_folder() / "orders" / f"{key}.json"
        atomic_file.write_text(path, json.dumps(data), durable=False, make_folders=True)
