"""Questions about sequences, to dynamic networks: filter, smooth, predict, explain, and single steps."""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

import numpy as np
from msgspec import Meta

from ..dynamic.numbers import MixedSequencePosteriors
from ..errors import ArgumentError, ImpossibleEvidence
from ..inference.queries.posteriors import as_list, targets_of
from ..mixed.results import NumberPosterior, Parts
from .posteriors import Number, number_reply
from .registry import (
    AnswerRates,
    Body,
    Codes,
    Distribution,
    Form,
    Likelihood,
    Observed,
    Points,
    Reply,
    Targets,
    answer_each,
    check_size,
    distribution,
    question,
)
from .sequences import MAX_SLICES, OneSequence, Read, SequencesBody, as_given, read_sequence
from .trees import OF_SEQUENCES, numbers_of, states_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..dynamic.numbers import MixedDynamicTree
    from ..dynamic.results import SequencePosteriors
    from ..dynamic.tree import DynamicTree

    Tree = DynamicTree | MixedDynamicTree


class SequenceResult(TypedDict):
    """Posteriors of a sequence by variable, a distribution for each slice in ``slices``; or why there are none."""

    log_evidence: NotRequired[float]
    slices: NotRequired[list[int]]
    posteriors: NotRequired[dict[str, list[Distribution]]]
    numbers: NotRequired[dict[str, list[Number]]]  # of networks with numbers; without quantiles
    error: NotRequired[dict[str, Any]]


class SequencesReply(Reply, SequenceResult):
    """The result of one sequence, or ``results`` in the order of the sequences."""

    results: NotRequired[list[SequenceResult]]


def _answer_all(tree: Tree, body: SequencesBody, result_of: Any, **more: Any) -> Any:
    """Answer the sequences of a body: those without interventions in one call; one bad sequence harms no other."""
    # result_of: function of the answer of the tree's method, the number of a sequence in it, and its length
    net, parts = tree.network, body.parts()

    def ask(reads: list[Read], on_error: str) -> Any:
        return getattr(tree, body.method)(**as_given(net, reads), on_error=on_error, **more)

    def alone(part: OneSequence) -> Any:
        read = read_sequence(net, part)
        try:
            return result_of(ask([read], "error"), 0, len(read.codes))
        except ImpossibleEvidence as error:  # without what to do in Python
            raise ImpossibleEvidence(str(error).partition(";")[0]) from None

    def together(reads: list[Read]) -> Iterator[Any]:
        made = ask(reads, "flag")
        for k, read in enumerate(reads):
            if made.impossible[k]:
                yield ImpossibleEvidence("the evidence of this sequence has probability 0")
            else:
                yield result_of(made, k, len(read.codes))

    if body.sequences is None:
        return alone(body)
    read = functools.partial(read_sequence, net)
    return {"results": answer_each(parts, net, body.codes, lambda x: None if x.do else read(x), alone, together)}


def _slices_of(
    made: SequencePosteriors, i: int, slices: dict[int, int], tree: Tree, form: Form, points: int = 0
) -> SequenceResult:
    """The result of a sequence from the answer about several."""
    # slices: slice -> its place in the answer
    # points: of the density of each number
    model, posteriors = states_of(tree.network), {}
    places: Any = [*slices.values()]
    for name, table in made.items():
        posteriors[name] = distribution(model, name, table[i : i + 1] if table.ndim == 2 else table[i, places], form)
    result: SequenceResult = {
        "log_evidence": float(made.log_evidence[i]), "slices": [*slices], "posteriors": posteriors,
    }  # fmt: skip
    if isinstance(made, MixedSequencePosteriors):
        result["numbers"] = {
            y: [number_reply(p, (), points) for p in _numbers_of(made, y, i, places)] for y in made.mean
        }
    return result


