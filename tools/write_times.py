"""Write the tables of times from the newest rows in bench/results.

    make bench && python tools/write_times.py            (--check: exit code 1 if a table is out of date)

Each table is a CSV file in docs/benchmarks/. In docs/benchmarks.rst, the paragraphs between ``.. times begin`` and
``.. times end`` are generated from cpu.jsonl, those between ``.. gpu times begin`` and ``.. gpu times end`` from
gpu.jsonl. README.rst has one small table between ``.. times begin`` and ``.. times end``.
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
from gpu_times import Table, digits

from jtgpu.formats.bundled import BENCHMARK

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
ROWS = ROOT / "bench" / "results" / "cpu.jsonl"
BEGIN, END = ".. times begin\n", ".. times end\n"
GPU_BEGIN, GPU_END = ".. gpu times begin\n", ".. gpu times end\n"

Row = dict[str, Any]


class Rows:
    """The newest row of each measurement."""

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

    def source(self) -> str:
        """Command, device, commits and peers of the rows."""
        mine = [r for k, r in self.found.items() if k[1] == "posteriors"]
        versions = ", ".join(sorted({r["version"] for r in mine if r["engine"] == "pyagrum"}))
        return (
            f"``make bench`` on {_few(mine, 'device')} (commit {_few(mine, 'commit')}, "
            f"{min(r['date'] for r in mine)[:10]}) compared with pyAgrum {versions} in the same process"
        )


def _few(rows: Iterable[Row], key: str) -> str:
    return ", ".join(sorted({str(r[key]) for r in rows}))


def span(row: Row | None) -> str:
    """Median and quartiles in milliseconds; a dash where nothing was measured."""
    if row is None:
        return "--"
    return f"{1e3 * row['median']:.3g} ({1e3 * row['low']:.3g} - {1e3 * row['high']:.3g})"


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


def readme(rows: Rows, gpu: gpu_times.GpuRows) -> str:
    """The table of README.rst: the seven networks of the published report."""
    head = ["Network", "Largest clique", "CPU", "pyAgrum", "CPU, 10 %", "pyAgrum, 10 %", "GPU call"]
    lines = []
    for name in BENCHMARK:
        first = rows.ours(name, "posteriors", 0.0, 1)
        if first is None:
            raise SystemExit(f"{ROWS} has no row of {name}: run make bench")
        times = [short(f(name, "posteriors", p)) for p in (0.0, 10.0) for f in (rows.best, rows.theirs)]
        on_gpu = gpu.single.get(name)
        call = digits(on_gpu["call_us"]["median"] / 1e3) if on_gpu is not None else "--"
        lines.append([name, f"{first['largest']:,}", *times, call])
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    bar = " ".join("=" * w for w in widths)
    body = [" ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip() for cells in (head, *lines)]
    devices = ", ".join(sorted({str(r["device"]) for n, r in gpu.single.items() if n in BENCHMARK}))
    return "\n".join([bar, body[0], bar, *body[1:], bar, ""]) + (
        "\nMilliseconds for the posteriors of all variables (float64, medians), without evidence, and with 10 % of the "
        f"variables observed. CPU: {rows.machine['device']}; GPU: {devices}.\n"
    )


def posteriors(rows: Rows) -> Table:
    """All networks, one and two threads."""
    percents = (0.0, 10.0, 20.0)
    head = ["Network"]
    for p in percents:
        head += [f"{p:.0f} %: 1 thread", "2 threads", "pyAgrum", "ratio"]
    lines: list[Sequence[str]] = []
    for name in rows.names:
        cells = [name]
        for p in percents:
            theirs = rows.theirs(name, "posteriors", p)
            cells += [short(rows.ours(name, "posteriors", p, t)) for t in (1, 2)]
            cells += [short(theirs), ratio(theirs, rows.best(name, "posteriors", p))]
        if any(cell != "--" for cell in cells[1:]):  # other benchmarks have rows of their own networks
            lines.append(cells)
    caption = (
        "Posteriors of all variables of one case with 0, 10 and 20 % of the variables observed, in milliseconds "
        f"(medians). {rows.source()}, in its faster mode and number of threads."
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
        if not any(rows.best(name, q, 10.0) for q, _ in kinds):
            continue
        cells = [name]
        for q, _ in kinds:
            ours, theirs = rows.best(name, q, 10.0), rows.theirs(name, q, 10.0)
            cells += [short(ours, scale=1e6), short(theirs, scale=1e6), ratio(theirs, ours)]
        lines.append(cells)
    caption = (
        "10 % observed, microseconds: an evidence pattern that was never seen before; the posterior of one variable; "
        "all posteriors after one finding has changed."
    )
    return Table("cpu-questions", caption, head, lines)


def batches(rows: Rows) -> Table:
    """Tables of cases."""
    head = ["Network"]
    for kind in ("same", "mixed"):
        head += [f"{kind}: 1 thread", "2 threads", "pyAgrum", "ratio"]
    lines: list[Sequence[str]] = []
    for name in rows.names:
        if rows.best(name, "batch same", 10.0) is None:
            continue
        cells = [name]
        for kind in ("batch same", "batch mixed"):
            theirs = rows.theirs(name, kind, 10.0)
            cells += [short(rows.ours(name, kind, 10.0, t), "cases_per_second", 1) for t in (1, 2)]
            cells += [short(theirs, "cases_per_second", 1), ratio(theirs, rows.best(name, kind, 10.0))]
        lines.append(cells)
    caption = (
        "Tables of cases, cases per second, posteriors of all variables, 10 % of the cells observed: the same "
        "variables in every case, or each cell at random."
    )
    return Table("cpu-tables", caption, head, lines)


def limits(rows: Rows) -> Table:
    """Memory, and how close the arithmetic is to the machine's limits."""
    head = ["Network", "Predicted, MiB", "Used, MiB", "Whole process, MiB", "pyAgrum's, MiB"]
    head += ["Multiply-adds", "per second, 1 thread", "of peak"]
    lines: list[Sequence[str]] = []
    for name in rows.names:
        used, other = rows.ours(name, "memory", 0.0, 0), rows.theirs(name, "memory", 0.0)
        one = rows.ours(name, "posteriors", 0.0, 1)
        if used is None or one is None:
            continue
        sizes = [used["promised"], used["peak"] - used["before"], used["peak"]]
        rate = one["terms"] / one["minimum"]
        lines.append(
            [name, *(f"{s / 2**20:.1f}" for s in sizes), "--" if other is None else f"{other['peak'] / 2**20:.1f}",
             f"{one['terms']:,}", f"{rate:.3g}", f"{100 * rate / rows.machine['multiply_adds']:.1f} %"]
        )  # fmt: skip
    caption = (
        "Memory without evidence, two threads (*used*: by the tree and five queries, without imports and compiled "
        "kernels, which the whole process includes); multiply-adds of the program without evidence, structural zeros "
        f"included. Peak: one core in a matrix product, {rows.machine['multiply_adds']:.3g} per second; it copies "
        f"{rows.machine['bandwidth']:.3g} bytes per second."
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
    rows, gpu = Rows(), gpu_times.GpuRows.read(ROOT / "bench" / "results" / "gpu.jsonl")
    on_cpu = [make(rows) for make in (posteriors, questions, batches, limits)]
    on_gpu = [make(gpu) for make in (gpu_times.single, gpu_times.tables, gpu_times.peers)]
    files = {DOCS / "benchmarks" / f"{t.name}.csv": as_csv(t) for t in (*on_cpu, *on_gpu)}
    page, readme_file = DOCS / "benchmarks.rst", ROOT / "README.rst"
    text = between(page.read_text(encoding="utf-8"), BEGIN, END, [section(t) for t in on_cpu])
    files[page] = between(text, GPU_BEGIN, GPU_END, [section(t) for t in on_gpu])
    files[readme_file] = between(readme_file.read_text(encoding="utf-8"), BEGIN, END, [readme(rows, gpu)])
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
