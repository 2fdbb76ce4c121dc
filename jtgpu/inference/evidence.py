"""Evidence by names and labels, as people type it or hand it over; evidence by numbers, as backends take it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, Union

import numpy as np

from ..backends.base import Evidence
from ..errors import EvidenceError, ImpossibleEvidence, UnknownState
from ..model.network import BayesianNetwork, DiscreteModel
from ..util.rows import extremes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Cases",
    "Findings",
    "Known",
    "KnownCases",
    "More",
    "read_cases",
    "read_findings",
    "read_known",
    "read_known_cases",
]

# (B, V) numbers of states, -1 for what is not observed; or variable -> B states
Cases = Union["NDArray[Any]", Mapping[Any, Any]]
Findings = Mapping[Any, Any]  # variable (name or number) -> state (name or number), or a set of states

SUM_TOLERANCE = 1e-6  # how far from 1 the sum of probabilities that somebody typed may be


class More(TypedDict, total=False):
    """What may be known beside observations: keywords that every question takes.

    Each maps variables, by name or number, to what is said of them. Keys:

    likelihood
        Virtual evidence: P(observation | state), weights >= 0, as an array or as a mapping from state to weight.
    soft
        Soft evidence by Jeffrey's rule: the probabilities that the variable has once everything is taken into
        account, as an array or as a mapping from state to probability.
    do
        Interventions: the state that a variable is set to from outside, or the probabilities with which it is set.
        Its parents say nothing of it then, nor it of them.
    """

    likelihood: Findings | None
    soft: Findings | None
    do: Findings | None


@dataclass(frozen=True)
class Known:
    """All that is known in one case, by numbers."""

    case: Evidence  # what is observed and weighed; what variables are set to stands here too
    soft: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)  # variable -> (card,) probabilities
    cut: tuple[int, ...] = ()  # variables that are set from outside, ascending


@dataclass(frozen=True)
class KnownCases:
    """All that is known in a table of B cases, by numbers."""

    states: NDArray[np.int32]  # (B, V)
    likelihood: Mapping[int, NDArray[np.float64]]  # variable -> (B, card) weights
    soft: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)  # variable -> (B, card), NaN where none
    cut: tuple[int, ...] = ()


def read_findings(model: DiscreteModel, findings: Findings | None, likelihood: Findings | None = None) -> Evidence:
    """Evidence by names as evidence by numbers.

    Parameters
    ----------
    model : DiscreteModel
    findings : mapping, optional
        Variable to a state, or to a set (list, tuple) of states of which one holds. A mapping with an attribute
        ``likelihood``, as `jtgpu.read_evidence` gives, brings its own weights.
    likelihood : mapping, optional
        Variable to weights >= 0: an array in the order of the states, or a mapping from state to weight in which
        every state stands.

    Raises
    ------
    UnknownVariable, UnknownState
        With the closest names.
    EvidenceError
        For a value of another type, a wrong length, a negative weight, the same variable twice.
    ImpossibleEvidence
        For a set without states, or weights that are all zero.
    """
    state = np.full(len(model), -1, np.int32)
    weights: dict[int, NDArray[np.float64]] = {}
    for variable, value in _items(findings, "evidence"):
        v = model.index(variable)
        name = model.variables[v]
        if state[v] >= 0 or v in weights:
            raise EvidenceError(f"evidence names the variable {name!r} twice (by name and by number)")
        if isinstance(value, (AbstractSet, list, tuple)):
            chosen = sorted({model.state_index(v, s) for s in value})
            if not chosen:
                raise ImpossibleEvidence(f"the evidence on {name!r} is a set without states")
            if len(chosen) == 1:
                state[v] = chosen[0]
            else:
                weights[v] = np.zeros(int(model.cardinality[v]))
                weights[v][chosen] = 1.0
        elif value is None or (isinstance(value, float) and math.isnan(value)):
            raise EvidenceError(f"the evidence on {name!r} is {value!r}; leave out what is not observed")
        elif isinstance(value, Mapping) or np.ndim(value) > 0:
            raise EvidenceError(
                f"the evidence on {name!r} is {value!r}; weights are given as likelihood={{{name!r}: ...}}"
            )
        else:
            state[v] = model.state_index(v, value)
    for given in (getattr(findings, "likelihood", None), likelihood):
        soft: set[int] = set()
        for variable, value in _items(given, "likelihood"):
            v = model.index(variable)
            if v in soft:
                name = model.variables[v]
                raise EvidenceError(f"likelihood names the variable {name!r} twice (by name and by number)")
            soft.add(v)
            vector = _weights(model, v, value)
            weights[v] = weights[v] * vector if v in weights else vector
    return Evidence(state, weights)


def _items(given: Findings | None, what: str) -> Iterable[tuple[Any, Any]]:
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise EvidenceError(
            f"{what} maps variables to what is known of them; this is {type(given).__name__}: {given!r}"
        )
    return given.items()


def _weights(model: DiscreteModel, v: int, value: Mapping[Any, float] | ArrayLike) -> NDArray[np.float64]:
    name, card = model.variables[v], int(model.cardinality[v])
    if isinstance(value, Mapping):
        vector = np.full(card, np.nan)
        for s, w in value.items():
            vector[model.state_index(v, s)] = w
        if np.isnan(vector).any():
            missing = [model.states(v)[i] for i in np.flatnonzero(np.isnan(vector)).tolist()]
            raise EvidenceError(f"the likelihood of {name!r} has no weight for {', '.join(map(repr, missing))}")
    else:
        try:
            vector = np.array(value, np.float64)
        except (TypeError, ValueError):
            raise EvidenceError(f"the likelihood of {name!r} is no array of numbers: {value!r}") from None
    if vector.shape != (card,):
        raise EvidenceError(f"the likelihood of {name!r} has shape {vector.shape}; it has {card} states")
    if not np.isfinite(vector).all() or (vector < 0).any():
        raise EvidenceError(f"the likelihood of {name!r} needs finite weights >= 0, not {vector.tolist()}")
    if not vector.any():
        raise ImpossibleEvidence(f"the likelihood of {name!r} is zero in every state")
    return vector


def read_cases(
    model: DiscreteModel, cases: Cases, likelihood: Mapping[Any, ArrayLike] | None = None
) -> tuple[NDArray[np.int32], dict[int, NDArray[np.float64]]]:
    """A table of cases by numbers: states, (B, V) int32, -1 for what is not observed; and weights, (B, card).

    Parameters
    ----------
    model : DiscreteModel
    cases : (B, V) array of int, or mapping
        See `jtgpu.JunctionTree.posteriors_batch`.
    likelihood : mapping, optional
        Variable to weights >= 0, (B, card) or (card,).

    Raises
    ------
    UnknownVariable, UnknownState
        Naming the row, with the closest names.
    EvidenceError
        For another shape or type, columns of different lengths, the same variable twice, a negative weight.
    """
    states = _columns(model, cases) if isinstance(cases, Mapping) else _matrix(model, cases)
    weights: dict[int, NDArray[np.float64]] = {}
    for variable, value in _items(likelihood, "likelihood"):
        v = model.index(variable)
        name, card = model.variables[v], int(model.cardinality[v])
        if v in weights:
            raise EvidenceError(f"likelihood names the variable {name!r} twice (by name and by number)")
        table = np.asarray(value, np.float64)
        if table.shape not in ((card,), (len(states), card)):
            raise EvidenceError(
                f"the likelihood of {name!r} has shape {table.shape}; {len(states)} cases of {card} states need "
                f"({len(states)}, {card}) or ({card},)"
            )
        if not np.isfinite(table).all() or (table < 0).any():
            raise EvidenceError(f"the likelihood of {name!r} needs finite weights >= 0")
        weights[v] = np.ascontiguousarray(np.broadcast_to(table, (len(states), card)))
    return states, weights


def _matrix(model: DiscreteModel, cases: ArrayLike) -> NDArray[np.int32]:
    table = np.asarray(cases)
    if table.ndim != 2 or table.shape[1] != len(model):
        raise EvidenceError(f"cases have shape {table.shape}; a table of this model is (cases, {len(model)})")
    if table.dtype.kind not in "iu":
        raise EvidenceError(
            f"cases by number are integers, not {table.dtype}; labels and empty cells are given as a mapping from "
            "variable to column"
        )
    low, high = extremes(table)
    if (low < -1).any() or (high >= model.cardinality).any():
        row, v = (int(x) for x in np.argwhere((table < -1) | (table >= model.cardinality))[0])
        raise UnknownState(
            f"case {row}: {model.variables[v]!r} has no state {int(table[row, v])} (0 to {model.cardinality[v] - 1}; "
            "-1: not observed)"
        )
    return np.ascontiguousarray(table, np.int32)


def _columns(model: DiscreteModel, cases: Mapping[Any, ArrayLike]) -> NDArray[np.int32]:
    n = -1
    states = np.zeros((0, len(model)), np.int32)
    met: set[int] = set()
    for variable, column in cases.items():
        v = model.index(variable)
        name = model.variables[v]
        if v in met:
            raise EvidenceError(f"cases name the variable {name!r} twice (by name and by number)")
        met.add(v)
        # a list may mix labels, numbers and None: not to be made strings of
        values = column if isinstance(column, np.ndarray) else np.array(column, object)
        if values.ndim != 1 or (n >= 0 and len(values) != n):
            others = f"; others have {n} rows" if n >= 0 else ""
            raise EvidenceError(f"the column of {name!r} has shape {values.shape}{others}")
        if n < 0:
            n = len(values)
            states = np.full((n, len(model)), -1, np.int32)
        states[:, v] = _column(model, v, values)
    return states


def _column(model: DiscreteModel, v: int, values: NDArray[Any]) -> NDArray[np.int32]:
    """Numbers of a column's states; every different value is looked up once."""
    if values.dtype.kind in "iu":
        bad = (values < -1) | (values >= model.cardinality[v])
        if not bad.any():
            return values.astype(np.int32)
    found: dict[Any, int] = {}
    numbers = np.empty(len(values), np.int32)
    for row, value in enumerate(values.tolist()):
        if value not in found:
            try:
                found[value] = -1 if _is_missing(value) else model.state_index(v, value)
            except UnknownState as error:
                raise UnknownState(f"case {row}: {error.args[0]}") from None
        numbers[row] = found[value]
    return numbers


