"""``jtgpu dynamic``: questions about sequences, from a file of slices to a file of answers."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..cases.query import FileOptions
from ..cases.solver import progress_of
from ..dynamic.files import SequenceReport, answer_file, answer_tables, draw_table, write_table
from ..dynamic.sequence_file import SequenceFile, SequenceQuestion
from ..errors import ArgumentError, format_bytes
from ..formats import load, write
from ..model.dynamic import DynamicNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..util.arguments import Option
from ..util.text_table import printable as shown
from .batch import CsvOptions, terminable_run
from .console import command, format_seconds, print_json, warn
from .dynamic_fit import Em, FitOptions, Weights, fit_sequences
from .fit import ModelOptions
from .networks import check_output, split_names, with_codes
from .options import OUTPUT, Codes, Digits, Json, Targets, Without
from .planning import RunOptions
from .tables import is_shown, print_rows, status

QUESTIONS = ("filter", "smooth", "predict", "mpe", "fit", "sample", "info", "unroll")
EXAMPLES = (
    "jtgpu dynamic smooth weather.dynamic.json days.csv --id place --time day -t rain",
    "jtgpu dynamic filter ward.xdsl stays.parquet --id patient --time day --at last -o now.parquet",
    "jtgpu dynamic predict ward.xdsl stays.csv --id patient --time day --steps 3 -t stage -o next.csv",
    "jtgpu dynamic mpe ward.xdsl stays.csv --id patient --time day -o stages.csv",
    "jtgpu dynamic fit ward.xdsl stays.csv --id patient --time day --hidden stage --restarts 5 -o fitted.dynamic.json",
    "jtgpu dynamic sample ward.xdsl --samples 100 --steps 30 --seed 1 -o stays.csv",
    "jtgpu dynamic unroll weather.dynamic.json --steps 10 -o weather.net",
)


@dataclass(frozen=True)
class SequenceOptions:
    """Which sequences are read, and what is computed."""

    id: Annotated[str | None, Option(
        "--id COLUMN", "Column that names the sequence of each row. Default: all rows are one sequence.")] = None
    time: Annotated[str | None, Option(
        "--time COLUMN", "Column of times, numbers or dates, which increase in each sequence. Default: the rows are in "
        "order.")] = None
    evidence_columns: Annotated[list[str] | None, Option(
        "--evidence-columns A,B", "Columns that are evidence; targets may be among them. Repeatable. Default: all that "
        "are variables, except the targets.", complete="targets")] = None
    at: Annotated[str, Option(
        "--at all|last", "Answer about all slices, or about the last one of each sequence.",
        choices=("all", "last"))] = "all"
    labels: Annotated[bool, Option(
        "--labels", "Write the most probable state instead of probabilities, and the mean of a number.")] = False
    log_evidence: Annotated[bool, Option(
        "--log-evidence", "Add a column with ln P(evidence) of the sequence.")] = False
    on_gap: Annotated[str, Option(
        "--on-gap error|empty", "Whether a missing time (of whole numbers) is an error or a slice without "
        "observations.", choices=("error", "empty"))] = "error"
    on_error: Annotated[str, Option(
        "--on-error error|flag", "Stop at the first impossible sequence, or write the reason into the column 'error'.",
        choices=("error", "flag"))] = "error"


Steps = Annotated[int | None, Option(
    "--steps N", "Slices to predict, of samples, or of the unrolled network.", least=1)]
Samples = Annotated[int, Option("--samples N", "Sequences that sample draws.", least=0)]
Seed = Annotated[int | None, Option(
    "--seed N", "Random seed of sample (default: random) and of fit (default: 0).", least=0)]


@command
def dynamic(  # noqa: PLR0913 (a Typer command)
    question: Annotated[str, Option(
        "QUESTION", f"One of {', '.join(QUESTIONS)}.", choices=QUESTIONS, complete="choices")],
    file: Annotated[str, Option(
        "NET", "File of a dynamic network: .dynamic.json, .xdsl, Hugin's .oobn.", complete="networks")],
    sequences: Annotated[str | None, Option(
        "SEQUENCES", "CSV (plain, .gz, .zst) or Parquet file with a row for each slice. The rows of a sequence follow "
        "each other.")] = None,
    target: Targets = None,
    steps: Steps = None,
    samples: Samples = 1,
    seed: Seed = None,
    *,
    about: SequenceOptions,
    model: ModelOptions,
    em: Em,
    weights: Weights = None,
    output: Annotated[str | None, Option(
        "-o, --output PATH", "Output file: .parquet, .csv, .tsv (.csv.gz, .csv.zst); of unroll a network. Default: a "
        "table on stdout.", panel=OUTPUT)] = None,
    codes: Codes = None,
    csv: CsvOptions,
    writing: Annotated[FileOptions, Without("part_rows")],
    run: Annotated[RunOptions, Without("dtype", "devices")],
    json: Json = False,
    digits: Digits = None,
) -> None:
    """Compute posteriors of sequences by a dynamic network.

    filter: posteriors in every slice given the evidence up to it. smooth: given the whole sequence. predict: of the
    slices that follow. mpe: the most probable states of all slices together. fit: estimate the CPTs by EM. sample: draw
    sequences, which need no file. info: what the network is. unroll: write the Bayesian network of some slices.

    The file of sequences may be larger than the memory. The output appears when it is complete; the results of an
    interrupted run are saved next to it, and --resume continues.
    """
    if question == "info":
        from .info import info

        info(file=file, system=False, chance_only=False, json=json)
        return
    if output is not None:
        check_output(output, writing.force or (question == "fit" and writing.resume))
    net = with_codes(read_dynamic(file), codes)
    _check(question, sequences, steps, output)
    if question == "unroll":
        assert output is not None
        for loss in write(net.unroll(steps or 2), output, rename=isinstance(net, DynamicNetwork)):
            warn(f"{output} cannot represent {loss}")
        print(f"{shown(output)}: {steps or 2} slices of {shown(file)}")
        return
    if question == "fit":
        assert sequences is not None
        assert output is not None
        options = FitOptions(em, model, weights, seed or 0)
        keys = {"id": about.id, "time": about.time, "on_gap": about.on_gap, "on_impossible": about.on_error}
        fit_sequences(net, (sequences, output), keys, options, csv, run, (writing.resume, writing.force), json)
        return
    files = replace(writing, dialect=csv.dialect(), threads=run.threads, escape_formulas=csv.escape_formulas)
    asked = SequenceQuestion(
        question, about.id, about.time, _names(target, net), _names(about.evidence_columns, net), about.at == "last",
        steps or 1, about.labels, about.log_evidence, about.on_gap, about.on_error,
        None if csv.na_values is None else tuple(csv.na_values),
    )  # fmt: skip
    if sequences is None:
        drawn = draw_table(net, samples, steps or 1, seed)
        if output is None:
            _print([drawn], json, digits)
        else:
            n_bytes = write_table(drawn, Path(output), files)
            print(f"{shown(output)}: {samples:,} sequences, {drawn.num_rows:,} rows, {format_bytes(n_bytes)}")
        return
    begun = clock.perf_counter()
    with status("compiling (takes longer the first time on a machine)", run.progress):
        tree = net.compile(run.backend, **run.threads_option())
    if output is None:
        read = SequenceFile(net, Path(sequences), asked, files)
        tables = [table for table, *_ in answer_tables(tree, read)]
        _ignored(sequences, read.ignored)
        _print(tables, json, digits)
        return
    startup = clock.perf_counter() - begun
    with terminable_run(output), progress_of(is_shown(run.progress)) as progress:
        report = answer_file(tree, Path(sequences), Path(output), asked, files, progress)
    _print_report(report, sequences, startup, json)


def read_dynamic(file: str) -> DynamicNetwork | MixedDynamicNetwork:
    """Read the file of a dynamic network; the error of another names the command for it."""
    net: Any = load(file)
    if not isinstance(net, (DynamicNetwork, MixedDynamicNetwork)):
        raise ArgumentError(
            f"{file} is a {type(net).__name__}, without slices: jtgpu query and jtgpu batch answer questions about it"
        )
    return net


def _names(given: list[str] | None, net: DynamicNetwork | MixedDynamicNetwork) -> tuple[str, ...] | None:
    return tuple(split_names(given, net.variables, "variable")) if given else None


def _check(question: str, sequences: str | None, steps: int | None, output: str | None) -> None:
    """Raise `typer.BadParameter` for arguments that do not belong to a question."""
    if question == "unroll":
        if sequences is not None:
            raise typer.BadParameter("unroll takes a network only", param_hint="SEQUENCES")
        if output is None:
            raise typer.BadParameter("unroll writes a network: name its file by -o", param_hint="--output")
        return
    if question == "sample":
        if sequences is not None:
            raise typer.BadParameter("sample draws sequences of the network, and reads none", param_hint="SEQUENCES")
        if steps is None:
            raise typer.BadParameter("sample needs the number of slices", param_hint="--steps")
        return
    if sequences is None:
        raise typer.BadParameter(f"{question} needs a file of sequences", param_hint="SEQUENCES")
    if question == "fit" and output is None:
        raise typer.BadParameter("fit writes a network: name its file by -o", param_hint="--output")
    if steps is not None and question != "predict":
        raise typer.BadParameter("only predict, sample and unroll take a number of slices", param_hint="--steps")


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
