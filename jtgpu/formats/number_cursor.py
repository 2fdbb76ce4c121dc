"""A cursor over the numbers of a file, for formats that consist of numbers (UAI, libDAI, Ergo).

All numbers are parsed at once. The position of a number is computed for error messages only, by counting tokens.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import FormatError, ParseError, shown
from ..model.cpts import ROW_TOLERANCE, normalize_rows
from ..model.decisions import DecisionNetwork
from ..model.discrete import MAX_STATES, DiscreteModel
from ..model.markov import MarkovNetwork
from ..model.network import BayesianNetwork
from ..model.noisy import EXPANDED
from ..util.arrays import Floats, Ints
from .text import BLANKS, SourceText, bulk, floats, token_offsets

CHUNK = 1 << 12
ROWS_OFF = 1e-3  # if sums of rows differ from 1 by more, the transposed table is checked

_TOKEN = re.compile(rf"[^{BLANKS}]++")
_COMMENT = re.compile(r"(?:#|(?:\A|(?<=[\r\n]))c)[^\r\n]*+")


def without_comments(text: str) -> str:
    """Replace lines that begin with ``c`` and text after ``#`` by blanks, so that offsets stay the same."""
    if "#" not in text and "c" not in text:
        return text
    return _COMMENT.sub(lambda match: " " * (match.end() - match.start()), text)


class NumberCursor:
    """The numbers of a range of a text, and a position among them."""
    # text: The source's text, or a copy of it with comments replaced by blanks
    # begin, end: The range
    # values: (n,) float64
    # at: Index of the next number
    # raises ParseError: If a token is not a number.

    def __init__(self, source: SourceText, text: str, begin: int = 0, end: int | None = None):
        self.source, self.text, self.begin = source, text, begin
        self.end = len(text) if end is None else end
        values = bulk(text, begin, self.end)
        if values is None:
            raise self._bad()
        self.values: Floats = values
        self.at = 0
        self._chunk: list[float] = []  # values from `_first` on as Python floats, faster to read one by one
        self._first = 0

    def _bad(self) -> ParseError:
        begin = self.begin
        while begin < self.end:  # first find the part of the text, then the token
            stop = min(begin + (1 << 16), self.end)
            blank = next((i for i in range(stop, self.end) if self.text[i] in BLANKS), self.end)
            if floats(self.text, begin, blank) is None:
                for match in _TOKEN.finditer(self.text, begin, blank):
                    if floats(match[0]) is None:
                        return self.source.error(match.start(), f"found {shown(match[0])}, expected a number")
            begin = blank
        raise AssertionError("every token is a number after all")  # pragma: no cover

    def offset(self, position: int) -> int:
        """Offset of a token by its index; the end of the range for the index after the last."""
        return int(self.offsets(np.array([position], np.int64))[0])

    def offsets(self, positions: Ints) -> Ints:
        """Offsets of several tokens, given in ascending order, in one pass over the text."""
        return token_offsets(self.text, positions, self.begin, self.end)

    def locator(self, first: int) -> Callable[[int], int]:
        """A function that locates the numbers of a table whose first number has the index `first`."""
        return lambda position: self.offset(first + position)

    def found(self, position: int) -> str:
        """A token for an error message."""
        if position >= self.values.size:
            return "the end of the file" if self.end >= len(self.text) else "the end of the numbers"
        word = _TOKEN.match(self.text, self.offset(position))
        return shown(word[0] if word else "")

    def error(self, position: int, message: str) -> ParseError:
        """A `ParseError` at a token, to be raised by the caller."""
        return self.source.error(self.offset(position), message)

    def expected(self, position: int, what: str) -> ParseError:
        """A `ParseError` "found ..., expected ..." at a token."""
        return self.error(position, f"found {self.found(position)}, expected {what}")

    def whole(self, what: str, least: int = 0, most: int | None = None) -> int:
        """The next number, which has to be an integer from `least` to `most`."""
        at = self.at
        i = at - self._first
        if not 0 <= i < len(self._chunk):
            if at >= self.values.size:
                raise self.expected(at, what)
            self._chunk, self._first, i = self.values[at : at + CHUNK].tolist(), at, 0
        value = self._chunk[i]
        if not value.is_integer() or value < least or (most is not None and value > most) or value > 2**53:
            raise self.expected(at, what)
        self.at = at + 1
        return int(value)

    def take(self, n: int, what: str) -> Floats:
        """The next `n` numbers, a view of shape (n,)."""
        if n > self.values.size - self.at:
            left = self.values.size - self.at
            raise self.error(self.values.size, f"found {left} numbers for {what} before the end, expected {n}")
        self.at += n
        return self.values[self.at - n : self.at]

    def table(self, shape: tuple[int, ...], what: str) -> Floats:
        """The next number, which is the size of a table, and the table, a view."""
        size = math.prod(shape)
        given = self.whole(f"the size of {what}, {size:,}")
        if given != size:
            axes = " x ".join(str(c) for c in shape) or "no variables"
            raise self.error(self.at - 1, f"found the size {given:,} for {what}, expected {size:,} = {axes}")
        return self.take(size, what).reshape(shape)

    def finish(self) -> None:
        """Raise `ParseError` if numbers are left."""
        if self.at < self.values.size:
            raise self.expected(self.at, "the end of the file")

    def probabilities(self, first: int, n: int, what: str) -> None:
        """Raise `ParseError` at the first of these numbers that is negative or not finite."""
        values = self.values[first : first + n]
        if not (values.min(initial=0.0) >= 0 and values.max(initial=0.0) < np.inf):
            at = int((~((values >= 0) & (values < np.inf))).argmax())
            raise self.error(first + at, f"found {self.found(first + at)} in {what}, expected a number >= 0")


