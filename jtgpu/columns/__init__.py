"""Tables of cases: one reader of data frames, mappings of columns, lists of mappings, arrays and files.

`open_table` opens a table in memory, `jtgpu.columns.files` a file. `Column` holds the distinct cells of a column,
`jtgpu.columns.coded.Encoder` looks them up as states of variables.
"""

from __future__ import annotations

from .arrow import as_array, is_on_device, is_tensor
from .column import Column, distinct, known_cells
from .memory import (
    Table,
    as_numbers,
    at_row,
    cells_of,
    is_codes,
    is_frame,
    open_data,
    open_table,
    read_column,
    read_states,
    reject_infinite,
)

__all__ = [
    "Column", "Table", "as_array", "as_numbers", "at_row", "cells_of", "distinct", "is_codes", "is_frame",
    "is_on_device", "is_tensor", "known_cells", "open_data", "open_table", "read_column", "read_states",
    "reject_infinite",
]  # fmt: skip
