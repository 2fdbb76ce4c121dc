"""ROC curves: how many cases of either kind have a score of at least each threshold."""

from __future__ import annotations

import numpy as np

from .arrays import Bools, Floats, Ints

TIE = 1e-12  # between scores of up to 1 that differ by rounding only


def roc_counts(scores: Floats, positive: Bools, tie: float = TIE) -> tuple[Ints, Ints, Floats]:
    """Numbers of negative and of positive cases whose score reaches each threshold, and these, from infinity."""
    # tie: Scores whose neighbours in rank are at most this far apart are one threshold, their least one
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    last = np.flatnonzero(np.append(-np.diff(ranked) > tie, True))
    hits = np.append(0, np.cumsum(positive[order])[last])
    return np.append(0, last + 1) - hits, hits, np.append(np.inf, ranked[last])


def roc_area(negative: Ints, positive: Ints) -> float:
    """Area under a curve of `roc_counts`: from whole numbers, so that both classes of two have the same."""
    twice = int((np.diff(negative) * (positive[1:] + positive[:-1])).sum())
    return twice / (2 * int(negative[-1]) * int(positive[-1]))
