"""XDSL, the XML format of GeNIe and SMILE: reader and writer.

* ``probabilities`` list the first parent slowest and the child fastest.
* ``deterministic`` nodes become plain tables; ``noisymax`` nodes keep their strengths
  (`jtgpu.formats.canonical_nodes`).
* ``decision`` nodes have information arcs, ``utility`` nodes numbers that add up, with the weights of ``mau`` nodes.
* Attributes of each node: ``label``, ``position`` (its centre) and ``size`` in the diagram, its colours and font as
  ``genie_...``, ``comment``, and user properties as ``property``, a tuple of ``"id = value"``.
* pyAgrum writes the parents of its tables in reverse order (the first one fastest). Its files are recognised by its
  name in the file.

* Cases with their findings are notes; `jtgpu.formats.read_evidence_cases` of the file reads them.
* ``equation`` nodes that are linear in their parents, plus one ``Normal(mean, sd)``, make a mixed network.
* Nodes of a temporal plate make a dynamic network (`jtgpu.formats.xdsl_slices`).

Refused, with their names: other equations and nodes, sums with an expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import FormatError, shown
from ..model.cpts import normalize_rows
from ..model.discrete import DiscreteModel
from ..model.dynamic import DynamicNetwork
from ..model.mixed import MixedNetwork
from ..model.network import BayesianNetwork
from ..util.arrays import Floats
from .canonical_nodes import REFUSED, Expander, noisy_numbers, turned_for_file
from .draft import Draft, FamilyDraft, NumberDraft
from .finish import parsers_of
from .linear import NotLinear, density_rows, linear_text, parse_equation
from .number_cursor import WrittenNetwork, identifiers, inexact, strings, whole_numbers, with_decisions
from .text import number
from .xdsl_slices import EXTENSION, XdslSlices
from .xml_text import Element, Locator, XmlSource, attribute, escaped, root_name, scan

MINE = "jtgpu"  # our element in the extensions, for what the format cannot represent

UNNAMED = "jtgpu_property_"  # followed by a number: the id of a property without an id
_CHANCE = ("cpt", "deterministic", "noisymax")
_RECORDS = (*_CHANCE, "decision", "utility", "mau", *REFUSED, "node", "dynamic", "case")
_NUMERIC = ("probabilities", "parameters", "strengths", "utilities", "weights")
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
        self.slices = XdslSlices(source, self.draft)

    def file(self) -> Draft:
        draft = self.draft
        root = scan(self.source, root="smile", records=_RECORDS, numeric=_NUMERIC, on_record=self.record)
        nodes = root.one("nodes")
        if nodes is None:
            raise self.source.error(root.at, "found no <nodes> in <smile>, expected one")
        if nodes.children:
            odd = nodes.children[0]
            raise self.source.error(odd.at, f"found <{shown(odd.name)[1:-1]}> in <nodes>, expected a node")
        draft.name = root.attributes.get("id", "")
        self.extensions(root)
        self.expander.run()
        before = [*draft.states]
        self.names()
        extensions = root.one("extensions")
        mine = extensions.one(EXTENSION) if extensions else None
        self.slices.run(dict(zip(before, draft.states, strict=True)), mine)
        return draft

    def record(self, element: Element, locator: Locator, path: tuple[str, ...]) -> None:
        if element.name == "node":
            if MINE in path:
                self.mine.append(element)
            elif "extensions" in path:
                self.looks(element)
            return
        if element.name == "case" and "nodes" not in path:
            self.case(element)
            return
        if path == ("smile", "dynamic"):
            self.slices.table(element, locator)
            return
        if path != ("smile", "nodes"):
            return  # parts of another node or of an extension
        child = element.attributes.get("id")
        if child is None:
            raise self.source.error(element.at, f"the <{element.name}> has no id")
        if self.draft.has(child):
            raise self.source.error(element.at, f"the node {child!r} is declared a second time")
        self.slices.kind(element, child)
        if element.name in REFUSED:
            self.draft.refused[child] = element.at, REFUSED[element.name]
            if element.name == "equation":
                self.equation(element, child)
        else:
            self.node(element, child, locator)

    def node(self, element: Element, child: str, locator: Locator) -> None:
        draft = self.draft
        before = element.one("parents")
        names = before.text.split() if before else []
        family = FamilyDraft(child, [(p, before.at if before else element.at) for p in names], element.at)
        kept = tuple(_property(p.attributes.get("id", ""), p.text) for p in element.all("property"))
        if element.name in ("utility", "mau"):
            if kept and element.name == "utility":
                draft.attributes["node"][child] = {"property": kept}
            self.utility(element, family, locator)
            return
        states = tuple(s.attributes.get("id", "") for s in element.all("state"))
        if not states:
            raise self.source.error(element.at, f"the node {child!r} has no <state>")
        draft.declare(child, states, element.at, {"property": kept} if kept else None)
        draft.families[child] = family
        if element.name == "decision":
            draft.decisions[child] = None
            if table := element.one("probabilities"):
                family.numbers = table.numbers
            return
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

    def case(self, element: Element) -> None:
        """A case that was saved with the network: its findings."""
        known = self.draft.states
        given = [(c, c.attributes.get("node", ""), c.attributes.get("state", "")) for c in element.all("evidence")]
        case = {v: (s, c.at) for c, v, s in given if s in known.get(v, ()) and "slice" not in c.attributes}
        lost = [v for _, v, _ in given if v not in case]
        self.draft.findings.append(case)
        name = shown(element.attributes.get("name", str(len(self.draft.findings))))
        listed = ", ".join(f"{v} = {shown(s)}" for v, (s, _) in case.items()) or "no finding"
        skipped = f"; skipped {', '.join(map(shown, lost))}, which are not a state of a variable" if lost else ""
        self.draft.note(
            element.at, f"the case {name} ({listed}) is not part of the network; read_evidence reads it{skipped}"
        )

    def equation(self, element: Element, child: str) -> None:
        """A number, if its equation is a linear density."""
        definition, before = element.one("definition"), element.one("parents")
        if definition is None:
            return
        try:
            density = parse_equation(definition.text, child)
        except NotLinear as error:
            text = f"equation node with {shown(str(error))}, which is no linear density,"
            self.draft.refused[child] = element.at, text
            return
        parents = [(p, before.at) for p in before.text.split()] if before else []
        self.draft.numbers[child] = NumberDraft(element.at, parents, [density], definition.at)

    def utility(self, element: Element, family: FamilyDraft, locator: Locator) -> None:
        """A utility, or a sum of utilities with weights."""
        draft, child, is_sum = self.draft, family.child, element.name == "mau"
        (draft.combined if is_sum else draft.families)[child] = family
        table = element.one("weights" if is_sum else "utilities")
        odd = next((c for c in element.children if c.name not in ("parents", "weights", "property", "state")), None)
        if is_sum and odd is not None:
            draft.refused[child] = element.at, f"sum of utilities by the expression {shown(odd.text)}, not by weights,"
            return
        if not is_sum:
            draft.utilities[child] = element.at
        if table is None or table.numbers is None:
            if not is_sum:
                raise self.source.error(element.at, f"found no <utilities> of {child!r}, expected them")
            return
        family.numbers, family.data_at = table.numbers, table.begin
        family.locate = lambda position: locator.number(table, position)

    # Extensions ----------------------------------------------------------------------------------------------

    def looks(self, element: Element) -> None:
        """A node of the diagram; it may be a remnant of a deleted node."""
        child = element.attributes.get("id", "")
        if child not in {**self.draft.states, **self.draft.utilities, **self.draft.numbers}:
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
        if numbers := extensions.one("jtgpu_numbers"):
            self.draft.order = tuple(numbers.attributes.get("order", "").split())
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
            self.draft.reorder(mine.attributes.get("order", "").split())

    def names(self) -> None:
        """Restore the names that the format cannot represent, where their identifiers are unchanged."""
        draft = self.draft
        new: dict[str, str] = {}
        for element in self.mine:
            child = element.attributes.get("id", "")
            if child not in draft.states and child not in draft.utilities:
                continue
            new[child] = element.attributes.get("name", child)
            if child in draft.states:
                draft.families[child].exact = element.attributes.get("rows") == "exact"
                labels = {s.attributes.get("id", ""): s.text for s in element.all("state")}
                draft.states[child] = tuple(labels.get(s, s) for s in draft.states[child])
            kept = tuple(p.text for p in element.all("property"))
            if kept:
                draft.attributes["potential"].setdefault(child, {})["property"] = kept
        draft.rename(new)


def _property(key: str, value: str) -> str:
    return value if key.startswith(UNNAMED) else f"{key} = {value}"


parse_draft, parse = parsers_of(lambda text, source: XdslReader(XmlSource(text, source)).file())


def dumps(net: DiscreteModel) -> str:
    """The text of an XDSL file with `net`; it reads back equal, bit for bit."""
    # raises FormatError: If the model is neither a Bayesian network nor a decision network whose utilities add up, or a
    #     name contains control characters, which XML cannot represent.
    return "\n".join([*XdslWriter(with_decisions(turned_for_file(net), "an XDSL file")).lines(), ""])


def ids_of(net: DiscreteModel) -> dict[str, str]:
    """The identifiers of the variables in the file of a network."""
    return XdslWriter(with_decisions(net, "an XDSL file")).ids


class XdslWriter:
    """Ids, states and the order of the nodes of one file."""

    def __init__(self, parts: WrittenNetwork):
        self.parts, self.net = parts, parts.net
        net, names = parts.net, [*parts.net.variables, *parts.utilities]
        self.ids = dict(zip(names, identifiers(names, "node_"), strict=True))
        self.states = {v: identifiers(net.states(v), "State_") for v in net.variables}
        self.order = net.topological_order()
        self.name = identifiers([net.name], "Network")[0]

    def lines(self) -> Iterator[str]:
        yield '<?xml version="1.0" encoding="UTF-8"?>'
        yield f'<smile version="1.0" id="{self.name}" numsamples="10000" discsamples="10000">'
        yield "\t<nodes>"
        for v in (*self.order, *self.parts.utilities):
            yield from self.node(v)
        yield "\t</nodes>"
        yield "\t<extensions>"
        yield f'\t\t<genie version="1.0" app="jtgpu" name="{escaped(self.label(), "the name")}">'
        for v in (*self.order, *self.parts.utilities):
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
        numbers: dict[str, Sequence[float]] = {}
        if v in self.parts.utilities:
            kind, numbers["utilities"] = "utility", self.parts.utilities[v].ravel().tolist()
        elif v in self.parts.decisions:
            kind = "decision"
        elif noisy := noisy_numbers(self.net, v):
            kind, numbers["strengths"], numbers["parameters"] = "noisymax", noisy[1], noisy[0]
        else:
            kind, numbers["probabilities"] = "cpt", self.net.cpt(v).ravel().tolist()
        yield f'\t\t<{kind} id="{self.ids[v]}">'
        for state in self.states.get(v, ()):
            yield f'\t\t\t<state id="{state}" />'
        parents = self.net.parents(v)
        if parents:
            yield f"\t\t\t<parents>{' '.join(self.ids[p] for p in parents)}</parents>"
        for name, values in numbers.items():
            yield f"\t\t\t<{name}>{' '.join(map(number, values))}</{name}>"
        for key, value in _properties(self.kept("node", v)):
            text = escaped(value, f"the property {key!r}")
            yield f'\t\t\t<property id="{escaped(key, "the property")}"{attribute(value)}>{text}</property>'
        yield f"\t\t</{kind}>"

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
        exact = inexact(self.parts)
        name = f' name="{escaped(net.name, "the name")}"' if net.name != self.name else ""
        order = f' order="{" ".join(ids[v] for v in net.variables)}"' if self.order != net.variables else ""
        inner = [f"\t\t\t{_text('property', p)}" for p in strings(net.attributes.get("net", {}))]
        for v in (*net.variables, *self.parts.utilities):
            new = f' name="{escaped(v, "the name")}"' if ids[v] != v else ""
            rows = ' rows="exact"' if v in exact else ""
            parts = [
                f"\t\t\t\t{_text('state', label, made)}"
                for made, label in zip(self.states.get(v, ()), net.states(v) if v in self.states else (), strict=True)
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


def _properties(kept: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Key and text of every property; what has no key goes under the number it has."""
    for i, text in enumerate(strings(kept)):
        key, equals, value = text.partition(" = ")
        yield (key, value) if equals and identifiers([key], "p") == [key] else (f"{UNNAMED}{i}", text)


