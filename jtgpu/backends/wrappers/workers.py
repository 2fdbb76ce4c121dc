"""A pool of workers, each with its own thread, that run independent tasks: an idle worker takes the next task.

A worker is any object, for example a backend on one GPU; this module knows no backend and no device. If a worker fails,
its task goes to the others. An error of the task itself, which would occur on every worker, ends the whole call.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ...errors import BackendUnavailable, JtgpuError, TableTooLarge
from ...util.system import new_lock, reset_in_child

W = TypeVar("W")
T = TypeVar("T")
R = TypeVar("R")

MAX_WAITING = 4  # results of each worker that may wait to be taken


class Closable(Protocol):
    """An object that holds memory."""

    def close(self) -> None:
        """Free it. May be called twice."""


C = TypeVar("C", bound=Closable)


class Lazy(Generic[C]):
    """An object that is made once, on first use."""

    def __init__(self, make: Callable[[], C]):
        self._make: Callable[[], C] | None = make
        self._made: C | None = None
        self._lock = new_lock()

    @property
    def made(self) -> C | None:
        """The object, if it has been made."""
        return self._made

    def get(self) -> C:
        """The object itself; raises what making it raises."""
        with self._lock:
            if self._made is None:
                if self._make is None:
                    raise JtgpuError("this backend is closed")
                self._made = self._make()
            return self._made

    def close(self) -> None:
        """Close the object if it was made; it cannot be made any more."""
        with self._lock:
            self._make = None
            if self._made is not None:
                self._made.close()
            self._made = None


class Worker(Generic[W]):
    """An object of a pool and its name in messages."""

    def __init__(self, name: str, obj: W):
        self.name, self.object = name, obj
        self.holder: object = None  # identifies the call that has reserved it
        self.error: BaseException | None = None  # why it gets no more tasks


class WorkerPool(Generic[W]):
    """Workers that run tasks. Thread-safe: simultaneous calls share the workers."""
    # workers: sequence of (str, object): The name of each worker and the object. Several workers may use one device.

    def __init__(self, workers: Sequence[tuple[str, W]]):
        self.workers = [Worker(name, obj) for name, obj in workers]
        self._reset()
        reset_in_child(self, WorkerPool._reset)

    def _reset(self) -> None:
        self._free = threading.Condition()
        for worker in self.workers:
            worker.holder = None

    def __len__(self) -> int:
        return len(self.workers)

    @contextlib.contextmanager
    def reserved(self, most: int, without: Iterable[Worker[W]] = ()) -> Iterator[list[Worker[W]]]:
        """Up to `most` of the idle workers, in their order; waits until there is one."""
        # raises BackendUnavailable: If all workers have failed or are in `without`.
        refused, me = set(map(id, without)), object()
        try:
            with self._free:
                while True:
                    usable = [w for w in self.workers if w.error is None and id(w) not in refused]
                    if not usable:
                        raise BackendUnavailable(self.no_worker())
                    idle = [w for w in usable if w.holder is None][: max(most, 1)]
                    if idle:
                        break
                    self._free.wait(1.0)  # a wait without a limit could not be interrupted on every platform
                for worker in idle:
                    worker.holder = me
            yield idle
        finally:  # an interrupt may come at any point: release all workers that this call has reserved
            for worker in self.workers:
                if worker.holder is me:
                    worker.holder = None
            with self._free:
                self._free.notify_all()

    def retire(self, worker: Worker[W], error: BaseException) -> None:
        """Give a worker no more tasks."""
        with self._free:
            worker.error = error
            self._free.notify_all()
        _log(worker, error)

    def run(
        self, tasks: Iterable[T], work: Callable[[W, T], R], most: int | None = None,
        stop: Callable[[], None] | None = None,
    ) -> Generator[tuple[int, R]]:  # fmt: skip
        """Run all tasks; yields each task's number, from 0, and its result, in the order of completion.

        Idle workers take tasks from the iterable, one thread at a time. A few results per worker may wait for the
        caller.
        """
        # work: ``work(object, task)``, called in the worker's thread
        # most: Workers to use at most
        # stop: Called when the results are not needed any more (an error, Ctrl-C), before waiting for the workers: it
        #     makes long tasks return early
        # raises JtgpuError: An error of the task, at once; an error of the workers, if none is left; the message names
        #     them.
        queued = _Tasks(tasks, stop)
        failed: list[_Failure] = []
        while not queued.done:
            if failed and len(failed) == len(self.workers):
                raise _all_failed(failed)
            try:
                with self.reserved(len(self) if most is None else most, [f.worker for f in failed]) as workers:
                    if len(workers) == 1:  # no thread: a task may take only microseconds
                        yield from _run_here(workers[0], queued, work, failed)
                    else:
                        yield from _Threads(workers, queued, work).results(failed)
            except BackendUnavailable as error:
                if not failed:
                    raise
                raise _all_failed(failed) from error

    def no_worker(self) -> str:
        """Why no worker is left."""
        reasons = "; ".join(f"{w.name}: {w.error}" for w in self.workers if w.error is not None)
        return f"no worker is left ({reasons})" if reasons else "there is no worker"


class _Failure(NamedTuple):
    worker: Worker[Any]
    error: BaseException


class _Tasks(Generic[T]):
    """Numbered tasks; a task that a worker could not complete returns to the queue."""

    def __init__(self, tasks: Iterable[T], stop: Callable[[], None] | None):
        self._tasks = enumerate(tasks)
        self._stop = stop
        self._returned: deque[tuple[int, T]] = deque()
        self._lock = threading.Lock()
        self._empty = False
        self._n_running = 0
        self.stopped = False

    @property
    def done(self) -> bool:
        """Whether all tasks are complete."""
        with self._lock:
            if not self._returned and not self._empty and not self._n_running:
                task = next(self._tasks, None)
                if task is None:
                    self._empty = True
                else:
                    self._returned.append(task)
            return self._empty and not self._returned and not self._n_running

    def take(self) -> tuple[int, T] | None:
        with self._lock:
            if self.stopped:
                return None
            task = self._returned.popleft() if self._returned else next(self._tasks, None)
            if task is None:
                self._empty = True
            else:
                self._n_running += 1
            return task

    def put_back(self, number: int, task: T) -> None:
        with self._lock:
            self._returned.append((number, task))
            self._n_running -= 1

    def completed(self) -> None:
        with self._lock:
            self._n_running -= 1

    def stop(self) -> None:
        self.stopped = True
        if self._stop is not None:
            self._stop()


class _Ended(NamedTuple):
    """A thread ended: its worker failed, the iterable of tasks failed (no worker), or no task is left (no error)."""

    worker: Worker[Any] | None = None
    error: BaseException | None = None


class _Threads(Generic[W, T, R]):
    """A thread for each of several workers; the caller's thread yields the results."""

    def __init__(self, workers: Sequence[Worker[W]], tasks: _Tasks[T], work: Callable[[W, T], R]):
        self._tasks, self._work = tasks, work
        # not a queue with a limit: those are written in Python, and an interrupt can leave their locks taken
        self._results: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(MAX_WAITING * len(workers)):
            self._room.put(None)
        self._threads = [
            threading.Thread(target=self._work_on, args=(w,), name=f"jtgpu-{w.name}", daemon=True) for w in workers
        ]

    def results(self, failed: list[_Failure]) -> Iterator[tuple[int, R]]:
        """Results until no task is left or no worker works; adds the workers that fail to `failed`."""
        running = len(self._threads)
        try:
            for thread in self._threads:
                thread.start()
            while running:
                try:
                    number, result = self._results.get(timeout=0.1)
                except queue.Empty:
                    continue
                self._room.put(None)
                if not isinstance(result, _Ended):
                    self._tasks.completed()
                    yield number, result
                    continue
                running -= 1
                if result.error is not None:
                    _note_failure(result.worker, result.error, failed)
        finally:
            if running:
                self._tasks.stop()
            for thread in self._threads:
                if thread.ident is not None:
                    thread.join()

    def _work_on(self, worker: Worker[W]) -> None:
        """The loop of a worker's thread."""
        try:
            while (numbered := self._tasks.take()) is not None:
                number, task = numbered
                try:
                    result = self._work(worker.object, task)
                except BaseException as error:
                    self._tasks.put_back(number, task)
                    self._put(-1, _Ended(worker, error))
                    return
                self._put(number, result)
        except BaseException as error:  # of the iterable of tasks
            self._put(-1, _Ended(None, error))
            return
        self._put(-1, _Ended())

    def _put(self, number: int, result: Any) -> None:
        """Queue a result; waits while too many results wait."""
        while not self._tasks.stopped:
            with contextlib.suppress(queue.Empty):
                self._room.get(timeout=0.1)
                self._results.put((number, result))
                return


