"""Times of the resident GPU engine: on the device, from Python, against the roofline and against others; JSON lines.

Single cases: collect, distribute and every posterior, float64, evidence changed between runs. ``roofline_us`` is the
longer of the plan's traffic over L2's bandwidth (device memory's where the arena is larger than L2) and its
multiply-adds over the card's rate, plus one hand-over a level.

Tables of cases: forward samples of the network, a tenth of each observed, no two alike where there are so many,
posteriors of all variables, by rows and, ``columns_``, as columns: so frames and the quickest peers have them.
``limit_cases_per_s`` counts what no engine can avoid: answers and evidence once through device memory, and the
multiply-adds that are not always zero at the card's rate. With ``--share`` another share is observed in tables
eight times as large, and the numbers are kept as ``filled``.

With ``--peers`` others on the same card instead (bench/peers/einsum_peer.py): they compile together on the cores there
are, the first named first, and are timed one after another with the card to themselves.

    python bench/bench_gpu.py [--only NAME ...] [--single | --batch] [--within SECONDS] [--runs N] [--smoke]
    python bench/bench_gpu.py --peers jax-sum=alarm,water torch@case=link torch@table=alarm [--within SECONDS]
    python bench/bench_gpu.py --draw bench/results/gpu.svg

Networks that the issue of speed is about come first; none is begun when ``--within`` is over. ``wide18`` and
``ladder2000`` are made here, for plans that only the engine of levels answers; they are run if they are named.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from peers.einsum_peer import ENGINES
from peers.together import Job, together
from rows import append, commit

import jtgpu
from jtgpu import backends
from jtgpu.backends import cpu
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as resident
from jtgpu.backends.gpu.batch.records import LOOK
from jtgpu.backends.gpu.batch.sparsity import find_sparsity
from jtgpu.backends.gpu.lower import lowered
from jtgpu.backends.table import Table
from jtgpu.device.context import open_device
from jtgpu.errors import ImpossibleEvidence, JtgpuError
from jtgpu.plans import compiler
from jtgpu.plans.plan import Plan

ROOT = Path(__file__).resolve().parent.parent
FIRST = (
    *("alarm", "water", "mildew", "barley", "diabetes", "munin4", "link", "munin1", "hailfinder", "andes", "pigs"),
    *("munin2", "munin3", "win95pts"),
)
L2_BYTES = 50e6
L2_RATE, MEMORY_RATE = 5.0e6, 3.0e6  # bytes a microsecond, measured on an H100
FMA_RATE = 1.6e7  # multiply-adds a microsecond: 132 SMs, 64 a clock, 1.9 GHz
HAND_OVER = 0.9  # microseconds from a level to the next, measured
BATCH_CELLS = 1 << 32  # cells of all cases of a table
MOST_CASES = 1 << 20  # of a table
PEER_BATCH = 1 << 17  # larger ones do not fit what the peers allocate
SHARE = 0.1  # of the cells of tables of cases, observed
CPU_FLOPS = 1e9  # of the CPU's share of a batch
PEER_CELLS = 1 << 28


def wide(n: int) -> jtgpu.BayesianNetwork:
    """A chain of n variables of 64 states, each of which has two more parents, of 64 and 32 states."""
    rng = np.random.default_rng(n)
    parents: dict[str, list[str]] = {f"{kind}{i}": [] for i in range(n) for kind in "pq"}
    parents |= {f"v{i}": [f"p{i}", f"q{i}", *([f"v{i - 1}"] if i else [])] for i in range(n)}
    cards = {v: 32 if v[0] == "q" else 64 for v in parents}
    cpts = {}
    for v, above in parents.items():
        table = rng.random([cards[u] for u in (*above, v)])
        cpts[v] = table / table.sum(axis=-1, keepdims=True)
    return jtgpu.BayesianNetwork({v: list(map(str, range(n))) for v, n in cards.items()}, parents, cpts)


def ladder(n: int) -> jtgpu.BayesianNetwork:
    """n variables of three states, each of which depends on the one and the three before."""
    rng = np.random.default_rng(n)
    parents = {f"v{i}": [f"v{j}" for j in (i - 3, i - 1) if j >= 0] for i in range(n)}
    cpts = {v: rng.dirichlet(np.ones(3), (3,) * len(above)) for v, above in parents.items()}
    return jtgpu.BayesianNetwork({v: ["a", "b", "c"] for v in parents}, parents, cpts)


# Plans that only the engine of levels answers, if they are named: above 2^27 cells, and of 2,000 variables.
MADE: dict[str, Callable[[], Any]] = {"wide18": partial(wide, 18), "ladder2000": partial(ladder, 2000)}


def folders(given: str | None) -> list[Path]:
    found = [Path(given)] if given else [ROOT / ".data" / "RetiEsempio", ROOT.parent / "shared/nets/RetiEsempio"]
    return [*[f for f in found if f.is_dir()][:1], ROOT / "nets"]


def networks(given: str | None, only: Sequence[str]) -> list[tuple[str, Path, Any]]:
    """(name, file, order): the published order where there is one. As named, or the heavy ones first."""
    made: dict[str, tuple[str, Path, Any]] = {}
    for folder in folders(given):
        for path in sorted(folder.glob("*.net")):
            name, order = path.stem.lower(), path.with_suffix(".num")
            if name not in made and (not only or name in only):
                made[name] = (name, path, order if order.is_file() else "min-fill")
    made |= {name: (name, Path(name), "min-fill") for name in MADE if name in only}
    ranks = {name: i for i, name in enumerate(only or FIRST)}
    return [made[n] for n in sorted(made, key=lambda n: (ranks.get(n, len(ranks)), n))]


def possible_cases(plan: Plan, n: int, judge: Any) -> list[Evidence]:
    """Cases of a twentieth of the variables with probability above zero, and the case without evidence."""
    rng = np.random.default_rng(11)
    made = [Evidence.none(plan.n_variables)]
    for _ in range(20 * n):
        if len(made) > n:
            break
        state = np.full(plan.n_variables, -1, np.int32)
        for v in rng.choice(plan.n_variables, max(1, plan.n_variables // 20), replace=False).tolist():
            state[v] = int(rng.integers(plan.cardinality[v]))
        try:
            judge.run_case(Evidence(state))
        except ImpossibleEvidence:
            continue
        made.append(Evidence(state))
    return made


def roofline(plan: Plan) -> float:
    c = plan.cost()
    rate = L2_RATE if c.bytes < L2_BYTES else MEMORY_RATE
    return max(c.traffic / rate, c.flops / 2 / FMA_RATE) + HAND_OVER * (c.program_levels + 2)


def spread(times: list[float]) -> dict[str, float]:
    q = statistics.quantiles(times, n=10, method="inclusive")
    return {"median": round(statistics.median(times), 2), "p10": round(q[0], 2), "p90": round(q[-1], 2)}


def best_call(backend: Any, case: Evidence, n: int) -> float:
    """Microseconds of the quickest of n calls after the first."""
    backend.run_case(case)
    times = []
    for _ in range(n):
        start = time.perf_counter()
        backend.run_case(case)
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


class Loaded:
    """A network with its plan and tables, and the CPU's engine as the judge."""

    def __init__(self, name: str, path: Path, order: Any):
        self.name = name
        self.model = MADE[name]() if name in MADE else jtgpu.read(path)
        self.plan = self.model.plan(order=order, max_table=None, memory_limit=math.inf).plan
        self.tables = [f.table for f in compiler.model_factors(self.model)]
        self.judge = cpu.prepare(self.plan, self.tables)


