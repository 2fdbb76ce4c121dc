"""Which cells of a table are missing: the one definition that all readers of tables use.

None, NaN and the NA objects of the libraries (pandas.NA, NaT, numpy.ma.masked, nulls) are missing in every table. A
word is missing only in a text file, which has no other way to say so, and never if it is a state of the variable.
"""

from __future__ import annotations

import cmath
import math
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any, TypeGuard

import numpy as np

from ..errors import ArgumentError, shown
from .arguments import several
from .calls import outside

# the list of pandas.read_csv
NA_VALUES = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
MAX_LISTED = 8  # columns in a message
FEW_ROWS, FEW_SHARE = 30, 0.1  # rows, and share of the rows, below which there is a warning
Marks = tuple[str, str]  # of decimals and of thousands in the numerals of a file; "": not decided, none
POINT: Marks = (".", "")
UNDECIDED: Marks = ("", "")  # 53,0 is 53, and 1,200 is no numeral: it may be 1200
GROUPED = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+")
_MOMENT = re.compile(r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}(?::[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)?)?\s*")
MAX_EXACT = 2**53  # below this, integers are floats without rounding
LIKELIHOOD = re.compile(r"\s*\[([^\[\],;]*;[^\[\],]*)\]\s*", re.ASCII)  # of one way to match: cells may be long
_NA_TYPES = ("NAType", "NaTType", "MaskedConstant")  # by name: comparing pandas.NA gives NA, which has no truth value


def is_missing(value: object) -> bool:
    """Whether a value is None, NaN, or an NA object; a text never is."""
    if value is None or isinstance(value, (str, int)):
        return value is None
    if isinstance(value, Decimal):
        return value.is_nan()  # comparing a signalling NaN raises
    if isinstance(value, (float, complex, np.inexact, np.datetime64, np.timedelta64)):
        return bool(value != value)  # NaN and NaT differ from themselves
    return type(value).__name__ in _NA_TYPES


def na_words(na_values: str | Iterable[str] | None, *, is_text: bool) -> frozenset[str]:
    """The words that mean a missing cell unless they are states."""
    # na_values: str or iterable of str: As the user gives them, in addition to `NA_VALUES` in a text file. If all are
    #     empty, no word is missing.
    # is_text: Whether the table is a text file; its empty cells are always missing
    if na_values is None:
        return frozenset(NA_VALUES if is_text else ())
    words = [na_values] if isinstance(na_values, str) else several(na_values)
    if words is None or not all(isinstance(word, str) for word in words):
        raise ArgumentError(f"na_values must be words such as ['NA', '?'], not {na_values!r}")
    given = frozenset(map(str.strip, words))
    return given.union(NA_VALUES if given - {""} else [""]) if is_text else given


def is_na_word(value: object, words: frozenset[str]) -> bool:
    """Whether a cell is one of the words, with or without surrounding spaces."""
    return isinstance(value, str) and value.strip() in words


