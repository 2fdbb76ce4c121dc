"""XDSL of GeNIe and SMILE: writer. `jtgpu.formats.xdsl.reader` reads its files back equal, bit for bit.

GeNIe allows identifiers only and requires parents before their children: names are converted to identifiers, nodes are
sorted, and the extension ``jtgpu``, which other programs ignore, contains the original names and the original order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import FormatError
from ...model.discrete import DiscreteModel
from ...model.network import BayesianNetwork
from ..common.text import number
from ..common.writing import identifiers, inexact, whole_numbers
from ..common.xml_text import attribute, escaped
from .reader import LOOKS, MINE, SIZE, UNNAMED


def dumps(net: DiscreteModel) -> str:
    """The text of an XDSL file with `net`; it reads back equal, bit for bit."""
    # raises FormatError: If the model is not a Bayesian network, or a name contains control characters, which XML
    #     cannot represent.
    if not isinstance(net, BayesianNetwork):
        raise FormatError(f"an XDSL file holds a Bayesian network, not a {type(net).__name__}")
    return "\n".join([*_Writer(net).lines(), ""])


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
        yield f'\t\t<genie version="1.0" app="jtgpu" name="{_value(self.label(), "the name")}">'
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
        found: Mapping[str, Any] = self.net.attributes.get(kind, {}).get(v, {})
        return found

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
            yield f'\t\t\t<property id="{_value(key, "the property")}"{attribute(value)}>{text}</property>'
        yield "\t\t</cpt>"

    def looks(self, v: str) -> Iterator[str]:
        kept = self.kept("node", v)
        label = kept.get("label")
        label = label if isinstance(label, str) else v
        yield f'\t\t\t<node id="{self.ids[v]}">'
        yield f"\t\t\t\t<name{attribute(label)}>{escaped(label, 'the name')}</name>"
        position = whole_numbers(kept.get("position"), 2)
        for part, usual in LOOKS.items():
            found = kept.get(f"genie_{part}", usual if position else ())
            pairs = [str(x).partition("=") for x in ((found,) if isinstance(found, str) else found)]
            written = [f'{k}="{_value(x, k)}"' for k, _, x in pairs if k.isascii() and k.isalpha()]
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
        """What the format has no place for; nothing where it has."""
        net, ids = self.net, self.ids
        exact = inexact(net)
        name = f' name="{_value(net.name, "the name")}"' if net.name != self.name else ""
        order = f' order="{" ".join(ids[v] for v in net.variables)}"' if self.order != net.variables else ""
        inner = [f"\t\t\t{_text('property', p)}" for p in _strings(net.attributes.get("net", {}))]
        for v in net.variables:
            new = f' name="{_value(v, "the name")}"' if ids[v] != v else ""
            rows = ' rows="exact"' if v in exact else ""
            parts = [
                f"\t\t\t\t{_text('state', label, made)}"
                for made, label in zip(self.states[v], net.states(v), strict=True)
                if made != label
            ]
            parts += [f"\t\t\t\t{_text('property', p)}" for p in _strings(self.kept("potential", v))]
            if new or rows or parts:
                inner += [f'\t\t\t<node id="{ids[v]}"{new}{rows}>', *parts, "\t\t\t</node>"]
        if name or order or inner:
            yield f'\t\t<{MINE} version="1.0"{name}{order}>'
            yield from inner
            yield f"\t\t</{MINE}>"


def _value(text: str, what: str) -> str:
    return escaped(text, what)


def _text(element: str, text: str, identity: str = "") -> str:
    identity = f' id="{identity}"' if identity else ""
    return f"<{element}{identity}{attribute(text)}>{escaped(text, element)}</{element}>"


def _strings(kept: Mapping[str, Any]) -> list[str]:
    """Properties as other formats keep them."""
    values = kept.get("property", ())
    return [str(x) for x in ((values,) if isinstance(values, str) else values)]


def _properties(kept: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Key and text of every property; what has no key goes under the number it has."""
    for i, text in enumerate(_strings(kept)):
        key, equals, value = text.partition(" = ")
        yield (key, value) if equals and identifiers([key], "p") == [key] else (f"{UNNAMED}{i}", text)
