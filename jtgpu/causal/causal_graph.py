"""`CausalGraph`, and `graph`, which makes one of a text, a network or a graph of networkx."""

from __future__ import annotations

import re
from itertools import pairwise

from ..errors import ArgumentError
from ..model.directed import DirectedModel
from ..util.arguments import described
from .adjustment import AdjustableGraph, Names
from .identify import Estimand, identify

ATTRIBUTES = r'\[(?:"[^"]*"|[^\]"])*\]'  # dagitty: positions and roles
BARE = r'(?!-)(?:(?!--|->)[^\s;,"<>\[\]{}])+'
NAME = re.compile(rf'"[^"]+"|{BARE}')
TOKEN = re.compile(rf'"[^"]+"|{ATTRIBUTES}|<->|->|<-|{BARE}|\S')
STATEMENT = re.compile(rf'(?:"[^"]*"|{ATTRIBUTES}|[^;\n])+')
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

    def __str__(self) -> str:
        name = {v: v if re.fullmatch(BARE, v) else f'"{v}"' for v in self.variables}
        lone = set(self.variables) - {v for pair in (*self.arcs, *self.common_causes) for v in pair}
        parts = [f"{name[u]} -> {name[v]}" for u, v in self.arcs]
        parts += [f"{name[u]} <-> {name[v]}" for u, v in self.common_causes]
        return "; ".join(parts + [name[v] for v in self.variables if v in lone])

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
        A text such as ``"smoke -> {tar stress} -> cancer; smoke <-> cancer"``, where ``<->`` is a hidden common cause
        and braces contain several variables; the text of a DAG by dagitty; a network; or a directed graph of networkx.
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
        result = CausalGraph([str(v) for v in source], [(str(u), str(v)) for u, v in source.edges()])  # type: ignore
    else:
        raise ArgumentError(f"a causal graph is a text, a network or a networkx.DiGraph, not {described(source)}")
    if not result.variables:
        raise ArgumentError("a causal graph needs variables, as in 'a -> b'; this one has none")
    return result.project(hidden)


def _parsed(text: str) -> CausalGraph:
    """The graph of a text."""
    body = re.sub(r"^\s*dag\s*(?:\"[^\"]*\"|\w*)\s*\{(.*)\}\s*$", r"\1", text, flags=re.DOTALL)
    names: dict[str, None] = {}
    arcs: list[tuple[str, str]] = []
    common: list[tuple[str, str]] = []
    latent = []
    for part in STATEMENT.findall(body):
        tokens = TOKEN.findall(part)
        if not tokens or tokens[0] == "bb=":
            continue
        roles = [token for token in tokens if token[0] == "["]
        groups: list[list[str]] = [[]]
        marks = []
        for token in tokens[: len(tokens) - len(roles)]:
            if token in ("<->", "->", "<-"):
                marks.append(token)
                groups.append([])
            else:
                groups[-1].append(token)
        groups = [_variables(group) for group in groups]
        if not all(groups):
            raise ArgumentError(
                f"{part.strip()!r} is not a path such as 'a -> b <- c' or 'a <-> b'; write several variables "
                "in braces, 'a -> {b c}', a name with a space in quotes, and ';' between paths"
            )
        if not marks and any(map(LATENT.match, roles)):
            latent += groups[0]
        for group in groups:
            names.update(dict.fromkeys(group))
        for (left, right), mark in zip(pairwise(groups), marks, strict=True):
            pairs = [(u, v) for u in left for v in right]
            (common if mark == "<->" else arcs).extend([(v, u) for u, v in pairs] if mark == "<-" else pairs)
    return CausalGraph(names, arcs, common).project(latent)


def _variables(tokens: list[str]) -> list[str]:
    """The names of one variable, or of several in braces; an empty list for anything else."""
    if tokens[:1] == ["{"] and tokens[-1] == "}":
        tokens = [token for token in tokens[1:-1] if token != ","]
    elif len(tokens) != 1:
        return []
    return [token.strip('"') for token in tokens] if all(map(NAME.fullmatch, tokens)) else []
