"""Questions without HTTP: `question` registers a kind, with all that the server, the notebook and OpenAPI say about it.

A question is a method of compiled networks, and a class for the body that a client sends, which msgspec checks while
the JSON is parsed. Its fields are arguments of the method, by the same names, and its method `reply` writes the result.
Nothing else has to know of a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from ..backends.base import Evidence
from ..decisions.tree import DecisionTree
from ..errors import ArgumentError, EvidenceError, JtgpuError, TableTooLarge
from ..inference.tree import JunctionTree
from ..mixed.tree import MixedTree
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..util.arguments import whole_number
from .requests import Refusal, problem
from .trees import OF_DECISIONS, OF_STATES, AnyNetwork, AnyTree, network_kind, network_of, states_of

# by name or number; a number with a fraction is a value where states are intervals
State = str | int | float | bool
Variable = str | int
Observed = Annotated[dict[str, State | list[State | None] | None] | None, Meta(
    description="Variable to its state, a list of states one of which holds, or null: not observed; number to its "
    "value, or [low, high] with null where there is no bound.")]
Codes = Annotated[Literal["names", "index"] | dict[str, dict[str, str]] | None, Meta(
    description='What states mean in the evidence: index, numbers from 0, or {"xray": {"1": "yes", "0": "no"}}.')]
Weights = list[float] | dict[str, float]  # in the order of the states, or by state
Likelihood = Annotated[dict[str, Weights] | None, Meta(description="Variable to weights P(observation | state) >= 0.")]
# probabilities in the order of the states, or by state with ?labels=1
Distribution = list[float] | dict[str, float]
MAX_NUMBERS = 5_000_000  # numbers of an answer
Count = Annotated[int, Meta(ge=0)]
Points = Annotated[int, Meta(ge=0, le=1000, description="Points of each number's density; more around narrow parts.")]
Targets = Annotated[Variable | list[Variable] | None, Meta(description="Variables to compute; null: all.")]
RATE = 5e8  # operations a second that any machine does


class Form(NamedTuple):
    """How an answer is written."""

    labels: bool = False  # objects by the names of states in place of arrays
    digits: int | None = None  # significant digits
    flat: bool = False  # posteriors as one array
    since: str | None = None  # tag of an answer: only what differs from it; "": of none
    tolerance: float = 0.0  # largest difference that does not count


class AnswerRates(NamedTuple):
    """Seconds of posteriors of all variables, or of a few targets, as measured at start; over time, of a slice."""

    single: float  # one case, or sequence, on its own
    # batch, case: A batch of n cases takes ``batch + n * case``
    batch: float
    case: float
    threshold: int  # cases from which a batch is faster; 1: always, single cases included
    # Those of requests with few findings and targets. In a large network few variables matter to one of them, but most
    #     matter to a batch. Default: the same.
    small: AnswerRates | None = None

    def seconds(self, n: int) -> float:
        """Estimated seconds of n cases."""
        return n * self.single if n < self.threshold else self.batch + n * self.case


class Body(Struct, forbid_unknown_fields=True, kw_only=True):
    """Base class of questions: the body that a client sends."""

    method: ClassVar[str]  # of compiled networks; `question` gives it
    of_reply: ClassVar[tuple[str, ...]] = ()  # fields that are no arguments of the method: `reply` reads them

    @property
    def n_cases(self) -> int:
        """Number of cases, or of sequences."""
        return 1

    def size(self, tree: Any) -> tuple[int, str]:
        """The number of numbers of the answer, and what they are in words."""
        return 0, ""

    def arguments(self, tree: Any) -> dict[str, Any]:
        """The fields as keywords of the method; those that are absent are left out."""
        names = (name for name in self.__struct_fields__ if name != "codes" and name not in self.of_reply)
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def answer(self, tree: Any, form: Form) -> Any:
        """The reply, as plain data."""
        # tree: of one of the kinds that the question is registered with
        check_size(*self.size(tree))
        return self.reply(getattr(tree, self.method)(**self.arguments(tree)), tree, form)

    def reply(self, made: Any, tree: Any, form: Form) -> Any:
        """The result of the method, as plain data."""
        raise NotImplementedError

    def seconds(self, tree: Any, rates: AnswerRates) -> float:
        """Predicted time of the answer."""
        return rates.single


class CaseBody(Body, kw_only=True):
    """The evidence of one case; variables are given by name."""

    method: ClassVar[str] = "posteriors"
    evidence: Observed = None
    likelihood: Likelihood = None
    soft: Annotated[dict[str, Weights] | None, Meta(description="Variable to the posterior that it must have.")] = None
    do: Annotated[dict[str, State | Weights] | None, Meta(
        description="Variable to the state that it is set to, or to the probabilities with which it is set.")] = None
    codes: Codes = None

    def known(self, tree: AnyTree) -> dict[str, Any]:
        """The evidence as keywords of the method; those that are absent are left out, but for the findings."""
        # raises ArgumentError: If there is soft evidence and the method does not take it.
        names = ("likelihood", "soft", "do")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if "soft" in given:
            takes = signature(getattr(tree, self.method)).parameters
            if "soft" not in takes and all(p.kind is not Parameter.VAR_KEYWORD for p in takes.values()):
                raise ArgumentError("this question does not support soft evidence; pass likelihood")
        findings = self.evidence or {}
        if isinstance(tree, MixedTree):
            findings = {v: _finding(tree.network, v, x) for v, x in findings.items()}
        return {"evidence": findings, **given}

    def arguments(self, tree: Any) -> dict[str, Any]:
        return super().arguments(tree) | self.known(tree)


def _finding(net: MixedNetwork, name: str, value: object) -> Any:
    """A finding as a mixed tree takes it: pairs of bounds, sets of states."""
    if not isinstance(value, list):
        return value
    if not net.is_number(name):
        return frozenset(value)
    if len(value) != 2 or any(isinstance(x, (str, bool)) for x in value):
        raise EvidenceError(f"{name!r} is a number: expected a value, or [low, high], got {value}")
    low, high = value
    return -np.inf if low is None else low, np.inf if high is None else high


def decode(body: Any, model: DiscreteModel, *, has_codes: bool = False) -> None:
    """Put numbers of states in the place of the codes in a body's evidence; `answer_each` does so in its parts."""
    # has_codes: Whether the model has those of the body that this one is part of
    # raises JtgpuError: If a code stands for no state.
    codes = getattr(body, "codes", None)
    if codes is None and not has_codes:
        return
    coded = model.with_codes(codes)

    def state(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [state(name, one) for one in value]
        return None if value is None else coded.state_index(name, value)

    def weights(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [weights(name, one) for one in value]
        return {coded.state_index(name, s): w for s, w in value.items()} if isinstance(value, dict) else value

    def setting(name: str, value: object) -> Any:
        if isinstance(value, dict) and any(type(t) is int for t in value):  # states by slice
            return {t: state(name, s) for t, s in value.items()}
        return weights(name, value) if isinstance(value, (dict, list)) else state(name, value)

    for field, convert in {"evidence": state, "likelihood": weights, "soft": weights, "do": setting}.items():
        given = getattr(body, field, None) or {}
        given.update({name: convert(name, value) for name, value in given.items() if name in coded})
    target = getattr(body, "target", None)
    if isinstance(target, tuple):
        body.target = target[0], coded.state_index(*target)


class Milliseconds(TypedDict):
    """Time that a request waited and was computed."""

    queued: float
    computed: float


class Reply(TypedDict):
    """Fields that every answer has over HTTP."""

    ms: NotRequired[Milliseconds]


@dataclass(frozen=True)
class Question:
    """A kind of question."""

    path: str  # below that of a network
    body: type[Body]
    reply: Any  # a TypedDict
    example: dict[str, Any]  # of a body, about the network asia
    # a body about a network's first and last variable, given evidence: answered once at start, to load what it needs
    trial: Callable[[str, str, dict[str, Any]], dict[str, Any]] | None
    kinds: tuple[str, ...]  # of networks that have it

    @property
    def summary(self) -> str:
        """A sentence about the answer."""
        return (self.body.__doc__ or "").partition("\n")[0]


QUESTIONS: dict[str, Question] = {}  # by name, the path without its slash; `questions` fills it

B = TypeVar("B", bound=type[Body])


def question(
    path: str, method: str, reply: object, example: dict[str, Any],
    trial: Callable[[str, str, dict[str, Any]], dict[str, Any]] | None = None, *, kinds: tuple[str, ...] = OF_STATES,
) -> Callable[[B], B]:  # fmt: skip
    """A decorator that registers the body of a question: its fields are arguments of a method of compiled networks."""

    def register(body: B) -> B:
        body.method = method
        QUESTIONS[path[1:]] = Question(path, body, reply, example, trial, kinds)
        return body

    return register


def answering(tree: AnyTree, kind: str) -> AnyTree | None:
    """The tree that answers a question; None if the network's kind has no such question."""
    kinds = QUESTIONS[kind].kinds
    if network_kind(network_of(tree)) not in kinds:
        return None
    # questions about states: under the best policy
    return tree.under() if isinstance(tree, DecisionTree) and kinds != OF_DECISIONS else tree


def questions_of(tree: AnyTree) -> list[str]:
    """Names of the questions that networks of a tree's kind have."""
    return [kind for kind, q in QUESTIONS.items() if network_kind(network_of(tree)) in q.kinds]


def wrong_kind(tree: AnyTree, kind: str) -> Refusal:
    """The refusal of a question that the network's kind does not have."""
    there, of = questions_of(tree), network_kind(network_of(tree))
    detail = f"{kind} is not for this kind of network ({of}): it has {', '.join(there)}"
    return Refusal("wrong-kind", detail, questions=there)


def answer(
    tree: AnyTree, kind: str, body: Mapping[str, object], *, labels: bool = False, digits: int | None = None
) -> dict[str, Any]:
    """Answer a question."""
    # kind: One of `QUESTIONS`, such as ``"posteriors"``
    # body: What a client of the server sends
    # labels: Return probabilities by the names of states, which have to be distinct, in place of arrays
    # digits: Round to so many significant digits
    # raises msgspec.ValidationError: If the body has an unknown field, or a value of the wrong type.
    # raises JtgpuError: As the method of the tree; if the network's kind has no such question.
    if kind not in QUESTIONS:
        raise ArgumentError(f"question must be one of {', '.join(QUESTIONS)}, not {kind!r}")
    form = Form(labels, None if digits is None else whole_number("digits", digits, least=1, most=17))
    own = answering(tree, kind)
    if own is None:
        raise wrong_kind(tree, kind)
    asked = msgspec.convert(body, QUESTIONS[kind].body)
    decode(asked, states_of(network_of(tree)))
    reply: dict[str, Any] = rounded(asked.answer(own, form), form.digits)
    return reply


def admit(tree: AnyTree, rates: AnswerRates, body: Body, timeout: float) -> None:
    """Refuse a question that would take longer than the timeout, before any work is done."""
    # raises Refusal: With the predicted seconds.
    # raises JtgpuError: If the question is invalid.
    seconds = body.seconds(tree, rates)
    if seconds > timeout:
        raise Refusal(
            "too-slow",
            f"this question would take about {seconds:,.0f} s; the limit is {timeout:g} s (--timeout)",
            predicted=round(seconds, 3), limit=timeout,
        )  # fmt: skip


def rate(tree: JunctionTree, rates: AnswerRates) -> float:
    """Operations a second."""
    try:
        flops = tree.plan.cost().flops
    except JtgpuError:
        return RATE
    return max(RATE, flops / rates.single if rates.single else RATE)


# Conversions that several questions share: distributions, rounding, the size of an answer, cases as a table.

def rounded(value: object, digits: int | None) -> Any:
    """Plain data with every float rounded to significant digits; the data itself if `digits` is None."""
    if digits is None:
        return value
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {name: rounded(each, digits) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each, digits) for each in value]
    return value


def distribution(model: DiscreteModel, variable: str | int, values: Any, form: Form) -> Any:
    """Probabilities of the states of a variable, or rows of them: arrays, or by the names of states."""
    plain = np.asarray(values).tolist()
    if not form.labels:
        return plain
    v = model.index(variable)
    return [with_labels(model, v, row) for row in plain] if np.ndim(values) == 2 else with_labels(model, v, plain)


def with_labels(model: DiscreteModel, v: int, values: list[float]) -> dict[str, float]:
    """Numbers by the names of a variable's states."""
    # raises ArgumentError: If names are equal.
    names = model.states(v)
    if len(set(names)) < len(names):
        raise ArgumentError(f"labels=1: {model.variables[v]!r} has states with equal names; omit labels")
    return dict(zip(names, values, strict=True))


def check_size(numbers: int, what: str) -> None:
    """Raise `TableTooLarge` if an answer would have too many numbers."""
    if numbers > MAX_NUMBERS:
        raise TableTooLarge(
            f"this answer would have {numbers:,} numbers ({what}), more than the limit of {MAX_NUMBERS:,}",
            numbers, 8 * numbers, 8 * MAX_NUMBERS,
        )  # fmt: skip


def states_and_weights(
    n_variables: int, cases: Sequence[Evidence]
) -> tuple[NDArray[np.int32], dict[int, NDArray[np.float64]]]:
    """Cases as a table: states, (B, V), and likelihoods, (B, card), ones where a case has none."""
    parts = [case.state for case in cases]
    flat = np.concatenate(parts, dtype=np.int32) if parts else np.zeros(0, np.int32)
    states = flat.reshape(len(cases), n_variables)  # `np.stack` takes ten times as long
    weights: dict[int, NDArray[np.float64]] = {}
    for i, case in enumerate(cases):
        for v, vector in case.likelihood.items():
            if v not in weights:
                weights[v] = np.ones((len(cases), len(vector)))
            weights[v][i] = vector
    return states, weights


def answer_each(
    parts: Sequence[object], net: AnyNetwork, codes: Any, read: Callable[[Any], object], alone: Callable[[Any], object],
    together: Callable[[list[Any]], Iterable[object]],
) -> list[Any]:  # fmt: skip
    """The results, or problems, of many cases or sequences: one that is bad harms no other."""
    # codes: of the body that they are part of
    # read: of a part, which `together` takes then; None: it is answered alone
    # together: the results of many parts, in their order; errors of those that have none
    results: list[Any] = [None] * len(parts)
    given: dict[int, Any] = {}
    model = states_of(net).with_codes(codes)
    for i, part in enumerate(parts):
        known: AnyNetwork = model  # with the codes of the body
        try:
            decode(part, model, has_codes=codes is not None)
            known = net
            one = read(part)
            if one is None:
                results[i] = alone(part)
            else:
                given[i] = one
        except JtgpuError as error:
            results[i] = {"error": problem(error, known, part)}
    if given:
        for i, made in zip(given, together([*given.values()]), strict=True):
            results[i] = {"error": problem(made, net, parts[i])} if isinstance(made, JtgpuError) else made
    return results


def spans(model: DiscreteModel, targets: Sequence[int] | None) -> dict[int, slice]:
    """Columns of each target in a table of posteriors."""
    columns, first = {}, 0
    for v in range(len(model)) if targets is None else targets:
        end = first + int(model.cardinality[v])
        columns[v] = slice(first, end)
        first = end
    return columns
