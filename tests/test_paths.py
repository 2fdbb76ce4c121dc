"""Paths of the repository that documents, kernels, docstrings and comments name exist."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

FOLDERS = ("jtgpu", "cuda", "tests", "bench", "docs", "tools", "nets")
PATH = re.compile(
    rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w./*-]*[\w*]|[a-z_]\w*/(?:\w+/)*\w+\.(?:py|cuh|cu|rst|toml)\b)"
)
EXAMPLES = ("NAME", "docs/examples/visit", "nets/variety", "bench/results/indexed")  # placeholders, outputs, examples


def texts() -> Iterator[tuple[Path, str]]:
    """Every document, with the comments of every kernel and the comments and docstrings of every Python file."""
    for path in (*ROOT.glob("*.rst"), *ROOT.glob("docs/**/*.rst"), *ROOT.glob("cuda/**/*.rst")):
        if path.name != "CHANGELOG.rst" and "notes" not in path.parts:  # both are history
            yield path, path.read_text(encoding="utf-8")
    for path in ROOT.glob("cuda/**/*.cu*"):
        yield path, "\n".join(re.findall(r"//.*|/\*.*?\*/", path.read_text(encoding="utf-8"), re.DOTALL))
    for folder in ("jtgpu", "tests", "bench", "tools"):
        for path in ROOT.glob(f"{folder}/**/*.py"):
            text = path.read_text(encoding="utf-8")
            if not PATH.search(text):  # the rest takes most of the time
                continue
            tokens = tokenize.generate_tokens(io.StringIO(text).readline)
            parts = [token.string for token in tokens if token.type == tokenize.COMMENT]
            documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
            parts += [ast.get_docstring(node) or "" for node in nodes]
            yield path, "\n".join(parts)


def missing(path: Path, text: str) -> list[str]:
    """Paths in a text that exist neither in the repository, nor in jtgpu/ or cuda/, nor in its folder."""
    wrong = []
    for match in PATH.finditer(text):
        name = match[1]
        if not any(word in name for word in EXAMPLES):
            bases = (ROOT, ROOT / "jtgpu", ROOT / "cuda", path.parent)
            if not any(any(base.glob(name)) if "*" in name else (base / name).exists() for base in bases):
                wrong.append(f"{path.relative_to(ROOT).as_posix()}: {name}")
    return wrong


def test_a_missing_path_is_reported() -> None:
    text = "``jtgpu/errors.py``, util/lru.py, cuda/batch/batch.cuh, and ``jtgpu/no/such.py``"
    assert missing(ROOT / "README.rst", text) == ["README.rst: jtgpu/no/such.py"]


def test_paths_exist() -> None:
    wrong = [line for path, text in texts() for line in missing(path, text)]
    assert not wrong, "\n".join(wrong)
