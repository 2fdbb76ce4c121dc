"""Compiled loops: where they come from, and what they depend on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from jtgpu.util import loops


@pytest.fixture
def copied_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the sources of all loops, whose digest is taken."""
    for path in loops.sources():
        to = tmp_path / path.relative_to(loops.ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    monkeypatch.setattr(loops, "ROOT", tmp_path)
    loops.source_digest.cache_clear()
    yield tmp_path
    loops.source_digest.cache_clear()


@pytest.mark.parametrize("name", ["backends/cpu/loops/sweep.py", "backends/cpu/records.py", "plans/specialise.py"])
def test_the_digest_depends_on_every_source(copied_sources: Path, name: str) -> None:
    first = loops.source_digest()
    path = copied_sources / name
    text = path.read_text()
    path.write_text(text + "# another line\n")
    loops.source_digest.cache_clear()
    assert loops.source_digest() != first
    path.write_text(text)  # another time, the same content
    (copied_sources / "backends/cpu/engine.py").write_text("# nothing that is compiled\n")
    loops.source_digest.cache_clear()
    assert loops.source_digest() == first
