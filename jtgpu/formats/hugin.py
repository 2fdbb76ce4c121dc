"""Hugin ``.net``: reader of discrete Bayesian networks.

The format, and the habits of real files:

* ``data`` lists a table with the first parent slowest and the child fastest. Parentheses are redundant; they are
  counted but not required. Rows need not sum to 1 and are normalised.
* A node without a potential, or with a potential without numbers, is uniform.
* Classes, instances and temporal clones: see `jtgpu.formats.hugin_values`.
* Attributes without a meaning for the model (labels, positions, fonts, ``experience`` ...) are stored in
  ``net.attributes`` and written back: a string as `str`, a number as `int` or `float`, a plain list as a tuple of
  these, an identifier or anything else as a `Verbatim` string. Comments are dropped.
* A file cannot express whether its rows are to be normalised. Potentials whose rows would change when read back (they
  sum to 1 within the tolerance of the network only) are written with the attribute ``jtgpu_rows = "exact"``.

* ``decision`` nodes have states and information arcs, ``utility`` nodes numbers and no states; utilities add up.

* ``continuous`` nodes with ``normal(...)`` densities, linear in their continuous parents, make a mixed network.

Refused, with their names: other continuous and function nodes, instances of classes in other files, potentials with
a model and no numbers, potentials of several children.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import shown
from .draft import Draft, FamilyDraft, NumberDraft
from .finish import parsers_of
from .hugin_values import (
    SCALARS,
    SKIP,
    TOKEN,
    Instance,
    Scope,
    Verbatim,
    add_slices,
    flattened,
    read_data,
    read_densities,
    scalar,
)
from .linear import NotLinear
from .text import SourceText, Tokens, unquote

_START = re.compile(
    SKIP + r"(?:net\s*+[{%]|class\s++[\w.]++\s*+[{%]|potential\s*+\(|(?:(?:continuous|discrete)\s++)?+"
    r"(?:node|decision|utility|function)\s++[\w.]++\s*+[{%])"
)

# Blocks that cannot be read, and their names in messages.
_REFUSED = {
    "continuous": "continuous node",
    "function": "function node",
}
_BLOCKS = ("net", "class", "node", "decision", "utility", "discrete", "potential", "instance", "temporal", *_REFUSED)
# The most frequent attributes, matched in one step: a string, integers in parentheses, a list of strings.
_BLANKS = r"[ \t\r\n\f\v]*+"
_PLAIN_VALUE = re.compile(
    rf'{_BLANKS}={_BLANKS}(?:"(?P<string>[^"\\]*+)"'
    rf"|\({_BLANKS}(?P<numbers>-?[0-9]{{1,14}}(?:[ \t]++-?[0-9]{{1,14}})*+){_BLANKS}\)){_BLANKS};"
)
_PLAIN_LIST = re.compile(rf'{_BLANKS}={_BLANKS}\((?P<strings>(?:{_BLANKS}"[^"\\]*+")++){_BLANKS}\){_BLANKS};')
_PLAIN_STRING = re.compile(r'"([^"]*+)"')


class HuginBlocks:
    """A cursor over the tokens of a file, and the nodes of the class that is read."""

    def __init__(self, source: SourceText):
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
        """The head of a copy, ``T_X : X``: offset and name of the copy, and name and offset of the original."""
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


def sniff(text: str) -> bool:
    """Whether a text begins like a Hugin network."""
    return _START.match(text) is not None


class HuginReader(HuginBlocks):
    """Fills a `Draft` in one pass over the tokens of a file."""

    def file(self) -> Draft:
        tokens = self.tokens
        if tokens.kind == "end":
            tokens.fail("a Hugin network: 'net', 'class', 'node' or 'potential'")
        draft, clones = flattened(self.source, self.classes()) if tokens.at("class") else self.plain()
        add_slices(draft, clones, self.source.error)
        name = draft.attributes["net"].get("name")
        if isinstance(name, str) and not isinstance(name, Verbatim):
            draft.name = name
        order = draft.attributes["net"].pop("jtgpu_order", "")
        draft.order = tuple(order.split()) if isinstance(order, str) else ()
        return draft

    # Blocks ---------------------------------------------------------------------------------------------------

    def plain(self) -> tuple[Draft, Any]:
        """A file without classes."""
        while self.tokens.kind != "end":
            self.block()
        return flattened(self.source, {"": self.scope})

    def classes(self) -> dict[str, Scope]:
        """The classes of a file."""
        tokens, scopes = self.tokens, dict[str, Scope]()
        while tokens.at("class"):
            start = tokens.start
            tokens.advance()
            name = self.name("the class's name")
            if name in scopes:
                raise self.source.error(start, f"the class {name!r} is declared a second time")
            self.scope, self.seen_net = Scope(Draft(self.source, "Hugin net", name)), False
            tokens.expect("{", "after the class's name")
            seen: set[str] = set()
            while not tokens.at("}"):
                if tokens.kind == "end":
                    tokens.fail("'}' at the end of the class")
                if tokens.at(*_BLOCKS) and not self.is_attribute():
                    self.block()
                else:
                    self.attribute(self.draft.attributes["net"], seen, {})
            tokens.advance()
            if tokens.at(";"):
                tokens.advance()
            inputs = self.draft.attributes["net"].get("inputs", ())
            self.scope.inputs = tuple(map(str, inputs)) if isinstance(inputs, tuple) else ()
            scopes[name] = self.scope
        if tokens.kind != "end":
            tokens.fail("the end of the file after the class, or another class")
        return scopes

    def block(self) -> None:
        tokens = self.tokens
        if tokens.at("net") and not self.seen_net:
            self.seen_net = True
            tokens.advance()
            self.attributes(self.draft.attributes["net"], "the net block", {})
        elif tokens.at("node", "decision", "utility"):
            self.node()
        elif tokens.at("potential"):
            self.potential()
        elif tokens.at("discrete"):
            tokens.advance()
            if tokens.at("node"):
                self.node()
            elif tokens.at("function"):
                self.refuse()
            else:
                tokens.fail("'node' after 'discrete'")
        elif tokens.at(*_REFUSED):
            self.refuse()
        elif tokens.at("temporal"):
            self.temporal()
        elif tokens.at("instance"):
            self.instance()
        elif tokens.at("net"):
            tokens.fail("no second 'net' block")
        elif tokens.at("class"):
            tokens.fail("no class here: object-oriented networks are not supported")
        else:
            tokens.fail("'net', 'node' or 'potential'")

    def refuse(self) -> None:
        """Record a block that cannot be read, and move past it."""
        tokens, draft, start = self.tokens, self.draft, self.tokens.start
        kind = tokens.take()
        if kind == "continuous":
            tokens.expect("node", "after 'continuous'")
        what = _REFUSED[kind]
        name = self.name(f"the name of the {what}")
        if draft.has(name) or name in self.scope.clones:
            raise self.source.error(start, f"the node {name!r} is declared a second time")
        draft.refused[name] = start, what
        if kind == "continuous":
            draft.numbers[name] = NumberDraft(start)
            kept: dict[str, Any] = {}
            self.attributes(kept, f"the {what} {name!r}", {})
            draft.attributes["node"] |= {name: kept} if kept else {}
            return
        self.skip()

    def node(self) -> None:
        tokens, draft = self.tokens, self.draft
        kind = tokens.take()
        start = tokens.start
        name = self.name(f"the {kind}'s name")
        if draft.has(name) or name in self.scope.clones:
            raise self.source.error(start, f"the node {name!r} is declared a second time")
        kept: dict[str, Any] = {}
        lists: list[tuple[str, ...]] = []
        self.attributes(kept, f"{kind} {name!r}", {"states": lambda: lists.append(self.states())})
        if kind == "utility":
            draft.utilities[name] = start
            if kept:
                draft.attributes["node"][name] = kept
            return
        if not lists:
            raise self.source.error(start, f"the {kind} {name!r} has no states")
        draft.declare(name, lists[0], start, kept)
        if kind == "decision":
            draft.decisions[name] = None

    def potential(self) -> None:
        tokens, draft = self.tokens, self.draft
        tokens.advance()
        tokens.expect("(", "after 'potential'")
        children = [(tokens.start, self.name("the name of a node"))]
        while not tokens.at("|", ")"):
            children.append((tokens.start, self.name("'|', ')' or the name of a node")))
        at, child = children[0]
        if len(children) > 1:
            names = ", ".join(repr(c) for _, c in children[:4])
            raise self.source.error(at, f"found a potential of several children ({names}); only one child is supported")
        if child in draft.families:
            raise self.source.error(at, f"found a second potential of {child!r}, expected one")
        family = FamilyDraft(child, [], at, data_at=at)
        if tokens.at("|"):
            tokens.advance()
            while not tokens.at(")"):
                start = tokens.start
                family.parents.append((self.name("')' or the name of a parent"), start))
        tokens.advance()
        if child in draft.numbers:
            self.densities(family)
            return
        copied = self.scope.clones.get(child, (0, child, 0))[1]  # the clone of what cannot be read cannot be read
        if copied in draft.refused:
            self.skip()
            return
        kept: dict[str, Any] = {}
        self.attributes(kept, f"the potential of {child!r}", {"data": lambda: read_data(tokens, family)})
        if family.numbers is None and kept.get("model_data", ()) != ():
            draft.refused[child] = at, "node given by a model without data (save the file with its tables)"
        if kept.get("jtgpu_rows") == "exact":
            family.exact = True
            del kept["jtgpu_rows"]
        draft.families[child] = family
        if kept:
            draft.attributes["potential"][child] = kept

    def densities(self, family: FamilyDraft) -> None:
        """The potential of a continuous node; another density than a linear one makes it a node that is not read."""
        draft, name = self.draft, family.child
        node = draft.numbers[name]
        if node.densities:
            raise self.source.error(family.at, f"found a second potential of {name!r}, expected one")
        node.parents = family.parents

        def read() -> None:
            node.data_at = self.tokens.end
            try:
                node.densities = read_densities(self.tokens)
            except NotLinear as error:
                text = f"continuous node with {shown(str(error))}, which is no linear density,"
                draft.refused[name] = draft.refused[name][0], text

        kept: dict[str, Any] = {}
        self.attributes(kept, f"the potential of {name!r}", {"data": read})
        order = str(kept.get("jtgpu_parents", "")).split()
        if sorted(order) == sorted(p for p, _ in node.parents):
            at = dict(node.parents)
            node.parents = [(p, at[p]) for p in order]
        kept.pop("jtgpu_parents", None)
        draft.attributes["potential"] |= {name: kept} if kept else {}


parse_draft, parse = parsers_of(lambda text, source: HuginReader(SourceText(text, source)).file())
