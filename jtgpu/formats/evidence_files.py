"""Evidence files: UAI (all layouts of the competitions), ``name=state`` lines, JSON.

The content decides the format:

* white space only: nothing is observed;
* numbers: a count and as many pairs of a variable's and a state's number (UAI 2014; Ergo, after ``/* Evidence */``), or
  the number of cases followed by each case in that form (UAI 2008, 2010). If both layouts match, the first number is
  the number of cases if it is alone on its line and that many lines follow, each with one case. Lines that begin with
  the word ``c`` are comments;
* ``{`` or ``[``: JSON, an object per case or a list of them. A value is one of: a state's name or number; a list of
  names, one of which is the true state; weights (virtual evidence), as a list with one number per state or as an object
  from state to weight; null for "not observed";
* a network of Netica or GeNIe: the findings that were entered in it, or its cases;
* otherwise lines ``name=state``, as on the command line. Lines that begin with ``#`` are comments, a line ``---``
  separates two cases.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from json import JSONDecodeError
from typing import Any

import numpy as np

from ..errors import EvidenceError, ParseError, shown
from ..model.discrete import DiscreteModel
from ..model.quick import parse_finding
from ..model.states import StateNumber
from ..util.arrays import Floats
from . import dne, xdsl
from .files import read_bytes
from .number_cursor import NumberCursor
from .text import BLANKS, SourceText, decode

# The evidence of one case, as read from a file.

class Case(dict[str, "int | frozenset[int]"]):
    """The evidence of one case: a mapping from name to state number, or to a set of numbers one of which is true.

    Every query of a `jtgpu.JunctionTree` takes a `Case` as ``evidence``, weights included.

    Attributes
    ----------
    likelihood : dict of str to (card,) float64
        Virtual evidence: weights in the order of the variable's states.
    """

    def __init__(self, findings: Mapping[str, int | frozenset[int]] | None = None):
        super().__init__(findings or {})
        self.likelihood: dict[str, Floats] = {}

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


# Cases as numbers of variables and states: UAI and Ergo.

MAX_CASES = 1 << 20
NUMBERS = re.compile(rf"[0-9{BLANKS}.+\-]*+")
LINE = re.compile(r"[^\r\n]+")


class NumberedCases:
    """Reads cases given by the numbers of variables and states."""

    def __init__(self, source: SourceText, text: str, net: DiscreteModel):
        self.net, self.text = net, text
        self.numbers = NumberCursor(source, text)

    def cases(self, *, ergo: bool) -> list[Case]:
        """All cases; an Ergo file contains one, without a number of cases."""
        numbers = self.numbers
        if numbers.values.size == 0:
            return [Case()]
        if not ergo and self.counted():
            return [self.case() for _ in range(numbers.whole("the number of cases", 0, MAX_CASES))] or [Case()]
        case = self.case()
        numbers.finish()
        return [case]

    def counted(self) -> bool:
        """Whether the first number is the number of cases."""
        values = self.numbers.values
        first, *rest = [line.split() for line in LINE.findall(self.text) if line.strip(BLANKS)]
        by_lines = len(rest) == values[0] and all(len(words) == 1 + 2 * float(words[0]) for words in rest)
        if len(first) == 1 and by_lines:
            return True
        if values.size == 1 + 2 * values[0]:
            return False
        at, left = 1, float(values[0])
        while left > 0 and at < values.size and values[at] >= 0 and values[at].is_integer():
            at, left = at + 1 + 2 * int(values[at]), left - 1
        # neither fits, so an error will follow; the layout decides which one
        return (left == 0 and at == values.size) or (len(first) == 1 and len(rest) > 0)

    def case(self) -> Case:
        """The next case."""
        numbers, net = self.numbers, self.net
        case = Case()
        for _ in range(numbers.whole("the number of observed variables", 0, numbers.values.size)):
            at = numbers.at
            v = numbers.whole(f"the number of a variable, 0 to {len(net) - 1}", 0, len(net) - 1)
            name = net.variables[v]
            last = int(net.cardinality[v]) - 1
            state = StateNumber(numbers.whole(f"the number of a state of {name!r}, 0 to {last}", 0, last))
            if case.setdefault(name, state) != state:
                raise numbers.error(at, f"found {name!r} a second time, in state {state} and not {case[name]}")
        return case


# Cases as ``name=state`` lines.

MAX_LINE = 1 << 14  # characters; every '=' of a line is a place where a name may end


def line_cases(source: SourceText, net: DiscreteModel) -> Iterator[Case]:
    """The cases of a text of ``name=state`` lines."""
    case = Case()
    for match in LINE.finditer(source.text):
        line, at = match[0].strip(BLANKS), match.start()
        at += len(match[0]) - len(match[0].lstrip(BLANKS))
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


_BLANK = re.compile(r"[ \t\r\n]*+")


def _no_constant(word: str) -> float:
    raise ValueError(word)


class JsonCases:
    """Reads cases from JSON. The outer layers are parsed here, so that errors have the position of names and values."""

    def __init__(self, source: SourceText, net: DiscreteModel):
        self.source, self.text, self.net = source, source.text, net
        self.decoder = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=self.pairs)
        self.at = 0

    def pairs(self, given: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(given)
        if len(members) < len(given):
            raise ValueError("a repeated name")
        return members

    def error(self, at: int, message: str) -> ParseError:
        return self.source.error(at, message)

    def next(self) -> str:
        """Move to the next character that is not white space; returns it."""
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def expect(self, mark: str, what: str = "") -> None:
        character = self.next()
        if character != mark:
            here = shown(character) if character else "the end of the file"
            raise self.error(self.at, f"found {here}, expected {what or repr(mark)}")
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
        self.expect("{", "an object: variables and their evidence")
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
        """The value at the cursor, which moves past it."""
        start = self.at
        try:
            value, self.at = self.decoder.raw_decode(self.text, self.at)
        except JSONDecodeError as error:
            raise self.error(error.pos, f"found invalid JSON: {error.msg.lower()}") from None
        except RecursionError:
            raise self.error(start, "found too deeply nested brackets, expected the evidence on a variable") from None
        except ValueError as error:  # NaN, a repeated name, a number of thousands of digits
            raise self.error(start, f"found {shown(str(error))}, expected the evidence on a variable") from None
        return value

    def take(self, case: Case, name: str, value: Any) -> None:
        """Enter one variable's value into the case; raises `EvidenceError` if it is not evidence."""
        net = self.net
        if value is None:
            return
        if isinstance(value, (str, bool, int, float)):
            case[name] = net.state_index(name, value)
        elif isinstance(value, list) and value and all(isinstance(x, str) for x in value):
            case[name] = frozenset(net.state_index(name, x) for x in value)
        elif isinstance(value, list):
            card = len(net.states(name))
            if len(value) != card or not all(_is_weight(x) for x in value):
                raise EvidenceError(
                    f"found {shown(json.dumps(value))[1:-1]} for {name!r}, expected {card} weights >= 0, one per "
                    "state, or a list of state names"
                )
            case.likelihood[name] = _weights(name, value)
        elif isinstance(value, dict):
            given: dict[int, Any] = {self.net.state_index(name, s): w for s, w in value.items()}
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


