"""Files of cases and files of answers of networks with numbers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cases.files import Report, saved
from ..cases.query import file_fingerprint
from ..cases.writing import ResumableFile, writer_for
from ..columns.arrow import arrow, as_floats, without_words
from ..columns.files import open_cases
from ..columns.names import evidence_columns
from ..columns.source import CaseChunk
from ..errors import EvidenceError, JtgpuError, ParseError
from ..formats.registry import dumps_mixed
from ..inference.results.frames import make_frame
from ..model.mixed import MixedNetwork
from ..options.record import require_only
from ..options.tables import FileOptions, TableOptions
from ..util.cells import POINT, Marks, na_words

if TYPE_CHECKING:
    from ..cases.solver import Progress
    from .results import MixedCasePosteriors
    from .tree import MixedTree

CHUNK = 50_000  # rows that are answered and written at a time
USED = "targets evidence_columns keep labels log_evidence on_error na_values"  # of `TableOptions`


def answer_file(
    tree: MixedTree, cases: Path, output: Path, query: TableOptions, files: FileOptions,
    quantiles: list[float] | None = None, progress: Progress | None = None,
) -> Report:  # fmt: skip
    """Answer every row of a file, in memory that does not grow with it; a run that was interrupted can be continued."""
    require_only(query, USED, "networks with numbers")
    net, begun = tree.network, time.perf_counter()
    source = open_cases(cases, net.graph, files.dialect)
    if output.exists() and output.samefile(cases):
        raise JtgpuError(f"{output} contains the cases: choose another output")
    given: Any = query  # tuples of names
    own = source.columns if query.evidence_columns is None else given.evidence_columns
    evidence = evidence_columns(net.graph, own, [*map(net.graph.index, given.targets or ())], source=str(cases))
    targets = given.targets or [v for v in net.variables if v not in evidence] or [*net.variables]
    words = na_words(query.na_values, is_text=True)
    keep = [*given.keep]
    read = [*dict.fromkeys([*keep, *evidence])]

    def answered(columns: Mapping[str, object]) -> tuple[Any, int]:
        known = {v: columns[v] for v in evidence}
        answer = tree.posteriors_batch(known, targets=targets, on_error=query.on_error)
        made = _columns(net, answer, query, quantiles)
        twice = next((k for k in keep if k in made), None)
        if twice is not None:
            raise EvidenceError(f"the answer would have two columns named {twice!r}; remove it from keep")
        text = {"error", *(net.discrete.variables if query.labels else ())}
        kinds = [*zip(keep, source.types(keep), strict=True)]
        kinds += [(name, arrow().string() if name in text else arrow().float64()) for name in made]
        frame = make_frame({k: columns[k] for k in keep} | made, "pyarrow")
        return frame.cast(arrow().schema(kinds)), int(answer.impossible.sum())

    empty = {k: arrow().array([], kind) for k, kind in zip(read, source.types(read), strict=True)}
    schema = answered(_typed(net, empty, evidence, words, str))[0].schema
    identity = {
        "cases": file_fingerprint(cases), "network": sha256(dumps_mixed(net, "JSON").encode()).hexdigest(),
        "question": [
            targets, evidence, keep, query.labels, query.log_evidence, query.on_error, quantiles, sorted(words),
            str(net.discrete.state_codes),
        ],
        "dialect": files.dialect.identity, "output": [output.name, files.compression],
        "escape_formulas": files.escape_formulas,
    }  # fmt: skip
    writer = writer_for(output, files.compression, files.escape_formulas)
    unfinished = ResumableFile(output, writer, identity, resume=files.resume, force=files.force)
    before = unfinished.done.rows
    with saved(unfinished):
        for chunk in source.chunks([], read, files.chunk or CHUNK, unfinished.done.position):
            chunk.load()

            def name(row: int, chunk: CaseChunk = chunk) -> str:
                file, line = chunk.locate(row)
                return file if line is None else f"{file}:{line}"

            for row, reason in sorted(chunk.broken.items())[:1]:
                raise ParseError(reason, *chunk.locate(row))
            columns = _typed(net, dict(zip(read, chunk.columns, strict=True)), evidence, words, name, chunk.marks)
            try:
                table, flagged = answered(columns)
            except JtgpuError as error:
                raise _located(error, name) from None
            unfinished.append(table, chunk.position, flagged)
            if progress is not None:
                progress(unfinished.done.rows, chunk.done, source.size)
        unfinished.finish(schema)
    done = unfinished.done
    ignored = tuple(c for c in source.columns if c not in {*evidence, *keep, *targets})
    seconds = time.perf_counter() - begun
    return Report(str(output), done.rows, done.flagged, before, seconds, tuple(targets), tuple(evidence), ignored)


def _typed(
    net: MixedNetwork, columns: Mapping[str, Any], evidence: Sequence[str], words: frozenset[str],
    name: Callable[[int], str], marks: Marks = POINT,
) -> dict[str, Any]:  # fmt: skip
    """Columns of text as states and numbers; words that mean a missing cell become null."""
    result = {k: c.combine_chunks() if hasattr(c, "combine_chunks") else c for k, c in columns.items()}
    for v in evidence:
        column = result[v]
        if arrow().types.is_string(column.type):
            if net.is_number(v):
                result[v] = as_floats(v, column, words, name, marks)
            else:
                result[v] = without_words(column, words, net.states(v))
    return result


def _located(error: JtgpuError, name: Callable[[int], str]) -> JtgpuError:
    """The error of a row of a part, with the row of the file."""
    row = re.match(r"row (\d+)(?=[,:] )", str(error))
    return error if row is None else type(error)(name(int(row[1])) + str(error)[row.end() :])


def _columns(
    net: MixedNetwork, answer: MixedCasePosteriors, query: TableOptions, quantiles: list[float] | None
) -> dict[str, Any]:
    """The columns of answers: null in impossible rows."""
    columns: dict[str, Any] = {}
    if query.labels:
        for v, p in answer.items():
            labels = None if net.is_number(v) else np.array(net.states(v), object)
            columns[v] = answer[v].mean if labels is None else labels[np.asarray(p).argmax(axis=1)]
    else:
        columns = answer.columns(quantiles)
    if query.log_evidence:
        columns["log_evidence"] = answer.log_evidence
    gone = answer.impossible
    if gone.any():
        columns = {name: np.ma.masked_array(column, gone) for name, column in columns.items()}
    if query.on_error == "flag":
        columns["error"] = [("the evidence has probability 0" if g else None) for g in gone.tolist()]
    return columns
