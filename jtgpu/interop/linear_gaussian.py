"""Networks of numbers only: pgmpy's ``LinearGaussianBayesianNetwork`` and pyAgrum's ``pyagrum.clg.CLG``."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..errors import FormatError, NetworkError
from ..model.gaussian import Gaussian
from ..model.mixed import MixedNetwork


def _numbers_only(net: MixedNetwork, library: str) -> None:
    if len(net.discrete):
        raise FormatError(f"{library} takes numbers only, and {net.discrete.variables[0]!r} has states")


def is_linear_gaussian(model: Any) -> bool:
    """Whether this is a network of pgmpy whose nodes have linear Gaussian CPDs."""
    return any(hasattr(cpd, "beta") and hasattr(cpd, "std") for cpd in model.get_cpds() or ())


def from_linear_gaussian(model: Any) -> MixedNetwork:
    """Convert a ``LinearGaussianBayesianNetwork`` of pgmpy."""
    # raises NetworkError: If a node has no CPD, or one of another kind.
    parents: dict[str, list[str]] = {}
    densities: dict[str, Gaussian] = {}
    for node in model.nodes():
        cpd = model.get_cpds(node)
        if cpd is None or not hasattr(cpd, "beta"):
            raise NetworkError(f"the node {str(node)!r} has {type(cpd).__name__}, expected a LinearGaussianCPD")
        parents[str(node)] = [str(p) for p in cpd.evidence]
        intercept, *slopes = np.asarray(cpd.beta, np.float64).tolist()
        densities[str(node)] = Gaussian(intercept, dict(zip(parents[str(node)], slopes, strict=True)), cpd.std)
    return MixedNetwork(dict.fromkeys(parents, float), parents, densities)


def to_linear_gaussian(net: MixedNetwork) -> Any:
    """Convert to pgmpy's ``LinearGaussianBayesianNetwork``."""
    # raises FormatError: If a variable has states.
    _numbers_only(net, "pgmpy's LinearGaussianBayesianNetwork")
    models = importlib.import_module("pgmpy.models")
    cpd = importlib.import_module("pgmpy.factors.continuous").LinearGaussianCPD
    theirs = models.LinearGaussianBayesianNetwork()
    theirs.add_nodes_from(net.variables)
    theirs.add_edges_from((p, v) for v in net.variables for p in net.parents(v))
    for v in net.variables:
        density = net.gaussian(v)
        beta = [float(density.mean), *(float(density.coefficients[p]) for p in net.parents(v))]
        theirs.add_cpds(cpd(v, beta, float(density.sd), list(net.parents(v))))
    return theirs


def is_clg(bn: object) -> bool:
    """Whether this is a ``pyagrum.clg.CLG``."""
    return hasattr(bn, "coefArc") and hasattr(bn, "variables")


def from_clg(clg: Any) -> MixedNetwork:
    """Convert a ``pyagrum.clg.CLG``; variables are in the order of their ids."""
    names = {node: clg.variable(node).name() for node in sorted(clg.nodes())}
    parents = {name: [names[p] for p in sorted(clg.parents(node))] for node, name in names.items()}
    densities = {
        name: Gaussian(
            clg.variable(node).mu(), {p: clg.coefArc(p, name) for p in parents[name]}, clg.variable(node).sigma()
        )
        for node, name in names.items()
    }
    return MixedNetwork(dict.fromkeys(parents, float), parents, densities)


def to_clg(net: MixedNetwork) -> Any:
    """Convert to a ``pyagrum.clg.CLG``."""
    # raises FormatError: If a variable has states, or a coefficient is 0, which it does not take.
    _numbers_only(net, "pyagrum.clg")
    clg = importlib.import_module("pyagrum.clg")
    theirs = clg.CLG()
    for v in net.variables:
        theirs.add(clg.GaussianVariable(v, float(net.gaussian(v).mean), float(net.gaussian(v).sd)))
    for v in net.variables:
        for p in net.parents(v):
            theirs.addArc(p, v, float(net.gaussian(v).coefficients[p]))
    return theirs
