"""``jtgpu show``: files, parts of a network, junction trees; errors before anything is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import jtgpu
from tests.cli.commands import ASIA, REFERENCE, run
from tests.model.test_editing_kinds import decisions, dynamic, mixed, mixed_dynamic


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a.svg"
    done = run("show", ASIA, "-e", "xray=yes", "-t", "lung", "-o", str(file), *REFERENCE)
    assert done.exit_code == 0, done.output
    with jtgpu.load("asia").compile("reference") as tree:
        expected = jtgpu.draw.show(tree, {"xray": "yes"}, targets="lung")
    assert file.read_text("utf-8") == expected.text(".svg")
    again = run("show", ASIA, "-o", str(file), *REFERENCE)
    assert again.exit_code == 6
    assert run("show", ASIA, "-o", str(file), "--force", *REFERENCE).exit_code == 0


def test_a_page(tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    assert run("show", ASIA, "--names", "-o", str(file)).exit_code == 0
    assert file.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_stdout() -> None:
    done = run("show", ASIA, "--around", "xray", "--hops", "1", *REFERENCE)
    assert done.exit_code == 0
    ElementTree.fromstring(done.stdout)
    assert "2 of 8 variables" in done.stdout


def test_a_junction_tree() -> None:
    done = run("show", ASIA, "--tree", "--order", "min-fill")
    assert done.stdout == jtgpu.draw.show(jtgpu.load("asia").plan("min-fill")).text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "a.png"], "neither .svg nor .html"),
        (["--tree", "-e", "xray=yes"], "has no evidence"),
        (["--around", "lungs"], "did you mean"),
        (["-e", "xray=maybe"], "maybe"),
    ],
)
def test_errors(words: list[str], message: str) -> None:
    done = run("show", ASIA, *words)
    assert done.exit_code == 2
    assert message in " ".join(done.output.replace("\u2502", " ").split())


def test_impossible_evidence() -> None:
    assert run("show", ASIA, "-e", "tub=yes", "-e", "either=no", *REFERENCE).exit_code == 4


def test_every_kind_is_drawn(tmp_path: Path) -> None:
    """Networks with numbers and over time were refused, although jtgpu.draw.show draws them."""
    for net, suffix, given, says in (
        (mixed(), ".mixed.json", "height=180", "weight"), (mixed_dynamic(), ".dynamic.json", "load[0]=1", "load[1]"),
        (dynamic(), ".dynamic.json", "wet[0]=yes", "rain[1]"), (decisions(), ".net", "test=yes", "health"),
    ):  # fmt: skip
        file = tmp_path / f"net{suffix}"
        jtgpu.write(net, file)
        for words in ([], ["--names"], ["-e", given]):
            done = run("show", str(file), *words, *REFERENCE)
            assert (done.exit_code, done.stderr) == (0, "")
            ElementTree.fromstring(done.stdout)
            assert says in done.stdout
    jtgpu.write(mixed(), tmp_path / "m.mixed.json")
    assert run("rank", str(tmp_path / "m.mixed.json")).stdout.splitlines()[1].split("\t")[1] == "sex"
    assert "no junction tree of its own" in run("show", str(tmp_path / "m.mixed.json"), "--tree").stderr


def test_a_number_that_is_not_declared() -> None:
    cpts: dict[str, Any] = {"sex": [0.5, 0.5], "weight": jtgpu.Gaussian([62.0, 78.0], sd=9.0)}
    with pytest.raises(jtgpu.NetworkError, match="'weight' is not declared: add it to the states"):
        jtgpu.MixedNetwork({"sex": ["f", "m"]}, {"weight": ["sex"]}, cpts)
