"""``jtgpu validate``: the figures are those of `jtgpu.learn.validate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import jtgpu
from tests.cli.commands import run


@pytest.fixture
def cases(tmp_path: Path) -> str:
    pytest.importorskip("pandas")
    path = tmp_path / "cases.csv"
    jtgpu.load("asia").compile("cpu").sample(120, seed=2).to_frame().to_csv(path, index=False)
    return str(path)


def test_figures_and_picture(cases: str, tmp_path: Path) -> None:
    expected = jtgpu.learn.validate(jtgpu.load("asia"), cases, "bronc", folds=3)
    done = run("validate", "asia", cases, "-t", "bronc", "--folds", "3", "--json", "--draw", str(tmp_path / "v.svg"))
    report = json.loads(done.stdout)
    assert report["accuracy"] == expected.accuracy
    assert report["confusion"] == expected.confusion.tolist()
    assert report["states"]["yes"]["AUC"] == expected.auc("yes")
    assert (tmp_path / "v.svg").read_text() == expected.draw().text(".svg")
    printed = run("validate", "asia", cases, "-t", "bronc", "--folds", "3").stdout.splitlines()
    assert printed[0].split("\t")[:3] == ["bronc", "rows", "precision"]
    assert printed[1].split("\t")[1] == str(int(expected.support[0]))
    assert "120 rows, 3 folds" in printed[3]


def test_wrong_target(cases: str) -> None:
    assert run("validate", "asia", cases, "-t", "bronk").exit_code == 2
