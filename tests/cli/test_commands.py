"""The table of commands: names and lines of help, without importing the commands."""


import importlib
from typing import Annotated, Any

import click
import pytest
from click.testing import CliRunner

from jtgpu.cli import app
from jtgpu.cli.commands import _ClickCommand, offered, summary
from jtgpu.cli.declared import COMMANDS, Command
from jtgpu.options.record import Opt, Record, fields_of


@pytest.mark.parametrize("name", COMMANDS)
def test_the_function_of_a_command_takes_its_records(name: str) -> None:
    command = COMMANDS[name]
    function = getattr(importlib.import_module(f"jtgpu.cli.{command.module or name}"), name)
    types = [kind for argument, kind in function.__annotations__.items() if argument != "return"]
    assert types == [record.__name__ for record in (command.record, *command.shared)]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_of_a_command_is_declared_twice(name: str) -> None:
    command = COMMANDS[name]
    names = [n for record, own in command.shared.items() for n in own.split() or fields_of(record)]
    names += fields_of(command.record)
    assert len(set(names)) == len(names) == len(offered(command))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_is_its_own(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"], terminal_width=200)
    assert shown.exit_code == 0
    assert f"Usage: jtgpu {name}" in shown.stdout or f"Usage: root {name}" in shown.stdout


def test_help_lists_every_command() -> None:
    shown = CliRunner().invoke(app, ["--help"], terminal_width=200).stdout
    assert all(name in shown and summary(name)[:40] in shown for name in COMMANDS)


def test_a_misspelt_command_is_named() -> None:
    shown = CliRunner().invoke(app, ["qurey", "nets/asia.net"])
    assert shown.exit_code == 2
    assert "query" in shown.output


class Words(Record):
    """Words."""

    names: Annotated[tuple[str, ...], Opt("Names.", "NAMES...")]
    n: Annotated[int, Opt("N.", least=1, most=9)] = 3
    free: Annotated[int | None, Opt("Free.")] = None
    share: Annotated[float, Opt("Share.", least=0)] = 0.5
    flag: Annotated[bool, Opt("Flag.")] = False
    many: Annotated[tuple[str, ...] | None, Opt("Many.")] = None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a"], {}),
        (["a", "b", "--n", "9", "--free", "-4"], {"names": ("a", "b"), "n": 9, "free": -4}),
        (["a", "--share", "2", "--flag"], {"share": 2.0, "flag": True}),
        (["a", "--many", "x", "--many", "1"], {"many": ("x", "1")}),
    ],
)
def test_values_of_options(words: list[str], expected: dict[str, Any]) -> None:
    context = _ClickCommand("words", Command("", Words)).make_context("words", words)
    given = {k: x for k, x in context.params.items() if k in expected}
    assert given == expected


@pytest.mark.parametrize("line", ["a --n 0", "a --n x", "a --share -1", "a --n 1.5", ""])
def test_wrong_values_are_usage_errors(line: str) -> None:
    with pytest.raises(click.UsageError):
        _ClickCommand("words", Command("", Words)).make_context("words", line.split())
