"""The template that `fit` estimates: a dynamic network, or parents of which some are earlier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...columns import is_frame, open_table
from ...errors import ArgumentError, DataError, NetworkError, closest
from ...interop import from_pgmpy, from_pyagrum
from ...model.dynamic import DynamicNetwork
from ...model.editing import coefficient_name
from ...model.gaussian import Gaussian
from ...model.mixed_dynamic import MixedDynamicNetwork
from ...model.states import CodesByVariable
from ...util.arguments import choice, mapping, several, whole_number
from .numbers import column_kinds
from .sources import open_source
from .states import hidden_states, of_discretiser, states_given


def is_template(structure: Any) -> bool:
    """Whether a structure is that of a dynamic network: parents in earlier slices are pairs."""
    if isinstance(structure, Mapping):
        return any(isinstance(p, tuple) for above in structure.values() for p in several(above) or ())
    return isinstance(structure, (DynamicNetwork, MixedDynamicNetwork))


def converted(structure: Any) -> Any:
    """A dynamic network of pgmpy or pyAgrum as a `DynamicNetwork`; any other structure as it is."""
    kind = type(structure).__name__
    if kind == "KTBN":
        return from_pyagrum(structure)
    return from_pgmpy(structure) if kind == "DynamicBayesianNetwork" else structure


def with_codes(structure: Any, states: Any, codes: CodesByVariable | None) -> tuple[Any, Any]:
    """A network with codes; or the states that the codes of other structures mean, and those declared."""
    if codes is None or hasattr(structure, "with_codes"):
        return (structure if codes is None else structure.with_codes(codes)), states
    if isinstance(codes, str):
        choice("codes", codes, ("names", "index"))
    if isinstance(codes, str) or not (states is None or isinstance(states, Mapping)):
        return structure, states
    given = {v: mapping(f"codes of {v!r}", own) for v, own in mapping("codes", codes).items()}
    variables = parents_of(structure) if isinstance(structure, Mapping) else given
    if other := [v for v in given if v not in variables]:
        raise ArgumentError(f"codes: there is no variable {other[0]!r}{closest(str(other[0]), variables)}")
    return structure, {**{v: [*dict.fromkeys(own.values())] for v, own in given.items()}, **mapping("states", states)}


def template_of(structure: Any, cases: Any, states: Any, hidden: Any, bins: int | None) -> DynamicNetwork:
    """The dynamic network of a structure; that of a mapping has states from the data, and uniform CPTs."""
    if isinstance(structure, DynamicNetwork):
        states, _ = of_discretiser(states, structure.variables)
        for v, given in mapping("states", states).items():
            if v in structure and tuple(map(str, several(given) or ())) != structure.states(v):
                raise ArgumentError(f"states: {v!r} has the states {[*structure.states(v)]} in the network")
        return structure
    if not is_template(structure):
        raise ArgumentError(
            "sequences need a jtgpu.DynamicNetwork, or a mapping of parents of which some are earlier, such as "
            "{'rain': [('rain', 1)]}; without id= and time= rows are cases of their own"
        )
    parents = parents_of(structure)
    states, _ = of_discretiser(states, [*parents])
    known = states_given(states, None, [*parents]) | hidden_states(hidden, None, [*parents])
    known |= states_of([v for v in parents if v not in known], cases, bins)
    labels = {v: known[v] for v in parents}
    cpts, start = uniform_tables(labels, parents)
    return DynamicNetwork(labels, parents, cpts, start=start)


def known_states(structure: Any, states: Any) -> dict[str, tuple[str, ...]]:
    """The states of a structure, or those that are given: words of a file that are not missing cells."""
    net = getattr(structure, "discrete", structure)
    if isinstance(net, DynamicNetwork):
        return {v: net.states(v) for v in net}
    given, _ = of_discretiser(states, [*structure] if isinstance(structure, Mapping) else [])
    return {v: tuple(map(str, several(s) or ())) for v, s in mapping("states", given).items()}


def parents_of(structure: Mapping[Any, Any]) -> dict[str, list[Any]]:
    """The parents of every variable of a mapping, those without an entry among them."""
    parents: dict[str, list[Any]] = {}
    for v, above in structure.items():
        listed = several(above)
        if listed is None:
            raise NetworkError(f"variable {v!r}: its parents must be a list, not {above!r}")
        parents[str(v)] = listed
    for p in [p for above in parents.values() for p in above]:
        parents.setdefault(str(p[0]) if isinstance(p, tuple) and p else str(p), [])
    return parents


def states_of(variables: list[str], cases: Any, bins: int | None) -> dict[str, tuple[str, ...]]:
    """States in the columns of a long frame."""
    if not variables:
        return {}
    is_table = is_frame(cases) or (isinstance(cases, Mapping) and not any(np.ndim(x) > 1 for x in cases.values()))
    if not is_table:
        raise DataError(
            f"the states of {variables[0]!r} are read from a long frame only; give them: states={{{variables[0]!r}: "
            "[...]}"
        )
    table = open_table(None, cases)
    labels: dict[str, tuple[str, ...]] = {}
    for v in variables:
        if v not in table.names:
            raise DataError(
                f"the table has no column {v!r}; if the variable is never observed, declare it: hidden={{{v!r}: 2}}"
            )
        labels |= open_source(cases, [v]).schema([v], None if bins is None else whole_number("bins", bins, 2)).states
    return labels


def uniform_tables(
    states: Mapping[str, tuple[str, ...]], parents: Mapping[str, list[Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Uniform CPTs, and those of the first slices."""
    def table(above: list[Any], v: str) -> Any:
        shape = [len(states[p[0] if isinstance(p, tuple) else p]) for p in above] + [len(states[v])]
        return np.full(shape, 1.0 / shape[-1])

    start: dict[str, Any] = {}
    for v, above in parents.items():
        lags = [p[1] if isinstance(p, tuple) and len(p) == 2 and isinstance(p[1], int) else 0 for p in above]
        first = [
            table([p for p, lag in zip(above, lags, strict=True) if lag <= t], v) for t in range(max(lags, default=0))
        ]
        if first:
            start[v] = first[0] if len(first) == 1 else first
    return {v: table(above, v) for v, above in parents.items()}, start


