"""Write the tables of times in README.rst and bench/README.rst from the newest rows in bench/results.

make bench && python tools/write_times.py            (--check: exit code 1 when a table is not what the rows say)

CPU tables stand between ``.. times begin`` and ``.. times end``, from cpu.jsonl; GPU tables, where a file has a place
for them, between ``.. gpu times begin`` and ``.. gpu times end``, from gpu.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gpu_times
from gpu_times import list_table

from jtgpu.errors import format_bytes
from jtgpu.timing import BENCHMARK

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "bench" / "results" / "cpu.jsonl"
BEGIN, END = ".. times begin\n", ".. times end\n"
GPU_BEGIN, GPU_END = ".. gpu times begin\n", ".. gpu times end\n"

Row = dict[str, Any]


class Rows:
    """The newest row of every measurement."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, float, str, int], Row] = {}
        for line in ROWS.read_text(encoding="utf-8").splitlines():
            r = json.loads(line)
            threads = r.get("threads", 0) if r["engine"] == "jtgpu cpu" else 0
            self.found[r["network"], r["question"], r.get("percent", 0.0), r["engine"], threads] = r
        self.names = sorted({k[0] for k in self.found} - {"-"})
        self.machine = self.found["-", "machine", 0.0, "numpy", 0]

    def ours(self, name: str, question: str, percent: float, threads: int) -> Row | None:
        return self.found.get((name, question, percent, "jtgpu cpu", threads))

    def best(self, name: str, question: str, percent: float) -> Row | None:
        both = [r for t in (1, 2) if (r := self.ours(name, question, percent, t)) is not None]
        return min(both, key=lambda r: r["median"], default=None)

    def theirs(self, name: str, question: str, percent: float) -> Row | None:
        return self.found.get((name, question, percent, "pyagrum", 0))

    def said(self) -> str:
        """What the rows were made on and by."""
        mine = [r for k, r in self.found.items() if k[1] == "posteriors"]
        versions = ", ".join(sorted({r["version"] for r in mine if r["engine"] == "pyagrum"}))
        return (
            f"``make bench`` on {_few(mine, 'device')} (commit {_few(mine, 'commit')}, "
            f"{min(r['date'] for r in mine)[:10]}) beside pyAgrum {versions} in the same process"
        )


def _few(rows: Iterable[Row], key: str) -> str:
    return ", ".join(sorted({str(r[key]) for r in rows}))


def span(row: Row | None) -> str:
    """Median and quartiles in milliseconds; a dash where nothing was measured."""
    if row is None:
        return "--"
    return f"{1e3 * row['median']:.3g} ({1e3 * row['low']:.3g} - {1e3 * row['high']:.3g})"


def short(row: Row | None, key: str = "median", scale: float = 1e3) -> str:
    """One number with three digits."""
    if row is None:
        return "--"
    value = scale * row[key]
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def ratio(theirs: Row | None, ours: Row | None) -> str:
    """How many times their time is ours, case by case."""
    if theirs is None or ours is None:
        return "--"
    return f"{theirs['median'] / theirs.get('cases', 1) / (ours['median'] / ours.get('cases', 1)):,.3g}"


def readme(rows: Rows) -> str:
    """The seven networks of the published table."""
    head = ["Network", "Cliques", "Largest table", "All tables", "Memory"]
    head += ["No evidence, ms", "pyAgrum, ms", "10 % evidence, ms", "pyAgrum, ms"]
    lines = []
    for name in BENCHMARK:
        first = rows.ours(name, "posteriors", 0.0, 1)
        if first is None:
            raise SystemExit(f"{ROWS} has no row of {name}: run make bench")
        sizes = [f"{first[k]:,}" for k in ("cliques", "largest", "entries")]
        times = [span(f(name, "posteriors", p)) for p in (0.0, 10.0) for f in (rows.best, rows.theirs)]
        lines.append([name, *sizes, format_bytes(first["bytes"]), *times])
    return (
        f"{list_table(head, lines)}\nOne propagation with all posteriors, float64: median and quartiles, by "
        f"{rows.said()}. Of both engines the better of one and two threads; every other network and question, and "
        "what the machine could do at best: ``bench/README.rst``.\n"
    )


def posteriors(rows: Rows) -> str:
    """All networks, both numbers of threads."""
    percents = (0.0, 10.0, 20.0)
    head = ["Network"]
    for p in percents:
        head += [f"{p:.0f} %: 1 thread", "2 threads", "pyAgrum", "ratio"]
    lines = []
    for name in rows.names:
        cells = [name]
        for p in percents:
            theirs = rows.theirs(name, "posteriors", p)
            cells += [short(rows.ours(name, "posteriors", p, t)) for t in (1, 2)]
            cells += [short(theirs), ratio(theirs, rows.best(name, "posteriors", p))]
        lines.append(cells)
    return (
        f"All posteriors of one case with 0, 10 and 20 % of the variables observed; milliseconds, medians. "
        f"{rows.said()}, its better way and number of threads.\n\n{list_table(head, lines)}"
    )


