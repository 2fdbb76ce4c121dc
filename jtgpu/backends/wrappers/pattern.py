"""One evidence pattern of a `PatternCache`, and the backend that answers its cases.

Observed variables connect nothing, so an elimination order that was good without evidence may be far from the best one
of what remains (Barley with every fifth variable observed: 15 times the work). `PatternCache` wraps a backend and makes
a new plan for a pattern, a set of observed variables, once its cases have cost enough: on the CPU a plan of the split
model (`jtgpu.plans.conditioning`), on a GPU one of the restricted model (`jtgpu.plans.conditioning`).

The rule. The cost of a case is predicted (multiplications on the CPU, nanoseconds of the time model on a GPU), so the
same queries in the same order use the same plans. Once the cases of a pattern have cost as much as planning costs, a
plan is made: on the CPU by the query that reaches the threshold, on a GPU by a background thread, whose plan is used
from the query on at which the cases have cost twice as much. A plan is accepted on the CPU if it needs at most
`REQUIRED_GAIN` (`jtgpu.backends.wrappers.pattern_cache`) of the work, and on a GPU if it is measured to be faster. The
plans that were not used for the longest time are dropped when all of them occupy more than half of the memory that the
default plan needs; the memory is freed with the last query that uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from ..base import Evidence, Result, Session, Table
from ..state_map import StateMap
from .mapped import MappedBackend

if TYPE_CHECKING:
    from numpy.typing import NDArray

A = TypeVar("A")


class PatternBackend(Protocol):
    """The plan of one pattern, ready to run."""

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        """Propagate one case; see `jtgpu.backends.base.Backend.run_case`."""

    def run(self, table: Table[A]) -> A:
        """Answer a table of cases; see `jtgpu.backends.base.Backend.run`."""

    def session(self) -> Session:
        """A session of the split model."""

    def pattern_work(self, targets: Sequence[int] | None = None) -> int:
        """Cost of a case, in the units of `Backend.work`."""

    def pattern_memory(self, targets: Sequence[int] | None = None) -> int:
        """Bytes of the tables of a case."""

    def close(self) -> None:
        """Free the memory."""


class SplitPatternBackend(MappedBackend):
    """`PatternBackend` of a split model: its cases observe the split variables and no others."""

    _outer: tuple[StateMap, StateMap] | None = None

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        if states is None:
            return super().run_case(evidence, targets)
        outer = self._outer
        if outer is None or outer[0] is not states:
            self._outer = outer = states, self.states.within(states)
        return self.backend.run_case(evidence, self.states.columns(targets).targets, outer[1])

    @property
    def _seen(self) -> NDArray[np.bool_]:
        return self.states.fixed[self.states.source]

    def pattern_work(self, targets: Sequence[int] | None = None) -> int:
        """Multiplications of a case."""
        return self.backend.work(self._seen, self.states.columns(targets).targets)

    def pattern_memory(self, targets: Sequence[int] | None = None) -> int:
        """Bytes of the tables of a case."""
        return self.backend.memory(self._seen, self.states.columns(targets).targets)


class Pattern:
    """The state of one pattern; changed under the lock of its `PatternCache`."""

    def __init__(self) -> None:
        self.spent = 0  # cost of its cases so far
        self.future: Future[PatternBackend | None] | None = None  # the new plan, once it is being made
        self.settled = False  # whether `new` is final
        self.new: PatternBackend | None = None
        self.bytes = 0  # of the new plan's tables
        self.users = 0  # queries that use the new plan now
        self.dropped = False  # whether the last user closes it
        self.reason = ""  # why there is a new plan, or none

    def __repr__(self) -> str:
        state = "own plan" if self.new is not None else "usual plan" if self.settled else "not settled"
        return f"Pattern({state}{': ' if self.reason else ''}{self.reason})"


def _resolve(pattern: Pattern, new: PatternBackend | None) -> bool:
    """Set the result of a pattern's future; False if it was set before."""
    assert pattern.future is not None
    try:
        pattern.future.set_result(new)
    except InvalidStateError:
        return False
    return True


def _close(plans: Sequence[PatternBackend]) -> None:
    for new in plans:
        new.close()
