"""Checks of what users give for one variable: weights, probabilities, and each variable once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import EvidenceError, ImpossibleEvidence
from ...model.network import BayesianNetwork, DiscreteModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from .kinds import Findings

__all__ = [
    "by_number",
    "check_intervention",
    "is_distribution",
    "number_array",
    "probabilities",
    "probability_rows",
    "weights",
]

SUM_TOLERANCE = 1e-6  # largest accepted difference between 1 and the sum of probabilities that a user typed

_EXAMPLES = {
    "evidence": "{'xray': 'yes'}",
    "likelihood": "{'xray': [0.9, 0.2]}",
    "soft": "{'xray': [0.7, 0.3]}",
    "do": "{'smoke': 'yes'}",
    "cases": "{'xray': ['yes', 'no', None]}",
}


def by_number(model: DiscreteModel, given: Findings | None, what: str) -> Iterator[tuple[int, Any]]:
    """Iterate over a mapping from variables to values as pairs (number, value).

    Parameters
    ----------
    model : DiscreteModel
    given : mapping or None
    what : str
        The argument's name, for messages.

    Raises
    ------
    EvidenceError
        If `given` is not a mapping, or has a variable by name and by number.
    UnknownVariable
    """
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise EvidenceError(
            f"{what} must be a mapping such as {_EXAMPLES[what]}, not a {type(given).__name__}: {given!r}"
        )
    seen: set[int] = set()
    for variable, value in given.items():
        v = model.index(variable)
        if v in seen:
            raise EvidenceError(f"{what} has the variable {model.variables[v]!r} twice, by name and by number")
        seen.add(v)
        yield v, value


def weights(model: DiscreteModel, v: int, value: Mapping[Any, float] | ArrayLike) -> NDArray[np.float64]:
    """(card,) weights of the states of a variable, from an array or a mapping from state to weight."""
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
            raise EvidenceError(f"the likelihood of {name!r} must be an array of numbers, got {value!r}") from None
    if vector.shape != (card,):
        raise EvidenceError(
            f"the likelihood of {name!r} has shape {vector.shape}, expected ({card},): one weight for each state"
        )
    if not np.isfinite(vector).all() or (vector < 0).any():
        raise EvidenceError(f"the likelihood of {name!r} must have finite weights >= 0, got {vector.tolist()}")
    if not vector.any():
        raise ImpossibleEvidence(f"the likelihood of {name!r} is zero in every state")
    return vector


def is_distribution(value: Any) -> bool:
    """Whether the value of an intervention is a distribution over the states and not one state."""
    return isinstance(value, Mapping) or np.ndim(value) > 0


def probabilities(model: DiscreteModel, v: int, value: Any, what: str) -> NDArray[np.float64]:
    """(card,) probabilities of the states of a variable, which sum to 1."""
    name = model.variables[v]
    if isinstance(value, (str, AbstractSet)):
        raise EvidenceError(f"{what} on {name!r} must be a probability for each state, got {value!r}")
    vector = weights(model, v, value)
    if abs(float(vector.sum()) - 1.0) > SUM_TOLERANCE:
        raise EvidenceError(f"the probabilities of {what} on {name!r} must sum to 1, but sum to {vector.sum():.9g}")
    return np.asarray(vector / vector.sum(), np.float64)


def probability_rows(model: DiscreteModel, v: int, value: Any, n: int, what: str) -> NDArray[np.float64]:
    """(n, card) probabilities of n cases; rows of NaN are kept."""
    name, card = model.variables[v], int(model.cardinality[v])
    if isinstance(value, Mapping):
        return np.tile(probabilities(model, v, value, what), (n, 1))
    table = number_array(value, f"{what} on {name!r}")
    if table.ndim == 1:
        return np.tile(probabilities(model, v, table, what), (n, 1))
    if table.shape != (n, card):
        raise EvidenceError(
            f"{what} on {name!r} has shape {table.shape}, expected ({n}, {card}) or ({card},) for {n} cases and "
            f"{card} states"
        )
    given = ~np.isnan(table).all(axis=1)
    sums = table[given].sum(axis=1)
    # a single NaN makes the sum of its row NaN, and the comparison False
    if not (table[given] >= 0).all() or not (np.abs(sums - 1.0) <= SUM_TOLERANCE).all():
        raise EvidenceError(f"the probabilities of {what} on {name!r} must be >= 0, and each row must sum to 1")
    table[given] /= sums[:, None]
    return table


def number_array(value: Any, what: str) -> NDArray[np.float64]:
    """A copy of `value` as an array of float64; raises `EvidenceError` if it is none."""
    try:
        return np.array(value, np.float64)
    except (TypeError, ValueError):
        shown = repr(value)
        raise EvidenceError(
            f"{what} must be an array of numbers, got {shown if len(shown) <= 100 else shown[:97] + '...'}"
        ) from None


def check_intervention(model: DiscreteModel) -> None:
    """Raise `EvidenceError` unless the model is a Bayesian network."""
    if not isinstance(model, BayesianNetwork):
        raise EvidenceError(
            "do= requires a Bayesian network: a Markov network has no arcs that an intervention could remove"
        )
