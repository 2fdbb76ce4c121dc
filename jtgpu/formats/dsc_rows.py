"""The rows of DSC files' probability blocks; for the rest of the format see `jtgpu.formats.dsc`."""

from __future__ import annotations

import math
import re
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from ..errors import ParseError, shown
from .block_reader import WHOLE, BlockReader, numbers_until
from .canonical_nodes import MAX_EXPANDED
from .draft import Family
from .text import floats

EXACT = "// jtgpu_rows = exact"
PART = 1 << 18  # characters of rows parsed at a time
_ROW = re.compile(r"\s*+\(([^():;]*+)\)\s*+:([^():;]*+)")


class Table:
    """The rows of one probability block."""

    def __init__(self, reader: BlockReader, family: Family):
        self.reader, self.tokens, self.source, self.family = reader, reader.tokens, reader.source, family
        states = reader.draft.states
        self.parents = [states[p] for p, _ in family.parents]
        self.cards = [len(labels) for labels in self.parents]
        self.n_rows, self.width = math.prod(self.cards), len(states[family.child])
        self.keys: list[list[int]] = []
        self.at: list[int] = []
        self.values: list[NDArray[np.float64]] = []
        self.default: NDArray[np.float64] | None = None

    def error(self, at: int, message: str) -> ParseError:
        return self.source.error(at, message)

    def read(self) -> None:
        tokens = self.tokens
        begin = tokens.end
        end = self.source.text.find("}", begin)
        self.family.exact = self.source.text.find(EXACT, begin, end) >= 0
        if self.parents and self.plain(begin, end):
            return
        tokens.advance()
        while not tokens.at("}"):
            at = tokens.start
            if tokens.at("("):
                key = self.key()
                tokens.advance()
                if not tokens.at(":", "=", "is"):
                    tokens.fail("':' after the parents' states")
                tokens.advance()
                self.row(at, key)
            elif tokens.at("default"):
                tokens.advance()
                if tokens.at(":", "=", "is"):
                    tokens.advance()
                values = self.numbers()
                if self.default is not None or values.size != self.width:
                    what = "found a second 'default'" if self.default is not None else f"found {values.size} numbers"
                    raise self.error(at, f"{what} of {self.family.child!r}, expected {self.width} numbers, once")
                self.default = values
            elif tokens.at("function"):
                raise self.error(at, f"{self.family.child!r} is given by a function, which is not supported")
            else:
                self.row(at, [])
        self.assemble(tokens.start)

    def key(self) -> list[int]:
        """The parents' states of a row, up to the ``)``."""
        tokens = self.tokens
        tokens.advance()
        key: list[int] = []
        while not tokens.at(")"):
            labels = self.parents[len(key)] if len(key) < len(self.parents) else ()
            if tokens.kind == "word" and WHOLE.fullmatch(tokens.text):
                key.append(int(tokens.take()))
            else:
                start = tokens.start
                label = self.name()
                if labels.count(label) != 1:
                    raise self.error(start, f"found {shown(label)}, expected the number or the name of a state")
                key.append(labels.index(label))
            if tokens.at(","):
                tokens.advance()
        return key

    def name(self) -> str:
        return self.reader.name("a state's number or name, or ')'")

    def row(self, at: int, key: list[int]) -> None:
        self.keys.append(key)
        self.at.append(at)
        self.values.append(self.numbers())

    def numbers(self) -> NDArray[np.float64]:
        """Read the numbers at the cursor up to the ``;``, which is optional after the last row."""
        values = numbers_until(self.tokens, ";", "}")
        self.reader.pass_over(";")
        return values

    def plain(self, begin: int, end: int) -> bool:
        """Read the whole block if it consists of rows ``(0, 1) : 0.9, 0.1;``; False, without effect, if not.

        The text is processed in parts, so that only the table grows with it.
        """
        text, width, n = self.source.text, self.width, self.n_rows
        if 2 * n * width > end - begin:  # a number takes at least two characters
            return False
        table, order = np.empty((n, width)), np.full(n, -1, np.intp)
        done, at = 0, begin
        while at < end:
            stop = text.find(";", at + PART, end) + 1 or end
            rows = text[at:stop].split(";")
            at = stop
            if rows.pop().strip() or done + len(rows) > n:
                return False
            if rows:
                parsed = self.plain_rows(rows)
                if parsed is None:
                    return False
                order[done : done + len(rows)], table[parsed[0]] = parsed[0], parsed[1]
                done += len(rows)
        if done != n or np.bincount(order, minlength=n).max() > 1:
            return False
        self.family.numbers = table.ravel()
        self.family.locate = lambda position: self.nth(begin, int(np.flatnonzero(order == position // width)[0]))
        return True

    def plain_rows(self, rows: list[str]) -> tuple[NDArray[np.intp], NDArray[np.float64]] | None:
        """Positions in the table and numbers of some rows; None if one of them is not plain."""
        parts = [m.groups() for m in map(_ROW.fullmatch, rows) if m is not None]
        n_commas, n = self.width - 1, len(self.cards)
        if len(parts) != len(rows) or any(numbers.count(",") != n_commas for _, numbers in parts):
            return None
        keys = floats(",".join([key for key, _ in parts]), blanks=",")
        values = floats(",".join([numbers for _, numbers in parts]), blanks=",")
        if keys is None or values is None or keys.size != n * len(rows) or values.size != self.width * len(rows):
            return None
        if any(key.count(",") != n - 1 for key, _ in parts):
            return None
        number = keys.reshape(-1, n)
        if not ((number >= 0) & (number < self.cards) & (number == np.floor(number))).all():
            return None
        order = np.ravel_multi_index(tuple(number.astype(np.intp).T), self.cards)
        return np.asarray(order, np.intp), values.reshape(-1, self.width)

    def nth(self, begin: int, row: int) -> int:
        """Offset of a row of the block."""
        text, at = self.source.text, begin
        for _ in range(row):
            at = text.find(";", at) + 1
        return text.find("(", at)

    def assemble(self, end: int) -> None:
        family, child = self.family, self.family.child
        for at, values in zip(self.at, self.values, strict=True):
            # a single bare list may contain the whole table
            if values.size != self.width and not (len(self.at) == 1 and values.size == self.n_rows * self.width):
                raise self.error(at, f"found {values.size} numbers for {child!r}, expected {self.width}")
        numbers = list(chain.from_iterable(v.tolist() for v in self.values))
        rows = self.order(end)
        if len(numbers) == self.n_rows * self.width and rows is None:
            family.numbers = np.array(numbers)
            starts = self.at if len(self.at) == self.n_rows else []
            family.locate = lambda position: next(islice(starts, position // self.width, None), family.at)
            return
        rows = rows or {}
        missing = self.n_rows - len(rows)
        if missing and self.default is None:
            raise self.error(
                end, f"{missing} of {self.n_rows} rows of {child!r} are missing, and there is no 'default'"
            )
        self.reader.n_filled += missing * self.width
        if self.reader.n_filled > MAX_EXPANDED:
            raise self.error(end, f"the 'default' of {child!r} would fill {missing * self.width} numbers")
        table = np.empty((self.n_rows, self.width))
        if self.default is not None:
            table[:] = self.default
        for row, i in rows.items():
            table[row] = self.values[i]
        family.numbers = table.ravel()
        places = {row: self.at[i] for row, i in rows.items()}
        family.locate = lambda position: places.get(position // self.width, end)

    def order(self, end: int) -> dict[int, int] | None:
        """For each row of the table its row in the block; None if the orders are the same."""
        if all(not key for key in self.keys) and (not self.parents or len(self.keys) in (1, self.n_rows)):
            return None if self.keys or self.n_rows == 0 else {}
        rows: dict[int, int] = {}
        wrong = ""
        at = end
        for i, key in enumerate(self.keys):
            if len(key) != len(self.cards) or any(k >= c for k, c in zip(key, self.cards, strict=True)):
                wrong, at = f"is not a configuration of the {len(self.cards)} parents of", self.at[i]
                break
            row = int(np.ravel_multi_index(tuple(key), self.cards)) if key else 0
            if row in rows:
                wrong, at = "occurs a second time for", self.at[i]
                break
            rows[row] = i
        if not wrong:
            return rows
        shown_key = f"({', '.join(map(str, self.keys[self.at.index(at)]))})"
        if len(self.keys) == self.n_rows and self.default is None:
            self.reader.draft.note(
                at, f"the key {shown_key} {wrong} {self.family.child!r}; its rows are read in order"
            )
            return None
        raise self.error(at, f"the key {shown_key} {wrong} {self.family.child!r}")
