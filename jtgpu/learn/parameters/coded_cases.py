"""`CodedCases`: the rows that are fitted, as state numbers, in memory or in a temporary file."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...columns.names import evidence_columns
from ...errors import DataError, closest
from ...inference.evidence_table import weight_rows
from ...model.directed import DirectedModel
from ...util.arrays import Bools, Floats, Ints
from ...util.cells import MissingReport
from ...util.rows import find_equal_rows
from ...util.system import free_memory
from ...util.text_table import counted
from .sources import CaseSource, CodedChunk

MIN_EQUAL = 0.02  # share of rows that must equal earlier ones for merging them to pay
BLOCK_CELLS = 1 << 22  # cells that one step of a pass takes, and one part on a cluster
COUNT_CELLS = 1 << 18  # cells that are counted at a time: they stay in the CPU's cache
MEMORY_SHARE = 0.25  # of the free memory that coded rows may take; more go to a temporary file


class RowBlock(NamedTuple):
    """Rows of a table."""

    # (n, V) integers: State of every variable, -1 if missing, -2 and below for a likelihood; see `LikelihoodCells`
    states: NDArray[np.integer]
    weights: Floats  # (n,) float64
    rows: Ints  # (n,) int64: Number of each row in the table; of equal rows that were merged, the first

    def parts(self, cells: int = 0) -> Iterator[RowBlock]:
        """The block in pieces of at most so many cells; default: `BLOCK_CELLS`."""
        step = max((cells or BLOCK_CELLS) // max(self.states.shape[1], 1), 1024)
        for at in range(0, len(self.states), step):
            some = slice(at, at + step)
            yield RowBlock(self.states[some], self.weights[some], self.rows[some])


class CodedCases:
    """Rows of one model, coded."""

    # model: Variables, states and parents
    # n_rows: Rows that were read, without those that were dropped
    # n_missing: (V,) int64: Missing cells of each variable, likelihoods included
    # n_dropped: Rows that were dropped because they have missing cells
    # n_weightless: Rows of weight 0, which are left out before anything else
    # n_absent: (V,) int64: Missing cells of each variable, without likelihoods, with those in rows that were dropped
    # seen: list of (card,) bool: States that occur, of each variable
    # source: Where the rows come from
    # was_set: (V, N) rows of the table in which each variable was set, which are no cases of its family

    def __init__(self, model: DirectedModel, source: CaseSource, was_set: Bools | None = None):
        self.model, self.source, self.was_set = model, source, was_set
        self.blocks: list[RowBlock] = []
        self.n_rows, self.n_dropped, self.n_weightless, self.total_weight = 0, 0, 0, 0.0
        self.n_missing, self.n_absent = np.zeros((2, len(model)), np.int64)
        self.seen = [np.zeros(int(c), np.bool_) for c in model.cardinality]
        self._file: IO[bytes] | None = None
        self._bytes, self._limit = 0, int(MEMORY_SHARE * free_memory())

    def missing(self, columns: Sequence[str]) -> MissingReport:
        """The missing cells of some columns."""
        n = {v: int(self.n_absent[self.model.index(v)]) for v in columns}
        words = {v: tuple(sorted(self.source.na_found[v])) for v in columns if v in self.source.na_found}
        return MissingReport({v: k for v, k in n.items() if k}, words)

    @property
    def is_complete(self) -> bool:
        """Whether no cell of any variable is missing."""
        return not self.n_missing.any()

    def note(self, block: RowBlock) -> None:
        """Count rows and missing cells of a block that is not stored."""
        self.n_rows += len(block.states)
        self.total_weight += float(block.weights.sum())
        cards = self.model.cardinality
        first = np.cumsum(cards + 1) - cards  # place of each variable's first state; a missing cell is before it
        counts = np.zeros(int((cards + 1).sum()), np.int64)
        for part in block.parts(COUNT_CELLS):
            states = np.maximum(part.states, -1) if self.source.cells else part.states
            counts += np.bincount((states + first).ravel(), minlength=len(counts))
        self.n_absent += (block.states == -1).sum(axis=0) if self.source.cells else counts[first - 1]
        for v, at in enumerate(first.tolist()):
            self.n_missing[v] += counts[at - 1]
            self.seen[v] |= counts[at : at + int(cards[v])] > 0

    def without_weightless(self, block: RowBlock) -> RowBlock:
        """The rows whose weight is above 0: the others say nothing, and must not make a model fail."""
        used = block.weights > 0
        if used.all():
            return block
        self.n_weightless += int((~used).sum())
        return RowBlock(*(np.ascontiguousarray(part[used]) for part in block))

    def add(self, block: RowBlock) -> None:
        """Add rows."""
        self.note(block)
        self._bytes += block.states.nbytes
        self.blocks.append(block if self._bytes <= self._limit else self._on_disk(block))

    def _on_disk(self, block: RowBlock) -> RowBlock:
        """The block with its states in a temporary file."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="jtgpu-cases-")  # noqa: SIM115
        offset = self._file.seek(0, 2)
        block.states.tofile(self._file)
        self._file.flush()
        states = np.memmap(self._file, block.states.dtype, "r", offset, block.states.shape)
        return block._replace(states=states)

    def merge_equal_rows(self) -> None:
        """Replace equal rows by one with the sum of their weights, where they are in memory and that pays."""
        if self._file is None and len(self.blocks) > 1:
            joined = RowBlock(*(np.concatenate(parts) for parts in zip(*self.blocks, strict=True)))
            self.blocks = [joined]
        self.blocks = [_merged(b) for b in self.blocks]

    def drop_rows(self, impossible: Sequence[Bools]) -> int:
        """Leave out rows, marked block by block; how many different ones were left out."""
        n = 0
        for i, (block, out) in enumerate(zip(self.blocks, impossible, strict=True)):
            if out.any():
                n += int(out.sum())
                self.blocks[i] = RowBlock(np.asarray(block.states)[~out], block.weights[~out], block.rows[~out])
        self.total_weight = float(sum(b.weights.sum() for b in self.blocks))
        return n

    def digest(self) -> str:
        """A hash of all rows."""
        data = hashlib.sha256()
        if self.source.cells:
            data.update(self.source.cells.digest().encode())
        for block in self.blocks:
            data.update(np.ascontiguousarray(block.states).tobytes())
            data.update(block.weights.tobytes())
        return data.hexdigest()

    def close(self) -> None:
        """Free the memory and the temporary file."""
        self.blocks = []
        if self._file is not None:
            self._file.close()