def _numbers_of(made: MixedSequencePosteriors, y: str, i: int, places: list[int]) -> list[NumberPosterior]:
    """The posteriors of a number in slices of a sequence."""
    slices: list[tuple[int, ...]] = [(i, k) for k in places] if made.mean[y].ndim == 2 else [(i,)]

    def parts(at: tuple[int, ...]) -> Parts:
        own = (x if x.ndim == 1 else x[at] for x in (made.weights[y], made.means[y], made.sds[y]))
        return Parts(*map(np.asarray, own))

    return [NumberPosterior(y, parts(at), None, (float(made.mean[y][at]), float(made.sd[y][at]))) for at in slices]


def _targets(tree: Tree, given: object) -> tuple[list[str] | None, int]:
    """Names of the targets, None: all; and the numbers in the answer about a slice."""
    model, own = states_of(tree.network), numbers_of(tree.network)
    if given is None:
        return None, int(model.cardinality.sum()) + 2 * len(own)
    listed = as_list(given, "targets")
    numbers = [v for v in listed if v in own]
    states = targets_of(model, [v for v in listed if v not in own]) or []
    return [*(model.variables[v] for v in states), *numbers], int(sum(model.cardinality[states])) + 2 * len(numbers)


class _SlicesQuestion(SequencesBody, kw_only=True):
    """Sequences, and the variables whose posteriors are the answer."""

    targets: Targets = None

    def posteriors(self, tree: Tree, form: Form, n: int, slices_of: Any, points: int = 0, **more: Any) -> Any:
        """The reply of the method."""
        # n: slices of the longest answer
        # slices_of: function from the length of a sequence to its slices, and their places in the answer
        names, width = _targets(tree, self.targets)
        size = self.n_cases * n * width * (1 + 2 * points)
        check_size(size, f"{self.n_cases:,} sequences, {n:,} slices of {width:,} states")

        def result_of(made: SequencePosteriors, i: int, length: int) -> SequenceResult:
            return _slices_of(made, i, slices_of(length), tree, form, points)

        return _answer_all(tree, self, result_of, targets=names, **more)


@question(
    "/filter", "filter", SequencesReply,
    {"evidence": {"umbrella": ["yes", "yes", None, "no"]}, "targets": ["rain"]}, kinds=OF_SEQUENCES,
)
class FilterQuestion(_SlicesQuestion, kw_only=True):
    """Posteriors in every slice given the evidence up to it; of networks over time."""

    at: Annotated[str | int | list[int] | None, Meta(description="last, or slices, from 0. Default: all.")] = None
    points: Points = 0

    def answer(self, tree: Tree, form: Form) -> Any:
        longest = max((part.slices for part in self.parts()), default=0)
        listed = [self.at] if isinstance(self.at, int) else self.at if isinstance(self.at, list) else None
        n = longest if self.at is None else 1 if listed is None else len(listed)

        def slices_of(length: int) -> dict[int, int]:
            chosen = range(length) if self.at is None else [length - 1] if listed is None else listed
            return {t: k for k, t in enumerate(chosen) if t < length}

        return self.posteriors(tree, form, n, slices_of, self.points, at=self.at)


@question(
    "/smooth", "smooth", SequencesReply,
    {"evidence": {"umbrella": ["yes", "yes", None, "no"]}, "targets": ["rain"], "at": [0, 3]},
    lambda first, last, seen: {"length": 2}, kinds=OF_SEQUENCES,
)
class SmoothQuestion(FilterQuestion, kw_only=True):
    """Posteriors in every slice given the evidence of all slices; of networks over time."""


@question(
    "/predict", "predict", SequencesReply,
    {"evidence": {"umbrella": ["yes", "yes", "no"]}, "steps": 2, "targets": ["rain"]}, kinds=OF_SEQUENCES,
)
class PredictQuestion(_SlicesQuestion, kw_only=True):
    """Posteriors of the slices that follow each sequence, in which nothing is observed; of networks over time."""

    steps: Annotated[int, Meta(ge=1, le=MAX_SLICES)] = 1

    def further(self) -> int:
        return self.steps

    def answer(self, tree: Tree, form: Form) -> Any:
        n = self.steps
        return self.posteriors(tree, form, n, lambda length: {length + k: k for k in range(n)}, ahead=n)


