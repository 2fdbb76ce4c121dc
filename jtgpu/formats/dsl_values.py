"""The grammar of DSL files: statements, blocks, lists of names and of numbers; `jtgpu.formats.dsl` interprets them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

from ..errors import shown
from ..util.arrays import Floats
from .block_reader import BlockReader, numbers_until, skipped, token_pattern
from .text import floats

MAX_DEPTH = 100
SKIP = skipped(r"|/\#[^#]*+(?:\#(?!/)[^#]*+)*+\#/")
TOKEN = token_pattern(SKIP, "=;,", comment="/*#")
_NUMERIC = ("PROBABILITIES", "STRENGTHS", "UTILITIES", "WEIGHTS")
_BLOCKS = ("DEFINITION", "HEADER", "POSITION", "SCREEN", "USER_PROPERTIES")  # the blocks that are read
_LISTS = ("NAMECHOICES", "NAMESTATES", "PARENTS", "RESULTINGSTATES")  # the lists of names that are read
_CLOSING = {"{": "}", "(": ")"}


@dataclass
class Value:
    """The value behind an ``=``, or a block without one."""

    at: int
    text: str | None = None  # of a word or a string
    items: list[tuple[str, int]] | None = None  # of a list, with their offsets
    numbers: Floats | None = None  # of a list of numbers
    end: int = 0  # offset of its ')'
    inner: dict[str, Value] = field(default_factory=dict)
    is_block: bool = False

    def get(self, *path: str) -> Value | None:
        value: Value | None = self
        for key in path:
            value = value.inner.get(key) if value else None
        return value

    def word(self, *path: str) -> str | None:
        value = self.get(*path)
        return value.text if value else None


class ValueReader(BlockReader):
    """Reads statements and blocks; a reader of networks adds the nodes."""

    @abstractmethod
    def node(self, depth: int) -> None:
        """Read the node at the cursor."""

    def body(self, depth: int, has_nodes: bool = False) -> Value:
        """``{ ... }`` of a network or a submodel, which have nodes, of a node or of a value: statements and blocks."""
        tokens = self.tokens
        self.check_depth(depth)
        value = Value(tokens.start, is_block=True)
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
                self.named_block(key, at, depth, value if has_nodes else None, value)
            if tokens.at(";"):
                tokens.advance()
            elif not tokens.at("}") and not block:
                tokens.fail(f"';' after {shown(key)}")
        tokens.advance()
        return value

    def named_block(self, key: str, at: int, depth: int, outer: Value | None, within: Value) -> None:
        """A ``submodel X { ... }`` of the network `outer`, or another block with a name, which is skipped."""
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

    def value(self, key: str, depth: int) -> Value:
        tokens = self.tokens
        if tokens.at("{"):
            if key in _BLOCKS:
                return self.body(depth + 1)
            value = Value(tokens.start, is_block=True)
            self.skip(depth + 1)
            return value
        if not tokens.at("("):
            value = Value(tokens.start)
            value.text = self.name(f"the value of {shown(key)}")
            return value
        value = Value(tokens.end)
        if key in _NUMERIC:
            return self.numbers(value)
        if key in _LISTS:
            return self.list(value)
        self.skip(depth)
        return value

    def list(self, value: Value) -> Value:
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

    def numbers(self, value: Value) -> Value:
        tokens, text, begin = self.tokens, self.source.text, self.tokens.end
        end = text.find(")", begin)
        values = floats(text, begin, end, ",") if end >= 0 else None
        if values is None:  # comments between the numbers, or an error
            tokens.advance()
            values = numbers_until(tokens, ")", any_commas=True)
            end = tokens.start
        else:
            tokens.jump(end)
        tokens.advance()
        value.numbers, value.end = values, end
        return value
