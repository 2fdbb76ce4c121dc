"""Integrals over mixtures of normal distributions: entropies, and divergences between several of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ArgumentError
from .components import HALF_LOG_2PI

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .results import Parts

    Floats = NDArray[np.float64]
    Mixture = tuple[Floats, Floats, Floats]  # weights, means, sds

# Gauss-Kronrod rule of 15 points (QUADPACK): nodes and weights of the right half, and the weights of Gauss's 7 points
NODES = (
    0.991455371120812639206854697526329, 0.949107912342758524526189684047851, 0.864864423359769072789712788640926,
    0.741531185599394439863864773280788, 0.586087235467691130294144691693013, 0.405845151377397166906606412076961,
    0.207784955007898467600689403773245, 0.0,
)  # fmt: skip
KRONROD = (
    0.022935322010529224963732008058970, 0.063092092629978553290700663189204, 0.104790010322250183839876322541518,
    0.140653259715525918745189590510238, 0.169004726639267902826583426598550, 0.190350578064785409913256402421014,
    0.204432940075298892414161999234649, 0.209482141084727828012999174891714,
)  # fmt: skip
GAUSS = (
    0.0, 0.129484966168869693270611432679082, 0.0, 0.279705391489276667901467771423780, 0.0,
    0.381830050505118944950369775488975, 0.0, 0.417959183673469387755102040816327,
)  # fmt: skip
X = np.array([*(-x for x in NODES), *NODES[-2::-1]])
W = np.array([[*w, *w[-2::-1]] for w in (KRONROD, GAUSS)])

REACH = (-9.0, -5.0, -2.5, 0.0, 2.5, 5.0, 9.0)  # standard deviations from the mean of a part where panels begin
MOST_PARTS = 256
MOST_ROUNDS, MOST_PANELS = 60, 20_000
LEAST_WEIGHT = 1e-13  # of a part that counts


def integrate(f: Callable[[Floats], Floats], ends: Floats, tolerance: float) -> Floats:
    """Integrals of several functions, f(x) (m, n), over the panels between `ends`, which are halved where needed."""
    # raises ArgumentError: If the estimated error, of Kronrod's minus Gauss's rule, stays above the tolerance.
    low, high = ends[:-1], ends[1:]
    total: Floats | float = 0.0
    enough = tolerance / max(len(low), 64)
    for _ in range(MOST_ROUNDS):
        half = 0.5 * (high - low)
        x = (0.5 * (low + high))[:, None] + half[:, None] * X
        y = f(x.ravel()).reshape(-1, *x.shape)
        both = (y @ W.T) * half[:, None]  # (m, P, 2)
        error = np.abs(both[..., 0] - both[..., 1]).max(axis=0)
        done = (error <= enough) | (half <= 1e-14 * np.abs(low + high))
        total = total + both[:, done, 0].sum(axis=1)
        low, high, half = low[~done], high[~done], half[~done]
        if not len(low):
            return np.asarray(total)
        if len(low) > MOST_PANELS:
            break
        middle = low + half
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
    raise ArgumentError(f"an integral over the densities of numbers does not converge to {tolerance:g}")


def _distinct(parts: Parts) -> Mixture:
    """Weights, means and sds without parts that hardly count; equal ones are merged."""
    w, m, s = parts
    kept = w > LEAST_WEIGHT
    both, at = np.unique(np.stack([m[kept], s[kept]]), axis=1, return_inverse=True)
    if both.shape[1] > MOST_PARTS:
        raise ArgumentError(
            f"the density of a number is a mixture of {both.shape[1]:,} normal distributions; measures of information "
            f"take at most {MOST_PARTS}: observe some variables with states"
        )
    weights = np.bincount(at.ravel(), w[kept], both.shape[1])
    return weights / weights.sum(), both[0], both[1]


def panels(mixtures: Sequence[Mixture]) -> Floats:
    """Ends of panels that hold the mass of some mixtures, each part in several."""
    return np.unique(np.concatenate([(m[:, None] + s[:, None] * REACH).ravel() for _, m, s in mixtures]))


def log_densities(x: Floats, mixture: Mixture) -> Floats:
    """ln of the density of a mixture, (n,)."""
    w, m, s = mixture
    z = (x[:, None] - m) / s
    logs = np.log(w / s) - 0.5 * z * z
    top = logs.max(axis=1)
    return np.asarray(top + np.log(np.exp(logs - top[:, None]).sum(axis=1)) - HALF_LOG_2PI)


def entropy(parts: Parts, tolerance: float = 1e-10) -> float:
    """Differential entropy of a mixture in nats: in closed form of one normal distribution."""
    mixture = _distinct(parts)
    if len(mixture[0]) == 1:
        return 0.5 + HALF_LOG_2PI + math.log(mixture[2][0])

    def f(x: Floats) -> Floats:
        logs = log_densities(x, mixture)
        return -(np.exp(logs) * logs)[None]

    return float(integrate(f, panels([mixture]), tolerance)[0])


def divergence(p: Floats, groups: Sequence[Parts], tolerance: float = 1e-10) -> tuple[float, float]:
    """Mutual information of a number and the group it is from, in nats, and the expected largest P(group)."""
    # p: probabilities of the groups, in each of which the number is a mixture
    used = np.flatnonzero(p > 0)
    mixtures, log_p = [_distinct(groups[int(i)]) for i in used], np.log(p[used])
    if len(used) == 1:
        return 0.0, 1.0

    def f(x: Floats) -> Floats:
        each = np.stack([log_densities(x, m) for m in mixtures])
        joint = each + log_p[:, None]
        top = joint.max(axis=0)
        total = top + np.log(np.exp(joint - top).sum(axis=0))
        return np.stack([(np.exp(joint) * (each - total)).sum(axis=0), np.exp(top)])

    gain, best = integrate(f, panels(mixtures), tolerance)
    return max(0.0, float(gain)), min(1.0, float(best))
