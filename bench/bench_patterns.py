"""Evidence patterns on the GPU: an engine of the unobserved variables against the usual one; JSON lines.

A tenth or a fifth of the variables are observed, the same ones in every case, in the states of forward samples.
``work_us`` is the time model's prediction; ``plan_s`` and ``engine_s`` what planning and making the engine take;
``pays_after`` the cases after which the quicker calls have made up for that. ``is_used`` is the decision of
`jtgpu.backends.gpu.patterns`, which compares calls, and ``reason`` its reason.

    python bench/bench_patterns.py [--only NAME ...] [--share S ...] [--runs N] [--within SECONDS] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from rows import append, row

import jtgpu
from jtgpu import timing
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as resident
from jtgpu.backends.gpu.patterns import GpuPatternCache
from jtgpu.device.context import open_device
from jtgpu.plans import compiler

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("diabetes", "munin4", "link", "barley", "mildew", "water", "munin1", "munin2")
SHARES = (0.1, 0.2)


def published(name: str) -> tuple[Any, Any]:
    """A network and its order: those that may not be copied into the project, else the bundled one."""
    for folder in (ROOT / ".data" / "RetiEsempio", ROOT.parent / "shared" / "nets" / "RetiEsempio", ROOT / "nets"):
        for path in sorted(folder.glob("*.net")):
            if path.stem.lower() == name:
                order = path.with_suffix(".num")
                return jtgpu.read(path), order if order.is_file() else "min-fill"
    raise SystemExit(f"no network {name}")


def observed(net: Any, share: float, n: int, seed: int) -> list[Evidence]:
    """Cases that observe the same variables, a share of them, in the states of forward samples."""
    made = []
    samples = timing.sample_cases(net, n, 1.0, seed)
    chosen = np.random.default_rng(seed).choice(len(net), round(share * len(net)), replace=False)
    for sample in samples:
        state = np.full(len(net), -1, np.int32)
        state[chosen] = [sample[net.variables[v]] for v in chosen]
        made.append(Evidence(state))
    return made


def spread(times: list[float]) -> dict[str, float]:
    """Median and deciles."""
    q = statistics.quantiles(times, n=10, method="inclusive")
    return {"median": round(statistics.median(times), 2), "p10": round(q[0], 2), "p90": round(q[-1], 2)}


def calls(backend: Any, cases: list[Evidence], runs: int) -> dict[str, float]:
    """Microseconds of a call from Python."""
    times = []
    for i in range(runs):
        start = time.perf_counter()
        backend.run_case(cases[i % len(cases)])
        times.append((time.perf_counter() - start) * 1e6)
    return spread(times)


def compare(net: Any, order: Any, shares: list[float], runs: int) -> list[dict[str, Any]]:
    """A network's rows."""
    plan = net.plan(order=order, max_table=None, memory_limit=math.inf).plan
    tables = [f.table for f in compiler.model_factors(net)]
    usual = resident.prepare(plan, tables)
    patterns = GpuPatternCache(plan, tables, usual)
    rows = []
    for i, share in enumerate(shares):
        cases = observed(net, share, 4, i)
        seen = cases[0].state >= 0
        start = time.perf_counter()
        schedule = patterns.schedule(seen)
        if schedule is None:
            continue
        planned = time.perf_counter()
        new = patterns.backend_of(seen, schedule)
        made = time.perf_counter()
        less = new.engine.plan
        error, evidence = 0.0, 0.0
        for case in cases:
            got, expected = new.run_case(case), usual.run_case(case)
            error = max(error, float(np.abs(got.posterior - expected.posterior).max()))
            evidence = max(evidence, abs(got.log_evidence - expected.log_evidence))
        before, after = usual.measure(runs, cases), new.engine.measure(runs, cases)
        call_before, call_after = calls(usual, cases, runs), calls(new, cases, runs)
        gain = call_before["median"] - call_after["median"]
        used, reason = patterns.improve(seen, None, usual.work(seen))
        if used is not None:
            used.close()
        rows.append(
            {
                "share": share,
                "engine": usual.kind,
                "engine_new": new.engine.kind,
                "work_us": round(usual.work(seen) / 1e3, 1),
                "work_us_new": round(new.pattern_work() / 1e3, 1),
                "device_us": spread(before),
                "device_us_new": spread(after),
                "call_us": call_before,
                "call_us_new": call_after,
                "levels": plan.cost().program_levels,
                "levels_new": less.cost().program_levels,
                "flops": plan.cost().flops,
                "flops_new": less.cost().flops,
                "bytes": usual.engine.n_bytes,
                "bytes_new": new.engine.n_bytes,
                "plan_s": round(planned - start, 3),
                "engine_s": round(made - planned, 3),
                "pays_after": round((made - start) * 1e6 / gain) if gain > 0 else None,
                "is_used": used is not None,
                "reason": reason,
                "error_posterior": error,
                "error_evidence": evidence,
            }
        )
        new.close()
    patterns.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--share", nargs="*", type=float, default=list(SHARES))
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--within", type=float, default=math.inf, help="seconds after which no network is begun")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    start = time.perf_counter()
    device = open_device().name
    for name in options.only or NAMES:
        if time.perf_counter() - start > options.within:
            break
        for found in compare(*published(name), options.share, options.runs):
            made = row("patterns", name, found.pop("engine"), None, device=device, **found)
            print(json.dumps(made), flush=True)
            if options.out is not None:
                append(options.out, [made])


if __name__ == "__main__":
    main()
