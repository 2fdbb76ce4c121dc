"""Posteriors of numbers as plain data, and those of cases of networks that have some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np

from ..errors import ImpossibleEvidence
from ..inference.queries.posteriors import as_list
from ..mixed.evidence import read_case
from ..mixed.results import MixedPosteriors, NumberPosterior
from ..mixed.tree import MixedTree
from .registry import Case, Distribution, Form, answer_each, check_size, distribution

TAIL = 1e-4  # probability on either side that a density leaves out
AROUND = np.linspace(-4.0, 4.0, 13)  # standard deviations from the mean of a part at which a density has a value, too
QUANTILES = (0.05, 0.5, 0.95)


class Density(TypedDict):
    """A probability density at ascending values."""

    x: list[float]
    y: list[float]


class Number(TypedDict):
    """The posterior of a number: a mixture of normal distributions; an observed one has sd 0 and no density."""

    mean: float
    sd: float
    quantiles: list[float]
    density: NotRequired[Density]


class Result(TypedDict):
    """Posteriors of one of many cases, or why there are none: a problem as of a response that is not 2xx."""

    log_evidence: NotRequired[float]
    posteriors: NotRequired[dict[str, Distribution]]
    numbers: NotRequired[dict[str, Number]]
    error: NotRequired[dict[str, Any]]


class MixedAnswers:
    """Answers cases of a network with numbers: posteriors of some variables, with quantiles and densities."""

    def __init__(self, tree: MixedTree, targets: Any, quantiles: Sequence[float], points: int, form: Form):
        self._tree, self._net, self._form = tree, tree.network, form
        self._quantiles, self._points = quantiles, points
        net = self._net
        given = net.variables if targets is None else as_list(targets, "targets")
        self._names = [net.variables[net.index(v)] for v in given]

    def check(self, cases: int) -> None:
        """Raise `TableTooLarge` if the answers would have too many numbers."""
        of_number = 2 + len(self._quantiles) + 4 * self._points
        each = sum(len(self._net.states(v)) or of_number for v in self._names)
        check_size(cases * each, f"{cases:,} cases of {len(self._names):,} variables")

    def one(self, case: Case) -> Result:
        """The answer of a case by itself."""
        return self._result(self._tree.posteriors(**case.known(self._tree), targets=self._names))

    def many(self, cases: Sequence[Case], codes: Any) -> list[Result]:
        """The answers of many: those without intervals, sets, likelihoods and interventions in one call."""
        net = self._net

        def read(case: Case) -> dict[str, Any] | None:
            known = case.known(self._tree)
            given = known.pop("evidence")
            sets = any(isinstance(x, frozenset) for x in given.values())
            if known or sets or read_case(net, given, None, None).bounds:
                return None
            return {net.variables[net.index(v)]: x for v, x in given.items()}

        def together(given: list[dict[str, Any]]) -> Iterator[Result | ImpossibleEvidence]:
            rows = [{net.variables[0]: None, **case} for case in given]
            answer = self._tree.posteriors_batch(rows, targets=self._names, on_error="flag")
            for row in range(len(rows)):
                if answer.impossible[row]:
                    yield ImpossibleEvidence("the evidence of this case has probability 0")
                    continue
                own = {v: answer[v].case(row) if net.is_number(v) else answer[v][row] for v in self._names}
                yield self._result(own) | {"log_evidence": float(answer.log_evidence[row])}

        return answer_each(cases, net, codes, read, self.one, together)

    def _result(self, posteriors: Mapping[str, Any]) -> Result:
        result: Result = {"posteriors": {}, "numbers": {}}
        if isinstance(posteriors, MixedPosteriors):
            result["log_evidence"] = posteriors.log_evidence
        for v, p in posteriors.items():
            if isinstance(p, NumberPosterior):
                result["numbers"][v] = number_reply(p, self._quantiles, self._points)
            else:
                result["posteriors"][v] = distribution(self._net.discrete, v, p, self._form)
        return result


def number_reply(posterior: NumberPosterior, quantiles: Sequence[float], points: int) -> Number:
    """The posterior of a number as plain data."""
    reply: Number = {"mean": posterior.mean, "sd": posterior.sd, "quantiles": []}
    if len(quantiles):
        reply["quantiles"] = posterior.quantiles([*quantiles]).tolist()
    if points and posterior.sd > 0:
        low, high = posterior.quantiles([TAIL, 1 - TAIL])
        weights, means, sds = posterior.parts
        largest = np.argsort(-weights, kind="stable")[: points // len(AROUND)]  # may be narrow, next to wide ones
        around = (means[largest, None] + sds[largest, None] * AROUND).ravel()
        inside = around[(around > low) & (around < high)]
        x = np.unique(np.concatenate([inside, np.linspace(low, high, points)]))
        reply["density"] = {"x": x.tolist(), "y": posterior.density(x).tolist()}
    return reply
