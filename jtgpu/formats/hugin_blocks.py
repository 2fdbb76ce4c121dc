"""Parts of Hugin files: names, attributes and their values, states, and the heads of copies (clones and instances)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import shown
from .draft import Draft
from .hugin_objects import Instance, Scope
from .hugin_values import SCALARS, TOKEN, Verbatim, scalar
from .text import Source, Tokens, unquote

# The most frequent attributes, matched in one step: a string, integers in parentheses, a list of strings.
_BLANKS = r"[ \t\r\n\f\v]*+"
_PLAIN_VALUE = re.compile(
    rf'{_BLANKS}={_BLANKS}(?:"(?P<string>[^"\\]*+)"'
    rf"|\({_BLANKS}(?P<numbers>-?[0-9]{{1,14}}(?:[ \t]++-?[0-9]{{1,14}})*+){_BLANKS}\)){_BLANKS};"
)
_PLAIN_LIST = re.compile(rf'{_BLANKS}={_BLANKS}\((?P<strings>(?:{_BLANKS}"[^"\\]*+")++){_BLANKS}\){_BLANKS};')
_PLAIN_STRING = re.compile(r'"([^"]*+)"')


class BlockReader:
    """A cursor over the tokens of a file, and the nodes of the class that is read."""

    def __init__(self, source: Source):
        self.source = source
        self.tokens = Tokens(source, TOKEN)
        self.scope = Scope(Draft(source, "Hugin net"))
        self.seen_net = False

    @property
    def draft(self) -> Draft:
        """The nodes of the class that is read."""
        return self.scope.draft

    def is_attribute(self) -> bool:
        """Whether the keyword at the cursor is the name of an attribute (``function = ...``)."""
        follows = TOKEN.match(self.source.text, self.tokens.end)
        return follows is not None and follows["mark"] == "="

    def skip(self) -> None:
        """Move past the block at the cursor, or past its ``;``; only brackets have to match."""
        tokens, depth, last = self.tokens, 0, False
        while not last:
            if tokens.kind == "end" or tokens.at('"'):
                tokens.fail("'}' at the end of the block")
            depth += tokens.at("{", "(") - tokens.at("}", ")")
            last = depth <= 0 and tokens.at(";", "}")
            tokens.advance()

    def copied(self) -> tuple[int, str, str, int]:
        """The head of a copy, ``T_X : X``: offset, name, name of what it is a copy of, and the latter's offset."""
        tokens, start = self.tokens, self.tokens.start
        what = "temporal clone" if tokens.take() == "temporal" else "instance"
        name = self.name(f"the name of the {what}")
        if self.draft.has(name) or name in self.scope.clones or name in self.scope.instances:
            raise self.source.error(start, f"the node {name!r} is declared a second time")
        tokens.expect(":", f"after the name of the {what}")
        at = tokens.start
        return start, name, self.name(f"the name of what the {what} is a copy of"), at

    def temporal(self) -> None:
        """A clone of a node in an earlier slice."""
        start, name, of, at = self.copied()
        self.attributes({}, f"the temporal clone {name!r}", {})
        self.scope.clones[name] = start, of, at

    def instance(self) -> None:
        """A copy of a class."""
        start, name, of, _ = self.copied()
        made = self.scope.instances[name] = Instance(start, of, [], [])
        tokens = self.tokens
        tokens.expect("(", "after the class of an instance")
        part = made.inputs
        while not tokens.at(")"):
            if tokens.at(";") and part is made.inputs:
                part = made.outputs
            elif not tokens.at(","):
                begin = tokens.start
                left = self.name("')' or a name")
                tokens.expect("=", f"after {shown(left)}")
                part.append((left, self.name("a name"), begin))
                continue
            tokens.advance()
        tokens.advance()
        if tokens.at(";"):
            tokens.advance()
        else:
            self.attributes({}, f"the instance {name!r}", {})

    # Attributes -----------------------------------------------------------------------------------------------

    def name(self, what: str) -> str:
        tokens = self.tokens
        if tokens.kind != "name" and (tokens.kind != "number" or tokens.text[0] in "+-"):
            tokens.fail(what)
        return tokens.take()

    def attributes(self, kept: dict[str, Any], owner: str, special: Mapping[str, Callable[[], object]]) -> None:
        tokens = self.tokens
        tokens.expect("{", f"to begin {owner}")
        seen: set[str] = set()
        while not tokens.at("}"):
            if tokens.kind == "end":
                tokens.fail(f"'}}' at the end of {owner}")
            self.attribute(kept, seen, special)
        tokens.advance()

    def attribute(self, kept: dict[str, Any], seen: set[str], special: Mapping[str, Callable[[], object]]) -> None:
        """One ``name = value ;``. Functions in `special` are called at the ``=`` and stop at the ``;``."""
        tokens, start = self.tokens, self.tokens.start
        if tokens.kind != "name":
            tokens.fail("the name of an attribute, or '}'")
        name = tokens.take()
        if not tokens.at("="):
            tokens.fail(f"'=' after {shown(name)}")
        if name in seen:
            if name in special:
                raise self.source.error(start, f"the attribute {name!r} occurs a second time")
            self.draft.note(start, f"the attribute {shown(name)} occurs a second time; the last one counts")
        seen.add(name)
        if name in special:
            special[name]()
        elif plain := _PLAIN_VALUE.match(self.source.text, start + len(name)):
            string = plain["string"]
            kept[name] = tuple(map(int, plain["numbers"].split())) if string is None else string
            tokens.jump(plain.end())
            return
        else:
            tokens.advance()
            kept[name] = self.value()
        if not tokens.at(";"):
            tokens.fail(f"';' at the end of {shown(name)}")
        tokens.advance()

    def value(self) -> Any:
        """The value of any attribute, up to the ``;``."""
        tokens, first = self.tokens, self.tokens.start
        last = first
        parts: list[tuple[str, str]] = []
        while not tokens.at(";"):
            if tokens.kind == "end" or tokens.at("{", "}", '"'):
                tokens.fail("';' at the end of the value")
            parts.append((tokens.kind, tokens.text))
            last = tokens.end
            tokens.advance()
        if not parts:
            tokens.fail("a value")
        if len(parts) == 1:
            return scalar(*parts[0])
        inner = parts[1:-1]
        if parts[0] == ("mark", "(") and parts[-1] == ("mark", ")") and all(k in SCALARS for k, _ in inner):
            return tuple(scalar(*part) for part in inner)
        return Verbatim(self.source.text[first:last])

    def states(self) -> tuple[str, ...]:
        """The list of states: quoted, or bare words and numbers."""
        tokens = self.tokens
        if plain := _PLAIN_LIST.match(self.source.text, tokens.start):
            tokens.jump(plain.end() - 1)
            return tuple(_PLAIN_STRING.findall(plain["strings"]))
        tokens.advance()
        start = tokens.expect("(", "before the states")
        states = []
        while not tokens.at(")"):
            if tokens.kind not in SCALARS:
                tokens.fail("a state in double quotes, or ')'")
            states.append(unquote(tokens.text) if tokens.kind == "string" else tokens.text)
            tokens.advance()
        tokens.advance()
        if not states:
            raise self.source.error(start, "found an empty list of states, expected one state at least")
        return tuple(states)
