"""Questions about configurations, about what depends on what, and as text: a class each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NotRequired, TypedDict

from msgspec import Meta

from ..inference.queries import text
from ..inference.results.case_states import Explanation
from ..inference.results.contributions import Contributions
from ..inference.results.sensitivities import Bar, Sensitivity
from ..inference.tree import JunctionTree
from ..mixed.tree import MixedTree
from ..util.options import Explained, InformationUnit
from . import causes as causes  # registers its questions
from . import decisions as decisions
from . import posteriors as posteriors
from . import slices as slices
from .registry import QUESTIONS as QUESTIONS
from .registry import AnswerRates, Body, CaseBody, Codes, Count, Form, Reply, State, Variable, question, rate
from .registry import answer as answer
from .trees import OF_CASES, network_of

K = Annotated[int, Meta(ge=1, le=1000)]  # configurations of an answer
POINTS = 100  # of an integral, about


def _seen(first: str, last: str, seen: Mapping[str, object]) -> dict[str, Any]:
    return {"evidence": seen}


def _about_last(first: str, last: str, seen: Mapping[str, object]) -> dict[str, Any]:
    return {"target": last, "evidence": seen}


def _name(tree: JunctionTree | MixedTree, variable: str | int) -> str:
    net = network_of(tree)
    return net.variables[net.index(variable)]


# Configurations

class Configuration(TypedDict):
    """A configuration: numbers of states in the order of the variables, or states by variable with ?labels=1."""

    states: list[int] | dict[str, str]
    log_joint: float
    log_posterior: float


class ExplanationsReply(Reply):
    """Configurations, most probable first."""

    log_evidence: float
    variables: list[str]
    explanations: list[Configuration]


@question("/mpe", "mpe", ExplanationsReply, {"evidence": {"xray": "yes"}, "k": 3}, _seen)
class MpeQuestion(CaseBody, kw_only=True):
    """The k most probable configurations of all variables."""

    k: K = 1

    def reply(self, made: Explanation, tree: JunctionTree, form: Form) -> ExplanationsReply:
        names = [*made]
        at = [tree.model.index(v) for v in names]
        return {
            "log_evidence": made.log_evidence,
            "variables": names,
            "explanations": [
                {
                    "states": dict(e) if form.labels else e.states[at].tolist(), "log_joint": e.log_joint,
                    "log_posterior": e.log_posterior,
                }
                for e in made.ranked
            ],
        }

    def seconds(self, tree: JunctionTree, rates: AnswerRates) -> float:
        return self.k * rates.single


@question(
    "/map", "map", ExplanationsReply, {"variables": ["lung", "bronc"], "evidence": {"xray": "yes"}},
    lambda first, last, seen: {"variables": [last], "evidence": seen},
)
class MapQuestion(MpeQuestion, kw_only=True):
    """The k most probable configurations of some variables, all others summed out."""

    variables: Variable | list[Variable]

    def seconds(self, tree: JunctionTree, rates: AnswerRates) -> float:
        variables: Any = self.variables
        return tree.map_cost(variables, **self.known(tree)).operations / rate(tree, rates)


# What to observe, and what a target depends on

class ObservationReply(TypedDict):
    """The expected effect of observing a variable; gain and entropy in the unit of the reply."""

    variable: str
    gain: float
    expected_entropy: float
    expected_accuracy: NotRequired[float]
    expected_sd: NotRequired[float]  # of a target that is a number


class ObservationsReply(Reply):
    """Variables to observe, best first."""

    target: str
    unit: InformationUnit
    observations: list[ObservationReply]


class _Information(CaseBody, kw_only=True):
    of_reply: ClassVar[tuple[str, ...]] = ("most",)
    target: Variable
    most: Count | None = None
    unit: InformationUnit = "nats"

    def seconds(self, tree: JunctionTree | MixedTree, rates: AnswerRates) -> float:
        if isinstance(tree, MixedTree):  # integrals over the values of each number
            return len(tree.network) * rates.seconds(POINTS)
        return rates.seconds(int(tree.model.cardinality[tree.model.index(self.target)]))


@question(
    "/voi", "value_of_information", ObservationsReply, {"target": "lung", "evidence": {"xray": "yes"}}, _about_last,
    kinds=OF_CASES,
)
class VoiQuestion(_Information, kw_only=True):
    """Variables ranked by the information that observing them gives about a target."""

    candidates: list[Variable] | None = None

    def reply(self, made: Any, tree: JunctionTree | MixedTree, form: Form) -> ObservationsReply:
        rows = [text.plain_fields(o) for o in made[: self.most]]
        return {"target": _name(tree, self.target), "unit": self.unit, "observations": rows}


class Score(TypedDict):
    """Mutual information in the unit of the reply."""

    variable: str
    information: float


class ScoresReply(Reply):
    """Variables, most informative first."""

    target: str
    unit: InformationUnit
    scores: list[Score]


@question("/mi", "mutual_information", ScoresReply, {"target": "lung"}, _about_last, kinds=OF_CASES)
class MiQuestion(_Information, kw_only=True):
    """Mutual information of a target and other variables."""

    others: list[Variable] | None = None

    def reply(self, made: Any, tree: JunctionTree | MixedTree, form: Form) -> ScoresReply:
        rows: list[Score] = [{"variable": v, "information": score} for v, score in [*made.items()][: self.most]]
        return {"target": _name(tree, self.target), "unit": self.unit, "scores": rows}


class ParameterReply(TypedDict):
    """An entry of a CPT and its effect on the target."""

    variable: str
    state: str
    given: list[tuple[str, str]]
    value: float
    derivative: float
    entry: list[int]


class BarReply(TypedDict):
    """A bar of a tornado diagram; null where the evidence is impossible."""

    parameter: ParameterReply
    low: float
    high: float
    at_low: float | None
    at_high: float | None


class SensitivityReply(Reply):
    """The most influential parameters."""

    target: tuple[str, str]
    probability: float
    parameters: list[ParameterReply]
    tornado: list[BarReply]


@question(
    "/sensitivity", "sensitivity", SensitivityReply, {"target": ["lung", "yes"], "evidence": {"xray": "yes"}, "n": 10},
    lambda first, last, seen: {"target": [last, 0], "evidence": seen}, kinds=("bayesian", "decision"),
)
class SensitivityQuestion(CaseBody, kw_only=True):
    """The parameters that P(target | evidence) depends on most, and its derivatives with respect to them."""

    of_reply: ClassVar[tuple[str, ...]] = ("n", "spread")
    target: Annotated[tuple[Variable, State], Meta(description="Variable and state.")]
    n: Annotated[int, Meta(ge=0, le=100_000, description="Number of parameters in the answer.")] = 10
    spread: Annotated[float, Meta(description="Relative half width of the ranges of the tornado diagram.")] = 0.1

    def reply(self, made: Sensitivity, tree: JunctionTree, form: Form) -> Any:
        return {
            "target": made.target, "probability": made.probability,
            "parameters": [p._asdict() for p in made.top(self.n)],
            "tornado": [*map(_bar, made.tornado(self.n, self.spread))],
        }


def _bar(bar: Bar) -> dict[str, Any]:
    ends = {"at_low": bar.at_low, "at_high": bar.at_high}
    finite = {name: x if math.isfinite(x) else None for name, x in ends.items()}
    return {"parameter": bar.parameter._asdict(), "low": bar.low, "high": bar.high, **finite}


class FindingReply(TypedDict):
    """The effect of one finding."""

    variable: str
    states: list[str]
    without: list[float]
    alone: list[float]
    kl_without: float
    hellinger_without: float
    shift_without: float
    kl_alone: float
    hellinger_alone: float
    shift_alone: float


class FindingsReply(Reply):
    """Findings, most important first."""

    target: str
    findings: list[FindingReply]


@question(
    "/importance", "evidence_importance", FindingsReply, {"target": "lung", "evidence": {"xray": "yes", "smoke": "no"}},
    _about_last,
)
class ImportanceQuestion(CaseBody, kw_only=True):
    """The effect of each finding on the posterior of a target; soft evidence is not supported."""

    target: Variable

    def reply(self, made: Any, tree: JunctionTree, form: Form) -> FindingsReply:
        return {"target": _name(tree, self.target), "findings": [*map(text.plain_fields, made)]}


class Contribution(TypedDict):
    """The Shapley value of a finding, and its standard error: 0 where it is exact."""

    variable: str
    finding: str
    contribution: float
    error: float


class ContributionsReply(Reply):
    """Contributions of findings, the largest first; base and contributions sum to the total."""

    of: str
    target: str | None
    state: str | None
    base: float
    total: float
    contributions: list[Contribution]


@question(
    "/contributions", "contributions", ContributionsReply,
    {"target": "lung", "state": "yes", "evidence": {"xray": "yes", "smoke": "no"}}, _about_last, kinds=OF_CASES,
)
class ContributionsQuestion(CaseBody, kw_only=True):
    """Contributions of findings to a posterior: Shapley values; soft evidence is not supported."""

    target: Variable | None = None
    of: Annotated[Explained | None, Meta(
        description="The quantity; default: the probability of a state, or the mean of a number.")] = None
    state: Annotated[str | None, Meta(description="State of the target; default: present, or most probable.")] = None

    def reply(self, made: Contributions, tree: JunctionTree | MixedTree, form: Form) -> ContributionsReply:
        rows: list[Contribution] = [
            {"variable": v, "finding": made.findings[v], "contribution": value, "error": made.errors[v]}
            for v, value in made.items()
        ]
        return {
            "of": made.of, "target": made.target, "state": made.state, "base": made.base, "total": made.total,
            "contributions": rows,
        }  # fmt: skip

    def seconds(self, tree: JunctionTree | MixedTree, rates: AnswerRates) -> float:
        return rates.seconds(2 ** min(len({*(self.evidence or {}), *(self.likelihood or {})}), 16))


class ConflictReply(Reply):
    """ln(prod P(e_i) / P(e)), positive if the findings are less probable together than if they were independent."""

    conflict: float


@question("/conflict", "conflict", ConflictReply, {"evidence": {"xray": "yes", "smoke": "no"}}, _seen)
class ConflictQuestion(CaseBody, kw_only=True):
    """The conflict measure of the findings; soft evidence is not supported."""

    def reply(self, made: float, tree: JunctionTree, form: Form) -> ConflictReply:
        return {"conflict": made}


class AskReply(TypedDict):
    """The answer to a question as text; the other fields depend on its kind, as in ``jtgpu query --json``."""

    question: str
    kind: str


@question("/ask", "ask", AskReply, {"question": "P(lung | xray=yes)"})
class AskQuestion(Body, kw_only=True):
    """A question as text, such as P(lung | xray=yes)."""

    question: str
    codes: Codes = None

    def answer(self, tree: JunctionTree, form: Form) -> Any:
        q = text.parse(tree.model.with_codes(self.codes), self.question)
        return text.as_json(q, text.ask(tree, q))
