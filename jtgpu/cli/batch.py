"""``jtgpu batch``: from a file of cases to a file of posteriors."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from click import BadParameter

from ..backends.table import Table
from ..cases.files import Report, run_file
from ..cases.solver import progress_of
from ..cases.writing import writer_for
from ..cluster import Cluster
from ..cluster.files import columns_in, run_files
from ..columns.files import open_cases
from ..errors import JtgpuError, format_bytes
from ..inference.network_plan import NetworkPlan
from ..inference.results.interval_numbers import checked_probabilities
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..model.network import BayesianNetwork
from ..options.compute import Compute, Planning
from ..options.tables import FileOptions, ReadOptions, TableOptions
from ..util.text_table import counted
from ..util.text_table import printable as shown
from .console import format_seconds, print_json, warn
from .declared import Batch, Workers
from .networks import check_outputs, load_any, split_names, with_codes
from .planning import COMPILING, compiled_kind, make_plan
from .tables import is_shown, status


def batch(
    o: Batch, query: TableOptions, writing: FileOptions, read: ReadOptions, plan: Planning, run: Compute, on: Workers
) -> None:
    """Run ``jtgpu batch``."""
    begun = time.perf_counter()
    check_cluster(on, run, writing.part_rows)
    if run.cluster is None:
        check_outputs(writing.force, o.output)
    levels, net = _levels(o.quantiles), with_codes(load_any(o.file), o.codes)
    cases, output = Path(o.cases), Path(o.output)
    # validate everything before the computation starts
    numbers = isinstance(net, MixedNetwork)
    if numbers and run.cluster is not None:
        raise BadParameter(f"{o.file} has numbers, which clusters do not take", param_hint="--cluster")
    if levels is not None and not numbers:
        raise BadParameter(f"{o.file} has no variable that is a number", param_hint="--quantiles")
    files = writing.replaced(dialect=read, threads=run.threads)
    columns = _columns(o.cases, output, net.graph if numbers else net, run.cluster, read)
    query = _named(query, net.variables, columns).replaced(na_values=read.na_values)
    startup: float | None = None
    if run.cluster is not None:
        with status("planning", run.progress):
            made = make_plan(plan, net, o.file)
        report = _answer_on_cluster(made, (o.cases, o.output), query, files, on, run)
    elif numbers:
        from ..mixed.files import answer_file

        tree_of_numbers: Any = compiled_kind(net, o.file, plan, run)
        with terminable_run(output), progress_of(is_shown(run.progress)) as progress:
            report = answer_file(tree_of_numbers, cases, output, query, files, levels, progress)
    else:
        with status("planning", run.progress) as step:
            made = make_plan(plan, net, o.file, run)
            step(COMPILING)
            tree = run.compile(made, step)
            _load_kernels(tree)
        startup = time.perf_counter() - begun
        with tree, terminable_run(output), progress_of(is_shown(run.progress)) as progress:
            report = run_file(tree, cases, output, query, files, progress)
    _print_report(report, o.cases, o.output, startup, o.json)


def _levels(text: str | None) -> list[float] | None:
    """The probabilities of ``--quantiles``."""
    if text is None:
        return None
    try:
        return list(map(float, checked_probabilities([float(q) for q in text.split(",")])))
    except (ValueError, JtgpuError):
        raise BadParameter(
            f"expected probabilities above 0 and below 1, such as 0.05,0.95, got {text!r}", param_hint="--quantiles"
        ) from None


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
        other.intervened().backend.run(Table.of(np.full((ENOUGH, 2), -1, np.int32)))


def _answer_on_cluster(
    made: NetworkPlan, paths: tuple[str, str], query: TableOptions, files: FileOptions, on: Workers, run: Compute
) -> Report:
    where = Cluster(run.cluster or "auto", on.workers, run.threads)
    # Ray reports lost workers on stdout, which is reserved for results
    with terminable_run(paths[1]), redirect_stdout(sys.stderr), progress_of(is_shown(run.progress)) as progress:
        return run_files(made, *paths, query, files, where, run.backend, progress)


def _print_report(report: Report, cases: str, output: str, startup: float | None, json: bool) -> None:
    warn_of_ignored(cases, report.ignored)
    if report.flagged:
        have = "has" if report.flagged == 1 else "have"
        warn(f"{report.flagged:,} of {counted(report.cases, 'case')} {have} no result: see the column 'error'")
    if json:
        print_json(report.as_dict() | ({} if startup is None else {"startup_seconds": startup}))
        return
    earlier = f" ({report.resumed:,} from an earlier run)" if report.resumed else ""
    rate = f"({(report.cases - report.resumed) / report.seconds:,.0f} cases/s)"
    print_done(output, f"{counted(report.cases, 'case')}{earlier}", report.targets, report.seconds, rate, startup)


def warn_of_ignored(cases: str, ignored: Sequence[str]) -> None:
    """Warn about columns that are not variables."""
    if ignored:
        more = f" and {len(ignored) - 5} more" if len(ignored) > 5 else ""
        warn(f"{cases}: ignored columns that are not variables: {', '.join(ignored[:5])}{more}")


def print_done(
    output: str, what: str, targets: Sequence[str], seconds: float, rate: str = "", startup: float | None = None
) -> None:
    """Print what has been written: how much, about which variables, and how long it took."""
    size = [format_bytes(Path(output).stat().st_size)] if Path(output).is_file() else []
    last = [] if startup is None else [f"start-up {format_seconds(startup)}"]
    took = f"{format_seconds(seconds)} {rate}".rstrip()
    print(shown(f"{output}: ") + ", ".join([what, counted(len(targets), "target"), *size, took, *last]))


def _columns(
    cases: str, output: Path, net: DiscreteModel, cluster: str | None, read: ReadOptions
) -> list[str]:  # fmt: skip
    """Columns of the cases; empty if only the cluster can read them. Rejects an output that cannot be written."""
    if cluster is not None and cluster.startswith("ray://"):
        return []
    if cluster is not None:
        return columns_in(cases, net, read)
    writer_for(output)
    return open_cases(Path(cases), net, read).columns


def _named(query: TableOptions, variables: Sequence[str], columns: Sequence[str]) -> TableOptions:
    """The options of a query, with its names split at commas and checked."""
    texts: Any = query
    evidence, keep = (
        None if n is None else split_names(n, columns, "column") if columns else _split(n)
        for n in (texts.evidence_columns, texts.keep)
    )
    targets = None if query.targets is None else split_names(texts.targets, variables, "variable")
    return query.replaced(targets=targets, evidence_columns=evidence, keep=keep or ())


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
