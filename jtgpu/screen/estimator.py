"""`KNNWeight`: outliers by distance with the interface of scikit-learn. scikit-learn itself is not needed."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, DataError
from ..util.arguments import check_keywords, number, whole_number
from ..util.arrays import Floats, Ints
from ..util.estimator import Estimator, check_table, check_width
from .columns import LearnedColumns, open_rows
from .engine import ScreenTarget
from .outliers import Outliers
from .table import Screened, check_finite

if TYPE_CHECKING:
    from ..util.options import EngineName, Metric, Scale, ScreenMissing


@check_keywords()
@dataclass(eq=False, repr=False)
class KNNWeight(Estimator):
    """Outlier detection by the sum of the distances to the k nearest rows, with scikit-learn's interface.

    Parameters
    ----------
    k : int, default 21
        Distances that are added, that of a row to itself included; at most the number of rows is used.
    contamination : float, default 0.01
        Share of the training data that are outliers, above 0 and at most 0.5.
    n_outliers : int, optional
        Their number, instead of `contamination`.
    metric, missing, scale, columns, backend, threads
        See `jtgpu.screen.top_outliers`.

    Attributes
    ----------
    offset_ : float
        ``decision_function`` is ``score_samples - offset_``, and negative for outliers.
    outliers_ : Outliers
        The outliers of the training data.
    labels_ : (N,) ndarray of int
        -1 for outliers of the training data, 1 for others.
    k_ : int
        The number of distances that are added.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Names of the columns; only defined if X had them.

    Examples
    --------
    >>> from jtgpu.screen import KNNWeight
    >>> KNNWeight(k=2, n_outliers=1).fit([[0.0], [1.0], [9.0]]).predict([[0.5], [20.0]]).tolist()
    [1, -1]
    """

    _fitted = "outliers_"

    _estimator_type = "outlier_detector"  # read by older versions of scikit-learn

    k: int = 21
    _: KW_ONLY
    contamination: float = 0.01
    n_outliers: int | None = None
    metric: Metric = "euclidean"
    missing: ScreenMissing = "auto"
    scale: Scale | None = None
    columns: Any = None
    backend: EngineName = "auto"
    threads: int | None = None

    def __sklearn_tags__(self) -> Any:
        is_share = self.metric in ("auto", "hamming", "gower")
        return self._tags("outlier_detector", categorical=is_share, string=is_share, allow_nan=is_share)

    def fit(self, X: Any, y: Any = None) -> KNNWeight:
        """Find the outliers of a table.

        Parameters
        ----------
        X : table of N rows
            See `jtgpu.screen.top_outliers`.
        y : object
            Ignored.

        Raises
        ------
        DataError
            See `jtgpu.screen.top_outliers`; also if there are fewer than two rows.
        """
        whole_number("k", self.k, 1)
        check_table(X)
        table = open_rows(X)
        if table.n < 2:
            raise DataError(f"n_samples={table.n}: outliers need at least 2 rows (n_samples)")
        if self.n_outliers is None:
            share = number("contamination", self.contamination, above=0)
            if share > 0.5:
                raise ArgumentError(f"contamination must be at most 0.5, not {share}")
            n = max(1, round(share * table.n))
        else:
            n = whole_number("n_outliers", self.n_outliers, 1, table.n)
        k = min(self.k, table.n)
        target = ScreenTarget.resolve(self.backend, self.threads, None, table.n, k, every=False)
        learned = LearnedColumns.learn(table, X, self.metric, self.missing, self.scale, None, self.columns)
        screened = Screened(learned, k, target)
        top, stats = screened.top(n)
        threshold = float(top.weight[-1])
        self.k_ = screened.k
        self._set_features(table.names, named=not getattr(table, "by_index", False))
        self.outliers_ = Outliers(
            top.index, top.weight, threshold, screened.k, learned.measure.metric, learned.missing, target.backend,
            target.reason, stats, None, X, table, screened,
        )  # fmt: skip
        self.offset_ = math.nextafter(-threshold, math.inf)
        self.labels_ = np.ones(table.n, np.int64)
        self.labels_[top.index] = -1
        return self

    def score_samples(self, X: Any) -> Floats:
        """Minus the weights of rows, (B,): the lower, the more abnormal."""
        self._check_fitted("score_samples")
        check_table(X)
        check_width(self, len(open_rows(X).names))
        scores: Floats = -self.outliers_.weights(X)
        return scores

    def decision_function(self, X: object) -> Floats:
        """``score_samples`` minus ``offset_``, (B,): negative for outliers."""
        scores = self.score_samples(X)
        return scores - self.offset_

    def predict(self, X: object) -> Ints:
        """-1 for rows that are outliers, 1 for others, (B,)."""
        self._check_fitted("predict")
        return np.where(self.decision_function(X) < 0, -1, 1)

    def fit_predict(self, X: object, y: object = None) -> Ints:
        """Fit, and return ``labels_``."""
        return self.fit(X).labels_

    @property
    def decision_scores_(self) -> Floats:
        """Weights of the training data, (N,), under PyOD's name; computed on use."""
        self._check_fitted("decision_scores_")
        scores, _ = self.outliers_._screened.weights()
        check_finite(scores)
        return scores
