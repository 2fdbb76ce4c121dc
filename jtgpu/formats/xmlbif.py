"""XMLBIF 0.3 (JavaBayes, WEKA, pgmpy, pyAgrum, SamIam): reader and writer, whose files read back equal, bit for bit.

* ``TABLE`` lists the child fastest, the ``GIVEN`` elements in their order, the first one slowest.
* ``PROPERTY`` texts are kept as ``attributes[...]["property"]``, a tuple of strings. They and `EXACT` mean the same as
  in `jtgpu.formats.bif`.
* White space around names is not part of them unless the element has ``xml:space="preserve"``.
* ``decision`` variables have no ``TABLE``; the ``TABLE`` of a ``utility`` has a number for each configuration of its
  ``GIVEN`` elements (pyAgrum).
* No document type declaration is written: pyAgrum's reader fails on it, and no reader requires it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import ParseError, near, shown
from ..model.discrete import DiscreteModel
from ..model.network import BayesianNetwork
from .bif import EXACT
from .draft import Draft, FamilyDraft
from .finish import parsers_of
from .number_cursor import bayesian, inexact, strings
from .text import number
from .xml_text import Element, Locator, XmlSource, attribute, escaped, root_name, scan


def sniff(text: str) -> bool:
    """Whether a text begins like an XMLBIF file."""
    return root_name(text).upper() == "BIF"


class XmlbifReader:
    def __init__(self, source: XmlSource):
        self.source = source
        self.draft = Draft(source, "XMLBIF")
        self.without_table: dict[str, ParseError] = {}  # the error if the variable is no decision

    def file(self) -> Draft:
        draft = self.draft
        root = scan(
            self.source,
            root="BIF",
            records=("VARIABLE", "DEFINITION"),
            numeric=("TABLE",),
            on_record=self.record,
            fold=str.upper,
        )
        networks = root.all("NETWORK")
        if len(networks) != 1:
            at = networks[1].at if networks else root.at
            raise self.source.error(at, f"found {len(networks)} <NETWORK> elements, expected one")
        name = networks[0].one("NAME")
        draft.name = name.text if name else ""
        self.properties(networks[0], draft.attributes["net"])
        draft.require_tables("the variable {!r} has no <DEFINITION>")
        for v, error in self.without_table.items():
            if v not in draft.decisions and v not in draft.refused:
                raise error
        return draft

    def record(self, element: Element, locator: Locator, path: tuple[str, ...]) -> None:
        if path != ("BIF", "NETWORK"):
            where = f"<{path[-1]}>" if path else "the file"
            raise self.source.error(element.at, f"found <{element.name}> in {where}, expected it in <NETWORK>")
        if element.name == "VARIABLE":
            self.variable(element)
        else:
            self.definition(element, locator)

    def name_of(self, element: Element, child: str) -> tuple[str, int]:
        """Text and offset of the one child of a name."""
        children = element.all(child)
        if len(children) != 1:
            at = children[1].at if children else element.at
            several = "; tables of several variables are not supported" if child == "FOR" and children else ""
            raise self.source.error(
                at, f"found {len(children) or 'no'} <{child}> in <{element.name}>, expected one{several}"
            )
        return children[0].text, children[0].at

    def properties(self, element: Element, kept: dict[str, Any]) -> None:
        texts = tuple(p.text for p in element.all("PROPERTY"))
        if texts:
            kept["property"] = texts

    def variable(self, element: Element) -> None:
        draft = self.draft
        name, at = self.name_of(element, "NAME")
        kind = next((v for k, v in element.attributes.items() if k.upper() == "TYPE"), "nature")
        kind = kind.lower()
        if draft.has(name):
            raise self.source.error(at, f"the variable {name!r} is declared a second time")
        if kind not in ("nature", "discrete", "", "decision", "utility"):
            draft.refused[name] = element.at, f"{shown(kind)[1:-1]} variable"
            return
        kept: dict[str, Any] = {}
        self.properties(element, kept)
        if kind == "utility":
            draft.utilities[name] = at
            if kept:
                draft.attributes["node"][name] = kept
            return
        states = tuple(o.text for o in element.all("OUTCOME"))
        if not states:
            raise self.source.error(at, f"the variable {name!r} has no <OUTCOME>")
        draft.declare(name, states, at, kept)
        if kind == "decision":
            draft.decisions[name] = None

    def definition(self, element: Element, locator: Locator) -> None:
        draft = self.draft
        child, at = self.name_of(element, "FOR")
        if child in draft.families:
            raise self.source.error(at, f"found a second <DEFINITION> of {child!r}, expected one")
        tables = element.all("TABLE")
        if len(tables) > 1:
            raise self.source.error(tables[1].at, f"found {len(tables)} <TABLE> for {child!r}, expected one")
        family = FamilyDraft(child, [(g.text, g.at) for g in element.all("GIVEN")], at)
        if tables:
            table = tables[0]
            family.numbers, family.data_at = table.numbers, table.begin
            family.locate = lambda position: locator.number(table, position)
        else:
            what = f"found no <TABLE> for {child!r}, expected one{self.instead(element)}"
            self.without_table[child] = self.source.error(at, what)
        kept: dict[str, Any] = {}
        self.properties(element, kept)
        if EXACT in kept.get("property", ()):
            family.exact = True
            kept["property"] = tuple(p for p in kept["property"] if p != EXACT)
        draft.families[child] = family
        if kept.get("property"):
            draft.attributes["potential"][child] = kept

    @staticmethod
    def instead(element: Element) -> str:
        """A phrase for an element that stands where the table is missing."""
        known = ("FOR", "GIVEN", "PROPERTY", "TABLE")
        odd = next((c.name for c in element.children if c.name not in known), None)
        return "" if odd is None else f"; <{odd}> is not known{near(odd, known)}"


parse_draft, parse = parsers_of(lambda text, source: XmlbifReader(XmlSource(text, source)).file())


def dumps(net: DiscreteModel) -> str:
    """The text of an XMLBIF file with `net`; it reads back equal, bit for bit, including its properties."""
    # raises FormatError: If the model is not a Bayesian network, or a name contains control characters, which XML
    #     cannot represent.
    net = bayesian(net, "an XMLBIF file")
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<BIF VERSION="0.3">', "<NETWORK>", _element("NAME", net.name)]
    lines += _properties(net, "net", None)
    for v in net.variables:
        lines += ['<VARIABLE TYPE="nature">', _element("NAME", v)]
        lines += [f"  {_element('OUTCOME', label)}" for label in net.states(v)]
        lines += [*_properties(net, "node", v), "</VARIABLE>"]
    exact = inexact(net)
    for v in net.variables:
        lines += ["<DEFINITION>", _element("FOR", v), *(f"  {_element('GIVEN', p)}" for p in net.parents(v)), "<TABLE>"]
        table = net.cpt(v)
        lines += [" ".join(map(number, row)) for row in table.reshape(-1, table.shape[-1]).tolist()]
        lines.append("</TABLE>")
        if v in exact:
            lines.append(_element("PROPERTY", EXACT))
        lines += [*_properties(net, "potential", v), "</DEFINITION>"]
    return "\n".join([*lines, "</NETWORK>", "</BIF>", ""])


def _element(name: str, text: str) -> str:
    return f"<{name}{attribute(text)}>{escaped(text, f'the <{name}>')}</{name}>"


def _properties(net: BayesianNetwork, kind: str, variable: str | None) -> Iterator[str]:
    return (_element("PROPERTY", value) for value in strings(net.attributes, kind, variable))
