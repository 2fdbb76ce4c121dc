"""PolyBench's ``durbin``: the published versions for the CPU, in float64."""

from __future__ import annotations

import numpy as np

from ..backends.cpu.loops import atomics
from ..util.jit import compiled

__all__ = ["reworked", "run_phases", "sequential"]

SPINS = 20_000  # looks at the counter before a waiting thread lets others run


@compiled("f8[:], f8[:, :], f8[:, :], f8[:]")
def sequential(r, y, total, out):  # type: ignore[no-untyped-def]
    """PolyBench's own version: each step fills a column."""
    # r: (N,) float64
    # y: (N, N) float64, scratch memory
    # total: (N+1, N) float64, scratch memory
    # out: (N,) float64, output
    n = len(r)
    alpha, beta = np.empty_like(r), np.empty_like(r)
    y[0, 0], alpha[0], beta[0] = r[0], r[0], 1
    for k in range(1, n):
        beta[k] = beta[k - 1] - alpha[k - 1] * alpha[k - 1] * beta[k - 1]
        total[0, k] = r[k]
        for i in range(k):
            total[i + 1, k] = total[i, k] + r[k - i - 1] * y[i, k - 1]
        alpha[k] = -total[k, k] * beta[k]
        for i in range(k):
            y[i, k] = y[i, k - 1] + alpha[k] * y[k - i - 1, k - 1]
        y[k, k] = alpha[k]
    for i in range(n):
        out[i] = y[i, n - 1]


@compiled("f8[:], f8[:, :], f8[:]")
def reworked(r, rows, out):  # type: ignore[no-untyped-def]
    """Two rows and one sum instead of matrices."""
    # r: (N,) float64
    # rows: (2, N) float64, scratch memory
    # out: (N,) float64, output
    n = len(r)
    rows[0, 0], alpha, beta = r[0], r[0], 1.0
    for k in range(1, n):
        old, new = rows[(k - 1) % 2], rows[k % 2]
        beta -= alpha * alpha * beta
        total = r[k]
        for i in range(k):
            total += r[k - 1 - i] * old[i]
        alpha = -total * beta
        for i in range(k):
            new[i] = old[i] + alpha * old[k - 1 - i]
        new[k] = alpha
    for i in range(n):
        out[i] = rows[(n - 1) % 2, i]


@compiled("f8[:], f8[:, :], f8[:], f8[:], i8[:], i8, i8, i8, i8")
def run_phases(r, rows, sums, state, arrived, block, thread, n_threads, phase):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """One thread's part of the inner loops; step k has two phases, the inner product and the update."""
    # r: (N,) float64
    # rows: (2, N) float64: ``rows[0, 0]`` is set; the last step writes ``rows[(N-1) % 2]``
    # sums: (ceil(N/block),) float64: Inner products of blocks
    # state: (2,) float64: This thread's alpha and beta
    # arrived: (1,) int64: Phases that threads have finished, all together
    # phase: Where this thread continues
    # returns The phase where it stopped: 2 (N-1), or earlier after waiting for other threads in vain.
    n = len(r)
    for now in range(phase, 2 * (n - 1)):
        spins = 0
        while atomics.read(arrived, 0) < now * n_threads:
            spins += 1
            if spins > SPINS:
                return now
        k = now // 2 + 1
        old, new = rows[(k - 1) % 2], rows[k % 2]
        n_blocks = (k + block - 1) // block
        if now % 2 == 0:
            for b in range(thread, n_blocks, n_threads):
                total = 0.0
                for i in range(b * block, min((b + 1) * block, k)):
                    total += r[k - 1 - i] * old[i]
                sums[b] = total
        else:
            alpha, beta = state[0], state[1]
            beta -= alpha * alpha * beta
            total = r[k]
            for b in range(n_blocks):
                total += sums[b]
            alpha = -total * beta
            for b in range(thread, n_blocks, n_threads):
                for i in range(b * block, min((b + 1) * block, k)):
                    new[i] = old[i] + alpha * old[k - 1 - i]
            if thread == 0:
                new[k] = alpha
            state[0], state[1] = alpha, beta
        atomics.add(arrived, 0, 1)
    return 2 * (n - 1)
