"""Compiled loops: where they come from, and what they depend on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from jtgpu.util import loop_sources


@pytest.fixture
def copied_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the sources of all loops, whose digest is taken."""
    for path in loop_sources.sources():
        to = tmp_path / path.relative_to(loop_sources.ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    monkeypatch.setattr(loop_sources, "ROOT", tmp_path)
    loop_sources.source_digest.cache_clear()
    yield tmp_path
    loop_sources.source_digest.cache_clear()


@pytest.mark.parametrize("name", ["backends/cpu/loops/sweep.py", "backends/cpu/records.py", "plans/specialise.py"])
def test_the_digest_depends_on_every_source(copied_sources: Path, name: str) -> None:
    first = loop_sources.source_digest()
    path = copied_sources / name
    text = path.read_text()
    path.write_text(text + "# another line\n")
    loop_sources.source_digest.cache_clear()
    assert loop_sources.source_digest() != first
    path.write_text(text)  # another time, the same content
    (copied_sources / "backends/cpu/engine.py").write_text("# nothing that is compiled\n")
    loop_sources.source_digest.cache_clear()
    assert loop_sources.source_digest() == first
