"""Cells of plain CSV rows, by compiled code: the distinct texts of each column, and which of them each cell is.

Rows of plain cells, quoted or not, are parsed several times as fast as by Arrow's reader and without the interpreter
lock. Anything else (an escaped quote, a line end within a cell, a row with another number of cells, text that is not
UTF-8, a column with very many distinct texts) is left to Arrow's reader, which also reports errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...inference.tables.arrow import arrow
from ...inference.tables.plain_cells import CategoricalColumn
from ...util.loops import loops
from .cell_data import (
    MAX_TEXTS,
    NEWLINE,
    PADDING,
    SLOTS,
    WORD,
    Block,
    Texts,
    Wanted,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


_loops = loops("jtgpu.cases.reading.loops.cells")


class RowFormat(Protocol):
    """How the rows of a file are written."""

    delimiter: str
    quote: bytes  # empty if quotes are ordinary text
    n_columns: int


def parse_plain_cells(
    text: bytes, max_rows: int, rows: RowFormat, evidence: Sequence[int], kept: Sequence[int]
) -> tuple[int, list[Any]] | None:
    """Parse whole rows if they are plain."""
    # text: bytes: UTF-8
    # max_rows: An upper bound of the number of rows
    # rows: Delimiter, quote and number of columns
    # evidence, kept: sequence of int: Columns of evidence, columns to copy
    # returns n: Number of rows
    # returns columns: A `CategoricalColumn` per column of evidence, then an Arrow array of text, with null for empty
    #     cells, per column to copy
    if len(text) >= 2**31 or len(set(evidence)) < len(evidence) or len(set(kept)) < len(kept):
        return None
    data = np.zeros(-(-(len(text) + PADDING) // 8) * 8, np.uint8)
    data[: len(text)] = np.frombuffer(text, np.uint8)
    data[len(text)] = NEWLINE
    delimiter, quote = ord(rows.delimiter), rows.quote[0] if rows.quote else -1
    special = _special_positions(data, len(text), delimiter, quote)
    block = Block(data, data.view(np.uint64), len(text), special, delimiter, quote, rows.n_columns)
    wanted = Wanted(
        _numbers_of(evidence, rows.n_columns), _numbers_of(kept, rows.n_columns),
        np.empty((len(evidence), max_rows), np.int32), np.empty((len(kept), max_rows, 2), np.int64),
    )  # fmt: skip
    texts = Texts(
        np.empty((len(evidence), MAX_TEXTS, 4), np.int64), np.zeros(len(evidence), np.int64),
        np.full((len(evidence), SLOTS), -1, np.int32),
    )  # fmt: skip
    n = int(_loops.parse_rows(block, wanted, texts))
    if n < 0:
        return None
    columns: list[Any] = []
    try:
        for e in range(len(evidence)):
            found = texts.entries[e, : texts.n_texts[e], :WORD].tolist()
            columns.append(CategoricalColumn(wanted.indices[e, :n], [text[i : i + k].decode() for i, k in found]))
        columns += [_text_column(data, wanted.spans[k, :n]) for k in range(len(kept))]
    except (UnicodeDecodeError, arrow().ArrowInvalid):
        return None
    return n, columns


def _numbers_of(wanted: Sequence[int], n_columns: int) -> NDArray[np.int64]:
    """Number of each column among the wanted ones, -1 for the others."""
    numbers = np.full(n_columns, -1, np.int64)
    numbers[list(wanted)] = np.arange(len(wanted))
    return numbers


def _special_positions(data: NDArray[np.uint8], end: int, delimiter: int, quote: int) -> NDArray[np.int32]:
    """Positions of the special bytes of a block, then its end."""
    marks = np.zeros(len(data), np.uint8)
    n = int(_loops.mark(data, np.uint8(delimiter), np.uint8(quote if quote >= 0 else delimiter), marks[:end]))
    positions = np.empty(n + 8, np.int32)
    _loops.list_marked(marks, marks.view(np.uint64), positions)
    positions[n] = end
    return positions


def _text_column(data: NDArray[np.uint8], spans: NDArray[np.int64]) -> Any:
    """Cells as an Arrow array of text."""
    pa = arrow()
    out, offsets = _loops.gather(data, spans)
    nonempty = spans[:, 1] > 0
    valid = None if nonempty.all() else pa.py_buffer(np.packbits(nonempty, bitorder="little"))
    array = pa.StringArray.from_buffers(len(spans), pa.py_buffer(offsets), pa.py_buffer(out), valid)
    if len(out) and out.max() >= 128:
        array.validate(full=True)
    return array
