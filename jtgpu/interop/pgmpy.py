"""pgmpy: Bayesian networks (``DiscreteBayesianNetwork``, formerly ``BayesianNetwork``), Markov and dynamic networks.

The first axis of a `TabularCPD` is the child: ``values[child, evidence...]``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ..errors import FormatError, NetworkError
from ..model.cpts import normalize_rows
from ..model.discrete import DiscreteModel
from ..model.dynamic import DynamicNetwork
from ..model.markov import MarkovNetwork
from ..model.mixed import MixedNetwork
from ..model.network import BayesianNetwork
from ..model.noisy import NoisyOr
from ..model.templates import from_families
from ..util.arrays import Floats
from .other_kinds import Pair, check_order, from_linear_gaussian, is_linear_gaussian, to_linear_gaussian


@dataclass(frozen=True)
class PgmpyModel:
    """A model of pgmpy, converted, with its original names."""

    model: DiscreteModel
    names: dict[str, Hashable]  # dict of str to hashable: Our variable names to pgmpy's
    labels: dict[str, tuple[Any, ...]]  # dict of str to tuple: Our variable names to pgmpy's state names, in order


def from_pgmpy(model: object) -> DiscreteModel:
    """Convert a pgmpy model to a `BayesianNetwork`, a `MarkovNetwork` or a `DynamicNetwork`.

    CPT rows are normalised; ``row_report`` lists those that did not sum to 1. A ``NoisyORCPD`` stays noisy. A node of a
    ``DynamicBayesianNetwork`` without a CPD in one slice has that of the other, if its parents are the same. A
    ``LinearGaussianBayesianNetwork`` becomes a `MixedNetwork`; the annotation names the class that is more frequent.

    Raises
    ------
    NetworkError
        If a node has no table, a table does not match the graph, a node is continuous, or the network is invalid.
    """
    if hasattr(model, "get_interface_nodes") and hasattr(model, "get_cpds"):
        return _from_slices(model)
    if hasattr(model, "get_cpds") and is_linear_gaussian(model):
        return cast(DiscreteModel, from_linear_gaussian(model))
    return read_pgmpy(model).model


def read_pgmpy(model: object) -> PgmpyModel:
    """Convert a pgmpy model as `from_pgmpy` does, and keep its original names."""
    if hasattr(model, "get_cpds"):
        return _directed(model)
    if hasattr(model, "get_factors") and hasattr(model, "nodes"):
        return _undirected(model)
    raise NetworkError(f"expected a Bayesian or Markov network of pgmpy, got a {type(model).__name__}")


def _strings(names: Any) -> dict[str, Hashable]:
    strings: dict[str, Hashable] = {}
    for name in names:
        if str(name) in strings:
            raise NetworkError(f"two nodes have the name {str(name)!r}")
        strings[str(name)] = name
    return strings


def _directed(model: Any) -> PgmpyModel:
    names = _strings(model.nodes())
    labels: dict[str, tuple[Any, ...]] = {}
    parents: dict[str, list[str]] = {}
    cpts: dict[str, Floats] = {}
    noisy: dict[str, NoisyOr] = {}
    for v, name in names.items():
        cpd = model.get_cpds(name)
        if cpd is None:
            raise NetworkError(f"the node {v!r} has no CPD")
        if not hasattr(cpd, "values") or not hasattr(cpd, "variables"):
            raise NetworkError(f"the node {v!r} has a {type(cpd).__name__}, expected a TabularCPD")
        before = [str(p) for p in cpd.variables[1:]]
        if str(cpd.variables[0]) != v or sorted(before) != sorted(str(p) for p in model.get_parents(name)):
            raise NetworkError(f"the CPD of {v!r} is over {list(cpd.variables)}, which does not match the arcs")
        table = np.asarray(cpd.values, np.float64)
        labels[v] = _labels(cpd, cpd.variables[0], table.shape[0])
        parents[v] = before
        cpts[v] = np.ascontiguousarray(np.moveaxis(table, 0, -1))
        if type(cpd).__name__ == "NoisyORCPD":
            noisy[v] = NoisyOr(dict(zip(before, cpd.prob_values.tolist(), strict=True)), present="True")
        for axis, p in enumerate(cpd.variables[1:]):
            # a table may list the states of its parents in another order
            theirs = _labels(cpd, p, table.shape[axis + 1])
            ours = _labels(model.get_cpds(p), p, len(theirs)) if model.get_cpds(p) is not None else theirs
            if theirs != ours and sorted(map(str, theirs)) == sorted(map(str, ours)):
                cpts[v] = np.take(cpts[v], [theirs.index(s) for s in ours], axis=axis)
            elif theirs != ours:
                raise NetworkError(f"the CPD of {v!r} has the states {list(theirs)} of {p!r}, expected {list(ours)}")
    cpts, report = normalize_rows(cpts)
    made = BayesianNetwork(
        {v: [str(s) for s in labels[v]] for v in names},
        parents,
        {**cpts, **noisy},
        name=str(getattr(model, "name", "") or ""),
        row_report=report,
    )
    return PgmpyModel(made, names, labels)


def _labels(factor: object, variable: Hashable, card: int) -> tuple[Any, ...]:
    known: Mapping[Hashable, Any] = getattr(factor, "state_names", None) or {}
    return tuple(known.get(variable, range(card)))


def _undirected(model: Any) -> PgmpyModel:
    names = _strings(model.nodes())
    labels: dict[str, tuple[Any, ...]] = {}
    factors = []
    for factor in model.get_factors():
        table = np.asarray(factor.values, np.float64)
        scope = [str(v) for v in factor.variables]
        for axis, v in enumerate(factor.variables):
            theirs = _labels(factor, v, table.shape[axis])
            ours = labels.setdefault(str(v), theirs)
            if theirs != ours:
                if sorted(map(str, theirs)) != sorted(map(str, ours)):
                    raise NetworkError(f"two factors have different states of {v!r}: {list(ours)} and {list(theirs)}")
                table = np.take(table, [theirs.index(s) for s in ours], axis=axis)
        factors.append((scope, table))
    missing = [v for v in names if v not in labels]
    if missing:
        raise NetworkError(f"the node {missing[0]!r} is in no factor")
    made = MarkovNetwork({v: [str(s) for s in labels[v]] for v in names}, factors, name=str(getattr(model, "name", "")))
    return PgmpyModel(made, names, labels)


def to_pgmpy(net: DiscreteModel | MixedNetwork) -> Any:
    """Convert a Bayesian network to pgmpy's ``DiscreteBayesianNetwork`` (``BayesianNetwork`` before version 1).

    A `MixedNetwork` of numbers only becomes a ``LinearGaussianBayesianNetwork``.
    A `DynamicNetwork` becomes a ``DynamicBayesianNetwork``; its static variables keep their states from slice to slice.

    Raises
    ------
    FormatError
        If the model is neither, a variable has several states of the same name, or a parent is two slices earlier.
    ImportError
        If pgmpy is not installed.
    """
    if isinstance(net, MixedNetwork):
        return to_linear_gaussian(net)
    if isinstance(net, DynamicNetwork):
        return _to_slices(net)
    from pgmpy import models
    from pgmpy.factors.discrete import TabularCPD

    if not isinstance(net, BayesianNetwork):
        raise FormatError(f"pgmpy's Bayesian network cannot represent a {type(net).__name__}")
    made = getattr(models, "DiscreteBayesianNetwork", None) or models.BayesianNetwork
    theirs = made()
    theirs.add_nodes_from(net.variables)
    theirs.add_edges_from((p, v) for v in net.variables for p in net.parents(v))
    for v in net.variables:
        labels, before = net.states(v), net.parents(v)
        if len(set(labels)) < len(labels):
            raise FormatError(f"pgmpy needs distinct state names: {v!r} has {list(labels)}")
        table = np.moveaxis(net.cpt(v), -1, 0).reshape(len(labels), -1).copy()
        theirs.add_cpds(
            TabularCPD(
                v,
                len(labels),
                table,
                evidence=list(before) or None,
                evidence_card=[len(net.states(p)) for p in before] or None,
                state_names={u: list(net.states(u)) for u in (v, *before)},
            )
        )
    theirs.name = net.name
    return theirs


# Dynamic networks: slices 0 and 1, whose nodes are pairs of a name and a slice.

def _from_slices(model: Any) -> DynamicNetwork:
    """The template of a ``DynamicBayesianNetwork``; a node without a CPD in one slice has that of the other."""
    names: dict[str, Hashable] = {}
    for node in model.nodes():
        if names.setdefault(str(node[0]), node[0]) != node[0]:
            raise NetworkError(f"two nodes have the name {str(node[0])!r}")
    own: dict[str, tuple[Any, ...]] = {}  # states, as pgmpy has them
    for v, name in names.items():
        cpds = [c for c in (_cpd(model, name, 0), _cpd(model, name, 1)) if c is not None]
        if not cpds:
            raise NetworkError(f"the node {v!r} has no CPD, neither in slice 0 nor in slice 1")
        own[v] = _names_of(cpds[0], (name, int(cpds[0].variables[0][1])), cpds[0].variable_card)
    families: dict[str, list[tuple[list[Pair], Floats]]] = {}
    for v, name in names.items():
        both = [_family(model, v, name, t, own) for t in (0, 1)]
        for t, other in ((0, both[1]), (1, both[0])):
            if both[t] is not None:
                continue
            arcs = sorted(str(p[0]) for p in (model.get_parents((name, t)) or () if (name, t) in model.nodes() else ()))
            if other is None or any(lag for _, lag in other[0]) or arcs != sorted(p for p, _ in other[0]):
                raise NetworkError(f"the node {v!r} has no CPD in slice {t}, and other parents than in slice {1 - t}")
            both[t] = other
        families[v] = [f for f in both if f is not None]
    tables, _ = normalize_rows({f"{v} {t}": f[1] for v, fs in families.items() for t, f in enumerate(fs)})
    families = {v: [(f[0], tables[f"{v} {t}"]) for t, f in enumerate(fs)] for v, fs in families.items()}
    made = from_families({v: [str(s) for s in own[v]] for v in names}, families, ())
    return DynamicNetwork(**made, name=str(getattr(model, "name", "") or ""))


def _cpd(model: Any, name: Hashable, t: int) -> Any:
    return model.get_cpds((name, t)) if (name, t) in model.nodes() else None


def _family(
    model: Any, v: str, name: Hashable, t: int, own: dict[str, tuple[Any, ...]]
) -> tuple[list[Pair], Floats] | None:
    """Parents and CPT of a node in a slice, states in one order everywhere."""
    cpd = _cpd(model, name, t)
    if cpd is None:
        return None
    arcs = sorted((str(p[0]), int(p[1])) for p in model.get_parents((name, t)) or ())
    if sorted((str(p[0]), int(p[1])) for p in cpd.variables[1:]) != arcs:
        scope = [(str(p), int(s)) for p, s in cpd.variables]
        raise NetworkError(f"the CPD of {v!r} in slice {t} is over {scope}, which does not match the arcs")
    table = np.asarray(cpd.values, np.float64)
    for axis, (p, s) in enumerate(cpd.variables):
        theirs, ours = _names_of(cpd, (p, s), table.shape[axis]), own[str(p)]
        if sorted(map(str, theirs)) != sorted(map(str, ours)):
            raise NetworkError(f"the CPD of {v!r} in slice {t} has the states {list(theirs)} of {str(p)!r}, expected "
                               f"{list(ours)}")  # fmt: skip
        table = np.take(table, [theirs.index(x) for x in ours], axis=axis)
    return [(str(p), t - int(s)) for p, s in cpd.variables[1:]], np.ascontiguousarray(np.moveaxis(table, 0, -1))


def _names_of(cpd: Any, variable: Any, card: int) -> tuple[Any, ...]:
    known = {tuple(k): names for k, names in (getattr(cpd, "state_names", None) or {}).items()}
    return tuple(known.get(tuple(variable), range(card)))


def _to_slices(net: DynamicNetwork) -> Any:
    """The ``DynamicBayesianNetwork`` of a template; a static variable keeps its state from slice to slice."""
    # raises FormatError: If a parent is two slices earlier, or a variable has several states of the same name.
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DynamicBayesianNetwork

    check_order(net, "pgmpy's DynamicBayesianNetwork")
    theirs = DynamicBayesianNetwork()
    theirs.add_nodes_from(net.variables)
    families: list[tuple[str, int, list[Pair], Floats]] = []
    for v in net:
        labels = net.states(v)
        if len(set(labels)) < len(labels):
            raise FormatError(f"pgmpy needs distinct state names: {v!r} has {list(labels)}")
        start, parents = net.start(v), list(net.parents(v))
        first = np.asarray(start[0] if start else net.cpt(v), np.float64)
        families.append((v, 0, [p for p in parents if p[1] == 0], first))
        if v in net.static:
            parents = [(v, 1)]
        table = np.eye(len(labels)) if v in net.static else np.asarray(net.cpt(v), np.float64)
        families.append((v, 1, parents, table))
    for v, t, parents, _ in families:
        theirs.add_edges_from([((p, t - lag), (v, t)) for p, lag in parents])
    for v, t, parents, table in families:
        before = [(p, t - lag) for p, lag in parents]
        if (v, t) not in theirs.nodes():
            continue  # it has no arcs, and its CPD of slice 0 holds
        states = {(u, s): list(net.states(u)) for u, s in [(v, t), *before]}
        cells = np.moveaxis(table, -1, 0).reshape(table.shape[-1], -1).copy()
        cards = [len(net.states(p)) for p, _ in parents]
        theirs.add_cpds(TabularCPD((v, t), table.shape[-1], cells, before or None, cards or None, states))
    theirs.name = net.name
    return theirs
