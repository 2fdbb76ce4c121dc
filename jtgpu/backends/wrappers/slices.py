"""Slices: single configurations of a cutset, and the executors that run them in this process or elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...errors import ImpossibleEvidence
from ...plans.conditioning.split import SplitModel
from ..base import Backend, Evidence, Prepare, columns_of
from .split import SplitBackend
from .workers import Lazy, WorkerPool

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan
    from .devices import DevicePool


@dataclass(frozen=True)
class SliceTask:
    """Some slices of one case: arrays and numbers only, so that it can be sent to another process."""

    # (V,) int32: Observed states, -1 = not observed; those of the cutset variables are ignored
    state: NDArray[np.int32]
    likelihood: Mapping[int, NDArray[np.float64]]  # variable to (card,) weights
    # (k, S) int32: States of the cutset variables, by ascending variable; a row is a slice
    configurations: NDArray[np.int32]
    targets: tuple[int, ...] | None = None  # tuple of int: Variables whose posteriors are computed; None: all


@dataclass(frozen=True)
class Partial:
    """The sum of some slices s of one case, in units of exp(top)."""

    # (C,) float64: sum_s P(x, s, e) / exp(top) for every state x of every target, target after target
    posterior: NDArray[np.float64]
    mass: float  # sum_s P(s, e) / exp(top); 0: these slices are impossible
    top: float  # logarithm of the largest P(s, e); -inf where the mass is 0

    def plus(self, other: Partial) -> Partial:
        """The sum of both."""
        if not other.mass:
            return self
        if not self.mass:
            return other
        if other.top > self.top:
            scale = math.exp(self.top - other.top)
            return Partial(self.posterior * scale + other.posterior, self.mass * scale + other.mass, other.top)
        scale = math.exp(other.top - self.top)
        return Partial(self.posterior + scale * other.posterior, self.mass + scale * other.mass, self.top)


@dataclass(frozen=True)
class SliceJob:
    """What a worker needs to answer slices: sent to it once, by pickle."""

    split: SplitModel  # the cutset variables are its observed ones
    plan: Plan  # of the split model
    factors: Sequence[NDArray[np.float64]]
    backend: str  # name of the backend
    prepare: Prepare  # the backend module's function
    options: Mapping[str, Any]  # of the backend

    def open(self) -> SliceWorker:
        """Allocate the memory."""
        return SliceWorker(self.split, self.prepare(self.plan, self.factors, **self.options))


class SliceWorker:
    """Answers slices, one after the other."""
    # backend: Of the plan of the split model; closed with this object

    def __init__(self, split: SplitModel, backend: Backend):
        self.backend = backend
        self._split = SplitBackend(split, backend)
        self._cutset = np.flatnonzero(split.observed)
        self._ptr = np.concatenate([[0], np.cumsum(split.cardinality)]).astype(np.int64)

    def run(self, task: SliceTask) -> Partial:
        """The sum of a task's slices, added in their order."""
        cells = columns_of(self._ptr, task.targets)
        total = Partial(np.zeros(len(cells)), 0.0, -math.inf)
        for configuration in task.configurations:
            states = task.state.copy()
            states[self._cutset] = configuration
            try:
                found = self._split.run(Evidence(states, task.likelihood), task.targets)
            except ImpossibleEvidence:
                continue
            total = total.plus(Partial(found.posterior[cells], 1.0, found.log_evidence))
        return total

    def close(self) -> None:
        """Close the backend."""
        self._split.close()


class Executor(Protocol):
    """Runs the tasks of conditioned cases."""

    def run(self, tasks: Iterable[SliceTask]) -> Iterator[tuple[int, Partial]]:
        """Run all tasks, in any order: yields each task's number in the iterable, from 0, and its sum.

        The iterable may be long and makes tasks on demand: take a few more than there are workers, not all of them.
        Called by one thread at a time. The iterator may be closed early; tasks that have not begun are dropped.
        """
        # raises JtgpuError: If no worker is left; the message names them.

    def close(self) -> None:
        """Free the workers' memory. May be called twice."""


Start = Callable[[SliceJob], Executor]  # makes the executor of a job: the type of ``compile(executor=...)``


class _LocalExecutor:
    """`Executor` with workers in this process, each in its own thread; a single worker uses the caller's."""

    def __init__(self, workers: Sequence[tuple[str, Lazy[SliceWorker]]]):
        self._pool = WorkerPool(workers)

    def run(self, tasks: Iterable[SliceTask]) -> Iterator[tuple[int, Partial]]:
        return self._pool.run(tasks, lambda worker, task: worker.get().run(task))

    def close(self) -> None:
        for worker in self._pool.workers:
            worker.object.close()


def one_after_another(job: SliceJob) -> Executor:
    """The executor with one worker: the memory of one slice."""
    worker = Lazy(job.open)
    worker.get()
    return _LocalExecutor([("this process", worker)])


def on_devices(devices: DevicePool) -> Start:
    """Makes executors with a worker on each of several devices, each of which has the memory of one slice."""

    def start(job: SliceJob) -> Executor:
        def open_on(own: Mapping[str, Any]) -> SliceWorker:
            return replace(job, prepare=devices.prepare, options={**job.options, **own}).open()

        return _LocalExecutor(devices.workers(open_on))

    return start
