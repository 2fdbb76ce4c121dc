"""XDSL, the XML format of GeNIe and SMILE: reader and writer, whose files read back equal, bit for bit.

* ``probabilities`` list the first parent slowest and the child fastest.
* ``deterministic`` and ``noisymax`` nodes become plain tables (`jtgpu.formats.canonical_nodes`).
* Attributes of each node: ``label``, ``position`` (its centre) and ``size`` in the diagram, its colours and font as
  ``genie_...``, ``comment``, and user properties as ``property``, a tuple of ``"id = value"``.
* pyAgrum writes the parents of its tables in reverse order (the first one fastest). Its files are recognised by its
  name in the file.
* GeNIe allows identifiers only and requires parents before their children: names are converted to identifiers, nodes
  are sorted, and the extension ``jtgpu``, which other programs ignore, contains the original names and order.

Refused, with their names: decision, utility, equation and other nodes than discrete chance nodes, dynamic networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import shown
from ..model.discrete import DiscreteModel
from ..model.network import BayesianNetwork
from .canonical_nodes import REFUSED, Expander
from .draft import Draft, Family, parsers_of
from .number_cursor import bayesian, identifiers, inexact, strings, whole_numbers
from .text import number
from .xml_text import Element, Locator, XmlSource, attribute, escaped, root_name, scan

MINE = "jtgpu"  # our element in the extensions, for what the format cannot represent

UNNAMED = "jtgpu_property_"  # followed by a number: the id of a property without an id
_CHANCE = ("cpt", "deterministic", "noisymax")
_RECORDS = (*_CHANCE, *REFUSED, "node", "dynamic")
_NUMERIC = ("probabilities", "parameters", "strengths")
# Default appearance and size of nodes: written if nothing else is given, and not stored when read.
LOOKS = {
    "interior": ("color=e5f6f7",),
    "outline": ("color=000080",),
    "font": ("color=000000", "name=Arial", "size=8"),
}
SIZE = 76, 36


def sniff(text: str) -> bool:
    """Whether a text begins like an XDSL file."""
    return root_name(text) == "smile"


class XdslReader:
    def __init__(self, source: XmlSource):
        self.source = source
        self.draft = Draft(source, "XDSL")
        self.expander = Expander(self.draft)
        self.mine: list[Element] = []

    def file(self) -> Draft:
        draft = self.draft
        root = scan(self.source, root="smile", records=_RECORDS, numeric=_NUMERIC, on_record=self.record)
        nodes = root.one("nodes")
        if nodes is None:
            raise self.source.error(root.at, "found no <nodes> in <smile>, expected one")
        if nodes.children:
            odd = nodes.children[0]
            raise self.source.error(odd.at, f"found <{shown(odd.name)[1:-1]}> in <nodes>, expected a chance node")
        draft.name = root.attributes.get("id", "")
        self.extensions(root)
        self.expander.run()
        self.names()
        draft.shape()
        return draft

    def record(self, element: Element, locator: Locator, path: tuple[str, ...]) -> None:
        if element.name == "node":
            if MINE in path:
                self.mine.append(element)
            elif "extensions" in path:
                self.looks(element)
            return
        if element.name == "dynamic":
            if element.children or element.attributes:
                raise self.source.error(element.at, "found a dynamic network; only static networks are supported")
            return
        if path != ("smile", "nodes"):
            return  # parts of another node or of an extension
        child = element.attributes.get("id")
        if child is None:
            raise self.source.error(element.at, f"the <{element.name}> has no id")
        if element.name in REFUSED:
            raise self.source.error(
                element.at, f"found the {REFUSED[element.name]} {child!r}; only discrete chance nodes are supported"
            )
        self.node(element, child, locator)

    def node(self, element: Element, child: str, locator: Locator) -> None:
        draft = self.draft
        if child in draft.states:
            raise self.source.error(element.at, f"the node {child!r} is declared a second time")
        if element.attributes.get("dynamic") not in (None, "none"):
            raise self.source.error(element.at, f"{child!r} is a node of a dynamic network, which is not supported")
        states = tuple(s.attributes.get("id", "") for s in element.all("state"))
        if not states:
            raise self.source.error(element.at, f"the node {child!r} has no <state>")
        draft.states[child], draft.declared[child] = states, element.at
        before = element.one("parents")
        names = before.text.split() if before else []
        family = Family(child, [(p, before.at if before else element.at) for p in names], element.at)
        draft.families[child] = family
        kept = tuple(_property(p.attributes.get("id", ""), p.text) for p in element.all("property"))
        if kept:
            draft.attributes["node"][child] = {"property": kept}
        if element.name == "cpt":
            table = element.one("probabilities")
            if table is None or table.numbers is None:
                raise self.source.error(element.at, f"found no <probabilities> of {child!r}, expected them")
            family.numbers, family.data_at = table.numbers, table.begin
            family.locate = lambda position: locator.number(table, position)
        elif element.name == "noisymax":
            strengths, parameters = element.one("strengths"), element.one("parameters")
            self.expander.noisy(
                family,
                strengths.numbers if strengths else None, strengths.at if strengths else element.at,
                parameters.numbers if parameters else None, parameters.at if parameters else element.at,
            )  # fmt: skip
        else:
            results = element.one("resultingstates")
            at = results.at if results else element.at
            self.expander.function(family, results.text.split() if results else [], lambda _: at, at)

    # Extensions ----------------------------------------------------------------------------------------------

    def looks(self, element: Element) -> None:
        """A node of the diagram; it may be a remnant of a deleted node."""
        child = element.attributes.get("id", "")
        if child not in self.draft.states:
            return
        kept: dict[str, Any] = {}
        if (name := element.one("name")) and name.text != child:
            kept["label"] = name.text
        corners = element.one("position")
        numbers = corners.text.split() if corners else []
        if len(numbers) == 4 and all(n.lstrip("-").isdecimal() and n.isascii() and len(n) < 10 for n in numbers):
            left, top, right, bottom = map(int, numbers)
            kept["position"] = (left + (right - left) // 2, top + (bottom - top) // 2)
            if (right - left, bottom - top) != SIZE:
                kept["size"] = (right - left, bottom - top)
        for part, default in LOOKS.items():
            given = element.one(part)
            look = tuple(f"{k}={v}" for k, v in given.attributes.items()) if given else ()
            if look not in ((), default):
                kept[f"genie_{part}"] = look
        if comment := element.one("comment"):
            kept["comment"] = comment.text
        if kept:
            self.draft.attributes["node"].setdefault(child, {}).update(kept)

    def extensions(self, root: Element) -> None:
        extensions = root.one("extensions")
        if extensions is None:
            return
        genie, mine = extensions.one("genie"), extensions.one(MINE)
        about = self.draft.attributes["net"]
        if genie and (label := genie.attributes.get("name")) and label != self.draft.name:
            about["label"] = label
        if genie and "agrum" in genie.attributes.get("app", "").lower():
            for family in self.draft.families.values():
                family.parents.reverse()
        if mine:
            if "name" in mine.attributes:
                self.draft.name = mine.attributes["name"]
                if about.get("label") == self.draft.name:
                    del about["label"]
            kept = tuple(p.text for p in mine.all("property"))
            if kept:
                about["property"] = kept
            reorder(self.draft, mine.attributes.get("order", "").split())

    def names(self) -> None:
        """Restore the names that the format cannot represent, where their identifiers are unchanged."""
        draft = self.draft
        new: dict[str, str] = {}
        for element in self.mine:
            child = element.attributes.get("id", "")
            if child not in draft.states:
                continue
            draft.families[child].exact = element.attributes.get("rows") == "exact"
            new[child] = element.attributes.get("name", child)
            labels = {s.attributes.get("id", ""): s.text for s in element.all("state")}
            draft.states[child] = tuple(labels.get(s, s) for s in draft.states[child])
            kept = tuple(p.text for p in element.all("property"))
            if kept:
                draft.attributes["potential"][child] = {"property": kept}
        final = [new.get(v, v) for v in draft.states]
        if len(set(final)) == len(final) and any(new[v] != v for v in new):
            rename(draft, new)


def _property(key: str, value: str) -> str:
    return value if key.startswith(UNNAMED) else f"{key} = {value}"


def reorder(draft: Draft, order: list[str]) -> None:
    """Reorder a draft's variables if `order` is a permutation of them."""
    if len(order) == len(draft.states) and set(order) == set(draft.states):
        draft.states = {v: draft.states[v] for v in order}


