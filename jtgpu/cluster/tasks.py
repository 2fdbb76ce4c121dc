"""A function of many tasks on a cluster; its results in the order of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from .connect import Cluster, Share, as_cluster, connected, translate_error

__all__ = ["run_tasks"]

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


def run_tasks(
    cluster: str | Cluster,
    work: Callable[[S, T, int], R],
    shared: S,
    divide: Callable[[int], Sequence[T]],
    backend: str,
) -> Generator[R]:
    """Run tasks; Ray repeats those of a worker that is lost.

    Parameters
    ----------
    cluster : str or Cluster
    work : callable
        A pure function of a module: ``work(shared, task, threads)``. Arrays in `shared` are read-only.
    shared : object
        Sent to each machine once.
    divide : callable
        The tasks for a number of workers.
    backend : {"cpu", "gpu"}
        With ``"gpu"`` each worker has a GPU.

    Yields
    ------
    object
        The result of each task, in order.

    Raises
    ------
    JtgpuError
        If there is no such cluster, or it fails; errors of `work` of the package's own types.
    """
    cluster = as_cluster(cluster)
    with connected(cluster) as ray:
        share = Share.of(cluster, ray.cluster_resources(), backend)
        function = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_retries=-1)(work)
        sent = ray.put(shared)
        waiting = enumerate(divide(share.workers))
        running: dict[Any, int] = {}
        done: dict[int, R] = {}
        n_yielded = 0
        try:
            while True:
                while len(running) < share.workers and (found := next(waiting, None)) is not None:
                    running[function.remote(sent, found[1], share.threads)] = found[0]
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
