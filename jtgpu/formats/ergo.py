"""Ergo, ``.erg`` (Noetic Systems; the networks of the inference competition of 2006): reader and writer.

The number of variables; their numbers of states; for each variable the number of its parents and the parents,
counted from 0. Sections follow, each after its name in a comment: ``/* Probabilities */``, for each variable the size
of its table and the table, the first parent slowest, the child fastest; ``/* Names */``, one line per variable;
``/* Labels */``, the states' names, one line per variable. The last two are optional; by default, variables are ``v0``,
``v1`` ..., and states ``0``, ``1`` ...
"""

from __future__ import annotations

import re

import numpy as np

from ..errors import shown
from ..model.discrete import DiscreteModel
from .draft import Draft, FamilyDraft
from .finish import parsers_of
from .number_cursor import NumberCursor, bayesian, inexact, reject_transposed, state_names
from .text import BLANKS, SourceText
from .uai import number_lines

# An unclosed comment extends to the end of the text; otherwise each of many would be scanned up to there.
_COMMENT = re.compile(r"/\*(?P<text>[^*]*+(?:\*(?!/)[^*]*+)*+)(?P<close>\*/|\Z)")
_START = re.compile(rf"[0-9{BLANKS}]*+/\*[{BLANKS}]*+probabilities[{BLANKS}]*+\*/", re.IGNORECASE)
_SECTIONS = ("probabilities", "names", "labels")
_EXACT = "jtgpu_rows exact"
_WORD = re.compile(rf"[^{BLANKS}]++")
_LINE = re.compile(rf"[^\r\n{BLANKS}][^\r\n]*+")


def sniff(text: str) -> bool:
    """Does the text begin as an Ergo network does: numbers, and then the name of the first section?"""
    return text[:1] in f"0123456789{BLANKS}" and _START.match(text) is not None


