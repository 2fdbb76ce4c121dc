"""Hugin ``.net``: tokens, attribute values and numbers of potentials, and the writer; `jtgpu.formats.hugin` reads.

Files that are written read back equal, bit for bit.

Classes, instances and temporal clones of Hugin files: object-oriented and dynamic networks.

* ``class C { inputs = (A); outputs = (B); ... }``: several classes in a file; the last one that no other class has an
  instance of is the network. ``instance I : C (A = X; Y = B) { }`` is a copy of C: its nodes are named ``I.B``, its
  input A is X, and Y is another name of its node B. An input that is not bound is a node of its own.
* ``temporal T_X : X { }`` is X one slice earlier. Slice 0 of the dynamic network are the clones: HUGIN unrolls a class
  with them as its slice 0. A variable that has no clone and depends on one is uniform in slice 0: no clone depends on
  it there. Nodes whose clone has another table get an axis on which their table does not depend.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

from ..errors import FormatError, ParseError, near, shown
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..util.arrays import Floats
from .draft import Draft, FamilyDraft, SlicesDraft
from .linear import Linear, density_rows, linear_text, parse_densities
from .number_cursor import inexact, with_decisions
from .text import SourceText, Tokens, floats, nth_word, number, quote, unquote

SKIP = r"(?:[ \t\r\n\f\v]++|%[^\r\n]*+)*+"
_NUMBER = r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?(?![\w.])"
_NAME = r"[\w.]++"  # real files have nodes called 808, and dots inside names
TOKEN = re.compile(
    SKIP + rf"(?:(?P<number>{_NUMBER})|(?P<name>{_NAME})"
    r'|(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")|(?P<mark>[{}()=;:|,])|(?P<end>\Z)|(?P<other>.))',
    re.DOTALL,
)
_DATA = re.compile(r'(?:[^;%"{}]++|%[^\r\n]*+)*+')  # from after the '=' to the ';'
_COMMENT = re.compile(r"%[^\r\n]*+")
_DATA_TOKEN = re.compile(SKIP + r"(?:(?P<mark>[()])|(?P<word>[^\s()%]++)|(?P<end>\Z)|(?P<other>.))", re.DOTALL)
SCALARS = ("string", "number", "name")  # kinds of token that are values


class Verbatim(str):
    """An attribute's value that stands in the file as it is: an identifier, or an expression."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Verbatim({str.__repr__(self)})"


def scalar(kind: str, text: str) -> Any:
    if kind == "string":
        return unquote(text)
    if kind == "number":
        if len(text) < 16 and text.lstrip("+-").isdigit():
            return int(text)
        number = float(text)
        return number if math.isfinite(number) else Verbatim(text)
    return Verbatim(text)


# The numbers of a potential.

def read_data(tokens: Tokens, family: FamilyDraft) -> None:
    """Read the numbers of a potential at once; one by one only to locate errors."""
    source, text, begin = tokens.source, tokens.source.text, tokens.end
    end, body = _data_text(text, begin)
    numbers = floats(text, begin, end, "()") if body is None else floats(body, blanks="()")
    if numbers is None:
        raise _bad_data(source, family.child, begin, end)
    tokens.jump(end)
    if not tokens.at(";"):
        tokens.fail("';' at the end of the data")
    n_open, n_close = ((text.count(c, begin, end) if body is None else body.count(c)) for c in "()")
    if n_open != n_close:
        raise _unbalanced(source, begin, end)
    family.numbers, family.n_open = numbers, n_open
    family.data_at = next((at for _, _, at in _data_tokens(text, begin, end)), begin)
    family.locate = lambda position: nth_word(source, _DATA_TOKEN, begin, end, position)


def read_densities(tokens: Tokens) -> list[Linear]:
    """Read the ``normal(mean, variance)`` of a continuous node; the `NotLinear` of others leaves the tokens behind."""
    text, begin = tokens.source.text, tokens.end
    end, body = _data_text(text, begin)
    tokens.jump(end)
    return parse_densities(text[begin:end] if body is None else body)


