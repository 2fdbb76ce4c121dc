"""DSL, the text format of GeNIe and SMILE before XDSL: reader and writer.

* ``PROBABILITIES`` list the first of ``PARENTS`` slowest and the child fastest.
* ``TRUTHTABLE`` nodes become plain tables; ``NOISY_MAX`` nodes keep their strengths (`jtgpu.formats.canonical_nodes`).
* ``LIST`` nodes are decisions with ``NAMECHOICES``, ``TABLE`` nodes utilities, which add up with the ``WEIGHTS`` of
  ``MAU`` nodes.
* Attributes: ``label`` (``NAME``), ``comment``, ``position`` and ``size`` of the node's picture, and user properties as
  ``property``, a tuple of ``"key = value"``.
* Blocks of other keys are skipped, whatever is between their braces; ``OBSERVATION_COST`` has blocks named ``node``
  that declare no nodes.

Refused, with their names: nodes of all other types, and sums of utilities with an expression.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import shown
from ..model.discrete import DiscreteModel
from ..util.arrays import Floats
from .block_reader import BlockReader, numbers_until, skipped, token_pattern
from .canonical_nodes import Expander, noisy_numbers, turned_for_file
from .draft import Draft, FamilyDraft
from .finish import parsers_of
from .number_cursor import WrittenNetwork, identifiers, inexact, strings, whole_numbers, with_decisions
from .text import SourceText, floats, nth_word, number, quote
from .xdsl import SIZE

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


PREFIX = "JTGPU_"  # of user properties for what the format cannot represent

_START = re.compile(SKIP + r"net\s++(?:[^\s{}()=;,\"]++|\"[^\"]*+\")\s*+\{")
_CHANCE = ("CPT", "TRUTHTABLE", "NOISY_MAX")
_REFUSED = {
    "EQUATION": "equation node",
    "NOISY_ADDER": "noisy-adder node",
    "NOISY_OR": "noisy-OR node of an old kind",
    "NOISY_AND": "noisy-AND node of an old kind",
}


def sniff(text: str) -> bool:
    """Does the text begin as a DSL network does? (Hugin's blocks have no name behind ``net``.)"""
    return _START.match(text) is not None


class DslReader(ValueReader):
    def __init__(self, source: SourceText):
        super().__init__(source, TOKEN, "DSL")
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
        draft.rename(self.new)
        return draft

    # Nodes ----------------------------------------------------------------------------------------------------

    def node(self, depth: int) -> None:
        draft, (child, at) = self.draft, self.new_name()
        block = self.body(depth + 1)
        kind = (block.word("TYPE") or "CPT").upper()
        if kind not in (*_CHANCE, "LIST", "TABLE", "MAU"):
            draft.refused[child] = at, _REFUSED.get(kind, f"node of type {shown(kind)}")
            return
        parents = block.get("PARENTS")
        family = FamilyDraft(child, list(parents.items or ()) if parents else [], at)
        if kind == "MAU":
            self.weighted_sum(family, block)
            return
        if kind == "TABLE":
            draft.utilities[child] = at
        else:
            key = "NAMESTATES" if kind in _CHANCE else "NAMECHOICES"
            names = block.get("DEFINITION", key)
            if names is None or not names.items:
                raise self.source.error(at, f"the node {child!r} has no {key}")
            draft.declare(child, tuple(s for s, _ in names.items), at)
        draft.families[child] = family
        if kind == "LIST":
            draft.decisions[child] = None
        else:
            self.table(family, kind, block)
        self.keep(child, block, family)

    def weighted_sum(self, family: FamilyDraft, block: Value) -> None:
        """A sum of utilities, with weights or without."""
        definition, weights = block.get("DEFINITION"), block.get("DEFINITION", "WEIGHTS")
        odd = [key for key in definition.inner if key not in ("WEIGHTS", "NAMESTATES")] if definition else []
        self.draft.combined[family.child] = family
        if odd:
            what = f"sum of utilities with {odd[0]}, not with WEIGHTS,"
            self.draft.refused[family.child] = family.at, what
        elif weights is not None and weights.numbers is not None:
            self.numbers_of(family, weights)

    def table(self, family: FamilyDraft, kind: str, block: Value) -> None:
        child, at = family.child, family.at
        key = "UTILITIES" if kind == "TABLE" else "PROBABILITIES"
        numbers = block.get("DEFINITION", key)
        if kind == "TRUTHTABLE":
            results = block.get("DEFINITION", "RESULTINGSTATES")
            items = (results.items if results else None) or []
            place = results.at if results else at
            self.expander.function(family, [s for s, _ in items], lambda i: items[i][1], place)
            return
        if numbers is None or numbers.numbers is None:
            raise self.source.error(at, f"the node {child!r} has no {key}")
        if kind == "NOISY_MAX":
            strengths = block.get("DEFINITION", "STRENGTHS")
            self.expander.noisy(
                family, strengths.numbers if strengths else None, strengths.at if strengths else at, numbers.numbers,
                numbers.at,
            )  # fmt: skip
            return
        self.numbers_of(family, numbers)

    def numbers_of(self, family: FamilyDraft, numbers: Value) -> None:
        family.numbers, family.data_at = numbers.numbers, numbers.at
        family.locate = lambda position: nth_word(self.source, TOKEN, numbers.at, numbers.end, position)

    def keep(self, child: str, block: Value, family: FamilyDraft) -> None:
        kept = _header(block, child)
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
        if child in self.draft.states:
            self.draft.states[child] = tuple(labels.get(s, s) for s in self.draft.states[child])
        if properties:
            kept["property"] = tuple(properties)
        if kept:
            self.draft.attributes["node"][child] = kept
        if of_table:
            self.draft.attributes["potential"].setdefault(child, {})["property"] = tuple(of_table)

    def about(self, net: Value) -> None:
        """The attributes of the network."""
        about = self.draft.attributes["net"]
        about.update(_header(net, self.draft.name))
        properties = []
        user = net.get("USER_PROPERTIES")
        for key, value in user.inner.items() if user else ():
            text = value.text or ""
            if key == f"{PREFIX}ORDER":
                self.draft.reorder(text.split())
            elif key == f"{PREFIX}NETWORK":
                self.draft.name = text
                if about.get("label") == text:
                    del about["label"]
            else:
                properties.append(text if key.startswith(PREFIX) else f"{key} = {text}")
        if properties:
            about["property"] = tuple(properties)


def _header(block: Value, name: str) -> dict[str, Any]:
    """The label and the comment of a network or node of this name."""
    label, comment = block.word("HEADER", "NAME"), block.word("HEADER", "COMMENT")
    kept = {"label": label} if label and label != name else {}
    return kept | ({"comment": comment} if comment else {})


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,9}", text) else None


