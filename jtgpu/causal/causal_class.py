"""`CausalClass`: what all graphs of an equivalence class agree on. Perkovic et al., JMLR 18 (2018)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..model.directed import DirectedModel
from ..model.equivalence import cpdag_of
from ..util.arguments import described
from ..util.arrays import Bools
from .adjustment import AdjustableGraph, Names, NotIdentified, Reason
from .causal_graph import CausalGraph
from .identify import Estimand, adjusting

if TYPE_CHECKING:
    from typing import Self


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

    def _key(self) -> tuple[Iterable[Any], ...]:
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
