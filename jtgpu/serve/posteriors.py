"""Posteriors of one case or of many, where one bad case harms no other; joint posteriors, and samples.

Posteriors of numbers as plain data, and those of cases of networks that have some.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict

import numpy as np
from msgspec import Meta

from ..backends.base import Evidence
from ..backends.table import Table
from ..errors import ArgumentError, ImpossibleEvidence
from ..inference.evidence import read_findings
from ..inference.queries.posteriors import as_list, targets_of
from ..inference.tree import JunctionTree
from ..mixed.evidence import read_case
from ..mixed.results import MixedPosteriors, NumberPosterior
from ..mixed.sampling import MixedSamples
from ..mixed.tree import MixedTree
from .registry import (
    AnswerRates,
    CaseBody,
    Count,
    Distribution,
    Form,
    Points,
    Reply,
    Targets,
    Variable,
    answer_each,
    check_size,
    distribution,
    question,
    rate,
    spans,
    states_and_weights,
    with_labels,
)
from .trees import OF_CASES, network_of, numbers_of, states_of

TAIL = 1e-4  # probability on either side that a density leaves out
AROUND = np.linspace(-4.0, 4.0, 13)  # standard deviations from the mean of a part at which a density has a value, too
QUANTILES = (0.05, 0.5, 0.95)


class DensityReply(TypedDict):
    """A probability density at ascending values."""

    x: list[float]
    y: list[float]


class Number(TypedDict):
    """The posterior of a number: a mixture of normal distributions; an observed one has sd 0 and no density."""

    mean: float
    sd: float
    quantiles: list[float]
    density: NotRequired[DensityReply]


class CaseReply(TypedDict):
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

    def one(self, case: CaseBody) -> CaseReply:
        """The answer of a case by itself."""
        return self._result(self._tree.posteriors(**case.known(self._tree), targets=self._names))

    def many(self, cases: Sequence[CaseBody], codes: object) -> list[CaseReply]:
        """The answers of many: those without intervals, sets, likelihoods and interventions in one call."""
        net = self._net

        def read(case: CaseBody) -> dict[str, Any] | None:
            known = case.known(self._tree)
            given = known.pop("evidence")
            sets = any(isinstance(x, frozenset) for x in given.values())
            if known or sets or read_case(net, given, None, None).bounds:
                return None
            return {net.variables[net.index(v)]: x for v, x in given.items()}

        def together(given: list[dict[str, Any]]) -> Iterator[CaseReply | ImpossibleEvidence]:
            rows = [{net.variables[0]: None, **case} for case in given]
            answer = self._tree.posteriors_batch(rows, targets=self._names, on_error="flag")
            for row in range(len(rows)):
                if answer.impossible[row]:
                    yield ImpossibleEvidence("the evidence of this case has probability 0")
                    continue
                own = {v: answer[v].case(row) if net.is_number(v) else answer[v][row] for v in self._names}
                yield self._result(own) | {"log_evidence": float(answer.log_evidence[row])}

        return answer_each(cases, net, codes, read, self.one, together)

    def _result(self, posteriors: Mapping[str, object]) -> CaseReply:
        result: CaseReply = {"posteriors": {}, "numbers": {}}
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


CHUNK = 4096  # cases that are computed at a time


class PosteriorsReply(Reply):
    """Posteriors of one case, with ``flat=1`` as one array, or ``results`` in the order of the cases.

    Quantiles of numbers are in the order of the request.
    """

    log_evidence: NotRequired[float]
    posteriors: NotRequired[dict[str, Distribution]]
    numbers: NotRequired[dict[str, Number]]
    flat: NotRequired[list[float]]
    tag: NotRequired[str]
    since: NotRequired[str]
    results: NotRequired[list[CaseReply]]


@question(
    "/posteriors", "posteriors", PosteriorsReply,
    {"evidence": {"xray": "yes", "smoke": ["yes", "no"]}, "targets": ["lung"]}, kinds=OF_CASES,
)
class PosteriorsQuestion(CaseBody, kw_only=True):
    """Posteriors of all variables or of some targets, of one case or of many."""

    targets: Targets = None
    cases: Annotated[list[CaseBody] | None, Meta(description="Many cases in place of the evidence of one.")] = None
    quantiles: Annotated[list[float] | None, Meta(description="Of numbers. Default: 0.05, 0.5 and 0.95.")] = None
    points: Points = 0

    @property
    def n_cases(self) -> int:
        return 1 if self.cases is None else len(self.cases)

    @property
    def is_single(self) -> bool:
        """Whether a batch of other requests can include this one."""
        return self.cases is None and not self.soft and not self.do

    def answer(self, tree: JunctionTree | MixedTree, form: Form) -> PosteriorsReply:
        if self.cases is not None and (self.evidence or self.likelihood or self.soft or self.do):
            raise ArgumentError("evidence is given for one case and in cases; put all of it into cases")
        if isinstance(tree, MixedTree):
            quantiles = QUANTILES if self.quantiles is None else self.quantiles
            answers = MixedAnswers(tree, self.targets, quantiles, self.points, form)
            answers.check(self.n_cases)
            cases = self.cases
            result: Any = answers.one(self) if cases is None else {"results": answers.many(cases, self.codes)}
        elif self.cases is None:
            result = _one(tree, self, self.targets, form)
        else:
            result = {"results": answer_cases(tree, self.cases, self.targets, self.codes, form)}
        return result  # type: ignore[no-any-return]

    def seconds(self, tree: JunctionTree | MixedTree, rates: AnswerRates) -> float:
        if self.cases is None:
            return rates.seconds(1)
        hard = sum(1 for case in self.cases if case.soft or case.do)
        return rates.seconds(len(self.cases) - hard) + 3 * hard * rates.single


def answer_cases(
    tree: JunctionTree, cases: Sequence[CaseBody], targets: Any, codes: object, form: Form
) -> list[CaseReply]:
    """Posteriors, or a problem, of each of many cases."""
    # raises UnknownVariable: If there is no such target.
    # raises TableTooLarge: If the answer would have too many numbers.
    model = tree.model
    wanted = targets_of(model, targets)
    columns = spans(model, wanted)
    width = sum(s.stop - s.start for s in columns.values())
    check_size(len(cases) * width, f"{len(cases):,} cases of {width:,} states")
    names = [(model.variables[v], at, v) for v, at in columns.items()]

    def read(case: CaseBody) -> Evidence | None:
        return None if case.soft or case.do else read_findings(model, case.evidence or {}, case.likelihood)

    def together(known: list[Evidence]) -> Iterator[CaseReply | ImpossibleEvidence]:
        for first in range(0, len(known), CHUNK):
            rows = known[first : first + CHUNK]
            table = tree.intervened().backend.run(Table.of(*states_and_weights(len(model), rows), wanted))
            impossible, log_evidence = table.impossible.tolist(), table.log_evidence.tolist()
            for k, flat in enumerate(table.posterior.tolist()):
                if impossible[k]:
                    yield ImpossibleEvidence(tree.impossible(rows[k]))
                    continue
                yield {
                    "log_evidence": log_evidence[k],
                    "posteriors": {
                        name: with_labels(model, v, flat[at]) if form.labels else flat[at] for name, at, v in names
                    },
                }

    return answer_each(cases, model, codes, read, lambda case: _one(tree, case, wanted, form), together)


def _one(tree: JunctionTree, case: CaseBody, targets: Any, form: Form) -> CaseReply:
    """A case by itself, with soft evidence and interventions."""
    posteriors = tree.posteriors(**case.known(tree), targets=targets)
    return {
        "log_evidence": posteriors.log_evidence,
        "posteriors": {name: distribution(tree.model, name, p.probabilities, form) for name, p in posteriors.items()},
    }


class JointReply(Reply):
    """A joint posterior; the last variable varies fastest."""

    variables: list[str]
    states: list[list[str]]
    shape: list[int]
    probabilities: list[float]
    log_evidence: float


@question(
    "/joint", "joint", JointReply, {"variables": ["lung", "bronc"]},
    lambda first, last, seen: {"variables": [*dict.fromkeys((first, last))]},
)
class JointQuestion(CaseBody, kw_only=True):
    """The joint posterior of some variables."""

    variables: Variable | list[Variable]

    def size(self, tree: JunctionTree) -> tuple[int, str]:
        scope = dict.fromkeys(tree.model.index(v) for v in as_list(self.variables, "variables"))
        return math.prod(int(tree.model.cardinality[v]) for v in scope), f"a joint table of {len(scope)} variables"

    def reply(self, made: Any, tree: JunctionTree, form: Form) -> JointReply:
        return {
            "variables": [*made.variables], "states": [[*s] for s in made.states], "shape": [*made.shape],
            "probabilities": made.probabilities.ravel().tolist(), "log_evidence": made.log_evidence,
        }

    def seconds(self, tree: JunctionTree, rates: AnswerRates) -> float:
        variables: Any = self.variables
        return tree.joint_cost(variables, **self.known(tree)).operations / rate(tree, rates)


class SamplesReply(Reply):
    """Samples: values, and numbers of states or their names with ?labels=1, in the order of the variables."""

    variables: list[str]
    samples: list[list[int | float | str]]


@question(
    "/sample", "sample", SamplesReply, {"n": 3, "seed": 1},
    lambda first, last, seen: {"n": 2, "seed": 0, "evidence": seen}, kinds=OF_CASES,
)
class SampleQuestion(CaseBody, kw_only=True):
    """Exact samples of all variables given the evidence; the same seed gives the same samples."""

    n: Count = 1
    seed: Count | None = None

    def size(self, tree: JunctionTree | MixedTree) -> tuple[int, str]:
        n = len(network_of(tree))
        return self.n * n, f"{self.n:,} samples of {n:,} variables"

    def reply(self, made: Any, tree: JunctionTree | MixedTree, form: Form) -> SamplesReply:
        states = states_of(network_of(tree))
        rows: list[list[Any]] = made.states.tolist()
        if form.labels:
            labels = [*map(states.states, states)]
            rows = [[s[i] for s, i in zip(labels, row, strict=True)] for row in rows]
        if isinstance(made, MixedSamples):
            rows = [row + values for row, values in zip(rows, made.numbers.tolist(), strict=True)]
        return {"variables": [*states, *numbers_of(network_of(tree))], "samples": rows}