def state_names(numbers: NumberCursor, cardinality: Sequence[int], tokens: Sequence[int]) -> list[tuple[str, ...]]:
    """Names ``"0"``, ``"1"`` ... for the states of every variable."""
    # tokens: sequence of int: Index of the number that gives each of them
    total = 0
    made: dict[int, tuple[str, ...]] = {}
    names = []
    for c, token in zip(cardinality, tokens, strict=True):
        total += c
        if total > MAX_STATES:
            raise numbers.error(token, f"found {c:,} states, expected no more than {MAX_STATES:,} of all variables")
        if c not in made:
            made[c] = tuple(map(str, range(c)))
        names.append(made[c])
    return names


def reject_transposed(numbers: NumberCursor, first: int, table: Floats, what: str) -> None:
    """Reject a table that consists of distributions only if its child is the slowest variable, not the fastest.

    Normalising its rows would silently give another network.
    """
    # first: Index of the table's first number
    # table: As it would be used: the child last
    if table.ndim == 1 or np.abs(table.sum(axis=-1) - 1.0).max(initial=0.0) <= ROWS_OFF:
        return
    transposed = table.reshape(table.shape[-1], -1).sum(axis=0)
    if np.abs(transposed - 1.0).max(initial=0.0) <= ROW_TOLERANCE:
        raise numbers.error(
            first,
            f"the numbers of {what} sum to 1 with the child slowest, not with the child fastest, as this "
            "format requires",
        )


# Functions for writers: rows that a reader would change, and identifiers for formats that allow nothing else.

_OTHER = re.compile(r"[^A-Za-z0-9_]+")


def bayesian(net: DiscreteModel, what: str) -> BayesianNetwork:
    """`net`, if it is a Bayesian network; else a `FormatError` that says what a file of this format holds."""
    if not isinstance(net, BayesianNetwork):
        hint = "; decisions are written to .net, .xdsl and .dsl files" if isinstance(net, DecisionNetwork) else ""
        raise FormatError(f"{what} holds a Bayesian network, not a {type(net).__name__}{hint}")
    return net


class WrittenNetwork(NamedTuple):
    """A Bayesian or decision network, as writers of both take it."""

    net: BayesianNetwork | DecisionNetwork
    decisions: tuple[str, ...]  # variables without CPT
    utilities: Mapping[str, Floats]  # axes: the parents in order

    def cpts(self, apart: Collection[str] = ()) -> dict[str, Floats]:
        """The CPTs of chance variables, but for some."""
        return {v: self.net.cpt(v) for v in self.net.variables if v not in self.decisions and v not in apart}


def parts_of(net: DiscreteModel) -> WrittenNetwork:
    """The parts of a Bayesian or decision network."""
    if isinstance(net, DecisionNetwork):
        return WrittenNetwork(net, net.decisions, {u: net.utility(u) for u in net.utilities})
    assert isinstance(net, BayesianNetwork)
    return WrittenNetwork(net, (), {})


