"""Answer a file of cases in memory that does not grow with the file."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

from ..columns import Table, at_row, open_table, read_states
from ..columns.arrow import arrow
from ..columns.files import open_cases
from ..columns.memory import ProbabilityBlock
from ..columns.source import CaseChunk
from ..errors import ArgumentError, JtgpuError
from ..inference.results.interval_numbers import checked_probabilities
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..options.tables import FileKeywords, FileOptions, TableOptions
from ..util import late_imports
from ..util.arguments import check_keywords_of
from .answer_table import answer_table
from .pipeline import default_chunk, default_concurrency, run_chunks
from .query import TableKeywords, TableQuery, file_fingerprint, model_fingerprint, query_fingerprint, resolve_query
from .solver import CaseSolver, Progress, RowError, progress_of
from .writing import NO_SPACE, ResumableFile, no_space, writer_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..model.states import CodesByVariable
    from ..util.late_imports import MixedTree

# Answers for tables of cases in memory, as tables of the same kind.

MAX_THREADS = 16  # that encode and copy the columns of a frame for one GPU


class Keywords(TableKeywords, FileKeywords, total=False):
    """Keywords of `answer_file`."""


@check_keywords_of({"Unpack[TableKeywords]": TableKeywords.__annotations__})
def answer_frame(
    tree: JunctionTree, frame: object, *, cluster: object = None, progress: bool | Progress | None = None,
    **keywords: Unpack[TableKeywords],
) -> Any:  # fmt: skip
    """Answer every row of a table; see `jtgpu.JunctionTree.predict_proba`."""
    if type(frame).__module__.startswith("ray.data"):
        return late_imports.cluster().answer_dataset(tree, frame, cluster=cluster or "auto", **keywords)
    options = TableOptions(**keywords)
    model = tree.model
    cases = open_table(model, frame)
    query, kept = resolve_query(model, cases.names, options)
    query.schema(model, [(k, arrow().null()) for k in kept])  # rejects duplicate names before the computation
    columns = [cases.column(model.variables[v]) for v in query.evidence]
    with progress_of(progress) as report:
        if cluster is not None:
            with late_imports.cluster().solver_on(cluster, tree, query, options, by_index=cases.by_index) as solver:
                solver.report = report
                return cases.like(_answer_rows(cases, solver, columns, 0, cases.n), kept)
        solver = CaseSolver(tree, query, options, by_index=cases.by_index)
        if solver.by_columns:
            threads = min(os.cpu_count() or 1, MAX_THREADS * tree.max_concurrent_tables)
            with ThreadPoolExecutor(threads, "jtgpu-frame") as pool:
                solver.each = pool.map
                answered = _answer_columns(cases, solver, columns, kept)
            if report is not None:
                report(cases.n, cases.n, cases.n)
            return cases.like(*answered)
        step = query.rows_per_call(model)
        tables = []
        for first in range(0, max(cases.n, 1), step):
            last = min(first + step, cases.n)
            tables.append(_answer_rows(cases, solver, [c[first:last] for c in columns], first, last))
            if report is not None:
                report(last, last, cases.n)
        return cases.like(arrow().concat_tables(tables), kept)


def _answer_rows(cases: Table, solver: CaseSolver, columns: Sequence[object], first: int, last: int) -> Any:
    """The answers of some rows as an Arrow table."""
    return answer_table(solver, solver.answer(columns, last - first, _error_of(cases, first)))


def _error_of(cases: Table, first: int) -> RowError:
    """Makes the error for a row, counted from a first one."""
    return lambda row, reason, kind: kind(at_row(cases, first + row, reason))


def _answer_columns(
    cases: Table, solver: CaseSolver, columns: Sequence[object], kept: list[str]
) -> tuple[Any, list[str], ProbabilityBlock | None]:
    """The answers of all rows from a backend that computes columns, as `NativeFrame.like` takes them.

    For pandas, the probabilities are a separate block if none of them is null.
    """
    rows = solver.answer(columns, cases.n, _error_of(cases, 0))
    if rows.flagged or solver.query.labels or not cases.is_pandas:
        return answer_table(solver, rows), kept, None
    values = rows.answers.posterior.T
    block = ProbabilityBlock(solver.query.columns(solver.model)[: len(values)], values)
    return answer_table(solver, rows, probabilities=False), kept, block


@check_keywords_of()
def frame_states(model: DiscreteModel, frame: object, *, codes: CodesByVariable | None = None) -> NDArray[np.int32]:
    """The columns of a table that are variables, as state numbers: (n, V) int32, -1 if not observed.

    `codes` says what cells mean; see `jtgpu.DiscreteModel.with_codes`.

    Raises
    ------
    UnknownVariable, UnknownState, EvidenceError
        See `answer_frame`.
    """
    return read_states(model.with_codes(codes), frame)[0]


@dataclass(frozen=True)
class Report:
    """Summary of a run.

    Attributes
    ----------
    output : str
    cases, flagged : int
        Number of rows, and of rows that have a reason in place of an answer.
    resumed : int
        Rows that an earlier run had answered.
    seconds : float
        Duration of this run.
    targets, evidence, ignored : tuple of str
        Variables that were computed; columns that were evidence; columns that were ignored.
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
        """The fields, for JSON."""
        return asdict(self)


