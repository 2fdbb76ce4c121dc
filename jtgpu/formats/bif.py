"""BIF, the text form (JavaBayes' 0.15 and bnlearn's dialect): reader.

* ``,`` and ``|`` are blanks; ``//`` and ``/* */`` are comments; names may stand in double quotes; words between
  blocks mean nothing.
* A row ``(p1, p2) numbers;`` is found by its parents' states, in any order of rows; ``default`` fills what is not
  listed; what is then still missing is an error.
* ``table`` with parents has the child slowest and the last parent fastest.
* ``property`` lines are kept as ``attributes[...]["property"]``, a tuple of strings.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ParseError
from ..network import BayesianNetwork
from .draft import Draft, Family
from .text import Source, Tokens, floats, near, shown, unquote

__all__ = ["parse", "parse_draft", "sniff"]

_SKIP = r"(?:[ \t\r\n\f\v,|]++|//[^\r\n]*+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/)*+"
_TOKEN = re.compile(
    _SKIP + r'(?:(?P<word>(?:[^\s{}()\[\];,|"/]|/(?![/*]))++)|(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")'
    r"|(?P<mark>[{}()\[\];])|(?P<end>\Z)|(?P<other>.))",
    re.DOTALL,
)
_START = re.compile(_SKIP + r"(?:network\b[^{};]*+\{|variable\s++(?:\"[^\"]*+\"|[^\s{\"]++)\s*+\{|probability\s*+\()")
# A row without comments or quoted names: the parents' states, the numbers.
_ROW = re.compile(r'[ \t\r\n]*+\(([^()"/;{}|]*+)\)([^;"/(){}|]*+);')
_NUMBERS = re.compile(r'[^;"/(){}\[\]]*+')
# Properties hold anything, addresses with // in them too; a semicolon only counts outside strings.
_STRING = re.compile(r'"[^"\\\r\n]*+(?:\\.[^"\\\r\n]*+)*+"')
_WITH_STRINGS = rf'[^;"]*+(?:{_STRING.pattern}[^;"]*+)*+(?=;)'
_PROPERTY = re.compile(rf"({_WITH_STRINGS}|[^;]*+);")
# From one brace of a table to the next; what a property begins is swallowed even if no ';' ever ends it, or each
# of many would be looked at up to the end of the file.
_BODY = re.compile(
    rf'(?:[^{{}}"/p]++|(?<![^\s;{{}}])property\b(?:{_WITH_STRINGS}|[^;]*+)|p'
    r'|"[^"\\]*+(?:\\.[^"\\]*+)*+"|//[^\r\n]*+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/|/(?![*]))*+',
    re.DOTALL,
)
_BLOCKS = ("network", "variable", "probability")
MAX_FILL = 1 << 24  # numbers that all `default` of a file make up


def sniff(text: str) -> bool:
    """Does the text begin as a BIF network does?"""
    return _START.match(text) is not None


def parse(text: str, source: str = "<text>", *, zero_rows: str = "error") -> BayesianNetwork:
    """Read the text of a BIF network.

    Parameters
    ----------
    text : str
    source : str
        The file's name, for messages.
    zero_rows : {"error", "uniform"}
        What a CPT row of nothing but zeros means.

    Raises
    ------
    ParseError
        With line and column.
    """
    return parse_draft(text, source).finish(zero_rows)


def parse_draft(text: str, source: str = "<text>") -> Draft:
    """Read the text of a BIF network, numbers left as they are written."""
    draft = _Reader(Source(text, source)).file()
    draft.shape()
    return draft


def _frozen(kept: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(values) for key, values in kept.items()}


class _Reader:
    """Two passes: variables first, then the tables, which need the states' names."""

    def __init__(self, source: Source):
        self.source = source
        self.tokens = Tokens(source, _TOKEN)
        self.draft = Draft(source, "BIF")
        self.n_filled = 0  # numbers made up by `default`

    def file(self) -> Draft:
        tokens, draft = self.tokens, self.draft
        tables: list[int] = []
        blocks = 0
        while tokens.kind != "end":
            if tokens.at("network"):
                self.network()
            elif tokens.at("variable"):
                self.variable()
            elif tokens.at("probability"):
                tables.append(tokens.start)
                self.skip_table()
            elif tokens.at("{", "}") or tokens.kind == "other":
                tokens.fail("'network', 'variable' or 'probability'")
            else:
                tokens.advance()  # words between blocks mean nothing
                continue
            blocks += 1
        if not blocks:
            tokens.fail("a BIF network: 'network', 'variable' or 'probability'")
        for at in tables:
            tokens.jump(at)
            self.table()
        for v in draft.states:
            if v not in draft.families:
                raise self.source.error(draft.declared[v], f"the variable {v!r} has no probability block")
        return draft

    def name(self, what: str) -> str:
        tokens = self.tokens
        if tokens.kind == "string":
            return unquote(tokens.take())
        if tokens.kind != "word":
            tokens.fail(what)
        return tokens.take()

    def property(self, kept: dict[str, Any]) -> None:
        """``property anything;``: the text up to the semicolon, or the one string that it is."""
        tokens, text = self.tokens, self.source.text
        found = _PROPERTY.match(text, tokens.end)
        if found is None:
            tokens.jump(len(text))
            tokens.fail("';' at the end of the property")
        value = found[1].strip()
        quoted = _STRING.fullmatch(value) is not None
        kept.setdefault("property", []).append(unquote(value) if quoted else value)
        tokens.jump(found.end())

    def network(self) -> None:
        tokens, kept = self.tokens, {k: list(x) for k, x in self.draft.attributes["net"].items()}
        tokens.advance()
        if not tokens.at("{"):
            self.draft.name = self.name("the network's name, or '{'")
        tokens.expect("{", "after the network's name")
        while not tokens.at("}"):
            if not tokens.at("property"):
                tokens.fail("'property', or '}' at the end of the network block")
            self.property(kept)
        self.draft.attributes["net"] = _frozen(kept)
        tokens.advance()

    def variable(self) -> None:
        tokens, draft = self.tokens, self.draft
        tokens.advance()
        start = tokens.start
        name = self.name("the variable's name")
        if name in draft.states:
            raise self.source.error(start, f"the variable {name!r} is declared a second time")
        tokens.expect("{", f"to begin the variable {name!r}")
        kept: dict[str, Any] = {}
        states: tuple[str, ...] | None = None
        while not tokens.at("}"):
            if tokens.at("property"):
                self.property(kept)
            elif tokens.at("type") and states is None:
                tokens.advance()
                states = self.type(name)
            else:
                tokens.fail(f"{'type, ' if states is None else ''}'property', or '}}' at the end of {name!r}")
        tokens.advance()
        if states is None:
            raise self.source.error(start, f"the variable {name!r} has no type")
        draft.states[name], draft.declared[name] = states, start
        if kept:
            draft.attributes["node"][name] = _frozen(kept)

    def type(self, name: str) -> tuple[str, ...]:
        tokens = self.tokens
        if not tokens.at("discrete"):
            tokens.fail(f"'discrete': variables of another type, as {name!r} is, are refused")
        tokens.advance()
        n_states = -1
        count_at = tokens.start
        if tokens.at("["):
            tokens.advance()
            count_at = tokens.start
            if tokens.kind != "word" or not tokens.text.isascii() or not tokens.text.isdigit() or len(tokens.text) > 9:
                tokens.fail("the number of states")
            n_states = int(tokens.take())
            tokens.expect("]", "after the number of states")
        tokens.expect("{", "before the states")
        states = []
        while not tokens.at("}"):
            states.append(self.name("a state, or '}'"))
        tokens.advance()
        tokens.expect(";", "after the states")
        if n_states not in (-1, len(states)):
            raise self.source.error(count_at, f"found {len(states)} states of {name!r}, expected {n_states}")
        if not states:
            raise self.source.error(count_at, f"the variable {name!r} has no states")
        return tuple(states)

    # Tables ---------------------------------------------------------------------------------------------------

    def skip_table(self) -> None:
        tokens, text = self.tokens, self.source.text
        start = tokens.start
        for mark in "{}":
            found = _BODY.match(text, tokens.end)
            tokens.jump(found.end() if found else tokens.end)
            if not tokens.at(mark):
                tokens.fail(f"'{mark}' of the probability block of line {self.source.place(start)[0]}")
        tokens.advance()

    def table(self) -> None:
        tokens, draft = self.tokens, self.draft
        tokens.advance()
        tokens.expect("(", "after 'probability'")
        at = tokens.start
        family = Family(self.name("a variable's name"), [], at, data_at=at)
        while not tokens.at(")"):
            start = tokens.start
            family.parents.append((self.name("')', or a parent's name"), start))
        tokens.advance()
        if family.child in draft.families:
            raise self.source.error(at, f"a second probability block of {family.child!r}")
        draft.check_names(family)
        tokens.expect("{", f"to begin the table of {family.child!r}")
        kept: dict[str, Any] = {}
        _Rows(self, family, kept).block()
        draft.families[family.child] = family
        if kept:
            draft.attributes["potential"][family.child] = _frozen(kept)


