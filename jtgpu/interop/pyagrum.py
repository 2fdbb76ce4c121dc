"""pyAgrum: ``BayesNet`` and ``InfluenceDiagram``. The package is named ``pyagrum``, and ``pyAgrum`` before version 2.

A table's variables are the child, then its parents, the first one varying fastest: the axes of its array are reversed.
"""

from __future__ import annotations

import importlib
from typing import Any, cast

import numpy as np

from ..errors import FormatError, NetworkError
from ..model.cpts import normalize_rows
from ..model.decisions import DecisionNetwork
from ..model.discrete import DiscreteModel
from ..model.network import BayesianNetwork
from ..util.arrays import Floats


def module() -> Any:
    """The pyAgrum package, under either name."""
    # raises ImportError: If the package is not installed.
    try:
        return importlib.import_module("pyagrum")
    except ImportError:
        return importlib.import_module("pyAgrum")


def from_pyagrum(bn: Any) -> BayesianNetwork:
    """Convert a ``BayesNet`` or an ``InfluenceDiagram``; variables are in the order of their ids.

    Parents are in the order of their tables. CPT rows are normalised; ``row_report`` lists those that did not sum to 1.

    Returns
    -------
    BayesianNetwork
        A `DecisionNetwork` for an ``InfluenceDiagram``; the annotation names the class that is more frequent.

    Raises
    ------
    NetworkError
        If `bn` is neither, or the network is invalid.
    """
    if not (hasattr(bn, "cpt") and hasattr(bn, "variable") and hasattr(bn, "nodes")):
        raise NetworkError(f"expected a BayesNet or an InfluenceDiagram of pyAgrum, got a {type(bn).__name__}")
    is_diagram = hasattr(bn, "isDecisionNode")
    states, parents, cpts, utilities = {}, {}, {}, {}
    for i in sorted(bn.nodes()):
        variable, v = bn.variable(i), bn.variable(i).name()
        is_utility = is_diagram and bn.isUtilityNode(i)
        if not is_utility:
            states[v] = tuple(variable.labels())
        if is_diagram and bn.isDecisionNode(i):
            parents[v] = [bn.variable(p).name() for p in sorted(bn.parents(i))]
            continue
        parents[v], table = _table(v, bn.utility(i) if is_utility else bn.cpt(i))
        if is_utility:
            utilities[v] = np.ascontiguousarray(table[..., 0])
        else:
            cpts[v] = table
    cpts, report = normalize_rows(cpts)
    try:
        name = str(bn.property("name"))
    except Exception:  # pyAgrum raises its own error if the network has no name
        name = ""
    if not is_diagram:
        return BayesianNetwork(states, parents, cpts, name=name, row_report=report)
    decisions = [v for v in states if v not in cpts]
    made = DecisionNetwork(
        states, parents, cpts, decisions=decisions, utilities=utilities, name=name, row_report=report
    )
    return cast(BayesianNetwork, made)


def _table(v: str, tensor: Any) -> tuple[list[str], Floats]:
    """The parents of a table, and its numbers: the parents in order, the child last."""
    child, *before = tensor.names
    if child != v:
        raise NetworkError(f"the first variable of the table of {v!r} is {child!r}")
    # a copy: the array is a view of memory that pyAgrum owns
    axes = range(len(before), -1, -1)
    table = np.array(tensor.toarray(), np.float64).transpose(list(axes))  # child, then parents in order
    return before, np.ascontiguousarray(np.moveaxis(table, 0, -1))


def to_pyagrum(net: DiscreteModel) -> Any:
    """Convert a Bayesian network to a ``BayesNet``; ids are the numbers of the variables.

    Raises
    ------
    FormatError
        If the model is not a Bayesian network, or a variable has several states of the same name.
    ImportError
        If pyAgrum is not installed.
    """
    gum = module()
    if not isinstance(net, BayesianNetwork):
        raise FormatError(f"a BayesNet of pyAgrum cannot represent a {type(net).__name__}")
    bn = gum.BayesNet(net.name)
    for v in net.variables:
        labels = net.states(v)
        if len(set(labels)) < len(labels):
            raise FormatError(f"pyAgrum needs distinct state names: {v!r} has {list(labels)}")
        bn.add(gum.LabelizedVariable(v, v, list(labels)))
    for v in net.variables:
        for p in net.parents(v):
            bn.addArc(p, v)
        before = bn.cpt(v).names[1:]
        order = [net.parents(v).index(p) for p in before]
        # the child varies fastest, then its first parent
        table = net.cpt(v).transpose([*reversed(order), len(order)])
        bn.cpt(v).fillWith(np.ascontiguousarray(table).ravel().tolist())
    return bn