def dumps_mixed(net: MixedNetwork) -> str:
    """The text of an XDSL file with a network of states and numbers, as equations."""
    # raises FormatError: If the format cannot represent something in the network.
    odd = next((v for v in net.numbers if net.discrete_parents(v)), None)
    if odd is not None:
        raise FormatError(
            f"the number {odd!r} has the parent {net.discrete_parents(odd)[0]!r}, which has states: equations of XDSL "
            "have numeric parents only; write a Hugin .net or .mixed.json file"
        )
    ids = ids_of(net.discrete)
    if identifiers([*ids.values(), *net.numbers], "node_") != [*ids.values(), *net.numbers]:
        raise FormatError("names of numbers must be identifiers in an XDSL file, and differ from those of other nodes")
    equations = []
    for v in (v for v in net.topological_order() if net.is_number(v)):
        ((mean, coefficients, sd),) = density_rows(net.gaussian(v))
        if v.lower() == "normal":
            raise FormatError(f"the number {v!r} cannot be part of an equation in an XDSL file")
        terms = linear_text(mean, coefficients)
        equations += [f'\t\t<equation id="{v}">']
        if net.parents(v):
            equations += [f"\t\t\t<parents>{' '.join(net.parents(v))}</parents>"]
        equations += [f"\t\t\t<definition>{v}={terms} + Normal(0, {number(sd)})</definition>", "\t\t</equation>"]
    order = " ".join(ids.get(v, v) for v in net.variables)
    writer = XdslWriter(with_decisions(net.discrete, "an XDSL file"))
    writer.ids |= {v: v for v in net.numbers}
    looks = [line for v in net.numbers if v in net.attributes.get("node", {}) for line in writer.looks(v)]
    return (
        dumps(net.discrete)
        .replace("\t\t</genie>", "\n".join([*looks, "\t\t</genie>"]), 1)
        .replace("\t</nodes>", "\n".join([*equations, "\t</nodes>"]), 1)
        .replace("\t</extensions>", f'\t\t<jtgpu_numbers order="{order}" />\n\t</extensions>')
    )