@check_keywords_of({"Unpack[Keywords]": Keywords.__annotations__})
def answer_file(
    tree: JunctionTree | MixedTree,
    cases: str | Path,
    output: str | Path,
    *,
    quantiles: Iterable[float] | None = None,
    progress: bool | Progress | None = None,
    cluster: object = None,
    **options: Unpack[Keywords],
) -> Report:
    """Answer every row of a CSV or Parquet file, in memory that does not grow with it.

    Parameters
    ----------
    tree : JunctionTree or MixedTree
        For networks with numbers without `conflict`, `mpe`, `do`, `codes` and `cluster`.
    cases, output : path
        The cases: CSV (compressed or not) or Parquet, recognized by content. The output: .parquet, .csv or .tsv (.gz,
        .zst), by suffix.
    targets, evidence_columns, keep, labels, log_evidence, conflict, mpe, on_error, na_values, do, codes
        See `jtgpu.JunctionTree.predict_proba`.
    delimiter, quote, encoding, decimal, thousands, header : str
        Format of CSV files. Default delimiter: the comma, semicolon, tab or bar with which most columns are variables.
        Default decimal mark: the point where commas separate cells, elsewhere the one that the numerals show; no
        character between thousands. `header`: names of the columns, separated by commas, of a file whose first row is a
        case, or ``"none"``.
    chunk : int, optional
        Approximate number of cases that are read, answered and written at a time. Default: some tens of megabytes.
    compression : str, optional
        Compression of a Parquet output, by pyarrow's name. Default: snappy.
    threads : int, optional
        Cores for everything except the propagation, which the tree determines. Default: all. With 1, a single thread
        parses and, for a GPU, encodes.
    resume, force : bool
        Continue an unfinished run; overwrite an existing output.
    escape_formulas : bool
        In CSV output, put an apostrophe before cells that a spreadsheet would execute as a formula.
    quantiles : iterable of float, optional
        Probabilities of quantiles of numbers, which get columns such as ``age.q5``.
    progress : bool or callable, optional
        True: show the number of cases, their rate and the remaining time in a line on stderr. A callable: called after
        each chunk with the number of cases answered, the amount of input read, and the total amount.
    cluster : str or jtgpu.cluster.Cluster, optional
        Run on a Ray cluster; see `jtgpu.cluster.answer_files`, which also takes folders and URIs.

    Returns
    -------
    Report

    Raises
    ------
    ParseError, UnknownState, UnknownVariable, ImpossibleEvidence, EvidenceError
        If a row is invalid; the message names the file and the row. Earlier chunks are saved, as after Ctrl-C and on a
        full disk.
    OutputExists
        If the output exists and `force` is not given.
    JtgpuError
        If the disk is full or a limit of the file size is reached; the message says how to continue.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> jtgpu.cases.answer_file(tree, "cases.csv", "posteriors.parquet", targets=["lung"])  # doctest: +SKIP
    """
    numbers = isinstance(getattr(tree, "network", None), MixedNetwork)
    if quantiles is not None and not numbers:
        raise ArgumentError("quantiles are those of numbers, which the network does not have")
    if numbers and cluster is not None:
        raise ArgumentError("a cluster does not answer networks with numbers; omit cluster=")
    if cluster is not None:
        options.pop("threads", None)  # the share of a worker determines its threads
        answered: Report = late_imports.cluster().answer_files(
            tree, cases, output, cluster=cluster, progress=progress, **options
        )
        return answered
    table, file = split_options(options)
    with progress_of(progress) as report:
        if numbers:
            levels = None if quantiles is None else checked_probabilities([*quantiles]).tolist()
            done: Report = late_imports.mixed_files().answer_file(
                tree, Path(cases), Path(output), table, file, levels, report
            )
            return done
        return run_file(cast("JunctionTree", tree), Path(cases), Path(output), table, file, report)


