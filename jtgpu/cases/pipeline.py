"""A file of cases through a tree into a file of answers: a thread reads, one writes, all cores compute."""

from __future__ import annotations

import contextlib
import hashlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ImpossibleEvidence, JtgpuError, ParseError, UnknownState
from ..network import DiscreteModel
from ..tree import JunctionTree
from .arrow import arrow
from .encode import MISSING, Encoded, Encoder
from .output import NO_SPACE, Unfinished, writer_for
from .solve import Answers, Solver, ask
from .stream import Chunk, Source, open_cases

__all__ = ["Report", "answer_file"]

AHEAD = 1  # chunks that wait before and behind the one that is computed
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
    targets: str | int | Iterable[str | int] | None = None,
    evidence_columns: str | Iterable[str] | None = None,
    keep: str | Iterable[str] = (),
    labels: bool = False,
    log_evidence: bool = False,
    conflict: bool = False,
    mpe: bool = False,
    on_error: str = "error",
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
        1: the file is parsed by one core; what computes is the tree's affair.
    resume, force : bool
        Go on with an unfinished run; write over an output that is there.
    progress : callable, optional
        Called after each chunk.

    Raises
    ------
    ParseError, UnknownState, UnknownVariable, ImpossibleEvidence, EvidenceError
        Naming the file and the row. The chunks before are kept, as after Ctrl-C and on a full disk.
    JtgpuError
        On a full disk, saying how to go on.
    """
    begun = time.perf_counter()
    model, missing = tree.model, tuple(missing)
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk is a number of cases, not {chunk!r}")
    path = Path(cases)
    source = open_cases(path, model, delimiter=delimiter, quote=quote, encoding=encoding, threads=threads != 1)
    question, kept = ask(
        model, source.columns, targets=targets, evidence_columns=evidence_columns, keep=keep, source=str(path),
        labels=labels, log_evidence=log_evidence, conflict=conflict, mpe=mpe, on_error=on_error,
    )  # fmt: skip
    kept_fields = list(zip(kept, source.types(kept), strict=True))
    schema = question.schema(model, kept_fields)
    identity = {
        "cases": _file_identity(path),
        "network": _model_identity(model),
        "question": {**asdict(question), "keep": kept, "missing": sorted(missing), "do": _plain(do)},
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
        rows = chunk or question.rows_at_once(model)
        chunks = source.chunks(names, kept, rows, before.position)
        _run(chunks, encoder, solver, fields, unfinished, source, progress)
        unfinished.finish(schema)
    except OSError as error:
        if isinstance(error, JtgpuError) or error.errno not in NO_SPACE:
            raise
        raise JtgpuError(
            f"no space left for {output}: {unfinished.done.rows:,} cases are done and kept in {unfinished.folder}; "
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


@dataclass
class _Read:
    """A chunk that is ready to be answered."""

    chunk: Chunk
    encoded: Encoded


@dataclass
class _Answered:
    """A chunk that is ready to be written."""

    chunk: Chunk
    encoded: Encoded
    answers: Answers
    flagged: dict[int, str]


class _Belt:
    """A short queue between two threads, that either end can stop."""

    def __init__(self, stopped: threading.Event):
        self._queue: queue.Queue[Any] = queue.Queue(AHEAD)
        self._stopped = stopped

    def put(self, item: Any) -> bool:
        """False: nobody takes it any more."""
        while not self._stopped.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=0.1)
                return True
        return False

    def __iter__(self) -> Iterator[Any]:
        """Items until None; an error that was put is raised."""
        while True:
            try:
                item = self._queue.get(timeout=0.1)
            except queue.Empty:
                if self._stopped.is_set():
                    return
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item


def _run(
    chunks: Iterator[Chunk], encoder: Encoder, solver: Solver, kept: list[Any], unfinished: Unfinished, source: Source,
    progress: Progress | None,
) -> None:  # fmt: skip
    """Read, answer and write all chunks in order; an error comes after everything before it is written."""
    no_reader, no_writer = threading.Event(), threading.Event()
    read, answered = _Belt(no_reader), _Belt(no_writer)
    n_evidence = len(solver.question.evidence)
    failed: list[BaseException] = []

    def reader() -> None:
        try:
            for chunk in chunks:
                encoded = encoder.encode(chunk.columns[:n_evidence], chunk.n)
                encoded.refused = dict(sorted((encoded.refused | chunk.broken).items()))
                chunk.columns[:n_evidence] = []
                if not read.put(_Read(chunk, encoded)):
                    return
            read.put(None)
        except BaseException as error:
            read.put(error)
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()

    def writer() -> None:
        try:
            for item in answered:
                columns = list(zip(kept, map(_joined, item.chunk.columns), strict=True))
                table = solver.table(item.answers, item.encoded, item.flagged, columns)
                unfinished.append(table, item.chunk.position, len(item.flagged))
                if progress is not None:
                    progress(unfinished.done.rows, item.chunk.done, source.size)
        except BaseException as error:
            failed.append(error)
            no_writer.set()

    threads = [threading.Thread(target=t, name=f"jtgpu-{t.__name__}", daemon=True) for t in (reader, writer)]
    for thread in threads:
        thread.start()
    try:
        for item in read:
            if not answered.put(_answer(item, solver)):
                break
    finally:
        no_reader.set()
        answered.put(None)
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def _joined(column: Any) -> Any:
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


def _answer(item: _Read, solver: Solver) -> _Answered:
    """Answer a chunk; raise for the first row that cannot be, unless such rows are flagged."""
    chunk, encoded = item.chunk, item.encoded
    if encoded.refused and not solver.question.flag:
        row, why = next(iter(encoded.refused.items()))
        place, line = chunk.place(row)
        if row in chunk.broken:
            raise ParseError(why, place, line)
        raise UnknownState(f"{_called(place, line)}: {why}")
    answers = solver.solve(encoded.codes)
    impossible = solver.impossible_rows(answers, encoded)
    flagged = encoded.refused | {r: why for r, why in impossible.items() if r not in encoded.refused}
    if flagged and not solver.question.flag:
        row, why = next(iter(flagged.items()))
        raise ImpossibleEvidence(f"{_called(*chunk.place(row))}: {why}")
    return _Answered(chunk, encoded, answers, flagged)


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


def _model_identity(model: DiscreteModel) -> str:
    digest = hashlib.sha256()
    for v, name in enumerate(model.variables):
        digest.update(repr((name, model.states(v))).encode("utf-8", "surrogatepass"))
    for factor in model.factors:
        digest.update(repr(factor.scope).encode())
        digest.update(np.ascontiguousarray(factor.table).tobytes())
    return digest.hexdigest()


def _plain(do: Mapping[Any, Any] | None) -> Any:
    return None if not do else [[str(k), np.asarray(v).tolist()] for k, v in do.items()]
