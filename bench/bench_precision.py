"""float32 against float64 on the GPU: what it costs in digits and what it gains in time and memory; JSON lines.

Each network as published (its .num order where there is one), cases with 0, 5, 10 and 20 % of the variables observed in
the states of a forward sample. Errors are float32's against float64's on the same card: of posteriors the largest
difference, of P(e) the relative one. Both as a kernel a level; ``device_us_best`` is what float64 takes by the engine
that jtgpu would choose.

    python bench/bench_precision.py [--only NAME ...] [--runs N] [--within SECONDS] [--out FILE]
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
from jtgpu.device.context import open_device
from jtgpu.plans import compiler

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("water", "mildew", "barley", "diabetes", "munin4", "link", "munin1", "munin2", "munin3", "powerplant")
SHARES = (0.0, 0.05, 0.1, 0.2)


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


def compare(name: str, runs: int) -> dict[str, Any]:
    """One network's row."""
    net, order = published(name)
    plan = net.plan(order=order, max_table=None, memory_limit=math.inf).plan
    tables = [f.table for f in compiler.model_factors(net)]
    cases = [case for i, share in enumerate(SHARES) for case in observed(net, share, 1 if share == 0 else 2, i)]
    start = time.perf_counter()
    usual = resident.prepare(plan, tables)
    exact = resident.prepare(plan, tables, engine="levels")
    half = resident.prepare(plan, tables, dtype="float32")
    prepared = time.perf_counter() - start
    posterior, evidence, smallest, doubted = 0.0, 0.0, 0.0, 0
    for case in cases:
        expected, got = exact.run(case), half.run(case)
        doubted += half.engine.run(case) is None
        posterior = max(posterior, float(np.abs(got.posterior - expected.posterior).max()))
        evidence = max(evidence, abs(got.log_evidence - expected.log_evidence))
        smallest = min(smallest, expected.log_evidence)
    row = {
        "network": name,
        "error_posterior": posterior,
        "error_evidence": evidence,
        "smallest_log_evidence": smallest,
        "cases": len(cases),
        "doubted": doubted,
        "engine_best": usual.kind,
        "engine": exact.kind,
        "engine_float32": half.kind,
        "device_us_best": spread(usual.measure(runs, cases)),
        "device_us_float64": spread(exact.measure(runs, cases)),
        "device_us_float32": spread(half.measure(runs, cases)),
        "bytes_float64": exact.engine.n_bytes,
        "bytes_float32": half.engine.n_bytes,
        "prepare_s": round(prepared, 2),
    }
    for backend in (half, exact, usual):
        backend.close()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--within", type=float, default=math.inf, help="seconds after which no network is begun")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    start = time.perf_counter()
    device = open_device().name
    for name in options.only or NAMES:
        if time.perf_counter() - start > options.within:
            break
        found = compare(name, options.runs)
        made = row("precision", found.pop("network"), found.pop("engine"), None, device=device, **found)
        print(json.dumps(made), flush=True)
        if options.out is not None:
            append(options.out, [made])


if __name__ == "__main__":
    main()
