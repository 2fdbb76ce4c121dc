"""Tables of cases in memory: one reader for data frames, mappings of columns, lists of mappings, and arrays.

`open_table` opens a table of any kind (`NativeFrame`, `PlainTable`), `columns` selects the columns that are variables,
`states` and `encoder` convert cells to state numbers. Files of cases use the same encoder; see `jtgpu.cases`.
"""

from __future__ import annotations

from .arrow import as_array, is_on_device, is_tensor
from .open_table import (
    Table,
    as_numbers,
    at_row,
    cells_of,
    is_codes,
    is_frame,
    open_data,
    open_table,
    read_states,
    reject_infinite,
)  # fmt: skip
from .plain_cells import column_values, distinct_values

__all__ = [
    "Table", "as_array", "as_numbers", "at_row", "cells_of", "column_values", "distinct_values", "is_codes", "is_frame",
    "is_on_device", "is_tensor", "open_data", "open_table", "read_states", "reject_infinite",
]  # fmt: skip