def _is_weight(x: object) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and 0 <= x < 1e300


def _weights(name: str, given: list[float]) -> Floats:
    weights = np.array(given, np.float64)
    if not weights.any():
        raise EvidenceError(f"found weights for {name!r} that are all zero, expected a positive one")
    return weights


# Reading evidence files: the content decides the format.

# Query files of the inference competitions: the variables of a marginal MAP query.

def read_query(path: str | os.PathLike[str], net: DiscreteModel) -> list[int]:
    """Read a query file of the competitions: the number of variables and their numbers, or one name per line."""
    # returns list of int: The variables' numbers.
    # raises ParseError: If the file is malformed; the message gives ``file:line:column``.
    # raises FileError: If the operating system cannot read the file; also an `OSError`.
    name = os.fspath(path)
    source = SourceText(decode(read_bytes(name)), name)
    variables: list[tuple[int, int]] = []  # variable, offset
    if NUMBERS.fullmatch(source.text):
        numbers = NumberCursor(source, source.text)
        n = numbers.whole("the number of query variables", 0, numbers.values.size)
        places = numbers.offsets(np.arange(1, 1 + n)).tolist()
        variables += [
            (numbers.whole(f"the number of a variable, 0 to {len(net) - 1}", 0, len(net) - 1), at) for at in places
        ]
        numbers.finish()
    else:
        for line in LINE.finditer(source.text):
            if line[0].strip(BLANKS):
                at = line.start() + len(line[0]) - len(line[0].lstrip(BLANKS))
                try:
                    variables.append((net.index(line[0].strip(BLANKS)), at))
                except EvidenceError as error:
                    raise source.error(at, str(error)) from None
    seen: set[int] = set()
    for v, at in variables:
        if v in seen:
            raise source.error(at, f"found {net.variables[v]!r} a second time")
        seen.add(v)
    return [v for v, _ in variables]


