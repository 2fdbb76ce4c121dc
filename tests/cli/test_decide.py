"""``jtgpu decide``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import jtgpu
from tests.cli.commands import run
from tests.decisions.test_policies import oil, pigs
from tests.dynamic.test_posteriors import umbrella


@pytest.fixture
def well(tmp_path: Path) -> str:
    path = tmp_path / "oil.net"
    jtgpu.write(oil(), path)
    return str(path)


def test_policy(well: str, tmp_path: Path) -> None:
    result = run("decide", well, "--json")
    found = json.loads(result.stdout)
    assert (found["expected_utility"], found["method"]) == (22.5, "exact")  # without digits that rounding made
    assert found["policy"]["test"] == [{"known": {}, "option": "yes"}]
    out = tmp_path / "policy.csv"
    printed = run("decide", well, "--policy", str(out)).stdout
    assert "drill\ttest=yes, seismic=none\tno" in printed
    assert printed.splitlines()[-1] == "22.5\texact"
    assert out.read_text().splitlines()[1] == "test,,yes"
    assert run("decide", well, "--policy", str(out)).exit_code == 6


def test_options_and_value_of_information(well: str) -> None:
    lines = run("decide", well, "-e", "test=yes", "-e", "seismic=closed", "--option", "drill").stdout.splitlines()
    assert lines[1].startswith("yes\t77.5")
    assert run("decide", well, "--voi", "drill").stdout.splitlines()[1].startswith("oil\t")
    assert run("decide", well, "--voi", "drill", "--option", "test").exit_code == 2


def test_recall(tmp_path: Path) -> None:
    path = tmp_path / "pigs.xdsl"
    jtgpu.write(pigs(4), path)
    assert "729.225" in run("decide", str(path), "--recall", "--digits", "6").stdout
    assert "726.812" in run("decide", str(path), "--digits", "6").stdout


def test_networks_without_decisions(tmp_path: Path) -> None:
    dynamic = str(tmp_path / "rain.dynamic.json")
    jtgpu.write(umbrella(), dynamic)
    for file, said in (("asia", "has no decisions; jtgpu query"), (dynamic, "is a dynamic network: jtgpu dynamic")):
        result = run("decide", file)
        assert said in result.stderr
        assert result.exit_code == 2


@pytest.mark.parametrize("words", ["query", "mpe", "voi FILE oil", "sensitivity FILE oil=dry", "sample FILE 3", "plan"])
def test_commands_without_decisions(words: str, well: str) -> None:
    command, *more = words.replace("FILE", well).split()
    result = run(command, *(more or [well]))
    assert "has decisions: jtgpu decide finds the best policy" in result.stderr
    assert result.exit_code == 2


@pytest.mark.parametrize("command", ["decide", "show"])
def test_repaired_rows_are_reported(command: str) -> None:
    file = Path(__file__).parents[1] / "formats/data/fuzz/hugin/decisions.net"
    assert run(command, str(file)).stderr.count("did not sum to 1 and were normalised") == 1
