"""Several devices as one backend: single cases run on the first one, tables of cases on all of them.

Each device has a worker, a backend of its own; the workers differ in a few options of their ``prepare``. A worker gets
the plan and the numbers once, when it has work for the first time. Every row is computed on its own and written to its
place in one common result, so results are bit-identical for any number of devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ...errors import BackendUnavailable, TableTooLarge
from ..base import Backend, Capabilities, Evidence, Prepare, Result, Session, columns_of
from ..table import COUNTS, ON_DEVICE, CountSums, Table, TableAnswer, refuse
from .row_queue import HeldParts, JoinedCases, RowQueue, count
from .workers import Closable, Lazy, WorkerPool

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan
    from ..slices import SlicePasses
    from ..state_map import StateMap

A = TypeVar("A")
C = TypeVar("C", bound=Closable)

MIN_ROWS = 4096  # of a worker: with fewer rows each, more workers gain nothing, however little a row costs
MIN_WORK = 1_000_000_000  # operations of a worker from which on more workers pay: a millisecond of a GPU
MIN_ROWS_WITH_WORK = 64
CHUNKS = 4  # per worker on average, if the workers do not choose their own chunks
MAX_CHUNK = 1 << 16  # rows of such a chunk


class DevicePool:
    """A `jtgpu.backends.base.Prepare` that makes a worker on each of several devices."""
    # prepare: Of the workers' backend
    # each: sequence of (str, mapping): The name of each worker in messages, and its own options; at least one

    def __init__(self, prepare: Prepare, each: Sequence[tuple[str, Mapping[str, Any]]]):
        self.prepare, self.each = prepare, [(name, dict(options)) for name, options in each]

    def __call__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], **options: Any) -> MultiDevice:
        """A backend of all these workers; the first is made now, so that wrong options raise now."""
        numbers = [factors]  # workers that are made after a reload get the new ones
        workers = self.workers(lambda own: self.prepare(plan, numbers[0], **{**own, **options}))

        def replace(new: Sequence[NDArray[np.float64]]) -> None:
            numbers[0] = new

        return MultiDevice(plan, workers, replace)

    def workers(self, make: Callable[[Mapping[str, Any]], C]) -> list[tuple[str, Lazy[C]]]:
        """An object on each device, made from the worker's own options; the first one is made now."""

        def making(own: Mapping[str, Any]) -> Callable[[], C]:
            return lambda: make(own)

        workers = [(name, Lazy(making(own))) for name, own in self.each]
        workers[0][1].get()
        return workers


