"""The arrays of a search over states, which `jtgpu.plans.search` makes and `jtgpu.plans.loops.search` fills."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..util.array_types import Matrix

DONE, MORE, FULL = range(3)  # outcomes: of the search; another call continues it; longer arrays are needed first

# places of `Position.counters`
(TRAIL, OFF, FROM, TO, MEMBERS, PARTS, DEPTH, STAMP, WORK, NODES, EDGES, FIXED, CHILDREN, WIDEST) = range(14)
N_COUNTERS = 14

# columns of `Position.levels`: members of the part, what is chosen, and lengths of stacks before each choice
(BEGIN, END, CHOSEN, NEXT, EDGE, EXPONENT, BRANCH_EXPONENT, OWN_EXPONENT, PART, TRAIL_BEFORE, OFF_BEFORE,
 MEMBERS_BEFORE, PARTS_BEFORE) = range(13)  # fmt: skip
N_COLUMNS = 13


class Factors(NamedTuple):
    """V variables with S states in all, and F tables; the A axes of the tables have R states in all."""

    cells: NDArray[np.float64]  # entries, table after table
    cell_ptr: NDArray[np.int64]  # (F+1,)
    cards: NDArray[np.int64]  # (V,)
    first: NDArray[np.int64]  # (V+1,) first state of each variable
    var_of: NDArray[np.int64]  # (S,) variable of each state
    scope: NDArray[np.int64]  # (A,)
    scope_ptr: NDArray[np.int64]  # (F+1,)
    strides: NDArray[np.int64]  # (A,) in entries
    row_ptr: NDArray[np.int64]  # (A+1,) first of the R states of each axis
    mask_ptr: NDArray[np.int64]  # (A+1,) first word of the masks of each axis
    words: NDArray[np.int64]  # (F,) words of a mask
    masks: NDArray[np.uint64]  # a bit for each entry above zero, of every state of every axis
    keys: Matrix[np.uint64]  # (S+R, 2) random numbers; those of equal slices of a table are equal
    reader_ptr: NDArray[np.int64]  # (V+1,)
    readers: NDArray[np.int64]  # (A,) tables of each variable
    rank: NDArray[np.int64]  # (V,) place in an elimination order


class Position(NamedTuple):
    """Where the search is."""

    counters: NDArray[np.int64]
    possible: NDArray[np.uint8]  # (S,) 1 for states that are left
    n_possible: NDArray[np.int64]  # (V,)
    trail: NDArray[np.int64]  # states in the order of their removal
    off: NDArray[np.int64]  # tables in the order in which they became constant
    active: NDArray[np.uint8]  # (F,) 0 for these
    queue: NDArray[np.int64]  # tables whose variables have lost states
    waits: NDArray[np.uint8]  # (F,) 1 for these
    supported: NDArray[np.uint8]  # (S,) scratch memory
    digits: NDArray[np.int64]  # scratch memory: a configuration of a table
    mark: NDArray[np.int64]  # (V,) stamp of the last visit
    table_mark: NDArray[np.int64]  # (F,)
    members: NDArray[np.int64]  # variables of parts
    levels: Matrix[np.int64]  # one row for each choice that is open
    values: Matrix[np.float64]  # sum of the branches before, the present one, and this without its parts
    parts: Matrix[np.int64]  # first and last member, the variable to choose next, node
    part_keys: Matrix[np.uint64]


class SearchTrace(NamedTuple):
    """Nodes are sums over edges, edges products over children; children have lower numbers."""

    node_value: NDArray[np.float64]  # mantissas
    node_exponent: NDArray[np.int64]
    node_edge: NDArray[np.int64]  # last edge; -1: the value is zero
    edge_value: NDArray[np.float64]
    edge_exponent: NDArray[np.int64]
    edge_before: NDArray[np.int64]  # another edge of the node; -1: none
    fixed_ptr: NDArray[np.int64]  # (edges+1,)
    child_ptr: NDArray[np.int64]  # (edges+1,)
    fixed: NDArray[np.int64]  # states that hold along an edge, the chosen one first
    children: NDArray[np.int64]
    known: NDArray[np.int64]  # hash table: node of each part that was searched, -1: free
    known_keys: Matrix[np.uint64]