def _merged(block: RowBlock) -> RowBlock:
    if isinstance(block.states, np.memmap) or len(block.states) < 2:
        return block
    equal = find_equal_rows(np.ascontiguousarray(block.states), min_saving=MIN_EQUAL)
    if equal is None:
        return block
    weights = np.asarray(np.bincount(equal.kind, block.weights, len(equal.first)), np.float64)
    return RowBlock(np.ascontiguousarray(block.states[equal.first]), weights, block.rows[equal.first])


def table_columns(model: DirectedModel, source: CaseSource, hidden: Sequence[str], weights: str | None) -> list[str]:
    """Columns of the variables, in the order of the table."""
    # raises DataError: If a variable that is not hidden has no column, or a hidden one has.
    # raises UnknownVariable: If the name of a column is almost that of a variable.
    names = [n for n in source.names if n != weights]
    columns = evidence_columns(model, names, source=source.title)
    for v in hidden:
        if v in columns:
            raise DataError(f"{v!r} is declared hidden, but the table has a column {v!r}")
    for v in source.likelihood:
        if v not in model:
            raise DataError(f"likelihood: there is no variable {v!r}{closest(str(v), model.variables)}")
        if v in hidden:
            raise DataError(f"{v!r} is declared hidden, but has likelihoods; it is observed by these")
    for v in model.variables:
        if v not in columns and v not in hidden and v not in source.likelihood:
            raise DataError(
                f"the table has no column {v!r}; if the variable is never observed, declare it: hidden={{{v!r}: "
                f"{len(model.states(v)) if len(model.states(v)) > 1 else 2}}}"
            )
    return columns