class MultiDevice(Backend):
    """A `jtgpu.backends.base.Backend` of workers that share its work. Thread-safe."""
    # workers: sequence of (str, Lazy): All of the same plan and numbers; closed with this object
    # replace: Sets the numbers of the workers that are made from now on

    def __init__(
        self, plan: Plan, workers: Sequence[tuple[str, Lazy[Backend]]],
        replace: Callable[[Sequence[NDArray[np.float64]]], None],
    ):  # fmt: skip
        self._plan, self._replace = plan, replace
        self._pool = WorkerPool(workers)
        self._flops = plan.cost().flops

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the workers."""
        return tuple(w.name for w in self._pool.workers)

    @property
    def _first(self) -> Backend:
        return self._pool.workers[0].object.get()

    @property
    def device(self) -> Any:
        """The first worker's device; None if it has none."""
        return getattr(self._first, "device", None)

    @property
    def capabilities(self) -> Capabilities:
        """Those of a worker that all of them have; no answers on a device, one table more than there are workers."""
        first = self._first.capabilities
        return Capabilities(
            first.device_name, concurrent_tables=len(self._pool) + 1, native_columns=first.native_columns,
            holds_cases=first.holds_cases,
        )  # fmt: skip

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        """See `jtgpu.backends.base.Backend.run_case`: on the first worker that works."""
        return self._on_first(lambda backend: backend.run_case(evidence, targets))

    def session(self) -> Session:
        """See `jtgpu.backends.base.Backend.session`: of the first worker that works."""
        return self._on_first(lambda backend: backend.session())

    def _on_first(self, query: Callable[[Backend], A]) -> A:
        full: TableTooLarge | None = None
        for worker in self._pool.workers:
            if worker.error is not None:
                continue
            try:
                return query(worker.object.get())
            except BackendUnavailable as error:
                self._pool.retire(worker, error)
            except TableTooLarge as error:  # another worker may have the memory
                full = full or error
        if full is not None:
            raise full
        raise BackendUnavailable(self._pool.no_worker())

    def run(self, table: Table[A]) -> A:
        """See `jtgpu.backends.base.Backend.run`.

        A table uses all idle workers, up to as many as pay for its size; tables from several threads share them.
        """
        # raises TableTooLarge, BackendUnavailable: If no worker is left; the message names them.
        refuse(self, table, ON_DEVICE)
        if table.deliver is COUNTS:
            counts = cast("Table[CountSums]", table)
            holds = self.capabilities.holds_cases
            return cast("A", count(self, counts) if holds else self._on_first(lambda backend: backend.run(counts)))
        job = self._on_first(lambda backend: backend.share(table)) or _ChunkedTable(self._plan, table, len(self._pool))
        most = self._workers_for(job.n)
        rows = RowQueue(job.n, most)

        def work(worker: Lazy[Backend], _: int) -> None:
            job.answer(worker.get(), rows)

        while rows.left:
            with closing(self._pool.run(range(most), work, most, stop=rows.stop)) as completed:
                for _ in completed:
                    pass
        return cast("A", job.result())

    def _workers_for(self, n: int) -> int:
        """Number of workers that pay for a table of n rows."""
        by_work = min(n // MIN_ROWS_WITH_WORK, n * self._flops // MIN_WORK)
        return max(1, min(len(self._pool), max(n // MIN_ROWS, by_work)))

    def hold(self, table: Table[CountSums]) -> Table[CountSums]:
        """See `jtgpu.backends.base.Backend.hold`: every worker holds parts, as many workers as pay."""
        n = self._workers_for(table.n)
        held: list[HeldParts] = []
        try:
            for i, worker in enumerate(self._pool.workers[:n]):
                backend: Any = worker.object.get()
                held.append(backend.hold_parts(table, (i, n)))
        except BaseException:
            for some in held:
                some.close()
            raise
        return table._replace(feed=JoinedCases(self._plan, table.feed, held))

    def slices(self, *with_sets: Any) -> SlicePasses | None:
        """See `jtgpu.backends.base.Backend.slices`: groups of sequences go to idle workers."""
        made: list[Any] = [worker.object.get().slices(*with_sets) for worker in self._pool.workers]
        return None if None in made else made[0].joined(made[1:])

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """See `jtgpu.backends.base.Backend.reload`: of every worker that has been made."""
        self._replace(factors)
        for worker in self._pool.workers:
            backend = worker.object.made
            if backend is not None:
                backend.reload(factors)

    def close(self) -> None:
        for worker in self._pool.workers:
            worker.object.close()


class _ChunkedTable:
    """A `Job` for workers that do not share tables: each chunk is a table of its own."""

    def __init__(self, plan: Plan, table: Table[Any], workers: int):
        self._table = table
        self._rows = Table.of(table.feed.rows(), table.likelihood, table.targets)
        n, columns = table.n, len(columns_of(plan.posterior_ptr, table.targets))
        self._answer = TableAnswer(np.empty((n, columns)), np.empty(n), np.empty(n, np.bool_))
        self._step = max(min(-(-n // (CHUNKS * workers)), MAX_CHUNK), 1)

    @property
    def n(self) -> int:
        return self._table.n

    def answer(self, worker: Backend, rows: RowQueue) -> None:
        lane = rows.join()
        while (chunk := rows.take(self._step, lane)) is not None:
            try:
                some = slice(*chunk)
                self._answer.put(some, worker.run(self._rows.some(some)))
            except BaseException:
                rows.put_back(*chunk)
                raise

    def result(self) -> TableAnswer:
        answer: TableAnswer = self._table.delivered(self._answer)
        return answer
