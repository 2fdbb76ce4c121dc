"""Entropy, mutual information and value of information where some variables are numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, EvidenceError, ImpossibleEvidence
from ..inference.queries.information import BITS, Observation, information_of
from ..inference.queries.posteriors import as_list
from ..inference.results.rankings import Ranking, Scores
from ..util.arguments import check_keywords, choice
from ..util.text_table import record_repr
from .answers import Answers
from .evidence import MixedCases, read_case
from .quadrature import divergence, entropy, integrate, panels
from .results import ONE, Parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..inference.evidence import Findings
    from ..model.mixed import MixedNetwork
    from ..util.options import InformationUnit

    Floats = NDArray[np.float64]

OUTER = 1e-8  # absolute error of integrals over what a number may be


@dataclass(frozen=True)
class NumberObservation:
    """Expected effect of observing a variable on a target that is a number.

    Attributes
    ----------
    variable : str
        The variable to observe.
    expected_entropy : float
        Expected differential entropy of the target after the observation, in nats or bits.
    gain : float
        Expected reduction of the entropy, which is the mutual information, in the same unit.
    expected_sd : float
        Root of the expected variance of the target after the observation, in its unit.
    """

    variable: str
    expected_entropy: float
    gain: float
    expected_sd: float

    __repr__ = record_repr


class Measures:
    """Measures of information about a target, given the evidence of one case."""

    def __init__(self, tree: Any, case: MixedCases, target: str):
        self.tree, self.net, self.case, self.target = tree, tree.network, case, target
        self._reject(target)
        self.is_number = self.net.is_number(target)
        if self.is_number and self.observed(target):
            raise ArgumentError(
                f"the number {target!r} is observed: it has no entropy, and nothing tells more about it"
            )
        prior = self._answer(case, [target])
        self._log_evidence = float(prior.log_evidence[0])
        self.entropy = self._entropy(prior, 0, target)
        self.sd = float(prior.numbers.sd[0, 0]) if self.is_number else 0.0

    def _reject(self, name: str) -> None:
        if self.net.is_number(name) and self.net.numbers.index(name) in self.case.bounds:
            raise EvidenceError(f"the number {name!r} is known to be in an interval: no measures of information of it")

    def observed(self, name: str) -> bool:
        """Whether the evidence or an intervention gives a variable."""
        if name in self.case.do:
            return True
        if self.net.is_number(name):
            return not math.isnan(self.case.values[0, self.net.numbers.index(name)])
        return bool(self.case.states[0, self.net.discrete.index(name)] >= 0)

    def _answer(self, cases: MixedCases, names: Iterable[str]) -> Answers:
        names = [*names]
        numbers = tuple(
            dict.fromkeys([*(self.net.numbers.index(v) for v in names if self.net.is_number(v)), *cases.bounds])
        )
        answers: Answers = self.tree.answerer.answer(cases, [v for v in names if not self.net.is_number(v)], numbers)
        if answers.impossible.all():
            raise ImpossibleEvidence("the evidence has probability 0")
        return answers

    def _entropy(self, answers: Answers, row: int, name: str) -> float:
        if self.net.is_number(name):
            return entropy(self._parts(answers, row, name))
        p = answers.posteriors[name][row]
        return -float((p[p > 0] * np.log(p[p > 0])).sum())

    def _parts(self, answers: Answers, row: int, name: str) -> Parts:
        return answers.numbers.case(answers.numbers.names.index(name), row).parts

    def by_state(self, variable: str, others: list[str]) -> tuple[Floats, Answers]:
        """P(state | evidence) of a variable, and the answers of others given each state."""
        v, card = self.net.discrete.index(variable), len(self.net.states(variable))
        states, values = np.tile(self.case.states, (card, 1)), np.tile(self.case.values, (card, 1))
        fixed = states[0, v] >= 0 or variable in self.case.do
        if not fixed:
            states[:, v] = np.arange(card)
        rows = replace(
            self.case, states=states[:1] if fixed else states, values=values[:1] if fixed else values,
            likelihood={u: np.tile(w, (1 if fixed else card, 1)) for u, w in self.case.likelihood.items()},
        )  # fmt: skip
        answers = self._answer(rows, others)
        logs = np.where(answers.impossible, -np.inf, answers.log_evidence)
        p = np.exp(logs - logs.max())
        return p / p.sum(), answers

    def of(self, variables: list[str]) -> dict[str, tuple[float, float]]:
        """Gain in nats, and expected probability of the best state, or sd, of the target, by variable."""
        if self.is_number:
            return {v: self._of_number(v) for v in variables}
        p, answers = self.by_state(self.target, variables)
        result = {}
        for v in variables:
            if self.observed(v) or len(p) == 1:
                result[v] = 0.0, float(p.max())
            elif self.net.is_number(v):
                groups = [self._parts(answers, i, v) if x > 0 else Parts(ONE, ONE, ONE) for i, x in enumerate(p)]
                result[v] = divergence(p, groups)
            else:
                result[v] = _divergence(p, answers.posteriors[v])
        return result

    def _of_number(self, variable: str) -> tuple[float, float]:
        if self.observed(variable):
            return 0.0, self.sd
        if not self.net.is_number(variable):
            p, answers = self.by_state(variable, [self.target])
            groups = [self._parts(answers, i, self.target) if x > 0 else Parts(ONE, ONE, ONE) for i, x in enumerate(p)]
            variance = p[p > 0] @ answers.numbers.sd[p > 0, 0] ** 2
            return divergence(p, groups)[0], math.sqrt(float(variance))
        self._reject(variable)
        numbers, g = self.tree.answerer.numbers, self.net.numbers.index(variable)
        target = self.net.numbers.index(self.target)
        seen = frozenset(np.flatnonzero(~np.isnan(self.case.values[0])).tolist())
        pattern = self.tree.answerer.pattern(seen, self.case.cut, tuple(sorted((g, target))))
        if not any(numbers.scope[v] for members in pattern.answers.values() for v in members):  # jointly normal
            sd = float(self._given(g, np.zeros(1))[1].numbers.sd[0, 0])
            return max(0.0, math.log(self.sd / sd)), sd

        def f(x: Floats) -> Floats:
            density, answers = self._given(g, x)
            after = np.array([self._entropy(answers, i, self.target) for i in range(len(x))])
            return density * np.stack([self.entropy - after, answers.numbers.sd[:, 0] ** 2 / self.sd**2])

        ends = panels([self._parts(self._answer(self.case, [variable]), 0, variable)])
        gain, variance = integrate(f, ends, OUTER)
        return max(0.0, float(gain)), self.sd * math.sqrt(min(float(variance), 1.0))

    def _given(self, g: int, x: Floats) -> tuple[Floats, Answers]:
        """Density of a number at some values given the evidence, and the answers of the target given each value."""
        n = len(x)
        values = np.tile(self.case.values, (n, 1))
        values[:, g] = x
        rows = replace(
            self.case, states=np.tile(self.case.states, (n, 1)), values=values,
            likelihood={u: np.tile(w, (n, 1)) for u, w in self.case.likelihood.items()},
        )  # fmt: skip
        answers = self._answer(rows, [self.target])
        return np.exp(answers.log_evidence - self._log_evidence), answers


@check_keywords()
class InformationQueries:
    """Measures of information of a compiled network with numbers."""

    _net: MixedNetwork

    def entropy(
        self, variables: str | Sequence[str], evidence: Findings | None = None, *, unit: InformationUnit = "nats",
        likelihood: Findings | None = None, do: Findings | None = None,
    ) -> float:  # fmt: skip
        """Compute the entropy of the posterior of one or two variables: differential entropy where they are numbers.

        In closed form where a density is normal; else by adaptive quadrature, of an estimated error below 1e-10 nats
        (1e-8 for two numbers).
        """
        case = read_case(self._net, evidence, likelihood, do)
        return _entropy(self, case, self._names(variables), unit)

    def mutual_information(
        self, target: str | int, others: str | Sequence[str | int] | None = None, evidence: Findings | None = None, *,
        unit: InformationUnit = "nats", likelihood: Findings | None = None, do: Findings | None = None,
    ) -> Scores:  # fmt: skip
        """Compute I(target; X | evidence) of other variables X, all by default; see `entropy` for errors."""
        case = read_case(self._net, evidence, likelihood, do)
        return _information(self, case, self._names(target)[0], None if others is None else self._names(others), unit)

    def value_of_information(
        self, target: str | int, candidates: str | Sequence[str | int] | None = None,
        evidence: Findings | None = None, *, unit: InformationUnit = "nats", likelihood: Findings | None = None,
        do: Findings | None = None,
    ) -> Ranking[Any]:  # fmt: skip
        """Rank variables by the expected information that observing them gives about a target.

        Returns
        -------
        list of Observation or NumberObservation
            For each candidate (default: all that are not observed), the expected entropy of the target after the
            observation, the gain, and the expected probability of its most probable state; of a target that is a
            number, the root of its expected variance (``expected_sd``). Best first; see `entropy` for errors.
        """
        case = read_case(self._net, evidence, likelihood, do)
        return _value(self, case, self._names(target)[0], None if candidates is None else self._names(candidates), unit)

    def _names(self, variables: Any) -> list[str]:
        return list(dict.fromkeys(self._net.variables[self._net.index(v)] for v in as_list(variables, "variables")))


def _divergence(p: Floats, rows: Floats) -> tuple[float, float]:
    """Mutual information of two variables with states, P(t) and P(x | t), and the expected largest P(t | x)."""
    return information_of(p, rows), float((p[:, None] * rows).max(axis=0).sum())


def _information(tree: Any, case: MixedCases, target: str, others: list[str] | None, unit: str) -> Scores:
    """I(target; X | evidence) of other variables X."""
    factor = BITS if choice("unit", unit, ("nats", "bits")) == "bits" else 1.0
    gains = Measures(tree, case, target).of(_others(tree, target, others))
    order = sorted(gains, key=lambda v: (-gains[v][0], tree.network.index(v)))
    return Scores({v: factor * gains[v][0] for v in order}, "mutual_information", unit)


def _value(tree: Any, case: MixedCases, target: str, candidates: list[str] | None, unit: str) -> Ranking[Any]:
    """Variables ranked by the expected information that observing them gives about a target."""
    factor = BITS if choice("unit", unit, ("nats", "bits")) == "bits" else 1.0
    measures = Measures(tree, case, target)
    names = _others(tree, target, candidates)
    if candidates is None:
        inside = {tree.network.numbers[g] for g in case.bounds}
        names = [v for v in names if not measures.observed(v) and v not in inside]
    kind: type[Any] = NumberObservation if measures.is_number else Observation
    ranked = [
        kind(v, factor * (measures.entropy - gain), factor * gain, after)
        for v, (gain, after) in measures.of(names).items()
    ]
    ranked.sort(key=lambda o: (-o.gain, tree.network.index(o.variable)))
    return Ranking(ranked, kind, f"Value of information about {target}, in {unit}, best first")


def _others(tree: Any, target: str, given: list[str] | None) -> list[str]:
    if given is None:
        return [v for v in tree.network if v != target]
    if target in given:
        raise EvidenceError(f"the target {target!r} must not be among the other variables")
    return given


def _entropy(tree: Any, case: MixedCases, names: list[str], unit: str) -> float:
    """Entropy of one or two variables."""
    factor = BITS if choice("unit", unit, ("nats", "bits")) == "bits" else 1.0
    if not 1 <= len(names) <= 2:
        raise ArgumentError(
            f"the entropy of a network with numbers is offered of one or two variables, not {len(names)}"
        )
    first, last = Measures(tree, case, names[0]), Measures(tree, case, names[-1])
    if len(names) == 1:
        return factor * first.entropy
    return factor * (first.entropy + last.entropy - first.of([names[1]])[names[1]][0])