def _run_here(
    worker: Worker[W], tasks: _Tasks[T], work: Callable[[W, T], R], failed: list[_Failure]
) -> Iterator[tuple[int, R]]:
    """Run tasks in the caller's thread."""
    while (numbered := tasks.take()) is not None:
        number, task = numbered
        try:
            result = work(worker.object, task)
        except BaseException as error:
            tasks.put_back(number, task)
            _note_failure(worker, error, failed)
            return
        tasks.completed()
        yield number, result


def _note_failure(worker: Worker[Any] | None, error: BaseException, failed: list[_Failure]) -> None:
    """Add a failed worker to `failed`; raises an error that is not the worker's own."""
    if worker is None or _is_of_task(error):
        raise error
    failed.append(_Failure(worker, error))
    if not isinstance(error, (TableTooLarge, MemoryError)):  # there may be memory the next time
        worker.error = error
    _log(worker, error)


def _log(worker: Worker[Any], error: BaseException) -> None:
    logging.getLogger("jtgpu").warning(
        "%s failed and gets no more work: %s", worker.name, str(error) or type(error).__name__
    )


def _is_of_task(error: BaseException) -> bool:
    """Whether the task fails on every worker. Errors of a device or its driver have classes of their own."""
    if isinstance(error, (TableTooLarge, BackendUnavailable, MemoryError, OSError)) or type(error) is RuntimeError:
        return False
    if isinstance(error, JtgpuError) or not isinstance(error, Exception):
        return True
    return type(error).__module__ == "builtins"


def _all_failed(failed: Sequence[_Failure]) -> JtgpuError:
    """One error for the errors of all workers; `TableTooLarge` if all of them lacked memory."""
    reasons = "; ".join(f"{f.worker.name}: {str(f.error) or type(f.error).__name__}" for f in failed)
    first = failed[0].error
    if len(failed) == 1 and isinstance(first, JtgpuError) and failed[0].worker.name in str(first):
        return first
    if all(isinstance(f.error, (TableTooLarge, MemoryError)) for f in failed):
        known = first if isinstance(first, TableTooLarge) else TableTooLarge("")
        return TableTooLarge(reasons, known.entries, known.needed, known.limit)
    made = BackendUnavailable(reasons)
    made.__cause__ = first
    return made
