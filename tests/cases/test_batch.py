"""The command ``jtgpu batch``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jtgpu.cli import app
from tests.cases.asia_files import ASIA, N, answers, assert_same, csv_text, only, parquet, rows_done
from tests.conftest import ROOT
from tests.support.examples import slow

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


def invoke(*words: object) -> Any:
    return CliRunner().invoke(app, ["batch", ASIA, *map(str, words), "--backend", "reference"])


def test_batch_writes_the_answers(rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_bytes(csv_text(rows))
    out = tmp_path / "o.csv"
    done = invoke(tmp_path / "c.csv", "-o", out, "-t", "lung", "--keep", "id", "--log-evidence")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "500 cases, 1 target" in done.stdout
    assert_same(answers(out), expected)
    done = invoke(tmp_path / "c.csv", "-o", out, "-t", "lung,tub", "--json", "--force")
    found = json.loads(done.stdout)
    assert (found["cases"], found["targets"], found["ignored"]) == (N, ["lung", "tub"], ["id"])
    assert "not variables: id" in done.stderr
    assert list(answers(out)) == ["lung=yes", "lung=no", "tub=yes", "tub=no"]


def test_batch_exit_codes(rows: list[list[str]], tmp_path: Path) -> None:
    cases, out = tmp_path / "c.csv", tmp_path / "o.csv"
    cases.write_bytes(csv_text(rows))
    (tmp_path / "bad.csv").write_bytes(b"xray,asia\nyes,no\nja,no\n")
    (tmp_path / "ragged.csv").write_bytes(b"xray,asia\nyes\n")
    (tmp_path / "never.csv").write_bytes(b"either,tub\nno,yes\n")
    assert [
        invoke(*words, "-o", out).exit_code
        for words in (
            (cases, "-t", "lungs"), (cases, "--evidence-columns", "smoky"), (tmp_path / "no.csv",),
            (cases, "--on-error", "maybe"), (cases, "--delimiter", "ab"), (cases, "--encoding", "utf-16"),
            (cases, "--compression", "zip"), (tmp_path / "bad.csv",), (tmp_path / "ragged.csv", "-f"),
            (tmp_path / "never.csv", "-f"),
        )
    ] == [2, 2, 2, 2, 2, 2, 2, 2, 5, 4]  # fmt: skip
    assert not out.exists()
    assert invoke(cases, "-o", tmp_path / "o.doc").exit_code == 2
    done = invoke(tmp_path / "never.csv", "-o", out, "-f", "--on-error", "flag")
    assert done.exit_code == 0
    assert "1 of 1 case has no result" in done.stderr


SLOW = """
import sys, time
import jtgpu.cases.solver as solve
original = solve.CaseSolver.solve
def slow(self, *given):
    time.sleep(0.05)
    return original(self, *given)
solve.CaseSolver.solve = slow
import jtgpu.cases.writing.resumable as output
output.SYNC_INTERVAL = 0.0
from jtgpu.cli import main
sys.argv = ["jtgpu", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), *slow((signal.SIGKILL, -9), (signal.SIGTERM, 130))])
def test_a_killed_batch_run_can_be_resumed(
    rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, how: signal.Signals, code: int
) -> None:
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / "o.parquet"
    words = ["batch", ASIA, str(cases), "-o", str(out), "-t", "lung", "--keep", "id", "--log-evidence",
             "--backend", "reference", "--chunk", "10", "--resume"]  # fmt: skip
    journal = tmp_path / "o.parquet.unfinished" / "journal.jsonl"
    for lines in (4, 9):
        process = subprocess.Popen([sys.executable, "-c", SLOW, *words], cwd=ROOT, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if journal.exists() and journal.read_bytes().count(b"\n") >= lines:
                break
            time.sleep(0.01)
        process.send_signal(how)
        process.communicate()
        assert process.returncode == code
        assert not out.exists()
    done = rows_done(journal.parent)
    assert done >= 80
    finished = subprocess.run(
        [sys.executable, "-m", "jtgpu", *words, "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(finished.stdout)["resumed"] >= done
    assert_same(answers(out), expected)
    only(tmp_path, "cases", "o.parquet")


@pytest.mark.slow
def test_batch_shows_a_progress_bar_only_on_a_terminal(rows: list[list[str]], tmp_path: Path) -> None:
    cases = parquet(tmp_path / "cases", rows)
    words = ["batch", ASIA, str(cases), "-t", "lung", "--backend", "reference", "--chunk", "20", "-o"]
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        process = subprocess.Popen(
            [sys.executable, "-c", SLOW, *words, str(tmp_path / "a.csv")], cwd=ROOT, stderr=theirs,
            stdout=subprocess.PIPE, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        )  # fmt: skip
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # what a terminal says when nobody is left at its other end
            while part := terminal.read(4096):
                seen += part
        out = process.communicate()[0]
    assert process.returncode == 0
    assert b" cases" in seen
    assert b"cases/s" in seen
    assert re.search(rb"\d:\d\d left", seen)
    assert out.startswith(str(tmp_path).encode())
    plain = subprocess.run(
        [sys.executable, "-m", "jtgpu", *words, str(tmp_path / "b.csv")], cwd=ROOT, capture_output=True, check=True
    )
    assert plain.stderr.decode().splitlines() == [
        f"jtgpu: warning: {cases}: ignored columns that are not variables: id"
    ]
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
