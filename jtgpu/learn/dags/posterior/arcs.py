"""Probabilities of arcs, paths and parent sets: tables, records and the base class of `StructurePosterior`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import ArgumentError
from ....inference.results.frames import unused_name
from ....inference.results.rankings import Ranking
from ....inference.results.result import Columns, Result
from ....util.arguments import check_keywords, number, whole_number
from ....util.arrays import Floats
from ....util.text_table import counted, record_repr
from ..chains.diagnostics import standard_errors
from ..constraints import variable_number
from .averaging import PROPERTIES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .records import GraphSource, PosteriorRecord

MAX_PRINTED = 20  # arcs of the printed table
MOST_PROBABLE = 5  # of them, if there are more, are those
CERTAIN = 0.99  # probability of an arc that need not be listed


@check_keywords()
class ArcTable(Result):
    """A number for each ordered pair of variables: ``table["rain", "wet"]`` is that of the arc from rain to wet.

    ``numpy.asarray(table)`` is an array [parent, child]. The data frame has a row for each parent, with its name in the
    column ``parent``, and a column for each child.

    Attributes
    ----------
    names : tuple of str
    values : (n, n) ndarray of float64
        Read-only.
    title : str

    Examples
    --------
    >>> import jtgpu
    >>> data = jtgpu.load("asia").compile("cpu").sample(500, seed=1)
    >>> post = jtgpu.learn.posterior({v: data[v] for v in ("smoke", "bronc", "lung", "dysp")})
    >>> print(post.edges(0.5))
    4 arcs with a probability of at least 0.5
    parent  child  probability      mcse
    bronc   dysp      0.810969  0.000000
    lung    dysp      0.764370  0.000000
    bronc   smoke     0.522389  0.000000
    smoke   lung      0.514871  0.000000
    """

    def __init__(self, names: Sequence[str], values: Floats, title: str):
        values.flags.writeable = False
        self.names, self.values, self.title = tuple(names), values, title

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype) if copy or dtype is not None else self.values

    def __getitem__(self, arc: tuple[str | int, str | int]) -> float:
        if len(arc) != 2:
            raise ArgumentError(f"expected [parent, child], got {arc!r}")
        u, v = (variable_number(self.names, x) for x in arc)
        return float(self.values[u, v])

    def _columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = {unused_name("parent", self.names): np.array(self.names, object)}
        return columns | {v: self.values[:, i].copy() for i, v in enumerate(self.names)}

    def _title(self) -> str:
        return self.title

    def _table(self) -> Columns:
        texts = [[f"{round(x, 3):.3f}" for x in column] for column in self.values.T.tolist()]
        return Columns(["", *self.names], [[*self.names], *texts])


@dataclass(frozen=True)
class Arc:
    """An arc with its probability; unpacks as (parent, child, probability, mcse).

    Attributes
    ----------
    parent, child : str
    probability : float
    mcse : float
        Monte Carlo standard error of the probability; 0 if it is exact.
    """

    parent: str
    child: str
    probability: float
    mcse: float

    __repr__ = record_repr

    def __iter__(self) -> Iterator[Any]:
        return iter(astuple(self))


@dataclass(frozen=True)
class ParentSet:
    """A set of parents with its probability; unpacks as (parents, probability, mcse)."""

    parents: tuple[str, ...]
    probability: float
    mcse: float

    __repr__ = record_repr

    def __iter__(self) -> Iterator[Any]:
        return iter((self.parents, self.probability, self.mcse))


class ParentSets(Ranking[ParentSet]):
    """Parent sets of a variable, the most probable first.

    Examples
    --------
    >>> import jtgpu
    >>> data = jtgpu.load("asia").compile("cpu").sample(500, seed=1)
    >>> post = jtgpu.learn.posterior({v: data[v] for v in ("smoke", "bronc", "lung", "dysp")})
    >>> print(post.parent_sets("dysp", 2))
    Parents of dysp
    parents      probability      mcse
    bronc, lung     0.680765  0.000000
    bronc           0.130068  0.000000
    """

    def _columns(self) -> dict[str, list[Any]]:
        return {
            "parents": [", ".join(s.parents) or "(none)" for s in self],
            "probability": [s.probability for s in self],
            "mcse": [s.mcse for s in self],
        }


@check_keywords()
class ArcProbabilities(Result):
    """Probabilities of arcs, paths and parent sets, as results print them and convert them to frames."""

    _picture = "arcs"
    names: tuple[str, ...]
    edge_probabilities: ArcTable
    mcse: ArcTable
    _source: GraphSource
    _record: PosteriorRecord

    def edges(self, threshold: float = 0.5) -> Ranking[Arc]:
        """The arcs with at least this probability, the most probable first.

        Returns
        -------
        Ranking of Arc
            A list; each record unpacks as (parent, child, probability, mcse). ``to_frame()`` makes a data frame.
        """
        threshold = number("threshold", threshold)
        p, e = self.edge_probabilities.values, self.mcse.values
        arcs = [(u, v) for u, v in np.argwhere(p >= threshold).tolist() if u != v]
        arcs.sort(key=lambda arc: (-round(float(p[arc]), 12), arc))
        records = [Arc(self.names[u], self.names[v], float(p[u, v]), float(e[u, v])) for u, v in arcs]
        return Ranking(records, Arc, f"{counted(len(records), 'arc')} with a probability of at least {threshold:g}")

    def edge(self, parent: str, child: str) -> float:
        """Probability of an arc."""
        return self.edge_probabilities[parent, child]

    @cached_property
    def skeleton(self) -> ArcTable:
        """Probability that two variables are linked, in either direction."""
        p = self.edge_probabilities.values
        return ArcTable(self.names, np.minimum(p + p.T, 1.0), "Probability of a link in either direction")

    @cached_property
    def paths(self) -> ArcTable:
        """Probability that a directed path leads from one variable to another: at least that of the arc."""
        paths = np.maximum(self._of_graphs["path"][0], self.edge_probabilities.values)
        return ArcTable(self.names, paths, "Probability of a path")

    @cached_property
    def path_mcse(self) -> ArcTable:
        """Standard errors of `paths`: 0 where these are exact, as for up to five variables if the posterior is."""
        return ArcTable(self.names, self._of_graphs["path"][1], "Probability of a path: standard error")

    @cached_property
    def compelled(self) -> ArcTable:
        """Probability that an arc is present and has the same direction in all equivalent graphs."""
        return ArcTable(self.names, self._of_graphs["compelled"][0], "Probability of a compelled arc")

    @cached_property
    def compelled_mcse(self) -> ArcTable:
        """Standard errors of `compelled`."""
        return ArcTable(self.names, self._of_graphs["compelled"][1], "Probability of a compelled arc: standard error")

    @cached_property
    def _of_graphs(self) -> dict[str, tuple[Floats, Floats]]:
        return {name: self._source.property_of_graphs(name) for name in PROPERTIES}

    def parent_sets(self, variable: str | int, k: int = 10) -> ParentSets:
        """The k most probable sets of parents of a variable.

        Returns
        -------
        ParentSets
            A list; each record unpacks as (parents, probability, mcse).
        """
        v, k = variable_number(self.names, variable), whole_number("k", k, 1)
        sets = self._source.parent_sets(v)
        if sets is None:
            graphs = self._source.graphs()[..., v]
            own = self._record.parents[v]
            sets = []
            for mask in np.unique(graphs).tolist():
                means = (graphs == mask).mean(axis=0)
                parents = tuple(int(u) for j, u in enumerate(own) if mask >> j & 1)
                sets.append((parents, float(means.mean()), float(standard_errors(means))))
            sets.sort(key=lambda item: (-round(item[1], 12), len(item[0]), item[0]))
        records = [ParentSet(tuple(self.names[u] for u in s), p, e) for s, p, e in sets[:k]]
        return ParentSets(records, ParentSet, f"Parents of {self.names[v]}")

    def printed_arcs(self) -> tuple[str, list[Arc]]:
        """The arcs that a printed table has, and how they were chosen; of many, some of each end."""
        arcs = [*self.edges(0.0)]
        if len(arcs) <= MAX_PRINTED:
            return "", arcs
        certain = [a for a in arcs if a.probability >= CERTAIN]
        unsure = [a for a in arcs if 1.0 - CERTAIN < a.probability < CERTAIN]
        text = f"{counted(len(certain), 'arc')} with a probability of at least {CERTAIN:g}"
        if not unsure:
            return f"{text}, of which {MAX_PRINTED} are listed", arcs[:MAX_PRINTED]
        if len(certain) > MOST_PROBABLE:
            text += f", the {MOST_PROBABLE} most probable first"
        top, rest = certain[:MOST_PROBABLE] + unsure[:MOST_PROBABLE], unsure[MOST_PROBABLE:]
        rest = sorted(rest, key=lambda a: round(abs(a.probability - 0.5), 12))[: MAX_PRINTED - len(top)]
        chosen = f"the {len(unsure[:MOST_PROBABLE])} most probable, then {len(rest)} nearest to 0.5"
        return f"{text}; of the other {counted(len(unsure), 'arc')} {chosen}", top + rest

    def _table(self) -> Columns:
        arcs = self.printed_arcs()[1]
        is_exact = not any(a.mcse for a in arcs)
        names = ["parent", "child", "probability", "mcse"][: 4 - is_exact]
        return Columns(names, [[getattr(a, name) for a in arcs] for name in names], 2)

    def _columns(self) -> dict[str, Any]:
        return self.columns()

    def columns(self) -> dict[str, list[Any]]:
        """The columns of `to_frame`, as lists."""
        pairs = [(self.names.index(a.parent), self.names.index(a.child)) for a in self.edges(0.0)]
        tables = {
            "probability": self.edge_probabilities, "mcse": self.mcse, "skeleton": self.skeleton, "path": self.paths,
            "path_mcse": self.path_mcse, "compelled": self.compelled, "compelled_mcse": self.compelled_mcse,
        }  # fmt: skip
        names = {"parent": [self.names[u] for u, _ in pairs], "child": [self.names[v] for _, v in pairs]}
        return names | {name: [float(t.values[arc]) for arc in pairs] for name, t in tables.items()}
