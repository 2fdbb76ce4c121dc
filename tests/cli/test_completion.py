"""Completion of networks, variables and states by the shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

import jtgpu
from jtgpu.cli import shell_request
from jtgpu.cli.commands import COMMANDS, module_of
from jtgpu.cli.options import complete_findings, complete_networks, complete_targets
from jtgpu.cli.shell_request import ARGUMENT, OPTIONS, join_findings
from jtgpu.formats.bundled import bundled_files
from tests.cli.commands import ASIA, process
from tests.conftest import ROOT
from tests.support.bundled import slow_when_large


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
    assert complete_targets(at(ASIA), "lung,br") == ["lung,bronc"]
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


def test_requests_know_the_options_that_commands_declare() -> None:
    declared: dict[str, dict[str, str]] = {}
    for name in COMMANDS:
        app = typer.Typer()
        app.command(name)(getattr(module_of(name), name))
        options: dict[str, str] = {}
        first, *others = typer.main.get_command(app).params
        for parameter in [first, *others]:
            complete = getattr(parameter, "_custom_shell_complete", None)
            names = {getattr(c.cell_contents, "__name__", "") for c in getattr(complete, "__closure__", None) or ()}
            kinds = {n.removeprefix("complete_") for n in names if n.startswith("complete_")}
            if kinds:
                words = [ARGUMENT] if parameter.param_type_name == "argument" else parameter.opts
                options |= dict.fromkeys(words if parameter is not first else ["first"], kinds.pop())
        if options.pop("first", "") == "networks":
            declared[name] = options
    kind = {"match_findings": "findings", "match_variables": "targets"}
    assert declared == {name: {o: kind[m.__name__] for o, m in found.items()} for name, found in OPTIONS.items()}


REQUESTS = {
    "network": "jtgpu query as",
    "state": f"jtgpu query {ASIA} -e xray=",
    "variable": f"jtgpu query {ASIA} --backend cpu -t ",
    "argument": "jtgpu voi asia l",
    "punctuation": "jtgpu query marks.net -e ",
    "nothing": "jtgpu query no/such.net -e ",
}
QUICK = {("bash", "state"), ("zsh", "punctuation"), ("fish is-args", "nothing")}
MARKS = """net {}
node a { states = ( "y$1" "n:o" "it's" ); }
potential ( a ) { data = ( 0.5 0.25 0.25 ); }
"""


@pytest.mark.parametrize(
    ("shell", "request_"),
    [
        pytest.param(shell, line, id=f"{shell}, {name}", marks=() if (shell, name) in QUICK else pytest.mark.slow)
        for shell in ("bash", "zsh", "fish", "fish is-args")
        for name, line in REQUESTS.items()
    ],
)
def test_answers_are_those_of_typer(shell: str, request_: str, tmp_path: Path) -> None:
    (tmp_path / "marks.net").write_text(MARKS)
    shell, _, action = shell.partition(" ")
    words = request_.replace("=", " = ").split() + ([""] if request_.endswith((" ", "=")) else [])
    environment = os.environ | {
        "_JTGPU_COMPLETE": f"complete_{shell}", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": request_, "_TYPER_COMPLETE_FISH_ACTION": action or "get-args",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    typer_only = "import jtgpu.cli.shell_request as r; r.answer = lambda: False; import jtgpu.cli; jtgpu.cli.main()"
    here, theirs = (
        subprocess.run(
            [sys.executable, *how], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        for how in (["-m", "jtgpu"], ["-c", typer_only])
    )
    assert (here.stdout, here.stderr, here.returncode) == (theirs.stdout, theirs.stderr, theirs.returncode)


@pytest.mark.parametrize("network", ["asia", ASIA])
def test_completion_imports_a_parser_once_for_a_file_and_nothing_else(network: str, tmp_path: Path) -> None:
    request = {
        "_JTGPU_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": f"jtgpu query {network} -e xray=",
        "PYTHONPATH": str(ROOT), "JTGPU_CACHE_DIR": str(tmp_path),
    }  # fmt: skip
    code = "import sys, jtgpu.cli; jtgpu.cli.main(); print(*sys.modules, file=sys.stderr)"
    heavy = {"numba", "networkx", "scipy", "rich", "typer", "jtgpu.inference", "jtgpu.backends", "jtgpu.plans"}
    light = heavy | {"numpy", "jtgpu.formats.hugin", "jtgpu.model"}
    for unwanted in (light if network == "asia" else heavy, light):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | request, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        assert done.stdout == '_arguments \'*: :(("xray=yes"\n"xray=no"))\'\n'
        assert not unwanted & set(done.stderr.split())


def test_completion_of_networks_imports_no_parser(tmp_path: Path) -> None:
    request = {"_JTGPU_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "jtgpu query as", "PYTHONPATH": str(ROOT)}
    code = "import sys, jtgpu.cli; jtgpu.cli.main(); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | request, capture_output=True, text=True, check=True
    )
    assert done.stdout == "_arguments '*: :((\"asia\"))'\n"
    assert not {"numpy", "typer", "jtgpu.model"} & set(done.stderr.split())


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
