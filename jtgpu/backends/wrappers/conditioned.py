"""Cutset conditioning at run time: independent propagations, one for each configuration, and their exact sum.

`ConditionedSum` divides a case into `SliceTask`s, an `Executor` runs them anywhere and in any order, and
`ConditionedSum` adds the `Partial`s in the order of the tasks. The division into tasks depends only on the plan and the
case, so a result is bit-identical for any executor and any number of workers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...errors import ImpossibleEvidence
from ..base import BackendDefaults, BatchResult, Evidence, Result, columns_of
from .slices import Partial, SliceJob, SliceTask, Start
from .workers import in_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_TASKS = 4096  # of a case; with more slices, a task is several of them, which the worker adds
MIN_WORK = 2_000_000  # multiplications and additions of a task, if the case has as many


class ConditionedSum(BackendDefaults):
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

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
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
        """See `jtgpu.backends.base.Backend.run_batch`: the slices of all cases form one list of tasks."""
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
