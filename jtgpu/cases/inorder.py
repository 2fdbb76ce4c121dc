"""Work on items one after the other by several threads, with results that come in the order of the items.

A thread takes items from where they come, some threads work on them, and a thread hands the results on. Few items are
between the first and the last of these, so memory does not grow with their number. The caller only waits: an interrupt
reaches the main thread alone, between any two of its steps, and must not find an item in its hands.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
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
        self._gate = threading.Lock()  # open once there is a result
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
        Items worked on at the same time.
    """
    run = _Run(items, work, deliver, at_once)
    try:
        threading.Thread(target=run.all, name="jtgpu-reader", daemon=True).start()
        run.wait()
    except BaseException as error:  # Ctrl-C
        run.failed.append(error)
        run.stop()
        if run.begun:
            run.wait()
    if run.failed:
        raise run.failed[0]


class _Run(Generic[Item, Result]):
    """What the threads of one call share. What the caller's thread touches of it, an interrupt cannot tear: plain
    attributes, and queues that are not written in Python."""

    def __init__(
        self, items: Iterator[Item], work: Callable[[Item], Result], deliver: Callable[[Result], None], at_once: int
    ):
        self._items, self._do, self._deliver, self._at_once = items, work, deliver, at_once
        self._todo: SimpleQueue[_Slot[Item, Result] | None] = SimpleQueue()
        self._ordered: SimpleQueue[_Slot[Item, Result] | None] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()  # as many as may still be taken
        for _ in range(at_once + AHEAD):
            self._room.put(None)
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._stopped = self._over = False
        self.begun = False
        self.failed: list[BaseException] = []

    def stop(self) -> None:
        """Begin nothing new."""
        self._stopped = True
        self._room.put(None)  # for a reader that waits

    def wait(self) -> None:
        """Until all threads have ended."""
        while not self._over:
            with contextlib.suppress(Empty):
                self._bell.get(timeout=0.1)  # an interrupt may take the one ring, or come to another thread

    def all(self) -> None:
        """The first thread: it reads, when it has started the others, and ends after them."""
        self.begun = True
        try:
            if not self._stopped:
                self._with_others()
        except BaseException as error:
            self.failed.append(error)
        finally:
            self._over = True
            self._bell.put(None)

    def _with_others(self) -> None:
        calls = {"jtgpu-writer": self.write, **{f"jtgpu-worker-{i}": self.work for i in range(self._at_once)}}
        threads = [threading.Thread(target=t, name=n, daemon=True) for n, t in calls.items()]
        try:
            for thread in threads:
                thread.start()
        except RuntimeError as error:  # the system has no more of them
            self.failed.append(error)
            self.stop()
        self.read()
        for thread in threads:
            if thread.ident is not None:
                thread.join()

    def read(self) -> None:
        """Hand items to those who work."""
        try:
            while True:
                self._room.get()
                if self._stopped:
                    break
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
                try:
                    close()
                except BaseException as error:
                    self.failed.append(error)

    def work(self) -> None:
        """Work on items until there are no more."""
        while (slot := self._todo.get()) is not None:
            if self._stopped:
                slot.give_up()
            elif not slot.fill(self._do):
                self.stop()  # what comes behind it will not be delivered

    def write(self) -> None:
        """Hand results on."""
        try:
            while (slot := self._ordered.get()) is not None:
                self._deliver(slot.result())
                del slot
                self._room.put(None)
        except _Given:
            pass
        except BaseException as error:
            self.failed.append(error)
            self.stop()
