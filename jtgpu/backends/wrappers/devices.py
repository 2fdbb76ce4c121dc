"""Several workers as one backend: single cases go to the first, tables are dealt out to all of them.

A worker is a backend on a device of its own: what differs between them are a few options of their ``prepare``. Plan and
numbers go to each once, when it has work for the first time. Rows are answered one by one wherever they land, and in
the common answer's arrays; so answers have the same bits for any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np

from ...errors import BackendUnavailable, TableTooLarge
from ..base import Backend, BackendDefaults, BatchResult, ColumnResult, Evidence, Prepare, Result, Session, columns_of
from .row_queue import Deal
from .workers import Closes, Crew, Lazy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan

__all__ = ["OnDevices", "Several", "SeveralByColumns", "Shared", "SharesTables"]

A = TypeVar("A")
R = TypeVar("R", covariant=True)
C = TypeVar("C", bound=Closes)

LEAST_ROWS = 4096  # of a worker, below which more workers do not pay whatever a row costs
LEAST_WORK = 1_000_000_000  # operations of a worker from which on they do: a millisecond of a GPU
FEWEST_ROWS = 64
PIECES = 4  # that each worker gets on average where it does not take chunks from the deal itself
LARGEST = 1 << 16  # rows of such a piece


class Shared(Protocol[R]):
    """A table that several workers answer together; made by `SharesTables.share`."""

    def answer(self, worker: Any, deal: Deal) -> None:
        """Answer, on one worker, rows taken from the deal until nothing is left, in the common arrays.

        On an error, rows that were taken and not answered are given back before it is raised.
        """

    def result(self) -> R:
        """The answer, when all rows are there."""

    @property
    def n(self) -> int:
        """Rows to deal: equal ones may stand once."""


class SharesTables(Backend, Protocol):
    """A backend that can answer a part of a table in place."""

    def share(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None,
        targets: Sequence[int] | None,
    ) -> Shared[BatchResult]:
        """Read a table and make room for its answers, on the host; arguments as of `Backend.run_batch`."""

    def share_columns(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Sequence[int] | None
    ) -> Shared[ColumnResult]:
        """The same of a table by columns; arguments as of `Backend.run_columns`."""


class OnDevices:
    """`jtgpu.backends.base.Prepare` that makes a worker on each of several devices.

    Parameters
    ----------
    prepare : Prepare
        Of the workers' backend.
    each : sequence of (str, mapping)
        What each worker is called in messages, and the options that it alone gets; at least one.
    """

    def __init__(self, prepare: Prepare, each: Sequence[tuple[str, Mapping[str, Any]]]):
        self.prepare, self.each = prepare, [(name, dict(options)) for name, options in each]

    def __call__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], **options: Any) -> Several:
        """A backend of all these workers; the first is made at once, so that what is wrong is known at once."""
        workers = self.workers(lambda own: self.prepare(plan, factors, **options, **own))
        kind = SeveralByColumns if hasattr(workers[0][1].get(), "share_columns") else Several
        return kind(plan, workers)

    def workers(self, make: Callable[[Mapping[str, Any]], C]) -> list[tuple[str, Lazy[C]]]:
        """Something on each device, made from the options that are that worker's alone: the first one now."""

        def making(own: Mapping[str, Any]) -> Callable[[], C]:
            return lambda: make(own)

        workers = [(name, Lazy(making(own))) for name, own in self.each]
        workers[0][1].get()
        return workers


