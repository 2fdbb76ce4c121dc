"""DSL: writer, whose files `jtgpu.formats.dsl` reads back equal, bit for bit.

The format allows identifiers only and requires parents before their children: names are converted to identifiers,
nodes are sorted, and user properties that begin with `PREFIX` contain the original names and the original order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..model.discrete import DiscreteModel
from .canonical_nodes import noisy_numbers
from .dsl import PREFIX
from .number_cursor import WrittenNetwork, identifiers, inexact, strings, whole_numbers, with_decisions
from .text import number, quote
from .xdsl import SIZE


def dumps(net: DiscreteModel) -> str:
    """The text of a DSL file with `net`; it reads back equal, bit for bit."""
    # raises FormatError: If the model is neither a Bayesian network nor a decision network whose utilities add up.
    return "\n".join([*_lines(with_decisions(net, "a DSL file")), ""])


def _lines(parts: WrittenNetwork) -> Iterator[str]:
    net, names = parts.net, [*parts.net.variables, *parts.utilities]
    ids = dict(zip(names, identifiers(names, "node_"), strict=True))
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
    exact = inexact(parts)
    for v in (*order, *parts.utilities):
        yield ""
        yield from _node(parts, v, ids, v in exact)
    yield "};"


def _node(parts: WrittenNetwork, v: str, ids: Mapping[str, str], exact: bool) -> Iterator[str]:
    net = parts.net
    kept: Mapping[str, Any] = net.attributes.get("node", {}).get(v, {})
    own = () if v in parts.utilities else net.states(v)
    states = identifiers(own, "State_")
    label = kept.get("label")
    kind, definition = _definition(parts, v, states)
    yield f"\tnode {ids[v]}"
    yield "\t{"
    yield f"\t\tTYPE = {kind};"
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
        for i, (made, true) in enumerate(zip(states, own, strict=True))
        if made != true
    ]
    if exact:
        user.append((f"{PREFIX}ROWS", quote("exact")))
    user += _properties(net.attributes.get("potential", {}).get(v, {}), "TABLE", named=False)
    yield from _block("USER_PROPERTIES", user, 2)
    yield f"\t\tPARENTS = ({', '.join(ids[p] for p in net.parents(v))});"
    yield from _block("DEFINITION", [(key, f"({', '.join(values)})") for key, values in definition], 2)
    yield "\t};"


def _definition(parts: WrittenNetwork, v: str, states: Sequence[str]) -> tuple[str, list[tuple[str, Iterable[str]]]]:
    """The type of a node, and the lists of its definition."""
    if v in parts.utilities:
        return "TABLE", [("UTILITIES", map(number, parts.utilities[v].ravel().tolist()))]
    if v in parts.decisions:
        return "LIST", [("NAMECHOICES", states)]
    noisy = noisy_numbers(parts.net, v)
    if noisy:
        parameters, strengths = noisy
        lists: list[tuple[str, Sequence[float]]] = [("STRENGTHS", strengths), ("PROBABILITIES", parameters)]
        return "NOISY_MAX", [("NAMESTATES", states), *((key, map(number, values)) for key, values in lists)]
    cells = parts.net.cpt(v).ravel().tolist()
    return "CPT", [("NAMESTATES", states), ("PROBABILITIES", map(number, cells))]


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
    seen: set[str] = set()
    for i, text in enumerate(strings(kept)):
        key, equals, value = text.partition(" = ")
        plain = named and equals and identifiers([key], "p") == [key] and not key.startswith(PREFIX) and key not in seen
        seen.add(key)
        yield (key, quote(value)) if plain else (f"{PREFIX}{where}_{i}", quote(text))
