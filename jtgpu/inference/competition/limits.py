"""Limits of memory, table size and time, and a plan that respects them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import TableTooLarge, format_bytes
from ...model.discrete import DiscreteModel
from ...util.system import free_memory, parse_bytes

if TYPE_CHECKING:
    from ..network_plan import NetworkPlan

SEARCH_SECONDS = 10.0  # for a better elimination order if the first one does not fit
LARGE_WORK = 5e9  # operations above which a better order is searched for, if there is time
UNLIMITED = 2**62  # entries of a table


@dataclass(frozen=True)
class Limits:
    """Resources that a task may use."""

    memory: int | float | str | None = None  # bytes. Default: 80 % of the free memory.
    max_table: int | float | None = None  # entries of the largest table. Default: no limit.
    seconds: float | None = None  # time for the whole task; a part of it is used to search for an elimination order
    # Further options of `jtgpu.BayesianNetwork.plan`; with ``order``, no other order is searched for
    options: Mapping[str, Any] = field(default_factory=dict)


def fitting_plan(model: DiscreteModel, limits: Limits) -> NetworkPlan:
    """Plan a model within limits; if the first elimination order does not fit, search longer."""
    # raises TableTooLarge: If no plan within the limits is found; the message has the width.
    memory = int(0.8 * free_memory()) if limits.memory is None else parse_bytes(limits.memory)
    table = UNLIMITED if limits.max_table is None else int(min(limits.max_table, UNLIMITED))
    width, entries = width_at_least(model)
    if entries > table or 8 * entries > memory:
        raise TableTooLarge(
            f"too wide: every elimination order has width {width} or more (at least {_power(entries)} entries in the "
            f"largest clique); {_allowed(memory, table)}",
            entries,
            8 * entries,
            memory,
        )
    best: NetworkPlan | None = None
    best_key = (True, math.inf)
    for options in _searches(limits):
        try:
            plan: NetworkPlan = model.plan(**options)
        except TableTooLarge:  # more entries than can be counted
            continue
        cost = plan.cost()
        fits = cost.bytes <= memory and cost.largest_table <= table
        key = (not fits, cost.flops if fits else cost.bytes)
        if best is None or key < best_key:
            best, best_key = plan, key
        if fits and (cost.flops < LARGE_WORK or limits.seconds is None):
            break
    if best is None:
        raise TableTooLarge(
            f"too wide: no elimination order was found whose tables could fit into any memory; the width is {width} or "
            f"more; {_allowed(memory, table)}"
        )
    cost = best.cost()
    if best_key[0]:
        raise TableTooLarge(
            f"too wide: the best elimination order found has width {cost.width} ({cost.largest:,} entries in the "
            f"largest clique) and needs {format_bytes(cost.bytes)}; {_allowed(memory, table)}",
            cost.largest,
            cost.bytes,
            memory,
        )
    return best


def _searches(limits: Limits) -> list[dict[str, Any]]:
    """Options of the plans to try, one after the other."""
    options = {"memory_limit": math.inf, "max_table": None, **limits.options}
    if "order" in options:
        return [options]
    seconds = SEARCH_SECONDS if limits.seconds is None else min(SEARCH_SECONDS, 0.2 * limits.seconds)
    return [options, options | {"order": "best", "time_limit": seconds}]


def width_at_least(model: DiscreteModel) -> tuple[int, int]:
    """Lower bounds of the treewidth and of the entries of the largest clique: the degeneracy of the moral graph.

    Any elimination order first eliminates some variable of the subgraph in which every variable has at least this many
    neighbours (Koster, Wolle, Bodlaender, "Degree-based treewidth lower bounds", 2005).
    """
    around: list[set[int]] = [set() for _ in model.variables]
    for scope, _ in model.factors:
        for v in scope:
            around[v].update(scope)
    for v, near in enumerate(around):
        near.discard(v)
    heap = [(len(near), v) for v, near in enumerate(around)]
    heapq.heapify(heap)
    smallest_cards = sorted(model.cardinality.tolist())
    width = 0
    removed: set[int] = set()
    while heap:
        degree, v = heapq.heappop(heap)
        if v in removed or degree > len(around[v]):
            continue
        width = max(width, degree)
        removed.add(v)
        for u in around[v]:
            around[u].discard(v)
            heapq.heappush(heap, (len(around[u]), u))
    return width, math.prod(smallest_cards[: width + 1])


def _power(entries: int) -> str:
    return f"{entries:,}" if entries < 10**15 else f"2^{entries.bit_length() - 1}"


def _allowed(memory: int, table: int) -> str:
    most = f" and {table:,} entries in one table" if table < UNLIMITED else ""
    return f"the limit is {format_bytes(memory)}{most}"
