"""Options of ``jtgpu batch``, in groups."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Annotated

import typer

from ..cases.options import CsvDialect, FileOptions
from .options import RunOptions

__all__ = ["ClusterOptions", "CsvOptions", "OutputOptions", "TableQueryOptions"]

COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "brotli", "none")
_NAMED_CHARACTERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "none": ""}

Names = list[str] | None


@dataclass(frozen=True)
class TableQueryOptions:
    """The results to compute for every case."""

    targets: Annotated[
        Names,
        typer.Option(
            "-t", "--targets", metavar="A,B", help="Variables to compute. Default: all that are not evidence.",
            show_default=False,
        ),
    ] = None  # fmt: skip
    evidence_columns: Annotated[
        Names,
        typer.Option(
            "--evidence-columns", metavar="A,B",
            help="Columns that are evidence. Default: all that are variables, except the targets.",
            show_default=False,
        ),
    ] = None  # fmt: skip
    keep: Annotated[Names, typer.Option("--keep", metavar="A,B", help="Columns to copy to the output.")] = None
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
            "--on-error", metavar="error|flag",
            help="Stop at the first row that has no answer, or write the reason into the column 'error'.",
        ),
    ] = "error"  # fmt: skip
    missing: Annotated[
        Names,
        typer.Option(
            "--missing", metavar="TEXT", show_default=False,
            help="Cell that means 'not observed'. Repeatable. Default: empty, NA, N/A, NaN, NULL, None, ?, *.",
        ),
    ] = None  # fmt: skip

    def check(self) -> None:
        """Raise `typer.BadParameter` for a value that does not exist."""
        if self.on_error not in ("error", "flag"):
            raise typer.BadParameter(f"{self.on_error!r} is neither error nor flag", param_hint="--on-error")


@dataclass(frozen=True)
class CsvOptions:
    """How CSV files are written."""

    delimiter: Annotated[
        str | None,
        typer.Option(
            metavar="C", help="Column separator of a CSV file, or the word tab. Default: detected.", show_default=False
        ),
    ] = None
    quote: Annotated[
        str, typer.Option(metavar="C", help="Quote character of a CSV; none if quotes are ordinary text.")
    ] = '"'
    encoding: Annotated[str, typer.Option(help="Text encoding of a CSV.")] = "utf-8"

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


@dataclass(frozen=True)
class OutputOptions:
    """How the answers are computed and written."""

    chunk: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Approximate number of cases per chunk. Default: some tens of MB.",
            show_default=False,
        ),
    ] = None  # fmt: skip
    compression: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Compression of a Parquet output: snappy, zstd, lz4, gzip, none.",
            show_default="snappy",
        ),
    ] = None  # fmt: skip
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Number of cores; on a cluster, cores per worker. Default: all; on a cluster 1.",
            show_default=False,
        ),
    ] = None  # fmt: skip
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Overwrite an existing output; discard an unfinished run.")
    ] = False

    def file_options(self, dialect: CsvDialect, part_rows: int | None = None) -> FileOptions:
        """The options as `jtgpu.cases` takes them."""
        return FileOptions(
            dialect, self.chunk, self.compression, self.threads, self.resume, self.force, part_rows
        )

    def check(self) -> None:
        """Raise `typer.BadParameter` for a value that does not exist."""
        if self.compression not in (None, *COMPRESSIONS):
            raise typer.BadParameter(f"{self.compression!r} is not one of {', '.join(COMPRESSIONS)}")


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster answers, and how the work is divided."""

    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", show_default=False,
            help="Run on a Ray cluster: auto (the cluster of this job), local, ray://host:10001 or host:6379.",
        ),
    ] = None  # fmt: skip
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", show_default=False,
            help="Number of workers on the cluster. Default: as many as fit.",
        ),
    ] = None  # fmt: skip
    part_rows: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", show_default=False,
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
