"""The rows of DSC files' probability blocks; for the rest of the format see `jtgpu.formats.dsc`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import ParseError, shown
from .block_reader import WHOLE, BlockReader, numbers_until
from .draft import Family
from .table_rows import TableRows

EXACT = "// jtgpu_rows = exact"


class DscRows(TableRows):
    """The rows of one probability block."""

    def __init__(self, reader: BlockReader, family: Family):
        self.parents = [reader.draft.states[p] for p, _ in family.parents]
        super().__init__(reader, family, [list(map(str, range(len(states)))) for states in self.parents], " :")
        self.keys: list[list[int]] = []  # the parents' states of each row that is listed
        self.default: NDArray[np.float64] | None = None

    def error(self, at: int, message: str) -> ParseError:
        return self.source.error(at, message)

    def read(self) -> None:
        tokens = self.tokens
        end = self.source.text.find("}", tokens.end)
        self.family.exact = self.source.text.find(EXACT, tokens.end, end) >= 0
        tokens.advance()
        if tokens.at("(") and self.all_at_once(tokens.start, end):
            return
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

    def assemble(self, end: int) -> None:
        family, child = self.family, self.family.child
        for at, key, values in zip(self.at, self.keys, self.values, strict=True):
            # a single bare list may contain the whole table
            is_table = len(self.at) == 1 and not key and values.size == self.n_rows * self.width
            if values.size != self.width and not is_table:
                raise self.error(at, f"found {values.size} numbers for {child!r}, expected {self.width}")
        rows = self.order()
        if rows is None and sum(values.size for values in self.values) == self.n_rows * self.width:
            family.numbers = np.concatenate(self.values)
            starts = self.at if len(self.at) == self.n_rows else []
            family.locate = lambda position: starts[position // self.width] if starts else family.at
            return
        if rows is None:
            rows, self.at, self.values = [], [], []
        missing = self.n_rows - len(rows)
        if missing and self.default is None:
            raise self.error(
                end, f"{missing} of {self.n_rows} rows of {child!r} are missing, and there is no 'default'"
            )
        self.fill(rows, self.default, end, end)

    def order(self) -> list[int] | None:
        """The number in the table of each row that is listed; None if they are listed in order."""
        if all(not key for key in self.keys) and (not self.parents or len(self.keys) in (1, self.n_rows)):
            return None if self.keys else []
        rows: dict[int, None] = {}
        for key, at in zip(self.keys, self.at, strict=True):
            if len(key) != len(self.cards) or any(k >= c for k, c in zip(key, self.cards, strict=True)):
                wrong = f"is not a configuration of the {len(self.cards)} parents of"
            else:
                row = int(np.ravel_multi_index(tuple(key), self.cards)) if key else 0
                if row not in rows:
                    rows[row] = None
                    continue
                wrong = "occurs a second time for"
            what = f"the key ({', '.join(map(str, key))}) {wrong} {self.family.child!r}"
            if len(self.keys) != self.n_rows or self.default is not None:
                raise self.error(at, what)
            self.reader.draft.note(at, f"{what}; its rows are read in order")
            return None
        return list(rows)