def weighted_chunks(
    model: DirectedModel, source: CaseSource, columns: Sequence[str], weights: ArrayLike | str | None
) -> Iterator[tuple[RowBlock, CodedChunk]]:
    """The rows with their weights, chunk by chunk."""
    # raises DataError: If a weight is negative or not finite, or their number differs from that of the rows.
    name = weights if isinstance(weights, str) else None
    if name is not None and name not in source.names:
        raise DataError(f"there is no column {name!r} of weights{closest(name, source.names)}")
    given = None if name is not None or weights is None else _as_weights(weights)
    at = [model.index(c) for c in columns]
    first = 0
    for chunk in source.chunks(model, columns, name):
        n = chunk.codes.shape[1]
        if at == [*range(len(model))] and chunk.codes.T.flags.c_contiguous:
            states = chunk.codes.T
        else:
            states = np.full((n, len(model)), -1, chunk.codes.dtype)
            states[:, at] = chunk.codes.T
        if given is not None and len(given) < first + n:
            raise DataError(f"weights has {counted(len(given), 'number')}, but the table has more rows")
        for v, value in source.likelihood.items():
            assert source.cells is not None
            weights = weight_rows(model, model.index(v), value, n)
            states = source.cells.enter(states, model.index(v), weights)
        own = chunk.weights if given is None else given[first : first + n]
        own = np.ones(n) if own is None else own
        if (own < 0).any():
            row = int(np.argmax(own < 0))
            raise DataError(f"{source.row_name(first + row)}: the weight {own[row]:g} is negative")
        yield RowBlock(states, np.ascontiguousarray(own), np.arange(first, first + n)), chunk
        first += n
    if given is not None and len(given) != first:
        raise DataError(f"weights has {counted(len(given), 'number')}, but the table has {counted(first, 'row')}")


def _as_weights(weights: ArrayLike) -> Floats:
    try:
        vector = np.asarray(weights, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DataError("weights must be numbers, one for each row, or the name of a column") from None
    if vector.ndim != 1:
        raise DataError(f"weights has shape {vector.shape}, expected one number for each row")
    bad = np.flatnonzero(~np.isfinite(vector))
    if len(bad):
        raise DataError(f"row {int(bad[0])}: the weight {vector[bad[0]]} is not a finite number")
    return vector


def read_cases(
    model: DirectedModel, source: CaseSource, columns: Sequence[str], weights: ArrayLike | str | None, missing: str,
    was_set: Bools | None = None,
) -> CodedCases:  # fmt: skip
    """Read all rows."""
    # columns: sequence of str: See `table_columns`
    # missing: {"em", "available", "error", "drop"}: Whether rows with a missing cell of an observed variable are
    #     accepted, raise an error, or are dropped
    # raises DataError: If there are no rows, no weight is above 0, a cell is missing under ``"error"``, or no row is
    #     left under ``"drop"``.
    cases = CodedCases(model, source, was_set)
    observed = [model.index(c) for c in columns]
    for read, _ in weighted_chunks(model, source, columns, weights):
        block = cases.without_weightless(read)
        if missing in ("error", "drop"):
            holes = (block.states[:, observed] == -1).any(axis=1)
            if holes.any() and missing == "error":
                row = int(np.argmax(holes))
                v = next(v for v in observed if block.states[row, v] == -1)
                raise DataError(
                    f"{source.row_name(int(block.rows[row]))}: the cell of {model.variables[v]!r} is missing "
                    '(missing="em" fits with missing cells)'
                )
            cases.n_dropped += int(holes.sum())
            cases.n_absent += (block.states[holes] == -1).sum(axis=0)
            block = RowBlock(*(np.ascontiguousarray(part[~holes]) for part in block)) if holes.any() else block
        cases.add(block)
    if not cases.n_rows and cases.n_weightless and not cases.n_dropped:
        raise DataError("all weights are zero")
    if was_set is not None and missing == "em" and not cases.is_complete:
        raise DataError("interventions= takes complete rows; use missing='drop' or missing='available'")
    if not cases.n_rows:
        dropped = f": all {cases.n_dropped:,} rows have missing cells" if cases.n_dropped else ""
        raise DataError(f"there are no rows to fit{dropped}")
    return cases
