"""Posteriors of one tree for many clients: requests that wait are answered together.

There is no timer. While one batch is computed, the next one collects. A network whose answer takes less than
`INLINE` seconds is answered by the event loop itself, once it has read every request that has arrived: a thread would
cost more than the answer. Others have a thread.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Evidence
from ..backends.table import Table
from ..dynamic.tree import DynamicTree
from ..errors import BackendUnavailable, ImpossibleEvidence, TableTooLarge
from ..inference.tree import JunctionTree
from ..mixed.tree import MixedTree
from ..util.arrays import Floats
from ..util.system import cores
from .registry import AnswerRates, spans, states_and_weights
from .trees import OVER_TIME, AnyTree

T = TypeVar("T")
INLINE = 4e-3  # seconds of a batch that the event loop computes itself
SIZES = (1, 16, 64, 256)  # cases of the batches that are measured
PATIENCE = 0.2  # seconds of the measurements of one size
FASTER = 0.9  # share of a single case's time: a batch of one case that takes less answers single cases, too
SLOWER = 4.0  # times the time of its cases one by one: above, larger batches are not measured
WRITERS = 2  # threads that write long replies, mostly without the interpreter's lock
LONG = 10_000  # numbers of all replies of a batch
SMALL = 8  # findings and targets of a small request, at most
FINDINGS, TARGETS = 4, 3  # of the small requests that are measured
TRIED, MANY = 16, 32  # slices that are timed, and sequences that are timed together
SHARE = 0.1  # of a single case's time that one of many cases with numbers takes


def measure(tree: JunctionTree, seed: int = 0) -> AnswerRates:
    """Measure a tree on sampled cases; this also loads all that answers need.

    Cases observe a tenth of the variables, those of small requests `FINDINGS`. No case repeats the evidence pattern of
    another, whose program would be cached.
    """
    n_variables = len(tree.model)
    rng = np.random.default_rng(seed)
    states = _sampled(tree, max(SIZES), rng)
    backend = tree.intervened().backend

    def cases(share: float, n: int) -> NDArray[np.int32]:
        table = states[rng.integers(len(states), size=n)]
        table[rng.random(table.shape) >= share] = -1
        return table

    def all_targets(n: int) -> tuple[NDArray[np.int32], None]:
        return cases(max(0.1, 2 / max(n_variables, 1)), n), None

    def few_targets(n: int) -> tuple[NDArray[np.int32], list[int]]:
        targets = sorted(set(rng.integers(n_variables, size=n * TARGETS).tolist()))
        return cases(min(FINDINGS / n_variables, 0.5), n), targets

    def run(table: NDArray[np.int32], targets: list[int] | None) -> object:
        return backend.run_case(Evidence(table[0]), targets)

    def run_table(recurs: bool, states: NDArray[np.int32], targets: list[int] | None) -> object:
        return backend.run(Table.of(states, None, targets, recurs=recurs))

    rates = _rates(all_targets, run, partial(run_table, False))
    if not n_variables:
        return rates
    return rates._replace(small=_rates(few_targets, run, partial(run_table, rates.threshold > 1)))


def measure_others(tree: AnyTree) -> AnswerRates:
    """Measure a tree that answers no single cases in batches; this also loads what answers need."""
    seconds: list[float] = []
    if isinstance(tree, MixedTree):
        for _ in range(3):
            begun = time.perf_counter()
            tree.posteriors()
            seconds.append(time.perf_counter() - begun)
        single = min(seconds)
        return AnswerRates(single, single, SHARE * single, 2)
    assert isinstance(tree, OVER_TIME)
    states = tree if isinstance(tree, DynamicTree) else tree.discrete
    for sequences in (1, 1, MANY):  # the first one loads what the others need
        codes = np.full((sequences, TRIED, len(states.network)), -1, np.int32)
        begun = time.perf_counter()
        states.smooth(codes)
        seconds.append((time.perf_counter() - begun) / TRIED)
    return AnswerRates(seconds[1], seconds[1], max(seconds[2] - seconds[1], 0.0) / (MANY - 1), 2)


def _rates(
    make: Callable[[int], tuple[object, ...]], run: Callable[..., object], run_table: Callable[..., object]
) -> AnswerRates:
    """Measure single cases and batches."""
    # make: The arguments of n new cases
    # run, run_table: Compute one case, and any number of cases

    def shortest(n: int, run: Callable[..., object]) -> float:
        run(*make(n))  # loads what the first call needs, which is not measured
        best, spent = math.inf, 0.0
        for _ in range(11):
            arguments = make(n)
            begun = time.perf_counter()
            run(*arguments)
            seconds = time.perf_counter() - begun
            best, spent = min(best, seconds), spent + seconds
            if spent > PATIENCE:
                break
        return best

    single = shortest(1, run)
    seconds: dict[int, float] = {}
    for n in SIZES:
        if single > PATIENCE:
            break
        seconds[n] = shortest(n, run_table)
        if seconds[n] > PATIENCE or (n > 1 and seconds[n] > SLOWER * n * single):
            break
    return _fit(single, seconds)


def _sampled(tree: JunctionTree, n: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Cases that are possible; cases without observations if the tree cannot sample."""
    try:
        return np.array(tree.sample(n, seed=rng).states)
    except Exception:  # sliced plans, models of probability zero
        return np.full((n, len(tree.model)), -1, np.int32)


