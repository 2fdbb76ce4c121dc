"""A Bayesian network as read from a file, before validation and normalisation.

Readers collect names, numbers and positions in a `Draft`; `jtgpu.formats.finish` checks them and makes the network.
`settle` deals with decisions, utilities and nodes that cannot be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ParseError, near
from ..model.discrete import MAX_AXES
from ..model.noisy import NoisyMax
from ..util.arrays import Floats
from .linear import Linear
from .text import SourceText

MAX_NOTES = 20


@dataclass
class FamilyDraft:
    """A node's parents and numbers, as read from a file."""

    child: str
    parents: list[tuple[str, int]]  # list of (str, int): Names in the order of the table's axes, and the offset of each
    at: int  # offset of the child's name in the table's header
    # float64 array, shape (n,), or None: Parents in order, first slowest, child fastest; None for a uniform table
    numbers: Floats | None = None
    data_at: int = 0  # offset for errors about the number of numbers
    locate: Callable[[int], int] | None = None  # offset of the number with a given position in `numbers`
    n_open: int = -1  # opening parentheses in the data (Hugin); -1 for other formats
    exact: bool = False  # leave the rows as written although they sum to 1 only within the tolerance of the network
    noisy: NoisyMax | None = None  # strengths in place of numbers


@dataclass
class NumberDraft:
    """A continuous node, as read from a file; without densities it cannot be read."""

    at: int  # offset of its declaration
    parents: list[tuple[str, int]] = field(default_factory=list)  # as in `FamilyDraft`
    densities: list[Linear] = field(default_factory=list)  # of each configuration of discrete parents, first slowest
    data_at: int = 0


@dataclass
class SlicesDraft:
    """How the variables of a draft become those of a template; `jtgpu.formats.finish` makes it."""

    at: int  # offset, for errors about the template as a whole
    # variable of the draft -> variable of the template, and how many slices earlier it is
    pairs: dict[str, tuple[str, int]] = field(default_factory=dict)
    # variable of the template -> those of the draft with its tables in slices 0, 1, ... and all later ones
    families: dict[str, list[str]] = field(default_factory=dict)
    static: list[str] = field(default_factory=list)
    axes: dict[str, list[int]] = field(default_factory=dict)  # order of the parents of a variable, by their places


