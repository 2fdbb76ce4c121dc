"""Which products of a plan's contractions are ever needed: neither zero whatever the evidence, nor read by no answer.

A forward pass finds which entries can be other than zero, a backward pass which of those reach an answer through
products that can be other than zero. What is left of Water are 95,149 of 7,474,465 products, of Mildew 17 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....plans.plan import Plan
from .tiling import OUT, A, B, Binary, Loop, binary_program, loops_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Contraction", "Listed", "Products", "contractions", "lowest_root", "needed_products"]


MOST_KNOWN = 200_000  # products of a shape that are remembered for the next contraction of that shape


@dataclass(frozen=True)
class Products:
    """A contraction as a list, sorted by output: ``out[o[i]] += a[a[i]] * b[b[i]]``; offsets within the tables."""

    o: NDArray[np.int32]  # (K,)
    a: NDArray[np.int32]  # (K,)
    b: NDArray[np.int32]  # (K,) zeros where there is one input

    @property
    def count(self) -> NDArray[np.int64]:
        """Products of each output that has any, (J,)."""
        first = np.empty(len(self.o) + 1, np.bool_)
        first[0] = first[-1] = True
        np.not_equal(self.o[1:], self.o[:-1], out=first[1:-1])
        return np.diff(np.flatnonzero(first)) if len(self.o) else np.zeros(0, np.int64)


@dataclass(frozen=True)
class Contraction:
    """A step as a list of products of up to four entries: ``out[o[i]] += prod_k ins[k][at[k][i]]``, sorted by o."""

    out: int
    ins: tuple[int, ...]
    o: NDArray[np.int32]
    at: tuple[NDArray[np.int32], ...]


@dataclass(frozen=True)
class Listed:
    """A plan's contractions as lists.

    Attributes
    ----------
    program : Binary
    products : list of Products
        Of every step of the program.
    live : list of bool arrays
        Of every table: entries that some product reads, or that are answers.
    """

    program: Binary
    products: list[Products]
    live: list[NDArray[np.bool_]]

    @property
    def n_products(self) -> int:
        """All of them."""
        return sum(len(p.o) for p in self.products)


def needed_products(plan: Plan, factors: Sequence[NDArray[np.float64]]) -> Listed:
    """List the products that a plan's answers need.

    Takes time and memory in proportion to ``plan.cost().flops``: 0.1 s for 1.5e7.

    Parameters
    ----------
    plan : Plan
    factors : sequence of float64 arrays
        Their zeros must stay zeros; other entries may change.
    """
    program = binary_program(plan)
    sizes = [plan.size(s) for s in program.scopes]
    there: list[NDArray[np.bool_]] = [np.zeros(n, np.bool_) for n in sizes]
    for f, (table, scope) in enumerate(zip(factors, plan.factor_scopes, strict=True)):
        there[f][:] = np.transpose(table, [scope.index(v) for v in plan.table_scopes[f]]).ravel() != 0
    found: list[Products] = []
    known: dict[tuple[Loop, ...], Products] = {}
    for step in program.steps:
        loops = loops_of(plan, program.scopes, step)
        all_ = known.get(loops)
        if all_ is None:
            # the axes of the output outside: then products come sorted by output
            ordered = [x for x in loops if x[1][OUT]] + [x for x in loops if not x[1][OUT]]
            all_ = Products(*(_offsets(ordered, t) for t in (OUT, A, B)))
            if len(all_.o) <= MOST_KNOWN:
                known[loops] = all_
        kept = there[step.ins[0]][all_.a]
        if len(step.ins) == 2:
            kept &= there[step.ins[1]][all_.b]
        made = all_ if kept.all() else Products(all_.o[kept], all_.a[kept], all_.b[kept])
        there[step.out][made.o] = True
        found.append(made)
    live = [np.zeros(n, np.bool_) for n in sizes]
    for t in [*plan.posterior_table.tolist(), *plan.root_table.tolist()]:
        live[t][:] = there[t]
    for i in range(len(found) - 1, -1, -1):
        step, all_ = program.steps[i], found[i]
        kept = live[step.out][all_.o]
        if not kept.all():
            all_ = found[i] = Products(all_.o[kept], all_.a[kept], all_.b[kept])
        live[step.ins[0]][all_.a] = True
        if len(step.ins) == 2:
            live[step.ins[1]][all_.b] = True
    return Listed(program, found, live)


def contractions(plan: Plan, listed: Listed, cost: Callable[[int, int], float]) -> list[list[Contraction]]:
    """The steps level by level, two levels made one where that is cheaper.

    A step of the second of two levels then reads what the first reads: each of its inputs made in the first is
    replaced by the products that made it. What nobody reads any more is left out.

    Parameters
    ----------
    plan : Plan
    listed : Listed
    cost : callable
        Of a level of so many products of two entries and so many of four.
    """
    steps = [
        Contraction(s.out, s.ins, p.o, (p.a, p.b)[: len(s.ins)])
        for s, p in zip(listed.program.steps, listed.products, strict=True)
    ]
    levels: list[list[Contraction]] = [[] for _ in range(max(listed.program.level, default=0))]
    for step, level in zip(steps, listed.program.level, strict=True):
        levels[level - 1].append(step)
    # the cheapest way to cut the levels into ones and twos
    singles = [sum(len(c.o) for c in members) for members in levels]
    best: list[tuple[float, int]] = [(0.0, 0)]
    for n in range(1, len(levels) + 1):
        choices = [(best[n - 1][0] + cost(singles[n - 1], 0), 1)]
        if n > 1:
            twos, fours = _sizes(levels[n - 2], levels[n - 1])
            choices.append((best[n - 2][0] + cost(twos, fours), 2))
        best.append(min(choices))
    made: list[list[Contraction]] = []
    n = len(levels)
    while n:
        taken = best[n][1]
        before = {c.out: c for c in levels[n - 2]} if taken == 2 else {}
        made.append([*before.values(), *(_expanded(c, before) for c in levels[n - 1])])
        n -= taken
    read = {*plan.posterior_table.tolist(), *plan.root_table.tolist()}
    kept = []
    for members in made:  # the last level first
        needed = [c for c in members if c.out in read]
        for c in needed:
            read.update(c.ins)
        kept.append(needed)
    return [members for members in reversed(kept) if members]


def _sizes(first: Sequence[Contraction], second: Sequence[Contraction]) -> tuple[int, int]:
    """Products of two and of four entries of two levels made one."""
    counts = {c.out: np.bincount(c.o) for c in first}
    twos, fours = sum(len(c.o) for c in first), 0
    for c in second:
        n = np.ones(len(c.o), np.int64)
        for t, at in zip(c.ins, c.at, strict=True):
            if t in counts:
                n *= counts[t][at]
        if any(t in counts for t in c.ins):
            fours += int(n.sum())
        else:
            twos += len(c.o)
    return twos, fours


def _expanded(c: Contraction, before: Mapping[int, Contraction]) -> Contraction:
    """A step that reads what made its inputs, where they are made in `before`."""
    o, ins, columns = c.o, list(c.ins), list(c.at)
    for t in c.ins:
        if t not in before:
            continue
        k = ins.index(t)
        source = before[t]
        count = np.bincount(source.o, minlength=int(columns[k].max(initial=0)) + 1)
        start = np.cumsum(count) - count
        often = count[columns[k]]
        which = np.repeat(np.arange(len(o)), often)
        place = np.arange(len(which)) - np.repeat(np.cumsum(often) - often, often) + start[columns[k]][which]
        others = [x[which] for x in columns[:k] + columns[k + 1 :]]
        ins = [*ins[:k], *ins[k + 1 :], *source.ins]
        columns = [*others, *(x[place] for x in source.at)]
        o = o[which]
    return Contraction(c.out, tuple(ins), o, tuple(columns))


def _offsets(loops: Sequence[Loop], table: int) -> NDArray[np.int32]:
    """Offsets in a table of every joint configuration, the last axis fastest."""
    at = np.zeros((1,) * len(loops), np.int32)
    for i, (n, strides) in enumerate(loops):
        shape = [1] * len(loops)
        shape[i] = n
        at = at + (np.arange(n, dtype=np.int32) * np.int32(strides[table])).reshape(shape)
    return np.ascontiguousarray(np.broadcast_to(at, [n for n, _ in loops])).reshape(-1)


def lowest_root(plan: Plan, factors: Sequence[NDArray[np.float64]], listed: Listed) -> float:
    """log2 of the P(e) from which on doubles without scaling are right to 2^-43; infinite where they may overflow.

    An error of at most 2^-1074 is made where a product is too small for a double. Every entry, and every derivative
    of an answer by an entry, is largest without evidence, since all of them are sums of products of factors' entries
    and of evidence's weights, which are at most 1: so one propagation bounds how much such an error moves an answer.

    Parameters
    ----------
    plan : Plan
    factors : F flat arrays
        In the axis order of the plan's tables.
    listed : Listed
    """
    steps, products = listed.program.steps, listed.products
    value: list[NDArray[np.float64]] = [np.asarray(x) for x in factors]
    value += [np.zeros(len(x)) for x in listed.live[len(factors) :]]
    moves = [np.zeros(len(x)) for x in listed.live]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for step, p in zip(steps, products, strict=True):
            terms = value[step.ins[0]][p.a]
            if len(step.ins) == 2:
                terms = terms * value[step.ins[1]][p.b]
            value[step.out] = np.bincount(p.o, weights=terms, minlength=len(value[step.out])).astype(np.float64)
        for t in [*plan.posterior_table.tolist(), *plan.root_table.tolist()]:
            moves[t][:] = 1.0
        for step, p in zip(reversed(steps), reversed(products), strict=True):
            first = step.ins[0]
            through = moves[step.out][p.o]
            if len(step.ins) == 2:
                second = step.ins[1]
                moves[second] += np.bincount(p.b, weights=through * value[first][p.a], minlength=len(value[second]))
                through = through * value[second][p.b]
            moves[first] += np.bincount(p.a, weights=through, minlength=len(value[first]))
    most = max(float(x.max(initial=0.0)) for x in (*value, *moves))
    if not most < 2.0**500:
        return math.inf
    n = listed.n_products + 2 * sum(int(x.sum()) for x in listed.live)
    moved = max(float(x.max(initial=0.0)) for x in moves)
    return -1074 + math.log2(max(moved, 1.0)) + math.log2(max(n, 1)) + 43
