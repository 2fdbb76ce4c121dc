"""Slices of a tree too large for one memory, answered by actors of a Ray cluster.

A slice is pure: doing it twice changes nothing. Ray starts a lost actor anew and gives it its tasks again; the sum is
made where the case is, in the order of the slices, so that it has the same bits wherever they were answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import BackendUnavailable
from .connect import Cluster, Share, as_cluster, connect, understood

if TYPE_CHECKING:
    from ..backends.wrappers.conditioned import Executor, Partial, SliceJob, SliceTask

__all__ = ["RaySlices"]

AHEAD = 2  # tasks of an actor: the one that it answers and the one that it finds then


class RaySlices:
    """Makes executors on a cluster: ``plan.compile("cpu", executor=RaySlices("auto"))``.

    Parameters
    ----------
    cluster : str or Cluster
        See `jtgpu.cluster.Cluster`; what it takes is taken until the tree is closed. A cluster that this connects to
        stays connected: slices are answered one query after the other.
    """

    def __init__(self, cluster: str | Cluster = "auto"):
        self.cluster = as_cluster(cluster)

    def __call__(self, job: SliceJob) -> Executor:
        """Actors that know a job, which is sent once."""
        ray = connect(self.cluster)
        backend = job.prepare.__module__.rpartition("backends.")[2].partition(".")[0]
        share = Share.of(self.cluster, ray.cluster_resources(), backend, 2**31)
        return _OnRay(ray, replace(job, options=share.options(job.options)), share)


class _Slicer:
    """What an actor is."""

    def __init__(self, job: list[Any]):
        import ray

        opened: SliceJob = ray.get(job[0])
        self._worker = opened.open()

    def run(self, task: SliceTask) -> Partial:
        return self._worker.run(task)


class _OnRay:
    """`jtgpu.backends.wrappers.conditioned.Executor`."""

    def __init__(self, ray: Any, job: SliceJob, share: Share):
        self._ray = ray
        self._job = [ray.put(job)]  # held here, so that an actor that is started anew finds it
        kind = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=-1, max_task_retries=-1)(_Slicer)
        self._actors = [kind.remote(self._job) for _ in range(share.workers)]

    def run(self, tasks: Iterable[SliceTask]) -> Iterator[tuple[int, Partial]]:
        """See `jtgpu.backends.wrappers.conditioned.Executor.run`."""
        if not self._actors:
            raise BackendUnavailable("this executor is closed")
        ray, coming = self._ray, enumerate(tasks)
        out: dict[Any, tuple[int, Any]] = {}  # what is being answered: the task's number, and who does it
        try:
            for actor in [a for _ in range(AHEAD) for a in self._actors]:
                self._give(coming, actor, out)
            while out:
                ready, _ = ray.wait(list(out), num_returns=1)
                number, actor = out.pop(ready[0])
                partial = ray.get(ready[0])
                self._give(coming, actor, out)
                yield number, partial
        except ray.exceptions.RayError as error:
            raise understood(error, BackendUnavailable) from None
        finally:
            for reference in out:
                ray.cancel(reference)

    def _give(self, coming: Iterator[tuple[int, SliceTask]], actor: Any, out: dict[Any, tuple[int, Any]]) -> None:
        found = next(coming, None)
        if found is not None:
            out[actor.run.remote(found[1])] = found[0], actor

    def close(self) -> None:
        """See `jtgpu.backends.wrappers.conditioned.Executor.close`."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors.clear()
        self._job.clear()
