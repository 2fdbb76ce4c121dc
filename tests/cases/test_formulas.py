"""Cells that a spreadsheet would run are escaped in text files, if requested."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import jtgpu
from jtgpu.cases.query import escape_formula, escape_formulas
from jtgpu.cli import app
from tests.conftest import ROOT

ASIA = str(ROOT / "nets" / "asia.net")
RISKY = ["=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "-", "-5\n"]
HARMLESS = ["", "yes", "-5", "+3.5", "-.5e-3", "1=1", " =1", "'=1"]


@pytest.mark.parametrize("cell", RISKY)
def test_formulas_get_an_apostrophe(cell: str) -> None:
    assert escape_formula(cell) == "'" + cell


@pytest.mark.parametrize("cell", HARMLESS)
def test_other_cells_stay_as_they_are(cell: str) -> None:
    assert escape_formula(cell) == cell


def test_tables_are_escaped_like_cells() -> None:
    cells = [*RISKY, *HARMLESS, None]
    wanted = [c if c is None else escape_formula(c) for c in cells]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        table = pa.table({"=name": pa.array(cells, pa.string()).cast(kind), "n": [-1.5] * len(cells)})
        found = escape_formulas(table)
        assert found.column_names == ["'=name", "n"]
        assert found["'=name"].to_pylist() == wanted
        assert found["n"].to_pylist() == [-1.5] * len(cells)


def test_answers_escape_formulas_if_requested(tmp_path: Path) -> None:
    cases = tmp_path / "cases.csv"
    cases.write_text('id,n,xray\n"=cmd|\' /C calc\'!A0",-5,yes\n@x,-6,no\n')
    words = ["batch", ASIA, str(cases), "-t", "lung", "--keep", "id,n", "--backend", "reference"]
    for name, more in (("plain.csv", []), ("safe.csv", ["--escape-formulas"]), ("o.parquet", ["--escape-formulas"])):
        done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / name), *more])
        assert done.exit_code == 0, done.output
    plain, safe = (list(csv.reader((tmp_path / f"{n}.csv").open())) for n in ("plain", "safe"))
    assert [r[:2] for r in plain[1:]] == [["=cmd|' /C calc'!A0", "-5"], ["@x", "-6"]]
    assert [r[:2] for r in safe[1:]] == [["'=cmd|' /C calc'!A0", "-5"], ["'@x", "-6"]]
    assert [r[2:] for r in safe] == [r[2:] for r in plain]
    assert pq.read_table(tmp_path / "o.parquet")["id"].to_pylist() == ["=cmd|' /C calc'!A0", "@x"]  # not text


def test_samples_escape_formulas_if_requested(tmp_path: Path) -> None:
    net = jtgpu.BayesianNetwork({"=v": ["+yes"]}, {}, {"=v": [1.0]})
    jtgpu.write(net, tmp_path / "a.bif")
    words = ["sample", str(tmp_path / "a.bif"), "1", "--backend", "reference"]
    assert CliRunner().invoke(app, words).stdout == "=v\n+yes\n"
    assert CliRunner().invoke(app, [*words, "--escape-formulas"]).stdout == "'=v\n'+yes\n"
