"""Write the tables of times from rows in bench/results.

    make bench && python tools/write_times.py            (--check: exit code 1 if a table is out of date)

A table has the rows of one commit on one machine: those of the newest run that measured the seven networks of
``jtgpu time``. Rows count whose times end when every posterior has been read as an array (``until``).

Each table is a CSV file in docs/benchmarks/. In docs/benchmarks.rst, the paragraphs between ``.. times begin`` and
``.. times end`` are generated from cpu.jsonl, those between ``.. gpu times begin`` and ``.. gpu times end`` from
gpu.jsonl. README.rst and docs/index.rst have a small table between ``.. times begin`` and ``.. times end``.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gpu_times
from gpu_times import Table

from jtgpu.formats.bundled import BENCHMARK

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
ROWS = ROOT / "bench" / "results" / "cpu.jsonl"
BEGIN, END = ".. times begin\n", ".. times end\n"
GPU_BEGIN, GPU_END = ".. gpu times begin\n", ".. gpu times end\n"

Row = dict[str, Any]


class Rows:
    """The rows of one commit and machine that a table has: the newest with these questions and all networks given."""

    def __init__(self, questions: Sequence[str], networks: Iterable[str] = BENCHMARK) -> None:
        runs: dict[tuple[str, str], dict[tuple[str, str, float, str], Row]] = {}
        for line in ROWS.read_text(encoding="utf-8").splitlines():
            r = json.loads(line)
            if r["question"] in questions and (r["question"] == "memory" or r.get("until") == "arrays"):
                run = runs.setdefault((r["commit"], r["device"]), {})
                run[r["network"], r["question"], r["percent"], r["engine"]] = r
        whole = [key for key, run in runs.items() if set(networks) <= {name for name, *_ in run}]
        if not whole:
            raise SystemExit(f"{ROWS} has no run of all of {', '.join(networks)} ({questions[0]}): run make bench")
        self.commit, self.device = whole[-1]
        self.rows = runs[whole[-1]]
        self.names = sorted({name for name, *_ in self.rows})

    def ours(self, name: str, question: str, percent: float) -> Row | None:
        return self.rows.get((name, question, percent, "jtgpu cpu"))

    def theirs(self, name: str, question: str, percent: float) -> Row | None:
        return self.rows.get((name, question, percent, "pyagrum"))

    def source(self) -> str:
        """Device, commit, day and pyAgrum's version."""
        versions = sorted({r["version"] for r in self.rows.values() if r["engine"] == "pyagrum" and "version" in r})
        day = max(r["date"] for r in self.rows.values())[:10]
        against = f", pyAgrum {', '.join(versions)} in the same process" if versions else ""
        return f"{self.device}, commit {self.commit}, {day}{against}"


def short(row: Row | None, key: str = "median", scale: float = 1e3) -> str:
    """One number with three significant digits."""
    if row is None:
        return "--"
    value = scale * row[key]
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def ratio(theirs: Row | None, ours: Row | None) -> str:
    """How many times their time is ours, case by case."""
    if theirs is None or ours is None:
        return "--"
    return f"{theirs['median'] / theirs.get('cases', 1) / (ours['median'] / ours.get('cases', 1)):,.3g}"


UNTIL = (
    "A time ends when every posterior has been read as an array; both libraries take the number of threads that they "
    "take by default."
)


