"""Evidence files: UAI (every layout of the competitions), ``name=state`` lines, JSON.

What a file is, its content says:

* nothing but white space: nothing is observed;
* numbers: ``k`` and ``k`` pairs of a variable's and a state's number (UAI 2014; Ergo, behind ``/* Evidence */``), or
  the number of cases and then each in that form (UAI 2008, 2010). Both can fit the same numbers: the number of
  cases it is if it stands on a line of its own before as many lines, each of them a case. Lines that begin with
  the word ``c`` are comments;
* ``{`` or ``[``: JSON, an object for a case or a list of them. A value is a state's name or number, a list of names
  of which one holds, weights (virtual evidence) as a list of one number a state or as an object from state to weight,
  or null for what is not observed;
* else lines ``name=state``, as the command line takes them. Lines that begin with ``#`` are comments, a line ``---``
  stands between two cases.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from json import JSONDecodeError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import EvidenceError, ParseError, UnknownState
from ..model.network import DiscreteModel
from .files import read_bytes
from .numeric import Numbers
from .text import BLANKS, Source, decode, shown

__all__ = ["Case", "parse_evidence", "read_evidence", "read_evidence_cases", "read_query"]

MAX_CASES = 1 << 20
MAX_LINE = 1 << 14  # every '=' of a line is a place where a name may end
_NUMBERS = re.compile(rf"[0-9{BLANKS}.+\-]*+")
_COMMENT = re.compile(r"/\*[^*]*+(?:\*(?!/)[^*]*+)*+(?:\*/|\Z)")  # an open one goes to the end
_C_LINE = re.compile(rf"(?:\A|(?<=[\r\n]))c(?=[{BLANKS}]|\Z)[^\r\n]*+")
_LINE = re.compile(r"[^\r\n]+")
_BLANK = re.compile(r"[ \t\r\n]*+")


class Case(dict[str, "int | frozenset[int]"]):
    """What is observed in one case: a variable's name to the number of its state, or to those of which one holds.

    Every question of a `jtgpu.JunctionTree` takes it as ``evidence``, weights included.

    Attributes
    ----------
    likelihood : dict of str to (card,) float64
        Virtual evidence: weights in the order of the variable's states.
    """

    def __init__(self, findings: Mapping[str, int | frozenset[int]] | None = None):
        super().__init__(findings or {})
        self.likelihood: dict[str, NDArray[np.float64]] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Case):
            return not self.likelihood and super().__eq__(other)
        mine, theirs = self.likelihood, other.likelihood
        return (
            super().__eq__(other) and mine.keys() == theirs.keys()
            and all(np.array_equal(mine[v], theirs[v]) for v in mine)
        )  # fmt: skip

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        weights = f", likelihood={self.likelihood!r}" if self.likelihood else ""
        return f"Case({super().__repr__()}{weights})"


def read_evidence(path: str | os.PathLike[str], net: DiscreteModel) -> Case:
    """Read the one case of an evidence file; see `jtgpu.formats.evidence_files` for what such files are.

    Parameters
    ----------
    path : path-like
        A plain or gzip-packed file.
    net : DiscreteModel
        Whose variables the file speaks of, by name or by number.

    Returns
    -------
    Case
        A mapping, empty where nothing is observed: ``tree.posteriors(jtgpu.read_evidence(path, net))``.

    Raises
    ------
    ParseError
        With ``file:line:column``: also for variables and states that the network does not have.
    EvidenceError
        For a file of several cases, which `read_evidence_cases` reads.
    FileError
        For what the operating system refuses; also an `OSError`.
    """
    cases = read_evidence_cases(path, net)
    if len(cases) > 1:
        raise EvidenceError(
            f"{os.fspath(path)}: found {len(cases)} cases, expected one; "
            "jtgpu.formats.read_evidence_cases reads them all"
        )
    return cases[0] if cases else Case()


def read_evidence_cases(path: str | os.PathLike[str], net: DiscreteModel) -> list[Case]:
    """Read all cases of an evidence file, one or several; else as `read_evidence`."""
    name = os.fspath(path)
    return parse_evidence(decode(read_bytes(name)), net, name)


def parse_evidence(text: str, net: DiscreteModel, source: str = "<text>") -> list[Case]:
    """The cases of an evidence file's text; see `read_evidence`."""
    place = Source(text, source)
    start = text.lstrip(BLANKS)[:1]
    if start in ("{", "["):
        return list(_Json(place, net).cases())
    bare = _COMMENT.sub(lambda found: " " * len(found[0]), text) if "/*" in text else text
    ergo = bare != text
    bare = _C_LINE.sub(lambda found: " " * len(found[0]), bare)
    # a variable may be called c: a file of nothing but comments is none of numbers
    if _NUMBERS.fullmatch(bare) and (bare.strip(BLANKS) or ergo or not text.strip(BLANKS)):
        return _Uai(place, bare, net).cases(ergo=ergo)
    return list(_lines(place, net))


