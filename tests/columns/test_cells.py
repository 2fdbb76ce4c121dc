"""Every verb reads a cell alike, wherever it stands: the table of `tests.columns.table`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.columns.failing import FAILING
from tests.columns.sources import FRAMES, TEXT_FILES, TYPED, Columns, Writer
from tests.columns.table import (
    CODES,
    HALVES,
    LEARNED_OBJECTS,
    LEARNED_WORDS,
    NUMBERS,
    READ_OBJECTS,
    READ_WORDS,
    Cell,
    Error,
    Objects,
    Row,
    Words,
)
from tests.columns.verbs import APPS, BOTH, CASES, FILES, LEARN, LEARN_TABLES, TABLES, Reader, answer, known, served
from tests.support.examples import FULL

OBJECTS = ("mapping", "rows", "arrays")
SLOW = ("explore", "sequence file", "HTTP table")  # read two kinds of files only, by the same functions as the others


@pytest.fixture(scope="module", autouse=True)
def _servers_are_closed() -> Iterator[None]:
    yield
    served.cache_clear()  # tests of this module may go on: xdist runs those of others between them
    while APPS:
        APPS.pop().close()


def cases(rows: list[Any], group: str, verbs: Mapping[str, Any]) -> list[Any]:
    """Each row with each verb; a verb that fails today is expected to fail."""
    found = []
    for row in rows:
        failing, rule = FAILING[group].get(row.name, ("", ""))
        for verb in verbs:
            if row.is_object and verb in ("explore", "-e"):  # of words only
                continue
            if verb == "HTTP evidence" and not is_json(row.cell):
                continue
            marks = [pytest.mark.xfail(reason=rule)] if failing == "all" or verb in failing.split(", ") else []
            found.append(pytest.param(row, verb, marks=marks, id=f"{row.name}-{verb}"))
    return found


def is_json(cell: Any) -> bool:
    return cell is None or isinstance(cell, (str, bool, int)) or (isinstance(cell, float) and math.isfinite(cell))


def some_sources(sources: Mapping[str, Writer], row: Row | Cell, verb: str) -> dict[str, Writer]:
    """The sources that a test reads: all of them at full length, else two, others for other rows and verbs."""
    if settings().max_examples == FULL or verb in SLOW:
        return dict(sources)
    names = list(sources)
    start = sum(f"{row.name} {verb}".encode())
    return {names[(start + i) % len(names)]: sources[names[(start + i) % len(names)]] for i in range(2)}


def learned(verb: str, sources: Mapping[str, Writer], row: Row, of: Callable[[str], Any], folder: Path) -> None:
    """What the verb makes of the cells of a row is what is expected of each source."""
    rows = list(range(8 * len(row.cells)))
    columns = {"x": [row.cells[i % len(row.cells)] for i in rows], "y": ["uv"[i // 2 % 2] for i in rows]}
    wanted, found = {}, {}
    learner = {**LEARN, **LEARN_TABLES}[verb]
    for source, write in some_sources(sources, row, verb).items():
        if verb in SLOW and source not in ("quoted", "Parquet"):
            continue
        wanted[source] = expected = of(source)
        found[source] = answer(lambda write=write: learner(write(columns, folder), folder), expected)  # type: ignore[misc]
    assert found == wanted


@pytest.mark.parametrize(("row", "verb"), cases(LEARNED_WORDS, "words of files", LEARN))
def test_states_of_words_in_text_files(row: Words, verb: str, tmp_path: Path) -> None:
    def of(source: str) -> Any:
        return row.after_comma if row.after_comma and source in ("CSV", "gz") else row.of_file

    learned(verb, TEXT_FILES, row, of, tmp_path)


def in_memory(verb: str) -> dict[str, Writer]:
    """The tables that a verb reads."""
    return FRAMES if verb in LEARN_TABLES else TYPED


@pytest.mark.parametrize(("row", "verb"), cases(LEARNED_WORDS, "words of tables", {**LEARN, **LEARN_TABLES}))
def test_states_of_words_in_typed_tables(row: Words, verb: str, tmp_path: Path) -> None:
    learned(verb, in_memory(verb), row, lambda _: row.of_words, tmp_path)


@pytest.mark.parametrize(("row", "verb"), cases(LEARNED_OBJECTS, "objects", {**LEARN, **LEARN_TABLES}))
def test_states_of_objects(row: Objects, verb: str, tmp_path: Path) -> None:
    sources = {s: TYPED[s] for s in OBJECTS} if row.is_object else in_memory(verb)
    learned(verb, sources, row, lambda _: row.states, tmp_path)


def read(verb: str, ask: Reader, sources: Mapping[str, Writer], row: Cell, expected: Any, folder: Path) -> None:
    """Which state the verb takes a cell for, in a table of each source."""
    columns: Columns = {"x": [row.cell] * 2}
    if verb in ("fit", "validate"):
        columns = {**columns, "y": ["u"] * 2}
    elif verb in ("filter", "sequence file"):
        columns = {"id": ["a"] * 2, "t": [1, 2], **columns}
    elif verb in ("batch", "check", "HTTP table"):
        columns = {**columns, "note": ["-"] * 2}
    if verb in SLOW:
        sources = {s: write for s, write in sources.items() if s in ("quoted", "Parquet")}
    if verb == "check" and expected is None:
        expected = Error("no row has all of x")
    sources = some_sources(sources, row, verb)
    net, found = known(row.states), {}
    for source, write in sources.items():
        found[source] = answer(lambda write=write: ask(net, write(columns, folder), folder), expected)  # type: ignore[misc]
    assert found == dict.fromkeys(sources, expected)


def of_words(row: Cell) -> Any:
    return row.state if row.of_words is ... else row.of_words


@pytest.mark.parametrize(("row", "verb"), cases(READ_WORDS, "cells of a network", {**BOTH, **FILES}))
def test_words_of_text_files_read_by_a_network(row: Cell, verb: str, tmp_path: Path) -> None:
    read(verb, {**BOTH, **FILES}[verb], TEXT_FILES, row, row.state, tmp_path)


@pytest.mark.parametrize("verb", [*BOTH, *FILES])
def test_decimal_commas_of_files_read_by_a_network(verb: str, tmp_path: Path) -> None:
    sources = {name: TEXT_FILES[name] for name in ("TSV", "quoted")}
    for states, cell, state in ((CODES, "1,0", "1"), (NUMBERS, "2,50", "2.5"), (HALVES, "1,5", HALVES[0])):
        read(verb, {**BOTH, **FILES}[verb], sources, Cell(states, cell, state), state, tmp_path)


@pytest.mark.parametrize(
    ("row", "verb"), cases(READ_WORDS + READ_OBJECTS, "cells of a network", {**BOTH, **FILES, **TABLES})
)
def test_cells_of_typed_tables_read_by_a_network(row: Cell, verb: str, tmp_path: Path) -> None:
    sources = TYPED if verb in BOTH else {"Parquet": TYPED["Parquet"]} if verb in FILES else FRAMES
    read(verb, {**BOTH, **FILES, **TABLES}[verb], sources, row, of_words(row), tmp_path)


@pytest.mark.parametrize(("row", "verb"), cases(READ_WORDS + READ_OBJECTS, "cells of a network", CASES))
def test_findings_read_by_a_network(row: Cell, verb: str, tmp_path: Path) -> None:
    expected = of_words(row)
    assert answer(lambda: CASES[verb](known(row.states), row.cell, tmp_path), expected) == expected
