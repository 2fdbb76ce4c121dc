"""``jtgpu dynamic``: questions about sequences, from a file of slices to a file of answers."""

from __future__ import annotations

import time as clock
from pathlib import Path
from typing import Any

from click import BadParameter

from ..cases.solver import progress_of
from ..dynamic.files import (
    SequenceFile,
    SequenceQuestion,
    SequenceReport,
    answer_file,
    answer_tables,
    draw_table,
    write_table,
)
from ..errors import ArgumentError, format_bytes
from ..formats import load, write
from ..model.dynamic import DynamicNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..options.compute import Compute
from ..options.learning import EM, Keys
from ..options.tables import FileOptions, ReadOptions, TableOptions
from ..util.text_table import counted
from ..util.text_table import printable as shown
from .batch import print_done, terminable_run, warn_of_ignored
from .console import print_json, warn
from .declared import Dynamic, FitModel, Info
from .fit import fit_sequences
from .networks import check_outputs, split_names, with_codes
from .planning import COMPILING
from .tables import is_shown, print_rows, status


def dynamic(  # noqa: PLR0913 (records)
    o: Dynamic, keys: Keys, query: TableOptions, writing: FileOptions, read: ReadOptions, model: FitModel, em: EM,
    run: Compute,
) -> None:  # fmt: skip
    """Run ``jtgpu dynamic``."""
    if o.question == "info":
        from .info import info

        info(Info(file=o.file, json=o.json))
        return
    check_outputs(writing.force or (o.question == "fit" and writing.resume), o.output)
    net = with_codes(read_dynamic(o.file), o.codes)
    _check(o.question, o.sequences, o.steps, o.output)
    if o.question == "unroll":
        assert o.output is not None
        for loss in write(net.unroll(o.steps or 2), o.output, rename=isinstance(net, DynamicNetwork)):
            warn(f"{o.output} cannot represent {loss}")
        print(f"{shown(o.output)}: {counted(o.steps or 2, 'slice')} of {shown(o.file)}")
        return
    if o.question == "fit":
        fit_sequences(o, net, keys, query, writing, model, em, read, run)
        return
    files = writing.replaced(dialect=read, threads=run.threads)
    asked = SequenceQuestion(
        o.question, keys.id, keys.time, _names(query.targets, net), _names(query.evidence_columns, net),
        o.at == "last", o.steps or 1, query.labels, query.log_evidence, keys.on_gap, query.on_error,
        None if read.na_values is None else tuple(read.na_values),
    )  # fmt: skip
    if o.sequences is None:
        drawn = draw_table(net, o.samples, o.steps or 1, o.seed)
        if o.output is None:
            _print([drawn], o.json, o.digits)
        else:
            n_bytes = write_table(drawn, Path(o.output), files)
            drew = f"{counted(o.samples, 'sequence')}, {counted(drawn.num_rows, 'row')}"
            print(f"{shown(o.output)}: {drew}, {format_bytes(n_bytes)}")
        return
    begun = clock.perf_counter()
    with status(COMPILING, run.progress):
        tree = net.compile(run.backend, **run.threads_option())
    if o.output is None:
        source = SequenceFile(net, Path(o.sequences), asked, files)
        tables = [table for table, *_ in answer_tables(tree, source)]
        warn_of_ignored(o.sequences, source.ignored)
        _print(tables, o.json, o.digits)
        return
    startup = clock.perf_counter() - begun
    with terminable_run(o.output), progress_of(is_shown(run.progress)) as progress:
        report = answer_file(tree, Path(o.sequences), Path(o.output), asked, files, progress)
    _print_report(report, o.sequences, startup, o.json)


def read_dynamic(file: str) -> DynamicNetwork | MixedDynamicNetwork:
    """Read the file of a dynamic network; the error of another names the command for it."""
    net: Any = load(file)
    if not isinstance(net, (DynamicNetwork, MixedDynamicNetwork)):
        raise ArgumentError(
            f"{file} is a {type(net).__name__}, without slices: jtgpu query and jtgpu batch answer questions about it"
        )
    return net


def _names(given: Any, net: DynamicNetwork | MixedDynamicNetwork) -> tuple[str, ...] | None:
    return tuple(split_names(given, net.variables, "variable")) if given else None


def _check(question: str, sequences: str | None, steps: int | None, output: str | None) -> None:
    """Raise `BadParameter` for arguments that do not belong to a question."""
    if question == "unroll":
        if sequences is not None:
            raise BadParameter("unroll takes a network only", param_hint="SEQUENCES")
        if output is None:
            raise BadParameter("unroll writes a network: name its file by -o", param_hint="--output")
        return
    if question == "sample":
        if sequences is not None:
            raise BadParameter("sample draws sequences of the network, and reads none", param_hint="SEQUENCES")
        if steps is None:
            raise BadParameter("sample needs the number of slices", param_hint="--steps")
        return
    if sequences is None:
        raise BadParameter(f"{question} needs a file of sequences", param_hint="SEQUENCES")
    if question == "fit" and output is None:
        raise BadParameter("fit writes a network: name its file by -o", param_hint="--output")
    if steps is not None and question != "predict":
        raise BadParameter("only predict, sample and unroll take a number of slices", param_hint="--steps")


def _print(tables: list[Any], json: bool, digits: int | None) -> None:
    """Print answers as one table, or as a list of JSON objects."""
    from ..columns.arrow import arrow

    table = arrow().concat_tables(tables)
    names = table.column_names
    if json:
        rows = table.to_pylist()
        print_json([{k: x if isinstance(x, (int, float, str, type(None))) else str(x) for k, x in r.items()}
                    for r in rows])  # fmt: skip
        return
    print_rows(names, zip(*(table.column(name).to_pylist() for name in names), strict=True), digits=digits)


def _print_report(report: SequenceReport, path: str, startup: float, json: bool) -> None:
    warn_of_ignored(path, report.ignored)
    if report.flagged:
        are = "is" if report.flagged == 1 else "are"
        warn(f"{report.flagged:,} of {counted(report.sequences, 'sequence')} {are} impossible: see the column 'error'")
    if json:
        print_json(report.as_dict() | {"startup_seconds": startup})
        return
    earlier = f" ({counted(report.resumed, 'row')} from an earlier run)" if report.resumed else ""
    what = f"{counted(report.sequences, 'sequence')}, {counted(report.rows, 'row')}{earlier}"
    print_done(report.output, what, report.targets, report.seconds, startup=startup)
