"""Families of a structure: shapes, counts of complete rows, and CPTs from counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...backends.base import Evidence
from ...errors import TableTooLarge
from ...inference.queries.counts import counting_backend
from ...model.directed import DirectedModel
from ...model.network import BayesianNetwork
from ...util.elementary import logs
from .coded_cases import Block, CodedCases

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_ENTRIES = 100_000_000  # of a CPT
PART_CELLS = 1 << 21  # cells that are counted at a time: columns of them stay in the CPU's cache

Tables = list["NDArray[np.float64]"]


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


def check_sizes(model: DirectedModel, max_table: int = MAX_ENTRIES) -> None:
    """Raise `TableTooLarge` for a CPT with too many entries."""
    for v, shape in zip(model, family_shapes(model), strict=True):
        size = math.prod(shape)
        if size > max_table:
            raise TableTooLarge(
                f"the CPT of {v!r} would have {size:,} entries, more than the limit of {max_table:,}; use fewer "
                "parents or states",
                size, 8 * size, -1,
            )  # fmt: skip


def available_counts(cases: CodedCases) -> Tables:
    """Counts of each family over the rows in which it has no missing cell."""
    scopes, shapes = family_scopes(cases.model), family_shapes(cases.model)
    counts = [np.zeros(math.prod(shape)) for shape in shapes]
    for block in cases.blocks:
        for part in block.parts(PART_CELLS):
            _add_complete(part, scopes, shapes, counts)
    return [c.reshape(shape) for c, shape in zip(counts, shapes, strict=True)]


def _add_complete(
    block: Block, scopes: Sequence[tuple[int, ...]], shapes: Sequence[tuple[int, ...]], counts: Tables
) -> None:
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
        if holes:
            complete = np.logical_and.reduce([columns[v] >= 0 for v in holes])
            at, weights = at[complete], weights[complete]
        count += np.bincount(at, None if plain else weights, minlength=count.size)


def maximise(counts: Tables, prior: Tables, sharing: Sharing, current: Tables) -> Tables:
    """CPTs of the highest posterior given counts: the M-step.

    A row without counts and prior stays as it is in `current`.
    """
    found = list(current)
    for group in sharing.groups:
        total = prior[group[0]] + counts[group[0]]
        for v in group[1:]:
            total = total + counts[v]
        sums = total.sum(axis=-1, keepdims=True)
        table = np.where(sums > 0, total / np.where(sums > 0, sums, 1.0), current[group[0]])
        for v in group:
            found[v] = table
    return found


def log_score(counts: Tables, tables: Tables, variables: Sequence[int]) -> float:
    """Sum of ``count * ln(entry)`` over the CPTs of some variables; -inf where a count has an entry of 0."""
    total = 0.0
    for v in variables:
        used = counts[v] > 0
        total += float((counts[v][used] * logs(tables[v][used])).sum())  # not @: its bits depend on threads
    return total


def network_of(
    model: DirectedModel, tables: Tables, like: BayesianNetwork | None = None, name: str = ""
) -> BayesianNetwork:
    """A network with these CPTs, and the file attributes of `like`."""
    cpts = dict(zip(model, tables, strict=True))
    if like is not None and all(like.states(v) == model.states(v) for v in model):
        return like.replace(cpt=cpts)
    return BayesianNetwork(
        {v: model.states(v) for v in model}, {v: model.parents(v) for v in model}, cpts, name=name or model.name
    )


def expected_prior_counts(network: BayesianNetwork, sample_size: float) -> Tables:
    """The joint distribution of each family without evidence, times a sample size."""
    tables = [f.table for f in network.factors]
    backend = counting_backend("cpu", network.plan().whole, tables, 1)
    try:
        nothing = Evidence.none(len(network)).state[None, :]
        return backend.run_counts(nothing, np.array([sample_size])).families
    finally:
        backend.close()
