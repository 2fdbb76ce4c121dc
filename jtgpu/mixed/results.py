"""Posteriors of mixed networks, of one case and of tables: mixtures of normal distributions, and states."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, shown
from ..inference.results.frames import make_frame
from ..inference.results.interval_numbers import checked_probabilities
from ..inference.results.marginals import Posterior, distinct_names
from ..inference.results.result import ByName, CaseResult, Columns, Result
from ..util.equality import ByValue
from ..util.loops import loops
from ..util.text_table import counted
from .components import HALF_LOG_2PI
from .truncated import log_mass, normal_cdf, truncated_moments, truncated_quantiles

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ..columns import Table
    from ..util.arrays import Floats

_mixtures = loops("jtgpu.mixed.mixture_loops")
DEFAULT_QUANTILES = (0.05, 0.95)
ONE, ZERO = np.ones(1), np.zeros(1)


class Parts(NamedTuple):
    """A mixture of normal distributions."""

    weights: Floats  # (K,), sum to 1
    means: Floats  # (K,)
    sds: Floats  # (K,)


def _numbers(x: ArrayLike) -> Floats:
    try:
        values = np.asarray(x, np.float64)
    except (TypeError, ValueError):
        values = np.full(1, np.nan)
    if np.isnan(values).any():
        raise ArgumentError(f"x must be a number or an array of numbers, got {shown(x)}")
    return values


class NumberPosterior(ByValue):
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

    def __init__(
        self, variable: str, parts: Parts, bounds: tuple[float, float] | None = None,
        moments: tuple[float, float] | None = None,
    ):  # fmt: skip
        self.variable, self.parts, self.bounds = variable, parts, bounds
        means, sds = parts.means, parts.sds
        if moments is not None and bounds is None:
            self.mean, self.sd = moments
            return
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
        return np.asarray(out[0])

    def density(self, x: ArrayLike) -> Floats:
        """Probability density at some values, in 1 / units of the number; an array of the same shape."""
        values = _numbers(x)
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

    def cdf(self, x: ArrayLike) -> Floats:
        """P(number <= x) at some values; an array of the same shape."""
        values = _numbers(x)
        if self.sd == 0.0:
            return np.where(values >= self.mean, 1.0, 0.0)
        w, m, s = self.parts
        z = (values[..., None] - m) / s
        if self.bounds is None:
            return np.asarray(normal_cdf(z) @ w)
        ends = [(end - m) / s for end in self.bounds]
        low, z, masses = np.broadcast_arrays(ends[0], np.minimum(z, ends[1]), log_mass(*ends))
        share, inside = np.zeros(z.shape), z > low
        share[inside] = np.exp(log_mass(low[inside], z[inside]) - masses[inside])
        return np.asarray(share @ w)

    def __float__(self) -> float:
        return self.mean

    def __repr__(self) -> str:
        return f"{self.variable}: mean {self.mean:.6g}, sd {self.sd:.6g}"


class MixedPosteriors(Result, ByName[Any]):
    """Posteriors of one case: variable to `Posterior` (states) or `NumberPosterior` (numbers).

    The data frame has the columns ``variable``, ``state``, ``probability``, ``mean`` and ``sd``. A number has one row,
    whose state and probability are null.

    Attributes
    ----------
    log_evidence : float
        ln of P(observed states) times the density of the observed numbers in their units.
    """

    _argument = "targets"

    def __init__(
        self, parts: dict[str, Posterior | int], numbers: NumberTable,
        bounds: Mapping[int, tuple[float, float]], log_evidence: float,
    ):  # fmt: skip
        # parts: of a number its column in `numbers`, and in `bounds` if the evidence is an interval, until it is read
        self._parts: dict[str, Any] = parts
        self._numbers, self._bounds, self.log_evidence = numbers, bounds, log_evidence

    def __getitem__(self, name: str) -> Any:
        part = super().__getitem__(name)
        if type(part) is int:
            part = self._parts[name] = self._numbers.case(part, 0, self._bounds.get(part))
        return part

    def _rows(self) -> Iterator[tuple[str, str | None, float | None, float | None, float | None]]:
        for v, p in self.items():
            if isinstance(p, NumberPosterior):
                yield v, None, None, p.mean, p.sd
            else:
                yield from ((v, s, x, None, None) for s, x in p.as_dict().items())

    def _columns(self) -> dict[str, object]:
        rows = [*self._rows()]
        columns: dict[str, Any] = {"variable": [r[0] for r in rows], "state": [r[1] for r in rows]}
        for i, name in enumerate(("probability", "mean", "sd"), 2):
            values = np.array([np.nan if r[i] is None else r[i] for r in rows], np.float64)
            columns[name] = np.ma.masked_array(values, np.isnan(values))
        return columns

    def _title(self) -> str:
        return f"Posteriors of {counted(len(self), 'variable')}, log_evidence={self.log_evidence:.6g}"

    def _table(self) -> Columns:
        names, texts, quantiles = [], [], []
        for v, p in self.items():
            names.append(v)
            if isinstance(p, NumberPosterior):
                low, high = p.quantiles()
                texts.append(f"mean {p.mean:.6g}  sd {p.sd:.6g}")
                quantiles.append(f"90 % in {low:.6g} to {high:.6g}" if p.sd else "observed")
            else:
                texts.append("  ".join(f"{s} {x:.6g}" for s, x in p.as_dict().items()))
                quantiles.append("")
        return Columns(["", "", ""], [names, texts, quantiles])


class Mixtures(NamedTuple):
    """Mixtures of the numbers of a component in some cases."""

    rows: NDArray[np.intp]  # (b,)
    weights: Floats  # (b, K)
    means: Floats  # (b, K, U)
    sds: Floats  # (K, U)


class NumberTable:
    """Posteriors of several numbers in B cases."""

    def __init__(self, names: Sequence[str], n: int):
        self.names = names
        self.mean, self.sd = np.full((n, len(names)), np.nan), np.full((n, len(names)), np.nan)
        self._parts: list[list[tuple[Mixtures, int]]] = [[] for _ in names]  # of each number, and its place in U

    def add(self, mixtures: Mixtures, columns: Sequence[int]) -> None:
        """Enter the mixtures of some rows; `columns` are the numbers of the table that U stands for."""
        rows, weights, means, sds = mixtures
        if weights.shape[1] == 1:
            mean, sd = means[:, 0], sds[0]
        else:
            mean = (weights[:, None] @ means)[:, 0]  # (b, U)
            spread = np.square(means - mean[:, None])
            spread += np.square(sds)
            sd = np.sqrt((weights[:, None] @ spread)[:, 0])
        at = self._place(rows, columns)
        self.mean[at], self.sd[at] = mean, sd
        for place, column in enumerate(columns):
            self._parts[column].append((mixtures, place))

    def _place(self, rows: NDArray[np.intp], columns: Sequence[int]) -> Any:
        """The index of some rows and columns."""
        if len(rows) == len(self.mean):  # patterns have ascending rows
            return slice(None), slice(None) if [*columns] == [*range(len(self.names))] else [*columns]
        return np.ix_(rows, np.asarray(columns, np.intp))

    def observe(self, rows: NDArray[np.intp], columns: Sequence[int], values: Floats) -> None:
        """Enter observed numbers, (b, U)."""
        at = self._place(rows, columns)
        self.mean[at], self.sd[at] = values, 0.0

    def quantiles(self, column: int, probabilities: Floats) -> Floats:
        """(B, Q) quantiles of a number."""
        result = np.repeat(self.mean[:, column, None], len(probabilities), axis=1)
        for (rows, weights, means, sds), place in self._parts[column]:
            out = np.empty((len(rows), len(probabilities)))
            own = np.ascontiguousarray(means[:, :, place])
            full = np.ascontiguousarray(np.broadcast_to(sds[:, place], own.shape))
            _mixtures.quantiles(np.ascontiguousarray(weights), own, full, probabilities, out)
            result[rows] = out
        return result

    def at(self, column: int, values: Floats) -> tuple[Floats, Floats]:
        """ln of the density and P(number <= value) of a number at a value for each case, (B,); NaN: impossible."""
        log_density, below = np.full(len(values), np.nan), np.full(len(values), np.nan)
        for (rows, weights, means, sds), place in self._parts[column]:
            z = (values[rows, None] - means[:, :, place]) / sds[:, place]
            with np.errstate(divide="ignore"):
                logs = np.log(weights) - 0.5 * z * z - np.log(sds[:, place])
            top = logs.max(axis=1)
            log_density[rows] = top + np.log(np.exp(logs - top[:, None]).sum(axis=1)) - HALF_LOG_2PI
            below[rows] = (normal_cdf(z) * weights).sum(axis=1)
        return log_density, below

    def case(self, column: int, row: int, bounds: tuple[float, float] | None = None) -> NumberPosterior:
        """The mixture of one case."""
        name, moments = self.names[column], (float(self.mean[row, column]), float(self.sd[row, column]))
        for (rows, weights, means, sds), place in self._parts[column]:
            at = 0 if len(rows) == 1 and rows[0] == row else -1 if len(rows) == 1 else _index(rows, row)
            if at >= 0:
                return NumberPosterior(name, Parts(weights[at], means[at, :, place], sds[:, place]), bounds, moments)
        if np.isnan(moments[0]):
            raise ArgumentError(f"case {row} is impossible")
        return NumberPosterior(name, Parts(ONE, self.mean[row, column : column + 1], ZERO), None, moments)


def _index(rows: NDArray[np.intp], row: int) -> int:
    at = np.flatnonzero(rows == row)
    return int(at[0]) if len(at) else -1


class NumberColumns(ByValue):
    """A number in B cases: mixtures of normal distributions.

    Attributes
    ----------
    variable : str
    mean, sd : (B,) ndarray of float64
        NaN in cases that are impossible.
    """

    def __init__(self, table: NumberTable, column: int):
        self._table, self._column = table, column
        self.variable = table.names[column]
        self.mean, self.sd = table.mean[:, column], table.sd[:, column]

    def quantiles(self, q: ArrayLike = DEFAULT_QUANTILES) -> Floats:
        """(B, Q) quantiles of every case; see `NumberPosterior.quantiles`."""
        return self._table.quantiles(self._column, checked_probabilities(q))

    def log_density(self, x: ArrayLike) -> Floats:
        """(B,) ln of the probability density of each case at its value; NaN where the number is observed."""
        return self._table.at(self._column, np.broadcast_to(np.asarray(x, np.float64), self.mean.shape))[0]

    def cdf(self, x: ArrayLike) -> Floats:
        """(B,) P(number <= x) of each case at its value; NaN where the number is observed."""
        return self._table.at(self._column, np.broadcast_to(np.asarray(x, np.float64), self.mean.shape))[1]

    def case(self, row: int) -> NumberPosterior:
        """The mixture of one case."""
        return self._table.case(self._column, row)


class MixedCasePosteriors(CaseResult, ByName[Any]):
    """Posteriors of a table of B cases: variable to a (B, n_states) array, or to `NumberColumns`.

    Attributes
    ----------
    log_evidence : (B,) ndarray of float64
        See `MixedPosteriors`; -inf if the case is impossible.
    impossible : (B,) ndarray of bool
    """

    _argument = "targets"

    def __init__(
        self,
        states: Mapping[str, Sequence[str]],  # of the discrete targets
        posteriors: Mapping[str, Floats | NumberColumns],
        log_evidence: Floats,
        impossible: NDArray[np.bool_],
        table: Table | None,
    ):
        self._states, self._parts, self._cases = states, dict(posteriors), table
        self.log_evidence, self.impossible = log_evidence, impossible

    def columns(self, quantiles: ArrayLike | None = None) -> dict[str, Any]:
        """Columns of numbers: ``variable=state``, ``number.mean``, ``number.sd``, ``number.q05`` ..."""
        columns: dict[str, Any] = {}
        for v, p in self.items():
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
        return make_frame(self._columns(quantiles), backend, cases=self._cases)

    def _columns(self, quantiles: ArrayLike | None = None) -> dict[str, object]:
        columns = self.columns(quantiles)
        if self.impossible.any():
            columns = {name: np.ma.masked_array(column, self.impossible) for name, column in columns.items()}
        return columns | {"log_evidence": self.log_evidence}

    def _title(self) -> str:
        return f"Posteriors of {counted(len(self), 'variable')} in {counted(len(self.log_evidence), 'case')}"
