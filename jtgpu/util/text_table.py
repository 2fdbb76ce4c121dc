"""Tables as aligned text, for `print`: numbers to the right, text to the left, and only as much as fits a page."""

from __future__ import annotations

import bisect
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, overload
from unicodedata import category, east_asian_width

import numpy as np

# Text in a monospaced font: how many columns it takes, and text padded or cut to a number of columns.

DOTS = "..."


def char_width(c: str) -> int:
    """Columns that a character takes: 2 for East Asian wide characters, 0 for combining ones."""
    if category(c) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(c) in "WF" else 1


def display_width(text: str) -> int:
    """Columns that a text takes."""
    return len(text) if text.isascii() else sum(map(char_width, text))


def justified(text: str, width: int, *, right: bool = False) -> str:
    """A text, padded with blanks on its right, or on its left with `right`. Longer texts are returned as they are."""
    blanks = " " * (width - display_width(text))
    return blanks + text if right else text + blanks


def printable(text: str) -> str:
    """Text that is safe to print on a terminal: unprintable characters are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def abridged(text: str, most: int) -> str:
    """A text of at most `most` columns: unprintable characters are escaped, and dots replace the end of a long text."""
    start = printable(text[: 2 * most])  # the rest of a text of megabytes is not read
    if len(text) <= 2 * most and display_width(start) <= most:
        return start
    used = 0
    for i, c in enumerate(start):
        used += char_width(c)
        if used > most - len(DOTS):
            return start[:i] + DOTS
    return start + DOTS


_PUNCTUATION = frozenset(",;:=|(){}\"'")  # of questions: `jtgpu.inference.queries.text`

MAX_ROWS = 60  # of a table that is shown whole; of longer ones, the first and last `SOME_ROWS`
SOME_ROWS = 5
WIDTH = 100  # characters of a line
MAX_CELL = 40  # characters of a cell
DIGITS = 6
SMALL = 1e-4  # smaller absolute values are shown with an exponent, and those of more places than digits
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
    """The text of one cell: numbers with this many digits, those up to 1 after the point; nothing for None and NaN."""
    if value is None:
        return ""
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            return ""
        shown = abs(float(f"{number:.{max(digits, 1)}g}"))
        if math.isinf(number) or (shown <= 1.0 and (number == 0.0 or shown >= SMALL)):
            return f"{number:.{digits}f}"
        places = len(str(int(shown))) if 1.0 < shown < 10.0**digits else 0
        return f"{number:.{digits - places}f}" if places else f"{number:.{max(digits - 1, 0)}e}"
    return abridged(str(value), MAX_CELL)


def record_repr(self: Any) -> str:
    """The ``__repr__`` of a record: its fields, with numbers of six significant digits."""
    names = getattr(self, "_fields", None) or self.__dataclass_fields__
    values = ((name, getattr(self, name)) for name in names)
    texts = (f"{name}={x:.{DIGITS}g}" if isinstance(x, float) else f"{name}={x!r}" for name, x in values)
    return f"{type(self).__qualname__}({', '.join(texts)})"


def shown_rows(n: int, max_rows: int | None = MAX_ROWS) -> list[int]:
    """Numbers of the rows that are shown of a table of n rows."""
    if max_rows is None or n <= max_rows:
        return [*range(n)]
    some = min(SOME_ROWS, max(max_rows // 2, 1))
    return [*range(some), *range(n - some, n)]


def shown_cells(column: Sequence[Any], rows: Sequence[int]) -> list[Any]:
    """The cells of some rows; None for those that are masked."""
    return [None if (cell := column[i]) is np.ma.masked else cell for i in rows]


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
    # digits: Significant digits of a number; of one up to 1, digits after the point
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
    values = shown_cells(column, rows)
    cells = [format_cell(value, digits) for value in values]
    numbers = [isinstance(v, (int, float, np.number)) for v in values if v is not None]
    right = bool(numbers) and all(numbers)
    if right:  # points are aligned
        tails = [len(cell.partition(".")[2]) if "." in cell else -1 for cell in cells]
        cells = [cell + " " * (max(tails) - tail) if cell else "" for cell, tail in zip(cells, tails, strict=True)]
    texts = [format_cell(name), *cells]
    if gap is not None:
        texts.insert(gap + 1, DOTS)
    width = max(map(display_width, texts))
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


# States that are intervals of numbers, such as ``"[2.5, 4)"``: which of them a number falls into.

# "[a, b)", "(a, b]", and "[a;b[" as pyAgrum writes it
_INTERVAL = re.compile(r"\s*([\[\](])\s*([^\s,;\[\]()]+)\s*[,;]\s*([^\s,;\[\]()]+)\s*([\[\])])\s*")


class _Interval(NamedTuple):
    low: float
    opens: bool  # whether `low` is excluded
    high: float
    closes: bool  # whether `high` is included
    state: int


class Intervals:
    """Disjoint intervals, one a state."""

    def __init__(self, intervals: Sequence[_Interval]):
        self._sorted = sorted(intervals)
        self._keys = [(i.low, i.opens) for i in self._sorted]

    @property
    def order(self) -> list[int]:
        """States from the lowest interval to the highest."""
        return [i.state for i in self._sorted]

    @property
    def bounds(self) -> np.ndarray[Any, Any]:
        """(n, 2) lower and upper ends, ascending."""
        return np.array([(i.low, i.high) for i in self._sorted], np.float64)

    def find(self, value: float) -> int:
        """The state whose interval contains a number; -1 if none does."""
        at = bisect.bisect_right(self._keys, (value, False)) - 1  # the last interval that begins at or below `value`
        if at < 0:
            return -1
        interval = self._sorted[at]
        return interval.state if value < interval.high or (value == interval.high and interval.closes) else -1


def intervals_of(labels: Sequence[str], number: Callable[[str], float] = float) -> Intervals | None:
    """The intervals that names of states denote; None unless there are two or more, all intervals, and disjoint."""
    # number: The number that an end is, or a ValueError
    if len(labels) < 2 or not all(label.lstrip()[:1] in ("[", "]", "(") for label in labels):
        return None
    intervals = []
    for state, label in enumerate(labels):
        parts = _INTERVAL.fullmatch(label)
        if parts is None:
            return None
        try:
            low, high = number(parts[2]), number(parts[3])
        except ValueError:
            return None
        opens, closes = parts[1] != "[", parts[4] == "]"
        if math.isnan(low) or math.isnan(high) or not (low < high or (low == high and closes and not opens)):
            return None
        intervals.append(_Interval(low, opens, high, closes, state))
    intervals.sort()
    for a, b in itertools.pairwise(intervals):
        if a.high > b.low or (a.high == b.low and a.closes and not b.opens):
            return None
    return Intervals(intervals)


def interval_labels(cuts: Sequence[float]) -> tuple[str, ...]:
    """Names of the intervals between ascending cut points: ``"(-inf, 2.5)"``, ``"[2.5, 4)"``, ``"[4, inf)"``."""
    ends = [-math.inf, *map(float, cuts), math.inf]
    return tuple(
        f"{'(' if math.isinf(low) else '['}{_text(low)}, {_text(high)})" for low, high in itertools.pairwise(ends)
    )


def _text(x: float) -> str:
    """The shortest text that is this number."""
    return repr(int(x)) if math.isfinite(x) and x.is_integer() and abs(x) < 1e15 else repr(x)


class LazySequence(Sequence[Any]):
    """A column whose cells are computed when they are read."""
    # n: Number of cells
    # cell: The cell of a row
    # whole: Computes all cells at once, for a data frame. Default: one after the other.

    def __init__(self, n: int, cell: Callable[[int], Any], whole: Callable[[], Any] | None = None):
        self._n, self._cell = n, cell
        self.whole: Callable[[], Any] = whole or (lambda: [*self])

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Any]: ...
    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return [self._cell(i) for i in range(*row.indices(self._n))]
        return self._cell(row)

    def __iter__(self) -> Iterator[Any]:
        return map(self._cell, range(self._n))


def configurations(states: Sequence[Sequence[str]]) -> list[LazySequence]:
    """Columns of a table with a row for each configuration of some variables; the last one varies fastest."""
    # states: of each variable, by name
    n = stride = math.prod(map(len, states))

    def column(names: Sequence[str], stride: int) -> LazySequence:
        def whole() -> Any:
            return np.resize(np.repeat(np.array(names, object), stride), n)

        return LazySequence(n, lambda i: names[i // stride % len(names)], whole)

    columns = []
    for names in states:
        stride //= len(names)
        columns.append(column(names, stride))
    return columns
