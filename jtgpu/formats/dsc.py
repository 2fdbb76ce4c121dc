"""DSC, the format of Microsoft's MSBN, also written by bnlearn: reader.

* ``probability ( X | A, B ) { (0, 1) : 0.9, 0.1; ... }``: rows are identified by their parents' states, as numbers from
  0 or quoted names; a table without parents is a bare row; ``default`` fills rows that are not listed.
* Some programs write invalid keys: all equal, or of a wrong length. If the number of rows is right, they are then read
  in order, the first parent slowest.
* ``:``, ``=`` and ``is`` are equivalent. Attributes: ``label`` (``name``) and ``position``.
* The comment `EXACT` of jtgpu in a table, ignored by other programs, says that its rows must not be normalised although
  they sum to 1 only within the tolerance of the network.
"""

from __future__ import annotations

import math
import re
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ParseError, shown
from .canonical_nodes import MAX_EXPANDED
from .draft import Draft, Family, parser_of
from .text import Source, Tokens, floats, unquote

EXACT = "// jtgpu_rows = exact"

_SKIP = r"(?:[ \t\r\n\f\v]++|//[^\r\n]*+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/)*+"
_TOKEN = re.compile(
    _SKIP + r'(?:(?P<word>(?:[^\s{}()\[\]=:;,|"/]|/(?![/*]))++)|(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")'
    r"|(?P<mark>[{}()\[\]=:;,|])|(?P<end>\Z)|(?P<other>.))",
    re.DOTALL,
)
_START = re.compile(_SKIP + r"belief\s++network\b")
PART = 1 << 18  # characters of rows parsed at a time
_WHOLE = re.compile(r"[0-9]{1,9}")
_ROW = re.compile(r"\s*+\(([^():;]*+)\)\s*+:([^():;]*+)")


def sniff(text: str) -> bool:
    """Whether a text begins like a DSC file."""
    return _START.match(text) is not None


def parse_draft(text: str, source: str = "<text>") -> Draft:
    """Read the text of a DSC file, with the numbers as written."""
    draft = _Reader(Source(text, source)).file()
    draft.shape()
    return draft


parse = parser_of(parse_draft)


