"""Compiled loops of hill climbing and tabu search over graphs: arcs are added, deleted and reversed."""

from __future__ import annotations

import math

import numpy as np

from ....util.jit import compiled
from .scores import table_score


@compiled(allocates=False)
def _weight(v, parents, n_parents, data, cells):  # type: ignore[no-untyped-def]
    """`family_weight` for compiled callers."""
    codes, weights, card, formula, a, penalty, functions, of_parents = data
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
    return table_score(cells, q, r, formula, a, functions, of_parents[v]) - penalty * q * (r - 1)


@compiled("i8, i8[:], i8, u1[:, :], i8[:], i8[:], i8, f8, f8, f8[:, :], i8[:], i4[:]")
def family_weight(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    v, parents, n_parents, codes, weights, card, formula, a, penalty, functions, of_parents, cells
):  # fmt: skip
    """Score of a family, counted row by row."""
    # v, parents, n_parents: int64, (n,) int64, int64
    # codes, weights, card: (n, N) uint8, (N,) int64, (n,) int64: `weights` is empty if all are 1
    # formula, a: See `table_score`
    # penalty: Subtracted for each free parameter
    # functions, of_parents: (G, F) float64, (n,) int64: Tabulated functions of a count, and the one of each variable's
    #     parents; see `table_score`
    # cells: (max_cells,) int32: Scratch memory
    # returns -inf if the table has more cells than the scratch memory.
    data = codes, weights, card, formula, a, penalty, functions, of_parents
    return _weight(v, parents, n_parents, data, cells)


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
    of_size, of_arc = prior
    k, log_prior = 0, 0.0
    for u in range(len(arcs)):
        if (arcs[u, v] != 0) != (u == changed):
            parents[k] = u
            k += 1
            log_prior += of_arc[u, v]
    return _weight(v, parents, k, data, cells) + log_prior + of_size[k]


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
    codes, weights, card, formula, a, penalty, functions, of_parents = data
    of_size, of_arc = prior
    r, size = card[v], q * card[v]
    if size * card[u] > len(cells):
        return -math.inf
    for i in range(size * card[u]):
        cells[i] = 0
    for t in range(codes.shape[1]):
        cells[codes[u, t] * size + row_cell[t]] += weights[t] if len(weights) else 1
    q *= card[u]
    score = table_score(cells, q, r, formula, a, functions, of_parents[v])
    return score - penalty * q * (r - 1) + log_prior + of_arc[u, v] + of_size[k + 1]


@compiled(allocates=False)
def _evaluate(v, arcs, forbidden, data, prior, parents, row_cell, cells, change):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Compute what adding or deleting each arc to v changes."""
    codes, card = data[0], data[2]
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
    "u1[:, :], u1[:, :], u1[:, :], i8[:], u1[:, :], i8[:], i8[:], i8, f8, f8, f8[:, :], i8[:], f8[:], f8[:, :], i8, "
    "i8, u8[:, :], i4[:]"
)
def climb(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    arcs, forbidden, required, limits, codes, weights, card, formula, a, penalty, functions, of_parents, of_size,
    of_arc, n_tabu, patience, marks, cells
):  # fmt: skip
    """Take the best of all moves until no move improves the graph, or `patience` moves have not."""
    # arcs: (n, n) uint8: [parent, child]. At first the start graph, at last the best one found.
    # forbidden, required, limits: (n, n) uint8, (n, n) uint8, (n,) int64: Arcs that are not added, and not deleted; the
    #     largest numbers of parents
    # codes, weights, card, formula, a, penalty, functions, of_parents: See `family_weight`
    # of_size, of_arc: (n,) float64, (n, n) float64: ln prior weights of the number of parents, and of each arc
    # n_tabu, patience: The last `n_tabu` graphs are not visited again. 0, 0: hill climbing.
    # marks: (n, n) uint64: A random number for each arc: a graph is known by the exclusive or of those of its arcs
    # cells: (max_cells,) int32: Scratch memory
    # returns Number of moves.
    n = len(arcs)
    data = codes, weights, card, formula, a, penalty, functions, of_parents
    prior = of_size, of_arc
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
