"""What remains of a program when the observed variables and the targets are known.

A *pattern* says which variables are observed, not in which state. Given one, much of a program's work is unnecessary:

* an observed variable has extent 1: a factor is restricted to the observed states when it is *loaded*, and no other
  table has that axis;
* a variable that is no target and that only its own conditional table mentions is *barren* (Shachter, Evaluating
  influence diagrams, Operations Research 34, 1986): variable and table are removed, repeatedly;
* a table known to be a conditional density, P(heads | rest), sums to one over its heads: a contraction that sums out
  all of them, while no other input mentions them, leaves the table out; tables of ones are never made. So subtrees
  without evidence send no message towards the model's ancestors;
* components that evidence separates from the targets contribute a number to P(e) and are otherwise not visited; a
  contraction that no target and no root needs is not made.

Everything here is integers, derived by compiled code over flat arrays, for a thousand variables in well under a
millisecond. Variables are numbered by their place in the program's axis order, so that every scope ascends. Backends
lower what remains to their own records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..util.numba_cache import compiled, inlined
from .arrays import ragged
from .program import COLLECT, FAMILY, POSTERIOR, UNIT, Program

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FREE", "HARD", "SOFT", "UNIT", "FlatProgram", "Reduced", "conditional_heads", "flatten", "reduce"]

FREE, HARD, SOFT = 0, 1, 2  # what a pattern knows of a variable: nothing, its state, a weight for each state
HEAD_TOLERANCE = 1e-14  # a number: how far the sums of a table may be from 1 for it to be a conditional density


class FlatProgram(NamedTuple):
    """A program as `reduce` takes it. Variables by rank in the axis order; V, the last one, is the *case axis*."""

    card: NDArray[np.int64]  # (V+1,) the last one: cases that are answered at once
    table_ptr: NDArray[np.int64]  # (T,) where scopes begin; each leaves room for the case axis
    table_end: NDArray[np.int64]  # (T,)
    table_var: NDArray[np.int64]  # scopes, ascending
    op_kind: NDArray[np.int64]  # (P,)
    op_out: NDArray[np.int64]  # (P,)
    op_in_ptr: NDArray[np.int64]  # (P+1,)
    op_in: NDArray[np.int64]
    op_maximal: NDArray[np.bool_]  # (P,)
    answers: NDArray[np.int64]  # (P,) variable of a POSTERIOR, factor of a FAMILY, else -1
    factor_head: NDArray[np.int64]  # (F,) the variable over which the factor sums to one, -1
    head_factor: NDArray[np.int64]  # (V+1,) and back
    evidence_factor: NDArray[np.int64]  # (V,)
    roots: NDArray[np.int64]  # tables whose product is P(e)
    wanted: NDArray[np.int64]  # other tables that are read


class Reduced(NamedTuple):
    """What a pattern leaves of a program's tables and contractions."""

    stands_for: NDArray[np.int64]  # (T,) the table whose numbers a table has: itself, its only input, or UNIT
    length: NDArray[np.int64]  # (T,) variables left in its scope
    scope: NDArray[np.int64]  # as FlatProgram.table_var: the first `length` of each scope are what is left
    use: NDArray[np.int64]  # as FlatProgram.op_in: the input of a contraction, UNIT where it falls away
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


def flatten(program: Program, heads: Sequence[int] | None = None) -> FlatProgram:
    """A program's arrays as `reduce` takes them.

    Parameters
    ----------
    program : Program
    heads : (F,), optional
        See `conditional_heads`. Default: no factor is known to be a conditional density, and nothing is left out.
    """
    rank, by_rank = program.axis_rank, program.by_rank
    n, n_ops = len(program.scopes), len(program.outs)
    head = np.array([-1 if v < 0 else rank[v] for v in (heads or [-1] * program.n_factors)], np.int64)
    head_factor = np.full(program.n_variables + 1, -1, np.int64)
    for f, v in enumerate(head.tolist()):
        if v >= 0:
            head_factor[v] = f
    kinds = np.array(program.kinds or (COLLECT,) * n_ops, np.int64)
    answers = np.array(program.answers or (-1,) * n_ops, np.int64)
    posteriors = kinds == POSTERIOR
    answers[posteriors] = rank[answers[posteriors]]
    ptr, scope = ragged(program.scopes)
    in_ptr, ins = ragged(program.ins)
    return FlatProgram(
        np.append(program.cardinality[by_rank], 1),
        ptr[:-1] + np.arange(n),
        ptr[1:] + np.arange(n),
        np.insert(rank[scope], ptr[1:], -1),
        kinds,
        np.array(program.outs, np.int64),
        in_ptr,
        ins,
        np.array(program.maximal, np.bool_),
        answers,
        head,
        head_factor,
        program.evidence_factor[by_rank],
        np.array(program.roots, np.int64),
        np.array(program.wanted, np.int64),
    )


