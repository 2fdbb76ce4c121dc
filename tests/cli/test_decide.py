"""``jtgpu decide``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import jtgpu
from tests.cli.commands import run
from tests.decisions.test_policies import oil, pigs


@pytest.fixture
def well(tmp_path: Path) -> str:
    path = tmp_path / "oil.net"
    jtgpu.write(oil(), path)
    return str(path)


def test_policy(well: str, tmp_path: Path) -> None:
    result = run("decide", well, "--json")
    found = json.loads(result.stdout)
    assert (round(found["expected_utility"], 9), found["method"]) == (22.5, "exact")
    assert found["policy"]["test"] == [{"known": {}, "option": "yes"}]
    out = tmp_path / "policy.csv"
    printed = run("decide", well, "--policy", str(out)).stdout
    assert "drill\ttest=yes, seismic=none\tno" in printed
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


def test_networks_without_decisions(well: str) -> None:
    result = run("decide", "asia")
    assert "no decisions" in result.stderr
    assert result.exit_code == 2
    assert "jtgpu decide" in run("query", well).stderr
