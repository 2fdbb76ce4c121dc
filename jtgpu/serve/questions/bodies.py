"""The bodies of questions: what a client may send, checked field by field while the JSON is parsed."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from msgspec import Struct

# Rounding of all numbers of an answer to significant digits.

def rounded(found: Any, digits: int | None) -> Any:
    """Return plain data with every float rounded; the data itself if `digits` is None."""
    if digits is None:
        return found
    if isinstance(found, float):
        return float(f"{found:.{digits}g}")
    if isinstance(found, dict):
        return {name: rounded(value, digits) for name, value in found.items()}
    if isinstance(found, (list, tuple)):
        return [rounded(value, digits) for value in found]
    return found


# by name or number; a number with a fraction is a value where states are intervals
State = str | int | float | bool
Variable = str | int
Weights = list[float] | dict[str, float]  # in the order of the states, or by state


class Case(Struct, forbid_unknown_fields=True, kw_only=True):
    """The evidence of one case; variables are given by name."""

    # Variable to its state, or to a list of states one of which holds
    evidence: dict[str, State | list[State]] | None = None
    likelihood: dict[str, Weights] | None = None  # variable to weights P(observation | state) >= 0
    soft: dict[str, Weights] | None = None  # variable to the posterior that it must have
    # Variable to the state that it is set to, or to the probabilities with which it is set
    do: dict[str, State | Weights] | None = None


class Posteriors(Case, kw_only=True):
    """Posteriors of all variables or of some targets, of one case or of many."""

    targets: Variable | list[Variable] | None = None  # variable or list of variables: Default: all variables
    cases: list[Case] | None = None  # list of cases: Many cases in place of the evidence of one


class Mpe(Case, kw_only=True):
    """The k most probable configurations of all variables."""

    k: int = 1


class Map(Case, kw_only=True):
    """The k most probable configurations of some variables, all others summed out."""

    variables: Variable | list[Variable]
    k: int = 1


class Voi(Case, kw_only=True):
    """Variables ranked by the information that observing them gives about a target."""

    target: Variable
    candidates: list[Variable] | None = None
    most: int | None = None


class Mi(Case, kw_only=True):
    """Mutual information of a target and other variables."""

    target: Variable
    others: list[Variable] | None = None
    most: int | None = None


class Sensitivity(Case, kw_only=True):
    """Derivatives of P(target | evidence) with respect to the parameters of the network."""

    target: tuple[Variable, State]  # (variable, state)
    n: int = 10  # number of parameters in the answer
    spread: float = 0.1  # relative half width of the ranges of the tornado diagram


class Importance(Case, kw_only=True):
    """The effect of each finding on the posterior of a target; soft evidence is not supported."""

    target: Variable


class Conflict(Case, kw_only=True):
    """The conflict measure of the findings; soft evidence is not supported."""


class Joint(Case, kw_only=True):
    """The joint posterior of some variables."""

    variables: Variable | list[Variable]


class Sample(Case, kw_only=True):
    """Exact samples of all variables given the evidence; the same seed gives the same samples."""

    n: int = 1
    seed: int | None = None


class Ask(Struct, forbid_unknown_fields=True, kw_only=True):
    """A question as text, such as ``P(lung | xray=yes)``."""

    question: str


BODIES: dict[str, type[Struct]] = {
    "posteriors": Posteriors, "mpe": Mpe, "map": Map, "voi": Voi, "mi": Mi, "sensitivity": Sensitivity,
    "importance": Importance, "conflict": Conflict, "joint": Joint, "sample": Sample, "ask": Ask,
}  # fmt: skip


# The answers of questions: what a client gets, as types for readers, mypy and the OpenAPI description.

# probabilities in the order of the states, or by state with ?labels=1
Distribution = list[float] | dict[str, float]


class Milliseconds(TypedDict):
    """Time that a request waited and was computed."""

    queued: float
    computed: float


class Reply(TypedDict):
    """What every answer has over HTTP."""

    ms: NotRequired[Milliseconds]


class Result(TypedDict):
    """Posteriors of one of many cases, or why there are none: a problem as of a response that is not 2xx."""

    log_evidence: NotRequired[float]
    posteriors: NotRequired[dict[str, Distribution]]
    error: NotRequired[dict[str, Any]]


class PosteriorsReply(Reply):
    """Posteriors of one case, or ``results`` in the order of the cases."""

    log_evidence: NotRequired[float]
    posteriors: NotRequired[dict[str, Distribution]]
    results: NotRequired[list[Result]]


class Configuration(TypedDict):
    """A configuration: numbers of states in the order of the variables, or states by variable with ?labels=1."""

    states: list[int] | dict[str, str]
    log_joint: float
    log_posterior: float


class Explanations(Reply):
    """Configurations, most probable first."""

    log_evidence: float
    variables: list[str]
    explanations: list[Configuration]


class Observation(TypedDict):
    """The expected effect of observing a variable; entropies in nats."""

    variable: str
    gain: float
    expected_entropy: float
    expected_accuracy: float


class Observations(Reply):
    """Variables to observe, best first."""

    target: str
    observations: list[Observation]


class Score(TypedDict):
    """Mutual information in nats."""

    variable: str
    information: float


class Scores(Reply):
    """Variables, most informative first."""

    target: str
    scores: list[Score]


class Parameter(TypedDict):
    """An entry of a CPT and its effect on the target."""

    variable: str
    state: str
    given: list[tuple[str, str]]
    value: float
    derivative: float
    entry: list[int]


class Bar(TypedDict):
    """A bar of a tornado diagram; null where the evidence is impossible."""

    parameter: Parameter
    low: float
    high: float
    at_low: float | None
    at_high: float | None


class SensitivityReply(Reply):
    """The most influential parameters."""

    target: tuple[str, str]
    probability: float
    parameters: list[Parameter]
    tornado: list[Bar]


class Finding(TypedDict):
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


class Findings(Reply):
    """Findings, most important first."""

    target: str
    findings: list[Finding]


class ConflictReply(Reply):
    """ln(prod P(e_i) / P(e)), positive if the findings are less probable together than if they were independent."""

    conflict: float


class JointReply(Reply):
    """A joint posterior; the last variable varies fastest."""

    variables: list[str]
    states: list[list[str]]
    shape: list[int]
    probabilities: list[float]
    log_evidence: float


class Samples(Reply):
    """Samples: numbers of states in the order of the variables, or their names with ?labels=1."""

    variables: list[str]
    samples: list[list[int | str]]


class Answer(TypedDict):
    """The answer to a question as text; the other fields depend on its kind, as in ``jtgpu query --json``."""

    question: str
    kind: str


REPLIES: dict[str, Any] = {
    "posteriors": PosteriorsReply, "mpe": Explanations, "map": Explanations, "voi": Observations, "mi": Scores,
    "sensitivity": SensitivityReply, "importance": Findings, "conflict": ConflictReply, "joint": JointReply,
    "sample": Samples, "ask": Answer,
}  # fmt: skip
