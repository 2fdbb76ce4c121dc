"""Cut points of a numeric column: by quantiles, by equal width, and by the information about a class."""

from __future__ import annotations

import numpy as np

from ..util.arrays import Floats, Ints
from ..util.elementary import log, logs

LN2 = log(2.0)


def quantile_cuts(values: Floats, bins: int, counts: Ints | None = None) -> Floats:
    """Cut points between intervals of about equal numbers of values; fewer where values recur, but one."""
    # values: (n,) float64
    # bins: Number of intervals
    # counts: (n,) int64: How often each value occurs. Default: once.
    distinct, kind = np.unique(values, return_inverse=True)
    own = np.bincount(kind.reshape(-1), counts, len(distinct))
    below = np.cumsum(own)
    # the first value after each quantile: half of the cells that are between two values count to either side
    at = np.searchsorted(below, below[-1] * np.arange(1, bins) / bins * (1 - 1e-12), side="left")
    exact = np.isclose(below[at], below[-1] * np.arange(1, bins) / bins, rtol=1e-12)
    following = np.minimum(at + 1, len(distinct) - 1)
    above, first = np.unique(np.where(exact, following, at), return_index=True)  # the least value above each cut
    cuts = np.where(exact, _middles(distinct[at], distinct[following]), distinct[at])[first[above > 0]]
    cuts = cuts[cuts > distinct[0]]
    if not len(cuts) and len(distinct) > 1:  # the least value is at every quantile, such as 0 of what few do
        cuts = np.array([max((distinct[0] + distinct[1]) / 2, np.nextafter(distinct[0], np.inf))])
    return np.asarray(cuts, np.float64)


def _middles(low: Floats, high: Floats) -> Floats:
    """Points between numbers, without the digits that rounding makes: 24242.105, not 24242.105000000003."""
    middle = (low + high) / 2
    short = np.array([float(f"{x:.12g}") for x in middle.tolist()])
    return np.where((low < short) & (short <= high), short, middle)


def width_cuts(values: Floats, bins: int) -> Floats:
    """Cut points between intervals of equal width."""
    low, high = float(values.min()), float(values.max())
    cuts = np.unique(low + (high - low) * np.arange(1, bins) / bins)
    return np.asarray(cuts[(cuts > low) & (cuts <= high)], np.float64)


def mdl_cuts(values: Floats, classes: Ints) -> Floats:
    """Cut points that pay for their description length (Fayyad and Irani, IJCAI 1993)."""
    # values: (n,) float64
    # classes: (n,) int64: Number of each value's class, >= 0
    # returns (k,) ndarray of float64: Ascending; empty if no cut pays.
    order = np.argsort(values, kind="stable")
    x, y = values[order], classes[order]
    counts = np.zeros((len(x) + 1, int(y.max(initial=0)) + 1))
    np.add.at(counts, (np.arange(1, len(x) + 1), y), 1.0)
    counts = counts.cumsum(axis=0)  # of each class among the first i values
    cuts: list[float] = []
    parts = [(0, len(x))]
    while parts:
        first, last = parts.pop()
        at = _best_cut(x, counts, first, last)
        if at is not None:
            cuts.append(float((x[at - 1] + x[at]) / 2 if x[at - 1] < (x[at - 1] + x[at]) / 2 else x[at]))
            parts += [(first, at), (at, last)]
    return np.array(sorted(cuts))


def _best_cut(x: Floats, counts: Floats, first: int, last: int) -> int | None:
    """The place in values[first:last] that leaves the least entropy, if it pays."""
    places = first + 1 + np.flatnonzero(x[first + 1 : last] > x[first : last - 1])
    if not len(places):
        return None
    n = last - first
    left, right = counts[places] - counts[first], counts[last] - counts[places]
    whole = (counts[last] - counts[first])[None, :]
    h, h_left, h_right = _entropy(whole)[0], _entropy(left), _entropy(right)
    n_left = (places - first).astype(np.float64)
    rest = (n_left * h_left + (n - n_left) * h_right) / n
    best = int(np.argmin(rest))
    k, k_left, k_right = ((part > 0).sum(axis=1) for part in (whole, left[best : best + 1], right[best : best + 1]))
    delta = log(3 ** int(k[0]) - 2) / LN2 - (k[0] * h - k_left[0] * h_left[best] - k_right[0] * h_right[best])
    gain = h - rest[best]
    return int(places[best]) if gain > (log(n - 1) / LN2 + delta) / n else None


def _entropy(counts: Floats) -> Floats:
    """Entropy in bits of each row of counts."""
    total = counts.sum(axis=1, keepdims=True)
    share = counts / np.where(total > 0, total, 1.0)
    return np.asarray(-(share * logs(np.where(share > 0, share, 1.0)) / LN2).sum(axis=1))
