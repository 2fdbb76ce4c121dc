"""Sources and documents use the terms of the field, not turns of phrase of our own (tests/support/idioms.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT
from tests.support.idioms import IDIOMS

PATTERNS = [re.compile(pattern, re.IGNORECASE) for pattern in IDIOMS]
LISTS = {"tests/support/idioms.py", "tests/support/unrevised.txt"}
UNREVISED = ROOT / "tests" / "support" / "unrevised.txt"


def watched() -> Iterator[Path]:
    """Every source and document in which words count; the laboratory notebook in docs/notes is history."""
    for pattern in (
        "jtgpu/**/*.py", "cuda/**/*.cu", "cuda/**/*.cuh", "cuda/**/*.rst", "tests/**/*.py", "tests/**/*.hpp",
        "docs/**/*.rst", "docs/**/*.md", "bench/**/*.py", "bench/*.rst", "tools/*.py", "*.rst", "Makefile", "setup.py",
    ):  # fmt: skip
        for path in ROOT.glob(pattern):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith("docs/notes/") and name not in LISTS | {"CHANGELOG.rst"}:
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


def test_no_idioms() -> None:
    """Files that are still to be revised are listed; new ones are not added."""
    listed = set(UNREVISED.read_text(encoding="utf-8").split())
    wrong = [line for p in watched() if p.relative_to(ROOT).as_posix() not in listed for line in idioms_in(p)]
    assert not wrong, "\n".join(wrong)


def main() -> None:
    """Print what is left to revise, and take the files that are clean or gone off the list."""
    left = {p.relative_to(ROOT).as_posix(): found for p in watched() if (found := idioms_in(p))}
    print(*[line for found in left.values() for line in found], sep="\n")
    listed = set(UNREVISED.read_text(encoding="utf-8").split())
    UNREVISED.write_text("".join(f"{name}\n" for name in sorted(listed & set(left))), encoding="utf-8")


if __name__ == "__main__":  # python -m tests.test_words
    main()
