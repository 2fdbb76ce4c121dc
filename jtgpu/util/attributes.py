"""The error for an attribute that an object does not have, and what to write instead.

Attributes of the compiled tree are the most likely to be looked for in the network, and those of the network in the
tree; users of pgmpy and pyAgrum try the names that those have.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ..errors import UnknownAttribute, closest

# what compile() returns -> the function of late_imports that opens its module
TREES = {
    "JunctionTree": "compiling", "MixedTree": "mixed", "DecisionTree": "decisions", "DynamicTree": "dynamic",
    "MixedDynamicTree": "dynamic_numbers",
}  # fmt: skip
# name in another package -> names here, of which the first one that exists counts
OTHERS = {
    "query": "posterior smooth posteriors", "posteriors": "smooth", "posterior": "smooth posteriors",
    "get_marginal": "posterior smooth", "makeInference": "posteriors smooth", "map_query": "mpe",
    "max_marginals": "mpe", "setEvidence": "posteriors smooth", "addEvidence": "posteriors smooth",
    "evidenceProbability": "log_evidence log_likelihood", "jointPosterior": "joint", "simulate": "sample",
    "forward_inference": "filter", "nodes": "variables", "node": "variables", "names": "variables",
    "edges": "arcs", "get_cpds": "cpt", "cpds": "cpt", "cpd": "cpt", "cpts": "cpt", "variable": "states",
    "labels": "states", "state_names": "states", "get_cardinality": "cardinality", "get_parents": "parents",
    "predecessors": "parents", "get_children": "children", "successors": "children", "add_edge": "add_arc",
    "addArc": "add_arc", "add_node": "add", "remove_node": "remove", "get_independencies": "d_separated",
    "add_arc": "add_factor", "remove_arc": "remove_factor",
    "is_dconnected": "d_separated", "net": "network model", "std": "sd", "MEU": "policy",
}  # fmt: skip
FUNCTIONS = {
    **dict.fromkeys(("fit", "estimate", "add_cpds_from"), "jtgpu.learn.fit(net, cases)"),
    **dict.fromkeys(("save", "write", "saveBIF", "saveBN", "BIFWriter"), "jtgpu.write(net, 'file.bif')"),
    **dict.fromkeys(("loadBN", "read_bif", "BIFReader", "from_file"), "jtgpu.read('file.bif')"),
    **dict.fromkeys(("draw", "plot", "show"), "jtgpu.draw.show(net)"),
    **dict.fromkeys(("learn", "BNLearner", "HillClimbSearch", "PC", "hillclimb", "hc"), "jtgpu.learn.structure(cases)"),
    **dict.fromkeys(
        ("add_cpds", "TabularCPD", "BayesNet", "DiscreteBayesianNetwork", "BayesianModel"),
        "jtgpu.BayesianNetwork(states, parents, cpts)",
    ),
    **dict.fromkeys(
        ("VariableElimination", "BeliefPropagation", "LazyPropagation", "compile"), "net.compile(): it makes the tree"
    ),
    "check_model": "net.row_report: a network is checked when it is made",
}  # fmt: skip


def missing_attribute(self: object, name: str) -> Any:
    """``__getattr__`` of public classes."""
    cls = type(self)
    if name.startswith("_"):
        raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}")
    if hasattr(cls, name):  # a property that failed: once more, for its own error
        return object.__getattribute__(self, name)
    error = UnknownAttribute(f"a {cls.__name__} has no attribute {name!r}")
    error.hint = partial(_hint, self, name)
    raise error


def _hint(self: object, name: str) -> str:
    cls, words = type(self), [name, *OTHERS.get(name, "").split()]
    if reason := getattr(cls, "_why_not", lambda *_: "")(cls.__name__, name):  # a question of other kinds of network
        return f": {reason}"
    for word in words:
        if hasattr(cls, word):
            return f"; did you mean {word!r}?"
    for word in words:
        if hasattr(_tree(cls), word):
            return f"; compile() first: net.compile().{word}"
        for own in ("network", "model"):
            if isinstance(getattr(cls, own, None), property) and hasattr(type(getattr(self, own, None)), word):
                return f"; its network has {word!r}: tree.{own}.{word}"
    return other_way(name, dir(cls))


def other_way(name: str, known: Iterable[str]) -> str:
    """The function for what the name means in another package, or the nearest of the public names."""
    return f"; use {FUNCTIONS[name]}" if name in FUNCTIONS else closest(name, [a for a in known if a[0] != "_"])


def _tree(cls: type) -> Any:
    """The class of what ``compile()`` makes; None where there is no such method."""
    from . import late_imports

    returned = getattr(getattr(cls, "compile", None), "__annotations__", {}).get("return")
    return getattr(getattr(late_imports, TREES[returned])(), returned) if returned in TREES else None
