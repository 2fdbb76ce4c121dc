"""Checks of the arcs of a template: names, lags, static variables, cycles inside a slice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import NetworkError, closest, shown
from ..util.arguments import names, plain, several
from .directed import find_cycle
from .discrete import DiscreteModel

Parent = tuple[int, int]  # the number of a variable, and how many slices earlier it is


def checked_static(model: DiscreteModel, given: Iterable[str]) -> frozenset[int]:
    """The numbers of the static variables."""
    if isinstance(given, str):
        raise NetworkError(f"static must be a sequence of names, not the string {given!r}")
    listed = names("static", given)
    for v in listed:
        if v not in model:
            raise NetworkError(f"static has {v!r}, which is not declared{closest(str(v), model.variables)}")
    return frozenset(model.index(v) for v in listed)


def read_parents(
    model: DiscreteModel, static: frozenset[int], name: str, given: Sequence[str | tuple[str, int]]
) -> tuple[Parent, ...]:
    """The parents of a variable by number."""
    listed = several(given)
    if listed is None:
        what = f"the string {given!r}" if isinstance(given, str) else shown(given)
        raise NetworkError(f"variable {name!r}: its parents must be a sequence, not {what}")
    v, above = model.index(name), list[Parent]()
    for item in listed:
        p, lag = item if isinstance(item, tuple) and len(item) == 2 else (item, 0)
        p = plain(p)
        if p not in model:
            raise NetworkError(
                f"variable {name!r} has the parent {p!r}, which is not declared{closest(str(p), model.variables)}; "
                "a parent is a name, or a name and a lag such as ('rain', 1)"
            )
        if not _is_lag(lag):
            raise NetworkError(
                f"variable {name!r} has the parent {p!r} with the lag {lag!r}; a lag is 0, the same slice, or a "
                "number of slices back"
            )
        number, lag = model.index(p), int(lag)
        if number == v and lag == 0:
            raise NetworkError(f"variable {name!r} is its own parent; ({name!r}, 1) is {name!r} one slice earlier")
        if v in static and number not in static:
            raise NetworkError(f"variable {name!r} is static, and its parent {p!r} is not")
        if number in static and lag:
            raise NetworkError(f"variable {name!r} has the parent {p!r} with the lag {lag}, but {p!r} is static")
        if (number, lag) in above:
            label = f"{p}[t-{lag}]" if lag else p if number in static else f"{p}[t]"
            raise NetworkError(f"variable {name!r} has the parent {label!r} twice")
        above.append((number, lag))
    return tuple(above)


def check_cycle(variables: Sequence[str], parents: Sequence[Sequence[Parent]]) -> None:
    """Raise if the arcs inside a slice form a cycle."""
    same = [[p for p, lag in above if lag == 0] for above in parents]
    children: list[list[int]] = [[] for _ in same]
    for child, above in enumerate(same):
        for p in above:
            children[p].append(child)
    if cycle := find_cycle(same, children):
        walk = " -> ".join(repr(variables[v]) for v in cycle)
        raise NetworkError(f"the arcs inside a slice form a cycle: {walk}")


def _is_lag(lag: Any) -> bool:
    """Whether a lag is an integer from 0."""
    return isinstance(lag, (int, np.integer)) and not isinstance(lag, bool) and int(lag) >= 0


def children(net: Any, name: str) -> tuple[tuple[str, int], ...]:
    """The variables with this parent, in order, and how many slices earlier it is."""
    return tuple((v, lag) for v in net for p, lag in net.parents(v) if p == name)