def overview(rows: Rows) -> str:
    """The table of README.rst and of the start page: the seven networks of the published report."""
    head = ["Network", "Variables", "Largest clique"]
    head += [f"{who}, {p} %" for p in (10, 0) for who in ("jtgpu", "pyAgrum")]
    lines = []
    for name in BENCHMARK:
        first = rows.ours(name, "posteriors", 10.0)
        if first is None:
            raise SystemExit(f"{ROWS} has no row of {name} with evidence: run make bench")
        times = [short(f(name, "posteriors", p)) for p in (10.0, 0.0) for f in (rows.ours, rows.theirs)]
        lines.append([name, f"{first['variables']:,}", f"{first['largest']:,}", *times])
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    bar = " ".join("=" * w for w in widths)
    body = [" ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip() for cells in (head, *lines)]
    return "\n".join([bar, body[0], bar, *body[1:], bar, ""]) + (
        "\nMilliseconds for the posteriors of all variables of one case (float64, medians), with 10 % of the variables "
        f"observed and without evidence. {UNTIL} {rows.source()}. --: pyAgrum takes over 10 GB.\n"
    )


def posteriors(rows: Rows) -> Table:
    """All networks."""
    percents = (10.0, 0.0)
    head = ["Network"]
    for p in percents:
        head += [f"{p:.0f} %: jtgpu", "pyAgrum", "ratio"]
    lines: list[Sequence[str]] = []
    for name in rows.names:
        cells = [name]
        for p in percents:
            ours, theirs = rows.ours(name, "posteriors", p), rows.theirs(name, "posteriors", p)
            cells += [short(ours), short(theirs), ratio(theirs, ours)]
        lines.append(cells)
    caption = (
        "Posteriors of all variables of one case, 10 % of the variables observed and none, in milliseconds (medians). "
        f"{UNTIL} ``make bench``: {rows.source()}; without evidence, in the faster of two ways to make it compute."
    )
    return Table("cpu-posteriors", caption, head, lines)


def questions(rows: Rows) -> Table:
    """Other questions about one case."""
    kinds = (("patterns", "New pattern each time"), ("target", "One target"), ("session", "One finding changes"))
    head = ["Network"]
    for _, title in kinds:
        head += [title, "pyAgrum", "ratio"]
    lines: list[Sequence[str]] = []
    for name in rows.names:
        cells = [name]
        for q, _ in kinds:
            ours, theirs = rows.ours(name, q, 10.0), rows.theirs(name, q, 10.0)
            cells += [short(ours, scale=1e6), short(theirs, scale=1e6), ratio(theirs, ours)]
        if any(cell != "--" for cell in cells[1:]):
            lines.append(cells)
    caption = (
        "10 % observed, microseconds, until the arrays are read: an evidence pattern that was never seen before; the "
        f"posterior of one variable; all posteriors after one finding has changed. {rows.source()}."
    )
    return Table("cpu-questions", caption, head, lines)


def batches(rows: Rows) -> Table:
    """Tables of cases."""
    head = ["Network"]
    for kind in ("same", "mixed"):
        head += [f"{kind}: jtgpu", "pyAgrum", "ratio"]
    lines: list[Sequence[str]] = []
    for name in rows.names:
        cells = [name]
        for kind in ("batch same", "batch mixed"):
            ours, theirs = rows.ours(name, kind, 10.0), rows.theirs(name, kind, 10.0)
            cells += [short(r, "cases_per_second", 1) for r in (ours, theirs)]
            cells += [ratio(theirs, ours)]
        lines.append(cells)
    caption = (
        "Tables of cases, cases per second, posteriors of all variables as arrays, 10 % of the cells observed: the "
        f"same variables in every case, or each cell at random. {rows.source()}, which answers case by case."
    )
    return Table("cpu-tables", caption, head, lines)


def memory(rows: Rows) -> Table:
    """Memory."""
    head = ["Network", "Predicted, MiB", "Used, MiB", "Whole process, MiB", "pyAgrum's, MiB"]
    lines: list[Sequence[str]] = []
    for name in rows.names:
        used = next(r for key, r in rows.rows.items() if key[0] == name and key[3] == "jtgpu cpu")
        other = rows.theirs(name, "memory", used["percent"])
        sizes = [used["promised"], used["peak"] - used["before"], used["peak"]]
        peer = "--" if other is None else f"{other['peak'] / 2**20:.1f}"
        lines.append([name, *(f"{s / 2**20:.1f}" for s in sizes), peer])
    caption = (
        "Memory without evidence (*used*: by the tree and five queries, without imports and compiled kernels, which "
        f"the whole process includes). {rows.source()}."
    )
    return Table("cpu-memory", caption, head, lines)


def section(table: Table) -> str:
    """A caption and the directive that includes a table."""
    return f"{table.caption}\n\n.. csv-table::\n   :file: benchmarks/{table.name}.csv\n   :header-rows: 1\n"


def as_csv(table: Table) -> str:
    """A table as CSV, one row a line."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([table.head, *table.rows])
    return buffer.getvalue()


def between(text: str, begin: str, end: str, parts: Sequence[str]) -> str:
    """A text with everything between two lines replaced; as it is where it lacks them."""
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    made = "\n".join(parts)
    return f"{head}{begin}\n{made}\n{end}{tail}" if found and closed else text


def documents() -> dict[Path, str]:
    """Every generated file and its contents."""
    answers, gpu = Rows(("posteriors",)), gpu_times.GpuRows.read(ROOT / "bench" / "results" / "gpu.jsonl")
    others = [questions(Rows(("patterns", "target", "session"))), batches(Rows(("batch same", "batch mixed")))]
    on_cpu = [posteriors(answers), *others, memory(Rows(("memory",)))]
    on_gpu = [make(gpu) for make in (gpu_times.single, gpu_times.tables, gpu_times.peers)]
    files = {DOCS / "benchmarks" / f"{t.name}.csv": as_csv(t) for t in (*on_cpu, *on_gpu)}
    page = DOCS / "benchmarks.rst"
    text = between(page.read_text(encoding="utf-8"), BEGIN, END, [section(t) for t in on_cpu])
    files[page] = between(text, GPU_BEGIN, GPU_END, [section(t) for t in on_gpu])
    for small in (ROOT / "README.rst", DOCS / "index.rst"):
        files[small] = between(small.read_text(encoding="utf-8"), BEGIN, END, [overview(answers)])
    return files


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for path, text in documents().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(path.relative_to(ROOT).as_posix())
            if not check:
                path.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"out of date: {', '.join(stale)}; run python tools/write_times.py", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