def read_query(path: str | os.PathLike[str], net: DiscreteModel) -> list[int]:
    """Read the variables that a query file of the competitions asks for: their number, and then theirs; or, in a file
    that is not of numbers, a name a line.

    Raises
    ------
    ParseError
        With ``file:line:column``.
    FileError
        For what the operating system refuses; also an `OSError`.
    """
    name = os.fspath(path)
    source = Source(decode(read_bytes(name)), name)
    found: list[tuple[int, int]] = []  # variable, offset
    if _NUMBERS.fullmatch(source.text):
        numbers = Numbers(source, source.text)
        n = numbers.whole("the number of variables asked for", 0, numbers.values.size)
        places = numbers.offsets(np.arange(1, 1 + n)).tolist()
        found += [
            (numbers.whole(f"the number of a variable, 0 to {len(net) - 1}", 0, len(net) - 1), at) for at in places
        ]
        numbers.finish()
    else:
        for line in _LINE.finditer(source.text):
            if line[0].strip(BLANKS):
                at = line.start() + len(line[0]) - len(line[0].lstrip(BLANKS))
                try:
                    found.append((net.index(line[0].strip(BLANKS)), at))
                except EvidenceError as error:
                    raise source.error(at, str(error)) from None
    seen: set[int] = set()
    for v, at in found:
        if v in seen:
            raise source.error(at, f"found {net.variables[v]!r} a second time")
        seen.add(v)
    return [v for v, _ in found]


def _lines(source: Source, net: DiscreteModel) -> Iterator[Case]:
    """Cases of ``name=state`` lines."""
    from ..model.findings import parse_finding

    case = Case()
    for found in _LINE.finditer(source.text):
        line, at = found[0].strip(BLANKS), found.start()
        at += len(found[0]) - len(found[0].lstrip(BLANKS))
        if not line or line.startswith("#"):
            continue
        if line == "---":
            yield case
            case = Case()
            continue
        if len(line) > MAX_LINE:
            raise source.error(at, f"found a line of {len(line):,} characters, expected name=state")
        if "=" not in line:
            raise source.error(at, f"found {shown(line)}, expected name=state, UAI's numbers, or JSON")
        try:
            name, value = parse_finding(net, line)
        except EvidenceError as error:
            raise source.error(at, str(error)) from None
        if name in case:
            raise source.error(at, f"found {name!r} a second time; several states are written {name}=a,b")
        case[name] = value
    yield case


# Numbers ------------------------------------------------------------------------------------------------------


class _Uai:
    """Cases by numbers of variables and states."""

    def __init__(self, source: Source, text: str, net: DiscreteModel):
        self.net, self.text = net, text
        self.numbers = Numbers(source, text)

    def cases(self, *, ergo: bool) -> list[Case]:
        numbers = self.numbers
        if numbers.values.size == 0:
            return [Case()]
        if not ergo and self.counted():
            return [self.case() for _ in range(numbers.whole("the number of cases", 0, MAX_CASES))] or [Case()]
        case = self.case()
        numbers.finish()
        return [case]

    def counted(self) -> bool:
        """Does the number of cases stand first?"""
        values = self.numbers.values
        first, *rest = [line.split() for line in _LINE.findall(self.text) if line.strip(BLANKS)]
        by_lines = len(rest) == values[0] and all(len(words) == 1 + 2 * float(words[0]) for words in rest)
        if len(first) == 1 and by_lines:
            return True
        if values.size == 1 + 2 * values[0]:
            return False
        at, left = 1, float(values[0])
        while left > 0 and at < values.size and values[at] >= 0 and values[at].is_integer():
            at, left = at + 1 + 2 * int(values[at]), left - 1
        # where neither fits an error is to come, and the layout says of what kind
        return (left == 0 and at == values.size) or (len(first) == 1 and len(rest) > 0)

    def case(self) -> Case:
        numbers, net = self.numbers, self.net
        case = Case()
        for _ in range(numbers.whole("the number of observed variables", 0, numbers.values.size)):
            at = numbers.at
            v = numbers.whole(f"the number of a variable, 0 to {len(net) - 1}", 0, len(net) - 1)
            name = net.variables[v]
            last = int(net.cardinality[v]) - 1
            state = numbers.whole(f"the number of a state of {name!r}, 0 to {last}", 0, last)
            if case.setdefault(name, state) != state:
                raise numbers.error(at, f"found {name!r} a second time, in state {state} and not {case[name]}")
        return case


# JSON ---------------------------------------------------------------------------------------------------------


def _no_constant(word: str) -> float:
    raise ValueError(word)