parse_draft, parse = parsers_of(lambda text, source: DslReader(SourceText(text, source)).file())


def dumps(net: DiscreteModel) -> str:
    """The text of a DSL file with `net`; it reads back equal, bit for bit."""
    # raises FormatError: If the model is neither a Bayesian network nor a decision network whose utilities add up.
    return "\n".join([*_lines(with_decisions(turned_for_file(net), "a DSL file")), ""])


def _lines(parts: WrittenNetwork) -> Iterator[str]:
    net, names = parts.net, [*parts.net.variables, *parts.utilities]
    ids = dict(zip(names, identifiers(names, "node_"), strict=True))
    order = net.topological_order()
    name = identifiers([net.name], "Network")[0]
    about = net.attributes.get("net", {})
    yield f"net {name}"
    yield "{"
    label = about.get("label")
    yield from _block("HEADER", [("ID", name), ("NAME", quote(label if isinstance(label, str) else net.name or name)),
                                 *_comment(about)], 1)  # fmt: skip
    user = list(_properties(about, "NET"))
    if name != net.name:
        user.append((f"{PREFIX}NETWORK", quote(net.name)))
    if order != net.variables:
        user.append((f"{PREFIX}ORDER", quote(" ".join(ids[v] for v in net.variables))))
    yield from _block("USER_PROPERTIES", user, 1)
    exact = inexact(parts)
    for v in (*order, *parts.utilities):
        yield ""
        yield from _node(parts, v, ids, v in exact)
    yield "};"


