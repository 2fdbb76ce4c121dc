"""pyAgrum: ``BayesNet``. The package is named ``pyagrum``, and ``pyAgrum`` before version 2.

A table's variables are the child, then its parents, the first one varying fastest: the axes of its array are reversed.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..errors import FormatError, NetworkError
from ..model.cpts import normalize_rows
from ..model.discrete import DiscreteModel
from ..model.network import BayesianNetwork


def module() -> Any:
    """The pyAgrum package, under either name."""
    # raises ImportError: If the package is not installed.
    try:
        return importlib.import_module("pyagrum")
    except ImportError:
        return importlib.import_module("pyAgrum")


def from_pyagrum(bn: Any) -> BayesianNetwork:
    """Convert a ``BayesNet``; variables are in the order of their ids, parents in the order of their tables.

    CPT rows are normalised; ``row_report`` lists those that did not sum to 1.

    Raises
    ------
    NetworkError
        If `bn` is not a ``BayesNet``, or the network is invalid.
    """
    if not (hasattr(bn, "cpt") and hasattr(bn, "variable") and hasattr(bn, "nodes")):
        raise NetworkError(f"expected a BayesNet of pyAgrum, got a {type(bn).__name__}")
    states, parents, cpts = {}, {}, {}
    for i in sorted(bn.nodes()):
        variable, tensor = bn.variable(i), bn.cpt(i)
        v = variable.name()
        child, *before = tensor.names
        if child != v:
            raise NetworkError(f"the first variable of the table of {v!r} is {child!r}")
        states[v], parents[v] = tuple(variable.labels()), before
        # a copy: the array is a view of memory that pyAgrum owns
        axes = range(len(before), -1, -1)
        table = np.array(tensor.toarray(), np.float64).transpose(list(axes))  # child, then parents in order
        cpts[v] = np.ascontiguousarray(np.moveaxis(table, 0, -1))
    cpts, report = normalize_rows(cpts)
    try:
        name = str(bn.property("name"))
    except Exception:  # pyAgrum raises its own error if the network has no name
        name = ""
    return BayesianNetwork(states, parents, cpts, name=name, row_report=report)


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