def _is_missing(value: Any) -> bool:
    return value is None or value == -1 or (isinstance(value, float) and math.isnan(value))


# Soft evidence and interventions --------------------------------------------------------------------------------


def read_known(
    model: DiscreteModel,
    evidence: Findings | None = None,
    likelihood: Findings | None = None,
    soft: Findings | None = None,
    do: Findings | None = None,
) -> Known:
    """All kinds of evidence by names as evidence by numbers; see `More`.

    Raises
    ------
    UnknownVariable, UnknownState, EvidenceError, ImpossibleEvidence
        As `read_findings`; also for probabilities that do not sum to 1, soft evidence on a variable that is observed
        or set, a variable that is observed in one state and set to another one, and an intervention in a model
        without arcs.
    """
    case = read_findings(model, evidence, likelihood)
    if not soft and not do:
        return Known(case)
    weights = dict(case.likelihood)
    cut: dict[int, Any] = {}
    for variable, value in _items(do, "do"):
        v = _actor(model, variable, cut)
        cut[v] = value
        if isinstance(value, Mapping) or np.ndim(value) > 0:
            given = _probabilities(model, v, value, "do()")
            weights[v] = weights[v] * given if v in weights else given
            continue
        state = model.state_index(v, value)
        if case.state[v] >= 0 and case.state[v] != state:
            raise ImpossibleEvidence(
                f"{model.variables[v]!r} is set to {model.states(v)[state]!r} and observed to be "
                f"{model.states(v)[case.state[v]]!r}"
            )
        case.state[v] = state
    found: dict[int, NDArray[np.float64]] = {}
    for variable, value in _items(soft, "soft"):
        v = model.index(variable)
        name = model.variables[v]
        if v in found:
            raise EvidenceError(f"soft evidence names the variable {name!r} twice (by name and by number)")
        if v in cut or case.state[v] >= 0:
            raise EvidenceError(f"soft evidence on {name!r}, which is {'set by do' if v in cut else 'observed'}")
        found[v] = _probabilities(model, v, value, "soft evidence")
    return Known(Evidence(case.state, weights), dict(sorted(found.items())), tuple(sorted(cut)))


