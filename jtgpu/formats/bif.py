"""BIF, the text form (JavaBayes' 0.15 and bnlearn's dialect): reader and writer.

* ``,`` and ``|`` are white space; ``//`` and ``/* */`` are comments; names may be in double quotes; words between
  blocks are ignored.
* A row ``(p1, p2) numbers;`` is identified by its parents' states; rows may have any order. ``default`` fills rows that
  are not listed; rows that are still missing are an error.
* ``table`` with parents has the child slowest and the last parent fastest.
* ``property`` lines are stored as ``attributes[...]["property"]``, a tuple of strings. The property `EXACT` of jtgpu
  marks a table whose rows must not be normalised although they sum to 1 only within the tolerance of the network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np

from ..errors import ParseError
from ..model.discrete import DiscreteModel
from ..model.network import BayesianNetwork
from ..util.arrays import Floats
from .bif_rows import BifRows, written
from .block_reader import BlockReader, skipped, token_pattern
from .draft import Draft
from .finish import parsers_of
from .number_cursor import bayesian, inexact, strings
from .text import SourceText, number, quote, unquote

EXACT = "jtgpu_rows = exact"

_SKIP = skipped(blanks=",|")
_TOKEN = token_pattern(_SKIP, r"\[\];", blanks=",|")
_START = re.compile(_SKIP + r"(?:network\b[^{};]*+\{|variable\s++(?:\"[^\"]*+\"|[^\s{\"]++)\s*+\{|probability\s*+\()")
# Properties may contain anything, even URLs with //; semicolons in strings do not end them.
_STRING = re.compile(r'"[^"\\\r\n]*+(?:\\.[^"\\\r\n]*+)*+"')
_WITH_STRINGS = rf'[^;"]*+(?:{_STRING.pattern}[^;"]*+)*+(?=;)'
_PROPERTY = re.compile(rf"({_WITH_STRINGS}|[^;]*+);")
# From a table's word to its first brace, and on to the next; there, what a property begins is swallowed even if no
# ';' ever ends it, or each of many would be looked at up to the end of the file.
_OTHERS = r"""|"[^"\\]*+(?:\\.[^"\\]*+)*+"|//[^\r\n]*+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/|/(?![*])"""
_HEAD = re.compile(rf'(?:[^{{}}"/]++{_OTHERS})*+', re.DOTALL)
_BODY = re.compile(rf'(?:[^{{}}"/p]++|(?<![^\s;{{}}])property\b(?:{_WITH_STRINGS}|[^;]*+)|p{_OTHERS})*+', re.DOTALL)
_VARIABLE = re.compile(r"(?<=\n)([ \t]*+variable[ \t]++)([^\n{}\"]++)(\{)", re.ASCII)
_TYPE = re.compile(r"(type[ \t]++discrete[ \t]*+\[[ \t]*+([0-9]{1,7})[ \t]*+\][ \t]*+\{)([^\n\"]*+)", re.ASCII)
_BARE_HEAD = re.compile(r"(?<=\n)([ \t]*+probability[ \t]*+\()([^\n{}\"]+)(\)[ \t]*+\{)", re.ASCII)
_ROW = re.compile(r"(?<=\n)([ \t]*+\()([^\n\"]+)(\)[ \t]*+[0-9.][^\n();]*+;)")
_STATE = re.compile(r"[ \t]*+([\[(][^,\[\]()]++,[^,\[\]()]++[\])]|[^,]++)[ \t]*+(?:,|\Z)")
_PLAIN = re.compile(r"[^\s{}()\[\];,|\"/]++")


def sniff(text: str) -> bool:
    """Whether a text begins like a BIF network."""
    return _START.match(text) is not None


def _frozen(kept: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(values) for key, values in kept.items()}


class BifReader(BlockReader):
    """Reads a file in two passes: the variables, then the tables, which need the states' names."""

    kind = "variable"

    def __init__(self, source: SourceText):
        super().__init__(source, _TOKEN, "BIF")

    def file(self) -> Draft:
        tokens, draft = self.tokens, self.draft
        tables: list[tuple[int, int]] = []  # offsets of the word `probability` and of the closing brace
        blocks = 0
        while tokens.kind != "end":
            if tokens.at("network"):
                self.network()
            elif tokens.at("variable"):
                self.variable()
            elif tokens.at("probability"):
                start = tokens.start
                tables.append((start, self.skip_table()))
            elif tokens.at("{", "}") or tokens.kind == "other":
                tokens.fail("'network', 'variable' or 'probability'")
            else:
                tokens.advance()  # words between blocks are ignored
                continue
            blocks += 1
        if not blocks:
            tokens.fail("a BIF network: 'network', 'variable' or 'probability'")
        for start, end in tables:
            tokens.jump(start)
            self.table(end)
        draft.require_tables("the variable {!r} has no probability block")
        return draft

    def property(self, kept: dict[str, Any]) -> None:
        """``property anything;``: the text up to the semicolon, unquoted if it is one string."""
        tokens, text = self.tokens, self.source.text
        match = _PROPERTY.match(text, tokens.end)
        if match is None:
            tokens.jump(len(text))
            tokens.fail("';' at the end of the property")
        value = match[1].strip()
        quoted = _STRING.fullmatch(value) is not None
        kept.setdefault("property", []).append(unquote(value) if quoted else value)
        tokens.jump(match.end())

    def network(self) -> None:
        tokens, kept = self.tokens, {k: list(x) for k, x in self.draft.attributes["net"].items()}
        tokens.advance()
        if not tokens.at("{"):
            self.draft.name = self.name("the network's name, or '{'")
        tokens.expect("{", "after the network's name")
        while not tokens.at("}"):
            if not tokens.at("property"):
                tokens.fail("'property', or '}' at the end of the network block")
            self.property(kept)
        self.draft.attributes["net"] = _frozen(kept)
        tokens.advance()

    def variable(self) -> None:
        tokens, draft = self.tokens, self.draft
        tokens.advance()
        name, start = self.new_name()
        tokens.expect("{", f"to begin the variable {name!r}")
        kept: dict[str, Any] = {}
        states: tuple[str, ...] | None = None
        while not tokens.at("}"):
            if tokens.at("property"):
                self.property(kept)
            elif tokens.at("type") and states is None:
                tokens.advance()
                states = self.states(name, ("discrete",), (), ";")
            else:
                tokens.fail(f"{'type, ' if states is None else ''}'property', or '}}' at the end of {name!r}")
        tokens.advance()
        if states is None:
            raise self.source.error(start, f"the variable {name!r} has no type")
        draft.declare(name, states, start, _frozen(kept))

    # Tables ---------------------------------------------------------------------------------------------------

    def skip_table(self) -> int:
        """Move past a probability block; returns the offset of its closing brace."""
        tokens, text = self.tokens, self.source.text
        start = tokens.start
        opened = text.find("{", start)
        end = text.find("}", opened) if opened >= 0 else -1
        plain = end >= 0 and all(text.find(odd, start, end) < 0 for odd in ('"', "/", "property"))
        if plain and text.find("{", opened + 1, end) < 0:
            tokens.jump(end + 1)
            return end
        for mark, pattern in (("{", _HEAD), ("}", _BODY)):
            match = pattern.match(text, tokens.end)
            tokens.jump(match.end() if match else tokens.end)
            if not tokens.at(mark):
                tokens.fail(f"'{mark}' of the probability block of line {self.source.place(start)[0]}")
        end = tokens.start
        tokens.advance()
        return end

    def table(self, end: int) -> None:
        tokens, draft = self.tokens, self.draft
        family = self.family()
        tokens.expect("{", f"to begin the table of {family.child!r}")
        kept: dict[str, Any] = {}
        BifRows(self, family, lambda: self.property(kept)).block(end)
        if EXACT in kept.get("property", ()):
            family.exact = True
            kept["property"].remove(EXACT)
        draft.families[family.child] = family
        if kept.get("property"):
            draft.attributes["potential"][family.child] = _frozen(kept)


def _read(text: str, source: str) -> Draft:
    try:
        return BifReader(SourceText(text, source)).file()
    except ParseError:
        again = quoted(text)
        if again is not None:
            with suppress(ParseError):
                return BifReader(SourceText(again, source)).file()
        raise


parse_draft, parse = parsers_of(_read)


# The writer, whose files read back equal, bit for bit.
#
# Its dialect is common to bnlearn, pgmpy, pyAgrum and JavaBayes: one row per configuration of the parents, identified
# by the names of their states, and ``table`` for variables without parents. There are two exceptions: names that are
# not plain words are in double quotes, and a variable whose parents have several states of the same name gets
# ``table``, whose numbers are identified by their order.


def dumps(net: DiscreteModel) -> str:
    """The text of a BIF file with `net`; it reads back equal, bit for bit, including its properties."""
    # raises FormatError: If the model is not a Bayesian network, or the format cannot represent a property.
    net = bayesian(net, "a BIF file")
    lines = [f"network {written(net.name or 'unknown')} {{", *_properties(net, "net", None), "}"]
    for v in net.variables:
        labels = net.states(v)
        lines.append(f"variable {written(v)} {{")
        lines.append(f"  type discrete [ {len(labels)} ] {{ {', '.join(map(written, labels))} }};")
        lines += [*_properties(net, "node", v), "}"]
    exact = inexact(net)
    for v in net.variables:
        parents = net.parents(v)
        given = f" | {', '.join(map(written, parents))}" if parents else ""
        lines.append(f"probability ( {written(v)}{given} ) {{")
        lines += _rows(net.cpt(v), [net.states(p) for p in parents])
        if v in exact:
            lines.append(f"  property {EXACT};")
        lines += [*_properties(net, "potential", v), "}"]
    return "\n".join([*lines, ""])


def _rows(table: Floats, parents: Sequence[Sequence[str]]) -> Iterator[str]:
    """The numbers of a CPT (axes: parents in order, child last), a line a row."""
    if not parents or any(len(set(labels)) < len(labels) for labels in parents):
        numbers = np.moveaxis(table, -1, 0).ravel().tolist()  # the child slowest
        yield f"  table {', '.join(map(number, numbers))};"
        return
    keys = product(*([written(label) for label in labels] for labels in parents))
    for key, row in zip(keys, table.reshape(-1, table.shape[-1]).tolist(), strict=True):
        yield f"  ({', '.join(key)}) {', '.join(map(number, row))};"


def _properties(net: BayesianNetwork, kind: str, variable: str | None) -> Iterator[str]:
    """The attribute ``property`` as lines; the format has no place for other attributes."""
    return (f"  property {_property(value)};" for value in strings(net.attributes, kind, variable))


def _property(value: str) -> str:
    """A property's text as it stands where it reads back so, else as one quoted string."""
    plain = value and value == value.strip() and not re.search(r'[;"\\{}]|[^\S ]|//|/\*', value)
    return value if plain else quote(value)


def quoted(text: str) -> str | None:
    """A BIF text with quotes round the names that need them; None if it is not of this kind."""
    text = "\n" + text
    names = [m[2].strip() for m in _VARIABLE.finditer(text)]
    bodies = list(_TYPE.finditer(text))
    if not names or not len(set(names)) == len(names) == len(bodies):
        return None
    states: dict[str, list[str]] = {}
    for name, m in zip(names, bodies, strict=True):
        listed = m[3].rpartition("}")[0]
        labels = [part.strip() for part in listed.split(",")]
        if len(labels) != int(m[2]):
            labels = [part[1].strip() for part in _STATE.finditer(listed)]
        if len(labels) != int(m[2]):
            return None
        states[name] = labels
    if all(_PLAIN.fullmatch(x) for name, labels in states.items() for x in (name, *labels)):
        return None
    text = _VARIABLE.sub(lambda m: f"{m[1]}{quote(m[2].strip())} {m[3]}", text)
    lists = iter(states.values())
    text = _TYPE.sub(lambda m: f"{m[1]} {', '.join(map(quote, next(lists)))} }}{m[3].rpartition('}')[2]}", text)
    done, parts, parents = 0, [], list[str]()
    for m in sorted([*_BARE_HEAD.finditer(text), *_ROW.finditer(text)], key=re.Match.start):
        if m[1].strip().startswith("probability"):
            child, _, above = m[2].partition("|")
            parents = [p.strip() for p in above.split(",")] if above.strip() else []
            given = f" | {', '.join(map(quote, parents))}" if parents else ""
            inner = f" {quote(child.strip())}{given} "
        else:
            key = _split(m[2], [states.get(p, []) for p in parents])
            if key is None:
                return None
            inner = ", ".join(map(quote, key))
        parts += [text[done : m.end(1)], inner]
        done = m.start(3)
    return "".join([*parts, text[done:]])[1:]


def _split(key: str, parents: list[list[str]]) -> list[str] | None:
    """The states of a row: at each place the longest name of a state of the parent that fits."""
    key_states, at = list[str](), 0
    for i, names in enumerate(parents):
        while at < len(key) and key[at] in " \t":
            at += 1
        end = ")" if i == len(parents) - 1 else ","
        for name in sorted(names, key=len, reverse=True):
            rest = key[at + len(name) :].lstrip(" \t")
            if key.startswith(name, at) and (rest.startswith(",") if end == "," else not rest):
                key_states.append(name)
                at = len(key) - len(rest) + (end == ",")
                break
        else:
            return None
    return key_states