def _node(parts: WrittenNetwork, v: str, ids: Mapping[str, str], exact: bool) -> Iterator[str]:
    net = parts.net
    kept: Mapping[str, Any] = net.attributes.get("node", {}).get(v, {})
    own = () if v in parts.utilities else net.states(v)
    states = identifiers(own, "State_")
    label = kept.get("label")
    kind, definition = _definition(parts, v, states)
    yield f"\tnode {ids[v]}"
    yield "\t{"
    yield f"\t\tTYPE = {kind};"
    header = [("ID", ids[v]), ("NAME", quote(label if isinstance(label, str) else v)), *_comment(kept)]
    yield from _block("HEADER", header, 2)
    position = whole_numbers(kept.get("position"), 2)
    if position:
        size = whole_numbers(kept.get("size"), 2) or SIZE
        yield "\t\tSCREEN ="
        yield "\t\t{"
        numbers = zip(("CENTER_X", "CENTER_Y", "WIDTH", "HEIGHT"), map(str, (*position, *size)), strict=True)
        yield from _block("POSITION", list(numbers), 3)
        yield "\t\t};"
    user = list(_properties(kept, "NODE"))
    if ids[v] != v:
        user.append((f"{PREFIX}NAME", quote(f"{ids[v]}={v}")))
    user += [
        (f"{PREFIX}STATE_{i}", quote(f"{made}={true}"))
        for i, (made, true) in enumerate(zip(states, own, strict=True))
        if made != true
    ]
    if exact:
        user.append((f"{PREFIX}ROWS", quote("exact")))
    user += _properties(net.attributes.get("potential", {}).get(v, {}), "TABLE", named=False)
    yield from _block("USER_PROPERTIES", user, 2)
    yield f"\t\tPARENTS = ({', '.join(ids[p] for p in net.parents(v))});"
    yield from _block("DEFINITION", [(key, f"({', '.join(values)})") for key, values in definition], 2)
    yield "\t};"


def _definition(parts: WrittenNetwork, v: str, states: Sequence[str]) -> tuple[str, list[tuple[str, Iterable[str]]]]:
    """The type of a node, and the lists of its definition."""
    if v in parts.utilities:
        return "TABLE", [("UTILITIES", map(number, parts.utilities[v].ravel().tolist()))]
    if v in parts.decisions:
        return "LIST", [("NAMECHOICES", states)]
    noisy = noisy_numbers(parts.net, v)
    if noisy:
        parameters, strengths = noisy
        lists: list[tuple[str, Sequence[float]]] = [("STRENGTHS", strengths), ("PROBABILITIES", parameters)]
        return "NOISY_MAX", [("NAMESTATES", states), *((key, map(number, values)) for key, values in lists)]
    cells = parts.net.cpt(v).ravel().tolist()
    return "CPT", [("NAMESTATES", states), ("PROBABILITIES", map(number, cells))]


def _block(name: str, statements: Sequence[tuple[str, str]], depth: int) -> Iterator[str]:
    if statements:
        tabs = "\t" * depth
        yield f"{tabs}{name} ="
        yield f"{tabs}{{"
        yield from (f"{tabs}\t{key} = {value};" for key, value in statements)
        yield f"{tabs}}};"


def _comment(kept: Mapping[str, object]) -> list[tuple[str, str]]:
    comment = kept.get("comment")
    return [("COMMENT", quote(comment))] if isinstance(comment, str) else []


def _properties(kept: Mapping[str, object], where: str, *, named: bool = True) -> Iterator[tuple[str, str]]:
    """Properties as pairs of key and value; those without a key get their number as key."""
    seen: set[str] = set()
    for i, text in enumerate(strings(kept)):
        key, equals, value = text.partition(" = ")
        plain = named and equals and identifiers([key], "p") == [key] and not key.startswith(PREFIX) and key not in seen
        seen.add(key)
        yield (key, quote(value)) if plain else (f"{PREFIX}{where}_{i}", quote(text))
