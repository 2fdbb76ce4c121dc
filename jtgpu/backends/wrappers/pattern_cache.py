"""Plans for evidence patterns that recur; `jtgpu.backends.wrappers.pattern` says why, and has the rule."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...errors import JtgpuError
from ...plans.compiler import plan_model
from ...plans.conditioning import SplitModel
from ...util.rows import find_equal_rows
from ...util.system import new_lock, reset_in_child
from ..base import Backend, Capabilities, Evidence, Result, Session, TableAnswer, columns_of
from ..table import COLUMNS, ROWS, RowCases, Table
from .delegating import DelegatingBackend
from .mapped import split_states
from .pattern import Pattern, PatternBackend, SplitPatternBackend, _close, _resolve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan
    from ..base import Prepare
    from ..state_map import StateMap

A = TypeVar("A")

# In multiplications: the cost of planning, per variable; measured at 0.1 to 2.7 ms per variable on a core that does 5e9
# a second. A plan is made once the pattern has cost as much, so the total is at most twice the optimum.
PLANNING = 3_000_000
MIN_COST = 200_000  # multiplications of a case below which nothing is counted
REQUIRED_GAIN = 0.8  # share of the work that a new plan may need at most
MAX_PATTERNS = 4096  # counted, the last used ones
MAX_PLANS = 16  # cached, the last used ones
MEMORY_SHARE = 0.5  # of the default plan's memory that all their tables may occupy; one plan always stays


class PatternCache(DelegatingBackend):
    """A backend around another one, with plans for patterns. Thread-safe: no query waits while another one plans."""

    # Equal queries in the same order give bit-identical results (on a GPU while measurements lead to the same decision)
    # backend: of the plan and the factors; prepare: makes another one, unless a subclass implements `make`
    background = False  # whether a background thread makes the plans

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], backend: Backend, prepare: Prepare | None = None
    ):
        super().__init__(backend)
        self._plan, self._factors, self._prepare = plan, factors, prepare
        self._patterns: OrderedDict[Any, Pattern] = OrderedDict()
        self._lock = new_lock()
        reset_in_child(self, PatternCache._forget_pending)
        self._open = True
        self._threshold = self.planning_cost()

    def _forget_pending(self) -> None:
        """After a fork: plans that threads of the parent make never come, and their queries release nothing."""
        for pattern in self._patterns.values():
            pattern.users = 0
            if not pattern.settled:
                pattern.future = None

    def planning_cost(self) -> int:
        """Cost of a pattern's cases from which on a plan is made."""
        return PLANNING * self._plan.n_variables

    def min_cost(self) -> int:
        """Cost of a case below which no plan is made."""
        return MIN_COST

    def make(self, seen: NDArray[np.bool_]) -> PatternBackend:
        """A backend for cases that observe these variables, (V,) bool, whether it is faster or not."""
        assert self._prepare is not None
        split = SplitModel(self._plan.cardinality, self._plan.factor_scopes, seen)
        plan, _ = plan_model(split.model(self._factors), cache=False)
        return SplitPatternBackend(split_states(split, is_whole=True), self._prepare(plan, self._factors))

    def improve(
        self, seen: NDArray[np.bool_], targets: Sequence[int] | None, work: int
    ) -> tuple[PatternBackend | None, str]:
        """A backend for a pattern, (V,) bool, if it is faster than the default one, and the reason for the decision."""
        # work: cost of a case by the default plan
        new = self.make(seen)
        try:
            left = new.pattern_work(targets)
            reason = f"{left:,} of {work:,} multiplications"
            if left <= REQUIRED_GAIN * work:
                return new, reason
        except BaseException:
            new.close()
            raise
        new.close()
        return None, reason

    def acquire(self, seen: NDArray[np.bool_], targets: Sequence[int] | None, coming: int = 1) -> Pattern | None:
        """Reserve the own plan of a pattern for `coming` cases, until `release`, and make it now if that pays."""
        observed = seen.tobytes()
        if 1 not in observed:
            return None
        key = observed, None if targets is None else tuple(targets)
        with self._lock:
            if not self._open:
                return None
            pattern, closing = self._counted(key)
            if pattern.settled:
                pattern.users += pattern.new is not None
                return pattern if pattern.new is not None else None
        _close(closing)
        work = self.backend.work(seen, targets)
        with self._lock:
            if work < self.min_cost():
                pattern.settled = True
                return None
            pattern.spent += coming * work
            if pattern.spent < self._threshold:
                return None
            mine = pattern.future is None
            if mine:
                pattern.future = Future()
            elif not self.background or pattern.spent < 2 * self._threshold:
                return None
        given = pattern, seen.copy(), targets, work
        if mine and self.background:
            try:
                threading.Thread(target=self._settle, args=given, name="jtgpu-plan").start()
            except BaseException:  # an interrupt, or no more threads: no query may wait for this plan
                _resolve(pattern, None)
                raise
            return None
        if mine:
            self._settle(*given)
        return self._taken(pattern, targets)

    def _counted(self, key: Any) -> tuple[Pattern, list[PatternBackend]]:
        """The pattern, now the last used one; and plans to close, of patterns that are dropped for it."""
        closing: list[PatternBackend] = []
        pattern = self._patterns.get(key)
        if pattern is not None:
            self._patterns.move_to_end(key)
            return pattern, closing
        pattern = self._patterns[key] = Pattern()
        while len(self._patterns) > MAX_PATTERNS:
            closing += self._drop(next(iter(self._patterns)))
        return pattern, closing

    def _settle(self, pattern: Pattern, seen: NDArray[np.bool_], targets: Sequence[int] | None, work: int) -> None:
        """Make a pattern's plan, or decide that it gets none."""
        assert pattern.future is not None
        new: PatternBackend | None = None
        try:
            new, pattern.reason = self.improve(seen, targets, work)
        except (JtgpuError, MemoryError) as error:  # too large: the default plan answers
            pattern.reason = str(error)
        except Exception:
            pattern.reason = "an error"
            if not self.background:
                raise
            # slower answers are better than a failure of something that nobody requested
            logging.getLogger("jtgpu").warning("planning for an evidence pattern failed", exc_info=True)
        finally:
            if not _resolve(pattern, new) and new is not None:
                new.close()
        if pattern.dropped:  # no query will use it
            self._taken(pattern, targets)

    def _taken(self, pattern: Pattern, targets: Sequence[int] | None) -> Pattern | None:
        """Wait for a pattern's new plan, which answers from now on."""
        assert pattern.future is not None
        new = pattern.future.result()
        closing: list[PatternBackend] = []
        with self._lock:
            if not pattern.settled:
                pattern.settled = True
                if new is not None and (pattern.dropped or not self._open):
                    closing.append(new)
                elif new is not None:
                    pattern.new, pattern.bytes = new, new.pattern_memory(targets)
                    closing += self._make_room()
            usable = pattern.new is not None and not pattern.dropped
            pattern.users += usable
        _close(closing)
        return pattern if usable else None

    def release(self, pattern: Pattern) -> None:
        """Return a pattern that `acquire` gave to a query."""
        with self._lock:
            pattern.users -= 1
            last = pattern.dropped and not pattern.users
        if last and pattern.new is not None:
            pattern.new.close()

    def _make_room(self) -> list[PatternBackend]:
        """Drop the plans that were not used for the longest time until the others fit; returns those to close."""
        closing: list[PatternBackend] = []
        planned = [k for k, p in self._patterns.items() if p.new is not None]
        total = sum(self._patterns[k].bytes for k in planned)
        for old in planned[:-1]:
            if len(planned) <= MAX_PLANS and total <= MEMORY_SHARE * self._plan.cost().bytes:
                break
            total -= self._patterns[old].bytes
            planned.remove(old)
            closing += self._drop(old)
        return closing

    def _drop(self, key: Any) -> list[PatternBackend]:
        """Drop a pattern; returns its plan if no query uses it, to be closed."""
        pattern = self._patterns.pop(key)
        pattern.dropped = True
        return [pattern.new] if pattern.new is not None and not pattern.users else []

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.backend.capabilities, is_adaptive=True)

    @property
    def takes_maps(self) -> bool:  # type: ignore[override]
        return self.backend.takes_maps

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        if self.has_sets(evidence.likelihood, targets):
            return self.backend.run_case(evidence, targets, states)
        pattern = self.acquire(evidence.state >= 0, targets)
        if pattern is None or pattern.new is None:
            return self.backend.run_case(evidence, targets, states)
        try:
            return pattern.new.run_case(evidence, targets, states)
        finally:
            self.release(pattern)

    def run(self, table: Table[A]) -> A:
        by_case = table.deliver is ROWS or table.deliver is COLUMNS
        if not by_case or self.has_sets(table.likelihood, table.targets):
            return self.backend.run(table)
        states = table.feed.rows()
        groups = self._groups(states, table.targets)
        if not groups:
            return self.backend.run(table)
        columns = len(columns_of(self._plan.posterior_ptr, table.targets))
        answer = TableAnswer.impossible_cases(len(states), columns)
        whole = Table(RowCases(states), ROWS, table.likelihood, table.targets)
        rest = np.ones(len(states), np.bool_)
        try:
            for rows, pattern in groups:
                assert pattern.new is not None
                rest[rows] = False
                answer.put(rows, pattern.new.run(whole.some(rows)))
        finally:
            for _, pattern in groups:
                self.release(pattern)
        others = np.flatnonzero(rest)
        if len(others):
            answer.put(others, self.backend.run(whole.some(others)))
        return table.delivered(answer)

    def has_sets(self, likelihood: Iterable[int], targets: Sequence[int] | None) -> bool:
        """Whether a query is about sets of variables: their plans for patterns do not have these."""
        return bool(self._plan.sets) and any(v >= self._plan.n_variables for v in (*likelihood, *(targets or ())))

    def _groups(
        self, states: NDArray[np.int32], targets: Sequence[int] | None
    ) -> list[tuple[NDArray[np.int64], Pattern]]:
        """Rows whose patterns have their own plans; the caller releases each pattern."""
        equal = find_equal_rows(np.packbits(states >= 0, axis=1))
        if equal is None or len(equal.first) > MAX_PATTERNS:  # no pattern recurs, or none often
            return []
        groups = []
        for i, count in enumerate(np.bincount(equal.kind).tolist()):
            if count > 1:
                pattern = self.acquire(states[equal.first[i]] >= 0, targets, count)
                if pattern is not None:
                    groups.append((np.flatnonzero(equal.kind == i), pattern))
        return groups

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """Forget all patterns: answers have the bits of a new backend."""
        self.backend.reload(factors)
        with self._lock:
            self._factors = factors
            closing = [new for key in list(self._patterns) for new in self._drop(key)]
        _close(closing)

    def session(self) -> Session:
        return PatternSession(self, MAX_PLANS)

    def __repr__(self) -> str:
        with self._lock:
            settled = [p for p in self._patterns.values() if p.settled and p.future is not None]
            decisions = "; ".join(map(repr, settled))
            return f"{type(self).__name__}({len(self._patterns)} patterns seen{': ' if decisions else ''}{decisions})"

    def close(self) -> None:
        """Close all plans; waits for one that is being made."""
        self.backend.close()
        with self._lock:
            self._open = False
            patterns = list(self._patterns.values())
            closing = [new for key in list(self._patterns) for new in self._drop(key)]
        _close(closing)
        for pattern in patterns:
            if pattern.future is not None:
                self._taken(pattern, None)


class PatternSession:
    """A session of the default plan, and one for each pattern with its own plan."""

    def __init__(self, backend: PatternCache, most: int):
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
        return entry[1].run(evidence, targets)

    def _end(self, pattern: Pattern, session: Session) -> None:
        session.close()
        self._backend.release(pattern)

    def close(self) -> None:
        if self._default is not None:
            self._default.close()
        self._default = None
        while self._others:
            self._end(*self._others.popitem()[1])
