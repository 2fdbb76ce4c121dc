"""``jtgpu validate`` of networks over time: the figures are those of `jtgpu.learn.validate`."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import jtgpu
from jtgpu.learn import Keys

from ..formats.test_dynamic_files import umbrella
from .commands import ASIA, run

KEYS = ("--id", "sequence", "--time", "slice")


@pytest.fixture
def file(tmp_path: Path) -> str:
    jtgpu.write(umbrella(name="weather"), tmp_path / "w.dynamic.json")
    return str(tmp_path / "w.dynamic.json")


@pytest.fixture
def days(file: str, tmp_path: Path) -> str:
    path = str(tmp_path / "days.csv")
    assert run("dynamic", "sample", file, "--samples", "12", "--steps", "5", "--seed", "3", "-o", path).exit_code == 0
    return path


def test_figures_and_picture(file: str, days: str, tmp_path: Path) -> None:
    keys, net = Keys(id="sequence", time="slice"), umbrella(name="weather")
    expected = jtgpu.learn.validate(net, pd.read_csv(days), "rain", folds=3, keys=keys)
    words = ("validate", file, days, *KEYS, "-t", "rain")
    done = run(*words, "--folds", "3", "--json", "--draw", str(tmp_path / "v.svg"))
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["rows"], report["accuracy"]) == (60, expected.accuracy)
    assert report["confusion"] == expected.confusion.tolist()
    assert (tmp_path / "v.svg").read_text() == expected.draw().text(".svg")
    whole = jtgpu.learn.validate(net, days, "rain", keys=keys)
    assert json.loads(run(*words, "--json").stdout)["log_loss"] == whole.log_loss
    assert "60 rows" in run(*words).stdout


def test_dialect_of_the_file(file: str, days: str, tmp_path: Path) -> None:
    text = Path(days).read_text().replace(",", ";")
    first, *rows = text.splitlines()
    other = tmp_path / "o.csv"
    other.write_text("\n".join([first, rows[0].replace("yes", "?").replace("no", "?"), *rows[1:]]))
    words = ("validate", file, str(other), *KEYS, "-t", "rain", "--delimiter", ";", "--json")
    assert "'?' is not a state" in run(*words).stderr
    done = run(*words, "--na-values", "?")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["target_missing"] == 1


def test_mistakes(file: str, days: str, tmp_path: Path) -> None:
    def error(*words: str) -> str:
        done = run("validate", *words)
        assert done.exit_code == 2
        return " ".join(done.stderr.split())

    assert "--id plaice is no column" in error(file, days, "--id", "plaice", "-t", "rain")
    assert "there is no variable 'rian'; did you mean 'rain'" in error(file, days, *KEYS, "-t", "rian")
    assert "the rows of sequences are those of a network over time" in error(ASIA, days, *KEYS, "-t", "bronc")
    changed = pd.read_csv(days)
    changed.loc[changed["sequence"] == 4, "slice"] += [0, 1, 2, 3, 4]
    gaps = str(tmp_path / "g.csv")
    changed.to_csv(gaps, index=False)
    assert "--on-gap empty" in error(file, gaps, *KEYS, "-t", "rain")
    assert run("validate", file, gaps, *KEYS, "-t", "rain", "--on-gap", "empty").exit_code == 0
