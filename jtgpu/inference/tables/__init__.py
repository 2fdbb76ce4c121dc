"""Tables of cases in memory: one reader for data frames, mappings of columns, lists of mappings, and arrays.

`open_table` opens a table of any kind (`NativeFrame`, `PlainTable`), `columns` selects the columns that are variables,
`states` and `encoder` convert cells to state numbers. Files of cases use the same encoder; see `jtgpu.cases`.
"""

from __future__ import annotations

from .distinct import column_values, distinct_values
from .numbers import as_numbers, reject_infinite
from .open_table import Table, is_codes, is_frame, open_table
from .read_states import at_row, read_states
from .tensors import as_array, is_on_device, is_tensor

__all__ = [
    "Table", "as_array", "as_numbers", "at_row", "column_values", "distinct_values", "is_codes", "is_frame",
    "is_on_device", "is_tensor", "open_table", "read_states", "reject_infinite",
]  # fmt: skip
