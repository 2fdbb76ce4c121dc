"""Parts of a table, each of which a worker answers as a whole.

Parts are determined before the work begins and do not depend on the workers: the same files and options give the same
parts, so that a part that is answered twice, or by a later run, is the same part. Parquet files are divided by rows and
large CSV files by bytes. Dividing a CSV takes one pass over the file, because only a count of all earlier quotes shows
whether a line end is the end of a row. A compressed CSV is a single part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from ..cases.query import TableOptions, TableQuery
from ..cases.solver import Solver
from ..errors import JtgpuError
from ..inference.network_plan import NetworkPlan
from ..inference.tree import JunctionTree
from ..util.version import __version__
from .connect import Share
from .storage import StoragePath
from .tables import Table

if TYPE_CHECKING:
    from ..util.options import BackendName

# The data that a worker needs to answer cases, pickled and sent once: a plan, a backend's options and a query.

@dataclass(frozen=True)
class WorkerSpec:
    """How a worker answers cases."""

    plan: NetworkPlan
    share: Share  # resources and backend of each worker
    options: dict[str, Any]  # options of the backend
    query: TableQuery
    table: TableOptions
    version: str = __version__  # version of jtgpu in the process that leads the run

    def compile(self) -> JunctionTree:
        """A tree, on the worker; raises `JtgpuError` if the worker has another version of jtgpu."""
        if self.version != __version__:
            raise JtgpuError(f"this worker has jtgpu {__version__}, but the run was started by jtgpu {self.version}")
        tree: JunctionTree = self.plan.compile(cast("BackendName", self.share.backend), **self.options)
        return tree

    def solver(self, tree: JunctionTree | None = None) -> Solver:
        """A solver, on the worker."""
        return Solver(tree or self.compile(), self.query, self.table)


def plan_of(plan: NetworkPlan | JunctionTree, backend: str) -> tuple[NetworkPlan, str, dict[str, Any]]:
    """Plan, backend and options; a tree provides its own."""
    if isinstance(plan, JunctionTree):
        return plan.plan, plan.backend, plan.options
    return plan, backend, {}


MIN_ROWS, MAX_ROWS = 1 << 16, 1 << 20  # of a part, approximately
CSV_BYTES = 1 << 26  # of a part of a CSV, approximately
READ_SIZE = 1 << 24  # bytes
PARTS_PER_WORKER = 4  # so that workers finish at about the same time
PARTS_PER_GROUP = 4  # at most: every part reads its row group from the beginning


@dataclass(frozen=True)
class Part:
    """Some rows of a file: everything that a worker needs to know about its input."""

    number: int  # from 0, in the order of the rows
    file: str  # path or URI
    # first, rows: First row of the part, from 0, and number of rows. For a CSV: the byte at which the part begins (0:
    #     all of the file), and -1.
    first: int
    rows: int
    weight: int  # approximate bytes of the file; exact for a part of a CSV
    # head, lines: For a CSV that is divided: bytes of the header; lines between the header and the part
    head: int = 0
    lines: int = 0


@dataclass(frozen=True)
class Division:
    """How a table is divided into parts."""

    # Cases per chunk. The number of rows of a part is a multiple of it, so that chunks are the same as without parts.
    step: int
    workers: int  # number of workers that the parts are for
    rows: int | None = None  # approximate number of rows of a part. Default: from the number of workers.
    max_rows: int = MAX_ROWS  # upper bound of the default


def divide(tables: Sequence[Table], quote: str, division: Division) -> tuple[list[Part], int]:
    """The parts of all files, in order, and the number of rows of a part that was chosen."""
    # quote: Quote character of CSV files
    rows = division.rows
    if rows is None:
        total = sum(t.rows for t in tables)
        rows = min(max(total // (PARTS_PER_WORKER * division.workers), MIN_ROWS), MAX_ROWS, division.max_rows)
        largest = max((g for t in tables for g in t.groups or ()), default=0)
        rows = max(rows, largest // PARTS_PER_GROUP)
    rows = max(1, round(rows / division.step)) * division.step
    parts: list[Part] = []
    for table in tables:
        if table.groups is None:
            parts += _csv_parts(table, quote, len(parts))
        else:
            parts += _parquet_parts(table, rows, len(parts))
    if not parts:  # the answer of files without rows has its columns nevertheless
        parts.append(Part(0, tables[0].file.place.uri, 0, 0, 0))
    return parts, rows


def _parquet_parts(table: Table, rows: int, number: int) -> list[Part]:
    uri, size = table.file.place.uri, table.file.size
    parts = []
    for i, first in enumerate(range(0, table.rows, rows)):
        last = min(first + rows, table.rows)
        weight = size * last // table.rows - size * first // table.rows
        parts.append(Part(number + i, uri, first, last - first, weight))
    return parts


def _csv_parts(table: Table, quote: str, number: int) -> list[Part]:
    place, size = table.file.place, table.file.size
    bounds = [] if table.compressed or size <= CSV_BYTES else _row_bounds(place, quote.encode())
    if len(bounds) < 2:
        return [Part(number, place.uri, 0, -1, size)]
    head, header_lines = bounds[0]
    return [
        Part(number + i, place.uri, begin, -1, end - begin, head, lines - header_lines)
        for i, ((begin, lines), (end, _)) in enumerate(pairwise([*bounds, (size, 0)]))
    ]


def _row_bounds(place: StoragePath, quote: bytes) -> list[tuple[int, int]]:
    """Where parts of a CSV begin: bytes, and lines before them. The first one is the end of the header.

    A line end is the end of a row if the number of quotes before it is even (RFC 4180). After an unmatched quote within
    a cell no number is even, and the rest of the file is one part.
    """
    bounds: list[tuple[int, int]] = []
    byte = lines = quotes = 0  # before the block
    wanted = 0  # a part begins at the first row that ends after this byte
    with place.fs.open_input_stream(place.path) as file:
        while block := bytes(file.read(READ_SIZE)):
            at = max(wanted - byte, 0)
            while at < len(block) and (end := block.find(b"\n", at) + 1):
                blank = not bounds and not block[:end].strip(b"\r\n\xef\xbb\xbf")  # empty lines before the header
                if blank or (quote and (quotes + block.count(quote, 0, end)) % 2):
                    at = end
                    continue
                bounds.append((byte + end, lines + block.count(b"\n", 0, end)))
                wanted = byte + end + CSV_BYTES
                at = wanted - byte
            byte += len(block)
            lines += block.count(b"\n")
            quotes += block.count(quote) if quote else 0
    return bounds if bounds[-1:] != [(byte, lines)] else bounds[:-1]
