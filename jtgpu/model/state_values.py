"""Numbers, truth values and texts as states of a variable: one rule, for evidence of every kind.

1. If a state has a number as its name ("0", "1.5"), numbers are names: 1, 1.0 and the texts "1" and "1.0" mean the
   state "1", never state number 1. True and False mean "1" and "0".
2. If all states are intervals ("[2.5, 4)"), a number means the interval that contains it.
3. Otherwise an integer, or a float without a fraction, is the number of a state, from 0.
4. True and False are states of that name, in any letter case.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import shown
from ..util.text_table import intervals_of

MAX_EXACT = 2**53  # below this, integers are floats without rounding
SEVERAL = -1  # in place of a state: names of several states are the same number


class StateNumber(int):
    """The number of a state whatever the names of the states are: `jtgpu.DiscreteModel.state_index` returns it."""

    __slots__ = ()


class StateValues:
    """The states of one variable by number, truth value or text."""
    # labels: sequence of str: Names of the states
    # by_index: Whether numbers are always numbers of states, as in arrays of state numbers
    # names, numbers: Name, and number that is a name -> the state, or `SEVERAL`

    def __init__(self, labels: Sequence[str], *, by_index: bool = False):
        self.labels = labels
        self.names: dict[str, int] = {}
        for i, name in enumerate(labels):
            self.names[name] = SEVERAL if name in self.names else i
        self.numbers: dict[float, int] = {}
        for i, name in enumerate(() if by_index else labels):
            number = _numeral(name)
            if number is not None:
                self.numbers[number] = SEVERAL if number in self.numbers else i
        self.intervals = None if by_index or self.numbers else intervals_of(labels)

    def find(self, value: Any) -> int | None:
        """Number of the state that a number or a truth value means; None if it means no state, or several."""
        # raises TypeError: For a value of another type.
        if isinstance(value, StateNumber):
            return int(value) if 0 <= value < len(self.labels) else None
        if isinstance(value, (bool, np.bool_)):
            return self._truth(bool(value))
        number = float(value) if isinstance(value, (float, np.floating)) else operator.index(value)
        if self.intervals is not None:
            state = self.intervals.find(number) if abs(number) < MAX_EXACT or isinstance(number, float) else -1
        elif self.numbers:
            # a large integer is compared as text: as a float it would be rounded
            large = isinstance(number, int) and abs(number) >= MAX_EXACT
            state = self.names.get(str(number), -1) if large else self.numbers.get(number, -1)
        else:
            state = int(number) if isinstance(number, int) or number.is_integer() else -1
        return state if 0 <= state < len(self.labels) else None

    def by_integer(self) -> dict[str | int, int]:
        """The state that each integer means, as far as it means one."""
        if self.intervals is not None:
            return {}  # too many
        if not self.numbers:
            return {i: i for i in range(len(self.labels))}
        return {int(x): i for x, i in self.numbers.items() if i >= 0 and x.is_integer() and abs(x) < MAX_EXACT}

    def find_text(self, text: str) -> int | None:
        """Number of the state that a typed text or a cell means: a name, a number or a truth value."""
        for candidate in (text, text.strip()):
            if candidate in self.names:
                state = self.names[candidate]
                return None if state == SEVERAL else state
        number = _numeral(text)
        if number is None:
            folded = text.strip().casefold()
            return self._truth(folded == "true") if folded in ("true", "false") else None
        if self.intervals is not None or self.numbers:
            return self.find(number)
        digits = text.strip()
        # limited, since Python refuses to convert thousands of digits
        return self.find(int(digits)) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None

    def _truth(self, value: bool) -> int | None:
        states = [i for i, s in enumerate(self.labels) if s.casefold() == str(value).casefold()]
        if not states:
            states = [self.numbers.get(float(value), -1)]
        return states[0] if len(states) == 1 and states[0] >= 0 else None

    def refusal(self, variable: str, value: Any) -> str:
        """Why a number or a truth value means no state: for a message."""
        states, variable = f"its states are {listed(self.labels)}", f"variable {variable!r}"
        if isinstance(value, (bool, np.bool_)):
            return f"{variable} has no state {bool(value)!r}; {states}"
        if self.intervals is not None:
            return f"{variable}: no interval contains {value}; {states}"
        if self.numbers:
            same = [s for s in self.labels if _numeral(s) == value]
            if len(same) > 1:
                return f"{variable} has several states that are {value}: {listed(same)}; give the name as text"
            other = ""
            if math.isfinite(value) and value == int(value) and 0 <= value < len(self.labels):
                other = (
                    f", and {value} is not taken as the number of the state {shown(self.labels[int(value)])}, since "
                    "names of its states are numbers"
                )
            return f"{variable} has no state named {shown(value)}{other}; {states}"
        if isinstance(value, (float, np.floating)) and not float(value).is_integer():
            return f"{variable} has no state {shown(value)}; {states}"
        return f"{variable} has no state number {shown(value)}; it has 0 to {len(self.labels) - 1}"


def listed(labels: Sequence[str], most: int = 12) -> str:
    """Names of states for a message."""
    names = ", ".join(map(shown, labels[:most]))
    return names if len(labels) <= most else f"{names}, ... ({len(labels)} in total)"


def _numeral(text: str) -> float | None:
    """The finite number that a text denotes, or None. ASCII only: float() accepts digits of any script and ``1_0``."""
    text = text.strip()
    if not text or not text.isascii() or "_" in text or text[-1] not in "0123456789.":
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
