"""`Validation`: how well a model predicts a variable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, UnknownState, closest
from ..inference.results.frames import make_frame, unused_name
from ..inference.results.result import Result, to_frame_method
from ..util import late_imports
from ..util.arguments import check_keywords, number, whole_number
from ..util.arrays import Floats, Ints
from ..util.elementary import logs
from ..util.roc import TIE, roc_area, roc_counts
from ..util.text_table import counted

if TYPE_CHECKING:
    from ..util.late_imports import Drawing

BINS = 10  # of a calibration


@check_keywords()
@dataclass(frozen=True, eq=False, repr=False)
class Validation(Result):
    """How well a model predicts a variable.

    The data frame has a row for each state: rows, precision, recall, F1, AUC (null where undefined), and the confusion
    matrix.

    Attributes
    ----------
    target : str
    states : tuple of str
        The C states of the target.
    probabilities : (N, C) ndarray
        P(state | all other cells of the row) of each row that was used.
    observed, predicted : (N,) ndarray of int
        Number of the state that occurs, and of the most probable one; the first of those that differ by at most 1e-12.
    rows, fold : (N,) ndarray of int
        Number of each row in the table, and of the fold in which it was predicted; 0 without cross-validation.
    n_missing, n_impossible : int
        Rows that were left out because their target is missing, or because they have probability 0.
    accuracy, baseline : float
        Share of the rows that are predicted correctly, and of those with the most frequent state.
    log_loss : float
        Mean of -ln P(state that occurs); infinite if one of these probabilities is 0.
    brier : float
        Mean over the rows of the squared distance of the probabilities to the truth, summed over the states (Brier,
        1950): from 0 to 2. For two states, half of it is what other programs call the Brier score.
    calibration_error : float
        Mean over the rows of the distance between accuracy and mean confidence in ten intervals of confidence.

    Examples
    --------
    >>> import jtgpu
    >>> data = jtgpu.load("asia").compile("cpu").sample(500, seed=1)
    >>> result = jtgpu.learn.validate(jtgpu.load("asia"), data, "dysp", seed=1)
    >>> print(result)
    Prediction of dysp in 500 rows
    accuracy 0.8360, always the most frequent state 0.5600
    log loss 0.4240, Brier score 0.2616, calibration error 0.0198
    dysp  rows  precision    recall        F1       AUC  predicted yes  predicted no
    yes    220   0.773810  0.886364  0.826271  0.858409            195            25
    no     280   0.899194  0.796429  0.844697  0.858409             57           223
    """

    target: str
    states: tuple[str, ...]
    probabilities: Floats
    observed: Ints
    rows: Ints
    fold: Ints
    n_missing: int = 0
    n_impossible: int = 0
    predicted: Ints = field(init=False)

    def __post_init__(self) -> None:
        p = self.probabilities
        object.__setattr__(self, "predicted", (p >= p.max(axis=1, keepdims=True) - TIE).argmax(axis=1))

    @property
    def accuracy(self) -> float:
        return float((self.predicted == self.observed).mean())

    @property
    def baseline(self) -> float:
        return float(self.support.max() / self.support.sum())

    @property
    def support(self) -> Ints:
        """Number of rows of each state, (C,)."""
        return np.bincount(self.observed, minlength=len(self.states))

    @property
    def log_loss(self) -> float:
        return float(self._losses().mean())

    @property
    def brier(self) -> float:
        return float(self._squares().mean())

    @property
    def calibration_error(self) -> float:
        _, mean, share, count = self.calibration()
        return float((count * np.abs(mean - share)).sum() / count.sum())

    def _losses(self) -> Floats:
        p = self.probabilities[np.arange(len(self.observed)), self.observed]
        return np.where(p > 0.0, -logs(np.where(p > 0.0, p, 1.0)), np.inf)

    def _squares(self) -> Floats:
        truth = np.eye(len(self.states))[self.observed]
        return np.asarray(((self.probabilities - truth) ** 2).sum(axis=1))

    @property
    def confusion(self) -> Ints:
        """Number of rows by the state that occurs (rows) and the one that is predicted (columns), (C, C)."""
        c = len(self.states)
        return np.bincount(self.observed * c + self.predicted, minlength=c * c).reshape(c, c)

    def roc(self, state: str) -> tuple[Floats, Floats, Floats]:
        """The ROC curve of a state against all others.

        Returns
        -------
        false_positive, true_positive, threshold : ndarray
            Rates for each threshold of the probability of the state, descending; the first one is infinite. Neighbours
            that differ by at most 1e-12 are one threshold: equal cases may have posteriors with other last digits.

        Raises
        ------
        UnknownState
            If the target has no such state.
        DataError
            If all rows have the state, or none.
        """
        negative, positive, threshold = self._counts(state)
        return negative / negative[-1], positive / positive[-1], threshold

    def _counts(self, state: str) -> tuple[Ints, Ints, Floats]:
        k = self._number(state)
        positive = self.observed == k
        if positive.all() or not positive.any():
            raise DataError(f"{'all' if positive.any() else 'no'} rows have {self.target} = {state!r}: no ROC curve")
        return roc_counts(self.probabilities[:, k], positive)

    def auc(self, state: str | None = None) -> float:
        """Area under the ROC curve of a state; by default the mean over all states that occur in some rows only."""
        if state is None:
            some = [s for s, n in zip(self.states, self.support, strict=True) if 0 < n < len(self.observed)]
            if not some:
                raise DataError(f"all rows have the same state of {self.target!r}: no ROC curve")
            return float(np.mean([self.auc(s) for s in some]))
        return roc_area(*self._counts(state)[:2])

    def calibration(self, state: str | None = None, bins: int = BINS) -> tuple[Floats, Floats, Floats, Ints]:
        """How often events happen that have some probability.

        Parameters
        ----------
        state : str, optional
            The event is this state. Default: the prediction is right, with the probability of the predicted state.
        bins : int
            Intervals of equal width from 0 to 1; only those with a row are returned.

        Returns
        -------
        lower, predicted, observed, count : ndarray
            Lower end of each interval, mean probability, share of the rows in which the event happened, and rows.
        """
        n = whole_number("bins", bins, 1)
        if state is None:
            p, happened = self.probabilities.max(axis=1), self.predicted == self.observed
        else:
            k = self._number(state)
            p, happened = self.probabilities[:, k], self.observed == k
        at = np.minimum((p * n + TIE).astype(np.int64), n - 1)
        count = np.bincount(at, minlength=n)
        used = np.flatnonzero(count)
        predicted, observed = (np.bincount(at, x, minlength=n)[used] / count[used] for x in (p, happened))
        return used / n, predicted, observed, count[used]

    def _number(self, state: str) -> int:
        if state not in self.states:
            raise UnknownState(f"{self.target!r} has no state {state!r}{closest(str(state), self.states)}")
        return self.states.index(state)

    @property
    def by_fold(self) -> dict[str, Floats]:
        """Accuracy, log loss and Brier score of each fold."""
        numbers = {"accuracy": self.predicted == self.observed, "log_loss": self._losses(), "brier": self._squares()}
        return {k: np.array([x[self.fold == f].mean() for f in np.unique(self.fold)]) for k, x in numbers.items()}

    @to_frame_method
    def predictions(self, backend: str | None = None) -> Any:
        """Return a data frame with each row that was used: its number and fold, truth, prediction, probabilities."""
        columns = {
            "row": self.rows, "fold": self.fold, "observed": [self.states[k] for k in self.observed.tolist()],
            "predicted": [self.states[k] for k in self.predicted.tolist()],
        }  # fmt: skip
        columns |= {f"{self.target}={s}": self.probabilities[:, k] for k, s in enumerate(self.states)}
        return make_frame(columns, backend)

    def draw(self) -> Drawing:
        """Draw the confusion matrix, the ROC curves and the calibration as SVG."""
        drawing: Drawing = late_imports.validations().draw_validation(self)
        return drawing

    def _title(self) -> str:
        n_folds = len(np.unique(self.fold))
        how = f", {n_folds} folds" if n_folds > 1 else ""
        spread = f" (folds {_range(self.by_fold['accuracy'])})" if n_folds > 1 else ""
        left_out = "".join(
            f"; {counted(n, 'row')} left out: {why}"
            for n, why in ((self.n_missing, "target missing"), (self.n_impossible, "probability 0")) if n
        )  # fmt: skip
        return (
            f"Prediction of {self.target} in {counted(len(self.observed), 'row')}{how}{left_out}\n"
            f"accuracy {self.accuracy:.4f}{spread}, always the most frequent state {self.baseline:.4f}\n"
            f"log loss {self.log_loss:.4f}, Brier score {self.brier:.4f}, "
            f"calibration error {self.calibration_error:.4f}"
        )

    def _columns(self) -> dict[str, object]:
        confusion, n = self.confusion, self.support
        right, chosen = np.diag(confusion), confusion.sum(axis=0)
        areas = [self.auc(s) if 0 < k < n.sum() else np.nan for s, k in zip(self.states, n.tolist(), strict=True)]
        return {
            self.target: [*self.states], "rows": n, "precision": _shares(right, chosen), "recall": _shares(right, n),
            "F1": _shares(2 * right, chosen + n), "AUC": np.ma.masked_invalid(areas),
            **{f"predicted {s}": confusion[:, k] for k, s in enumerate(self.states)},
        }  # fmt: skip


def _shares(part: Ints, whole: Ints) -> np.ma.MaskedArray[Any, Any]:
    return np.ma.masked_array(part / np.maximum(whole, 1), whole == 0)


def _range(values: Floats) -> str:
    return f"{values.min():.4f} to {values.max():.4f}"


# `NumberValidation`: how well a network predicts a number.

@check_keywords()
@dataclass(frozen=True, eq=False, repr=False)
class NumberValidation(Result):
    """How well a network predicts a number.

    The data frame has a row for each measure of `summary`: its name in the column of the target, and ``value``.

    Attributes
    ----------
    target : str
    mean, sd : (N,) ndarray
        Mean and standard deviation of the number given all other cells of the row, of each row that was used.
    log_densities : (N,) ndarray
        ln of the predicted density at the observed value, in the units of the number.
    pit : (N,) ndarray
        Predicted probability of a value up to the observed one; uniform where predictions are calibrated.
    observed : (N,) ndarray
    rows, fold : (N,) ndarray of int
        Number of each row in the table, and of the fold in which it was predicted; 0 without cross-validation.
    n_missing, n_impossible : int
        Rows that were left out because their target is missing, or because they have probability 0.
    rmse, mae : float
        Root mean square, and mean absolute difference of mean and observed value.
    baseline : float
        The root mean square of always predicting the mean of the rows.
    r_squared : float
        1 - rmse^2 / baseline^2.
    log_density : float
        Mean of `log_densities`: higher is better.

    Examples
    --------
    >>> import jtgpu
    >>> cpts = {"x": jtgpu.Gaussian(0), "y": jtgpu.Gaussian(1, {"x": 2}, sd=0.5)}
    >>> net = jtgpu.MixedNetwork({"x": float, "y": float}, {"y": ["x"]}, cpts)
    >>> result = jtgpu.learn.validate(net, net.compile("cpu").sample(500, seed=1).to_frame(), "y")
    >>> 0.45 < result.rmse < 0.55, result.r_squared > 0.9
    (True, True)
    """

    target: str
    mean: Floats
    sd: Floats
    log_densities: Floats
    pit: Floats
    observed: Floats
    rows: Ints
    fold: Ints
    n_missing: int = 0
    n_impossible: int = 0

    @property
    def rmse(self) -> float:
        return float(np.sqrt(np.mean((self.mean - self.observed) ** 2)))

    @property
    def mae(self) -> float:
        return float(np.abs(self.mean - self.observed).mean())

    @property
    def baseline(self) -> float:
        return float(self.observed.std())

    @property
    def r_squared(self) -> float:
        return 1.0 - (self.rmse / self.baseline) ** 2 if self.baseline else 0.0

    @property
    def log_density(self) -> float:
        return float(self.log_densities.mean())

    def coverage(self, level: float = 0.9) -> float:
        """Share of the rows whose value is in the central interval that has a probability; near it if calibrated."""
        share = number("level", level, least=0)
        return float((np.abs(2 * self.pit - 1) <= share).mean())

    @property
    def by_fold(self) -> dict[str, Floats]:
        """Root mean square error and mean ln density of each fold."""
        parts = [self.fold == f for f in np.unique(self.fold)]
        errors = (self.mean - self.observed) ** 2
        return {
            "rmse": np.array([np.sqrt(errors[own].mean()) for own in parts]),
            "log_density": np.array([self.log_densities[own].mean() for own in parts]),
        }

    @to_frame_method
    def predictions(self, backend: str | None = None) -> Any:
        """Return a data frame with each row that was used: its number and fold, the value, mean, sd and ``pit``."""
        names = ("rows", "fold", "observed", "mean", "sd", "pit")
        return make_frame({name.replace("rows", "row"): getattr(self, name) for name in names}, backend)

    def draw(self) -> Drawing:
        """Draw observed against predicted values, and the calibration of intervals, as SVG."""
        drawing: Drawing = late_imports.validations().draw_number_validation(self)
        return drawing

    def summary(self) -> dict[str, float]:
        """The measures by name."""
        names = ("rmse", "mae", "baseline", "r_squared", "log_density")
        return {name: getattr(self, name) for name in names} | {
            f"coverage_{100 * level:g}": self.coverage(level) for level in (0.5, 0.9)
        }

    def _title(self) -> str:
        n_folds = len(np.unique(self.fold))
        left_out = "".join(
            f"; {counted(n, 'row')} left out: {why}"
            for n, why in ((self.n_missing, "target missing"), (self.n_impossible, "probability 0")) if n
        )  # fmt: skip
        spread = self.by_fold["rmse"]
        folds = f" (folds {spread.min():.4g} to {spread.max():.4g})" if n_folds > 1 else ""
        how = f", {n_folds} folds" if n_folds > 1 else ""
        return (
            f"Prediction of {self.target} in {counted(len(self.observed), 'row')}{how}{left_out}\n"
            f"root mean square error {self.rmse:.4g}{folds}, always the mean {self.baseline:.4g}, "
            f"R-squared {self.r_squared:.4f}"
        )

    def _columns(self) -> dict[str, object]:
        measures = self.summary()
        return {self.target: [*measures], unused_name("value", [self.target]): [*measures.values()]}