def questions(rows: Rows) -> str:
    """Other questions about one case."""
    asked = (("patterns", "Others observed each time"), ("target", "One target"), ("session", "One finding changes"))
    head = ["Network"]
    for _, title in asked:
        head += [title, "pyAgrum", "ratio"]
    lines = []
    for name in rows.names:
        if not any(rows.best(name, q, 10.0) for q, _ in asked):
            continue
        cells = [name]
        for q, _ in asked:
            ours, theirs = rows.best(name, q, 10.0), rows.theirs(name, q, 10.0)
            cells += [short(ours, scale=1e6), short(theirs, scale=1e6), ratio(theirs, ours)]
        lines.append(cells)
    return (
        "10 % observed, microseconds: a pattern that never came before; the posterior of one variable; all posteriors "
        f"after one finding has changed.\n\n{list_table(head, lines)}"
    )


def batches(rows: Rows) -> str:
    """Tables of cases."""
    head = ["Network"]
    for kind in ("same", "mixed"):
        head += [f"{kind}: 1 thread", "2 threads", "pyAgrum", "ratio"]
    lines = []
    for name in rows.names:
        if rows.best(name, "batch same", 10.0) is None:
            continue
        cells = [name]
        for kind in ("batch same", "batch mixed"):
            theirs = rows.theirs(name, kind, 10.0)
            cells += [short(rows.ours(name, kind, 10.0, t), "cases_per_second", 1) for t in (1, 2)]
            cells += [short(theirs, "cases_per_second", 1), ratio(theirs, rows.best(name, kind, 10.0))]
        lines.append(cells)
    return (
        "Tables of cases, cases a second, all posteriors, 10 % of the cells observed: the same variables in every "
        f"case, or each cell by chance.\n\n{list_table(head, lines)}"
    )


def limits(rows: Rows) -> str:
    """Memory, and how near the machine's limits the arithmetic is."""
    head = ["Network", "Promised, MiB", "Taken, MiB", "Whole process, MiB", "pyAgrum's, MiB"]
    head += ["Multiply-adds", "a second, 1 thread", "of the best"]
    lines = []
    for name in rows.names:
        kept, other = rows.ours(name, "memory", 0.0, 0), rows.theirs(name, "memory", 0.0)
        one = rows.ours(name, "posteriors", 0.0, 1)
        if kept is None or one is None:
            continue
        sizes = [kept["promised"], kept["peak"] - kept["before"], kept["peak"]]
        rate = one["terms"] / one["minimum"]
        lines.append(
            [name, *(f"{s / 2**20:.1f}" for s in sizes), "--" if other is None else f"{other['peak'] / 2**20:.1f}",
             f"{one['terms']:,}", f"{rate:.3g}", f"{100 * rate / rows.machine['multiply_adds']:.1f} %"]
        )  # fmt: skip
    return (
        "Memory without evidence, two threads (*taken*: by the tree and five queries, after imports and compiled "
        "loops; the whole process has them too); multiply-adds of the program without evidence, before zeros are left "
        f"out, against what one core does in a matrix product ({rows.machine['multiply_adds']:.3g} a second); it "
        f"copies {rows.machine['bandwidth']:.3g} bytes a second.\n\n{list_table(head, lines)}"
    )


def between(text: str, begin: str, end: str, parts: Sequence[str]) -> str:
    """A text with everything between two lines replaced; as it is where it lacks them."""
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    made = "\n".join(parts)
    return f"{head}{begin}\n{made}\n{end}{tail}" if found and closed else text


def main() -> int:
    """0 when both files are what the rows say (after writing: always)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    rows, gpu = Rows(), gpu_times.GpuRows.read(ROOT / "bench" / "results" / "gpu.jsonl")
    on_cpu: dict[Path, list[str]] = {
        ROOT / "README.rst": [readme(rows)],
        ROOT / "bench" / "README.rst": [make(rows) for make in (posteriors, questions, batches, limits)],
    }
    on_gpu = [gpu_times.single(gpu), gpu_times.tables(gpu), gpu_times.peers(gpu)]
    stale = False
    for path, parts in on_cpu.items():
        text = path.read_text(encoding="utf-8")
        whole = between(between(text, BEGIN, END, parts), GPU_BEGIN, GPU_END, on_gpu)
        stale = stale or whole != text
        if not check:
            path.write_text(whole, encoding="utf-8")
    if check and stale:
        print("the tables of times are not what bench/results says: python tools/write_times.py", file=sys.stderr)
    return int(check and stale)


if __name__ == "__main__":
    sys.exit(main())
