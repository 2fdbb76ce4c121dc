"""`Schema`: which states columns have that nobody declared, and which columns can have none.

Structures, posteriors, fits and ``jtgpu explore`` decide here; one error lists all columns that cannot be used.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from ..errors import DataError, shown
from ..model.states import listed
from ..util.calls import outside
from ..util.cells import finite, is_likelihood, plain_numeral
from ..util.text_table import counted, interval_labels
from .kinds import INFINITE, MOMENTS, NAMELESS, in_order, names_of
from .scale import Scale, number_of, quantile_cuts, whole_dates

MAX_STATES = 255  # of a variable of a graph, whose states are uint8; and different numbers that are states
MANY_NUMBERS = 20  # different whole numbers above which there is a warning; dates above which there is an error
MAX_FRACTIONS = 20  # different numbers that are not all whole: more are measurements
FOR_EACH_WORD = 20  # different numerals for each word, from which the words are no names of states
MIN_IDENTIFIER = 20  # known cells above which a column of different ones is taken for an identifier
MOST_SHOWN = 3  # words in a message
Kind = Literal["constant", "identifier", "dates", "numbers", "text"]


class Finding(NamedTuple):
    """A column that cannot be used."""

    column: str
    kind: Kind
    why: str
    advice: str

    def __str__(self) -> str:
        return f"column {self.column!r} has {self.why}{self.advice}"


class _Refusal(Exception):
    """Kind, reason and advice of a finding."""


@dataclass
class Schema:
    """The states of columns, by the distinct cells of all rows."""

    of_graph: bool = False  # at least two states, at most `most`, and no identifiers
    bins: int | None = None  # intervals of a column of more different numbers or dates
    most: int = MAX_STATES
    states: dict[str, tuple[str, ...]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    ends: dict[str, tuple[float, float]] = field(default_factory=dict)  # least and greatest number of those cut
    _many: dict[str, int] = field(default_factory=dict)  # whole numbers, each of which is a state

    def add(
        self, name: str, cells: Sequence[object], counts: Sequence[int], n_rows: int = 0, *, declared: bool = False,
        chosen: bool = False, words: Sequence[str] = (),
    ) -> list[str]:  # fmt: skip
        """Decide on a column; returns the names of its cells, none if these are cut, or it cannot be used."""
        # cells, counts: those that are known, and how often each occurs; declared ones are in order
        # chosen: the user said that the values are states: there is no warning
        # words: that were read as missing, for the message
        names: list[str] = []
        try:
            if not cells:
                cause = f" ({', '.join(map(repr, words))}: see na_values)" if words else ""
                declare = (
                    f"; give its states as states={{{name!r}: [...]}}, or drop the column and declare the variable "
                    f"hidden: hidden={{{name!r}: 2}}"
                )
                advice = "; leave it out" if self.of_graph else declare
                raise _Refusal("constant", f"only missing cells{cause}", advice)
            if declared or (states := self._cut(name, cells, counts)) is None:
                if not declared:
                    self._require_few(name, cells, counts, n_rows, chosen)
                names = self._names(name, cells)
                states = tuple(dict.fromkeys(names)) if declared else in_order(names)
                if self.of_graph:
                    self._require_states(name, len(states), sum(counts), declared)
            self.states[name] = states
        except _Refusal as refusal:
            self.findings.append(Finding(name, *refusal.args))
        return names

    def settle(self, n_left: int = 0, constant: str = "error") -> None:
        """Raise one error for all columns that cannot be used, or warn that those of one value are left out."""
        # n_left: number of the other columns
        constants = [f for f in self.findings if f.kind == "constant"]
        faults = [str(f) for f in self.findings if f not in constants]
        which = listed([f.column for f in constants])
        if constant == "error":
            if self.of_graph and len(constants) > 1:
                faults.append(
                    f"{len(constants):,} columns have only one value or none: {which}; "
                    "read=ReadOptions(constant='drop') leaves them out"
                )
            else:
                faults += map(str, constants)
        if len(faults) == 1:
            raise DataError(faults[0])
        if faults:
            raise DataError("\n  ".join([f"{counted(len(self.findings), 'column')} cannot be used:", *faults]))
        if constants and n_left < 2:
            raise DataError(f"{counted(n_left, 'column')} left, without those of one value or none: {which}")
        if constants:
            warnings.warn(f"left out, as they have only one value or none: {which}", stacklevel=outside())

    def warn(self) -> None:
        """Warn of columns of many whole numbers of which each becomes a state without a word of the user."""
        if self._many:
            v = next(iter(self._many))
            some = ", ".join(f"{v!r} ({n})" for v, n in [*self._many.items()][:5]) + ", ..." * (len(self._many) > 5)
            warnings.warn(
                f"each of many whole numbers is a state: {some}; make intervals (bins=, jtgpu.learn.discretise), take "
                f"them as numbers (continuous=[{v!r}] with score='bic-cg', continuous={{{v!r}: 'gaussian'}} in fit), "
                "or declare the states (states=) if each value is meant to be one",
                stacklevel=outside(),
            )

    def _cut(self, name: str, cells: Sequence[object], counts: Sequence[int]) -> tuple[str, ...] | None:
        """The intervals of more different numbers or dates than there are to be intervals."""
        if self.bins is None:
            return None
        are_dates = all(isinstance(v, MOMENTS) and getattr(v, "tzinfo", None) is None for v in cells)
        numbers = [number_of(v, "dates", {}) if are_dates else finite(v) for v in cells]
        known = np.array([x for x in numbers if x is not None], np.float64)
        if len(known) < len(numbers) or len(np.unique(known)) <= self.bins:
            return None
        cuts = quantile_cuts(known, self.bins, np.array(counts))
        if are_dates:
            return Scale("dates", whole_dates(cuts, known)).labels
        self.ends[name] = float(known.min()), float(known.max())
        return interval_labels(cuts.tolist())

    def _require_few(
        self, name: str, cells: Sequence[Any], counts: Sequence[int], n_rows: int, chosen: bool
    ) -> None:  # fmt: skip
        """Raise for cells that are measurements, or words among them."""
        if self.of_graph and (likelihood := next(filter(is_likelihood, cells), None)) is not None:
            raise _Refusal("text", f"likelihoods, such as {likelihood!r}", ", which no graph is learned from")
        numbers = [*map(finite, cells)]
        odd = [v for v, x in zip(cells, numbers, strict=True) if x is None]
        are_texts = all(isinstance(v, str) for v in odd)
        different = {x for x in numbers if x is not None}
        declare = f"declare the states: states={{{name!r}: [...]}}"
        if odd and different and are_texts and all(INFINITE.fullmatch(v.strip()) for v in odd):
            raise _Refusal("numbers", f"numbers and {odd[0]!r}, which is not finite", "")
        with_commas = [v for v in odd if are_texts and has_decimal_comma(v)]
        words = [v for v in odd if v not in {*with_commas}] if with_commas else odd
        if len(with_commas) > MAX_FRACTIONS and not words:
            raise _Refusal(
                "numbers", f"numbers with decimal commas, such as {odd[0]!r}, which are texts here",
                f": write decimal points, or {declare}",
            )  # fmt: skip
        n_numbers = len(different) + len(with_commas)
        if words and are_texts and n_numbers > max(MANY_NUMBERS, FOR_EACH_WORD * len(words)):
            some = ", ".join(f"{shown(v)} ({counts[cells.index(v)]:,})" for v in words[:MOST_SHOWN])
            some += ", ..." * (len(words) > MOST_SHOWN)
            raise _Refusal(
                "text", f"{n_numbers:,} different numbers except for {some}",
                f": na_values= names words of cells that were not measured; or {declare}",
            )  # fmt: skip
        few = min(MAX_FRACTIONS, n_rows // 2) if self.of_graph else MAX_FRACTIONS
        fractions = [v for v, x in zip(cells, numbers, strict=True) if x is not None and not x.is_integer()]
        if fractions and not odd and len(different) > few:
            why = f"{len(different):,} different numbers with fractions, such as {fractions[0]!r}"
            raise _Refusal("numbers", why, self._intervals(name))
        if len(cells) > MANY_NUMBERS and any(isinstance(v, MOMENTS) for v in cells):
            why = f"{len(cells):,} different dates"
            raise _Refusal("dates", why, ": discretise it (jtgpu.learn.discretise), or leave it out")
        if not odd:
            if len(different) > MAX_STATES and not (self.of_graph and len(cells) == sum(counts)):
                raise _Refusal("numbers", f"{len(different):,} different numbers, too many for states",
                               self._intervals(name))  # fmt: skip
            if len(different) > MANY_NUMBERS and self.bins is None and not chosen:
                self._many[name] = len(different)

    def _intervals(self, name: str) -> str:
        """Advice for a column of many numbers."""
        if self.of_graph:
            return (
                f": discretise it (jtgpu.learn.discretise), take them as numbers, continuous=[{name!r}] with "
                "score='bic-cg', or leave it out"
            )
        return (
            ": make intervals by bins=5 (--bins on the command line) or jtgpu.learn.discretise, take them as numbers "
            f"(continuous='gaussian', --continuous), or declare the states: states={{{name!r}: [...]}}"
        )

    def _names(self, name: str, cells: Sequence[object]) -> list[str]:
        """The names of cells; those without a text of their own cannot be used."""
        try:
            return names_of(name, cells)
        except DataError as error:
            kind: Kind = "dates" if any(isinstance(v, (*MOMENTS, *NAMELESS)) for v in cells) else "text"
            why, _, advice = str(error).removeprefix(f"column {name!r} has ").partition("; ")
            raise _Refusal(kind, why, f"; {advice}" if advice else "") from None

    def _require_states(self, name: str, n: int, n_known: int, declared: bool) -> None:
        """Raise for a variable of a graph with another number of states than it may have."""
        if not declared and n == n_known > MIN_IDENTIFIER:
            raise _Refusal(
                "identifier", f"a different value in each of its {n:,} rows",
                ": it looks like an identifier; leave it out",
            )  # fmt: skip
        if n > self.most:
            raise _Refusal("text", f"{n:,} values, more than {self.most}", "; discretise it or leave it out")
        if n < 2:
            drop = "read=ReadOptions(constant='drop') leaves it out" if self.of_graph else "leave it out"
            declare = f"; {drop}, or declare its states as states={{{name!r}: [...]}}"
            raise _Refusal("constant", "only one value", declare)


def has_decimal_comma(text: str) -> bool:
    """Whether a text is a number with a decimal comma."""
    return "," in text and plain_numeral(text.replace(",", ".", 1)) is not None


# States that are nearly equal.

def near_equal(states: Iterable[object]) -> list[str]:
    """Pairs of states that differ in blanks, case or the coding of letters only."""
    first: dict[str, str] = {}
    pairs = []
    for state in states:
        if isinstance(state, str):
            plain = " ".join(unicodedata.normalize("NFKC", state).casefold().split())
            other = first.setdefault(plain, state)
            if other != state:
                pairs.append(f"{other!r} and {state!r}")
    return pairs


def warn_of_near_equal(states: Mapping[str, Iterable[object]]) -> None:
    """A warning about states from the data that are nearly equal."""
    pairs = [f"{v}: {pair}" for v, own in states.items() for pair in near_equal(own)]
    if pairs:
        warnings.warn(
            f"states that are nearly equal: {', '.join(pairs[:5])}{', ...' * (len(pairs) > 5)}; make them one in the "
            "table, or declare the states (states=)",
            stacklevel=outside(),
        )
