"""A network as clients see it: variables, arcs, priors, the cost of its plan, CPTs and files."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ..cases.query import model_fingerprint
from ..decisions.tree import DecisionTree
from ..errors import ArgumentError, EvidenceError, TableTooLarge, closest
from ..formats.bundled import networks
from ..formats.conversion import carry
from ..formats.registry import FORMATS
from ..inference.tree import JunctionTree
from ..model.decisions import DecisionNetwork
from ..model.dynamic import DynamicNetwork
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..model.network import BayesianNetwork
from .map_layout import Outline, earlier_parents, outline, positions
from .numbers import QUANTILES, number_reply
from .registry import questions_of
from .trees import OVER_TIME, AnyNetwork, AnyTree, core_of, network_kind, network_of, states_of, where

POINTS = 60  # of the density of a number


def digest(tree: AnyTree) -> str:
    """A digest of the model and of where it is computed."""
    net = network_of(tree)
    if isinstance(net, (MixedNetwork, DynamicNetwork, MixedDynamicNetwork)):
        own = file(net, written_formats(net)[0])
    elif isinstance(tree, DecisionTree) and isinstance(net, DecisionNetwork):
        tables = {u: (net.parents(u), net.utility(u).tolist()) for u in net.utilities}
        own = f"{model_fingerprint(tree.under().model)} {net.combine} {tables}"
    else:
        return model_fingerprint(net)[:32]
    return hashlib.sha256(own.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def summary(name: str, tree: AnyTree) -> dict[str, Any]:
    """One line about a network."""
    net: Any = network_of(tree)
    graph = outline(net).graph
    nodes = (*net, *getattr(net, "utilities", ()))
    arcs = sum(len(net.parents(v)) for v in nodes) if graph.is_directed else len(graph.arcs)
    return {
        "name": name, "title": net.name, "variables": len(net), "arcs": arcs,
        "states": int(states_of(net).cardinality.sum()), **where(tree), "digest": digest(tree),
    }


def prior_of(tree: AnyTree) -> tuple[dict[str, Any], float]:
    """The prior probabilities and densities by variable, over time of the first slice, and ln P of no evidence.

    There are none if questions are planned one by one, and that for all variables does not fit.
    """
    if isinstance(tree, OVER_TIME):
        priors: Any = tree.network.unroll(1).compile("cpu").posteriors()
        static = set(tree.network.static)
        return {v: priors[v if v in static else f"{v}[0]"] for v in tree.network}, priors.log_evidence
    if isinstance(tree, DecisionTree):
        tree = tree.under()
    try:
        priors = tree.posteriors()
    except TableTooLarge:
        if isinstance(tree, JunctionTree) and not tree.whole:
            return {}, 0.0
        raise
    return dict(priors), priors.log_evidence


def description(name: str, tree: AnyTree, source: str = "") -> dict[str, Any]:
    """Everything about a network except its numbers."""
    # returns Variables with their states and the numbers of their parents, arcs, prior probabilities in the order of
    #     the variables, and the cost of the plan.
    net = network_of(tree)
    states, drawn = states_of(net), outline(net)
    prior, log_evidence = prior_of(tree)
    earlier = earlier_parents(net)
    numbers = {
        "numbers": [{"name": v, "parents": parents, "prior": number_reply(prior[v], QUANTILES, POINTS),
                     **({"earlier": earlier[v]} if earlier else {})} for v, parents in drawn.numbers]
    } if drawn.numbers else {}  # fmt: skip
    return {
        "name": name,
        "title": net.name,
        "source": source or (name if name in networks() else ""),
        "kind": network_kind(net),
        "questions": questions_of(tree),
        "digest": digest(tree),
        "formats": written_formats(net),
        **where(tree),
        "variables": _variables(net, drawn),
        **_decisions(net, drawn),
        **_slices(net),
        **numbers,
        "arcs": [[*arc] for arc in drawn.graph.arcs],
        "prior": [prior[v].probabilities.tolist() for v in states if prior],
        "log_evidence": log_evidence,
        "plan": _plan(tree),
    }


def _plan(tree: AnyTree) -> dict[str, Any]:
    """The cost of the plan of the junction tree: over time that of a slice."""
    core = core_of(tree)
    if core is None:
        return {}
    cost = core.plan.plan.cost()
    return {
        "description": core.plan.describe(), "cliques": cost.cliques, "entries": cost.entries,
        "largest": cost.largest, "bytes": cost.bytes, "flops": cost.flops, "levels": cost.levels,
    }


def _variables(net: AnyNetwork, drawn: Outline) -> list[dict[str, Any]]:
    states, graph = drawn.states, drawn.graph
    attributes = getattr(net, "attributes", {}).get("node", {})
    labels = [attributes.get(v, {}).get("label") for v in states]
    return [
        {
            "name": name, "label": label if isinstance(label, str) and label else name,
            "states": [*states.states(name)], "parents": parents if graph.is_directed else [], "position": position,
        }
        for name, label, parents, position in zip(states, labels, graph.parents, positions(drawn), strict=False)
    ]


def _decisions(net: AnyNetwork, drawn: Outline) -> dict[str, Any]:
    """Numbers of the decisions, and the utilities with the numbers of their parents, of a network that has some."""
    if not isinstance(net, DecisionNetwork):
        return {}
    utilities = [{"name": u, "parents": parents} for u, parents in drawn.utilities]
    return {"decisions": [net.index(d) for d in net.decisions], "utilities": utilities}


def _slices(net: AnyNetwork) -> dict[str, Any]:
    """Order, static variables, and parents in earlier slices as pairs of number and lag, of a network over time."""
    if not isinstance(net, (DynamicNetwork, MixedDynamicNetwork)):
        return {}
    own, earlier = states_of(net), earlier_parents(net)
    static = [own.index(v) for v in net.static if v in own]
    return {"slices": {"order": net.order, "static": static, "earlier": [earlier[v] for v in own], "prior": 0}}


def cpt(tree: AnyTree, variable: str | int) -> dict[str, Any]:
    """The CPT of a variable; the last axis, its own states, varies fastest. Of a decision, the best policy."""
    # Of a noisy node its strengths: rows for the states of the parents, then that of the leak; a table if it is small
    # raises EvidenceError: If the model is a Markov network, which has no CPTs.
    net = tree.under().model if isinstance(tree, DecisionTree) else network_of(tree)
    if not isinstance(net, (BayesianNetwork, MixedNetwork, DynamicNetwork, MixedDynamicNetwork)):
        raise EvidenceError("a Markov network has factors and no CPTs")
    v = net.variables[net.index(variable)]
    noisy = net.noisy.get(v) if isinstance(net, BayesianNetwork) else None
    if noisy is not None:
        names = [*net.parents(v), v]
        states, shape, more = [[*net.states(u)] for u in names], noisy.shape, {"strengths": noisy.rows.tolist()}
        numbers = np.asarray(noisy) if noisy.size <= MOST_EXPANDED else np.zeros(0)
    else:
        table: Any = net.cpt(v)
        names = [*table.variables]
        states, shape, more, numbers = [[*table.states(u)] for u in names], table.shape, {}, table
    return {
        "variable": v, "parents": names[:-1], "states": states, "shape": [*shape],
        "probabilities": numbers.ravel().tolist(), **more,
    }


MOST_EXPANDED = 1 << 12  # entries of a noisy node's table that is shown next to its strengths

# Suffixes of kinds of networks that few formats have nodes for.
_WRITTEN = {
    "decision": ("net", "xdsl", "dsl"), "mixed": ("mixed.json", "net", "xdsl"), "dynamic": ("dynamic.json", "xdsl"),
    "mixed dynamic": ("dynamic.json",), "markov": ("uai", "fg"),
}  # fmt: skip


def file(net: AnyNetwork, name: str) -> str:
    """The network as text in a format."""
    # name: A suffix without the dot, such as ``"bif"``
    # raises ArgumentError: If there is no such format that can be written.
    # raises FormatError: If the format cannot represent the model.
    own = written_formats(net)
    every = ((s, f) for f in FORMATS for s in f.suffixes if s not in f.only_read)
    suffixes = {s[1:]: f for s, f in every if f.writer or s[1:] in own}
    if name not in suffixes:
        raise ArgumentError(f"format must be one of {', '.join(suffixes)}, not {name[:60]!r}{closest(name, suffixes)}")
    return carry(net, suffixes[name]).text


def written_formats(net: AnyNetwork | None = None) -> list[str]:
    """Suffixes of the formats that a network of this kind can be saved in; None: one without decisions and the like."""
    every = [s[1:] for f in FORMATS if f.writer for s in f.suffixes[:1]]
    if isinstance(net, MixedNetwork) and any(map(net.discrete_parents, net.numbers)):
        return ["mixed.json", "net"]  # equations of XDSL have numeric parents only
    return every if net is None else [*_WRITTEN.get(network_kind(net), every)]