def read_known_cases(
    model: DiscreteModel,
    cases: Cases,
    likelihood: Mapping[Any, ArrayLike] | None = None,
    soft: Mapping[Any, Any] | None = None,
    do: Mapping[Any, Any] | None = None,
) -> KnownCases:
    """All kinds of evidence of B cases by numbers.

    Parameters
    ----------
    model : DiscreteModel
    cases, likelihood
        See `read_cases`.
    soft : mapping, optional
        Variable to probabilities, (B, card) or (card,) for the same in every case; a row of NaN: none in this case.
    do : mapping, optional
        Variable to a state for all cases, or B states, or probabilities, (B, card) or (card,) float.

    Raises
    ------
    UnknownVariable, UnknownState, EvidenceError
    """
    states, weights = read_cases(model, cases, likelihood)
    if not soft and not do:
        return KnownCases(states, weights)
    n = len(states)
    states, cut = states.copy(), dict[int, Any]()  # the table is the caller's
    for variable, value in _items(do, "do"):
        v = _actor(model, variable, cut)
        cut[v] = value
        card = int(model.cardinality[v])
        if isinstance(value, Mapping) or (np.ndim(value) > 0 and np.asarray(value).dtype.kind == "f"):
            given = _probability_rows(model, v, value, n, "do()")
            if np.isnan(given).any():
                raise EvidenceError(f"do() on {model.variables[v]!r} has no probabilities in some cases")
        else:
            column = _set_to(model, v, value, n)
            free, other = states[:, v] < 0, (states[:, v] >= 0) & (states[:, v] != column)
            states[free, v] = column[free]
            if not other.any():
                continue
            given = np.eye(card)[column]  # observed elsewhere: impossible
        weights[v] = weights[v] * given if v in weights else given
    found: dict[int, NDArray[np.float64]] = {}
    for variable, value in _items(soft, "soft"):
        v = model.index(variable)
        name = model.variables[v]
        if v in found:
            raise EvidenceError(f"soft evidence names the variable {name!r} twice (by name and by number)")
        if v in cut:
            raise EvidenceError(f"soft evidence on {name!r}, which is set by do")
        found[v] = _probability_rows(model, v, value, n, "soft evidence")
        both = (states[:, v] >= 0) & ~np.isnan(found[v][:, 0])
        if both.any():
            raise EvidenceError(f"case {int(np.argmax(both))}: soft evidence on {name!r}, which is observed")
    return KnownCases(states, weights, dict(sorted(found.items())), tuple(sorted(cut)))


