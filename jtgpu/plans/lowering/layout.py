"""Where the tables of a program are stored, and the program as arrays of a plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..arrays import ragged
from .program import ContractionProgram

ALIGNMENT = 8  # cells: one cache line of float64


def lay_out(
    sizes: Sequence[int], n_factors: int, outs: Sequence[int], posterior: Sequence[int]
) -> tuple[list[int], int]:
    """Place the tables in one array, the arena: factors first, then all posteriors, then the other tables in the order
    in which they are written.
    """
    # returns offsets: list of int: First cell of each table
    # returns cells: Length of the arena
    offsets = [0] * len(sizes)
    at = 0
    last = set(posterior)
    for t in range(n_factors):
        offsets[t] = at
        at += -(-sizes[t] // ALIGNMENT) * ALIGNMENT
    for t in posterior:  # without gaps, so that all posteriors form one block
        offsets[t] = at
        at += sizes[t]
    at = -(-at // ALIGNMENT) * ALIGNMENT
    for t in outs:
        if t not in last:
            offsets[t] = at
            at += -(-sizes[t] // ALIGNMENT) * ALIGNMENT
    return offsets, at


def program_arrays(program: ContractionProgram, offsets: Sequence[int], cells: int) -> dict[str, NDArray[np.int64]]:
    """The fields of a plan that follow from its program and the placement by `lay_out`."""
    table_ptr, table_var = ragged(program.scopes)
    op_in_ptr, op_in = ragged(program.ins)
    numbers = {
        "table_off": offsets,
        "op_kind": program.kinds,
        "op_level": program.levels,
        "op_out": program.outs,
        "posterior_table": program.posterior_table,
        "root_table": program.root_table,
        "arena_cells": [cells],
    }
    made = {name: np.array(values, np.int64) for name, values in numbers.items()}
    return made | {"table_ptr": table_ptr, "table_var": table_var, "op_in_ptr": op_in_ptr, "op_in": op_in}
