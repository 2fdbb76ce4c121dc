"""Where one propagation's time goes on the card: every kernel under ncu, and every kernel where it stands in the graph.

Two readings of each kernel. *ncu* runs it alone, several times, with the counters on: duration, throughput of SM, L2
and device memory as shares of their peaks, registers, occupancy, instructions, and what warps wait for. *In place*:
graphs of the first k kernels are timed for every k, so a kernel's share counts what programmatic launch hides and what
it does not. Kernels are summed up by size (blocks of a launch against what the card holds at once), since a thin level
and a full one are bound by different things.

    python bench/profile_gpu.py munin1 link diabetes munin4 [--networks DIR] [--out DIR] [--kernels] [--no-ncu]

Needs ncu on the PATH and the right to read the card's counters. Prints reStructuredText; ``--out`` keeps rows as JSON.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench_gpu import networks

import jtgpu
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as resident
from jtgpu.plans import compiler

SM_COUNT = 132
ENDS = ("enter", "finish")  # kernels that are no level
RUNS = 25
STALLS = (
    *("long_scoreboard", "short_scoreboard", "barrier", "membar", "wait", "branch_resolve", "lg_throttle"),
    *("mio_throttle", "math_pipe_throttle", "no_instruction", "not_selected", "dispatch_stall", "drain", "imc_miss"),
)
METRICS = {  # ours -> ncu's
    "us": "gpu__time_duration.sum",
    "sm": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "dram_bytes": "dram__bytes.sum",
    "l2_bytes": "lts__t_bytes.sum",
    "instructions": "smsp__inst_executed.sum",
    "fp64": "sm__inst_executed_pipe_fp64.sum",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
    "blocks": "launch__grid_size",
    "threads": "launch__block_size",
    **{s: f"smsp__average_warps_issue_stalled_{s}_per_issue_active.ratio" for s in STALLS},
}
Row = dict[str, Any]


def opened(name: str, path: Path, order: Any) -> tuple[Any, list[Evidence]]:
    """The resident engine, and a case with a state of every tenth variable to write."""
    model = jtgpu.read(path)
    plan = model.plan(order=order, max_table=None, memory_limit=math.inf).plan
    backend = resident.prepare(plan, [f.table for f in compiler.model_factors(model)])
    state = np.full(plan.n_variables, -1, np.int32)
    none = Evidence(state)
    judge = backend.run_case(none).posterior  # likeliest states one by one would be slow: one finding a case is enough
    cases = [none]
    for v in range(0, plan.n_variables, max(1, plan.n_variables // 4)):
        one = state.copy()
        one[v] = int(judge[plan.posterior_ptr[v] : plan.posterior_ptr[v + 1]].argmax())
        cases.append(Evidence(one))
    return backend, cases


def worker(name: str, path: Path, order: Any) -> None:
    """One propagation between the profiler's start and stop, kernel by kernel."""
    from pycuda import driver

    backend, cases = opened(name, path, order)
    engine = backend.engine
    for case in cases:  # the last one is left where the kernels read it
        backend.run_case(case)
    with engine.lock, engine.device.active():
        driver.start_profiler()
        getattr(engine, "queue_kernels", engine.queue)()
        engine.stream.synchronize()
        driver.stop_profiler()
    backend.close()


