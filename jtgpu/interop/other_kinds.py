"""Dynamic networks of pyAgrum: ``KTBN`` and 2-TBN; what those of other libraries can represent.

A ``KTBN`` has the first k slices, with names such as ``rain[0]``; a 2-TBN (``pyAgrum.lib.dynamicBN``) is a ``BayesNet``
of ``rain0`` and ``raint``.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np

from ..errors import FormatError, NetworkError
from ..model.dynamic import DynamicNetwork
from ..model.gaussian import Gaussian
from ..model.mixed import MixedNetwork
from ..model.network import BayesianNetwork
from ..model.templates import of_tables

Pair = tuple[str, int]


def check_order(net: DynamicNetwork, what: str) -> None:
    """Raise `FormatError` if a parent is two slices earlier."""
    if net.order > 1:
        v, p, lag = next((v, p, lag) for v in net for p, lag in net.parents(v) if lag > 1)
        raise FormatError(f"{what} has parents one slice earlier at most, and {v!r} has {p!r} {lag} slices earlier")


def from_ktbn(model: Any, net: BayesianNetwork) -> DynamicNetwork:
    """The template of a ``KTBN``, whose first slices are a Bayesian network."""
    # net: `from_pyagrum` of ``model.toBN()``
    static = sorted(map(str, model.atemporalVarNames()), key=net.variables.index)
    k = int(model.k())
    pairs: dict[str, Pair] = {v: (v, 0) for v in static}
    tables: dict[str, list[str]] = {v: [v] for v in static}
    for v in net.variables:
        base, _, rest = v.rpartition("[")
        if v not in pairs:
            pairs[v] = base, k - 1 - int(rest[:-1])
            tables.setdefault(base, []).append(v)
    for labels in tables.values():
        labels.sort(key=lambda label: -pairs[label][1])
    return DynamicNetwork(**of_tables(net, pairs, tables, static), name=net.name)


def from_two_slices(net: BayesianNetwork) -> DynamicNetwork:
    """The template of a network of ``rain0`` and ``raint``; variables without such a partner are static."""
    pairs: dict[str, Pair] = {}
    tables: dict[str, list[str]] = {}
    for v in net.variables:
        base = v[:-1]
        if v.endswith("0") and f"{base}t" in net:
            pairs[v], pairs[f"{base}t"] = (base, 1), (base, 0)
            tables[base] = [v, f"{base}t"]
    if not tables:
        raise NetworkError("two_slices needs variables of slice 0 and slice t, such as 'rain0' and 'raint'")
    static = [v for v in net.variables if v not in pairs]
    for v in static:
        if v in tables:
            raise NetworkError(f"{v!r} is static by its name, and there are {v + '0'!r} and {v + 't'!r}")
        pairs[v], tables[v] = (v, 0), [v]
    order = [next(b for b in tables if v in tables[b]) for v in net.variables]
    ordered = {base: tables[base] for base in dict.fromkeys(order)}
    return DynamicNetwork(**of_tables(net, pairs, ordered, static), name=net.name)


def as_two_slices(net: DynamicNetwork) -> BayesianNetwork:
    """The network of ``rain0`` and ``raint`` of a template."""
    # raises FormatError: If a parent is two slices earlier, or names clash.
    check_order(net, "a 2-TBN")
    full = net.unroll(2)
    label = {v: v if v in net.static else re.sub(r"\[0\]$", "0", re.sub(r"\[1\]$", "t", v)) for v in full.variables}
    if len(set(label.values())) < len(label):
        raise FormatError("names of a 2-TBN would clash: two variables of it would have the same name")
    return BayesianNetwork(
        {label[v]: full.states(v) for v in full.variables},
        {label[v]: [label[p] for p in full.parents(v)] for v in full.variables},
        {label[v]: full.cpt(v) for v in full.variables}, name=net.name,
    )  # fmt: skip


# Networks of numbers only: pgmpy's ``LinearGaussianBayesianNetwork`` and pyAgrum's ``pyagrum.clg.CLG``.

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
