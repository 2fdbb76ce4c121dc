"""``jtgpu batch``: from a file of cases to a file of answers."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ..cases.files import Report, run_file
from ..cases.options import MISSING, CsvDialect, TableOptions
from ..cases.reading import open_cases
from ..cases.writing import writer_for
from ..cluster import Cluster
from ..cluster.files import columns_in, run_files
from ..errors import UnknownVariable, closest, format_bytes
from ..inference.network_plan import NetworkPlan
from ..inference.tree import JunctionTree
from ..model.network import DiscreteModel
from .batch_options import ClusterOptions, CsvOptions, OutputOptions, TableQueryOptions
from .console import command, format_seconds, print_json, shown, status, warn
from .options import File, Json, PlanOptions, RunOptions, read_network

__all__ = ["batch"]


@command
def batch(  # noqa: PLR0913 (a Typer command)
    file: File,
    cases: Annotated[
        str,
        typer.Argument(
            metavar="CASES",
            help="CSV (plain, .gz, .zst) or Parquet file, one case per row; on a cluster also a folder, a glob pattern "
            "or a URI.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="OUT",
            help="Output file: .parquet, .csv, .tsv (.csv.gz, .csv.zst); on a cluster also a folder or a URI.",
        ),
    ],
    *,
    query: TableQueryOptions,
    csv: CsvOptions,
    writing: OutputOptions,
    cluster: ClusterOptions,
    plan: PlanOptions,
    run: RunOptions,
    json: Json = False,
) -> None:
    """Compute the posteriors of every case in a file.

    Probabilities are in columns named variable=state. Memory use does not depend on the size of the file. The output
    appears when it is complete; the results of an interrupted run are saved next to it, and --resume continues.
    """
    query.check()
    writing.check()
    dialect = csv.dialect()
    cluster.check(run)
    net = read_network(file)
    # validate everything before the computation starts
    columns = _columns(cases, output, net, cluster.cluster, dialect)
    options = _table_options(query, net, columns)
    if cluster.cluster is not None:
        with status("planning"):
            made = plan.make(net, file)
        report: Report = _answer_on_cluster(made, cases, output, options, (dialect, writing, cluster), run.backend)
    else:
        with status("planning") as step:
            made = plan.make(net, file, run)
            step("compiling (takes longer the first time on a machine)")
            tree = _compile(made, run, writing.threads, step)
        report = _answer_here(tree, cases, output, options, (dialect, writing))
    _print_report(report, cases, output, json)


def _compile(made: NetworkPlan, run: RunOptions, threads: int | None, step: Callable[[str], None]) -> JunctionTree:
    """A tree; ``--threads`` without a backend or devices selects the CPU."""
    backend, options = run.backend, run.compile_options()
    if threads and run.devices is None and backend in ("auto", "cpu"):
        backend, options = "cpu", options | {"threads": threads}
    tree: JunctionTree = made.compile(backend, progress=step, **options)
    return tree


def _answer_here(
    tree: JunctionTree, cases: str, output: str, options: TableOptions, how: tuple[CsvDialect, OutputOptions]
) -> Report:
    dialect, writing = how
    with tree, _terminable(output), _progress() as progress:
        return run_file(tree, Path(cases), Path(output), options, writing.file_options(dialect), progress)


def _answer_on_cluster(
    made: NetworkPlan, cases: str, output: str, options: TableOptions,
    how: tuple[CsvDialect, OutputOptions, ClusterOptions], backend: str,
) -> Report:  # fmt: skip
    dialect, writing, on = how
    where = Cluster(on.cluster or "auto", on.workers, writing.threads)
    # Ray reports lost workers on stdout, which is reserved for results
    with _terminable(output), redirect_stdout(sys.stderr), _progress() as progress:
        return run_files(
            made, cases, output, options, writing.file_options(dialect, on.part_rows), where, backend, progress
        )


def _print_report(report: Report, cases: str, output: str, json: bool) -> None:
    if report.ignored:
        n_more = len(report.ignored) - 5
        some = ", ".join(report.ignored[:5]) + (f" and {n_more} more" if n_more > 0 else "")
        warn(f"{cases}: ignored columns that are not variables: {some}")
    if report.flagged:
        warn(f"{report.flagged:,} of {report.cases:,} cases have no answer: see the column 'error'")
    if json:
        print_json(report.as_dict())
        return
    computed = report.cases - report.resumed
    print(
        shown(f"{output}: ")
        + f"{report.cases:,} cases{f' ({report.resumed:,} from an earlier run)' if report.resumed else ''}, "
        + f"{len(report.targets):,} target{'s' if len(report.targets) != 1 else ''}, "
        + (f"{format_bytes(Path(output).stat().st_size)}, " if Path(output).is_file() else "")
        + f"{format_seconds(report.seconds)}, "
        + f"{computed / report.seconds:,.0f} cases/s"
    )


def _columns(cases: str, output: str, net: DiscreteModel, cluster: str | None, dialect: CsvDialect) -> list[str]:
    """Columns of the cases; empty if only the cluster can read them. Rejects an output that cannot be written."""
    if cluster is not None and cluster.startswith("ray://"):
        return []
    if cluster is not None:
        return columns_in(cases, net, dialect)
    writer_for(Path(output))
    return open_cases(Path(cases), net, dialect).columns


def _table_options(query: TableQueryOptions, net: DiscreteModel, columns: list[str]) -> TableOptions:
    evidence, keep = (
        _names(n, columns, "column") if columns else _split(n) for n in (query.evidence_columns, query.keep)
    )
    return TableOptions(
        targets=_names(query.targets, net.variables, "variable"),
        evidence_columns=evidence,
        keep=keep or (),
        labels=query.labels,
        log_evidence=query.log_evidence,
        conflict=query.conflict,
        mpe=query.mpe,
        on_error=query.on_error,
        missing=MISSING if query.missing is None else (*query.missing, ""),
    )


def _split(given: list[str] | None) -> list[str] | None:
    return None if given is None else [name.strip() for text in given for name in text.split(",")]


def _names(given: list[str] | None, known: Sequence[str], what: str) -> list[str] | None:
    """Split comma-separated names; names may contain commas themselves, and the longest known name matches."""
    if given is None:
        return None
    valid = set(known)
    found = []
    for text in given:
        parts = text.split(",")
        while parts:
            ends = (n for n in range(len(parts), 0, -1) if {",".join(parts[:n]), ",".join(parts[:n]).strip()} & valid)
            n = next(ends, 0)
            if not n:
                name = parts[0].strip()
                raise UnknownVariable(f"there is no {what} {name!r}{closest(name, known)}")
            name = ",".join(parts[:n])
            found.append(name if name in valid else name.strip())
            parts = parts[n:]
    return found


@contextmanager
def _terminable(output: str | Path) -> Iterator[None]:
    """Treat SIGTERM, which batch systems send, like Ctrl-C, and report that finished work is saved."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        if Path(f"{Path(output)}.unfinished").exists():
            warn("finished work is saved: run the same command with --resume to continue")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress() -> Iterator[Callable[[int, int, int], None] | None]:
    """A progress bar on stderr with rate and remaining time; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    bar = Progress(
        TextColumn("{task.fields[cases]}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(), console=Console(stderr=True), transient=True,
    )  # fmt: skip
    begun: list[tuple[int, float]] = []
    with bar:
        task = bar.add_task("", total=None, cases="reading", rate="")

        def update(cases: int, done: int, total: int) -> None:
            if not begun:  # the rate excludes an earlier run and the first chunk, which may compile kernels
                begun.append((cases, time.perf_counter()))
            first, since = begun[0]
            rate = f"{(cases - first) / (time.perf_counter() - since):,.0f} cases/s" if cases > first else ""
            bar.update(task, completed=done, total=max(total, 1), cases=f"{cases:,} cases", rate=rate)

        yield update
