"""Input and output of the compiled loops that parse CSV rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..util.array_types import Cube, Matrix

MAX_TEXTS = 2048  # distinct texts of a column in one block
SLOTS = 4 * MAX_TEXTS  # of the hash table of a column; a power of two
PADDING = 16  # readable bytes after a block
NEWLINE, RETURN = 10, 13
START, LENGTH, WORD, TAIL = range(4)  # of a text: its position, its length, its first and its last eight bytes


class Block(NamedTuple):
    """A block of rows."""

    data: NDArray[np.uint8]  # (m,) uint8: The text, then a line end, then zeros
    words: NDArray[np.uint64]  # (m / 8,) uint64: The same memory
    end: int  # length of the text
    special: NDArray[np.int32]  # (k,) int32: Positions of delimiters, quotes and line ends, then `end`
    # delimiter, quote: Bytes; quote is -1 if there is none
    delimiter: int
    quote: int
    n_columns: int


class Wanted(NamedTuple):
    """Which columns are wanted, and where their cells go."""

    # evidence_of, kept_of: (columns,) int64: Number of each column of the file among those of evidence, and among those
    #     to copy; -1 for none
    evidence_of: NDArray[np.int64]
    kept_of: NDArray[np.int64]
    indices: Matrix[np.int32]  # (E, rows) int32: Number of the text of each cell of evidence
    spans: Cube[np.int64]  # (K, rows, 2) int64: Position and length of each cell to copy


class Texts(NamedTuple):
    """The distinct texts of the columns of evidence."""

    entries: Cube[np.int64]  # (E, MAX_TEXTS, 4) int64: START, LENGTH, WORD and TAIL of each text
    n_texts: NDArray[np.int64]  # (E,) int64
    table: Matrix[np.int32]  # (E, SLOTS) int32: Hash tables with linear probing: numbers of texts; -1 for a free slot
