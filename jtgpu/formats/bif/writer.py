"""BIF, the text form: writer. `jtgpu.formats.bif.reader` reads its files back equal, bit for bit.

The dialect is common to bnlearn, pgmpy, pyAgrum and JavaBayes: one row per configuration of the parents, identified by
the names of their states, and ``table`` for variables without parents. There are two exceptions: names that are not
plain words are in double quotes, and a variable whose parents have several states of the same name gets ``table``,
whose numbers are identified by their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from ...model.cpts import normalize_rows
from ...model.discrete import DiscreteModel
from ...model.network import BayesianNetwork
from ..common.text import number, quote
from .reader import EXACT
from .rows import written


def dumps(net: DiscreteModel) -> str:
    """The text of a BIF file with `net`; it reads back equal, bit for bit, including its properties."""
    # raises FormatError: If the model is not a Bayesian network, or the format cannot represent a property.
    if not isinstance(net, BayesianNetwork):
        raise FormatError(f"a BIF file holds a Bayesian network, not a {type(net).__name__}")
    lines = [f"network {written(net.name or 'unknown')} {{", *_properties(net, "net", None), "}"]
    for v in net.variables:
        labels = net.states(v)
        lines.append(f"variable {written(v)} {{")
        lines.append(f"  type discrete [ {len(labels)} ] {{ {', '.join(map(written, labels))} }};")
        lines += [*_properties(net, "node", v), "}"]
    for v in net.variables:
        parents = net.parents(v)
        given = f" | {', '.join(map(written, parents))}" if parents else ""
        lines.append(f"probability ( {written(v)}{given} ) {{")
        lines += _rows(net.cpt(v), [net.states(p) for p in parents])
        again, _ = normalize_rows({v: net.cpt(v)})
        if not np.array_equal(again[v], net.cpt(v)):
            lines.append(f"  property {EXACT};")
        lines += [*_properties(net, "potential", v), "}"]
    return "\n".join([*lines, ""])


def _rows(table: NDArray[np.float64], parents: Sequence[Sequence[str]]) -> Iterator[str]:
    """The numbers of a CPT (axes: parents in order, child last), a line a row."""
    if not parents or any(len(set(labels)) < len(labels) for labels in parents):
        numbers = np.moveaxis(table, -1, 0).ravel().tolist()  # the child slowest
        yield f"  table {', '.join(map(number, numbers))};"
        return
    keys = product(*([written(label) for label in labels] for labels in parents))
    for key, row in zip(keys, table.reshape(-1, table.shape[-1]).tolist(), strict=True):
        yield f"  ({', '.join(key)}) {', '.join(map(number, row))};"


def _properties(net: BayesianNetwork, kind: str, variable: str | None) -> Iterator[str]:
    """What a BIF file said before: the attribute ``property``, a tuple of strings; other attributes have no place."""
    kept: Mapping[str, Any] = net.attributes.get(kind, {})
    if variable is not None:
        kept = kept.get(variable, {})
    values = kept.get("property", ())
    for value in (values,) if isinstance(values, str) else values:
        yield f"  property {_property(str(value))};"


def _property(value: str) -> str:
    """A property's text as it stands where it reads back so, else as one quoted string."""
    plain = value and value == value.strip() and not re.search(r'[;"\\{}]|[^\S ]|//|/\*', value)
    return value if plain else quote(value)
