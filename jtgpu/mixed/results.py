"""Posteriors of one case of a mixed network: mixtures of normal distributions for numbers, and posteriors of states."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, shown
from ..inference.results.interval_numbers import checked_probabilities
from ..inference.results.marginals import Posterior
from ..inference.results.result import ByName, Columns, Result
from ..util.loops import loops
from .truncated import log_mass, normal_cdf, truncated_moments, truncated_quantiles

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from .case_results import NumberTable

    Floats = NDArray[np.float64]

_mixtures = loops("jtgpu.mixed.mixture_loops")
DEFAULT_QUANTILES = (0.05, 0.95)


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
        self, parts: Mapping[str, Posterior | int], numbers: NumberTable,
        bounds: Mapping[int, tuple[float, float]], log_evidence: float,
    ):  # fmt: skip
        # parts: of a number its column in `numbers`, and in `bounds` if the evidence is an interval
        self._parts, self._numbers, self._bounds, self.log_evidence = parts, numbers, bounds, log_evidence

    def __getitem__(self, name: str) -> Posterior | NumberPosterior:
        part = super().__getitem__(name)
        return self._numbers.case(part, 0, self._bounds.get(part)) if type(part) is int else part

    def _rows(self) -> Iterator[tuple[str, str | None, float | None, float | None, float | None]]:
        for v, p in self.items():
            if isinstance(p, NumberPosterior):
                yield v, None, None, p.mean, p.sd
            else:
                yield from ((v, s, x, None, None) for s, x in p.as_dict().items())

    def _columns(self) -> dict[str, Any]:
        rows = [*self._rows()]
        columns: dict[str, Any] = {"variable": [r[0] for r in rows], "state": [r[1] for r in rows]}
        for i, name in enumerate(("probability", "mean", "sd"), 2):
            values = np.array([np.nan if r[i] is None else r[i] for r in rows], np.float64)
            columns[name] = np.ma.masked_array(values, np.isnan(values))
        return columns

    def _title(self) -> str:
        return f"Posteriors of {len(self)} variables, log_evidence={self.log_evidence:.6g}"

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
