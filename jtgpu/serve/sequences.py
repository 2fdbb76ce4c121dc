"""Sequences as clients send them, and as compiled networks over time take them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from ..dynamic.number_rows import NumberRows
from ..dynamic.sequences import read_sequences
from ..errors import ArgumentError, EvidenceError
from ..model.mixed_dynamic import MixedDynamicNetwork
from .registry import AnswerRates, Body, Codes, State, Weights
from .requests import Refusal
from .trees import states_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..model.discrete import DiscreteModel
    from ..model.dynamic import DynamicNetwork

    Template = DynamicNetwork | MixedDynamicNetwork

MAX_SLICES = 100_000  # of all sequences of a request

BySlice = Annotated[dict[str, State | list[State | list[State] | None] | None] | None, Meta(
    description="Variable to its states: for each slice a state, a list of states one of which holds, or null; a "
    "static variable to its state.")]


# Bodies: sequences, by variable a state for each slice.

class OneSequence(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A sequence; null: not observed in this slice."""

    evidence: BySlice = None
    likelihood: Annotated[dict[str, list[Weights | None]] | None, Meta(
        description="Variable to weights P(observation | state) for each slice, or null.")] = None
    do: Annotated[dict[str, State | dict[int, State]] | None, Meta(
        description="Variable to the state that it is set to in all slices, or in some.")] = None
    length: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(
        description="Number of slices. Default: those of the evidence.")] = None
    codes: Codes = None

    def lengths(self) -> list[tuple[str, int]]:
        """Variable and length of each of its lists."""
        lists = [*(self.evidence or {}).items(), *(self.likelihood or {}).items()]
        return [(name, len(x)) for name, x in lists if isinstance(x, list)]

    @property
    def slices(self) -> int:
        """Its length; `check` makes sure of it."""
        return max([*(n for _, n in self.lengths()), self.length or 0]) or 1

    def check(self) -> int:
        """Its length; raises where the lists contradict it, or each other."""
        lengths = self.lengths()
        first, least = next(iter(lengths), ("", 1))
        for name, n in lengths:
            if not n:
                raise EvidenceError(f"the list of {name!r} has no slices")
            if self.length is not None and n > self.length:
                raise EvidenceError(f"the list of {name!r} has {n} slices, more than length, which is {self.length}")
            if self.length is None and n != least:
                raise EvidenceError(
                    f"the list of {name!r} has {n} slices and that of {first!r} {least}; use null for slices without "
                    "observations, or give length"
                )
        return self.slices


class Read(NamedTuple):
    """A sequence by numbers."""

    codes: NDArray[np.int32]  # (T, V), -1: not observed
    likelihood: dict[str, Any]  # variable -> (T, states)
    do: dict[str, Any]
    values: dict[str, NDArray[np.float64]]  # (T,) of each number that is observed, NaN where it is not


def read_sequence(template: Template, given: OneSequence) -> Read:
    """Convert a sequence; errors name variable and slice."""
    net, static = states_of(template), template.static
    codes = np.full((given.check(), len(net)), -1, np.int32)
    values = {}
    weights: dict[str, Any] = {}
    for name, states in (given.evidence or {}).items():
        if name in template and name not in net:
            values[name] = _values(name, states, len(codes))
            continue
        v = net.index(name)
        if not isinstance(states, list):
            if name not in static and states is not None:
                raise EvidenceError(
                    f"evidence on {name!r} must be a list with a state for each slice, and null where it is not known"
                )
            codes[0, v] = -1 if states is None else net.state_index(v, states)
            continue
        known: dict[State, int] = {}
        for t, state in enumerate(states):
            if isinstance(state, list):
                one_of = weights.setdefault(name, np.ones((len(codes), len(net.states(v)))))
                one_of[0 if name in static else t] *= np.isin(range(one_of.shape[1]), _numbers_of(net, v, state))
            elif state is not None:
                if state not in known:
                    known[state] = net.state_index(v, state)
                codes[t, v] = known[state]
    for name, vectors in (given.likelihood or {}).items():
        v = net.index(name)
        table = np.ones((len(codes), len(net.states(v))))
        for t, vector in enumerate(vectors):
            if vector is not None:
                table[t] = _weights(net, v, vector, t)
        weights[name] = table * weights.get(name, 1.0)
    for variable, setting in (given.do or {}).items():
        for late in setting if isinstance(setting, dict) else ():
            if not 0 <= late < len(codes):
                raise EvidenceError(f"do on {variable!r} has the slice {late}; slices are 0 to {len(codes) - 1}")
    return Read(codes, weights, dict(given.do or {}), values)


