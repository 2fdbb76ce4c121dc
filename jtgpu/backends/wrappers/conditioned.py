"""What runs a plan of slices: independent propagations, dealt out by an executor, and their exact sum.

`Sliced` cuts a case into `SliceTask`s, an `Executor` has them answered wherever it likes and in any order, and `Sliced`
adds the `Partial`s up in the order of the tasks. Which slices are a task depends on the plan and the case alone, so an
answer has the same bits for any executor and any number of workers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...errors import ImpossibleEvidence
from ...plans.conditioning.split import Apart, ApartBackend
from ..base import Backend, BackendDefaults, BatchResult, Evidence, Prepare, Result, columns_of
from .workers import Crew, Lazy, in_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan
    from .devices import OnDevices

__all__ = [
    "Executor", "Partial", "SliceJob", "SliceTask", "SliceWorker", "Sliced", "Start", "on_devices", "one_after_another"
]  # fmt: skip

MOST_TASKS = 4096  # of a case; a task is then several slices, whose sum is made where they are answered
LEAST_WORK = 2_000_000  # multiplications and additions of a task, where a case has that many


@dataclass(frozen=True)
class SliceTask:
    """Some slices of one case: arrays and numbers only, to be sent anywhere.

    Attributes
    ----------
    state : (V,) int32
        Observed states, -1 = not observed; what stands for the fixed variables does not count.
    likelihood : mapping
        Variable to (card,) weights.
    configurations : (k, S) int32
        States of the fixed variables, by ascending variable, a slice a row.
    targets : tuple of int, optional
        Variables whose posteriors are wanted; None: all.
    """

    state: NDArray[np.int32]
    likelihood: Mapping[int, NDArray[np.float64]]
    configurations: NDArray[np.int32]
    targets: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Partial:
    """The sum of some slices s of one case, in units of exp(top).

    Attributes
    ----------
    posterior : (C,) float64
        sum_s P(x, s, e) / exp(top) for every state x of every target, target after target.
    mass : float
        sum_s P(s, e) / exp(top); 0: these slices are impossible.
    top : float
        Logarithm of the largest P(s, e); -inf where the mass is 0.
    """

    posterior: NDArray[np.float64]
    mass: float
    top: float

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
    """All that a worker needs to answer slices, wherever it is: sent there once; can be pickled.

    Attributes
    ----------
    apart : Apart
        The fixed variables are its `seen` ones.
    plan : Plan
        Of one slice.
    factors : sequence of arrays
    prepare : Prepare
        A backend module's function.
    options : mapping
        Of the backend.
    """

    apart: Apart
    plan: Plan
    factors: Sequence[NDArray[np.float64]]
    prepare: Prepare
    options: Mapping[str, Any]

    def open(self) -> SliceWorker:
        """Take the memory, ready to answer."""
        return SliceWorker(self.apart, self.prepare(self.plan, self.factors, **self.options))


class SliceWorker:
    """Answers slices, one after the other.

    Parameters
    ----------
    apart : Apart
    backend : Backend
        Of the plan of a slice; closed with this object.
    """

    def __init__(self, apart: Apart, backend: Backend):
        self.backend = backend
        self._parts = ApartBackend(apart, backend)
        self._fixed = np.flatnonzero(apart.seen)
        self._ptr = np.concatenate([[0], np.cumsum(apart.cardinality)]).astype(np.int64)

    def run(self, task: SliceTask) -> Partial:
        """The sum of a task's slices, added in their order."""
        cells = columns_of(self._ptr, task.targets)
        total = Partial(np.zeros(len(cells)), 0.0, -math.inf)
        for configuration in task.configurations:
            states = task.state.copy()
            states[self._fixed] = configuration
            try:
                found = self._parts.run(Evidence(states, task.likelihood), task.targets)
            except ImpossibleEvidence:
                continue
            total = total.plus(Partial(found.posterior[cells], 1.0, found.log_evidence))
        return total

    def close(self) -> None:
        """Give memory back."""
        self._parts.close()


class Executor(Protocol):
    """Where the tasks of a plan of slices are answered."""

    def run(self, tasks: Iterable[SliceTask]) -> Iterator[tuple[int, Partial]]:
        """Answer all tasks, in any order: each task's number from 0 in the iterable, and its sum.

        The iterable may be long and makes tasks as they are taken: take a few more than there are workers, not all.
        Called by one thread at a time. The iterator may be closed before its end; what was not begun then is dropped.

        Raises
        ------
        JtgpuError
            When no worker is left that could answer a task, naming them.
        """

    def close(self) -> None:
        """Give the workers' memory back. May be called twice."""