class SequenceStatesResult(TypedDict):
    """The most probable states of a sequence by variable: numbers of states by slice, or names with ?labels=1."""

    log_joint: NotRequired[float]
    states: NotRequired[dict[str, list[int | str]]]
    error: NotRequired[dict[str, Any]]


class SequenceStatesReply(Reply, SequenceStatesResult):
    """The result of one sequence, or ``results`` in the order of the sequences."""

    results: NotRequired[list[SequenceStatesResult]]


@question(
    "/sequence-mpe", "mpe", SequenceStatesReply, {"evidence": {"umbrella": ["yes", "yes", None, "no"]}},
    kinds=OF_SEQUENCES,
)
class SequenceMpeQuestion(SequencesBody, kw_only=True):
    """The most probable states of all variables in all slices; of networks over time."""

    def answer(self, tree: Tree, form: Form) -> Any:
        model = states_of(tree.network)
        longest = max((part.slices for part in self.parts()), default=0)
        check_size(self.n_cases * longest * len(model), f"{self.n_cases:,} sequences of {longest:,} slices")

        def result_of(made: Any, i: int, length: int) -> SequenceStatesResult:
            columns: list[list[Any]] = made.states[i, :length].T.tolist()
            if form.labels:
                columns = [[model.states(v)[s] for s in column] for v, column in enumerate(columns)]
            return {"log_joint": float(made.log_joint[i]), "states": dict(zip(made, columns, strict=True))}

        return _answer_all(tree, self, result_of)


class StepReply(Reply):
    """Posteriors of a slice, and the state for the next step."""

    slice: int
    state: str
    log_evidence: float
    posteriors: dict[str, Distribution]
    numbers: NotRequired[dict[str, Number]]  # of networks with numbers; without quantiles


@question("/step", "stream", StepReply, {"state": None, "evidence": {"umbrella": "yes"}}, kinds=OF_SEQUENCES)
class StepQuestion(Body, kw_only=True):
    """The next slice of a sequence; the client keeps the state, and the server nothing. Of networks over time."""

    state: Annotated[str | None, Meta(description="That of the step before, in base64; null: the first slice.")] = None
    evidence: Observed = None
    likelihood: Likelihood = None
    codes: Codes = None
    targets: Targets = None

    def answer(self, tree: Tree, form: Form) -> StepReply:
        model, own = states_of(tree.network), numbers_of(tree.network)
        live: Any = tree.stream()
        if self.state is not None:
            live.restore(_state(self.state, len(live.state)))
        check_size(len(live.state), "the state")
        chosen = [*model.variables, *own] if self.targets is None else as_list(self.targets, "targets")
        names = [v if v in own else model.variables[model.index(v)] for v in chosen]
        made = live.step(self.evidence, likelihood=self.likelihood)
        posteriors, numbers = {}, {}
        for name in names:
            if name in own:
                if name in made:
                    x = made[name]
                    parts = Parts(x.weights, x.means, x.sds)
                    numbers[name] = number_reply(NumberPosterior(name, parts, None, (x.mean, x.sd)), (), 0)
                continue
            posteriors[name] = distribution(model, name, made[name].probabilities, form)
        state = live.state
        reply: StepReply = {
            "slice": int(state[0]) - 1, "state": base64.b64encode(state.astype("<f8").tobytes()).decode(),
            "log_evidence": live.log_evidence, "posteriors": posteriors,
        }  # fmt: skip
        return {**reply, "numbers": numbers} if own else reply

    def seconds(self, tree: Tree, rates: AnswerRates) -> float:
        return rates.single


def _state(text: str, n: int) -> NDArray[np.float64]:
    """The numbers of a state."""
    try:
        raw = base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 8 * n:
        raise ArgumentError(
            f"state must be what a step of this network returned: {8 * n} bytes in base64, or null for the first slice"
        )
    return np.frombuffer(raw, "<f8").astype(np.float64)
