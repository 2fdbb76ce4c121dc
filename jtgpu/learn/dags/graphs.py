"""Directed acyclic graphs of structure learning: their arcs, networks fitted to data, and graphs to start from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...errors import ArgumentError, NetworkError, UnknownVariable, closest
from ...model.directed import find_cycle
from ...model.network import BayesianNetwork
from ...util.arguments import number
from ...util.arrays import Bools, Floats, Ints
from ..columns import cpt_from_counts
from ..parameters.families import read_structure
from .scores.coded import NO_STATE
from .scores.numeric_table import NumericTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...model.mixed import MixedNetwork
    from .constraints import ArcLimits
    from .scores.coded import CodedTable


def adjacency(parents: Sequence[Sequence[int]]) -> Bools:
    """[u, v]: whether the graph has the arc u -> v."""
    arcs = np.zeros((len(parents), len(parents)), np.bool_)
    for v, members in enumerate(parents):
        arcs[list(members), v] = True
    return arcs


def has_cycle(arcs: Bools) -> bool:
    """Whether a graph [parent, child] has a cycle; an arc from a variable to itself is one."""
    left = np.arange(len(arcs))
    while len(left):
        has_parent = arcs[np.ix_(left, left)].any(axis=0)
        if has_parent.all():
            return True
        left = left[has_parent]
    return False


# Networks of learned graphs: CPTs from the data.


def fitted_network(
    table: CodedTable, arcs: Bools, ess: float, known: dict[tuple[int, ...], Floats] | None = None
) -> BayesianNetwork:
    """The network of a graph whose CPTs are posterior means under the Dirichlet prior of BDeu; mixed with numbers."""
    # arcs: (n, n) [parent, child]
    # ess: Equivalent sample size; 0: relative frequencies, uniform where a configuration does not occur
    # known: CPTs by family (parents, child), which is looked up and extended: for several graphs of the same table
    ess = number("ess", ess, least=0.0)
    if isinstance(table, NumericTable):
        mixed: BayesianNetwork = cast(Any, _mixed_network(table, arcs, ess))  # as in the type of `jtgpu.learn.fit`
        return mixed
    known = {} if known is None else known
    of_child = {v: part for part, members in table.parts for v in members}
    parents, cpts = {}, {}
    for v, name in enumerate(table.names):
        family = (*np.flatnonzero(arcs[:, v]).tolist(), v)
        if family not in known:
            part, cards = of_child[v], [len(table.states[u]) for u in family]
            weights = np.ones(part.codes.shape[1]) if part.weights is None else part.weights.astype(np.float64)
            columns = [part.codes[u].astype(np.int64) for u in family]
            if part.has_gaps:
                columns = [np.where(column == NO_STATE, -1, column) for column in columns]
            known[family] = cpt_from_counts(columns, cards, weights, ess / math.prod(cards))
        cpts[name] = known[family]
        parents[name] = [table.names[u] for u in family[:-1]]
    return BayesianNetwork(dict(zip(table.names, table.states, strict=True)), parents, cpts)


PRIOR_ROWS = 1.0  # rows of the regression of all rows that each configuration of a number's parents gets


def _mixed_network(table: NumericTable, arcs: Bools, ess: float) -> MixedNetwork:
    """The network of a graph with numbers, fitted as `jtgpu.learn.fit` does with ``prior="bdeu:ESS"``."""
    from ...mixed.evidence import MixedCases
    from ...mixed.fitting import Strength, uniform_network, with_spread
    from ...model.mixed import MixedNetwork
    from ..parameters.value_steps import Values

    if table.has_gaps:
        raise ArgumentError("networks with numbers are fitted to complete rows; use missing='drop', or jtgpu.learn.fit")
    labels: dict[str, Any] = {v: s or float for v, s in zip(table.names, table.states, strict=True)}
    parents = {name: [table.names[u] for u in np.flatnonzero(arcs[:, v])] for v, name in enumerate(table.names)}
    if table.interventions is not None:
        nets = [(_mixed_network(cast(NumericTable, part), arcs, ess), members) for part, members in table.parts]
        cpts: dict[str, Any] = {}
        for net, members in nets:
            own = [table.names[v] for v in members]
            cpts |= {v: net.gaussian(v) if net.is_number(v) else net.cpt(v) for v in own}
        return MixedNetwork(labels, parents, cpts)
    weights = np.ones(table.codes.shape[1]) if table.weights is None else table.weights.astype(np.float64)
    cases = MixedCases(table.codes[~table.is_number].T.astype(np.int32), np.ascontiguousarray(table.values.T))
    start = with_spread(uniform_network(labels, parents), cases, weights)
    strength = Strength(PRIOR_ROWS if ess > 0 else 0.0, f"bdeu:{ess}")
    values = Values(start, cases, weights, strength, {})
    return values.network(values.counted(lambda _: None).tables)


# `start_graph`: the graph from which a search or a chain starts, checked.


def start_graph(start: object, names: Sequence[str], constraints: ArcLimits) -> Bools | None:
    """The arcs [parent, child] of a start graph, (n, n); None if there is none."""
    # start: network, graph, mapping from child to parents, iterable of (parent, child), or None: Variables without arcs
    #     need not be named
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


def topological_order(arcs: Bools) -> Ints:
    """The smallest order of the variables that a graph allows."""
    left, order = np.ones(len(arcs), np.bool_), list[int]()
    while left.any():
        v = int(np.flatnonzero(left & ~arcs[left].any(axis=0))[0])
        order.append(v)
        left[v] = False
    return np.array(order, np.int64)


def _parents(start: object) -> dict[str, tuple[str, ...]]:
    if isinstance(start, (list, tuple, set, frozenset)):
        parents: dict[str, tuple[str, ...]] = {}
        for arc in _pairs(start):
            parents[str(arc[1])] = (*parents.get(str(arc[1]), ()), str(arc[0]))
        return parents
    return read_structure(start, may_be_empty=True).parents


def _pairs(start: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    for arc in start:
        if isinstance(arc, str) or not hasattr(arc, "__len__") or len(arc) != 2:
            raise NetworkError(f"the arcs of the start graph must be pairs (parent, child), not {arc!r}")
        yield arc[0], arc[1]
