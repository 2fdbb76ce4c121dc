"""The common parts of readers of nodes and tables in braces (BIF, DSC, DSL): tokens, names, states, families, rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

from ..util.arrays import Floats
from .draft import Draft, FamilyDraft
from .text import SourceText, Tokens, floats, unquote

WHOLE = re.compile(r"[0-9]{1,9}")
_BLANKS = b" \t\r\n\f\v"
MAX_FILL = 1 << 24  # numbers that all `default` entries of a file may imply
PART = 1 << 16  # characters of rows parsed at a time


def skipped(more: str = "", blanks: str = "") -> str:
    """The pattern of white space, ``//`` and ``/* */``, which is skipped; `more` comments and `blanks` too."""
    return rf"(?:[ \t\r\n\f\v{blanks}]++|//[^\r\n]*+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/{more})*+"


def token_pattern(skip: str, marks: str, blanks: str = "", comment: str = "/*") -> re.Pattern[str]:
    """The tokens of a format: words, strings and single marks. A slash that begins a `comment` ends a word."""
    return re.compile(
        rf'{skip}(?:(?P<word>(?:[^\s{{}}(){marks}{blanks}"/]|/(?![{comment}]))++)|(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")'
        rf"|(?P<mark>[{{}}(){marks}])|(?P<end>\Z)|(?P<other>.))",
        re.DOTALL,
    )


class BlockReader:
    """A text, its tokens, and the draft that they fill."""

    kind = "node"  # what messages call a variable

    def __init__(self, source: SourceText, pattern: re.Pattern[str], format_name: str):
        self.source = source
        self.tokens = Tokens(source, pattern)
        self.draft = Draft(source, format_name)
        self.n_filled = 0  # numbers that `default` entries implied so far

    def name(self, what: str) -> str:
        """The name at the cursor; `what` is expected."""
        tokens = self.tokens
        if tokens.kind == "string":
            return unquote(tokens.take())
        if tokens.kind != "word":
            tokens.fail(what)
        return tokens.take()

    def pass_over(self, *marks: str) -> None:
        """Move past one of some marks, if it is there."""
        if self.tokens.at(*marks):
            self.tokens.advance()

    def new_name(self) -> tuple[str, int]:
        """The name of a variable that is declared here, and its offset."""
        at = self.tokens.start
        name = self.name(f"the {self.kind}'s name")
        if self.draft.has(name):
            raise self.source.error(at, f"the {self.kind} {name!r} is declared a second time")
        return name, at

    def states(self, name: str, kinds: tuple[str, ...], after_count: tuple[str, ...], end: str) -> tuple[str, ...]:
        """``discrete [ 2 ] { yes, no }`` and the like."""
        # kinds: words that say that the variable is discrete
        # after_count: marks of which one may follow the number of states
        # end: a mark that has to follow the states; empty for none
        tokens = self.tokens
        if not tokens.at(*kinds):
            tokens.fail(f"'discrete': the type of {name!r} is not supported")
        tokens.advance()
        at, n_states = tokens.start, -1
        if tokens.at("["):
            tokens.advance()
            at = tokens.start
            if WHOLE.fullmatch(tokens.text) is None:
                tokens.fail("the number of states")
            n_states = int(tokens.take())
            tokens.expect("]", "after the number of states")
        self.pass_over(*after_count)
        tokens.expect("{", "before the states")
        states = []
        while not tokens.at("}"):
            states.append(self.name("a state, or '}'"))
            self.pass_over(",")
        tokens.advance()
        if end:
            tokens.expect(end, "after the states")
        if n_states not in (-1, len(states)):
            raise self.source.error(at, f"found {len(states)} states of {name!r}, expected {n_states}")
        if not states:
            raise self.source.error(at, f"the {self.kind} {name!r} has no states")
        return tuple(states)

    def family(self) -> FamilyDraft:
        """``probability ( child | parents )``, of declared variables."""
        tokens, draft = self.tokens, self.draft
        tokens.advance()
        tokens.expect("(", "after 'probability'")
        at = tokens.start
        family = FamilyDraft(self.name(f"a {self.kind}'s name"), [], at, data_at=at)
        self.pass_over("|")
        while not tokens.at(")"):
            start = tokens.start
            family.parents.append((self.name("')', or a parent's name"), start))
            self.pass_over(",")
        tokens.advance()
        if family.child in draft.families:
            raise self.source.error(at, f"found a second probability block of {family.child!r}, expected one")
        draft.check_names(family)
        return family


def numbers_until(tokens: Tokens, *ends: str, any_commas: bool = False) -> Floats:
    """The numbers at the cursor up to one of some marks, token by token; a comma may follow each."""
    # any_commas: whether commas may also stand where no number is before them
    parts = []
    while not tokens.at(*ends):
        if not (any_commas and tokens.at(",")):
            one = floats(tokens.text) if tokens.kind == "word" else None
            if one is None:
                tokens.fail(f"a number, or {ends[0]!r}")
            parts.append(one)
            tokens.advance()
        if tokens.at(","):
            tokens.advance()
    return np.concatenate(parts) if parts else np.zeros(0)


