"""``jtgpu batch``: from a file of cases to a file of posteriors."""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..cases.files import Report, run_file
from ..cases.query import FileOptions, TableOptions
from ..cases.solver import progress_of
from ..cases.writing import writer_for
from ..cluster import Cluster
from ..cluster.files import columns_in, run_files
from ..columns.files import open_cases
from ..columns.source import CsvDialect
from ..errors import format_bytes
from ..inference.network_plan import NetworkPlan
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..model.network import BayesianNetwork
from ..util.arguments import Option
from ..util.text_table import printable as shown
from .console import command, format_seconds, print_json, warn
from .networks import check_output, load_any, split_names, with_codes
from .number_tables import batch_of_numbers, quantile_levels
from .numbers import compiled_numbers
from .options import CLUSTER, CSV, ClusterAddress, Codes, EscapeFormulas, File, Json, Without
from .planning import COMPILING, PlanOptions, RunOptions
from .tables import is_shown, status

_NAMED_CHARACTERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "none": ""}

Names = list[str] | None


@dataclass(frozen=True)
class CsvOptions(CsvDialect):
    """How CSV files are written."""

    na_values: Annotated[Names, Option(
        "--na-values WORD", "Word that means a missing cell, unless it is a state. Repeatable. Besides NA, N/A, NaN, "
        "None, null and the others of pandas.read_csv, unless WORD is empty. Empty cells are always missing.",
        panel=CSV)] = None
    escape_formulas: EscapeFormulas = False

    def dialect(self) -> CsvDialect:
        """The dialect; raises `typer.BadParameter` for characters and encodings that cannot be used."""
        delimiter = _character(self.delimiter, "--delimiter") if self.delimiter is not None else None
        quote = _character(self.quote, "--quote", allow_empty=True)
        try:
            ascii_compatible = "a,\n".encode(codecs.lookup(self.encoding).name) == b"a,\n"
        except (LookupError, UnicodeError):
            raise typer.BadParameter(f"{self.encoding!r} is not a text encoding", param_hint="--encoding") from None
        if not ascii_compatible:
            raise typer.BadParameter(f"{self.encoding!r} is not a superset of ASCII", param_hint="--encoding")
        return CsvDialect(delimiter, quote, self.encoding, self.decimal, self.thousands, self.header)


CsvInput = Annotated[CsvOptions, Without("escape_formulas")]  # of commands that write no such files


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster computes, and how the work is divided."""

    cluster: ClusterAddress = None
    workers: Annotated[int | None, Option(
        "--workers N", "Number of workers on the cluster. Default: as many as fit.", least=1, panel=CLUSTER)] = None

    def check(self, run: RunOptions, part_rows: int | None = None) -> None:
        """Raise `typer.BadParameter` for options that exclude each other."""
        if self.cluster is None and (self.workers is not None or part_rows is not None):
            raise typer.BadParameter("--workers and --part-rows require --cluster")
        if self.cluster is not None and run.devices is not None:
            raise typer.BadParameter("each worker of a cluster uses one GPU; use --workers", param_hint="--devices")


def _character(text: str, option: str, allow_empty: bool = False) -> str:
    text = _NAMED_CHARACTERS.get(text, text)
    if len(text.encode()) != 1 and not (allow_empty and not text):
        raise typer.BadParameter(f"{text!r} is not a single ASCII character", param_hint=option)
    return text


EXAMPLES = (
    "jtgpu batch alarm cases.csv -o answers.parquet -t PAP,HR --keep id",
    "jtgpu batch alarm cases.parquet -o answers.csv.gz --labels --resume",
    "jtgpu batch alarm 's3://bucket/cases/*.parquet' -o s3://bucket/out --cluster auto",
)


@command
def batch(  # noqa: PLR0913 (a Typer command)
    file: File,
    cases: Annotated[str, Option(
        "CASES", "CSV (plain, .gz, .zst) or Parquet file, one case per row; on a cluster also a folder, a glob pattern "
        "or a URI.")],
    output: Annotated[str, Option(
        "-o, --output OUT",
        "Output file: .parquet, .csv, .tsv (.csv.gz, .csv.zst); on a cluster also a folder or a URI.")],
    *,
    query: Annotated[TableOptions, Without("na_values", "do")],
    quantiles: Annotated[str | None, Option(
        "--quantiles Q,Q", "Add these quantiles of variables that are numbers, such as 0.05,0.95.")] = None,
    codes: Codes = None,
    csv: CsvOptions,
    writing: FileOptions,
    cluster: ClusterOptions,
    plan: PlanOptions,
    run: RunOptions,
    json: Json = False,
) -> None:
    """Compute the posteriors of every case in a file.

    Probabilities are in columns named variable=state, means and standard deviations of variables that are numbers in
    number.mean and number.sd. Memory use does not depend on the size of the file. The output
    appears when it is complete; the results of an interrupted run are saved next to it, and --resume continues.
    """
    begun = time.perf_counter()
    cluster.check(run, writing.part_rows)
    if cluster.cluster is None:
        check_output(output, writing.force)
    levels, net = quantile_levels(quantiles), with_codes(load_any(file), codes)
    if isinstance(net, MixedNetwork):
        tree_of_numbers = compiled_numbers(net, file, plan, run)
        if cluster.cluster is not None:
            raise typer.BadParameter(f"{file} has numbers, which clusters do not take", param_hint="--cluster")
        own = replace(writing, dialect=csv.dialect(), escape_formulas=csv.escape_formulas)
        options = replace(query, na_values=csv.na_values)
        with terminable_run(output), progress_of(is_shown(run.progress)) as shown_progress:
            report = batch_of_numbers(tree_of_numbers, (cases, output), options, own, levels, shown_progress)
        _print_report(report, cases, output, None, json)
        return
    if levels is not None:
        raise typer.BadParameter(f"{file} has no variable that is a number", param_hint="--quantiles")
    # validate everything before the computation starts
    files = replace(writing, dialect=csv.dialect(), threads=run.threads, escape_formulas=csv.escape_formulas)
    columns = _columns(cases, output, net, cluster.cluster, files.dialect)
    options = _named(query, net, columns, csv.na_values)
    startup: float | None = None
    if cluster.cluster is not None:
        with status("planning", run.progress):
            made = plan.make(net, file)
        report = _answer_on_cluster(made, (cases, output), options, files, cluster, run)
    else:
        with status("planning", run.progress) as step:
            made = plan.make(net, file, run)
            step(COMPILING)
            tree = run.compile(made, step)
            _load_kernels(tree)
        startup = time.perf_counter() - begun
        with tree, terminable_run(output), progress_of(is_shown(run.progress)) as progress:
            report = run_file(tree, Path(cases), Path(output), options, files, progress)
    _print_report(report, cases, output, startup, json)


def _load_kernels(tree: JunctionTree) -> None:
    """Load the CPU's compiled loops, so that the rate of the cases excludes it."""
    if tree.backend != "cpu":
        return
    from ..backends.cpu.batch import ENOUGH

    small = BayesianNetwork({"a": ["0", "1"], "b": ["0", "1"]}, {"b": ["a"]}, {"a": [0.5, 0.5], "b": [[0.5, 0.5]] * 2})
    with small.plan("min-fill", cache=False).compile("cpu") as other:
        other.intervened().backend.run_batch(np.full((ENOUGH, 2), -1, np.int32))


