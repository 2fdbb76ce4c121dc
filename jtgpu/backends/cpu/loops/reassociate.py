"""Products of three tables in another order, so that a large table between them is never made.

A plan decides once for each clique which tables are multiplied first. Under a pattern that order can be a poor one: a
table T = sum(X * Y) of many cells and few terms each is read by one or two contractions, sum(T * A), each of which may
take fewer multiply-adds as sum(sum(X * A) * Y), from smaller tables. See `choose_orders`.
"""

from __future__ import annotations

from ....util.jit import compiled, inlined

PER_CELL = 4.0  # multiply-adds that take as long as a cell that is written and read again
LEAST = 1.5  # how many times fewer they must become
MOST_SPLITS, MOST_READERS = 16, 3  # contractions that become two; those that read a table that is avoided

# A contraction that becomes two: its number, the inputs of the first one (the second may be -1: none), the table that
# it writes, and the table which that is multiplied with.
SPLIT_OP, SPLIT_A, SPLIT_B, SPLIT_MADE, SPLIT_C, SPLIT_FIELDS = range(6)
SPLIT_NUMBERS = (MOST_SPLITS + 1) * SPLIT_FIELDS


@inlined
def _is_made(sk, s, i):  # type: ignore[no-untyped-def]
    """Whether contraction i is made."""
    out = sk.op_out[i]
    return s.needed[out] != 0 and s.rep[out] == out


@inlined
def _cells(sk, s, t):  # type: ignore[no-untyped-def]
    """Cells of table t (float64)."""
    cells = 1.0
    for j in range(sk.table_ptr[t], sk.table_ptr[t] + s.length[t]):
        cells *= sk.card[s.scope[j]]
    return cells


@compiled(allocates=False)
def _mark(sk, s, t, bit, marks):  # type: ignore[no-untyped-def]
    """Set a bit at each variable of table t, if there is one; bit 0 clears all bits."""
    if t >= 0:
        for j in range(sk.table_ptr[t], sk.table_ptr[t] + s.length[t]):
            marks[s.scope[j]] = marks[s.scope[j]] | bit if bit else 0


@compiled(allocates=False)
def _cost(sk, s, a, b, c, out, marks):  # type: ignore[no-untyped-def]
    """Multiply-adds (float64) of sum(sum(a * b) * c), about; their number if nothing is left of the inner sum."""
    # a, b, c, out: Tables; b and c may be -1: none
    # marks: (V+1,) int64: Zeros
    _mark(sk, s, a, 1, marks)
    _mark(sk, s, b, 2, marks)
    _mark(sk, s, c, 4, marks)
    _mark(sk, s, out, 8, marks)
    terms, made, more = 1.0, 1.0, 1.0 if c < 0 else _cells(sk, s, c)
    for t in (a, b):
        if t >= 0:
            for j in range(sk.table_ptr[t], sk.table_ptr[t] + s.length[t]):
                v = s.scope[j]
                if t == a or marks[v] & 1 == 0:
                    terms *= sk.card[v]
                    if marks[v] >= 4:
                        made *= sk.card[v]
                        more *= sk.card[v] if marks[v] & 4 == 0 else 1
    for t in (a, b, c, out):
        _mark(sk, s, t, 0, marks)
    return terms + PER_CELL * made + (more if c >= 0 else 0.0)


@inlined
def _inputs(sk, s, i):  # type: ignore[no-untyped-def]
    """The number of inputs of contraction i, the first one and the last one; -1: none."""
    n, first, last = 0, -1, -1
    for j in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
        if s.use[j] >= 0:
            last = s.use[j]
            first = last if n == 0 else first
            n += 1
    return n, first, last