@dataclass
class Draft:
    """Names, states, families and attributes, in the order of the file."""

    source: SourceText
    format: str  # name of the format, stored as ``attributes["read"]["format"]``
    name: str = ""
    states: dict[str, tuple[str, ...]] = field(default_factory=dict)
    declared: dict[str, int] = field(default_factory=dict)  # dict of str to int: Offset of each node's declaration
    families: dict[str, FamilyDraft] = field(default_factory=dict)
    # dict of str to float64 arrays: After `shape_tables`: the numbers as written; axes: the parents, the child last
    tables: dict[str, Floats] = field(default_factory=dict)
    decisions: dict[str, None] = field(default_factory=dict)  # those of `states` that are decided
    utilities: dict[str, int] = field(default_factory=dict)  # offset of each declaration; their numbers: in `families`
    combined: dict[str, FamilyDraft] = field(default_factory=dict)  # weighted sums of utilities, with their weights
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)  # nodes that cannot be read: offset, kind
    numbers: dict[str, NumberDraft] = field(default_factory=dict)  # those of `refused` that are densities
    order: tuple[str, ...] = ()  # order of all variables with numbers, if the file has it
    is_mixed: bool = False  # the numbers are part of the network
    slices: SlicesDraft | None = None  # of a dynamic network
    has_objects: bool = False  # parents may be declared in classes
    skipped: tuple[str, ...] = ()  # what `settle` left out
    findings: list[dict[str, tuple[str, int]]] = field(default_factory=list)  # cases: states, and where they are
    # Keys ``net``, ``node``, ``potential`` as `BayesianNetwork` describes them
    attributes: dict[str, dict[str, Any]] = field(default_factory=lambda: {"net": {}, "node": {}, "potential": {}})
    _notes: list[tuple[int, str]] = field(default_factory=list)
    _n_notes: int = 0

    def note(self, offset: int, text: str) -> None:
        """Record an irregularity that was accepted; the first ones are stored in ``attributes["read"]["notes"]``."""
        self._n_notes += 1
        if self._n_notes <= MAX_NOTES:
            self._notes.append((offset, text))

    def declare(self, v: str, states: tuple[str, ...], at: int, kept: Mapping[str, object] | None = None) -> None:
        """Add a variable, with its attributes."""
        self.states[v], self.declared[v] = states, at
        if kept:
            self.attributes["node"][v] = kept

    def require_tables(self, what: str) -> None:
        """Raise for the first variable or utility without a table, decisions apart; `what` is said of its name."""
        for v, at in (self.declared | self.utilities).items():
            if v not in self.families and v not in self.decisions:
                raise self.source.error(at, what.format(v))

    def has(self, name: str) -> bool:
        """Whether a node of this name is declared already."""
        return any(name in known for known in (self.states, self.utilities, self.combined, self.refused))

    def reorder(self, order: list[str]) -> None:
        """Reorder the variables if `order` is a permutation of them."""
        if len(order) == len(self.states) and set(order) == set(self.states):
            self.states = {v: self.states[v] for v in order}

    def rename(self, new: dict[str, str]) -> None:
        """Rename nodes, unless two would have the same name; `new` maps old names to new ones."""
        final = [new.get(v, v) for v in (*self.states, *self.utilities)]
        if len(set(final)) < len(final) or all(new[v] == v for v in new):
            return

        def named(table: Mapping[str, object]) -> dict[str, Any]:
            return {new.get(v, v): x for v, x in table.items()}

        self.states, self.declared, self.families = named(self.states), named(self.declared), named(self.families)
        self.order = tuple(new.get(v, v) for v in self.order)
        for number in self.numbers.values():
            number.parents = [(new.get(p, p), at) for p, at in number.parents]
        self.decisions, self.utilities = named(self.decisions), named(self.utilities)
        for family in (*self.families.values(), *self.combined.values()):
            family.child = new.get(family.child, family.child)
            family.parents = [(new.get(p, p), at) for p, at in family.parents]
        self.attributes |= {kind: named(self.attributes[kind]) for kind in ("node", "potential")}
        nodes = self.attributes["node"]
        for v in [v for v, kept in nodes.items() if kept.get("label") == v]:
            del nodes[v]["label"]
        self.attributes["node"] = {v: kept for v, kept in nodes.items() if kept}

    def parents(self) -> dict[str, tuple[str, ...]]:
        """The parents of each declared node."""
        families = self.families
        declared = (*self.states, *self.utilities)
        return {v: tuple(p for p, _ in families[v].parents) if v in families else () for v in declared}

    def check_names(self, family: FamilyDraft, *, has_table: bool = True) -> None:
        """Check that a family's child and parents are declared and distinct, and no more than a table can have."""
        child = family.child
        if child not in self.states and child not in self.utilities:
            raise self.source.error(
                family.at, f"found a table for {child!r}, which is not declared{near(child, self.states)}"
            )
        seen = {child}
        for p, at in family.parents:
            if p not in self.states:
                raise self.source.error(
                    at, f"{child!r} has the parent {p!r}, which is not declared{near(p, self.states)}"
                )
            if p in seen:
                what = "is its own parent" if p == child else f"has the parent {p!r} twice"
                raise self.source.error(at, f"{child!r} {what}")
            seen.add(p)
        if has_table and family.noisy is None and len(family.parents) >= MAX_AXES:
            # checked before multiplying their cardinalities, whose product could have thousands of digits
            raise self.source.error(
                family.at, f"{child!r} has {len(family.parents)} parents, more than an array has axes"
            )


ONLY = "only discrete chance nodes, decisions and utilities are supported"


def unreadable(draft: Draft) -> dict[str, tuple[int, str]]:
    """Offset and kind of every node that cannot be read; what depends on one of them cannot be read either."""
    lost = dict(draft.refused)
    if not lost:
        return lost
    families = draft.families | draft.combined
    undeclared = draft.has_objects  # whose outputs are declared in their classes
    children: dict[str, list[str]] = {}
    for child, family in families.items():
        for p, _ in family.parents:
            children.setdefault(p, []).append(child)
    names = {**draft.states, **draft.utilities, **draft.combined, **lost}
    waiting = list(lost)
    for child, family in families.items() if undeclared else ():
        missing = next((p for p, _ in family.parents if p not in names), None)
        if missing is not None and child not in lost:
            lost[child] = family.at, f"child of {missing!r}, which an object has"
            waiting.append(child)
    while waiting:
        p = waiting.pop()
        for child in children.get(p, ()):
            if child not in lost:
                lost[child] = families[child].at, f"child of {p!r}"
                waiting.append(child)
    return lost


def refusal(draft: Draft, lost: dict[str, tuple[int, str]]) -> ParseError:
    """The error about the first node that cannot be read, with a list of all."""
    name, (at, what) = min(draft.refused.items(), key=lambda item: item[1][0])
    message = f"found the {what} {name!r}; {ONLY}"
    if len(lost) > 1:
        message += f" ({len(lost)} nodes cannot be read; jtgpu info lists them)"
    message += "; read what can be read by decisions='chance' or --chance-only"
    error = draft.source.error(at, message)
    error.nodes = described(draft, lost)
    return error


def described(draft: Draft, lost: dict[str, tuple[int, str]]) -> tuple[str, ...]:
    """A line for each node that cannot be read: its place, its name, and why."""
    lines = []
    for name, (at, what) in sorted(lost.items(), key=lambda item: item[1][0]):
        line, column = draft.source.place(at)
        lines.append(f"{draft.source.name}:{line}:{column}: {name!r}, {what}")
    return tuple(lines)


