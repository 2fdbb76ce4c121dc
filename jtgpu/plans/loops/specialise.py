"""Restriction of a program to a pattern; see `jtgpu.plans.specialise`."""

from __future__ import annotations

import numpy as np

from ...util.jit import compiled, inlined
from ..arrays import COLLECT, POSTERIOR
from ..program import FAMILY, UNIT
from ..specialise import FREE, HARD, SOFT, FlatProgram, Shrinking


@inlined
def unpack(image):  # type: ignore[no-untyped-def]
    """The `FlatProgram` in an array that `pack` made."""
    return FlatProgram(
        image[image[0] : image[1]], image[image[1] : image[2]], image[image[2] : image[3]], image[image[3] : image[4]],
        image[image[4] : image[5]], image[image[5] : image[6]], image[image[6] : image[7]], image[image[7] : image[8]],
        image[image[8] : image[9]], image[image[9] : image[10]], image[image[10] : image[11]],
        image[image[11] : image[12]], image[image[12] : image[13]], image[image[13] : image[14]],
        image[image[14] : image[15]], image[image[15] : image[16]],
    )  # fmt: skip


@inlined
def with_card(sk, card):  # type: ignore[no-untyped-def]
    """A `FlatProgram` with other cardinalities."""
    return FlatProgram(
        card, sk.table_ptr, sk.table_end, sk.table_var, sk.op_kind, sk.op_out, sk.op_in_ptr, sk.op_in, sk.op_maximal,
        sk.answers, sk.factor_head, sk.head_factor, sk.evidence_factor, sk.roots, sk.wanted, sk.uses,
    )  # fmt: skip


@inlined
def _prune(sk, seen, target, s):  # type: ignore[no-untyped-def]
    """Remove barren variables, repeatedly: sets `s.gone` and `s.remaining`; returns whether any factor is gone."""
    # seen: (V+1,) uint8: `FREE`, `HARD` or `SOFT` for each variable, by rank; `FREE` for the case axis
    # target: (V+1,) uint8: 1 for variables whose posteriors are wanted, by rank, and for the case axis
    stack, n = s.stack, 0
    for v in range(len(seen)):
        s.remaining[v] = sk.uses[v]
        f = sk.head_factor[v]
        if f >= 0 and sk.uses[v] == 1 and seen[v] == FREE and target[v] == 0 and s.tainted[f] == 0:
            stack[n] = v
            n += 1
    pruned = n > 0
    while n > 0:
        n -= 1
        f = sk.head_factor[stack[n]]
        s.gone[f] = 1
        for j in range(sk.table_ptr[f], sk.table_end[f]):
            u = sk.table_var[j]
            s.remaining[u] -= 1
            g = sk.head_factor[u]
            if s.remaining[u] != 1 or g < 0 or seen[u] != FREE or target[u] != 0:
                continue
            if s.tainted[g] == 0 and s.gone[g] == 0:
                stack[n] = u
                n += 1
    return pruned


@inlined
def _mark_reached(sk, seen, target, pruned, s):  # type: ignore[no-untyped-def]
    """Set `s.empty` for tables without a remaining factor, and `s.reached` for the others that an answer depends on."""
    if pruned:
        for f in range(len(sk.factor_head)):
            s.empty[f] = s.gone[f]
        for i in range(len(sk.op_out)):
            empty = 1
            for k in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
                empty &= s.empty[sk.op_in[k]]
            s.empty[sk.op_out[i]] = empty
    for tables in (sk.roots, sk.wanted):
        for r in range(len(tables)):
            s.reached[tables[r]] = 1 - s.empty[tables[r]]
    for i in range(len(sk.op_out) - 1, -1, -1):
        out, v = sk.op_out[i], sk.answers[i]
        if sk.op_kind[i] == POSTERIOR:
            s.reached[out] = target[v] != 0 and seen[v] != HARD
        elif sk.op_kind[i] == FAMILY:
            s.reached[out] = 1
        if s.reached[out] != 0:
            for k in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
                t = sk.op_in[k]
                s.reached[t] |= 1 - s.empty[t]


@inlined
def shrink_room(sk):  # type: ignore[no-untyped-def]
    """Numbers (int64) of scratch memory for `reduce_flat`."""
    n_tables, n_factors, n_vars = len(sk.table_ptr), len(sk.factor_head), len(sk.card)
    n_bytes = len(sk.table_var) + 4 * n_tables + 2 * n_factors + n_vars
    return 2 * n_tables + 2 * len(sk.table_var) + len(sk.op_in) + 5 * n_vars + n_bytes // 8 + 10


