"""Evidence patterns on the GPU: a plan without the observed variables against the usual one; JSON lines.

A tenth or a fifth of the variables are observed, the same ones in every case, in the states of forward samples.
``work_us`` is the prediction of the time model; ``plan_s`` and ``engine_s`` the seconds of planning and of preparing the
most promising engine; ``pays_after`` the number of cases that repays them. ``ways``: every possible engine. ``kept``:
the engine that the pattern cache uses after measuring, null for the usual one; ``reason``: why.

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
from bench_precision import observed, published, spread
from rows import append, row

from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as resident
from jtgpu.backends.gpu.patterns import GpuPatternCache, RestrictedBackend
from jtgpu.device.context import open_device
from jtgpu.plans import compiler

NAMES = ("diabetes", "munin4", "link", "barley", "mildew", "water", "munin1", "munin2")
SHARES = (0.1, 0.2)


def calls(backend: Any, cases: list[Evidence], runs: int) -> dict[str, float]:
    """Microseconds of a call from Python."""
    times = []
    for i in range(runs):
        start = time.perf_counter()
        backend.run(cases[i % len(cases)])
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
        ways = patterns.ways(seen)
        planned = time.perf_counter()
        remainder, way = next(ways)
        new = RestrictedBackend(remainder, way.make())
        made = time.perf_counter()
        less = new.engine.plan
        error, evidence = 0.0, 0.0
        for case in cases:
            got, expected = new.run(case), usual.run(case)
            error = max(error, float(np.abs(got.posterior - expected.posterior).max()))
            evidence = max(evidence, abs(got.log_evidence - expected.log_evidence))
        before, after = usual.measure(runs, cases), new.engine.measure(runs, cases)
        gain = statistics.median(before) - statistics.median(after)
        tried = [(way.kind, way.nanoseconds, statistics.median(after))]
        for _, way in ways:
            engine = way.make()
            tried.append((way.kind, way.nanoseconds, statistics.median(engine.measure(runs, cases))))
            engine.close()
        kept, reason = patterns.improve(seen, None, usual.work(seen))
        if kept is not None:
            kept.close()
        rows.append(
            {
                "share": share,
                "engine": usual.kind,
                "engine_new": new.engine.kind,
                "work_us": round(usual.work(seen) / 1e3, 1),
                "work_us_new": round(new.work() / 1e3, 1),
                "device_us": spread(before),
                "device_us_new": spread(after),
                "call_us": calls(usual, cases, runs),
                "call_us_new": calls(new, cases, runs),
                "levels": plan.cost().program_levels,
                "levels_new": less.cost().program_levels,
                "flops": plan.cost().flops,
                "flops_new": less.cost().flops,
                "bytes": usual.engine.n_bytes,
                "bytes_new": new.engine.n_bytes,
                "plan_s": round(planned - start, 3),
                "engine_s": round(made - planned, 3),
                "pays_after": round((made - start) * 1e6 / gain) if gain > 0 else None,
                "ways": {kind: {"work_us": round(ns / 1e3, 1), "device_us": round(us, 1)} for kind, ns, us in tried},
                "kept": kept.engine.kind if isinstance(kept, RestrictedBackend) else None,
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
