"""Commands as processes: streams, signals and terminals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import jtgpu
from jtgpu.model.network import BayesianNetwork
from jtgpu.util.text_table import printable as shown
from tests.cli.commands import ALARM, ASIA, REFERENCE, process, run
from tests.conftest import ROOT


def test_stdout_has_only_results() -> None:
    done = process("query", ASIA, "-t", "lung", *REFERENCE)
    assert done.stdout.startswith("lung\t")
    assert done.stderr == ""  # no progress: stderr is no terminal


def test_repaired_rows_are_reported_on_stderr(tmp_path: Path) -> None:
    path = tmp_path / "off.net"
    path.write_text('net{} node a {states=("0" "1");} potential (a) {data=(30 70);}')
    done = process("query", str(path), "--json", *REFERENCE)
    assert json.loads(done.stdout)["posteriors"]["a"]["probabilities"] == pytest.approx([0.3, 0.7])
    assert "warning" in done.stderr
    assert "100" in done.stderr


def test_a_closed_pipe_ends_silently() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "jtgpu", "query", ALARM, *REFERENCE],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()  # nobody reads
        said = child.stderr.read()
    assert child.returncode == 141
    assert said == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_behind_stdout_is_an_error() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "jtgpu", "info", ASIA],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "space" in done.stderr.lower()


@pytest.mark.slow
def test_an_interrupt_prints_the_times_so_far() -> None:
    """Ctrl-C while networks are timed: what is done is printed, the code is 130."""
    names = [ASIA] * 2000
    child = subprocess.Popen(
        [sys.executable, "-m", "jtgpu", "time", *names, "--runs", "100", *REFERENCE],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(3)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    assert "interrupted" in err
    assert out == "" or out.startswith("network")


def test_control_characters_in_names_are_escaped(tmp_path: Path) -> None:
    assert shown("a\x1b[31mb\n\udc80") == "a\\x1b[31mb\\n\\udc80"
    path = tmp_path / "bad.net"
    name = "\x1b]0;title\x07 [bold red]"
    states = {"a": [name, "[/]"]}
    jtgpu.write(BayesianNetwork(states, {}, {"a": [0.5, 0.5]}, name=name), path)
    for words in (("info",), ("plan",), ("query", *REFERENCE), ("time", "--runs", "1", *REFERENCE)):
        result = run(words[0], str(path), *words[1:])
        assert result.exit_code == 0, result.output
        assert "\x1b]0;" not in result.output
    assert "[bold red]" in run("query", str(path), *REFERENCE).stdout


def test_characters_outside_the_encoding_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "letters.net"
    jtgpu.write(BayesianNetwork({"größe": ["klein", "groß"]}, {}, {"größe": [0.5, 0.5]}), path)
    done = process("query", str(path), *REFERENCE, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.startswith("gr\\xf6\\xdfe\tklein\t0.5")


def test_a_closed_stdout_is_an_error_in_one_line() -> None:
    done = subprocess.run(
        ["bash", "-c", '"$0" -m jtgpu query "$1" -t lung --backend reference >&-', sys.executable, ASIA],
        cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "jtgpu: error: stdout is closed\n")


INTERRUPTED = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "MODULE":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
from jtgpu.cli import main
sys.argv = ["jtgpu", "query", "nets/asia.net", "-t", "lung", "--backend", "reference"]
main()
"""


@pytest.mark.parametrize(
    "module",
    ["numpy", *(pytest.param(name, marks=pytest.mark.slow) for name in ("click", "jtgpu.cli.query"))],
)
def test_an_interrupt_during_start_up_ends_in_one_line(module: str) -> None:
    code = INTERRUPTED.replace("MODULE", module)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "jtgpu: interrupted\n")
