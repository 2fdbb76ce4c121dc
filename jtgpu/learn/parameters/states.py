"""The states of every variable of a fit: given, of the network, or those in the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import ArgumentError, DataError, closest
from ...model.discrete import DiscreteModel
from ...model.network import BayesianNetwork
from ...util.arguments import described, mapping, names, several
from ..discretisation import Discretiser


def hidden_states(hidden: Any, network: DiscreteModel | None, variables: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """States of the hidden variables."""
    # hidden: mapping, name, or iterable of names: Variable to its number of states or their names; None, or a name
    #     alone: the states of the network
    # raises ArgumentError: If a variable or its states are unknown, differ from the network's, or are fewer than 2.
    given = dict(hidden) if isinstance(hidden, Mapping) else dict.fromkeys(names("hidden", hidden))
    labels = {}
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
        labels[v] = own
    return labels


def states_given(
    states: Mapping[str, Iterable[Any]] | None, network: BayesianNetwork | None, variables: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """States that need no data: of the network, replaced by those of `states`."""
    # raises ArgumentError: If `states` names another variable, or gives a variable no or repeated states.
    labels = {v: network.states(v) for v in variables} if network is not None else {}
    for v, given in mapping("states", states).items():
        if v not in variables:
            raise ArgumentError(f"states: there is no variable {v!r}{closest(str(v), variables)}")
        own = tuple(map(str, several(given) or ()))
        if not own or len(set(own)) < len(own):
            raise ArgumentError(f"states: {v!r} needs different names of states, not {described(given)}")
        labels[v] = own
    return labels


def without_states(v: str) -> DataError:
    """The error for a variable of likelihoods alone."""
    return DataError(
        f"{v!r} has likelihoods and no column, so its states must be given: states={{{v!r}: [...]}}"
    )


def of_discretiser(states: Any, variables: Iterable[str]) -> tuple[Any, dict[str, tuple[float, float]]]:
    """The argument `states`, and the ends of intervals of numbers if it is a `Discretiser`."""
    if not isinstance(states, Discretiser):
        return states, {}
    labels, scales = states.states, states.scales_
    known = [v for v in variables if v in labels]
    return {v: labels[v] for v in known}, {
        v: (scales[v].least, scales[v].greatest) for v in known if scales[v].kind == "numbers"
    }
