"""Compiled loops of the exact posterior under a modular prior: sums over ordered partitions, without subtraction.

Every directed acyclic graph has one ordered partition: the parts are the nodes by the length of the longest path that
ends in them. F(U, T) is the total weight of the graphs over U and T whose last part is T; B(U, T) is that of all
continuations. Rows of F and B belong to U; their columns are the subsets of the other variables, as compressed bits.
"""

from __future__ import annotations

import math

import numpy as np

from ....util.elementary.loops.functions import exp
from ....util.jit import compiled
from .set_sums import ZERO, add_to, log_of, normalise, normalised, scale, split, subset_sums, superset_sums

__all__ = ["draw_parts", "partition_posteriors", "partition_sums"]


@compiled(allocates=False)
def _compress(mask, within):  # type: ignore[no-untyped-def]
    """The bits of a set at the places of `within`, next to each other."""
    packed = at = 0
    while within:
        low = within & -within
        if mask & low:
            packed |= 1 << at
        at += 1
        within ^= low
    return packed


@compiled(allocates=False)
def _hit_sums(log_weights, masks, n, hits):  # type: ignore[no-untyped-def]
    """Total weights of the parent sets of v within U that contain u, (n, n, 2**n) mantissas and exponents.

    At first, they are zeros.
    """
    mantissas, exponents = hits
    for v in range(n):
        for i in range(len(masks)):
            parents = _expand(masks[i], v)
            m, e = split(log_weights[v, i])
            for u in range(n):
                if parents >> u & 1:
                    mantissas[v, u, parents], exponents[v, u, parents] = m, e
        for u in range(n):
            subset_sums(mantissas[v, u], exponents[v, u])
            normalise(mantissas[v, u], exponents[v, u])


@compiled(allocates=False, inline="always")
def _expand(mask, v):  # type: ignore[no-untyped-def]
    """A squeezed set of parents of v as a set of variables."""
    return (mask & ((1 << v) - 1)) | (mask >> v) << (v + 1)


@compiled(allocates=False)
def _meeting_sums(hits, v, before, last):  # type: ignore[no-untyped-def]
    """Total weight of the parent sets of v within `before` that have a member in `last`, normalised.

    The first member in `last` is its lowest variable, or the second lowest and not the lowest, and so on.
    """
    mantissas, exponents = hits
    one_m, one_e = np.float64(0.0), np.int64(ZERO)
    while last:
        low = last & -last
        u = 0
        while low >> u != 1:
            u += 1
        m, e = mantissas[v, u, before], exponents[v, u, before]
        top = max(one_e, e)
        one_m = one_m * scale(top - one_e) + m * scale(top - e)
        one_e = top
        before ^= low
        last ^= low
    return normalised(one_m, one_e)


@compiled(allocates=False)
def _add_to_hits(sums, v, before, last, mantissa, exponent):  # type: ignore[no-untyped-def]
    """Add a number to all terms of `_meeting_sums`."""
    mantissas, exponents = sums
    while last:
        low = last & -last
        u = 0
        while low >> u != 1:
            u += 1
        add_to(mantissas[v, u], exponents[v, u], before, mantissa, exponent)
        before ^= low
        last ^= low


@compiled(allocates=False)
def _products(hits, before, last, others, sums, products):  # type: ignore[no-untyped-def]
    """For every subset of `others`, the product of its members' `_meeting_sums`."""
    # before, last, others: Sets; `others` are the variables that are not in `before`
    # sums, products: tuple of float64 and int64 arrays, output: Of each member of `others`; of each subset,
    #     (2**len(others),)
    m, e = products
    m[0], e[0] = 1.0, 0
    n = 0
    while others:
        low = others & -others
        v = 0
        while low >> v != 1:
            v += 1
        factor_m, factor_e = _meeting_sums(hits, v, before, last)
        sums[0][n], sums[1][n] = factor_m, factor_e
        half = 1 << n
        for i in range(half):
            m[half + i] = m[i] * factor_m
            e[half + i] = e[i] + factor_e
        n += 1
        others ^= low
    return n


