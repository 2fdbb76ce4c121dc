"""XMLBIF 0.3: writer. `jtgpu.formats.xmlbif.reader` reads its files back equal, bit for bit.

No document type declaration is written: pyAgrum's reader fails on it, and no reader requires it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import FormatError
from ...model.discrete import DiscreteModel
from ...model.network import BayesianNetwork
from ..bif.reader import EXACT
from ..common.text import number
from ..common.writing import inexact
from ..common.xml_text import attribute, escaped


def dumps(net: DiscreteModel) -> str:
    """The text of an XMLBIF file with `net`; it reads back equal, bit for bit, including its properties."""
    # raises FormatError: If the model is not a Bayesian network, or a name contains control characters, which XML
    #     cannot represent.
    if not isinstance(net, BayesianNetwork):
        raise FormatError(f"an XMLBIF file holds a Bayesian network, not a {type(net).__name__}")
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
    kept: Mapping[str, Any] = net.attributes.get(kind, {})
    if variable is not None:
        kept = kept.get(variable, {})
    values = kept.get("property", ())
    for value in (values,) if isinstance(values, str) else values:
        yield _element("PROPERTY", str(value))