def measure(given: Loaded, runs: int, indexed: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Single cases: the device's time and the call's, after the answers were compared with the CPU's."""
    plan, judge = given.plan, given.judge
    cases = possible_cases(plan, 4, judge)
    card = open_device()
    with card.active():
        before = card.free_memory()
    start = time.perf_counter()
    backend = resident.prepare(plan, given.tables, **options)
    prepared = time.perf_counter() - start
    worst = 0.0
    for case in cases:
        got, expected = backend.run_case(case), judge.run_case(case)
        worst = max(worst, float(np.abs(got.posterior - expected.posterior).max()))
        worst = max(worst, abs(got.log_evidence - expected.log_evidence) / max(1.0, abs(expected.log_evidence)))
    with card.active():
        taken = before - card.free_memory()
    device = backend.measure(runs, cases)
    calls = []
    for i in range(runs):
        start = time.perf_counter()
        backend.run_case(cases[i % len(cases)])
        calls.append((time.perf_counter() - start) * 1e6)
    ran = backend.engine.plan  # lowered again, perhaps, to have fewer levels
    c, limit = ran.cost(), roofline(ran)
    row = {
        "network": given.name,
        "entries": c.entries,
        "flops": c.flops,
        "levels": c.program_levels,
        "bytes": int(taken),
        "device_us": spread(device),
        "call_us": spread(calls),
        "cpu_us": round(best_call(judge, cases[0], 5), 1),
        "roofline_us": round(limit, 1),
        "ratio": round(statistics.median(device) / limit, 2),
        "error": worst,
        "prepare_s": round(prepared, 3),
        "engine": backend.kind,
    }
    backend.close()
    if indexed:
        row["indexed_us"] = on_indexed(plan, given.tables, cases[0])
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
        work = float(find_sparsity(lowered(plan), tables).count.sum())
    n_bytes = 8 * (int(plan.posterior_ptr[-1]) + 1) + 4 * plan.n_variables
    return 1e6 / max(n_bytes / MEMORY_RATE, work / FMA_RATE)


def sampled_cases(given: Loaded, times: int = 1, share: float = SHARE) -> np.ndarray:
    """Forward samples, a share of each observed: as many as keep the card busy for a while. No two are alike, but in
    networks that have too few such cases."""
    batch = times * max(1024, min(MOST_CASES, BATCH_CELLS // given.plan.cost().table_entries))
    rng = np.random.default_rng(4)
    full = forward_sample(given.model, batch, rng)
    seen = np.where(rng.random(full.shape) < share, full, -1).astype(np.int32)
    distinct = np.unique(seen, axis=0)
    return rng.permutation(distinct) if len(distinct) > batch // 2 else seen


def in_turns(backend: Any, ask: Callable[[], object]) -> tuple[list[float], list[float]]:
    """Microseconds of some calls, and of their kernels."""
    calls, device = [], []
    for _ in range(7):
        start = time.perf_counter()
        ask()
        calls.append((time.perf_counter() - start) * 1e6)
        device.append(backend.tables.device_us)
    return calls, device


def measure_batch(given: Loaded, share: float, options: dict[str, Any]) -> dict[str, Any]:
    """Tables of cases, by rows and, where the backend has them so, by columns: the device's time, and the call's with
    all copies. Samples of the answers are compared first."""
    plan, judge = given.plan, given.judge
    states = sampled_cases(given, 1 if share == SHARE else 8, share)
    batch = len(states)
    start = time.perf_counter()
    backend = resident.prepare(plan, given.tables, **options)
    found = backend.run(Table.of(states))
    first = time.perf_counter() - start
    worst = 0.0
    for i in range(0, batch, -(-batch // 4)):
        worst = max(worst, float(np.abs(found.posterior[i] - judge.run_case(Evidence(states[i])).posterior).max()))
    few = states[: max(16, min(batch, int(CPU_FLOPS // plan.cost().flops)))]
    judge.run(Table.of(few))
    start = time.perf_counter()
    judge.run(Table.of(few))
    on_cpu = len(few) / (time.perf_counter() - start)
    calls, device = in_turns(backend, lambda: backend.run(Table.of(states)))
    limit = batch_limit(plan, given.tables)
    rate = batch / statistics.median(device) * 1e6
    row = {
        "network": given.name,
        "batch": batch,
        "kernels": "warps" if backend.tables.share(Table.of(states)).by_warps else backend.tables.kind,
        "batch_us": spread(device),
        "batch_call_us": spread(calls),
        "cases_per_s": round(batch / statistics.median(calls) * 1e6),
        "device_cases_per_s": round(rate),
        "limit_cases_per_s": round(limit),
        "share": round(rate / limit, 3),
        "cpu_cases_per_s": round(on_cpu),
        "first_call_s": round(first, 2),
        "error": worst,
    }
    if int(plan.cardinality.max()) <= np.iinfo(np.int8).max:
        codes = np.ascontiguousarray(states.T.astype(np.int8))
        by_columns = Table.by_columns(range(plan.n_variables), codes, plan.n_variables)
        gap = float(np.abs(backend.run(by_columns).posterior.T - found.posterior).max())
        calls, device = in_turns(backend, lambda: backend.run(by_columns))
        row |= {
            "columns_us": spread(device),
            "columns_call_us": spread(calls),
            "columns_device_cases_per_s": round(batch / statistics.median(device) * 1e6),
            "columns_gap": gap,
        }
    backend.close()
    if share == SHARE:
        return row
    for name in ("limit_cases_per_s", "share"):  # those of a case that observes nothing
        del row[name]
    return {"network": given.name, "share": share, "filled": row}


def peer_jobs(words: Sequence[str], chosen: Sequence[tuple[str, Path, Any]], batches: Sequence[int]) -> list[Job]:
    """What ``--peers`` asks for, the first word first."""
    jobs = []
    for word in words:
        what, _, named = word.partition("=")
        engine, _, kind = what.partition("@")
        if engine not in ENGINES or kind not in ("", "case", "table"):
            raise SystemExit(f"--peers {word}: {', '.join(ENGINES)}; then @case or @table; then =NETWORK,NETWORK")
        sizes = {"": batches, "case": [0], "table": [PEER_BATCH]}[kind]
        known = {name: (path, order) for name, path, order in chosen}
        for name in named.split(",") if named else known:
            jobs += [Job(name, *known[name], engine, batch, PEER_CELLS if batch else 0) for batch in sizes]
    return jobs


def peer_rows(jobs: Sequence[Job], seconds: float) -> Iterator[dict[str, Any]]:
    """Rows of others; those that had no time to begin have none."""
    for row in together(jobs, seconds):
        if not str(row.get("failed", "")).startswith("not begun"):
            yield row


def our_rows(chosen: Sequence[tuple[str, Path, Any]], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Rows of this engine, network by network."""
    begun = time.monotonic()
    made = {} if options.dtype == "float64" else {"dtype": options.dtype}
    for name, path, order in chosen:
        if time.monotonic() - begun > options.within:
            print(f"{name}: not begun, {options.within:.0f} s are over", file=sys.stderr)
            continue
        given = Loaded(name, path, order)
        if not options.batch:
            yield measure(given, 20 if options.smoke else options.runs, options.indexed, made)
        if not options.single:
            yield measure_batch(given, options.share, made)
        given.judge.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", help="folder of .net files")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--single", action="store_true", help="single cases only")
    parser.add_argument("--batch", action="store_true", help="tables of cases only")
    parser.add_argument("--share", type=float, default=SHARE, help="of the cells that --batch observes")
    parser.add_argument("--dtype", default="float64", help="what tables are made of: float64, float32")
    parser.add_argument("--indexed", action="store_true", help="also the published engine")
    parser.add_argument("--peers", nargs="*", default=[], metavar="PEER", help="others on the same card instead")
    parser.add_argument("--within", type=float, default=math.inf, help="seconds: to begin in; of peers, to compile in")
    parser.add_argument("--smoke", action="store_true", help="few runs, nothing kept")
    parser.add_argument("--out", default=str(ROOT / "bench" / "results" / "gpu.jsonl"))
    parser.add_argument("--draw", help="a picture (.svg, .png) of the rows kept so far, and nothing else")
    options = parser.parse_args()
    if options.draw:
        from propagation_times import draw_bench, read_rows

        draw_bench(read_rows(options.out), options.draw)
        return
    card = open_device()
    head = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": card.name,
        "driver": card.driver,
        "commit": commit(),
        "dtype": options.dtype,
    }
    chosen = networks(options.networks, options.only)
    if options.peers:
        batches = [0] * (not options.batch) + [PEER_BATCH] * (not options.single)
        rows = peer_rows(peer_jobs(options.peers, chosen, batches), min(options.within, 1e6))
    else:
        rows = our_rows(chosen, options)
    for row in rows:
        line = json.dumps(head | row)
        print(line, flush=True)
        if not options.smoke:
            append(Path(options.out), [head | row])


if __name__ == "__main__":
    main()
