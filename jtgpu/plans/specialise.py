"""What remains of a plan once it is known which variables are observed and which are asked for.

A *pattern* says which variables are observed, not in which state. Given one, much of a plan's work falls away:

* an observed variable has extent 1: a factor is cut to the observed states when it is *loaded*, and no other table
  ever has that axis;
* a variable that nobody asks for and that only its own conditional table mentions is *barren* (Shachter, Evaluating
  influence diagrams, Operations Research 34, 1986): variable and table fall away, again and again;
* a table known to be a conditional density, P(heads | rest), sums to one over its heads: where a contraction sums
  all of them out and no other input mentions them, it is left out, and what becomes a table of ones is never made.
  So subtrees without evidence send no message towards the model's ancestors;
* parts that evidence separates from the targets give P(e) a number and are otherwise not visited; a contraction that
  no target and no root needs is not made.

Everything here is integers, derived by compiled code over flat arrays, for a thousand variables in well under a
millisecond. Variables are numbered by their place in the plan's axis order, so that every scope ascends. Backends
turn what remains into their own programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..util.numba_cache import compiled
from .plan import COLLECT, POSTERIOR, Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FREE", "HARD", "SOFT", "UNIT", "Remains", "Skeleton", "conditional_heads", "reduce", "skeleton"]

FREE, HARD, SOFT = 0, 1, 2  # what a pattern knows of a variable: nothing, its state, a weight for each state
UNIT = -1  # stands for a table that is one everywhere
HEAD_TOLERANCE = 1e-14  # a number: how far the sums of a table may be from 1 for it to be a conditional density


class Skeleton(NamedTuple):
    """A plan as `reduce` takes it. Variables by rank in the axis order; V, the last one, is the *case axis*."""

    card: NDArray[np.int64]  # (V+1,) the last one: cases that are answered at once
    table_ptr: NDArray[np.int64]  # (T,) where scopes begin; each leaves room for the case axis
    table_end: NDArray[np.int64]  # (T,)
    table_var: NDArray[np.int64]  # scopes, ascending
    op_kind: NDArray[np.int64]  # (P,)
    op_out: NDArray[np.int64]  # (P,)
    op_in_ptr: NDArray[np.int64]  # (P+1,)
    op_in: NDArray[np.int64]
    answers: NDArray[np.int64]  # (P,) the variable whose posterior a contraction gives, -1
    factor_head: NDArray[np.int64]  # (F,) the variable over which the factor sums to one, -1
    head_factor: NDArray[np.int64]  # (V+1,) and back
    evidence_factor: NDArray[np.int64]  # (V,)
    roots: NDArray[np.int64]  # tables whose product is P(e)


class Remains(NamedTuple):
    """What a pattern leaves of a plan's tables and contractions."""

    stands_for: NDArray[np.int64]  # (T,) the table whose numbers a table has: itself, its only input, or UNIT
    length: NDArray[np.int64]  # (T,) variables left in its scope
    scope: NDArray[np.int64]  # as Skeleton.table_var: the first `length` of each scope are what is left
    use: NDArray[np.int64]  # as Skeleton.op_in: the input of a contraction, UNIT where it falls away
    needed: NDArray[np.bool_]  # (T,) for a target or for P(e)
    cut: NDArray[np.bool_]  # (F,) factors that are observed or weighed, and so depend on the case


def conditional_heads(
    factors: Sequence[NDArray[np.float64]], scopes: Sequence[Sequence[int]], n_variables: int
) -> list[int]:
    """For each factor the variable over which it sums to one whatever the others are; -1 for none.

    No variable stands twice, and the arcs from the other variables of each such factor to its head form no cycle: so
    the product of any ancestral set of them is a density.
    """
    heads = [_head(table, scope) for table, scope in zip(factors, scopes, strict=True)]
    return _acyclic(heads, scopes, n_variables)