@compiled()
def _prune(sk, seen, target, gone, tainted, count):  # type: ignore[no-untyped-def]
    """Remove barren variables, repeatedly.

    Parameters
    ----------
    sk : FlatProgram
    seen : (V+1,) uint8
        `FREE`, `HARD` or `SOFT` for each variable, by rank; `FREE` for the case axis.
    target : (V+1,) bool
        Variables whose posteriors are wanted, by rank.
    gone : (F,) bool
        Set for the factors of barren variables.
    tainted : (T,) bool
        Set for the factors that are no conditional density under the pattern.
    count : (V+1,) int64
        Zeros; gets the number of remaining factors of each variable.

    Returns
    -------
    bool
        Whether any factor is gone.
    """
    n_factors = len(sk.factor_head)
    for f in range(n_factors):
        head = sk.factor_head[f]
        tainted[f] = head < 0 or seen[head] == HARD
        for j in range(sk.table_ptr[f], sk.table_end[f]):
            count[sk.table_var[j]] += 1
    for v in range(len(sk.evidence_factor)):
        if seen[v] == SOFT:
            tainted[sk.evidence_factor[v]] = True
    stack = np.empty(len(seen), np.int64)
    n = 0
    for v in range(len(seen)):
        f = sk.head_factor[v]
        if f >= 0 and count[v] == 1 and seen[v] == FREE and not target[v] and not tainted[f]:
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
            if count[u] == 1 and g >= 0 and seen[u] == FREE and not target[u] and not tainted[g] and not gone[g]:
                stack[n] = u
                n += 1
    return pruned


class _Shrink(NamedTuple):
    """Tables under a pattern, and scratch memory, while `_shrink` goes through the contractions.

    T tables, S entries of all scopes, V variables and the case axis.
    """

    rep: NDArray[np.int64]  # (T,) Reduced.stands_for
    length: NDArray[np.int64]  # (T,)
    scope: NDArray[np.int64]  # (S,)
    use: NDArray[np.int64]  # inputs of the contractions
    head: NDArray[np.bool_]  # (S,) as scope: whether the variable is a head of the table
    tainted: NDArray[np.bool_]  # (T,) tables that are no conditional densities
    below: NDArray[np.int64]  # (S,) factors with the variable in the subtree; empty if nothing is pruned
    outside: NDArray[np.int64]  # (V+1,) the contraction that keeps the variable
    holders: NDArray[np.int64]  # (V+1,) inputs of this contraction that contain the variable
    heads: NDArray[np.bool_]  # (V+1,) heads of the inputs of this contraction
    factors: NDArray[np.int64]  # (V+1,) scratch memory, zeros


@inlined
def _shrink_factors(sk, seen, gone, cut, pruned, s):  # type: ignore[no-untyped-def]
    """The factors' scopes under the pattern; parameters as for `_shrink`."""
    case = len(seen) - 1
    for f in range(len(sk.factor_head)):
        first = sk.table_ptr[f]
        s.rep[f] = UNIT if gone[f] else f
        n = first
        for j in range(first, sk.table_end[f]):
            v = sk.table_var[j]
            if pruned:
                s.below[j] = 0 if gone[f] else 1
            if seen[v] != HARD:
                s.scope[n] = v
                s.head[n] = not s.tainted[f] and v == sk.factor_head[f]
                n += 1
        if sk.card[case] > 1 and cut[f]:
            s.scope[n] = case
            n += 1
        s.length[f] = n - first


@inlined
def _eliminate_early(sk, target, count, i, s):  # type: ignore[no-untyped-def]
    """Mark what contraction i eliminates since its other factors are gone: what no remaining factor elsewhere has."""
    out = sk.op_out[i]
    begin, end = sk.op_in_ptr[i], sk.op_in_ptr[i + 1]
    for k in range(begin, end):
        t = sk.op_in[k]
        for j in range(sk.table_ptr[t], sk.table_end[t]):
            s.factors[sk.table_var[j]] += s.below[j]
    for j in range(sk.table_ptr[out], sk.table_end[out]):
        v = sk.table_var[j]
        s.below[j] = s.factors[v]
        if s.factors[v] == count[v] and not target[v]:
            s.outside[v] = -1
    for k in range(begin, end):
        t = sk.op_in[k]
        for j in range(sk.table_ptr[t], sk.table_end[t]):
            s.factors[sk.table_var[j]] = 0


