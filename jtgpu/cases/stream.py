"""Files of cases, read in chunks: CSV in its dialects, packed or not, and Parquet. Memory does not grow with the file.

A chunk knows where its rows stand in the file, for messages, and where the next one begins, for `--resume`.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ..errors import FormatError, JtgpuError, ParseError
from ..model.network import DiscreteModel
from .arrow import arrow, arrow_parquet
from .chunk import Chunk, Place, Source
from .csvfile import CsvFile

__all__ = ["Chunk", "Source", "open_cases"]

BUFFER = 1 << 20  # bytes of a column read at a time; a file that is mapped would count as memory, page by page


class _OSProblem(JtgpuError, OSError):
    """A file that cannot be opened: our error, and one that programs which catch `OSError` catch."""

    def __str__(self) -> str:
        return str(self.args[0])


def open_cases(
    path: Path, model: DiscreteModel, *, delimiter: str | None = None, quote: str = '"', encoding: str = "utf-8",
    threads: bool = True,
) -> Source:  # fmt: skip
    """Open a file of cases: Parquet by what is in it, else CSV.

    Parameters
    ----------
    path : Path
    model : DiscreteModel
        Its variables' names tell what separates the columns of a CSV.
    delimiter : str, optional
        One character; default: the comma, semicolon, tab or bar that gives most columns a known name.
    quote : str
        One character, or empty: quotes are part of what they stand in.
    encoding : str
        Any in which line ends are the bytes of ASCII.
    threads : bool
        May several cores parse?

    Raises
    ------
    JtgpuError, OSError
        One error that is both, for a file that cannot be opened.
    ParseError
        For a file without a header, or one that is no text.
    """
    try:
        if stat.S_ISFIFO(path.stat().st_mode) or path.is_char_device():
            raise _OSProblem(f"{path}: cases are read from a file, to which a run that was stopped can go back")
        with path.open("rb") as file:
            head = file.read(8)
    except _OSProblem:
        raise
    except OSError as error:
        raise _OSProblem(f"{path}: {error.strerror or error}") from None
    if head[:4] == b"PAR1":
        return _Parquet(path, threads)
    if head[:6] == b"ARROW1":
        raise FormatError(f"{path}: an Arrow file; cases are read from CSV and Parquet")
    return CsvFile(path, model, delimiter, quote, encoding, threads)


class _Parquet:
    """A Parquet file, a part of a row group at a time."""

    def __init__(self, path: Path, threads: bool):
        self.name, self._threads = str(path), threads
        try:
            with arrow_parquet().ParquetFile(self.name) as file:
                self._schema = file.schema_arrow
                self._groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        except (arrow().ArrowInvalid, OSError) as error:
            raise ParseError(f"this Parquet file cannot be read: {error}", self.name) from None
        self.columns: list[str] = list(self._schema.names)
        self.rows: int | None = sum(self._groups)
        self.size = self.rows

    def types(self, names: Sequence[str]) -> list[Any]:
        """See `Source.types`."""
        return [self._schema.field(n).type for n in names]

    def chunks(
        self, evidence: Sequence[str], kept: Sequence[str], rows: int, position: dict[str, int] | None = None
    ) -> Iterator[Chunk]:
        """See `Source.chunks`."""
        pa = arrow()
        first = row = position["row"] if position else 0
        group = 0
        while group < len(self._groups) and first >= self._groups[group]:
            first -= self._groups[group]
            group += 1
        names = list(dict.fromkeys((*evidence, *kept)))
        text = [n for n in evidence if n not in kept and self._is_text(n)]
        held: list[Any] = []
        with arrow_parquet().ParquetFile(self.name, read_dictionary=text, buffer_size=BUFFER) as file:
            # a group at a time: asked for all of them, the reader fails at once where a later one is broken
            groups = range(group, len(self._groups))
            each = (file.iter_batches(rows, row_groups=[g], columns=names, use_threads=self._threads) for g in groups)
            batches = chain.from_iterable(each)
            broken: ParseError | None = None
            while True:
                batch = None
                try:
                    batch = next(batches, None)
                except (OSError, pa.ArrowInvalid) as error:  # rows before it are answered all the same
                    behind = row + sum(b.num_rows for b in held)
                    why = str(error).splitlines()[0]
                    broken = ParseError(f"cannot be read behind row {behind}: {why}", self.name)
                if batch is not None:
                    skipped = min(first, batch.num_rows)
                    first -= skipped
                    held.append(batch.slice(skipped))
                ready = sum(b.num_rows for b in held)
                while held and ready and (batch is None or ready >= rows):
                    table = pa.Table.from_batches(held)
                    part, rest = table.slice(0, rows), table.slice(rows)
                    held, ready = rest.to_batches() if rest.num_rows else [], rest.num_rows
                    yield self._chunk(part, [*evidence, *kept], row)
                    row += part.num_rows
                if broken is not None:
                    raise broken
                if batch is None:
                    return

    def _is_text(self, name: str) -> bool:
        t = arrow().types
        kind = self._schema.field(name).type
        return bool(t.is_string(kind) or t.is_large_string(kind))

    def _chunk(self, part: Any, names: Sequence[str], row: int) -> Chunk:
        def place(i: int) -> Place:
            return f"{self.name}: row {row + i + 1}", None

        done = row + part.num_rows
        return Chunk(part.num_rows, [part.column(n) for n in names], {"row": done}, done, place)
