"""``jtgpu dynamic``: questions about sequences, from a file of slices to a file of answers."""

from __future__ import annotations

import time as clock
from pathlib import Path
from typing import Any

from click import BadParameter

from ..cases.solver import progress_of
from ..dynamic.files import SequenceReport, answer_file, answer_tables, draw_table, write_table
from ..dynamic.sequence_file import SequenceFile, SequenceQuestion
from ..errors import ArgumentError, format_bytes
from ..formats import load, write
from ..model.dynamic import DynamicNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..options.compute import Compute
from ..options.learning import EM
from ..options.tables import FileOptions
from ..util.text_table import printable as shown
from .batch import terminable_run
from .console import format_seconds, print_json, warn
from .declared import CsvOptions, Dynamic, FitModel, Info, Names
from .fit import fit_sequences
from .networks import check_output, split_names, with_codes
from .tables import is_shown, print_rows, status


def dynamic(o: Dynamic, writing: FileOptions, csv: CsvOptions, model: FitModel, em: EM, run: Compute) -> None:
    """Run ``jtgpu dynamic``."""
    if o.question == "info":
        from .info import info

        info(Info(file=o.file, json=o.json))
        return
    if o.output is not None:
        check_output(o.output, writing.force or (o.question == "fit" and writing.resume))
    net = with_codes(read_dynamic(o.file), o.codes)
    _check(o.question, o.sequences, o.steps, o.output)
    if o.question == "unroll":
        assert o.output is not None
        for loss in write(net.unroll(o.steps or 2), o.output, rename=isinstance(net, DynamicNetwork)):
            warn(f"{o.output} cannot represent {loss}")
        print(f"{shown(o.output)}: {o.steps or 2} slices of {shown(o.file)}")
        return
    if o.question == "fit":
        fit_sequences(o, net, writing, model, em, csv, run)
        return
    files = writing.replaced(dialect=csv.dialect(), threads=run.threads, escape_formulas=csv.escape_formulas)
    asked = SequenceQuestion(
        o.question, o.id, o.time, _names(o.target, net), _names(o.evidence_columns, net), o.at == "last", o.steps or 1,
        o.labels, o.log_evidence, o.on_gap, o.on_error, csv.na_values,
    )  # fmt: skip
    if o.sequences is None:
        drawn = draw_table(net, o.samples, o.steps or 1, o.seed)
        if o.output is None:
            _print([drawn], o.json, o.digits)
        else:
            n_bytes = write_table(drawn, Path(o.output), files)
            print(f"{shown(o.output)}: {o.samples:,} sequences, {drawn.num_rows:,} rows, {format_bytes(n_bytes)}")
        return
    begun = clock.perf_counter()
    with status("compiling (takes longer the first time on a machine)", run.progress):
        tree = net.compile(run.backend, **run.threads_option())
    if o.output is None:
        read = SequenceFile(net, Path(o.sequences), asked, files)
        tables = [table for table, *_ in answer_tables(tree, read)]
        _ignored(o.sequences, read.ignored)
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


def _names(given: Names | None, net: DynamicNetwork | MixedDynamicNetwork) -> tuple[str, ...] | None:
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
    cells = ([_cell(x) for x in table.column(name).to_pylist()] for name in names)
    print_rows(names, [*zip(*cells, strict=True)], digits=digits)


def _cell(x: Any) -> Any:
    if x is None:
        return ""
    return x if isinstance(x, float) else str(x)


def _ignored(path: str, names: tuple[str, ...]) -> None:
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        warn(f"{path}: ignored columns that are not variables: {', '.join(names[:5])}{more}")


def _print_report(report: SequenceReport, path: str, startup: float, json: bool) -> None:
    _ignored(path, report.ignored)
    if report.flagged:
        warn(f"{report.flagged:,} of {report.sequences:,} sequences are impossible: see the column 'error'")
    if json:
        print_json(report.as_dict() | {"startup_seconds": startup})
        return
    earlier = f" ({report.resumed:,} rows from an earlier run)" if report.resumed else ""
    print(
        f"{shown(report.output)}: {report.sequences:,} sequence{'s' if report.sequences != 1 else ''}, "
        f"{report.rows:,} rows{earlier}, {len(report.targets)} target{'s' if len(report.targets) != 1 else ''}, "
        f"{format_bytes(Path(report.output).stat().st_size)}, {format_seconds(report.seconds)}, start-up "
        f"{format_seconds(startup)}"
    )