def mixed_template(structure: Any, cases: Any, numbers: Any, states: Any, hidden: Any, bins: Any) -> Any:
    """The dynamic network with numbers of a structure: uniform CPTs, and standard normal densities."""
    if isinstance(structure, MixedDynamicNetwork):
        return structure
    if not isinstance(structure, Mapping):
        raise ArgumentError(
            "continuous= is for parents, such as {'state': [('state', 1)], 'load': ['state']}, and a "
            f"jtgpu.MixedDynamicNetwork has its numbers; got a {type(structure).__name__}"
        )
    if not is_frame(cases) and not isinstance(cases, Mapping):
        raise DataError("continuous= is read from a long frame only; of other sequences give a MixedDynamicNetwork")
    parents = parents_of(structure)
    given = of_discretiser(states, [*parents])[0]
    known = states_given(given, None, [*parents]) | hidden_states(hidden, None, [*parents])
    table = open_table(None, cases)
    if not table.n:
        raise DataError("there are no rows to fit")
    kinds = column_kinds(table, [v for v in parents if v not in known], numbers, {})
    if cut := [v for v, kind in kinds.items() if kind == "intervals"]:
        raise ArgumentError(
            f"continuous: {cut[0]!r} cannot be made intervals in sequences; use bins=, without continuous="
        )
    own = {v: float for v, kind in kinds.items() if kind == "gaussian"}
    if not own:
        raise DataError("no column of the structure has numbers; leave continuous= out")
    known |= states_of([v for v in parents if v not in known and v not in own], cases, bins)
    cpts, start = uniform_tables(known, {v: above for v, above in parents.items() if v in known})
    for y in own:
        pairs = [p if isinstance(p, tuple) else (p, 0) for p in parents[y]]
        axes = [len(known[p]) for p, _ in pairs if p in known]
        lagged = [(p, lag) for p, lag in pairs if p in own]
        cpts[y], *first = (
            Gaussian(np.zeros(axes), {coefficient_name(*p): 0.0 for p in lagged if p[1] <= t}, 1.0)
            for t in (np.inf, *range(max((lag for _, lag in lagged), default=0)))
        )
        if first:
            start[y] = first
    labels: dict[str, Any] = {v: own.get(v, known.get(v)) for v in parents}
    return MixedDynamicNetwork(labels, parents, cpts, start=start)
