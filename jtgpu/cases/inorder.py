"""Work on items one after the other by several threads, with results that come in the order of the items.

A thread takes items from where they come, some threads work on them, the caller's among them, and a thread hands the
results on. Few items are between the first and the last of these, so memory does not grow with their number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Generic, TypeVar

__all__ = ["AHEAD", "in_order"]

AHEAD = 2  # items beyond those at work that have been taken, or are done and wait

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Given(Exception):
    """An item that was taken and not worked on, because all of it ends."""


class _Slot(Generic[Item, Result]):
    """An item and what becomes of it."""

    def __init__(self, item: Item | None, error: BaseException | None = None):
        self._item: Item | None = item
        self._result: Result | None = None
        self._error = error
        self._gate = threading.Lock()  # open once there is a result; a lock, for a signal cannot tear its release
        if error is None:
            self._gate.acquire()

    def fill(self, work: Callable[[Item], Result]) -> bool:
        """Work on the item, which goes; whether that went well."""
        try:
            item, self._item = self._item, None
            assert item is not None
            self._result = work(item)
        except BaseException as error:
            self._error = error
        finally:
            self._gate.release()
        return self._error is None

    def give_up(self) -> None:
        """Leave the item alone."""
        self._item, self._error = None, _Given()
        self._gate.release()

    def result(self) -> Result:
        """What came of it, once it is there; raises what went wrong."""
        with self._gate:
            if self._error is not None:
                raise self._error
            result, self._result = self._result, None
            return result  # type: ignore[return-value]


def in_order(
    items: Iterator[Item], work: Callable[[Item], Result], deliver: Callable[[Result], None], at_once: int = 1
) -> None:
    """``deliver(work(item))`` for every item, in their order.

    The first error, in the order of the items, is raised after everything before it was delivered. When the caller is
    interrupted, what is at work is finished and delivered as far as it has no gaps, and the rest is left alone.

    Parameters
    ----------
    items : iterator
        Is advanced, and closed, in a thread of its own.
    work : callable
        Is called by several threads.
    deliver : callable
        Is called in a thread of its own.
    at_once : int
        Items worked on at the same time; the caller works on one of them.
    """
    run = _Run(items, work, deliver, at_once)
    names = ["jtgpu-reader", "jtgpu-writer", *(f"jtgpu-worker-{i}" for i in range(1, at_once))]
    calls = [run.read, run.write, *[run.work] * (at_once - 1)]
    threads = [threading.Thread(target=t, name=n, daemon=True) for t, n in zip(calls, names, strict=True)]
    for thread in threads:
        thread.start()
    try:
        run.work()
    except BaseException as error:  # Ctrl-C between two items
        run.failed.append(error)
    finally:
        if run.failed:
            run.stop()
        for thread in threads:
            thread.join()
    if run.failed:
        raise run.failed[0]


class _Run(Generic[Item, Result]):
    """What the threads of one call share."""

    def __init__(
        self, items: Iterator[Item], work: Callable[[Item], Result], deliver: Callable[[Result], None], at_once: int
    ):
        self._items, self._do, self._deliver, self._at_once = items, work, deliver, at_once
        self._todo: SimpleQueue[_Slot[Item, Result] | None] = SimpleQueue()
        self._ordered: SimpleQueue[_Slot[Item, Result] | None] = SimpleQueue()
        self._room = threading.Semaphore(at_once + AHEAD)
        self._stopped = threading.Event()
        self.failed: list[BaseException] = []

    def stop(self) -> None:
        """Begin nothing new."""
        self._stopped.set()
        self._room.release()  # for a reader that waits

    def read(self) -> None:
        """Hand items to those who work."""
        try:
            while self._room.acquire() and not self._stopped.is_set():
                item = next(self._items, None)
                if item is None:
                    break
                slot: _Slot[Item, Result] = _Slot(item)
                self._ordered.put(slot)
                self._todo.put(slot)
                del item, slot  # the memory of an item that is done shall not wait for the next one
        except BaseException as error:
            self._ordered.put(_Slot(None, error))
        finally:
            self._ordered.put(None)
            for _ in range(self._at_once):
                self._todo.put(None)
            close = getattr(self._items, "close", None)
            if close is not None:
                close()

    def work(self) -> None:
        """Work on items until there are no more."""
        while (slot := self._todo.get()) is not None:
            if self._stopped.is_set():
                slot.give_up()
            elif not slot.fill(self._do):
                self.stop()  # what comes behind it will not be delivered

    def write(self) -> None:
        """Hand results on."""
        try:
            while (slot := self._ordered.get()) is not None:
                self._deliver(slot.result())
                del slot
                self._room.release()
        except _Given:
            pass
        except BaseException as error:
            self.failed.append(error)
            self.stop()
