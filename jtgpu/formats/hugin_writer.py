"""Hugin ``.net``: writer. `jtgpu.formats.hugin` reads its files back equal, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError
from ..model.cpts import normalize_rows
from ..model.discrete import DiscreteModel
from ..model.network import BayesianNetwork
from .hugin import TOKEN, Verbatim
from .text import Source, Tokens, number, quote


def dumps(net: DiscreteModel) -> str:
    """The text of a Hugin file with `net`; it reads back equal, bit for bit, including its attributes."""
    # raises FormatError: If the format cannot represent a variable or an attribute, or the model is not a Bayesian
    #     network.
    if not isinstance(net, BayesianNetwork):
        raise FormatError(f"a Hugin .net file holds a Bayesian network, not a {type(net).__name__}")
    cpts = {v: net.cpt(v) for v in net.variables}
    again, _ = normalize_rows(cpts)
    exact = {v for v in net.variables if not np.array_equal(again[v], cpts[v])}
    states = {v: net.states(v) for v in net.variables}
    parents = {v: net.parents(v) for v in net.variables}
    return dump_tables(states, parents, cpts, name=net.name, attributes=net.attributes, exact=exact)


def dump_tables(
    states: Mapping[str, Sequence[str]],
    parents: Mapping[str, Sequence[str]],
    tables: Mapping[str, NDArray[np.float64]],
    *,
    name: str = "",
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
    exact: Collection[str] = (),
    comment: str = "",
) -> str:
    """The text of a Hugin file with tables that need not be normalised (`dumps` is for networks)."""
    # states, parents, tables, name, attributes: As `jtgpu.model.network.BayesianNetwork` takes them
    # exact: collection of str: Variables whose rows a reader has to leave as they are
    # comment: Lines for the top of the file
    attributes = attributes or {}
    for v in states:
        found = TOKEN.match(v)
        plain = (
            found is not None and found.lastgroup in ("name", "number") and found.span(found.lastgroup) == (0, len(v))
        )
        if not plain or v[0] in "+-":
            raise FormatError(
                f"the variable {v!r} cannot be written to a Hugin .net file: a name there is made of letters, digits, "
                "'_' and '.'"
            )
    lines = [f"% {line}".rstrip() for line in comment.splitlines()]
    about = dict(attributes.get("net", {}))
    if name:
        about = {"name": name} | about | {"name": name}
    else:
        about.pop("name", None)
    lines += ["net", "{", *_attribute_lines(about, "the network"), "}", ""]
    of_nodes = attributes.get("node", {})
    for v, labels in states.items():
        first = {k: of_nodes.get(v, {})[k] for k in ("label", "position") if k in of_nodes.get(v, {})}
        rest = {k: x for k, x in of_nodes.get(v, {}).items() if k not in first and k != "states"}
        lines += [f"node {v}", "{", *_attribute_lines(first, v)]
        lines += [f"    states = ({' '.join(map(quote, labels))});", *_attribute_lines(rest, v), "}", ""]
    shown_states = {v: [f"{v}={quote(label)[1:-1]}" for label in labels] for v, labels in states.items()}
    of_potentials = attributes.get("potential", {})
    for v in states:
        before = parents.get(v, ())
        head = f"{v} | {' '.join(before)}" if before else v
        rest = {k: x for k, x in of_potentials.get(v, {}).items() if k not in ("data", "jtgpu_rows")}
        if v in exact:
            rest["jtgpu_rows"] = "exact"
        lines += [f"potential ({head})", "{", *_data_lines(tables[v], [shown_states[p] for p in before])]
        lines += [*_attribute_lines(rest, v), "}", ""]
    return "\n".join(lines)


def _data_lines(table: NDArray[np.float64], parents: Sequence[Sequence[str]]) -> Iterator[str]:
    """``data = (...);`` with one row a line, and the parents' states behind it for people."""
    last = [len(labels) - 1 for labels in parents]
    rows = table.reshape(-1, table.shape[-1]).tolist()
    depth = len(parents)
    for i, (at, row) in enumerate(zip(product(*(range(n + 1) for n in last)), rows, strict=True)):
        n_open = n_close = 1  # of the row itself, and of every axis that begins or ends with it
        while n_open <= depth and at[depth - n_open] == 0:
            n_open += 1
        while n_close <= depth and at[depth - n_close] == last[depth - n_close]:
            n_close += 1
        start = "    data = " if i == 0 else "           "
        numbers = " ".join(map(number, row))
        line = f"{start}{' ' * (depth + 1 - n_open)}{'(' * n_open}{numbers}{')' * n_close}"
        if i == len(rows) - 1:
            line += ";"
        yield f"{line}  %  {'  '.join([labels[s] for labels, s in zip(parents, at, strict=True)])}" if parents else line


def _attribute_lines(attributes: Mapping[str, Any], owner: str) -> Iterator[str]:
    for key, value in attributes.items():
        found = TOKEN.match(key)
        if found is None or found.lastgroup != "name" or found.span("name") != (0, len(key)):
            raise FormatError(
                f"the attribute {key!r} of {owner!r} cannot be written to a Hugin .net file: not an identifier"
            )
        text = _value(value)
        if text is None:
            raise FormatError(f"the attribute {key!r} of {owner!r} cannot be written to a Hugin .net file: {value!r}")
        yield f"    {key} = {text};"


def _value(value: Any) -> str | None:
    if isinstance(value, Verbatim):
        return str(value) if _is_verbatim(value) else None
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return repr(float(value)) if math.isfinite(value) else None
    if isinstance(value, (tuple, list)):
        parts = [None if isinstance(part, (tuple, list)) else _value(part) for part in value]
        return None if None in parts else f"({' '.join(part for part in parts if part is not None)})"
    return None


def _is_verbatim(text: str) -> bool:
    """Would the text, followed by ``;``, be read back as one value and as the same one?"""
    tokens = Tokens(Source(text), TOKEN)
    last = 0
    while tokens.kind != "end":
        if tokens.at(";", "{", "}", '"'):
            return False
        last = tokens.end
        tokens.advance()
    return 0 < last == len(text) and not text[0].isspace()