class _Json:
    """Cases of JSON text; the outer layers are taken apart here, for the places of names and values."""

    def __init__(self, source: Source, net: DiscreteModel):
        self.source, self.text, self.net = source, source.text, net
        self.decoder = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=self.pairs)
        self.at = 0

    def pairs(self, given: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(given)
        if len(found) < len(given):
            raise ValueError("a name a second time")
        return found

    def error(self, at: int, message: str) -> ParseError:
        return self.source.error(at, message)

    def next(self) -> str:
        """The next character that is no blank; the cursor is on it."""
        found = _BLANK.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.text[self.at : self.at + 1]

    def expect(self, mark: str, what: str = "") -> None:
        found = self.next()
        if found != mark:
            raise self.error(
                self.at, f"found {shown(found) if found else 'the end of the file'}, expected {what or repr(mark)}"
            )
        self.at += 1

    def cases(self) -> Iterator[Case]:
        if self.next() == "{":
            yield self.case()
        else:
            self.expect("[")
            n = 0
            while self.next() != "]":
                if n:
                    self.expect(",", "',' or ']'")
                yield self.case()
                n += 1
            self.at += 1
        if self.next():
            raise self.error(self.at, f"found {shown(self.next())}, expected the end of the file")

    def case(self) -> Case:
        case = Case()
        seen: set[str] = set()
        self.expect("{", "an object: variables and what is known of them")
        while self.next() != "}":
            if seen:
                self.expect(",", "',' or '}'")
            self.next()
            at = self.at
            if self.next() != '"':
                self.expect('"', "a variable's name in double quotes")
            name = self.value()
            self.expect(":")
            self.next()
            value_at, value = self.at, self.value()
            try:
                name = self.net.variables[self.net.index(name)]
                if name in seen:
                    raise EvidenceError(f"found {name!r} a second time")
                seen.add(name)
            except EvidenceError as error:
                raise self.error(at, str(error)) from None
            try:
                self.take(case, name, value)
            except EvidenceError as error:
                raise self.error(value_at, str(error)) from None
        self.at += 1
        return case

    def value(self) -> Any:
        """Whatever value begins at the cursor; goes behind it."""
        start = self.at
        try:
            value, self.at = self.decoder.raw_decode(self.text, self.at)
        except JSONDecodeError as error:
            raise self.error(error.pos, f"a value that is no JSON: {error.msg.lower()}") from None
        except RecursionError:
            raise self.error(
                start, "found brackets in brackets without end, expected what is known of a variable"
            ) from None
        except ValueError as error:  # NaN, a name twice, a number of thousands of digits
            raise self.error(start, f"found {shown(str(error))}, expected what is known of a variable") from None
        return value

    def take(self, case: Case, name: str, value: Any) -> None:
        """One variable's value into the case; raises `EvidenceError` for what means nothing."""
        net = self.net
        if value is None:
            return
        if isinstance(value, (str, bool)) or (isinstance(value, int) and not isinstance(value, bool)):
            case[name] = net.state_index(name, value)
        elif isinstance(value, list) and value and all(isinstance(x, str) for x in value):
            case[name] = frozenset(net.state_index(name, x) for x in value)
        elif isinstance(value, list):
            card = len(net.states(name))
            if len(value) != card or not all(_is_weight(x) for x in value):
                raise EvidenceError(
                    f"found {shown(json.dumps(value))[1:-1]} for {name!r}, expected {card} weights >= 0, one a state, "
                    "or a list of states' names"
                )
            case.likelihood[name] = _weights(name, value)
        elif isinstance(value, dict):
            given = {self.state(name, s): w for s, w in value.items()}
            if len(given) < len(value):
                raise EvidenceError(f"found two weights for a state of {name!r}, by name and by number")
            missing = [s for i, s in enumerate(net.states(name)) if i not in given]
            if missing:
                raise EvidenceError(f"found no weight of {name!r} for {', '.join(map(repr, missing[:5]))}")
            for s, w in value.items():
                if not _is_weight(w):
                    raise EvidenceError(
                        f"found {shown(json.dumps(w))[1:-1]} for {name!r} = {s!r}, expected a weight >= 0"
                    )
            case.likelihood[name] = _weights(name, [given[i] for i in range(len(given))])
        else:
            raise EvidenceError(
                f"found {shown(json.dumps(value))[1:-1]} for {name!r}, expected a state's name or number, or weights"
            )

    def state(self, name: str, label: str) -> int:
        """A state by name; by number where no state has that name, for keys in JSON are strings."""
        try:
            return self.net.state_index(name, label)
        except UnknownState:
            if label.isascii() and label.isdigit() and len(label) < 10 and label not in self.net.states(name):
                return self.net.state_index(name, int(label))
            raise


def _is_weight(x: object) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and 0 <= x < 1e300


def _weights(name: str, given: list[float]) -> NDArray[np.float64]:
    weights = np.array(given, np.float64)
    if not weights.any():
        raise EvidenceError(f"found weights for {name!r} that are all zero, expected one that is not")
    return weights
