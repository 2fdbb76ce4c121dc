"""Run commands in this process, as a process, and on a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from click.testing import CliRunner

from jtgpu.cli import app
from tests.conftest import ROOT

NETS = ROOT / "nets"

ASIA, ALARM = str(NETS / "asia.net"), str(NETS / "alarm.net")

REFERENCE = ("--backend", "reference")


def run(*words: str) -> Any:
    """One command within this process; a traceback is a failure, whatever was expected."""
    result = CliRunner().invoke(app, [*words])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    return result


def process(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """One command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "jtgpu", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


def on_terminal(*words: str) -> str:
    """What a command shows on a terminal (stdout and stderr on one)."""
    import pty

    parent, child = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.Popen(
        [sys.executable, "-m", "jtgpu", *words], cwd=ROOT, stdin=child, stdout=child, stderr=child, env=environment
    )
    os.close(child)
    text = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        text += piece
    os.close(parent)
    assert done.wait(60) == 0
    return text.decode("utf-8")