def rename(draft: Draft, new: dict[str, str]) -> None:
    """Rename the variables of a draft; `new` maps old names to new ones."""

    def name(v: str) -> str:
        return new.get(v, v)

    draft.states = {name(v): s for v, s in draft.states.items()}
    draft.declared = {name(v): at for v, at in draft.declared.items()}
    for family in draft.families.values():
        family.child = name(family.child)
        family.parents = [(name(p), at) for p, at in family.parents]
    draft.families = {name(v): f for v, f in draft.families.items()}
    for kind in ("node", "potential"):
        kept = draft.attributes[kind]
        draft.attributes[kind] = {name(v): x for v, x in kept.items()}
    for v, x in draft.attributes["node"].items():
        if x.get("label") == v:
            del x["label"]
    draft.attributes["node"] = {v: x for v, x in draft.attributes["node"].items() if x}


parse_draft, parse = parsers_of(lambda text, source: XdslReader(XmlSource(text, source)).file())


def dumps(net: DiscreteModel) -> str:
    """The text of an XDSL file with `net`; it reads back equal, bit for bit."""
    # raises FormatError: If the model is not a Bayesian network, or a name contains control characters, which XML
    #     cannot represent.
    return "\n".join([*_Writer(bayesian(net, "an XDSL file")).lines(), ""])


