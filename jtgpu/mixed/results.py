"""Results of mixed networks: mixtures of normal distributions beside posteriors of states."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, shown
from ..inference.results.marginals import Posterior, distinct_names
from ..inference.results.printed import Printed, make_frame, to_frame_method
from ..util.loops import loops
from .truncated import log_mass, truncated_moments, truncated_quantiles

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ..inference.tables import Table

    Floats = NDArray[np.float64]

_mixtures = loops("jtgpu.mixed.mixture_loops")
DEFAULT_QUANTILES = (0.05, 0.95)


class Parts(NamedTuple):
    """A mixture of normal distributions."""

    weights: Floats  # (K,), sum to 1
    means: Floats  # (K,)
    sds: Floats  # (K,)


def checked_probabilities(q: ArrayLike) -> Floats:
    """Probabilities of quantiles, each above 0 and below 1."""
    try:
        p = np.atleast_1d(np.asarray(q, np.float64))
    except (TypeError, ValueError):
        p = np.zeros(1)
    if p.ndim != 1 or not ((p > 0) & (p < 1)).all():
        raise ArgumentError(f"quantiles must be probabilities above 0 and below 1, such as [0.05, 0.95], got {shown(q)}")
    return p


class NumberPosterior:
    """P(number | evidence): a mixture of normal distributions; a number that is observed has sd 0.

    Attributes
    ----------
    variable : str
    mean, sd : float
        In the units of the number.
    parts : Parts
        ``weights``, ``means`` and ``sds`` of the mixture, (K,) float64 each.
    bounds : (float, float) or None
        The interval that the evidence gives: every part of the mixture is cut to it.
    """

    __slots__ = ("bounds", "mean", "parts", "sd", "variable")

    def __init__(self, variable: str, parts: Parts, bounds: tuple[float, float] | None = None):
        self.variable, self.parts, self.bounds = variable, parts, bounds
        means, sds = parts.means, parts.sds
        if bounds is not None:
            cut = [truncated_moments(m, s, *bounds) for m, s in zip(means.tolist(), sds.tolist(), strict=True)]
            means, sds = np.array(cut).reshape(-1, 2).T
        self.mean = float(parts.weights @ means)
        self.sd = math.sqrt(float(parts.weights @ (sds**2 + (means - self.mean) ** 2)))

    def quantiles(self, q: ArrayLike = DEFAULT_QUANTILES) -> Floats:
        """Quantiles, by bisection of the mixture's distribution function.

        Parameters
        ----------
        q : array_like
            Probabilities above 0 and below 1.

        Returns
        -------
        (Q,) ndarray of float64
        """
        p = checked_probabilities(q)
        if self.sd == 0.0:
            return np.full(len(p), self.mean)
        if self.bounds is not None:
            return truncated_quantiles(*self.parts, *self.bounds, p)
        out = np.empty((1, len(p)))
        _mixtures.quantiles(*(np.ascontiguousarray(a[None]) for a in self.parts), p, out)
        return out[0]

    def density(self, x: ArrayLike) -> Floats:
        """Probability density at some values, in 1 / units of the number; an array of the same shape."""
        values = np.asarray(x, np.float64)
        if self.sd == 0.0:
            return np.where(values == self.mean, np.inf, 0.0)
        w, m, s = self.parts
        z = (values[..., None] - m) / s
        height = w / (s * math.sqrt(2 * math.pi))
        if self.bounds is None:
            return np.asarray(np.exp(-0.5 * z * z) @ height)
        low, high = self.bounds
        log_masses = log_mass((low - m) / s, (high - m) / s)
        inside = (values >= low) & (values <= high)
        return np.where(inside, np.exp(-0.5 * z * z - log_masses) @ height, 0.0)

    def __float__(self) -> float:
        return self.mean

    def __repr__(self) -> str:
        return f"{self.variable}: mean {self.mean:.6g}, sd {self.sd:.6g}"


class MixedPosteriors(Printed, Mapping[str, "Posterior | NumberPosterior"]):
    """Posteriors of one case: variable to `Posterior` (states) or `NumberPosterior` (numbers).

    Attributes
    ----------
    log_evidence : float
        ln of P(observed states) times the density of the observed numbers in their units.
    """

    def __init__(self, posteriors: Mapping[str, Posterior | NumberPosterior], log_evidence: float):
        self._posteriors = dict(posteriors)
        self.log_evidence = log_evidence

    def __getitem__(self, variable: str) -> Any:  # Posterior or NumberPosterior, which the caller knows
        if variable not in self._posteriors:
            raise KeyError(f"{variable!r} is not among the targets of this query; add it to targets=")
        return self._posteriors[variable]

    def __iter__(self) -> Iterator[str]:
        return iter(self._posteriors)

    def __len__(self) -> int:
        return len(self._posteriors)

    def _rows(self) -> Iterator[tuple[str, str | None, float | None, float | None, float | None]]:
        for v, p in self._posteriors.items():
            if isinstance(p, NumberPosterior):
                yield v, None, None, p.mean, p.sd
            else:
                yield from ((v, s, x, None, None) for s, x in p.as_dict().items())

    @to_frame_method
    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with the columns ``variable``, ``state``, ``probability``, ``mean`` and ``sd``.

        A number has one row, whose state and probability are null.
        """
        rows = [*self._rows()]
        columns: dict[str, Any] = {"variable": [r[0] for r in rows], "state": [r[1] for r in rows]}
        for i, name in enumerate(("probability", "mean", "sd"), 2):
            values = np.array([np.nan if r[i] is None else r[i] for r in rows], np.float64)
            columns[name] = np.ma.masked_array(values, np.isnan(values))
        return make_frame(columns, backend)

    def _title(self) -> str:
        return f"Posteriors of {len(self)} variables, log_evidence={self.log_evidence:.9g}"

    def _table(self) -> tuple[list[str], list[Any], int]:
        names, texts, quantiles = [], [], []
        for v, p in self._posteriors.items():
            names.append(v)
            if isinstance(p, NumberPosterior):
                low, high = p.quantiles()
                texts.append(f"mean {p.mean:.6g}  sd {p.sd:.6g}")
                quantiles.append(f"90 % in {low:.6g} to {high:.6g}" if p.sd else "observed")
            else:
                texts.append("  ".join(f"{s} {x:.6g}" for s, x in p.as_dict().items()))
                quantiles.append("")
        return ["", "", ""], [names, texts, quantiles], 1


