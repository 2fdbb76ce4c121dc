"""Files of cases on a cluster: Ray Data's actors take parts, answer them and write them, each part to its own file.

What goes to a worker is the job, once (a plan, the model's numbers and what is asked), and then numbers of parts. What
comes back is a line a part. Ray finds the workers, gives the parts out and starts anew what was lost.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ..cases.arrow import arrow
from ..cases.encode import MISSING, Encoder
from ..cases.output import NO_SPACE, writer_for
from ..cases.pipeline import Report, model_identity, plain_do, run_chunks, side_by_side, usual_chunk
from ..cases.solve import Question, Solver, Wanted, ask
from ..errors import JtgpuError
from ..inference.tree import JunctionTree
from ..model.network import DiscreteModel
from ..util.version import __version__
from .afar import is_client, lead_from_afar
from .connect import Cluster, Share, as_cluster, connected, quietly, understood
from .folder import Folder, PartWriter
from .parts import Dialect, Part, divide, look, opened, same_columns
from .storage import find_cases

if TYPE_CHECKING:
    import os

    from ..inference.network_plan import NetworkPlan

__all__ = ["ClusterReport", "Job", "Progress", "answer_files", "columns_of"]

Progress = Callable[[int, int, int], None]  # cases answered; bytes of the cases that are done, of how many
FILES = (".parquet", ".pq", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst")  # one file, not a folder
CHUNKS_A_PART = 16  # at most, so that what is done anew after a loss took a minute or two and not an hour
TRIES = 3  # of a part that storage failed
PAUSE = 0.5  # seconds before the second


@dataclass(frozen=True)
class ClusterReport(Report):
    """What became of the files.

    Attributes
    ----------
    parts, workers : int
        Into how many parts the work was divided, and among how many workers.
    backend : str
    """

    parts: int = 0
    workers: int = 0
    backend: str = ""


@dataclass(frozen=True)
class Job:
    """All that a worker needs to know; sent once."""

    plan: NetworkPlan
    share: Share
    question: Question
    evidence: list[str]
    kept: list[str]
    missing: tuple[str, ...]
    do: Mapping[Any, Any] | None
    dialect: Dialect
    step: int  # cases at a time
    schema: Any
    folder: str
    run: str
    compression: str
    options: dict[str, Any] = field(default_factory=dict)  # of the backend
    version: str = __version__


class Worker:
    """What an actor is: it compiles once and answers part after part."""

    def __init__(self, job: Job):
        if job.version != __version__:
            raise JtgpuError(f"this worker has jtgpu {__version__}, the run is led by jtgpu {job.version}")
        self.job = job
        arrow().set_cpu_count(job.share.threads)
        self._tree: JunctionTree | None = None

    def tree(self) -> JunctionTree:
        """The tree, for one part.

        One that plans anew for patterns that come again answers by what it has seen, in the last digits. A part must
        not depend on the parts before it, so there each has a tree of its own.
        """
        if self._tree is not None and self._tree.is_adaptive:
            self._tree.close()
            self._tree = None
        if self._tree is None:
            self._tree = self._new()
        return self._tree

    def _new(self) -> JunctionTree:
        return self.job.plan.compile(self.job.share.backend, **self.job.options)

    def answer(self, part: Part) -> tuple[int, int]:
        """Answer a part and write it: how many rows, and how many of them have no answer."""
        job = self.job
        encoder = Encoder(job.plan.model, job.question.evidence, job.missing)
        solver = Solver(self.tree(), job.question, job.do)
        fields = [job.schema.field(i) for i in range(len(job.kept))]
        threads = job.share.threads > 1
        with opened(part, job.plan.model, job.dialect, job.evidence, job.kept, job.step, threads) as chunks:
            writer = PartWriter(job.folder, part.number, job.run, job.schema, job.compression)
            try:
                at_once = side_by_side(solver.tree, job.share.threads)
                run_chunks(chunks, encoder, solver, fields, writer, at_once=at_once)
                writer.finish()
            except BaseException:
                writer.discard()
                raise
        return writer.rows, writer.flagged

    def try_answer(self, part: Part) -> tuple[int, int]:
        """`answer`; storage that fails is asked again, but a full disk is not."""
        for again in range(1, TRIES + 1):
            try:
                return self.answer(part)
            except OSError as error:
                if isinstance(error, JtgpuError) or error.errno in NO_SPACE or again == TRIES:
                    raise
                time.sleep(PAUSE * 2**again)
        raise AssertionError("unreachable")


class Actor:
    """`Worker` as Ray Data calls it: a block of numbers of parts in, a block of what became of them out."""

    def __init__(self, job: Any):
        import ray

        self._worker = Worker(ray.get(job[0]))

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {"number": [], "rows": [], "flagged": [], "error": []}
        for text in batch["part"].tolist():
            part: Part = pickle.loads(text)
            rows, flagged, error = 0, 0, b""
            try:
                rows, flagged = self._worker.try_answer(part)
            except (JtgpuError, OSError, MemoryError) as wrong:  # as it is, for whoever leads the run
                error = pickle.dumps(wrong)
            for name, value in (("number", part.number), ("rows", rows), ("flagged", flagged), ("error", error)):
                found[name].append(value)
        return found


def answer_files(
    plan: NetworkPlan | JunctionTree,
    cases: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    cluster: str | Cluster = "auto",
    backend: str = "auto",
    missing: Iterable[str] = MISSING,
    do: Mapping[Any, Any] | None = None,
    delimiter: str | None = None,
    quote: str = '"',
    encoding: str = "utf-8",
    chunk: int | None = None,
    part_rows: int | None = None,
    compression: str | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    **wanted: Unpack[Wanted],
) -> ClusterReport:
    """Answer every row of a table of any number of files on the machines of a Ray cluster.

    Parameters
    ----------
    plan : NetworkPlan or JunctionTree
        A plan needs no memory and no GPU where this is called; a tree stands for its plan, backend and options.
    cases : path, URI, or several
        CSV or Parquet: files, folders, patterns (``s3://bucket/cases/*.parquet``). Workers read them themselves.
    output : path or URI
        A folder of Parquet files, ``part-000000.parquet`` and so on, whose order is that of the cases; or, called
        .parquet, .csv ... on a disk that workers share, one file, made of the parts at the end.
    cluster : str or Cluster
        See `Cluster`. From afar (``ray://``) a process of the cluster leads, and paths are what they are there.
    backend : str
        Of the workers; ``"auto"``: GPUs where the cluster has any.
    targets, evidence_columns, keep, labels, log_evidence, conflict, mpe, on_error, missing, do
        See `jtgpu.JunctionTree.predict_proba`.
    delimiter, quote, encoding, chunk, compression
        See `jtgpu.cases.answer_file`.
    part_rows : int, optional
        Rows of a part, about: what is done anew when a worker is lost. Default: about a million; fewer where cases
        are dear, or for the workers to have four parts each.
    resume, force : bool
        Go on with an unfinished run, part by part; replace an output that is there.
    progress : callable, optional
        Called after each part, in their order.

    Raises
    ------
    ParseError, UnknownState, UnknownVariable, ImpossibleEvidence, EvidenceError
        Naming the file and the row, from whichever worker. Parts that are done stay.
    JtgpuError
        Where Ray or the cluster is not there; on a full disk, saying how to go on.
    """
    begun = time.perf_counter()
    model, missing = plan.model, tuple(missing)
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk is a number of cases, not {chunk!r}")
    if part_rows is not None and part_rows < 1:
        raise ValueError(f"part_rows is a number of rows, not {part_rows!r}")
    options: dict[str, Any] = {}
    if isinstance(plan, JunctionTree):
        backend, options, plan = plan.backend, plan.options, plan.plan
    where = as_cluster(cluster)
    if is_client(where):
        report: ClusterReport = lead_from_afar(
            answer_files, where, progress, plan=plan, cases=cases, output=str(output), backend=backend,
            missing=missing, do=do, delimiter=delimiter, quote=quote, encoding=encoding, chunk=chunk,
            part_rows=part_rows, compression=compression, resume=resume, force=force, **wanted,
        )  # fmt: skip
        return report
    dialect = Dialect(delimiter, quote, encoding)
    out = str(output)
    single = out.lower().endswith(FILES)
    if single:
        writer_for(Path(out), compression)
    files = find_cases(cases)
    tables = look(files, model, dialect)
    called = files[0].place.uri
    question, kept = ask(model, tables[0].columns, source=called, **wanted)
    evidence = [model.variables[v] for v in question.evidence]
    same_columns(tables, model, evidence, kept, wanted.get("evidence_columns") is not None)
    schema = question.schema(model, [(k, tables[0].types[k]) for k in kept])
    usual = usual_chunk(plan, question, backend in ("gpu", "indexed"))
    step = chunk or usual
    identity = {
        "cases": [f.identity for f in files],
        "network": model_identity(model),
        "question": {**asdict(question), "keep": kept, "missing": sorted(missing), "do": plain_do(do)},
        "dialect": asdict(dialect),
        "chunk": step,
        "output": compression,
    }
    folder = Folder(out, identity, resume=resume, force=force, single=single)
    before = 0
    try:
        with connected(where) as ray:
            workers = Share.of(where, ray.cluster_resources(), backend, 2**31)
            rows = folder.settled.get("part_rows", part_rows)
            parts, rows = divide(tables, dialect, step, workers.workers, rows, CHUNKS_A_PART * usual)
            folder.begin({"part_rows": rows})
            there = folder.there()
            done = {p.number: there[p.number] for p in parts if p.number in there}
            before = sum(n for n, _ in done.values())
            left = [p for p in parts if p.number not in done]
            share = Share.of(where, ray.cluster_resources(), backend, max(len(left), 1))
            job = Job(
                plan, share, question, evidence, kept, missing, do, dialect, step, schema, folder.at.uri, folder.run,
                compression or "snappy", share.options(options),
            )  # fmt: skip
            _work(ray, job, left, _Count(parts, done, progress))
        counts = folder.join(parts, schema, compression) if single else folder.finish(parts)
    except OSError as error:
        if isinstance(error, JtgpuError) or error.errno not in NO_SPACE:
            raise
        raise JtgpuError(
            f"no space left for {out}: the parts that are done are kept in {folder.at.uri}; make room and go on with "
            "--resume"
        ) from None
    finally:
        folder.close()
    known = {*evidence, *kept}
    return ClusterReport(
        out, counts[0], counts[1], before, time.perf_counter() - begun,
        tuple(model.variables[v] for v in question.targets), tuple(evidence),
        tuple(c for c in tables[0].columns if c not in known and c not in model.variables),
        len(parts), share.workers, share.backend,
    )  # fmt: skip


def columns_of(
    cases: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], model: DiscreteModel, *,
    delimiter: str | None = None, quote: str = '"', encoding: str = "utf-8",
) -> list[str]:  # fmt: skip
    """Names of the columns of the first of these files."""
    return look(find_cases(cases)[:1], model, Dialect(delimiter, quote, encoding))[0].columns


class _Count:
    """How far the work has come, told after each part."""

    def __init__(self, parts: Sequence[Part], done: Mapping[int, tuple[int, int]], progress: Progress | None):
        self._weights = {p.number: p.weight for p in parts}
        self._total = sum(self._weights.values())
        self._progress = progress
        self._rows = sum(n for n, _ in done.values())
        self._weight = sum(self._weights.get(n, 0) for n in done)
        self._tell()

    def __call__(self, number: int, rows: int) -> None:
        self._rows += rows
        self._weight += self._weights[number]
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._rows, self._weight, self._total)


def _work(ray: Any, job: Job, parts: Sequence[Part], count: _Count) -> None:
    """Have all parts answered; raise the error of the first part, in their order, that has one."""
    if not parts:
        return
    for line in _lines(ray, job, parts):
        if line["error"]:
            raise pickle.loads(line["error"])
        count(int(line["number"]), int(line["rows"]))


def _lines(ray: Any, job: Job, parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    """What became of each part, in their order: a dataset of parts through a pool of actors."""
    share, data = job.share, ray.data
    # within a list: an argument that is a reference itself would be fetched by Ray wherever it passes
    reference = [ray.put(job)]
    with quietly(ray):
        items = [{"part": pickle.dumps(p)} for p in parts]
        lines = data.from_items(items, override_num_blocks=len(items)).map_batches(
            Actor, fn_constructor_args=(reference,), batch_size=1, batch_format="numpy", num_cpus=share.cpus,
            num_gpus=share.gpus or None, compute=data.ActorPoolStrategy(size=share.workers),
        )  # fmt: skip
        rows = iter(lines.iter_rows())
        try:
            yield from rows
        except ray.exceptions.RayError as error:
            raise understood(error) from None
        finally:
            close = getattr(rows, "close", None)
            if close is not None:
                with suppress(Exception):  # what ends the run is said elsewhere
                    close()
