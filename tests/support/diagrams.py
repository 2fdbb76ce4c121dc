"""Decision networks as influence diagrams of pyAgrum, an independent solver."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from jtgpu import DecisionNetwork


def pyagrum_diagram(net: DecisionNetwork) -> Any:
    """The same network for pyAgrum; None if it is not installed."""
    try:
        gum: Any = importlib.import_module("pyagrum")
    except ImportError:
        return None
    diagram = gum.InfluenceDiagram()
    for v in net.variables:
        add = diagram.addDecisionNode if v in net.decisions else diagram.addChanceNode
        add(gum.LabelizedVariable(v, v, list(net.states(v))))
    for u in net.utilities:
        diagram.addUtilityNode(gum.LabelizedVariable(u, u, 1))
    for v in (*net.variables, *net.utilities):
        for p in net.parents(v):
            diagram.addArc(p, v)
    for v in net.variables:
        if v not in net.decisions:
            table = np.asarray(net.cpt(v))
            for at in np.ndindex(*table.shape):
                diagram.cpt(v)[dict(zip((*net.parents(v), v), at, strict=True))] = float(table[at])
    for u in net.utilities:
        for at in np.ndindex(*net.utility(u).shape):
            diagram.utility(u)[dict(zip(net.parents(u), at, strict=True))] = float(net.utility(u)[at])
    return diagram


def pyagrum_value(diagram: Any) -> float:
    """The expected utility of its policy."""
    gum: Any = importlib.import_module("pyagrum")
    engine = gum.ShaferShenoyLIMIDInference(diagram)
    engine.makeInference()
    return float(engine.MEU()["mean"])