# Rows of a table, each after its parents' states: reading all at once, and assembling.

class TableRows:
    """The rows of one probability block."""

    # labels: of each parent, its states as they are written
    # colon: what follows the parents' states
    def __init__(self, reader: BlockReader, family: FamilyDraft, labels: Sequence[Sequence[str]], colon: str = ""):
        self.reader, self.tokens, self.source, self.family = reader, reader.tokens, reader.source, family
        self.labels, self.colon = labels, colon
        self.cards = [len(states) for states in labels]
        self.n_rows, self.width = math.prod(self.cards), len(reader.draft.states[family.child])
        self.at: list[int] = []  # offset of each row that is listed
        self.values: list[Floats] = []  # its numbers

    def fill(self, rows: Sequence[int], default: Floats | None, otherwise: int, end: int) -> None:
        """Make the table of the rows listed, by number, and of `default`; `otherwise` is the offset of the others."""
        family, width = self.family, self.width
        n_missing = self.n_rows - len(rows)
        self.reader.n_filled += n_missing * width
        if self.reader.n_filled > MAX_FILL:
            raise self.source.error(end, f"the 'default' of {family.child!r} would fill {n_missing * width} numbers")
        table = np.empty((self.n_rows, width))
        if default is not None:
            table[:] = default
        if self.values:
            table[np.array(rows)] = np.concatenate(self.values).reshape(-1, width)
        family.numbers = table.ravel()
        places = dict(zip(rows, self.at, strict=True))
        family.locate = lambda position: places.get(position // width, otherwise)

    def all_at_once(self, begin: int, end: int) -> bool:
        """Read the whole block if its rows are plain and in one of the two orders, else do nothing; whether it was."""
        text = self.source.text
        # a number takes at least two characters; limits the memory that a short file can claim
        if 2 * self.n_rows * self.width > end - begin or any(len(set(s)) < len(s) for s in self.labels):
            return False
        second = text.find(";", begin, end) + 1
        head = text[begin:second], text[second : text.find(";", second, end) + 1].lstrip()
        for forward, comma in product((True, False), (", ", ",")):
            first = islice(self.heads(forward, comma), 2)
            if all(row.startswith(key) for row, key in zip(head, first, strict=False)):
                table = self.in_order(begin, end, self.heads(forward, comma), forward)
                if table is not None:
                    self.family.numbers = table
                return table is not None
        return False

    def heads(self, forward: bool, comma: str) -> Iterator[str]:
        """The beginnings of all rows, with the last or the first parent fastest."""
        if forward:
            return (f"({comma.join(key)}){self.colon}" for key in product(*self.labels))
        return (f"({comma.join(key[::-1])}){self.colon}" for key in product(*self.labels[::-1]))

    def in_order(self, begin: int, end: int, keys: Iterator[str], forward: bool) -> Floats | None:
        """The numbers of rows that begin with `keys`, in the order of the network; None if a row does not."""
        text, width = self.source.text, self.width
        out = np.empty((self.n_rows, width))
        done, at = 0, begin
        while at < end:
            stop = text.find(";", at + PART, end)
            stop = end if stop < 0 else stop + 1
            rows = list(map(str.lstrip, text[at:stop].split(";")))
            at = stop
            if rows.pop():
                return None
            numbers = [row[len(key) :] for row, key in zip(rows, islice(keys, len(rows)), strict=False)
                       if row.startswith(key)]  # fmt: skip
            if len(numbers) != len(rows) or [part for part in numbers if part.count(",") != width - 1]:
                return None
            values = one_each(",".join(numbers), len(rows) * width)
            if values is None:
                return None
            out[self.places(done, len(rows), forward)] = values.reshape(-1, width)
            done += len(rows)
        if done != self.n_rows:
            return None
        order = None if forward else self.places(0, self.n_rows, forward)
        self.family.locate = lambda position: self.nth_row(begin, position // width, order)
        return out.ravel()

    def places(self, first: int, n: int, forward: bool) -> slice | NDArray[np.intp]:
        """Positions in the table of `n` rows of the file, beginning with row `first`."""
        if forward:
            return slice(first, first + n)
        at = np.unravel_index(np.arange(first, first + n), self.cards[::-1])
        return np.ravel_multi_index(at[::-1], self.cards)

    def nth_row(self, begin: int, row: int, order: slice | NDArray[np.intp] | None) -> int:
        """Offset of a row of the table in a block that `in_order` read."""
        text = self.source.text
        nth = row if not isinstance(order, np.ndarray) else int(np.flatnonzero(order == row)[0])
        at = begin
        for _ in range(nth):
            at = text.find(";", at) + 1
        return text.find("(", at)


def one_each(text: str, n: int) -> Floats | None:
    """The `n` numbers of a text with single commas between them; None if it contains anything else.

    Commas are white space in this format, and a row may have any number of them. If there are as many numbers as
    expected and none is missing between two commas, no number belongs to a neighbouring row.
    """
    values = floats(text, blanks=",")
    if values is None or values.size != n:
        return None
    bare = b"," + text.encode().translate(None, _BLANKS) + b","
    return None if b",," in bare else values
