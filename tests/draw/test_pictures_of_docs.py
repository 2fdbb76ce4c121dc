"""The pictures of README and docs are those that tools/make_pictures.py makes of this checkout."""

from __future__ import annotations

import sys

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import make_pictures


def test_pictures_are_current() -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in make_pictures.FOLDER.glob("*.svg")}
    assert found == make_pictures.pictures()  # python tools/make_pictures.py


def test_pictures_are_small() -> None:
    assert all(path.stat().st_size < 30_000 for path in make_pictures.FOLDER.glob("*.svg"))
