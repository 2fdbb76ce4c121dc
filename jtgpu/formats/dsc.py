"""DSC, the format of Microsoft's MSBN, also written by bnlearn: reader and writer.

* ``probability ( X | A, B ) { (0, 1) : 0.9, 0.1; ... }``: rows are identified by their parents' states, as numbers from
  0 or quoted names; a table without parents is a bare row; ``default`` fills rows that are not listed.
* Some programs write invalid keys: all equal, or of a wrong length. If the number of rows is right, they are then read
  in order, the first parent slowest.
* ``:``, ``=`` and ``is`` are equivalent. Attributes: ``label`` (``name``) and ``position``.
* The comment `EXACT` of jtgpu in a table, ignored by other programs, says that its rows must not be normalised although
  they sum to 1 only within the tolerance of the network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from ..errors import FormatError, ParseError, shown
from ..model.discrete import DiscreteModel
from ..model.network import BayesianNetwork
from ..util.arrays import Floats
from .block_reader import WHOLE, BlockReader, TableRows, numbers_until, skipped, token_pattern
from .draft import Draft, FamilyDraft
from .finish import parsers_of
from .number_cursor import bayesian, identifiers, inexact, whole_numbers
from .text import SourceText, number, quote

EXACT = "// jtgpu_rows = exact"
_SKIP = skipped()
_TOKEN = token_pattern(_SKIP, r"\[\]=:;,|")
_START = re.compile(_SKIP + r"belief\s++network\b")


def sniff(text: str) -> bool:
    """Whether a text begins like a DSC file."""
    return _START.match(text) is not None


class DscRows(TableRows):
    """The rows of one probability block."""

    def __init__(self, reader: BlockReader, family: FamilyDraft):
        self.parents = [reader.draft.states[p] for p, _ in family.parents]
        super().__init__(reader, family, [list(map(str, range(len(states)))) for states in self.parents], " :")
        self.keys: list[list[int]] = []  # the parents' states of each row that is listed
        self.default: Floats | None = None

    def error(self, at: int, message: str) -> ParseError:
        return self.source.error(at, message)

    def read(self) -> None:
        tokens = self.tokens
        end = self.source.text.find("}", tokens.end)
        self.family.exact = self.source.text.find(EXACT, tokens.end, end) >= 0
        tokens.advance()
        if tokens.at("(") and self.all_at_once(tokens.start, end):
            return
        while not tokens.at("}"):
            at = tokens.start
            if tokens.at("("):
                key = self.key()
                tokens.advance()
                if not tokens.at(":", "=", "is"):
                    tokens.fail("':' after the parents' states")
                tokens.advance()
                self.row(at, key)
            elif tokens.at("default"):
                tokens.advance()
                if tokens.at(":", "=", "is"):
                    tokens.advance()
                values = self.numbers()
                if self.default is not None or values.size != self.width:
                    what = "found a second 'default'" if self.default is not None else f"found {values.size} numbers"
                    raise self.error(at, f"{what} of {self.family.child!r}, expected {self.width} numbers, once")
                self.default = values
            elif tokens.at("function"):
                raise self.error(at, f"{self.family.child!r} is given by a function, which is not supported")
            else:
                self.row(at, [])
        self.assemble(tokens.start)

    def key(self) -> list[int]:
        """The parents' states of a row, up to the ``)``."""
        tokens = self.tokens
        tokens.advance()
        key: list[int] = []
        while not tokens.at(")"):
            labels = self.parents[len(key)] if len(key) < len(self.parents) else ()
            if tokens.kind == "word" and WHOLE.fullmatch(tokens.text):
                key.append(int(tokens.take()))
            else:
                start = tokens.start
                label = self.name()
                if labels.count(label) != 1:
                    raise self.error(start, f"found {shown(label)}, expected the number or the name of a state")
                key.append(labels.index(label))
            if tokens.at(","):
                tokens.advance()
        return key

    def name(self) -> str:
        return self.reader.name("a state's number or name, or ')'")

    def row(self, at: int, key: list[int]) -> None:
        self.keys.append(key)
        self.at.append(at)
        self.values.append(self.numbers())

    def numbers(self) -> Floats:
        """Read the numbers at the cursor up to the ``;``, which is optional after the last row."""
        values = numbers_until(self.tokens, ";", "}")
        self.reader.pass_over(";")
        return values

    def assemble(self, end: int) -> None:
        family, child = self.family, self.family.child
        for at, key, values in zip(self.at, self.keys, self.values, strict=True):
            # a single bare list may contain the whole table
            is_table = len(self.at) == 1 and not key and values.size == self.n_rows * self.width
            if values.size != self.width and not is_table:
                raise self.error(at, f"found {values.size} numbers for {child!r}, expected {self.width}")
        rows = self.order()
        if rows is None and sum(values.size for values in self.values) == self.n_rows * self.width:
            family.numbers = np.concatenate(self.values)
            starts = self.at if len(self.at) == self.n_rows else []
            family.locate = lambda position: starts[position // self.width] if starts else family.at
            return
        if rows is None:
            rows, self.at, self.values = [], [], []
        missing = self.n_rows - len(rows)
        if missing and self.default is None:
            raise self.error(
                end, f"{missing} of {self.n_rows} rows of {child!r} are missing, and there is no 'default'"
            )
        self.fill(rows, self.default, end, end)

    def order(self) -> list[int] | None:
        """The number in the table of each row that is listed; None if they are listed in order."""
        if all(not key for key in self.keys) and (not self.parents or len(self.keys) in (1, self.n_rows)):
            return None if self.keys else []
        rows: dict[int, None] = {}
        for key, at in zip(self.keys, self.at, strict=True):
            if len(key) != len(self.cards) or any(k >= c for k, c in zip(key, self.cards, strict=True)):
                wrong = f"is not a configuration of the {len(self.cards)} parents of"
            else:
                row = int(np.ravel_multi_index(tuple(key), self.cards)) if key else 0
                if row not in rows:
                    rows[row] = None
                    continue
                wrong = "occurs a second time for"
            what = f"the key ({', '.join(map(str, key))}) {wrong} {self.family.child!r}"
            if len(self.keys) != self.n_rows or self.default is not None:
                raise self.error(at, what)
            self.reader.draft.note(at, f"{what}; its rows are read in order")
            return None
        return list(rows)


class DscReader(BlockReader):
    """Reads a file in two passes: the nodes, then the tables, which need the numbers of states."""

    def __init__(self, source: SourceText):
        super().__init__(source, _TOKEN, "DSC")

    def file(self) -> Draft:
        tokens, draft = self.tokens, self.draft
        tokens.expect("belief", "at the beginning of a DSC file")
        tokens.expect("network", "after 'belief'")
        if tokens.kind == "string" or (tokens.kind == "word" and not tokens.at("node", "probability", "properties")):
            draft.name = self.name("the network's name")
        if tokens.at("{"):
            self.skip_braces()
        if tokens.at(";"):
            tokens.advance()
        tables = []
        while tokens.kind != "end":
            if tokens.at("node"):
                self.node()
            elif tokens.at("probability"):
                tables.append(tokens.start)
                tokens.advance()
                while not tokens.at(")", "{", "}", ";") and tokens.kind in ("word", "string", "mark"):
                    tokens.advance()
                if tokens.at(")"):
                    tokens.advance()
                if tokens.at("{"):
                    self.skip_braces()
                elif tokens.at(";"):
                    tokens.advance()
                else:
                    tokens.fail("'{' after the table's variables")
            elif tokens.at("properties"):
                tokens.advance()
                self.skip_braces()
            else:
                tokens.fail("'node', 'probability' or 'properties'")
        for start in tables:
            tokens.jump(start)
            self.table()
        draft.require_tables("the node {!r} has no probability block")
        return draft

    def skip_braces(self) -> None:
        """Move past a block in braces, whatever its contents."""
        tokens, at = self.tokens, self.tokens.start
        text = self.source.text
        if not tokens.at("{"):
            tokens.fail("'{'")
        end = text.find("}", at)
        if end >= 0 and all(text.find(odd, at + 1, end) < 0 for odd in ('"', "/", "{")):
            tokens.jump(end + 1)
            return
        depth = 0
        while True:
            depth += tokens.at("{") - tokens.at("}")
            if tokens.kind in ("end", "other"):
                tokens.fail(f"the '}}' of the block that begins in line {self.source.place(at)[0]}")
            tokens.advance()
            if depth == 0:
                return

    def means(self) -> None:
        """Move past a ``:``, ``=`` or ``is``."""
        if not self.tokens.at(":", "=", "is"):
            self.tokens.fail("':'")
        self.tokens.advance()

    # Nodes ----------------------------------------------------------------------------------------------------

    def node(self) -> None:
        tokens, draft = self.tokens, self.draft
        tokens.advance()
        name, at = self.new_name()
        tokens.expect("{", f"to begin the node {name!r}")
        kept: dict[str, Any] = {}
        states: tuple[str, ...] | None = None
        while not tokens.at("}"):
            if tokens.at("type") and states is None:
                tokens.advance()
                self.means()
                states = self.states(name, ("discrete", "choice"), ("=", ":", "is", "of"), "")
            elif tokens.at("name"):
                tokens.advance()
                self.means()
                kept["label"] = self.name("the node's label")
            elif tokens.at("position"):
                tokens.advance()
                self.position(kept)
            else:
                self.skip_attribute(name)
            if tokens.at(";"):
                tokens.advance()
            elif not tokens.at("}"):
                tokens.fail("';'")
        tokens.advance()
        if states is None:
            raise self.source.error(at, f"the node {name!r} has no type")
        if kept.get("label") == name:
            del kept["label"]
        draft.declare(name, states, at, kept)

    def skip_attribute(self, owner: str) -> None:
        tokens = self.tokens
        while not tokens.at(";", "}"):
            if tokens.kind in ("end", "other"):
                tokens.fail(f"';' or '}}' in the node {owner!r}")
            if tokens.at("{"):
                self.skip_braces()
            else:
                tokens.advance()

    def position(self, kept: dict[str, Any]) -> None:
        tokens = self.tokens
        self.means()
        tokens.expect("(", "before the position")
        numbers = []
        while not tokens.at(")"):
            if not tokens.at(","):
                numbers.append(self.name("a number, or ')'"))
            else:
                tokens.advance()
        tokens.advance()
        if len(numbers) == 2 and all(re.fullmatch(r"-?[0-9]{1,9}", n) for n in numbers):
            kept["position"] = tuple(map(int, numbers))

    # Tables ---------------------------------------------------------------------------------------------------

    def table(self) -> None:
        family = self.family()
        self.draft.families[family.child] = family
        if self.tokens.at("{"):
            DscRows(self, family).read()


parse_draft, parse = parsers_of(lambda text, source: DscReader(SourceText(text, source)).file())


# The writer, in bnlearn's layout; its files read back equal, bit for bit.

def dumps(net: DiscreteModel) -> str:
    """The text of a DSC file with `net`; it reads back equal, bit for bit."""
    # raises FormatError: If the model is not a Bayesian network, or a variable name is not an identifier.
    net = bayesian(net, "a DSC file")
    for v in net.variables:
        if identifiers([v], "x") != [v]:
            raise FormatError(
                f"the variable {shown(v)} cannot stand in a DSC file: a name there is a letter followed by letters, "
                "digits and '_'"
            )
    return "\n".join([*_lines(net), ""])


def _lines(net: BayesianNetwork) -> Iterator[str]:
    yield f"belief network {quote(net.name)}"
    for v in net.variables:
        kept: dict[str, Any] = net.attributes.get("node", {}).get(v, {})
        labels = net.states(v)
        yield f"node {v} {{"
        if isinstance(kept.get("label"), str):
            yield f"  name : {quote(kept['label'])};"
        yield f"  type : discrete [ {len(labels)} ] = {{ {', '.join(map(quote, labels))} }};"
        if position := whole_numbers(kept.get("position"), 2):
            yield f"  position : ({position[0]}, {position[1]});"
        yield "}"
    exact = inexact(net)
    for v in net.variables:
        parents = net.parents(v)
        yield f"probability ( {v}{' | ' + ', '.join(parents) if parents else ''} ) {{"
        if v in exact:
            yield f"  {EXACT}"
        table = net.cpt(v)
        rows = table.reshape(-1, table.shape[-1]).tolist()
        keys = product(*(range(c) for c in table.shape[:-1]))
        for key, row in zip(keys, rows, strict=True):
            head = f"  ({', '.join(map(str, key))}) :" if parents else "  "
            yield f"{head} {', '.join(map(number, row))};"
        yield "}"
