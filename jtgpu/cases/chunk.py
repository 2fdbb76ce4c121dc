"""What a file of cases is to those who answer it: chunks of rows, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Chunk", "Place", "Source"]

Place = tuple[str, int | None]  # how a row is called: file and line, or file with the row's number in words


@dataclass
class Chunk:
    """Some rows of a file."""

    n: int
    columns: list[Any]  # of n cells, as `Encoder.encode` takes them, and Arrow arrays: as many as were asked for
    position: dict[str, int]  # where the next chunk begins; what `Source.chunks` takes to go on there
    done: int  # of `Source.size`
    place: Callable[[int], Place]  # of a row of this chunk
    broken: dict[int, str] = field(default_factory=dict)  # rows that have no cells: why

    def load(self) -> None:
        """Make `n`, `columns` and `broken` of what was read, where that is not done yet: by any thread."""

    def drop(self) -> None:
        """Forget the rows."""
        self.columns = []


class Source(Protocol):
    """A file of cases."""

    columns: list[str]
    size: int  # what `Chunk.done` counts to: bytes or rows
    rows: int | None  # how many there are, where the file says so

    def types(self, names: Sequence[str]) -> list[Any]:
        """Arrow types of columns that are kept."""

    def chunks(
        self, evidence: Sequence[str], kept: Sequence[str], rows: int, position: dict[str, int] | None = None
    ) -> Iterator[Chunk]:
        """The file's rows from a position on, about so many at a time: columns of evidence, then those kept."""