Start = Callable[[SliceJob], Executor]  # makes an executor for a job: what ``compile(executor=...)`` takes


class _Here:
    """`Executor`: workers of this process, a thread each; one worker needs none."""

    def __init__(self, workers: Sequence[tuple[str, Lazy[SliceWorker]]]):
        self._crew = Crew(workers)

    def run(self, tasks: Iterable[SliceTask]) -> Iterator[tuple[int, Partial]]:
        """See `Executor.run`."""
        return self._crew.deal(tasks, lambda worker, task: worker.get().run(task))

    def close(self) -> None:
        """See `Executor.close`."""
        for member in self._crew.members:
            member.worker.close()


def one_after_another(job: SliceJob) -> Executor:
    """The executor that needs no memory but that of one slice."""
    worker = Lazy(job.open)
    worker.get()
    return _Here([("this process", worker)])


def on_devices(devices: OnDevices) -> Start:
    """Executors with a worker on each of several devices; each takes the memory of one slice there."""

    def start(job: SliceJob) -> Executor:
        return _Here(devices.workers(lambda own: replace(job, options={**job.options, **own}).open()))

    return start


class Sliced(BackendDefaults):
    """`jtgpu.backends.base.Backend`: a case is a case of every slice.

    Parameters
    ----------
    apart : Apart
        The sliced variables are its `seen` ones.
    executor : Executor
        Of the plan of a slice; closed with this object.
    flops : int
        Multiplications and additions of a slice.
    """

    def __init__(self, apart: Apart, executor: Executor, flops: int):
        self._apart, self._executor = apart, executor
        self._fixed = np.flatnonzero(apart.seen).tolist()
        self._ptr = np.concatenate([[0], np.cumsum(apart.cardinality)]).astype(np.int64)
        self._least = max(LEAST_WORK // max(flops, 1), 1)

    @property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) where each variable's cells begin in an answer."""
        return self._ptr

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`."""
        [(_, found)] = self._sums([evidence], targets)
        if found is None:
            raise ImpossibleEvidence("the evidence has probability 0")
        posterior = np.zeros(int(self._ptr[-1]))
        posterior[columns_of(self._ptr, targets)] = found.posterior / found.mass
        return Result(posterior, found.top + math.log(found.mass))

    def run_batch(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None = None,
        targets: Sequence[int] | None = None,
    ) -> BatchResult:
        """See `jtgpu.backends.base.Backend.run_batch`: the slices of all cases are dealt out as one list."""
        n, columns = len(states), len(columns_of(self._ptr, targets))
        answer = BatchResult(np.zeros((n, columns)), np.full(n, -np.inf), np.ones(n, np.bool_))
        weights = likelihood or {}
        cases = (Evidence(states[i], {v: w[i] for v, w in weights.items()}) for i in range(n))
        with closing(self._sums(cases, targets)) as sums:
            for i, found in sums:
                if found is not None:
                    answer.posterior[i] = found.posterior / found.mass
                    answer.log_evidence[i] = found.top + math.log(found.mass)
                    answer.impossible[i] = False
        return answer

    def _sums(
        self, cases: Iterable[Evidence], targets: Sequence[int] | None
    ) -> Generator[tuple[int, Partial | None]]:
        """The sum of all slices of each case, in order; None where it is impossible."""
        n_tasks: list[int] = []  # of each case; a case stands here before its first task is dealt

        def tasks() -> Iterator[SliceTask]:
            for case in cases:
                made = self._tasks(case, None if targets is None else tuple(targets))
                n_tasks.append(made[0])
                yield from made[1]

        at = left = 0
        total: Partial | None = None
        with closing(in_order(self._executor.run(tasks()))) as partials:
            for partial in partials:
                while not left:  # the case that this is the first task of; those before it have none
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
        """The slices that a case leaves possible, some to a task: how many tasks, and the tasks."""
        choices = []
        for v in self._fixed:
            known = int(evidence.state[v])
            weights = evidence.likelihood.get(v)
            possible = [known] if known >= 0 else range(int(self._apart.cardinality[v]))
            choices.append([s for s in possible if weights is None or weights[s] > 0])
        n = math.prod(map(len, choices))
        each = max(-(-n // MOST_TASKS), min(self._least, n), 1)

        def made() -> Iterator[SliceTask]:
            configurations = itertools.product(*choices)
            while some := list(itertools.islice(configurations, each)):
                yield SliceTask(evidence.state, evidence.likelihood, np.array(some, np.int32), targets)

        return -(-n // each), made()

    def close(self) -> None:
        """See `jtgpu.backends.base.Backend.close`."""
        self._executor.close()
