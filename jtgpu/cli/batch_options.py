"""Option groups of ``jtgpu batch``."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Annotated

import typer

from ..cases.options import CsvDialect, FileOptions
from .completion import complete_targets
from .option_groups import Without
from .options import CLUSTER, CSV, OUTPUT, RUNNING, ClusterAddress, EscapeFormulas, Force, one_of
from .running import RunOptions

COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "brotli", "none")
_NAMED_CHARACTERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "none": ""}

Names = list[str] | None


@dataclass(frozen=True)
class TableQueryOptions:
    """The results to compute for every case."""

    targets: Annotated[
        Names,
        typer.Option(
            "-t", "--target", metavar="A,B", show_default=False, autocompletion=complete_targets,
            help="Variables to compute. Repeatable. Default: all that are not evidence.",
        ),
    ] = None  # fmt: skip
    evidence_columns: Annotated[
        Names,
        typer.Option(
            "--evidence-columns", metavar="A,B", show_default=False, autocompletion=complete_targets,
            help="Columns that are evidence. Repeatable. Default: all that are variables, except the targets.",
        ),
    ] = None  # fmt: skip
    keep: Annotated[Names, typer.Option("--keep", metavar="A,B", help="Columns to copy to the output. Repeatable.")] = (
        None
    )
    labels: Annotated[
        bool, typer.Option("--labels", help="Write the most probable state instead of probabilities.")
    ] = False
    log_evidence: Annotated[bool, typer.Option("--log-evidence", help="Add a column with ln P(evidence).")] = False
    conflict: Annotated[
        bool, typer.Option("--conflict", help="Add a column with the conflict measure of the case's evidence.")
    ] = False
    mpe: Annotated[
        bool, typer.Option("--mpe", help="Add each target's state in the most probable explanation, and its ln P.")
    ] = False
    on_error: Annotated[
        str,
        typer.Option(
            "--on-error", metavar="error|flag", callback=one_of("error", "flag"),
            help="Stop at the first invalid row, or write the reason into the column 'error'.",
        ),
    ] = "error"  # fmt: skip


@dataclass(frozen=True)
class CsvOptions:
    """How CSV files are written."""

    delimiter: Annotated[
        str | None,
        typer.Option(
            metavar="C", rich_help_panel=CSV, show_default=False,
            help="Column separator of the cases, or the word tab. Default: detected.",
        ),
    ] = None  # fmt: skip
    quote: Annotated[
        str,
        typer.Option(
            metavar="C", rich_help_panel=CSV, help="Quote character of the cases; none if quotes are ordinary text."
        ),
    ] = '"'
    encoding: Annotated[str, typer.Option(metavar="NAME", rich_help_panel=CSV, help="Text encoding of the cases.")] = (
        "utf-8"
    )
    na_values: Annotated[
        Names,
        typer.Option(
            "--na-values", metavar="WORD", rich_help_panel=CSV, show_default=False,
            help="Word that means a missing cell, unless it is a state. Repeatable. Default: NA, N/A, NaN, None, null "
            "and the others of pandas.read_csv. Empty cells are always missing.",
        ),
    ] = None  # fmt: skip
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
        return CsvDialect(delimiter, quote, self.encoding)


CsvInput = Annotated[CsvOptions, Without("escape_formulas")]  # of commands that write no such files


@dataclass(frozen=True)
class OutputOptions:
    """How the results are written."""

    resume: Annotated[bool, typer.Option("--resume", rich_help_panel=OUTPUT, help="Continue an interrupted run.")] = (
        False
    )
    force: Force = False
    compression: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", rich_help_panel=OUTPUT, show_default=False, callback=one_of(*COMPRESSIONS),
            help="Compression of a Parquet output: snappy, zstd, lz4, gzip, brotli, none. Default: snappy.",
        ),
    ] = None  # fmt: skip
    chunk: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", rich_help_panel=RUNNING, show_default=False,
            help="Approximate number of cases per chunk. Default: some tens of MB.",
        ),
    ] = None  # fmt: skip

    def file_options(self, csv: CsvOptions, threads: int | None, part_rows: int | None = None) -> FileOptions:
        """The options as `jtgpu.cases` takes them."""
        return FileOptions(
            csv.dialect(), self.chunk, self.compression, threads, self.resume, self.force, part_rows,
            escape_formulas=csv.escape_formulas,
        )  # fmt: skip


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster computes, and how the work is divided."""

    cluster: ClusterAddress = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", rich_help_panel=CLUSTER, show_default=False,
            help="Number of workers on the cluster. Default: as many as fit.",
        ),
    ] = None  # fmt: skip
    part_rows: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", rich_help_panel=CLUSTER, show_default=False,
            help="Approximate number of cases that a worker processes at a time. Default: up to a million.",
        ),
    ] = None  # fmt: skip

    def check(self, run: RunOptions) -> None:
        """Raise `typer.BadParameter` for options that exclude each other."""
        if self.cluster is None and (self.workers is not None or self.part_rows is not None):
            raise typer.BadParameter("--workers and --part-rows require --cluster")
        if self.cluster is not None and run.devices is not None:
            raise typer.BadParameter("each worker of a cluster uses one GPU; use --workers", param_hint="--devices")


def _character(text: str, option: str, allow_empty: bool = False) -> str:
    text = _NAMED_CHARACTERS.get(text, text)
    if len(text.encode()) != 1 and not (allow_empty and not text):
        raise typer.BadParameter(f"{text!r} is not a single ASCII character", param_hint=option)
    return text