def _data_text(text: str, begin: int) -> tuple[int, str | None]:
    """End of the data that begin here, and the data without comments; None if there are no comments."""
    end = text.find(";", begin)
    while end >= 0:  # skip a semicolon in a comment
        line = max(text.rfind("\n", begin, end), text.rfind("\r", begin, end), begin)
        if text.find("%", line, end) < 0:
            break
        end = text.find(";", end + 1)
    if end < 0 or any(text.find(c, begin, end) >= 0 for c in '"{}\r'):
        # no ';', or characters that may only occur in comments: use the exact pattern
        match = _DATA.match(text, begin)
        end = match.end() if match else begin
        return end, _COMMENT.sub("", text[begin:end])
    if text.find("%", begin, end) < 0:
        return end, None
    first, *others = text[begin:end].split("%")
    return end, "\n".join([first, *(part.partition("\n")[2] for part in others)])


def _data_tokens(text: str, begin: int, end: int) -> Iterator[tuple[str, str, int]]:
    """Kind, text and offset of every token of a potential's data."""
    while begin < end:
        token = _DATA_TOKEN.match(text, begin, end)
        if token is None or token.lastgroup is None or token.lastgroup == "end":
            return
        yield token.lastgroup, token[token.lastgroup], token.start(token.lastgroup)
        begin = token.end()


def _bad_data(source: SourceText, child: str, begin: int, end: int) -> ParseError:
    for kind, text, at in _data_tokens(source.text, begin, end):
        if kind != "mark" and floats(text) is None:
            if text == "normal":
                return source.error(
                    at, f"found a normal distribution for {child!r}; continuous nodes are not supported"
                )
            return source.error(at, f"found {shown(text)}, expected a number, '(', ')' or ';'")
    return source.error(begin, f"the data of {child!r} contain something that is not a number")


def _unbalanced(source: SourceText, begin: int, end: int) -> ParseError:
    depth = 0
    for _, text, at in _data_tokens(source.text, begin, end):
        depth += (text == "(") - (text == ")")
        if depth < 0:
            return source.error(at, "found ')', expected ';': more ')' than '(' before it")
    return source.error(end, f"found the end of the data, expected {depth} more ')'")


# The writer.

def dumps(net: DiscreteModel) -> str:
    """The text of a Hugin file with `net`; it reads back equal, bit for bit, including its attributes."""
    # raises FormatError: If the format cannot represent a variable or an attribute, or the model is neither a Bayesian
    #     network nor a decision network whose utilities add up.
    parts = with_decisions(net, "a Hugin .net file")
    net = parts.net
    states = {v: net.states(v) for v in net.variables}
    parents = {v: net.parents(v) for v in (*net.variables, *parts.utilities)}
    return dump_tables(
        states, parents, parts.cpts(), parts.utilities, name=net.name, attributes=net.attributes, exact=inexact(parts)
    )


def dump_tables(  # noqa: PLR0913 (parts of a network)
    states: Mapping[str, Sequence[str]],
    parents: Mapping[str, Sequence[str]],
    tables: Mapping[str, Floats],
    utilities: Mapping[str, Floats] = MappingProxyType({}),
    *,
    name: str = "",
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
    exact: Collection[str] = (),
    comment: str = "",
    row_names: bool = True,
) -> str:
    """The text of a Hugin file with tables that need not be normalised (`dumps` is for networks)."""
    # states, parents, tables, name, attributes: As `jtgpu.model.network.BayesianNetwork` takes them; what has no table
    #     is a decision
    # exact: collection of str: Variables whose rows a reader has to leave as they are
    # comment: Lines for the top of the file
    # row_names: Whether the parents' states stand behind each row, as comments: half of a large file
    attributes = attributes or {}
    for v in (*states, *utilities):
        check_name(v)
    lines = [f"% {line}".rstrip() for line in comment.splitlines()]
    about = dict(attributes.get("net", {}))
    if name:
        about = {"name": name} | about | {"name": name}
    else:
        about.pop("name", None)
    lines += ["net", "{", *attribute_lines(about, "the network"), "}", ""]
    of_nodes = attributes.get("node", {})
    for v, labels in states.items():
        first = {k: of_nodes.get(v, {})[k] for k in ("label", "position") if k in of_nodes.get(v, {})}
        rest = {k: x for k, x in of_nodes.get(v, {}).items() if k not in first and k != "states"}
        lines += [f"{'node' if v in tables else 'decision'} {v}", "{", *attribute_lines(first, v)]
        lines += [f"    states = ({' '.join(map(quote, labels))});", *attribute_lines(rest, v), "}", ""]
    for u in utilities:
        lines += [f"utility {u}", "{", *attribute_lines(of_nodes.get(u, {}), u), "}", ""]
    shown_states = {v: [f"{v}={quote(x)[1:-1]}" if row_names else "" for x in labels] for v, labels in states.items()}
    of_potentials = attributes.get("potential", {})
    for v in (*states, *utilities):
        before = parents.get(v, ())
        head = f"{v} | {' '.join(before)}" if before else v
        rest = {k: x for k, x in of_potentials.get(v, {}).items() if k not in ("data", "jtgpu_rows")}
        if v in exact:
            rest["jtgpu_rows"] = "exact"
        lines += [f"potential ({head})", "{"]
        if v in utilities:  # a row has the numbers of the last parent's states
            lines += _data_lines(np.atleast_1d(utilities[v]), [shown_states[p] for p in before[:-1]])
        elif v in tables:
            lines += _data_lines(tables[v], [shown_states[p] for p in before])
        lines += [*attribute_lines(rest, v), "}", ""]
    return "\n".join(lines)


