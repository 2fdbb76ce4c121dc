"""`Sensitivity`: derivatives of a probability with respect to every parameter of a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import ArgumentError, ImpossibleEvidence
from ...model.network import BayesianNetwork
from ...util.arguments import described, number, whole_number
from ...util.text_table import counted, quoted, record_repr
from .result import ByVariable, Columns, Result

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Bar", "Parameter", "Parameters", "Sensitivity"]

SHOWN = 10  # parameters that `print` shows
LARGEST = 1000  # log2 of derivatives that are numbers
FAINT = 2.0**-900  # a sum of parts some of which may be too small for a number
ROUNDING = 2.0**-46  # of a probability: changes that are not larger are none
NOISE = 1e-13  # a derivative relative to the terms that it is the difference of, below which it is rounding error


class Parameter(NamedTuple):
    """One entry of a CPT and its effect on the target."""

    variable: str  # of the CPT
    state: str  # of the variable
    given: tuple[tuple[str, str], ...]  # parents and their states
    value: float
    derivative: float  # d P(target | evidence) / d value, with the rest of its row in proportion
    entry: tuple[int, ...]  # index into the CPT

    def __repr__(self) -> str:  # a NamedTuple takes no assignment
        return record_repr(self)

    def __str__(self) -> str:
        given = ", ".join(f"{quoted(v)} = {quoted(s)}" for v, s in self.given)
        return f"P({quoted(self.variable)} = {quoted(self.state)}{' | ' if given else ''}{given})"


@dataclass(frozen=True)
class Bar:
    """One bar of a tornado diagram: the target's probability at both ends of a parameter's range.

    Attributes
    ----------
    parameter : Parameter
    low, high : float
        Ends of the parameter's range.
    at_low, at_high : float
        P(target | evidence) there, exactly; where the evidence is impossible, the limit, which is the present value.
    """

    parameter: Parameter
    low: float
    high: float
    at_low: float
    at_high: float

    __repr__ = record_repr

    @property
    def width(self) -> float:
        """Absolute difference of the two probabilities."""
        return abs(self.at_high - self.at_low)


class _CptRows:
    """All CPT rows of one width."""
    # places: (rows, width) ndarray of int64: Numbers of the parameters
    # others: (width, width) ndarray of float64: ``x @ others`` is, for each entry, the sum over the rest of its row,
    #     without cancellation
    # share: (rows, width) ndarray of float64: 1 / (sum over the rest of the row); 0 if that sum is faint
    # faint: tuple of two ndarrays: Rows and columns of the entries whose rest of the row is faint
    # proportions: (faint entries, width) ndarray of float64: Of the rest of their rows; equal ones where that is zero

    def __init__(self, theta: NDArray[np.float64], places: NDArray[np.int64]):
        self.places, self.width = places, places.shape[1]
        self.theta = theta[places]
        self.others = 1.0 - np.eye(self.width)
        rest = self.theta @ self.others
        self.share = np.divide(1.0, rest, out=np.zeros_like(rest), where=rest >= FAINT)
        self.faint = row, column = np.nonzero(rest < FAINT)
        larger, equal = np.ldexp(self.theta[row] * self.others[column], LARGEST), self.others[column]
        total = larger.sum(axis=1, keepdims=True)
        self.proportions = np.divide(larger, total, out=equal / max(self.width - 1, 1), where=total > 0)


class Parameters:
    """All parameters of a network, one CPT after the other.

    Parameters
    ----------
    factors : sequence of ndarray
        The CPTs, in the order of the variables.

    Attributes
    ----------
    shapes : list of tuple
        Shape of each CPT.
    first : (V + 1,) ndarray of int64
        Number of each CPT's first parameter.
    theta : (N,) ndarray of float64
        Values of the parameters.
    """

    def __init__(self, factors: Sequence[NDArray[np.float64]]):
        self.factors = factors
        sizes = [f.size for f in factors]
        self.shapes = [f.shape for f in factors]
        self.first = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self.theta = np.concatenate([f.ravel() for f in factors])
        widths = np.repeat([s[-1] for s in self.shapes], sizes)
        self._rows = [
            _CptRows(self.theta, np.flatnonzero(widths == w).reshape(-1, w)) for w in np.unique(widths).tolist()
        ]

    def proportional(self, partial: NDArray[np.float64]) -> NDArray[np.float64]:
        """Contribution of the rest of the row to each parameter's derivative, to be subtracted from the partial one.

        Parameters
        ----------
        partial : (N,) ndarray of float64
            Partial derivatives, each with all other parameters fixed.
        """
        lost = np.empty(len(partial))
        for rows in self._rows:
            mine = partial[rows.places]
            if rows.width == 1:  # always 1: the total derivative is 0
                lost[rows.places] = mine
                continue
            change = (rows.theta * mine) @ rows.others
            change *= rows.share
            change[rows.faint] = (mine[rows.faint[0]] * rows.proportions).sum(axis=1)
            lost[rows.places] = change
        return lost


class Sensitivity(Result, ByVariable["NDArray[np.float64]"]):
    """Derivatives of P(target | evidence): a mapping from variable name to an array in the shape of its CPT.

    Each entry is d P(target | evidence) / d theta, where the rest of theta's row keeps its proportions; inf or -inf
    above 1e280. The data frame has a row for each parameter whose derivative is not 0, the largest first:
    ``parameter``, ``variable``, ``state``, ``value`` and ``derivative``.

    Attributes
    ----------
    target : tuple of (str, str)
        The variable and its state.
    probability : float
        P(target | evidence).
    log_evidence : float
        ln P(evidence).

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> s = tree.sensitivity(("lung", "yes"), {"xray": "yes"})
    >>> s["smoke"].round(3).tolist()
    [0.433, -0.433]
    """

    _picture = "tornado"
    _model: BayesianNetwork
    _targets = None

    def __init__(
        self,
        model: BayesianNetwork,
        target: tuple[str, str],
        probability: float,
        log_evidence: float,
        exact: tuple[tuple[NDArray[np.float64], NDArray[np.int64]], ...],
        parameters: Parameters,
    ):
        self._model, self._labels, self._parameters = model, model.labels, parameters
        self.target, self.probability, self.log_evidence = target, probability, log_evidence
        # derivatives of P(target, evidence) and of P(evidence), both divided by P(evidence): mantissas and exponents
        self._exact = exact
        # both by one power of two where one is too large for a number: their quotient stays
        self._over = np.maximum(np.maximum(exact[0][1], exact[1][1]) - LARGEST, 0)
        self._partial = partial = tuple(np.ldexp(cells, exponents - self._over) for cells, exponents in exact)
        self._lost = lost = tuple(parameters.proportional(p) for p in partial)
        slopes = tuple(p - q for p, q in zip(partial, lost, strict=True))
        flat = slopes[0] - probability * slopes[1]
        # rounding errors are set to zero, so that they do not appear in the list of the largest derivatives
        scale = partial[0] + lost[0] + probability * (partial[1] + lost[1])
        flat[np.abs(flat) <= NOISE * scale] = 0.0
        beyond = (np.maximum(*map(np.abs, slopes)) >= 2.0 ** (LARGEST - 40)) & (flat != 0)
        flat[beyond] = np.copysign(np.inf, flat[beyond])
        flat.flags.writeable = False
        self._flat = flat

    # Arrays in the shape of a CPT -------------------------------------------------------------------------------

    def _shaped(self, flat: NDArray[np.float64], variable: str | int) -> NDArray[np.float64]:
        v = self._model.index(variable)
        values = flat[self._parameters.first[v] : self._parameters.first[v + 1]].reshape(self._parameters.shapes[v])
        values.flags.writeable = False
        return values

    def _part(self, v: int) -> NDArray[np.float64]:
        return self._shaped(self._flat, v)

    def partial(self, variable: str | int) -> NDArray[np.float64]:
        """Partial derivatives d P(target | evidence) / d theta: all other entries are fixed; rows need not sum to 1."""
        joint, evidence = self._partial
        return self._shaped(joint - self.probability * evidence, variable)

    def strengths(self, variable: str | int) -> NDArray[np.float64]:
        """d P(target | evidence) / d theta for the strengths of a noisy node, as ``net.noisy[v].rows``.

        The rest of a row keeps its proportions.

        Raises
        ------
        ArgumentError
            If the variable is no noisy node.
        """
        name = self._model.variables[self._model.index(variable)]
        if name not in self._model.noisy:
            raise ArgumentError(f"{name!r} has no strengths: its CPT was given as a table")
        noisy, partial = self._model.noisy[name], self.partial(variable)
        step, n = -1 if noisy.least else 1, partial.ndim - 1
        slopes, k = partial[..., ::step], noisy.shape[-1]
        weaker = [w.reshape([*(len(w) if q == p else 1 for q in range(n)), k]) for p, w in enumerate(noisy.weaker)]
        rows = []
        for p, effects in enumerate(noisy.ascending):
            others = math.prod((w for q, w in enumerate(weaker) if q != p), start=np.ones(()))
            axes = tuple(q for q in range(n) if q != p)
            up, down = (slopes * others).sum(axis=axes), (slopes[..., 1:] * others[..., :-1]).sum(axis=axes)
            terms = np.reshape(up, effects.shape)
            terms[:, :-1] -= np.reshape(down, (len(effects), k - 1))
            own = np.cumsum(terms[:, ::-1], axis=1)[:, ::-1]  # a more probable effect s makes all of s and above so
            whole = (effects * own).sum(axis=1, keepdims=True) - effects * own
            rest = 1 - effects
            others_alike = (own.sum(axis=1, keepdims=True) - own) / max(k - 1, 1)  # a row without any other entry
            rows.append((own - np.where(rest > 0, whole / np.where(rest > 0, rest, 1.0), others_alike))[:, ::step])
        return np.concatenate(rows)

    def log(self, variable: str | int) -> NDArray[np.float64]:
        """d ln P(target | evidence) / d theta, where the rest of the row keeps its proportions.

        Raises
        ------
        ImpossibleEvidence
            If P(target | evidence) is 0.
        """
        if not self.probability > 0:
            raise ImpossibleEvidence(f"{self.target[0]} = {self.target[1]!r} has probability 0: it has no logarithm")
        return self._shaped(self._flat / self.probability, variable)

    # The posterior as a function of one parameter ---------------------------------------------------------------

    def at(self, variable: str | int, index: tuple[int, ...], value: float) -> float:
        """Compute P(target | evidence) for another value of one parameter, exactly.

        Parameters
        ----------
        variable : str or int
        index : tuple of int
            Index of the parameter in the variable's CPT.
        value : float
            The new value, 0 to 1; the rest of the row keeps its proportions.

        Returns
        -------
        float

        Raises
        ------
        ImpossibleEvidence
            If the evidence is impossible with this value.
        """
        if not number("value", value, least=0) <= 1.0:
            raise ArgumentError(f"value must be a probability, 0 to 1, not {described(value)}")
        v = self._model.index(variable)
        shape = self._parameters.shapes[v]
        try:
            place = int(self._parameters.first[v]) + int(np.ravel_multi_index(index, shape))
        except (TypeError, ValueError):
            raise ArgumentError(
                f"index must be a tuple of {len(shape)} integers within the shape {shape} of the table of "
                f"{self._model.variables[v]!r}, not {described(index)}"
            ) from None
        result = self._at(place, value)
        if result is None:
            raise ImpossibleEvidence(f"the evidence has probability 0 if {self._parameter(place)} is {value:g}")
        return result

    def _at(self, place: int, value: float) -> float | None:
        """P(target | evidence) at another value of one parameter, at any magnitude; None if nothing is left."""
        v = int(np.searchsorted(self._parameters.first, place, side="right")) - 1
        first, width = int(self._parameters.first[v]), self._parameters.shapes[v][-1]
        at = slice(first, int(self._parameters.first[v + 1]))
        theta = self._parameters.theta[at].reshape(-1, width)
        cells, powers = np.frexp(theta)
        row, column = divmod(place - first, width)
        others = np.arange(width) != column
        if width > 1:
            rest, power_of_rest = np.frexp(theta[row, others].sum())
            share = cells[row, others] / rest if rest else 1 / (width - 1)
            cells[row, others] = share * (1.0 - value)
            powers[row, others] -= power_of_rest
            cells[row, column], powers[row, column] = np.frexp(value)
        sums = []
        for mine, exponents in self._exact:
            terms, power = cells.ravel() * mine[at], powers.ravel() + exponents[at]
            top = int(power.max(where=terms > 0, initial=-(1 << 30)))
            sums.append((float(np.ldexp(terms, np.where(terms > 0, power - top, 0)).sum()), top))
        (joint, joint_power), (evidence, power_of_evidence) = sums
        if not evidence > 0:
            return None
        return min(float(np.ldexp(joint / evidence, joint_power - power_of_evidence)), 1.0) if joint > 0 else 0.0

    def _moved(self, values: Any) -> list[NDArray[np.float64]]:
        """P(target, evidence) and P(evidence), both over the present P(evidence), with other values of parameters."""
        parts = zip(self._elsewhere, self._partial, self._lost, strict=True)
        return [other + values * mine + (1.0 - values) * rest for other, mine, rest in parts]  # nothing cancels

    @cached_property
    def _elsewhere(self) -> list[NDArray[np.float64]]:
        """The parts of P(target, evidence) and P(evidence) in which the parents have another configuration."""
        parts = [np.empty(len(self._flat)) for _ in self._partial]
        for first, shape in zip(self._parameters.first.tolist(), self._parameters.shapes, strict=False):
            at = slice(first, first + math.prod(shape))
            for partial, other in zip(self._partial, parts, strict=True):
                row = (self._parameters.theta[at] * partial[at]).reshape(-1, shape[-1]).sum(axis=1)
                before, after = np.cumsum(row), np.cumsum(row[::-1])[::-1]
                before[1:], before[0] = before[:-1].copy(), 0.0
                after[:-1], after[-1] = after[1:].copy(), 0.0
                other[at] = np.repeat(before + after, shape[-1])
        return parts

    def top(self, n: int = 10) -> list[Parameter]:
        """Return the n parameters with the largest absolute derivatives, without those of derivative 0."""
        return [self._parameter(i) for i in self._largest(np.abs(self._flat), whole_number("n", n, least=0))]

    def tornado(self, n: int = 10, spread: float = 0.1) -> list[Bar]:
        """Return the n parameters that change the target most, each from (1 - spread) to (1 + spread) times its value.

        Of a distribution over two states only the smaller parameter is listed: the other one is its complement.

        Parameters
        ----------
        n : int
        spread : float
            Relative half width of the ranges, which are clipped to 0 and 1.
        """
        n = whole_number("n", n, least=0)
        if not number("spread", spread, above=0) < np.inf:
            raise ArgumentError(f"spread must be finite, not {described(spread)}")
        low = np.maximum(self._parameters.theta * (1.0 - spread), 0.0)
        high = np.minimum(self._parameters.theta * (1.0 + spread), 1.0)
        ends = []
        for end in (low, high):
            joint, evidence = self._moved(end)
            ends.append(np.full(len(end), self.probability))  # where no evidence is left: constant up to there
            is_exact = (evidence > FAINT) & (not self._over.any())
            np.divide(joint, evidence, out=ends[-1], where=is_exact)
            for i in np.flatnonzero(~is_exact).tolist():
                at = self._at(i, float(end[i]))
                ends[-1][i] = self.probability if at is None else at
        moved = np.abs(ends[1] - ends[0])
        moved[self._complements() | (moved <= ROUNDING * np.maximum(*ends))] = 0.0
        return [
            Bar(self._parameter(i), float(low[i]), float(high[i]), *(float(np.clip(e[i], 0, 1)) for e in ends))
            for i in self._largest(moved, n)
        ]

    def _complements(self) -> NDArray[np.bool_]:
        """Which parameters are the larger one of two, or the second one of two that are equal."""
        larger = np.zeros(len(self._parameters.theta), bool)
        for first, shape in zip(self._parameters.first, self._parameters.shapes, strict=False):
            if shape[-1] == 2:
                at = slice(int(first), int(first) + math.prod(shape))
                theta = self._parameters.theta[at].reshape(-1, 2)
                is_second = theta[:, 0] <= theta[:, 1]
                larger[at] = np.column_stack([~is_second, is_second]).ravel()
        return larger

    def _parameter(self, place: int) -> Parameter:
        model = self._model
        first, theta = self._parameters.first, float(self._parameters.theta[place])
        v = int(np.searchsorted(first, place, side="right")) - 1
        index = tuple(int(i) for i in np.unravel_index(place - int(first[v]), self._parameters.shapes[v]))
        given = tuple((p, model.states(p)[i]) for p, i in zip(model.parents(v), index, strict=False))
        return Parameter(
            model.variables[v], model.states(v)[index[-1]], given, theta, float(self._flat[place]), index
        )  # fmt: skip

    def _largest(self, values: NDArray[np.float64], n: int) -> list[int]:
        """Numbers of the n parameters with the largest positive values; ties, up to rounding, by number."""
        n = min(n, len(values))
        if n < 1:
            return []
        mantissa, exponent = np.frexp(values)
        values = np.ldexp(np.round(mantissa, 11), exponent)
        smallest = np.partition(values, len(values) - n)[len(values) - n]
        enough = np.flatnonzero(values >= smallest)  # with all ties
        return [int(i) for i in enough[np.argsort(-values[enough], kind="stable")][:n] if values[i] > 0]

    def _columns(self) -> dict[str, object]:
        top = self.top(len(self._flat))
        return {
            "parameter": [*map(str, top)], "variable": [p.variable for p in top], "state": [p.state for p in top],
            "value": np.array([p.value for p in top], np.float64),
            "derivative": np.array([p.derivative for p in top], np.float64),
        }  # fmt: skip

    def _table(self) -> Columns:
        top = self.top(SHOWN)
        cells: list[Any] = [[*map(str, top)], [p.value for p in top], [p.derivative for p in top]]
        return Columns(["most influential parameters", "value", "derivative"], cells, 3)

    def _title(self) -> str:
        n = len(self._parameters.theta)
        return (
            f"Sensitivity of P({quoted(self.target[0])} = {quoted(self.target[1])}) = {self.probability:.6g} to "
            f"{counted(n, 'parameter')} of {counted(len(self), 'variable')}"
        )
