"""The answers of questions: what a client gets, as types for readers, mypy and the OpenAPI description."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

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
