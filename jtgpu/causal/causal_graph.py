"""`CausalGraph`, and `graph`, which makes one of a text, a network or a graph of networkx."""

from __future__ import annotations

import re
from itertools import pairwise

from ..errors import ArgumentError
from ..model.directed import DirectedModel
from ..util.arguments import described
from .adjustment import AdjustableGraph, Names
from .identify import Estimand, identify

EDGE = re.compile(r"\s*(<->|->|<-)\s*")
NAME = re.compile(r'"[^"]*"|(?!-)(?:(?!--)[^\s;,"<>\[\]{}])+')
LATENT = re.compile(r"""\[(?:"[^"]*"|[^\]"])*?\b(?:latent|unobserved)\s*[,\]]""")  # dagitty: a role, no text of a label


class CausalGraph(AdjustableGraph):
    """A directed acyclic graph over measured variables, and pairs of them with a hidden common cause.

    Parameters
    ----------
    variables : iterable of str
    arcs : iterable of (str, str)
        Pairs (cause, effect).
    common_causes : iterable of (str, str)
        Pairs of variables that share a hidden cause.

    Raises
    ------
    NetworkError
        If the arcs form a cycle, or a pair is a variable and itself.
    UnknownVariable
        If an end of an arc is not among the variables.
    """

    def identify(self, outcome: Names, *, do: Names, given: Names = ()) -> Estimand:
        """Find a formula of P(outcome | do(causes), given) in terms of the distribution of the measured variables.

        Parameters
        ----------
        outcome, do : str or iterable of str
        given : str or iterable of str
            Variables that are conditioned on after the intervention.

        Returns
        -------
        Estimand

        Raises
        ------
        NotIdentified
            If there is none: two models agree about all that is measured, and differ in the effect.
        """
        return identify(self, outcome, do, given)


def graph(source: object, *, hidden: Names = ()) -> CausalGraph:
    """Make a causal graph.

    Parameters
    ----------
    source : str, BayesianNetwork, networkx graph, or CausalGraph
        A text such as ``"smoke -> tar -> cancer; smoke <-> cancer"``, where ``<->`` is a hidden common cause; the text
        of a DAG by dagitty; a network; or a directed graph of networkx.
    hidden : str or iterable of str
        Variables that are not measured. The graph is that of the others: a path through hidden variables becomes an arc
        or a hidden common cause (latent projection; Verma and Pearl, 1990).

    Returns
    -------
    CausalGraph

    Examples
    --------
    >>> import jtgpu.causal
    >>> g = jtgpu.causal.graph("smoke -> tar -> cancer; smoke <-> cancer")
    >>> g.identify("cancer", do="smoke").method
    'front-door'
    """
    if isinstance(source, str):
        result = _parsed(source)
    elif isinstance(source, CausalGraph):
        result = source
    elif isinstance(source, DirectedModel):
        result = CausalGraph(source.variables, source.arcs)
    elif callable(getattr(source, "is_directed", None)) and hasattr(source, "edges"):
        if not source.is_directed():  # type: ignore[attr-defined]
            raise ArgumentError("a causal graph is directed; use a networkx.DiGraph")
        both = next(((u, v) for u, v in source.edges() if source.has_edge(v, u)), None)  # type: ignore[attr-defined]
        if both is not None:
            raise ArgumentError(
                f"{both[0]} and {both[1]} have arcs in both directions, as in an equivalence class (CPDAG): a causal "
                "graph needs one direction of each arc, and '<->' for a hidden common cause"
            )
        result = CausalGraph([str(v) for v in source], [(str(u), str(v)) for u, v in source.edges()])  # type: ignore
    else:
        raise ArgumentError(f"a causal graph is a text, a network or a networkx.DiGraph, not {described(source)}")
    return result.project(hidden)


def _parsed(text: str) -> CausalGraph:
    """The graph of a text."""
    body = re.sub(r"^\s*dag\s*(?:\"[^\"]*\"|\w*)\s*\{(.*)\}\s*$", r"\1", text, flags=re.DOTALL)
    names: dict[str, None] = {}
    arcs: list[tuple[str, str]] = []
    common: list[tuple[str, str]] = []
    latent = []
    for part in re.split(r"[;\n]", body):
        bare = re.sub(r"\[[^\]]*\]", "", part).strip()  # dagitty: positions and roles
        if not bare or bare.startswith("bb="):
            continue
        pieces = EDGE.split(bare)
        groups = [[word.strip('"') for word in NAME.findall(group)] for group in pieces[::2]]
        if not all(groups) or any(NAME.sub("", group).strip(" ,{}\t") for group in pieces[::2]):
            raise ArgumentError(f"{part.strip()!r} is not a path such as 'a -> b <- c' or 'a <-> b'")
        for names_of_one, group in zip(groups, pieces[::2], strict=True):
            if len(groups) > 1 and len(names_of_one) > 1 and not group.strip().startswith("{"):
                raise ArgumentError(
                    f"{part.strip()!r}: write ; between paths, {{{' '.join(names_of_one)}}} for each of several"
                )
        if LATENT.search(part) and len(groups) == 1:
            latent += groups[0]
        for group in groups:
            names.update(dict.fromkeys(group))
        for (left, right), mark in zip(pairwise(groups), pieces[1::2], strict=True):
            pairs = [(u, v) for u in left for v in right]
            (common if mark == "<->" else arcs).extend([(v, u) for u, v in pairs] if mark == "<-" else pairs)
    if not names:
        raise ArgumentError("the text of a causal graph is empty; expected paths such as 'a -> b <- c; a <-> c'")
    return CausalGraph(names, arcs, common).project(latent)