def check_name(v: str) -> None:
    """Raise `FormatError` if a variable cannot have this name."""
    if not _is_token(v, "name", "number") or v[0] in "+-":
        raise FormatError(
            f"the variable {v!r} cannot be written to a Hugin .net file: a name there is made of letters, digits, "
            "'_' and '.'"
        )


def _data_lines(table: Floats, parents: Sequence[Sequence[str]]) -> Iterator[str]:
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
        if parents and parents[0][0]:
            line += f"  %  {'  '.join([labels[s] for labels, s in zip(parents, at, strict=True)])}"
        yield line


def attribute_lines(attributes: Mapping[str, object], owner: str) -> Iterator[str]:
    for key, value in attributes.items():
        if not _is_token(key, "name"):
            raise FormatError(
                f"the attribute {key!r} of {owner!r} cannot be written to a Hugin .net file: not an identifier"
            )
        text = _value(value)
        if text is None:
            raise FormatError(f"the attribute {key!r} of {owner!r} cannot be written to a Hugin .net file: {value!r}")
        yield f"    {key} = {text};"


def _is_token(text: str, *kinds: str) -> bool:
    """Whether a whole text is one token of some kinds."""
    token = TOKEN.match(text)
    return token is not None and token.lastgroup in kinds and token.span(token.lastgroup) == (0, len(text))


def _value(value: object) -> str | None:
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
    tokens = Tokens(SourceText(text), TOKEN)
    last = 0
    while tokens.kind != "end":
        if tokens.at(";", "{", "}", '"'):
            return False
        last = tokens.end
        tokens.advance()
    return 0 < last == len(text) and not text[0].isspace()


def dumps_mixed(net: MixedNetwork) -> str:
    """The text of a Hugin file with a network of states and numbers."""
    # raises FormatError: If the format cannot represent something in the network.
    lines = [dumps(net.discrete)]
    for v in net.numbers:
        check_name(v)
        if any(v.lower() == "normal" or v[0].isdigit() for v in (v, *net.numeric_parents(v))):
            raise FormatError(f"{v!r} or a parent of it cannot be in an expression of a Hugin .net file: rename it")
        lines += [f"continuous node {v}", "{", *attribute_lines(net.attributes.get("node", {}).get(v, {}), v), "}", ""]
    for v in net.numbers:
        density = net.gaussian(v)
        variance = np.square(density.sd)
        before = (*net.discrete_parents(v), *net.numeric_parents(v))  # states first, as HUGIN writes them
        rows = density_rows(density)
        data = "\n            ".join(
            f"normal ( {linear_text(m, c)}, {number(s)} )"
            for (m, c, _), s in zip(rows, variance.ravel().tolist(), strict=True)
        )
        lines += [f"potential ({v} | {' '.join(before)})" if before else f"potential ({v})", "{"]
        lines += [f'    jtgpu_parents = "{" ".join(net.parents(v))}";'] if before != net.parents(v) else []
        lines += [f"    data = ( {data} );"]
        lines += [*attribute_lines(net.attributes.get("potential", {}).get(v, {}), v), "}", ""]
    if net.variables != (*net.discrete.variables, *net.numbers):
        lines[0] = lines[0].replace("net\n{\n", f'net\n{{\n    jtgpu_order = "{" ".join(net.variables)}";\n', 1)
    return "\n".join(lines)