@compiled()
def _forward(log_weights, hits, ptr, f_m, f_e):  # type: ignore[no-untyped-def]
    """Fill in F."""
    n = log_weights.shape[0]
    every = (1 << n) - 1
    sums, products = (np.zeros(n), np.zeros(n, np.int64)), (np.zeros(1 << n), np.zeros(1 << n, np.int64))
    f_m[0], f_e[0] = 1.0, 0
    for v in range(n):
        m, e = split(log_weights[v, 0])
        half = 1 << v
        for i in range(half):
            f_m[half + i], f_e[half + i] = f_m[i] * m, f_e[i] + e
    normalise(f_m[: 1 << n], f_e[: 1 << n])
    for u in range(1, 1 << n):
        others = every & ~u
        row_m, row_e = f_m[ptr[u] : ptr[u + 1]], f_e[ptr[u] : ptr[u + 1]]
        last = u
        while last:
            rest = u & ~last
            at = ptr[rest] + _compress(last, every & ~rest)
            m, e = f_m[at], f_e[at]
            if m > 0.0:
                _products(hits, u, last, others, sums, products)
                for i in range(len(row_m)):
                    x, y = row_e[i], products[1][i] + e
                    top = max(x, y)
                    row_m[i] = row_m[i] * scale(top - x) + products[0][i] * m * scale(top - y)
                    row_e[i] = top
            last = (last - 1) & u
        normalise(row_m, row_e)


@compiled(allocates=False)
def _fold(m, e, n, totals):  # type: ignore[no-untyped-def]
    """Sum the values of all subsets of n members, and of those that contain each member."""
    # m, e: (2**n,) float64, (2**n,) int64: The total is in cell 0 afterwards
    # totals: tuple of (n,) float64, (n,) int64, output
    for c in range(n - 1, -1, -1):
        half = 1 << c
        total_m, total_e = np.float64(0.0), np.int64(ZERO)
        for i in range(half):
            x, y = e[i], e[half + i]
            top = max(total_e, y)
            total_m = total_m * scale(top - total_e) + m[half + i] * scale(top - y)
            total_e = top
            top = max(x, y)
            m[i] = m[i] * scale(top - x) + m[half + i] * scale(top - y)
            e[i] = top
        totals[0][c], totals[1][c] = normalised(total_m, total_e)


@compiled()
def _backward(hits, ptr, f_m, f_e, b_m, b_e, of_hits):  # type: ignore[no-untyped-def]
    """Fill in B, and the derivative of ln Z by every hit sum."""
    n = hits[0].shape[0]
    every = (1 << n) - 1
    sums, products = (np.zeros(n), np.zeros(n, np.int64)), (np.zeros(1 << n), np.zeros(1 << n, np.int64))
    totals = np.zeros(n), np.zeros(n, np.int64)
    z_m, z_e = f_m[ptr[every]], f_e[ptr[every]]
    b_m[ptr[every]], b_e[ptr[every]] = 1.0, 0
    for u in range(every, 0, -1):
        others = every & ~u
        row_m, row_e = b_m[ptr[u] : ptr[u + 1]], b_e[ptr[u] : ptr[u + 1]]
        last = u
        while last:
            rest = u & ~last
            at = ptr[rest] + _compress(last, every & ~rest)
            k = _products(hits, u, last, others, sums, products)
            for i in range(len(row_m)):
                products[0][i] *= row_m[i]
                products[1][i] += row_e[i]
            _fold(products[0], products[1], k, totals)
            b_m[at], b_e[at] = normalised(products[0][0], products[1][0])
            if f_m[at] > 0.0:
                left, c = others, 0
                while left:
                    low = left & -left
                    v = 0
                    while low >> v != 1:
                        v += 1
                    if totals[0][c] > 0.0:
                        m = f_m[at] * totals[0][c] / (z_m * sums[0][c])
                        _add_to_hits(of_hits, v, u, last, m, f_e[at] + totals[1][c] - z_e - sums[1][c])
                    c += 1
                    left ^= low
            last = (last - 1) & u


