"""Chunks of cases through a solver into a sink: one thread reads, one writes, several encode and answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import JtgpuError, ParseError
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..plans.plan import Plan
from ..util.system import cores
from .answer_table import answer_table
from .ordered_pool import map_in_order
from .query import TableQuery
from .reading import CaseChunk
from .solver import Solver

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

    def encode(self, table: Any) -> Any:
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
    chunks: Iterator[CaseChunk], solver: Solver, kept: list[Any], sink: Sink, *,
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


def _answer(chunk: CaseChunk, solver: Solver, kept: list[Any]) -> tuple[Any, int]:
    """The answers of a chunk, whose columns are released, and how many of its rows have none."""
    chunk.load()

    def error(row: int, reason: str, kind: type[JtgpuError]) -> JtgpuError:
        file, line = chunk.locate(row)
        if row in chunk.broken:
            return ParseError(reason, file, line)
        return kind(f"{file if line is None else f'{file}:{line}'}: {reason}")

    n_evidence = len(solver.query.evidence)
    evidence, copied, chunk.columns = chunk.columns[:n_evidence], chunk.columns[n_evidence:], []
    rows = solver.answer(evidence, chunk.n, error, chunk.broken, is_text=chunk.is_text)
    del evidence
    columns = [c.combine_chunks() if hasattr(c, "combine_chunks") else c for c in copied]
    return answer_table(solver, rows, list(zip(kept, columns, strict=True))), len(rows.flagged)