def _fit(single: float, seconds: dict[int, float]) -> AnswerRates:
    """Rates from the time of a single case and those of batches by number of cases."""
    sizes = [n for n in seconds if n > 1]
    if not sizes:
        return AnswerRates(single, 0.0, single, 1 << 30)
    first, last = min(sizes), max(sizes)
    case = (seconds[last] - seconds[first]) / (last - first) if last > first else seconds[last] / last
    case = max(case, seconds[last] / last / 10)
    batch = max(seconds[last] - last * case, 0.0)
    if seconds[1] <= FASTER * single and case < single:
        return AnswerRates(seconds[1], batch, case, 1)
    gain = single - case
    return AnswerRates(single, batch, case, int(batch / gain) + 2 if gain > 0 else 1 << 30)


class Answered(NamedTuple):
    """Posteriors of one case."""

    flat: Floats  # the posteriors of the targets, one after another; of all variables if there are no targets
    log_evidence: float
    queued: float  # seconds
    computed: float  # seconds of the batch
    cases: int  # of the batch


class _Waiting:
    """A request that waits; `write` makes its reply, of any type."""

    __slots__ = ("arrived", "case", "future", "targets", "write")

    def __init__(self, case: Evidence, targets: list[int] | None, write: Callable[[Answered], Any], future: Any):
        self.case, self.targets, self.write, self.future = case, targets, write, future
        self.arrived = time.perf_counter()

    @property
    def is_small(self) -> bool:
        """Whether the request has few targets and few findings."""
        if self.targets is None or len(self.targets) > SMALL:
            return False
        return int(np.count_nonzero(self.case.state >= 0)) + len(self.case.likelihood) <= SMALL


