"""``jtgpu batch``: from a file of cases to a file of posteriors."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from click import BadParameter

from ..cases.files import Report, run_file
from ..cases.solver import progress_of
from ..cases.writing import writer_for
from ..cluster import Cluster
from ..cluster.files import columns_in, run_files
from ..columns.files import open_cases
from ..errors import format_bytes
from ..inference.network_plan import NetworkPlan
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..model.network import BayesianNetwork
from ..options.compute import Compute, Planning
from ..options.tables import CsvDialect, FileOptions, TableOptions
from ..util.text_table import printable as shown
from .console import format_seconds, print_json, warn
from .declared import Batch, CsvOptions, Names, Workers
from .networks import check_output, load_any, split_names, with_codes
from .number_tables import batch_of_numbers, quantile_levels
from .numbers import compiled_numbers
from .planning import COMPILING, make_plan
from .tables import is_shown, status


def batch(
    o: Batch, query: TableOptions, writing: FileOptions, csv: CsvOptions, plan: Planning, run: Compute,
    on: Workers,
) -> None:  # fmt: skip
    """Run ``jtgpu batch``."""
    begun = time.perf_counter()
    check_cluster(on, run, writing.part_rows)
    if run.cluster is None:
        check_output(o.output, writing.force)
    levels, net = quantile_levels(o.quantiles), with_codes(load_any(o.file), o.codes)
    if isinstance(net, MixedNetwork):
        tree_of_numbers = compiled_numbers(net, o.file, plan, run)
        if run.cluster is not None:
            raise BadParameter(f"{o.file} has numbers, which clusters do not take", param_hint="--cluster")
        own = writing.replaced(dialect=csv.dialect(), escape_formulas=csv.escape_formulas)
        options = query.replaced(na_values=csv.na_values)
        with terminable_run(o.output), progress_of(is_shown(run.progress)) as shown_progress:
            report = batch_of_numbers(tree_of_numbers, (o.cases, o.output), options, own, levels, shown_progress)
        _print_report(report, o.cases, o.output, None, o.json)
        return
    if levels is not None:
        raise BadParameter(f"{o.file} has no variable that is a number", param_hint="--quantiles")
    # validate everything before the computation starts
    files = writing.replaced(dialect=csv.dialect(), threads=run.threads, escape_formulas=csv.escape_formulas)
    columns = _columns(o.cases, o.output, net, run.cluster, files.dialect)
    options = _named(query, net, columns, csv.na_values)
    startup: float | None = None
    if run.cluster is not None:
        with status("planning", run.progress):
            made = make_plan(plan, net, o.file)
        report = _answer_on_cluster(made, (o.cases, o.output), options, files, on, run)
    else:
        with status("planning", run.progress) as step:
            made = make_plan(plan, net, o.file, run)
            step(COMPILING)
            tree = run.compile(made, step)
            _load_kernels(tree)
        startup = time.perf_counter() - begun
        with tree, terminable_run(o.output), progress_of(is_shown(run.progress)) as progress:
            report = run_file(tree, Path(o.cases), Path(o.output), options, files, progress)
    _print_report(report, o.cases, o.output, startup, o.json)


def check_cluster(on: Workers, run: Compute, part_rows: int | None = None) -> None:
    """Raise `click.BadParameter` for options that exclude each other."""
    if run.cluster is None and (on.workers is not None or part_rows is not None):
        raise BadParameter("--workers and --part-rows require --cluster")
    if run.cluster is not None and run.devices is not None:
        raise BadParameter("each worker of a cluster uses one GPU; use --workers", param_hint="--devices")


def _load_kernels(tree: JunctionTree) -> None:
    """Load the CPU's compiled loops, so that the rate of the cases excludes it."""
    if tree.backend != "cpu":
        return
    from ..backends.cpu.batch import ENOUGH

    small = BayesianNetwork({"a": ["0", "1"], "b": ["0", "1"]}, {"b": ["a"]}, {"a": [0.5, 0.5], "b": [[0.5, 0.5]] * 2})
    with small.plan("min-fill", cache=False).compile("cpu") as other:
        other.intervened().backend.run_batch(np.full((ENOUGH, 2), -1, np.int32))


def _answer_on_cluster(
    made: NetworkPlan, paths: tuple[str, str], options: TableOptions, files: FileOptions, on: Workers,
    run: Compute,
) -> Report:  # fmt: skip
    where = Cluster(run.cluster or "auto", on.workers, run.threads)
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


def _named(query: TableOptions, net: DiscreteModel, columns: list[str], na_values: Names | None) -> TableOptions:
    """The options of a query, with its names split at commas and checked."""
    texts: Any = query
    evidence, keep = (
        None if n is None else split_names(n, columns, "column") if columns else _split(n)
        for n in (texts.evidence_columns, texts.keep)
    )
    targets = None if query.targets is None else split_names(texts.targets, net.variables, "variable")
    return query.replaced(targets=targets, evidence_columns=evidence, keep=keep or (), na_values=na_values)


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
