"""Blocks of CSV as numbered cells, in compiled code: each column's different texts, and which of them each cell is.

Rows of plain cells, quoted or not, are read here, several times as fast as by a general reader, without the
interpreter's lock. What is not plain (a quote within quotes, a line end within a cell, a row of another length, text
that is not UTF-8, a column of very many different texts) is left to the general reader, which also tells what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..util.numba_cache import compiled
from .arrow import arrow
from .encode import Categories

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["plain_cells"]

MOST_TEXTS = 2048  # different texts of a column in one block
PLACES = 4 * MOST_TEXTS  # of its hash table; a power of two
PADDING = 16  # bytes behind a block that may be looked at
NOT_PLAIN = -1
NEWLINE, RETURN = 10, 13
START, LENGTH, WORD, TAIL = range(4)  # of a text: where it stands, its bytes, its first and its last eight of them
FACTOR, OTHER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
TO_PLACE = np.uint64(64 - 13)
assert PLACES == 1 << 13


@compiled()
def _mark(data, delimiter, quote, marks):  # type: ignore[no-untyped-def]
    """Note which bytes are special, as ones; returns how many."""
    for i in range(len(marks)):
        c = data[i]
        marks[i] = (c == delimiter) | (c == NEWLINE) | (c == RETURN) | (c == quote)
    return marks.sum()


@compiled()
def _list(marks, words, places):  # type: ignore[no-untyped-def]
    """List the bytes that are marked, of which `words` are eight at a time; room for eight more is needed."""
    n = 0
    for w in range(len(words)):
        if words[w] != 0:
            for i in range(8):
                places[n] = 8 * w + i
                n += marks[8 * w + i]


@compiled()
def _joined(low, high, at):  # type: ignore[no-untyped-def]
    """The eight bytes from a place on, the first one lowest, of the two words that hold them."""
    shift = np.uint64((at & 7) << 3)
    return (low >> shift) | ((high << np.uint64(1)) << (np.uint64(63) - shift))


@compiled()
def _hashed(word, tail, n):  # type: ignore[no-untyped-def]
    """Where in a hash table the search for a text of n bytes begins."""
    return np.int64((((word ^ (np.uint64(n) * OTHER)) * FACTOR ^ tail) * FACTOR) >> TO_PLACE)


@compiled()
def _number(data, first, n, word, tail, e, table, texts, n_texts):  # type: ignore[no-untyped-def]
    """The number of a text of n bytes among those of column e, which it joins where it is new; -1: too many."""
    at = _hashed(word, tail, n)
    while table[e, at] >= 0:
        k = table[e, at]
        if texts[e, k, LENGTH] == n and texts[e, k, WORD] == np.int64(word) and texts[e, k, TAIL] == np.int64(tail):
            same, other = True, texts[e, k, START]
            for i in range(8, n - 8):  # what lies between them
                same = same and data[first + i] == data[other + i]
            if same:
                return k
        at = (at + 1) & (PLACES - 1)
    k = n_texts[e]
    if k == MOST_TEXTS:
        return -1
    table[e, at], n_texts[e] = k, k + 1
    texts[e, k, START], texts[e, k, LENGTH] = first, n
    texts[e, k, WORD], texts[e, k, TAIL] = np.int64(word), np.int64(tail)
    return k


@compiled()
def _read(  # type: ignore[no-untyped-def]
    data, words, end, places, delimiter, quote, n_columns, evidence_of, kept_of, indices, texts, n_texts, table, spans,
):  # fmt: skip
    """Read all rows of a block; returns how many there are, or `NOT_PLAIN`.

    Parameters
    ----------
    data, words : (end + PADDING,) uint8, and the same as uint64
        Behind the block a line end, and zeros.
    places : (special bytes + 8,) int32
        Behind them `end`.
    delimiter, quote : int
        Bytes; quote -1: there is none.
    evidence_of, kept_of : (columns,) int64
        Which column of evidence, and which column that is kept, each column of the file is; -1: none.
    indices : (E, rows) int32
        Number of each cell's text; written.
    texts, n_texts : (E, MOST_TEXTS, 4), (E,) int64
        The texts of each column, and how many; written.
    table : (E, PLACES) int32
        Hash tables, all -1.
    spans : (K, rows, 2) int64
        Where each cell that is kept begins, and how long it is; written.
    """
    n = at = i = 0  # i: the special byte at or behind the place
    while at < end:
        if n_columns > 1 and (data[at] == NEWLINE or data[at] == RETURN):  # an empty line
            at, i = at + 1, i + 1
            continue
        for column in range(n_columns):
            first = at
            if data[at] == quote:
                first += 1
                i += 1
                while data[places[i]] == delimiter:
                    i += 1
                last = places[i]
                if data[last] != quote:  # a line end, or the end of all
                    return NOT_PLAIN
                at, i = last + 1, i + 1
                if places[i] != at or data[at] == quote:  # text behind it, or a quote within
                    return NOT_PLAIN
            else:
                while data[places[i]] == quote:
                    i += 1
                at = places[i]
                last = at
            e, k = evidence_of[column], kept_of[column]
            if e >= 0:
                size = last - first
                word = _joined(words[first >> 3], words[(first >> 3) + 1], first)
                if size < 8:
                    word &= (np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)
                tail = word if size <= 8 else _joined(words[(last - 8) >> 3], words[((last - 8) >> 3) + 1], last)
                number = table[e, _hashed(word, tail, size)]
                # the usual case here: a call with arrays takes longer than all of the rest
                if number < 0 or size > 16 or (
                    texts[e, number, LENGTH] != size or texts[e, number, WORD] != np.int64(word)
                    or texts[e, number, TAIL] != np.int64(tail)
                ):  # fmt: skip
                    number = _number(data, first, size, word, tail, e, table, texts, n_texts)
                    if number < 0:
                        return NOT_PLAIN
                indices[e, n] = number
            if k >= 0:
                spans[k, n, 0], spans[k, n, 1] = first, last - first
            if (data[at] == delimiter) != (column < n_columns - 1):  # too few cells, or too many
                return NOT_PLAIN
            if column < n_columns - 1:
                at, i = at + 1, i + 1
        if data[at] == RETURN and data[at + 1] == NEWLINE:
            at, i = at + 1, i + 1
        at, i = at + 1, i + 1
        n += 1
    return n


@compiled()
def _gathered(data, spans):  # type: ignore[no-untyped-def]
    """Texts one behind the other, and where each begins."""
    offsets = np.zeros(len(spans) + 1, np.int32)
    for i in range(len(spans)):
        offsets[i + 1] = offsets[i] + spans[i, 1]
    out = np.empty(offsets[-1], np.uint8)
    for i in range(len(spans)):
        to, first = offsets[i], spans[i, 0]
        for j in range(spans[i, 1]):
            out[to + j] = data[first + j]
    return out, offsets


def plain_cells(
    text: bytes, n_rows: int, delimiter: str, quote: bytes, n_columns: int, evidence: Sequence[int], kept: Sequence[int]
) -> tuple[int, list[Any]] | None:
    """Read whole rows; None: they are not plain.

    Parameters
    ----------
    text : bytes
        UTF-8.
    n_rows : int
        At least as many as there are rows.
    delimiter : str
    quote : bytes
        Empty: there is none.
    n_columns : int
        Of the file.
    evidence, kept : sequence of int
        Columns wanted.

    Returns
    -------
    n : int
        Rows.
    columns : list
        `Categories` for those of evidence, then Arrow arrays of text, with null for empty cells.
    """
    if len(text) >= 2**31 or len(set(evidence)) < len(evidence) or len(set(kept)) < len(kept):
        return None
    data = np.zeros(-(-(len(text) + PADDING) // 8) * 8, np.uint8)
    data[: len(text)] = np.frombuffer(text, np.uint8)
    data[len(text)] = NEWLINE
    quoting = quote[0] if quote else -1
    places = _special(data, len(text), ord(delimiter), quoting)
    slots = []
    for wanted in (evidence, kept):
        of = np.full(n_columns, -1, np.int64)
        of[list(wanted)] = np.arange(len(wanted))
        slots.append(of)
    indices = np.empty((len(evidence), n_rows), np.int32)
    texts, n_texts = np.empty((len(evidence), MOST_TEXTS, 4), np.int64), np.zeros(len(evidence), np.int64)
    table = np.full((len(evidence), PLACES), -1, np.int32)
    spans = np.empty((len(kept), n_rows, 2), np.int64)
    n = int(
        _read(
            data, data.view(np.uint64), len(text), places, ord(delimiter), quoting, n_columns, *slots, indices, texts,
            n_texts, table, spans,
        )
    )  # fmt: skip
    if n < 0:
        return None
    columns: list[Any] = []
    try:
        for e in range(len(evidence)):
            found = texts[e, : n_texts[e], :WORD].tolist()
            columns.append(Categories(indices[e, :n], [text[i : i + k].decode() for i, k in found]))
        columns += [_text_column(data, spans[k, :n]) for k in range(len(kept))]
    except (UnicodeDecodeError, arrow().ArrowInvalid):
        return None
    return n, columns


def _special(data: NDArray[np.uint8], end: int, delimiter: int, quote: int) -> NDArray[np.int32]:
    """Where a block has special bytes, and its end."""
    marks = np.zeros(len(data), np.uint8)
    n = int(_mark(data, np.uint8(delimiter), np.uint8(quote if quote >= 0 else delimiter), marks[:end]))
    places = np.empty(n + 8, np.int32)
    _list(marks, marks.view(np.uint64), places)
    places[n] = end
    return places


def _text_column(data: NDArray[np.uint8], spans: NDArray[np.int64]) -> Any:
    """Cells as an Arrow array."""
    pa = arrow()
    out, offsets = _gathered(data, spans)
    full = spans[:, 1] > 0
    valid = None if full.all() else pa.py_buffer(np.packbits(full, bitorder="little"))
    array = pa.StringArray.from_buffers(len(spans), pa.py_buffer(offsets), pa.py_buffer(out), valid)
    if len(out) and out.max() >= 128:
        array.validate(full=True)
    return array