class _Writer:
    def __init__(self, net: BayesianNetwork):
        self.net = net
        self.ids = dict(zip(net.variables, identifiers(net.variables, "node_"), strict=True))
        self.states = {v: identifiers(net.states(v), "State_") for v in net.variables}
        self.order = net.topological_order()
        self.name = identifiers([net.name], "Network")[0]

    def lines(self) -> Iterator[str]:
        yield '<?xml version="1.0" encoding="UTF-8"?>'
        yield f'<smile version="1.0" id="{self.name}" numsamples="10000" discsamples="10000">'
        yield "\t<nodes>"
        for v in self.order:
            yield from self.node(v)
        yield "\t</nodes>"
        yield "\t<extensions>"
        yield f'\t\t<genie version="1.0" app="jtgpu" name="{escaped(self.label(), "the name")}">'
        for v in self.order:
            yield from self.looks(v)
        yield "\t\t</genie>"
        yield from self.mine()
        yield "\t</extensions>"
        yield "</smile>"

    def label(self) -> str:
        label = self.net.attributes.get("net", {}).get("label")
        return str(label) if isinstance(label, str) else self.net.name or self.name

    def kept(self, kind: str, v: str) -> Mapping[str, Any]:
        attributes: Mapping[str, Any] = self.net.attributes.get(kind, {}).get(v, {})
        return attributes

    def node(self, v: str) -> Iterator[str]:
        yield f'\t\t<cpt id="{self.ids[v]}">'
        for state in self.states[v]:
            yield f'\t\t\t<state id="{state}" />'
        parents = self.net.parents(v)
        if parents:
            yield f"\t\t\t<parents>{' '.join(self.ids[p] for p in parents)}</parents>"
        yield f"\t\t\t<probabilities>{' '.join(map(number, self.net.cpt(v).ravel().tolist()))}</probabilities>"
        for key, value in _properties(self.kept("node", v)):
            text = escaped(value, f"the property {key!r}")
            yield f'\t\t\t<property id="{escaped(key, "the property")}"{attribute(value)}>{text}</property>'
        yield "\t\t</cpt>"

    def looks(self, v: str) -> Iterator[str]:
        kept = self.kept("node", v)
        label = kept.get("label")
        label = label if isinstance(label, str) else v
        yield f'\t\t\t<node id="{self.ids[v]}">'
        yield f"\t\t\t\t<name{attribute(label)}>{escaped(label, 'the name')}</name>"
        position = whole_numbers(kept.get("position"), 2)
        for part, default in LOOKS.items():
            look = kept.get(f"genie_{part}", default if position else ())
            pairs = [str(x).partition("=") for x in ((look,) if isinstance(look, str) else look)]
            written = [f'{k}="{escaped(x, k)}"' for k, _, x in pairs if k.isascii() and k.isalpha()]
            if written:
                yield f"\t\t\t\t<{part} {' '.join(written)} />"
        if position:
            (x, y), (w, h) = position, whole_numbers(kept.get("size"), 2) or SIZE
            left, top = x - w // 2, y - h // 2
            yield f"\t\t\t\t<position>{left} {top} {left + w} {top + h}</position>"
        if isinstance(kept.get("comment"), str):
            comment = kept["comment"]
            yield f"\t\t\t\t<comment{attribute(comment)}>{escaped(comment, 'the comment')}</comment>"
        yield "\t\t\t</node>"

    def mine(self) -> Iterator[str]:
        """Properties stored as a jtgpu extension; empty if the format supports them."""
        net, ids = self.net, self.ids
        exact = inexact(net)
        name = f' name="{escaped(net.name, "the name")}"' if net.name != self.name else ""
        order = f' order="{" ".join(ids[v] for v in net.variables)}"' if self.order != net.variables else ""
        inner = [f"\t\t\t{_text('property', p)}" for p in strings(net.attributes.get("net", {}))]
        for v in net.variables:
            new = f' name="{escaped(v, "the name")}"' if ids[v] != v else ""
            rows = ' rows="exact"' if v in exact else ""
            parts = [
                f"\t\t\t\t{_text('state', label, made)}"
                for made, label in zip(self.states[v], net.states(v), strict=True)
                if made != label
            ]
            parts += [f"\t\t\t\t{_text('property', p)}" for p in strings(self.kept("potential", v))]
            if new or rows or parts:
                inner += [f'\t\t\t<node id="{ids[v]}"{new}{rows}>', *parts, "\t\t\t</node>"]
        if name or order or inner:
            yield f'\t\t<{MINE} version="1.0"{name}{order}>'
            yield from inner
            yield f"\t\t</{MINE}>"


def _text(element: str, text: str, identity: str = "") -> str:
    identity = f' id="{identity}"' if identity else ""
    return f"<{element}{identity}{attribute(text)}>{escaped(text, element)}</{element}>"


def _properties(kept: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Key and text of every property; what has no key goes under the number it has."""
    for i, text in enumerate(strings(kept)):
        key, equals, value = text.partition(" = ")
        yield (key, value) if equals and identifiers([key], "p") == [key] else (f"{UNNAMED}{i}", text)
