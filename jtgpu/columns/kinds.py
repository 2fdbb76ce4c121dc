"""The kind of a column whose cells nobody declared (numbers, truth values, moments or words), and its states' names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from ..errors import DataError, shown
from ..model.states import LONGEST
from ..util.cells import MAX_EXACT, POINT, Marks, decimal_text, is_plain, moment, number_text, numeral, plain_numeral
from ..util.text_table import intervals_of
from .column import Column

MOST_DIGITS = 1000  # of an integer: Python refuses to convert thousands of them
MOMENTS = (date, np.datetime64)
NAMELESS = (time, timedelta, np.timedelta64, tuple, frozenset)
FINE = re.compile(r".*[.][0-9]{6}0*[1-9].*", re.DOTALL)  # a moment finer than a microsecond
INFINITE = re.compile("[+-]?inf(inity)?", re.IGNORECASE)


def typed_words(words: Sequence[Any], marks: Marks = POINT) -> list[Any]:
    """The words of a column of a text file as numbers, truth values or moments, if all of them are such."""
    # Numerals with leading zeros, of more digits than a float has, and different ones of one number are codes: words.
    texts = ["0" if (text := word.strip()) == "-0" else text for word in words]
    known = []
    for text in texts:
        x = numeral(text, marks) if is_plain(text) else None
        if x is None or (abs(x) >= MAX_EXACT and text.lstrip("+-").isdigit()):
            break
        known.append(x)
    if texts and len(known) == len(texts):
        point = [text.replace(marks[1], "") for text in texts] if marks[1] else texts
        point = [text.replace(",", ".") for text in point] if marks[0] != "." else point
        plain = {t.rstrip("0").rstrip(".") if "." in t and "e" not in t.lower() else t for t in point}
        return list(known) if len(plain) == len(set(known)) else texts
    folded = {text.casefold() for text in texts}
    if texts and folded <= {"true", "false"}:
        return [text.casefold() == "true" for text in texts]
    when = [None if FINE.fullmatch(text) else moment(text) for text in texts]
    if texts and None not in when:
        return [np.datetime64(int(m), "us") for m in when if m is not None]
    return texts


def names_of(name: str, cells: Sequence[object]) -> list[str]:
    """The name of the state of each cell: the shortest text that reads back."""
    # raises DataError: If a cell has no text of its own.
    if any(getattr(cell, "tzinfo", None) is not None for cell in cells):
        raise DataError(f"column {name!r} has times with a time zone; convert it to UTC without one")
    if cells and all(isinstance(cell, MOMENTS) for cell in cells):
        if any(isinstance(c, np.datetime64) and c != c.astype("datetime64[us]") for c in cells):
            raise DataError(f"column {name!r} has times finer than a microsecond; round them")
        return moment_names(cells)
    return [_name(name, cell) for cell in cells]


def moment_names(cells: Iterable[Any]) -> list[str]:
    """Moments as text, with the time of day where one is not midnight."""
    texts = [str(np.datetime64(cell).astype("datetime64[us]")).removesuffix(".000000") for cell in cells]
    return [t[:10] for t in texts] if all(t.endswith("T00:00:00") for t in texts) else texts


def _name(column: str, cell: Any) -> str:
    if isinstance(cell, (int, Decimal)) and not -LONGEST < cell < LONGEST:
        raise DataError(f"column {column!r} has a number of more than 4,000 digits, which names no state")
    if isinstance(cell, str):
        if not cell.isascii() and any("\ud800" <= c <= "\udfff" for c in cell):
            raise DataError(f"column {column!r} has {shown(cell)}, half a character, which no file can hold")
        return cell.strip()
    if isinstance(cell, (float, np.floating)):
        return number_text(float(cell)) if float(cell).is_integer() or isinstance(cell, float) else str(cell)
    if isinstance(cell, Decimal):
        return decimal_text(cell)
    if isinstance(cell, bytes):
        try:
            return cell.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise DataError(f"column {column!r} has {shown(cell)}, bytes that are no text of UTF-8") from None
    text = str(cell)
    if text == object.__repr__(cell) or isinstance(cell, NAMELESS):
        raise DataError(f"column {column!r} has {shown(cell)}, which is not a value that names a state")
    return text


def _number(name: str) -> int | Decimal | None:
    """The number whose shortest text a name is."""
    if name.isdecimal() and name.isascii() and len(name) < MOST_DIGITS:
        return int(name) if name[0] != "0" or name == "0" else None
    x = plain_numeral(name)
    return Decimal(name) if x is not None and name in (number_text(x), decimal_text(Decimal(name))) else None


def in_order(names: Collection[str]) -> tuple[str, ...]:
    """Different names: plain numbers and intervals ascending, others by alphabet."""
    different = sorted(set(names))
    numbers = {name: x for name in different if (x := _number(name)) is not None}
    if len(numbers) == len(different):
        return tuple(sorted(different, key=numbers.__getitem__))
    intervals = intervals_of(different)
    return tuple(different if intervals is None else (different[i] for i in intervals.order))


def ordered(name: str, column: Column) -> Column:
    """A column whose cells are different by name, in the order of the names unless the user gave it."""
    places, cells, _ = column.used()
    names = names_of(name, cells)
    states = [*dict.fromkeys(names)] if column.declared else [*in_order(names)]
    place = {s: i for i, s in enumerate(states)}
    index = np.full(len(column.cells) + 1, -1, np.int64)
    index[places] = [place[s] for s in names]
    first = dict(zip(reversed(names), reversed(cells), strict=True))
    values = [first[s] for s in states]
    # True is not 1, but equal
    return Column(index[column.index], values if len({*values}) == len(states) else states, column.declared)
