"""A tree of its own for evidence patterns that come again and again.

Evidence cuts a network: observed variables connect nothing any more, and an elimination order that was good without
them may be far from the best one that is left (Barley with a fifth observed: 15 times the work). For a pattern that
has cost enough by then, the network is planned anew with every observed variable taken apart (`jtgpu.apart`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .apart import Apart, ApartBackend
from .backends.base import Backend, BatchResult, Evidence, Result, Session, columns_of
from .errors import JtgpuError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .plan import Plan

__all__ = ["Measured", "Replanned", "Replanning"]

# In multiplications: what it takes to plan anew, for each variable; measured at 0.1 to 2.7 ms a variable of one core
# that does 5e9 a second. A pattern is planned for once it has cost that much, so never more than twice what was needed.
PLANNING = 3_000_000
WORTH = 200_000  # multiplications of a case below which nothing is counted
GAIN = 0.8  # share of the work that a new plan may leave at most
MOST_PATTERNS = 4096  # counted, the last seen ones
MOST_PLANS = 16  # kept, the last used ones
MEMORY_SHARE = 0.5  # of what the usual plan promised that all their tables together may take; one is always kept


class Measured(Backend, Protocol):
    """A backend that knows how much a case is."""

    def work(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Multiplications of a case that observes these variables, (V,) bool."""

    def memory(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Bytes of the tables that such a case takes."""


Prepare = Callable[["Plan", Sequence["NDArray[np.float64]"]], Measured]


class Replanned(ApartBackend):
    """A backend for one pattern."""

    def __init__(self, apart: Apart, backend: Measured):
        super().__init__(apart, backend)
        self._measured = backend

    def work(self, targets: Sequence[int] | None = None) -> int:
        """Multiplications of a case."""
        return self._measured.work(self.apart.seen[self.apart.of], self.targets(targets))

    def memory(self, targets: Sequence[int] | None = None) -> int:
        """Bytes of the tables of a case."""
        return self._measured.memory(self.apart.seen[self.apart.of], self.targets(targets))


class _Pattern:
    """What is known of a pattern."""

    def __init__(self) -> None:
        self.spent = 0  # multiplications so far
        self.tried = False
        self.bytes = 0  # of the new plan's tables
        self.new: Replanned | None = None


class Replanning:
    """`jtgpu.backends.base.Backend` around another one, which answers until a pattern has a plan of its own.

    The same queries in the same order give the same bits; before and after a new plan the last digits may differ.

    Parameters
    ----------
    plan : Plan
    factors : sequence of arrays
    backend : Measured
        Of the plan and the factors; closed with this one.
    prepare : callable
        Makes another one like it.
    """

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], backend: Measured, prepare: Prepare
    ):
        self._plan, self._factors, self.backend, self._prepare = plan, factors, backend, prepare
        self._patterns: OrderedDict[Any, _Pattern] = OrderedDict()
        self._lock = threading.Lock()
        self._threshold = PLANNING * plan.n_variables

    def find(self, seen: NDArray[np.bool_], targets: Sequence[int] | None, coming: int = 1) -> Replanned | None:
        """The plan of a pattern of `coming` cases, made now if that pays; None: the usual one serves."""
        if not seen.any():
            return None
        key = seen.tobytes(), None if targets is None else tuple(targets)
        with self._lock:
            pattern = self._patterns.get(key)
            if pattern is None:
                pattern = self._patterns[key] = _Pattern()
                while len(self._patterns) > MOST_PATTERNS:
                    self._forget(next(iter(self._patterns)))
            else:
                self._patterns.move_to_end(key)
            if pattern.tried:
                return pattern.new
            work = self.backend.work(seen, targets)
            pattern.spent += coming * work
            if work < WORTH or pattern.spent < self._threshold:
                return None
            pattern.tried = True
            pattern.new = self._make(seen, targets, work)
            if pattern.new is not None:
                pattern.bytes = pattern.new.memory(targets)
                self._make_room()
            return pattern.new

    def _make_room(self) -> None:
        """Forget the plans that were not used for longest, until all the others take little memory."""
        kept = [k for k, p in self._patterns.items() if p.new is not None]
        total = sum(self._patterns[k].bytes for k in kept)
        for old in kept[:-1]:
            if len(kept) <= MOST_PLANS and total <= MEMORY_SHARE * self._plan.cost().bytes:
                break
            total -= self._patterns[old].bytes
            kept.remove(old)
            self._forget(old)

    def _make(self, seen: NDArray[np.bool_], targets: Sequence[int] | None, work: int) -> Replanned | None:
        apart = Apart(self._plan.cardinality, self._plan.factor_scopes, seen.copy())
        try:
            made: Any = apart.model(self._factors).plan(cache=False)
            new = Replanned(apart, self._prepare(made.plan, self._factors))
        except (JtgpuError, MemoryError):  # too large: what there is serves
            return None
        if new.work(targets) <= GAIN * work:
            return new
        new.close()
        return None

    def _forget(self, key: Any) -> None:
        # not closed: another thread may be in it; its memory goes with the last who holds it
        del self._patterns[key]

    def work(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """See `Measured.work`; of the usual plan."""
        return self.backend.work(seen, targets)

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`."""
        found = self.find(evidence.state >= 0, targets)
        return self.backend.run(evidence, targets) if found is None else found.run(evidence, targets)

    def run_batch(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None = None,
        targets: Sequence[int] | None = None,
    ) -> BatchResult:
        """See `jtgpu.backends.base.Backend.run_batch`."""
        weights = dict(likelihood or {})
        groups = self._groups(states, targets)
        if not groups:
            return self.backend.run_batch(states, likelihood, targets)
        columns = len(columns_of(self._plan.posterior_ptr, targets))
        n = len(states)
        answer = BatchResult(np.zeros((n, columns)), np.full(n, -np.inf), np.zeros(n, np.bool_))
        rest = np.ones(n, np.bool_)
        parts: list[tuple[NDArray[np.int64], BatchResult]] = []
        for rows, new in groups:
            rest[rows] = False
            parts.append((rows, new.run_batch(states[rows], {v: w[rows] for v, w in weights.items()}, targets)))
        others = np.flatnonzero(rest)
        if len(others):
            some = {v: w[others] for v, w in weights.items()}
            parts.append((others, self.backend.run_batch(np.ascontiguousarray(states[others]), some, targets)))
        for rows, part in parts:
            answer.posterior[rows] = part.posterior
            answer.log_evidence[rows] = part.log_evidence
            answer.impossible[rows] = part.impossible
        return answer

    def _groups(
        self, states: NDArray[np.int32], targets: Sequence[int] | None
    ) -> list[tuple[NDArray[np.int64], Replanned]]:
        """Rows whose patterns have plans of their own."""
        if not len(states):
            return []
        _, first, pattern, count = np.unique(
            np.packbits(states >= 0, axis=1), axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        if len(first) > MOST_PATTERNS:  # none of them comes often
            return []
        groups = []
        for i in np.argsort(first).tolist():
            if count[i] > 1:
                found = self.find(states[first[i]] >= 0, targets, int(count[i]))
                if found is not None:
                    groups.append((np.flatnonzero(pattern.ravel() == i), found))
        return groups

    def session(self) -> Session:
        """See `jtgpu.backends.base.Backend.session`."""
        return _Session(self)

    def close(self) -> None:
        """See `jtgpu.backends.base.Backend.close`."""
        self.backend.close()
        with self._lock:
            for pattern in self._patterns.values():
                if pattern.new is not None:
                    pattern.new.close()
            self._patterns.clear()


class _Session:
    """A session of the usual plan, and one of every pattern's that comes up."""

    def __init__(self, backend: Replanning):
        self._backend = backend
        self._usual: Session | None = backend.backend.session()
        self._others: OrderedDict[int, tuple[Replanned, Session]] = OrderedDict()

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Session.run`."""
        if self._usual is None:
            raise JtgpuError("this session is closed")
        found = self._backend.find(evidence.state >= 0, targets)
        if found is None:
            return self._usual.run(evidence, targets)
        kept = self._others.pop(id(found), None) or (found, found.backend.session())
        self._others[id(found)] = kept  # the pair holds `found`, so its number stays its own
        while len(self._others) > MOST_PLANS:
            self._others.popitem(last=False)[1][1].close()
        return found.run(evidence, targets, kept[1])

    def close(self) -> None:
        """See `jtgpu.backends.base.Session.close`."""
        if self._usual is not None:
            self._usual.close()
        self._usual = None
        for _, session in self._others.values():
            session.close()
        self._others.clear()
