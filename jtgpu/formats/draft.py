"""A Bayesian network as read from a file, before validation and normalisation.

Readers collect names, numbers and positions in a `Draft`. `Draft.finish` checks all of them and raises errors with the
line and column of the cause.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import NetworkError, ParseError, near
from ..model.cpts import ROW_TOLERANCE, RowReport, normalize_rows
from ..model.discrete import MAX_AXES
from ..model.network import BayesianNetwork
from ..util.options import ZeroRows
from .text import Source, shortened

# Numbers that a file implies without containing them (a node without a table is uniform). The limit prevents a short
# file from exhausting the memory.
MAX_IMPLIED = 1 << 24
MAX_NOTES = 20
BATCH = 1 << 14  # numbers normalised in one call


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
    # dict of str to float64 arrays: After `shape`: the numbers as written; axes: the parents in order, the child last
    tables: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    # Keys ``net``, ``node``, ``potential`` as `BayesianNetwork` describes them
    attributes: dict[str, dict[str, Any]] = field(default_factory=lambda: {"net": {}, "node": {}, "potential": {}})
    _notes: list[tuple[int, str]] = field(default_factory=list)
    _n_notes: int = 0

    def note(self, offset: int, text: str) -> None:
        """Record an irregularity that was accepted; the first ones are stored in ``attributes["read"]["notes"]``."""
        self._n_notes += 1
        if self._n_notes <= MAX_NOTES:
            self._notes.append((offset, text))

    def parents(self) -> dict[str, tuple[str, ...]]:
        """The parents of each declared node."""
        families = self.families
        return {v: tuple(p for p, _ in families[v].parents) if v in families else () for v in self.states}

    def shape(self) -> None:
        """Fill `tables`: check names and counts, create implied tables, reshape all tables."""
        # raises ParseError: With the position of the wrong name or data.
        implied = 0
        for family in self.families.values():
            self.check_names(family)
        for v, states in self.states.items():
            family = self.families.get(v) or Family(v, [], self.declared[v])
            shape = (*(len(self.states[p]) for p, _ in family.parents), len(states))
            size = math.prod(shape)
            if family.numbers is None:
                implied += size
                if implied > MAX_IMPLIED:
                    raise self.source.error(
                        family.at,
                        f"{v!r} has no numbers, and a uniform table of {size} entries is too large to be implied",
                    )
                self.note(family.at, f"{v!r} has no numbers: uniform")
                self.tables[v] = np.full(shape, 1.0 / len(states))
                continue
            if family.numbers.size != size:
                axes = " x ".join(f"{len(self.states[n])} ({n!r})" for n in [*(p for p, _ in family.parents), v])
                raise self.source.error(
                    family.data_at, f"found {family.numbers.size} numbers for {v!r}, expected {size} = {axes}"
                )
            self.tables[v] = family.numbers.reshape(shape)

    def check_names(self, family: Family) -> None:
        """Check that a family's child and parents are declared and distinct, and no more than a table can have."""
        child = family.child
        if child not in self.states:
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

    def finish(self, zero_rows: ZeroRows = "error") -> BayesianNetwork:
        """Check everything, normalise the rows and return the network, which takes over the arrays."""
        # zero_rows: {"error", "uniform"}: Whether a CPT row of zeros is an error or stands for the uniform distribution
        # raises ParseError: If the file is wrong, with the position.
        if not self.tables:
            self.shape()
        exact = {v for v, family in self.families.items() if family.exact}
        reports = [RowReport(sum(self.tables[v][..., 0].size for v in self.tables if v in exact))]
        try:
            for names in self._batches():
                for v in names:
                    self._check_numbers(v, self.tables[v], zero_rows)
                tables = {v: self.tables[v] for v in names if v not in exact}
                tables, report = normalize_rows(tables, zero_rows=zero_rows, in_place=True)
                self.tables |= tables
                reports.append(report)
            for family in self.families.values():
                family.numbers = None  # releases the numbers that normalisation has copied
            for table in self.tables.values():
                _freeze(table)
            return BayesianNetwork(
                self.states,
                self.parents(),
                self.tables,
                name=self.name,
                attributes=self._all_attributes(),
                row_report=_all_in_one(reports),
            )
        except NetworkError as error:
            at = self._cycle_at()
            place = (None, None) if at is None else self.source.place(at)
            raise ParseError(shortened(str(error)), self.source.name, *place) from None

    def _batches(self) -> Iterator[list[str]]:
        """The variables in batches, large enough to amortise a call and small enough to need little memory."""
        names: list[str] = []
        size = 0
        for v, table in self.tables.items():
            names.append(v)
            size += table.size
            if size > BATCH:
                yield names
                names, size = [], 0
        yield names

    def _check_numbers(self, v: str, table: NDArray[np.float64], zero_rows: ZeroRows) -> None:
        if not (table.min(initial=0.0) >= 0 and table.max(initial=0.0) < np.inf):  # also catches NaN
            flat = table.ravel()
            at = int((~((flat >= 0) & (flat < np.inf))).argmax())
            raise self._number_error(v, at, f"the table of {v!r} holds {flat[at]:g}, which is not a probability")
        if v in self.families and self.families[v].exact:
            sums = table.sum(axis=-1)
            off = np.abs(sums - 1.0) > ROW_TOLERANCE
            what = "a row of the table of {v!r} sums to {sum:.9g}, not to 1, though it is marked as exact"
        elif zero_rows == "error":
            sums = table.max(axis=-1)
            off = sums == 0
            what = (
                "a row of the table of {v!r} is all zeros ({n} of {n_rows} are), which is not a distribution "
                '(zero_rows="uniform" makes them uniform)'
            )
        else:
            return
        if off.any():
            row = int(off.argmax())
            what = what.format(v=v, n=int(off.sum()), n_rows=off.size, sum=float(sums.flat[row]))
            raise self._number_error(v, row * table.shape[-1], what)

    def _number_error(self, v: str, position: int, message: str) -> ParseError:
        family = self.families[v]
        return self.source.error(family.locate(position) if family.locate else family.at, message)

    def _cycle_at(self) -> int | None:
        """Offset of the first table whose child is on a cycle or a descendant of one; None if there is no cycle."""
        waiting = {v: set(p) for v, p in self.parents().items()}
        children: dict[str, list[str]] = {v: [] for v in waiting}
        for v, before in waiting.items():
            for p in sorted(before):
                children[p].append(v)
        ready = [v for v, before in waiting.items() if not before]
        while ready:
            p = ready.pop()
            for v in children[p]:
                waiting[v].discard(p)
                if not waiting[v]:
                    ready.append(v)
        return min((self.families[v].at for v, before in waiting.items() if before), default=None)

    def _all_attributes(self) -> dict[str, dict[str, Any]]:
        notes = [
            f"{self.source.name}:{line}:{column}: {text}"
            for (line, column), text in ((self.source.place(at), text) for at, text in self._notes)
        ]
        if self._n_notes > MAX_NOTES:
            notes.append(f"{self.source.name}: {self._n_notes - MAX_NOTES} more like these")
        return {**self.attributes, "read": {"format": self.format, "notes": tuple(notes)}}


