"""Several files as one table, and options of reading for files and for tables in memory."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import ReadOptions, learn
from tests.cli.commands import run
from tests.columns.sources import parquet_file

X = ["a", "b", "a", "b", "?", "a"]
Z = [1.0, 2.5, 1.5, 3.0, 2.0, 0.5]
NUMBERS = {"z": ["x"]}


def halves(folder: Path, suffix: str = ".csv") -> list[Path]:
    """A table in two files, whose columns are in another order."""
    first, second = folder / f"1{suffix}", folder / f"2{suffix}"
    if suffix == ".parquet":
        for path, rows in ((first, slice(3)), (second, slice(3, None))):
            parquet_file({"x": X[rows], "z": Z[rows]}, folder).rename(path)
        return [first, second]
    first.write_text("x,z\n" + "".join(f"{x},{z:g}\n" for x, z in zip(X[:3], Z[:3], strict=True)))
    second.write_text("z,x\n" + "".join(f"{z:g},{x}\n" for x, z in zip(X[3:], Z[3:], strict=True)))
    return [first, second]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_several_files_with_numbers_are_one_table(tmp_path: Path, suffix: str) -> None:
    read = ReadOptions(na_values="?")
    files = halves(tmp_path, suffix)
    table = {"x": [None if x == "?" else x for x in X], "z": Z}
    net = learn.fit(NUMBERS, files, continuous={"z": "gaussian"}, read=read).network
    assert net == learn.fit(NUMBERS, table, continuous={"z": "gaussian"}).network
    assert net == learn.fit(NUMBERS, tmp_path, continuous={"z": "gaussian"}, read=read).network
    found = learn.check(net, files, ["z"], read=read)
    assert np.array_equal(found.observed, learn.check(net, table, ["z"]).observed)
    jtgpu.write(net, tmp_path / "net.mixed.json")
    made = tmp_path / "made.mixed.json"
    done = run("fit", str(tmp_path / "net.mixed.json"), *map(str, files), "--na-values", "?", "-o", str(made))
    assert done.exit_code == 0, done.stderr
    again: Any = jtgpu.read(made)
    assert np.allclose(again.gaussian("z").mean, net.gaussian("z").mean)
    judged: Any = learn.validate(net, [*map(str, files)], "z", read=read)
    expected: Any = learn.validate(net, table, "z")
    assert judged.rmse == pytest.approx(expected.rmse)


def test_the_cells_of_all_files_say_what_a_column_is(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("x,y\n01,u\n1,v\n" * 2)
    (tmp_path / "1.csv").write_text("x,y\n1,u\n2,v\n1,u\n2,v\n")
    (tmp_path / "2.csv").write_text("x,y\n01,u\n2,u\n")
    assert learn.structure([tmp_path / "1.csv", tmp_path / "2.csv"]).network().states("x") == ("01", "1", "2")
    assert learn.fit({"y": ["x"]}, tmp_path).network.states("x") == ("01", "1", "2")


def test_files_that_are_no_one_table(tmp_path: Path) -> None:
    one, two = halves(tmp_path)
    two.write_text("z,w\n1,2\n")
    with pytest.raises(jtgpu.DataError, match=r"2\.csv and .*1\.csv differ in the column 'w'"):
        learn.fit(NUMBERS, [one, two], continuous={"z": "gaussian"})
    with pytest.raises(jtgpu.DataError, match="of one kind, CSV or Parquet"):
        learn.fit(NUMBERS, [one, halves(tmp_path, ".parquet")[1]], continuous={"z": "gaussian"})
    two.write_text("z;x\n1,5;a\n")
    one.write_text("z;x\n1.5;a\n")
    with pytest.raises(jtgpu.DataError, match="differ in their decimal marks"):
        learn.fit(NUMBERS, [one, two], continuous={"z": "gaussian"})


def test_words_that_are_given_are_missing_in_tables_in_memory() -> None:
    read = ReadOptions(na_values=["?"])
    net = learn.fit(NUMBERS, {"x": X, "z": Z}, continuous={"z": "gaussian"}, read=read).network
    assert net.states("x") == ("a", "b")
    slices = {"x": [("x", 1)]}
    assert learn.fit(slices, {"x": X}, keys=learn.Keys(), read=read).network.states("x") == ("a", "b")


TABLE = {"x": ["a", "b"] * 6, "y": ["u", "v", "v"] * 4, "z": [float(i % 5) for i in range(12)]}
NET = jtgpu.BayesianNetwork({"x": ["a", "b"], "y": ["u", "v"]}, {"y": ["x"]}, {"x": [0.5, 0.5], "y": [[0.5, 0.5]] * 2})
VERBS: dict[str, Callable[[ReadOptions], Any]] = {
    "fit": lambda read: learn.fit({"y": ["x"]}, TABLE, read=read),
    "fit of numbers": lambda read: learn.fit({"z": ["x"]}, TABLE, continuous={"z": "gaussian"}, read=read),
    "fit of sequences": lambda read: learn.fit({"x": [("x", 1)]}, TABLE, keys=learn.Keys(), read=read),
    "check": lambda read: learn.check(NET, TABLE, ["x"], read=read),
    "validate": lambda read: learn.validate(NET, TABLE, "y", read=read),
    "structure": lambda read: learn.structure({v: TABLE[v] for v in "xy"}, read=read),
    "posterior": lambda read: learn.posterior({v: TABLE[v] for v in "xy"}, read=read),
}


@pytest.mark.parametrize("verb", VERBS)
def test_how_a_file_is_written_is_no_option_of_a_table_in_memory(verb: str) -> None:
    for read in (ReadOptions(delimiter=";"), ReadOptions(decimal=","), ReadOptions(header="none")):
        name = next(n for n in ("delimiter", "decimal", "header") if getattr(read, n) is not None)
        with pytest.raises(
            jtgpu.ArgumentError, match=f"{name}= says how a CSV file is written; the table is in memory"
        ):
            VERBS[verb](read)


@pytest.mark.parametrize(
    ("content", "kind"),
    [(b"ARROW1\0\0", "Arrow files"), (b"PK\x03\x04rest", "workbooks and zip archives"), (lzma.compress(b"x,y\n"), "xz"),
     (b'{"x": 1}\n{"x": 2}\n', "JSON"), (b'[{"x": 1}]', "JSON")],
)  # fmt: skip
def test_files_of_other_kinds(content: bytes, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_bytes(content)
    readers: list[Callable[[], Any]] = [
        lambda: learn.fit({"y": ["x"]}, path), lambda: learn.structure(path), lambda: learn.validate(NET, path, "y"),
        lambda: jtgpu.cases.answer_file(NET.compile("cpu"), path, tmp_path / "answers.csv"),
    ]  # fmt: skip
    for reader in readers:
        with pytest.raises(jtgpu.FormatError, match=f"{kind}.* are not supported; convert it to CSV or Parquet"):
            reader()


def test_too_long_names_of_files_are_errors_in_words() -> None:
    for verb in (learn.structure, lambda path: learn.fit({"y": []}, path)):
        with pytest.raises(jtgpu.FileError, match="File name too long"):
            verb("n" * 300)
