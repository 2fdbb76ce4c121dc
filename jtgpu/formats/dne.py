"""Netica's text format, ``.dne``: reader.

* ``probs`` list the first parent slowest and the child fastest; parentheses are redundant. ``@imposs`` is 0. A node
  without numbers is uniform.
* ``functable`` gives a state for each configuration of the parents, by name or as ``#2``, counted from 0; of a utility
  it lists the utilities, which add up. ``kind = DECISION``: the parents are what is known when deciding.
* States without names are called by their ``statetitles``, ``levels`` (numbers, or intervals ``[0, 10)``) or numbers.
* ``evidence``, a finding that was entered, is a note; `jtgpu.read_evidence` of the file reads it.
* Attributes: ``label`` (``title``), ``comment``, ``position`` (``center`` of the picture). ``CONSTANT`` nodes are texts
  on the picture.

* ``equation``: a noisy-OR, ``P (e | a, b) = NoisyOrDist (e, leak, a, 0.8, b == high, 0.3)``, and a noisy-AND,
  ``NoisyAndDist``, without a table keep their strengths. Which of two states is true is known by their names.

Refused, with their names: other equations without a table, continuous nodes without levels, nodes with delays.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..errors import shown
from ..model.noisy import NoisyMax
from ..model.states import listed, present_state
from ..util.arrays import Floats
from .block_reader import skipped, token_pattern
from .canonical_nodes import Expander
from .draft import Draft, FamilyDraft
from .dsl import Value, ValueReader
from .finish import parsers_of
from .text import SourceText, floats, nth_word

_SKIP = skipped()
_TOKEN = token_pattern(_SKIP, "=;,")
_START = re.compile(r"[ \t\r\n]*+//[ \t]*+~->\[DNET")
_HEADLESS = re.compile(r"(?:\s*+(?://[^\n]*+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/))*+\s*+bnet\s++\w++\s*+\{")
_OWN = re.compile(r"\bprobs\s*+=|\bkind\s*+=\s*+(?:NATURE|DECISION|UTILITY|CONSTANT)\b")  # Elvira has neither
_COMMENT = re.compile(r"//[^\r\n]*+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/")
_LIST = re.compile(rf'(?:[^;"{{}}/]++|{_COMMENT.pattern}|/(?![/*]))*+')  # up to the ';'
_CENTER = re.compile(r"\bcenter\s*+=\s*+\(\s*+(-?[0-9]{1,9})\s*+,\s*+(-?[0-9]{1,9})\s*+\)")
_NOISY = re.compile(
    r"\s*+p\s*+\(\s*+(\w++)\s*+\|[^)]*+\)\s*+=\s*+Noisy(Or|And)Dist\s*+\(([^()]*+)\)\s*+;?\s*+", re.IGNORECASE
)
_CAUSE = re.compile(r"(\w++)(?:\s*+==\s*+(\w++))?")
_TABLES = ("probs", "functable", "levels")
_LISTS = ("states", "statetitles", "parents")


def sniff(text: str) -> bool:
    """Whether a text begins like a file of Netica."""
    return _START.match(text) is not None or (_HEADLESS.match(text) is not None and _OWN.search(text) is not None)


class DneReader(ValueReader):
    """Reads the statements of nodes, and interprets them."""

    def __init__(self, source: SourceText):
        super().__init__(source, _TOKEN, "Netica dne")
        self.expander = Expander(self.draft)
        self.constants: dict[str, int] = {}

    def file(self) -> Draft:
        tokens, draft = self.tokens, self.draft
        tokens.expect("bnet", "at the beginning of a Netica network")
        draft.name = self.name("the network's name")
        net = self.body(0, has_nodes=True)
        self.pass_over(";")
        if tokens.kind != "end":
            tokens.fail("the end of the file")
        about = draft.attributes["net"]
        about |= {to: text for key, to in (("title", "label"), ("comment", "comment")) if (text := net.word(key))}
        used = {p for family in draft.families.values() for p, _ in family.parents}
        for name, at in self.constants.items():
            if name in used:
                draft.refused[name] = at, "constant node"
        self.expander.run()
        return draft

    # Statements -----------------------------------------------------------------------------------------------

    def named_block(self, key: str, at: int, depth: int, outer: Value | None, within: Value) -> None:
        """A picture, of which the position is kept, or another block with a name, which is skipped."""
        tokens = self.tokens
        self.name(f"the name of {shown(key)}")
        if not tokens.at("{"):
            tokens.fail("'{'")
        begin = tokens.start
        self.skip(depth)
        if key == "visual" and (center := _CENTER.search(self.source.text, begin, tokens.start)):
            within.inner.setdefault("center", Value(begin, items=[(center[1], begin), (center[2], begin)]))

    def value(self, key: str, depth: int) -> Value:
        tokens = self.tokens
        if key in _TABLES and tokens.at("("):
            return self.table_value()
        if key in _LISTS and tokens.at("("):
            return self.list(Value(tokens.end))
        value = Value(tokens.start)
        if not tokens.at("(", "{"):
            value.text = self.name(f"the value of {shown(key)}")
        if tokens.at("(", "{"):  # also a font: a word and a block
            self.skip(depth + 1)
        return value

    def table_value(self) -> Value:
        """Numbers, or words where it has something else."""
        tokens, text, begin = self.tokens, self.source.text, self.tokens.start
        match = _LIST.match(text, begin)
        end = match.end() if match else begin
        body = text[begin:end]
        if "/" in body:
            body = _COMMENT.sub(lambda comment: " " * len(comment[0]), body)
        value = Value(begin, end=end)
        value.numbers = floats(body.replace("@imposs", " 0"), blanks="(),")
        if body.count("(") != body.count(")"):
            raise self.source.error(begin, f"found {body.count('(')} '(' and {body.count(')')} ')' in a table")
        if value.numbers is None:
            value.items = []
            while tokens.start < end and tokens.kind != "end":
                if not tokens.at("(", ")", ","):
                    at = tokens.start
                    value.items.append((self.name("a number or a state"), at))
                else:
                    tokens.advance()
        tokens.jump(end)
        return value

    # Nodes ----------------------------------------------------------------------------------------------------

    def node(self, depth: int) -> None:
        draft, (child, at) = self.draft, self.new_name()
        if child in self.constants:
            raise self.source.error(at, f"the node {child!r} is declared a second time")
        block = self.body(depth + 1)
        kind = (block.word("kind") or "NATURE").upper()
        table = block.get("probs") or block.get("functable")
        states = self.states(child, at, block) if kind in ("NATURE", "DECISION") else ()
        why = self.reason_against(child, kind, block, table, states)
        if kind == "CONSTANT":
            self.constants[child] = at
        elif why:
            draft.refused[child] = at, why
        if kind == "CONSTANT" or why:
            return
        parents = block.get("parents")
        family = FamilyDraft(child, list(parents.items or ()) if parents else [], at)
        draft.families[child] = family
        if kind == "UTILITY":
            draft.utilities[child] = at
        else:
            draft.declare(child, states, at)
        if kind == "DECISION":
            draft.decisions[child] = None
        kept: dict[str, object] = {}
        kept |= {to: text for key, to in (("title", "label"), ("comment", "comment")) if (text := block.word(key))}
        if center := block.get("center"):
            kept["position"] = tuple(int(number) for number, _ in center.items or ())
        if kept:
            draft.attributes["node"][child] = kept
        if finding := block.get("evidence"):
            self.finding(child, finding)
        if table is not None:
            self.table(family, table, "probs" in block.inner)
        elif noisy := noisy_equation(child, block):
            self.noisy(family, noisy, block.inner["equation"].at)

    def noisy(self, family: FamilyDraft, given: NoisyEquation, at: int) -> None:
        """Defer a noisy-OR, whose effect is that the child is true, or a noisy-AND: that it is false."""
        labels, names = self.draft.states, [p for p, _ in family.parents]

        def true(v: str) -> int:
            state = present_state(labels[v])
            if state is None:
                what = f"which of the states {listed(labels[v])} of {v!r} is true, as of yes and no"
                raise self.source.error(at, f"the equation of {family.child!r} needs to know {what}; save its table")
            return state

        def make(_: FamilyDraft, cards: list[int], n_states: int) -> NoisyMax:
            effect = true(family.child) if given.is_or else 1 - true(family.child)
            rows = []
            for v, card in zip(names, cards, strict=True):
                state, p = given.causes.get(v, (None, 0.0))
                if state is not None and state not in labels[v]:
                    raise self.source.error(at, f"the equation of {family.child!r}: {v!r} has no state {state!r}")
                held = np.arange(card) == (true(v) if state is None and p else labels[v].index(state or labels[v][0]))
                strengths = np.where(held == given.is_or, p, 0.0)
                rows.append(_effects(strengths, effect))
            leak = _effects(np.array([given.leak]), effect)[0]
            return NoisyMax(rows, leak, strongest=("first", "last")[effect])

        self.expander.kept.append((family, make))

    def finding(self, child: str, finding: Value) -> None:
        """A finding that was entered when the file was saved: evidence of its only case."""
        labels, word = self.draft.states.get(child, ()), finding.text or ""
        if word[:1] == "#" and word[1:].isdecimal() and len(word) < 9 and int(word[1:]) < len(labels):
            word = labels[int(word[1:])]
        if word in labels:
            self.draft.findings = self.draft.findings or [{}]
            self.draft.findings[0][child] = word, finding.at
            text = f"the finding {child} = {shown(word)} is not part of the network; read_evidence of the file reads it"
        else:
            text = f"skipped the evidence on {shown(child)}, which is no state but {shown(word or 'a list')}"
        self.draft.note(finding.at, text)

    def table(self, family: FamilyDraft, table: Value, is_probs: bool) -> None:
        at, items = table.at, table.items
        family.data_at = at
        family.locate = lambda position: nth_word(self.source, _TOKEN, at, table.end, position)
        if items is None and (is_probs or family.child in self.draft.utilities):
            family.numbers = table.numbers
            return
        if items is None:  # numbers that name states
            items = [(f"{x:g}", at) for x in (table.numbers if table.numbers is not None else ())]
        odd = next((item for item in items if not item[0].startswith("#") and floats(item[0]) is None), None)
        odd = odd or next((item for item in items if not item[0].startswith("#")), None)
        if odd is not None and (is_probs or family.child in self.draft.utilities):
            raise self.source.error(odd[1], f"found {shown(odd[0])}, expected a number")
        labels = self.draft.states[family.child]
        results = []
        for word, place in items:
            number = word[1:]
            if word.startswith("#"):
                if not number.isdecimal() or len(number) > 9 or int(number) >= len(labels):
                    raise self.source.error(place, f"found {shown(word)}, expected #0 to #{len(labels) - 1}")
                word = labels[int(number)]
            results.append(word)
        self.expander.function(family, results, lambda i: items[i][1], at)

    def reason_against(self, child: str, kind: str, block: Value, table: Value | None, states: tuple[str, ...]) -> str:
        """Why a node cannot be read; empty if it can."""
        if "delays" in block.inner:
            return "node with delays, of a dynamic network"
        if kind == "CONSTANT":
            return ""
        if kind not in ("NATURE", "DECISION", "UTILITY"):
            return f"node of kind {shown(kind)}"
        if table is None and "equation" in block.inner and (kind != "NATURE" or not noisy_equation(child, block)):
            return "equation node without a table, which Netica saves after Equation to Table,"
        return "continuous node without levels" if kind != "UTILITY" and not states else ""

    def states(self, child: str, at: int, block: Value) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the states; none of a continuous node without levels."""
        is_discrete = (block.word("discrete") or "TRUE").upper() == "TRUE"
        for key in ("states", "statetitles"):
            named = block.get(key)
            if named and named.items:
                return tuple(name for name, _ in named.items)
        levels = block.get("levels")
        if levels:
            words = [f"{x:g}" for x in levels.numbers] if levels.numbers is not None else []
            words = words or [word.lower().replace("infinity", "inf") for word, _ in levels.items or ()]
            return tuple(words) if is_discrete else tuple(f"[{a}, {b})" for a, b in pairwise(words))
        count = block.word("numstates")
        if count and count.isdecimal() and 0 < int(count[:9]) <= 1 << 16:
            return tuple(map(str, range(int(count[:9]))))
        if is_discrete:
            raise self.source.error(at, f"the node {child!r} has no states")
        return ()


