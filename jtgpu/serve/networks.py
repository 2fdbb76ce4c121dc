"""A network as clients see it: variables, arcs, priors, the cost of its plan, CPTs and files."""

from __future__ import annotations

import hashlib
from typing import Any

from ..cases.query import model_fingerprint
from ..draw.drawing import Graph, graph_of
from ..errors import ArgumentError, EvidenceError, TableTooLarge, closest
from ..formats.bundled import networks
from ..formats.conversion import carry
from ..formats.dynamic_writers import dumps_dynamic
from ..formats.mixed_writers import dumps_mixed
from ..formats.registry import FORMATS
from ..inference.results.marginals import Posteriors
from ..inference.tree import JunctionTree
from ..model.decisions import PolicyNetwork
from ..model.discrete import DiscreteModel
from ..model.discrete_part import DiscretePart
from ..model.dynamic import DynamicNetwork
from ..model.first_slice import OVER_TIME
from ..model.network import BayesianNetwork
from .map_layout import positions
from .numbers import QUANTILES, mixed_tree, number_reply

POINTS = 60  # of the density of a number


def digest(tree: JunctionTree) -> str:
    """A digest of the model and of where it is computed."""
    model = tree.model
    own = model_fingerprint(model)
    if isinstance(model, OVER_TIME):  # and the other slices
        own = hashlib.sha256(f"{own}{dumps_dynamic(model.dynamic_network, 'dynamic JSON')}".encode()).hexdigest()
    if isinstance(model, DiscretePart):  # and the densities of the numbers
        own = hashlib.sha256(f"{own}{dumps_mixed(model.mixed_network, 'JSON')}".encode()).hexdigest()
    return own[:32]


def summary(name: str, tree: JunctionTree) -> dict[str, Any]:
    """One line about a network."""
    model = tree.model
    net = model.mixed_network if isinstance(model, DiscretePart) else None
    return {
        "name": name, "title": model.name, "variables": len(model if net is None else net),
        "arcs": len(graph_of(model).arcs if net is None else net.arcs),
        "states": int(model.cardinality.sum()), "backend": tree.backend, "device": tree.device, "dtype": tree.dtype,
        "digest": digest(tree),
    }


def _prior(tree: JunctionTree) -> Posteriors | None:
    """The prior probabilities; None if questions are planned one by one, and that for all variables does not fit."""
    try:
        return tree.posteriors()
    except TableTooLarge:
        if tree.whole:
            raise
        return None


def description(name: str, tree: JunctionTree, source: str = "") -> dict[str, Any]:
    """Everything about a network except its numbers."""
    # returns Variables with their states and the numbers of their parents, arcs, prior probabilities in the order of
    #     the variables, and the cost of the plan.
    model = tree.model
    graph = graph_of(model)
    prior = _prior(tree)
    cost = tree.plan.cost()
    return {
        "name": name,
        "title": model.name,
        "source": source or (name if name in networks() else ""),
        "kind": "bayesian" if graph.is_directed else "markov",
        "digest": digest(tree),
        "formats": written_formats(model),
        "backend": tree.backend,
        "device": tree.device,
        "dtype": tree.dtype,
        "variables": _variables(model, graph) if _has_states(model) else [],
        **_decisions(model),
        **_slices(model),
        **_numbers(tree),
        "arcs": [[*arc] for arc in graph.arcs],
        "prior": [p.probabilities.tolist() for p in prior.values()] if prior is not None and _has_states(model) else [],
        "log_evidence": 0.0 if prior is None else prior.log_evidence,
        "plan": {
            "description": tree.plan.describe(), "cliques": cost.cliques, "entries": cost.entries,
            "largest": cost.largest, "bytes": cost.bytes, "flops": cost.flops, "levels": cost.levels,
        },
    }


def _has_states(model: DiscreteModel) -> bool:
    """Whether the variables are not those of a network of numbers only."""
    return not isinstance(model, DiscretePart) or model.has_states


def _variables(model: DiscreteModel, graph: Graph) -> list[dict[str, Any]]:
    attributes = model.attributes.get("node", {}) if isinstance(model, BayesianNetwork) else {}
    labels = [attributes.get(v, {}).get("label") for v in model.variables]
    places = positions(model)
    return [
        {
            "name": name, "label": label if isinstance(label, str) and label else name, "states": [*model.states(name)],
            "parents": parents if graph.is_directed else [], "position": position,
        }
        for name, label, parents, position in zip(model.variables, labels, graph.parents, places, strict=True)
    ]