@inlined
def _choose_inputs(sk, i, s):  # type: ignore[no-untyped-def]
    """Note the inputs of contraction i that are not `UNIT`, and count their holders; returns how many there are."""
    case, left = len(sk.card) - 1, 0
    for k in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
        t = s.rep[sk.op_in[k]]
        if t >= 0 and sk.op_kind[i] != COLLECT and (s.length[t] == 0 or s.scope[sk.table_ptr[t]] == case):
            t = UNIT  # a number: the scale of this output does not matter
        s.use[k] = t
        if t >= 0:
            left += 1
            for j in range(sk.table_ptr[t], sk.table_ptr[t] + s.length[t]):
                s.holders[s.scope[j]] += 1
    return left


@inlined
def _sums_to_one(sk, i, t, s):  # type: ignore[no-untyped-def]
    """Whether input t is a density whose heads contraction i eliminates, and that no other input mentions."""
    if t < 0 or s.tainted[t]:
        return False
    for j in range(sk.table_ptr[t], sk.table_ptr[t] + s.length[t]):
        if s.head[j] and (s.outside[s.scope[j]] == i or s.holders[s.scope[j]] > 1):
            return False
    return True


@inlined
def _drop_densities(sk, i, left, s):  # type: ignore[no-untyped-def]
    """Drop the inputs of contraction i that become ones; returns how many of the `left` inputs remain."""
    again = True
    while again:
        again = False
        for k in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
            t = s.use[k]
            if _sums_to_one(sk, i, t, s):
                for j in range(sk.table_ptr[t], sk.table_ptr[t] + s.length[t]):
                    s.holders[s.scope[j]] -= 1
                s.use[k] = UNIT
                left -= 1
                again = True
    return left


@inlined
def _output_scope(sk, i, s):  # type: ignore[no-untyped-def]
    """The scope of the output of contraction i; returns whether one of its variables is a head."""
    out, case = sk.op_out[i], len(sk.card) - 1
    for k in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
        t = s.use[k]
        if t >= 0:
            for j in range(sk.table_ptr[t], sk.table_ptr[t] + s.length[t]):
                if s.head[j]:
                    s.heads[s.scope[j]] = True
    n, any_head = sk.table_ptr[out], False
    for j in range(sk.table_ptr[out], sk.table_end[out]):
        v = sk.table_var[j]
        if s.outside[v] == i and s.holders[v] > 0:
            s.scope[n] = v
            s.head[n] = s.heads[v]
            any_head = any_head or s.heads[v]
            n += 1
    if s.holders[case] > 0:
        s.scope[n] = case
        s.head[n] = False
        n += 1
    s.length[out] = n - sk.table_ptr[out]
    return any_head


@inlined
def _finish_contraction(sk, i, left, any_head, s):  # type: ignore[no-untyped-def]
    """What stands for the output of contraction i; clears `holders` and `heads`.

    Parameters
    ----------
    sk : FlatProgram
    i, left : int64
        The contraction and the number of its inputs.
    any_head : bool
        See `_output_scope`.
    s : _Shrink
    """
    out = sk.op_out[i]
    eliminates, tainted, only = False, False, UNIT
    for k in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
        t = s.use[k]
        if t >= 0:
            only = t
            tainted = tainted or s.tainted[t]
            for j in range(sk.table_ptr[t], sk.table_ptr[t] + s.length[t]):
                v = s.scope[j]
                if s.outside[v] != i:
                    eliminates = True
                    tainted = tainted or not s.heads[v]
    for k in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
        t = s.rep[sk.op_in[k]]
        if t >= 0:
            for j in range(sk.table_ptr[t], sk.table_ptr[t] + s.length[t]):
                s.holders[s.scope[j]] = 0
                s.heads[s.scope[j]] = False
    s.tainted[out] = tainted
    if tainted:
        for j in range(sk.table_ptr[out], sk.table_ptr[out] + s.length[out]):
            s.head[j] = False
    s.rep[out] = out
    if sk.op_kind[i] < POSTERIOR:
        if left == 0 or (not tainted and not any_head):
            s.rep[out] = UNIT
            s.length[out] = 0
        elif left == 1 and not eliminates:
            s.rep[out] = only


