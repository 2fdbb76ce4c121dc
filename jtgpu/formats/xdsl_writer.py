"""XDSL: writer, whose files `jtgpu.formats.xdsl` reads back equal, bit for bit.

GeNIe allows identifiers only and requires parents before their children: names are converted to identifiers, nodes are
sorted, and the extension ``jtgpu``, which other programs ignore, contains the original names and the original order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..model.discrete import DiscreteModel
from .canonical_nodes import noisy_numbers
from .number_cursor import WrittenNetwork, identifiers, inexact, strings, whole_numbers, with_decisions
from .text import number
from .xdsl import LOOKS, MINE, SIZE, UNNAMED
from .xml_text import attribute, escaped


def dumps(net: DiscreteModel) -> str:
    """The text of an XDSL file with `net`; it reads back equal, bit for bit."""
    # raises FormatError: If the model is neither a Bayesian network nor a decision network whose utilities add up, or a
    #     name contains control characters, which XML cannot represent.
    return "\n".join([*XdslWriter(with_decisions(net, "an XDSL file")).lines(), ""])


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


def _properties(kept: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Key and text of every property; what has no key goes under the number it has."""
    for i, text in enumerate(strings(kept)):
        key, equals, value = text.partition(" = ")
        yield (key, value) if equals and identifiers([key], "p") == [key] else (f"{UNNAMED}{i}", text)
