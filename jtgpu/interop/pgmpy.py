"""pgmpy: Bayesian networks (``DiscreteBayesianNetwork``, formerly ``BayesianNetwork``) and Markov networks.

The first axis of a `TabularCPD` is the child: ``values[child, evidence...]``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import FormatError, NetworkError
from ..model.cpts import normalize_rows
from ..model.discrete import DiscreteModel
from ..model.markov import MarkovNetwork
from ..model.network import BayesianNetwork
from ..util.arrays import Floats


@dataclass(frozen=True)
class PgmpyModel:
    """A model of pgmpy, converted, with its original names."""

    model: DiscreteModel
    names: dict[str, Hashable]  # dict of str to hashable: Our variable names to pgmpy's
    labels: dict[str, tuple[Any, ...]]  # dict of str to tuple: Our variable names to pgmpy's state names, in order


def from_pgmpy(model: Any) -> DiscreteModel:
    """Convert a pgmpy model to a `BayesianNetwork`, or a Markov network to a `MarkovNetwork`.

    CPT rows are normalised; ``row_report`` lists those that did not sum to 1.

    Raises
    ------
    NetworkError
        If a node has no table, a table does not match the graph, a node is continuous, or the network is invalid.
    """
    return read_pgmpy(model).model


def read_pgmpy(model: Any) -> PgmpyModel:
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
        cpts,
        name=str(getattr(model, "name", "") or ""),
        row_report=report,
    )
    return PgmpyModel(made, names, labels)


def _labels(factor: Any, variable: Hashable, card: int) -> tuple[Any, ...]:
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


def to_pgmpy(net: DiscreteModel) -> Any:
    """Convert a Bayesian network to pgmpy's ``DiscreteBayesianNetwork`` (``BayesianNetwork`` before version 1).

    Raises
    ------
    FormatError
        If the model is not a Bayesian network, or a variable has several states of the same name.
    ImportError
        If pgmpy is not installed.
    """
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
