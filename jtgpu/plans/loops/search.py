"""The compiled search of `jtgpu.plans.search`: choose, propagate, split, remember; and what a trace answers."""

from __future__ import annotations

import math

import numpy as np

from ...util.jit import compiled
from ..search_records import (
    BEGIN,
    BRANCH_EXPONENT,
    CHILDREN,
    CHOSEN,
    DEPTH,
    DONE,
    EDGE,
    EDGES,
    END,
    EXPONENT,
    FIXED,
    FROM,
    FULL,
    MEMBERS,
    MEMBERS_BEFORE,
    MORE,
    NEXT,
    NODES,
    OFF,
    OFF_BEFORE,
    OWN_EXPONENT,
    PART,
    PARTS,
    PARTS_BEFORE,
    STAMP,
    TO,
    TRAIL,
    TRAIL_BEFORE,
    WIDEST,
    WORK,
    Factors,
    Position,
    SearchTrace,
)

__all__ = [
    "Factors", "Position", "SearchTrace", "draw", "follow", "maximise", "posterior", "prepare", "rehash", "search",
]

SMALL, LARGE = 1e-150, 1e150  # products of two such numbers lose no digits
GONE = 1100  # powers of two that a term is smaller and rounded off

# mypy: disable-error-code="no-untyped-def"