class NoisyEquation(NamedTuple):
    """The equation of a noisy-OR, or noisy-AND."""

    is_or: bool
    leak: float
    causes: dict[str, tuple[str | None, float]]  # the state that holds, None: true; and the strength


def noisy_equation(child: str, block: Value) -> NoisyEquation | None:
    """The noisy-OR or noisy-AND of a node; None if it has another equation, or strengths that are no probabilities."""
    text = re.sub(r"\\n?|\\", " ", block.word("equation") or "")
    if not (match := _NOISY.fullmatch(text)) or match[1] != child:
        return None
    first, *words = [word.strip() for word in match[3].split(",")]
    numbers = floats(" ".join(words[::2]))
    causes = [_CAUSE.fullmatch(word) for word in words[1::2]]
    names = {cause[1] for cause in causes if cause}
    if first != child or len(words) % 2 == 0 or numbers is None or len(numbers) != len(words[::2]):
        return None
    known = {name for name, _ in (block.get("parents") or Value(0)).items or ()}
    if len(names) < len(causes) or not names <= known or not ((numbers >= 0) & (numbers <= 1)).all():
        return None
    strengths = zip(causes, numbers[1:].tolist(), strict=True)
    return NoisyEquation(
        match[2].lower() == "or", float(numbers[0]), {cause[1]: (cause[2], p) for cause, p in strengths if cause}
    )


def _effects(strengths: Floats, effect: int) -> Floats:
    """Rows of an effect that has these probabilities, in the child's order of states."""
    return np.stack([1.0 - strengths, strengths][:: 1 if effect else -1], axis=1)


parse_draft, parse = parsers_of(lambda text, source: DneReader(SourceText(text, source)).file())