class ErgoReader:
    """Reads the sections, the structure, the tables and the names."""

    def __init__(self, source: SourceText):
        self.source, text = source, source.text
        # comments, section names among them, are replaced by blanks
        self.text = _COMMENT.sub(lambda match: " " * (match.end() - match.start()), text) if "/*" in text else text
        self.sections: dict[str, tuple[int, int]] = {}  # name -> where its content begins and ends
        self.exact: set[int] = set()
        first, last, begin = len(text), "", 0
        for match in _COMMENT.finditer(text):
            if not match["close"]:
                raise source.error(match.start(), "found a comment whose closing */ is missing")
            name = match["text"].strip(BLANKS).lower()
            if name.startswith(_EXACT):
                self.exact |= {int(k) for k in _WORD.findall(name[len(_EXACT) :]) if k.isdecimal() and len(k) < 10}
            if name not in _SECTIONS:
                continue
            if name in self.sections or name == last:
                raise source.error(match.start(), f"found a second section {name!r}")
            if not last and name != "probabilities":
                raise source.error(match.start(), f"found the section {name!r}, expected '/* Probabilities */' first")
            if last:
                self.sections[last] = begin, match.start()
            first = min(first, match.start())
            last, begin = name, match.end()
        if last:
            self.sections[last] = begin, len(text)
        self.head = NumberCursor(source, self.text, 0, first)
        if "probabilities" not in self.sections:
            raise source.error(len(text), "found the end of the file, expected '/* Probabilities */'")

    def draft(self) -> Draft:
        head, source = self.head, self.source
        n = head.whole("the number of variables")
        if n > head.values.size:
            raise head.error(0, f"found {n:,} variables, and fewer numbers after it")
        cards = [head.whole(f"the number of states of variable {i}, 1 at least", 1) for i in range(n)]
        states = state_names(head, cards, range(1, 1 + n))
        parents = []
        for i in range(n):
            count = head.whole(f"the number of parents of variable {i}", 0, n - 1)
            parents.append([head.whole(f"a parent of variable {i}, 0 to {n - 1}", 0, n - 1) for _ in range(count)])
        head.finish()
        names = self.names(n)
        draft = Draft(source, "Ergo")
        draft.states = dict(zip(names, self.labels(cards, states), strict=True))
        draft.declared = dict(zip(names, head.offsets(np.arange(1, 1 + n)).tolist(), strict=True))
        places = iter(head.offsets(np.arange(1 + n, head.values.size)).tolist())
        for i, (v, before) in enumerate(zip(names, parents, strict=True)):
            at = next(places)
            family = FamilyDraft(v, [(names[p], next(places)) for p in before], at, exact=i in self.exact)
            draft.check_names(family)
            draft.families[v] = family
        self.tables(draft, parents, cards)
        return draft

    def tables(self, draft: Draft, parents: list[list[int]], cards: list[int]) -> None:
        numbers = NumberCursor(self.source, self.text, *self.sections["probabilities"])
        for i, family in enumerate(draft.families.values()):
            first = numbers.at + 1
            table = numbers.table((*(cards[p] for p in parents[i]), cards[i]), f"table {i}")
            family.numbers, family.locate = table.ravel(), numbers.locator(first)
            reject_transposed(numbers, first, table, f"table {i}")
        numbers.finish()

    def names(self, n: int) -> list[str]:
        """The variables' names: one per line, or one per word if the number of lines differs."""
        lines = self.entries("names", _LINE)
        words = lines if len(lines) == n else self.entries("names", _WORD)
        if not words:
            return [f"v{i}" for i in range(n)]
        if len(words) != n:
            raise self.source.error(self.sections["names"][0], f"found {len(lines)} names, expected {n}")
        seen: set[str] = set()
        for word, at in words:
            if word in seen:
                raise self.source.error(at, f"found the name {shown(word)} a second time")
            seen.add(word)
        return [word for word, _ in words]

    def labels(self, cards: list[int], otherwise: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """The states' names: words in the order of the variables."""
        words = self.entries("labels", _WORD)
        if not words:
            return otherwise
        if len(words) != sum(cards):
            for i, (line, at) in enumerate(self.entries("labels", _LINE)):
                if i < len(cards) and len(_WORD.findall(line)) != cards[i]:
                    raise self.source.error(
                        at, f"found {len(_WORD.findall(line))} labels for variable {i}, expected {cards[i]}"
                    )
            raise self.source.error(self.sections["labels"][0], f"found {len(words)} labels, expected {sum(cards)}")
        left = iter(word for word, _ in words)
        return [tuple([next(left) for _ in range(c)]) for c in cards]

    def entries(self, section: str, pattern: re.Pattern[str]) -> list[tuple[str, int]]:
        begin, end = self.sections.get(section, (0, 0))
        return [(match[0].rstrip(BLANKS), match.start()) for match in pattern.finditer(self.text, begin, end)]


# Writing ------------------------------------------------------------------------------------------------------


parse_draft, parse = parsers_of(lambda text, source: ErgoReader(SourceText(text, source)).draft())


def dumps(net: DiscreteModel) -> str:
    """The text of an Ergo file with a Bayesian network; its numbers read back bit for bit.

    State names are words: blanks in them become ``_``, an empty name becomes the state's number, and equal ones get
    another ``_``. Variable names are lines. Attributes are lost.
    """
    # raises FormatError: If the model is not a Bayesian network.
    net = bayesian(net, "an Ergo file")
    cards = net.cardinality.tolist()
    lines = [str(len(net)), " ".join(map(str, cards))]
    for scope, _ in net.factors:
        lines.append(" ".join(map(str, (len(scope) - 1, *scope[:-1]))))
    lines += ["", "/* Probabilities */"]
    for _, table in net.factors:
        lines += [str(table.size), *number_lines(table), ""]
    lines += ["/* Names */", *_names(net.variables), "", "/* Labels */"]
    lines += [" ".join(_words(net.states(v))) for v in net.variables]
    exact = inexact(net)
    if exact:
        lines += ["", f"/* {_EXACT} {' '.join(str(i) for i, v in enumerate(net.variables) if v in exact)} */"]
    return "\n".join([*lines, ""])


def _words(states: tuple[str, ...]) -> list[str]:
    """Names as distinct words that do not begin a comment."""
    plain = [re.sub(rf"[{BLANKS}]+", "_", name).replace("/*", "/_") or str(k) for k, name in enumerate(states)]
    return _distinct(plain, states)


def _names(variables: tuple[str, ...]) -> list[str]:
    """Names as distinct lines."""
    plain = [re.sub(r"[\r\n]+", "_", name.strip(BLANKS)).replace("/*", "/_") for name in variables]
    return _distinct([made or f"v{i}" for i, made in enumerate(plain)], variables)


def _distinct(plain: list[str], names: tuple[str, ...]) -> list[str]:
    """Distinct names for a file: those that differ from the name get a ``_`` while another one has them."""
    taken = {made for made, name in zip(plain, names, strict=True) if made == name}
    out = []
    for made, name in zip(plain, names, strict=True):
        chosen = made
        while chosen in taken and chosen != name:
            chosen += "_"
        taken.add(chosen)
        out.append(chosen)
    return out
