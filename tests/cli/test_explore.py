"""``jtgpu explore``: a table becomes a network with its certainty and accuracy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import jtgpu
from tests.cli.commands import run

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    n = 300
    smoke = rng.random(n) < 0.5
    frame = pandas.DataFrame({
        "id": range(1000, 1000 + n),
        "when": pandas.date_range("2024-01-01", periods=n, freq="h").strftime("%Y-%m-%d %H:%M:%S"),
        "age": rng.normal(50, 15, n).round(1) + 20 * smoke,
        "site": "A",
        "smoke": np.where(smoke, "yes", "no"),
        "ash": np.where(smoke, "much", "none"),  # decided by smoke
    })  # fmt: skip
    frame.loc[rng.random(n) < 0.1, "age"] = None
    path = tmp_path_factory.mktemp("explore") / "messy.csv"
    frame.to_csv(path, index=False)
    return path


def test_a_messy_table(messy: Path, tmp_path: Path) -> None:
    output = tmp_path / "learned.net"
    done = run("explore", str(messy), "--json", "-o", str(output))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {c["name"]: c["kind"] for c in found["columns"]} == {
        "id": "identifier", "when": "dates", "age": "numbers", "site": "constant", "smoke": "categories",
        "ash": "categories",
    }  # fmt: skip
    age = next(c for c in found["columns"] if c["name"] == "age")
    assert 0.05 < age["missing"] < 0.15
    assert found["target"] == "ash"
    assert found["accuracy"]["n"] == 300
    assert found["accuracy"]["accuracy"] == 1.0
    assert found["accuracy"]["baseline"] < 0.7
    assert found["accuracy"]["log_loss"] < 0.05
    assert {frozenset(arc) for arc in found["arcs"]} >= {frozenset(("smoke", "ash"))}
    net = jtgpu.read(output)
    assert set(net.variables) == {"age", "smoke", "ash"}
    assert len(net.states("age")) == 5


def test_options_and_mistakes(messy: Path) -> None:
    done = run("explore", str(messy), "--exclude", "ash,id", "-t", "smoke", "--bins", "3", "--time", "0", "--no-serve")
    assert done.exit_code == 0, done.output
    assert "ash\texcluded\t2\t\tleft out" in done.stdout
    assert "up to 3 intervals" in done.stdout
    assert "Accuracy for smoke:" in done.stdout
    assert "P(arc)" not in done.stdout
    wrong = run("explore", str(messy), "-t", "ahs")
    assert wrong.exit_code == 2
    assert "ash" in wrong.output.replace("ahs", "")
    few = run("explore", str(messy), "--exclude", "age,smoke")
    assert few.exit_code == 2
    assert "a network needs two" in few.output
