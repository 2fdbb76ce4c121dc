"""A network reads what it was learned from: the table, the file, the Parquet file, with equal states."""

from __future__ import annotations

import csv
import datetime
import gzip
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import learn
from tests.cli.commands import run
from tests.columns.sources import TYPED, arrow_table, parquet_file, text_of, written
from tests.columns.verbs import Known, answer, known
from tests.support.examples import examples

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
BINS = 3


def by_command(table: Any, folder: Path) -> tuple[str, ...]:
    output = folder / "learned.net"
    done = run("learn", str(table), "--bins", str(BINS), "--missing", "drop", "-o", str(output), "--force")
    if done.exit_code:
        raise jtgpu.DataError(done.stderr)
    return jtgpu.read(output).states("x")


LEARNERS: dict[str, Callable[[Any, Any, Path], tuple[str, ...]]] = {  # of a file, and of the table in memory
    "learn --bins": lambda file, table, folder: by_command(file, folder),
    "fit of the file": lambda file, table, folder: learn.fit({"y": ["x"]}, file, bins=BINS).network.states("x"),
    "fit of the table": lambda file, table, folder: learn.fit({"y": ["x"]}, table, bins=BINS).network.states("x"),
    "discretise": lambda file, table, folder: learn.discretise(table, bins=BINS, columns=["x"]).states["x"],
}


def value(cell: Any) -> Any:
    """A number as a float, or a moment as microseconds from 1970."""
    when = cell if isinstance(cell, (datetime.date, np.datetime64)) else None
    return float(cell) if when is None else int(np.datetime64(when).astype("datetime64[us]").astype(np.int64))


def end(text: str) -> Any:
    """An end of an interval."""
    return value(np.datetime64(text)) if text.count("-") == 2 and "e" not in text else float(text)


def state_of(cell: Any, states: Sequence[str]) -> str | None:
    """The state of a cell, mostly the interval that contains it; None for a missing one."""
    if cell is None or str(cell) in states:
        return None if cell is None else str(cell)
    for state in states:
        low, high = map(end, state.strip("[)(").split(", "))
        if low <= value(cell) < high:
            return state
    raise AssertionError(f"{cell} in {states}")


def read_back(net: Known, table: Any, folder: Path) -> list[str | None]:
    """The state of each row, in a file or in memory."""
    if isinstance(table, Path):
        jtgpu.cases.answer_file(net.tree, table, folder / "back.csv", targets="y", force=True)
        with (folder / "back.csv").open(encoding="utf-8") as file:
            return [net.by_up(float(row["y=u"])) for row in csv.DictReader(file)]
    return [net.by_up(float(p)) for p in np.asarray(net.tree.predict_proba(table, "y")["y=u"])]


def written_as(cell: Any, decimal: str) -> Any:
    """A cell of a text file."""
    if cell is None:
        return ""
    return cell.isoformat() if isinstance(cell, datetime.date) else str(cell).replace(".", decimal)


def closed(cells: list[Any], learner: str, folder: Path, decimal: str = ".") -> None:
    """The network of a column reads it from everywhere; its states ascend, and hold the cells."""
    columns = {"x": cells, "y": ["u" if i % 2 else "v" for i in range(len(cells))]}
    text = {**columns, "x": [written_as(c, decimal) for c in cells]}
    file = written(folder, ".csv", text_of(text, ";" if decimal == "," else ",").encode())
    table = arrow_table(columns)
    states = LEARNERS[learner](file, table, folder)
    lows = [end(s.strip("[)(").split(", ")[0]) if "," in s else int(s) for s in states]
    assert all(a < b for a, b in pairwise(lows)), states
    expected = [state_of(c, states) for c in cells]
    sources: dict[str, Any] = {
        "file": file,
        "gz": written(folder, ".csv.gz", gzip.compress(file.read_bytes())),
        "Parquet": parquet_file(columns, folder),
        **{name: TYPED[name](columns, folder) for name in ("pandas", "Polars", "mapping")},
        "Arrow": table,
    }
    net = known(states)
    found = {name: answer(lambda t=t: read_back(net, t, folder), expected) for name, t in sources.items()}  # type: ignore[misc]
    assert found == dict.fromkeys(sources, expected)


RNG = np.random.default_rng(1)
TENTHS = [round(float(x), 1) for x in RNG.normal(60, 10, 40)]
DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(int(d)) for d in RNG.integers(0, 300, 40)]
COLUMNS: dict[str, tuple[list[Any], str]] = {  # cells, decimal mark
    "tenths": (TENTHS, "."),
    "tenths with gaps": ([*TENTHS[:-2], None, None], "."),
    "decimal commas": (TENTHS, ","),
    "negative": ([-x for x in TENTHS], "."),
    "hundreds": ([x * 10 for x in TENTHS], "."),
    "whole": ([int(x) for x in TENTHS], "."),
    # as floats in intervals; in a text file they are words, each a state
    "above 2^53": ([2**53 + int(x) for x in RNG.integers(0, 30, 40)], "."),
    "tiny": ([float(x) for x in RNG.uniform(1e-300, 1e-290, 40)], "."),
    "huge": ([float(x) for x in RNG.uniform(1e300, 1e308, 40)], "."),
    "signs of zero": ([0.0, -0.0, 1.5, 2.5, -1.5] * 8, "."),
    "float32": ([np.float32(x) for x in TENTHS], "."),
    "close": ([1 + i * 2**-52 for i in range(40)], "."),
    "days": (DAYS, "."),
    "times": ([datetime.datetime(2024, 1, 1, 10, 30) + i * datetime.timedelta(hours=7) for i in range(40)], "."),
}


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("name", COLUMNS)
def test_a_network_reads_what_it_was_learned_from(name: str, learner: str, tmp_path: Path) -> None:
    cells, decimal = COLUMNS[name]
    closed(cells, learner, tmp_path, decimal)


@examples(40)
@given(st.data())
def test_a_network_reads_any_numbers_that_it_was_learned_from(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(["floats", "halves", "whole"]))
    numbers = {
        "floats": st.floats(allow_nan=False, allow_infinity=False),
        "halves": st.integers(-40, 40).map(lambda i: i / 2),
        "whole": st.integers(-(2**50), 2**50),
    }[kind]
    cells = data.draw(st.lists(st.none() | numbers, min_size=8, max_size=25))
    if len(set(cells) - {None}) > BINS + 1:
        learner = data.draw(st.sampled_from(["fit of the file", "fit of the table", "discretise"]))
        closed(cells, learner, tmp_path_factory.mktemp("closed"))