def _answer_on_cluster(
    made: NetworkPlan, paths: tuple[str, str], options: TableOptions, files: FileOptions, on: ClusterOptions,
    run: RunOptions,
) -> Report:  # fmt: skip
    where = Cluster(on.cluster or "auto", on.workers, run.threads)
    # Ray reports lost workers on stdout, which is reserved for results
    with terminable_run(paths[1]), redirect_stdout(sys.stderr), progress_of(is_shown(run.progress)) as progress:
        return run_files(made, *paths, options, files, where, run.backend, progress)


def _print_report(report: Report, cases: str, output: str, startup: float | None, json: bool) -> None:
    if report.ignored:
        n_more = len(report.ignored) - 5
        some = ", ".join(report.ignored[:5]) + (f" and {n_more} more" if n_more > 0 else "")
        warn(f"{cases}: ignored columns that are not variables: {some}")
    if report.flagged:
        warn(f"{report.flagged:,} of {report.cases:,} cases have no result: see the column 'error'")
    if json:
        print_json(report.as_dict() | ({} if startup is None else {"startup_seconds": startup}))
        return
    computed = report.cases - report.resumed
    print(
        shown(f"{output}: ")
        + f"{report.cases:,} cases{f' ({report.resumed:,} from an earlier run)' if report.resumed else ''}, "
        + f"{len(report.targets):,} target{'s' if len(report.targets) != 1 else ''}, "
        + (f"{format_bytes(Path(output).stat().st_size)}, " if Path(output).is_file() else "")
        + f"{format_seconds(report.seconds)} ({computed / report.seconds:,.0f} cases/s)"
        + (f", start-up {format_seconds(startup)}" if startup is not None else "")
    )


def _columns(cases: str, output: str, net: DiscreteModel, cluster: str | None, dialect: CsvDialect) -> list[str]:
    """Columns of the cases; empty if only the cluster can read them. Rejects an output that cannot be written."""
    if cluster is not None and cluster.startswith("ray://"):
        return []
    if cluster is not None:
        return columns_in(cases, net, dialect)
    writer_for(Path(output))
    return open_cases(Path(cases), net, dialect).columns


def _named(query: TableOptions, net: DiscreteModel, columns: list[str], na_values: list[str] | None) -> TableOptions:
    """The options of a query, with its names split at commas and checked."""
    texts: Any = query
    evidence, keep = (
        None if n is None else split_names(n, columns, "column") if columns else _split(n)
        for n in (texts.evidence_columns, texts.keep)
    )
    targets = None if query.targets is None else split_names(texts.targets, net.variables, "variable")
    return replace(query, targets=targets, evidence_columns=evidence, keep=keep or (), na_values=na_values)


def _split(given: list[str]) -> list[str]:
    return [name.strip() for text in given for name in text.split(",")]


@contextmanager
def terminable_run(output: str | Path) -> Iterator[None]:
    """Report that finished work is saved after Ctrl-C and SIGTERM."""
    try:
        yield
    except KeyboardInterrupt:
        if Path(f"{Path(output)}.unfinished").exists():
            warn("finished work is saved: run the same command with --resume to continue")
        raise
