"""Families of a structure: shapes, counts of complete rows, and CPTs from counts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...backends.base import Evidence
from ...backends.table import Table
from ...errors import NetworkError, TableTooLarge, closest, format_bytes
from ...inference.queries.counts import counting_backend
from ...interop import from_pgmpy, from_pyagrum
from ...model.directed import DirectedModel
from ...model.network import BayesianNetwork
from ...options.learning import MAX_ENTRIES
from ...util.arguments import several
from ...util.arrays import Bools, Floats, Ints
from ...util.calls import outside
from ...util.elementary import exp, logs
from ...util.system import free_memory, parse_bytes
from .coded_cases import CodedCases, RowBlock

COPIES = 7  # of all CPTs, while they are fitted: counts, prior, shares, network, posterior and what is between
SPARSE_ENTRIES, SPARSE = 100_000, 20  # entries, and configurations for each row of data, above which there is a warning
PART_CELLS = 1 << 21  # cells that are counted at a time: columns of them stay in the CPU's cache

LEAST_ROWS = 1e-9  # of all rows, in a configuration that the rows say something about
HELD = 1e-6  # expected count below which an entry counts as given
FLOOR = 0.01  # of an entry: the least that an extrapolation leaves of it

Tables = list[Floats]


class Sharing(NamedTuple):
    """Which CPTs are estimated, and which of them are one."""

    groups: list[tuple[int, ...]]  # list of tuples: Numbers of the variables that share each estimated CPT
    fixed: tuple[int, ...]  # tuple of int: Variables whose CPTs do not change


def family_scopes(model: DirectedModel) -> list[tuple[int, ...]]:
    """Numbers of the parents and of the variable, for each variable."""
    return [(*(model.index(p) for p in model.parents(v)), v) for v in range(len(model))]


def family_shapes(model: DirectedModel) -> list[tuple[int, ...]]:
    """Shapes of the CPTs."""
    return [tuple(int(model.cardinality[u]) for u in scope) for scope in family_scopes(model)]


def check_sizes(model: DirectedModel, max_table: int = MAX_ENTRIES, memory_limit: float | str | None = None) -> None:
    """Raise `TableTooLarge` for a CPT with too many entries, and for all of them if they need too much memory."""
    limit = int(0.8 * free_memory()) if memory_limit is None else parse_bytes(memory_limit)
    total = sum(map(math.prod, family_shapes(model)))
    for v, shape in zip(model, family_shapes(model), strict=True):
        size = math.prod(shape)
        if size > max_table:
            raise TableTooLarge(
                f"the CPT of {v!r} would have {size:,} entries, more than the limit of {max_table:,}; use fewer "
                "parents or states",
                size, 8 * size, -1,
            )  # fmt: skip
    if COPIES * 8 * total > limit:
        v, shape = max(zip(model, family_shapes(model), strict=True), key=lambda item: math.prod(item[1]))
        raise TableTooLarge(
            f"fitting CPTs of {total:,} entries needs about {format_bytes(COPIES * 8 * total)}, more than the limit of "
            f"{format_bytes(limit)}; the largest one, of {v!r}, has {math.prod(shape):,}: use fewer parents or states",
            total, COPIES * 8 * total, limit,
        )  # fmt: skip


def warn_of_sparse(model: DirectedModel, n_rows: int) -> None:
    """Warn of CPTs that are far larger than the data: nearly all of their rows are the prior."""
    for v, shape in zip(model, family_shapes(model), strict=True):
        n_configurations = math.prod(shape[:-1])
        if n_configurations * shape[-1] > SPARSE_ENTRIES and n_configurations > SPARSE * n_rows:
            warnings.warn(
                f"the CPT of {v!r} has {n_configurations:,} rows, one for each configuration of its parents, and the "
                f"data have {n_rows:,}: nearly all are the prior; use fewer parents, or intervals (bins=)",
                stacklevel=outside(),
            )


def available_counts(cases: CodedCases) -> Tables:
    """Counts of each family over the rows in which it has no missing cell, and its variable was not set."""
    scopes, shapes = family_scopes(cases.model), family_shapes(cases.model)
    counts = [np.zeros(math.prod(shape)) for shape in shapes]
    for block in cases.blocks:
        for part in block.parts(PART_CELLS):
            _add_complete(part, scopes, shapes, counts, cases.was_set)
    return [c.reshape(shape) for c, shape in zip(counts, shapes, strict=True)]


def _add_complete(
    block: RowBlock, scopes: Sequence[tuple[int, ...]], shapes: Sequence[tuple[int, ...]], counts: Tables,
    was_set: Bools | None,
) -> None:  # fmt: skip
    """Add the complete rows of a block to flat counts."""
    columns = np.ascontiguousarray(block.states.T)
    plain = bool((block.weights == 1.0).all())
    has_holes = [bool((column < 0).any()) for column in columns]
    for scope, shape, count in zip(scopes, shapes, counts, strict=True):
        at: NDArray[Any] = np.zeros(len(block.states), np.int64 if count.size >= 2**31 else np.int32)
        for v, card in zip(scope, shape, strict=True):
            if card > 1:
                at *= card
                at += columns[v]
        weights = block.weights
        holes = [v for v in scope if has_holes[v]]
        used = [columns[v] >= 0 for v in holes]
        if was_set is not None:
            used.append(~was_set[scope[-1], block.rows])
        if used:
            complete = np.logical_and.reduce(used)
            at, weights = at[complete], weights[complete]
        count += np.bincount(at, None if plain else weights, minlength=count.size)


class CptFamily(NamedTuple):
    """The CPT of one variable or of several tied ones, as EM estimates it; its sums are counts."""

    members: tuple[int, ...]
    prior: Floats  # what is added to the counts

    def maximise(self, sums: Tables, old: Floats) -> Floats:
        total = self.prior + sums[self.members[0]]
        for v in self.members[1:]:
            total = total + sums[v]
        rows = total.sum(axis=-1, keepdims=True)
        return np.where(rows > 0, total / np.where(rows > 0, rows, 1.0), old)

    def log_prior(self, theta: Floats) -> float:
        return log_score([self.prior], [theta], [0])

    def extrapolated(self, first: Floats, second: Floats, third: Floats, length: float) -> Floats:
        r = second - first
        table = np.maximum(first + 2 * length * r + length**2 * (third - second - r), FLOOR * third)
        return np.asarray(table / table.sum(axis=-1, keepdims=True))

    @property
    def cells(self) -> int:
        return int(self.prior.shape[-1])

    # Standard errors: `jtgpu.learn.parameters.information.Curved`. The parameters of a row of the CPT are the logits of
    # all entries but the last of those that are free.

    def parameters(self, data: Floats, total: Floats, theta: Floats) -> Iterator[tuple[int, int, Ints]]:
        n = theta.shape[-1]
        weight = data.reshape(-1, n).sum(axis=1)
        for k in np.flatnonzero(weight > LEAST_ROWS * max(float(data.sum()), 1e-300)).tolist():
            free = np.flatnonzero((theta.reshape(-1, n)[k] > 0) & (total.reshape(-1, n)[k] > HELD))
            yield k, max(len(free) - 1, 0), free

    def score(self, total: Floats, theta: Floats, k: int, unit: Ints) -> Floats:
        n, p = (x.reshape(-1, x.shape[-1])[k, unit] for x in (total, theta))
        return np.asarray((n - n.sum() * p / p.sum())[:-1])

    def curvature(self, total: Floats, theta: Floats, k: int, unit: Ints) -> Floats:
        n, p = (x.reshape(-1, x.shape[-1])[k, unit] for x in (total, theta))
        p = p / p.sum()
        return np.asarray((n.sum() * (np.diag(p) - np.outer(p, p)))[:-1, :-1])

    def covariance(self, *_: Any) -> None:
        return None

    def moved(self, theta: Floats, k: int, unit: Ints, i: int, step: float) -> Floats:
        table = np.array(theta)
        row = table.reshape(-1, table.shape[-1])[k]
        kept = row[unit].sum()
        row[unit[i]] *= exp(step)
        row[unit] *= kept / row[unit].sum()
        return table

    def unknown(self, theta: Floats) -> Floats:
        return np.where((theta > 0) & (theta < 1), np.inf, 0.0)

    def enter(self, errors: Floats, theta: Floats, k: int, unit: Ints, covariance: Floats, gone: Any) -> None:
        row, p = errors.reshape(-1, errors.shape[-1])[k], theta.reshape(-1, theta.shape[-1])[k, unit]
        row[:] = 0.0
        slope = (np.diag(p) - np.outer(p, p))[:, :-1]
        squares = np.einsum("ij,jk,ik->i", slope, covariance, slope)
        row[unit] = np.inf if gone.any() else np.sqrt(np.maximum(squares, 0.0))


def log_score(counts: Tables, tables: Tables, variables: Sequence[int]) -> float:
    """Sum of ``count * ln(entry)`` over the CPTs of some variables; -inf where a count has an entry of 0."""
    total = 0.0
    for v in variables:
        used = counts[v] > 0
        total += float((counts[v][used] * logs(tables[v][used])).sum())  # not @: its bits depend on threads
    return total


def network_of(
    model: DirectedModel, tables: Tables, like: BayesianNetwork | None = None,
    ends: Mapping[str, tuple[float, float]] | None = None,
) -> BayesianNetwork:  # fmt: skip
    """A network with these CPTs, the file attributes of `like`, and the ends of intervals of numbers."""
    cpts = dict(zip(model, tables, strict=True))
    if like is not None and all(like.states(v) == model.states(v) for v in model):
        return like.replace(cpt=cpts)
    return BayesianNetwork(
        {v: model.states(v) for v in model}, {v: model.parents(v) for v in model}, cpts, name=model.name,
        attributes={"node": {v: {"ends": pair} for v, pair in ends.items()}} if ends else None,
    )  # fmt: skip


def expected_prior_counts(network: BayesianNetwork, sample_size: float) -> Tables:
    """The joint distribution of each family without evidence, times a sample size."""
    tables = [f.table for f in network.factors]
    backend = counting_backend("cpu", network.plan().whole, tables, 1)
    try:
        nothing = Evidence.none(len(network)).state[None, :]
        return backend.run(Table.counts(nothing, np.array([sample_size]))).families
    finally:
        backend.close()


# The structure to fit: a network, a mapping, a graph, or an object of another library.


class GivenStructure(NamedTuple):
    """The parents of every variable, and the network if the structure has numbers."""

    parents: dict[str, tuple[str, ...]]
    network: BayesianNetwork | None


def read_structure(structure: object, *, may_be_empty: bool = False) -> GivenStructure:
    """Read a structure."""
    # structure: BayesianNetwork, mapping, networkx.DiGraph, or object of pgmpy or pyAgrum: A mapping gives the parents
    #     of each child; variables that are parents only need no entry. An object with a method ``to_networkx`` or
    #     ``graph`` is converted by it.
    # raises NetworkError: If it is nothing of that kind, or has no variable.
    given = _given(structure)
    if not given.parents and not may_be_empty:
        raise NetworkError("the structure names no variable; {'X': []} is that of one variable without parents")
    return given


def _given(structure: Any) -> GivenStructure:
    if isinstance(structure, BayesianNetwork):
        return GivenStructure({v: structure.parents(v) for v in structure}, structure)
    if isinstance(structure, Mapping):
        return GivenStructure(_of_mapping(structure), None)
    if callable(getattr(structure, "idFromName", None)):  # pyAgrum
        network = from_pyagrum(structure)
        return GivenStructure({v: network.parents(v) for v in network}, network)
    if hasattr(structure, "nodes") and callable(getattr(structure, "is_directed", None)):
        return _of_graph(structure)
    if callable(getattr(structure, "to_networkx", None)):
        return _of_graph(structure.to_networkx())
    raise NetworkError(
        "the structure must be a BayesianNetwork, a mapping from child to parents such as {'xray': ['lung']}, a "
        f"networkx.DiGraph, or a network of pgmpy or pyAgrum, not {type(structure).__name__}"
    )


def _of_mapping(given: Mapping[Any, object]) -> dict[str, tuple[str, ...]]:
    parents: dict[str, tuple[str, ...]] = {}
    for child, above in given.items():
        names = several(above)
        if names is None:
            raise NetworkError(f"variable {child!r}: its parents must be a list of names, not {above!r}")
        parents[str(child)] = tuple(map(str, names))
    for p in [p for above in parents.values() for p in above]:
        hint = closest(p, parents, 1) if p not in parents else ""
        if hint and p.casefold().strip() in (v.casefold().strip() for v in parents):
            raise NetworkError(f"the structure has the variables {p!r} and one of almost the same name{hint}")
        parents.setdefault(p, ())
    return parents


def _of_graph(graph: Any) -> GivenStructure:
    """Of a directed graph of networkx, or of pgmpy's, which derive from it."""
    if not graph.is_directed():
        raise NetworkError("the structure must be a directed graph; this one has no directions")
    nodes = list(graph.nodes)
    cpds = graph.get_cpds() if callable(getattr(graph, "get_cpds", None)) else []
    if nodes and cpds and len(cpds) == len(nodes):
        network = from_pgmpy(graph)
        if not isinstance(network, BayesianNetwork):
            raise NetworkError("the structure must be a Bayesian network, not a Markov network")
        return GivenStructure({v: network.parents(v) for v in network}, network)
    data = dict(graph.nodes(data=True))
    if nodes and all("states" in data[n] and "cpt" in data[n] for n in nodes):
        network = BayesianNetwork.from_networkx(graph)
        return GivenStructure({v: network.parents(v) for v in network}, network)
    return GivenStructure({str(n): tuple(map(str, graph.predecessors(n))) for n in nodes}, None)
