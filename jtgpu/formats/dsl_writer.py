"""DSL of GeNIe and SMILE: writer. `jtgpu.formats.dsl` reads its files back equal, bit for bit.

The format allows identifiers only and requires parents before their children: names are converted to identifiers,
nodes are sorted, and user properties that begin with `jtgpu.formats.dsl.PREFIX` contain the original names and
the original order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import FormatError
from ..model.discrete import DiscreteModel
from ..model.network import BayesianNetwork
from .dsl import PREFIX
from .number_cursor import identifiers, inexact, whole_numbers
from .text import number, quote
from .xdsl import SIZE


def dumps(net: DiscreteModel) -> str:
    """The text of a DSL file with `net`; it reads back equal, bit for bit."""
    # raises FormatError: If the model is not a Bayesian network.
    if not isinstance(net, BayesianNetwork):
        raise FormatError(f"a DSL file holds a Bayesian network, not a {type(net).__name__}")
    return "\n".join([*_lines(net), ""])


def _lines(net: BayesianNetwork) -> Iterator[str]:
    ids = dict(zip(net.variables, identifiers(net.variables, "node_"), strict=True))
    order = net.topological_order()
    name = identifiers([net.name], "Network")[0]
    about = net.attributes.get("net", {})
    yield f"net {name}"
    yield "{"
    label = about.get("label")
    yield from _block("HEADER", [("ID", name), ("NAME", quote(label if isinstance(label, str) else net.name or name)),
                                 *_comment(about)], 1)  # fmt: skip
    user = list(_properties(about, "NET"))
    if name != net.name:
        user.append((f"{PREFIX}NETWORK", quote(net.name)))
    if order != net.variables:
        user.append((f"{PREFIX}ORDER", quote(" ".join(ids[v] for v in net.variables))))
    yield from _block("USER_PROPERTIES", user, 1)
    exact = inexact(net)
    for v in order:
        yield ""
        yield from _node(net, v, ids, v in exact)
    yield "};"


def _node(net: BayesianNetwork, v: str, ids: Mapping[str, str], exact: bool) -> Iterator[str]:
    kept: Mapping[str, Any] = net.attributes.get("node", {}).get(v, {})
    states = identifiers(net.states(v), "State_")
    label = kept.get("label")
    yield f"\tnode {ids[v]}"
    yield "\t{"
    yield "\t\tTYPE = CPT;"
    header = [("ID", ids[v]), ("NAME", quote(label if isinstance(label, str) else v)), *_comment(kept)]
    yield from _block("HEADER", header, 2)
    position = whole_numbers(kept.get("position"), 2)
    if position:
        size = whole_numbers(kept.get("size"), 2) or SIZE
        yield "\t\tSCREEN ="
        yield "\t\t{"
        numbers = zip(("CENTER_X", "CENTER_Y", "WIDTH", "HEIGHT"), map(str, (*position, *size)), strict=True)
        yield from _block("POSITION", list(numbers), 3)
        yield "\t\t};"
    user = list(_properties(kept, "NODE"))
    if ids[v] != v:
        user.append((f"{PREFIX}NAME", quote(f"{ids[v]}={v}")))
    user += [
        (f"{PREFIX}STATE_{i}", quote(f"{made}={true}"))
        for i, (made, true) in enumerate(zip(states, net.states(v), strict=True))
        if made != true
    ]
    if exact:
        user.append((f"{PREFIX}ROWS", quote("exact")))
    user += _properties(net.attributes.get("potential", {}).get(v, {}), "TABLE", named=False)
    yield from _block("USER_PROPERTIES", user, 2)
    yield f"\t\tPARENTS = ({', '.join(ids[p] for p in net.parents(v))});"
    numbers_of = ", ".join(map(number, net.cpt(v).ravel().tolist()))
    yield from _block("DEFINITION", [("NAMESTATES", f"({', '.join(states)})"), ("PROBABILITIES", f"({numbers_of})")], 2)
    yield "\t};"


def _block(name: str, statements: Sequence[tuple[str, str]], depth: int) -> Iterator[str]:
    if statements:
        tabs = "\t" * depth
        yield f"{tabs}{name} ="
        yield f"{tabs}{{"
        yield from (f"{tabs}\t{key} = {value};" for key, value in statements)
        yield f"{tabs}}};"


def _comment(kept: Mapping[str, Any]) -> list[tuple[str, str]]:
    comment = kept.get("comment")
    return [("COMMENT", quote(comment))] if isinstance(comment, str) else []


def _properties(kept: Mapping[str, Any], where: str, *, named: bool = True) -> Iterator[tuple[str, str]]:
    """Properties as pairs of key and value; those without a key get their number as key."""
    values = kept.get("property", ())
    seen: set[str] = set()
    for i, text in enumerate((values,) if isinstance(values, str) else values):
        key, equals, value = str(text).partition(" = ")
        plain = named and equals and identifiers([key], "p") == [key] and not key.startswith(PREFIX) and key not in seen
        seen.add(key)
        yield (key, quote(value)) if plain else (f"{PREFIX}{where}_{i}", quote(str(text)))
