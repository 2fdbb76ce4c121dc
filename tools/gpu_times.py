"""The GPU's tables of times, for tools/write_times.py: from the newest rows of bench/results/gpu.jsonl.

A row of a peer that is marked ``earlier`` was measured on the same kind of card by a script before this one; it counts
only where nothing newer was measured, and an asterisk marks it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jtgpu.show.bench_gpu import PUBLISHED

__all__ = ["GpuRows", "list_table", "peers", "single", "tables"]

FAMOUS = ("alarm", "hailfinder", "water", "mildew", "barley", "andes", "pigs", "munin1", "diabetes", "link", "munin4")
NAMES = {
    "jax": "JAX",
    "jax-sum": "JAX, sums",
    "torch": "torch",
    "torch-compile": "torch.compile",
    "torch-sum": "torch.compile, sums",
    "either": "torch or JAX",
}
EARLIER = "\\*"
TUNED = (
    " The engine, and how it lays its work out, is what ``jtgpu tune`` found quickest for the network; *not tuned*: "
    "what the time model chooses by itself."
)
COLUMNS = "*as columns*: a column an answer, as the quickest peers have them, and compared with theirs; "
Row = dict[str, Any]


@dataclass
class GpuRows:
    """The newest row of every measurement, by network."""

    single: dict[str, Row] = field(default_factory=dict)
    batch: dict[str, Row] = field(default_factory=dict)
    peers: dict[tuple[str, bool, str], Row] = field(default_factory=dict)  # (network, tables of cases, engine)

    @classmethod
    def read(cls, path: Path) -> GpuRows:
        """From a file of JSON lines; without the file there are no rows."""
        made = cls()
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                made.add(json.loads(line))
        return made

    def add(self, row: Row) -> None:
        """A row that is newer than those before it; a failure or an earlier script's row replaces no measurement."""
        name = row["network"]
        if "peer" in row:
            key = (name, bool(row["batch"]), row["peer"])
            before = self.peers.get(key)
            weak = "failed" in row or "earlier" in row
            if before is None or not weak or "failed" in before:
                self.peers[key] = row
        elif row.get("dtype", "float64") != "float64":
            return
        elif "device_cases_per_s" in row:
            self.batch[name] = row
        elif "device_us" in row:
            before = self.single.get(name, {})
            kept = {k: before[k] for k in ("indexed_us",) if k in before}  # not measured every time
            self.single[name] = kept | row

    def best(self, name: str, batch: bool) -> Row | None:
        """The quickest peer."""
        here = [r for (n, b, _), r in self.peers.items() if n == name and b == batch and "failed" not in r]
        if batch:
            return max(here, key=lambda r: float(r["cases_per_s"]), default=None)
        return min(here, key=lambda r: float(r["device_us"]), default=None)


def digits(x: float | None) -> str:
    """Three digits; a dash for nothing."""
    if x is None:
        return "--"
    return f"{x:,.0f}" if 1000 <= x < 1e6 else f"{x:.3g}"


def _mark(row: Row) -> str:
    return EARLIER if "earlier" in row else ""


def _theirs(row: Row | None, key: str) -> str:
    return "--" if row is None else f"{digits(row[key])}{_mark(row)} ({NAMES[row['peer']]})"


def _said(rows: Iterable[Row]) -> str:
    """What the rows were made on and by."""
    found = list(rows)

    def few(key: str) -> str:
        return ", ".join(sorted({str(r[key]) for r in found if r.get(key)}))

    return f"{few('device')}, driver {few('driver')}, commit {few('commit')}"


def list_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """As reStructuredText."""
    made = [".. list-table::", "   :header-rows: 1", ""]
    for cells in (head, *lines):
        made += [f"   {'* ' if i == 0 else '  '}- {cell}" for i, cell in enumerate(cells)]
    return "\n".join([*made, ""])


def _order(names: Iterable[str]) -> list[str]:
    rank = {n: i for i, n in enumerate(FAMOUS)}
    return sorted(names, key=lambda n: (rank.get(n, len(rank)), n))


