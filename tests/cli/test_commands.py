"""The table of commands: names and lines of help, without importing the commands."""

from __future__ import annotations

import inspect

import pytest
from typer.testing import CliRunner

from jtgpu.cli import app
from jtgpu.cli.commands import COMMANDS, module_of


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_repeats_the_first_line_of_the_docstring(name: str) -> None:
    function = getattr(module_of(name), name)
    assert (inspect.getdoc(function) or "").splitlines()[0] == COMMANDS[name][1]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_is_its_own(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"], terminal_width=200)
    assert shown.exit_code == 0
    assert f"Usage: jtgpu {name}" in shown.stdout or f"Usage: root {name}" in shown.stdout


def test_help_lists_every_command() -> None:
    shown = CliRunner().invoke(app, ["--help"], terminal_width=200).stdout
    assert all(name in shown and text[:40] in shown for name, (_, text) in COMMANDS.items())


def test_a_misspelt_command_is_named() -> None:
    shown = CliRunner().invoke(app, ["qurey", "nets/asia.net"])
    assert shown.exit_code == 2
    assert "query" in shown.output
