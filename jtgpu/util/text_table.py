"""Tables as aligned text, for `print`: numbers to the right, text to the left, and only as much as fits a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .monospace import DOTS, abridged, display_width, justified

_PUNCTUATION = frozenset(",;:=|(){}\"'")  # of questions: `jtgpu.inference.queries.text`

MAX_ROWS = 60  # of a table that is shown whole; of longer ones, the first and last `SOME_ROWS`
SOME_ROWS = 5
WIDTH = 100  # characters of a line
MAX_CELL = 40  # characters of a cell
DIGITS = 6
SMALL, LARGE = 1e-4, 1e9  # absolute values outside this range are shown with an exponent
GAP = "  "


def quoted(name: str) -> str:
    """A name as it is written in a question: in quotes if it has punctuation of questions, or spaces at an end."""
    if name and name == name.strip() and not _PUNCTUATION.intersection(name):
        return name
    return f"'{name}'" if '"' in name else f'"{name}"'


def counted(n: int, noun: str) -> str:
    """A number and its noun: ``"1 arc"``, ``"2,000 arcs"``."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def format_cell(value: Any, digits: int = DIGITS) -> str:
    """The text of one cell: numbers with this many digits after the point, nothing for None and NaN."""
    if value is None:
        return ""
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            return ""
        plain = number == 0.0 or SMALL <= abs(number) < LARGE or math.isinf(number)
        return f"{number:.{digits}f}" if plain else f"{number:.{max(digits - 1, 0)}e}"
    return abridged(str(value), MAX_CELL)


def shown_rows(n: int, max_rows: int | None = MAX_ROWS) -> list[int]:
    """Numbers of the rows that are shown of a table of n rows."""
    if max_rows is None or n <= max_rows:
        return [*range(n)]
    some = min(SOME_ROWS, max(max_rows // 2, 1))
    return [*range(some), *range(n - some, n)]


def format_table(
    names: Sequence[str],
    columns: Sequence[Any],
    *,
    fixed: int = 0,
    max_rows: int | None = MAX_ROWS,
    width: int | None = WIDTH,
    digits: int = DIGITS,
    hint: str = "",
) -> str:
    """Format columns of cells as an aligned table."""
    # names: sequence of str: Headers of the columns; if all are empty, the table has no line of headers
    # columns: sequence of sequences: Cells of each column. Only cells that are shown are read.
    # fixed: Number of leading columns that are always shown, such as the names of the rows
    # max_rows: Longer tables show their first and last rows. None: no limit.
    # width: Wider tables omit columns in the middle. None: no limit.
    # digits: Digits after the decimal point
    # hint: Where to find the rest; shown with the shape below a table that is not shown whole
    # returns Lines without trailing spaces or a final line end.
    n = len(columns[0]) if columns else 0
    rows = shown_rows(n, max_rows)
    whole = len(rows) == n
    pairs = [*zip(names, columns, strict=True)]
    if width is not None:  # more columns than this from either end would not fit
        most = width // (1 + len(GAP)) + 1
        pairs = [*pairs[: fixed + most], *pairs[max(fixed + most, len(pairs) - most) :]]
    blocks = [_block(name, column, rows, digits, None if whole else len(rows) // 2) for name, column in pairs]
    shown = _fitting([display_width(block[0]) for block in blocks], fixed, width)
    dots = [DOTS] * (len(rows) + 1 + (not whole))
    lines = zip(*(dots if j is None else blocks[j] for j in shown), strict=True)
    text = [GAP.join(line).rstrip() for line in lines]
    if not any(names):  # no headers
        text = text[1:]
    if not whole or None in shown:
        text.append(f"[{n:,} rows x {len(columns) - fixed:,} columns{'; ' if hint else ''}{hint}]")
    return "\n".join(text)


def _block(name: str, column: Sequence[Any], rows: list[int], digits: int, gap: int | None) -> list[str]:
    """Header and cells of one column, padded to the same width; dots after `gap` rows."""
    values = [column[i] for i in rows]
    texts = [format_cell(name), *(format_cell(value, digits) for value in values)]
    if gap is not None:
        texts.insert(gap + 1, DOTS)
    width = max(map(display_width, texts))
    numbers = [isinstance(v, (int, float, np.number)) for v in values if v is not None]
    right = bool(numbers) and all(numbers)
    return [justified(text, width, right=right) for text in texts]


def _fitting(widths: list[int], fixed: int, width: int | None) -> list[int | None]:
    """Numbers of the columns that fit into a line, and None where columns are omitted."""
    n = len(widths)
    if width is None or sum(widths) + len(GAP) * (n - 1) <= width:
        return [*range(n)]
    left, right = fixed, n
    used = sum(widths[:fixed]) + len(GAP) * fixed + len(DOTS)
    while left < right:
        at = left if left - fixed <= n - right else right - 1  # from both ends in turn
        used += widths[at] + len(GAP)
        if used > width and (left > fixed or right < n):  # at least one column
            break
        left, right = (left + 1, right) if at == left else (left, at)
    return [*range(left), None, *range(right, n)]
