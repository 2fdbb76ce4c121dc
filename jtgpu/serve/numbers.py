"""Questions about networks with numbers, to the tree of their states that `jtgpu.model.discrete_part` made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np

from ..errors import ArgumentError, EvidenceError, ImpossibleEvidence, JtgpuError
from ..inference.queries.posteriors import as_list
from ..inference.tree import JunctionTree
from ..mixed.evidence import read_case
from ..mixed.results import MixedPosteriors, NumberPosterior
from ..mixed.tree import MixedTree
from ..model.discrete_part import DiscretePart
from ..model.mixed import MixedNetwork
from ..util.arguments import whole_number
from .registry import Body, Codes, Distribution, Form, Rates, Reply, State, Variable, Weights, check_size, question
from .requests import problem

MAX_POINTS = 1000  # of a density
TAIL = 1e-4  # probability on either side that a density leaves out
AROUND = np.linspace(-4.0, 4.0, 13)  # standard deviations from the mean of a part at which a density has a value, too
QUANTILES = (0.05, 0.5, 0.95)

# A state, several of them or null; of a number its value, or [low, high] with null where there is no bound
Finding = State | list[State | None] | None


def of_numbers(tree: Any) -> Any:
    """The tree of the states of a compiled network with numbers; any other tree as it is."""
    if not isinstance(tree, MixedTree):
        return tree
    made = DiscretePart(tree.network).compile("cpu")
    made.cached("numbers", 0, lambda: tree)
    return made


def mixed_tree(tree: JunctionTree) -> MixedTree:
    """The compiled network with numbers of a tree of its states; compiled on first use."""
    net = tree.model
    if not isinstance(net, DiscretePart):
        raise ArgumentError("this network has no numbers")
    options: dict[str, Any] = {} if tree.threads is None else {"threads": tree.threads}
    made: MixedTree = tree.cached("numbers", 0, lambda: net.mixed_network.compile("cpu", **options))
    return made


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


class NumbersResult(TypedDict):
    """Posteriors of a case, or why there are none."""

    log_evidence: NotRequired[float]
    posteriors: NotRequired[dict[str, Distribution]]
    numbers: NotRequired[dict[str, Number]]
    error: NotRequired[dict[str, Any]]


class NumbersReply(Reply):
    """Posteriors of one case, or ``results`` in the order of the cases; quantiles in the order of the request."""

    log_evidence: NotRequired[float]
    posteriors: NotRequired[dict[str, Distribution]]
    numbers: NotRequired[dict[str, Number]]
    results: NotRequired[list[NumbersResult]]


class MixedCase(Body, kw_only=True):
    """The evidence of one case; variables are given by name."""

    evidence: dict[str, Finding] | None = None
    likelihood: dict[str, Weights] | None = None  # of variables with states: weights P(observation | state)
    do: dict[str, State] | None = None  # variable to the state or the number that it is set to
    codes: Codes | None = None

    def known(self, net: MixedNetwork) -> dict[str, Any]:
        """The evidence as keywords of `MixedTree.posteriors`."""
        given = {v: _finding(net, v, x) for v, x in (self.evidence or {}).items()}
        return {"evidence": given, "likelihood": self.likelihood, "do": self.do}


def _finding(net: MixedNetwork, name: str, value: Any) -> Any:
    """A finding as the tree takes it: pairs of bounds, sets of states."""
    if not isinstance(value, list):
        return value
    if not net.is_number(net.index(name)):
        return frozenset(value)
    if len(value) != 2 or any(isinstance(x, (str, bool)) for x in value):
        raise EvidenceError(f"{name!r} is a number: expected a value, or [low, high], got {value}")
    low, high = value
    return -np.inf if low is None else low, np.inf if high is None else high


@question(
    "/numbers", NumbersReply, "Posteriors of states and of numbers, of one case or of many.",
    {"evidence": {"W": "industrial", "L": 1.1, "C": [-1, None]}, "targets": ["E", "B"], "quantiles": [0.05, 0.95],
     "points": 80},
)  # fmt: skip
class Numbers(MixedCase, kw_only=True):
    """Posteriors of variables with states and of numbers, of one case or of many."""

    targets: Variable | list[Variable] | None = None  # default: all variables
    cases: list[MixedCase] | None = None  # many cases in place of the evidence of one
    quantiles: list[float] | None = None  # default: 0.05, 0.5 and 0.95
    points: int = 0  # of the density of each number, evenly spaced; there are more around narrow parts

    def answer(self, tree: JunctionTree, form: Form) -> NumbersReply:
        mixed = mixed_tree(tree)
        net = mixed.network
        levels = QUANTILES if self.quantiles is None else self.quantiles
        points = whole_number("points", self.points, least=0, most=MAX_POINTS)
        names = [*net.variables]
        if self.targets is not None:
            names = [net.variables[net.index(v)] for v in as_list(self.targets, "targets")]
        n = 1 if self.cases is None else len(self.cases)
        each = [2 + len(levels) + 4 * points if net.is_number(v) else len(net.states(v)) for v in names]
        check_size(n * sum(each), f"{n:,} cases of {len(names):,} variables")
        if self.cases is None:
            posteriors = mixed.posteriors(**self.known(net), targets=names)
            one = _result(net, posteriors, levels, points, form)
            return {key: one[key] for key in ("log_evidence", "posteriors", "numbers")}  # type: ignore[return-value]
        if self.evidence or self.likelihood or self.do:
            raise ArgumentError("give the evidence of one case, or cases")
        return {"results": self._cases(mixed, names, levels, points, form)}

    def _cases(
        self, mixed: MixedTree, names: Sequence[str], levels: Sequence[float], points: int, form: Form
    ) -> list[NumbersResult]:
        """Cases of plain findings are answered together."""
        net, results = mixed.network, [NumbersResult() for _ in self.cases or ()]
        together: dict[int, dict[str, Any]] = {}
        for i, case in enumerate(self.cases or ()):
            try:
                known = case.known(net)
                read = read_case(net, **known)
                own_sets = any(isinstance(x, frozenset) for x in known["evidence"].values())
                if own_sets or read.bounds or case.likelihood or case.do:
                    results[i] = _result(net, mixed.posteriors(**known, targets=names), levels, points, form)
                else:
                    together[i] = {net.variables[net.index(v)]: x for v, x in known["evidence"].items()}
            except JtgpuError as error:
                results[i] = {"error": problem(error)}
        if not together:
            return results
        rows = [{net.variables[0]: None, **case} for case in together.values()]
        answer = mixed.posteriors_batch(rows, targets=names, on_impossible="flag")
        for row, i in enumerate(together):
            if answer.impossible[row]:
                results[i] = {"error": problem(ImpossibleEvidence("the evidence of this case has probability 0"))}
                continue
            own: dict[str, Any] = {v: answer[v].case(row) if net.is_number(v) else answer[v][row] for v in names}
            results[i] = _result(net, own, levels, points, form)
            results[i]["log_evidence"] = float(answer.log_evidence[row])
        return results

    def seconds(self, tree: JunctionTree, rates: Rates) -> float:
        n = len(tree.model.mixed_network) if isinstance(tree.model, DiscretePart) else 1
        return (2e-3 + 2e-4 * n) * (1 if self.cases is None else 1 + 0.1 * len(self.cases))


def _result(
    net: MixedNetwork, posteriors: Mapping[str, Any], quantiles: Sequence[float], points: int, form: Form
) -> NumbersResult:
    """Posteriors as plain data."""
    result: NumbersResult = {"posteriors": {}, "numbers": {}}
    if isinstance(posteriors, MixedPosteriors):
        result["log_evidence"] = posteriors.log_evidence
    for v, p in posteriors.items():
        if isinstance(p, NumberPosterior):
            result["numbers"][v] = number_reply(p, quantiles, points)
        else:
            values = np.asarray(p).tolist()
            result["posteriors"][v] = dict(zip(net.states(v), values, strict=True)) if form.labels else values
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
