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

from ..errors import FormatError, shown
from ..model.discrete import DiscreteModel
from ..model.network import BayesianNetwork
from .block_reader import BlockReader, skipped, token_pattern
from .draft import Draft, parsers_of
from .dsc_rows import EXACT, DscRows
from .number_cursor import bayesian, identifiers, inexact, whole_numbers
from .text import Source, number, quote

_SKIP = skipped()
_TOKEN = token_pattern(_SKIP, r"\[\]=:;,|")
_START = re.compile(_SKIP + r"belief\s++network\b")


def sniff(text: str) -> bool:
    """Whether a text begins like a DSC file."""
    return _START.match(text) is not None


class DscReader(BlockReader):
    """Reads a file in two passes: the nodes, then the tables, which need the numbers of states."""

    def __init__(self, source: Source):
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
        for v, at in draft.declared.items():
            if v not in draft.families:
                raise self.source.error(at, f"the node {v!r} has no probability block")
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
        draft.states[name], draft.declared[name] = states, at
        if kept.get("label") == name:
            del kept["label"]
        if kept:
            draft.attributes["node"][name] = kept

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


parse_draft, parse = parsers_of(lambda text, source: DscReader(Source(text, source)).file())


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