def single(rows: GpuRows) -> str:
    """One case at a time."""
    head = ["Network", "Engine", "Device, us", "Call, us", "Over limit", "Best peer, us", "peer / ours"]
    head += ["CPU, us", "indexed, us", "2014, us", "2014 / ours"]
    tuned = any("way" in r for r in rows.single.values())
    head += ["Not tuned, us"] * tuned
    lines = []
    for name in _order(rows.single):
        r = rows.single[name]
        device, other = r["device_us"], rows.best(name, False)
        then = PUBLISHED.get(name)
        taken = f"{digits(device['median'])} ({digits(device['p10'])} - {digits(device['p90'])})"
        cells = [name, str(r.get("way", r["engine"])), taken]
        cells += [digits(r["call_us"]["median"]), f"{device['median'] / r['roofline_us']:.1f}"]
        cells += [_theirs(other, "device_us"), f"{other['device_us'] / device['median']:.1f}" if other else "--"]
        cells += [digits(r["cpu_us"]), digits(r.get("indexed_us"))]
        cells += [digits(then), digits(then / device["median"] if then else None)]
        if tuned:
            cells.append(f"{digits(r['usual_us']['median'])} ({r['usual_engine']})" if "usual_us" in r else "--")
        lines.append(cells)
    return (
        f"One case: {_said(rows.single.values())}, float64. Microseconds on the device, all posteriors, evidence "
        "changed between runs, median (10th to 90th percentile); *call*: the same from Python; *over limit*: device "
        "time over the larger of bytes over bandwidth and multiply-adds over the card's rate, and 0.9 us a level of "
        "the plan (an engine that has fewer levels, or tables that never reach memory, may fall below 1); *2014*: the "
        "published system on its GTX 680."
        f"{TUNED if tuned else ''}\n\n{list_table(head, lines)}"
    )


def tables(rows: GpuRows) -> str:
    """Tables of cases."""
    by_columns = any("columns_device_cases_per_s" in r for r in rows.batch.values())
    head = ["Network", "Kernels", "Cases", "Cases/s, device", *["as columns"] * by_columns, "Cases/s, call"]
    head += ["of limit", "Best peer, cases/s", "ours / peer", "CPU, cases/s"]
    lines = []
    for name in _order(rows.batch):
        r, other = rows.batch[name], rows.best(name, True)
        rate = r["device_cases_per_s"]
        columns = r.get("columns_device_cases_per_s")
        cells = [name, r.get("kernels", "--"), digits(r["batch"]), digits(rate), *[digits(columns)] * by_columns]
        cells += [digits(r["cases_per_s"]), f"{100 * r['share']:.1f} %" if "share" in r else "--"]
        cells += [_theirs(other, "cases_per_s"), f"{(columns or rate) / other['cases_per_s']:.1f}" if other else "--"]
        cells.append(digits(r.get("cpu_cases_per_s")))
        lines.append(cells)
    return (
        f"Tables of cases: {_said(rows.batch.values())}, float64; forward samples, a tenth observed, all "
        f"posteriors. *Device*: kernels only, as for the peers; {COLUMNS if by_columns else ''}*call*: with all "
        "copies, from NumPy to NumPy; *limit*: answers and evidence once through device memory, and the multiply-adds "
        f"that are not always zero.\n\n{list_table(head, lines)}"
    )


def _cell(row: Row | None) -> str:
    if row is None:
        return "--"
    if "failed" in row:
        return str(row["failed"]).partition(",")[0]
    value = digits(row["cases_per_s" if row["batch"] else "device_us"])
    compiled = f" ({row['compile_s']:.0f})" if row.get("compile_s") else ""
    return f"{value}{_mark(row)}{compiled}"


def peers(rows: GpuRows) -> str:
    """What others take on the same card."""
    engines = ["torch", "torch-compile", "torch-sum", "jax", "jax-sum"]
    engines += ["either"] * any(engine == "either" for *_, engine in rows.peers)
    found: dict[tuple[str, bool], dict[str, Row]] = {}
    for (name, batch, engine), row in rows.peers.items():
        found.setdefault((name, batch), {})[engine] = row
    head = ["Network", "Cases", "Products", "Path", *(NAMES[e] for e in engines)]
    lines = []
    for batch in (False, True):
        for name in _order(n for n, b in found if b == batch):
            here = found[name, batch]
            told = [r for r in here.values() if "steps" in r]
            last = told[-1] if told else {}
            many = digits(max((r["batch"] for r in told), default=None)) if batch else "1"
            lines.append(
                [name, many, str(last.get("steps", "--")), str(last.get("path", "--")),
                 *(_cell(here.get(e)) for e in engines)]
            )  # fmt: skip
    return (
        "Others on the same card (``bench_gpu.py --peers``): the network and one vector a variable contracted two "
        "tables at a time along the cheapest of our elimination order and opt_einsum's greedy paths, posteriors by "
        "automatic differentiation of ln Z; JAX jitted (tables of cases: ``vmap``), torch recorded as a CUDA graph, "
        "each also with products that are summed, which compilers fuse, in place of dot products. One case: "
        "microseconds (seconds of compiling, many at a time); tables of cases: cases a second. Answers compared first. "
        f"{EARLIER} measured on the same kind of card by a script before this one.\n\n{list_table(head, lines)}"
    )