def _decisions(model: DiscreteModel) -> dict[str, Any]:
    """Numbers of the decisions, and the utilities with the numbers of their parents, of a network with a policy."""
    if not isinstance(model, PolicyNetwork):
        return {}
    net = model.decision_network
    utilities = [{"name": u, "parents": [net.index(p) for p in net.parents(u)]} for u in net.utilities]
    return {"decisions": [net.index(d) for d in net.decisions], "utilities": utilities}


def _slices(model: DiscreteModel) -> dict[str, Any]:
    """Order, static variables, and parents in earlier slices as pairs of number and lag, of a network over time."""
    if not isinstance(model, OVER_TIME):
        return {}
    net, own = model.template, {*model.dynamic_network}
    earlier = [[[net.index(p), lag] for p, lag in net.parents(v) if lag] for v in model.variables if v in own]
    static = [net.index(v) for v in net.static if v in own]
    return {"slices": {"order": net.order, "static": static, "earlier": earlier}}


def _numbers(tree: JunctionTree) -> dict[str, Any]:
    """The numbers of a network that has some: parents, by number of the variable or from V on, and priors."""
    model = tree.model
    if not isinstance(model, DiscretePart):
        return {}
    net = model.mixed_network
    place = {v: i for i, v in enumerate((*net.discrete.variables, *net.numbers))}
    prior = mixed_tree(tree).posteriors(targets=[*net.numbers])
    return {"numbers": [
        {"name": v, "parents": [place[p] for p in net.parents(v)], "prior": number_reply(prior[v], QUANTILES, POINTS)}
        for v in net.numbers
    ]}  # fmt: skip


def cpt(tree: JunctionTree, variable: str | int) -> dict[str, Any]:
    """The CPT of a variable; the last axis, its own states, varies fastest."""
    # raises EvidenceError: If the model is a Markov network, which has no CPTs.
    model = tree.model
    v = model.index(variable)
    if not isinstance(model, BayesianNetwork):
        raise EvidenceError("a Markov network has factors and no CPTs")
    table: Any = model.template.cpt(v) if isinstance(model, OVER_TIME) else model.cpt(v)
    names = table.variables
    return {
        "variable": model.variables[v], "parents": [*names[:-1]],
        "states": [[*table.states(name)] for name in names], "shape": [*table.shape],
        "probabilities": table.ravel().tolist(),
    }


# with decisions: formats that have nodes for them
_WITH_DECISIONS = ("net", "xdsl", "dsl")
_WITH_NUMBERS = {"mixed.json": "JSON", "net": "Hugin net", "xdsl": "XDSL"}  # suffix -> format
_WITH_SLICES = {"dynamic.json": "dynamic JSON", "xdsl": "XDSL"}  # suffix -> format


def file(model: DiscreteModel, name: str) -> tuple[str, str]:
    """The network as text in a format, and the suffix of its file."""
    # name: A suffix without the dot, such as ``"bif"``
    # raises ArgumentError: If there is no such format that can be written.
    # raises FormatError: If the format cannot represent the model.
    if isinstance(model, OVER_TIME):
        if name not in _WITH_SLICES:
            raise ArgumentError(f"a network over time is written as {' or '.join(_WITH_SLICES)}, not {name[:60]!r}")
        return dumps_dynamic(model.dynamic_network, _WITH_SLICES[name]), name
    if isinstance(model, DiscretePart):
        if name not in _WITH_NUMBERS:
            raise ArgumentError(f"a network with numbers is written as {', '.join(_WITH_NUMBERS)}, not {name[:60]!r}")
        return dumps_mixed(model.mixed_network, _WITH_NUMBERS[name]), name
    if isinstance(model, PolicyNetwork):  # the policy is an answer; the network has decisions and utilities
        model = model.decision_network
    suffixes = {s[1:]: f for f in FORMATS if f.writer for s in f.suffixes if s not in f.only_read}
    if name not in suffixes:
        raise ArgumentError(f"format must be one of {', '.join(suffixes)}, not {name[:60]!r}{closest(name, suffixes)}")
    return carry(model, suffixes[name]).text, name


def written_formats(model: DiscreteModel | None = None) -> list[str]:
    """Suffixes of the formats that a network of this kind can be saved in; None: one without decisions and the like."""
    if isinstance(model, OVER_TIME):
        return [*_WITH_SLICES] if isinstance(model.dynamic_network, DynamicNetwork) else ["dynamic.json"]
    if isinstance(model, DiscretePart):
        return [*_WITH_NUMBERS]
    if isinstance(model, PolicyNetwork):
        return [*_WITH_DECISIONS]
    return [s[1:] for f in FORMATS if f.writer for s in f.suffixes[:1]]


# `Hosted`: a tree with everything that a server needs to answer its questions.
#
