"""Numbers, truth values and texts as states of a variable: one rule, for evidence of every kind.

1. A number is the *name* of a state: 1, 1.0 and the texts "1" and "1.0" mean the state "1", never state number 1.
   Where names are codes ("01", "1"; "007"), only the name itself does.
2. If all states are intervals ("[2.5, 4)"), a number means the interval that contains it.
3. True and False are states of that name, in any letter case, or "1" and "0"; likewise 1 and 0 the states True and
   False.
4. Any other number is an error, unless `codes` say what it means: "index", the numbers of states from 0, or a name for
   each code. Arrays without names of columns hold numbers of states.
5. The text "#2" means state number 2 where its name is empty or another state has it.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import numpy as np

from ..errors import ArgumentError, closest, shown
from ..util.arrays import Floats
from ..util.cells import (
    GROUPED,
    LIKELIHOOD,
    MAX_EXACT,
    NA_VALUES,
    POINT,
    Marks,
    as_text,
    decimal_text,
    is_likelihood,
    is_missing,
    is_plain,
    moment,
    number_text,
    numeral,
    plain_numeral,
)
from ..util.text_table import Intervals, intervals_of

LONGEST = 10**4000  # Python refuses to write somewhat longer integers
GREATEST = 2**1023  # integers below it are floats, though some are rounded
MAX_DIGITS = 1000  # of a decimal number that is compared digit by digit
NOT_OBSERVED, REJECTED = -1, -2  # in place of a state's number
MAX_CACHED = 4096  # values of one variable whose lookup is cached
MAX_SHOWN = 40  # characters of a cell in a message
MAX_HINTED = 200  # characters of a cell that are compared with the names of states
LIKE_MISSING = {*NA_VALUES, "?", "*", "-", "."}  # words that a message takes for missing cells
SEVERAL = -1  # in place of a state: names of several states are the same number
# Names of the state that stands for presence, and of the other one.
PRESENT = {
    "yes": "no", "y": "n", "true": "false", "t": "f", "present": "absent", "positive": "negative", "pos": "neg",
    "1": "0", "on": "off", "abnormal": "normal", "active": "inactive", "fail": "ok", "failed": "ok", "faulty": "ok",
    "occurs": "none", "occurred": "none",
}  # fmt: skip

Codes = Literal["names", "index"] | Mapping[Any, str]  # of one variable
CodesByVariable = Literal["names", "index"] | Mapping[str, Mapping[Any, str]]


class StateNumber(int):
    """The number of a state whatever the names of the states are: `jtgpu.DiscreteModel.state_index` returns it."""

    __slots__ = ()


class StateValues:
    """The states of one variable by number, truth value or text."""
    # labels: sequence of str: Names of the states
    # codes: What numbers mean that are no names: nothing ("names"), numbers of states ("index", as in arrays), or the
    #     name of a state for each code
    # names, numbers: Name, and number that is a name -> the state, or `SEVERAL`
    # intervals, times: Intervals of numbers, and of moments, if all names are such
    # moments: Moment that a name is -> the state, if all names are such and different
    # is_codes: Whether names are numerals that are not numbers: leading zeros, or two of one number

    def __init__(self, labels: Sequence[str], codes: Codes = "names"):
        self.labels = labels
        self.by_index = codes == "index"
        self.names: dict[str, int] = {}
        for i, name in enumerate(labels):
            self.names[name] = SEVERAL if name in self.names else i
        self.numbers: dict[float, int] = {}
        self.is_codes = False
        numerals = {} if self.by_index else {i: x for i, s in enumerate(labels) if (x := plain_numeral(s)) is not None}
        for i, number in numerals.items():
            plain = is_plain(labels[i])
            self.is_codes = self.is_codes or not plain or number in self.numbers
            self.numbers[number] = SEVERAL if number in self.numbers else i
        if self.is_codes:
            self.numbers = {x: self.names[number_text(x)] for x in self.numbers if number_text(x) in self.names}
        self.intervals = None if self.by_index or numerals else intervals_of(labels)
        self.times: Intervals | None = None
        self.moments: dict[float, int] = {}
        if not self.by_index and not numerals and self.intervals is None:
            self.times = intervals_of(labels, _end)
            moments = {m: i for i, s in enumerate(labels) if (m := moment(s)) is not None}
            self.moments = moments if len(moments) == len(labels) else {}
        self.codes: dict[Any, int] = {}
        ambiguous = numbered(labels)
        given: Mapping[Any, Any] = codes if isinstance(codes, Mapping) else {}
        for code, name in given.items():
            state = ambiguous.get(name, self.names.get(name, SEVERAL)) if isinstance(name, str) else SEVERAL
            if state == SEVERAL:
                hint = closest(name, labels) if isinstance(name, str) else ""
                raise ArgumentError(f"codes: {shown(name)} is not one state{hint} (the states are {listed(labels)})")
            if not isinstance(code, (str, int, float, Decimal, np.integer, np.floating, np.bool_)) or code != code:
                raise ArgumentError(f"codes: a code of {name!r} must be a number or a text, not {shown(code)}")
            value = plain_numeral(code) if isinstance(code, str) and is_plain(code) else None
            for each in (code,) if value is None else (code, value):
                if self.codes.setdefault(each, state) != state:
                    raise ArgumentError(f"codes: {code!r} has two meanings")
                known: Mapping[Any, int] = self.names if isinstance(each, str) else self.numbers
                named = known.get(each.strip() if isinstance(each, str) else each)
                if named not in (None, state):
                    raise ArgumentError(f"codes: {code!r} is the name of another state; rename the states")
        self.codes = ambiguous | self.codes

    def find(self, value: Any) -> int | None:
        """Number of the state that a number or a truth value means; None if it means no state, or several."""
        # raises TypeError: For a value of another type.
        if isinstance(value, StateNumber):
            return int(value) if 0 <= value < len(self.labels) else None
        if isinstance(value, (bool, np.bool_)):
            truth = self._truth(bool(value))
            return self.codes.get(value) if truth is None else truth
        if self.codes and value in self.codes:
            return self.codes[value]
        if self.has_moments and isinstance(value, (date, np.datetime64)):
            return self._at(moment(value))
        if isinstance(value, (np.float16, np.float32)):
            value = float(str(value))  # .1 of 32 bits is .1
        if isinstance(value, Decimal) and value.is_finite():  # from a database
            if value.adjusted() < MAX_DIGITS and value == value.to_integral_value():
                value = int(value)
            elif self.is_codes and abs(value.adjusted()) < MAX_DIGITS:  # as a float it may be several
                return self.names.get(decimal_text(value))
            else:
                value = float(value)
        number = float(value) if isinstance(value, (float, np.floating)) else operator.index(value)
        state: int | None = -1
        if self.intervals is not None:
            is_float = isinstance(number, float) or abs(number) < GREATEST
            state = self.intervals.find(float(number)) if is_float else -1
        elif self.by_index:
            state = int(number) if isinstance(number, int) or number.is_integer() else -1
        elif MAX_EXACT <= abs(number) < LONGEST:
            state = self._long(number)
        elif self.numbers:
            state = self.numbers.get(number, -1)
        elif number in (0, 1) and self._is_truth:
            state = self._truth(number == 1)
        return state if state is not None and 0 <= state < len(self.labels) else None

    def _long(self, number: Any) -> int | None:
        """The state of an integer that floats may round: the one with all its digits, or that of the same float."""
        state = self.names.get(str(int(number)))
        if state is None and abs(number) < GREATEST and (same := float(number)) == number:
            state = self.numbers.get(same) if isinstance(number, float) else self.names.get(number_text(same))
        return state

    def by_integer(self) -> dict[str | int, int]:
        """The state that each integer means, as far as it means one."""
        states: dict[str | int, int] = {}
        if self.by_index:
            states = {i: i for i in range(len(self.labels))}
        elif self.intervals is None:  # those would be too many
            states = {int(x): i for x, i in self.numbers.items() if i >= 0 and x.is_integer() and abs(x) < MAX_EXACT}
        return states | {code: i for code, i in self.codes.items() if type(code) is int}

    @property
    def has_moments(self) -> bool:
        """Whether the states are dates, times, or intervals of them."""
        return self.times is not None or bool(self.moments)

    def _at(self, when: float | None) -> int | None:
        """The state of a moment."""
        if when is None:
            return None
        state = self.moments.get(when, -1) if self.times is None else self.times.find(when)
        return state if state >= 0 else None

    def find_text(self, text: str, marks: Marks = POINT) -> int | None:
        """Number of the state that a typed text or a cell means: a name, a number, a truth value or a moment."""
        for candidate in (text, text.strip()):
            if candidate in self.names:
                state = self.names[candidate]
                return None if state == SEVERAL else state
            if candidate in self.codes:
                return self.codes[candidate]
        number = numeral(text, marks)
        if number is None and self.has_moments:
            return self._at(moment(text))
        if number is None:
            folded = text.strip().casefold()
            return self._truth(folded == "true") if folded in ("true", "false") else None
        if self.is_codes:
            return None
        if self.intervals is not None or self.numbers or self.codes:
            return self.find(number)
        digits = text.strip()
        # limited, since Python refuses to convert thousands of digits
        return self.find(int(digits)) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None

    @property
    def _is_truth(self) -> bool:
        return sorted(s.casefold() for s in self.labels) == ["false", "true"]

    def _truth(self, value: bool) -> int | None:
        states = [i for i, s in enumerate(self.labels) if s.casefold() == str(value).casefold()]
        if not states and not self.is_codes:
            states = [self.numbers.get(float(value), -1)]
        return states[0] if len(states) == 1 and states[0] >= 0 else None

    def refusal(self, variable: str, value: object) -> str:
        """Why a number or a truth value means no state: for a message."""
        states = f"its states are {listed(self.labels)}"
        where = f"variable {variable!r}"
        if (self.times or self.intervals) is not None and not isinstance(value, (bool, np.bool_)):
            return f"{where}: no interval contains {value}; {states}"
        same = [s for s in self.labels if plain_numeral(s) == value]
        if len(same) > 1:
            return f"{where} has several states that are {value}: {listed(same)}; give the name as text"
        if same:
            return f"{where} has no state {shown(value)}, did you mean {same[0]!r}? ({states})"
        if self.by_index:
            return f"{where} has no state number {shown(value)}; it has 0 to {len(self.labels) - 1}"
        return f"{where} has no state {shown(value)} ({states}){self.hint(variable, value)}"

    def hint(self, variable: str, value: Any) -> str:
        """The end of a message about a number that may be a code: how to say so."""
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            return ""
        if self.by_index or not number.is_integer() or not 0 <= number < len(self.labels) or self.intervals:
            return ""
        if texts := numbered(self.labels):
            return f": write {listed([*texts], 3)} for states of one name"
        i, first = int(number), present_state(self.labels)
        words = dict(enumerate(self.labels[:2]))
        if first is not None:
            words = {1: self.labels[first], 0: self.labels[1 - first]}
        more = ", ..." if len(self.labels) > 2 else ""
        meanings = ", ".join(f"{j}: {s!r}" for j, s in words.items())
        return (
            f": state number {i} is {self.labels[i]!r} (net.with_codes('index')); or say what codes mean, "
            f"net.with_codes({{{variable!r}: {{{meanings}{more}}}}})"
        )


def numbered(labels: Sequence[str]) -> dict[Any, int]:
    """The texts "#0", "#1" and so on for states whose names do not tell them apart, each with the state's index."""
    several = {s for s, n in Counter(labels).items() if n > 1 or not s}
    if not several:
        return {}
    mark = "#"
    while any(s.startswith(mark) for s in labels):
        mark += "#"
    return {f"{mark}{i}": i for i, s in enumerate(labels) if s in several}