@compiled(allocates=False)
def _random(i):
    """The number i of a sequence (Steele, Lea and Flood 2014)."""
    x = (np.uint64(i) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled(allocates=False)
def _equal(cells, begin, end, stride, card, s, t):
    """Whether two slices of a table are equal."""
    for block in range(begin, end, stride * card):
        for i in range(block, block + stride):
            if cells[i + s * stride] != cells[i + t * stride]:
                return False
    return True


@compiled("Factors")
def prepare(factors):
    """Fill masks and keys."""
    n_states = len(factors.var_of)
    for i in range(n_states):
        factors.keys[i, 0], factors.keys[i, 1] = _random(2 * i), _random(2 * i + 1)
    for f in range(len(factors.scope_ptr) - 1):
        begin, end = factors.cell_ptr[f], factors.cell_ptr[f + 1]
        for a in range(factors.scope_ptr[f], factors.scope_ptr[f + 1]):
            card, stride = factors.cards[factors.scope[a]], factors.strides[a]
            for i in range(end - begin):
                if factors.cells[begin + i] > 0:
                    word = factors.mask_ptr[a] + (i // stride) % card * factors.words[f] + (i >> 6)
                    factors.masks[word] |= np.uint64(1) << np.uint64(i & 63)
            for s in range(card):
                same = 0
                while same < s and not _equal(factors.cells, begin, end, stride, card, s, same):
                    same += 1
                key = n_states + factors.row_ptr[a] + s
                number = n_states + factors.row_ptr[a] + same
                factors.keys[key, 0], factors.keys[key, 1] = _random(2 * number), _random(2 * number + 1)


@compiled(allocates=False)
def _times(value, exponent, factor):
    product = value * factor
    if SMALL < product < LARGE and SMALL < factor < LARGE:
        return product, exponent
    value, one = math.frexp(value)
    factor, other = math.frexp(factor)
    return value * factor, exponent + one + other


@compiled(allocates=False)
def _plus(value, exponent, more, other):
    """The sum of two numbers with mantissas in [0.5, 1), or zeros."""
    if value == 0.0:
        return more, other
    if more == 0.0:
        return value, exponent
    if other > exponent:
        value, exponent, more, other = more, other, value, exponent
    return value + math.ldexp(more, max(other - exponent, -GONE)), exponent


@compiled(allocates=False)
def _state_of(factors, at, v):
    """The first state of a variable that is left."""
    s = factors.first[v]
    while not at.possible[s]:
        s += 1
    return s


# Propagation ------------------------------------------------------------------------------------------------------

@compiled(allocates=False)
def _enqueue(factors, at, v, but):
    """Have the tables of a variable, but one, looked at."""
    c = at.counters
    for r in range(factors.reader_ptr[v], factors.reader_ptr[v + 1]):
        f = factors.readers[r]
        if f != but and at.active[f] and not at.waits[f]:
            at.queue[c[TO]], at.waits[f] = f, 1
            c[TO] = (c[TO] + 1) % len(at.queue)


@compiled(allocates=False)
def _remove(factors, at, s):
    at.possible[s] = 0
    at.n_possible[factors.var_of[s]] -= 1
    at.trail[at.counters[TRAIL]] = s
    at.counters[TRAIL] += 1


@compiled(allocates=False)
def _support(factors, at, f):
    """Set the states that some entry of a table agrees with (as compact tables: Demeulenaere and others 2016)."""
    begin, end, words = factors.scope_ptr[f], factors.scope_ptr[f + 1], factors.words[f]
    for a in range(begin, end):
        v = factors.scope[a]
        at.supported[factors.first[v] : factors.first[v + 1]] = 0
    for w in range(words):
        entries = np.uint64(0xFFFFFFFFFFFFFFFF)
        for a in range(begin, end):
            first, row = factors.first[factors.scope[a]], factors.mask_ptr[a] + w
            some = np.uint64(0)
            for s in range(factors.cards[factors.scope[a]]):
                if at.possible[first + s]:
                    some |= factors.masks[row + s * words]
            entries &= some
        for a in range(begin, end if entries else begin):
            first, row = factors.first[factors.scope[a]], factors.mask_ptr[a] + w
            for s in range(factors.cards[factors.scope[a]]):
                if factors.masks[row + s * words] & entries:
                    at.supported[first + s] = 1


@compiled(allocates=False)
def _revise(factors, at, f):
    """Remove the states that no entry of a table agrees with; False if a variable has none left."""
    _support(factors, at, f)
    for a in range(factors.scope_ptr[f], factors.scope_ptr[f + 1]):
        v, before = factors.scope[a], at.counters[TRAIL]
        for s in range(factors.first[v], factors.first[v + 1]):
            if at.possible[s] and not at.supported[s]:
                _remove(factors, at, s)
        if at.n_possible[v] == 0:
            return False
        if at.counters[TRAIL] > before:
            _enqueue(factors, at, v, f)
    return True


@compiled(allocates=False)
def _propagate(factors, at):
    """Revise the tables that wait; False if a variable has no state left."""
    c, is_possible = at.counters, True
    while c[FROM] != c[TO]:
        f = at.queue[c[FROM]]
        c[FROM] = (c[FROM] + 1) % len(at.queue)
        at.waits[f] = 0
        if is_possible:
            c[WORK] += factors.words[f]
            is_possible = _revise(factors, at, f)
    return is_possible


@compiled(allocates=False)
def _next_entry(factors, at, f, cell):
    """The next entry of a table whose states are left, -1 after the last; `digits` has the states of the present."""
    begin = factors.scope_ptr[f]
    for a in range(factors.scope_ptr[f + 1] - 1, begin - 1, -1):
        v, s = factors.scope[a], at.digits[a - begin]
        if at.n_possible[v] == 1:
            continue
        after = s + 1
        while after < factors.first[v + 1] and not at.possible[after]:
            after += 1
        is_last = after == factors.first[v + 1]
        if is_last:
            after = _state_of(factors, at, v)
        cell += (after - s) * factors.strides[a]
        at.digits[a - begin] = after
        if not is_last:
            return cell
    return -1


@compiled(allocates=False)
def _constant(factors, at, f):
    """The number that all entries of a table are whose states are left; -1 if they are not equal."""
    begin, cell = factors.scope_ptr[f], factors.cell_ptr[f]
    for a in range(begin, factors.scope_ptr[f + 1]):
        v = factors.scope[a]
        s = _state_of(factors, at, v)
        at.digits[a - begin] = s
        cell += (s - factors.first[v]) * factors.strides[a]
    value = factors.cells[cell]
    while True:
        at.counters[WORK] += 1
        cell = _next_entry(factors, at, f, cell)
        if cell < 0:
            return value
        if factors.cells[cell] != value:
            return -1.0


# Parts ------------------------------------------------------------------------------------------------------------

@compiled(allocates=False)
def _take_constants(factors, at, trail):
    """The product of the tables that are constant since some states were removed; they connect nothing any more."""
    value, exponent, c = 1.0, 0, at.counters
    c[STAMP] += 1
    for i in range(trail, c[TRAIL]):
        v = factors.var_of[at.trail[i]]
        for r in range(factors.reader_ptr[v], factors.reader_ptr[v + 1]):
            f = factors.readers[r]
            if not at.active[f] or at.table_mark[f] == c[STAMP]:
                continue
            at.table_mark[f] = c[STAMP]
            constant = _constant(factors, at, f)
            if constant >= 0:
                value, exponent = _times(value, exponent, constant)
                at.active[f], at.off[c[OFF]] = 0, f
                c[OFF] += 1
    return value, exponent


@compiled(allocates=False)
def _add_part(factors, at, start):
    """Put the variables that are connected with one on the stack, and the part's key."""
    c = at.counters
    begin, n_states = c[MEMBERS], len(at.possible)
    at.members[begin], at.mark[start] = start, c[STAMP]
    end, i, one, other, chosen, most = begin + 1, begin, np.uint64(0), np.uint64(0), start, -1
    while i < end:
        v, degree = at.members[i], 0
        i += 1
        for s in range(factors.first[v], factors.first[v + 1]):
            if at.possible[s]:
                one += factors.keys[s, 0]
                other += factors.keys[s, 1]
        for r in range(factors.reader_ptr[v], factors.reader_ptr[v + 1]):
            f = factors.readers[r]
            degree += at.active[f]
            if not at.active[f] or at.table_mark[f] == c[STAMP]:
                continue
            at.table_mark[f] = c[STAMP]
            for a in range(factors.scope_ptr[f], factors.scope_ptr[f + 1]):
                u = factors.scope[a]
                if at.n_possible[u] == 1:
                    s = n_states + factors.row_ptr[a] + _state_of(factors, at, u) - factors.first[u]
                    one += factors.keys[s, 0]
                    other += factors.keys[s, 1]
                elif at.mark[u] != c[STAMP]:
                    at.mark[u], at.members[end] = c[STAMP], u
                    end += 1
        if degree > most or (degree == most and factors.rank[v] > factors.rank[chosen]):
            chosen, most = v, degree
    p = c[PARTS]
    at.parts[p, 0], at.parts[p, 1], at.parts[p, 2] = begin, end, chosen
    at.part_keys[p, 0], at.part_keys[p, 1] = one, other
    c[WORK] += end - begin
    c[PARTS], c[MEMBERS] = p + 1, end


@compiled(allocates=False)
def _split(factors, at, begin, end):
    """The parts that the variables on a piece of the stack fall into."""
    at.counters[STAMP] += 1
    for i in range(begin, end):
        v = at.members[i]
        if at.n_possible[v] > 1 and at.mark[v] != at.counters[STAMP]:
            _add_part(factors, at, v)


@compiled(allocates=False)
def _place(trace, one, other):
    """Where the hash table has a part, or would have it."""
    last = len(trace.known) - 1
    i = np.int64(one & np.uint64(last))
    while trace.known[i] >= 0 and not (trace.known_keys[i, 0] == one and trace.known_keys[i, 1] == other):
        i = (i + 1) & last
    return i


@compiled("SearchTrace, const(i8[:]), const(u8[:, :])")
def rehash(trace, known, keys):
    """Put the parts of a hash table into the trace's, a longer one."""
    for k in range(len(known)):
        if known[k] >= 0:
            i = _place(trace, keys[k, 0], keys[k, 1])
            trace.known[i], trace.known_keys[i, 0], trace.known_keys[i, 1] = known[k], keys[k, 0], keys[k, 1]


# Nodes and edges ----------------------------------------------------------------------------------------------------

@compiled(allocates=False)
def _add_node(at, trace, p, value, exponent, edge):
    """A node for a part; -1: for all."""
    n = at.counters[NODES]
    trace.node_value[n], trace.node_exponent[n], trace.node_edge[n] = value, exponent, edge
    if p >= 0:
        one, other = at.part_keys[p, 0], at.part_keys[p, 1]
        i = _place(trace, one, other)
        trace.known[i], trace.known_keys[i, 0], trace.known_keys[i, 1] = n, one, other
    at.counters[NODES] += 1
    return n


@compiled(allocates=False)
def _add_edge(at, trace, value, exponent, before):
    """An edge for the states and children that were added since the last."""
    c = at.counters
    e = c[EDGES]
    trace.edge_value[e], trace.edge_exponent[e], trace.edge_before[e] = value, exponent, before
    trace.fixed_ptr[e + 1], trace.child_ptr[e + 1] = c[FIXED], c[CHILDREN]
    c[EDGES] += 1
    return e


@compiled(allocates=False)
def _product(factors, at, v, s):
    """The product of the entries of a variable's tables at one of its states: the others have one left."""
    value, exponent = 1.0, 0
    for r in range(factors.reader_ptr[v], factors.reader_ptr[v + 1]):
        f = factors.readers[r]
        if not at.active[f]:
            continue
        cell = factors.cell_ptr[f]
        for a in range(factors.scope_ptr[f], factors.scope_ptr[f + 1]):
            u = factors.scope[a]
            cell += ((s if u == v else _state_of(factors, at, u)) - factors.first[u]) * factors.strides[a]
        value, exponent = _times(value, exponent, factors.cells[cell])
    return value, exponent


@compiled(allocates=False)
def _single(factors, at, trace, p):
    """The node of a part of one variable."""
    c, v = at.counters, at.parts[p, 2]
    total, exponent, edge = 0.0, 0, -1
    for s in range(factors.first[v], factors.first[v + 1]):
        if at.possible[s]:
            value, power = _product(factors, at, v, s)
            if value == 0.0:
                continue
            value, more = math.frexp(value)
            trace.fixed[c[FIXED]] = s
            c[FIXED] += 1
            edge = _add_edge(at, trace, value, power + more, edge)
            total, exponent = _plus(total, exponent, value, power + more)
    total, more = math.frexp(total)
    return _add_node(at, trace, p, total, exponent + more, edge)


# The search -----------------------------------------------------------------------------------------------------------

@compiled(allocates=False)
def _open(at, begin, end, chosen):
    """Begin with the states of a variable."""
    c = at.counters
    d, levels = c[DEPTH], at.levels
    levels[d, BEGIN], levels[d, END], levels[d, CHOSEN] = begin, end, chosen
    levels[d, NEXT], levels[d, EDGE], levels[d, EXPONENT], levels[d, PART] = 0, -1, 0, -1
    levels[d, TRAIL_BEFORE], levels[d, OFF_BEFORE] = c[TRAIL], c[OFF]
    levels[d, MEMBERS_BEFORE], levels[d, PARTS_BEFORE] = c[MEMBERS], c[PARTS]
    at.values[d, 0] = 0.0
    c[DEPTH] += 1


@compiled(allocates=False)
def _undo(factors, at, d):
    """Go back to before a state was chosen."""
    c, levels = at.counters, at.levels
    while c[TRAIL] > levels[d, TRAIL_BEFORE]:
        c[TRAIL] -= 1
        s = at.trail[c[TRAIL]]
        at.possible[s] = 1
        at.n_possible[factors.var_of[s]] += 1
    while c[OFF] > levels[d, OFF_BEFORE]:
        c[OFF] -= 1
        at.active[at.off[c[OFF]]] = 1
    c[MEMBERS], c[PARTS] = levels[d, MEMBERS_BEFORE], levels[d, PARTS_BEFORE]
    levels[d, PART] = -1


@compiled(allocates=False)
def _multiply(at, trace, d, n):
    """Multiply the value of a node into that of a branch."""
    levels = at.levels
    at.parts[levels[d, PART], 3] = n
    at.values[d, 1], levels[d, BRANCH_EXPONENT] = _times(
        at.values[d, 1], levels[d, BRANCH_EXPONENT] + trace.node_exponent[n], trace.node_value[n]
    )
    levels[d, PART] += 1


@compiled(allocates=False)
def _close(at, trace, d):
    """The node of a choice all of whose states are done."""
    value, more = math.frexp(at.values[d, 0])
    at.counters[DEPTH] = d
    part = at.levels[d - 1, PART] if d else -1
    n = _add_node(at, trace, part, value, at.levels[d, EXPONENT] + more, at.levels[d, EDGE])
    if d:
        _multiply(at, trace, d - 1, n)


@compiled(allocates=False)
def _finish_branch(factors, at, trace, d):
    """The edge of a state all of whose parts are done."""
    c, levels = at.counters, at.levels
    c[STAMP] += 1
    for i in range(levels[d, TRAIL_BEFORE], c[TRAIL]):
        v = factors.var_of[at.trail[i]]
        if at.n_possible[v] == 1 and at.mark[v] != c[STAMP]:
            at.mark[v] = c[STAMP]
            trace.fixed[c[FIXED]] = _state_of(factors, at, v)
            c[FIXED] += 1
    for p in range(levels[d, PARTS_BEFORE], c[PARTS]):
        trace.children[c[CHILDREN]] = at.parts[p, 3]
        c[CHILDREN] += 1
    levels[d, EDGE] = _add_edge(at, trace, at.values[d, 2], levels[d, OWN_EXPONENT], levels[d, EDGE])
    value, more = math.frexp(at.values[d, 1])
    at.values[d, 0], levels[d, EXPONENT] = _plus(
        at.values[d, 0], levels[d, EXPONENT], value, levels[d, BRANCH_EXPONENT] + more
    )
    _undo(factors, at, d)


@compiled(allocates=False)
def _choose(factors, at, trace, d):
    """Choose the next state, or close the level after the last."""
    levels = at.levels
    v, s = levels[d, CHOSEN], levels[d, NEXT]
    end = 1 if v < 0 else factors.cards[v]
    while v >= 0 and s < end and not at.possible[factors.first[v] + s]:
        s += 1
    if s == end:
        _close(at, trace, d)
        return
    levels[d, NEXT] = s + 1
    if v < 0:  # before the first choice
        for u in range(len(factors.cards)):
            _enqueue(factors, at, u, -1)
    else:
        for t in range(factors.first[v], factors.first[v + 1]):
            if at.possible[t] and t != factors.first[v] + s:
                _remove(factors, at, t)
        _enqueue(factors, at, v, -1)
    if not _propagate(factors, at):
        _undo(factors, at, d)
        return
    value, exponent = _take_constants(factors, at, levels[d, TRAIL_BEFORE])
    at.values[d, 1], levels[d, BRANCH_EXPONENT] = value, exponent
    at.values[d, 2], levels[d, OWN_EXPONENT] = value, exponent
    _split(factors, at, levels[d, BEGIN], levels[d, END])
    levels[d, PART] = levels[d, PARTS_BEFORE]


@compiled(allocates=False)
def _has_room(at, trace, n):
    """Whether a step at a part of n variables needs no longer array."""
    c = at.counters
    more = n + c[WIDEST] + 1
    return (
        c[MEMBERS] + n <= len(at.members)
        and c[PARTS] + n <= len(at.parts)
        and c[DEPTH] + 2 <= len(at.levels)
        and c[NODES] + 2 <= len(trace.node_value)
        and c[EDGES] + more <= len(trace.edge_value)
        and c[FIXED] + more <= len(trace.fixed)
        and c[CHILDREN] + more <= len(trace.children)
        and 2 * c[NODES] + 2 <= len(trace.known)
    )


@compiled("Factors, Position, SearchTrace, i8")
def search(factors, at, trace, most):
    """Search until it is done, has taken so many steps more, or needs longer arrays."""
    c, levels = at.counters, at.levels
    most += c[WORK]
    if c[NODES] == 0 and c[DEPTH] == 0:
        _open(at, 0, len(factors.cards), -1)
    while c[DEPTH] > 0:
        d = c[DEPTH] - 1
        if not _has_room(at, trace, levels[d, END] - levels[d, BEGIN]):
            return FULL
        if c[WORK] > most:
            return MORE
        p = levels[d, PART]
        if p < 0:
            _choose(factors, at, trace, d)
        elif at.values[d, 1] == 0.0:
            _undo(factors, at, d)
        elif p == c[PARTS]:
            _finish_branch(factors, at, trace, d)
        else:
            n = trace.known[_place(trace, at.part_keys[p, 0], at.part_keys[p, 1])]
            if n < 0 and at.parts[p, 1] - at.parts[p, 0] > 1:
                _open(at, at.parts[p, 0], at.parts[p, 1], at.parts[p, 2])
            else:
                _multiply(at, trace, d, _single(factors, at, trace, p) if n < 0 else n)
    return DONE


# Answers --------------------------------------------------------------------------------------------------------------

@compiled(allocates=False)
def _value(trace, e, value, exponent):
    """The value of an edge for values of the nodes."""
    product, power = trace.edge_value[e], trace.edge_exponent[e]
    for i in range(trace.child_ptr[e], trace.child_ptr[e + 1]):
        n = trace.children[i]
        product, power = _times(product, power + exponent[n], value[n])
    return product, power


@compiled(allocates=False)
def _share(trace, n, e):
    """The probability of an edge given its node."""
    value, exponent = _value(trace, e, trace.node_value, trace.node_exponent)
    return math.ldexp(value / trace.node_value[n], max(exponent - trace.node_exponent[n], -GONE))


@compiled("SearchTrace, f8[:], f8[:]")
def posterior(trace, mass, states):
    """Add the probability of every state."""
    # mass: (nodes,) zeros: Receives the probability of each node; the last is the root
    mass[-1] = 1.0
    for n in range(len(mass) - 1, -1, -1):
        e = trace.node_edge[n] if mass[n] > 0 else -1
        while e >= 0:
            share = mass[n] * _share(trace, n, e)
            for i in range(trace.fixed_ptr[e], trace.fixed_ptr[e + 1]):
                states[trace.fixed[i]] += share
            for i in range(trace.child_ptr[e], trace.child_ptr[e + 1]):
                mass[trace.children[i]] += share
            e = trace.edge_before[e]


@compiled("SearchTrace, f8[:], i8[:], i8[:]")
def maximise(trace, value, exponent, chosen):
    """The largest product below every node, and the edge that it begins with; -1: all are zero."""
    for n in range(len(value)):
        value[n], exponent[n], chosen[n] = 0.0, 0, -1
        e = trace.node_edge[n]
        while e >= 0:
            product, power = _value(trace, e, value, exponent)
            product, more = math.frexp(product)
            power += more
            if product > 0 and (chosen[n] < 0 or (power, product) > (exponent[n], value[n])):
                value[n], exponent[n], chosen[n] = product, power, e
            e = trace.edge_before[e]


@compiled("Factors, SearchTrace, i8[:], i4[:], i8")
def follow(factors, trace, chosen, states, root):
    """Set the states along the chosen edges."""
    # states: (V,)
    stack = np.empty(len(states) + 1, np.int64)  # of disjoint parts
    stack[0], top = root, 1
    while top > 0:
        top -= 1
        e = chosen[stack[top]]
        for i in range(trace.fixed_ptr[e], trace.fixed_ptr[e + 1]):
            v = factors.var_of[trace.fixed[i]]
            states[v] = trace.fixed[i] - factors.first[v]
        for i in range(trace.child_ptr[e], trace.child_ptr[e + 1]):
            stack[top] = trace.children[i]
            top += 1


@compiled("Factors, SearchTrace, const(f8[:, :]), i4[:, :], i8")
def draw(factors, trace, uniforms, states, root):
    """Draw configurations of the variables, by one number of [0, 1) for each."""
    # uniforms, states: (n, V)
    chosen = np.empty(root + 1, np.int64)
    stack = np.empty(len(factors.cards) + 1, np.int64)
    for row in range(len(states)):
        stack[0], top = root, 1
        while top > 0:
            top -= 1
            n = stack[top]
            e = trace.node_edge[n]
            rest = uniforms[row, factors.var_of[trace.fixed[trace.fixed_ptr[e]]]] if n < root else 0.0
            rest -= _share(trace, n, e)
            while rest >= 0.0 and trace.edge_before[e] >= 0:
                e = trace.edge_before[e]
                rest -= _share(trace, n, e)
            chosen[n] = e
            for i in range(trace.child_ptr[e], trace.child_ptr[e + 1]):
                stack[top] = trace.children[i]
                top += 1
        follow(factors, trace, chosen, states[row], root)
