"""One case, also of two worlds, by variable elimination without a plan: a plan takes longer than some answers."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ...backends.base import Evidence
from ...model.directed import descendants
from ...model.network import BayesianNetwork
from ...util.arrays import Floats

MOST = 1 << 22  # entries of a product; larger ones are for a plan, whose order is better
MOST_AXES = 50  # of einsum
LEAST = 1e-290  # of a product of positive entries: below, digits or a possible state would be lost
PAIRWISE = 64  # entries of a product from which tables are multiplied two at a time
MANY = 16  # tables of which the same holds: einsum takes 32

Scope = tuple[int, ...]


class _TooLargeError(Exception):
    """The tables are too large, or the numbers too small."""


def single_posterior(
    model: BayesianNetwork, outcome: int, case: Evidence, changed: frozenset[int] = frozenset(),
    done: Mapping[int, int] = MappingProxyType({}),
) -> Floats | None:  # fmt: skip
    """The posterior of a variable; None: a plan is needed, or the evidence may be impossible."""
    # changed: variables that are doubled; both worlds share the others, and the outcome is in the other world
    # done: states that variables are set to in the other world
    is_known = outcome in done or (case.state[outcome] >= 0 and outcome not in changed)
    if is_known or any(v >= len(model) for v in case.likelihood):
        return None
    try:
        scopes, tables, target = _factors(model, outcome, changed, done, case)
        if any(not isinstance(table, np.ndarray) for table in tables):  # noisy nodes
            return None
        return _eliminated(scopes, tables, target, model.cardinality.tolist())
    except _TooLargeError:
        return None


def _factors(
    model: BayesianNetwork, outcome: int, changed: frozenset[int], done: Mapping[int, int], case: Evidence
) -> tuple[list[Scope], list[Any], int]:
    """Scopes and tables that matter, without observed variables and private noise; the number of the outcome."""
    parents, children, factors, n = model._parents, model._children, model.factors, len(model)
    seen = {v: s for v, s in enumerate(case.state.tolist()) if s >= 0}
    above = [[] if v in done or v not in changed else [p for p in up if p in changed] for v, up in enumerate(parents)]
    other = descendants(above, [outcome]) & changed
    shared = [p for v in other - {*done} for p in parents[v] if p not in changed]
    here = descendants(parents, [*seen, *case.likelihood, *shared, *([] if outcome in changed else [outcome])])
    twin = {v: n + v for v in changed}
    known = {v: s for v, s in seen.items() if v not in changed} | dict(done)
    scopes: list[Scope] = []
    tables: list[Any] = []

    def sliced(v: int, known: Mapping[int, int], names: Mapping[int, int]) -> tuple[Scope, Any]:
        scope, table = factors[v].scope, factors[v].table
        if not known.keys().isdisjoint(scope) and isinstance(table, np.ndarray):
            table = np.asarray(table[tuple(known.get(u, slice(None)) for u in scope)])
        return tuple(names.get(u, u) for u in scope if u not in known), table

    matter = {outcome, *seen, *done, *case.likelihood}
    noise = {u for u in here - matter if not parents[u] and len(children[u]) == 1}
    mine: dict[int, list[int]] = {}
    for u in sorted(noise):
        mine.setdefault(children[u][0], []).append(u)
    for v in here | other:
        if v in noise:
            continue
        parts = [sliced(v, seen, {})] if v in here else []
        if v in other and v not in done:
            parts.append(sliced(v, known, twin))
        if v in mine and all(isinstance(table, np.ndarray) for _, table in parts):
            out = tuple(sorted({u for scope, _ in parts for u in scope} - {*mine[v]}))
            parts += [((u,), factors[u].table) for u in mine[v]]
            _check_range([_least(table) for _, table in parts])
            parts = [(out, _product(parts, out))]
        scopes += [scope for scope, _ in parts]
        tables += [table for _, table in parts]
    for v, weights in case.likelihood.items():
        scopes.append(() if v in seen else (v,))
        tables.append(np.asarray(weights[seen[v]] if v in seen else weights))
    return scopes, tables, twin.get(outcome, outcome)


def _least(table: Floats) -> float:
    return float(table.min(where=table > 0, initial=1.0))


def _check_range(least: Iterable[float]) -> None:
    """Raise if the product of entries that are at least as large may lose digits."""
    if not math.prod(least) >= LEAST:
        raise _TooLargeError


def _product(parts: Sequence[tuple[Scope, Floats]], out: Iterable[int]) -> Floats:
    label: dict[int, int] = {}
    operands: list[Any] = []
    for scope, table in parts:
        operands += [table, [label.setdefault(u, len(label)) for u in scope]]
    if len(label) > MOST_AXES:
        raise _TooLargeError
    return np.asarray(np.einsum(*operands, [label[u] for u in out]))


def _few(parts: list[tuple[Scope, Floats]], entries: int) -> list[tuple[Scope, Floats]]:
    """The same product of fewer tables: two are multiplied at a time while that is quicker, or einsum takes no more."""
    while len(parts) > 2 and (entries > PAIRWISE or len(parts) > MANY):
        parts = sorted(parts, key=lambda part: part[1].size)
        union = tuple(sorted({*parts[0][0], *parts[1][0]}))
        parts = [(union, _product(parts[:2], union)), *parts[2:]]
    return parts


def _eliminated(scopes: Sequence[Scope], tables: Sequence[Floats], target: int, cards: list[int]) -> Floats:
    """The distribution of a variable by a product of tables; the variable with the fewest neighbours goes first."""
    factors: dict[int, tuple[Scope, Floats]] = dict(enumerate(zip(scopes, tables, strict=True)))
    least = [_least(table) for table in tables]  # bounds below the positive entries
    masks = [sum(1 << v for v in scope) for scope in scopes]
    at: dict[int, set[int]] = {target: set()}  # the factors of a variable
    for i, scope in enumerate(scopes):
        for v in scope:
            at.setdefault(v, set()).add(i)

    def around(v: int) -> int:
        mask = 0
        for i in at[v]:
            mask |= masks[i]
        return mask

    near = {v: around(v) for v in at}
    queue = [(mask.bit_count(), v) for v, mask in near.items() if v != target]
    heapq.heapify(queue)
    n, largest = len(cards), max(cards)
    while queue:
        size, v = heapq.heappop(queue)
        if v not in at or near[v].bit_count() != size:  # an earlier size, or eliminated
            continue
        own = sorted(at[v])
        if not math.prod(least[i] for i in own) >= LEAST:  # by bounds, which fall with every step
            for i in own:
                least[i] = _least(factors[i][1])
            _check_range(least[i] for i in own)
        bucket = [factors.pop(i) for i in own]
        inside = {u for scope, _ in bucket for u in scope}
        entries = largest**size if largest**size <= PAIRWISE else math.prod(cards[u % n] for u in inside)
        if entries > MOST:
            raise _TooLargeError
        bucket = _few(bucket, entries)
        out = tuple(sorted(inside - {v}))
        table = _product(bucket, out)
        top = float(table.max())
        if not 0 < top < math.inf:
            raise _TooLargeError
        least.append(math.prod(least[i] for i in own) / top)
        gone, new = at.pop(v), len(masks)
        masks.append(near.pop(v) & ~(1 << v))
        factors[new] = out, table / top
        for u in out:
            at[u] -= gone
            at[u].add(new)
            mask = around(u)
            if mask != near[u]:
                near[u] = mask
                if u != target:
                    heapq.heappush(queue, (mask.bit_count(), u))
    left = [table for scope, table in factors.values() if scope or table <= 0]  # the others are numbers
    _check_range(map(_least, left))
    result = math.prod(left, start=np.ones(cards[target % n]))
    if not 0 < result.sum() < math.inf:
        raise _TooLargeError
    return np.asarray(result / result.sum())