class NumberColumns:
    """A number in B cases: mixtures of normal distributions.

    Attributes
    ----------
    mean, sd : (B,) ndarray of float64
        NaN in cases that are impossible.
    """

    def __init__(self, variable: str, n: int):
        self.variable = variable
        self.mean, self.sd = np.full(n, np.nan), np.full(n, np.nan)
        # rows, (B, K) weights, (B, K) means, (K,) or (B, K) sds
        self._groups: list[tuple[NDArray[np.intp], Floats, Floats, Floats]] = []

    def add(self, rows: NDArray[np.intp], weights: Floats, means: Floats, sds: Floats) -> None:
        """Enter the mixtures of some rows."""
        mean = np.einsum("bk,bk->b", weights, means)
        self.mean[rows] = mean
        self.sd[rows] = np.sqrt(np.einsum("bk,bk->b", weights, np.square(sds) + np.square(means - mean[:, None])))
        self._groups.append((rows, weights, means, sds))

    def quantiles(self, q: ArrayLike = DEFAULT_QUANTILES) -> Floats:
        """(B, Q) quantiles of every case; see `NumberPosterior.quantiles`."""
        p = checked_probabilities(q)
        result = np.full((len(self.mean), len(p)), np.nan)
        for rows, weights, means, sds in self._groups:
            if weights.shape[1] == 1 and not np.any(sds):
                result[rows] = means
                continue
            out = np.empty((len(rows), len(p)))
            full = np.ascontiguousarray(np.broadcast_to(sds, means.shape))
            _mixtures.quantiles(np.ascontiguousarray(weights), np.ascontiguousarray(means), full, p, out)
            result[rows] = out
        return result

    def case(self, row: int) -> NumberPosterior:
        """The mixture of one case."""
        for rows, weights, means, sds in self._groups:
            at = np.flatnonzero(rows == row)
            if len(at):
                i = int(at[0])
                return NumberPosterior(
                    self.variable, Parts(weights[i], means[i], np.broadcast_to(sds, means.shape)[i])
                )
        raise ArgumentError(f"there is no case {row}, or it is impossible")


