"""`compare`: how two graphs, or two networks, differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError, NetworkError
from ..inference.results.result import Result
from ..model.directed import DirectedModel
from ..model.equivalence import cpdag_of, experimental_arcs, hamming_distance
from ..model.network import BayesianNetwork
from ..util.arguments import check_keywords, described, several
from ..util.arrays import Floats
from ..util.elementary import logs
from ..util.text_table import counted

Arc = tuple[str, str]


@check_keywords()
@dataclass(frozen=True, eq=False, repr=False)
class GraphComparison(Result):
    """How a second directed acyclic graph differs from a first one.

    The data frame has a row for each arc that is not in both: ``parent``, ``child``, ``change``.

    Attributes
    ----------
    added, missing : tuple of (parent, child)
        Arcs between variables that only the second graph links, and that only the first one links.
    turned : tuple of (parent, child)
        Arcs of the first graph that the second one has in the other direction.
    common : tuple of (parent, child)
        Arcs of both graphs.
    shd : int
        Structural Hamming distance of the graphs: the number of arcs that are added, missing or turned.
    shd_class : int
        The same of their equivalence classes (CPDAGs): pairs of variables that are linked differently (Tsamardinos et
        al., 2006). 0 if and only if the graphs are equivalent.
    kl : float or None
        Kullback-Leibler divergence of the second network from the first one, sum of P ln(P / Q), exact; infinite if Q
        is 0 where P is not. None if one of them has no CPTs.
    """

    added: tuple[Arc, ...]
    missing: tuple[Arc, ...]
    turned: tuple[Arc, ...]
    common: tuple[Arc, ...]
    shd_class: int
    kl: float | None = None

    @property
    def shd(self) -> int:
        return len(self.added) + len(self.missing) + len(self.turned)

    def _title(self) -> str:
        parts = [
            f"{counted(len(arcs), 'arc')} {what}"
            for arcs, what in (
                (self.common, "in both"), (self.added, "added"), (self.missing, "missing"), (self.turned, "turned"),
            )
        ]  # fmt: skip
        kl = "" if self.kl is None else f"; KL divergence {self.kl:.6g}"
        return f"{', '.join(parts)}: SHD {self.shd}, of the equivalence classes {self.shd_class}{kl}"

    def _columns(self) -> dict[str, object]:
        kinds = {"added": self.added, "missing": self.missing, "turned": self.turned}
        rows = [(u, v, kind) for kind, arcs in kinds.items() for u, v in arcs]
        return {name: [row[i] for row in rows] for i, name in enumerate(("parent", "child", "change"))}


def compare(
    a: object, b: object, *, interventions: Iterable[str | Iterable[str]] = ()
) -> GraphComparison:
    """Compare two directed acyclic graphs over the same variables, and the distributions of two networks.

    Parameters
    ----------
    a, b : network, networkx.DiGraph, mapping from child to parents, or `jtgpu.learn.Structure`
        The first one is the reference, such as the true graph.
    interventions : list of variables, or of lists of variables
        Experiments that tell more graphs apart: the classes are those of `jtgpu.BayesianNetwork.cpdag`.

    Returns
    -------
    GraphComparison
        ``.shd``, ``.shd_class``, ``.added``, ``.missing``, ``.turned``, ``.kl``; prints as a table of arcs.

    Raises
    ------
    NetworkError
        If the graphs have different variables or a cycle, or the variables of the networks different states.
    ArgumentError
        If an argument is no graph.

    Notes
    -----
    The divergence is a sum over families, of posterior tables that the junction tree of `a` gives; the joint
    distribution is never enumerated.

    Examples
    --------
    >>> import jtgpu
    >>> result = jtgpu.graphs.compare({"b": ["a"], "c": ["b"]}, {"a": ["b"], "c": ["b"]})
    >>> result.shd, result.shd_class, result.turned
    (1, 0, (('a', 'b'),))
    """
    first, second = _graph(a, "a"), _graph(b, "b")
    if differing := sorted({*first.variables} ^ {*second.variables}):
        raise NetworkError(f"the graphs have different variables: {differing[0]!r} is in one of them only")
    order = [second.index(v) for v in first.variables]
    x, y = first._matrix(), second._matrix()[np.ix_(order, order)]
    kl, targets = None, first._targets(interventions)
    if isinstance(first, BayesianNetwork) and isinstance(second, BayesianNetwork):
        kl = _divergence(first, second)
    return GraphComparison(
        tuple(arc for arc in _sorted(second, first) if not _linked(first, arc)),
        tuple(arc for arc in first.arcs if not _linked(second, arc)),
        tuple((u, v) for u, v in first.arcs if v in second.parents(u)),
        tuple((u, v) for u, v in first.arcs if u in second.parents(v)),
        hamming_distance(*(cpdag_of(arcs, experimental_arcs(arcs, targets)) for arcs in (x, y))), kl,
    )  # fmt: skip


def _sorted(graph: DirectedModel, like: DirectedModel) -> list[Arc]:
    """Arcs by child and parent in the order of another graph."""
    return sorted(graph.arcs, key=lambda arc: (like.index(arc[1]), like.index(arc[0])))


def _linked(graph: DirectedModel, arc: Arc) -> bool:
    return arc[0] in graph.parents(arc[1]) or arc[1] in graph.parents(arc[0])


def _graph(given: Any, name: str) -> DirectedModel:
    """The graph; a network as it is."""
    if isinstance(given, DirectedModel):
        return given
    if not isinstance(given, Mapping) and callable(getattr(given, "to_networkx", None)):
        given = given.to_networkx()
    if hasattr(given, "nodes") and callable(getattr(given, "is_directed", None)):
        if not given.is_directed():
            raise NetworkError(f"{name} must be a directed graph; this one has no directions")
        parents = {str(v): [str(u) for u in given.predecessors(v)] for v in given.nodes}
    elif isinstance(given, Mapping) and all(several(above) is not None for above in given.values()):
        parents = {str(v): [str(u) for u in above] for v, above in given.items()}
    else:
        raise ArgumentError(
            f"{name} must be a network, a directed graph, or a mapping from child to parents, not {described(given)}"
        )
    variables = dict.fromkeys([*parents, *(u for above in parents.values() for u in above)], ("",))
    return DirectedModel(variables, parents)


def _divergence(p: BayesianNetwork, q: BayesianNetwork) -> float:
    """Sum over all configurations of P ln(P / Q)."""
    for v in p.variables:
        if {*p.states(v)} != {*q.states(v)}:
            raise NetworkError(f"{v!r} has the states {p.states(v)} and {q.states(v)}: the networks cannot be compared")
    total = 0.0
    with p.compile("cpu") as tree:
        for v in p.variables:
            own, other = _cpt(p, p, v), _cpt(q, p, v)
            weights = np.asarray(tree.joint(own[0]).probabilities)
            of_own = float((weights * _finite_logs(own[1])).sum())
            if {*own[0]} == {*other[0]}:
                other_cpt = other[1].transpose([other[0].index(u) for u in own[0]])
                of_other = _expected(weights, other_cpt)
            else:
                of_other = _expected(np.asarray(tree.joint(other[0]).probabilities), other[1])
            total += of_own - of_other
    return max(total, 0.0)  # below 0 by rounding only


def _cpt(net: BayesianNetwork, like: BayesianNetwork, variable: str) -> tuple[list[str], Floats]:
    """The family of a variable, and its CPT with states in the order of another network."""
    family = [*net.parents(variable), variable]
    places = [[net.states(u).index(s) for s in like.states(u)] for u in family]
    return family, np.asarray(net.cpt(variable))[np.ix_(*places)]


def _expected(weights: Floats, cpt: Floats) -> float:
    """Expectation of the logarithm of a CPT's entries; -inf where an entry of 0 has a weight."""
    return -np.inf if (weights[cpt <= 0.0] > 0.0).any() else float((weights * _finite_logs(cpt)).sum())


def _finite_logs(cpt: Floats) -> Floats:
    return logs(np.where(cpt > 0.0, cpt, 1.0))