MAX_INSTANCES = 10_000  # of a file: classes may contain each other's instances, each twice as many as the one before


@dataclass
class Instance:
    """A copy of a class."""

    at: int  # offset of its declaration
    of: str  # name of the class
    inputs: list[tuple[str, str, int]]  # input of the class, node that it is, offset of the latter
    outputs: list[tuple[str, str, int]]  # name, node of the class, its offset


@dataclass
class Scope:
    """The nodes of a class, or of a file without classes."""

    draft: Draft
    inputs: tuple[str, ...] = ()
    instances: dict[str, Instance] = field(default_factory=dict)
    clones: dict[str, tuple[int, str, int]] = field(default_factory=dict)  # offset, node that it copies, its offset


def flattened(source: SourceText, scopes: dict[str, Scope]) -> tuple[Draft, dict[str, tuple[int, str, int]]]:
    """The network of a file with classes, and the temporal clones in it."""
    # raises ParseError: If a class contains itself, or an input is bound to what is not there.
    used = {i.of for scope in scopes.values() for i in scope.instances.values()}
    main = [name for name in scopes if name not in used] or [*scopes]
    scope = scopes[main[-1]]
    if not scope.instances:
        return scope.draft, scope.clones
    flat = Draft(source, scope.draft.format, main[-1])
    flat.attributes["net"] = scope.draft.attributes["net"]
    flat._notes, flat._n_notes = scope.draft._notes, scope.draft._n_notes
    clones: dict[str, tuple[int, str, int]] = {}
    _Copier(source, scopes, flat, clones).copy(scope, "", {}, (main[-1],))
    return flat, clones


