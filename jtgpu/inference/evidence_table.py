"""Evidence of a table of cases: observations, likelihoods, soft evidence and interventions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns import Table, at_row, read_states
from ..columns.arrow import number_array
from ..columns.coded import Encoder
from ..columns.likelihoods import LikelihoodCells
from ..errors import EvidenceError, ImpossibleEvidence, TableTooLarge, UnknownState
from ..model.discrete import DiscreteModel
from ..util.arrays import Floats, Ints
from .evidence import SUM_TOLERANCE, Cases, by_number, check_intervention, plain, probabilities, weights
from .sets import Sets


@dataclass(frozen=True)
class BatchEvidence:
    """All evidence of a table of B cases, by number."""

    states: NDArray[np.int32]  # (B, V), -1: not observed
    likelihood: Mapping[int, Floats]  # variable -> (B, card) weights
    # variable -> (B, card) probabilities, NaN in cases without soft evidence
    soft: Mapping[int, Floats] = field(default_factory=dict)
    intervened: tuple[int, ...] = ()  # variables with an intervention, ascending
    table: Table | None = None  # that the cases were read from; None: an array of state numbers


@contextmanager
def naming_rows(table: Table | None, rows: Ints | None = None) -> Iterator[None]:
    """Name the row of a table whose question is too large in the error."""
    # rows: of the table, of each case that is computed; None: they are the same
    try:
        yield
    except TableTooLarge as error:
        if error.row < 0:
            raise
        if rows is not None:
            error.row = int(rows[error.row])
        raise error.saying(at_row(table, error.row, error.message)) from None


def read_known_cases(
    model: DiscreteModel,
    cases: Cases,
    likelihood: Mapping[Any, object] | None = None,
    soft: Mapping[Any, object] | None = None,
    do: Mapping[Any, object] | None = None,
    sets: Sets | None = None,
) -> BatchEvidence:
    """Convert all kinds of evidence of a table of B cases from names to numbers."""
    # cases: data frame, mapping, list of mappings, or array: See `jtgpu.JunctionTree.posteriors_batch`
    # likelihood: Variable to weights >= 0: (B, card), or (card,) or a mapping from state to weight for all cases;
    #     several variables, a tuple, to an array with an axis for each, or (B, ...)
    # sets: Of the plan. Default: no likelihoods of several variables.
    # soft: Variable to probabilities, (B, card), or (card,) for all cases; a row of NaN: no soft evidence in this case
    # do: Variable to a state for all cases, to B states, or to probabilities, (B, card) or (card,) of float
    # raises UnknownVariable, UnknownState: If the model has no such name; the message has row and column and suggests
    #     the closest names.
    # raises EvidenceError: If an array has the wrong shape or dtype, a weight is negative, or a variable is given
    #     twice.
    cells = LikelihoodCells(model)
    states, table = read_states(model, cases, cells)
    weights = read_weights(model, likelihood, len(states), sets)
    states = cells.taken(states, weights)
    if soft is None and do is None:
        return BatchEvidence(states, weights, table=table)
    states = states.copy()  # the table may be the caller's
    intervened = _set_states(model, do, states, weights)
    required: dict[int, Floats] = {}
    for v, value in by_number(model, soft, "soft"):
        name = model.variables[v]
        if v in intervened:
            raise EvidenceError(f"{name!r} is set by do and cannot have soft evidence")
        required[v] = probability_rows(model, v, value, len(states), "soft evidence")
        both = (states[:, v] >= 0) & ~np.isnan(required[v][:, 0])
        if both.any():
            reason = f"{name!r} is observed and cannot have soft evidence"
            raise EvidenceError(at_row(table, int(np.argmax(both)), reason))
    return BatchEvidence(states, weights, dict(sorted(required.items())), tuple(sorted(intervened)), table)


def read_weights(
    model: DiscreteModel, likelihood: Mapping[Any, object] | None, n: int, sets: Sets | None
) -> dict[int, Floats]:
    """Likelihoods of n cases by number, those of sets among them."""
    singles = by_number(model, plain(likelihood, sets), "likelihood")
    weights = {v: weight_rows(model, v, value, n) for v, value in singles}
    if sets is not None:
        sets.add(weights, likelihood, n)
    return weights


def weight_rows(model: DiscreteModel, v: int, value: object, n: int) -> Floats:
    """(n, card) likelihoods of n cases."""
    name, card = model.variables[v], int(model.cardinality[v])
    if isinstance(value, Mapping):
        try:
            value = weights(model, v, value)
        except ImpossibleEvidence:  # every case is impossible
            value = np.zeros(card)
    table = number_array(value, f"the likelihood of {name!r}", copy=False, states={name: model.states(v)})
    if table.shape not in ((card,), (n, card)):
        raise EvidenceError(
            f"the likelihood of {name!r} has shape {table.shape}, expected ({n}, {card}) or ({card},) for {n} cases "
            f"and {card} states"
        )
    if not np.isfinite(table).all() or (table < 0).any():
        raise EvidenceError(f"the likelihood of {name!r} must have finite weights >= 0")
    return np.ascontiguousarray(np.broadcast_to(table, (n, card)))


def probability_rows(model: DiscreteModel, v: int, value: object, n: int, what: str) -> Floats:
    """(n, card) probabilities of n cases; rows of NaN are kept."""
    name, card = model.variables[v], int(model.cardinality[v])
    if isinstance(value, Mapping):
        return np.tile(probabilities(model, v, value, what), (n, 1))
    table = number_array(value, f"{what} on {name!r}", states={name: model.states(v)})
    if table.ndim == 1:
        return np.tile(probabilities(model, v, table, what), (n, 1))
    if table.shape != (n, card):
        raise EvidenceError(
            f"{what} on {name!r} has shape {table.shape}, expected ({n}, {card}) or ({card},) for {n} cases and "
            f"{card} states"
        )
    given = ~np.isnan(table).all(axis=1)
    with np.errstate(over="ignore"):
        sums = table[given].sum(axis=1)
    # a single NaN makes the sum of its row NaN, and the comparison False
    if not (table[given] >= 0).all() or not (np.abs(sums - 1.0) <= SUM_TOLERANCE).all():
        raise EvidenceError(f"the probabilities of {what} on {name!r} must be >= 0, and each row must sum to 1")
    table[given] /= sums[:, None]
    return table


def _set_states(
    model: DiscreteModel,
    do: Mapping[Any, object] | None,
    states: NDArray[np.int32],
    likelihood: dict[int, Floats],
) -> set[int]:
    """Enter interventions into `states` and `likelihood`; the variables that are set."""
    n = len(states)
    intervened = set()
    for v, value in by_number(model, do, "do"):
        check_intervention(model)
        intervened.add(v)
        if isinstance(value, Mapping) or _is_probabilities(value):
            given = probability_rows(model, v, value, n, "do")
            if np.isnan(given).any():
                raise EvidenceError(f"do on {model.variables[v]!r} has no probabilities in some cases")
        else:
            column = _column_of_states(model, v, value, n)
            free, other = states[:, v] < 0, (states[:, v] >= 0) & (states[:, v] != column)
            states[free, v] = column[free]
            if not other.any():
                continue
            given = np.eye(int(model.cardinality[v]))[column]  # observed in another state: impossible
        likelihood[v] = likelihood[v] * given if v in likelihood else given
    return intervened


def _is_probabilities(value: object) -> bool:
    """Whether the value of an intervention is an array of probabilities and not of states."""
    if isinstance(value, (str, AbstractSet)):
        return False
    try:
        table = np.asarray(value)
    except ValueError:  # rows of different lengths: `probability_rows` explains what is expected
        return True
    return table.ndim > 0 and table.dtype.kind == "f"


def _column_of_states(model: DiscreteModel, v: int, value: Any, n: int) -> NDArray[np.int32]:
    """(n,) states that a variable is set to."""
    name = model.variables[v]
    if isinstance(value, AbstractSet):
        raise EvidenceError(f"do on {name!r} must be one state, got {value!r}")
    if np.ndim(value) == 0:
        return np.full(n, model.state_index(v, value), np.int32)
    values = value if isinstance(value, np.ndarray) else np.array(value, object)
    if values.shape != (n,):
        raise EvidenceError(f"do on {name!r} has shape {values.shape}, expected ({n},): one state for each case")
    encoded = Encoder(model, [v], frozenset()).encode([values], n, first_only=True)
    for row, reason in encoded.rejected.items():
        raise UnknownState(f"row {row}: do on {reason.removeprefix('column ')}")
    column: NDArray[np.int32] = encoded.codes[0].astype(np.int32)
    if (column < 0).any():
        raise EvidenceError(
            f"row {int(np.argmax(column < 0))}: do on {name!r} has no state; pass cases that set other variables as "
            "another table"
        )
    return column
