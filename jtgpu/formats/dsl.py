"""DSL, the text format of GeNIe and SMILE before XDSL: reader.

* ``PROBABILITIES`` list the first of ``PARENTS`` slowest and the child fastest.
* ``TRUTHTABLE`` and ``NOISY_MAX`` nodes become plain tables (`jtgpu.formats.canonical_nodes`).
* Attributes: ``label`` (``NAME``), ``comment``, ``position`` and ``size`` of the node's picture, and user properties as
  ``property``, a tuple of ``"key = value"``.
* Blocks of other keys are skipped, whatever is between their braces; ``OBSERVATION_COST`` has blocks named ``node``
  that declare no nodes.

Refused, with their names: nodes of all other types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import shown
from .canonical_nodes import Expander
from .draft import Draft, Family, parser_of
from .text import Source, Tokens, floats, unquote
from .xdsl import SIZE, rename, reorder

PREFIX = "JTGPU_"  # of user properties for what the format cannot represent
MAX_DEPTH = 100

_SKIP = r"(?:[ \t\r\n\f\v]++|//[^\r\n]*+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/|/\#[^#]*+(?:\#(?!/)[^#]*+)*+\#/)*+"
_TOKEN = re.compile(
    _SKIP + r'(?:(?P<word>(?:[^\s{}()=;,"/]|/(?![/*#]))++)|(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")'
    r"|(?P<mark>[{}()=;,])|(?P<end>\Z)|(?P<other>.))",
    re.DOTALL,
)
_START = re.compile(_SKIP + r"net\s++(?:[^\s{}()=;,\"]++|\"[^\"]*+\")\s*+\{")
_NUMERIC = ("PROBABILITIES", "STRENGTHS")
_BLOCKS = ("DEFINITION", "HEADER", "POSITION", "SCREEN", "USER_PROPERTIES")  # the blocks that are read
_LISTS = ("NAMESTATES", "PARENTS", "RESULTINGSTATES")  # the lists of names that are read
_CLOSING = {"{": "}", "(": ")"}
_REFUSED = {
    "LIST": "decision node",
    "TABLE": "utility node",
    "MAU": "utility node",
    "EQUATION": "equation node",
    "NOISY_ADDER": "noisy-adder node",
    "NOISY_OR": "noisy-OR node of an old kind",
    "NOISY_AND": "noisy-AND node of an old kind",
}


def sniff(text: str) -> bool:
    """Does the text begin as a DSL network does? (Hugin's blocks have no name behind ``net``.)"""
    return _START.match(text) is not None


def parse_draft(text: str, source: str = "<text>") -> Draft:
    """Read the text of a DSL file, with the numbers as written."""
    draft = _Reader(Source(text, source)).file()
    draft.shape()
    return draft


parse = parser_of(parse_draft)


@dataclass
class _Value:
    """What stands behind an ``=``, or a block without one."""

    at: int
    text: str | None = None  # of a word or a string
    items: list[tuple[str, int]] | None = None  # of a list, with their offsets
    numbers: NDArray[np.float64] | None = None  # of a list of numbers
    end: int = 0  # offset of its ')'
    inner: dict[str, _Value] = field(default_factory=dict)
    is_block: bool = False

    def get(self, *path: str) -> _Value | None:
        found: _Value | None = self
        for key in path:
            found = found.inner.get(key) if found else None
        return found

    def word(self, *path: str) -> str | None:
        found = self.get(*path)
        return found.text if found else None


class _Reader:
    def __init__(self, source: Source):
        self.source = source
        self.tokens = Tokens(source, _TOKEN)
        self.draft = Draft(source, "DSL")
        self.expander = Expander(self.draft)
        self.new: dict[str, str] = {}  # original names of variables

    def file(self) -> Draft:
        tokens, draft = self.tokens, self.draft
        tokens.expect("net", "at the beginning of a DSL network")
        draft.name = self.name("the network's name")
        net = self.body(0, has_nodes=True)
        if tokens.at(";"):
            tokens.advance()
        if tokens.kind != "end":
            tokens.fail("the end of the file")
        self.about(net)
        self.expander.run()
        final = [self.new.get(v, v) for v in draft.states]
        if len(set(final)) == len(final) and self.new:
            rename(draft, self.new)
        return draft

    def name(self, what: str) -> str:
        tokens = self.tokens
        if tokens.kind == "string":
            return unquote(tokens.take())
        if tokens.kind != "word":
            tokens.fail(what)
        return tokens.take()

    # Grammar --------------------------------------------------------------------------------------------------

    def body(self, depth: int, has_nodes: bool = False) -> _Value:
        """``{ ... }`` of a network or a submodel, which have nodes, of a node or of a value: statements and blocks."""
        tokens = self.tokens
        self.check_depth(depth)
        value = _Value(tokens.start, is_block=True)
        tokens.expect("{")
        while not tokens.at("}"):
            at = tokens.start
            key = self.name("a statement, or '}'")
            block = True  # after a block the ';' is optional
            if tokens.at("="):
                tokens.advance()
                value.inner[key] = self.value(key, depth)
                block = value.inner[key].is_block
            elif tokens.kind not in ("word", "string"):
                tokens.fail(f"'=' after {shown(key)} of line {self.source.place(at)[0]}")
            elif has_nodes and key == "node":
                self.node(depth)
            else:
                self.named_block(key, at, depth, value if has_nodes else None)
            if tokens.at(";"):
                tokens.advance()
            elif not tokens.at("}") and not block:
                tokens.fail(f"';' after {shown(key)}")
        tokens.advance()
        return value

    def named_block(self, key: str, at: int, depth: int, outer: _Value | None) -> None:
        """A ``submodel X { ... }`` of `outer`, or another block with a name, which is skipped."""
        tokens = self.tokens
        name = self.name(f"the name of {shown(key)}")
        if outer is not None and key == "submodel":
            inner = self.body(depth + 1, has_nodes=True).inner
            outer.inner.update({k: v for k, v in inner.items() if k not in outer.inner})
            return
        if not tokens.at("{"):
            tokens.fail("'{'")
        self.skip(depth)
        if outer is not None:
            self.draft.note(at, f"skipped the block {shown(f'{key} {name}')}")

    def skip(self, depth: int) -> None:
        """Move past a block whose contents are not used; only its braces and parentheses have to match."""
        tokens = self.tokens
        closing: list[str] = []
        while True:
            if tokens.kind in ("end", "other"):
                tokens.fail(repr(closing[-1]))
            if tokens.kind == "mark":
                if tokens.text in _CLOSING:
                    closing.append(_CLOSING[tokens.text])
                    self.check_depth(depth + len(closing))
                elif tokens.text in "})":
                    if tokens.text != closing[-1]:
                        tokens.fail(repr(closing[-1]))
                    closing.pop()
            tokens.advance()
            if not closing:
                return

    def check_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self.source.error(self.tokens.start, f"found blocks nested deeper than {MAX_DEPTH}, expected '}}'")

    def value(self, key: str, depth: int) -> _Value:
        tokens = self.tokens
        if tokens.at("{"):
            if key in _BLOCKS:
                return self.body(depth + 1)
            value = _Value(tokens.start, is_block=True)
            self.skip(depth + 1)
            return value
        if not tokens.at("("):
            value = _Value(tokens.start)
            value.text = self.name(f"the value of {shown(key)}")
            return value
        value = _Value(tokens.end)
        if key in _NUMERIC:
            return self.numbers(value)
        if key in _LISTS:
            return self.list(value)
        self.skip(depth)
        return value

    def list(self, value: _Value) -> _Value:
        tokens = self.tokens
        tokens.advance()
        items = []
        while not tokens.at(")"):
            items.append((tokens.start, self.name("a name, or ')'")))
            if tokens.at(","):
                tokens.advance()
        tokens.advance()
        value.items = [(text, at) for at, text in items]
        return value

    def numbers(self, value: _Value) -> _Value:
        tokens, text, begin = self.tokens, self.source.text, self.tokens.end
        end = text.find(")", begin)
        values = floats(text, begin, end, ",") if end >= 0 else None
        if values is None:  # comments between the numbers, or an error
            tokens.advance()
            found = []
            while not tokens.at(")"):
                if not tokens.at(","):
                    one = floats(tokens.text) if tokens.kind == "word" else None
                    if one is None:
                        tokens.fail("a number, or ')'")
                    found.append(one)
                tokens.advance()
            values = np.concatenate(found) if found else np.zeros(0)
            end = tokens.start
        else:
            tokens.jump(end)
        tokens.advance()
        value.numbers, value.end = values, end
        return value

    def locate(self, value: _Value, position: int) -> int:
        return next(islice(self.places(value), position, None), value.at)

    def places(self, value: _Value) -> Iterator[int]:
        """Offsets of the numbers of a list."""
        at = value.at
        while at < value.end:
            found = _TOKEN.match(self.source.text, at, value.end)
            if found is None or found.lastgroup in (None, "end"):
                return
            at = found.end()
            if found.lastgroup == "word":
                yield found.start("word")

    # Nodes ----------------------------------------------------------------------------------------------------

    def node(self, depth: int) -> None:
        draft, at = self.draft, self.tokens.start
        child = self.name("the node's name")
        if child in draft.states:
            raise self.source.error(at, f"the node {child!r} is declared a second time")
        block = self.body(depth + 1)
        kind = (block.word("TYPE") or "CPT").upper()
        if kind not in ("CPT", "TRUTHTABLE", "NOISY_MAX"):
            what = _REFUSED.get(kind, f"node of type {shown(kind)}")
            raise self.source.error(
                at, f"found the {what} {child!r}; only discrete chance nodes are supported"
            )
        names = block.get("DEFINITION", "NAMESTATES")
        if names is None or not names.items:
            raise self.source.error(at, f"the node {child!r} has no NAMESTATES")
        draft.states[child], draft.declared[child] = tuple(s for s, _ in names.items), at
        parents = block.get("PARENTS")
        family = Family(child, list(parents.items or ()) if parents else [], at)
        draft.families[child] = family
        self.table(family, kind, block)
        self.keep(child, block, family)

    def table(self, family: Family, kind: str, block: _Value) -> None:
        child, at = family.child, family.at
        numbers = block.get("DEFINITION", "PROBABILITIES")
        if kind == "TRUTHTABLE":
            results = block.get("DEFINITION", "RESULTINGSTATES")
            items = (results.items if results else None) or []
            place = results.at if results else at
            self.expander.function(family, [s for s, _ in items], lambda i: items[i][1], place)
            return
        if numbers is None or numbers.numbers is None:
            raise self.source.error(at, f"the node {child!r} has no PROBABILITIES")
        if kind == "NOISY_MAX":
            strengths = block.get("DEFINITION", "STRENGTHS")
            self.expander.noisy(
                family, strengths.numbers if strengths else None, strengths.at if strengths else at, numbers.numbers,
                numbers.at,
            )  # fmt: skip
            return
        family.numbers, family.data_at = numbers.numbers, numbers.at
        family.locate = lambda position: self.locate(numbers, position)

    def keep(self, child: str, block: _Value, family: Family) -> None:
        kept: dict[str, Any] = {}
        label, comment = block.word("HEADER", "NAME"), block.word("HEADER", "COMMENT")
        if label and label != child:
            kept["label"] = label
        if comment:
            kept["comment"] = comment
        for key, names in (("position", ("CENTER_X", "CENTER_Y")), ("size", ("WIDTH", "HEIGHT"))):
            pair = tuple(_whole(block.word("SCREEN", "POSITION", n)) for n in names)
            if None not in pair and pair != SIZE:
                kept[key] = pair
        properties, of_table = [], []
        labels: dict[str, str] = {}
        user = block.get("USER_PROPERTIES")
        for key, value in user.inner.items() if user else ():
            text = value.text or ""
            identity, _, name = text.partition("=")
            if not key.startswith(PREFIX):
                properties.append(f"{key} = {text}")
            elif key == f"{PREFIX}ROWS":
                family.exact = text == "exact"
            elif key == f"{PREFIX}NAME":
                if identity == child:
                    self.new[child] = name
            elif key.startswith(f"{PREFIX}STATE_"):
                labels[identity] = name
            elif key.startswith(f"{PREFIX}TABLE_"):
                of_table.append(text)
            else:
                properties.append(text)
        self.draft.states[child] = tuple(labels.get(s, s) for s in self.draft.states[child])
        if properties:
            kept["property"] = tuple(properties)
        if kept:
            self.draft.attributes["node"][child] = kept
        if of_table:
            self.draft.attributes["potential"][child] = {"property": tuple(of_table)}

    def about(self, net: _Value) -> None:
        """The attributes of the network."""
        about = self.draft.attributes["net"]
        label, comment = net.word("HEADER", "NAME"), net.word("HEADER", "COMMENT")
        if label and label != self.draft.name:
            about["label"] = label
        if comment:
            about["comment"] = comment
        properties = []
        user = net.get("USER_PROPERTIES")
        for key, value in user.inner.items() if user else ():
            text = value.text or ""
            if key == f"{PREFIX}ORDER":
                reorder(self.draft, text.split())
            elif key == f"{PREFIX}NETWORK":
                self.draft.name = text
                if about.get("label") == text:
                    del about["label"]
            else:
                properties.append(text if key.startswith(PREFIX) else f"{key} = {text}")
        if properties:
            about["property"] = tuple(properties)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,9}", text) else None
