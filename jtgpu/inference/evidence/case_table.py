"""Evidence of a table of cases: `read_cases` for observations and likelihoods, `read_known_cases` for all kinds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import EvidenceError, UnknownState
from ...model.network import DiscreteModel
from ...util.rows import extremes
from .kinds import Cases, KnownCases
from .values import by_number, check_intervention, probability_rows

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["read_cases", "read_known_cases"]


def read_cases(
    model: DiscreteModel, cases: Cases, likelihood: Mapping[Any, ArrayLike] | None = None
) -> tuple[NDArray[np.int32], dict[int, NDArray[np.float64]]]:
    """Convert a table of B cases from names to numbers.

    Parameters
    ----------
    model : DiscreteModel
    cases : (B, V) array of int, or mapping
        See `jtgpu.JunctionTree.posteriors_batch`.
    likelihood : mapping, optional
        Variable to weights >= 0, (B, card) or (card,).

    Returns
    -------
    states : (B, V) ndarray of int32
        -1: not observed.
    weights : dict of int to (B, card) ndarray of float64

    Raises
    ------
    UnknownVariable, UnknownState
        If the model has no such name; the message has the row and suggests the closest names.
    EvidenceError
        If an array has the wrong shape or dtype, a weight is negative, or a variable is given twice.
    """
    states = _from_columns(model, cases) if isinstance(cases, Mapping) else _from_matrix(model, cases)
    weights: dict[int, NDArray[np.float64]] = {}
    for v, value in by_number(model, likelihood, "likelihood"):
        name, card = model.variables[v], int(model.cardinality[v])
        table = np.asarray(value, np.float64)
        if table.shape not in ((card,), (len(states), card)):
            raise EvidenceError(
                f"the likelihood of {name!r} has shape {table.shape}, expected ({len(states)}, {card}) or ({card},) "
                f"for {len(states)} cases and {card} states"
            )
        if not np.isfinite(table).all() or (table < 0).any():
            raise EvidenceError(f"the likelihood of {name!r} must have finite weights >= 0")
        weights[v] = np.ascontiguousarray(np.broadcast_to(table, (len(states), card)))
    return states, weights


def _from_matrix(model: DiscreteModel, cases: ArrayLike) -> NDArray[np.int32]:
    table = np.asarray(cases)
    if table.ndim != 2 or table.shape[1] != len(model):
        raise EvidenceError(
            f"cases has shape {table.shape}, expected (n_cases, {len(model)}): one column for each variable"
        )
    if table.dtype.kind not in "iu":
        raise EvidenceError(
            f"an array of cases must hold integers (state numbers, -1: not observed), not {table.dtype}; pass a "
            "mapping from variable to column for state names and missing values"
        )
    low, high = extremes(table)
    if (low < -1).any() or (high >= model.cardinality).any():
        row, v = (int(x) for x in np.argwhere((table < -1) | (table >= model.cardinality))[0])
        raise UnknownState(
            f"case {row}: {model.variables[v]!r} has no state number {int(table[row, v])}; it has 0 to "
            f"{model.cardinality[v] - 1} (-1: not observed)"
        )
    return np.ascontiguousarray(table, np.int32)


def _from_columns(model: DiscreteModel, cases: Mapping[Any, ArrayLike]) -> NDArray[np.int32]:
    n = -1
    states = np.zeros((0, len(model)), np.int32)
    for v, column in by_number(model, cases, "cases"):
        # an object array keeps labels, numbers and None of a list apart
        values = column if isinstance(column, np.ndarray) else np.array(column, object)
        if values.ndim != 1 or (n >= 0 and len(values) != n):
            others = f", but the columns before it have {n} rows" if n >= 0 else ", expected one dimension"
            raise EvidenceError(f"the column of {model.variables[v]!r} has shape {values.shape}{others}")
        if n < 0:
            n = len(values)
            states = np.full((n, len(model)), -1, np.int32)
        states[:, v] = _state_numbers(model, v, values)
    return states


def _state_numbers(model: DiscreteModel, v: int, values: NDArray[Any]) -> NDArray[np.int32]:
    """State numbers of a column; each distinct value is looked up once."""
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


def read_known_cases(
    model: DiscreteModel,
    cases: Cases,
    likelihood: Mapping[Any, ArrayLike] | None = None,
    soft: Mapping[Any, Any] | None = None,
    do: Mapping[Any, Any] | None = None,
) -> KnownCases:
    """Convert all kinds of evidence of a table of B cases from names to numbers.

    Parameters
    ----------
    model : DiscreteModel
    cases, likelihood
        See `read_cases`.
    soft : mapping, optional
        Variable to probabilities, (B, card), or (card,) for all cases; a row of NaN: no soft evidence in this case.
    do : mapping, optional
        Variable to a state for all cases, to B states, or to probabilities, (B, card) or (card,) of float.

    Raises
    ------
    UnknownVariable, UnknownState, EvidenceError
    """
    states, weights = read_cases(model, cases, likelihood)
    if not soft and not do:
        return KnownCases(states, weights)
    states = states.copy()  # the table may be the caller's
    intervened = _set_states(model, do, states, weights)
    found: dict[int, NDArray[np.float64]] = {}
    for v, value in by_number(model, soft, "soft"):
        name = model.variables[v]
        if v in intervened:
            raise EvidenceError(f"{name!r} is set by do and cannot have soft evidence")
        found[v] = probability_rows(model, v, value, len(states), "soft evidence")
        both = (states[:, v] >= 0) & ~np.isnan(found[v][:, 0])
        if both.any():
            raise EvidenceError(f"case {int(np.argmax(both))}: {name!r} is observed and cannot have soft evidence")
    return KnownCases(states, weights, dict(sorted(found.items())), tuple(sorted(intervened)))


def _set_states(
    model: DiscreteModel,
    do: Mapping[Any, Any] | None,
    states: NDArray[np.int32],
    weights: dict[int, NDArray[np.float64]],
) -> set[int]:
    """Enter interventions into `states` and `weights`; the variables that are set."""
    n = len(states)
    intervened = set()
    for v, value in by_number(model, do, "do"):
        check_intervention(model)
        intervened.add(v)
        if isinstance(value, Mapping) or (np.ndim(value) > 0 and np.asarray(value).dtype.kind == "f"):
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
        weights[v] = weights[v] * given if v in weights else given
    return intervened


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
    column = _state_numbers(model, v, values)
    if (column < 0).any():
        raise EvidenceError(
            f"case {int(np.argmax(column < 0))}: do on {name!r} has no state; pass cases that set other variables as "
            "another table"
        )
    return column
