"""A plan of its own for evidence patterns that come again and again.

Evidence cuts a network: observed variables connect nothing any more, and an elimination order that was good without
them may be far from the best one that is left (Barley with a fifth observed: 15 times the work). For a pattern that
has cost enough by then, the network is planned anew: on the CPU with every observed variable taken apart
(`jtgpu.plans.conditioning.split`), on a GPU without them (`jtgpu.plans.conditioning.restriction`).

The rule. What a case costs is predicted (multiplications on the CPU, nanoseconds of the time model on a GPU), so the
same queries in the same order meet the same plans. Once the cases of a pattern have cost as much as it takes to plan
anew, that is done: by the query that comes then on the CPU, by a thread beside the queries on a GPU, whose answer is
taken from the query on by which they have cost twice as much. A new plan is kept where it leaves at most `GAIN` of the
work on the CPU, and where it was measured to be quicker on a GPU. Plans that were not used for longest go when all of
them take more memory than half of what the usual plan promised; their memory goes back with the last query that is
under way.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...errors import JtgpuError
from ...plans.conditioning.split import Apart, ApartBackend
from ..base import Backend, BackendDefaults, BatchResult, Evidence, Result, Session, columns_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan

__all__ = ["Measured", "OfPattern", "Pattern", "Replanned", "Replanning"]

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
        """What a case costs that observes these variables, (V,) bool: multiplications, or nanoseconds."""

    def memory(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Bytes of the tables that such a case takes."""


class OfPattern(Protocol):
    """A plan of its own, ready to run."""

    def run(
        self, evidence: Evidence, targets: Sequence[int] | None = None, session: Session | None = None
    ) -> Result:
        """See `jtgpu.backends.base.Backend.run`; `session`: one of `session` to ask in its place."""

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
        """What a case costs, in the units of `Measured.work`."""

    def memory(self, targets: Sequence[int] | None = None) -> int:
        """Bytes of the tables of a case."""

    def close(self) -> None:
        """Give memory back."""


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

    def session(self) -> Session:
        """See `OfPattern.session`."""
        return self.backend.session()


class Pattern:
    """What is known of a pattern. Changed under its `Replanning`'s lock."""

    def __init__(self) -> None:
        self.spent = 0  # what its cases have cost so far
        self.future: Future[OfPattern | None] | None = None  # of the new plan, once it is being made
        self.settled = False  # whether `new` is what there will be
        self.new: OfPattern | None = None
        self.bytes = 0  # of the new plan's tables
        self.users = 0  # queries that use it now
        self.dropped = False  # the last user closes it
        self.told = ""  # why there is a new plan, or none

    def __repr__(self) -> str:
        state = "of its own" if self.new is not None else "usual" if self.settled else "not settled"
        return f"Pattern({state}{': ' if self.told else ''}{self.told})"


