"""Cells that a spreadsheet would run as a formula, and how they are escaped in text files.

OWASP, CSV Injection: a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line end, or with the full-width
forms of the signs, gets an apostrophe in front. Plain numbers such as ``-5`` are no formulas and stay as they are.
"""

from __future__ import annotations

import re
from typing import Any

from ..inference.tables.arrow import arrow, compute

_FORMULA = "^[=+\\-@\\t\\r\\n\uff1d\uff0b\uff0d\uff20]"
_NUMBER = "^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"


def escape_formula(cell: str) -> str:
    """A cell with an apostrophe in front if a spreadsheet would run it."""
    return f"'{cell}" if re.match(_FORMULA, cell) and not re.fullmatch(_NUMBER, cell) else cell


def escape_formulas(table: Any) -> Any:
    """An Arrow table whose names and texts are escaped; numbers are untouched."""
    pa, pc = arrow(), compute()
    columns = []
    for column in table.columns:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            text = column.cast(kind)
            risky = pc.and_not(
                pc.match_substring_regex(text, _FORMULA), pc.match_substring_regex(text, _NUMBER)
            )
            escaped = pc.binary_join_element_wise(pa.scalar("'", kind), text, pa.scalar("", kind))
            column = pc.if_else(risky, escaped, text)
        columns.append(column)
    return pa.table(columns, names=[escape_formula(name) for name in table.column_names])
