"""`Contributions` and `CaseContributions`: Shapley values of findings, and their arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...columns import Table
from ...errors import ArgumentError
from ...util import late_imports
from ...util.arguments import whole_number
from ...util.arrays import Bools, Floats, Ints
from ...util.text_table import counted
from .result import ByName, CaseResult, Result

if TYPE_CHECKING:
    from ...util.late_imports import Drawing

__all__ = ["CaseContributions", "Contributions"]

MAX_EXACT = 16  # findings, of whose subsets there are 65,536
MOST_EXACT = 24


class Explained(NamedTuple):
    """The quantity that is divided among the findings."""

    of: str
    target: str | None = None
    state: str | None = None  # None: of a number, or without a target

    def __str__(self) -> str:
        if self.target is None:
            return "ln P(findings)"
        if self.state is None:
            return f"mean of {self.target}"
        event = f"{self.target} = {self.state}"
        return f"log-odds of {event}" if self.of == "log-odds" else f"P({event})"


class Attribution(NamedTuple):
    """Shapley values of k findings in B cases."""

    base: Floats  # (B,) without findings
    total: Floats  # (B,) with all
    values: Floats  # (B, k)
    errors: Floats  # (B, k) standard errors
    own: Ints  # findings that are not surely 0
    subsets: Floats | None  # (B, 2^own) the quantity; bit i of a subset: whether it has finding own[i]. None: too many


class Sampling(NamedTuple):
    """How many findings have exact values, and from how many permutations others are estimated."""

    max_exact: int
    permutations: int
    seed: int

    @classmethod
    def of(cls, max_exact: int, permutations: int, seed: int) -> Sampling:
        """The checked numbers."""
        exact = whole_number("max_exact", max_exact, 0, MOST_EXACT)
        return cls(exact, whole_number("permutations", permutations, 2), whole_number("seed", seed, 0))


def attribute(relevant: Bools, quantity: Callable[[Bools], Floats], sampling: Sampling) -> Attribution:
    """Shapley values (Shapley, 1953) of k findings; of those that are not relevant 0."""
    # quantity: (R, k) which findings are in a subset -> (B, R)
    own = np.flatnonzero(relevant)
    n = len(own)

    def run(included: Bools) -> Floats:
        every = np.zeros((len(included), len(relevant)), np.bool_)
        every[:, own] = included
        return quantity(every)

    subsets: Floats | None = None
    if n <= sampling.max_exact:
        subsets = run((np.arange(1 << n)[:, None] >> np.arange(n) & 1).astype(np.bool_))
        base, total = subsets[:, 0], subsets[:, -1]
        weights = [1.0 / (n * math.comb(n - 1, s)) for s in range(n)]
        shapley = [(_weighted(_difference(subsets, i), weights), np.zeros(len(base))) for i in range(n)]
    else:
        base, total, shapley = _estimates(n, run, sampling)
    values, errors = np.zeros((2, len(base), len(relevant)))
    for i, (value, error) in zip(own, shapley, strict=True):
        values[:, i], errors[:, i] = value, error
    return Attribution(base, total, values, errors, own, subsets)


def _estimates(
    n: int, run: Callable[[Bools], Floats], sampling: Sampling
) -> tuple[Floats, Floats, list[tuple[Floats, Floats]]]:
    """Base and total, and means and standard errors over permutations and their reverses, each (B,)."""
    rng, m = np.random.default_rng(sampling.seed), sampling.permutations
    orders = rng.permuted(np.tile(np.arange(n), (m, 1)), axis=1)
    place = np.argsort(np.stack([orders, orders[:, ::-1]], axis=1), axis=-1)  # (m, 2, n) of each finding
    ends = np.repeat([[False], [True]], n, axis=1)
    inner = place[:, :, None, :] < np.arange(1, n)[:, None]
    values = run(np.concatenate([ends, inner.reshape(-1, n)]))
    path = np.empty((len(values), m, 2, n + 1))
    path[..., 0], path[..., -1] = values[:, :1, None], values[:, 1:2, None]
    path[..., 1:-1] = values[:, 2:].reshape(-1, m, 2, n - 1)
    steps = np.take_along_axis(np.diff(path, axis=-1), place[None], axis=-1).mean(axis=2)
    means, errors = steps.mean(axis=1), steps.std(axis=1, ddof=1) / math.sqrt(m)
    return values[:, 0], values[:, 1], [(means[:, i], errors[:, i]) for i in range(n)]


def _difference(subsets: Floats, i: int) -> Floats:
    """Differences that finding i makes to each subset of the others, (B, 2^(k - 1))."""
    parts = subsets.reshape(len(subsets), -1, 2, 1 << i)
    return np.asarray((parts[:, :, 1] - parts[:, :, 0]).reshape(len(subsets), -1))


def _weighted(differences: Floats, weights: Sequence[float]) -> Floats:
    """Their sum over subsets, weighted by size, (B,)."""
    size = np.array([0])
    for _ in range(len(weights) - 1):
        size = np.concatenate([size, size + 1])
    return np.asarray((differences * np.array(weights)[size]).sum(axis=1))


class Contributions(Result, ByName[float]):
    """Shapley values of findings: a mapping from the name of a variable to what its finding contributes.

    The data frame has the columns ``variable``, ``finding`` and ``contribution``, and ``error`` where the values are
    estimates; the largest contribution first.

    Attributes
    ----------
    explained : Explained
        The quantity; ``str(why.explained)`` is such as ``"P(lung = yes)"``.
    of, target, state : str
        Its parts, such as the ``"probability"`` of a state of the target.
    base, total : float
        The quantity without the findings, and with all of them: `base` plus the sum of the values is `total`.
    errors : dict of str to float
        Standard errors of the values; 0 where they are exact.
    error : float
        The largest standard error.
    pairs : dict of (str, str) to float
        Shapley interaction index of two findings (Grabisch and Roubens, 1999), by both orders of their names: positive
        if they strengthen each other. The interaction values of Lundberg et al. (2020) are half of it.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> why = tree.contributions("lung", {"xray": "yes", "smoke": "yes", "dysp": "no"})
    >>> print(why)
    P(lung = yes): 0.055 without findings, 0.433773 with them
    variable  finding  contribution
    xray      yes          0.405778
    dysp      no          -0.132405
    smoke     yes          0.105400
    """

    _picture = "waterfall"

    def __init__(self, explained: Explained, findings: Mapping[str, str], attribution: Attribution):
        self.explained, self._attribution, self._names = explained, attribution, [*findings]
        self.of, self.target, self.state = explained
        parts = zip(findings, attribution.values[0].tolist(), attribution.errors[0].tolist(), strict=True)
        ranked = sorted(parts, key=lambda part: -abs(part[1]))
        self._parts = {name: value for name, value, _ in ranked}
        self.errors = {name: error for name, _, error in ranked}
        self.findings = {name: findings[name] for name in self._parts}
        self.base, self.total = float(attribution.base[0]), float(attribution.total[0])
        self.error = max(self.errors.values(), default=0.0)

    @cached_property
    def pairs(self) -> dict[tuple[str, str], float]:
        """Interactions of two findings; raises `ArgumentError` where the values are estimates."""
        subsets, names = self._attribution.subsets, [self._names[i] for i in self._attribution.own]
        n, table = len(names), dict.fromkeys(permutations(self._names, 2), 0.0)
        if subsets is None:
            raise ArgumentError(
                f"interactions need all subsets of the {counted(n, 'finding')}; raise max_exact, or leave findings out"
            )
        weights = [1.0 / ((n - 1) * math.comb(n - 2, s)) for s in range(n - 1)]
        for j in range(n):
            with_j = _difference(subsets, j)
            for i in range(j):
                value = float(_weighted(_difference(with_j, i), weights)[0])
                table[names[i], names[j]] = table[names[j], names[i]] = value
        return table

    def draw(self) -> Drawing:
        """Draw the way from the base to the total as SVG, the largest contribution first."""
        return late_imports.waterfall(self)

    def _title(self) -> str:
        estimated = f"; estimates, largest standard error {self.error:.2g}" if self.error else ""
        return f"{self.explained}: {self.base:.6g} without findings, {self.total:.6g} with them{estimated}"

    def _columns(self) -> dict[str, object]:
        columns = {"variable": [*self], "finding": [*self.findings.values()], "contribution": [*self.values()]}
        return columns | ({"error": [*self.errors.values()]} if self.error else {})


class CaseContributions(CaseResult, ByName[Floats]):
    """Shapley values of the findings of B cases: a mapping from the name of a variable to a (B,) array.

    The value is 0 in cases that do not observe the variable. The data frame has the columns ``base``, one for each
    variable, and ``total``.

    Attributes
    ----------
    of, target, state : str
        The quantity, as for `Contributions`.
    base, total : (B,) ndarray of float64
        The quantity without findings and with those of the case; 0 where the case is impossible.
    errors : dict of str to (B,) ndarray of float64
        Standard errors of the values; 0 where they are exact.
    impossible : (B,) ndarray of bool
        Cases of probability zero.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> why = tree.contributions_batch({"xray": ["yes", "no"], "smoke": ["no", None]}, "lung")
    >>> why["xray"].round(3).tolist()
    [0.283, -0.054]
    """

    def __init__(self, explained: Explained, names: Sequence[str], n: int, impossible: Bools, cases: Table | None):
        self.explained, self._cases, self.impossible = explained, cases, impossible
        self.of, self.target, self.state = explained
        self._parts = {v: np.zeros(n) for v in names}
        self.errors = {v: np.zeros(n) for v in names}
        self.base, self.total = np.zeros(n), np.zeros(n)

    def _title(self) -> str:
        where = counted(len(self.base), "case")
        return f"Contributions of {counted(len(self), 'variable')} to {self.explained} in {where}"

    def _columns(self) -> dict[str, object]:
        return {"base": self.base, **self, "total": self.total}
