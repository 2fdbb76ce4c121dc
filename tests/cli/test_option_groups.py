"""Option groups: dataclasses whose fields are options of a command."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from jtgpu.cli.options import Without, expand_groups


@dataclass(frozen=True)
class Colours:
    front: Annotated[str, typer.Option("--front", "-f")] = "black"
    back: Annotated[str, typer.Option("--back")] = "white"


@expand_groups
def draw(name: str, *, colours: Annotated[Colours, Without("back")], copies: int = 1) -> None:
    print(name, colours.front, colours.back, copies)


def test_a_group_is_replaced_by_its_options() -> None:
    assert list(inspect.signature(draw).parameters) == ["name", "front", "copies"]


def test_omitted_options_keep_their_defaults() -> None:
    app = typer.Typer()
    app.command()(draw)
    assert CliRunner().invoke(app, ["circle", "-f", "red", "--copies", "2"]).stdout == "circle red white 2\n"
    assert CliRunner().invoke(app, ["circle", "--back", "blue"]).exit_code == 2