NUMSLICES = 10  # that of GeNIe for a new network


def dumps_dynamic(net: DynamicNetwork) -> str:
    """The text of an XDSL file with a dynamic network."""
    # slice 0 as `dumps` writes it, with the tables of later slices added
    static = set(net.static)
    order = {v: _by_lag(net, v) for v in net}
    tables = {v: [_table(net, v, t) for t in range(len(net.start(v)) + 1)] for v in net}
    same = {v: [p for p, lag in net.parents(v) if lag == 0] for v in net}
    first = BayesianNetwork({v: net.states(v) for v in net}, same, {v: tables[v][0] for v in net}, name=net.name)
    text, ids = dumps(first), ids_of(first)
    for v in net:
        if v not in static:
            text = text.replace(f'\t\t<cpt id="{ids[v]}">', f'\t\t<cpt id="{ids[v]}" dynamic="plate">', 1)
    later = [f'\t<dynamic numslices="{NUMSLICES}">']
    mine = [f"\t\t<{EXTENSION}>"]
    for v in net:
        for t, table in enumerate(tables[v][1:], 1):
            later.append(f'\t\t<cpt id="{ids[v]}" order="{t}">')
            if before := [ids[p] for p, lag in net.parents(v) if lag == t]:
                later.append(f"\t\t\t<parents>{' '.join(before)}</parents>")
            later.append(f"\t\t\t<probabilities>{' '.join(map(number, table.ravel().tolist()))}</probabilities>")
            later.append("\t\t</cpt>")
        places = "" if order[v] == sorted(order[v]) else f' parents="{" ".join(map(str, np.argsort(order[v])))}"'
        rows = ' rows="exact"' if _inexact(tables[v][1:]) else ""
        if places or rows:
            mine.append(f'\t\t\t<template id="{ids[v]}"{places}{rows} />')
    later.append("\t</dynamic>\n\t<extensions>")
    if len(mine) > 1:
        text = text.replace("\t</extensions>", "\n".join([*mine, f"\t\t</{EXTENSION}>", "\t</extensions>"]), 1)
    return text.replace("\t<extensions>", "\n".join(later), 1)


def _by_lag(net: DynamicNetwork, v: str) -> list[int]:
    """The places of the parents of a variable in the order of the file: those of its slice, then by lag."""
    return sorted(range(len(net.parents(v))), key=lambda i: (net.parents(v)[i][1], i))


def _table(net: DynamicNetwork, v: str, t: int) -> Floats:
    """The CPT of a variable in slice t, axes in the order of the file."""
    first = t < len(net.start(v))
    cells = np.asarray(net.cpt(v, t) if first else net.cpt(v), np.float64)
    present = [i for i, (_, lag) in enumerate(net.parents(v)) if lag <= t or not first]
    axes = [present.index(i) for i in _by_lag(net, v) if i in present]
    return np.ascontiguousarray(np.transpose(cells, [*axes, len(axes)]))


def _inexact(tables: list[Floats]) -> bool:
    """Whether a reader that normalises rows would change a table."""
    again, _ = normalize_rows({str(i): table for i, table in enumerate(tables)})
    return any(not np.array_equal(again[str(i)], table) for i, table in enumerate(tables))
