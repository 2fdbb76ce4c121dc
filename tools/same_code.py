"""Compare the code of two commits, whichever files hold it; docstrings, comments, imports and ``__all__`` do not count.

    python tools/same_code.py OLD NEW

Prints how many top-level statements of ``jtgpu/`` both commits have, and which only one has. Modules that were moved or
joined leave all statements equal; a function that was renamed, or that names a module, is in both lists.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def git(*words: str) -> str:
    """The output of a git command in this repository."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def statements(commit: str) -> Counter[str]:
    """How often each top-level statement occurs in the package."""
    found: Counter[str] = Counter()
    for path in git("ls-tree", "-r", "--name-only", commit, "jtgpu").splitlines():
        if path.endswith(".py"):
            for node in _plain(ast.parse(git("show", f"{commit}:{path}"))).body:
                found[ast.unparse(node)] += 1
    return found


def _plain(tree: ast.Module) -> ast.Module:
    """The tree without what does not run: docstrings, and without imports and ``__all__``."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [s for s in body if not _left_out(s)] or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


def _left_out(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Pass):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def main() -> int:
    """Command line."""
    old, new = (statements(commit) for commit in sys.argv[1:3])
    only_old, only_new = old - new, new - old
    both = (old & new).total()
    print(f"{both:,} statements in both, {only_old.total():,} only before, {only_new.total():,} only after")
    for mark, only in (("-", only_old), ("+", only_new)):
        for text in only:
            print(mark, text.partition("\n")[0][:150])
    return 0


if __name__ == "__main__":
    sys.exit(main())
