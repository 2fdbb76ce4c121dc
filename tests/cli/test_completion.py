"""Completion of networks, variables and states by the shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import jtgpu
from jtgpu.cli import shell_request
from jtgpu.cli.shell_request import join_findings, match_findings, match_networks, match_variables, read_names
from jtgpu.formats.bundled import bundled_files
from tests.cli.commands import ASIA, process
from tests.conftest import ROOT
from tests.support.bundled import slow_when_large


def test_networks_are_bundled_ones_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asia2.net").touch()
    (tmp_path / "asia3.txt").touch()
    (tmp_path / "asia4").mkdir()
    monkeypatch.chdir(tmp_path)
    assert match_networks("asi") == ["asia2.net", "asia4/", "asia"]
    assert match_networks(f"{tmp_path}/asia2") == [f"{tmp_path}/asia2.net"]
    assert match_networks("nowhere/") == []


def test_variables_and_states() -> None:
    names = read_names(ASIA)
    assert match_variables(names, "b") == ["bronc"]
    assert match_findings(names, "xr") == ["xray=yes", "xray=no"]
    assert match_findings(names, "xray=y") == ["xray=yes"]
    assert "lung=" in match_findings(names, "")
    assert match_variables(names, "lung,br") == ["lung,bronc"]
    for nothing in (None, "no/such.net"):
        assert read_names(nothing) == {}


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

    for name, value in (("_JTGPU_COMPLETE", "bash_complete"), ("COMP_WORDS", " ".join(["jtgpu", *words])),
                        ("COMP_CWORD", str(len(words))), ("_JTGPU_FINDING", "")):  # fmt: skip
        monkeypatch.setenv(name, value)
    join_findings()
    assert shlex.split(os.environ["COMP_WORDS"]) == ["jtgpu", *joined]
    assert os.environ["COMP_CWORD"] == str(len(joined))
    assert os.environ["_JTGPU_FINDING"] == before


def completed(line: str, shell: str = "bash", **environment: str) -> str:
    """What a shell gets for the last word of a command line."""
    words = line.replace("=", " = ").split() + ([""] if line.endswith((" ", "=")) else [])
    last = words[-1] if shell == "fish" else str(len(words) - 1)
    request = {"_JTGPU_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": last}
    done = process(env=os.environ | request | environment)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("jtgpu query as", ["asia"]),
        ("jtgpu lea", ["learn"]),
        (f"jtgpu query {ASIA} -e xray=", ["yes", "no"]),
        (f"jtgpu query {ASIA} --backend cpu -t l", ["lung"]),
        ("jtgpu voi asia l", ["lung"]),
        ("jtgpu fit asia cases.csv --fixed lung,br", ["lung,bronc"]),
        ("jtgpu learn --metho", ["--method"]),
        ("jtgpu learn --method o", ["order"]),
        ("jtgpu query no/such.net -e x", []),
    ],
)
def test_the_shell_gets_words(line: str, expected: list[str]) -> None:
    assert [word.partition(",")[2] for word in completed(line).split()] == expected


def test_other_shells() -> None:
    assert completed("jtgpu query as", "zsh").split() == ["plain", "asia", "_"]
    assert completed("jtgpu query as", "fish").split() == ["plain,asia"]


@pytest.mark.parametrize("network", ["asia", ASIA])
def test_completion_imports_a_parser_once_for_a_file_and_nothing_else(network: str, tmp_path: Path) -> None:
    request = {
        "_JTGPU_COMPLETE": "bash_complete", "COMP_WORDS": f"jtgpu query {network} -e xray = y", "COMP_CWORD": "6",
        "PYTHONPATH": str(ROOT), "JTGPU_CACHE_DIR": str(tmp_path),
    }  # fmt: skip
    code = "import atexit, sys, jtgpu.cli as c; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); c.main()"
    heavy = {"numba", "networkx", "scipy", "jtgpu.inference", "jtgpu.backends", "jtgpu.plans", "jtgpu.cli.query"}
    light = heavy | {"numpy", "jtgpu.formats.hugin", "jtgpu.model"}
    for unwanted in (light if network == "asia" else heavy, light):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | request, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.stdout.split() == ["plain,yes"]
        assert not unwanted & set(done.stderr.split())


def test_completion_is_installed_once(tmp_path: Path) -> None:
    home = os.environ | {"HOME": str(tmp_path), "SHELL": "/bin/bash"}
    for _ in range(2):
        assert "works in the next shell" in process("--install-completion", env=home).stdout
    assert (tmp_path / ".bashrc").read_text() == 'eval "$(_JTGPU_COMPLETE=bash_source jtgpu)"\n'
    assert process("--install-completion", env=home | {"SHELL": "/bin/tcsh"}).returncode == 2
    assert "_JTGPU_COMPLETE=zsh_complete" in process("--show-completion", env=home | {"SHELL": "/bin/zsh"}).stdout


@pytest.mark.parametrize("name", slow_when_large(jtgpu.networks()))
def test_names_of_bundled_networks_are_those_that_a_parser_finds(name: str) -> None:
    path = str(bundled_files()[name])
    found = shell_request._scanned(path)
    assert found == shell_request._parsed(path)
    assert [*found] == [*jtgpu.load(name).variables]


def test_stored_names_are_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    text = Path(ASIA).read_text()
    assert next(iter(shell_request.read_names("asia"))) == "asia"  # the bundled network
    Path("asia").write_text(text.replace("tub", "tuberculosis"))  # a file takes precedence
    assert "tuberculosis" in shell_request.read_names("asia")
    Path("asia").write_text(text.replace("tub", "tb"))
    assert "tb" in shell_request.read_names("asia")
    stored = tmp_path / "cache" / "completion.json"
    assert json.loads(stored.read_text())["key"] == str(tmp_path / "asia")
    for damaged in ("", "[]", '{"key": 1}'):
        stored.write_text(damaged)
        assert "tb" in shell_request.read_names("asia")
    Path("asia").unlink()
    assert "tub" in shell_request.read_names("asia")
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(stored))  # a folder that cannot be made
    assert "tub" in shell_request.read_names("asia")


@pytest.mark.parametrize("word", ["--ev", "-e xr", "as"])
def test_completion_imports_little(word: str) -> None:
    words = f"jtgpu query {'asia ' if word[0] == '-' else ''}{word}"
    code = (
        "import sys; from jtgpu.cli import main; import os\n"
        "os._exit = lambda code: print(*(m for m in ('numpy', 'gzip', 'platformdirs', 'textwrap') if m in sys.modules))"
        "\nmain()"
    )
    environment = os.environ | {
        "_JTGPU_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert "asia" in done.stdout or "--evidence" in done.stdout or "xray" in done.stdout
    assert done.stdout.splitlines()[-1].replace("platformdirs", "").strip() == ""
