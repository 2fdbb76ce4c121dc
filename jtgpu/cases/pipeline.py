"""Chunks of cases through a solver into a sink: one thread reads, one writes, several encode and answer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from ..columns.source import CaseChunk
from ..errors import JtgpuError, ParseError
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..plans.plan import Plan
from ..util.system import cores
from .answer_table import answer_table
from .query import TableQuery
from .solver import CaseSolver

# Process items in several threads and deliver the results in order.
#
# One thread reads the items, several process them, and one delivers the results. Few items are in flight at a time,
# so memory does not grow with their number. The calling thread only waits: an interrupt can stop the main thread
# between any two of its steps, so that thread must not hold an item.

PREFETCH = 2  # items in flight beyond those being processed: read, or waiting for delivery

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Abandoned(Exception):
    """An item that was read but not processed, because the run ends."""


class _Slot(Generic[Item, Result]):
    """An item, later its result."""

    def __init__(self, item: Item | None, error: BaseException | None = None):
        self._item: Item | None = item
        self._result: Result | None = None
        self._error = error
        self._gate = threading.Lock()  # open once there is a result
        if error is None:
            self._gate.acquire()

    def fill(self, work: Callable[[Item], Result]) -> bool:
        """Process the item and release it; returns whether that succeeded."""
        try:
            item, self._item = self._item, None
            assert item is not None
            self._result = work(item)
        except BaseException as error:
            self._error = error
        finally:
            self._gate.release()
        return self._error is None

    def abandon(self) -> None:
        """Release the item without processing it."""
        self._item, self._error = None, _Abandoned()
        self._gate.release()

    def result(self) -> Result:
        """Wait for the result and return it, or raise the error."""
        with self._gate:
            if self._error is not None:
                raise self._error
            result, self._result = self._result, None
            return result  # type: ignore[return-value]


def map_in_order(
    items: Iterator[Item], work: Callable[[Item], Result], deliver: Callable[[Result], None], concurrency: int = 1
) -> None:
    """Call ``deliver(work(item))`` for every item, in order.

    The first error, in the order of the items, is raised after all results before it have been delivered. If the caller
    is interrupted, items in progress are finished and delivered up to the first gap, and the others are dropped.
    """
    # items: Advanced and closed in a thread of its own
    # work: Called from several threads
    # deliver: Called from a thread of its own
    # concurrency: Number of items processed at the same time
    run = _PipelineRun(items, work, deliver, concurrency)
    try:
        threading.Thread(target=run.run_all, name="jtgpu-reader", daemon=True).start()
        run.wait()
    except BaseException as error:  # Ctrl-C
        run.failed.append(error)
        run.stop()
        if run.started:
            run.wait()
    if run.failed:
        raise run.failed[0]


class _PipelineRun(Generic[Item, Result]):
    """State shared by the threads of one call.

    The calling thread uses only plain attributes and queues implemented in C, which an interrupt cannot leave in an
    inconsistent state.
    """

    def __init__(
        self, items: Iterator[Item], work: Callable[[Item], Result], deliver: Callable[[Result], None], concurrency: int
    ):
        self._items, self._work, self._deliver, self._concurrency = items, work, deliver, concurrency
        self._todo: SimpleQueue[_Slot[Item, Result] | None] = SimpleQueue()
        self._ordered: SimpleQueue[_Slot[Item, Result] | None] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()  # one entry per item that may be read
        for _ in range(concurrency + PREFETCH):
            self._room.put(None)
        self._finished_signal: SimpleQueue[None] = SimpleQueue()
        self._stopped = self._finished = False
        self.started = False
        self.failed: list[BaseException] = []

    def stop(self) -> None:
        """Start no further item."""
        self._stopped = True
        self._room.put(None)  # wakes a waiting reader

    def wait(self) -> None:
        """Wait until all threads have ended."""
        while not self._finished:
            with contextlib.suppress(Empty):
                self._finished_signal.get(timeout=0.1)  # an interrupt may consume the one signal

    def run_all(self) -> None:
        """Body of the first thread: start the others, read, and wait for them."""
        self.started = True
        try:
            if not self._stopped:
                self._run_threads()
        except BaseException as error:
            self.failed.append(error)
        finally:
            self._finished = True
            self._finished_signal.put(None)

    def _run_threads(self) -> None:
        calls = {"jtgpu-writer": self.write, **{f"jtgpu-worker-{i}": self.work for i in range(self._concurrency)}}
        threads = [threading.Thread(target=t, name=n, daemon=True) for n, t in calls.items()]
        try:
            for thread in threads:
                thread.start()
        except RuntimeError as error:  # the system limit is reached
            self.failed.append(error)
            self.stop()
        self.read()
        for thread in threads:
            if thread.ident is not None:
                thread.join()

    def read(self) -> None:
        """Read items and queue them."""
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
                del item, slot  # release the memory of a finished item now, not with the next one
        except BaseException as error:
            self._ordered.put(_Slot(None, error))
        finally:
            self._ordered.put(None)
            for _ in range(self._concurrency):
                self._todo.put(None)
            close = getattr(self._items, "close", None)
            if close is not None:
                try:
                    close()
                except BaseException as error:
                    self.failed.append(error)

    def work(self) -> None:
        """Process queued items until there are no more."""
        while (slot := self._todo.get()) is not None:
            if self._stopped:
                slot.abandon()
            elif not slot.fill(self._work):
                self.stop()  # later items will not be delivered

    def write(self) -> None:
        """Deliver results in order."""
        try:
            while (slot := self._ordered.get()) is not None:
                self._deliver(slot.result())
                del slot
                self._room.put(None)
        except _Abandoned:
            pass
        except BaseException as error:
            self.failed.append(error)
            self.stop()


CHUNK_OPERATIONS = 4e10  # multiplications of a chunk on the CPU: one or two seconds, which Ctrl-C waits for
MIN_ROWS = 1024
MAX_CONCURRENCY = 8  # chunks in flight for one GPU; each holds some tens of megabytes


def default_chunk(model: DiscreteModel, plan: Plan, query: TableQuery, on_gpu: bool) -> int:
    """Number of cases of a chunk that takes little memory and little time.

    It must not depend on the number of threads or workers: the last digits of an answer may depend on the other cases
    of its chunk.
    """
    rows = query.rows_per_call(model)
    if on_gpu:
        return rows
    return int(min(rows, max(CHUNK_OPERATIONS / max(plan.cost().flops, 1), MIN_ROWS)))


def default_concurrency(tree: JunctionTree, threads: int | None = None) -> int:
    """Number of chunks to process at the same time with so many threads (default: all cores).

    A GPU answers one chunk after the other, in a small part of the time that the CPU takes to encode and write them.
    """
    if not tree.device:
        return tree.max_concurrent_tables
    return max(tree.max_concurrent_tables, min(threads or cores(), MAX_CONCURRENCY))


class Sink(Protocol):
    """A destination of answers."""

    def encode(self, table: object) -> Any:
        """Convert a table to what `append` takes; called from any thread, in any order."""

    def append(self, table: Any, position: dict[str, int], flagged: int) -> None:
        """Write a chunk."""
        # table: As `encode` returns it
        # position: Position in the input at which reading continues after this chunk
        # flagged: Number of its rows without an answer


@dataclass
class _AnsweredChunk:
    """A chunk ready to be written."""

    chunk: CaseChunk
    table: Any
    flagged: int


def run_chunks(
    chunks: Iterator[CaseChunk], solver: CaseSolver, kept: list[Any], sink: Sink, *,
    progress: Callable[[CaseChunk], None] | None = None, concurrency: int = 1,
) -> None:  # fmt: skip
    """Read, answer and write all chunks in order; an error is raised after everything before it has been written."""
    # chunks: Their columns are those of the solver's query, then `kept`
    # kept: list of Arrow fields: Columns to copy
    # progress: Called after each chunk, in the thread that writes
    # concurrency: Number of chunks processed at the same time; see `default_concurrency`

    def answer(chunk: CaseChunk) -> _AnsweredChunk:
        table, flagged = _answer(chunk, solver, kept)
        chunk.drop()
        return _AnsweredChunk(chunk, sink.encode(table), flagged)

    def write(answered: _AnsweredChunk) -> None:
        sink.append(answered.table, answered.chunk.position, answered.flagged)
        if progress is not None:
            progress(answered.chunk)

    map_in_order(chunks, answer, write, concurrency)


def _answer(chunk: CaseChunk, solver: CaseSolver, kept: list[Any]) -> tuple[Any, int]:
    """The answers of a chunk, whose columns are released, and how many of its rows have none."""
    chunk.load()

    def error(row: int, reason: str, kind: type[JtgpuError]) -> JtgpuError:
        file, line = chunk.locate(row)
        if row in chunk.broken:
            return ParseError(reason, file, line)
        return kind(f"{file if line is None else f'{file}:{line}'}: {reason}")

    n_evidence = len(solver.query.evidence)
    evidence, copied, chunk.columns = chunk.columns[:n_evidence], chunk.columns[n_evidence:], []
    rows = solver.answer(evidence, chunk.n, error, chunk.broken, is_text=chunk.is_text, marks=chunk.marks)
    del evidence
    columns = [c.combine_chunks() if hasattr(c, "combine_chunks") else c for c in copied]
    return answer_table(solver, rows, list(zip(kept, columns, strict=True))), len(rows.flagged)
