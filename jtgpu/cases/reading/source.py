"""The interface of a file of cases: chunks of rows, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

RowLocation = tuple[str, int | None]  # file and line number, or file with the row's number as text and None


@dataclass
class CaseChunk:
    """Some rows of a file."""

    n: int  # number of rows
    # Columns of n cells: first the columns of evidence in the form of `jtgpu.inference.tables.encoder.Encoder.encode`,
    #     then the columns to copy as Arrow arrays
    columns: list[Any]
    position: dict[str, int]  # position at which the next chunk begins; `Source.chunks` accepts it to continue there
    done: int  # amount of `Source.size` that has been read
    locate: Callable[[int], RowLocation]  # location of a row of this chunk, for messages
    broken: dict[int, str] = field(default_factory=dict)  # rows that cannot be split into cells, and why
    is_text: bool = False  # whether the file is text, in which words may mean missing cells

    def load(self) -> None:
        """Parse the rows, if that has not been done, and set `n`, `columns` and `broken`; from any thread."""

    def drop(self) -> None:
        """Release the rows."""
        self.columns = []


class Source(Protocol):
    """A file of cases."""

    columns: list[str]
    size: int  # the final value of `CaseChunk.done`: bytes or rows
    rows: int | None  # number of rows, if the file records it

    def types(self, names: Sequence[str]) -> list[Any]:
        """Arrow types of columns to copy."""

    def chunks(
        self, evidence: Sequence[str], kept: Sequence[str], rows: int, position: dict[str, int] | None = None
    ) -> Iterator[CaseChunk]:
        """Read the file from a position on, about `rows` rows at a time: columns of evidence, then of `kept`."""
