"""Answer questions about the sequences of a file, in memory that grows with the longest sequence only."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cases.files import saved
from ..cases.query import file_fingerprint
from ..cases.writing import ResumableFile, writer_for
from ..columns import known_cells
from ..columns.arrow import arrow, as_floats, compute
from ..columns.coded import Encoder
from ..columns.files import open_cases
from ..columns.likelihoods import LikelihoodCells
from ..columns.names import evidence_columns, reject_repeated
from ..errors import DataError, EvidenceError, JtgpuError, ParseError, UnknownState
from ..options.tables import FileOptions
from ..util.atomic_file import write_bytes
from ..util.cells import na_words
from .number_rows import NumberRows, finite
from .sequences import Sequences, in_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ..cases.solver import Progress
    from ..columns.source import CaseChunk, Source
    from ..model.dynamic import DynamicNetwork
    from ..model.mixed_dynamic import MixedDynamicNetwork
    from ..util.arrays import Floats
    from .numbers import MixedDynamicTree
    from .tree import DynamicTree


@dataclass(frozen=True)
class SequenceReport:
    """Summary of a run."""

    output: str
    sequences: int
    rows: int  # of the output
    resumed: int  # rows that an earlier run had written
    flagged: int  # impossible sequences
    seconds: float
    targets: tuple[str, ...]
    evidence: tuple[str, ...]
    ignored: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


def answer_block(
    tree: DynamicTree | MixedDynamicTree, file: SequenceFile, block: Sequences | NumberRows
) -> tuple[Any, int]:
    """The answers about some sequences as an Arrow table, and how many of them are impossible."""
    pa, q, net = arrow(), file.question, file.discrete
    names = file.targets()
    more: dict[str, Any] = {"on_error": q.on_error}
    if q.kind == "predict":
        result: Any = tree.predict(block, ahead=q.steps, targets=names, **more)
    elif q.kind == "mpe":
        result = tree.mpe(block, **more)
    else:
        result = getattr(tree, q.kind)(block, targets=names, at="last" if q.last else None, **more)
    sequence, place, t = result._places()
    columns: dict[str, Any] = {}
    for key, cells in result._keys().items() if file.keys else ():
        if key in file.keys:
            columns[key] = pa.array(cells, file.kinds.get(key))
    if q.kind == "predict":
        _add(columns, "step", pa.array(place + 1))
    elif not file.keys:
        columns["slice"] = pa.array(t)
    lost = result.impossible[sequence] if result.impossible.any() else None
    for v in names if q.kind == "mpe" or q.labels else ():
        if q.kind == "mpe":
            _add(columns, v, pa.array(result[v][sequence, place], pa.string()))
        elif v in net:
            best = np.array(net.states(v), object)[result._picked(result[v]).argmax(axis=-1)]
            _add(columns, v, pa.array(best, pa.string(), mask=lost))
        else:
            _add(columns, v, pa.array(result._picked(result.mean[v]), pa.float64(), mask=lost))
    for name, cells in ({} if q.kind == "mpe" or q.labels else result._values()).items():
        _add(columns, name, pa.array(cells, pa.float64(), mask=lost))
    if q.log_evidence:
        known = "log_mpe" if q.kind == "mpe" else "log_evidence"
        numbers = result.log_joint if q.kind == "mpe" else result.log_evidence
        _add(columns, known, pa.array(numbers[sequence], pa.float64()))
    if q.on_error == "flag":
        texts = ["impossible evidence" if result.impossible[i] else None for i in sequence.tolist()]
        _add(columns, "error", pa.array(texts, pa.string()))
    return pa.table(columns), int(result.impossible.sum())


def _add(columns: dict[str, Any], name: str, column: object) -> None:
    if name in columns:
        raise EvidenceError(f"the answer would have two columns named {name!r}; rename it in the file")
    columns[name] = column


def answer_tables(
    tree: DynamicTree | MixedDynamicTree, file: SequenceFile, skip: int = 0
) -> Iterator[tuple[Any, int, int, int]]:
    """Tables of answers, impossible sequences in each, rows of the file up to its end, and how much has been read."""
    width = sum(len(file.discrete.states(v)) if v in file.discrete else 2 for v in file.targets())
    for block, rows, done in file.blocks(width, skip):
        yield *answer_block(tree, file, block), rows, done


def answer_file(
    tree: DynamicTree | MixedDynamicTree, path: Path, output: Path, question: SequenceQuestion, options: FileOptions,
    progress: Progress | None = None,
) -> SequenceReport:  # fmt: skip
    """Write the answers about the sequences of a file to another; a run that was interrupted can be continued."""
    from ..formats.dynamic_json import dumps_dynamic  # only here: the identity of the network

    begun = clock.perf_counter()
    file = SequenceFile(tree.network, path, question, options)
    if output.exists() and output.samefile(path):
        raise JtgpuError(f"{output} contains the sequences: choose another output")
    identity: dict[str, Any] = {
        "cases": file_fingerprint(path), "network": dumps_dynamic(tree.network), "question": asdict(question),
        "codes": str(file.discrete.state_codes), "dialect": options.dialect.identity,
        "output": [output.name, options.compression], "escape_formulas": options.escape_formulas,
    }  # fmt: skip
    writer = writer_for(output, options.compression, options.escape_formulas)
    schema = None
    unfinished = ResumableFile(output, writer, identity, resume=options.resume, force=options.force)
    before = unfinished.done
    with saved(unfinished):
        for table, impossible, rows, done in answer_tables(tree, file, (before.position or {}).get("row", 0)):
            unfinished.append(table, {"row": rows}, impossible)
            schema = table.schema
            if progress is not None:
                progress(unfinished.done.rows, done, file.source.size)
        unfinished.finish(schema)
    after = unfinished.done
    return SequenceReport(
        str(output), len(file.seen) or 1, after.rows, before.rows, after.flagged, clock.perf_counter() - begun,
        file.targets(), tuple(file.evidence), file.ignored,
    )  # fmt: skip


def draw_table(net: DynamicNetwork | MixedDynamicNetwork, n: int, length: int, seed: int | None) -> Any:
    """Samples of the network as an Arrow table with the columns ``sequence`` and ``slice``."""
    return net.compile("reference").sample(n, length=length, seed=seed).to_frame("pyarrow")


def write_table(table: Any, output: Path, options: FileOptions) -> int:
    """Write a table of rows, complete or not at all; its size in bytes."""
    writer = writer_for(output, options.compression, options.escape_formulas)
    parts = [writer.start()]
    parts += writer.place(writer.encode(table), len(parts[0]))[0]
    data = b"".join([*map(bytes, parts), writer.end(table.schema)])
    write_bytes(str(output), data)
    return len(data)


# Files of sequences, CSV or Parquet, read sequence by sequence.

CHUNK_ROWS = 1 << 17  # read at a time
BLOCK_CELLS = 1 << 23  # of the posteriors of the sequences that are answered together, with the ends of shorter ones


@dataclass(frozen=True)
class SequenceQuestion:
    """A question about every sequence of a file."""

    kind: str  # filter, smooth, predict or mpe
    id: str | None = None
    time: str | None = None
    targets: tuple[str, ...] | None = None  # None: what is not observed
    evidence: tuple[str, ...] | None = None  # columns; None: all variables except the targets
    last: bool = False  # only the last slice
    steps: int = 1  # of a prediction
    labels: bool = False  # the most probable states in place of probabilities
    log_evidence: bool = False
    on_gap: str = "error"
    on_error: str = "error"
    na_values: tuple[str, ...] | None = None


Place = tuple[int, int, "Callable[[int], str]"]  # rows, the first one's number in its chunk, names of the chunk's rows


@dataclass
class _FileRows:
    """Consecutive rows of a file, in the form of a table of ids and times."""

    codes: NDArray[np.int32]  # (n, V)
    values: dict[str, Floats]  # (n,) of each number, NaN where it was not observed
    columns: dict[str, Any]  # id and time, Arrow arrays of n cells
    places: list[Place]  # of the chunks that the rows are from, and of no others: these keep their texts

    @property
    def n(self) -> int:
        return len(self.codes)

    def column(self, name: str) -> Any:
        return self.columns[name]

    def row_name(self, row: int) -> str:
        """Where a row is, for messages."""
        for n, first, name in self.places:
            if row < n:
                return name(first + row)
            row -= n
        return f"row {row}"

    def slice(self, begin: int, end: int) -> _FileRows:
        columns = {name: c.slice(begin, end - begin) for name, c in self.columns.items()}
        places, at = list[Place](), 0
        for n, first, name in self.places:
            low, high = max(begin - at, 0), min(end - at, n)
            if low < high:
                places.append((high - low, first + low, name))
            at += n
        values = {y: x[begin:end] for y, x in self.values.items()}
        return _FileRows(self.codes[begin:end], values, columns, places)

    def joined(self, other: _FileRows) -> _FileRows:
        pa = arrow()
        columns = {c: pa.concat_arrays([x, other.columns[c]]) for c, x in self.columns.items()}
        values = {y: np.concatenate([x, other.values[y]]) for y, x in self.values.items()}
        return _FileRows(np.concatenate([self.codes, other.codes]), values, columns, [*self.places, *other.places])


class SequenceFile:
    """A CSV or Parquet file whose rows are slices; the rows of a sequence follow each other."""

    def __init__(
        self, net: DynamicNetwork | MixedDynamicNetwork, path: Path, question: SequenceQuestion, options: FileOptions
    ):
        own: Any = net  # its names are all that opening a file needs
        self.net, self.question, self.name = net, question, str(path)
        self.discrete: DynamicNetwork = getattr(own, "discrete", own)
        self.source: Source = open_cases(path, own, options.dialect, threads=options.threads != 1)
        self.rows = options.chunk or CHUNK_ROWS
        self.keys = [k for k in (question.id, question.time) if k is not None]
        for what, key in (("--id", question.id), ("--time", question.time)):
            if key is not None and key not in self.source.columns:
                listed = ", ".join(map(repr, self.source.columns[:20]))
                raise DataError(f"{path}: {what} {key!r} is no column; the file has {listed}")
        reject_repeated(self.keys, self.source.columns, self.name)
        named = [c for c in self.source.columns if c not in self.keys]
        asked = [net.variables.index(v) for v in question.targets or () if question.kind != "predict"]
        known = {*named}.intersection(net.variables)
        if question.evidence is not None:
            named, asked = [c for c in named if c in question.evidence], []
        elif known and asked and known <= {*(question.targets or ())}:
            raise EvidenceError(
                f"{path}: the targets are the only columns that are variables, and columns of targets are no evidence; "
                "--evidence-columns names those that are"
            )
        self.evidence = evidence_columns(own, named, asked, source=self.name)
        self.ignored = tuple(c for c in named if c not in self.evidence and c not in net.variables)
        self.numbers = [v for v in self.evidence if v not in self.discrete]
        self.states = [v for v in self.evidence if v in self.discrete]
        seen = [self.discrete.index(v) for v in self.states]
        self.words = [na_words(question.na_values, is_text=is_text) for is_text in (False, True)]
        self.encoders = [Encoder(self.discrete, seen, words) for words in self.words]
        self.cells = LikelihoodCells(self.discrete)
        self.kinds: dict[str, Any] = {}  # Arrow type of each key in the output
        self.seen: set[Any] = set()

    def targets(self) -> tuple[str, ...]:
        """The variables that are computed; numbers with numeric parents only if they are named."""
        if self.question.targets is not None:
            return self.question.targets
        net: Any = self.net
        known = tuple(v for v in net if v in self.discrete or not net.numeric_parents(v))
        if self.question.kind == "mpe":
            return tuple(v for v in known if v in self.discrete)
        return known if self.question.kind == "predict" else tuple(v for v in known if v not in self.evidence) or known

    def blocks(self, width: int, skip: int = 0) -> Iterator[tuple[Sequences | NumberRows, int, int]]:
        """Sequences, how many rows of the file end with them, and the amount of the file that has been read."""
        # width: cells of the answer in a slice
        # skip: rows that an earlier run has answered
        held: _FileRows | None = None
        row = n_sequences = 0
        kept = [*self.keys, *self.numbers]
        for chunk, last in _with_last(self.source.chunks(self.states, kept, self.rows)):
            rows = self._read(chunk)
            done = chunk.done
            starts = self._starts(rows, held)
            if held is not None:
                starts += held.n
                rows = held.joined(rows)
                starts = np.concatenate([[0], starts])
            ends = np.append(starts, rows.n) if last else starts
            end = int(ends[-1]) if len(ends) else 0
            again = ends[ends + row >= skip]
            n_sequences += len(ends) - max(len(again), 1) if len(ends) else 0
            for begin, stop, n in _groups(again, width):
                part = rows.slice(begin, stop)
                ask = self.question
                made, weights = in_order(part.codes, part, ask.id, ask.time, ask.on_gap, n_sequences), dict[int, Any]()
                made = replace(made, codes=self.cells.taken(made.codes, weights), likelihood=weights)
                yield made if self.discrete is self.net else NumberRows.of(made, part.values), row + stop, done
                n_sequences += n
            row += end
            held = rows.slice(end, rows.n) if end < rows.n else None
        if not row:
            raise DataError(f"{self.name}: the file has no rows, and no sequences")

    def _read(self, chunk: CaseChunk) -> _FileRows:
        """The states, ids and times of a chunk."""
        chunk.load()

        def place(row: int) -> str:
            file, line = chunk.locate(row)
            return file if line is None else f"{file}:{line}"

        for row, reason in chunk.broken.items():
            raise ParseError(reason, *chunk.locate(row))
        n = len(self.states)
        self.encoders[chunk.is_text].read_as(chunk.marks)
        encoded = self.cells.encode(self.encoders[chunk.is_text], chunk.columns[:n], chunk.n, first_only=True)
        for row, reason in encoded.rejected.items():
            raise UnknownState(f"{place(row)}: {reason}")
        codes = np.full((chunk.n, len(self.discrete)), -1, np.int32)
        codes[:, [self.discrete.index(v) for v in self.states]] = encoded.codes.T
        values = {y: np.full(chunk.n, np.nan) for y in self.net if y not in self.discrete}
        columns = {}
        for name, column in zip((*self.keys, *self.numbers), chunk.columns[n:], strict=True):
            cells = column.combine_chunks() if hasattr(column, "combine_chunks") else column
            if name in values:
                read = as_floats(name, cells, self.words[chunk.is_text], place, chunk.marks)
                values[name] = finite(name, read.to_numpy(zero_copy_only=False), place)
            else:
                columns[name] = self._key(name, cells, place)
        chunk.columns = []
        return _FileRows(codes, values, columns, [(chunk.n, 0, place)])

    def _key(self, name: str, cells: Any, place: Callable[[int], str]) -> Any:
        """A column of ids or times; times in text become numbers or dates."""
        pa = arrow()
        if pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type):
            pc = compute()
            text = pc.utf8_trim_whitespace(cells.cast(pa.string()))
            cells = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
            if name == self.question.time:
                cells = _as_times(cells, self.kinds.get(name), name, place)
        if self.kinds.setdefault(name, cells.type) != cells.type:
            raise DataError(f"{place(0)}: column {name!r} has other values than before, {cells.type} cells")
        return cells

    def _starts(self, rows: _FileRows, held: _FileRows | None) -> NDArray[np.int64]:
        """The rows at which sequences begin; raises if one of them has occurred before."""
        name = self.question.id
        if name is None:
            return np.zeros(0 if held is not None else min(rows.n, 1), np.int64)
        column = known_cells(name, rows.column(name), rows.row_name)
        codes, values = column.index, column.cells
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            raise DataError(f"{rows.row_name(row)}, column {name!r}: the sequence's id is missing")
        begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])) if rows.n else np.zeros(0, np.int64)
        if held is not None and rows.n and held.column(name)[-1].as_py() == values[codes[0]]:
            begins = begins[1:]
        for row in begins.tolist():
            value = values[codes[row]]
            if value in self.seen:
                raise DataError(
                    f"{rows.row_name(row)}: rows of the sequence {value!r} have come before; the rows of a sequence "
                    f"must follow each other: sort the file by {name!r}"
                )
            self.seen.add(value)
        return begins


def _with_last(chunks: Iterator[CaseChunk]) -> Iterator[tuple[CaseChunk, bool]]:
    """Chunks, and whether one is the last."""
    before = next(chunks, None)
    while before is not None:
        after = next(chunks, None)
        yield before, after is None
        before = after


def _groups(ends: NDArray[np.int64], width: int) -> Iterator[tuple[int, int, int]]:
    """First row, last row and number of sequences that are answered together."""
    # ends: (n + 1,) where sequences begin, and the end of the last one
    i = 0
    while i < len(ends) - 1:
        j, longest = i, 0
        while j < len(ends) - 1:
            longest = max(longest, int(ends[j + 1] - ends[j]))
            if j > i and (j + 1 - i) * longest * width > BLOCK_CELLS:
                break
            j += 1
        yield int(ends[i]), int(ends[j]), j - i
        i = j


def _as_times(text: Any, kind: Any, name: str, place: Callable[[int], str]) -> Any:
    """A column of texts as whole numbers, numbers or dates; later chunks are of the kind of the first one."""
    pa = arrow()
    kinds = (pa.int64(), pa.float64(), pa.date32(), pa.timestamp("us")) if kind is None else (kind,)
    for wanted in kinds:
        if _is_castable(text, wanted):
            return text.cast(wanted)
    first = next((k for k in kinds[1:] if _is_castable(text.drop_null()[:1], k)), kinds[-1])
    row = next(i for i in range(len(text)) if not _is_castable(text[i : i + 1], first))
    what = "numbers or dates, such as 0, 1, 2" if kind is None else f"cells of the kind of those before, {kind}"
    raise DataError(f"{place(row)}: column {name!r} has the times and must hold {what}; got {text[row].as_py()!r}")


def _is_castable(cells: Any, kind: Any) -> bool:
    try:
        cells.cast(kind)
    except (arrow().ArrowInvalid, arrow().ArrowNotImplementedError):
        return False
    return True
