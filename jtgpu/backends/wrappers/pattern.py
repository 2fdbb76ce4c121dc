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

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...errors import JtgpuError
from ...plans.conditioning import SplitModel
from ...util.lru import LRU
from ..base import Backend, BatchResult, Evidence, Likelihood, Result, Session, columns_of
from ..state_map import StateMap

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_TARGETS = 64  # sets of targets whose variables of a split model are cached, the last used ones


class SplitBackend:
    """Answers cases of the original model that observe the split variables."""
    # backend: Of a plan of ``split.model(...)``; closed with this object

    def __init__(self, split: SplitModel, backend: Backend):
        self.split, self.backend = split, backend
        cards = split.cardinality
        ptr, split_ptr = (np.concatenate([[0], np.cumsum(c)]).astype(np.int64) for c in (cards, cards[split.origin]))
        free = ~split.observed
        self._n_cells = int(ptr[-1])
        self._cells = columns_of(ptr, np.flatnonzero(free).tolist())
        self._split_cells = columns_of(split_ptr, split.first[free].tolist())
        self._observed = np.flatnonzero(split.observed)
        self._observed_cells = ptr[self._observed]
        self._needed: LRU[tuple[int, ...] | None, list[int]] = LRU(MOST_TARGETS)

    def targets(self, targets: Sequence[int] | None) -> list[int]:
        """The variables of the split model whose posteriors are needed: no observed ones."""
        key = None if targets is None else tuple(targets)
        return self._needed.get_or_make(key, lambda: self._targets(key))

    def _targets(self, targets: Sequence[int] | None) -> list[int]:
        observed, first = self.split.observed, self.split.first
        wanted = np.flatnonzero(~observed) if targets is None else np.array([*targets], np.int64)
        return list(dict.fromkeys(first[wanted[~observed[wanted]]].tolist()))

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None, session: Session | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`; `session`: a session of the backend that answers in its place."""
        first = self.split.first
        case = Evidence(evidence.state[self.split.origin], {int(first[v]): w for v, w in evidence.likelihood.items()})
        result = (self.backend if session is None else session).run(case, self.targets(targets))
        posterior = np.zeros(self._n_cells)
        posterior[self._cells] = result.posterior[self._split_cells]
        posterior[self._observed_cells + evidence.state[self._observed]] = 1.0
        return Result(posterior, result.log_evidence)

    def run_batch(
        self, states: NDArray[np.int32], likelihood: Likelihood | None = None, targets: Sequence[int] | None = None
    ) -> BatchResult:
        split, needed = self.split, self.targets(targets)
        weights = {int(split.first[v]): w for v, w in (likelihood or {}).items()}
        result = self.backend.run_batch(np.ascontiguousarray(states[:, split.origin]), weights, needed)
        cards = split.cardinality
        begins = np.cumsum([0, *cards[split.origin[needed]].tolist()]).tolist()
        begin_of = dict(zip(needed, begins, strict=False))
        wanted = range(len(cards)) if targets is None else targets
        posterior = np.zeros((len(states), int(sum(cards[v] for v in wanted))))
        rows = np.flatnonzero(~result.impossible)
        column = 0
        for v in wanted:
            card = int(cards[v])
            if split.observed[v]:
                posterior[rows, column + states[rows, v]] = 1.0
            else:
                begin = begin_of[int(split.first[v])]
                posterior[:, column : column + card] = result.posterior[:, begin : begin + card]
            column += card
        return BatchResult(posterior, result.log_evidence, result.impossible)

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """See `jtgpu.backends.base.Backend.reload`: splitting changes no factor's numbers."""
        self.backend.reload(factors)

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()


class PatternBackend(Protocol):
    """The plan of one pattern, ready to run."""

    def run(
        self, evidence: Evidence, targets: Sequence[int] | None = None, session: Session | None = None
    ) -> Result:
        """See `jtgpu.backends.base.Backend.run`; `session`: one made by `session`, which answers in its place."""

    def run_batch(
        self, states: NDArray[np.int32], likelihood: Likelihood | None = None, targets: Sequence[int] | None = None
    ) -> BatchResult:
        """Answer a table by the split model."""

    def session(self) -> Session:
        """A session of the split model."""

    def pattern_work(self, targets: Sequence[int] | None = None) -> int:
        """Cost of a case, in the units of `Backend.work`."""

    def pattern_memory(self, targets: Sequence[int] | None = None) -> int:
        """Bytes of the tables of a case."""

    def close(self) -> None:
        """Free the memory."""


class SplitPatternBackend(SplitBackend):
    """`PatternBackend` of a split model: its cases observe the split variables and no others."""

    _outer: tuple[StateMap, StateMap] | None = None

    @cached_property
    def _map(self) -> StateMap:
        split = self.split
        inside = np.ones(int(split.cardinality.sum()), np.bool_)
        return StateMap(split.origin, split.cardinality, inside, split.observed[split.origin])

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None, session: Session | None = None) -> Result:
        if session is None and not evidence.likelihood:
            mapped = self.backend.run_mapped(self._map, evidence, self.targets(targets))
            if mapped is not None:
                return mapped
        return super().run(evidence, targets, session)

    def run_mapped(self, states: StateMap, evidence: Evidence, targets: Sequence[int] | None = None) -> Result | None:
        """The answer to a case of the model outside of `states`, without likelihoods; None: not supported."""
        outer = self._outer
        if outer is None or outer[0] is not states:
            self._outer = outer = states, self._map.within(states)
        return self.backend.run_mapped(outer[1], evidence, self.targets(targets))

    def pattern_work(self, targets: Sequence[int] | None = None) -> int:
        """Multiplications of a case."""
        return self.backend.work(self.split.observed[self.split.origin], self.targets(targets))

    def pattern_memory(self, targets: Sequence[int] | None = None) -> int:
        """Bytes of the tables of a case."""
        return self.backend.memory(self.split.observed[self.split.origin], self.targets(targets))

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


class Patterns(Protocol):
    """The part of a `PatternCache` that a session uses."""

    backend: Backend

    def has_sets(self, likelihood: Iterable[int], targets: Sequence[int] | None) -> bool:
        """Whether a query is about sets of variables."""

    def acquire(self, seen: NDArray[np.bool_], targets: Sequence[int] | None) -> Pattern | None:
        """The pattern of a case, until `release`, if it has its own plan."""

    def release(self, pattern: Pattern) -> None:
        """Return a pattern."""


class PatternSession:
    """A session of the default plan, and one for each pattern with its own plan."""

    def __init__(self, backend: Patterns, most: int):
        self._backend, self._most = backend, most  # sessions
        self._default: Session | None = backend.backend.session()
        self._others: OrderedDict[int, tuple[Pattern, Session]] = OrderedDict()

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        if self._default is None:
            raise JtgpuError("this session is closed")
        if self._backend.has_sets(evidence.likelihood, targets):
            return self._default.run(evidence, targets)
        pattern = self._backend.acquire(evidence.state >= 0, targets)
        if pattern is None or pattern.new is None:
            return self._default.run(evidence, targets)
        entry = self._others.pop(id(pattern), None)
        if entry is None:
            entry = pattern, pattern.new.session()  # holds what `acquire` gave until `_end`
        else:
            self._backend.release(pattern)
        self._others[id(pattern)] = entry
        while len(self._others) > self._most:
            self._end(*self._others.popitem(last=False)[1])
        return pattern.new.run(evidence, targets, entry[1])

    def _end(self, pattern: Pattern, session: Session) -> None:
        session.close()
        self._backend.release(pattern)

    def close(self) -> None:
        if self._default is not None:
            self._default.close()
        self._default = None
        while self._others:
            self._end(*self._others.popitem()[1])