@compiled(allocates=False)
def _shrink(sk, seen, target, gone, cut, count, pruned, s):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Fill in `s.rep`, `s.length`, `s.scope` and `s.use`.

    Parameters
    ----------
    sk : FlatProgram
    seen, target, gone, count
        See `_prune`.
    cut : (F,) bool
        See `Reduced.cut`.
    pruned : bool
        Whether any factor is gone.
    s : _Shrink
    """
    case = len(seen) - 1
    _shrink_factors(sk, seen, gone, cut, pruned, s)
    for i in range(len(sk.op_out)):
        out = sk.op_out[i]
        for j in range(sk.table_ptr[out], sk.table_end[out]):
            s.outside[sk.table_var[j]] = i
        s.outside[case] = i
        if pruned and sk.op_kind[i] == COLLECT:
            _eliminate_early(sk, target, count, i, s)
        left = _drop_densities(sk, i, _choose_inputs(sk, i, s), s)
        _finish_contraction(sk, i, left, _output_scope(sk, i, s), s)


@compiled(allocates=False)
def _mark_needed(sk, seen, target, s, need):  # type: ignore[no-untyped-def]
    """Set `need` (T,) bool for the tables that the answers, the roots and the wanted tables need; see `_shrink`."""
    for tables in (sk.roots, sk.wanted):
        for r in range(len(tables)):
            t = s.rep[tables[r]]
            if t >= 0:
                need[t] = True
    for i in range(len(sk.op_out) - 1, -1, -1):
        v = sk.answers[i]
        out = sk.op_out[i]
        if sk.op_kind[i] == POSTERIOR:
            need[out] = target[v] and seen[v] != HARD
        elif sk.op_kind[i] == FAMILY:  # one whose variables are all observed is known
            need[out] = s.length[out] > 0 and s.scope[sk.table_ptr[out]] != len(seen) - 1
        if need[out] and s.rep[out] == out:
            for k in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
                if s.use[k] >= 0:
                    need[s.use[k]] = True


@compiled()
def reduce_flat(sk, seen, target):  # type: ignore[no-untyped-def]
    """`reduce` for compiled callers: `seen` and `target` have the case axis behind the variables; a plain tuple."""
    n_tables, n_factors, n_vars = len(sk.table_ptr), len(sk.factor_head), len(seen)
    gone, tainted = np.zeros(n_factors, np.bool_), np.zeros(n_tables, np.bool_)
    count = np.zeros(n_vars, np.int64)
    pruned = _prune(sk, seen, target, gone, tainted, count)
    n_entries = len(sk.table_var)
    s = _Shrink(
        np.empty(n_tables, np.int64), np.empty(n_tables, np.int64), np.empty(n_entries, np.int64),
        np.empty(len(sk.op_in), np.int64), np.zeros(n_entries, np.bool_), tainted,
        np.zeros(n_entries if pruned else 0, np.int64), np.full(n_vars, -1, np.int64), np.zeros(n_vars, np.int64),
        np.zeros(n_vars, np.bool_), np.zeros(n_vars, np.int64),
    )  # fmt: skip
    cut = np.zeros(n_factors, np.bool_)
    for f in range(n_factors):
        for j in range(sk.table_ptr[f], sk.table_end[f]):
            v = sk.table_var[j]
            cut[f] = cut[f] or seen[v] == HARD or (seen[v] == SOFT and sk.evidence_factor[v] == f)
    _shrink(sk, seen, target, gone, cut, count, pruned, s)
    need = np.zeros(n_tables, np.bool_)
    _mark_needed(sk, seen, target, s, need)
    return s.rep, s.length, s.scope, s.use, need, cut


def reduce(sk: FlatProgram, seen: NDArray[np.uint8], target: NDArray[np.bool_]) -> Reduced:
    """What a pattern and targets leave of a program.

    Parameters
    ----------
    sk : FlatProgram
        Where its case axis is longer than 1, every table that depends on the evidence has that axis, its fastest.
    seen : (V,) uint8
        `FREE`, `HARD` or `SOFT` for each variable, by rank.
    target : (V,) bool
        Variables whose posteriors are wanted, by rank; those of observed ones are never made.
    """
    return Reduced(*reduce_flat(sk, np.append(seen, np.uint8(0)), np.append(target, True)))
