"""States that are intervals of numbers, such as ``"[2.5, 4)"``: which of them a number falls into."""

from __future__ import annotations

import bisect
import itertools
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

# "[a, b)", "(a, b]", and "[a;b[" as pyAgrum writes it
_INTERVAL = re.compile(r"\s*([\[\](])\s*([^\s,;\[\]()]+)\s*[,;]\s*([^\s,;\[\]()]+)\s*([\[\])])\s*")


class _Interval(NamedTuple):
    low: float
    opens: bool  # whether `low` is excluded
    high: float
    closes: bool  # whether `high` is included
    state: int


class Intervals:
    """Disjoint intervals, one a state."""

    def __init__(self, intervals: Sequence[_Interval]):
        self._sorted = sorted(intervals)
        self._keys = [(i.low, i.opens) for i in self._sorted]

    @property
    def order(self) -> list[int]:
        """States from the lowest interval to the highest."""
        return [i.state for i in self._sorted]

    def find(self, value: float) -> int:
        """The state whose interval contains a number; -1 if none does."""
        at = bisect.bisect_right(self._keys, (value, False)) - 1  # the last interval that begins at or below `value`
        if at < 0:
            return -1
        found = self._sorted[at]
        return found.state if value < found.high or (value == found.high and found.closes) else -1


def intervals_of(labels: Sequence[str]) -> Intervals | None:
    """The intervals that names of states denote; None unless there are two or more, all intervals, and disjoint."""
    if len(labels) < 2 or not all(label.lstrip()[:1] in ("[", "]", "(") for label in labels):
        return None
    found = []
    for state, label in enumerate(labels):
        parts = _INTERVAL.fullmatch(label)
        if parts is None:
            return None
        try:
            low, high = float(parts[2]), float(parts[3])
        except ValueError:
            return None
        opens, closes = parts[1] != "[", parts[4] == "]"
        if math.isnan(low) or math.isnan(high) or not (low < high or (low == high and closes and not opens)):
            return None
        found.append(_Interval(low, opens, high, closes, state))
    found.sort()
    for a, b in itertools.pairwise(found):
        if a.high > b.low or (a.high == b.low and a.closes and not b.opens):
            return None
    return Intervals(found)


def interval_labels(cuts: Sequence[float]) -> tuple[str, ...]:
    """Names of the intervals between ascending cut points: ``"(-inf, 2.5)"``, ``"[2.5, 4)"``, ``"[4, inf)"``."""
    ends = [-math.inf, *map(float, cuts), math.inf]
    return tuple(
        f"{'(' if math.isinf(low) else '['}{_text(low)}, {_text(high)})" for low, high in itertools.pairwise(ends)
    )


def _text(x: float) -> str:
    """The shortest text that is this number."""
    return repr(int(x)) if math.isfinite(x) and x.is_integer() and abs(x) < 1e15 else repr(x)