def _actor(model: DiscreteModel, variable: Any, known: Mapping[int, Any]) -> int:
    """Number of a variable that is set from outside."""
    if not isinstance(model, BayesianNetwork):
        raise EvidenceError("do() needs a Bayesian network: a Markov network has no arcs that an intervention cuts")
    v = model.index(variable)
    if v in known:
        raise EvidenceError(f"do names the variable {model.variables[v]!r} twice (by name and by number)")
    return v


def _probabilities(model: DiscreteModel, v: int, value: Any, what: str) -> NDArray[np.float64]:
    """Numbers that sum to 1, one a state."""
    name = model.variables[v]
    if isinstance(value, (str, AbstractSet)):
        raise EvidenceError(f"{what} on {name!r} is a probability for each of its states, not {value!r}")
    vector = _weights(model, v, value)
    if abs(float(vector.sum()) - 1.0) > SUM_TOLERANCE:
        raise EvidenceError(f"the probabilities of {what} on {name!r} sum to {vector.sum():.9g}, not to 1")
    return np.asarray(vector / vector.sum(), np.float64)


def _probability_rows(model: DiscreteModel, v: int, value: Any, n: int, what: str) -> NDArray[np.float64]:
    """(n, card) probabilities; rows of NaN stay."""
    name, card = model.variables[v], int(model.cardinality[v])
    if isinstance(value, Mapping) or np.ndim(value) == 1:
        return np.tile(_probabilities(model, v, value, what), (n, 1))
    try:
        table = np.array(value, np.float64)
    except (TypeError, ValueError):
        raise EvidenceError(f"{what} on {name!r} is no array of numbers: {value!r}") from None
    if table.shape != (n, card):
        raise EvidenceError(
            f"{what} on {name!r} has shape {table.shape}; {n} cases of {card} states need ({n}, {card}) or ({card},)"
        )
    given = ~np.isnan(table).all(axis=1)
    sums = table[given].sum(axis=1)
    # a NaN among numbers makes the sum one
    if not (table[given] >= 0).all() or not (np.abs(sums - 1.0) <= SUM_TOLERANCE).all():
        raise EvidenceError(f"the probabilities of {what} on {name!r} are not all >= 0 with rows that sum to 1")
    table[given] /= sums[:, None]
    return table


def _set_to(model: DiscreteModel, v: int, value: Any, n: int) -> NDArray[np.int32]:
    """(n,) states that a variable is set to."""
    name = model.variables[v]
    if isinstance(value, AbstractSet):
        raise EvidenceError(f"do sets {name!r} to one state, not to {value!r}")
    if np.ndim(value) == 0:
        return np.full(n, model.state_index(v, value), np.int32)
    values = value if isinstance(value, np.ndarray) else np.array(value, object)
    if values.shape != (n,):
        raise EvidenceError(f"do on {name!r} has shape {values.shape}; there are {n} cases")
    column = _column(model, v, values)
    if (column < 0).any():
        raise EvidenceError(
            f"case {int(np.argmax(column < 0))}: do says nothing of {name!r}; cases in which other variables are set "
            "are another table"
        )
    return column
