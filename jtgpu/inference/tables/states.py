"""Values of cells as states of a variable, by the same rules for tables in memory and in files.

1. None, null, NaN and the texts of `MISSING` mean "not observed", unless such a text is a state of the variable.
2. A text is the name of a state, with or without surrounding spaces.
3. If a state of the variable has a number as its name ("0", "1.5"), numbers are names: 1, 1.0, "1" and "1.0" all mean
   the state "1", never state number 1; True and False mean "1" and "0".
4. If all states of the variable are intervals ("[2.5, 4)"), a number means the interval that contains it.
5. Otherwise an integer, or its digits, is the number of a state from 0, as everywhere in jtgpu.
6. The integer -1 (not the text "-1") means "not observed", unless a state has it as its name.
7. True and False are states of that name, in any letter case.

In an array, whose columns have no names either, rules 3 and 4 do not apply: its numbers are numbers of states.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...errors import closest, shown
from ...model.network import DiscreteModel
from ...util.intervals import intervals_of

__all__ = ["MISSING", "NOT_OBSERVED", "REJECTED", "StateLookup"]

# What R, pandas, SQL, Weka, Hugin and Netica write for a value that was not observed.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "*")
NOT_OBSERVED, REJECTED = -1, -2  # in place of a state's number
MAX_CACHED = 4096  # values of one variable whose lookup is cached
MAX_SHOWN = 40  # characters of a cell in a message
MAX_HINTED = 200  # characters of a cell that are compared with the names of states
MAX_EXACT = 2**53  # below this, integers are floats without rounding


class StateLookup:
    """The states of one variable, by the values that cells may have.

    Parameters
    ----------
    model : DiscreteModel
    v : int
        The variable's number.
    missing : iterable of str
        Texts that mean "not observed" unless they are states.
    by_index : bool
        Whether numbers are numbers of states even if the name of a state is a number.

    Attributes
    ----------
    name : str
        Name of the variable.
    states : tuple of str
    numbers_are_states : bool
        Whether every number of a state, from 0, means this state, so that columns of integers need no lookup.
    """

    def __init__(self, model: DiscreteModel, v: int, missing: Iterable[str] = MISSING, *, by_index: bool = False):
        self.name = model.variables[v]
        self.states = model.states(v)
        self._missing = frozenset(missing)
        distinct = len(set(self.states)) == len(self.states)
        self._named = {s: i if distinct or self.states.count(s) == 1 else REJECTED for i, s in enumerate(self.states)}
        self._numbers: dict[float, int] = {}  # value of a name that is a number -> its state
        for i, name in enumerate(() if by_index else self.states):
            number = _number(name)
            if number is not None:
                self._numbers[number] = REJECTED if number in self._numbers else i
        self._intervals = None if by_index or self._numbers else intervals_of(self.states)
        self.numbers_are_states = self._intervals is None and (
            not self._numbers
            or (-1.0 not in self._numbers and all(self._numbers.get(float(i)) == i for i in range(len(self.states))))
        )
        self._found: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        """Number of the state that a value names; `NOT_OBSERVED` or `REJECTED` (-1, -2)."""
        key = (type(value), value)
        try:
            found = self._found.get(key)
        except TypeError:  # unhashable values name no state
            return REJECTED
        if found is None:
            found = self._look_up(value)
            if len(self._found) < MAX_CACHED:
                self._found[key] = found
        return found

    def _look_up(self, value: Any) -> int:
        if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas is not imported here
            return NOT_OBSERVED
        if isinstance(value, (bool, np.bool_)):
            return self._truth(bool(value))
        if isinstance(value, (int, np.integer)):
            return self._whole(int(value)) if self._intervals is None else self._in_interval(float(value))
        if isinstance(value, (float, np.floating)):
            value = float(value)
            if math.isnan(value):
                return NOT_OBSERVED
            if self._intervals is not None:
                return self._in_interval(value)
            if value in self._numbers:
                return self._numbers[value]
            whole = value.is_integer() and abs(value) < MAX_EXACT
            return self._whole(int(value)) if whole else REJECTED
        return self._text(value if isinstance(value, str) else str(value))  # an interval, a date: by its text

    def _text(self, text: str) -> int:
        for candidate in (text, text.strip()):
            if candidate in self._named:
                return self._named[candidate]
            if candidate in self._missing:
                return NOT_OBSERVED
        number = _number(text)
        if number is not None:
            if self._intervals is not None:
                return self._in_interval(number)
            if self._numbers:
                return self._numbers.get(number, REJECTED)
            digits = text.strip()
            return self._whole(int(digits)) if digits.isascii() and digits.isdigit() and len(digits) < 10 else REJECTED
        folded = text.strip().casefold()
        return self._truth(folded == "true") if folded in ("true", "false") else REJECTED

    def _in_interval(self, value: float) -> int:
        assert self._intervals is not None
        found = self._intervals.find(value)
        return found if found >= 0 else REJECTED

    def _whole(self, i: int) -> int:
        if self._numbers:
            unknown = NOT_OBSERVED if i == -1 else REJECTED
            return self._numbers.get(float(i), unknown) if abs(i) < MAX_EXACT else REJECTED
        return i if -1 <= i < len(self.states) else REJECTED

    def _truth(self, value: bool) -> int:
        found = [i for i, s in enumerate(self.states) if s.casefold() == str(value).casefold()]
        if found:
            return found[0] if len(found) == 1 else REJECTED
        return self._numbers.get(float(value), REJECTED)

    def reason(self, value: Any) -> str:
        """Why a value was rejected, with the closest state."""
        text = value if isinstance(value, str) else str(value)
        cell = shown(value if len(text) <= MAX_SHOWN else text, MAX_SHOWN)
        if isinstance(value, str) and self.states.count(value.strip()) > 1:
            return f"{self.states.count(value.strip())} states are named {cell}; use the state's number instead"
        names = f"{', '.join(map(shown, self.states[:8]))}{', ...' if len(self.states) > 8 else ''}"
        return f"{cell} is not a state; the states are {names}{closest(text.strip()[:MAX_HINTED], self.states, 1)}"


def _number(text: str) -> float | None:
    """The finite number that a text denotes, or None. ASCII only: float() accepts digits of any script and ``1_0``."""
    text = text.strip()
    if not text or not text.isascii() or "_" in text or text[-1] not in "0123456789.":
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
