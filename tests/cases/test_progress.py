"""``progress=True``: a line on stderr, for files and for tables in memory."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import jtgpu
from jtgpu.cases import answer_file
from jtgpu.cases import solver as module
from jtgpu.cases.query import TableQuery
from jtgpu.cases.solver import progress_of
from tests.conftest import ROOT

pytest.importorskip("pyarrow", reason="pyarrow is not installed")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def tree() -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = jtgpu.read(ROOT / "nets" / "asia.net").compile(backend="reference")
    return made


def test_a_terminal_has_one_line_that_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(module, "REDRAW", 0.0)
    with progress_of(True) as report:
        assert report is not None
        report(1000, 10, 100)
        report(50_000, 50, 100)
        report(100_000, 100, 100)
    first, second, third = stream.getvalue().split("\r")[1:]
    assert first.startswith("1,000 cases   10%")
    assert second.startswith("50,000 cases   50%")
    assert "cases/s" in second
    assert "left" in second
    assert third.startswith("100,000 cases  100%")
    assert third.endswith("\n")


def test_a_log_has_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with progress_of(True) as report:
        assert report is not None
        for i in range(1, 1001):
            report(i, i, 1000)
    assert len(stream.getvalue().splitlines()) == 1
    assert stream.getvalue().startswith("1,000 cases  100%")


def test_nothing_is_shown_by_default(
    tree: jtgpu.JunctionTree, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "cases.csv").write_text("xray\nyes\nno\n")
    tree.predict_proba({"xray": ["yes", "no"]}, "lung")
    answer_file(tree, tmp_path / "cases.csv", tmp_path / "answers.csv", progress=False)
    assert capsys.readouterr().err == ""
    with pytest.raises(jtgpu.EvidenceError, match="progress must be True, False or a function"):
        tree.predict_proba({"xray": ["yes", "no"]}, "lung", progress=3)  # type: ignore[call-overload]


def test_files_and_tables_report_their_cases(
    tree: jtgpu.JunctionTree, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cases.csv").write_text("xray\n" + "yes\nno\n" * 50)
    answer_file(tree, tmp_path / "cases.csv", tmp_path / "answers.csv", progress=True, chunk=10)
    assert "100 cases  100%" in capsys.readouterr().err
    monkeypatch.setattr(TableQuery, "rows_per_call", lambda *_: 30)
    tree.predict_proba({"xray": ["yes", "no"] * 50}, "lung", progress=True)
    assert "100 cases  100%" in capsys.readouterr().err
    seen: list[tuple[int, int, int]] = []
    tree.predict({"xray": ["yes", "no"] * 50}, "lung", progress=lambda *numbers: seen.append(numbers))
    assert seen == [(n, n, 100) for n in (30, 60, 90, 100)]
