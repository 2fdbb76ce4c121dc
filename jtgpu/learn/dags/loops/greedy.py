"""Compiled loops of hill climbing and tabu search over graphs: arcs are added, deleted and reversed."""

from __future__ import annotations

import math

import numpy as np

from ....util.elementary.loops.functions import log
from ....util.jit import compiled
from .counts import count_function, log_gamma

__all__ = ["climb", "family_weight"]


@compiled(allocates=False)
def _score(cells, q, r, kind, a):  # type: ignore[no-untyped-def]
    """Score of a table of q rows and r columns; see `family_weight`."""
    divisor = q
    if kind == 1:
        divisor = 0
        for j in range(q):
            for k in range(r):
                if cells[j * r + k] > 0:
                    divisor += 1
                    break
    of_cell = 0.0 if kind == 3 else a if kind == 2 else a / (max(divisor, 1) * r)
    base = 0.0 if kind == 3 else log_gamma(of_cell)
    total = 0.0
    for j in range(q):
        n = 0
        for k in range(r):
            c = cells[j * r + k]
            if c > 0:
                n += c
                total += c * log(c) if kind == 3 else log_gamma(of_cell + c) - base
        if n > 0:
            total -= count_function(r * of_cell, n)
    return total


@compiled(allocates=False)
def _weight(v, parents, n_parents, codes, weights, card, kind, a, penalty, cells):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """`family_weight` for compiled callers."""
    r, q = card[v], 1
    for i in range(n_parents):
        q *= card[parents[i]]
        if q * r > len(cells):
            return -math.inf
    for i in range(q * r):
        cells[i] = 0
    for t in range(codes.shape[1]):
        at = 0
        for i in range(n_parents):
            at = at * card[parents[i]] + codes[parents[i], t]
        cells[at * r + codes[v, t]] += weights[t] if len(weights) else 1
    return _score(cells, q, r, kind, a) - penalty * q * (r - 1)


@compiled("i8, i8[:], i8, u1[:, :], i8[:], i8[:], i8, f8, f8, i4[:]")
def family_weight(v, parents, n_parents, codes, weights, card, kind, a, penalty, cells):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Score of a family, counted row by row."""
    # v, parents, n_parents: int64, (n,) int64, int64
    # codes, weights, card: (n, N) uint8, (N,) int64, (n,) int64: `weights` is empty if all are 1
    # kind: 0: Dirichlet, ``a`` divided among all cells; 1: among the configurations that occur; 2: ``a`` for each cell;
    #     3: likelihood
    # a, penalty: `penalty` is subtracted for each free parameter
    # cells: (max_cells,) int32: Scratch memory
    # returns -inf if the table has more cells than the scratch memory.
    return _weight(v, parents, n_parents, codes, weights, card, kind, a, penalty, cells)


@compiled(allocates=False)
def _reaches(u, v, arcs, skipped, waiting, seen):  # type: ignore[no-untyped-def]
    """Whether a directed path leads from u to v; the arc u -> v itself does not count if `skipped`."""
    n = len(arcs)
    for w in range(n):
        seen[w] = 0
    waiting[0], n_waiting = u, 1
    seen[u] = 1
    while n_waiting:
        n_waiting -= 1
        x = waiting[n_waiting]
        for w in range(n):
            if arcs[x, w] and not seen[w] and not (skipped and x == u and w == v):
                if w == v:
                    return True
                seen[w] = 1
                waiting[n_waiting] = w
                n_waiting += 1
    return False


@compiled(allocates=False)
def _weight_with(v, changed, arcs, data, prior, parents, cells):  # type: ignore[no-untyped-def]
    """Weight of v's family after the arc from `changed` is added or deleted; unchanged for -1."""
    codes, weights, card, kind, a, penalty = data
    of_size, of_arc = prior
    k, log_prior = 0, 0.0
    for u in range(len(arcs)):
        if (arcs[u, v] != 0) != (u == changed):
            parents[k] = u
            k += 1
            log_prior += of_arc[u, v]
    return _weight(v, parents, k, codes, weights, card, kind, a, penalty, cells) + log_prior + of_size[k]


@compiled(allocates=False)
def _is_tabu(mark, tabu, n_tabu):  # type: ignore[no-untyped-def]
    for i in range(n_tabu):  # noqa: SIM110 (compiled)
        if tabu[i] == mark:
            return True
    return False


@compiled(allocates=False)
def _weight_with_parent(v, u, q, k, log_prior, data, prior, row_cell, cells):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Weight of v's family with one more parent u.

    `row_cell` is the cell of each case in the family's table of q rows; k and `log_prior` are the number of its parents
    and their prior weight. The states of u are the slowest axis of the new table.
    """
    codes, weights, card, kind, a, penalty = data
    of_size, of_arc = prior
    r, size = card[v], q * card[v]
    if size * card[u] > len(cells):
        return -math.inf
    for i in range(size * card[u]):
        cells[i] = 0
    for t in range(codes.shape[1]):
        cells[codes[u, t] * size + row_cell[t]] += weights[t] if len(weights) else 1
    q *= card[u]
    return _score(cells, q, r, kind, a) - penalty * q * (r - 1) + log_prior + of_arc[u, v] + of_size[k + 1]


@compiled(allocates=False)
def _evaluate(v, arcs, forbidden, data, prior, parents, row_cell, cells, change):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Compute what adding or deleting each arc to v changes."""
    codes, _, card, _, _, _ = data
    now = _weight_with(v, -1, arcs, data, prior, parents, cells)
    q, k, log_prior = 1, 0, 0.0
    for t in range(codes.shape[1]):
        row_cell[t] = codes[v, t]
    for u in range(len(arcs)):
        if arcs[u, v] and q * card[v] <= len(cells):
            step = q * card[v]
            for t in range(codes.shape[1]):
                row_cell[t] += codes[u, t] * step
            q *= card[u]
            k += 1
            log_prior += prior[1][u, v]
    for u in range(len(arcs)):
        if u != v:
            change[u, v] = -math.inf
            if arcs[u, v]:
                change[u, v] = _weight_with(v, u, arcs, data, prior, parents, cells) - now
            elif not forbidden[u, v]:
                change[u, v] = _weight_with_parent(v, u, q, k, log_prior, data, prior, row_cell, cells) - now


