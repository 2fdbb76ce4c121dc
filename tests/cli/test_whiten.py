"""``jtgpu whiten``: series in, residuals or cases out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from jtgpu import series
from tests.cli.commands import run

pytest.importorskip("pyarrow")
pytest.importorskip("narwhals")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    e = np.random.default_rng(3).standard_normal((2, 300))
    x = e.copy()
    for t in range(1, 300):
        x[0, t] += 0.8 * x[0, t - 1]
    days = np.datetime64("2026-01-01") + np.arange(300)
    path = tmp_path / "sensors.csv"
    path.write_text("day;a;b\n" + "".join(f"{d};{u!r};{v!r}\n" for d, u, v in zip(days, *x.tolist(), strict=True)))
    return path


def columns(path: Path) -> dict[str, list[str]]:
    rows = [line.split(",") for line in path.read_text().replace('"', "").splitlines()]
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])}


def test_residuals_lags_and_a_table(data: Path, tmp_path: Path) -> None:
    out, lags = tmp_path / "white.csv", tmp_path / "lags.json"
    done = run("whiten", str(data), "-o", str(out), "--lags", str(lags), "--max-order", "4", "--alpha", "0.001")
    assert done.exit_code == 0, done.output
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert lines[0] == ["series", "order", "variance", "lags"]
    assert [line[:2] for line in lines[1:]] == [["a", "1"], ["b", "0"]]
    assert json.loads(lags.read_text()) == {"a": [1], "b": []}
    white = columns(out)
    assert list(white) == ["day", "a", "b"]
    assert white["a"][0] == ""
    read = columns_of(data)
    wanted = series.whiten(read, series.ar(read, max_order=4))
    assert [float(v) for v in white["a"][1:]] == wanted["a"].tolist()[1:]


def columns_of(data: Path) -> dict[str, list[float]]:
    rows = [line.split(";") for line in data.read_text().splitlines()[1:]]
    return {"a": [float(row[1]) for row in rows], "b": [float(row[2]) for row in rows]}


def test_cases_over_time_slices_and_json(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "cases.csv"
    done = run("whiten", str(data), "-o", str(out), "--slices", "2", "--order", "1", "--json")
    models = json.loads(done.stdout)["models"]
    assert models[0]["coef"] == pytest.approx([0.8], abs=0.1)
    cases = columns(out)
    assert {"a[t]", "a[t-1]", "b[t]", "b[t-1]"} <= set(cases)
    assert set(cases["a[t]"]) == {"low", "high"}
    assert len(cases["a[t]"]) == 299


def test_outputs_and_errors(data: Path, tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("mine")
    assert run("whiten", str(data), "-o", str(tmp_path / "old.csv")).exit_code == 6
    assert run("whiten", str(data), "-o", str(tmp_path / "old.xls")).exit_code == 2
    assert run("whiten", str(data), "--order", "hqic").exit_code == 2
    assert run("whiten", str(tmp_path / "none.csv")).exit_code == 2
    data.write_text(data.read_text().replace("2026-01-05", "2026-01-04"))
    done = run("whiten", str(data), "-o", str(tmp_path / "new.parquet"))
    assert done.exit_code == 2
    assert f"column 'day' must increase from row to row, but {data}:6 has '2026-01-04'" in done.stderr
    assert not (tmp_path / "new.parquet").exists()


def test_columns_and_advice_for_the_command_line(data: Path, tmp_path: Path) -> None:
    done = run("whiten", str(data), "--columns", "b", "--json")
    assert [m["series"] for m in json.loads(done.stdout)["models"]] == ["b"]
    commas = tmp_path / "commas.csv"
    commas.write_text(data.read_text().replace(".", ","))
    assert run("whiten", str(commas)).stdout == run("whiten", str(data)).stdout
    done = run("whiten", str(data), "--max-order", "300")
    assert done.stderr == "jtgpu: error: series of 300 values have no model of order 300; use a lower --max-order\n"
    gap = tmp_path / "gap.csv"
    gap.write_text("a,b\n1,2\n,3\n4,5\n")
    done = run("whiten", str(gap), "--max-order", "1")
    assert done.stderr == (
        f"jtgpu: error: series 'a', {gap}:3: the value is missing (NaN); fill gaps or cut the series there\n"
    )