class Batcher:
    """Answers posteriors of a tree."""
    # exact: Answer one by one
    # on_error: Called with an error that ended a batch, in the thread that computed it
    # tree, rates: May be replaced while requests wait

    def __init__(
        self, tree: JunctionTree, rates: AnswerRates, max_batch: int, exact: bool = False,
        on_error: Callable[[BaseException], object] = lambda error: None,
    ):  # fmt: skip
        self.tree, self.rates, self._max_batch, self._exact = tree, rates, max_batch, exact
        self._on_error = on_error
        self._ptr = [int(i) for i in tree.plan.posterior_ptr]
        self._waiting: deque[_Waiting] = deque()
        self._lock = threading.Lock()
        self._is_running = False  # a thread or a callback will answer what waits
        self._pool = ThreadPoolExecutor(1, "jtgpu-posteriors")
        self._writers = ThreadPoolExecutor(min(WRITERS, cores()), "jtgpu-replies")

    def __len__(self) -> int:
        """Number of requests that wait."""
        return len(self._waiting)

    @property
    def is_inline(self) -> bool:
        """Whether single requests are answered by the event loop."""
        return self.rates.single <= INLINE

    def submit(
        self, case: Evidence, targets: list[int] | None, write: Callable[[Answered], T]
    ) -> asyncio.Future[T]:  # fmt: skip
        """Compute the posteriors of one case and write the reply."""
        # write: Called by any thread
        # returns Future of the reply: Cancelling it removes the request, unless it is being computed.
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.append(_Waiting(case, targets, write, future))
        with self._lock:
            if self._is_running:
                return future
            self._is_running = True
        loop.call_soon(self._start)
        return future

    def _start(self) -> None:
        """Answer what waits here if that is quick, otherwise in the thread."""
        if self.rates.seconds(len(self._waiting)) <= INLINE:
            while self._waiting and self.rates.seconds(min(len(self._waiting), self._max_batch)) <= INLINE:
                items = self._take()
                _deliver(items, _written(items, self._answer(items)))
            with self._lock:
                if not self._waiting:
                    self._is_running = False
                    return
        self._pool.submit(self._run)

    def _run(self) -> None:
        """In the thread: answer until nothing waits."""
        while True:
            items = self._take()
            if items:
                answers = self._answer(items)
                if sum(len(f.flat) for f in answers if isinstance(f, Answered)) < LONG:
                    _finish(items, answers)
                else:  # the next batch is computed meanwhile
                    for i in range(WRITERS):
                        self._writers.submit(_finish, items[i::WRITERS], answers[i::WRITERS])
            with self._lock:
                if not self._waiting:
                    self._is_running = False
                    return

    def _take(self) -> list[_Waiting]:
        """The requests that are answered next; those whose clients are gone are dropped."""
        items: list[_Waiting] = []
        while self._waiting and len(items) < self._max_batch:
            item = self._waiting.popleft()
            if not item.future.cancelled():
                items.append(item)
        return items

    def _answer(self, items: Sequence[_Waiting]) -> list[Answered | BaseException]:
        begun = time.perf_counter()
        n = len(items)
        try:
            in_batch = self._batchable(items)
            answers = iter(self._batch(in_batch) if in_batch else ())
            shared = set(map(id, in_batch))
            results = [next(answers) if id(item) in shared else self._single(item) for item in items]
        except TableTooLarge:  # one of them is; the others get their answers
            results = [self._single(item) for item in items]
        except BaseException as error:  # every client has to get an answer
            results = [error] * n
        failed = next((f for f in results if isinstance(f, BackendUnavailable)), None)
        if failed is not None:
            self._on_error(failed)
        computed = time.perf_counter() - begun
        return [
            f if isinstance(f, BaseException) else Answered(f[0], f[1], begun - item.arrived, computed, n)
            for f, item in zip(results, items, strict=True)
        ]

    def _batchable(self, items: Sequence[_Waiting]) -> Sequence[_Waiting]:
        """The requests that are answered by one batch; the others are answered one by one."""
        rates = self.rates
        if self._exact:
            return ()
        if rates.small is not None:
            small = [item for item in items if item.is_small]
            if len(small) < rates.small.threshold:
                items = [item for item in items if not item.is_small]
            elif len(items) < rates.threshold:
                return small
        return items if len(items) >= rates.threshold else ()

    def _single(self, item: _Waiting) -> tuple[Floats, float] | BaseException:
        tree = self.tree
        try:
            result = tree.answer(tree.intervened().backend.run_case, item.case, item.targets)
        except Exception as error:
            return error
        flat = result.posterior
        if item.targets is None:
            return flat, result.log_evidence
        ptr = self._ptr
        return np.concatenate([flat[:0], *(flat[ptr[v] : ptr[v + 1]] for v in item.targets)]), result.log_evidence

    def _batch(self, items: Sequence[_Waiting]) -> list[tuple[Floats, float] | BaseException]:
        tree = self.tree
        model = tree.model
        states, weights = states_and_weights(len(model), [item.case for item in items])
        targets: list[int] | None = None
        backend = tree.intervened().backend
        if self.rates.threshold > 1 and all(item.targets is not None for item in items):
            targets = sorted({v for item in items for v in item.targets or ()})
            result = backend.run(Table.of(states, weights, targets))
        else:
            result = backend.run(Table.of(states, weights, recurs=False))
        results: list[tuple[Floats, float] | BaseException] = []
        for item, row, log_evidence in zip(items, result.posterior, result.log_evidence.tolist(), strict=True):
            if log_evidence == -math.inf:
                results.append(ImpossibleEvidence(tree.impossible(item.case)))
                continue
            if item.targets is not None and item.targets != targets:
                at = spans(model, targets)
                row = np.concatenate([row[:0], *(row[at[v]] for v in item.targets)])
            results.append((row, log_evidence))
        return results

    def close(self) -> None:
        """End the thread after what waits is answered."""
        self._pool.shutdown(wait=True)
        self._writers.shutdown(wait=True)


def _written(items: Sequence[_Waiting], answers: Sequence[Answered | BaseException]) -> list[Any]:
    """The replies, and errors in place of those that there are not."""
    replies: list[Any] = []
    for item, answered in zip(items, answers, strict=True):
        try:
            replies.append(item.write(answered) if isinstance(answered, Answered) else answered)
        except Exception as error:
            replies.append(error)
    return replies


def _finish(items: Sequence[_Waiting], answers: Sequence[Answered | BaseException]) -> None:
    """In a thread: write the replies and let the event loops deliver them."""
    replies = _written(items, answers)
    for loop in dict.fromkeys(item.future.get_loop() for item in items):
        if not loop.is_closed():
            loop.call_soon_threadsafe(_deliver, items, replies, loop)


def _deliver(items: Sequence[_Waiting], replies: Sequence[object], loop: object = None) -> None:
    """Hand replies to the requests of an event loop, which runs this function."""
    for item, reply in zip(items, replies, strict=True):
        future = item.future
        if future.done() or (loop is not None and future.get_loop() is not loop):
            continue
        if isinstance(reply, BaseException):
            future.set_exception(reply)
        else:
            future.set_result(reply)
