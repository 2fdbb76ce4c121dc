"""Times of the resident GPU engine: on the device, from Python, and against the roofline; JSON lines.

Collect, distribute and every posterior, float64, evidence changed between runs. ``roofline_us`` is the longer of the
plan's traffic over L2's bandwidth (device memory's where the arena is larger than L2) and its multiply-adds over the
card's rate, plus one hand-over a level.

    python bench/bench_gpu.py [--networks DIR] [--only NAME ...] [--runs N] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import jtgpu
from jtgpu import compiler
from jtgpu.backends import cpu
from jtgpu.backends import gpu as resident
from jtgpu.backends.base import Evidence
from jtgpu.errors import ImpossibleEvidence
from jtgpu.plan import Plan

ROOT = Path(__file__).resolve().parent.parent
L2_BYTES = 50e6
L2_RATE, MEMORY_RATE = 5.0e6, 3.0e6  # bytes a microsecond, measured on an H100
FMA_RATE = 1.6e7  # multiply-adds a microsecond: 132 SMs, 64 a clock, 1.9 GHz
HAND_OVER = 0.9  # microseconds from a level to the next, measured
BATCH_CELLS = 1 << 28  # cells of all cases of a batch's run
MOST_BATCH = 1 << 16


def folders(given: str | None) -> list[Path]:
    found = [Path(given)] if given else [ROOT / ".data" / "RetiEsempio", ROOT.parent / "shared/nets/RetiEsempio"]
    return [*[f for f in found if f.is_dir()][:1], ROOT / "nets"]


def networks(given: str | None, only: list[str]) -> list[tuple[str, Path, Any]]:
    """(name, file, order): the published order where there is one."""
    made: dict[str, tuple[str, Path, Any]] = {}
    for folder in folders(given):
        for path in sorted(folder.glob("*.net")):
            name, order = path.stem.lower(), path.with_suffix(".num")
            if name not in made and (not only or name in only):
                made[name] = (name, path, order if order.is_file() else "min-fill")
    return [made[n] for n in sorted(made)]


def possible_cases(plan: Plan, n: int, judge: Any) -> list[Evidence]:
    """Cases of a tenth of the variables with probability above zero, and the case without evidence."""
    rng = np.random.default_rng(11)
    made = [Evidence.none(plan.n_variables)]
    for _ in range(20 * n):
        if len(made) > n:
            break
        state = np.full(plan.n_variables, -1, np.int32)
        for v in rng.choice(plan.n_variables, max(1, plan.n_variables // 20), replace=False).tolist():
            state[v] = int(rng.integers(plan.cardinality[v]))
        try:
            judge.run(Evidence(state))
        except ImpossibleEvidence:
            continue
        made.append(Evidence(state))
    return made


def roofline(plan: Plan) -> float:
    c = plan.cost()
    rate = L2_RATE if c.bytes < L2_BYTES else MEMORY_RATE
    return max(c.traffic / rate, c.flops / 2 / FMA_RATE) + HAND_OVER * (c.program_levels + 2)


def spread(times: list[float]) -> dict[str, float]:
    q = statistics.quantiles(times, n=10)
    return {"median": round(statistics.median(times), 2), "p10": round(q[0], 2), "p90": round(q[-1], 2)}


def measure(name: str, path: Path, order: Any, runs: int) -> dict[str, Any]:
    model = jtgpu.read(path)
    plan = model.plan(order=order, max_table=None, memory_limit=math.inf).plan
    tables = [f.table for f in compiler.model_factors(model)]
    judge = cpu.prepare(plan, tables)
    cases = possible_cases(plan, 4, judge)
    start = time.perf_counter()
    backend = resident.prepare(plan, tables)
    prepared = time.perf_counter() - start
    worst = 0.0
    for case in cases:
        got, expected = backend.run(case), judge.run(case)
        worst = max(worst, float(np.abs(got.posterior - expected.posterior).max()))
        worst = max(worst, abs(got.log_evidence - expected.log_evidence) / max(1.0, abs(expected.log_evidence)))
    device = backend.measure(runs, cases)
    calls = []
    for i in range(runs):
        start = time.perf_counter()
        backend.run(cases[i % len(cases)])
        calls.append((time.perf_counter() - start) * 1e6)
    start = time.perf_counter()
    judge.run(cases[0])
    on_cpu = (time.perf_counter() - start) * 1e6
    c = plan.cost()
    row = {
        "network": name,
        "entries": c.entries,
        "flops": c.flops,
        "levels": c.program_levels,
        "device_us": spread(device),
        "call_us": spread(calls),
        "cpu_us": round(on_cpu, 1),
        "roofline_us": round(roofline(plan), 1),
        "ratio": round(statistics.median(device) / roofline(plan), 2),
        "error": worst,
        "prepare_s": round(prepared, 3),
        "engine": backend.kind,
    }
    backend.close()
    return row


def measure_batch(name: str, path: Path, order: Any) -> dict[str, Any]:
    """Cases a second: the second of two calls, copies to and from the card included."""
    model = jtgpu.read(path)
    plan = model.plan(order=order, max_table=None, memory_limit=math.inf).plan
    tables = [f.table for f in compiler.model_factors(model)]
    backend = resident.prepare(plan, tables)
    case = possible_cases(plan, 16, cpu.prepare(plan, tables))
    batch = max(256, min(MOST_BATCH, BATCH_CELLS // plan.cost().table_entries))
    states = np.stack([case[i % len(case)].state for i in range(batch)])
    backend.run_batch(states)
    start = time.perf_counter()
    backend.run_batch(states)
    took = time.perf_counter() - start
    device = backend.batch_device_us
    backend.close()
    return {
        "network": name,
        "batch": batch,
        "cases_per_s": round(batch / took),
        "device_cases_per_s": round(batch / device * 1e6) if device else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--batch", action="store_true", help="tables of cases instead of single ones")
    parser.add_argument("--smoke", action="store_true", help="few runs, nothing kept")
    parser.add_argument("--commit", help="what to record as the commit, where git is not at hand")
    parser.add_argument("--out", default=str(ROOT / "bench" / "results" / "gpu.jsonl"))
    options = parser.parse_args()
    known = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    commit = options.commit or known.stdout.strip() or "unknown"
    from jtgpu.backends.device import open_device

    card = open_device()
    head = {"device": card.name, "driver": card.driver, "commit": commit, "dtype": "float64"}
    for name, path, order in networks(options.networks, options.only):
        if options.batch:
            row = head | measure_batch(name, path, order)
        else:
            row = head | measure(name, path, order, 20 if options.smoke else options.runs)
        line = json.dumps(row)
        print(line if not sys.stdout.isatty() else json.dumps(row, indent=1), flush=True)
        if not options.smoke:
            Path(options.out).parent.mkdir(parents=True, exist_ok=True)
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