def by_ncu(name: str, folder: Path, seconds: float, given: str | None) -> list[Row]:
    """A row a kernel, in the order of the run; empty where ncu does not work here."""
    log = folder / f"{name}.csv"
    for metrics in (METRICS, {k: v for k, v in METRICS.items() if k not in ("fp64", *STALLS[5:])}):
        command = ["ncu", "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none"]
        command += ["--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)]
        command += ["--metrics", ",".join(metrics.values()), sys.executable, __file__, name, "--worker"]
        command += ["--networks", given] if given else []
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            print(f"{name}: ncu took more than {seconds:.0f} s", file=sys.stderr)
            return []
        rows = read_csv(log, metrics) if log.exists() else []
        if rows:
            return rows
        said = log.read_text(encoding="utf-8")[-600:] if log.exists() else ""
        print(f"{name}: ncu: {said} {done.stderr[-600:]}", file=sys.stderr)
    return []


def read_csv(log: Path, metrics: dict[str, str]) -> list[Row]:
    """What ncu wrote: lines of its own begin with ``==``, then a head, units, and a line a kernel."""
    lines = [x for x in log.read_text(encoding="utf-8").splitlines() if x and not x.startswith("==")]
    table = list(csv.DictReader(lines))
    rows = []
    for line in table[1:]:
        row: Row = {"kernel": line["Kernel Name"].partition("(")[0]}
        for ours, theirs in metrics.items():
            text = (line.get(theirs) or "").replace(",", "")
            row[ours] = float(text) if text and text[0].isdigit() else math.nan
        row["us"] /= 1e3
        rows.append(row)
    return rows


def in_place(engine: Any) -> list[tuple[str, int, float]]:
    """(kernel, blocks, microseconds) of every launch of a propagation: what it adds to the graph of those before it."""
    calls = list(engine.calls)
    made: list[tuple[str, int, float]] = []
    with engine.lock, engine.device.active():
        stream = engine.stream
        start, stop = engine.device.event(timing=True), engine.device.event(timing=True)
        before = 0.0
        for k in range(1, len(calls) + 1):
            engine.calls = calls[:k]
            graph = engine.device.capture(stream, engine.queue_kernels)
            times = []
            for _ in range(RUNS):
                start.record(stream)
                graph.launch(stream)
                stop.record(stream)
                stop.synchronize()
                times.append(stop.time_since(start) * 1e3)
            graph.close()
            now = statistics.median(times)
            made.append((*calls[k - 1][:2], now - before))
            before = now
        engine.calls = calls
    return made


def contents(engine: Any) -> list[Row]:
    """What the levels consist of: contractions, multiply-adds, the time model's time."""
    schedule = engine.schedule
    found = []
    for level in schedule.levels:
        tasks = schedule.tasks[level.first : level.first + level.n_blocks * 8]
        ids, units = np.unique(tasks["op"], return_counts=True)
        busy = ids < len(schedule.ops)
        ops = schedule.ops[ids[busy]]
        sizes = ops["n_tiles"].astype(np.int64) * (ops["shape"] >> 3) * (ops["shape"] & 7) * ops["n_steps"]
        big = int(sizes.argmax())
        found.append(
            {
                "contractions": len(ops),
                "multiply_adds": int(sizes.sum()),
                "largest": int(sizes[big]),
                "largest_shape": f"{ops[big]['shape'] >> 3}x{ops[big]['shape'] & 7}",
                "largest_steps": int(ops[big]["n_steps"]),
                "warps": int(units[busy].sum()),
                "model_us": level.floor / 1e3,
            }
        )
    return found


def profiled(name: str, path: Path, order: Any, folder: Path, seconds: float, given: str | None) -> list[Row]:
    """A row a launch: in place, by ncu, and what it holds."""
    backend, cases = opened(name, path, order)
    engine = backend.engine
    whole = statistics.median(backend.measure(200, cases))
    if engine.kind == "levels":
        rows: list[Row] = [{"kernel": k, "blocks": n, "place_us": t} for k, n, t in in_place(engine)]
        levels = [r for r in rows if not r["kernel"].startswith(ENDS)]
        for row, inside in zip(levels, contents(engine), strict=True):
            row |= inside
    else:
        rows = [{"kernel": engine.kind, "blocks": 0, "place_us": whole}]
    backend.close()
    watched = by_ncu(name, folder, seconds, given) if seconds else []
    if len(watched) == len(rows):
        rows = [a | b for a, b in zip(rows, watched, strict=True)]
    elif watched:
        print(f"{name}: {len(watched)} kernels under ncu, {len(rows)} launches", file=sys.stderr)
        rows = watched
    for i, row in enumerate(rows):
        row |= {"network": name, "launch": i, "whole_us": whole}
    return rows


def size_class(row: Row) -> str:
    """By the blocks of a launch."""
    if row["kernel"].startswith(ENDS):
        return str(row["kernel"])
    each = row["blocks"] / SM_COUNT
    return "up to 1 block an SM" if each <= 1 else "up to 4" if each <= 4 else "more than 4"


def weighted(rows: Sequence[Row], key: str) -> float:
    """Mean over time."""
    total = sum(r["us"] for r in rows)
    return float(sum(r["us"] * r[key] for r in rows) / total) if total else math.nan


def waits(rows: Sequence[Row]) -> str:
    """What a warp waits for between two instructions, the three longest, in shares of the whole wait."""
    means = {s: weighted(rows, s) for s in STALLS if s in rows[0]}
    whole = sum(v for v in means.values() if not math.isnan(v))
    ordered = sorted(means, key=lambda s: -means[s] if not math.isnan(means[s]) else 0.0)
    return ", ".join(f"{s.replace('_', ' ')} {100 * means[s] / whole:.0f} %" for s in ordered[:3]) if whole else "--"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """As a simple reStructuredText table."""
    widths = [max(len(x[i]) for x in (head, *lines)) for i in range(len(head))]
    rule = " ".join("=" * w for w in widths)
    body = [" ".join(c.ljust(w) for c, w in zip(x, widths, strict=True)).rstrip() for x in lines]
    top = " ".join(c.ljust(w) for c, w in zip(head, widths, strict=True)).rstrip()
    return "\n".join([rule, top, rule, *body, rule])


def number(x: Any, form: str = ".1f") -> str:
    """A dash for what was not measured."""
    return "--" if x is None or (isinstance(x, float) and math.isnan(x)) else format(x, form)


def summary(rows: list[Row], key: Callable[[Row], str]) -> str:
    """One line a class of a network's kernels."""
    watched = "us" in rows[0]
    head = ["kernels", "launches", "in place, us"]
    if watched:
        head += ["ncu, us", "SM %", "L2 %", "DRAM %", "issue %", "occupancy %", "registers", "instr. / fp64"]
        head.append("waits for")
    lines = []
    classes: dict[str, list[Row]] = {}
    for row in rows:
        classes.setdefault(key(row), []).append(row)
    for name, members in classes.items():
        cells = [name, str(len(members)), number(sum(r.get("place_us", math.nan) for r in members))]
        if watched:
            cells.append(number(sum(r["us"] for r in members)))
            cells += [number(weighted(members, k), ".0f") for k in ("sm", "l2", "dram", "issue", "occupancy")]
            cells.append(number(max(r["registers"] for r in members), ".0f"))
            fp64 = sum(r.get("fp64", math.nan) for r in members)
            cells.append(number(sum(r["instructions"] for r in members) / fp64 if fp64 else math.nan, ".0f"))
            cells.append(waits(members))
        lines.append(cells)
    return table(head, lines)


def every(rows: list[Row]) -> str:
    """One line a launch."""
    head = ["#", "kernel", "blocks", "contr.", "multiply-adds", "largest (tile x steps)"]
    head += ["model", "place", "ncu", "SM", "L2", "DRAM", "occ.", "instr./warp", "waits for"]
    lines = []
    for r in rows:
        largest = f"{r['largest']:,} ({r['largest_shape']} x {r['largest_steps']})" if r.get("largest") else ""
        cells = [str(r["launch"]), r["kernel"], f"{r['blocks']:.0f}"]
        cells += [f"{r[k]:,}" if k in r else "" for k in ("contractions", "multiply_adds")]
        cells += [largest, *(number(r.get(k), ".2f") for k in ("model_us", "place_us", "us"))]
        cells += [number(r.get(k), ".0f") for k in ("sm", "l2", "dram", "occupancy")]
        warps = r["blocks"] * r.get("threads", 256) / 32
        cells += [number(r.get("instructions", math.nan) / max(warps, 1), ".0f"), waits([r]) if "us" in r else "--"]
        lines.append(cells)
    return table(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["munin1", "link", "diabetes", "munin4"], help="networks")
    parser.add_argument("--networks", help="folder of .net files")
    parser.add_argument("--out", default="profile", help="folder for the rows and ncu's own files")
    parser.add_argument("--kernels", action="store_true", help="a line a launch, too")
    parser.add_argument("--seconds", type=float, default=60.0, help="that ncu may take a network")
    parser.add_argument("--no-ncu", action="store_true", help="only the times in place")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        (chosen,) = networks(options.networks, options.names)
        worker(*chosen)
        return
    seconds = 0.0 if options.no_ncu or shutil.which("ncu") is None else options.seconds
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    found = {n: (n, p, o) for n, p, o in networks(options.networks, options.names)}
    for name in options.names:
        rows = profiled(*found[name], folder, seconds, options.networks)
        with (folder / "profile.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(r) + "\n" for r in rows)
        title = f"{name}: {rows[0]['whole_us']:.1f} us a propagation, {len(rows)} launches"
        print(f"{title}\n{'-' * len(title)}\n\n{summary(rows, size_class)}\n", flush=True)
        if options.kernels:
            print(every(rows) + os.linesep, flush=True)


if __name__ == "__main__":
    main()