def _head(table: NDArray[np.float64], scope: Sequence[int]) -> int:
    """The variable over which a table sums to one whatever the others are; -1 for none. The last axis, by preference:
    there a conditional table has its child."""
    for axis in range(table.ndim - 1, -1, -1):
        sums = table.sum(axis=axis)
        if np.abs(sums - 1.0).max(initial=0.0) <= HEAD_TOLERANCE * table.shape[axis]:
            return scope[axis]
    return -1


def _acyclic(heads: list[int], scopes: Sequence[Sequence[int]], n_variables: int) -> list[int]:
    """The heads, less all that stand twice, or all when the arcs to them form a cycle."""
    found = np.zeros(n_variables, np.int64)
    for v in heads:
        if v >= 0:
            found[v] += 1
    heads = [v if v >= 0 and found[v] == 1 else -1 for v in heads]
    children: list[list[int]] = [[] for _ in range(n_variables)]
    waiting = [0] * n_variables
    for v, scope in zip(heads, scopes, strict=True):
        if v >= 0:
            for u in scope:
                if u != v:
                    children[u].append(v)
                    waiting[v] += 1
    ready = [v for v in range(n_variables) if not waiting[v]]
    for v in ready:
        for u in children[v]:
            waiting[u] -= 1
            if not waiting[u]:
                ready.append(u)
    return heads if len(ready) == n_variables else [-1] * len(heads)


def skeleton(plan: Plan, heads: Sequence[int]) -> Skeleton:
    """A plan's arrays as `reduce` takes them.

    Parameters
    ----------
    plan : Plan
    heads : (F,)
        See `conditional_heads`.
    """
    rank = plan.axis_rank
    by_rank = np.argsort(rank)
    answers = np.full(len(plan.op_out), -1, np.int64)
    made_by = {int(t): i for i, t in enumerate(plan.op_out)}
    for v, t in enumerate(plan.posterior_table.tolist()):
        answers[made_by[t]] = rank[v]
    head = np.array([rank[v] if v >= 0 else -1 for v in heads], np.int64).reshape(-1)
    head_factor = np.full(plan.n_variables + 1, -1, np.int64)
    for f, v in enumerate(head.tolist()):
        if v >= 0:
            head_factor[v] = f
    return Skeleton(
        np.append(plan.cardinality[by_rank], 1),
        plan.table_ptr[:-1] + np.arange(len(plan.table_off)),
        plan.table_ptr[1:] + np.arange(len(plan.table_off)),
        np.insert(rank[plan.table_var], plan.table_ptr[1:], -1),
        plan.op_kind,
        plan.op_out,
        plan.op_in_ptr,
        plan.op_in,
        answers,
        head,
        head_factor,
        plan.evidence_factor[by_rank],
        plan.root_table,
    )


@compiled()
def _prune(sk, seen, target, gone, tainted, count):  # type: ignore[no-untyped-def]
    """Mark the factors of barren variables as gone, and those that are no conditional density as tainted; count the
    factors that remain of each variable. Returns whether any is gone."""
    n_factors = len(sk.factor_head)
    for f in range(n_factors):
        head = sk.factor_head[f]
        tainted[f] = head < 0 or seen[head] == 1
        for j in range(sk.table_ptr[f], sk.table_end[f]):
            count[sk.table_var[j]] += 1
    for v in range(len(sk.evidence_factor)):
        if seen[v] == 2:
            tainted[sk.evidence_factor[v]] = True
    stack = np.empty(len(seen), np.int64)
    n = 0
    for v in range(len(seen)):
        f = sk.head_factor[v]
        if f >= 0 and count[v] == 1 and seen[v] == 0 and not target[v] and not tainted[f]:
            stack[n] = v
            n += 1
    pruned = n > 0
    while n > 0:
        n -= 1
        f = sk.head_factor[stack[n]]
        gone[f] = True
        for j in range(sk.table_ptr[f], sk.table_end[f]):
            u = sk.table_var[j]
            count[u] -= 1
            g = sk.head_factor[u]
            if count[u] == 1 and g >= 0 and seen[u] == 0 and not target[u] and not tainted[g] and not gone[g]:
                stack[n] = u
                n += 1
    return pruned


