"""``--na-values``: words of CSV files that mean missing cells, in all commands that read cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import jtgpu
from tests.cli.commands import run

pytest.importorskip("pyarrow")
pytest.importorskip("narwhals")

ROWS = "None,u\nx,v\nNA,u\ny,v\n?,u\nx,u\nNone,v\n" * 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Cases with words, and a network in which two of them are states."""
    (tmp_path / "cases.csv").write_text("a,b\n" + ROWS)
    states = {"a": ["None", "?", "x", "y"], "b": ["u", "v"]}
    net = jtgpu.BayesianNetwork(states, {"b": ["a"]}, {"a": [0.25] * 4, "b": [[0.5, 0.5]] * 4})
    jtgpu.write(net, tmp_path / "net.bif")
    return tmp_path


def test_fit(folder: Path) -> None:
    net, cases, out = str(folder / "net.bif"), str(folder / "cases.csv"), str(folder / "fitted.bif")
    done = run("fit", net, cases, "-o", out)
    assert "4 cells missing in 1 column (a 4)" in done.stdout  # NA: the others are states
    assert "read as missing cells: 'NA' in a (na_values= or --na-values lists such words)" in done.stdout
    done = run("fit", net, cases, "-o", out, "--force", "--states", "data", "--missing", "drop")
    assert "12 of 28 rows left out: cells missing in 1 column (a 12)" in done.stdout
    done = run("fit", net, cases, "-o", out, "--force", "--states", "data", "--na-values", "?", "--json")
    found = json.loads(done.stdout)
    assert (found["missing_cells"], found["missing_words"]) == ({"a": 16}, {"a": ["?", "NA", "None"]})
    assert found["states_from_data"]["a"] == ["x", "y"]


def test_learn(folder: Path) -> None:
    (folder / "cases.csv").write_text("a,b\n" + ROWS * 3)
    cases = str(folder / "cases.csv")
    refused = run("learn", cases)
    assert "36 of 84 rows have missing cells" in refused.stderr
    assert "'NA', 'None' in a (na_values= or --na-values" in refused.stderr
    for more in ((), ("--method", "mcmc", "--seconds", "1")):
        done = run("learn", cases, "--missing", "drop", *more)
        assert "36 of 84 rows left out: cells missing in 1 column (a 36)" in done.stderr
        assert "read as missing cells: 'NA', 'None' in a" in done.stderr
    done = run("learn", cases, "--na-values", "?", "--missing", "drop", "--json")
    found = json.loads(done.stdout)
    assert found["missing_words"] == {"a": ["?", "NA", "None"]}
    assert (found["dropped"], found["missing_cells"]) == (48, {"a": 48})
    assert run("learn", cases, "--na-values", "").exit_code == 0  # no word is missing: all are states


def test_screen_by_the_states_of_a_network(folder: Path) -> None:
    words = ["screen", str(folder / "cases.csv"), "--net", str(folder / "net.bif"), "-n", "2", "-k", "2", "--surprise"]
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert run(*words, "--na-values", "-9").exit_code == 0  # one more word
    refused = run(*words, "--na-values", "")
    assert "'NA' is not a state" in refused.stderr


def test_batch(folder: Path) -> None:
    net, cases, out = str(folder / "net.bif"), str(folder / "cases.csv"), str(folder / "out.csv")
    assert run("batch", net, cases, "-o", out, "-t", "b").exit_code == 0
    assert run("batch", net, cases, "-o", out, "-t", "b", "--force", "--na-values", "-9").exit_code == 0
    refused = run("batch", net, cases, "-o", out, "-t", "b", "--force", "--na-values", "")
    assert "cases.csv:4: column 'a': 'NA' is not a state" in refused.stderr
    assert "list it in na_values (--na-values)" in refused.stderr