@inlined
def part(room, at, n):  # type: ignore[no-untyped-def]
    """The numbers room[at:at+n], and where they end."""
    return room[at : at + n], at + n


@compiled()
def _scratch(sk, room):  # type: ignore[no-untyped-def]
    """A `Shrinking` in `room` (int64), with what must be zero set to zero."""
    n_tables, n_factors, n_vars = len(sk.table_ptr), len(sk.factor_head), len(sk.card)
    n_entries, n_ins = len(sk.table_var), len(sk.op_in)
    rep, at = part(room, 0, n_tables)
    length, at = part(room, at, n_tables)
    use, at = part(room, at, n_ins)
    scope, at = part(room, at, n_entries)
    below, at = part(room, at, n_entries)
    remaining, at = part(room, at, n_vars)
    outside, at = part(room, at, n_vars)
    holders, at = part(room, at, n_vars)
    factors, at = part(room, at, n_vars)
    stack, at = part(room, at, n_vars)
    flags, last = room[at:].view(np.uint8), 0
    tainted, last = part(flags, 0, n_tables)
    gone, last = part(flags, last, n_factors)
    cut, last = part(flags, last, n_factors)
    empty, last = part(flags, last, n_tables)
    reached, last = part(flags, last, n_tables)
    needed, last = part(flags, last, n_tables)
    heads, last = part(flags, last, n_vars)
    flags[:last] = 0
    head, last = part(flags, last, n_entries)
    rep[:], length[:], use[:] = UNIT, 0, UNIT
    outside[:], holders[:], factors[:] = -1, 0, 0
    return Shrinking(
        rep, length, scope, use, below, remaining, outside, holders, factors, stack, head, tainted, gone, cut, empty,
        reached, needed, heads,
    )  # fmt: skip


@inlined
def _shrink_factors(sk, seen, pruned, s):  # type: ignore[no-untyped-def]
    """The factors' scopes under the pattern; parameters as for `_shrink`."""
    case = len(seen) - 1
    for f in range(len(sk.factor_head)):
        if s.reached[f] == 0:
            continue
        first, head, cut = sk.table_ptr[f], sk.factor_head[f], s.cut[f] != 0
        n = first
        tainted = s.tainted[f] != 0 or head < 0 or seen[head] == HARD
        for j in range(first, sk.table_end[f]):
            v = sk.table_var[j]
            if pruned:
                s.below[j] = 1
            cut = cut or seen[v] == HARD or (seen[v] == SOFT and sk.evidence_factor[v] == f)
            if seen[v] != HARD:
                s.scope[n] = v
                s.head[n] = not tainted and v == head
                n += 1
        if sk.card[case] > 1 and cut:
            s.scope[n] = case
            s.head[n] = False
            n += 1
        s.rep[f], s.length[f], s.tainted[f], s.cut[f] = f, n - first, tainted, cut


@inlined
def _eliminate_early(sk, target, i, s):  # type: ignore[no-untyped-def]
    """Mark what contraction i eliminates since its other factors are gone: what no remaining factor elsewhere has."""
    out = sk.op_out[i]
    begin, end = sk.op_in_ptr[i], sk.op_in_ptr[i + 1]
    for k in range(begin, end):
        t = sk.op_in[k]
        if s.empty[t] == 0:
            for j in range(sk.table_ptr[t], sk.table_end[t]):
                s.factors[sk.table_var[j]] += s.below[j]
    for j in range(sk.table_ptr[out], sk.table_end[out]):
        v = sk.table_var[j]
        s.below[j] = s.factors[v]
        if s.factors[v] == s.remaining[v] and target[v] == 0:
            s.outside[v] = -1
    for k in range(begin, end):
        t = sk.op_in[k]
        if s.empty[t] == 0:
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
    if t < 0 or s.tainted[t] != 0:
        return False
    for j in range(sk.table_ptr[t], sk.table_ptr[t] + s.length[t]):
        if s.head[j] != 0 and (s.outside[s.scope[j]] == i or s.holders[s.scope[j]] > 1):
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
                if s.head[j] != 0:
                    s.heads[s.scope[j]] = 1
    n, any_head = sk.table_ptr[out], False
    for j in range(sk.table_ptr[out], sk.table_end[out]):
        v = sk.table_var[j]
        if s.outside[v] == i and s.holders[v] > 0:
            s.scope[n] = v
            s.head[n] = s.heads[v]
            any_head = any_head or s.heads[v] != 0
            n += 1
    if s.holders[case] > 0:
        s.scope[n] = case
        s.head[n] = False
        n += 1
    s.length[out] = n - sk.table_ptr[out]
    return any_head


