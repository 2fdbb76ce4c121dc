"""The states of every variable: given, of the network, or those in the data."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import ArgumentError, DataError, closest
from ...model.network import BayesianNetwork
from ...util.arguments import described, mapping, names, several
from ...util.intervals import interval_labels, intervals_of
from ..discretisation.cut_points import quantile_cuts
from .likelihood_cells import is_likelihood

INFINITE = re.compile("[+-]?inf(inity)?", re.IGNORECASE)
MAX_NUMERIC = 256  # distinct numbers of a column that are states without discretisation


def hidden_states(hidden: Any, network: BayesianNetwork | None, variables: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """States of the hidden variables."""
    # hidden: mapping, name, or iterable of names: Variable to its number of states or their names; None, or a name
    #     alone: the states of the network
    # raises ArgumentError: If a variable or its states are unknown, differ from the network's, or are fewer than 2.
    given = dict(hidden) if isinstance(hidden, Mapping) else dict.fromkeys(names("hidden", hidden))
    found = {}
    for v, states in given.items():
        if v not in variables:
            raise ArgumentError(f"hidden: there is no variable {v!r}{closest(str(v), variables)}")
        known = network.states(v) if network is not None else None
        if isinstance(states, int) and not isinstance(states, bool):
            own: tuple[str, ...] = tuple(map(str, range(states)))
            if known is not None and len(known) == states:
                own = known
        elif states is None:
            if known is None:
                raise ArgumentError(f"hidden variable {v!r}: give its number of states, as in hidden={{{v!r}: 2}}")
            own = known
        else:
            own = tuple(map(str, several(states) or ()))
        if known is not None and own != known:
            raise ArgumentError(f"hidden variable {v!r} has {len(known)} states in the network, not {states!r}")
        if len(own) < 2 or len(set(own)) < len(own):
            wrong = f"the network's {list(own)}" if states is None else repr(states)
            raise ArgumentError(f"hidden variable {v!r} needs at least 2 different states, not {wrong}")
        found[v] = own
    return found


def states_given(
    states: Mapping[str, Iterable[Any]] | None, network: BayesianNetwork | None, variables: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """States that need no data: of the network, replaced by those of `states`."""
    # raises ArgumentError: If `states` names another variable, or gives a variable no or repeated states.
    found = {v: network.states(v) for v in variables} if network is not None else {}
    for v, given in mapping("states", states).items():
        if v not in variables:
            raise ArgumentError(f"states: there is no variable {v!r}{closest(str(v), variables)}")
        own = tuple(map(str, several(given) or ()))
        if not own or len(set(own)) < len(own):
            raise ArgumentError(f"states: {v!r} needs different names of states, not {described(given)}")
        found[v] = own
    return found


def labels_of(
    name: str, counts: Mapping[Any, int], *, ordered: bool = False, bins: int | None = None
) -> tuple[str, ...]:
    """Names of states for the distinct values of a column: numbers and intervals ascending, else texts by alphabet."""
    # name: The column's, for messages
    # counts: Distinct values, and how often each occurs; none is missing
    # ordered: Whether the values are in order already, as the categories of a data frame are
    # bins: Intervals of a column of more different numbers, with about equal numbers of cells. Default: none are made.
    # raises DataError: If there is no value, or there are more different numbers than states should be.
    found = [v for v in counts if not is_likelihood(v)]
    if not found:
        raise DataError(
            f"column {name!r} has only missing cells; give its states as states={{{name!r}: [...]}}, or drop the "
            f"column and declare the variable hidden: hidden={{{name!r}: 2}}"
        )
    numbers = {v: _number(v) for v in found}
    odd = [v for v in found if numbers[v] is None]
    if odd and len(odd) < len(found) and all(isinstance(v, str) and INFINITE.fullmatch(v.strip()) for v in odd):
        raise DataError(f"column {name!r} holds numbers and {odd[0]!r}, which is not finite")
    is_numeric = not odd
    if is_numeric and bins is not None and len(set(numbers.values())) > bins:
        cells = np.array([numbers[v] for v in found], np.float64)
        return interval_labels(quantile_cuts(cells, bins, np.array([counts[v] for v in found])).tolist())
    if is_numeric and len(set(numbers.values())) > MAX_NUMERIC:
        raise DataError(
            f"column {name!r} has {len(set(numbers.values())):,} different numbers, too many for states: discretise it "
            "first (jtgpu.learn.discretise, or --bins on the command line)"
        )
    intervals = intervals_of(found) if all(isinstance(v, str) for v in found) else None
    if intervals is not None and not ordered:
        found = [found[i] for i in intervals.order]
    elif not ordered:
        found.sort(key=(lambda v: (numbers[v], str(v))) if is_numeric else str)
    return tuple(dict.fromkeys(_label(v, numbers[v]) for v in found))


def _number(value: Any) -> float | None:
    """The finite number that a value is, or that its text denotes."""
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) and (not isinstance(value, str) or value.isascii()) else None


def _label(value: Any, number: float | None) -> str:
    """The name of a value's state: integers that a hole turned into floats have no fraction."""
    if isinstance(value, str):
        return value.strip()
    if number is not None and isinstance(value, float) and number.is_integer() and abs(number) < 2**53:
        return str(int(number))
    return str(value)
