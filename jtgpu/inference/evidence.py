"""Conversion of evidence of one case from names and labels to numbers.

`read_findings` reads observations and likelihoods, `read_known` all kinds; `evidence_table` reads tables of cases.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..backends.base import Evidence
from ..columns import is_frame, read_states
from ..columns.arrow import number_array
from ..columns.likelihoods import product
from ..columns.names import reject_repeated
from ..errors import EvidenceError, ImpossibleEvidence, shown
from ..model.discrete import DiscreteModel
from ..model.network import BayesianNetwork
from ..model.states import StateNumber
from ..util.arrays import Floats
from ..util.cells import is_missing
from ..util.options import TableLike
from .sets import Sets, single

# The kinds of evidence: observations, likelihoods, soft evidence and interventions; by name and by number.

class FrameRow(Protocol):
    """A row of a data frame, or a frame of one row."""

    def to_dict(self, *args: Any, **options: Any) -> Any: ...  # of pandas and Polars; not called


# variable (name or number) -> state (name or number), or a set of states; rows: observations only
Findings = Mapping[Any, Any] | FrameRow
Cases = TableLike


class EvidenceOptions(TypedDict, total=False):
    """Evidence other than observations: keyword arguments of every query.

    Each maps variables, by name or number, to a value:

    likelihood
        Virtual evidence: P(observation | state), weights >= 0, as an array or as a mapping from state to weight.
        Several variables, a tuple, have an array with an axis for each: ``{("lung", "bronc"): [[1, .5], [.2, .1]]}``.
    soft
        Soft evidence (Jeffrey's rule): the posterior that the variable must have, as an array or as a mapping from
        state to probability.
    do
        Interventions: the state that the variable is set to, or the probabilities with which it is set. This removes
        the arcs from its parents.
    """

    likelihood: Mapping[Any, Any] | None
    soft: Mapping[Any, Any] | None
    do: Mapping[Any, Any] | None


@dataclass(frozen=True)
class CaseEvidence:
    """All evidence of one case, by number."""

    case: Evidence  # observations and likelihoods; interventions are entered as observations, too
    soft: Mapping[int, Floats] = field(default_factory=dict)  # variable -> (card,) probabilities
    intervened: tuple[int, ...] = ()  # variables with an intervention, ascending


# Checks of what users give for one variable: weights, probabilities, and each variable once.

SUM_TOLERANCE = 1e-6  # largest accepted difference between 1 and the sum of probabilities that a user typed

_EXAMPLES = {
    "evidence": "{'xray': 'yes'}",
    "likelihood": "{'xray': [0.9, 0.2]}",
    "soft": "{'xray': [0.7, 0.3]}",
    "do": "{'smoke': 'yes'}",
    "cases": "{'xray': ['yes', 'no', None]}",
}


def one_case(model: DiscreteModel, given: Findings | None) -> Findings | None:
    """Observations as a mapping without variables that are not observed."""
    # given: mapping, row of a data frame, or data frame of one row: A mapping names variables only; its values None,
    #     NaN and NA mean "not observed". A row is read as tables are: its other columns are ignored. Anything else is
    #     returned as it is.
    if isinstance(given, Mapping):
        if not any(map(is_missing, given.values())):
            return given
        return {v: state for v, state in given.items() if not is_missing(state) or model.index(v) < 0}  # v is known
    row: Any = given
    if hasattr(row, "index") and hasattr(row, "items") and getattr(row, "ndim", 0) == 1:  # a row of a pandas frame
        names = [*map(str, row.index)]
        reject_repeated(names, names, "the row")
        row = {name: [state] for name, (_, state) in zip(names, row.items(), strict=True)}
    elif not is_frame(row) or not any(hasattr(row, c) for c in ("columns", "column_names", "schema")):
        return given
    states, _ = read_states(model, row)
    if len(states) != 1:
        raise EvidenceError(
            f"the evidence is a data frame of {len(states)} rows, expected one; posteriors_batch and predict_proba "
            "take tables of cases"
        )
    return {model.variables[v]: StateNumber(s) for v, s in enumerate(states[0].tolist()) if s >= 0}


def row_findings(net: Any, given: Any) -> Any:
    """A row of a data frame, or a frame of one row, as observations of a network with numbers; else as it is."""
    if len(getattr(given, "columns", ())) and len(given) == 1:
        given = given.iloc[0] if hasattr(given, "iloc") else given.row(0, named=True)
    if isinstance(given, Mapping) or (hasattr(given, "to_dict") and getattr(given, "ndim", 0) == 1):
        return {v: x for v, x in given.items() if v in net and not is_missing(x)}
    return given


def by_number(model: DiscreteModel, given: Findings | None, what: str) -> Iterator[tuple[int, Any]]:
    """Iterate over a mapping from variables to values as pairs (number, value)."""
    # what: The argument's name, for messages
    # raises EvidenceError: If `given` is not a mapping, or has a variable by name and by number.
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise EvidenceError(
            f"{what} must be a mapping such as {_EXAMPLES[what]}, not a {type(given).__name__}: {shown(given)}"
        )
    seen: set[int] = set()
    for variable, value in given.items():
        v = model.index(variable)
        if v in seen:
            raise EvidenceError(f"{what} has the variable {model.variables[v]!r} twice, by name and by number")
        seen.add(v)
        yield v, value


def weights(model: DiscreteModel, v: int, value: Mapping[Any, float] | ArrayLike, what: str = "") -> Floats:
    """(card,) weights of the states of a variable, from an array or a mapping from state to weight."""
    # what: What the weights are, for messages. Default: the likelihood of the variable.
    name, card = model.variables[v], int(model.cardinality[v])
    what = what or f"the likelihood of {name!r}"
    if isinstance(value, Mapping):
        vector = _by_state(model, v, value, what)
    else:
        vector = number_array(value, what, states={name: model.states(v)})
    if vector.shape != (card,):
        raise EvidenceError(f"{what} has shape {vector.shape}, expected ({card},): one weight for each state")
    if not np.isfinite(vector).all() or (vector < 0).any():
        raise EvidenceError(f"{what} must have finite weights >= 0, got {shown(vector.tolist())}")
    if not vector.any():
        raise ImpossibleEvidence(f"{what} is zero in every state")
    return vector


def _by_state(model: DiscreteModel, v: int, value: Mapping[Any, float], what: str) -> Floats:
    """Weights of the states from a mapping, which has to contain every state once."""
    labels = model.states(v)
    vector = np.zeros(len(labels))
    given = np.zeros(len(labels), np.bool_)
    for s, weight in value.items():
        i = model.state_index(v, s)
        number = number_array(weight, f"{what} for the state {shown(labels[i])}", "a number")
        if number.ndim:
            raise EvidenceError(f"{what} for the state {shown(labels[i])} must be a number, got {shown(weight)}")
        if given[i]:
            raise EvidenceError(f"{what} has the state {shown(labels[i])} twice, by name and by number")
        vector[i], given[i] = float(number), True
    if not given.all():
        missing = [labels[i] for i in np.flatnonzero(~given)[:10].tolist()]
        raise EvidenceError(f"{what} has no weight for {', '.join(map(shown, missing))}")
    return vector


def is_distribution(value: Any) -> bool:
    """Whether the value of an intervention is a distribution over the states and not one state."""
    return isinstance(value, (Mapping, list, tuple)) or np.ndim(value) > 0


def probabilities(model: DiscreteModel, v: int, value: Any, what: str) -> Floats:
    """(card,) probabilities of the states of a variable, which sum to 1."""
    name = model.variables[v]
    if isinstance(value, (str, AbstractSet)):
        raise EvidenceError(f"{what} on {name!r} must be a probability for each state, got {shown(value)}")
    vector = weights(model, v, value, f"{what} on {name!r}")
    with np.errstate(over="ignore"):
        total = float(vector.sum())
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise EvidenceError(f"the probabilities of {what} on {name!r} must sum to 1, but sum to {total:.9g}")
    return np.asarray(vector / total, np.float64)


def plain(likelihood: Any, sets: Sets | None) -> Any:
    """The likelihoods of single variables; an error for those of several where a query takes none."""
    alone = single(likelihood)
    if alone is not likelihood and sets is None:
        several = next(v for v in likelihood if isinstance(v, tuple))
        raise EvidenceError(f"this query takes likelihoods of single variables, not of {shown(several)} together")
    return alone


def check_intervention(model: DiscreteModel) -> None:
    """Raise `EvidenceError` unless the model is a Bayesian network."""
    if not isinstance(model, BayesianNetwork):
        raise EvidenceError(
            "do= requires a Bayesian network: a Markov network has no arcs that an intervention could remove"
        )


def read_findings(
    model: DiscreteModel, findings: Findings | None, likelihood: Findings | None = None, sets: Sets | None = None
) -> Evidence:
    """Convert observations and likelihoods from names to numbers."""
    # findings: mapping or row of a data frame: Variable to its state, or to a set (list, tuple) of states one of which
    #     holds; see `one_case`. The attribute ``likelihood`` of a mapping from `jtgpu.read_evidence` is used, too.
    # likelihood: Variable to weights >= 0: an array in the order of the states, or a mapping from every state to its
    #     weight; several variables, a tuple, to an array with an axis for each
    # sets: Of the plan. Default: no likelihoods of several variables.
    # raises UnknownVariable, UnknownState: If the model has no such name; the message suggests the closest ones.
    # raises EvidenceError: If a value has the wrong type or length, a weight is negative, or a variable is given twice.
    # raises ImpossibleEvidence: If a set of states is empty, or all weights are zero.
    if likelihood is None and (findings is None or type(findings) is dict):
        simple = plain_states(model, findings or {}, len(model))
        if simple is not None:
            return Evidence(simple)
    findings = one_case(model, findings)
    state = np.full(len(model), -1, np.int32)
    given: dict[int, Floats] = {}
    for v, value in by_number(model, findings, "evidence"):
        if type(value) is str or type(value) is int:  # the common case, without the checks below
            state[v] = model.state_index(v, value)
            continue
        chosen = _observed_states(model, v, value)
        if len(chosen) == 1:
            state[v] = chosen[0]
        else:
            given[v] = np.zeros(int(model.cardinality[v]))
            given[v][chosen] = 1.0
    for more in (getattr(findings, "likelihood", None), likelihood):
        if more is None:
            continue
        for v, value in by_number(model, plain(more, sets), "likelihood"):
            vector = weights(model, v, value)
            given[v] = product(model, v, given[v], vector) if v in given else vector
        if sets is not None:
            sets.add(given, more)
    return Evidence(state, given)


def plain_states(model: DiscreteModel, findings: dict[Any, Any], n: int) -> NDArray[np.int32] | None:
    """The common case: variables by name, each with the name or number of a state; None for anything else."""
    # n: Length of the result, at least the number of variables; -1 where nothing is observed
    codes, state = model.codes, array("i", (-1,)) * n
    for variable, value in findings.items():
        kind = type(value)
        if kind is not str and kind is not int:
            return None
        try:
            entry = codes[variable]
        except KeyError:
            return None
        s = entry[1].get(value)
        if s is None:
            return None
        state[entry[0]] = s
    return np.frombuffer(state, np.int32)


def _observed_states(model: DiscreteModel, v: int, value: Any) -> list[StateNumber]:
    """Numbers of the states that an observation allows, ascending."""
    name = model.variables[v]
    if isinstance(value, (AbstractSet, list, tuple)):
        chosen = sorted({model.state_index(v, s) for s in value})
        if not chosen:
            raise ImpossibleEvidence(f"the evidence on {name!r} is an empty set of states")
        return chosen
    if isinstance(value, Mapping) or np.ndim(value) > 0:
        raise EvidenceError(
            f"the evidence on {name!r} must be a state or a set of states, got {shown(value)}; pass weights as "
            f"likelihood={{{name!r}: ...}}"
        )
    return [model.state_index(v, value)]


def read_known(
    model: DiscreteModel,
    evidence: Findings | None = None,
    likelihood: Findings | None = None,
    soft: Findings | None = None,
    do: Findings | None = None,
    sets: Sets | None = None,
) -> CaseEvidence:
    """Convert all kinds of evidence from names to numbers; see `EvidenceOptions`."""
    # raises UnknownVariable, UnknownState, EvidenceError, ImpossibleEvidence: As `read_findings`; also if probabilities
    #     do not sum to 1, if a variable with soft evidence is observed or set, if a variable is set to one state and
    #     observed in another one, or if a model without arcs gets an intervention.
    case = read_findings(model, evidence, likelihood, sets)
    if soft is None and do is None:
        return CaseEvidence(case)
    given = dict(case.likelihood)
    intervened = set()
    for v, value in by_number(model, do, "do"):
        check_intervention(model)
        intervened.add(v)
        if is_distribution(value):
            vector = probabilities(model, v, value, "do")
            given[v] = product(model, v, given[v], vector) if v in given else vector
            continue
        state = model.state_index(v, value)
        if case.state[v] >= 0 and case.state[v] != state:
            raise ImpossibleEvidence(
                f"{model.variables[v]!r} is set to {model.states(v)[state]!r} by do, but observed to be "
                f"{model.states(v)[case.state[v]]!r}"
            )
        case.state[v] = state
    required: dict[int, Floats] = {}
    for v, value in by_number(model, soft, "soft"):
        if v in intervened or case.state[v] >= 0:
            how = "set by do" if v in intervened else "observed"
            raise EvidenceError(f"{model.variables[v]!r} is {how} and cannot have soft evidence")
        required[v] = probabilities(model, v, value, "soft evidence")
    return CaseEvidence(Evidence(case.state, given), dict(sorted(required.items())), tuple(sorted(intervened)))