@inlined
def _finish_contraction(sk, i, left, any_head, s):  # type: ignore[no-untyped-def]
    """Choose the table that stands for the output of contraction i, of `left` inputs; clears `holders` and `heads`."""
    out = sk.op_out[i]
    eliminates, tainted, only = False, False, UNIT
    for k in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
        t = s.use[k]
        if t >= 0:
            only = t
            tainted = tainted or s.tainted[t] != 0
            for j in range(sk.table_ptr[t], sk.table_ptr[t] + s.length[t]):
                v = s.scope[j]
                if s.outside[v] != i:
                    eliminates = True
                    tainted = tainted or s.heads[v] == 0
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
def _shrink(sk, seen, target, pruned, s):  # type: ignore[no-untyped-def]
    """Fill in `s.rep`, `s.length`, `s.scope` and `s.use` of the tables that an answer may depend on."""
    case = len(seen) - 1
    _shrink_factors(sk, seen, pruned, s)
    for i in range(len(sk.op_out)):
        out = sk.op_out[i]
        if s.reached[out] == 0:
            continue
        for j in range(sk.table_ptr[out], sk.table_end[out]):
            s.outside[sk.table_var[j]] = i
        s.outside[case] = i
        if pruned and sk.op_kind[i] == COLLECT:
            _eliminate_early(sk, target, i, s)
        left = _drop_densities(sk, i, _choose_inputs(sk, i, s), s)
        _finish_contraction(sk, i, left, _output_scope(sk, i, s), s)


@compiled(allocates=False)
def _mark_needed(sk, seen, target, s):  # type: ignore[no-untyped-def]
    """Set `s.needed` for the tables that the answers, the roots and the wanted tables need; see `_shrink`."""
    for tables in (sk.roots, sk.wanted):
        for r in range(len(tables)):
            t = s.rep[tables[r]]
            if t >= 0:
                s.needed[t] = 1
    for i in range(len(sk.op_out) - 1, -1, -1):
        v, out = sk.answers[i], sk.op_out[i]
        if s.reached[out] == 0:
            continue
        if sk.op_kind[i] == POSTERIOR:
            s.needed[out] = target[v] != 0 and seen[v] != HARD
        elif sk.op_kind[i] == FAMILY:  # one whose variables are all observed is known
            s.needed[out] = s.length[out] > 0 and s.scope[sk.table_ptr[out]] != len(seen) - 1
        if s.needed[out] != 0 and s.rep[out] == out:
            for k in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
                if s.use[k] >= 0:
                    s.needed[s.use[k]] = 1


@compiled()
def reduce_flat(sk, seen, target, room):  # type: ignore[no-untyped-def]
    """`reduce` for compiled callers; the result is a `Shrinking`, whose arrays are in `room`."""
    # seen, target: (V+1,) uint8: As of `reduce`, with the case axis behind the variables: `FREE` and 1
    # room: Scratch memory, at least `shrink_room` numbers
    s = _scratch(sk, room)
    for v in range(len(sk.evidence_factor)):
        if seen[v] == SOFT:
            s.tainted[sk.evidence_factor[v]] = 1
            s.cut[sk.evidence_factor[v]] = 1
    pruned = _prune(sk, seen, target, s)
    _mark_reached(sk, seen, target, pruned, s)
    _shrink(sk, seen, target, pruned, s)
    _mark_needed(sk, seen, target, s)
    return s


@compiled("FlatProgram, u1[:], u1[:]")
def reduce(sk, seen, target):  # type: ignore[no-untyped-def]
    """The fields of `Reduced`; parameters as for `reduce_flat`."""
    s = reduce_flat(sk, seen, target, np.empty(shrink_room(sk), np.int64))
    return s.rep, s.length, s.scope, s.use, s.needed, s.cut
