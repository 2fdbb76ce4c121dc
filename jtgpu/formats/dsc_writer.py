"""DSC (MSBN): writer, in bnlearn's layout. `jtgpu.formats.dsc` reads its files back equal, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from ..errors import FormatError, shown
from ..model.discrete import DiscreteModel
from ..model.network import BayesianNetwork
from .dsc import EXACT
from .number_cursor import identifiers, inexact, whole_numbers
from .text import number, quote


def dumps(net: DiscreteModel) -> str:
    """The text of a DSC file with `net`; it reads back equal, bit for bit."""
    # raises FormatError: If the model is not a Bayesian network, or a variable name is not an identifier.
    if not isinstance(net, BayesianNetwork):
        raise FormatError(f"a DSC file holds a Bayesian network, not a {type(net).__name__}")
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