def settle(draft: Draft, *, chance_only: bool) -> None:
    """Reject or drop nodes that cannot be read, check decisions and utilities, and add up weighted utilities."""
    # chance_only: leave out what cannot be read and all utilities; decisions become uniform chance nodes
    # raises ParseError: With the position of the wrong node.
    lost = unreadable(draft)
    if lost and not chance_only:
        raise refusal(draft, lost)
    draft.skipped = described(draft, lost)
    for family in (draft.families | draft.combined).values():
        if family.child in lost or family.child in draft.utilities or family.child in draft.combined:
            continue
        for p, at in family.parents:
            if p in draft.utilities or p in draft.combined:
                what = "only utilities can depend on a utility"
                raise draft.source.error(at, f"{family.child!r} has the parent {p!r}, which is a utility; {what}")
    scale = {} if chance_only else _weights(draft)
    gone = [*lost, *draft.combined, *(draft.utilities if chance_only else ())]
    for name in gone:
        tables: tuple[dict[str, Any], ...] = (
            draft.states, draft.declared, draft.families, draft.decisions, draft.utilities, draft.combined
        )  # fmt: skip
        for table in tables:
            table.pop(name, None)
        for kind in ("node", "potential"):
            draft.attributes[kind].pop(name, None)
    for name, weight in scale.items():
        numbers = draft.families[name].numbers if name in draft.families else None
        if weight != 1 and numbers is not None:
            draft.families[name].numbers = weight * numbers
            draft.note(draft.utilities[name], f"the utilities of {name!r} are multiplied by their weight {weight:g}")
    for name in draft.decisions:
        _check_options(draft, name)


def _check_options(draft: Draft, name: str) -> None:
    """A decision has no probabilities; a table of equal numbers, as Hugin writes it, says nothing."""
    family = draft.families.get(name)
    if family is None or family.numbers is None:
        return
    if family.numbers.size and not (family.numbers == family.numbers[0]).all():
        at = family.data_at or family.at
        raise draft.source.error(at, f"the decision {name!r} has probabilities; what is decided has none")
    family.numbers = None


def _weights(draft: Draft) -> dict[str, float]:
    """Weight of each utility in the sum of all: the products of the weights on its ways through weighted sums."""
    above: dict[str, list[tuple[str, float]]] = {}  # utility -> sums that it is in, and its weight there
    for name, family in draft.combined.items():
        for p, at in family.parents:
            if p not in draft.utilities and p not in draft.combined:
                known = [*draft.utilities, *draft.combined]
                what = "is not a utility" if p in draft.states else f"is not declared{near(p, known)}"
                raise draft.source.error(at, f"the weighted sum {name!r} has the parent {p!r}, which {what}")
        numbers = np.ones(len(family.parents)) if family.numbers is None else family.numbers
        if numbers.size != len(family.parents):
            raise draft.source.error(
                family.data_at, f"found {numbers.size} weights of {name!r}, expected {len(family.parents)}"
            )
        for (p, _), weight in zip(family.parents, numbers.tolist(), strict=True):
            if not math.isfinite(weight):
                raise draft.source.error(family.data_at, f"found the weight {weight:g} in {name!r}, expected a number")
            above.setdefault(p, []).append((name, weight))
    total: dict[str, float] = {}
    for start in (*draft.combined, *draft.utilities):
        stack = [start]
        while stack:
            name = stack[-1]
            missing = [up for up, _ in above.get(name, ()) if up not in total]
            if name in total or not missing:
                terms = [weight * total[up] for up, weight in above.get(name, ())]
                total[stack.pop()] = sum(terms) if terms else 1.0
            elif len(stack) > len(draft.combined) + 1:
                at = draft.combined[missing[0]].at
                raise draft.source.error(at, f"the weighted sum {missing[0]!r} is part of itself")
            else:
                stack.append(missing[0])
    return {name: total[name] for name in draft.utilities}


def utility_table(draft: Draft, name: str) -> Floats:
    """The numbers of a utility; axes: its parents in order."""
    # raises ParseError: If there are too few or too many, or one is not finite.
    family: FamilyDraft | None = draft.families.get(name)
    if family is None or family.numbers is None:
        at = draft.utilities[name] if family is None else family.at
        raise draft.source.error(at, f"the utility {name!r} has no numbers")
    shape = tuple(len(draft.states[p]) for p, _ in family.parents)
    if family.numbers.size != math.prod(shape):
        axes = " x ".join(f"{len(draft.states[p])} ({p!r})" for p, _ in family.parents) or "1"
        what = f"found {family.numbers.size} numbers for the utility {name!r}, expected {math.prod(shape)} = {axes}"
        raise draft.source.error(family.data_at, what)
    bad = np.flatnonzero(~np.isfinite(family.numbers))
    if bad.size:
        at = family.locate(int(bad[0])) if family.locate else family.at
        raise draft.source.error(at, f"the utility {name!r} holds {family.numbers[bad[0]]:g}, which is not a number")
    return family.numbers.reshape(shape)