@compiled()
def _shrink(sk, seen, target, gone, tainted, cut, count, pruned, rep, length, scope, use):  # type: ignore[no-untyped-def]
    """For every table its scope under the pattern and the table that stands for it; for every contraction the inputs
    that matter (`use`, -1 for the others)."""
    n_factors, n_vars = len(sk.factor_head), len(seen)
    case = n_vars - 1
    by_case = sk.card[case] > 1
    head = np.zeros(len(sk.table_var), np.bool_)  # as `scope`: whether the variable is a head of the table
    below = np.zeros(len(sk.table_var) if pruned else 0, np.int64)  # factors with the variable in the subtree
    for f in range(n_factors):
        first = sk.table_ptr[f]
        rep[f] = UNIT if gone[f] else f
        n = first
        for j in range(first, sk.table_end[f]):
            v = sk.table_var[j]
            if pruned:
                below[j] = 0 if gone[f] else 1
            if seen[v] != 1:
                scope[n] = v
                head[n] = not tainted[f] and v == sk.factor_head[f]
                n += 1
        if by_case and cut[f]:
            scope[n] = case
            n += 1
        length[f] = n - first
    outside = np.full(n_vars, -1, np.int64)  # the contraction that keeps the variable
    holders = np.zeros(n_vars, np.int64)  # inputs of this contraction that contain the variable
    heads = np.zeros(n_vars, np.bool_)
    factors = np.zeros(n_vars, np.int64)
    for i in range(len(sk.op_out)):
        out, kind = sk.op_out[i], sk.op_kind[i]
        begin, end = sk.op_in_ptr[i], sk.op_in_ptr[i + 1]
        for j in range(sk.table_ptr[out], sk.table_end[out]):
            outside[sk.table_var[j]] = i
        outside[case] = i
        if pruned and kind == COLLECT:  # what no remaining factor elsewhere mentions is summed out here already
            for k in range(begin, end):
                t = sk.op_in[k]
                for j in range(sk.table_ptr[t], sk.table_end[t]):
                    factors[sk.table_var[j]] += below[j]
            for j in range(sk.table_ptr[out], sk.table_end[out]):
                v = sk.table_var[j]
                below[j] = factors[v]
                if factors[v] == count[v] and not target[v]:
                    outside[v] = -1
            for k in range(begin, end):
                t = sk.op_in[k]
                for j in range(sk.table_ptr[t], sk.table_end[t]):
                    factors[sk.table_var[j]] = 0
        left = 0
        for k in range(begin, end):
            t = rep[sk.op_in[k]]
            if t >= 0 and kind != COLLECT and (length[t] == 0 or scope[sk.table_ptr[t]] == case):
                t = UNIT  # a number: posteriors are normalised, and P(e) is not made here
            use[k] = t
            if t >= 0:
                left += 1
                for j in range(sk.table_ptr[t], sk.table_ptr[t] + length[t]):
                    holders[scope[j]] += 1
        again = True
        while again:
            again = False
            for k in range(begin, end):
                t = use[k]
                if t < 0 or tainted[t]:
                    continue
                drop = True
                for j in range(sk.table_ptr[t], sk.table_ptr[t] + length[t]):
                    if head[j] and (outside[scope[j]] == i or holders[scope[j]] > 1):
                        drop = False
                        break
                if drop:  # its heads are summed out here, and nothing else depends on them: it becomes ones
                    for j in range(sk.table_ptr[t], sk.table_ptr[t] + length[t]):
                        holders[scope[j]] -= 1
                    use[k] = UNIT
                    left -= 1
                    again = True
        bad = False
        only = UNIT
        for k in range(begin, end):
            t = use[k]
            if t >= 0:
                only = t
                bad = bad or tainted[t]
                for j in range(sk.table_ptr[t], sk.table_ptr[t] + length[t]):
                    if head[j]:
                        heads[scope[j]] = True
        n = sk.table_ptr[out]
        any_head = False
        for j in range(sk.table_ptr[out], sk.table_end[out]):
            v = sk.table_var[j]
            if outside[v] == i and holders[v] > 0:
                scope[n] = v
                head[n] = heads[v]
                any_head = any_head or heads[v]
                n += 1
        if holders[case] > 0:
            scope[n] = case
            head[n] = False
            n += 1
        length[out] = n - sk.table_ptr[out]
        summed = False
        for k in range(begin, end):
            t = use[k]
            if t >= 0:
                for j in range(sk.table_ptr[t], sk.table_ptr[t] + length[t]):
                    v = scope[j]
                    if outside[v] != i:
                        summed = True
                        bad = bad or not heads[v]
        for k in range(begin, end):
            t = rep[sk.op_in[k]]
            if t >= 0:
                for j in range(sk.table_ptr[t], sk.table_ptr[t] + length[t]):
                    holders[scope[j]] = 0
                    heads[scope[j]] = False
        tainted[out] = bad
        if bad:
            for j in range(sk.table_ptr[out], n):
                head[j] = False
        if kind == POSTERIOR:
            rep[out] = out
        elif left == 0 or (not bad and not any_head):
            rep[out] = UNIT
            length[out] = 0
        elif left == 1 and not summed:
            rep[out] = only
        else:
            rep[out] = out


