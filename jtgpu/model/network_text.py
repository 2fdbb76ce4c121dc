"""Networks as text: the table that ``print(net)`` shows, and structures in the syntax of pyAgrum's ``fastBN``.

A structure is a line such as ``"smoke{yes|no}->lung->xray; smoke->bronc"``. Grammar::

    text       = statement {(";" | newline) statement}
    statement  = [node {("->" | "<-") node}]
    node       = name [states]
    states     = "[n]" | "[first,last]" | ["+"] "[t0,t1,t2,...]" | ["+"] "[t0:t1:n]" | "{a|b|...}" | "{x0:x1:n}"

A newline continues a statement next to an arrow. A name that contains one of ``- < > , ; = | [ ] { }`` is written in
quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple, NoReturn

from ..errors import ParseError
from ..util.text_table import abridged, display_width, format_table

MAX_STATES = 1_000_000
_SOURCE = "<network>"
_TOKEN = re.compile(
    r"""(?P<space>[^\S\n]+)
    |(?P<right>->|→)|(?P<left><-|←)
    |(?P<end>;|\n)
    |(?P<states>[+\#]?\[[^\]\n;]*\]|\{[^}\n]*\})
    |(?P<quoted>"[^"\n]+"|'[^'\n]+')
    |(?P<name>(?:(?![+\#]\[)[^-<>→←;,=|\[\]{}\n])+)""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,15}", re.ASCII)
_FILE = re.compile(r".*\.(net|hugin|bif|xmlbif|xbif|xml|xdsl|dsl|dsc|uai|erg|ergo|fg)(\.\w+)?", re.IGNORECASE)
_MISTAKES = {
    "-": "a line is not an arrow: write '->' or '<-', and a name that contains '-' in quotes",
    "=": "an arrow is written '->' or '<-'",
    "<": "an arrow is written '->' or '<-'",
    ">": "an arrow is written '->' or '<-'",
    ",": "names are not separated by commas: write 'a->c<-b', or 'a->c; b->c'",
    "[": "this bracket is not closed",
    "{": "this brace is not closed",
}


class NetworkText(NamedTuple):
    """A structure that was read from text."""

    states: dict[str, tuple[str, ...]]  # the variables in the order in which they occur
    parents: dict[str, list[str]]  # in the order of the arcs


class _Token(NamedTuple):
    kind: str  # name, states, right, left, end
    text: str
    at: int


def parse_network(text: str, default: Sequence[str]) -> NetworkText:
    """Parse a structure."""
    # default: sequence of str: States of the variables for which the text gives none
    # raises ParseError: With line and column, what was found and what is expected.
    return _Parser(text, default).parsed()


def parse_states(text: str) -> tuple[str, ...]:
    """Parse the states of a variable: ``"[3]"``, ``"{yes|no}"`` and the other forms of a node's states."""
    match = _TOKEN.fullmatch(text.strip())
    if match is None or match.lastgroup != "states":
        _fail(text, 0, f"expected states such as '[3]' or '{{yes|no}}', found {text!r}")
    return _states(text, text.index(match[0]), match[0])


class _Parser:
    """Reads statements; `states` and `parents` grow with them."""

    def __init__(self, text: str, default: Sequence[str]):
        self.text, self.default = text, tuple(default)
        self.given: dict[str, tuple[tuple[str, ...], int] | None] = {}  # states of each variable, and their position
        self.parents: dict[str, list[str]] = {}

    def parsed(self) -> NetworkText:
        """Read the whole text."""
        if _FILE.fullmatch(self.text.strip()):
            self._fail(0, f"{self.text.strip()!r} seems to be a file, which jtgpu.read reads; write a name in quotes")
        left: str | None = None  # the node before
        arrow: _Token | None = None  # the arrow before
        for token in self._tokens():
            if token.kind in ("name", "quoted"):
                if left is not None and arrow is None:
                    self._fail(token.at, f"expected '->', '<-' or ';' after {left!r}, found {token.text!r}")
                if arrow is not None and left is not None:
                    self._add_arc(left, arrow, token)
                self.given.setdefault(token.text)
                left, arrow = token.text, None
            elif token.kind == "states":
                if left is None or arrow is not None:
                    self._fail(token.at, f"expected a name before the states {token.text!r}")
                self._add_states(left, token)
            elif token.kind == "end":
                if arrow is not None:
                    self._fail(arrow.at, f"expected a name after {arrow.text!r}")
                left = None
            else:
                if left is None or arrow is not None:
                    self._fail(token.at, f"expected a name before {token.text!r}")
                arrow = token
        states = {v: self.default if given is None else given[0] for v, given in self.given.items()}
        return NetworkText(states, self.parents)

    def _tokens(self) -> Iterator[_Token]:
        """Tokens without blanks, and without newlines next to arrows; an ``end`` closes the text."""
        tokens: list[_Token] = []
        at = 0
        while at < len(self.text):
            match = _TOKEN.match(self.text, at)
            if match is None or match.lastgroup is None:
                c = self.text[at]
                self._fail(at, _MISTAKES.get(c, f"found {c!r}, expected a name, '->', '<-' or ';'"))
            kind, word = match.lastgroup, match[0]
            if kind == "name":
                word = word.strip()
            elif kind == "quoted":
                word = word[1:-1]
            if kind != "space" and word:
                tokens.append(_Token(kind, word, at + len(match[0]) - len(match[0].lstrip())))
            at = match.end()
        before, newlines = "", list[_Token]()
        for is_newline, group in groupby(tokens, key=lambda t: t.text == "\n"):
            run = list(group)
            if is_newline and before in ("right", "left"):
                continue
            if is_newline:
                newlines = run[:1]  # yielded unless an arrow follows
                continue
            yield from (() if run[0].kind in ("right", "left") else newlines)
            yield from run
            before, newlines = run[-1].kind, []
        yield _Token("end", "", len(self.text))

    def _add_arc(self, left: str, arrow: _Token, right: _Token) -> None:
        parent, child = (left, right.text) if arrow.kind == "right" else (right.text, left)
        if parent == child:
            self._fail(arrow.at, f"{parent!r} cannot be its own parent")
        known = self.parents.setdefault(child, [])
        if parent in known:
            self._fail(arrow.at, f"the arc {parent!r} -> {child!r} is given twice")
        known.append(parent)

    def _add_states(self, name: str, token: _Token) -> None:
        states = _states(self.text, token.at, token.text)
        before = self.given[name]
        if before is None:
            self.given[name] = states, token.at
        elif before[0] != states:
            line, column = _place(self.text, before[1])
            self._fail(token.at, f"{name!r} has other states at line {line}, column {column}")

    def _fail(self, at: int, message: str) -> NoReturn:
        _fail(self.text, at, message)


# States ------------------------------------------------------------------------------------------------------


def _states(text: str, at: int, written: str) -> tuple[str, ...]:
    """States from a node's brackets or braces, which start at `at`."""
    if written.startswith("{"):
        return _labels(text, at, written[1:-1])
    is_open = written.startswith("+")
    inner = written[written.index("[") + 1 : -1]
    if ":" in inner:
        ticks = [f"{x:.7g}" for x in _steps(text, at, inner, extra=1)]
        return _intervals(ticks, is_open)
    parts = [part.strip() for part in inner.split(",")]
    if len(parts) > 2:
        numbers = [_number(text, at, part) for part in parts]
        if any(a >= b for a, b in pairwise(numbers)):
            _fail(text, at, f"the limits of intervals must ascend, got {written}")
        return _intervals(parts, is_open)
    first, last = _integer_range(text, at, parts)
    if last - first >= MAX_STATES:
        _fail(text, at, f"{last - first + 1:,} states are too many (at most {MAX_STATES:,})")
    return tuple(map(str, range(first, last + 1)))


def _integer_range(text: str, at: int, parts: Sequence[str]) -> tuple[int, int]:
    """First and last state of ``[n]`` or ``[first,last]``."""
    for part in parts:
        if not _INTEGER.fullmatch(part):
            what = "a number of states such as [3], or a range such as [1,5]"
            _fail(text, at, f"expected {what}, found [{','.join(parts)}]")
    if len(parts) == 1:
        n = int(parts[0])
        if n < 1:
            _fail(text, at, f"a variable has at least one state, got [{parts[0]}]")
        return 0, n - 1
    first, last = int(parts[0]), int(parts[1])
    if first > last:
        _fail(text, at, f"the first state of a range is the smallest, got [{first},{last}]; write [{last},{first}]")
    return first, last


def _labels(text: str, at: int, inner: str) -> tuple[str, ...]:
    """States of ``{a|b|c}`` or ``{x0:x1:n}``."""
    if inner.count(":") == 2 and "|" not in inner and all(_NUMBER.fullmatch(p.strip()) for p in inner.split(":")):
        return tuple(f"{x:.7g}" for x in _steps(text, at, inner, extra=0))
    labels = tuple(part.strip() for part in inner.split("|"))
    if "" in labels:
        what = "a state has no name" if len(labels) > 1 else "expected states such as {yes|no}"
        _fail(text, at, f"{what} in {{{inner}}}")
    if len(labels) == 1 and all(_NUMBER.fullmatch(p.strip()) for p in inner.split(":")):
        ends = inner.split(":")
        wanted = f"[{labels[0]}] for {labels[0]} states" if len(ends) == 1 else f"[{ends[0]},{ends[-1]}] for a range"
        _fail(text, at, f"{{{inner}}} would be a single state; write {wanted}")
    if len(labels) > MAX_STATES:
        _fail(text, at, f"{len(labels):,} states are too many (at most {MAX_STATES:,})")
    if len(set(labels)) < len(labels):
        twice = next(s for i, s in enumerate(labels) if s in labels[:i])
        _fail(text, at, f"the state {twice!r} is given twice")
    if all(_NUMBER.fullmatch(s) for s in labels):
        ascending = sorted(labels, key=float)
        if ascending != list(labels):
            # pyAgrum would sort them, and a CPT given as an array would then have other columns than written here
            _fail(text, at, f"states that are numbers must ascend: write {{{'|'.join(ascending)}}}")
    return labels


def _steps(text: str, at: int, inner: str, extra: int) -> list[float]:
    """The numbers of ``x0:x1:n``: n + extra of them, from x0 to x1."""
    parts = [part.strip() for part in inner.split(":")]
    if len(parts) != 3 or not _INTEGER.fullmatch(parts[2]):
        _fail(text, at, f"expected first:last:number, found {inner!r}")
    first, last, n = _number(text, at, parts[0]), _number(text, at, parts[1]), int(parts[2])
    if first >= last:
        _fail(text, at, f"the first number must be smaller than the last, got {inner!r}")
    if not 2 - extra <= n <= MAX_STATES:
        _fail(text, at, f"expected {2 - extra} to {MAX_STATES:,} states, got {n:,}")
    return [first + (last - first) * i / (n + extra - 1) for i in range(n + extra)]


def _intervals(ticks: Sequence[str], is_open: bool) -> tuple[str, ...]:
    """Names of the intervals between limits, as pyAgrum writes them; `is_open`: the outer limits are soft."""
    names = [f"[{a};{b}[" for a, b in pairwise(ticks)]
    names[-1] = names[-1][:-1] + "]"
    if is_open:
        names[0] = "(" + names[0][1:]
        names[-1] = names[-1][:-1] + ")"
    return tuple(names)


def _number(text: str, at: int, written: str) -> float:
    if not _NUMBER.fullmatch(written):
        _fail(text, at, f"expected a number, found {written!r}")
    return float(written)


# Errors ------------------------------------------------------------------------------------------------------


def _place(text: str, at: int) -> tuple[int, int]:
    """Line and column of a position, from 1."""
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1


def _fail(text: str, at: int, message: str) -> NoReturn:
    """Raise a `ParseError` that shows the line and marks the column."""
    line, column = _place(text, at)
    shown = text.split("\n")[line - 1]
    start = max(0, column - 60)
    excerpt = shown[start : start + 100].replace("\t", " ")
    mark = " " * (column - 1 - start) + "^"
    raise ParseError(f"{message}\n    {excerpt}\n    {mark}", _SOURCE, line, column)


# Models as text: what ``print(net)`` shows.

MAX_WIDTH = 32  # columns of text that a list takes


def summary(
    kind: str, name: str, sizes: Iterable[str], variables: Sequence[str], states: Sequence[Sequence[str]],
    parents: Sequence[Sequence[str]] | None,
) -> str:  # fmt: skip
    """A line about the model and a table of its variables."""
    # kind, name, sizes: The first line
    # variables, states, parents: Of each variable; ``parents=None`` leaves the column out
    head = f"{kind}{f' {name!r}' if name else ''}: {', '.join(sizes)}"
    if not variables:
        return head
    columns: list[Sequence[str]] = [variables, _WordLists(states)]
    if parents is not None:
        columns.append(_WordLists(parents))
    names = ["variable", "states", "parents"][: len(columns)]
    return f"{head}\n{format_table(names, columns, fixed=1, width=None)}"


class _WordLists(Sequence[str]):
    """A column of lists of words."""

    def __init__(self, lists: Sequence[Sequence[str]]):
        self._lists = lists

    def __len__(self) -> int:
        return len(self._lists)

    def __getitem__(self, row: Any) -> Any:
        return _joined(self._lists[row])


def _joined(words: Sequence[str]) -> str:
    """Words separated by commas; as many as fit."""
    text = ", ".join(words)
    if display_width(text) <= MAX_WIDTH:
        return text
    end = f", ... ({len(words)})"
    shown = words[0]
    for word in words[1:]:
        if display_width(f"{shown}, {word}{end}") > MAX_WIDTH:
            break
        shown = f"{shown}, {word}"
    return abridged(shown, MAX_WIDTH) + (end if len(words) > 1 else "")
