"""``jtgpu warmup``: what it says; the loops themselves are compiled by a small stand-in."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from jtgpu.cli import app, speed
from jtgpu.util.loops import CompileOutcome


@pytest.mark.parametrize(
    ("done", "text"),
    [
        (CompileOutcome("/site/_loops_v3.so", "", 0, 0.1), "Nothing to do: the loops are part of this installation"),
        (CompileOutcome("/cache/loops", "the sources have changed", 3, 2.0), "Compiled 3 loops in 2"),
        (CompileOutcome("/cache", "JTGPU_LOOPS=jit", 0, 0.1), "Nothing to do: all loops are cached in /cache"),
    ],
    ids=["extension", "compiled", "cached"],
)
def test_it_says_what_was_done(done: CompileOutcome, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_loops(progress: Callable[[str], None]) -> CompileOutcome:
        progress("1 of 1")
        return done

    monkeypatch.setattr(speed, "compile_loops", compile_loops)
    shown = CliRunner().invoke(app, ["warmup"])
    assert shown.exit_code == 0
    assert text in shown.stdout
    shown = CliRunner().invoke(app, ["warmup", "--json"])
    assert json.loads(shown.stdout) == done._asdict()
