"""Workers, each with a thread, to whom independent tasks are dealt: who is free takes the next one.

A worker is anything that answers: a backend on one GPU, say. This file knows no backend and no device. A worker that
fails hands its task to the others; a question that is wrong is wrong for all of them and ends the whole.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ...errors import BackendUnavailable, JtgpuError, TableTooLarge

__all__ = ["Closes", "Crew", "Lazy", "Member", "Once", "in_order"]

W = TypeVar("W")
T = TypeVar("T")
R = TypeVar("R")

AHEAD = 4  # results of a worker that may wait to be taken


class Closes(Protocol):
    """Something that holds memory."""

    def close(self) -> None:
        """Give it back. May be called twice."""


C = TypeVar("C", bound=Closes)


class Lazy(Generic[C]):
    """Something that is made when it is first needed, by whoever needs it; once."""

    def __init__(self, make: Callable[[], C]):
        self._make: Callable[[], C] | None = make
        self._made: C | None = None
        self._lock = threading.Lock()

    def get(self) -> C:
        """The thing itself; raises what making it raises."""
        with self._lock:
            if self._made is None:
                if self._make is None:
                    raise JtgpuError("this backend is closed")
                self._made = self._make()
            return self._made

    def close(self) -> None:
        """Close it if it was made; none is made any more."""
        with self._lock:
            self._make = None
            if self._made is not None:
                self._made.close()
            self._made = None


class Once:
    """What workers have in common: the first who asks makes it, the others wait for it and get the same."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}
        self._locks: dict[Hashable, threading.Lock] = {}

    def __call__(self, key: Hashable, make: Callable[[], T]) -> T:
        """The thing of that name; raises what making it raises."""
        with self._locks.setdefault(key, threading.Lock()):
            if key not in self._made:
                self._made[key] = make()
            found: T = self._made[key]
            return found


class Member(Generic[W]):
    """A worker and what it is called in messages."""

    def __init__(self, name: str, worker: W):
        self.name, self.worker = name, worker
        self.hirer: object = None  # who has it
        self.lost: BaseException | None = None  # why it takes no more tasks, ever

    @property
    def busy(self) -> bool:
        """Has somebody hired it?"""
        return self.hirer is not None


class Crew(Generic[W]):
    """Workers that take turns; safe to use from several threads, whose calls share the workers.

    Parameters
    ----------
    workers : sequence of (str, worker)
        What each is called, and the object itself. The same card may stand here twice.
    """

    def __init__(self, workers: Sequence[tuple[str, W]]):
        self.members = [Member(name, worker) for name, worker in workers]
        self._free = threading.Condition()

    def __len__(self) -> int:
        return len(self.members)

    @contextlib.contextmanager
    def hired(self, most: int, without: Iterable[Member[W]] = ()) -> Iterator[list[Member[W]]]:
        """Up to `most` of the workers that are free, in their order; waits until there is one.

        Raises
        ------
        BackendUnavailable
            When all others are lost, or in `without`.
        """
        refused, me = set(map(id, without)), object()
        try:
            with self._free:
                while True:
                    there = [m for m in self.members if m.lost is None and id(m) not in refused]
                    if not there:
                        raise BackendUnavailable(self.why_none())
                    idle = [m for m in there if m.hirer is None][: max(most, 1)]
                    if idle:
                        break
                    self._free.wait(1.0)  # a lock without a limit could not be interrupted everywhere
                for m in idle:
                    m.hirer = me
            yield idle
        finally:  # whatever an interrupt left undone: mine are those that say so
            for m in self.members:
                if m.hirer is me:
                    m.hirer = None
            with self._free:
                self._free.notify_all()

    def lose(self, member: Member[W], error: BaseException) -> None:
        """Give a worker no more tasks, ever."""
        with self._free:
            member.lost = error
            self._free.notify_all()
        _log(member, error)

    def deal(
        self, tasks: Iterable[T], work: Callable[[W, T], R], most: int | None = None,
        stop: Callable[[], None] | None = None,
    ) -> Generator[tuple[int, R]]:  # fmt: skip
        """Do all tasks and give each result with its task's number from 0, as they come.

        Tasks are taken from the iterable as workers become free, by one thread at a time; a few results per worker may
        wait for whoever takes them.

        Parameters
        ----------
        tasks : iterable
        work : callable
            ``work(worker, task)``, called in the worker's thread.
        most : int, optional
            Workers that the tasks are worth at most.
        stop : callable, optional
            Called when nobody wants the results any more (an error, Ctrl-C), before waiting for the workers: what asks
            tasks that take long to come to an end.

        Raises
        ------
        JtgpuError
            Of the question, at once; of the workers, when none is left that could do a task, naming them.
        """
        dealt = _Dealt(tasks, stop)
        failed: list[tuple[Member[W], BaseException]] = []
        while not dealt.done:
            if failed and len(failed) == len(self.members):
                raise _all_failed(failed)
            try:
                with self.hired(len(self) if most is None else most, [m for m, _ in failed]) as members:
                    yield from _run(members, dealt, work, failed)
            except BackendUnavailable as error:
                if not failed:
                    raise
                raise _all_failed(failed) from error

    def why_none(self) -> str:
        """Why nobody works."""
        told = "; ".join(f"{m.name}: {m.lost}" for m in self.members if m.lost is not None)
        return f"no worker is left ({told})" if told else "there is no worker"


