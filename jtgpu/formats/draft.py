"""A Bayesian network as read from a file, before validation and normalisation.

Readers collect names, numbers and positions in a `Draft`; `jtgpu.formats.finish` checks them and makes the network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import near
from ..model.discrete import MAX_AXES
from .text import Source

MAX_NOTES = 20


@dataclass
class Family:
    """A node's parents and numbers, as read from a file."""

    child: str
    parents: list[tuple[str, int]]  # list of (str, int): Names in the order of the table's axes, and the offset of each
    at: int  # offset of the child's name in the table's header
    # float64 array, shape (n,), or None: Parents in order, first slowest, child fastest; None for a uniform table
    numbers: NDArray[np.float64] | None = None
    data_at: int = 0  # offset for errors about the number of numbers
    locate: Callable[[int], int] | None = None  # offset of the number with a given position in `numbers`
    n_open: int = -1  # opening parentheses in the data (Hugin); -1 for other formats
    exact: bool = False  # leave the rows as written although they sum to 1 only within the tolerance of the network


@dataclass
class Draft:
    """Names, states, families and attributes, in the order of the file."""

    source: Source
    format: str  # name of the format, stored as ``attributes["read"]["format"]``
    name: str = ""
    states: dict[str, tuple[str, ...]] = field(default_factory=dict)
    declared: dict[str, int] = field(default_factory=dict)  # dict of str to int: Offset of each node's declaration
    families: dict[str, Family] = field(default_factory=dict)
    # dict of str to float64 arrays: After `shape_tables`: the numbers as written; axes: the parents, the child last
    tables: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    decisions: dict[str, None] = field(default_factory=dict)  # those of `states` that are decided
    utilities: dict[str, int] = field(default_factory=dict)  # offset of each declaration; their numbers: in `families`
    combined: dict[str, Family] = field(default_factory=dict)  # weighted sums of utilities, with their weights
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)  # nodes that cannot be read: offset, kind
    has_objects: bool = False  # parents may be declared in classes
    skipped: tuple[str, ...] = ()  # what `settle` left out
    # Keys ``net``, ``node``, ``potential`` as `BayesianNetwork` describes them
    attributes: dict[str, dict[str, Any]] = field(default_factory=lambda: {"net": {}, "node": {}, "potential": {}})
    _notes: list[tuple[int, str]] = field(default_factory=list)
    _n_notes: int = 0

    def note(self, offset: int, text: str) -> None:
        """Record an irregularity that was accepted; the first ones are stored in ``attributes["read"]["notes"]``."""
        self._n_notes += 1
        if self._n_notes <= MAX_NOTES:
            self._notes.append((offset, text))

    def declare(self, v: str, states: tuple[str, ...], at: int, kept: dict[str, Any] | None = None) -> None:
        """Add a variable, with its attributes."""
        self.states[v], self.declared[v] = states, at
        if kept:
            self.attributes["node"][v] = kept

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

        def named(table: dict[str, Any]) -> dict[str, Any]:
            return {new.get(v, v): x for v, x in table.items()}

        self.states, self.declared, self.families = named(self.states), named(self.declared), named(self.families)
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

    def check_names(self, family: Family) -> None:
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
        if len(family.parents) >= MAX_AXES:
            # checked before multiplying their cardinalities, whose product could have thousands of digits
            raise self.source.error(
                family.at, f"{child!r} has {len(family.parents)} parents, more than an array has axes"
            )