_COMMENT = re.compile(r"/\*[^*]*+(?:\*(?!/)[^*]*+)*+(?:\*/|\Z)")  # an unclosed one extends to the end
_C_LINE = re.compile(rf"(?:\A|(?<=[\r\n]))c(?=[{BLANKS}]|\Z)[^\r\n]*+")


def read_evidence(path: str | os.PathLike[str], net: DiscreteModel) -> Case:
    """Read an evidence file that contains one case: UAI, ``name=state`` lines, or JSON.

    Parameters
    ----------
    path : path-like
        A file, plain or compressed by gzip.
    net : DiscreteModel
        The network whose variables the file refers to, by name or by number.

    Returns
    -------
    Case
        A mapping, empty if nothing is observed: ``tree.posteriors(jtgpu.read_evidence(path, net))``.

    Raises
    ------
    ParseError
        If the file is malformed or names unknown variables or states; the message gives ``file:line:column``.
    EvidenceError
        If the file contains several cases; `read_evidence_cases` reads them.
    FileError
        If the operating system cannot read the file; also an `OSError`.
    """
    cases = read_evidence_cases(path, net)
    if len(cases) > 1:
        raise EvidenceError(
            f"{os.fspath(path)}: found {len(cases)} cases, expected one; "
            "jtgpu.formats.read_evidence_cases reads them all"
        )
    return cases[0] if cases else Case()


def read_evidence_cases(path: str | os.PathLike[str], net: DiscreteModel) -> list[Case]:
    """Read all cases of an evidence file; parameters and errors as for `read_evidence`."""
    name = os.fspath(path)
    return parse_evidence(decode(read_bytes(name)), net, name)


def parse_evidence(text: str, net: DiscreteModel, source: str = "<text>") -> list[Case]:
    """The cases in the text of an evidence file; see `read_evidence`."""
    place = SourceText(text, source)
    for network in (dne, xdsl):
        if network.sniff(text):
            cases = network.parse_draft(text, source).findings
            return [Case({v: _state(place, net, v, *state) for v, state in case.items()}) for case in cases]
    start = text.lstrip(BLANKS)[:1]
    if start in ("{", "["):
        return list(JsonCases(place, net).cases())
    bare = _COMMENT.sub(lambda match: " " * len(match[0]), text) if "/*" in text else text
    ergo = bare != text
    bare = _C_LINE.sub(lambda match: " " * len(match[0]), bare)
    # a variable may be called c: a file that consists of comment lines only is not a file of numbers
    if NUMBERS.fullmatch(bare) and (bare.strip(BLANKS) or ergo or not text.strip(BLANKS)):
        return NumberedCases(place, bare, net).cases(ergo=ergo)
    return list(line_cases(place, net))


def _state(source: SourceText, net: DiscreteModel, variable: str, state: str, at: int) -> int:
    try:
        return net.state_index(variable, state)
    except EvidenceError as error:
        raise source.error(at, str(error)) from None
