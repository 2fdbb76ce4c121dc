"""DSL, the text format of GeNIe and SMILE before XDSL: reader; `jtgpu.formats.dsl_writer` writes.

* ``PROBABILITIES`` list the first of ``PARENTS`` slowest and the child fastest.
* ``TRUTHTABLE`` and ``NOISY_MAX`` nodes become plain tables (`jtgpu.formats.canonical_nodes`); the numbers of noisy
  nodes are kept as attributes, and written as long as the table is theirs.
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
from typing import Any

from ..errors import shown
from .canonical_nodes import Expander
from .draft import Draft, FamilyDraft
from .dsl_values import SKIP, TOKEN, Value, ValueReader
from .finish import parsers_of
from .text import SourceText, nth_word
from .xdsl import SIZE

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