class MixedCasePosteriors(Printed, Mapping[str, "Floats | NumberColumns"]):
    """Posteriors of a table of B cases: variable to a (B, n_states) array, or to `NumberColumns`.

    Attributes
    ----------
    log_evidence : (B,) ndarray of float64
        See `MixedPosteriors`; -inf if the case is impossible.
    impossible : (B,) ndarray of bool
    """

    def __init__(
        self,
        states: Mapping[str, Sequence[str]],  # of the discrete targets
        posteriors: Mapping[str, Floats | NumberColumns],
        log_evidence: Floats,
        impossible: NDArray[np.bool_],
        table: Table | None,
    ):
        self._states, self._posteriors, self._cases = states, dict(posteriors), table
        self.log_evidence, self.impossible = log_evidence, impossible

    def __getitem__(self, variable: str) -> Any:  # an array or NumberColumns, which the caller knows
        if variable not in self._posteriors:
            raise KeyError(f"{variable!r} is not among the targets of this query; add it to targets=")
        return self._posteriors[variable]

    def __iter__(self) -> Iterator[str]:
        return iter(self._posteriors)

    def __len__(self) -> int:
        return len(self._posteriors)

    def columns(self, quantiles: ArrayLike | None = None) -> dict[str, Any]:
        """Columns of numbers: ``variable=state``, ``number.mean``, ``number.sd``, ``number.q05`` ..."""
        columns: dict[str, Any] = {}
        for v, p in self._posteriors.items():
            if isinstance(p, NumberColumns):
                columns[f"{v}.mean"], columns[f"{v}.sd"] = p.mean, p.sd
                if quantiles is not None:
                    levels = checked_probabilities(quantiles)
                    columns.update(
                        (f"{v}.q{level * 100:g}", column)
                        for level, column in zip(levels.tolist(), p.quantiles(levels).T, strict=True)
                    )
            else:
                columns.update(zip((f"{v}={s}" for s in distinct_names(self._states[v])), p.T, strict=True))
        return columns

    def to_frame(self, backend: str | None = None, *, quantiles: ArrayLike | None = None) -> Any:
        """Return a data frame with a row for each case.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
            The library of the frame. Default: that of the cases, else pandas.
        quantiles : array_like, optional
            Probabilities of quantiles of the numbers, which get columns such as ``age.q5``.

        Returns
        -------
        data frame
            The columns ``variable=state``, ``number.mean``, ``number.sd`` and ``log_evidence``; null in impossible
            cases.
        """
        columns = self.columns(quantiles)
        if self.impossible.any():
            columns = {name: np.ma.masked_array(column, self.impossible) for name, column in columns.items()}
        return make_frame({**columns, "log_evidence": self.log_evidence}, backend, cases=self._cases)

    def _title(self) -> str:
        return f"Posteriors of {len(self)} variables in {len(self.log_evidence)} cases"

    def _table(self) -> tuple[list[str], list[Any], int]:
        columns = self.columns()
        return ["", *columns, "log_evidence"], [range(len(self.log_evidence)), *columns.values(), self.log_evidence], 1
