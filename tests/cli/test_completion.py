"""Completion of networks, variables and states by the shell."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jtgpu.cli.completion import complete_findings, complete_networks, complete_targets, join_findings
from tests.cli.commands import ASIA, process


def at(file: str | None) -> Any:
    """The context of a command line that names this network."""
    return SimpleNamespace(params={"file": file})


def test_networks_are_bundled_ones_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asia2.net").touch()
    (tmp_path / "asia3.txt").touch()
    (tmp_path / "asia4").mkdir()
    monkeypatch.chdir(tmp_path)
    assert complete_networks("asi") == ["asia2.net", "asia4/", "asia"]
    assert complete_networks(f"{tmp_path}/asia2") == [f"{tmp_path}/asia2.net"]
    assert complete_networks("nowhere/") == []


def test_variables_and_states() -> None:
    assert complete_targets(at(ASIA), "b") == ["bronc"]
    assert complete_findings(at(ASIA), "xr") == ["xray=yes", "xray=no"]
    assert complete_findings(at(ASIA), "xray=y") == ["xray=yes"]
    assert "lung=" in complete_findings(at(ASIA), "")
    for nothing in (None, "no/such.net"):
        assert complete_targets(at(nothing), "") == complete_findings(at(nothing), "") == []


@pytest.mark.parametrize(
    ("words", "joined", "before"),
    [
        (["query", "a.net", "-e", "xray", "="], ["query", "a.net", "-e", ""], "xray="),
        (["query", "a.net", "-e", "xray", "=", "y"], ["query", "a.net", "-e", "y"], "xray="),
        (["query", "a.net", "--target", "=", "lu"], ["query", "a.net", "--target", "lu"], ""),
        (["query", "a.net", "--evidence", "=", "x", "=", "y"], ["query", "a.net", "--evidence", "y"], "x="),
        (["query", "a.net", "-e", "x"], ["query", "a.net", "-e", "x"], ""),
    ],
)
def test_bash_splits_findings(
    words: list[str], joined: list[str], before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shlex

    for name, value in (("_JTGPU_COMPLETE", "complete_bash"), ("COMP_WORDS", " ".join(["jtgpu", *words])),
                        ("COMP_CWORD", str(len(words))), ("_JTGPU_FINDING", "")):  # fmt: skip
        monkeypatch.setenv(name, value)
    join_findings()
    assert shlex.split(os.environ["COMP_WORDS"]) == ["jtgpu", *joined]
    assert os.environ["COMP_CWORD"] == str(len(joined))
    assert os.environ["_JTGPU_FINDING"] == before


def test_the_shell_gets_states() -> None:
    request = {"_JTGPU_COMPLETE": "complete_bash", "COMP_WORDS": f"jtgpu query {ASIA} -e xray = y", "COMP_CWORD": "6"}
    done = process(env=os.environ | request)
    assert (done.stdout.strip(), done.stderr) == ("yes", "")