@compiled()
def _needed(sk, seen, target, rep, use):  # type: ignore[no-untyped-def]
    """Tables that the targets and P(e) need."""
    need = np.zeros(len(sk.table_ptr), np.bool_)
    for r in range(len(sk.roots)):
        t = rep[sk.roots[r]]
        if t >= 0:
            need[t] = True
    for i in range(len(sk.op_out) - 1, -1, -1):
        v = sk.answers[i]
        out = sk.op_out[i]
        if v >= 0:
            need[out] = target[v] and seen[v] != 1
        if need[out] and rep[out] == out:
            for k in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
                if use[k] >= 0:
                    need[use[k]] = True
    return need


@compiled()
def reduce_flat(sk, seen, target):  # type: ignore[no-untyped-def]
    """`reduce` for compiled callers: `seen` and `target` have the case axis behind the variables; a plain tuple."""
    n_tables, n_factors, n_vars = len(sk.table_ptr), len(sk.factor_head), len(seen)
    gone, tainted = np.zeros(n_factors, np.bool_), np.zeros(n_tables, np.bool_)
    count = np.zeros(n_vars, np.int64)
    pruned = _prune(sk, seen, target, gone, tainted, count)
    rep, length = np.empty(n_tables, np.int64), np.empty(n_tables, np.int64)
    scope, use = np.empty(len(sk.table_var), np.int64), np.empty(len(sk.op_in), np.int64)
    cut = np.zeros(n_factors, np.bool_)
    for f in range(n_factors):
        for j in range(sk.table_ptr[f], sk.table_end[f]):
            v = sk.table_var[j]
            cut[f] = cut[f] or seen[v] == 1 or (seen[v] == 2 and sk.evidence_factor[v] == f)
    _shrink(sk, seen, target, gone, tainted, cut, count, pruned, rep, length, scope, use)
    return rep, length, scope, use, _needed(sk, seen, target, rep, use), cut


def reduce(sk: Skeleton, seen: NDArray[np.uint8], target: NDArray[np.bool_]) -> Remains:
    """What a pattern and targets leave of a plan.

    Parameters
    ----------
    sk : Skeleton
        Where its case axis is longer than 1, every table that depends on the evidence has that axis, its fastest.
    seen : (V,) uint8
        `FREE`, `HARD` or `SOFT` for each variable, by rank.
    target : (V,) bool
        Variables whose posteriors are wanted, by rank; those of observed ones are never made.
    """
    return Remains(*reduce_flat(sk, np.append(seen, np.uint8(0)), np.append(target, True)))
