"""Exit codes: invalid input of every kind ends in one line, never in a traceback."""

from __future__ import annotations

import errno
import gzip
import os
import re
import subprocess
import sys
import time
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu.cli import console
from jtgpu.cli.commands import offered
from jtgpu.cli.console import exit_code, print_error
from jtgpu.cli.declared import COMMANDS
from jtgpu.errors import (
    EvidenceError,
    FileError,
    FormatError,
    ImpossibleEvidence,
    JtgpuError,
    OrderError,
    OutputExists,
    ParseError,
    TableTooLarge,
    UnknownState,
    UnknownSuffix,
    UnknownVariable,
)
from jtgpu.model.network import BayesianNetwork
from tests.cli.commands import ASIA, REFERENCE, run
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TableTooLarge("x"), 3),
        (MemoryError(), 3),
        (ImpossibleEvidence("x"), 4),
        (ParseError("x"), 5),
        (FormatError("x"), 5),
        (UnknownVariable("x"), 2),
        (UnknownState("x"), 2),
        (EvidenceError("x"), 2),
        (OrderError("x"), 2),
        (JtgpuError("x"), 1),
        (OSError("x"), 1),
        (UnknownSuffix("x"), 2),
        (FileError("x"), 2),
    ],
)
def test_every_error_has_an_exit_code(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


def test_arguments_that_a_message_advises_are_options_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    console._fields.set(offered(COMMANDS["batch"]))
    print_error(
        OutputExists("a.csv holds an unfinished run: pass resume=True to continue it or force=True to discard it")
    )
    assert "pass --resume to continue it or --force to discard it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("info", "no/such.net"), 2, "no/such.net"),
        (("info", "nets/asai.net"), 2, "asia.net"),  # the closest name
        (("info", "nets"), 2, "nets"),  # a folder
        (("info",), 2, "FILE"),
        (("batch", ASIA, "cases.csv"), 2, "Missing option '-o' / '--output'"),
        (("sample", ASIA, "x"), 2, "'x' is not a valid integer"),
        (("nothing",), 2, "nothing"),
        (("time", "tests/on_gpu"), 2, "no network file"),
        (("time", ASIA, "--json", "--csv"), 2, "exclude"),
        (("time", ASIA, "--runs", "0"), 2, "runs"),
        (("time", ASIA, "--backend", "cpo"), 2, "cpu"),
        (("time", ASIA, "--memory-limit", "much"), 2, "8GiB"),
        (("plan", ASIA, "--order", "worst"), 2, "worst"),
        (("plan", ASIA, "--order", "no/such.num"), 2, "no/such.num"),
        (("plan", ASIA, "--order-time", "-1"), 2, "time"),
        (("query", ASIA, "P(dysp)", "--max-table", "3", "--memory-limit", "1000"), 3, "max_table"),
        (("query", ASIA, "P(dysp)", "--memory-limit", "10"), 3, "memory_limit"),
        (("query", ASIA, "-e", "xray"), 2, "name=state"),
        (("query", ASIA, "-e", "xrai=yes"), 2, "'xray'"),
        (("query", ASIA, "-e", "xray=ye"), 2, "'yes'"),
        (("query", ASIA, "-e", "xray=7"), 2, "no state '7'"),
        (("query", ASIA, "-e", "xray=1"), 2, "state number 1 is 'no' (--codes index)"),
        (("query", ASIA, "-e", "xray=yes", "-e", "xray=no"), 2, "twice"),
        (("query", ASIA, "-t", "lungs"), 2, "'lung'"),
        (("query", ASIA, "-e", "lung=yes", "-e", "either=no", *REFERENCE), 4, "lung"),
        (("query", ASIA, "-e", "lung=yes", "-e", "either=no", "--backend", "cpu"), 4, "lung"),
    ],
    ids=lambda x: " ".join(Path(w).name for w in x) if isinstance(x, tuple) else "",
)
def test_wrong_usage_names_the_mistake(
    words: tuple[str, ...], code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    result = run(*words)
    assert result.exit_code == code, result.output
    assert said in " ".join(result.stderr.split())  # usage errors are wrapped in a box
    assert not result.stdout


GARBAGE = {
    "empty": (b"", 5),
    "binary": (bytes(range(256)) * 40, 5),
    "zeros": (bytes(10_000), 5),
    "cut gzip": (gzip.compress(b"net {}")[:-6], 5),
    "cut network": (Path(ASIA).read_bytes()[:700], 5),
    "a cycle": (
        b'net{} node a {states=("0" "1");} node b {states=("0" "1");}'
        + b"".join(b"potential (%c|%c) {data=((.5 .5)(.5 .5));}" % tuple(pair) for pair in (b"ab", b"ba")),
        5,
    ),
    "deep": (b"net {} node a { states = " + b"(" * 100_000, 5),
    "another format": (b"<?xml version='1.0'?><BIF/>", 5),
}


@pytest.mark.parametrize("what", GARBAGE)
@pytest.mark.parametrize("command", ["info", "plan", "query", "time"])
def test_invalid_network_files_are_rejected(what: str, command: str, tmp_path: Path) -> None:
    data, code = GARBAGE[what]
    path = tmp_path / "it.net"
    path.write_bytes(data)
    result = run(command, str(path))
    assert result.exit_code == code, result.output
    assert "it.net" in result.stderr
    assert not result.stdout


def test_a_file_without_permission_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:  # by hand: root may read every file
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("builtins.open", refuse)
    result = run("info", ASIA)
    monkeypatch.undo()
    assert result.exit_code == 2
    assert "permission denied" in result.stderr
    assert run("info", f"{ASIA}/x.net").exit_code == 2  # a file where a folder should be


def test_out_of_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(BayesianNetwork, "plan", plan)
    result = run("plan", ASIA)
    assert result.exit_code == 3
    assert "out of memory; try --memory-limit" in result.stderr
    monkeypatch.setattr("jtgpu.cli.explore.read_cases", plan)
    assert "out of memory; try fewer rows" in run("explore", str(ROOT / "README.rst")).stderr


@pytest.mark.parametrize(
    "words",
    [["learn", "CASES"], ["explore", "CASES"], ["screen", "CASES"], ["validate", ASIA, "CASES", "-t", "lung"]],
    ids=itemgetter(0),
)
def test_a_table_too_large_for_the_memory_is_not_read(
    words: list[str], cases: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jtgpu.columns.files.free_memory", lambda: 100)
    result = run(*[cases if word == "CASES" else word for word in words])
    assert result.exit_code == 3, result.output
    assert "columns need about" in result.stderr


def test_the_memory_limit_holds_for_the_table(cases: str) -> None:
    result = run("learn", cases, "--memory-limit", "100kB")
    assert (result.exit_code, "KiB is the limit (memory_limit" in " ".join(result.stderr.split())) == (3, True)
    with pytest.raises(jtgpu.TableTooLarge, match=r"8 columns .* 97\.7 KiB is the limit \(memory_limit"):
        jtgpu.learn.structure(cases, compute=jtgpu.Compute(memory_limit="100kB"))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> str:
    """2,000 cases of asia, as CSV."""
    path = tmp_path_factory.mktemp("cases") / "asia.csv"
    assert run("sample", ASIA, "2000", "--seed", "1", "-o", str(path)).exit_code == 0
    return str(path)


WRITERS = {
    "convert": ("convert", ASIA, "-o"), "fit": ("fit", ASIA, "CASES", "-o"), "batch": ("batch", ASIA, "CASES", "-o"),
    "learn": ("learn", "CASES", "--method", "greedy", "-o"), "screen": ("screen", "CASES", "-o"),
    "sample": ("sample", ASIA, "3", "-o"), "show": ("show", ASIA, "-o"), "rank": ("rank", ASIA, "-o"),
}  # fmt: skip
SUFFIX = {"sample": ".csv", "show": ".svg", "rank": ".svg", "batch": ".csv", "screen": ".csv"}


@pytest.mark.parametrize("name", WRITERS)
def test_wrong_outputs_are_usage_errors(name: str, cases: str, tmp_path: Path) -> None:
    words = [cases if word == "CASES" else word for word in WRITERS[name]]
    suffix = SUFFIX.get(name, ".net")
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    for output in ("x.foo", f"missing/x{suffix}", folder.name)[name == "sample" :]:  # samples are CSV
        result = run(*words, str(tmp_path / output))
        assert result.exit_code == 2, (output, result.output)
        assert not result.stdout
    assert [*tmp_path.iterdir()] == [folder]


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_has_the_same_exit_code_everywhere(
    name: str, cases: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    words = [cases if word == "CASES" else word for word in WRITERS[name]]
    result = run(*words, str(tmp_path / f"x{SUFFIX.get(name, '.net')}"))
    assert result.exit_code == 1, result.output
    assert "no space left" in result.stderr.lower()
    assert len([line for line in result.stderr.splitlines() if "warning" not in line]) == 1


@pytest.mark.parametrize("name", WRITERS)
def test_an_output_without_permission_is_a_usage_error_everywhere(
    name: str, cases: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = str(tmp_path / f"x{SUFFIX.get(name, '.net')}")
    original = os.open

    def refuse(path: Any, *more: Any, **named: Any) -> int:  # by hand: root may write every file
        if str(path).startswith((f"{tmp_path}/.jtgpu-", output)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return original(path, *more, **named)

    def no_folder(self: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(Path, "mkdir", no_folder)
    words = [cases if word == "CASES" else word for word in WRITERS[name]]
    result = run(*words, output)
    assert result.exit_code == 2, result.output
    assert "permission denied" in result.stderr.lower()


@pytest.mark.slow
def test_sigterm_ends_a_command_like_ctrl_c(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "jtgpu", "sample", ASIA, "30000000", "-o", str(tmp_path / "x.csv")]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        if any(tmp_path.iterdir()) or process.poll() is not None:
            break
        time.sleep(0.1)
    process.terminate()
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr.splitlines()[-1:]) == (130, ["jtgpu: interrupted"])
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("query", ASIA, "xray=yes"), "is evidence, not a question: use -e 'xray=yes'"),
        (("query", ASIA, "xray"), "'xray' is a variable: use -t 'xray'"),
        (("query", ASIA, "-e", "xray:yes"), "did you mean 'xray=yes'?"),
        (("convert", ASIA), "name the output, whose suffix is the format: -o asia.xdsl"),
        (("sample", ASIA, "-n", "5"), "there is no option -n; it is the argument N"),
        (("explore", "CASES", "-t", "id"), "the column 'id' is left out: a different value in each of its 300 rows"),
        (("validate", ASIA, "CASES", "-t", "lung"), "for a missing cell, list it in --na-values"),
    ],
)
def test_first_mistakes_get_a_hint(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    cases = tmp_path / "cases.csv"
    rows = [f"i{i},{'yes' if i % 3 else '?' if i == 6 else 'no'},{'yes' if i % 2 else 'no'}" for i in range(300)]
    cases.write_text("\n".join(["id,lung,xray", *rows]))
    result = run(*[str(cases) if word == "CASES" else word for word in words])
    assert result.exit_code == 2
    assert says in " ".join(re.sub("[\u2500-\u257f]", " ", result.stderr).split())
