"""Convergence of Markov chains: standard errors, potential scale reduction (R-hat) and effective sample size."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ....util.arrays import Floats, Ints
from ....util.elementary import logs

NO_GRAPHS = np.empty((0, 0), np.int64)
MAX_R_HAT = 1.05


class Block(NamedTuple):
    """Graphs and weights that C chains over orders or partitions visited in some steps."""

    trace: Floats  # (C, samples) ln weight at each sample; in a history (C,), that of the last one
    # (..., n) the order of the highest weight of all steps; or graphs of high weight of the samples, as parents by bits
    best: Ints
    best_weight: Floats  # (...,) -inf if there was none
    graphs: Ints = NO_GRAPHS  # (C, n) the graph of each chain at the end, as parents by bits


RARE = 0.01  # arcs with a probability below this, or above 1 minus this, have no R-hat


def standard_errors(means: Floats) -> Floats:
    """Standard error of the mean over chains, from the means of C chains, (C, ...); infinite for a single chain."""
    n_chains = len(means)
    if n_chains < 2:
        return np.full(means.shape[1:], np.inf)
    return np.asarray(means.std(axis=0, ddof=1) / math.sqrt(n_chains))


def r_hat_of_arcs(means: Floats, n_samples: int) -> Floats:
    """R-hat of the indicators of arcs."""
    # means: (C, n, n) Probability of each arc in each chain
    # n_samples: Of each chain
    # returns (n, n) 1 for arcs with a probability close to 0 or 1, and infinite if chains are constant at different
    #     values.
    r_hats, p = np.ones(means.shape[1:]), means.mean(axis=0)
    if len(means) < 2:
        return r_hats
    within = (means * (1.0 - means)).mean(axis=0)  # variance of an indicator
    between = means.var(axis=0, ddof=1)
    common = (p > RARE) & (p < 1.0 - RARE)
    stuck = common & (within <= 0.0)
    free = common & ~stuck
    r_hats[free] = np.sqrt((n_samples - 1) / n_samples + between[free] / within[free])
    r_hats[stuck & (between > 0.0)] = np.inf
    return r_hats


def r_hat(traces: Floats) -> float:
    """Split R-hat of rank-normalised values (Vehtari et al. 2021)."""
    # traces: (C, T)
    # returns NaN never occurs: 1 if all values are equal or there are fewer than four, infinite if chains are constant
    #     at different values.
    half = traces.shape[1] // 2
    if half < 2:
        return 1.0
    halves = np.concatenate([traces[:, :half], traces[:, -half:]])
    if (halves == halves.flat[0]).all():
        return 1.0
    z = _normal_scores(halves)
    within, between = float(_variances(z).mean()), float(z.mean(axis=1).var(ddof=1))
    if within <= 0.0:
        return math.inf
    return math.sqrt((half - 1) / half + between / within)


def nested_r_hat(values: Floats) -> float:
    """Nested R-hat of rank-normalised values (Margossian et al., 2024), for superchains: chains with a common start."""
    # values: (K, M, T) T values of each of M chains in K superchains
    # returns 1 if all values are equal or there are fewer than two superchains or values of a chain, infinite if chains
    #     are constant at different values.
    n_super, _, length = values.shape
    if n_super < 2 or length < 2 or (values == values.flat[0]).all():
        return 1.0
    z = _normal_scores(values)
    return _nested(z.mean(axis=2), _variances(z))


def nested_r_hat_of_arcs(means: Floats) -> float:
    """The largest nested R-hat of the indicators of arcs, from the probability of each in each chain, (K, M, n, n)."""
    p = means.mean(axis=(0, 1))
    if len(means) < 2:
        return 1.0
    r_hats = [_nested(means[:, :, u, v], means[:, :, u, v] * (1.0 - means[:, :, u, v]))
              for u, v in np.argwhere((p > RARE) & (p < 1.0 - RARE))]  # fmt: skip
    return max(r_hats, default=1.0)


def _nested(means: Floats, variances: Floats) -> float:
    """Nested R-hat from the mean and the variance of each chain, (K, M)."""
    between = float(means.mean(axis=1).var(ddof=1))
    of_means = means.var(axis=1, ddof=1) if means.shape[1] > 1 else np.zeros(len(means))
    within = float((of_means + variances.mean(axis=1)).mean())
    if within <= 0.0:
        return math.inf if between > 0.0 else 1.0
    return math.sqrt(1.0 + between / within)


def _variances(values: Floats) -> Floats:
    """Variance along the last axis, exactly 0 where all values are equal."""
    return np.where(np.ptp(values, axis=-1) == 0.0, 0.0, values.var(axis=-1, ddof=1))


def _normal_scores(values: Floats) -> Floats:
    """Quantiles of the normal distribution at the ranks of the values; equal values have their mean rank."""
    _, number, count = np.unique(values, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2.0
    p = (rank - 0.375) / (values.size + 0.25)
    return np.asarray(_normal_quantiles(p)[number].reshape(values.shape))


def _normal_quantiles(p: Floats) -> Floats:
    """Quantiles of the normal distribution, to 4.5e-4 (Abramowitz and Stegun 26.2.23): enough for ranks."""
    tail = np.minimum(p, 1.0 - p)
    t = np.sqrt(-2.0 * logs(tail))
    x = t - (2.515517 + (0.802853 + 0.010328 * t) * t) / (1.0 + (1.432788 + (0.189269 + 0.001308 * t) * t) * t)
    return np.asarray(np.where(p < 0.5, -x, x))


def effective_samples(traces: Floats) -> float:
    """Effective sample size of C chains, by Geyer's initial monotone sequence of autocorrelations."""
    # traces: (C, T)
    n_chains, length = traces.shape
    if length < 4 or (traces == traces.flat[0]).all():
        return float(n_chains * length)
    centred = traces - traces.mean(axis=1, keepdims=True)
    size = 1 << (2 * length - 1).bit_length()
    spectrum = np.fft.rfft(centred, size, axis=1)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), size, axis=1)[:, :length].mean(axis=0) / length
    within = covariance[0] * length / (length - 1)
    between = traces.mean(axis=1).var(ddof=1) if n_chains > 1 else 0.0
    total = within * (length - 1) / length + between
    rho = 1.0 - (within - covariance * length / (length - 1)) / total
    pairs = rho[: length // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0.0)
    pairs = np.minimum.accumulate(pairs[: ends[0] if len(ends) else len(pairs)])
    return float(n_chains * length / max(2.0 * pairs.sum() - 1.0, 1.0 / math.log10(max(n_chains * length, 10))))


class Estimate(NamedTuple):
    """Probabilities of arcs after the burn-in, and how precise they are."""

    arcs: Floats  # (n, n) Probability of each arc [parent, child]
    errors: Floats  # (n, n) Their standard errors
    r_hat: float  # the largest: of the weights, and of the arcs
    r_hats: Floats  # (n, n) Of the arcs
    max_difference: float  # largest difference of a probability between the two halves of the chains
    n_samples: int  # of all chains


def estimate_of(means: Floats, n_samples: int, traces: Floats) -> Estimate:
    """The estimate of C chains."""
    # means: (C, n, n) Probability of each arc in each chain
    # n_samples: Of each chain
    # traces: (C, T) ln weights
    r_hats = r_hat_of_arcs(means, n_samples)
    half = len(means) // 2
    difference = float(np.abs(means[:half].mean(axis=0) - means[half:].mean(axis=0)).max()) if half else np.inf
    return Estimate(
        means.mean(axis=0), standard_errors(means), max(r_hat(traces), float(r_hats.max())),
        r_hats, difference, n_samples * len(means),
    )  # fmt: skip


def largest_nested_r_hat(means: Floats, traces: Floats) -> float:
    """The largest nested R-hat of the weights and the arcs of chains from different starts; see `estimate_of`."""
    return max(nested_r_hat(traces[:, None]), nested_r_hat_of_arcs(means[:, None]))