def _numbers_of(net: DiscreteModel, v: int, states: list[State]) -> list[int]:
    return [net.state_index(v, s) for s in states]


def _values(name: str, given: object, n: int) -> NDArray[np.float64]:
    """The values of a number in n slices."""
    made = np.full(n, np.nan)
    if given is None:
        return made
    if not isinstance(given, list):
        raise EvidenceError(f"evidence on the number {name!r} must be a list with a value for each slice, or null")
    for t, value in enumerate(given):
        if value is None:
            continue
        if isinstance(value, (str, bool, list)) or not math.isfinite(value):
            raise EvidenceError(f"slice {t}: {name!r} is a number, got {value!r}; null where it was not measured")
        made[t] = value
    return made


def as_given(net: Template, reads: list[Read]) -> dict[str, Any]:
    """Sequences as keywords of the compiled network's methods; one with interventions comes alone."""
    weights: dict[str, Any] = {}
    for name in dict.fromkeys(name for r in reads for name in r.likelihood):
        ones = np.ones(len(net.states(name)))
        weights[name] = np.concatenate([r.likelihood.get(name, np.tile(ones, (len(r.codes), 1))) for r in reads])
    codes, do = [r.codes for r in reads], reads[0].do
    if not isinstance(net, MixedDynamicNetwork):
        return {"sequences": codes, "likelihood": weights, "do": do}
    own = net.discrete  # has joined variables behind the others
    codes = [np.pad(x, ((0, 0), (0, len(own) - x.shape[1])), constant_values=-1) for x in codes]
    values = {y: np.concatenate([r.values.get(y, np.full(len(r.codes), np.nan)) for r in reads])
              for y in net.numbers}  # fmt: skip
    states = {v: x for v, x in do.items() if v not in values}
    rows = NumberRows(read_sequences(own, codes, likelihood=weights, do=states), values)
    return {"sequences": rows.setting({y: x for y, x in do.items() if y in values})}


def _weights(net: DiscreteModel, v: int, given: Weights, t: int) -> list[float]:
    """The likelihood of a slice, in the order of the states."""
    states = net.states(v)
    if isinstance(given, dict):
        given = {net.state_index(v, s): w for s, w in given.items()}  # type: ignore[misc]
        given = [given.get(s, 0.0) for s in range(len(states))]  # type: ignore[call-overload]
    if len(given) != len(states) or not all(math.isfinite(w) and w >= 0 for w in given) or not any(given):
        raise EvidenceError(
            f"the likelihood of {net.variables[v]!r} in slice {t} must be {len(states)} numbers >= 0, not all zero"
        )
    return given


class SequencesBody(OneSequence, Body, kw_only=True):
    """The evidence of one sequence, or of many in `sequences`."""

    sequences: list[OneSequence] | None = None

    @property
    def n_cases(self) -> int:
        """Number of sequences."""
        return 1 if self.sequences is None else len(self.sequences)

    def parts(self) -> list[OneSequence]:
        """The sequences, if they are not too long together."""
        if self.sequences is not None and any((self.evidence, self.likelihood, self.do, self.length)):
            raise ArgumentError("evidence is given for one sequence and in sequences; put all of it into sequences")
        parts = [self] if self.sequences is None else self.sequences
        total = sum(part.slices for part in parts)
        if total > MAX_SLICES:
            raise Refusal(
                "too-large", f"{total:,} slices are more than {MAX_SLICES:,}: ask for fewer sequences, or by step",
                needed=total, limit=MAX_SLICES,
            )  # fmt: skip
        return parts  # type: ignore[return-value]

    def further(self) -> int:
        """Slices behind the end of each sequence."""
        return 0

    def seconds(self, tree: Any, rates: AnswerRates) -> float:
        lengths = [part.slices + self.further() for part in self.parts()]
        return max(lengths, default=0) * rates.batch + sum(lengths) * rates.case
