"""The GPU's tables of times for tools/write_times.py, made from rows of bench/results/gpu.jsonl.

A table has our rows of one commit on one kind of GPU: the run with most of the networks that peers answer, then with
most peers on that kind of GPU, then the newest. Peers are compared with on the same kind of GPU only.

A peer's row that is marked ``earlier`` was measured on the same kind of GPU by an older script. It is used only where
nothing newer exists, and is marked with an asterisk.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench"))

from propagation_times import PUBLISHED

FAMOUS = ("alarm", "hailfinder", "water", "mildew", "barley", "andes", "pigs", "munin1", "diabetes", "link", "munin4")
NAMES = {
    "jax": "JAX",
    "jax-sum": "JAX, sums",
    "torch": "torch",
    "torch-compile": "torch.compile",
    "torch-sum": "torch.compile, sums",
    "either": "torch or JAX",
}
EARLIER = "*"
ENGINES = {"flow": "dataflow", "lists": "lists (removed)"}  # names in earlier rows
COLUMNS = "*as columns*: results by column, the layout of the fastest peers, which the comparison uses; "
Row = dict[str, Any]


class Table(NamedTuple):
    """One table of the benchmark page.

    Attributes
    ----------
    name : str
        Of the file ``docs/benchmarks/NAME.csv``.
    caption : str
        A paragraph of reStructuredText.
    head : sequence of str
        Titles of the columns.
    rows : list of sequences of str
    """

    name: str
    caption: str
    head: Sequence[str]
    rows: list[Sequence[str]]


@dataclass
class GpuRows:
    """The rows of one commit and kind of GPU for single cases, and for tables, by network; peers on that GPU."""

    single: dict[str, Row] = field(default_factory=dict)
    batch: dict[str, Row] = field(default_factory=dict)
    peers: dict[tuple[str, bool, str], Row] = field(default_factory=dict)  # (network, tables of cases, engine)

    @classmethod
    def read(cls, path: Path) -> GpuRows:
        """From a file of JSON lines; without the file there are no rows."""
        made = cls()
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        rows: list[Row] = [json.loads(line) for line in lines]
        theirs = [r for r in rows if "peer" in r]
        for tables, key in ((False, "device_us"), (True, "device_cases_per_s")):
            runs: dict[tuple[str, str], dict[str, Row]] = {}
            for r in rows:
                if key in r and "peer" not in r and r.get("dtype", "float64") == "float64":
                    runs.setdefault((r["device"], r["commit"]), {})[r["network"]] = r
            peers = {r["device"]: 0 for r in rows} | Counter(r["device"] for r in theirs if bool(r["batch"]) == tables)
            # of equal runs the newest: they come in the order of their first rows
            best = max(reversed(runs), key=lambda k: (len(set(FAMOUS) & runs[k].keys()), peers[k[0]]), default=None)
            if best is not None:
                setattr(made, "batch" if tables else "single", runs[best])
                for r in theirs:
                    if bool(r["batch"]) == tables and r["device"] == best[0]:
                        made.add_peer(r)
        return made

    def add_peer(self, row: Row) -> None:
        """A row that is newer than those before it; a failure or an earlier script's row replaces no measurement."""
        key = (row["network"], bool(row["batch"]), row["peer"])
        before = self.peers.get(key)
        weak = "failed" in row or "earlier" in row
        if before is None or not weak or "failed" in before:
            self.peers[key] = row

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


def _source(rows: Iterable[Row]) -> str:
    """Device, driver and commits of the rows."""
    found = list(rows)

    def few(key: str) -> str:
        return ", ".join(sorted({str(r[key]) for r in found if r.get(key)}))

    return f"{few('device')}, driver {few('driver')}, commit {few('commit')}"


def _devices(rows: GpuRows) -> str:
    return ", ".join(sorted({str(r["device"]) for r in rows.peers.values()}))


def _order(names: Iterable[str]) -> list[str]:
    rank = {n: i for i, n in enumerate(FAMOUS)}
    return sorted(names, key=lambda n: (rank.get(n, len(rank)), n))


