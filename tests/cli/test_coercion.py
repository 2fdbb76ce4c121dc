"""Options of plain types are read without pydantic, with the errors of Typer."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from jtgpu.cli.commands import _Command


def app() -> typer.Typer:
    made = typer.Typer()

    @made.command(cls=_Command)
    def run(
        names: Annotated[list[str], typer.Argument()],
        n: Annotated[int, typer.Option(min=1, max=9)] = 3,
        free: Annotated[int | None, typer.Option()] = None,
        share: Annotated[float, typer.Option(min=0.0)] = 0.5,
        word: str = "w",
        flag: bool = False,
        many: Annotated[list[str] | None, typer.Option()] = None,
    ) -> None:
        print([names, n, free, share, word, flag, many])

    return made


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a"], "[['a'], 3, None, 0.5, 'w', False, None]"),
        (["a", "b", "--n", "9", "--free", "-4"], "[['a', 'b'], 9, -4, 0.5, 'w', False, None]"),
        (["a", "--share", "2", "--word", "", "--flag"], "[['a'], 3, None, 2.0, '', True, None]"),
        (["a", "--many", "x", "--many", "1"], "[['a'], 3, None, 0.5, 'w', False, ['x', '1']]"),
    ],
)
def test_plain_values(words: list[str], expected: str) -> None:
    result = CliRunner().invoke(app(), words)
    assert result.output.strip() == expected


@pytest.mark.parametrize(
    "words", [["a", "--n", "0"], ["a", "--n", "x"], ["a", "--share", "x"], ["a", "--n", "1.5"], []]
)
def test_wrong_values_are_usage_errors(words: list[str]) -> None:
    assert CliRunner().invoke(app(), words).exit_code == 2