def present_state(labels: Sequence[str]) -> int | None:
    """Which of two states stands for presence, by their names; None if these do not say it."""
    folded = [s.strip().casefold() for s in labels]
    if len(folded) == 2:
        for i in range(2):
            if PRESENT.get(folded[i]) == folded[1 - i]:
                return i
            negated = {f"no {folded[i]}", f"no_{folded[i]}", f"not {folded[i]}", f"not_{folded[i]}", f"non{folded[i]}"}
            if folded[1 - i] in negated:
                return i
    return None


def listed(labels: Sequence[str], most: int = 12) -> str:
    """Names of states for a message."""
    names = ", ".join(map(shown, labels[:most]))
    return names if len(labels) <= most else f"{names}, ... ({len(labels)} in total)"


def _end(text: str) -> float:
    """An end of an interval of moments."""
    when = float(text) if text in ("-inf", "inf") else moment(text)
    if when is None:
        raise ValueError(text)
    return when


def likelihood_of(text: str, states: Sequence[str]) -> Floats | str:
    """The weights of a cell such as ``[0.4;0.8]``, or what is wrong with them."""
    match = LIKELIHOOD.fullmatch(text)
    assert match is not None
    what = f"the likelihood {text.strip()[:60]!r}"
    try:
        weights = np.array([float(x if x.isascii() and "_" not in x else "") for x in match[1].split(";")])
    except ValueError:
        return f"{what} has parts that are not numbers"
    if len(weights) != len(states):
        return f"{what} has {len(weights)} weights, but the variable has {len(states)} states ({listed(states, 8)})"
    if not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
        return f"the weights of {what} must be finite, >= 0 and not all 0"
    return weights


