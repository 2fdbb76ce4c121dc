"""A function of many tasks on a cluster; its results in the order of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Generic, TypeVar

from ..errors import JtgpuError
from .connect import Cluster, Share, as_cluster, connected, translate_error

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class TaskRunner(Generic[T, R]):
    """Runs tasks of one function, as often as is necessary; Ray repeats those of a worker that is lost.

    Parameters
    ----------
    cluster : str or Cluster
    work : callable
        A pure function of a module: ``work(shared, task, threads)``. Arrays in `shared` are read-only.
    shared : object
        Sent to each machine once.
    backend : {"cpu", "gpu"}
        With ``"gpu"`` each worker has a GPU.

    Attributes
    ----------
    workers : int
        Number of tasks that run at the same time.

    Raises
    ------
    JtgpuError
        If there is no such cluster.
    """

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
        """The result of each task, in order.

        Raises
        ------
        JtgpuError
            If the cluster fails; errors of the function of the package's own types.
        """
        if not self._sent:
            raise JtgpuError("these workers are closed")
        ray, waiting = self._ray, enumerate(tasks)
        running: dict[Any, int] = {}
        done: dict[int, R] = {}
        n_yielded = 0
        try:
            while True:
                while len(running) < self.workers and (found := next(waiting, None)) is not None:
                    running[self._function.remote(self._sent[0], found[1], self._threads)] = found[0]
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1)
                number = running.pop(ready[0])
                done[number] = ray.get(ready[0])
                while n_yielded in done:
                    yield done.pop(n_yielded)
                    n_yielded += 1
        except ray.exceptions.RayError as error:
            raise translate_error(error) from None
        finally:
            for reference in running:
                ray.cancel(reference)

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
    """Run tasks once.

    Parameters
    ----------
    cluster, work, shared, backend
        See `TaskRunner`.
    divide : callable
        The tasks for a number of workers.

    Yields
    ------
    object
        The result of each task, in order.

    Raises
    ------
    JtgpuError
        If there is no such cluster, or it fails; errors of `work` of the package's own types.
    """
    runner: TaskRunner[T, R] = TaskRunner(cluster, work, shared, backend)
    try:
        yield from runner.run(divide(runner.workers))
    finally:
        runner.close()
