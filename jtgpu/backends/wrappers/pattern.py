"""One evidence pattern of a `PatternCache`, and the backend that answers its cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from ...plans.conditioning.split import SplitModel
from ..base import Backend, BatchResult, Evidence, Result, Session
from .split import SplitBackend

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...plans.plan import Plan


class CostedBackend(Backend, Protocol):
    """A backend that predicts the cost of a case."""

    def work(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Cost of a case that observes these variables, (V,) bool: multiplications, or nanoseconds."""

    def memory(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Bytes of the tables of such a case."""


class PatternBackend(Protocol):
    """The plan of one pattern, ready to run."""

    def run(
        self, evidence: Evidence, targets: Sequence[int] | None = None, session: Session | None = None
    ) -> Result:
        """See `jtgpu.backends.base.Backend.run`; `session`: one made by `session`, which answers in its place."""

    def run_batch(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None = None,
        targets: Sequence[int] | None = None,
    ) -> BatchResult:
        """See `jtgpu.backends.base.Backend.run_batch`."""

    def session(self) -> Session:
        """See `jtgpu.backends.base.Backend.session`."""

    def work(self, targets: Sequence[int] | None = None) -> int:
        """Cost of a case, in the units of `CostedBackend.work`."""

    def memory(self, targets: Sequence[int] | None = None) -> int:
        """Bytes of the tables of a case."""

    def close(self) -> None:
        """Free the memory."""


Prepare = Callable[["Plan", Sequence["NDArray[np.float64]"]], CostedBackend]


class SplitPatternBackend(SplitBackend):
    """`PatternBackend` of a split model."""

    def __init__(self, split: SplitModel, backend: CostedBackend):
        super().__init__(split, backend)
        self._costed = backend

    def work(self, targets: Sequence[int] | None = None) -> int:
        """Multiplications of a case."""
        return self._costed.work(self.split.observed[self.split.origin], self.targets(targets))

    def memory(self, targets: Sequence[int] | None = None) -> int:
        """Bytes of the tables of a case."""
        return self._costed.memory(self.split.observed[self.split.origin], self.targets(targets))

    def session(self) -> Session:
        return self.backend.session()


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
