"""`NumberValidation`: how well a network predicts a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..inference.results.frames import make_frame, unused_name
from ..inference.results.result import Result, to_frame_method
from ..util import late_imports
from ..util.arguments import check_keywords, number
from ..util.arrays import Floats, Ints
from ..util.text_table import counted

if TYPE_CHECKING:
    from ..util.late_imports import Drawing


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

    def _columns(self) -> dict[str, Any]:
        measures = self.summary()
        return {self.target: [*measures], unused_name("value", [self.target]): [*measures.values()]}
