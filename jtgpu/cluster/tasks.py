"""A function of many tasks on a cluster; its results in the order of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from ..backends.table import CountSums, Table
from ..backends.wrappers.cutset import in_order
from ..errors import JtgpuError
from ..inference.queries.counts import counting_backend
from ..plans.plan import Plan
from ..util.arrays import Floats
from .connect import Cluster, Share, as_cluster, completed, connect, connected, import_ray

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class TaskRunner(Generic[T, R]):
    """Runs tasks of one function, as often as is necessary; Ray repeats those of a worker that is lost."""
    # work: a pure function of a module, ``work(shared, task, threads)``; arrays in `shared` are read-only
    # shared: sent to each machine once; `backend` "gpu": each worker has a GPU; `workers`: tasks that run at a time

    def __init__(self, cluster: str | Cluster, work: Callable[[S, T, int], R], shared: S, backend: str = "cpu"):
        cluster = as_cluster(cluster)
        self._sent: list[Any] = []
        self._connection = ExitStack()
        try:
            self._ray = self._connection.enter_context(connected(cluster))
            share = Share.of(cluster, self._ray.cluster_resources(), backend)
            self.workers, self._threads = share.workers, share.threads
            self._function = self._ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_retries=-1)(work)
            self._sent = [self._ray.put(shared)]
        except BaseException:
            self.close()
            raise

    def run(self, tasks: Iterable[T]) -> Generator[R]:
        """The result of each task, in order; raises `JtgpuError` if the cluster fails, and errors of the function."""
        if not self._sent:
            raise JtgpuError("these workers are closed")

        def submit(_: int, task: T) -> Any:
            return self._function.remote(self._sent[0], task, self._threads)

        yield from in_order(completed(self._ray, range(self.workers), submit, tasks))

    def close(self) -> None:
        """Free what was sent, and disconnect, unless the process was connected before; may be called twice."""
        self._sent.clear()
        self._connection.close()


def run_tasks(
    cluster: str | Cluster,
    work: Callable[[S, T, int], R],
    shared: S,
    divide: Callable[[int], Sequence[T]],
    backend: str,
) -> Generator[R]:
    """Run the tasks that `divide` makes for a number of workers once, as a `TaskRunner`; their results, in order."""
    runner: TaskRunner[T, R] = TaskRunner(cluster, work, shared, backend)
    try:
        yield from runner.run(divide(runner.workers))
    finally:
        runner.close()


# Expected counts on a cluster: the E-step of `jtgpu.learn.fit` over parts of the rows.
#
# Parts are put into Ray's object store once; every pass sends the CPTs, and counts come back. The process that leads
# adds them in the order of the parts, so that a fit is bit-identical for any number of workers, and without a
# cluster.

TASKS_PER_ACTOR = 2  # one runs and one waits

Tables = Sequence[Floats]
# rows that are counted in one call: states (n, V), weights (n,), and likelihoods (n, card) by variable
Piece = Table[CountSums]


class CountJob(NamedTuple):
    """The job of a worker; sent once."""

    plan: Plan
    tables: Tables
    backend: str
    threads: int


class CountWorker:
    """Counts parts, each with the CPTs of a pass."""

    def __init__(self, job: CountJob):
        self._backend = counting_backend(job.backend, job.plan, [*job.tables], job.threads)
        self._pass = -1

    def count(self, number: int, tables: Tables, part: Sequence[Piece]) -> list[CountSums]:
        """Expected counts of the pieces of a part in pass `number`."""
        if number != self._pass:
            self._backend.reload([np.array(t) for t in tables])
            self._pass = number
        return [self._backend.run(_writable(piece)) for piece in part]


def _writable(piece: Table[CountSums]) -> Table[CountSums]:
    """A copy: arrays of the object store are read-only, which compiled loops do not take."""
    likelihood = {v: np.array(w) for v, w in piece.likelihood.items()}
    return Table.counts(np.array(piece.feed.rows()), np.array(piece.weights_or_ones), likelihood)


class _CountActor:
    """The class of the actors."""

    def __init__(self, job: list[Any]):
        import ray

        self._worker = CountWorker(ray.get(job[0]))

    def count(self, number: int, tables: Any, part: Any) -> list[CountSums]:
        return self._worker.count(number, tables, part)


class ClusterCounts:
    """Counts parts of rows on a cluster, pass after pass; its workers are reserved until `close`."""
    # tables: CPTs to prepare the workers with; backend: "cpu" or "reference"

    def __init__(
        self, cluster: str | Cluster, plan: Plan, tables: Tables, backend: str, parts: Iterable[Sequence[Piece]]
    ):
        self._was_connected = import_ray().is_initialized()
        cluster = as_cluster(cluster)
        ray = self._ray = connect(cluster)
        self._actors: list[Any] = []
        try:
            self._parts = [ray.put(list(part)) for part in parts]
            share = Share.of(cluster, ray.cluster_resources(), "cpu", max(len(self._parts), 1))
            self._job = [ray.put(CountJob(plan, tables, backend, share.threads))]
            kind = ray.remote(num_cpus=share.cpus, max_restarts=-1, max_task_retries=-1)(_CountActor)
            self._actors = [kind.remote(self._job) for _ in range(share.workers)]
        except BaseException:
            self.close()
            raise
        self._passes = 0

    def count(self, tables: Tables) -> Iterator[list[CountSums]]:
        """Expected counts of the pieces of each part, part after part."""
        if not self._actors:
            raise JtgpuError("these workers are closed")
        number, sent = self._passes, self._ray.put([*tables])
        self._passes += 1

        def submit(actor: Any, part: Any) -> Any:
            return actor.count.remote(number, sent, part)

        yield from in_order(completed(self._ray, self._actors * TASKS_PER_ACTOR, submit, self._parts))

    def close(self) -> None:
        """Release the workers and the parts."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors.clear()
        self._parts = []
        self._job = []
        if not self._was_connected and self._ray.is_initialized():
            self._ray.shutdown()
