"""Standard errors: the observed information of all parameters (Louis, JRSS B 44 (1982) 226).

The score of the rows is the expected score of the complete rows, which the sums of an E-step give. Its derivative has
two parts: that of the score of complete rows, which is known, and that of the sums, from differences between
neighbouring parameters. Sums change with a parameter only in rows that miss a part of its family: a family that is
complete in every row takes no pass.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...errors import ArgumentError
from ...util.arrays import Bools, Floats
from ...util.calls import outside
from .em import Family, Theta

STEP = 1e-5  # of a parameter in units of its complete-data scale
SINGULAR = 1e-6  # relative: information below this is rounding
MOST_PARAMETERS = 2000  # a pass over rows each
MOST_SCORES = 10_000  # an array of that many rows and columns
TOGETHER = 256  # cases whose scores are one product
MOST_DECREMENT = 0.25  # squared standard errors between the estimate and the peak


Tell = Callable[[str], None]


class GaussianErrors(NamedTuple):
    """Standard errors of a `jtgpu.Gaussian`, with its axes; infinite where the rows do not determine a parameter."""

    mean: Floats
    coefficients: dict[str, Floats]
    sd: Floats


class Curved(Family, Protocol):
    """A family whose parameters have standard errors; `unit` describes those of configuration k of the parents."""

    @property
    def prior(self) -> Floats:
        """Pseudo-counts that are added to the sums of the rows."""

    @property
    def cells(self) -> int:
        """Cells of the sums of a configuration."""

    def parameters(self, data: Floats, total: Floats, theta: Floats) -> Iterator[tuple[int, int, Any]]:
        """The configurations that the data say something about: k, the number of its parameters, and `unit`."""
        # data, total: sums of the rows, without and with the prior

    def score(self, total: Floats, theta: Floats, k: int, unit: Any) -> Floats:
        """Derivative of the objective by the parameters."""

    def curvature(self, total: Floats, theta: Floats, k: int, unit: Any) -> Floats:
        """Less the derivative of `score` where the sums stay the same, at a peak."""

    def covariance(self, total: Floats, theta: Floats, k: int, unit: Any) -> Floats | None:
        """Covariance of the parameters, of rows that are all complete; None: the inverse of `curvature` has it."""

    def moved(self, theta: Floats, k: int, unit: Any, i: int, step: float) -> Floats:
        """The parameters with one of them moved."""

    def unknown(self, theta: Floats) -> Any:
        """Infinite standard errors, 0 where there is nothing to estimate."""

    def enter(self, errors: Any, theta: Floats, k: int, unit: Any, covariance: Floats, gone: Bools) -> None:
        """Write standard errors; `gone`: parameters that the rows do not determine."""


class Passes(Protocol):
    """Passes over some of the rows."""

    def incomplete(self, members: tuple[int, ...], k: int) -> Any:
        """Rows that miss a part of the family of one of some variables, and may have its parents in configuration k."""
        # None: there are none

    def each(self, theta: Theta) -> Iterable[tuple[float, Theta]]:
        """The weight of each case, and its own sums."""

    def some(self, theta: Theta, members: tuple[int, ...], tables: Sequence[Floats], rows: Any) -> Iterable[Theta]:
        """The sums of these rows with each of some tables of a family."""


class _Block(NamedTuple):
    """The parameters of a family in one configuration of the parents."""

    number: int  # of the family
    k: int
    at: slice  # places among all parameters
    unit: Any


def standard_errors(
    families: Sequence[Curved], theta: Theta, sums: Theta, passes: Passes | None, *, scores: bool = False,
    tell: Tell = lambda _: None,
) -> dict[int, Any]:  # fmt: skip
    """Standard errors of the parameters of each variable that is estimated."""
    # sums: of all rows, under `theta`
    # passes: None where nothing is missing
    # scores: whether the information is that of outer products of the scores of cases
    # tell: gets how far it is
    data, own = _joined(families, sums), [theta[f.members[0]] for f in families]
    total = [s + f.prior for f, s in zip(families, data, strict=True)]
    errors = [f.unknown(x) for f, x in zip(families, own, strict=True)]
    blocks: list[_Block] = []
    for number, f in enumerate(families):
        for k, n, unit in f.parameters(data[number], total[number], own[number]):
            at = blocks[-1].at.stop if blocks else 0
            block = _Block(number, k, slice(at, at + n), unit)
            if n and passes is not None and (scores or passes.incomplete(f.members, k) is not None):
                blocks.append(block)
                continue
            given = total[number], own[number], k, unit
            exact = f.covariance(*given)
            known = _inverse(f.curvature(*given), f.score(*given)) if exact is None else (exact, np.zeros(n, np.bool_))
            f.enter(errors[number], *given[1:], *known)
    if not blocks or passes is None:
        return {v: e for f, e in zip(families, errors, strict=True) for v in f.members}
    start = _scores(families, total, own, blocks)
    make = _of_scores if scores else _of_differences
    information = make(families, theta, total, blocks, passes, tell)
    variance, gone = _inverse(0.5 * (information + information.T), start)
    for b in blocks:
        families[b.number].enter(errors[b.number], own[b.number], b.k, b.unit, variance[b.at, b.at], gone[b.at])
    return {v: e for f, e in zip(families, errors, strict=True) for v in f.members}


def _scores(families: Sequence[Curved], totals: Theta, own: Theta, blocks: Sequence[_Block]) -> Floats:
    """Derivatives of the objective by all parameters."""
    return np.concatenate([families[b.number].score(totals[b.number], own[b.number], b.k, b.unit) for b in blocks])


def _of_differences(
    families: Sequence[Curved], theta: Theta, total: Theta, blocks: Sequence[_Block], passes: Passes, tell: Tell
) -> Floats:
    """The observed information, by differences between neighbouring parameters."""
    own, n, begun = [theta[f.members[0]] for f in families], blocks[-1].at.stop, time.perf_counter()
    start, information = _scores(families, total, own, blocks), np.zeros((n, n))
    for b in blocks:
        f, rows = families[b.number], passes.incomplete(families[b.number].members, b.k)
        information[b.at, b.at] += f.curvature(total[b.number], own[b.number], b.k, b.unit)
        tables = [f.moved(own[b.number], b.k, b.unit, i, STEP) for i in range(b.at.stop - b.at.start)]
        before, *moved = (_joined(families, x) for x in passes.some(theta, f.members, [own[b.number], *tables], rows))
        for i, after in enumerate(moved):
            here = [t + (x - y) for t, x, y in zip(total, after, before, strict=True)]
            information[b.at.start + i] -= (_scores(families, here, own, blocks) - start) / STEP
        done = b.at.stop
        left = (time.perf_counter() - begun) / done * (n - done)
        if n > MOST_PARAMETERS:
            raise ArgumentError(
                f"standard errors of a fit with missing cells take a pass for each parameter, and this network has "
                f"{n:,}, more than {MOST_PARAMETERS:,}: about {left:,.0f} s; fit with standard_errors='scores', one "
                "pass, or missing='drop'"
            )
        tell(f"standard errors: parameter {done:,} of {n:,}, about {left:,.0f} s left")
    return information


def _of_scores(
    families: Sequence[Curved], theta: Theta, total: Theta, blocks: Sequence[_Block], passes: Passes, tell: Tell
) -> Floats:
    """Outer products of the scores of all cases, and the information of the prior, whose sums are complete."""
    own, n = [theta[f.members[0]] for f in families], blocks[-1].at.stop
    if n > MOST_SCORES:
        raise ArgumentError(f"standard errors from scores are those of {MOST_SCORES:,} parameters at most, not {n:,}")
    by_cell, information = [np.zeros((0, t.size)) for t in total], np.zeros((n, n))  # scores are linear in sums
    for b in blocks:
        f, sums = families[b.number], np.zeros(total[b.number].shape)
        information[b.at, b.at] = f.curvature(f.prior, own[b.number], b.k, b.unit)
        rows = np.zeros((b.at.stop - b.at.start, sums.size))
        for cell in range(b.k * f.cells, (b.k + 1) * f.cells):
            sums.flat[cell] = 1.0
            rows[:, cell] = f.score(sums, own[b.number], b.k, b.unit)
            sums.flat[cell] = 0.0
        by_cell[b.number] = np.concatenate([by_cell[b.number], rows])
    cases = iter(passes.each(theta))
    while some := [*islice(cases, TOGETHER)]:
        sums_of = zip(*(_joined(families, own_sums) for _, own_sums in some), strict=True)
        each = np.concatenate(
            [np.reshape(x, (len(some), -1)) @ a.T for x, a in zip(sums_of, by_cell, strict=True)], axis=1
        )
        information += (each * np.array([[weight] for weight, _ in some])).T @ each
    return information


def _joined(families: Sequence[Curved], sums: Theta) -> Theta:
    """The sums of each family, added over tied variables."""
    return [np.asarray(sum(sums[v] for v in f.members)) for f in families]


def _inverse(information: Floats, score: Floats) -> tuple[Floats, Bools]:
    """Covariance of the parameters, and which of them the rows do not determine.

    Away from a peak a warning: a fit is not lost because it has no errors.
    """
    diagonal = np.diagonal(information)
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(information / np.outer(size, size))
    known = values > SINGULAR
    along = vectors[:, known] / size[:, None]
    variance = (along / values[known]) @ along.T
    decrement = float(score @ variance @ score)
    if (values < -1e3 * SINGULAR).any() or decrement > MOST_DECREMENT:
        reason = (
            f"EM stopped {np.sqrt(max(decrement, 0.0)):.2g} standard errors from a peak of the objective, where "
            "parameters have none; fit with a smaller tolerance= and more iterations="
            if decrement > MOST_DECREMENT
            else "EM stopped where the objective has no peak, so parameters have no standard errors; fit from another "
            "start="
        )
        warnings.warn(f"standard errors are rough: {reason}", stacklevel=outside())
    return variance, (vectors[:, ~known] ** 2).sum(axis=1) > SINGULAR
