"""Bundled networks by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import jtgpu
from jtgpu.errors import JtgpuError
from jtgpu.formats import MissingFileError
from jtgpu.formats.bundled import networks_folder
from jtgpu.formats.files import read_bytes


def test_every_bundled_network_has_a_name() -> None:
    names = jtgpu.networks()
    assert {"asia", "alarm", "munin1", "link"} <= set(names)
    assert list(names) == sorted(names)
    assert len(names) == len([p for p in networks_folder().iterdir() if ".net" in p.suffixes])


def test_load_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_path = jtgpu.load(networks_folder() / "asia.net")
    monkeypatch.chdir(tmp_path)
    assert jtgpu.load("asia") == by_path
    assert jtgpu.load("barley").variables  # compressed


def test_a_file_or_folder_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (networks_folder() / "cancer.net").read_text()
    Path("asia").write_text(text)
    assert jtgpu.load("asia") == jtgpu.load("cancer")
    Path("alarm").mkdir()
    with pytest.raises(JtgpuError, match="alarm"):
        jtgpu.load("alarm")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("asai", "no file 'asai' and no bundled network of that name; did you mean 'asia'"),
        ("nowhere/asia.net", "no file 'nowhere/asia.net'; 'asia' is a bundled network"),
        ("nowhere/mine.net", "the folder 'nowhere' does not exist"),
        ("", "no file '' and no bundled network"),
    ],
)
def test_unknown_names_suggest_the_nearest(name: str, words: str) -> None:
    with pytest.raises(MissingFileError, match=words):
        jtgpu.load(name)


def test_large_networks_do_not_name_their_rows() -> None:
    """The parents' states behind each row would be half of a file: a wheel holds all networks."""
    for path in networks_folder().glob("*.net*"):
        text = read_bytes(path).decode()
        assert len(text) < 50_000 or "  %  " not in text, path.name
