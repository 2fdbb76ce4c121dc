"""What a client learns about a network: variables, arcs, priors, the cost of its plan, CPTs and files."""

from __future__ import annotations

from typing import Any

from ..cases.fingerprint import model_fingerprint
from ..draw.focus import Graph, graph_of
from ..errors import ArgumentError, EvidenceError, closest
from ..formats.conversion import carry
from ..formats.registry import FORMATS
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..model.network import BayesianNetwork
from .positions import positions


def digest(tree: JunctionTree) -> str:
    """A digest of the model and of where it is computed."""
    return model_fingerprint(tree.model)[:32]


def summary(name: str, tree: JunctionTree) -> dict[str, Any]:
    """One line about a network."""
    model = tree.model
    return {
        "name": name,
        "title": model.name,
        "variables": len(model),
        "arcs": len(graph_of(model).arcs),
        "states": int(model.cardinality.sum()),
        "backend": tree.backend,
        "device": tree.device,
        "dtype": tree.dtype,
        "digest": digest(tree),
    }


def description(name: str, tree: JunctionTree) -> dict[str, Any]:
    """Everything about a network except its numbers."""
    # returns Variables with their states and the numbers of their parents, arcs, prior probabilities in the order of
    #     the variables, and the cost of the plan.
    model = tree.model
    graph = graph_of(model)
    prior = tree.posteriors()
    cost = tree.plan.cost()
    return {
        "name": name,
        "title": model.name,
        "kind": "bayesian" if graph.is_directed else "markov",
        "digest": digest(tree),
        "backend": tree.backend,
        "device": tree.device,
        "dtype": tree.dtype,
        "variables": _variables(model, graph),
        "arcs": [[*arc] for arc in graph.arcs],
        "prior": [p.probabilities.tolist() for p in prior.values()],
        "log_evidence": prior.log_evidence,
        "plan": {
            "description": tree.plan.describe(),
            "cliques": cost.cliques,
            "entries": cost.entries,
            "largest": cost.largest,
            "bytes": cost.bytes,
            "flops": cost.flops,
            "levels": cost.levels,
        },
    }


def _variables(model: DiscreteModel, graph: Graph) -> list[dict[str, Any]]:
    attributes = model.attributes.get("node", {}) if isinstance(model, BayesianNetwork) else {}
    labels = [attributes.get(v, {}).get("label") for v in model.variables]
    places = positions(model)
    return [
        {
            "name": name,
            "label": label if isinstance(label, str) and label else name,
            "states": [*model.states(name)],
            "parents": parents if graph.is_directed else [],
            "position": position,
        }
        for name, label, parents, position in zip(model.variables, labels, graph.parents, places, strict=True)
    ]


def cpt(tree: JunctionTree, variable: str | int) -> dict[str, Any]:
    """The CPT of a variable; the last axis, its own states, varies fastest."""
    # raises EvidenceError: If the model is a Markov network, which has no CPTs.
    model = tree.model
    v = model.index(variable)
    if not isinstance(model, BayesianNetwork):
        raise EvidenceError("a Markov network has factors and no CPTs")
    table = model.cpt(v)
    parents = model.parents(v)
    return {
        "variable": model.variables[v],
        "parents": [*parents],
        "states": [*([*model.states(p)] for p in parents), [*model.states(v)]],
        "shape": [*table.shape],
        "probabilities": table.ravel().tolist(),
    }


def file(model: DiscreteModel, name: str) -> tuple[str, str]:
    """The network as text in a format, and the suffix of its file."""
    # name: A suffix without the dot, such as ``"bif"``
    # raises ArgumentError: If there is no such format that can be written.
    # raises FormatError: If the format cannot represent the model.
    suffixes = {s[1:]: f for f in FORMATS if f.writer for s in f.suffixes if s not in f.only_read}
    if name not in suffixes:
        raise ArgumentError(f"format must be one of {', '.join(suffixes)}, not {name[:60]!r}{closest(name, suffixes)}")
    return carry(model, suffixes[name]).text, name