@compiled(allocates=False)
def _best_move(graph, change, mark, marks, tabu, n_tabu, waiting, seen):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """The change of the best possible move, its arc, and whether the arc is reversed; no arc: -1."""
    arcs, required, limits, n_parents = graph
    n = len(arcs)
    most, from_, to, is_reversal = -math.inf, -1, -1, False
    for v in range(n):
        for u in range(n):
            x, after = change[u, v], mark ^ marks[u, v]
            if u == v or arcs[v, u] or (arcs[u, v] and required[u, v]):
                continue
            if (
                x > most
                and (arcs[u, v] or n_parents[v] < limits[v])
                and not _is_tabu(after, tabu, n_tabu)
                and (arcs[u, v] or not _reaches(v, u, arcs, False, waiting, seen))
            ):
                most, from_, to, is_reversal = x, u, v, False
            x += change[v, u]
            if (
                x > most
                and arcs[u, v]
                and n_parents[u] < limits[u]
                and not _is_tabu(after ^ marks[v, u], tabu, n_tabu)
                and not _reaches(u, v, arcs, True, waiting, seen)
            ):
                most, from_, to, is_reversal = x, u, v, True
    return most, from_, to, is_reversal


@compiled(allocates=False)
def _copy(source, to):  # type: ignore[no-untyped-def]
    for i in range(len(source)):
        for j in range(len(source)):
            to[i, j] = source[i, j]


@compiled(
    "u1[:, :], u1[:, :], u1[:, :], i8[:], u1[:, :], i8[:], i8[:], i8, f8, f8, f8[:], f8[:, :], i8, i8, u8[:, :], i4[:]"
)
def climb(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    arcs, forbidden, required, limits, codes, weights, card, kind, a, penalty, of_size, of_arc, n_tabu, patience, marks,
    cells
):  # fmt: skip
    """Take the best of all moves until no move improves the graph, or `patience` moves have not."""
    # arcs: (n, n) uint8: [parent, child]. At first the start graph, at last the best one found.
    # forbidden, required, limits: (n, n) uint8, (n, n) uint8, (n,) int64: Arcs that are not added, and not deleted; the
    #     largest numbers of parents
    # codes, weights, card, kind, a, penalty: See `family_weight`
    # of_size, of_arc: (n,) float64, (n, n) float64: ln prior weights of the number of parents, and of each arc
    # n_tabu, patience: The last `n_tabu` graphs are not visited again. 0, 0: hill climbing.
    # marks: (n, n) uint64: A random number for each arc: a graph is known by the exclusive or of those of its arcs
    # cells: (max_cells,) int32: Scratch memory
    # returns Number of moves.
    n = len(arcs)
    data, prior = (codes, weights, card, kind, a, penalty), (of_size, of_arc)
    parents, waiting, seen = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.uint8)
    change, n_parents = np.full((n, n), -math.inf), np.zeros(n, np.int64)
    row_cell = np.empty(codes.shape[1], np.int64)
    best, tabu = arcs.copy(), np.zeros(max(n_tabu, 1), np.uint64)
    graph = arcs, required, limits, n_parents
    mark = np.uint64(0)
    for v in range(n):
        _evaluate(v, arcs, forbidden, data, prior, parents, row_cell, cells, change)
        for u in range(n):
            if arcs[u, v]:
                n_parents[v] += 1
                mark ^= marks[u, v]
    gain, best_gain, since, n_moves = 0.0, 0.0, 0, 0
    tabu[0] = mark
    while since <= patience:
        most, u, v, is_reversal = _best_move(graph, change, mark, marks, tabu, n_tabu, waiting, seen)
        if u < 0 or (most <= 1e-9 and patience == 0):
            break
        arcs[u, v] ^= 1
        mark ^= marks[u, v]
        n_parents[v] += 1 if arcs[u, v] else -1
        _evaluate(v, arcs, forbidden, data, prior, parents, row_cell, cells, change)
        if is_reversal:
            arcs[v, u] = 1
            mark ^= marks[v, u]
            n_parents[u] += 1
            _evaluate(u, arcs, forbidden, data, prior, parents, row_cell, cells, change)
        n_moves += 1
        gain += most
        since += 1
        if gain > best_gain + 1e-9:
            best_gain, since = gain, 0
            _copy(arcs, best)
        tabu[n_moves % len(tabu)] = mark
    _copy(best, arcs)
    return n_moves
