"""Loops that parse plain CSV rows; see `jtgpu.columns.csv_cells`."""

from __future__ import annotations

import numpy as np

from ...util.jit import compiled
from ..csv_records import LENGTH, MAX_TEXTS, NEWLINE, RETURN, SLOTS, START, TAIL, WORD, Block, Texts, Wanted

__all__ = ["gather", "list_marked", "mark", "parse_rows"]

NOT_PLAIN = -1
FACTOR, OTHER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
SLOT_SHIFT = np.uint64(64 - 13)
assert SLOTS == 1 << 13


@compiled("u1[:], u1, u1, u1[:]")
def mark(data, delimiter, quote, marks):  # type: ignore[no-untyped-def]
    """Mark delimiters, quotes and line ends."""
    # data: (m,) uint8
    # marks: (m,) uint8: Written: 1 for a special byte, else 0
    # returns Number of special bytes.
    for i in range(len(marks)):
        c = data[i]
        marks[i] = (c == delimiter) | (c == NEWLINE) | (c == RETURN) | (c == quote)
    return marks.sum()


@compiled("u1[:], u8[:], i4[:]")
def list_marked(marks, words, positions):  # type: ignore[no-untyped-def]
    """List the marked positions."""
    # marks: (m,) uint8
    # words: (m / 8,) uint64: The same memory, to skip eight bytes at a time
    # positions: (k + 8,) int32: Written; needs room for eight more than are marked
    n = 0
    for w in range(len(words)):
        if words[w] != 0:
            for i in range(8):
                positions[n] = 8 * w + i
                n += marks[8 * w + i]


@compiled()
def _eight_bytes(low, high, at):  # type: ignore[no-untyped-def]
    """The eight bytes from byte `at` on, the first one lowest, of the two words (uint64) that contain them."""
    shift = np.uint64((at & 7) << 3)
    return (low >> shift) | ((high << np.uint64(1)) << (np.uint64(63) - shift))


@compiled()
def _slot_of(word, tail, size):  # type: ignore[no-untyped-def]
    """The slot at which the search for a text begins, by its first and last eight bytes (uint64) and its length."""
    return np.int64((((word ^ (np.uint64(size) * OTHER)) * FACTOR ^ tail) * FACTOR) >> SLOT_SHIFT)


@compiled()
def _find_or_add(data, first, size, word, tail, e, texts):  # type: ignore[no-untyped-def]
    """Number of a text among those of a column, to which it is added if it is new."""
    # data: (m,) uint8
    # first, size: Position and length of the text
    # word, tail: Its first and last eight bytes; of a text of up to eight bytes both are all of it
    # e: Column of evidence
    # returns -1 if the column has too many distinct texts.
    entries, table = texts.entries, texts.table
    slot = _slot_of(word, tail, size)
    while table[e, slot] >= 0:
        k = table[e, slot]
        equal = entries[e, k, LENGTH] == size and entries[e, k, WORD] == np.int64(word)
        if equal and entries[e, k, TAIL] == np.int64(tail):
            same, other = True, entries[e, k, START]
            for i in range(8, size - 8):  # the bytes between the first and the last eight
                same = same and data[first + i] == data[other + i]
            if same:
                return k
        slot = (slot + 1) & (SLOTS - 1)
    k = texts.n_texts[e]
    if k == MAX_TEXTS:
        return -1
    table[e, slot], texts.n_texts[e] = k, k + 1
    entries[e, k, START], entries[e, k, LENGTH] = first, size
    entries[e, k, WORD], entries[e, k, TAIL] = np.int64(word), np.int64(tail)
    return k


@compiled("Block, Wanted, Texts")
def parse_rows(block, wanted, texts):  # type: ignore[no-untyped-def]
    """Parse all rows of a block."""
    # wanted: Its arrays of cells are written
    # texts: Empty; written
    # returns Number of rows, or `NOT_PLAIN`.
    # one loop without calls that take arrays: each call would count references, at three times the price of the rest
    data, words, special = block.data, block.words, block.special
    end, n_columns, quote, delimiter = block.end, block.n_columns, block.quote, block.delimiter
    evidence_of, kept_of, indices, spans = wanted.evidence_of, wanted.kept_of, wanted.indices, wanted.spans
    entries, table = texts.entries, texts.table
    n = at = i = 0  # i: number of the first special byte from position `at` on
    while at < end:
        if n_columns > 1 and (data[at] == NEWLINE or data[at] == RETURN):  # an empty line
            at, i = at + 1, i + 1
            continue
        for column in range(n_columns):
            first = at
            if data[at] == quote:
                first += 1
                i += 1
                while data[special[i]] == delimiter:
                    i += 1
                last = special[i]
                if data[last] != quote:  # a line end, or the end of the block
                    return NOT_PLAIN
                at, i = last + 1, i + 1
                if special[i] != at or data[at] == quote:  # text after the closing quote, or an escaped quote
                    return NOT_PLAIN
            else:
                while data[special[i]] == quote:
                    i += 1
                at = special[i]
                last = at
            e, k = evidence_of[column], kept_of[column]
            if e >= 0:
                size = last - first
                word = _eight_bytes(words[first >> 3], words[(first >> 3) + 1], first)
                if size < 8:
                    word &= (np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)
                tail = word if size <= 8 else _eight_bytes(words[(last - 8) >> 3], words[((last - 8) >> 3) + 1], last)
                number = table[e, _slot_of(word, tail, size)]
                if number < 0 or size > 16 or (
                    entries[e, number, LENGTH] != size or entries[e, number, WORD] != np.int64(word)
                    or entries[e, number, TAIL] != np.int64(tail)
                ):  # fmt: skip
                    number = _find_or_add(data, first, size, word, tail, e, texts)
                    if number < 0:
                        return NOT_PLAIN
                indices[e, n] = number
            if k >= 0:
                spans[k, n, 0], spans[k, n, 1] = first, last - first
            more = int(column < n_columns - 1)
            if (data[at] == delimiter) != more:  # too few cells, or too many
                return NOT_PLAIN
            at, i = at + more, i + more
        two = int(data[at] == RETURN and data[at + 1] == NEWLINE)
        at, i = at + 1 + two, i + 1 + two
        n += 1
    return n


@compiled("u1[:], i8[:, :]")
def gather(data, spans):  # type: ignore[no-untyped-def]
    """Concatenate texts."""
    # data: (m,) uint8
    # spans: (n, 2) int64: Position and length of each text
    # returns text: (t,) uint8
    # returns offsets: (n + 1,) int32: Where each text begins
    offsets = np.zeros(len(spans) + 1, np.int32)
    for i in range(len(spans)):
        offsets[i + 1] = offsets[i] + spans[i, 1]
    out = np.empty(offsets[-1], np.uint8)
    for i in range(len(spans)):
        to, first = offsets[i], spans[i, 0]
        for j in range(spans[i, 1]):
            out[to + j] = data[first + j]
    return out, offsets
