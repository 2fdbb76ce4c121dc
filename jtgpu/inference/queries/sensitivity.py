"""Sensitivity of a probability to every parameter of every CPT, from two passes over the tree.

P(e) is linear in each entry of a CPT; its coefficient is the product of all else, summed onto the entry's
configuration, which a sweep to the root and back gives for all entries at once (Darwiche, JACM 50, 2003). With the
same for P(t, e), the posterior P(t | e) of a state as a function of one parameter is a quotient of two linear functions
(Castillo, Gutierrez, Hadi, Networks 28, 1996), known exactly, not only its slope. Nothing is divided by a parameter, so
parameters of zero have their derivative too.

A parameter does not change alone: its row sums to 1. The others of the row keep their proportions (they are multiplied
by (1 - x) / (1 - theta); Chan and Darwiche, When do numbers really matter?, JAIR 17, 2002); those of a row whose other
entries are all zero get equal shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...backends.base import Evidence
from ...errors import EvidenceError, ImpossibleEvidence, NetworkError
from ...model.network import BayesianNetwork
from .messages import messages_of, named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...backends.forest import Derivatives, Forest
    from ..compiled import CompiledModel
    from ..interventions import Settled

__all__ = ["Bar", "Parameter", "Sensitivity", "sensitivity"]


IMPOSSIBLE = 1e-12  # P(evidence) beside what it was, from which on nothing but rounding is left of it
NOISE = 1e-13  # of a derivative beside the two that it is the difference of


class Parameter(NamedTuple):
    """One entry of a CPT and what it does to the target."""

    variable: str  # whose CPT it is
    state: str  # of the variable
    given: tuple[tuple[str, str], ...]  # parents and their states
    value: float
    derivative: float  # d P(target | evidence) / d value, the rest of its row in proportion
    entry: tuple[int, ...]  # its place in the CPT

    def __str__(self) -> str:
        given = ", ".join(f"{v} = {s}" for v, s in self.given)
        return f"P({self.variable} = {self.state}{' | ' if given else ''}{given})"


@dataclass(frozen=True)
class Bar:
    """One bar of a tornado diagram: the target's probability as one parameter goes from end to end of a range.

    Attributes
    ----------
    parameter : Parameter
    low, high : float
        Ends of the parameter's range.
    at_low, at_high : float
        P(target | evidence) there, exactly; NaN where the evidence is impossible then.
    """

    parameter: Parameter
    low: float
    high: float
    at_low: float
    at_high: float

    @property
    def width(self) -> float:
        """How far the probability moves."""
        return abs(self.at_high - self.at_low)


class _Rows:
    """The rows of one width of all CPTs side by side."""

    def __init__(self, theta: NDArray[np.float64], places: NDArray[np.int64]):
        self.places, self.width = places, places.shape[1]  # (rows, width) numbers of the parameters
        self.theta = theta[places]
        self.others = 1.0 - np.eye(self.width)  # sums over the rest of a row, without taking anything off its sum
        rest = self.theta @ self.others
        self.alone = np.nonzero(rest <= 0)  # where the rest has no proportions to keep
        self.share = np.divide(1.0, rest, out=np.zeros_like(rest), where=rest > 0)


class _Parameters:
    """All parameters of a network, CPT after CPT."""

    def __init__(self, factors: Sequence[NDArray[np.float64]]):
        sizes = [f.size for f in factors]
        self.shapes = [f.shape for f in factors]
        self.first = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self.theta = np.concatenate([f.ravel() for f in factors])
        widths = np.repeat([s[-1] for s in self.shapes], sizes)
        self.rows = [
            _Rows(self.theta, np.flatnonzero(widths == w).reshape(-1, w)) for w in np.unique(widths).tolist()
        ]


class Sensitivity(Mapping[str, "NDArray[np.float64]"]):
    """Derivatives of P(target | evidence): a mapping from a variable's name to an array of its CPT's shape.

    Each is d P(target | evidence) / d theta where theta changes and the rest of its row keeps its proportions.

    Attributes
    ----------
    target : tuple of (str, str)
        The variable and its state.
    probability : float
        P(target | evidence) as it is.
    log_evidence : float
        ln P(evidence).
    """

    def __init__(
        self,
        model: BayesianNetwork,
        target: tuple[str, str],
        probability: float,
        log_evidence: float,
        parts: tuple[NDArray[np.float64], NDArray[np.float64]],
        parameters: _Parameters,
    ):
        self._model, self._parameters = model, parameters
        self.target, self.probability, self.log_evidence = target, probability, log_evidence
        # of P(target, e) and of P(e), over P(e)
        self._partial = parts
        ways = tuple(self._way(p) for p in parts)
        self._slopes = tuple(p - w for p, w in zip(parts, ways, strict=True))
        flat = self._slopes[0] - probability * self._slopes[1]
        # what is zero but for rounding is zero: a list of the largest shall not end in noise
        scale = parts[0] + ways[0] + probability * (parts[1] + ways[1])
        flat[np.abs(flat) <= NOISE * scale] = 0.0
        flat.flags.writeable = False
        self._flat = flat

    def _way(self, partial: NDArray[np.float64]) -> NDArray[np.float64]:
        """What is lost for each entry as the rest of its row makes way."""
        way = np.empty(len(partial))
        for rows in self._parameters.rows:
            mine = partial[rows.places]
            if rows.width == 1:  # always 1: the slope is 0
                way[rows.places] = mine
                continue
            lost = (rows.theta * mine) @ rows.others
            lost *= rows.share
            if len(rows.alone[0]):
                lost[rows.alone] = (mine[rows.alone[0]] * rows.others[rows.alone[1]]).sum(axis=1) / (rows.width - 1)
            way[rows.places] = lost
        return way

    # Arrays of the CPTs' shapes ---------------------------------------------------------------------------------

    def _of(self, flat: NDArray[np.float64], variable: str | int) -> NDArray[np.float64]:
        v = self._model.index(variable)
        found = flat[self._parameters.first[v] : self._parameters.first[v + 1]].reshape(self._parameters.shapes[v])
        found.flags.writeable = False
        return found

    def __getitem__(self, variable: str | int) -> NDArray[np.float64]:
        return self._of(self._flat, variable)

    def __iter__(self) -> Iterator[str]:
        return iter(self._model.variables)

    def __len__(self) -> int:
        return len(self._model)

    def partial(self, variable: str | int) -> NDArray[np.float64]:
        """d P(target | evidence) / d theta where nothing else changes, so that rows no longer sum to 1."""
        joint, evidence = self._partial
        return self._of(joint - self.probability * evidence, variable)

    def log(self, variable: str | int) -> NDArray[np.float64]:
        """d ln P(target | evidence) / d theta, the row in proportion.

        Raises
        ------
        ImpossibleEvidence
            Where P(target | evidence) is 0.
        """
        if not self.probability > 0:
            raise ImpossibleEvidence(f"{self.target[0]} = {self.target[1]!r} has probability 0 and no logarithm")
        return self._of(self._flat / self.probability, variable)

    def at(self, variable: str | int, index: tuple[int, ...], value: float) -> float:
        """P(target | evidence) with another value of one parameter, exactly; NaN where the evidence becomes impossible.

        Parameters
        ----------
        variable : str or int
        index : tuple of int
            The entry of the CPT.
        value : float
            From 0 to 1.
        """
        v = self._model.index(variable)
        place = int(self._parameters.first[v]) + int(np.ravel_multi_index(index, self._parameters.shapes[v]))
        return self._value(place, value)

    def _value(self, place: int, value: float) -> float:
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"a parameter is a probability, not {value!r}")
        step = value - float(self._parameters.theta[place])
        joint, evidence = (float(s[place]) for s in self._slopes)
        below = 1.0 + step * evidence  # P(e) over what it is now
        return min(max((self.probability + step * joint) / below, 0.0), 1.0) if below > IMPOSSIBLE else float("nan")

    # Lists ------------------------------------------------------------------------------------------------------

    def _parameter(self, place: int) -> Parameter:
        model = self._model
        first, theta = self._parameters.first, float(self._parameters.theta[place])
        v = int(np.searchsorted(first, place, side="right")) - 1
        index = tuple(int(i) for i in np.unravel_index(place - int(first[v]), self._parameters.shapes[v]))
        parents = model.parents(v)
        given = tuple((p, model.states(p)[i]) for p, i in zip(parents, index, strict=False))
        return Parameter(
            model.variables[v], model.states(v)[index[-1]], given, theta, float(self._flat[place]), index
        )  # fmt: skip

    def _ordered(self, by: NDArray[np.float64], n: int) -> list[int]:
        """The places of the n largest, ties (but for rounding) by place."""
        n = min(n, len(by))
        if n < 1:
            return []
        mantissa, exponent = np.frexp(by)
        by = np.ldexp(np.round(mantissa, 11), exponent)
        edge = np.partition(by, len(by) - n)[len(by) - n]
        enough = np.flatnonzero(by >= edge)  # ties included: which of them come first is decided by place
        return [int(i) for i in enough[np.argsort(-by[enough], kind="stable")][:n] if by[i] > 0]

    def top(self, n: int = 10) -> list[Parameter]:
        """The n parameters of the largest derivatives, whatever their sign; none of derivative 0."""
        return [self._parameter(i) for i in self._ordered(np.abs(self._flat), n)]

    def tornado(self, n: int = 10, spread: float = 0.1) -> list[Bar]:
        """The n parameters that move the target most, each from (1 - spread) to (1 + spread) times its value.

        Parameters
        ----------
        n : int
        spread : float
            Relative half width of the ranges, which end at 0 and 1.
        """
        if not spread > 0:
            raise ValueError(f"spread is a relative width above 0, not {spread!r}")
        low = np.maximum(self._parameters.theta * (1.0 - spread), 0.0)
        high = np.minimum(self._parameters.theta * (1.0 + spread), 1.0)
        joint, evidence = self._slopes
        ends = []
        with np.errstate(divide="ignore", invalid="ignore"):
            for end in (low, high):
                step = end - self._parameters.theta
                below = 1.0 + step * evidence
                ends.append(np.where(below > IMPOSSIBLE, (self.probability + step * joint) / below, np.nan))
        moved = np.nan_to_num(np.abs(ends[1] - ends[0]))
        return [
            Bar(self._parameter(i), float(low[i]), float(high[i]), *(float(np.clip(e[i], 0, 1)) for e in ends))
            for i in self._ordered(moved, n)
        ]

    def __repr__(self) -> str:
        n = len(self._parameters.theta)
        return (
            f"Sensitivity of P({self.target[0]} = {self.target[1]}) = {self.probability:.6g} to {n:,} parameters of "
            f"{len(self)} variables"
        )


def sensitivity(tree: CompiledModel, target: tuple[Any, Any], settled: Settled) -> Sensitivity:
    """See `jtgpu.JunctionTree.sensitivity`."""
    model = tree.model
    if not isinstance(model, BayesianNetwork):
        raise NetworkError("sensitivity needs a Bayesian network: factors of others have no rows that sum to 1")
    pair: Any = target
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise EvidenceError(f"the target of a sensitivity is a pair (variable, state), not {target!r}")
    v = model.index(target[0])
    name, state = model.variables[v], model.state_index(v, target[1])
    case = settled.case
    if case.state[v] >= 0:
        raise EvidenceError(f"the target {name!r} is observed: no parameter changes its probability")
    messages = messages_of(tree, settled.factors)
    sweep = messages.derivative()
    parameters = messages.parameters = messages.parameters or _Parameters(settled.factors)

    def derivatives() -> Derivatives:
        found = sweep.derivatives(case)
        if not (found.root > 0).all():
            raise ImpossibleEvidence("the evidence has probability 0")
        return found

    by_evidence = named(tree, case, derivatives)
    log_root = np.log(by_evidence.root) + by_evidence.root_exponent * np.log(2.0)
    weights = np.zeros(int(model.cardinality[v]))
    weights[state] = case.likelihood[v][state] if v in case.likelihood else 1.0
    forest = sweep.forest
    mine = np.array(forest.factor_root) == forest.factor_root[v]
    if weights.any():
        joint_case = Evidence(case.state, {**case.likelihood, v: weights})
        joint = sweep.derivatives(joint_case)
    else:  # a likelihood of zero
        joint = None
    size = np.diff(parameters.first)
    over_evidence = _over(by_evidence, by_evidence, size, forest)
    probability, over_joint = 0.0, np.zeros(len(over_evidence))
    if joint is not None:
        c = forest.factor_root[v]
        shift = joint.log_scale - by_evidence.log_scale
        ratio = joint.root[c] / by_evidence.root[c]
        probability = float(
            np.ldexp(ratio * np.exp(shift), int(joint.root_exponent[c] - by_evidence.root_exponent[c]))
        )
        over_joint = _over(joint, by_evidence, size, forest) * np.exp(shift)
    # factors of other components than the target's change the probability of the evidence alone
    others = np.repeat(~mine, size)
    over_joint[others] = probability * over_evidence[others]
    log_evidence = float(log_root.sum()) + by_evidence.log_scale + settled.log_shift
    return Sensitivity(
        model, (name, model.states(v)[state]), min(probability, 1.0), log_evidence, (over_joint, over_evidence),
        parameters,
    )  # fmt: skip


def _over(found: Derivatives, whole: Derivatives, size: NDArray[np.int64], forest: Forest) -> NDArray[np.float64]:
    """Derivatives over the P(e) of each factor's component."""
    root = np.array(forest.factor_root)
    exponent = found.exponent - whole.root_exponent[root]
    return np.asarray(np.ldexp(found.cells / np.repeat(whole.root[root], size), np.repeat(exponent, size)))