class _Reader:
    """Reads a file in two passes: the nodes, then the tables, which need the numbers of states."""

    def __init__(self, source: Source):
        self.source = source
        self.tokens = Tokens(source, _TOKEN)
        self.draft = Draft(source, "DSC")
        self.n_filled = 0

    def file(self) -> Draft:
        tokens, draft = self.tokens, self.draft
        tokens.expect("belief", "at the beginning of a DSC file")
        tokens.expect("network", "after 'belief'")
        if tokens.kind == "string" or (tokens.kind == "word" and not tokens.at("node", "probability", "properties")):
            draft.name = self.name("the network's name")
        if tokens.at("{"):
            self.skip_braces()
        if tokens.at(";"):
            tokens.advance()
        tables = []
        while tokens.kind != "end":
            if tokens.at("node"):
                self.node()
            elif tokens.at("probability"):
                tables.append(tokens.start)
                tokens.advance()
                while not tokens.at(")", "{", "}", ";") and tokens.kind in ("word", "string", "mark"):
                    tokens.advance()
                if tokens.at(")"):
                    tokens.advance()
                if tokens.at("{"):
                    self.skip_braces()
                elif tokens.at(";"):
                    tokens.advance()
                else:
                    tokens.fail("'{' after the table's variables")
            elif tokens.at("properties"):
                tokens.advance()
                self.skip_braces()
            else:
                tokens.fail("'node', 'probability' or 'properties'")
        for start in tables:
            tokens.jump(start)
            self.table()
        for v, at in draft.declared.items():
            if v not in draft.families:
                raise self.source.error(at, f"the node {v!r} has no probability block")
        return draft

    def skip_braces(self) -> None:
        """Move past a block in braces, whatever its contents."""
        tokens, at = self.tokens, self.tokens.start
        text = self.source.text
        if not tokens.at("{"):
            tokens.fail("'{'")
        end = text.find("}", at)
        if end >= 0 and all(text.find(odd, at + 1, end) < 0 for odd in ('"', "/", "{")):
            tokens.jump(end + 1)
            return
        depth = 0
        while True:
            depth += tokens.at("{") - tokens.at("}")
            if tokens.kind in ("end", "other"):
                tokens.fail(f"the '}}' of the block that begins in line {self.source.place(at)[0]}")
            tokens.advance()
            if depth == 0:
                return

    def name(self, what: str) -> str:
        tokens = self.tokens
        if tokens.kind == "string":
            return unquote(tokens.take())
        if tokens.kind != "word":
            tokens.fail(what)
        return tokens.take()

    def means(self) -> None:
        """Move past a ``:``, ``=`` or ``is``."""
        if not self.tokens.at(":", "=", "is"):
            self.tokens.fail("':'")
        self.tokens.advance()

    # Nodes ----------------------------------------------------------------------------------------------------

    def node(self) -> None:
        tokens, draft = self.tokens, self.draft
        tokens.advance()
        at = tokens.start
        name = self.name("the node's name")
        if name in draft.states:
            raise self.source.error(at, f"the node {name!r} is declared a second time")
        tokens.expect("{", f"to begin the node {name!r}")
        kept: dict[str, Any] = {}
        states: tuple[str, ...] | None = None
        while not tokens.at("}"):
            if tokens.at("type") and states is None:
                tokens.advance()
                states = self.type(name)
            elif tokens.at("name"):
                tokens.advance()
                self.means()
                kept["label"] = self.name("the node's label")
            elif tokens.at("position"):
                tokens.advance()
                self.position(kept)
            else:
                self.skip_attribute(name)
            if tokens.at(";"):
                tokens.advance()
            elif not tokens.at("}"):
                tokens.fail("';'")
        tokens.advance()
        if states is None:
            raise self.source.error(at, f"the node {name!r} has no type")
        draft.states[name], draft.declared[name] = states, at
        if kept.get("label") == name:
            del kept["label"]
        if kept:
            draft.attributes["node"][name] = kept

    def skip_attribute(self, owner: str) -> None:
        tokens = self.tokens
        while not tokens.at(";", "}"):
            if tokens.kind in ("end", "other"):
                tokens.fail(f"';' or '}}' in the node {owner!r}")
            if tokens.at("{"):
                self.skip_braces()
            else:
                tokens.advance()

    def position(self, kept: dict[str, Any]) -> None:
        tokens = self.tokens
        self.means()
        tokens.expect("(", "before the position")
        numbers = []
        while not tokens.at(")"):
            if not tokens.at(","):
                numbers.append(self.name("a number, or ')'"))
            else:
                tokens.advance()
        tokens.advance()
        if len(numbers) == 2 and all(re.fullmatch(r"-?[0-9]{1,9}", n) for n in numbers):
            kept["position"] = tuple(map(int, numbers))

    def type(self, name: str) -> tuple[str, ...]:
        """``type : discrete [ 2 ] = { "yes", "no" };``"""
        tokens = self.tokens
        self.means()
        if not tokens.at("discrete", "choice"):
            tokens.fail(f"'discrete': the type of {name!r} is not supported")
        tokens.advance()
        at, n_states = tokens.start, -1
        if tokens.at("["):
            tokens.advance()
            at = tokens.start
            if _WHOLE.fullmatch(tokens.text) is None:
                tokens.fail("the number of states")
            n_states = int(tokens.take())
            tokens.expect("]", "after the number of states")
        if tokens.at("=", ":", "is", "of"):
            tokens.advance()
        tokens.expect("{", "before the states")
        states = []
        while not tokens.at("}"):
            states.append(self.name("a state, or '}'"))
            if tokens.at(","):
                tokens.advance()
        tokens.advance()
        if n_states not in (-1, len(states)):
            raise self.source.error(at, f"found {len(states)} states of {name!r}, expected {n_states}")
        if not states:
            raise self.source.error(at, f"the node {name!r} has no states")
        return tuple(states)

    # Tables ---------------------------------------------------------------------------------------------------

    def table(self) -> None:
        tokens, draft = self.tokens, self.draft
        tokens.advance()
        tokens.expect("(", "after 'probability'")
        at = tokens.start
        family = Family(self.name("a node's name"), [], at, data_at=at)
        if tokens.at("|"):
            tokens.advance()
        while not tokens.at(")"):
            start = tokens.start
            family.parents.append((self.name("')', or a parent's name"), start))
            if tokens.at(","):
                tokens.advance()
        tokens.advance()
        if family.child in draft.families:
            raise self.source.error(at, f"found a second probability block of {family.child!r}, expected one")
        draft.check_names(family)
        draft.families[family.child] = family
        if tokens.at("{"):
            _Table(self, family).read()


class _Table:
    """The rows of one probability block."""

    def __init__(self, reader: _Reader, family: Family):
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
            if tokens.kind == "word" and _WHOLE.fullmatch(tokens.text):
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
        tokens, found = self.tokens, []
        while not tokens.at(";", "}"):
            one = floats(tokens.text) if tokens.kind == "word" else None
            if one is None:
                tokens.fail("a number, or ';'")
            found.append(one)
            tokens.advance()
            if tokens.at(","):
                tokens.advance()
        if tokens.at(";"):
            tokens.advance()
        return np.concatenate(found) if found else np.zeros(0)

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
                found = self.plain_rows(rows)
                if found is None:
                    return False
                order[done : done + len(rows)] = found[0]
                table[found[0]] = found[1]
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