@inlined
def _is_fixed(sk, s, t, splits, n):  # type: ignore[no-untyped-def]
    """Whether table t must be made: something else reads it than contractions, or the first n splits do."""
    fixed = False
    for tables in (sk.roots, sk.wanted):
        for r in range(len(tables)):
            fixed = fixed or s.rep[tables[r]] == t
    for k in range(n):
        fixed = fixed or sk.op_out[splits[k, SPLIT_OP]] == t
        fixed = fixed or splits[k, SPLIT_A] == t or splits[k, SPLIT_B] == t or splits[k, SPLIT_C] == t
    return fixed


@inlined
def _order(sk, s, x, y, other, out, marks):  # type: ignore[no-untyped-def]
    """The cheaper one of sum(sum(x * other) * y) and sum(sum(y * other) * x): its cost, and the tables in order."""
    by_x, by_y = _cost(sk, s, x, other, y, out, marks), _cost(sk, s, y, other, x, out, marks)
    return (by_x, x, y) if by_x <= by_y else (by_y, y, x)


@compiled(allocates=False)
def _split_readers(sk, s, i, readers, splits, n, marks):  # type: ignore[no-untyped-def]
    """Write behind the first n splits how those that read the output of contraction i can do without it."""
    # readers: (MOST_READERS + 1,) int64: Their number, then they
    # returns How many splits there are then; n if contraction i is better made.
    t, first = sk.op_out[i], n
    k, x, y = _inputs(sk, s, i)
    if k != 2 or x == y or n + readers[0] > MOST_SPLITS or readers[0] > MOST_READERS or _is_fixed(sk, s, t, splits, n):
        return first
    before, after = _cost(sk, s, x, y, -1, t, marks), 0.0
    for r in range(1, 1 + readers[0]):
        j = readers[r]
        k, a, b = _inputs(sk, s, j)
        if k > 2 or (k == 2 and a == b) or sk.op_maximal[j] != 0:
            return first
        for q in range(n):
            if splits[q, SPLIT_OP] == j:
                return first
        other = -1 if k == 1 else a if b == t else b
        cost, p, q = _order(sk, s, x, y, other, sk.op_out[j], marks)
        before += _cost(sk, s, t, other, -1, sk.op_out[j], marks) - PER_CELL * _cells(sk, s, sk.op_out[j])
        after += cost
        splits[n, SPLIT_OP], splits[n, SPLIT_A], splits[n, SPLIT_B], splits[n, SPLIT_C] = j, p, other, q
        n += 1
    return n if LEAST * after < before else first


@compiled(allocates=False)
def _find_table(sk, s, room, splits, n):  # type: ignore[no-untyped-def]
    """A table that is not made, with room for so many variables, that none of the first n splits takes; -1: none."""
    for t in range(len(sk.factor_head), len(sk.table_ptr)):
        if s.needed[t] == 0 and sk.table_end[t] - sk.table_ptr[t] >= room:
            free = True
            for k in range(n):
                free = free and splits[k, SPLIT_MADE] != t
            if free:
                return t
    return -1


@compiled(allocates=False)
def _write_scope(sk, s, split, t, marks):  # type: ignore[no-untyped-def]
    """The variables that the first contraction of a split leaves; writes them as the scope of table t unless t < 0."""
    # returns Their number.
    out, n, case = sk.op_out[split[SPLIT_OP]], 0, len(sk.card) - 1
    _mark(sk, s, split[SPLIT_A], 1, marks)
    _mark(sk, s, split[SPLIT_B], 1, marks)
    _mark(sk, s, split[SPLIT_C], 2, marks)
    _mark(sk, s, out, 2, marks)
    for v in range(case):
        if marks[v] == 3:
            if t >= 0:
                s.scope[sk.table_ptr[t] + n] = v
            n += 1
    for table in (split[SPLIT_A], split[SPLIT_B], split[SPLIT_C], out):
        _mark(sk, s, table, 0, marks)
    if t >= 0:
        s.length[t] = n
    return n


