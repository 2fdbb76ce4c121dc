"""The test suite itself: ``make test`` holds one test of everything."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

TESTS = sorted((ROOT / "tests").rglob("test_*.py"))


def is_slow(node: ast.AST) -> bool:
    """Whether a decorator or a module's ``pytestmark`` marks it."""
    return "pytest.mark.slow" in ast.unparse(node)


def has_a_quick_test(path: Path) -> bool:
    """Whether a test in the module runs in ``make test``; parameters are not looked at."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    if any(isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "pytestmark" and is_slow(n) for n in body):
        return False
    if any(isinstance(n, ast.ImportFrom) and "import *" in ast.unparse(n) for n in body):
        return True  # of another module's tests
    found = [n for n in ast.walk(ast.Module(body, [])) if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
    return any(not any(ast.unparse(d) == "pytest.mark.slow" for d in f.decorator_list) for f in found)


def test_every_test_module_has_a_test_that_is_not_slow() -> None:
    assert not [p.relative_to(ROOT).as_posix() for p in TESTS if not has_a_quick_test(p)]


def test_every_folder_of_the_package_has_tests() -> None:
    folders = {p.parent.name for p in (ROOT / "jtgpu").glob("*/*.py")}
    tests = {p.parent.name for p in (ROOT / "tests").glob("*/test_*.py")}
    assert not folders - tests - {p.stem.removeprefix("test_") for p in TESTS}


def test_tracked_files_are_sources() -> None:
    """No cache, build or data file of a session is in the repository."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    top = {name.split("/")[0] for name in listed.split("\0") if name}
    assert top == {
        ".ci", ".gitignore", ".readthedocs.yaml", "CHANGELOG.rst", "CITATION.cff", "CONTRIBUTING.rst", "LICENSE",
        "MANIFEST.in", "Makefile", "README.rst", "SECURITY.md", "bench", "cuda", "docs", "jtgpu", "nets",
        "pyproject.toml", "setup.py", "tests", "tools",
    }  # fmt: skip