@compiled("f8[:, :], i8[:], f8[:, :]")
def partition_posteriors(log_weights, masks, posteriors):  # type: ignore[no-untyped-def]
    """Posterior probabilities of all parent sets."""
    # log_weights: (n, M) float64: Weights of the parent sets of each variable; the empty set is the first
    # masks: (M,) int64: The parent sets as bits; bits above the child are squeezed down by one
    # posteriors: (n, M) float64, output
    # returns ln of the total weight of all graphs; -inf if no graph is possible.
    n = log_weights.shape[0]
    ptr = np.zeros((1 << n) + 1, np.int64)
    for u in range(1 << n):
        free = n
        for v in range(n):
            free -= u >> v & 1
        ptr[u + 1] = ptr[u] + (1 << free)
    hits = np.zeros((n, n, 1 << n)), np.full((n, n, 1 << n), np.int64(ZERO))
    _hit_sums(log_weights, masks, n, hits)
    f_m, f_e = np.zeros(ptr[-1]), np.full(ptr[-1], np.int64(ZERO))
    _forward(log_weights, hits, ptr, f_m, f_e)
    every = (1 << n) - 1
    log_z = log_of(f_m[ptr[every]], f_e[ptr[every]])
    for v in range(n):
        for i in range(len(masks)):
            posteriors[v, i] = 0.0
    if log_z == -math.inf:
        return log_z
    b_m, b_e = np.zeros(ptr[-1]), np.full(ptr[-1], np.int64(ZERO))
    of_hits = np.zeros((n, n, 1 << n)), np.full((n, n, 1 << n), np.int64(ZERO))
    _backward(hits, ptr, f_m, f_e, b_m, b_e, of_hits)
    for v in range(n):
        for u in range(n):
            superset_sums(of_hits[0][v, u], of_hits[1][v, u])
        for i in range(1, len(masks)):
            parents = _expand(masks[i], v)
            m, e = np.float64(0.0), np.int64(ZERO)
            for u in range(n):
                if parents >> u & 1:
                    x, y = e, of_hits[1][v, u, parents]
                    top = max(x, y)
                    m = m * scale(top - x) + of_hits[0][v, u, parents] * scale(top - y)
                    e = top
            posteriors[v, i] = exp(log_weights[v, i] + log_of(m, e))
        root = 0  # v has no parents: it is in the first part
        total_m, total_e = np.float64(0.0), np.int64(ZERO)
        for t in range(1 << n):
            if t >> v & 1:
                m, e = f_m[root + t] * b_m[root + t], f_e[root + t] + b_e[root + t]
                top = max(total_e, e)
                total_m = total_m * scale(top - total_e) + m * scale(top - e)
                total_e = top
        posteriors[v, 0] = exp(log_of(total_m, total_e) - log_z)
    return log_z


@compiled("f8[:, :], i8[:], f8[:, :, :], i8[:, :, :], i8[:], f8[:], i8[:]")
def partition_sums(log_weights, masks, hits_m, hits_e, ptr, f_m, f_e):  # type: ignore[no-untyped-def]
    """Fill in what `draw_parts` needs."""
    # log_weights, masks: See `partition_posteriors`
    # hits_m, hits_e: (n, n, 2**n) float64 and int64, output: Zeros at first: mantissas 0 and exponents ZERO
    # ptr: (2**n + 1,) int64: Where the rows of F begin: 2**(n - |U|) cells for U
    # f_m, f_e: (3**n,) float64 and int64, output: Zeros at first
    hits = hits_m, hits_e
    _hit_sums(log_weights, masks, log_weights.shape[0], hits)
    _forward(log_weights, hits, ptr, f_m, f_e)


@compiled("f8[:, :, :], i8[:, :, :], i8[:], f8[:], i8[:], i8, i8, f8[:], i8[:]", allocates=False)
def draw_parts(hits_m, hits_e, ptr, f_m, f_e, before, last, u, drawn):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Draw the part before a part."""
    # hits_m, hits_e, ptr, f_m, f_e: See `partition_sums`
    # before, last: The part, and all variables before it, of which there is at least one
    # u: (D,) float64: Uniform random numbers, ascending
    # drawn: (D,) int64, output: The part before `last`, a subset of `before`
    n = hits_m.shape[0]
    every = (1 << n) - 1
    at = ptr[before] + _compress(last, every & ~before)
    total_m, total_e = f_m[at], f_e[at]
    sum_m, sum_e = np.float64(0.0), np.int64(ZERO)
    d, part, possible = 0, before, 0
    while part and d < len(u):
        rest = before & ~part
        at = ptr[rest] + _compress(part, every & ~rest)
        m, e = f_m[at], f_e[at]
        left = last
        while left and m > 0.0:
            low = left & -left
            v = 0
            while low >> v != 1:
                v += 1
            factor_m, factor_e = _meeting_sums((hits_m, hits_e), v, before, part)
            m, e = m * factor_m, e + factor_e
            left ^= low
        if m > 0.0:
            top = max(sum_e, e)
            sum_m = sum_m * scale(top - sum_e) + m * scale(top - e)
            sum_e = top
            possible = part
            share = sum_m / total_m * (scale(total_e - sum_e) if sum_e <= total_e else 1.0 / scale(sum_e - total_e))
            while d < len(u) and u[d] < share:
                drawn[d] = part
                d += 1
        part = (part - 1) & before
    for i in range(d, len(u)):
        drawn[i] = possible
