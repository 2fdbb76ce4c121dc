"""A file of cases through a tree into a file of answers: a thread reads, one writes, some answer chunk by chunk."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack, runtime_checkable

import numpy as np

from ..errors import ImpossibleEvidence, JtgpuError, ParseError, UnknownState
from ..inference.tree import JunctionTree
from ..model.network import DiscreteModel
from ..util import doors
from ..util.system import cores
from .arrow import arrow
from .encode import MISSING, Encoder
from .inorder import in_order
from .output import NO_SPACE, Unfinished, writer_for
from .solve import Question, Solver, Wanted, ask
from .stream import Chunk, open_cases

if TYPE_CHECKING:
    from ..inference.network_plan import NetworkPlan

__all__ = [
    "PackingSink", "Report", "Sink", "answer_file", "model_identity", "plain_do", "run_chunks", "side_by_side",
    "usual_chunk",
]  # fmt: skip

WORK_AT_ONCE = 4e10  # multiplications of a chunk on processors, a second or two: what Ctrl-C waits for
LEAST_ROWS = 1024
BESIDE = 8  # chunks under way beside a card, each of which is some tens of megabytes, read, answered and packed
LOOKED_AT = 1 << 16  # bytes of a file's beginning and end that tell whether it is the same

Progress = Callable[[int, int, int], None]  # cases answered; how far reading has come, of how much


@dataclass(frozen=True)
class Report:
    """What became of a file.

    Attributes
    ----------
    output : str
    cases, flagged : int
        Rows, and those of them that have no answer but the reason why.
    resumed : int
        Rows that an earlier run had answered.
    seconds : float
        Of this run.
    targets, evidence, ignored : tuple of str
        Variables asked for; columns that were evidence; columns that were left alone.
    """

    output: str
    cases: int
    flagged: int
    resumed: int
    seconds: float
    targets: tuple[str, ...]
    evidence: tuple[str, ...]
    ignored: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def answer_file(
    tree: JunctionTree,
    cases: str | Path,
    output: str | Path,
    *,
    missing: Iterable[str] = MISSING,
    do: Mapping[Any, Any] | None = None,
    delimiter: str | None = None,
    quote: str = '"',
    encoding: str = "utf-8",
    chunk: int | None = None,
    compression: str | None = None,
    threads: int | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    cluster: Any = None,
    **wanted: Unpack[Wanted],
) -> Report:
    """Answer every row of a CSV or Parquet file, in memory that does not grow with it.

    Parameters
    ----------
    tree : JunctionTree
    cases, output : path
        CSV (packed or not) or Parquet, by what is in it; .parquet, .csv, .tsv (.gz, .zst), by its name.
    targets, evidence_columns, keep, labels, log_evidence, conflict, mpe, on_error, missing, do
        See `jtgpu.JunctionTree.predict_proba`.
    delimiter, quote, encoding : str
        Of a CSV; see `jtgpu.cases.stream.open_cases`.
    chunk : int, optional
        About how many cases are read, answered and written at a time; default: what takes some tens of megabytes.
    compression : str, optional
        Of a Parquet output, as pyarrow calls it; default: snappy.
    threads : int, optional
        Cores for all but the answering itself, which is the tree's affair; default: all. 1: nothing is parsed, or
        packed beside a card, by more than one.
    resume, force : bool
        Go on with an unfinished run; write over an output that is there.
    progress : callable, optional
        Called after each chunk.
    cluster : str or Cluster, optional
        A cluster of Ray, on whose machines this is done: `jtgpu.cluster.answer_files`, which takes folders and URIs.

    Raises
    ------
    ParseError, UnknownState, UnknownVariable, ImpossibleEvidence, EvidenceError
        Naming the file and the row. The chunks before are kept, as after Ctrl-C and on a full disk.
    JtgpuError
        On a full disk, saying how to go on.
    """
    if cluster is not None:
        report: Report = doors.cluster().answer_files(
            tree, cases, output, cluster=cluster, missing=missing, do=do, delimiter=delimiter, quote=quote,
            encoding=encoding, chunk=chunk, compression=compression, resume=resume, force=force, progress=progress,
            **wanted,
        )  # fmt: skip
        return report
    begun = time.perf_counter()
    model, missing = tree.model, tuple(missing)
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk is a number of cases, not {chunk!r}")
    path = Path(cases)
    source = open_cases(path, model, delimiter=delimiter, quote=quote, encoding=encoding, threads=threads != 1)
    if Path(output).exists() and Path(output).samefile(path):
        raise JtgpuError(f"{output} holds the cases: answers do not go where they come from")
    question, kept = ask(model, source.columns, source=str(path), **wanted)
    kept_fields = list(zip(kept, source.types(kept), strict=True))
    schema = question.schema(model, kept_fields)
    identity = {
        "cases": _file_identity(path),
        "network": model_identity(model),
        "question": {**asdict(question), "keep": kept, "missing": sorted(missing), "do": plain_do(do)},
        "dialect": [delimiter, quote, encoding],
        "output": [Path(output).name, compression],
    }
    writer = writer_for(Path(output), compression)
    unfinished = Unfinished(Path(output), writer, identity, resume=resume, force=force)
    before = unfinished.done
    names = [model.variables[v] for v in question.evidence]
    try:
        solver = Solver(tree, question, do)
        encoder = Encoder(model, question.evidence, missing)
        fields = [arrow().field(name, kind) for name, kind in kept_fields]
        rows = chunk or usual_chunk(tree.plan, question, bool(tree.device))
        chunks = source.chunks(names, kept, rows, before.position)

        def told(chunk: Chunk) -> None:
            if progress is not None:
                progress(unfinished.done.rows, chunk.done, source.size)

        run_chunks(chunks, encoder, solver, fields, unfinished, told, side_by_side(tree, threads))
        unfinished.finish(schema)
    except OSError as error:
        if isinstance(error, JtgpuError) or error.errno not in NO_SPACE:
            raise
        with contextlib.suppress(OSError):
            unfinished.sync()
        raise JtgpuError(
            f"no space left for {output}: {unfinished.safe:,} cases are done and kept in {unfinished.folder}; "
            "make room and go on with --resume"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            unfinished.sync()
        unfinished.close()
    done = unfinished.done
    known = {*names, *kept}
    return Report(
        str(output), done.rows, done.flagged, before.rows, time.perf_counter() - begun,
        tuple(model.variables[v] for v in question.targets), tuple(names),
        tuple(c for c in source.columns if c not in known and c not in model.variables),
    )  # fmt: skip


def usual_chunk(plan: NetworkPlan, question: Question, on_gpu: bool) -> int:
    """Cases of a chunk that take little memory, and little time; the number of threads or of workers is nothing to it,
    for the last digits of the answers may depend on what stands in one chunk."""
    rows = question.rows_at_once(plan.model)
    if on_gpu:
        return rows
    return int(min(rows, max(WORK_AT_ONCE / max(plan.cost().flops, 1), LEAST_ROWS)))


def side_by_side(tree: JunctionTree, threads: int | None = None) -> int:
    """Chunks that are worth being under way at once with so many threads (default: all cores). A card answers one after
    the other, in a small part of the time that encoding and packing them takes the cores."""
    return max(tree.max_concurrent_tables, min(threads or cores(), BESIDE)) if tree.device else tree.max_concurrent_tables


@runtime_checkable
class Sink(Protocol):
    """Where answers go."""

    def append(self, table: Any, position: dict[str, int], flagged: int) -> None:
        """Write a chunk: its answers, where reading goes on behind it, how many of its rows have no answer."""


@runtime_checkable
class PackingSink(Sink, Protocol):
    """A sink part of whose work any thread can do, in any order."""

    def pack(self, table: Any) -> Any:
        """What `append` takes in place of a table."""


@dataclass
class _Answered:
    """A chunk that is ready to be written."""

    chunk: Chunk
    table: Any
    flagged: int


def run_chunks(
    chunks: Iterator[Chunk], encoder: Encoder, solver: Solver, kept: list[Any], sink: Sink,
    told: Callable[[Chunk], None] | None = None, at_once: int = 1,
) -> None:  # fmt: skip
    """Read, answer and write all chunks in order; an error comes after everything before it is written.

    Parameters
    ----------
    chunks, encoder, solver
        Of the same columns of evidence.
    kept : list of Arrow fields
        Columns of the chunks behind those of evidence, which are copied.
    sink : Sink
        A `PackingSink` packs beside others; what is written is in order.
    told : callable, optional
        Called, in the thread that writes, after each chunk.
    at_once : int
        Chunks that are under way at the same time; see `side_by_side`.
    """
    pack = sink.pack if isinstance(sink, PackingSink) else lambda table: table

    def answer(chunk: Chunk) -> _Answered:
        table, flagged = _answer(chunk, encoder, solver, kept)
        chunk.drop()
        return _Answered(chunk, pack(table), flagged)

    def write(item: _Answered) -> None:
        sink.append(item.table, item.chunk.position, item.flagged)
        if told is not None:
            told(item.chunk)

    in_order(chunks, answer, write, at_once)


def _joined(column: Any) -> Any:
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


def _answer(chunk: Chunk, encoder: Encoder, solver: Solver, kept: list[Any]) -> tuple[Any, int]:
    """The answers of a chunk, whose columns go, and how many rows have none; raises for the first row that has none,
    unless such rows are flagged."""
    chunk.load()
    n_evidence, flag = len(solver.question.evidence), solver.question.flag
    encoded = encoder.encode(chunk.columns[:n_evidence], chunk.n)
    encoded.refused = dict(sorted((encoded.refused | chunk.broken).items()))
    columns, chunk.columns = chunk.columns[n_evidence:], []
    if encoded.refused and not flag:
        row, why = next(iter(encoded.refused.items()))
        place, line = chunk.place(row)
        if row in chunk.broken:
            raise ParseError(why, place, line)
        raise UnknownState(f"{_called(place, line)}: {why}")
    answers = solver.solve(encoded.codes)
    impossible = solver.impossible_rows(answers, encoded)
    flagged = encoded.refused | {r: why for r, why in impossible.items() if r not in encoded.refused}
    if flagged and not flag:
        row, why = next(iter(flagged.items()))
        raise ImpossibleEvidence(f"{_called(*chunk.place(row))}: {why}")
    return solver.table(answers, encoded, flagged, list(zip(kept, map(_joined, columns), strict=True))), len(flagged)


def _called(place: str, line: int | None) -> str:
    return place if line is None else f"{place}:{line}"


def _file_identity(path: Path) -> dict[str, Any]:
    """What tells whether a file is still the same, without reading all of it."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.read(LOOKED_AT))
        size = file.seek(0, 2)
        file.seek(max(size - LOOKED_AT, 0))
        digest.update(file.read(LOOKED_AT))
    return {"size": size, "modified": path.stat().st_mtime_ns, "digest": digest.hexdigest()}


def model_identity(model: DiscreteModel) -> str:
    """What tells whether a model is still the same."""
    digest = hashlib.sha256()
    for v, name in enumerate(model.variables):
        digest.update(repr((name, model.states(v))).encode("utf-8", "surrogatepass"))
    for factor in model.factors:
        digest.update(repr(factor.scope).encode())
        digest.update(np.ascontiguousarray(factor.table).tobytes())
    return digest.hexdigest()


def plain_do(do: Mapping[Any, Any] | None) -> Any:
    """Interventions as JSON."""
    return None if not do else [[str(k), np.asarray(v).tolist()] for k, v in do.items()]
