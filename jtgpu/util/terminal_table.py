"""Complete tables as aligned text, for terminals; `jtgpu.util.text_table` abridges tables for ``print()``.

Columns of numbers are aligned at the decimal point. A table wider than the terminal first shrinks its bars, then folds
long text over several lines, and finally continues below, with the first column repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .text_table import DIGITS, GAP, aligned, char_width, display_width, justified, printable

MIN_TEXT = 12  # columns of text are not folded to fewer characters
MAX_BAR, MIN_BAR = 40, 8  # characters of the bar of 1
_EIGHTHS = " ▏▎▍▌▋▊▉█"

Cell = str | float


def _plain(text: str) -> str:
    return text


@dataclass(frozen=True)
class TableStyle:
    """How a table looks."""

    digits: int = DIGITS  # significant digits of numbers
    width: int | None = None  # characters per line; None for no limit
    bars: bool = False  # draw the last number of each row as a bar, with 1 at full length
    header: bool = True  # print the names of the columns
    # One letter per column, ``l`` or ``r``; empty: columns of numbers are aligned at the decimal point, text is aligned
    #     on the left
    align: str = ""
    blocks: bool = True  # draw bars with block characters; False for ASCII
    # emphasis, accent: Add a terminal's escape sequences to a header and to a bar
    emphasis: Callable[[str], str] = field(default=_plain)
    accent: Callable[[str], str] = field(default=_plain)


class _Column(NamedTuple):
    title: str
    cells: list[str]
    right: bool  # justified
    width: int
    is_text: bool  # may be folded


def format_table(header: Sequence[str], rows: Sequence[Sequence[Cell]], style: TableStyle | None = None) -> list[str]:
    """Format a table."""
    # header: sequence of str: Names of the columns
    # rows: sequence of sequences: Strings and numbers. A column with more numbers than strings is aligned at the
    #     decimal point.
    # returns list of str: Lines without trailing blanks. Unprintable characters are escaped.
    style = style or TableStyle()
    columns = [
        _column(title, [row[i] for row in rows], style, style.align[i : i + 1]) for i, title in enumerate(header)
    ]
    values = [row[-1] if row and not isinstance(row[-1], str) else None for row in rows] if style.bars else None
    limit = style.width
    if limit is None:
        return _lines(columns, values, MAX_BAR, style)
    free = limit - sum(c.width + len(GAP) for c in columns)
    if values is not None and free >= MIN_BAR:
        return _lines(columns, values, min(MAX_BAR, free), style)
    columns = _folded(columns, limit)
    lines: list[str] = []
    for block in _blocks(columns, limit):
        lines += ([""] if lines else []) + _lines(block, None, 0, style)
    return lines


def format_number(x: float, digits: int = DIGITS) -> str:
    """A number with so many significant digits, without trailing zeros: ``"0.055"``, ``"1.2e-07"``."""
    return str(x) if isinstance(x, int) and not isinstance(x, bool) else f"{float(x):.{digits}g}"


def bar(p: float, length: int = MAX_BAR, blocks: bool = True) -> str:
    """A probability as a bar, with a resolution of an eighth of a character."""
    p = min(max(p, 0.0), 1.0)
    if not blocks:
        return "#" * round(length * p)
    eighths = round(8 * length * p)
    return _EIGHTHS[8] * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def _column(title: str, values: Sequence[Cell], style: TableStyle, align: str) -> _Column:
    """Format the cells of a column; numbers get equally many characters after the decimal point."""
    n_numbers = sum(not isinstance(x, str) for x in values)
    numeric = 2 * n_numbers > len(values)
    cells = [printable(x) if isinstance(x, str) else format_number(x, style.digits) for x in values]
    if numeric:
        cells = aligned(cells, [not isinstance(x, str) for x in values])
    shown = printable(title)
    widest = max((display_width(text) for text in cells), default=0)
    width = max(widest, display_width(shown) if style.header else 0)
    right = align == "r" if align else numeric
    return _Column(shown, cells, right, width, is_text=not (right or numeric))


def _folded(columns: list[_Column], limit: int) -> list[_Column]:
    """Narrow the columns of text, the widest first, until the table fits or they cannot be narrowed further."""
    fixed = sum(c.width for c in columns if not c.is_text) + len(GAP) * (len(columns) - 1)
    text = [c.width for c in columns if c.is_text]
    if not text or fixed + sum(text) <= limit:
        return columns
    caps = range(min(max(text), limit), MIN_TEXT - 1, -1)
    cap = next((cap for cap in caps if fixed + sum(min(w, cap) for w in text) <= limit), MIN_TEXT)
    return [c._replace(width=min(c.width, cap)) if c.is_text else c for c in columns]


def _blocks(columns: list[_Column], limit: int) -> list[list[_Column]]:
    """Divide the columns among tables that fit; the first column is repeated in each."""
    if not columns:
        return [[]]
    first, *rest = columns
    blocks, used = [[first]], first.width
    for column in rest:
        if used + len(GAP) + column.width > limit and len(blocks[-1]) > 1:
            blocks.append([first])
            used = first.width
        blocks[-1].append(column)
        used += len(GAP) + column.width
    return blocks


def _lines(columns: list[_Column], values: Sequence[Cell | None] | None, length: int, style: TableStyle) -> list[str]:
    lines = _row(columns, [c.title for c in columns], style.emphasis) if style.header else []
    for i in range(len(columns[0].cells) if columns else 0):
        row = _row(columns, [c.cells[i] for c in columns], _plain)
        value = values[i] if values is not None else None
        if isinstance(value, (int, float)):
            widths = sum(c.width for c in columns) + len(GAP) * (len(columns) - 1)
            row[0] = justified(row[0], widths) + GAP + style.accent(bar(value, length, style.blocks))
        lines += [line.rstrip() for line in row]
    return lines


def _row(columns: list[_Column], cells: list[str], style: Callable[[str], str]) -> list[str]:
    """One row of a table: a line, or several if cells are folded."""
    texts = [folded(text, c.width) for text, c in zip(cells, columns, strict=True)]
    lines = []
    for i in range(max((len(parts) for parts in texts), default=0)):
        cells_of_line = []
        for parts, column in zip(texts, columns, strict=True):
            text = parts[i] if i < len(parts) else ""
            blanks = " " * (column.width - display_width(text))
            text = style(text) if text.strip() else text
            cells_of_line.append(blanks + text if column.right else text + blanks)
        lines.append(GAP.join(cells_of_line).rstrip())
    return lines


def folded(text: str, width: int) -> list[str]:
    """Divide a text into parts of at most `width` characters on the terminal, at blanks where there are any."""
    if display_width(text) <= width:
        return [text]
    parts, part, used = [], "", 0
    for c in text:
        w = char_width(c)
        if used + w > width and part:
            head, blank, rest = part.rpartition(" ")
            if blank and c != " " and 2 * display_width(head) >= width:
                parts.append(head)
                part = rest
            else:
                parts.append(part)
                part = ""
            used = display_width(part)
        if part or c != " ":
            part, used = part + c, used + w
    return [*parts, part] if part else parts