def _freeze(table: NDArray[np.float64]) -> None:
    """Make a table and the arrays that it is a view of read-only, so that the network does not copy it."""
    array: Any = table
    while isinstance(array, np.ndarray):
        array.flags.writeable = False
        array = array.base


def _all_in_one(reports: Sequence[RowReport]) -> RowReport:
    """Combine the reports of several calls of `normalize_rows`."""
    uneven = [r for r in reports if r.worst_variable is not None]
    worst = max(uneven, key=lambda r: max(r.worst_sum, 1.0 / r.worst_sum), default=RowReport())
    return RowReport(
        n_rows=sum(r.n_rows for r in reports),
        n_off=sum(r.n_off for r in reports),
        worst_variable=worst.worst_variable,
        worst_sum=worst.worst_sum,
        variables=tuple(v for r in reports for v in r.variables),
        zero_rows=tuple(z for r in reports for z in r.zero_rows),
    )


class Parse(Protocol):
    """The signature of every format's ``parse``."""

    def __call__(self, text: str, source: str = "<text>", *, zero_rows: ZeroRows = "error") -> BayesianNetwork:
        """Parse the text of a network."""
        # source: The file's name, for error messages
        # zero_rows: {"error", "uniform"}: Whether a CPT row of zeros is an error or stands for the uniform distribution
        # returns With ``attributes`` and ``row_report``; ``attributes["read"]["notes"]`` lists irregularities.
        # raises ParseError: With line and column.


def parsers_of(read: Callable[[str, str], Draft]) -> tuple[Callable[..., Draft], Parse]:
    """``parse_draft`` and ``parse`` of a format, from the function that reads a text with the name of its source."""

    def parse_draft(text: str, source: str = "<text>") -> Draft:
        return read(text, source)

    def parse(text: str, source: str = "<text>", *, zero_rows: ZeroRows = "error") -> BayesianNetwork:
        return read(text, source).finish(zero_rows)

    return parse_draft, parse