class Several(BackendDefaults):
    """`jtgpu.backends.base.Backend` of workers that share its work; safe to use from several threads.

    Parameters
    ----------
    plan : Plan
    workers : sequence of (str, Lazy)
        All of the same plan and numbers; closed with this object.
    """

    def __init__(self, plan: Plan, workers: Sequence[tuple[str, Lazy[Backend]]]):
        self._plan = plan
        self._crew = Crew(workers)
        self._flops = plan.cost().flops

    @property
    def names(self) -> tuple[str, ...]:
        """What the workers are called."""
        return tuple(m.name for m in self._crew.members)

    @property
    def device(self) -> Any:
        """The first worker's device; None where it has none."""
        return getattr(self._crew.members[0].worker.get(), "device", None)

    @property
    def device_name(self) -> str:
        """See `jtgpu.backends.base.Backend.device_name`: of the first worker."""
        return self._crew.members[0].worker.get().device_name

    @property
    def max_concurrent_tables(self) -> int:
        """Tables that may usefully be asked at the same time, from as many threads: one more than there are workers."""
        return len(self._crew) + 1

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`: on the first worker that works."""
        return self._on_first(lambda backend: backend.run(evidence, targets))

    def session(self) -> Session:
        """See `jtgpu.backends.base.Backend.session`: of the first worker that works."""
        return self._on_first(lambda backend: backend.session())

    def _on_first(self, ask: Callable[[Backend], A]) -> A:
        full: TableTooLarge | None = None
        for member in self._crew.members:
            if member.lost is not None:
                continue
            try:
                return ask(member.worker.get())
            except BackendUnavailable as error:
                self._crew.lose(member, error)
            except TableTooLarge as error:  # perhaps another one has the memory
                full = full or error
        if full is not None:
            raise full
        raise BackendUnavailable(self._crew.why_none())

    def run_batch(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None = None,
        targets: Sequence[int] | None = None,
    ) -> BatchResult:
        """See `jtgpu.backends.base.Backend.run_batch`.

        A table takes all workers that are free, as many as it is worth; tables asked from several threads share them.

        Raises
        ------
        TableTooLarge, BackendUnavailable
            When no worker is left that could answer, naming them.
        """

        def read(first: Backend) -> Shared[BatchResult]:
            if hasattr(first, "share"):
                return cast(SharesTables, first).share(states, likelihood, targets)
            return _Pieces(self._plan, states, likelihood, targets, len(self._crew))

        return self._deal(self._on_first(read))

    def _deal(self, shared: Shared[A]) -> A:
        most = self._worth(shared.n)
        deal = Deal(shared.n, most)

        def labour(worker: Lazy[Backend], _: int) -> None:
            shared.answer(worker.get(), deal)

        while deal.left:
            with closing(self._crew.deal(range(most), labour, most, stop=deal.stop)) as done:
                for _ in done:
                    pass
        return shared.result()

    def _worth(self, n: int) -> int:
        """Workers that a table of n rows is worth."""
        by_work = min(n // FEWEST_ROWS, n * self._flops // LEAST_WORK)
        return max(1, min(len(self._crew), max(n // LEAST_ROWS, by_work)))

    def close(self) -> None:
        """See `jtgpu.backends.base.Backend.close`."""
        for member in self._crew.members:
            member.worker.close()


class SeveralByColumns(Several):
    """Several workers that take tables by columns, too: `jtgpu.backends.base.Backend`."""

    @property
    def native_columns(self) -> bool:
        """See `jtgpu.backends.base.Backend.native_columns`."""
        return True

    def run_columns(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Sequence[int] | None = None
    ) -> ColumnResult:
        """See `jtgpu.backends.base.Backend.run_columns`; dealt out as `run_batch` does."""
        return self._deal(
            self._on_first(lambda first: cast(SharesTables, first).share_columns(variables, codes, targets))
        )


class _Pieces:
    """`Shared` for workers that know nothing of it: each piece is a table of its own."""

    def __init__(
        self,
        plan: Plan,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None,
        targets: Sequence[int] | None,
        workers: int,
    ):
        self._states, self._likelihood, self._targets = states, likelihood or {}, targets
        n, columns = len(states), len(columns_of(plan.posterior_ptr, targets))
        self._answer = BatchResult(np.empty((n, columns)), np.empty(n), np.empty(n, np.bool_))
        self._step = max(min(-(-n // (PIECES * workers)), LARGEST), 1)

    @property
    def n(self) -> int:
        """See `Shared.n`."""
        return len(self._states)

    def answer(self, worker: Backend, deal: Deal) -> None:
        """See `Shared.answer`."""
        seat = deal.seat()
        while (rows := deal.take(self._step, seat)) is not None:
            first, last = rows
            try:
                some = {v: w[first:last] for v, w in self._likelihood.items()}
                found = worker.run_batch(self._states[first:last], some, self._targets)
                self._answer.posterior[first:last] = found.posterior
                self._answer.log_evidence[first:last] = found.log_evidence
                self._answer.impossible[first:last] = found.impossible
            except BaseException:
                deal.give_back(first, last)
                raise

    def result(self) -> BatchResult:
        """See `Shared.result`."""
        return self._answer
