"""Entropy, mutual information and value of information where some variables are numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, EvidenceError, ImpossibleEvidence
from ..inference.queries.contributions import QUANTITIES, check_target, finding_text, log_odds, state_of
from ..inference.queries.information import BITS, Observation, information_of
from ..inference.queries.posteriors import as_list
from ..inference.results.contributions import Contributions, Explained, Sampling, attribute
from ..inference.results.rankings import Ranking, Scores
from ..util.arguments import check_keywords, choice
from ..util.text_table import record_repr
from .answers import AnsweredCases
from .components import HALF_LOG_2PI
from .evidence import MixedCases, read_case
from .results import ONE, Parts

if TYPE_CHECKING:
    from ..inference.evidence import Findings
    from ..util.arrays import Bools, Floats
    from ..util.options import Explained as Quantity

if TYPE_CHECKING:
    from ..inference.evidence import Findings
    from ..model.mixed import MixedNetwork
    from ..util.arrays import Floats
    from ..util.options import InformationUnit

    Mixture = tuple[Floats, Floats, Floats]  # weights, means, sds

OUTER = 1e-8  # absolute error of integrals over what a number may be
# Gauss-Kronrod rule of 15 points (QUADPACK): nodes and weights of the right half, and the weights of Gauss's 7 points
NODES = (
    0.991455371120812639206854697526329, 0.949107912342758524526189684047851, 0.864864423359769072789712788640926,
    0.741531185599394439863864773280788, 0.586087235467691130294144691693013, 0.405845151377397166906606412076961,
    0.207784955007898467600689403773245, 0.0,
)  # fmt: skip
KRONROD = (
    0.022935322010529224963732008058970, 0.063092092629978553290700663189204, 0.104790010322250183839876322541518,
    0.140653259715525918745189590510238, 0.169004726639267902826583426598550, 0.190350578064785409913256402421014,
    0.204432940075298892414161999234649, 0.209482141084727828012999174891714,
)  # fmt: skip
GAUSS = (
    0.0, 0.129484966168869693270611432679082, 0.0, 0.279705391489276667901467771423780, 0.0,
    0.381830050505118944950369775488975, 0.0, 0.417959183673469387755102040816327,
)  # fmt: skip
X = np.array([*(-x for x in NODES), *NODES[-2::-1]])
W = np.array([[*w, *w[-2::-1]] for w in (KRONROD, GAUSS)])

REACH = (-9.0, -5.0, -2.5, 0.0, 2.5, 5.0, 9.0)  # standard deviations from the mean of a part where panels begin
MOST_PARTS = 256
MOST_ROUNDS, MOST_PANELS = 60, 20_000
LEAST_WEIGHT = 1e-13  # of a part that counts


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

    def _answer(self, cases: MixedCases, names: Iterable[str]) -> AnsweredCases:
        names = [*names]
        numbers = tuple(
            dict.fromkeys([*(self.net.numbers.index(v) for v in names if self.net.is_number(v)), *cases.bounds])
        )
        answers: AnsweredCases = self.tree.answerer.answer(
            cases, [v for v in names if not self.net.is_number(v)], numbers
        )
        if answers.impossible.all():
            raise ImpossibleEvidence("the evidence has probability 0")
        return answers

    def _entropy(self, answers: AnsweredCases, row: int, name: str) -> float:
        if self.net.is_number(name):
            return entropy(self._parts(answers, row, name))
        p = answers.posteriors[name][row]
        return -float((p[p > 0] * np.log(p[p > 0])).sum())

    def _parts(self, answers: AnsweredCases, row: int, name: str) -> Parts:
        return answers.numbers.case(answers.numbers.names.index(name), row).parts

    def by_state(self, variable: str, others: list[str]) -> tuple[Floats, AnsweredCases]:
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

    def _given(self, g: int, x: Floats) -> tuple[Floats, AnsweredCases]:
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


def _entropy(tree: object, case: MixedCases, names: list[str], unit: str) -> float:
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


def integrate(f: Callable[[Floats], Floats], ends: Floats, tolerance: float) -> Floats:
    """Integrals of several functions, f(x) (m, n), over the panels between `ends`, which are halved where needed."""
    # raises ArgumentError: If the estimated error, of Kronrod's minus Gauss's rule, stays above the tolerance.
    low, high = ends[:-1], ends[1:]
    total: Floats | float = 0.0
    enough = tolerance / max(len(low), 64)
    for _ in range(MOST_ROUNDS):
        half = 0.5 * (high - low)
        x = (0.5 * (low + high))[:, None] + half[:, None] * X
        y = f(x.ravel()).reshape(-1, *x.shape)
        both = (y @ W.T) * half[:, None]  # (m, P, 2)
        error = np.abs(both[..., 0] - both[..., 1]).max(axis=0)
        done = (error <= enough) | (half <= 1e-14 * np.abs(low + high))
        total = total + both[:, done, 0].sum(axis=1)
        low, high, half = low[~done], high[~done], half[~done]
        if not len(low):
            return np.asarray(total)
        if len(low) > MOST_PANELS:
            break
        middle = low + half
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
    raise ArgumentError(f"an integral over the densities of numbers does not converge to {tolerance:g}")


def _distinct(parts: Parts) -> Mixture:
    """Weights, means and sds without parts that hardly count; equal ones are merged."""
    w, m, s = parts
    kept = w > LEAST_WEIGHT
    both, at = np.unique(np.stack([m[kept], s[kept]]), axis=1, return_inverse=True)
    if both.shape[1] > MOST_PARTS:
        raise ArgumentError(
            f"the density of a number is a mixture of {both.shape[1]:,} normal distributions; measures of information "
            f"take at most {MOST_PARTS}: observe some variables with states"
        )
    weights = np.bincount(at.ravel(), w[kept], both.shape[1])
    return weights / weights.sum(), both[0], both[1]


def panels(mixtures: Sequence[Mixture]) -> Floats:
    """Ends of panels that hold the mass of some mixtures, each part in several."""
    return np.unique(np.concatenate([(m[:, None] + s[:, None] * REACH).ravel() for _, m, s in mixtures]))


def log_densities(x: Floats, mixture: Mixture) -> Floats:
    """ln of the density of a mixture, (n,)."""
    w, m, s = mixture
    z = (x[:, None] - m) / s
    logs = np.log(w / s) - 0.5 * z * z
    top = logs.max(axis=1)
    return np.asarray(top + np.log(np.exp(logs - top[:, None]).sum(axis=1)) - HALF_LOG_2PI)


def entropy(parts: Parts, tolerance: float = 1e-10) -> float:
    """Differential entropy of a mixture in nats: in closed form of one normal distribution."""
    mixture = _distinct(parts)
    if len(mixture[0]) == 1:
        return 0.5 + HALF_LOG_2PI + math.log(mixture[2][0])

    def f(x: Floats) -> Floats:
        logs = log_densities(x, mixture)
        return -(np.exp(logs) * logs)[None]

    return float(integrate(f, panels([mixture]), tolerance)[0])


def divergence(p: Floats, groups: Sequence[Parts], tolerance: float = 1e-10) -> tuple[float, float]:
    """Mutual information of a number and the group it is from, in nats, and the expected largest P(group)."""
    # p: probabilities of the groups, in each of which the number is a mixture
    used = np.flatnonzero(p > 0)
    mixtures, log_p = [_distinct(groups[int(i)]) for i in used], np.log(p[used])
    if len(used) == 1:
        return 0.0, 1.0

    def f(x: Floats) -> Floats:
        each = np.stack([log_densities(x, m) for m in mixtures])
        joint = each + log_p[:, None]
        top = joint.max(axis=0)
        total = top + np.log(np.exp(joint - top).sum(axis=0))
        return np.stack([(np.exp(joint) * (each - total)).sum(axis=0), np.exp(top)])

    gain, best = integrate(f, panels(mixtures), tolerance)
    return max(0.0, float(gain)), min(1.0, float(best))


# Contributions of findings to a posterior of a mixed network.

MAX_EXACT = 10  # findings: each subset of the observed numbers has components of its own


def contributions(  # noqa: PLR0913
    self: Any, target: str | int | None = None, evidence: Findings | None = None, *,
    of: Quantity | None = None, state: str | int | None = None, likelihood: Findings | None = None,
    do: Findings | None = None, max_exact: int = MAX_EXACT, permutations: int = 100, seed: int = 0,
) -> Contributions:  # fmt: skip
    """Compute what each finding, on states and on numbers, contributes; see `jtgpu.JunctionTree.contributions`.

    Parameters
    ----------
    target, evidence, state, likelihood, do, max_exact, permutations, seed
        See `jtgpu.JunctionTree.contributions`. Findings on numbers are values.
    of : {"probability", "log-odds", "log-evidence", "mean"}, optional
        Of a target that is a number the only choices are its posterior ``"mean"`` and ``"log-evidence"``, where a
        density counts instead of a probability. Default: ``"mean"`` of a number, else ``"probability"``.

    Returns
    -------
    Contributions
    """
    net, sampling = self.network, Sampling.of(max_exact, permutations, seed)
    is_number = target is not None and net.is_number(net.variables[net.index(target)])
    of = of or ("mean" if is_number else "probability")
    t = check_target(net, of, target, ("mean", "log-evidence") if is_number else QUANTITIES, state)
    case = read_case(net, evidence, likelihood, do)
    if case.bounds:
        name = net.numbers[next(iter(case.bounds))]
        raise EvidenceError(f"contributions take values of numbers, and no interval as of {name!r}")
    own, names = net.discrete, {}
    vectors = {v: np.eye(len(own.states(v)))[s] for v, s in enumerate(case.states[0].tolist()) if s >= 0}
    for v in sorted({*vectors, *case.likelihood}):
        if own.variables[v] not in case.do:
            names[own.variables[v]] = finding_text(own, v, vectors.get(v, case.likelihood.get(v, [np.zeros(0)])[0]))
    numbers = [g for g in np.flatnonzero(~np.isnan(case.values[0])).tolist() if g not in case.cut]
    states = [own.index(v) for v in names]
    names |= {net.numbers[g]: f"{case.values[0, g]:.6g}" for g in numbers}
    if not names:
        raise EvidenceError("contributions require at least one finding")
    name = "" if t < 0 else net.variables[t]
    if name in names and (is_number or case.states[0, own.index(name)] >= 0):
        raise EvidenceError(f"the target {name!r} is observed; leave it out of the evidence")
    posterior = self.posteriors(evidence, likelihood=likelihood, do=do, targets=[name] if name else ())
    s = -1 if is_number or t < 0 else state_of(own, own.index(name), state, posterior[name].probabilities)
    explained = Explained(of, name or None, own.states(name)[s] if s >= 0 else None)

    def quantity(included: Bools) -> Floats:
        n = len(included)
        rows = replace(
            case, states=np.tile(case.states, (n, 1)), values=np.tile(case.values, (n, 1)),
            likelihood={v: np.tile(w, (n, 1)) for v, w in case.likelihood.items()},
        )  # fmt: skip
        for v, used in zip(states, included.T, strict=False):
            rows.states[~used, v] = -1
            if v in rows.likelihood:
                rows.likelihood[v][~used] = 1.0
        rows.values[:, numbers] = np.where(included[:, len(states) :], rows.values[:, numbers], np.nan)
        discrete, wanted = ([name] if s >= 0 else []), ((net.numbers.index(name),) if is_number else ())
        answers = self.answerer.answer(rows, discrete, wanted)
        if of == "log-evidence":
            values = answers.log_evidence
        elif is_number:
            values = answers.numbers.mean[:, 0]
        else:
            p = answers.posteriors[name]
            values = p[:, s] if of == "probability" else log_odds(p, s, np.full(p.shape, -np.inf), explained)
        return np.asarray(values)[None]

    return Contributions(explained, names, attribute(np.ones(len(names), np.bool_), quantity, sampling))