class Replanning(BackendDefaults):
    """`jtgpu.backends.base.Backend` around another one, which answers until a pattern has a plan of its own.

    The same queries in the same order give the same bits, on a GPU as long as measuring comes to the same decision;
    before and after a new plan the last digits may differ. ``repr()`` tells what was decided for the patterns.
    Safe to use from several threads: none waits while another one plans.

    Parameters
    ----------
    plan : Plan
    factors : sequence of arrays
    backend : Measured
        Of the plan and the factors; closed with this one.
    prepare : callable
        Makes another one like it.
    """

    beside = False  # whether plans are made by a thread beside the queries

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], backend: Measured, prepare: Prepare | None = None
    ):
        self._plan, self._factors, self.backend, self._prepare = plan, factors, backend, prepare
        self._patterns: OrderedDict[Any, Pattern] = OrderedDict()
        self._lock = threading.Lock()
        self._open = True
        self._threshold = self.planning_cost()

    # The rule -------------------------------------------------------------------------------------------------

    def planning_cost(self) -> int:
        """What a pattern must have cost."""
        return PLANNING * self._plan.n_variables

    def worth(self) -> int:
        """What a case must cost at least."""
        return WORTH

    def gain(self) -> float:
        """The share of the work that a new plan may leave at most."""
        return GAIN

    def make(self, seen: NDArray[np.bool_]) -> OfPattern:
        """A plan of its own for observing these variables, (V,) bool."""
        assert self._prepare is not None
        apart = Apart(self._plan.cardinality, self._plan.factor_scopes, seen)
        made: Any = apart.model(self._factors).plan(cache=False)
        return Replanned(apart, self._prepare(made.plan, self._factors))

    def better(
        self, seen: NDArray[np.bool_], targets: Sequence[int] | None, work: int
    ) -> tuple[OfPattern | None, str]:
        """A plan of its own where it is worth having, and why it is or is not.

        Parameters
        ----------
        seen : (V,) bool
        targets : sequence of int, optional
        work : int
            What a case costs by the usual plan.
        """
        new = self.make(seen)
        try:
            left = new.work(targets)
            told = f"{left:,} of {work:,} multiplications"
            if left <= self.gain() * work:
                return new, told
        except BaseException:
            new.close()
            raise
        new.close()
        return None, told

    def find(self, seen: NDArray[np.bool_], targets: Sequence[int] | None, coming: int = 1) -> Pattern | None:
        """A pattern of `coming` cases that has a plan of its own, in its ``new``, made now if that pays; to be given
        back with `release`. None: the usual plan serves."""
        if not seen.any():
            return None
        key = seen.tobytes(), None if targets is None else tuple(targets)
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
            pattern.spent += coming * work
            if work < self.worth() or pattern.spent < self._threshold:
                return None
            mine = pattern.future is None
            if mine:
                pattern.future = Future()
            elif not self.beside or pattern.spent < 2 * self._threshold:
                return None
        given = pattern, seen.copy(), targets, work
        if mine and self.beside:
            try:
                threading.Thread(target=self._settle, args=given, name="jtgpu-plan").start()
            except BaseException:  # an interrupt, or no more threads: nobody may wait for this plan
                _resolve(pattern, None)
                raise
            return None
        if mine:
            self._settle(*given)
        return self._taken(pattern, targets)

    def _counted(self, key: Any) -> tuple[Pattern, list[OfPattern]]:
        """The pattern, as the last one used; and what is to be closed, since too many are counted."""
        closing: list[OfPattern] = []
        pattern = self._patterns.get(key)
        if pattern is not None:
            self._patterns.move_to_end(key)
            return pattern, closing
        pattern = self._patterns[key] = Pattern()
        while len(self._patterns) > MOST_PATTERNS:
            closing += self._forget(next(iter(self._patterns)))
        return pattern, closing

    def _settle(
        self, pattern: Pattern, seen: NDArray[np.bool_], targets: Sequence[int] | None, work: int
    ) -> None:
        """Make a pattern's plan, or find that there is none worth having."""
        assert pattern.future is not None
        new: OfPattern | None = None
        try:
            new, pattern.told = self.better(seen, targets, work)
        except (JtgpuError, MemoryError) as error:  # too large: what there is serves
            pattern.told = str(error)
        except Exception:
            pattern.told = "a mistake"
            if not self.beside:
                raise
            # of a thread's own: it is better to be slow than to fail where nobody asked for this
            logging.getLogger("jtgpu").warning("no plan could be made for an evidence pattern", exc_info=True)
        finally:
            if not _resolve(pattern, new) and new is not None:
                new.close()
        if pattern.dropped:  # nobody will ask for it any more
            self._taken(pattern, targets)

    def _taken(self, pattern: Pattern, targets: Sequence[int] | None) -> Pattern | None:
        """Wait for a pattern's new plan, and make it what answers from now on."""
        assert pattern.future is not None
        new = pattern.future.result()
        closing: list[OfPattern] = []
        with self._lock:
            if not pattern.settled:
                pattern.settled = True
                if new is not None and (pattern.dropped or not self._open):
                    closing.append(new)
                elif new is not None:
                    pattern.new, pattern.bytes = new, new.memory(targets)
                    closing += self._make_room()
            found = pattern.new is not None and not pattern.dropped
            pattern.users += found
        _close(closing)
        return pattern if found else None

    def release(self, pattern: Pattern) -> None:
        """A query has ended that `find` gave the pattern to."""
        with self._lock:
            pattern.users -= 1
            last = pattern.dropped and not pattern.users
        if last and pattern.new is not None:
            pattern.new.close()

    def _make_room(self) -> list[OfPattern]:
        """Forget the plans that were not used for longest, until all the others take little memory."""
        closing: list[OfPattern] = []
        kept = [k for k, p in self._patterns.items() if p.new is not None]
        total = sum(self._patterns[k].bytes for k in kept)
        for old in kept[:-1]:
            if len(kept) <= MOST_PLANS and total <= MEMORY_SHARE * self._plan.cost().bytes:
                break
            total -= self._patterns[old].bytes
            kept.remove(old)
            closing += self._forget(old)
        return closing

    def _forget(self, key: Any) -> list[OfPattern]:
        """Drop a pattern; what nobody uses is to be closed."""
        pattern = self._patterns.pop(key)
        pattern.dropped = True
        return [pattern.new] if pattern.new is not None and not pattern.users else []

    @property
    def device_name(self) -> str:
        """See `jtgpu.backends.base.Backend.device_name`."""
        return self.backend.device_name

    @property
    def max_concurrent_tables(self) -> int:
        """See `jtgpu.backends.base.Backend.max_concurrent_tables`."""
        return self.backend.max_concurrent_tables

    @property
    def native_columns(self) -> bool:
        """See `jtgpu.backends.base.Backend.native_columns`."""
        return self.backend.native_columns

    @property
    def is_adaptive(self) -> bool:
        """See `jtgpu.backends.base.Backend.is_adaptive`."""
        return True

    # A backend ------------------------------------------------------------------------------------------------

    def work(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """See `Measured.work`; of the usual plan."""
        return self.backend.work(seen, targets)

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`."""
        found = self.find(evidence.state >= 0, targets)
        if found is None or found.new is None:
            return self.backend.run(evidence, targets)
        try:
            return found.new.run(evidence, targets)
        finally:
            self.release(found)

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
        try:
            for rows, found in groups:
                assert found.new is not None
                rest[rows] = False
                given = {v: w[rows] for v, w in weights.items()}
                parts.append((rows, found.new.run_batch(states[rows], given, targets)))
        finally:
            for _, found in groups:
                self.release(found)
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
    ) -> list[tuple[NDArray[np.int64], Pattern]]:
        """Rows whose patterns have plans of their own; each is to be released."""
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

    def __repr__(self) -> str:
        with self._lock:
            settled = [p for p in self._patterns.values() if p.settled]
            told = "; ".join(map(repr, settled))
            return f"{type(self).__name__}({len(self._patterns)} patterns seen{': ' if told else ''}{told})"

    def close(self) -> None:
        """See `jtgpu.backends.base.Backend.close`; waits for a plan that is being made."""
        self.backend.close()
        with self._lock:
            self._open = False
            patterns = list(self._patterns.values())
            closing = [new for key in list(self._patterns) for new in self._forget(key)]
        _close(closing)
        for pattern in patterns:
            if pattern.future is not None:
                self._taken(pattern, None)


def _resolve(pattern: Pattern, new: OfPattern | None) -> bool:
    """Say what came of a pattern's plan, unless that was said before; whether it was not."""
    assert pattern.future is not None
    try:
        pattern.future.set_result(new)
    except InvalidStateError:
        return False
    return True


def _close(plans: Sequence[OfPattern]) -> None:
    for new in plans:
        new.close()


class _Session:
    """A session of the usual plan, and one of every pattern's that comes up."""

    def __init__(self, backend: Replanning):
        self._backend = backend
        self._usual: Session | None = backend.backend.session()
        self._others: OrderedDict[int, tuple[Pattern, Session]] = OrderedDict()

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Session.run`."""
        if self._usual is None:
            raise JtgpuError("this session is closed")
        found = self._backend.find(evidence.state >= 0, targets)
        if found is None or found.new is None:
            return self._usual.run(evidence, targets)
        kept = self._others.pop(id(found), None)
        if kept is None:
            kept = found, found.new.session()  # and what `find` gave stays with this session
        else:
            self._backend.release(found)
        self._others[id(found)] = kept
        while len(self._others) > MOST_PLANS:
            self._end(*self._others.popitem(last=False)[1])
        return found.new.run(evidence, targets, kept[1])

    def _end(self, pattern: Pattern, session: Session) -> None:
        session.close()
        self._backend.release(pattern)

    def close(self) -> None:
        """See `jtgpu.backends.base.Session.close`."""
        if self._usual is not None:
            self._usual.close()
        self._usual = None
        while self._others:
            self._end(*self._others.popitem()[1])