class _Copier:
    """Copies the nodes of classes into one draft."""

    def __init__(
        self, source: SourceText, scopes: dict[str, Scope], flat: Draft, clones: dict[str, tuple[int, str, int]]
    ):
        self.source, self.scopes, self.flat, self.clones = source, scopes, flat, clones
        self.n = 0

    def copy(self, scope: Scope, prefix: str, bound: dict[str, str], inside: tuple[str, ...]) -> dict[str, str]:
        """Copy the nodes of an instance; returns the full names of what its class names."""
        # bound: input -> full name of the node that it is
        draft = scope.draft
        own = [*draft.states, *draft.utilities, *draft.combined, *draft.refused, *scope.clones]
        names = {v: bound.get(v, prefix + v) for v in own}
        for v, states in draft.states.items():
            if v not in bound:
                self.flat.declare(names[v], states, draft.declared[v], draft.attributes["node"].get(v))
        for name, instance in self.ordered(scope):
            names |= self.instance(scope, name, instance, names, prefix, inside)
        for v, family in draft.families.items():
            if v not in bound:
                self.family(family, names, prefix)
                if v in draft.attributes["potential"]:
                    self.flat.attributes["potential"][names.get(v, prefix + v)] = draft.attributes["potential"][v]
        for kind in ("decisions", "utilities", "refused", "numbers"):
            getattr(self.flat, kind).update({names[v]: x for v, x in getattr(draft, kind).items() if v not in bound})
        for clone, (at, of, of_at) in scope.clones.items():
            self.clones[names[clone]] = at, names.get(of, of), of_at
        return names

    def family(self, family: FamilyDraft, names: dict[str, str], prefix: str) -> None:
        child = names.get(family.child, prefix + family.child)
        numbers = None if family.numbers is None else family.numbers.copy()
        parents = [(names.get(p, p), at) for p, at in family.parents]
        self.flat.families[child] = FamilyDraft(
            child, parents, family.at, numbers, family.data_at, family.locate, family.n_open, family.exact
        )

    def ordered(self, scope: Scope) -> list[tuple[str, Instance]]:
        """The instances of a class, those first whose outputs are inputs of others."""
        rest, ready = dict(scope.instances), list[tuple[str, Instance]]()
        while rest:
            later = {outer for i in rest.values() for outer, _, _ in i.outputs}
            free = [name for name, i in rest.items() if not any(actual in later for _, actual, _ in i.inputs)]
            if not free:
                name = next(iter(rest))
                raise self.source.error(rest[name].at, f"the instance {name!r} depends on itself through others")
            ready += [(name, rest.pop(name)) for name in free]
        return ready

    def instance(
        self, scope: Scope, name: str, instance: Instance, names: dict[str, str], prefix: str, inside: tuple[str, ...]
    ) -> dict[str, str]:
        """Copy one instance; returns the names of its outputs."""
        of = instance.of
        self.n += 1
        if of in inside or self.n > MAX_INSTANCES:
            what = "contains an instance of itself" if of in inside else f"makes more than {MAX_INSTANCES} instances"
            raise self.source.error(instance.at, f"the class {of!r} {what}")
        if of not in self.scopes:
            self.flat.refused[prefix + name] = instance.at, f"class instance (of {of!r}, which is not in the file)"
            self.flat.has_objects = True
            return {outer: prefix + outer for outer, _, _ in instance.outputs}
        other = self.scopes[of]
        bound: dict[str, str] = {}
        for formal, actual, at in instance.inputs:
            if formal not in other.inputs or formal not in other.draft.states:
                what = f"{formal!r} is no input of the class {of!r}{near(formal, other.inputs)}"
                raise self.source.error(at, what)
            full = names.get(actual)
            if full is None:
                raise self.source.error(at, f"the input {formal!r} of {name!r} is bound to {actual!r}, which is not "
                                            f"declared{near(actual, names)}")  # fmt: skip
            have, want = len(self.flat.states.get(full, ())), len(other.draft.states[formal])
            if have and have != want:
                raise self.source.error(at, f"{actual!r} has {have} states, and the input {formal!r} of {of!r} {want}")
            bound[formal] = full
        inner = self.copy(other, f"{prefix}{name}.", bound, (*inside, of))
        made = {}
        for outer, node, at in instance.outputs:
            if node not in inner:
                raise self.source.error(at, f"the class {of!r} has no node {node!r}{near(node, inner)}")
            made[outer] = inner[node]
        return made


def add_slices(draft: Draft, clones: dict[str, tuple[int, str, int]], error: Callable[[int, str], Exception]) -> None:
    """Declare temporal clones as variables of the draft, and how they make a template."""
    if not clones:
        return
    first = min(at for at, _, _ in clones.values())
    slices = SlicesDraft(first)
    originals: dict[str, str] = {}
    draft.numbers.clear()  # a template has no numbers: they are refused
    for clone, (at, of, of_at) in clones.items():
        if of in draft.refused:
            draft.refused[clone] = at, f"temporal clone of {of!r}"
            draft.families.pop(clone, None)
            continue
        if of not in draft.states or of in clones:
            what = "is a clone itself" if of in clones else f"is not declared{near(of, draft.states)}"
            raise error(of_at, f"the temporal clone {clone!r} is of {of!r}, which {what}")
        if of in originals.values():
            raise error(at, f"{of!r} has a second temporal clone, {clone!r}")
        originals[clone] = of
    of_variable = {of: clone for clone, of in originals.items()}
    for v in draft.states:
        slices.pairs[v] = v, 0
        slices.families[v] = [of_variable[v], v] if v in of_variable else [v]
    for clone, of in originals.items():
        draft.declare(clone, draft.states[of], clones[clone][0])
        slices.pairs[clone] = of, 1
        for p, at in draft.families[clone].parents if clone in draft.families else ():
            if p in of_variable or (p in draft.states and p not in originals):
                raise error(at, f"the temporal clone {clone!r} has the parent {p!r}, which is in a later slice")
    for v in [*slices.families]:
        above: list[Any] = draft.families[v].parents if v in draft.families else []
        if v not in of_variable and any(p in originals for p, _ in above):
            label = f"{v} in slice 0"
            draft.declare(label, draft.states[v], draft.declared[v])
            slices.pairs[label] = v, 0
            slices.families[v].insert(0, label)
    draft.slices = slices
