"""Commands take bundled networks by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from jtgpu.cli import app
from jtgpu.formats.bundled import networks_folder


@pytest.mark.parametrize(
    "words",
    [
        ["query", "asia", "--backend", "reference", "--json"],
        ["plan", "asia", "--order", "num", "--json"],
        ["info", "asia", "--json"],
        ["convert", "asia", "out.bif", "--json"],
        ["mpe", "asia", "--backend", "reference", "--json"],
        ["solve", "asia", "PR", "-o", "out.PR", "--backend", "reference", "--json"],
        ["time", "asia", "--backend", "reference", "--runs", "1", "--json"],
    ],
    ids=lambda words: words[0],
)
def test_commands_find_bundled_networks(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    json.loads(result.stdout)


def test_a_misspelt_name_suggests_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("query", "plan", "info"):
        result = CliRunner().invoke(app, [command, "alrm"])
        assert result.exit_code == 2
        assert "did you mean 'alarm'?" in result.stderr


def test_a_file_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("asia").write_bytes((networks_folder() / "cancer.net").read_bytes())
    assert json.loads(CliRunner().invoke(app, ["info", "asia", "--json"]).stdout)["variables"] == 5