def tables_of(model: DiscreteModel) -> list[tuple[tuple[int, ...], Floats]]:
    """Variables and numbers of every table; those of decisions are empty."""
    if isinstance(model, (BayesianNetwork, MarkovNetwork)):
        return [(scope, table) for scope, table in model.factors]
    parts = parts_of(model)
    cpts, none = parts.cpts(), np.zeros(0)
    above = {v: tuple(model.index(p) for p in parts.net.parents(v)) for v in (*model.variables, *parts.utilities)}
    return [
        *(((*above[v], i), cpts.get(v, none)) for i, v in enumerate(model.variables)),
        *((above[u], table) for u, table in parts.utilities.items()),
    ]


def with_decisions(net: DiscreteModel, what: str) -> WrittenNetwork:
    """The parts of a network for a format that has decisions, and utilities that add up."""
    # raises FormatError: If it is no Bayesian network, or has utilities that are multiplied.
    if not isinstance(net, DecisionNetwork):
        return parts_of(bayesian(net, what))
    if net.combine != "sum":
        raise FormatError(f"{what} adds utilities up; those of this network have combine={net.combine!r}")
    return parts_of(net)


ENDS = "jtgpu_ends"  # the property with the ends of the outer intervals of a variable's states


def strings(attributes: Mapping[str, Any], *keys: str | None) -> list[str]:
    """The attribute ``property`` of what `keys` lead to, as other formats keep it."""
    for key in keys:
        attributes = attributes if key is None else attributes.get(key, {})
    values, ends = attributes.get("property", ()), attributes.get("ends")
    texts = [str(x) for x in ((values,) if isinstance(values, str) else values)]
    if isinstance(ends, tuple) and len(ends) == 2 and all(isinstance(x, float) for x in ends):
        texts.append(f"{ENDS} = {ends[0]!r} {ends[1]!r}")  # where the outer intervals of the states end
    return texts


def restore_ends(kept: dict[str, Any]) -> None:
    """Move the ends of intervals from the properties of a variable to their attribute."""
    for text in kept.get("property", ()):
        key, _, value = str(text).partition(" = ")
        ends = tuple(map(as_float, value.split()))
        if key == ENDS and len(ends) == 2:
            left = tuple(x for x in kept.pop("property") if x != text)
            kept |= {"ends": ends} | ({"property": left} if left else {})
            return


def as_float(text: str) -> float:
    """A number, or NaN."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def inexact(net: BayesianNetwork | WrittenNetwork) -> frozenset[str]:
    """Variables whose rows change when a reader normalises them: they sum to 1 within the tolerance only."""
    net = net if isinstance(net, WrittenNetwork) else parts_of(net)
    cpts = net.cpts(apart=[v for v, noisy in getattr(net.net, "noisy", {}).items() if noisy.size > EXPANDED])
    again, _ = normalize_rows(cpts)
    return frozenset(v for v, cpt in cpts.items() if not np.array_equal(again[v], cpt))


def identifiers(names: Iterable[str], fallback: str) -> list[str]:
    """Distinct identifiers (a letter followed by letters, digits and ``_``) that resemble the given names.

    A name that is an identifier is unchanged; the result depends on the names only.

    Examples
    --------
    >>> identifiers(["a", "20_MG/L", "x-ray", "x ray", "", "é"], "s")
    ['a', 's20_MG_L', 'x_ray', 'x_ray_2', 's', 'e']
    """
    # fallback: Prefix for names that do not begin with a letter
    names = list(names)
    plain = [_plain(name, fallback) for name in names]
    taken = {name for name, made in zip(names, plain, strict=True) if name == made}
    kept: set[str] = set()
    last: dict[str, int] = {}
    out = []
    for name, made in zip(names, plain, strict=True):
        chosen = made
        if name != made or name in kept:
            n = last.get(made, 1)
            while chosen in taken:
                n += 1
                chosen = f"{made}_{n}"
            last[made] = n
            taken.add(chosen)
        kept.add(chosen)
        out.append(chosen)
    return out


def _plain(name: str, fallback: str) -> str:
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    made = _OTHER.sub("_", ascii_only).strip("_") if _OTHER.search(name) else name
    if not made or not made[0].isalpha():
        made = f"{fallback}{made}"
    return made


def whole_numbers(value: object, n: int) -> tuple[int, ...]:
    """An attribute of `n` numbers, rounded to integers; empty for anything else."""
    if not isinstance(value, (tuple, list)) or len(value) != n:
        return ()
    if not all(isinstance(x, (int, float)) and abs(x) < 1e9 for x in value):  # also excludes NaN
        return ()
    return tuple(round(x) for x in value)
