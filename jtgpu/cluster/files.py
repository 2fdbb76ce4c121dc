"""Answer files of cases on the machines of a cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from ..cases.files import Keywords, Report, split_options, used_columns
from ..cases.pipeline import default_chunk
from ..cases.query import TableQuery, model_fingerprint, query_fingerprint, resolve_query
from ..cases.solver import Progress, progress_of
from ..cases.writing import NO_SPACE, no_space, writer_for
from ..errors import JtgpuError
from ..inference.network_plan import NetworkPlan
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..options.tables import CsvDialect, FileOptions, TableOptions
from ..util.options import BackendName
from .connect import Cluster, Share, as_cluster, connected
from .folder import Folder
from .parts import Division, Part, PartReader, PartTarget, RowCounts, WorkerSpec, divide, plan_of
from .tables import Table, check_columns, find_cases, inspect_files
from .worker import Job, answer_parts, is_client, run_in_cluster

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
    tables: list[Table]
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

    def divide(self, folder: Folder, workers: int) -> list[Part]:
        """The parts, as an earlier run divided the work if there was one; locks the folder."""
        rows = folder.settings.get("part_rows", self.options.part_rows)
        division = Division(self.step, workers, rows, MAX_CHUNKS_PER_PART * self.default_step)
        parts, rows = divide(self.tables, self.options.dialect.quote, division)
        folder.begin({"part_rows": rows})
        return parts

    def job(self, spec: WorkerSpec, folder: Folder) -> Job:
        """The job, as a worker gets it."""
        threads = spec.share.threads > 1
        reader = PartReader(self.model, self.options.dialect, self.evidence, self.kept, self.step, threads)
        compression = self.options.compression or "snappy"
        return Job(spec, reader, PartTarget(folder.at.uri, folder.run, self.schema, compression))


class _ProgressCounter:
    """Counts rows and bytes of finished parts."""

    def __init__(self, parts: Sequence[Part], done: Mapping[int, RowCounts], progress: Progress | None):
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
