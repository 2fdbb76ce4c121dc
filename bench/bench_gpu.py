"""Times of the resident GPU engine: on the device, from Python, against the roofline and against others; JSON lines.

Collect, distribute and every posterior, float64, evidence changed between runs. ``roofline_us`` is the longer of the
plan's traffic over L2's bandwidth (device memory's where the arena is larger than L2) and its multiply-adds over the
card's rate, plus one hand-over a level.

With ``--batch`` tables of cases instead: forward samples of the network, a tenth of each observed, all rows different,
posteriors of all variables. ``limit_cases_per_s`` counts what no engine can avoid: answers and evidence once through
device memory, and the multiply-adds that are not always zero at the card's rate. With ``--peers torch jax`` the same
on the same card by others (bench/peers/einsum_peer.py, which compiles for seconds to minutes).

    python bench/bench_gpu.py [--networks DIR] [--only NAME ...] [--runs N] [--batch] [--peers ENGINE ...] [--smoke]
    python bench/bench_gpu.py --draw bench/results/gpu.svg
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
from jtgpu import backends, compiler
from jtgpu.backends import cpu
from jtgpu.backends import gpu as resident
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu.batch_live import live_program
from jtgpu.backends.gpu.batch_tables import LOOK
from jtgpu.errors import ImpossibleEvidence, JtgpuError
from jtgpu.plan import Plan

ROOT = Path(__file__).resolve().parent.parent
L2_BYTES = 50e6
L2_RATE, MEMORY_RATE = 5.0e6, 3.0e6  # bytes a microsecond, measured on an H100
FMA_RATE = 1.6e7  # multiply-adds a microsecond: 132 SMs, 64 a clock, 1.9 GHz
HAND_OVER = 0.9  # microseconds from a level to the next, measured
BATCH_CELLS = 3 << 28  # cells of all cases of a batch's run
MOST_BATCH = 1 << 17
PEER_CELLS = 1 << 28


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


def best_call(backend: Any, case: Evidence, n: int) -> float:
    """Microseconds of the quickest of n calls after the first."""
    backend.run(case)
    times = []
    for _ in range(n):
        start = time.perf_counter()
        backend.run(case)
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def on_indexed(plan: Plan, tables: list[np.ndarray], case: Evidence) -> float | None:
    """Microseconds of a call of the published engine, tables resident; None where it cannot run the plan."""
    try:
        backend = backends.get("indexed")(plan, tables)
        took = best_call(backend, case, 3)
        backend.close()
    except JtgpuError:
        return None
    return round(took, 1)


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
    on_cpu = best_call(judge, cases[0], 5)
    c = plan.cost()
    row = {
        "network": name,
        "entries": c.entries,
        "flops": c.flops,
        "levels": c.program_levels,
        "device_us": spread(device),
        "call_us": spread(calls),
        "cpu_us": round(on_cpu, 1),
        "indexed_us": on_indexed(plan, tables, cases[0]),
        "roofline_us": round(roofline(plan), 1),
        "ratio": round(statistics.median(device) / roofline(plan), 2),
        "error": worst,
        "prepare_s": round(prepared, 3),
        "engine": backend.kind,
    }
    backend.close()
    return row


def forward_sample(model: Any, n: int, rng: np.random.Generator) -> np.ndarray:
    """n rows of states drawn from a network."""
    place = {v: i for i, v in enumerate(model.variables)}
    states = np.full((n, len(place)), -1, np.int32)
    waiting = list(model.variables)
    while waiting:
        left = []
        for v in waiting:
            parents = [place[p] for p in model.parents(v)]
            if any(states[0, p] < 0 for p in parents):
                left.append(v)
                continue
            rows = np.asarray(model.cpt(v))[tuple(states[:, p] for p in parents)]
            table = np.broadcast_to(rows, (n, len(model.states(v))))
            sums = table.cumsum(axis=1)
            states[:, place[v]] = (rng.random((n, 1)) * sums[:, -1:] >= sums).sum(axis=1).clip(max=table.shape[1] - 1)
        waiting = left
    return states


def batch_limit(plan: Plan, tables: list[np.ndarray]) -> float:
    """Cases a second that no engine of a lane a case exceeds."""
    work = plan.cost().flops / 2
    if plan.cost().flops <= 2 * LOOK:
        work = float(live_program(plan, tables).count.sum())
    n_bytes = 8 * (int(plan.posterior_ptr[-1]) + 1) + 4 * plan.n_variables
    return 1e6 / max(n_bytes / MEMORY_RATE, work / FMA_RATE)


def measure_batch(name: str, path: Path, order: Any) -> dict[str, Any]:
    """Cases a second: the best of four calls after the first; with copies to and from the card, and without."""
    model = jtgpu.read(path)
    plan = model.plan(order=order, max_table=None, memory_limit=math.inf).plan
    tables = [f.table for f in compiler.model_factors(model)]
    rng = np.random.default_rng(4)
    batch = max(1024, min(MOST_BATCH, BATCH_CELLS // plan.cost().table_entries))
    full = forward_sample(model, batch, rng)
    states = rng.permutation(np.unique(np.where(rng.random(full.shape) < 0.1, full, -1).astype(np.int32), axis=0))
    batch = len(states)
    backend = resident.prepare(plan, tables)
    start = time.perf_counter()
    found = backend.run_batch(states)
    first = time.perf_counter() - start
    judge = cpu.prepare(plan, tables)
    worst = 0.0
    for i in range(0, batch, -(-batch // 4)):
        expected = judge.run(Evidence(states[i]))
        worst = max(worst, float(np.abs(found.posterior[i] - expected.posterior).max()))
    few = states[: max(16, min(batch, 3_000_000_000 // plan.cost().flops))]
    judge.run_batch(few)
    start = time.perf_counter()
    judge.run_batch(few)
    on_cpu = len(few) / (time.perf_counter() - start)
    calls, device = [], []
    for _ in range(4):
        start = time.perf_counter()
        backend.run_batch(states)
        calls.append(time.perf_counter() - start)
        device.append(backend.batch_device_us)
    limit = batch_limit(plan, tables)
    row = {
        "network": name,
        "batch": batch,
        "kernels": backend.batch_kind,
        "cases_per_s": round(batch / min(calls)),
        "device_cases_per_s": round(batch / min(device) * 1e6),
        "limit_cases_per_s": round(limit),
        "share": round(batch / min(device) * 1e6 / limit, 3),
        "cpu_cases_per_s": round(on_cpu),
        "first_call_s": round(first, 2),
        "error": worst,
    }
    backend.close()
    return row


def peer_batch(path: Path, order: Any) -> int:
    """Cases of a peer's table: as many as keep the card busy and fit it with everything that a gradient keeps."""
    plan = jtgpu.read(path).plan(order=order, max_table=None, memory_limit=math.inf).plan
    return int(max(64, min(1 << 15, PEER_CELLS // plan.cost().table_entries)))


def measure_peer(engine: str, name: str, path: Path, order: Any, batch: int, seconds: float) -> dict[str, Any]:
    """A peer in a process of its own, stopped after so many seconds."""
    script = Path(__file__).resolve().parent / "peers" / "einsum_peer.py"
    command = [sys.executable, str(script), str(path), str(order), "--engine", engine, "--batch", str(batch)]
    row: dict[str, Any] = {"network": name, "peer": engine, "batch": batch}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return row | {"failed": f"not compiled within {seconds:.0f} s"}
    if done.returncode:
        return row | {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return row | found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--batch", action="store_true", help="tables of cases instead of single ones")
    parser.add_argument("--peers", nargs="*", default=[], help="torch, jax: others on the same card, nothing of ours")
    parser.add_argument("--peer-seconds", type=float, default=150.0)
    parser.add_argument("--smoke", action="store_true", help="few runs, nothing kept")
    parser.add_argument("--commit", help="what to record as the commit, where git is not at hand")
    parser.add_argument("--out", default=str(ROOT / "bench" / "results" / "gpu.jsonl"))
    parser.add_argument("--draw", help="a picture (.svg, .png) of the rows kept so far, and nothing else")
    options = parser.parse_args()
    if options.draw:
        from jtgpu.show.bench_gpu import draw_bench, read_rows

        draw_bench(read_rows(options.out), options.draw)
        return
    known = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    commit = options.commit or known.stdout.strip() or "unknown"
    from jtgpu.backends.device import open_device

    card = open_device()
    head = {"device": card.name, "driver": card.driver, "commit": commit, "dtype": "float64"}
    for name, path, order in networks(options.networks, options.only):
        if options.peers:
            rows = [
                measure_peer(engine, name, path, order, batch, options.peer_seconds)
                for engine in options.peers
                for batch in (0, peer_batch(path, order))
            ]
        elif options.batch:
            rows = [measure_batch(name, path, order)]
        else:
            rows = [measure(name, path, order, 20 if options.smoke else options.runs)]
        for row in rows:
            line = json.dumps(head | row)
            print(line, flush=True)
            if not options.smoke:
                Path(options.out).parent.mkdir(parents=True, exist_ok=True)
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
