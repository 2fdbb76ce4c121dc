"""Slices of a model too large for one memory, answered by actors of a Ray cluster.

A slice is a pure function, so Ray may restart a lost actor and run its tasks again. The process with the case adds the
results in the order of the slices, so a result is bit-identical on any cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import BackendUnavailable
from .connect import Cluster, Share, as_cluster, connect, translate_error

if TYPE_CHECKING:
    from ..backends.wrappers.slices import Executor, Partial, SliceJob, SliceTask

TASKS_PER_ACTOR = 2  # one runs and one waits


class RaySlices:
    """Makes executors on a cluster: ``plan.compile("cpu", executor=RaySlices("auto"))``.

    Parameters
    ----------
    cluster : str or Cluster
        See `jtgpu.cluster.Cluster`. Its workers are reserved until the tree is closed, and the connection stays open
        between queries.
    """

    def __init__(self, cluster: str | Cluster = "auto"):
        self.cluster = as_cluster(cluster)

    def __call__(self, job: SliceJob) -> Executor:
        """Start the actors; the job is sent to each once."""
        ray = connect(self.cluster)
        share = Share.of(self.cluster, ray.cluster_resources(), job.backend, 2**31)
        return _RayExecutor(ray, replace(job, options=share.options(job.options)), share)


class _SliceActor:
    """The class of the actors."""

    def __init__(self, job: list[Any]):
        import ray

        opened: SliceJob = ray.get(job[0])
        self._worker = opened.open()

    def run(self, task: SliceTask) -> Partial:
        return self._worker.run(task)


class _RayExecutor:
    """`jtgpu.backends.wrappers.slices.Executor` with workers on a cluster."""

    def __init__(self, ray: Any, job: SliceJob, share: Share):
        self._ray = ray
        self._job = [ray.put(job)]  # the reference keeps the job alive for actors that are restarted
        kind = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=-1, max_task_retries=-1)(_SliceActor)
        self._actors = [kind.remote(self._job) for _ in range(share.workers)]

    def run(self, tasks: Iterable[SliceTask]) -> Iterator[tuple[int, Partial]]:
        if not self._actors:
            raise BackendUnavailable("this executor is closed")
        ray, coming = self._ray, enumerate(tasks)
        running: dict[Any, tuple[int, Any]] = {}  # reference -> the task's number, and the actor that runs it
        try:
            for actor in [a for _ in range(TASKS_PER_ACTOR) for a in self._actors]:
                self._submit(coming, actor, running)
            while running:
                ready, _ = ray.wait(list(running), num_returns=1)
                number, actor = running.pop(ready[0])
                partial = ray.get(ready[0])
                self._submit(coming, actor, running)
                yield number, partial
        except ray.exceptions.RayError as error:
            raise translate_error(error, BackendUnavailable) from None
        finally:
            for reference in running:
                ray.cancel(reference)

    def _submit(
        self, coming: Iterator[tuple[int, SliceTask]], actor: Any, running: dict[Any, tuple[int, Any]]
    ) -> None:
        """Submit the next task, if there is one, to an actor."""
        found = next(coming, None)
        if found is not None:
            running[actor.run.remote(found[1])] = found[0], actor

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors.clear()
        self._job.clear()