def as_text(value: object) -> object:
    """A cell; bytes as the text that they are."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def is_likelihood(value: object) -> TypeGuard[str]:
    """Whether a cell is written as a likelihood, with a weight for each state."""
    return isinstance(value, str) and LIKELIHOOD.fullmatch(value) is not None


def is_unusable(value: object) -> bool:
    """Whether a value is an infinite or complex number, which names no state."""
    if isinstance(value, (complex, np.complexfloating)):
        return True
    if isinstance(value, Decimal):
        return value.is_infinite()
    return isinstance(value, (float, np.floating)) and cmath.isinf(value)


def few_left(n_left: int, n_rows: int, cells: Mapping[str, int]) -> str:
    """A message if few rows are left without those that have missing cells; empty if they are enough."""
    if n_left == n_rows or not (n_left < FEW_SHARE * n_rows or (n_left < FEW_ROWS and 2 * n_left < n_rows)):
        return ""
    most = sorted(cells.items(), key=lambda item: -item[1])[:3]
    shown = ", ".join(f"{v} ({k:,})" for v, k in most)
    return (
        f"missing='drop' leaves {n_left:,} of {n_rows:,} rows; leave out the columns with most missing cells"
        + (f", such as {shown}" if shown else "") + ", or use another missing="
    )  # fmt: skip


def warn_of_few(n_left: int, n_rows: int, cells: Mapping[str, int]) -> None:
    """Warn if few rows are left without those that have missing cells."""
    if text := few_left(n_left, n_rows, cells):
        warnings.warn(text, stacklevel=outside())


@dataclass(frozen=True)
class MissingReport:
    """The missing cells that were found in a table.

    Attributes
    ----------
    cells : mapping of str to int
        Missing cells of each column that has any, in rows that were left out, too.
    words : mapping of str to tuple of str
        Words that were read as missing, of each column in which there were any; see `jtgpu.cases.NA_VALUES`.
    """

    cells: Mapping[str, int] = field(default_factory=dict)
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        return "; ".join(self.lines())

    def lines(self, n_left_out: int = 0, n_rows: int = 0) -> list[str]:
        """The lines of a report; `n_left_out` of `n_rows` rows were left out for their missing cells."""
        lines = []
        if self.cells:
            n, listed = len(self.cells), ", ".join(f"{v} {k:,}" for v, k in [*self.cells.items()][:MAX_LISTED])
            where = f"missing in {n:,} column{'s' * (n > 1)} ({listed}{', ...' * (n > MAX_LISTED)})"
            total = sum(self.cells.values())
            lines.append(f"{total:,} cell{'s' * (total > 1)} {where}")
            if n_left_out:
                lines[0] = f"{n_left_out:,} of {n_rows:,} rows left out: cells {where}"
        elif n_left_out:
            lines.append(f"{n_left_out:,} of {n_rows:,} rows left out: cells missing")
        if self.words:
            some = [f"{', '.join(map(shown, words))} in {v}" for v, words in [*self.words.items()][:MAX_LISTED]]
            more = ", ..." * (len(self.words) > MAX_LISTED)
            lines.append(f"read as missing cells: {'; '.join(some)}{more} (na_values= or --na-values lists such words)")
        return lines


# Numerals and moments.

def moment(cell: object) -> float | None:
    """Microseconds from 1970 to a date or time without a zone, also as a text of ISO 8601; None for anything else."""
    if isinstance(cell, str) and not _MOMENT.fullmatch(cell):
        return None
    if not isinstance(cell, (str, date, np.datetime64)) or getattr(cell, "tzinfo", None) is not None:
        return None
    try:
        given: Any = cell.strip() if isinstance(cell, str) else cell
        when = np.datetime64(given).astype("datetime64[us]")
    except ValueError:
        return None
    return None if np.isnat(when) else float(when.astype(np.int64))


def numeral(text: str, marks: Marks = POINT) -> float | None:
    """The number that a text denotes in a file with these marks, or None."""
    decimal, thousands = marks
    text = text.strip()
    if thousands and thousands in text:
        mark = re.escape(thousands)
        if not re.fullmatch(rf"[+-]?[0-9]{{1,3}}(?:{mark}[0-9]{{3}})+(?:{re.escape(decimal or '.')}[0-9]*)?", text):
            return None
        text = text.replace(thousands, "")
    if "," in text and decimal != ".":
        return None if not decimal and GROUPED.fullmatch(text) else plain_numeral(text.replace(",", "."))
    return None if "." in text and decimal == "," else plain_numeral(text)


def plain_numeral(text: str) -> float | None:
    """The finite number that a text denotes, or None. ASCII only: float() accepts digits of any script and ``1_0``."""
    text = text.strip()
    if not text or not text.isascii() or "_" in text or text[-1] not in "0123456789.":
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def finite(value: Any) -> float | None:
    """The finite number that a cell is, or that its text denotes."""
    if isinstance(value, str):
        return plain_numeral(value)
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < np.inf else None


def is_plain(text: str) -> bool:
    """Whether a numeral is written as a number, without leading zeros."""
    return re.match(r"\s*[+-]?0[0-9]", text) is None


def decimal_text(number: Decimal) -> str:
    """All digits of a decimal number."""
    return format(number.normalize(), "f")


def number_text(number: float) -> str:
    return str(int(number)) if number.is_integer() and abs(number) < MAX_EXACT else repr(number)