class _Dealt(Generic[T]):
    """Tasks with their numbers; what a worker could not do comes back."""

    def __init__(self, tasks: Iterable[T], stop: Callable[[], None] | None):
        self._tasks = enumerate(tasks)
        self._stop = stop
        self._back: deque[tuple[int, T]] = deque()
        self._lock = threading.Lock()
        self._empty = False
        self._out = 0
        self.stopped = False

    @property
    def done(self) -> bool:
        """Is everything answered?"""
        with self._lock:
            if not self._back and not self._empty and not self._out:
                found = next(self._tasks, None)
                if found is None:
                    self._empty = True
                else:
                    self._back.append(found)
            return self._empty and not self._back and not self._out

    def take(self) -> tuple[int, T] | None:
        with self._lock:
            if self.stopped:
                return None
            found = self._back.popleft() if self._back else next(self._tasks, None)
            if found is None:
                self._empty = True
            else:
                self._out += 1
            return found

    def give_back(self, number: int, task: T) -> None:
        with self._lock:
            self._back.append((number, task))
            self._out -= 1

    def answered(self) -> None:
        with self._lock:
            self._out -= 1

    def stop(self) -> None:
        self.stopped = True
        if self._stop is not None:
            self._stop()


def _run(
    members: Sequence[Member[W]], dealt: _Dealt[T], work: Callable[[W, T], R],
    failed: list[tuple[Member[W], BaseException]],
) -> Iterator[tuple[int, R]]:  # fmt: skip
    """Deal to these workers until nothing is left, or none of them works any more."""
    if len(members) == 1:  # no thread: a task that takes microseconds should not pay for one
        yield from _alone(members[0], dealt, work, failed)
        return
    # not a queue with a limit: those are written in Python, and an interrupt can leave their locks taken
    results: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    room: queue.SimpleQueue[None] = queue.SimpleQueue()
    for _ in range(AHEAD * len(members)):
        room.put(None)

    def put(number: int, result: Any) -> None:
        while not dealt.stopped:
            with contextlib.suppress(queue.Empty):
                room.get(timeout=0.1)
                results.put((number, result))
                return

    def labour(member: Member[W]) -> None:
        try:
            while (found := dealt.take()) is not None:
                number, task = found
                try:
                    result = work(member.worker, task)
                except BaseException as error:
                    dealt.give_back(number, task)
                    put(-1, _Broken(member, error))
                    return
                put(number, result)
        except BaseException as error:  # of the iterable that tasks come from
            put(-1, _Broken(None, error))
            return
        put(-1, None)

    threads = [
        threading.Thread(target=labour, args=(m,), name=f"jtgpu-{m.name}", daemon=True) for m in members
    ]  # fmt: skip
    running = len(threads)
    try:
        for thread in threads:
            thread.start()
        while running:
            try:
                number, result = results.get(timeout=0.1)
            except queue.Empty:
                continue
            room.put(None)
            if number >= 0:
                dealt.answered()
                yield number, result
                continue
            running -= 1
            if isinstance(result, _Broken):
                _dismiss(result.member, result.error, failed)
    finally:
        if running:
            dealt.stop()
        for thread in threads:
            if thread.ident is not None:
                thread.join()


class _Broken:
    def __init__(self, member: Member[Any] | None, error: BaseException):
        self.member, self.error = member, error


def _alone(
    member: Member[W], dealt: _Dealt[T], work: Callable[[W, T], R], failed: list[tuple[Member[W], BaseException]]
) -> Iterator[tuple[int, R]]:
    while (found := dealt.take()) is not None:
        number, task = found
        try:
            result = work(member.worker, task)
        except BaseException as error:
            dealt.give_back(number, task)
            _dismiss(member, error, failed)
            return
        dealt.answered()
        yield number, result


def _dismiss(
    member: Member[W] | None, error: BaseException, failed: list[tuple[Member[W], BaseException]]
) -> None:
    """Note that a worker failed; raise where the question did."""
    if member is None or _of_the_question(error):
        raise error
    failed.append((member, error))
    if not isinstance(error, (TableTooLarge, MemoryError)):  # memory may be there the next time
        member.lost = error
    _log(member, error)


def _log(member: Member[Any], error: BaseException) -> None:
    logging.getLogger("jtgpu").warning(
        "%s failed and is left out: %s", member.name, str(error) or type(error).__name__
    )


def _of_the_question(error: BaseException) -> bool:
    """Would it fail anywhere? What a device or its driver says, by classes of their own, fails there alone."""
    if isinstance(error, (TableTooLarge, BackendUnavailable, MemoryError, OSError)) or type(error) is RuntimeError:
        return False
    if isinstance(error, JtgpuError) or not isinstance(error, Exception):
        return True
    return type(error).__module__ == "builtins"


def _all_failed(failed: Sequence[tuple[Member[Any], BaseException]]) -> JtgpuError:
    """One error for all workers' ones; of memory, if that was what lacked everywhere."""
    told = "; ".join(f"{m.name}: {str(e) or type(e).__name__}" for m, e in failed)
    if len(failed) == 1 and isinstance(failed[0][1], JtgpuError) and failed[0][0].name in str(failed[0][1]):
        return failed[0][1]
    first = failed[0][1]
    if all(isinstance(e, (TableTooLarge, MemoryError)) for _, e in failed):
        known = first if isinstance(first, TableTooLarge) else TableTooLarge("")
        return TableTooLarge(told, known.entries, known.needed, known.limit)
    made = BackendUnavailable(told)
    made.__cause__ = first
    return made


def in_order(found: Iterator[tuple[int, R]]) -> Generator[R]:
    """Results by ascending number from 0, each as soon as all before it are there; closes `found` at the end."""
    waiting: dict[int, R] = {}
    at = 0
    try:
        for number, result in found:
            waiting[number] = result
            while at in waiting:
                yield waiting.pop(at)
                at += 1
    finally:  # at once, and not when the last traceback that holds it goes: workers wait
        close = getattr(found, "close", None)
        if close is not None:
            close()
