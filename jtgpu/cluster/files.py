"""Answer files of cases on the machines of a cluster.

A folder of answers, one file per part, that appears when it is complete and that a later run can continue.

Parts are complete files: a worker writes a part under a temporary name and renames it. The name of a part is its
number, and its footer records the run that it belongs to and its rows. A part that two workers answer, because one of
them seemed lost, therefore exists once, and the parts that exist are the progress of an interrupted run. On disks the
folder is called ``OUT.unfinished`` until it is complete. Object storage cannot rename folders: parts are written to the
output, and ``_SUCCESS``, written last, marks it as complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from ..cases.files import Keywords, Report, split_options, used_columns
from ..cases.pipeline import default_chunk
from ..cases.query import TableQuery, check_same_run, model_fingerprint, query_fingerprint, resolve_query
from ..cases.solver import Progress, progress_of
from ..cases.writing import NO_SPACE, ResumableFile, no_space, writer_for
from ..columns.arrow import arrow_parquet
from ..errors import JtgpuError, OutputExists, ParseError
from ..inference.network_plan import NetworkPlan
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..options.tables import CsvDialect, FileOptions, TableOptions
from ..util.options import BackendName
from .connect import Cluster, Share, as_cluster, connected
from .parts import (
    TEMPORARY,
    Division,
    FilePart,
    PartReader,
    PartTarget,
    RowCounts,
    WorkerSpec,
    divide,
    part_name,
    plan_of,
    read_counts,
)
from .tables import CONCURRENT_READS, TableFile, check_columns, find_cases, inspect_files, locate
from .worker import WorkerJob, answer_parts, is_client, run_in_cluster

FILE_SUFFIXES = (".parquet", ".pq", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst")
MAX_CHUNKS_PER_PART = 16  # so that a lost part costs a minute or two
Cases = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True)
class ClusterReport(Report):
    """Summary of a run on a cluster.

    Attributes
    ----------
    parts, workers : int
        Number of parts, and of workers.
    backend : str
        Of the workers.
    """

    parts: int = 0
    workers: int = 0
    backend: str = ""


def answer_files(
    plan: NetworkPlan | JunctionTree,
    cases: Cases,
    output: str | os.PathLike[str],
    *,
    cluster: str | Cluster = "auto",
    backend: BackendName = "auto",
    progress: bool | Progress | None = None,
    **options: Unpack[Keywords],
) -> ClusterReport:
    """Answer every row of a table of any number of files on the machines of a Ray cluster.

    Parameters
    ----------
    plan : NetworkPlan or JunctionTree
        A plan needs no memory and no GPU in this process; a tree provides its plan, backend and options.
    cases : path, URI, or several
        CSV or Parquet: files, folders, glob patterns (``s3://bucket/cases/*.parquet``). Workers read them directly.
    output : path or URI
        A folder of Parquet files (``part-000000.parquet``, ...) in the order of the cases. If it ends in .parquet,
        .csv, ..., a single file on a disk shared by the workers, made of the parts at the end.
    cluster : str or Cluster
        See `Cluster`. With ``ray://``, a process of the cluster leads the run, and paths refer to its machine.
    backend : str
        Of the workers; ``"auto"``: GPUs, if the cluster has any.
    progress : bool or callable, optional
        Shown or called after each part, in order; see `jtgpu.cases.answer_file`.
    targets, evidence_columns, keep, labels, log_evidence, conflict, mpe, on_error, na_values, do
        See `jtgpu.JunctionTree.predict_proba`.
    delimiter, quote, encoding, header, chunk, compression
        See `jtgpu.cases.answer_file`.
    part_rows : int, optional
        Approximate number of rows of a part, which is repeated if its worker is lost. Default: about a million; fewer
        if cases are expensive, or so that every worker gets four parts.
    resume, force : bool
        Continue an unfinished run, part by part; replace an existing output.

    Returns
    -------
    ClusterReport

    Raises
    ------
    ParseError, UnknownState, UnknownVariable, ImpossibleEvidence, EvidenceError
        If a row is invalid, on any worker; the message names the file and the row. Finished parts are saved.
    JtgpuError
        If Ray or the cluster is not available, or the disk is full; the message says how to continue.
    """
    table, file = split_options(options)
    with progress_of(progress) as report:
        return run_files(plan, cases, str(output), table, file, as_cluster(cluster), backend, report)


def run_files(  # noqa: PLR0913 (`answer_files` with its options in groups)
    plan: NetworkPlan | JunctionTree, cases: Cases, output: str, table: TableOptions, options: FileOptions,
    cluster: Cluster, backend: str = "auto", progress: Progress | None = None,
) -> ClusterReport:  # fmt: skip
    begun = time.perf_counter()
    plan, backend, backend_options = plan_of(plan, backend)
    if is_client(cluster):
        report: ClusterReport = run_in_cluster(
            run_files, cluster, progress, plan=plan, cases=cases, output=output, table=table, options=options,
            backend=backend,
        )  # fmt: skip
        return report
    run = _Run.prepare(plan, cases, output, table, options, backend)
    folder = Folder(output, run.identity(), resume=options.resume, force=options.force, single=run.single)
    try:
        with connected(cluster) as ray:
            resources = ray.cluster_resources()
            workers = Share.of(cluster, resources, backend).workers
            parts = run.divide(folder, workers)
            finished = folder.finished_parts()
            done = {p.number: finished[p.number] for p in parts if p.number in finished}
            left = [p for p in parts if p.number not in done]
            share = Share.of(cluster, resources, backend, max(len(left), 1))
            spec = WorkerSpec(plan, share, share.options(backend_options), run.query, table)
            counter = _ProgressCounter(parts, done, progress)
            for number, rows in answer_parts(ray, run.job(spec, folder), left):
                counter.add(number, rows)
        if run.single:
            counts = folder.join(parts, run.schema, options.compression, options.escape_formulas)
        else:
            counts = folder.finish(parts)
    except OSError as error:
        if isinstance(error, JtgpuError) or error.errno not in NO_SPACE:
            raise
        raise no_space(error, output, f"finished parts are saved in {folder.at.uri}") from None
    finally:
        folder.close()
    return ClusterReport(
        output, counts.rows, counts.flagged, sum(c.rows for c in done.values()), time.perf_counter() - begun,
        *used_columns(plan.model, run.query, run.kept, run.tables[0].columns), len(parts), share.workers,
        share.backend,
    )  # fmt: skip


def columns_of(
    cases: Cases, model: DiscreteModel, *, delimiter: str | None = None, quote: str = '"', encoding: str = "utf-8"
) -> list[str]:
    """Names of the columns of the first of these files."""
    return columns_in(cases, model, CsvDialect(delimiter=delimiter, quote=quote, encoding=encoding))


def columns_in(cases: Cases, model: DiscreteModel, dialect: CsvDialect) -> list[str]:
    return inspect_files(find_cases(cases)[:1], model, dialect)[0].columns


@dataclass(frozen=True)
class _Run:
    """A run whose input and options have been checked."""

    model: DiscreteModel
    tables: list[TableFile]
    query: TableQuery
    kept: list[str]
    schema: Any
    table: TableOptions
    options: FileOptions
    step: int  # cases per chunk
    default_step: int
    single: bool  # whether the output is a single file
    evidence: list[str] = field(default_factory=list)

    @classmethod
    def prepare(
        cls, plan: NetworkPlan, cases: Cases, output: str, table: TableOptions, options: FileOptions, backend: str
    ) -> _Run:
        """Check everything that can be checked before the work begins."""
        single = output.lower().endswith(FILE_SUFFIXES)
        if single:
            writer_for(Path(output), options.compression)
        model = plan.model
        tables = inspect_files(find_cases(cases), model, options.dialect)
        query, kept = resolve_query(model, tables[0].columns, table, source=tables[0].file.place.uri)
        evidence = [model.variables[v] for v in query.evidence]
        check_columns(tables, model, evidence, kept, explicit=table.evidence_columns is not None)
        schema = query.schema(model, [(k, tables[0].types[k]) for k in kept])
        default = default_chunk(model, plan.plan, query, backend in ("gpu", "indexed"))
        step = options.chunk or default
        return cls(model, tables, query, kept, schema, table, options, step, default, single, evidence)

    def identity(self) -> dict[str, Any]:
        """Everything that determines the answers, as JSON."""
        return {
            "cases": [t.file.identity for t in self.tables],
            "network": model_fingerprint(self.model),
            "question": query_fingerprint(self.model, self.query, self.kept, self.table),
            "dialect": self.options.dialect.identity,
            "chunk": self.step,
            "output": self.options.compression,
            **({"escape_formulas": True} if self.options.escape_formulas else {}),
        }

    def divide(self, folder: Folder, workers: int) -> list[FilePart]:
        """The parts, as an earlier run divided the work if there was one; locks the folder."""
        rows = folder.settings.get("part_rows", self.options.part_rows)
        division = Division(self.step, workers, rows, MAX_CHUNKS_PER_PART * self.default_step)
        parts, rows = divide(self.tables, self.options.dialect.quote, division)
        folder.begin({"part_rows": rows})
        return parts

    def job(self, spec: WorkerSpec, folder: Folder) -> WorkerJob:
        """The job, as a worker gets it."""
        threads = spec.share.threads > 1
        reader = PartReader(self.model, self.options.dialect, self.evidence, self.kept, self.step, threads)
        compression = self.options.compression or "snappy"
        return WorkerJob(spec, reader, PartTarget(folder.at.uri, folder.run, self.schema, compression))


class _ProgressCounter:
    """Counts rows and bytes of finished parts."""

    def __init__(self, parts: Sequence[FilePart], done: Mapping[int, RowCounts], progress: Progress | None):
        self._weights = {p.number: p.weight for p in parts}
        self._total = sum(self._weights.values())
        self._progress = progress
        self._rows = sum(c.rows for c in done.values())
        self._weight = sum(self._weights[n] for n in done)
        self._report()

    def add(self, number: int, rows: int) -> None:
        """Count a part."""
        self._rows += rows
        self._weight += self._weights[number]
        self._report()

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(self._rows, self._weight, self._total)


SUCCESS = "_SUCCESS"
RUN = "_run.json"
LOCK = "_lock"
TEMPORARY_NAMES = (TEMPORARY, ".jtgpu-")  # of parts, and of `jtgpu.util.atomic_file`
PART = re.compile(r"part-\d{6,}\.parquet")


class Folder:
    """The output of a run on a cluster, in the process that leads the run."""
    # output: Path or URI of the folder
    # identity: Everything that determines the answers, as JSON: only a run with the same identity can be continued
    # resume, force: Continue an unfinished run; replace an existing output
    # single: The output is a single file, which `join` makes of the parts
    # at: Where parts are written
    # run: Digest of the identity, which tells to which run a part belongs
    # settings: Division of the work by an earlier run; empty for a new run
    # raises JtgpuError: If the output or an unfinished run exists; the message names the options that resolve this.

    def __init__(self, output: str, identity: Mapping[str, Any], *, resume: bool, force: bool, single: bool = False):
        self.output = locate(output)
        if single and not self.output.local:
            raise JtgpuError(f"{output}: object storage requires a folder; a single file must be on a disk")
        self.at = self.output.sibling(self.output.name + ".unfinished") if self.output.local else self.output
        self._identity = json.loads(json.dumps(identity))
        self.run = hashlib.sha256(json.dumps(self._identity, sort_keys=True).encode()).hexdigest()[:32]
        self._lock: int | None = None
        self._begun = False
        self._force = force
        before = self._earlier_run(output, resume, single)
        self._is_new = before is None
        self.settings: dict[str, Any] = (before or {}).get("settled", {})

    def _earlier_run(self, output: str, resume: bool, single: bool) -> dict[str, Any] | None:
        """The record of the run to continue; raises for everything that is in the way of a new one."""
        existing = self.output.kind()
        if existing and existing != ("file" if single else "folder"):
            raise JtgpuError(f"{output} is a {existing}")
        complete = existing and (self.output.local or self.output.child(SUCCESS).kind())
        if complete and not self._force:
            raise OutputExists(f"{output} exists; pass force=True to overwrite it")
        before = self._read_record() if not complete or self.output.local else None
        if before is not None and not resume and not self._force:
            raise OutputExists(
                f"{self.at.uri} holds an unfinished run: pass resume=True to continue it or force=True to discard it"
            )
        if before is not None and resume:
            check_same_run(before["identity"], self._identity, self.at.uri)
            return before
        if not self.output.local and existing and not self._force and self.at.names():
            raise OutputExists(f"{output} is not empty; pass force=True to overwrite it")
        return None

    def _read_record(self) -> dict[str, Any] | None:
        """The record of an earlier run."""
        record = self.at.child(RUN)
        if not record.kind():
            return None
        try:
            content = json.loads(record.read())
            return {"identity": dict(content["identity"]), "settled": dict(content["settled"])}
        except (ValueError, KeyError, TypeError):
            raise JtgpuError(f"{record.uri} does not describe a run; pass force=True to discard it") from None

    def begin(self, settings: Mapping[str, object]) -> None:
        """Lock the folder and record what a later run needs to continue."""
        # raises JtgpuError: If another run is writing there.
        self.at.make_folder()
        self._acquire_lock()
        self._begun = True
        if self._is_new:
            for name in self.at.names():
                if name != LOCK:
                    self.at.child(name).remove()
        self._delete_temporary()
        self.settings = dict(settings)
        record = {"identity": self._identity, "settled": self.settings}
        self.at.child(RUN).write(json.dumps(record, indent=1).encode())

    def _acquire_lock(self) -> None:
        if not self.at.local:  # object storage has no locks
            return
        self._lock = os.open(Path(self.at.path, LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise JtgpuError(f"{self.at.uri}: another run is writing there") from None

    def _delete_temporary(self) -> None:
        """Delete incomplete files of workers that no longer run."""
        for name in self.at.names():
            if name.startswith(TEMPORARY_NAMES):
                with suppress(OSError):
                    self.at.child(name).remove()

    def finished_parts(self) -> dict[int, RowCounts]:
        """Row counts of the parts of this run, by number; parts of other runs are deleted."""
        names = [n for n in self.at.names() if PART.fullmatch(n)]
        with ThreadPoolExecutor(CONCURRENT_READS) as pool:
            counts = list(pool.map(lambda n: read_counts(self.at.child(n), self.run), names))
        finished: dict[int, RowCounts] = {}
        for name, count in zip(names, counts, strict=True):
            if count is None:
                self.at.child(name).remove()
            else:
                finished[int(name[5:-8])] = count
        return finished

    def finish(self, parts: Sequence[FilePart]) -> RowCounts:
        """Check that every part exists and nothing else does, and rename the folder to the output."""
        # returns Of all parts.
        # raises ParseError: If a part does not have the expected number of rows.
        # raises JtgpuError: If a part is missing.
        total = self._check(parts)
        self._delete_temporary()
        record = {"run": self.run, "rows": total.rows, "flagged": total.flagged, "parts": len(parts)}
        self.at.child(SUCCESS).write(json.dumps(record, indent=1).encode())
        if self.output.local:
            target = Path(self.output.path)
            if target.is_dir() and self._force:
                shutil.rmtree(target)
            Path(self.at.path).rename(target)
            with suppress(OSError):
                (target / LOCK).unlink()
        self.close()
        return total

    def join(self, parts: Sequence[FilePart], schema: Any, compression: str | None, escape: bool = False) -> RowCounts:
        """Concatenate the parts into a single file and delete the folder; see `finish` and `writer_for`."""
        total = self._check(parts)
        output = Path(self.output.path)
        identity = {"run": self.run, "compression": compression}
        file = ResumableFile(output, writer_for(output, compression, escape), identity, resume=True, force=self._force)
        try:
            for part in parts[file.done.position["part"] + 1 if file.done.position else 0 :]:
                path = self.at.child(part_name(part.number)).path
                table = arrow_parquet().read_table(path, schema=schema, memory_map=True)
                file.append(table, {"part": part.number}, 0)
            file.finish(schema)
        finally:
            file.close()
            self.close()
        return total

    def _check(self, parts: Sequence[FilePart]) -> RowCounts:
        finished = self.finished_parts()
        missing = sorted({p.number for p in parts} - set(finished))
        if missing:
            raise JtgpuError(f"{self.at.uri}: {part_name(missing[0])} is missing; continue with resume=True")
        for number in set(finished) - {p.number for p in parts}:
            self.at.child(part_name(number)).remove()
        counts = [finished[p.number] for p in parts]
        for part, count in zip(parts, counts, strict=True):
            if part.rows not in (-1, count.rows):
                raise ParseError(f"{part_name(part.number)} has {count.rows} rows instead of {part.rows}", part.file)
        return RowCounts(sum(c.rows for c in counts), sum(c.flagged for c in counts))

    def close(self) -> None:
        """Keep the folder for a later run, or delete it if it holds no part; may be called twice."""
        if self._begun:
            self._begun = False
            with suppress(OSError):
                self._delete_if_empty()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _delete_if_empty(self) -> None:
        """Delete a run without parts, which failed in the first row, say, and must not be in the way of the next."""
        if not {*self.at.names()} <= {LOCK, RUN}:
            return
        self.at.child(RUN).remove()
        if self.at.local:
            Path(self.at.path, LOCK).unlink()
            Path(self.at.path).rmdir()