def single(rows: GpuRows) -> Table:
    """Single cases."""
    head = ["Network", "Engine", "Device, us", "Over limit", "Best peer, us", "peer / ours"]
    head += ["2014, us", "2014 / ours"]
    lines: list[Sequence[str]] = []
    for name in _order(rows.single):
        r = rows.single[name]
        device, other = r["usual_us" if "usual_us" in r else "device_us"], rows.best(name, False)  # not of a search
        then = PUBLISHED.get(name)
        time = f"{digits(device['median'])} ({digits(device['p10'])} - {digits(device['p90'])})"
        cells = [name, ENGINES.get(engine := str(r.get("usual_engine", r["engine"])), engine), time]
        cells += [f"{device['median'] / r['roofline_us']:.1f}"]
        cells += [_theirs(other, "device_us"), f"{other['device_us'] / device['median']:.1f}" if other else "--"]
        cells += [digits(then), digits(then / device["median"] if then else None)]
        lines.append(cells)
    caption = (
        f"One case: {_source(rows.single.values())}, float64. Device time in microseconds, posteriors of all "
        "variables, different evidence in each run, median (10th to 90th percentile); a call from Python takes longer. "
        "Peers: the same time of other libraries on the same kind of GPU. *Over limit*: device time divided by the "
        "larger of bytes over bandwidth and multiply-adds over the GPU's rate, plus 0.9 us per level of the plan; an "
        f"engine with fewer levels may be below 1. *2014*: Gottoli and Pettenuzzo (GTX 680)."
    )
    return Table("gpu-single", caption, head, lines)


def tables(rows: GpuRows) -> Table:
    """Tables of cases."""
    by_columns = any("columns_device_cases_per_s" in r for r in rows.batch.values())
    head = ["Network", "Kernels", "Cases", "Cases/s, device", *["as columns"] * by_columns, "Cases/s, call"]
    head += ["of limit", "Best peer, cases/s", "ours / peer", "CPU, cases/s"]
    lines: list[Sequence[str]] = []
    for name in _order(rows.batch):
        r, other = rows.batch[name], rows.best(name, True)
        rate = r["device_cases_per_s"]
        columns = r.get("columns_device_cases_per_s")
        cells = [name, r.get("kernels", "--"), digits(r["batch"]), digits(rate), *[digits(columns)] * by_columns]
        cells += [digits(r["cases_per_s"]), f"{100 * r['share']:.1f} %" if "share" in r else "--"]
        cells += [_theirs(other, "cases_per_s"), f"{(columns or rate) / other['cases_per_s']:.1f}" if other else "--"]
        cells.append(digits(r.get("cpu_cases_per_s")))
        lines.append(cells)
    caption = (
        f"Tables of cases: {_source(rows.batch.values())}, float64; forward samples with a tenth of the cells "
        "observed, posteriors of all variables. *Device*: kernels only, as for the peers. "
        f"{COLUMNS if by_columns else ''}"
        "*call*: with all copies, from NumPy to NumPy; *limit*: results and evidence moved once through device memory, "
        "and the multiply-adds that are not structurally zero."
    )
    return Table("gpu-tables", caption, head, lines)


def _cell(row: Row | None) -> str:
    if row is None:
        return "--"
    if "failed" in row:
        return str(row["failed"]).partition(",")[0]
    value = digits(row["cases_per_s" if row["batch"] else "device_us"])
    compiled = f" ({row['compile_s']:.0f})" if row.get("compile_s") else ""
    return f"{value}{_mark(row)}{compiled}"


def peers(rows: GpuRows) -> Table:
    """Times of other libraries on the same GPU."""
    engines = ["torch", "torch-compile", "torch-sum", "jax", "jax-sum"]
    engines += ["either"] * any(engine == "either" for *_, engine in rows.peers)
    found: dict[tuple[str, bool], dict[str, Row]] = {}
    for (name, batch, engine), row in rows.peers.items():
        found.setdefault((name, batch), {})[engine] = row
    head = ["Network", "Cases", "Products", "Path", *(NAMES[e] for e in engines)]
    lines: list[Sequence[str]] = []
    for batch in (False, True):
        for name in _order(n for n, b in found if b == batch):
            here = found[name, batch]
            with_path = [r for r in here.values() if "steps" in r]
            last = with_path[-1] if with_path else {}
            many = digits(max((r["batch"] for r in with_path), default=None)) if batch else "1"
            lines.append(
                [name, many, str(last.get("steps", "--")), str(last.get("path", "--")),
                 *(_cell(here.get(e)) for e in engines)]
            )  # fmt: skip
    caption = (
        f"Other libraries on the same GPU ({_devices(rows)}, ``bench_gpu.py --peers``): the network and one vector per "
        "variable, contracted pairwise along the cheapest of our elimination order and opt_einsum's greedy paths; "
        "posteriors by automatic differentiation of ln Z. JAX is jitted (tables of cases: ``vmap``), torch is captured "
        "in a CUDA graph; *sums*: products followed by sums, which compilers fuse, in place of dot products. One case: "
        "microseconds (seconds of compilation); tables of cases: cases per second. Results are compared first. "
        f"{EARLIER.replace('*', chr(92) + '*')} measured on the same kind of GPU by an older script."
    )
    return Table("gpu-peers", caption, head, lines)
