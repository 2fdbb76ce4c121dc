"""Tables of cases on the CPU: rows sorted by what they have observed, many rows in one sweep, all cores.

Rows that observe the same variables share a program that is cut to them, where there are enough of them to pay for it.
What is left over runs either with a program that takes any evidence on the variables that some row observes, or row by
row, whichever has fewer terms. Threads share all of this as one list of tasks: a pattern that few rows have is one
task, the deriving of its program included; many rows of a pattern are several.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import ImpossibleEvidence
from ..base import BatchResult, Evidence, columns_of
from .lanes import run_lanes
from .patterns import rows_by_pattern
from .workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .engine import Cpu, Kept

__all__ = ["answer_batch"]

LANES = (64, 32, 16, 8)  # cases side by side: at most as many as have tables that fit CACHE
CACHE = 1 << 20  # bytes
FEW = 4  # rows that are answered one by one
ENOUGH = 8  # rows of one pattern, at least, that may pay for a program of their own
DERIVE = 2_000_000  # terms that take as long as deriving a program
MOST_ARENA = 256 << 20  # bytes of one thread's tables; where eight cases take more, rows are answered one by one
MOST_MEMORY = 512 << 20  # bytes of those of all threads of a call
TASK = 1000.0  # us of work that a thread takes at a time, about

# What a sweep takes, in us, measured on networks from alarm to pigs: right within a third
PER_SWEEP, PER_RECORD, PER_LOAD, PER_TERM = 5.0, 0.2, 0.1, 4e-4
PER_GROUP, PER_DERIVED_RECORD = 100.0, 0.6  # what a program of its own costs before its first sweep


class _Way(NamedTuple):
    """How rows can be answered with programs of one kind, and what that takes, in us."""

    lanes: int  # at most; 0: row by row
    bytes: int  # of the tables of that many lanes
    sweep: float  # of one sweep, whatever the number of lanes
    lane: float  # more for each lane
    program: float  # to have one

    def best(self, n: int) -> int:
        """How many lanes answer n rows in least time."""
        return min((w for w in LANES if w <= self.lanes), key=lambda w: -(-n // w) * (self.sweep + w * self.lane))

    @property
    def row(self) -> float:
        """Of a row among many."""
        return self.lane + self.sweep / self.lanes


ROW_BY_ROW = _Way(0, 1, 0.0, 0.0, 0.0)


class _Group:
    """Rows that are answered in the same way, by threads of which the first derives the program."""

    def __init__(self, rows: NDArray[np.int64], seen: NDArray[np.bool_], soft: tuple[int, ...], way: _Way):
        self.rows, self.bytes, self._seen, self._soft = rows, way.bytes, seen, soft
        per_task = max(int(TASK / way.row), 1) if way.lanes else 1
        self._lanes = way.best(min(len(rows), per_task)) if way.lanes else 0
        self._step = -(-per_task // self._lanes) * self._lanes if way.lanes else 1
        self._left = len(range(0, len(rows), self._step))  # tasks
        self._lock = threading.Lock()
        self._kept: Kept | None = None

    def tasks(self) -> Iterator[tuple[int, int]]:
        """First and last row of each."""
        for first in range(0, len(self.rows), self._step):
            yield first, min(first + self._step, len(self.rows))

    def program(self, backend: Cpu, targets: Sequence[int] | None) -> tuple[Kept, int] | None:
        """The program and its lanes; None: row by row."""
        if not self._lanes:
            return None
        with self._lock:
            if self._kept is None:
                self._kept = backend.programs.get(self._seen, self._soft, targets, lanes=self._lanes)
                sweeps = -(-len(self.rows) // self._lanes)
                self._kept.leave_out_zeros(backend.numbers, backend.cards, self._lanes, sweeps)
            return self._kept, self._lanes

    def done(self) -> None:
        """A task is done; behind the last one the program goes: there may be many groups."""
        with self._lock:
            self._left -= 1
            if not self._left:
                self._kept = None


class _Table:
    """The rows of one call, and where their answers go."""

    def __init__(
        self, backend: Cpu, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]],
        targets: Sequence[int] | None,
    ):  # fmt: skip
        plan = backend.plan
        self.backend, self.targets = backend, targets
        self.states = np.ascontiguousarray(states, np.int32)
        self.likelihood = {int(v): np.asarray(w, np.float64) for v, w in sorted(likelihood.items())}
        self.weights, self.weight_ptr, self.log_scale = self._weights()
        self.place = np.full(plan.n_variables, -1, np.int64)  # by rank
        at = 0
        for v in range(plan.n_variables) if targets is None else dict.fromkeys(targets):
            self.place[plan.axis_rank[v]] = at
            at += int(plan.cardinality[v])
        self._columns = columns_of(plan.posterior_ptr, targets)
        n = len(self.states)
        self.posterior = np.empty((n, at))
        self.log_evidence = np.empty(n)
        self.impossible = np.zeros(n, np.bool_)

    def _weights(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """The likelihoods side by side, each scaled by a power of two; where they begin, by rank; and what was taken
        out of each row, as a natural logarithm."""
        n = len(self.states)
        ptr = np.full(self.backend.plan.n_variables, -1, np.int64)
        log_scale = np.zeros(n)
        parts, at = [], 0
        for v, w in self.likelihood.items():
            top = w.max(axis=1, initial=0.0)
            shift = np.where(top > 0, np.frexp(top)[1], 0)
            log_scale += shift * np.log(2.0)
            ptr[self.backend.plan.axis_rank[v]] = at
            parts.append(np.ldexp(w, -shift[:, None]))
            at += w.shape[1]
        return (np.ascontiguousarray(np.hstack(parts)) if parts else np.zeros((n, 0))), ptr, log_scale

    def run(self, groups: list[_Group]) -> None:
        """Answer all rows of some groups, on all cores."""
        # the largest first: what is left at the end is small and keeps no thread waiting
        order = sorted(range(len(groups)), key=lambda g: (-len(groups[g].rows), g))

        def work(group: _Group, first: int, last: int) -> None:
            found = group.program(self.backend, self.targets)
            if found is None:
                self._run_rows(group.rows[first:last])
            else:
                self._run_lanes(*found, group.rows, first, last)
            group.done()

        tasks = [partial(work, groups[g], *rows) for g in order for rows in groups[g].tasks()]
        on_all_cores(tasks, self.backend, max(MOST_MEMORY // max(g.bytes for g in groups), 1))

    def _run_lanes(self, kept: Kept, lanes: int, rows: NDArray[np.int64], first: int, last: int) -> None:
        """Answer some rows with a program of so many lanes."""
        backend, p = self.backend, kept.program
        space = backend.take()
        try:
            exponent, scaled = self._room(space, kept, lanes)
            run_lanes(
                space.arena, exponent, scaled, p.records, p.record_ptr, p.loads, p.load_ptr, p.roots, p.answers,
                backend.plan.axis_rank[kept.hard], backend.cards, self.place, rows, self.states, backend.by_rank,
                self.weights, self.weight_ptr, backend.limit, first, last, lanes, self.posterior, self.log_evidence,
                self.impossible, *space.arrays,
            )  # fmt: skip
        finally:
            backend.give_back(space)

    def _room(self, space: Workspace, kept: Kept, lanes: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        space.fit(kept.program)
        space.fit_arena(int(kept.program.counts[0]))
        numbers = self.backend.numbers
        exponent = np.zeros((len(numbers.exponent), lanes), np.int64)
        exponent[:] = numbers.exponent[:, None]
        return exponent, numbers.exponent != 0

    def _run_rows(self, rows: NDArray[np.int64]) -> None:
        """Answer rows one by one, each with a program of its own."""
        for row in rows.tolist():
            case = Evidence(self.states[row], {v: w[row] for v, w in self.likelihood.items()})
            try:
                result = self.backend.run(case, self.targets)
            except ImpossibleEvidence:
                self.posterior[row], self.log_evidence[row], self.impossible[row] = 0.0, -np.inf, True
                continue
            self.posterior[row] = result.posterior[self._columns]
            self.log_evidence[row] = result.log_evidence - self.log_scale[row]


def answer_batch(
    backend: Cpu,
    states: NDArray[np.int32],
    likelihood: Mapping[int, NDArray[np.float64]],
    targets: Sequence[int] | None,
) -> BatchResult:
    """See `jtgpu.backends.base.Backend.run_batch`."""
    table = _Table(backend, states, likelihood, targets)
    if len(table.states):
        table.run(_groups(table))
    posterior = table.posterior
    if targets is not None and len(set(targets)) < len(targets):  # a target that is asked for twice stands twice
        once = list(dict.fromkeys(targets))
        start = dict(zip(once, np.cumsum([0, *backend.plan.cardinality[once]]).tolist(), strict=False))
        columns = [np.arange(start[v], start[v] + backend.plan.cardinality[v]) for v in targets]
        posterior = posterior[:, np.concatenate(columns)]
    return BatchResult(posterior, table.log_evidence + table.log_scale, table.impossible)


def _groups(table: _Table) -> list[_Group]:
    """The rows of a table by the programs that answer them."""
    backend, soft = table.backend, tuple(table.likelihood)
    ignored = np.zeros(backend.plan.n_variables, np.bool_)
    ignored[list(soft)] = True  # weighed and observed: the weights of a lane take the state in
    if len(table.states) < FEW:
        return [_Group(np.arange(len(table.states)), ignored, soft, ROW_BY_ROW)]
    rows, ptr = rows_by_pattern(table.states, ignored)
    size = np.diff(ptr)
    seen = (table.states[rows[ptr[:-1]]] >= 0) & ~ignored  # of each pattern
    way = _way(table, seen[int(size.argmax())], soft)
    enough = _enough(way, _way(table, *_weighed(seen, soft)), len(rows)) if len(size) > 1 else 1
    groups = [_Group(rows[ptr[g] : ptr[g + 1]], seen[g], soft, way) for g in np.flatnonzero(size >= enough).tolist()]
    rare = np.flatnonzero(size < enough)
    if len(rare):
        left = np.sort(np.concatenate([rows[ptr[g] : ptr[g + 1]] for g in rare.tolist()]))
        groups.append(_rest(table, left, seen[rare], soft))
    return groups


def _enough(own: _Way, general: _Way, n: int) -> int:
    """How many of n rows must have a pattern to pay for a program of their own, where others are answered with one that
    takes any evidence."""
    if not own.lanes or not general.lanes:
        return ENOUGH
    saved = general.row - own.row
    return max(ENOUGH, int((own.program + own.sweep) / saved)) if saved > 0 else n + 1


def _weighed(seen: NDArray[np.bool_], soft: tuple[int, ...]) -> tuple[NDArray[np.bool_], tuple[int, ...]]:
    """What rows of several patterns all observe, and what is weighed where they share a program."""
    always = np.asarray(seen.all(axis=0))
    some = np.flatnonzero(seen.any(axis=0) & ~always).tolist()
    return always, tuple(sorted({*soft, *some}))


def _rest(table: _Table, rows: NDArray[np.int64], seen: NDArray[np.bool_], soft: tuple[int, ...]) -> _Group:
    """Rows of patterns that are rare; `seen`: what each of the patterns has observed."""
    always, weighed = _weighed(seen, soft)
    way = _way(table, always, weighed)
    if way.lanes:
        get, targets = table.backend.programs.get, table.targets
        each = get(always, weighed, targets, lanes=way.lanes).terms / way.lanes
        if len(rows) < FEW or get(seen[0], soft, targets).terms + DERIVE < each:
            way = ROW_BY_ROW
    return _Group(rows, always, weighed, way)


def _way(table: _Table, seen: NDArray[np.bool_], soft: tuple[int, ...]) -> _Way:
    """How rows of a pattern can be answered: with as many lanes as have tables that fit the cache, else eight; row by
    row where eight take too much memory. It does not depend on the number of threads, nor do the last bits."""
    backend, targets = table.backend, table.targets
    single = backend.programs.get(seen, soft, targets)
    cells = int(single.program.counts[0]) - backend.numbers.answers
    lanes = next((n for n in LANES if 8 * n * cells <= CACHE), LANES[-1])
    if 8 * lanes * cells > MOST_ARENA:
        return ROW_BY_ROW
    kept = backend.programs.get(seen, soft, targets, lanes=lanes)
    n_records, n_loads = len(kept.program.record_ptr) - 1, len(kept.program.load_ptr) - 1
    return _Way(
        lanes, max(8 * lanes * cells, 1), PER_SWEEP + PER_RECORD * n_records + PER_LOAD * n_loads,
        PER_TERM * kept.terms / lanes, PER_GROUP + PER_DERIVED_RECORD * n_records,
    )  # fmt: skip


def on_all_cores(tasks: Sequence[Callable[[], None]], backend: Cpu, most: int) -> None:
    """Call every task, on this thread and those that the backend can spare, at most so many of them; the first error
    ends it all."""
    turn, lock = iter(tasks), threading.Lock()
    errors: list[BaseException] = []

    def serve() -> None:
        while not errors:
            with lock:
                task = next(turn, None)
            if task is None:
                return
            try:
                task()
            except BaseException as error:
                errors.append(error)

    def help_out() -> None:
        try:
            serve()
        finally:
            backend.spare.release()

    others: list[threading.Thread] = []
    try:
        # several calls at the same time share the backend's threads
        while len(others) < min(len(tasks), most) - 1 and backend.spare.acquire(blocking=False):
            others.append(threading.Thread(target=help_out, name="jtgpu-batch"))
            try:
                others[-1].start()
            except RuntimeError:  # the system has no more of them: those that there are do it
                backend.spare.release()
                break
        serve()
    except BaseException as error:  # Ctrl-C between two tasks: what the others write to is theirs until they end
        errors.append(error)
    for thread in others:
        if thread.ident is not None:
            thread.join()
    if errors:
        raise errors[0]
