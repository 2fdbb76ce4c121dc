"""Cases as JSON objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json import JSONDecodeError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import EvidenceError, ParseError, shown
from ...model.discrete import DiscreteModel
from ...model.findings import state_of_text
from ..common.text import Source
from .case import Case

_BLANK = re.compile(r"[ \t\r\n]*+")


def _no_constant(word: str) -> float:
    raise ValueError(word)


class JsonCases:
    """Reads cases from JSON. The outer layers are parsed here, so that errors have the position of names and values."""

    def __init__(self, source: Source, net: DiscreteModel):
        self.source, self.text, self.net = source, source.text, net
        self.decoder = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=self.pairs)
        self.at = 0

    def pairs(self, given: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(given)
        if len(found) < len(given):
            raise ValueError("a repeated name")
        return found

    def error(self, at: int, message: str) -> ParseError:
        return self.source.error(at, message)

    def next(self) -> str:
        """Move to the next character that is not white space; returns it."""
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
            given: dict[int, Any] = {state_of_text(self.net, name, s): w for s, w in value.items()}
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


def _weights(name: str, given: list[float]) -> NDArray[np.float64]:
    weights = np.array(given, np.float64)
    if not weights.any():
        raise EvidenceError(f"found weights for {name!r} that are all zero, expected a positive one")
    return weights
