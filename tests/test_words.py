"""Sources and documents use the terms of the field, not turns of phrase of our own (tests/support/idioms.py)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.idioms import DOCUMENT_IDIOMS, IDIOMS

PATTERNS = [re.compile(pattern, re.IGNORECASE) for pattern in IDIOMS]
FOR_USERS = [re.compile(pattern, re.IGNORECASE) for pattern in DOCUMENT_IDIOMS]
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


def for_users() -> Iterator[Path]:
    """Documents, and the help of the command line."""
    for pattern in ("docs/**/*.rst", "docs/**/*.md", "*.rst", "jtgpu/cli/declared.py", "jtgpu/options/*.py"):
        for path in ROOT.glob(pattern):
            if not path.relative_to(ROOT).as_posix().startswith("docs/notes/") and path.name != "CHANGELOG.rst":
                yield path


def idioms_in(path: Path, patterns: list[re.Pattern[str]] = PATTERNS) -> list[str]:
    """Place and words of every idiom in a file."""
    lines = path.read_text(encoding="utf-8").replace("_", " ").splitlines()
    return [
        f"{path.relative_to(ROOT).as_posix()}:{i}: {found[0]}"
        for i, line in enumerate(lines, 1)
        for pattern in patterns
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


def test_what_users_read_has_the_terms_of_the_field() -> None:
    wrong = [line for path in for_users() for line in idioms_in(path, FOR_USERS)]
    assert not wrong, "\n".join(wrong)


def vague_words(source: str) -> Iterator[tuple[int, str]]:
    """Line and fault of names that say nothing, and of docstrings that open or end without saying anything."""
    for node in ast.walk(ast.parse(source)):
        line: int = getattr(node, "lineno", 1)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node) or ""
            if text.startswith("What "):
                yield line, "a docstring that begins with 'What': write the noun"
            if re.fullmatch(r"See (also )?`+[^`]+`+\.?", text):
                yield line, "a docstring that only refers to another"
            if re.search(r"\busual\b", text, re.IGNORECASE):
                yield line, "'usual' in a docstring: write 'default'"
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)):
            name = node.arg if isinstance(node, ast.arg) else node.id
            if name == "found":
                yield line, "a name 'found': say what was found"
        names = [getattr(node, field, None) for field in ("id", "arg", "attr", "name")]
        if any("usual" in name.lower() for name in names if isinstance(name, str)):
            yield line, "'usual' in a name: write 'default'"


def test_a_vague_word_is_reported() -> None:
    source = '"""What is made."""\nfound = usual_size\ndef f(found):\n    """See `g`."""\n'
    assert [line for line, _ in vague_words(source)] == [1, 3, 2, 2, 3]
    assert not list(vague_words('"""A row. See `g`."""\nrow = reader.found(1)\n'))


@pytest.mark.slow
def test_names_and_docstrings_are_nouns() -> None:
    wrong = [
        f"{path.relative_to(ROOT).as_posix()}:{line}: {fault}"
        for path in sorted(ROOT.glob("jtgpu/**/*.py"))
        for line, fault in vague_words(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)
