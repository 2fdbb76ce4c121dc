"""Write the tables of times in README.rst and bench/README.rst from the newest rows of bench/results/time.jsonl.

make bench && python tools/write_times.py            (--check: exit code 1 when a table is not what the rows say)
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from jtgpu.errors import format_bytes
from jtgpu.timing import BENCHMARK

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "bench" / "results" / "time.jsonl"
BEGIN, END = ".. times begin\n", ".. times end\n"


def newest() -> dict[tuple[str, float, bool], dict[str, Any]]:
    """The last row of each network, share of evidence, and engine (ours or not)."""
    found = {}
    for line in ROWS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found[row["network"], row["share"], row["engine"].startswith("jtgpu")] = row
    return found


def milliseconds(row: dict[str, Any] | None) -> str:
    """Median and quartiles; a dash where nothing was measured."""
    if row is None:
        return "--"
    return f"{1e3 * row['median']:.3g} ({1e3 * row['low']:.3g} - {1e3 * row['high']:.3g})"


def table(rows: dict[tuple[str, float, bool], dict[str, Any]]) -> str:
    """The rows as reStructuredText, with what they were made on and by."""
    head = ["Network", "Cliques", "Largest table", "All tables", "Memory"]
    head += ["No evidence, ms", "pyAgrum, ms", "10 % evidence, ms", "pyAgrum, ms"]
    lines = [".. list-table::", "   :header-rows: 1", ""]
    used: list[dict[str, Any]] = []
    for name in (None, *BENCHMARK):
        if name is None:
            cells = head
        else:
            four = [rows.get((name, share, ours)) for share in (0.0, 0.1) for ours in (True, False)]
            mine = four[0]
            if mine is None:
                raise SystemExit(f"{ROWS} has no row of {name}: run make bench")
            used += [r for r in four if r is not None]
            sizes = [f"{mine[k]:,}" for k in ("cliques", "largest", "entries")]
            cells = [name, *sizes, format_bytes(mine["bytes"]), *map(milliseconds, four)]
        lines += [f"   {'* ' if i == 0 else '  '}- {cell}" for i, cell in enumerate(cells)]
    ours, theirs = ([r for r in used if r["engine"].startswith("jtgpu") is x] for x in (True, False))
    versions = ", ".join(sorted({r["version"] for r in theirs}))
    said = (
        f"One propagation with all posteriors, float64: median and quartiles of {_few(ours, 'runs')} runs, by "
        f"``make bench`` on {_few(ours, 'device')} ({_few(ours, 'engine')}, commit {_few(ours, 'commit')}, "
        f"{min(r['date'] for r in ours)[:10]}); pyAgrum {versions} in the same process, with the better of 1 and all "
        f"threads; without evidence its tree is built in each run, for it keeps answers. Rows: "
        f"``bench/results/time.jsonl``."
    )
    return "\n".join([*lines, "", said, ""])


def _few(rows: list[dict[str, Any]], key: str) -> str:
    return ", ".join(sorted({str(r[key]) for r in rows}))


def main() -> int:
    """0 when both files are what the rows say (after writing: always)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    new = table(newest())
    stale = False
    for path in (ROOT / "README.rst", ROOT / "bench" / "README.rst"):
        text = path.read_text(encoding="utf-8")
        head, _, rest = text.partition(BEGIN)
        _, _, tail = rest.partition(END)
        whole = f"{head}{BEGIN}\n{new}\n{END}{tail}"
        stale = stale or whole != text
        if not check:
            path.write_text(whole, encoding="utf-8")
    if check and stale:
        print(
            "the tables of times are not what bench/results/time.jsonl says: python tools/write_times.py",
            file=sys.stderr,
        )
    return int(check and stale)


if __name__ == "__main__":
    sys.exit(main())