def no_likelihood(variable: str, text: str, weights: Floats) -> str:
    """The message about a likelihood where only states are read."""
    return (
        f"one state is expected here, not the likelihood {text.strip()[:60]!r}; weights are passed as "
        f"likelihood={{{variable!r}: {weights.tolist()}}} (in commands: -e 'likelihood({variable}: STATE=WEIGHT, ...)')"
    )


class StateLookup:
    """The states of one variable, by the values that cells may have."""
    # name: Name of the variable
    # words: frozenset of str: Words that mean "not observed" unless they are states; see `jtgpu.util.cells.na_words`
    # numbers_are_states: Whether every number of a state, from 0, means this state, so that columns of integers need no
    #     lookup
    # na_found: set of str: The words, not empty, that were looked up and meant "not observed"

    def __init__(self, name: str, values: StateValues, words: frozenset[str] = frozenset()):
        self.name, self.states, self._values, self._words = name, values.labels, values, words
        self.na_found: set[str] = set()
        self.least = NOT_OBSERVED if self._values.by_index else 0  # of the integers that need no look-up
        by_integer = self._values.by_integer()
        self.numbers_are_states = -1 not in by_integer and all(by_integer.get(i) == i for i in range(len(self.states)))
        self.marks = POINT
        self._found: dict[Any, int] = {}

    def read_as(self, marks: Marks) -> None:
        """Read numerals with these marks of decimals and thousands."""
        if marks != self.marks:
            self.marks, self._found = marks, {}

    @property
    def has_moments(self) -> bool:
        """Whether dates and times mean states."""
        return self._values.has_moments

    def number(self, value: object) -> int:
        """Number of the state that a value names; `NOT_OBSERVED` or `REJECTED` (-1, -2)."""
        key = (type(value), value)
        try:
            state = self._found.get(key)
        except TypeError:  # unhashable values name no state
            return NOT_OBSERVED if is_missing(value) else REJECTED
        if state is None:
            state = self._look_up(value)
            if len(self._found) < MAX_CACHED:
                self._found[key] = state
        return state

    def _look_up(self, value: object) -> int:
        if is_missing(value):
            return NOT_OBSERVED
        value = as_text(value)
        if isinstance(value, str):
            for text in (value, value.strip()):
                if text in self._values.names:
                    break
                if text in self._words:
                    self.na_found |= {text} - {""}
                    return NOT_OBSERVED
            state = self._values.find_text(value, self.marks)
        else:
            try:
                state = self._values.find(value)
            except TypeError:  # an interval, a date: by its text
                return self._look_up(str(value))
            if state is None and value == self.least == NOT_OBSERVED:
                return NOT_OBSERVED
        return REJECTED if state is None else state

    def reason(self, value: object) -> str:
        """Why a value was rejected, with the closest state."""
        value = as_text(value)
        text = shown(value) if isinstance(value, int) and abs(value) >= LONGEST else str(value)
        cell = shown(value if len(text) <= MAX_SHOWN else text, MAX_SHOWN)
        if isinstance(value, str) and self.states.count(value.strip()) > 1:
            n = self.states.count(value.strip())
            texts = [t for t, i in numbered(self.states).items() if self.states[i] == value.strip()]
            return f"{n} states are named {cell}; write {listed(texts, 3)}, or rename them"
        if is_likelihood(value):
            weights = likelihood_of(value, self.states)
            return weights if isinstance(weights, str) else no_likelihood(self.name, value, weights)
        names = f"{', '.join(map(shown, self.states[:8]))}{', ...' if len(self.states) > 8 else ''}"
        hint = self._values.hint(self.name, value) or closest(text.strip()[:MAX_HINTED], self.states, 1)
        if isinstance(value, str) and not self.marks[0] and GROUPED.fullmatch(value.strip()):
            whole, fraction = value.strip().replace(",", ""), value.strip().replace(",", ".")
            hint = f"; it may be {whole} or {fraction}: thousands=',' (--thousands) or decimal=',' (--decimal)"
        if isinstance(value, str) and value.strip() in LIKE_MISSING:
            hint = f"; for a missing cell, {'list it in na_values (--na-values)' if self._words else 'use None'}"
        return f"{cell} is not a state; the states are {names}{hint}"
