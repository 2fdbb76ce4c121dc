"""What a pattern leaves of a program; see `jtgpu.plans.specialise`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...util.jit import compiled, inlined
from ..program import COLLECT, FAMILY, POSTERIOR, UNIT
from ..specialise import FREE, HARD, SOFT, FlatProgram

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["reduce_flat"]


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


@compiled("FlatProgram, u1[:], b1[:]")
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
