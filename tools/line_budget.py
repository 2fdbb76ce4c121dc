"""Check that the package has no more lines of Python than pyproject.toml allows: a capability pays by deletions.

    python tools/line_budget.py
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Command line; exit code 1 above the budget."""
    budget = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["jtgpu"]["lines"]
    sizes = {p: p.read_bytes().count(b"\n") for p in (ROOT / "jtgpu").rglob("*.py")}
    n = sum(sizes.values())
    print(f"jtgpu/ has {n:,} lines in {len(sizes)} files; the budget is {budget:,}")
    if n > budget:
        folders: dict[str, int] = {}
        for path, size in sizes.items():
            folder = path.relative_to(ROOT).parts[1]
            folders[folder] = folders.get(folder, 0) + size
        print("largest: " + ", ".join(f"{k} {v:,}" for k, v in sorted(folders.items(), key=lambda x: -x[1])[:8]))
    return int(n > budget)


if __name__ == "__main__":
    sys.exit(main())
