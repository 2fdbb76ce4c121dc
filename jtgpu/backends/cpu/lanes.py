"""A program run for many cases at once: every table that depends on the evidence has the cases as its fastest axis.

A *lane* is one case. Every lane is scaled by its own powers of two, so a rare case next to a common one loses no digit,
and a lane whose evidence has probability zero is marked and does not affect the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...util.array_types import Matrix


class Memory(NamedTuple):
    """What one thread writes while it runs lanes. L lanes, E exponents."""

    arena: NDArray[np.float64]
    exponent: Matrix[np.int64]  # (E, L) of the factors, and scratch memory for those of the tables
    scaled: NDArray[np.bool_]  # (E,) whether a row of `exponent` is set; a row that is not counts as zeros
    scratch: NDArray[np.int64]  # `workspace.Scratch.block`
    chunk: Matrix[np.int32]  # (L, V) observed states of the present cases, by rank
    dead: NDArray[np.bool_]  # (L,) lanes whose evidence has probability zero
    weights: NDArray[np.float64]  # likelihoods of the present cases, (states, L) a variable
    weight_ptr: NDArray[np.int64]  # (V,) first number of each variable in `weights`, by rank; -1: has none
    source: NDArray[np.int64]  # (L,) scratch memory
    top: NDArray[np.float64]  # (L,) scratch memory
    factor: NDArray[np.float64]  # (largest cardinality * L,) scratch memory


class Cases(NamedTuple):
    """The rows of a table that run in one call. B rows in all."""

    rows: NDArray[np.int64]  # rows that this program answers
    states: Matrix[np.int32]  # (B, V) observed states, -1 = not observed
    by_rank: NDArray[np.int64]  # (V,) column of `states` of each rank
    weights: Matrix[np.float64]  # (B, W) likelihoods, variable after variable
    log_evidence: NDArray[np.float64]  # (B,) gets ln P(e)
    impossible: NDArray[np.bool_]  # (B,) gets whether P(e) = 0


class Posteriors(NamedTuple):
    """Where posteriors are written to."""

    cells: Matrix[np.float64]  # (B, columns)
    place: NDArray[np.int64]  # (V,) first column of each variable by rank; -1: not wanted
    cards: NDArray[np.int64]  # (V,) cardinalities by rank
    hard: NDArray[np.int64]  # observed variables, by rank


class Counting(NamedTuple):
    """Where expected counts are added to."""

    cells: NDArray[np.float64]  # every factor's cells, as in an arena
    weights: NDArray[np.float64]  # (B,) weights of the rows