def split_options(keywords: Any) -> tuple[TableOptions, FileOptions]:
    """Split the keywords of `answer_file` into options of the table and options of the file."""
    of_table = {k: v for k, v in keywords.items() if k in TableKeywords.__annotations__}
    of_file = {k: v for k, v in keywords.items() if k not in of_table}
    return TableOptions(**of_table), FileOptions.of(**of_file)


def run_file(
    tree: JunctionTree, cases: Path, output: Path, table: TableOptions, options: FileOptions,
    progress: Progress | None = None,
) -> Report:  # fmt: skip
    begun = time.perf_counter()
    model = tree.model
    source = open_cases(cases, model, options.dialect, threads=options.threads != 1)
    if output.exists() and output.samefile(cases):
        raise JtgpuError(f"{output} contains the cases: choose another output")
    query, kept = resolve_query(model, source.columns, table, source=str(cases))
    kept_types = list(zip(kept, source.types(kept), strict=True))
    schema = query.schema(model, kept_types)
    identity: dict[str, Any] = {
        "cases": file_fingerprint(cases),
        "network": model_fingerprint(model),
        "question": query_fingerprint(model, query, kept, table),
        "dialect": options.dialect.identity,
        "output": [output.name, options.compression],
    }
    if options.escape_formulas:
        identity["escape_formulas"] = True
    writer = writer_for(output, options.compression, options.escape_formulas)
    unfinished = ResumableFile(output, writer, identity, resume=options.resume, force=options.force)
    before = unfinished.done
    with saved(unfinished):
        rows = options.chunk or default_chunk(model, tree.plan.plan, query, bool(tree.device))
        chunks = source.chunks([model.variables[v] for v in query.evidence], kept, rows, before.position)

        def report(chunk: CaseChunk) -> None:
            if progress is not None:
                progress(unfinished.done.rows, chunk.done, source.size)

        fields = [arrow().field(name, kind) for name, kind in kept_types]
        concurrency = default_concurrency(tree, options.threads)
        run_chunks(chunks, CaseSolver(tree, query, table), fields, unfinished, progress=report, concurrency=concurrency)
        unfinished.finish(schema)
    done = unfinished.done
    return Report(
        str(output), done.rows, done.flagged, before.rows, time.perf_counter() - begun,
        *used_columns(model, query, kept, source.columns),
    )  # fmt: skip


def used_columns(
    model: DiscreteModel, query: TableQuery, kept: list[str], columns: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Targets, columns of evidence, and ignored columns, for a report."""
    evidence = tuple(model.variables[v] for v in query.evidence)
    ignored = tuple(c for c in columns if c not in {*evidence, *kept} and c not in model.variables)
    return tuple(model.variables[v] for v in query.targets), evidence, ignored


@contextmanager
def saved(unfinished: ResumableFile) -> Iterator[None]:
    """Flush and close the output however the block ends; a full disk becomes a `JtgpuError`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, JtgpuError) or error.errno not in NO_SPACE:
            raise
        with contextlib.suppress(OSError):
            unfinished.sync()
        raise no_space(error, str(unfinished.output), unfinished.saved) from None
    finally:
        with contextlib.suppress(OSError):
            unfinished.sync()
        unfinished.close()
