"""Answer questions about the sequences of a file, in memory that grows with the longest sequence only."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cases.files import saved
from ..cases.query import file_fingerprint
from ..cases.writing import ResumableFile, writer_for
from ..columns.arrow import arrow
from ..errors import EvidenceError, JtgpuError
from ..options.tables import FileOptions
from ..util.atomic_file import write_bytes
from .number_rows import NumberRows
from .sequence_file import SequenceFile, SequenceQuestion

if TYPE_CHECKING:
    from ..cases.solver import Progress
    from ..model.dynamic import DynamicNetwork
    from ..model.mixed_dynamic import MixedDynamicNetwork
    from .numbers import MixedDynamicTree
    from .sequences import Sequences
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


def _add(columns: dict[str, Any], name: str, column: Any) -> None:
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
