"""Values of cells as states of a variable, by the same rules for tables in memory and in files.

1. Missing values mean "not observed"; so do some words in a text file, unless they are states of the variable (see
   `jtgpu.util.missing`).
2. A text is the name of a state, with or without surrounding spaces.
3. Numbers and truth values, and texts of them, as everywhere in jtgpu: `jtgpu.model.state_values`.

In an array, whose columns have no names either, numbers are numbers of states, and -1 means "not observed".
"""

from __future__ import annotations

from typing import Any

from ...errors import closest, shown
from ...model.discrete import DiscreteModel
from ...model.state_values import GROUPED, POINT, Marks, StateValues, listed, numbered
from ...util.missing import NA_VALUES, is_missing

NOT_OBSERVED, REJECTED = -1, -2  # in place of a state's number
MAX_CACHED = 4096  # values of one variable whose lookup is cached
MAX_SHOWN = 40  # characters of a cell in a message
MAX_HINTED = 200  # characters of a cell that are compared with the names of states
LIKE_MISSING = {*NA_VALUES, "?", "*", "-", "."}  # words that a message takes for missing cells


class StateLookup:
    """The states of one variable, by the values that cells may have."""
    # v: The variable's number
    # words: frozenset of str: Words that mean "not observed" unless they are states; see `jtgpu.util.missing.na_words`
    # by_index: Whether numbers are numbers of states even if the name of a state is a number
    # name: Name of the variable
    # numbers_are_states: Whether every number of a state, from 0, means this state, so that columns of integers need no
    #     lookup
    # na_found: set of str: The words, not empty, that were looked up and meant "not observed"

    def __init__(self, model: DiscreteModel, v: int, words: frozenset[str] = frozenset(), *, by_index: bool = False):
        self.name = model.variables[v]
        self.states = model.states(v)
        self._words = words
        self.na_found: set[str] = set()
        self._values = StateValues(self.states, "index") if by_index else model.state_values(v)
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

    def number(self, value: Any) -> int:
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

    def _look_up(self, value: Any) -> int:
        if is_missing(value):
            return NOT_OBSERVED
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

    def reason(self, value: Any) -> str:
        """Why a value was rejected, with the closest state."""
        text = value if isinstance(value, str) else str(value)
        cell = shown(value if len(text) <= MAX_SHOWN else text, MAX_SHOWN)
        if isinstance(value, str) and self.states.count(value.strip()) > 1:
            n = self.states.count(value.strip())
            texts = [t for t, i in numbered(self.states).items() if self.states[i] == value.strip()]
            return f"{n} states are named {cell}; write {listed(texts, 3)}, or rename them"
        names = f"{', '.join(map(shown, self.states[:8]))}{', ...' if len(self.states) > 8 else ''}"
        hint = self._values.hint(self.name, value) or closest(text.strip()[:MAX_HINTED], self.states, 1)
        if isinstance(value, str) and not self.marks[0] and GROUPED.fullmatch(value.strip()):
            whole, fraction = value.strip().replace(",", ""), value.strip().replace(",", ".")
            hint = f"; it may be {whole} or {fraction}: thousands=',' (--thousands) or decimal=',' (--decimal)"
        if isinstance(value, str) and value.strip() in LIKE_MISSING:
            hint = f"; for a missing cell, {'list it in na_values (--na-values)' if self._words else 'use None'}"
        return f"{cell} is not a state; the states are {names}{hint}"
