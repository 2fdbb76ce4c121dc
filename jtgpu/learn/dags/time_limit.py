"""`TimeLimit`: when a search should be done, and how many steps of it the time allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from ...util.arguments import number

TRIAL = 64  # share of the steps that are run to learn their pace: one in so many


@dataclass(frozen=True)
class TimeLimit:
    """A moment by `time.monotonic`; infinity: there is no limit, and results do not depend on the machine."""

    until: float = math.inf

    @staticmethod
    def of(seconds: float | None) -> TimeLimit:
        """The limit of a call that begins now."""
        return TimeLimit() if seconds is None else TimeLimit(monotonic() + number("seconds", seconds, above=0.0))

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self.until < math.inf

    @property
    def left(self) -> float:
        """Seconds until the limit, at least 0."""
        return max(self.until - monotonic(), 0.0)

    def steps(self, wanted: int, run: Callable[[int], object], share: float) -> int:
        """So many steps, or as many as a share of the time that is left allows by the pace of a few."""
        if not self.is_set:
            return wanted
        few, begin = max(wanted // TRIAL, 1), monotonic()
        run(few)
        pace = max((monotonic() - begin) / few, 1e-9)
        return max(min(wanted, int(share * self.left / pace)), few)