@compiled(allocates=False)
def _place(sk, s, first, n, widest, splits, marks):  # type: ignore[no-untyped-def]
    """Find tables for the outputs of the splits ``first..n-1``; returns whether there is one for each."""
    for k in range(first, n):
        made = _write_scope(sk, s, splits[k], -1, marks)
        wide = s.length[splits[k, SPLIT_A]] + (s.length[splits[k, SPLIT_B]] if splits[k, SPLIT_B] >= 0 else 0)
        splits[k, SPLIT_MADE] = _find_table(sk, s, made, splits, k)
        if splits[k, SPLIT_MADE] < 0 or max(wide, made + s.length[splits[k, SPLIT_C]]) > widest:
            return False
    return True


@compiled(allocates=False)
def _find_readers(sk, s, large, candidates, slots, readers):  # type: ignore[no-untyped-def]
    """Which contractions read the candidates that are made and have so many cells; returns whether there is any."""
    # slots: (T,) int64: Written: 1 + the number of the candidate that writes a table; 0: none
    # readers: (n, MOST_READERS + 1) int64: Written: their number, then they
    any_large = False
    for c in range(len(candidates)):
        if _is_made(sk, s, candidates[c]) and _cells(sk, s, sk.op_out[candidates[c]]) >= large:
            if not any_large:
                slots[:] = 0
            any_large, slots[sk.op_out[candidates[c]]], readers[c, 0] = True, 1 + c, 0
    if any_large:
        for i in range(len(sk.op_out)):
            if _is_made(sk, s, i):
                for j in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
                    c = slots[s.use[j]] - 1 if s.use[j] >= 0 else -1
                    if c >= 0:
                        readers[c, 0] += 1
                        if readers[c, 0] <= MOST_READERS:
                            readers[c, readers[c, 0]] = i
    return any_large


@compiled(allocates=False)
def choose_orders(sk, s, large, widest, candidates, splits, room):  # type: ignore[no-untyped-def]
    """Choose contractions that become two since a large table that they read is not made; returns how many."""
    # s: The tables that are not made any more are not `needed`; those in their place have their scopes
    # large: Cells from which a table may be avoided
    # widest: Variables of all inputs of a contraction, at most
    # candidates: Contractions of tables that can be that large, those of the largest first
    # splits: (MOST_SPLITS + 1, SPLIT_FIELDS) int64: Written, by number of the contraction; behind them P in SPLIT_OP
    # room: Scratch memory, `order_room` numbers
    n, n_ops, n_tables, n_vars = 0, len(sk.op_out), len(sk.table_ptr), len(sk.card)
    slots, marks = room[:n_tables], room[n_tables : n_tables + n_vars]
    readers = room[n_tables + n_vars : n_tables + n_vars + (MOST_READERS + 1) * len(candidates)]
    readers = readers.reshape((-1, MOST_READERS + 1))
    if _find_readers(sk, s, large, candidates, slots, readers):
        marks[:] = 0
        for c in range(len(candidates)):
            t = sk.op_out[candidates[c]]
            if slots[t] != 1 + c or not _is_made(sk, s, candidates[c]):
                continue
            end = _split_readers(sk, s, candidates[c], readers[c], splits, n, marks)
            s.needed[t] = 0
            if end == n or not _place(sk, s, n, end, widest, splits, marks):
                s.needed[t] = 1
                continue
            for k in range(n, end):
                _write_scope(sk, s, splits[k], splits[k, SPLIT_MADE], marks)
            n = end
    for k in range(1, n):
        for j in range(k, 0, -1):
            if splits[j, SPLIT_OP] < splits[j - 1, SPLIT_OP]:
                for c in range(SPLIT_FIELDS):
                    splits[j, c], splits[j - 1, c] = splits[j - 1, c], splits[j, c]
    splits[n, SPLIT_OP] = n_ops
    return n


@inlined
def order_room(sk, candidates):  # type: ignore[no-untyped-def]
    """Numbers of scratch memory for `choose_orders`."""
    return len(sk.table_ptr) + len(sk.card) + (MOST_READERS + 1) * len(candidates)
