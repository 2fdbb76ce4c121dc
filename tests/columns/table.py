"""What a cell is: the rules of docs/tables.rst as data, for `test_cells`."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np


class Error(str):
    """A pattern that the message of an error contains."""


Expected = tuple[str, ...] | Error
ZERO = Error("")  # any JtgpuError


@dataclass(frozen=True)
class Words:
    """Cells that are texts, and the states that are learned from them if nobody says what they are."""

    cells: tuple[str, ...]
    of_file: Expected  # a text file has words only, so a word may be a number, a moment or missing
    of_words: Expected  # in a typed table a text is a word
    after_comma: Expected | None = None  # of a file whose cells commas separate, if another
    is_object = False

    @property
    def name(self) -> str:
        return "|".join(self.cells)


@dataclass(frozen=True)
class Objects:
    """Cells of a typed table, and the states that are learned from them."""

    cells: tuple[Any, ...]
    states: Expected
    is_object: bool = False  # only tables of Python objects can have them

    @property
    def name(self) -> str:
        return "|".join(f"{type(c).__name__} {c}" for c in self.cells if type(c) is not object)


@dataclass(frozen=True)
class Cell:
    """A cell of a variable of a network, and the state that it is; None: missing."""

    states: tuple[str, ...]
    cell: Any
    state: str | Error | None  # in a text file; typed: everywhere
    of_words: Any = ...  # in typed tables and single cases, if another

    @property
    def name(self) -> str:
        return f"{'|'.join(self.states)}: {type(self.cell).__name__} {self.cell}"

    @property
    def is_object(self) -> bool:
        return not isinstance(self.cell, str)


Row = Words | Objects
DAY, NEXT = datetime.date(2024, 8, 28), datetime.date(2024, 8, 29)
NOON = datetime.datetime(2024, 8, 28, 12, 30)
MIDNIGHT, AFTER = datetime.datetime(2024, 8, 28), datetime.datetime(2024, 8, 29)
BIG = 12345678901234567

LEARNED_WORDS = [
    Words(("1", "2"), ("1", "2"), ("1", "2")),
    Words(("10", "9"), ("9", "10"), ("9", "10")),
    Words(("1.0", "1", "2"), ("1", "2"), ("1", "1.0", "2")),
    Words(("1.50", "1.5", "2"), ("1.5", "2"), ("1.5", "1.50", "2")),
    Words(("01", "1"), ("01", "1"), ("01", "1")),
    Words(("1E2", "100"), ("100", "1E2"), ("100", "1E2")),
    Words(("+1", "1"), ("+1", "1"), ("+1", "1")),
    Words(("007", "12"), ("007", "12"), ("007", "12")),
    Words(("12345678901234567891", "7"), ("7", "12345678901234567891"), ("7", "12345678901234567891")),
    Words(("9007199254740993", "9007199254740992"), ("9007199254740992", "9007199254740993"),
          ("9007199254740992", "9007199254740993")),
    Words(("0.1", "0.10000000000000001", "2"), ("0.1", "0.10000000000000001", "2"),
          ("0.1", "0.10000000000000001", "2")),
    Words(("1E2", "7"), ("7", "100"), ("1E2", "7")),
    Words(("+1", "-1"), ("-1", "1"), ("+1", "-1")),
    Words(("-0", "1"), ("0", "1"), ("-0", "1")),
    Words(("true", "TRUE", "False"), ("False", "True"), ("False", "TRUE", "true")),
    Words(("true", "1"), ("1", "true"), ("1", "true")),
    Words(("a", "a ", " a", "b"), ("a", "b"), ("a", "b")),
    Words(("North", "north"), ("North", "north"), ("North", "north")),
    Words(("", "a", "b"), ("a", "b"), ("", "a", "b")),
    Words(("  ", "a", "b"), ("a", "b"), ("", "a", "b")),
    Words(("NA", "a", "b"), ("a", "b"), ("NA", "a", "b")),
    Words(("None", "1", "2"), ("1", "2"), ("1", "2", "None")),
    Words(("nan", "a", "b"), ("a", "b"), ("a", "b", "nan")),
    Words(("2024-08-28", "2024-08-29"), ("2024-08-28", "2024-08-29"), ("2024-08-28", "2024-08-29")),
    Words(("2024-08-28 00:00", "2024-08-29 00:00"), ("2024-08-28", "2024-08-29"),
          ("2024-08-28 00:00", "2024-08-29 00:00")),
    Words(("2024-08-28T12:30:00", "2024-08-29T00:00:00"), ("2024-08-28T12:30:00", "2024-08-29T00:00:00"),
          ("2024-08-28T12:30:00", "2024-08-29T00:00:00")),
    Words(("2024-08-28T12:30:00.123456789", "2024-08-28T12:30:00.123456"),  # no microseconds
          ("2024-08-28T12:30:00.123456", "2024-08-28T12:30:00.123456789"),
          ("2024-08-28T12:30:00.123456", "2024-08-28T12:30:00.123456789")),
    Words(("01.02.2024", "3/4/24"), ("01.02.2024", "3/4/24"), ("01.02.2024", "3/4/24")),
    Words(("0x1F", "1_000"), ("0x1F", "1_000"), ("0x1F", "1_000")),
    Words(("12 %", "7 %"), ("12 %", "7 %"), ("12 %", "7 %")),
    Words(("53,0", "7,5"), ("7.5", "53"), ("53,0", "7,5"), ("53,0", "7,5")),
    Words(("inf", "a"), ("a", "inf"), ("a", "inf")),
    Words(("ja", "über"), ("ja", "über"), ("ja", "über")),
    Words(('5" pipe', "a,b;c"), ('5" pipe', "a,b;c"), ('5" pipe', "a,b;c")),
    Words(("a\nb", "c"), ("a\nb", "c"), ("a\nb", "c")),
]  # fmt: skip

LEARNED_OBJECTS = [
    Objects((1, 2), ("1", "2")),
    Objects((10, 9), ("9", "10")),
    Objects((1.0, 2.0), ("1", "2")),
    Objects((1.0, None, 2.0), ("1", "2")),
    Objects((1, None, 2), ("1", "2")),
    Objects((0.5, 1.5), ("0.5", "1.5")),
    Objects((1e-05, 2.0), ("1e-05", "2")),
    Objects((-0.0, 1.0), ("0", "1")),
    Objects((Decimal("1.50"), Decimal("2.00")), ("1.5", "2")),
    Objects((BIG, BIG + 1), (str(BIG), str(BIG + 1))),
    Objects((-BIG, -BIG - 1), (str(-BIG - 1), str(-BIG))),
    Objects((1e22, 5.0), ("5", "1e+22")),
    Objects((Decimal(f"{BIG}.25"), Decimal(f"{BIG}.5")), (f"{BIG}.25", f"{BIG}.5")),
    Objects((Decimal("0.10"), None, Decimal("0.25")), ("0.1", "0.25")),
    Objects((2**63, 2**63 + 1), (str(2**63), str(2**63 + 1))),
    Objects((True, False), ("False", "True")),
    Objects((True, None, False), ("False", "True")),
    Objects((None, "a", "b"), ("a", "b")),
    Objects((DAY, NEXT), ("2024-08-28", "2024-08-29")),
    Objects((MIDNIGHT, AFTER), ("2024-08-28", "2024-08-29")),
    Objects((NOON, AFTER), ("2024-08-28T12:30:00", "2024-08-29T00:00:00")),
    Objects((b"a", b"b"), ("a", "b")),
    Objects((b"\xff", b"a"), Error("'?x'?")),
    Objects((NOON.time(), MIDNIGHT.time()), ZERO),
    Objects((AFTER - NOON, AFTER - MIDNIGHT), ZERO),
    Objects((float("inf"), 1.0), Error("inf")),
    Objects((np.float32(0.1), np.float32(2)), ("0.1", "2"), True),
    Objects((True, 2), ("2", "True"), True),
    Objects((True, 1), ("1", "True"), True),
    Objects((2**70, 1), ("1", str(2**70)), True),
    Objects((("a",), ("b",)), Error("'?x'?"), True),
    Objects((Decimal("Infinity"), 1), Error("'?x'?"), True),
    Objects((1 + 2j, 1), Error("'?x'?"), True),
    Objects((object(), 1), Error("'?x'?"), True),
]

YES, CODES, LEAD, TRUTH = ("yes", "no"), ("0", "1"), ("01", "1"), ("True", "False")
HALVES, DAYS = ("(-inf, 2)", "[2, inf)"), ("2024-08-28", "2024-08-29")
SPANS, NUMBERS = ("[2024-05-03, 2024-08-15)", "[2024-08-15, 2024-12-31]"), ("1", "2.5", "10")
NO = Error("'?x'?")

READ_WORDS = [
    Cell(YES, "yes", "yes"), Cell(YES, " yes ", "yes"), Cell(YES, "1", NO), Cell(YES, "0", NO), Cell(YES, "true", NO),
    Cell(YES, "YES", NO), Cell(YES, "ja", NO), Cell(YES, "", None, NO), Cell(YES, "NA", None, NO),
    Cell(("NA", "b"), "NA", "NA"), Cell(("", "b"), "b", "b"),
    Cell(CODES, "1", "1"), Cell(CODES, "1.0", "1"), Cell(CODES, "true", "1"), Cell(CODES, "0", "0"),
    Cell(CODES, "+1", "1"), Cell(CODES, "2", NO), Cell(CODES, "2024-08-28", NO),
    Cell(LEAD, "1", "1"), Cell(LEAD, "01", "01"), Cell(LEAD, "1.0", NO), Cell(LEAD, "001", NO), Cell(LEAD, "true", NO),
    Cell(("007", "12"), "7", NO), Cell(("007", "12"), "007", "007"), Cell(("007", "12"), "12", "12"),
    Cell(TRUTH, "True", "True"), Cell(TRUTH, "true", "True"), Cell(TRUTH, "FALSE", "False"), Cell(TRUTH, "1", "True"),
    Cell(TRUTH, "0", "False"), Cell(TRUTH, "2", NO),
    Cell(HALVES, "1", "(-inf, 2)"), Cell(HALVES, "2.0", "[2, inf)"), Cell(HALVES, "1e2", "[2, inf)"),
    Cell(HALVES, "[2, inf)", "[2, inf)"), Cell(HALVES, "high", NO), Cell(HALVES, "true", NO),
    Cell(HALVES, "2024-08-28", NO),
    Cell(NUMBERS, "2.50", "2.5"), Cell(NUMBERS, "1e1", "10"), Cell(NUMBERS, "3", NO),
    Cell(DAYS, "2024-08-28", "2024-08-28"), Cell(DAYS, "2024-08-28 00:00:00", "2024-08-28"), Cell(DAYS, "1", NO),
    Cell(DAYS, "2024-08-30", NO), Cell(SPANS, "2024-06-01", SPANS[0]), Cell(SPANS, "2024-08-15", SPANS[1]),
    Cell(SPANS, "2023-08-15", NO), Cell(SPANS, "7", NO),
]  # fmt: skip

READ_OBJECTS = [
    Cell(YES, 1, NO), Cell(YES, 0, NO), Cell(YES, 1.0, NO), Cell(YES, Decimal(1), NO), Cell(YES, True, NO),
    Cell(YES, DAY, NO), Cell(YES, None, None), Cell(YES, float("nan"), None),
    Cell(CODES, 1, "1"), Cell(CODES, 1.0, "1"), Cell(CODES, Decimal(1), "1"), Cell(CODES, True, "1"),
    Cell(CODES, False, "0"), Cell(CODES, 2, NO), Cell(CODES, DAY, NO), Cell(CODES, float("inf"), NO),
    Cell(LEAD, 1, "1"), Cell(LEAD, 1.0, "1"), Cell(LEAD, Decimal(1), "1"), Cell(LEAD, True, NO), Cell(LEAD, DAY, NO),
    Cell(("007", "12"), 7, NO), Cell(("007", "12"), 12, "12"),
    Cell(TRUTH, True, "True"), Cell(TRUTH, False, "False"), Cell(TRUTH, 1, "True"), Cell(TRUTH, 0.0, "False"),
    Cell(TRUTH, 2, NO), Cell(TRUTH, DAY, NO),
    Cell(HALVES, 1, "(-inf, 2)"), Cell(HALVES, 1.9, "(-inf, 2)"), Cell(HALVES, Decimal("2.5"), "[2, inf)"),
    Cell(HALVES, True, NO), Cell(HALVES, DAY, NO), Cell(HALVES, float("nan"), None),
    Cell(NUMBERS, 2.5, "2.5"), Cell(NUMBERS, Decimal("2.50"), "2.5"), Cell(NUMBERS, 10, "10"), Cell(NUMBERS, 3, NO),
    Cell(DAYS, DAY, "2024-08-28"), Cell(DAYS, MIDNIGHT, "2024-08-28"), Cell(DAYS, NOON, NO), Cell(DAYS, 1, NO),
    Cell(DAYS, None, None), Cell(SPANS, datetime.date(2024, 6, 1), SPANS[0]),
    Cell(SPANS, datetime.datetime(2024, 8, 14, 23), SPANS[0]), Cell(SPANS, 7, NO),
]  # fmt: skip
