"""`CausalGraph`, and `graph`, which makes one of a text, a network or a graph of networkx."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ArgumentError
from ..model.directed import DirectedModel
from ..model.equivalence import cpdag_of
from ..util.arguments import described
from ..util.arrays import Bools
from .adjustment import AdjustableGraph, Names, NotIdentified, Reason
from .identify import Estimand, adjusting, identify

if TYPE_CHECKING:
    from typing import Self

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


# `CausalClass`: what all graphs of an equivalence class agree on. Perkovic et al., JMLR 18 (2018).

class CausalClass(AdjustableGraph):
    """The graphs that data cannot tell apart: arcs, and links whose direction differs among them; made by `cpdag`.

    A set may be adjusted for if it may be in every graph of the class. There are no hidden common causes.

    Attributes
    ----------
    links : tuple of (str, str)
        Pairs of variables whose arc has no known direction. `arcs` are those of one graph of the class.
    """

    def __init__(
        self, variables: Iterable[str], arcs: Iterable[tuple[str, str]], links: Iterable[tuple[str, str]] = ()
    ):
        super().__init__(variables, arcs)
        self.links = tuple(links)
        self._next, self._before = [[*c] for c in self._children], [[*p] for p in self._parents]
        self._free: list[set[int]] = [set() for _ in self.variables]
        for u, v in (self._two(*pair, "-") for pair in self.links):
            for a, b in ((u, v), (v, u)):
                self._free[a].add(b)
                self._next[a] = [*dict.fromkeys([*self._next[a], b])]
                self._before[a] = [*dict.fromkeys([*self._before[a], b])]

    def __str__(self) -> str:
        free = {*self.links, *((v, u) for u, v in self.links)}
        return "; ".join(f"{u} {'-' if (u, v) in free else '->'} {v}" for u, v in self.arcs)

    def _key(self) -> tuple[Iterable[object], ...]:
        free = {frozenset(pair) for pair in self.links}
        return self.variables, [pair for pair in self.arcs if frozenset(pair) not in free], free

    def project(self, hidden: Names) -> Self:
        """The class itself; hidden variables are an error."""
        if self.numbers(hidden, "hidden"):
            raise ArgumentError("the variables of a CPDAG are measured: hidden common causes leave other links")
        return self

    def _open_start(self, cause: Names, outcome: Names) -> str:
        """Why no set may be adjusted for: a path that may be causal begins with a link."""
        x, y = self._pair(cause, outcome)
        causal = self.causal_vertices(x, y)
        pairs = ((u, v) for u in sorted(x) for v in sorted(self._free[u] & causal))
        u, v = next(pairs, (-1, -1))
        if u < 0:
            return ""
        return (
            f"{self.variables[u]} - {self.variables[v]} begins a path to the outcome, and has different directions in "
            "equivalent graphs"
        )

    def is_adjustment_set(self, adjusted: Names, cause: Names, outcome: Names) -> Reason:
        """Whether a set may be adjusted for in every graph of the class; see `CausalGraph.is_adjustment_set`."""
        reason = self._open_start(cause, outcome)
        return Reason(False, reason) if reason else super().is_adjustment_set(adjusted, cause, outcome)

    def adjustment_set(
        self, cause: Names, outcome: Names, *, required: Names = (), forbidden: Names = (),
        cost: Mapping[str, float] | None = None,
    ) -> set[str] | None:  # fmt: skip
        """One adjustment set: a minimal one, or that of least cost. None: there is none."""
        if self._open_start(cause, outcome):
            return None
        return super().adjustment_set(cause, outcome, required=required, forbidden=forbidden, cost=cost)

    def iterate_adjustment_sets(
        self, cause: Names, outcome: Names, required: Names = (), forbidden: Names = ()
    ) -> Iterator[set[str]]:
        """The sets of `adjustment_sets`, one after the other."""
        if not self._open_start(cause, outcome):
            yield from super().iterate_adjustment_sets(cause, outcome, required, forbidden)

    def identify(self, outcome: Names, *, do: Names) -> Estimand:
        """Find a formula of P(outcome | do(causes)) by adjustment, which holds in every graph of the class.

        Raises
        ------
        NotIdentified
            If no set may be adjusted for.
        """
        result = self.adjustment_set(do, outcome)
        if result is None:
            why = self._open_start(do, outcome) or "no set blocks all paths that are not causal"
            raise NotIdentified(f"there is no adjustment set for all equivalent graphs: {why}")
        first, second = ((names,) if isinstance(names, str) else tuple(dict.fromkeys(names)) for names in (outcome, do))
        return adjusting(CausalGraph(self.variables, self.arcs), (first, second, ()), result)


def cpdag(source: object) -> CausalClass:
    """Make the class of graphs that data cannot tell apart.

    Parameters
    ----------
    source : BayesianNetwork or networkx graph
        A network, which stands for its class; or a CPDAG as `BayesianNetwork.cpdag` returns it: a `networkx.DiGraph`
        in which a pair of arcs in both directions is a link without direction.

    Returns
    -------
    CausalClass

    Examples
    --------
    >>> import jtgpu.causal
    >>> c = jtgpu.causal.cpdag(jtgpu.network("a->b; b->c; d->c"))
    >>> c.adjustment_sets("b", "c"), c.adjustment_sets("a", "b")
    ([set()], [])
    """
    if isinstance(source, DirectedModel):
        source = source.cpdag()
    if not callable(getattr(source, "is_directed", None)) or not source.is_directed():  # type: ignore[attr-defined]
        raise ArgumentError(f"a CPDAG is a network or a networkx.DiGraph, not {described(source)}")
    names = [str(v) for v in source]  # type: ignore[attr-defined]
    at = {v: i for i, v in enumerate(names)}
    marks = np.zeros((len(names), len(names)), np.bool_)
    for u, v in source.edges():  # type: ignore[attr-defined]
        marks[at[str(u)], at[str(v)]] = True
    dag = _extension(marks)
    if dag is None or (cpdag_of(dag) != marks).any():
        raise ArgumentError("this is no CPDAG: no acyclic graph has exactly these arcs and links in its class")
    links = [(names[u], names[v]) for u, v in np.argwhere(np.triu(marks & marks.T))]
    return CausalClass(names, [(names[u], names[v]) for u, v in np.argwhere(dag)], links)


def _extension(marks: Bools) -> Bools | None:
    """An acyclic graph of a class, without new colliders (Dor and Tarsi, 1992); None: there is none."""
    left, result = marks.copy(), marks & ~marks.T
    remaining = set(range(len(marks)))
    while remaining:
        for v in sorted(remaining):
            linked = left[v] | left[:, v]
            if (left[v] & ~left[:, v]).any():
                continue
            around, free = np.flatnonzero(linked), np.flatnonzero(left[v] & left[:, v])
            both = left | left.T
            if all(both[u, [w for w in around if w != u]].all() for u in free):
                break
        else:
            return None
        result[free, v] = True
        left[v] = left[:, v] = False
        remaining.discard(v)
    return np.asarray(result)
