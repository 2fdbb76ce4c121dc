"""The arithmetic of a message in NumPy, through index tables: the published algorithm on the CPU."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...errors import ImpossibleEvidence

_CHUNK = 1 << 18  # cells gathered at once, so that values and widened indices stay in the cache


def marginalise(psi: NDArray[np.floating], index: NDArray[np.integer], out: NDArray[np.floating]) -> None:
    """``out[j] = sum over i of psi[index[i, j]]``."""
    # psi: (n * m,) float
    # index: (m, n) unsigned, or intp: An index table without its padding
    # out: (n,) float
    m, n = index.shape
    if index.size <= _CHUNK:
        np.add.reduce(psi.take(_wide(index)), axis=0, out=out)
        return
    rows = max(1, _CHUNK // n)
    out[:] = 0.0
    for i in range(0, m, rows):
        out += np.add.reduce(psi.take(_wide(index[i : i + rows])), axis=0)


def divide(new: NDArray[np.floating], old: NDArray[np.floating]) -> None:
    """``old[j] = new[j] / old[j]`` with 0/0 = 0."""
    np.divide(new, old, out=old, where=old != 0)  # where the old number is 0 it stays, and is the answer


def multiply(psi: NDArray[np.floating], index: NDArray[np.integer], ratio: NDArray[np.floating]) -> None:
    """``psi[index[i, j]] *= ratio[j]``; arguments as in `marginalise`."""
    m, n = index.shape
    rows = m if index.size <= _CHUNK else max(1, _CHUNK // n)
    for i in range(0, m, rows):
        at = _wide(index[i : i + rows])
        psi[at] = psi.take(at) * ratio


def columns_of(index: NDArray[np.integer]) -> NDArray[np.intp]:
    """The inverse of an index table: the separator configuration of every entry of the clique.

    With it `multiply` is one gather and one product, which is faster for small tables.
    """
    # index: (m, n) integers: An index table without its padding
    # returns (m * n,) intp
    columns = np.empty(index.size, np.intp)
    columns[index] = np.arange(index.shape[1])
    return columns


def _wide(index: NDArray[np.integer]) -> NDArray[np.intp]:
    return index.astype(np.intp, copy=False)


def scaled_weights(weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Weights divided by the largest, and the natural logarithm of the largest: small likelihoods do not underflow."""
    # raises ImpossibleEvidence: If all weights are 0.
    greatest = float(weights.max(initial=0.0))
    if not greatest > 0.0:
        raise ImpossibleEvidence("the evidence has probability 0: a likelihood vector is all zeros")
    return weights / greatest, math.log(greatest)


def log_of_sums(sums: NDArray[np.float64]) -> float:
    """Sum of natural logarithms."""
    # raises ImpossibleEvidence: If one of the sums is 0.
    if not (sums > 0.0).all():
        raise ImpossibleEvidence("the evidence has probability 0")
    return math.fsum(np.log(sums))
