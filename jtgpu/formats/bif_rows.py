"""The tables of BIF files: rows with labels, ``table``, ``default``; `jtgpu.formats.bif` reads the rest.

There are three parsers for the rows of a block, each for what the previous one cannot read: of many rows at once
(`jtgpu.formats.block_reader`), if all rows are plain and the last or the first parent is fastest; of one row at a time;
of one token at a time, which handles comments and finds the position of every error.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ..errors import ParseError, near, shown
from ..util.arrays import Floats
from .block_reader import BlockReader, TableRows, numbers_until, one_each
from .draft import FamilyDraft
from .text import floats, quote, unquote

# A slash may be part of a word unless another slash or a star follows.
_WORD = re.compile(r"(?:[^\s{}()\[\];,|\"/]|/(?![/*]|\Z))+")

# A row without comments: the parents' states, the numbers.
_ROW = re.compile(r'[ \t\r\n]*+\(((?:[^()"/;{}|]++|"[^"\\\r\n]*+")*+)\)([^;"/(){}|]*+);')
_LABEL = re.compile(r'[ \t\r\n]*+(?:("[^"\\]*+")|([^,"]*+))[ \t\r\n]*+(?:,|\Z)')
_NUMBERS = re.compile(r'[^;"/(){}\[\]]*+')


def written(name: str) -> str:
    """A name as written in a file: a plain word if possible, otherwise in double quotes."""
    return name if _WORD.fullmatch(name) else quote(name)


class BifRows(TableRows):
    """The entries of one probability block."""

    # keep_property: reads the property at the cursor
    def __init__(self, reader: BlockReader, family: FamilyDraft, keep_property: Callable[[], None]):
        states = reader.draft.states
        self.parents = [(p, states[p]) for p, _ in family.parents]
        super().__init__(reader, family, [list(map(written, labels)) for _, labels in self.parents])
        self.keep_property = keep_property
        # For each parent, the offset in rows of each of its states; None if two states have the same name.
        self.steps: list[dict[str, int | None]] = []
        step = self.n_rows
        for _, labels in self.parents:
            step //= len(labels)
            known: dict[str, int | None] = {}
            for i, label in enumerate(labels):
                known[label] = None if label in known else i * step
            self.steps.append(known)
        self.plain = True  # try `plain_rows`
        self.rows: list[int] = []  # number of each row listed, in the file's order
        self.default: tuple[Floats, int] | None = None
        self.full: tuple[Floats, int] | None = None

    def block(self, end: int) -> None:
        """Read everything up to the closing brace at `end`, and move past it."""
        tokens = self.tokens
        if tokens.at("(") and self.all_at_once(tokens.start, end):
            tokens.jump(end + 1)
            return
        while not tokens.at("}"):
            start = tokens.start
            if tokens.at("("):
                if self.plain:
                    self.plain_rows()
                if tokens.at("("):
                    self.row()
            elif tokens.at("table"):
                values = self.numbers()
                if self.full is not None:
                    raise self.source.error(start, f"found a second 'table' of {self.family.child!r}")
                self.full = values, start
            elif tokens.at("default"):
                values = self.numbers()
                if self.default is not None:
                    raise self.source.error(start, f"found a second 'default' of {self.family.child!r}")
                if values.size != self.width:
                    raise self.count_error(start, values.size, self.width)
                self.default = values, start
            elif tokens.at("property"):
                self.keep_property()
            else:
                tokens.fail(f"'(', 'table', 'default', 'property' or '}}' in the table of {self.family.child!r}")
        end = tokens.start
        tokens.advance()
        self.assemble(end)

    def count_error(self, at: int, n: int, expected: int) -> ParseError:
        return self.source.error(at, f"found {n} numbers for {self.family.child!r}, expected {expected}")

    # Fast parsers ---------------------------------------------------------------------------------------------

    def plain_rows(self) -> None:
        """Read plain rows up to the first other one, which is left to `row`."""
        text, begin, steps = self.source.text, self.tokens.start, self.steps
        n_commas, n_parents = self.width - 1, len(steps)
        # Most files write ", " between states; with both spellings as keys, no blanks have to be stripped.
        known = [{**d, **{f" {label}": step for label, step in d.items()}} for d in steps]
        parts: list[str] = []
        rows: list[int] = []
        starts: list[int] = []
        match = _ROW.match
        while plain := match(text, begin):
            key, numbers = plain.groups()
            if numbers.count(",") != n_commas:
                break
            fields = key.split(",") if '"' not in key else _labels(key)
            if len(fields) != n_parents:
                break
            row = 0
            for d, label in zip(known, fields, strict=True):
                step = d.get(label)
                if step is None:
                    row = -1
                    break
                row += step
            if row < 0:
                break
            rows.append(row)
            starts.append(plain.start(1) - 1)
            parts.append(numbers)
            begin = plain.end()
        if not parts:
            return
        values = one_each(",".join(parts), len(rows) * self.width)
        if values is None:
            self.plain = False  # one of them is wrong: read the others row by row
            return
        self.rows += rows
        self.at += starts
        self.values.append(values)
        self.tokens.jump(begin)

    # Token by token -------------------------------------------------------------------------------------------

    def row(self) -> None:
        """One row, token by token."""
        tokens = self.tokens
        start = tokens.start
        tokens.advance()
        row = 0
        for (p, labels), known in zip(self.parents, self.steps, strict=True):
            at = tokens.start
            label = self.reader.name(f"a state of the parent {p!r}")
            if label not in known:
                raise self.source.error(
                    at, f"found {shown(label)}, expected a state of the parent {p!r}{near(label, labels)}"
                )
            step = known[label]
            if step is None:
                raise self.source.error(at, f"the parent {p!r} has several states {label!r}: which one is meant?")
            row += step
        if not tokens.at(")"):
            tokens.fail(f"')' after the states of {len(self.parents)} parents")
        values = self.numbers()
        if values.size != self.width:
            raise self.count_error(start, values.size, self.width)
        self.rows.append(row)
        self.at.append(start)
        self.values.append(values)

    def numbers(self) -> Floats:
        """Read the numbers after the current token, and move past the ``;``."""
        tokens = self.tokens
        match = _NUMBERS.match(self.source.text, tokens.end)
        end = match.end() if match else tokens.end
        values = floats(self.source.text[tokens.end : end].replace(",", " "))
        if values is not None:
            tokens.jump(end)
            if tokens.at(";"):
                tokens.advance()
                return values
        else:
            tokens.advance()
            values = np.zeros(0)
        more = numbers_until(tokens, ";")  # comments between the numbers, or an error
        tokens.advance()
        return np.concatenate([values, more])

    def assemble(self, end: int) -> None:
        """Assemble the table from the rows of the block."""
        family, width = self.family, self.width
        size = self.n_rows * width
        if self.full is not None:
            values, at = self.full
            if self.rows or self.default is not None:
                raise self.source.error(
                    at, f"found both 'table' and other numbers for {family.child!r}, expected either"
                )
            family.data_at = at
            family.locate = lambda position: at
            if values.size != size:
                raise self.count_error(at, values.size, size)
            family.numbers = values.reshape(width, -1).T.ravel()
            return
        listed = set(self.rows)
        if len(listed) != len(self.rows):
            seen: set[int] = set()
            for row, at in zip(self.rows, self.at, strict=True):
                if row in seen:
                    raise self.source.error(at, f"the row {self.key(row)} of {family.child!r} occurs a second time")
                seen.add(row)
        n_missing = self.n_rows - len(self.rows)
        if n_missing and self.default is None:
            row = next(r for r in range(self.n_rows) if r not in listed)
            raise self.source.error(
                end,
                f"{n_missing} of {self.n_rows} rows of {family.child!r} are missing, the first for "
                f"{self.key(row)}, and there is no 'default'",
            )
        default, fallback = self.default or (None, family.at)
        self.fill(self.rows, default, fallback, end)

    def key(self, row: int) -> str:
        """The parent states of a row, for messages."""
        labels = []
        for _, states in reversed(self.parents):
            row, i = divmod(row, len(states))
            labels.append(states[i])
        return f"({', '.join(reversed(labels))})"


def _labels(key: str) -> list[str]:
    """A row's labels, some of them in double quotes; none where they are not written plainly."""
    labels, at = [], 0
    while at < len(key):
        label = _LABEL.match(key, at)
        if label is None:
            return []
        labels.append(unquote(label[1]) if label[1] else label[2].rstrip())
        at = label.end()
    return labels
