"""Slices: single configurations of a cutset, and the executors that run them in this process or elsewhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from ...errors import ImpossibleEvidence
from ...plans.conditioning import SplitModel
from ..base import Backend, Evidence, Prepare, Result, columns_of
from ..table import COUNTS, ON_DEVICE, Table, TableAnswer, refuse
from .mapped import MappedBackend, split_states
from .workers import Lazy, R, WorkerPool

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan
    from ..state_map import StateMap
    from .devices import DevicePool

A = TypeVar("A")


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
    """Everything that a worker needs to answer slices: sent to it once, by pickle."""

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
        self._split = MappedBackend(split_states(split), backend)
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
                result = self._split.run_case(Evidence(states, task.likelihood), task.targets)
            except ImpossibleEvidence:
                continue
            total = total.plus(Partial(result.posterior[cells], 1.0, result.log_evidence))
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


# Cutset conditioning at run time: independent propagations, one for each configuration, and their exact sum.
#
# `ConditionedSum` divides a case into `SliceTask`s, an `Executor` runs them anywhere and in any order, and
# `ConditionedSum` adds the `Partial`s in the order of the tasks. The division into tasks depends only on the plan and
# the case, so a result is bit-identical for any executor and any number of workers.

MAX_TASKS = 4096  # of a case; with more slices, a task is several of them, which the worker adds
MIN_WORK = 2_000_000  # multiplications and additions of a task, if the case has as many


class ConditionedSum(Backend):
    """A `jtgpu.backends.base.Backend` that answers a case by the sum over the configurations of a cutset."""
    # start: Makes the executor of a job; closed with this object

    def __init__(self, job: SliceJob, start: Start):
        split, flops = job.split, job.plan.cost().flops
        self._job, self._start, self._split = job, start, split
        self._executor = start(job)
        self._cutset = np.flatnonzero(split.observed).tolist()
        self._ptr = np.concatenate([[0], np.cumsum(split.cardinality)]).astype(np.int64)
        self._slices_per_task = max(MIN_WORK // max(flops, 1), 1)

    @property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) bounds of each variable's cells in a result."""
        return self._ptr

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        [(_, batch)] = self._sums([evidence], targets)
        if batch is None:
            raise ImpossibleEvidence("the evidence has probability 0")
        posterior = np.zeros(int(self._ptr[-1]))
        posterior[columns_of(self._ptr, targets)] = batch.posterior / batch.mass
        return Result(posterior, batch.top + math.log(batch.mass))

    def run(self, table: Table[A]) -> A:
        """See `jtgpu.backends.base.Backend.run`: the slices of all cases form one list of tasks."""
        refuse(self, table, ON_DEVICE, COUNTS)
        states, weights = table.feed.rows(), table.likelihood
        answer = TableAnswer.impossible_cases(len(states), len(columns_of(self._ptr, table.targets)))
        cases = (Evidence(row, {v: w[i] for v, w in weights.items()}) for i, row in enumerate(states))
        with closing(self._sums(cases, table.targets)) as sums:
            for i, total in sums:
                if total is not None:
                    answer.posterior[i] = total.posterior / total.mass
                    answer.log_evidence[i] = total.top + math.log(total.mass)
                    answer.impossible[i] = False
        return table.delivered(answer)

    def _sums(
        self, cases: Iterable[Evidence], targets: Sequence[int] | None
    ) -> Generator[tuple[int, Partial | None]]:
        """The sum of all slices of each case, in order; None where it is impossible."""
        n_tasks: list[int] = []  # of each case; appended before the first task of the case is yielded

        def tasks() -> Iterator[SliceTask]:
            for case in cases:
                n, of_case = self._tasks(case, None if targets is None else tuple(targets))
                n_tasks.append(n)
                yield from of_case

        at = left = 0
        total: Partial | None = None
        with closing(in_order(self._executor.run(tasks()))) as partials:
            for partial in partials:
                while not left:  # this is the first task of a case; cases before it may have no task
                    left = n_tasks[at]
                    if not left:
                        yield at, None
                        at += 1
                total = partial if total is None else total.plus(partial)
                left -= 1
                if not left:
                    yield at, total if total.mass > 0 else None
                    total = None
                    at += 1
        while at < len(n_tasks):
            yield at, None
            at += 1

    def _tasks(self, evidence: Evidence, targets: tuple[int, ...] | None) -> tuple[int, Iterator[SliceTask]]:
        """The number of tasks of a case, and the tasks: its possible slices, some in each task."""
        choices = []
        for v in self._cutset:
            known = int(evidence.state[v])
            weights = evidence.likelihood.get(v)
            possible = [known] if known >= 0 else range(int(self._split.cardinality[v]))
            choices.append([s for s in possible if weights is None or weights[s] > 0])
        n = math.prod(map(len, choices))
        each = max(-(-n // MAX_TASKS), min(self._slices_per_task, n), 1)

        def tasks() -> Iterator[SliceTask]:
            configurations = itertools.product(*choices)
            while some := list(itertools.islice(configurations, each)):
                yield SliceTask(evidence.state, evidence.likelihood, np.array(some, np.int32), targets)

        return -(-n // each), tasks()

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """See `jtgpu.backends.base.Backend.reload`: starts a new executor."""
        self._executor.close()
        self._job = replace(self._job, factors=list(factors))
        self._executor = self._start(self._job)

    def close(self) -> None:
        self._executor.close()


def in_order(numbered: Iterator[tuple[int, R]]) -> Generator[R]:
    """Results by ascending number from 0, each as soon as all before it are complete; closes `numbered` at the end."""
    waiting: dict[int, R] = {}
    at = 0
    try:
        for number, result in numbered:
            waiting[number] = result
            while at in waiting:
                yield waiting.pop(at)
                at += 1
    finally:  # now, and not with the last traceback that holds it: workers wait
        close = getattr(numbered, "close", None)
        if close is not None:
            close()
