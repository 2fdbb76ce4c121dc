"""``jtgpu batch``: a file of cases in, a file of answers out."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ..errors import UnknownVariable, closest, format_bytes
from .console import format_seconds, guarded, print_json, shown, status, warn
from .options import (
    Backend,
    Devices,
    Dtype,
    File,
    Json,
    MaxTable,
    MemoryLimit,
    NoCache,
    Order,
    Seed,
    TimeLimit,
    chosen_order,
    devices_of,
    dtype_of,
    plan_options,
    read_network,
)

if TYPE_CHECKING:
    from ..cases import Report
    from ..model.network import DiscreteModel

__all__ = ["batch"]

# what a shell can type for characters that it cannot
_WRITTEN = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "none": ""}


@guarded
def batch(
    file: File,
    cases: Annotated[
        str,
        typer.Argument(
            metavar="CASES",
            help="CSV (plain, .gz, .zst) or Parquet, a case a row; on a cluster also a folder, a pattern, a URI.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="OUT",
            help="To write: .parquet, .csv, .tsv (.csv.gz, .csv.zst); on a cluster also a folder, a URI.",
        ),
    ],
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--targets",
            metavar="A,B",
            help="Variables to answer for. [default: those that are no evidence]",
            show_default=False,
        ),
    ] = None,
    evidence_columns: Annotated[
        list[str] | None,
        typer.Option(
            "--evidence-columns",
            metavar="A,B",
            help="Columns that are evidence. [default: those that are variables, without the targets]",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", metavar="A,B", help="Columns of the cases to copy to the answers.")
    ] = None,
    labels: Annotated[bool, typer.Option("--labels", help="Most probable states instead of probabilities.")] = False,
    log_evidence: Annotated[bool, typer.Option("--log-evidence", help="Add a column: ln P(evidence).")] = False,
    conflict: Annotated[
        bool, typer.Option("--conflict", help="Add a column: how much a case's findings contradict each other.")
    ] = False,
    mpe: Annotated[
        bool, typer.Option("--mpe", help="Add each target's state in the most probable explanation, and its ln P.")
    ] = False,
    on_error: Annotated[
        str, typer.Option("--on-error", metavar="error|flag", help="Stop at a row without an answer, or say why in it.")
    ] = "error",
    missing: Annotated[
        list[str] | None,
        typer.Option(
            "--missing",
            metavar="TEXT",
            show_default=False,
            help="A cell that says: not observed. Repeat it. [default: nothing, NA, N/A, NaN, NULL, None, ?, *]",
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(metavar="C", help="Between a CSV's columns; or: tab. [default: found]", show_default=False),
    ] = None,
    quote: Annotated[str, typer.Option(metavar="C", help="Round a CSV's cells; none: quotes are text.")] = '"',
    encoding: Annotated[str, typer.Option(help="Of a CSV's text.")] = "utf-8",
    chunk: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Cases at a time, about. [default: some tens of MB]", show_default=False),
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of a Parquet output: snappy, zstd, lz4, gzip, none.", show_default="snappy"),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Cores to use, on a cluster those of each worker. [default: all; there 1]",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            show_default=False,
            help="Work on a Ray cluster: auto (the one that this is a job of), local, ray://host:10001, host:6379.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", show_default=False, help="Of the cluster. [default: all that have room]"),
    ] = None,
    part_rows: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", show_default=False,
            help="Cases that a worker takes at a time, about. [default: up to a million]",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a run that was stopped had come.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Write over a file that is there; begin anew.")] = False,
    order: Order = "auto",
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    max_table: MaxTable = None,
    seed: Seed = 0,
    no_cache: NoCache = False,
    backend: Backend = "auto",
    dtype: Dtype = "float64",
    devices: Devices = None,
    json: Json = False,
) -> None:
    """Posteriors of every case in a file.

    A probability stands in a column called variable=state. Files of any size pass through little memory. The output
    is written whole or not at all; what a run that was stopped had finished is kept beside it, and --resume goes on.
    """
    if on_error not in ("error", "flag"):
        raise typer.BadParameter(f"{on_error!r} is neither error nor flag", param_hint="--on-error")
    if compression not in (None, "snappy", "zstd", "lz4", "gzip", "brotli", "none"):
        raise typer.BadParameter(f"{compression!r} is none of snappy, zstd, lz4, gzip, brotli, none")
    delimiter = _character(delimiter, "--delimiter") if delimiter is not None else None
    quote = _character(quote, "--quote", none=True)
    _check_encoding(encoding)
    if cluster is None and (workers is not None or part_rows is not None):
        raise typer.BadParameter("there are workers and parts on a cluster only: --cluster says which")
    if cluster is not None and devices is not None:
        raise typer.BadParameter("a worker of a cluster has one GPU: --workers says how many", param_hint="--devices")
    from ..cases import MISSING, answer_file

    net = read_network(file)
    # what is asked is read before the work starts: a typing error shall not cost minutes
    asked = _names(targets, net.variables, "variable")
    columns = _columns(cases, output, net, cluster, delimiter, quote, encoding)
    # what lies on a cluster far away is looked at there
    evidence, kept = (_names(n, columns, "column") if columns else _split(n) for n in (evidence_columns, keep))
    question: dict[str, Any] = {
        "targets": asked, "evidence_columns": evidence, "keep": kept or (), "labels": labels,
        "log_evidence": log_evidence, "conflict": conflict, "mpe": mpe, "on_error": on_error,
        "missing": MISSING if missing is None else (*missing, ""), "delimiter": delimiter, "quote": quote,
        "encoding": encoding, "chunk": chunk, "compression": compression, "resume": resume, "force": force,
    }  # fmt: skip
    with status("planning") as now:
        options = plan_options(time_limit, memory_limit, max_table, seed, no_cache)
        if cluster is None:
            options |= plan_options(time_limit, memory_limit, max_table, seed, no_cache, None, backend, devices)
        made = net.plan(chosen_order(order, file), **options)
        tree = None
        if cluster is None:
            now("compiling (the first time on a machine this takes longer)")
            on_cpu = threads and backend == "auto" and devices is None
            more = {} if devices else _threads(backend, threads)
            more |= devices_of(devices) | dtype_of(dtype)
            tree = made.compile("cpu" if on_cpu else backend, progress=now, **more)
    report: Report
    if tree is None:
        from ..cluster import Cluster, answer_files

        where = Cluster(cluster or "auto", workers, threads)
        # Ray tells of workers that it lost on stdout, where answers belong
        with _interruptible(output), redirect_stdout(sys.stderr), _progress() as progress:
            report = answer_files(
                made, cases, output, cluster=where, backend=backend, part_rows=part_rows, progress=progress, **question
            )
    else:
        with tree, _interruptible(output), _progress() as progress:
            report = answer_file(tree, cases, output, threads=threads, progress=progress, **question)
    if report.ignored:
        n_more = len(report.ignored) - 5
        some = ", ".join(report.ignored[:5]) + (f" and {n_more} more" if n_more > 0 else "")
        warn(f"{cases}: columns that are no variables were left alone: {some}")
    if report.flagged:
        warn(f"{report.flagged:,} of {report.cases:,} cases have no answer: see the column 'error'")
    if json:
        print_json(report.as_dict())
        return
    new = report.cases - report.resumed
    print(
        shown(f"{output}: ")
        + f"{report.cases:,} cases{f' ({report.resumed:,} of them from before)' if report.resumed else ''}, "
        + f"{len(report.targets):,} target{'s' if len(report.targets) != 1 else ''}, "
        + (f"{format_bytes(Path(output).stat().st_size)}, " if Path(output).is_file() else "")
        + f"{format_seconds(report.seconds)}, "
        + f"{new / report.seconds:,.0f} cases/s"
    )


def _columns(
    cases: str, output: str, net: DiscreteModel, cluster: str | None, delimiter: str | None, quote: str, encoding: str
) -> list[str]:
    """The columns of the cases, read before the work starts; refuses an output that cannot be written."""
    if cluster is not None and cluster.startswith("ray://"):
        return []
    if cluster is not None:
        from ..cluster import columns_of

        return columns_of(cases, net, delimiter=delimiter, quote=quote, encoding=encoding)
    from ..cases.output import writer_for
    from ..cases.stream import open_cases

    writer_for(Path(output))
    return open_cases(Path(cases), net, delimiter=delimiter, quote=quote, encoding=encoding).columns


def _split(given: list[str] | None) -> list[str] | None:
    return None if given is None else [name.strip() for text in given for name in text.split(",")]


def _names(given: list[str] | None, known: Sequence[str], what: str) -> list[str] | None:
    """Names with commas between them; names may hold commas themselves: the longest that is known wins."""
    if given is None:
        return None
    there = set(known)
    found = []
    for text in given:
        parts = text.split(",")
        while parts:
            ends = (n for n in range(len(parts), 0, -1) if {",".join(parts[:n]), ",".join(parts[:n]).strip()} & there)
            n = next(ends, 0)
            if not n:
                name = parts[0].strip()
                raise UnknownVariable(f"there is no {what} {name!r}{closest(name, known)}")
            name = ",".join(parts[:n])
            found.append(name if name in there else name.strip())
            parts = parts[n:]
    return found


def _character(text: str, option: str, none: bool = False) -> str:
    text = _WRITTEN.get(text, text)
    if len(text.encode()) != 1 and not (none and not text):
        raise typer.BadParameter(f"{text!r} is not one character of ASCII", param_hint=option)
    return text


def _check_encoding(name: str) -> None:
    import codecs

    try:
        plain = "a,\n".encode(codecs.lookup(name).name) == b"a,\n"
    except (LookupError, UnicodeError):
        raise typer.BadParameter(f"{name!r} is no encoding of text", param_hint="--encoding") from None
    if not plain:
        raise typer.BadParameter(f"{name!r} does not write ASCII as it is", param_hint="--encoding")


def _threads(backend: str, threads: int | None) -> dict[str, Any]:
    return {"threads": threads} if threads and backend in ("auto", "cpu") else {}


@contextmanager
def _interruptible(output: str | Path) -> Iterator[None]:
    """A batch system's SIGTERM is Ctrl-C: what is done is kept, and said to be."""
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
            warn("what is finished is kept: the same command with --resume goes on")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress() -> Iterator[Callable[[int, int, int], None] | None]:
    """A bar on stderr with cases a second and the time left; nothing where stderr is no terminal."""
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

        def tell(cases: int, done: int, total: int) -> None:
            if not begun:  # what an earlier run did, and the first chunk, in which loops may be compiled
                begun.append((cases, time.perf_counter()))
            first, since = begun[0]
            told = f"{(cases - first) / (time.perf_counter() - since):,.0f} cases/s" if cases > first else ""
            bar.update(task, completed=done, total=max(total, 1), cases=f"{cases:,} cases", rate=told)

        yield tell
