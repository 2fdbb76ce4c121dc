"""Hugin ``.net``: reader of discrete Bayesian networks.

The format, and the habits of real files:

* ``data`` lists a table with the first parent slowest and the child fastest. Parentheses are redundant; they are
  counted but not required. Rows need not sum to 1 and are normalised.
* A node without a potential, or with a potential without numbers, is uniform.
* Classes, instances and temporal clones: see `jtgpu.formats.hugin_objects`.
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
from typing import Any

from ..errors import shown
from .draft import Draft, Family, Number
from .finish import parsers_of
from .hugin_blocks import BlockReader
from .hugin_objects import Scope, add_slices, flattened
from .hugin_values import SKIP, Verbatim, read_data, read_densities
from .linear import NotLinear
from .text import Source

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


def sniff(text: str) -> bool:
    """Whether a text begins like a Hugin network."""
    return _START.match(text) is not None


class HuginReader(BlockReader):
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
            draft.numbers[name] = Number(start)
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
        family = Family(child, [], at, data_at=at)
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
            draft.refused[child] = at, "node given by a model without data"
        if kept.get("jtgpu_rows") == "exact":
            family.exact = True
            del kept["jtgpu_rows"]
        draft.families[child] = family
        if kept:
            draft.attributes["potential"][child] = kept

    def densities(self, family: Family) -> None:
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


parse_draft, parse = parsers_of(lambda text, source: HuginReader(Source(text, source)).file())
