"""Sources and documents use the terms of the field, not turns of phrase of our own (tests/support/idioms.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.idioms import IDIOMS

PATTERNS = [re.compile(pattern, re.IGNORECASE) for pattern in IDIOMS]
UNWATCHED = {"tests/support/idioms.py", "tests/test_words.py", "CHANGELOG.rst"}


def watched() -> Iterator[Path]:
    """Every source and document in which words count; the laboratory notebook in docs/notes is history."""
    for pattern in (
        "jtgpu/**/*.py", "cuda/**/*.cu", "cuda/**/*.cuh", "cuda/**/*.rst", "tests/**/*.py", "tests/**/*.hpp",
        "docs/**/*.rst", "docs/**/*.md", "bench/**/*.py", "bench/*.rst", "tools/*.py", "*.rst", "Makefile", "setup.py",
    ):  # fmt: skip
        for path in ROOT.glob(pattern):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith("docs/notes/") and name not in UNWATCHED:
                yield path


def idioms_in(path: Path) -> list[str]:
    """Place and words of every idiom in a file."""
    lines = path.read_text(encoding="utf-8").replace("_", " ").splitlines()
    return [
        f"{path.relative_to(ROOT).as_posix()}:{i}: {found[0]}"
        for i, line in enumerate(lines, 1)
        for pattern in PATTERNS
        if (found := pattern.search(line))
    ]


def test_an_idiom_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_words.ROOT", tmp_path)
    (tmp_path / "a.py").write_text("x = 1\n# computed anew\n", encoding="utf-8")
    assert idioms_in(tmp_path / "a.py") == ["a.py:2: anew"]


@pytest.mark.slow
def test_no_idioms() -> None:
    wrong = [line for path in watched() for line in idioms_in(path)]
    assert not wrong, "\n".join(wrong)
