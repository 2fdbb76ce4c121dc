"""Commands on files of dynamic networks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import jtgpu

from ..formats.test_dynamic_files import umbrella
from .commands import ASIA, run


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The umbrella network in a file."""
    jtgpu.write(umbrella(name="weather"), tmp_path / "w.dynamic.json")
    return str(tmp_path / "w.dynamic.json")


def test_info_and_convert(file: str, tmp_path: Path) -> None:
    about = json.loads(run("info", file, "--json").stdout)
    assert (about["kind"], about["order"], about["between_slices"]) == ("dynamic network", 1, ["rain[t-1]"])
    text = run("info", file).stdout
    assert "rain[t]" in text
    assert "dynamic JSON" in text
    assert run("convert", file, str(tmp_path / "w.xdsl")).exit_code == 0
    assert jtgpu.read(tmp_path / "w.xdsl") == jtgpu.read(file)
    done = run("convert", file, str(tmp_path / "w.net"))
    assert done.exit_code == 5
    assert "cannot contain a dynamic network; formats that can are XDSL and JSON (.dynamic.json)" in done.stderr
    assert run("convert", ASIA, str(tmp_path / "a.dynamic.json")).exit_code != 0
    assert not (tmp_path / "a.dynamic.json").exists()


@pytest.mark.parametrize(
    "words", [("query",), ("plan",), ("sample", "2"), ("mpe",), ("batch", "cases.csv", "-o", "o.csv")]
)
def test_other_commands_name_the_command(words: tuple[str, ...], file: str) -> None:
    done = run(words[0], file, *words[1:])
    assert done.exit_code == 2
    assert "is a dynamic network: jtgpu dynamic answers questions about sequences" in done.stderr.replace("\n", " ")
