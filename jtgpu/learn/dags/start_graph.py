"""`start_graph`: the graph from which a search or a chain starts, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import NetworkError, UnknownVariable, closest
from ...model.graph import find_cycle
from ..parameters.structures import read_structure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from .constraints import Constraints


def start_graph(start: Any, names: Sequence[str], constraints: Constraints) -> NDArray[np.bool_] | None:
    """The arcs [parent, child] of a start graph, (n, n); None if there is none."""
    # start: network, graph, mapping from child to parents, iterable of (parent, child), or None: Variables without arcs
    #     need not be named
    # raises UnknownVariable: If a name is not a variable.
    # raises NetworkError: If it is no such graph, has a cycle, or breaks a constraint; the message names the arc.
    if start is None:
        return None
    number = {name: v for v, name in enumerate(names)}
    arcs = np.zeros((len(names), len(names)), np.bool_)
    for child, parents in _parents(start).items():
        for name in (child, *parents):
            if name not in number:
                raise UnknownVariable(f"the start graph has {name!r}, which is no column{closest(name, number)}")
        arcs[[number[u] for u in parents], number[child]] = True
    cycle = find_cycle([np.flatnonzero(c).tolist() for c in arcs.T], [np.flatnonzero(r).tolist() for r in arcs])
    if cycle:
        raise NetworkError(f"the start graph has a cycle: {' -> '.join(repr(names[v]) for v in cycle)}")
    for wrong, what in (
        (arcs & constraints.forbidden, "has the arc {}, which is forbidden or against the tiers"),
        (constraints.required & ~arcs, "does not have the required arc {}"),
    ):
        if wrong.any():
            u, v = np.argwhere(wrong)[0]
            raise NetworkError(f"the start graph {what.format(f'{names[u]!r} -> {names[v]!r}')}")
    many = np.flatnonzero(arcs.sum(axis=0) > constraints.max_parents)
    if len(many):
        v = int(many[0])
        raise NetworkError(
            f"the start graph has {arcs[:, v].sum()} parents of {names[v]!r}, more than max_parents="
            f"{constraints.max_parents[v]}"
        )
    return arcs


def start_order(arcs: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The smallest order of the variables that a graph allows."""
    left, order = np.ones(len(arcs), np.bool_), list[int]()
    while left.any():
        v = int(np.flatnonzero(left & ~arcs[left].any(axis=0))[0])
        order.append(v)
        left[v] = False
    return np.array(order, np.int64)


def _parents(start: Any) -> dict[str, tuple[str, ...]]:
    if isinstance(start, (list, tuple, set, frozenset)):
        found: dict[str, tuple[str, ...]] = {}
        for arc in _pairs(start):
            found[str(arc[1])] = (*found.get(str(arc[1]), ()), str(arc[0]))
        return found
    return read_structure(start).parents


def _pairs(start: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    for arc in start:
        if isinstance(arc, str) or not hasattr(arc, "__len__") or len(arc) != 2:
            raise NetworkError(f"the arcs of the start graph must be pairs (parent, child), not {arc!r}")
        yield arc[0], arc[1]
