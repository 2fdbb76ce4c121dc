"""pyAgrum: ``BayesNet``; the package's name is ``pyagrum``, and ``pyAgrum`` before its version 2.

A table's variables are the child, then its parents, the first one fastest: as an array its axes are the other way
round.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..errors import FormatError, NetworkError
from ..model.cpts import normalize_rows
from ..model.network import BayesianNetwork, DiscreteModel

__all__ = ["from_pyagrum", "module", "to_pyagrum"]


def module() -> Any:
    """The package, under the name that it has here.

    Raises
    ------
    ImportError
        Where it is not installed.
    """
    try:
        return importlib.import_module("pyagrum")
    except ImportError:
        return importlib.import_module("pyAgrum")


def from_pyagrum(bn: Any) -> BayesianNetwork:
    """A network of pyAgrum's, variables in the order of their ids, parents in the order of their tables.

    Rows are divided by their sums, as of a file; ``row_report`` says which were not 1.

    Raises
    ------
    NetworkError
        For what is no ``BayesNet``, and whatever `BayesianNetwork` refuses.
    """
    if not (hasattr(bn, "cpt") and hasattr(bn, "variable") and hasattr(bn, "nodes")):
        raise NetworkError(f"a BayesNet of pyAgrum is needed, not a {type(bn).__name__}")
    states, parents, cpts = {}, {}, {}
    for i in sorted(bn.nodes()):
        variable, tensor = bn.variable(i), bn.cpt(i)
        v = variable.name()
        child, *before = tensor.names
        if child != v:
            raise NetworkError(f"the table of {v!r} begins with {child!r}")
        states[v], parents[v] = tuple(variable.labels()), before
        # a copy: the array is pyAgrum's memory, and goes with the network
        axes = range(len(before), -1, -1)
        table = np.array(tensor.toarray(), np.float64).transpose(list(axes))  # child, then parents in order
        cpts[v] = np.ascontiguousarray(np.moveaxis(table, 0, -1))
    cpts, report = normalize_rows(cpts)
    try:
        name = str(bn.property("name"))
    except Exception:  # pyAgrum raises an error of its own for a network without a name
        name = ""
    return BayesianNetwork(states, parents, cpts, name=name, row_report=report)


def to_pyagrum(net: DiscreteModel) -> Any:
    """A Bayesian network as pyAgrum's ``BayesNet``; ids are the numbers of the variables.

    Raises
    ------
    FormatError
        For a model that is no Bayesian network, and for states of equal names, which pyAgrum does not take.
    ImportError
        Where pyAgrum is not installed.
    """
    gum = module()
    if not isinstance(net, BayesianNetwork):
        raise FormatError(f"a BayesNet of pyAgrum holds no {type(net).__name__}")
    bn = gum.BayesNet(net.name)
    for v in net.variables:
        labels = net.states(v)
        if len(set(labels)) < len(labels):
            raise FormatError(f"pyAgrum takes no states of equal names: {v!r} has {list(labels)}")
        bn.add(gum.LabelizedVariable(v, v, list(labels)))
    for v in net.variables:
        for p in net.parents(v):
            bn.addArc(p, v)
        before = bn.cpt(v).names[1:]
        order = [net.parents(v).index(p) for p in before]
        # numbers with the child fastest, then its first parent
        table = net.cpt(v).transpose([*reversed(order), len(order)])
        bn.cpt(v).fillWith(np.ascontiguousarray(table).ravel().tolist())
    return bn
