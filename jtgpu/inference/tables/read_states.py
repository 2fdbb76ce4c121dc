"""State numbers of a table of cases of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UnknownState
from ...model.discrete import DiscreteModel
from ...util.rows import extremes
from .columns import evidence_columns
from .encoder import Encoder
from .open_table import Table, is_codes, open_table
from .tensors import as_array, is_tensor, log_copy

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read_states(model: DiscreteModel, cases: Any) -> tuple[NDArray[np.int32], Table | None]:
    """State numbers of B cases, and the table that they were read from."""
    # cases: data frame, mapping, list of mappings, array, or tensor: See `jtgpu.JunctionTree.posteriors_batch`
    # returns states: (B, V) ndarray of int32: -1: not observed. May be `cases` itself, or share the memory of a tensor.
    # returns table: None for an array of integers
    # raises UnknownVariable: If no column is a variable, or the name of a column is almost that of a variable.
    # raises UnknownState: If a cell is not a state; the message names row and column and suggests the closest state.
    # raises EvidenceError: If `cases` is not a table, a shape or dtype is wrong, or a column occurs twice.
    if is_tensor(cases):
        cases = as_array(cases, "cases")
        log_copy(cases, np.int32, "cases")
    if is_codes(cases) and cases.shape[1] == len(model):
        low, high = extremes(cases)
        if (low >= -1).all() and (high < model.cardinality).all():
            return np.ascontiguousarray(cases, np.int32), None
    table = open_table(model, cases)
    names = evidence_columns(model, table.names)
    variables = [model.index(name) for name in names]
    encoder = Encoder(model, variables, by_index=table.by_index)
    encoded = encoder.encode([table.column(name) for name in names], table.n, first_only=True)
    for row, reason in encoded.rejected.items():
        raise UnknownState(at_row(table, row, reason))
    states = np.full((table.n, len(model)), -1, np.int32)
    states[:, variables] = encoded.codes.T
    return states, table


def at_row(table: Table | None, row: int, reason: str) -> str:
    """A message about a row: ``"row 17 (index 'p2'), column 'lung': ..."``."""
    name = f"row {row}" if table is None else table.row_name(row)
    return f"{name}{', ' if reason.startswith('column ') else ': '}{reason}"