class _Rows:
    """The entries of one probability block."""

    def __init__(self, reader: _Reader, family: Family, kept: dict[str, Any]):
        self.reader, self.tokens, self.source = reader, reader.tokens, reader.source
        self.family, self.kept = family, kept
        states = reader.draft.states
        self.width = len(states[family.child])
        self.parents = [(p, states[p]) for p, _ in family.parents]
        self.n_rows = math.prod(len(labels) for _, labels in self.parents)
        # Place in the table's rows that a state of each parent stands for; None where two states share a name.
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
        self.at: list[int] = []  # and its offset
        self.values: list[NDArray[np.float64]] = []
        self.default: tuple[NDArray[np.float64], int] | None = None
        self.full: tuple[NDArray[np.float64], int] | None = None

    def block(self) -> None:
        tokens = self.tokens
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
                    raise self.source.error(start, f"a second 'table' of {self.family.child!r}")
                self.full = values, start
            elif tokens.at("default"):
                values = self.numbers()
                if self.default is not None:
                    raise self.source.error(start, f"a second 'default' of {self.family.child!r}")
                if values.size != self.width:
                    raise self.count_error(start, values.size, self.width)
                self.default = values, start
            elif tokens.at("property"):
                self.reader.property(self.kept)
            else:
                tokens.fail(f"'(', 'table', 'default', 'property' or '}}' in the table of {self.family.child!r}")
        end = tokens.start
        tokens.advance()
        self.assemble(end)

    def count_error(self, at: int, found: int, expected: int) -> ParseError:
        return self.source.error(at, f"found {found} numbers for {self.family.child!r}, expected {expected}")

    def plain_rows(self) -> None:
        """All the rows from here on that are written plainly; whatever is odd is left under the cursor for `row`."""
        text, begin, steps = self.source.text, self.tokens.start, self.steps
        n_commas, n_parents = self.width - 1, len(steps)
        # Most files write ", " between states: with both spellings known no blank has to be cut off.
        known = [{**d, **{f" {label}": step for label, step in d.items()}} for d in steps]
        parts: list[str] = []
        rows: list[int] = []
        starts: list[int] = []
        match = _ROW.match
        while found := match(text, begin):
            key, numbers = found.groups()
            if numbers.count(",") != n_commas:
                break
            fields = key.split(",")
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
            starts.append(found.start(1) - 1)
            parts.append(numbers)
            begin = found.end()
        if not parts:
            return
        values = floats(" ".join(parts).replace(",", " "))
        if values is None or values.size != len(rows) * self.width:
            self.plain = False  # one of them is wrong; to look for it in one go, and not again after each row
            return
        self.rows += rows
        self.at += starts
        self.values.append(values)
        self.tokens.jump(begin)

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

    def numbers(self) -> NDArray[np.float64]:
        """The numbers behind the current token, up to the ``;``, and the cursor behind that."""
        tokens = self.tokens
        found = _NUMBERS.match(self.source.text, tokens.end)
        end = found.end() if found else tokens.end
        values = floats(self.source.text[tokens.end : end].replace(",", " "))
        if values is not None:
            tokens.jump(end)
            if tokens.at(";"):
                tokens.advance()
                return values
        else:
            tokens.advance()
            values = np.zeros(0)
        more = []  # comments between the numbers, or a mistake
        while not tokens.at(";"):
            one = floats(tokens.text) if tokens.kind == "word" else None
            if one is None:
                tokens.fail("a number, or ';'")
            more.append(one)
            tokens.advance()
        tokens.advance()
        return np.concatenate([values, *more])

    def assemble(self, end: int) -> None:
        """Put what the block listed in the order of the network's tables."""
        family, width = self.family, self.width
        size = self.n_rows * width
        if self.full is not None:
            values, at = self.full
            if self.rows or self.default is not None:
                raise self.source.error(at, f"both 'table' and other numbers for {family.child!r}")
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
                    raise self.source.error(at, f"the row {self.key(row)} of {family.child!r} stands a second time")
                seen.add(row)
        n_missing = self.n_rows - len(self.rows)
        if n_missing and self.default is None:
            row = next(r for r in range(self.n_rows) if r not in listed)
            raise self.source.error(
                end,
                f"{n_missing} of {self.n_rows} rows of {family.child!r} are missing, the first for "
                f"{self.key(row)}, and there is no 'default'",
            )
        self.reader.n_filled += n_missing * width
        if self.reader.n_filled > MAX_FILL:
            raise self.source.error(end, f"the 'default' of {family.child!r} would fill {n_missing * width} numbers")
        table = np.empty((self.n_rows, width))
        if self.default is not None:
            table[:] = self.default[0]
        if self.values:
            table[np.array(self.rows)] = np.concatenate(self.values).reshape(-1, width)
        family.numbers = table.ravel()
        places = dict(zip(self.rows, self.at, strict=True))
        fallback = self.default[1] if self.default is not None else family.at
        family.locate = lambda position: places.get(position // width, fallback)

    def key(self, row: int) -> str:
        """A row's parent states for a message."""
        labels = []
        for _, states in reversed(self.parents):
            row, i = divmod(row, len(states))
            labels.append(states[i])
        return f"({', '.join(reversed(labels))})"
