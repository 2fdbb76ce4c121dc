"""Commands on files with numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jtgpu

from ..mixed.test_lauritzen import incinerator


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "jtgpu", *args], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("numbers") / "waste.net"
    jtgpu.write(incinerator(), path)
    return str(path)


def test_query(file: str) -> None:
    done = run("query", file, "-e", "W=industrial", "-e", "L=1.1", "-e", "C=-0.9", "--json", "--backend", "reference")
    answer: dict[str, Any] = json.loads(done.stdout)
    expected = incinerator().compile("reference").posteriors({"W": "industrial", "L": 1.1, "C": -0.9})
    assert answer["posteriors"]["B"]["probabilities"] == expected["B"].probabilities.tolist()
    assert (answer["posteriors"]["E"]["mean"], answer["posteriors"]["E"]["sd"]) == (
        expected["E"].mean,
        expected["E"].sd,
    )
    assert list(answer["posteriors"]["E"]["quantiles"]) == ["0.05", "0.95"]


def test_interval_and_targets(file: str) -> None:
    done = run("query", file, "-e", "C=-2..", "-t", "B,C", "--backend", "reference")
    expected = incinerator().compile("reference").posteriors({"C": (-2.0, float("inf"))})
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert lines[0] == ["variable", "state", "P"]
    assert float(lines[1][2]) == pytest.approx(expected["B"]["stable"], rel=1e-12)
    assert lines[3][:2] == ["number", "mean"]
    assert lines[4][0] == "C"
    assert float(lines[4][1]) == pytest.approx(expected["C"].mean, rel=1e-12)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["query", "FILE", "-e", "C=warm"], "'C' is a number: expected a value such as C=41.5"),
        (["query", "FILE", "-e", "C=nan"], "'C' is a number: expected a value such as C=41.5"),
        (["query", "FILE", "-e", "C=inf..3"], "or an interval such as C=30..40"),
        (["time", "FILE"], "has numbers: only networks of variables with states are timed"),
        (["query", "FILE", "-e", "C=1", "-e", "C=2"], "evidence on 'C' is given twice"),
        (["query", "FILE", "MPE()"], "for which query takes --evidence and --target only"),
        (["plan", "FILE"], "this command needs variables with states only"),
        (["sample", "FILE", "2"], "this command needs variables with states only"),
    ],
)
def test_errors(args: list[str], message: str, file: str) -> None:
    done = run(*[file if a == "FILE" else a for a in args])
    assert done.returncode != 0
    words = " ".join(done.stderr.replace("│", " ").split())
    assert message in words
    assert "Traceback" not in done.stderr


def test_info_and_convert(file: str, tmp_path: Path) -> None:
    about = json.loads(run("info", file, "--json").stdout)
    assert (about["kind"], about["numbers"]) == ("mixed network", ["E", "C", "D", "L", "Min", "Mout"])
    target = tmp_path / "a.mixed.json"
    assert run("convert", file, str(target)).returncode == 0
    assert jtgpu.read(target) == jtgpu.read(file)
