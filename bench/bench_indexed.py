"""The published table of times on this machine's GPU, and what bounds it.

    python bench/bench_indexed.py                      the seven networks; bench/results/indexed-<device>.*
    python bench/bench_indexed.py --tune --plot        searches block sizes first; draws the published figures
    python bench/bench_indexed.py --smoke              two small networks, one run, nothing kept

Networks and orders: .data/RetiEsempio or ../shared/nets/RetiEsempio where they are (the published files with their
orders), otherwise nets/ of the project with its orders. Without a GPU: a message and exit code 1.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from rows import commit  # noqa: E402

import jtgpu  # noqa: E402
from jtgpu.device.context import Device, open_device  # noqa: E402
from jtgpu.plans.compiler import model_factors  # noqa: E402
from jtgpu.published.junction_trees import tuning  # noqa: E402
from jtgpu.published.junction_trees.indextables import Shape  # noqa: E402
from jtgpu.published.junction_trees.measure import measure  # noqa: E402
from jtgpu.published.junction_trees.rules import Rules  # noqa: E402
from jtgpu.published.junction_trees.timetable import TimeTable  # noqa: E402
from jtgpu.published.junction_trees.tuning import Workbench  # noqa: E402
from jtgpu.util.system import cpu_name  # noqa: E402
from tests.on_gpu.receipt import digest, digests  # noqa: E402

if TYPE_CHECKING:
    from jtgpu.plans.plan import Plan

NETWORKS = ("Mildew", "Diabetes", "Barley", "Munin4", "Water", "Munin1", "Link")
FALLBACK = {"ways": 8, "scatter_ways": 2, "scatter": "fused"}  # rows "tuned" without --tune


def folder_of(name: str) -> Path:
    """Where a network's file is."""
    for folder in (ROOT / ".data" / "RetiEsempio", ROOT.parent / "shared" / "nets" / "RetiEsempio"):
        if (folder / f"{name}.net").is_file():
            return folder
    return ROOT / "nets"


def load(name: str) -> tuple[Plan, list[Any]]:
    """A network's plan with the order of its .num file, and its tables."""
    folder = folder_of(name)
    stem = name if (folder / f"{name}.net").is_file() else name.lower()
    net = jtgpu.read(folder / f"{stem}.net")
    order = folder / f"{stem}.num"
    planned = net.plan(order=order if order.is_file() else "auto", memory_limit=float("inf"))
    return planned.plan, [f.table for f in model_factors(net)]


def variants(device: Device) -> Iterator[dict[str, Any]]:
    """Every kernel variant on a few table shapes, 100 launches each, in microseconds."""
    shapes = [
        (1, 1 << 20),
        (4, 1 << 18),
        (64, 1 << 14),
        (256, 1 << 12),
        (512, 64),
        (4096, 256),
        (1 << 16, 16),
        (64, 64),
    ]
    marginal: list[dict[str, Any]] = [
        *({"split_n": 1025, "marginalise_m": k, "ways": w} for k in ("syncwarp", "shuffle") for w in (2, 4, 8, 16)),
        *({"split_n": 1, "ways": w} for w in (2, 4, 8, 16)),
    ]
    scatter: list[dict[str, Any]] = [
        {"scatter": k, "scatter_ways": w} for k in ("two_phase", "fused") for w in (1, 2, 4, 8)
    ]
    with device.active():
        for n, m in shapes:
            shape = Shape((m, n), (False, True))
            bench = Workbench(device, shape, Rules())
            bench.load(np.random.default_rng(1).random(shape.entries))
            ones = np.ones(n)
            for options in marginal:
                if options["split_n"] > 1 and n > 512:
                    continue
                bench.use(Rules(**options))
                yield {"operation": "marginalise", "n": n, "m": m, **options, "us": bench.marginalise(100)[1] * 1e6}
            for options in scatter:
                bench.use(Rules(**options))
                yield {"operation": "scatter", "n": n, "m": m, **options, "us": bench.scatter(ones, ones, 100)[1] * 1e6}
            if shape.padded_entries * 4 <= 65_536:
                yield from _constant(device, bench, ones)
            bench.close()


def _constant(device: Device, bench: Workbench, ones: np.ndarray) -> Iterator[dict[str, Any]]:
    file = "published/trials/constant_index"
    address, _ = device.symbol(file, "constant_index")
    device.upload(address, bench.table.index, bench.stream)
    bench.stream.synchronize()
    at = {"n": bench.shape.n, "m": bench.shape.m, "index": "constant"}
    for split in (1025, 1):
        bench.use(Rules(split_n=split))
        us = bench.marginalise_by(file, 100)[1] * 1e6
        yield {"operation": "marginalise", "split_n": split, **at, "us": us}
    yield {"operation": "scatter", **at, "us": bench.scatter_by(file, ones, ones, 100)[1] * 1e6}


def copy_rate(device: Device) -> dict[str, float]:
    """The two ceilings in GB/s: device memory (read plus written) and pinned host to device."""
    n_bytes = 1 << 30
    with device.active():
        stream = device.stream()
        a, b = device.alloc(n_bytes), device.alloc(n_bytes)
        host = device.pinned(n_bytes >> 3, np.float64)
        host[:] = 1.0
        rates = {}
        for name, times in (("device", 2), ("host_to_device", 1)):
            best = 1e9
            for _ in range(5):
                start, end = device.event(timing=True), device.event(timing=True)
                start.record(stream)
                if name == "device":
                    device.copy(int(a), int(b), n_bytes, stream)
                else:
                    device.upload(int(a), host, stream)
                end.record(stream)
                end.synchronize()
                best = min(best, end.time_since(start) * 1e-3)
            rates[name] = times * n_bytes / best / 1e9
        a.free()
        b.free()
        device.unpin(host)
    return rates


def bounds(plan: Plan, rates: dict[str, float]) -> dict[str, float]:
    """Least milliseconds that one propagation's traffic takes: over the bus in mode "each", through memory resident."""
    from jtgpu.published.junction_trees.schedule import Schedule

    schedule = Schedule(plan)
    bus = memory = 0
    for sweep in (schedule.collect, schedule.distribute):
        for message in (m for level in sweep for r in level for m in r):
            source, target = schedule.clique_entries[message.source], schedule.clique_entries[message.target]
            separator = schedule.separator_entries[message.edge]
            if source >= 5000:
                bus += 8 * (source + separator)
            if target >= 5000:
                bus += 8 * (2 * target + 2 * separator)
            padded = [schedule.shapes[s].padded_entries for s in (message.source_shape, message.target_shape)]
            memory += 4 * sum(padded) + 8 * (source + 2 * target + 3 * target + 4 * separator)  # 3: normalisation
    return {"bus_ms": bus / rates["host_to_device"] / 1e6, "memory_ms": memory / rates["device"] / 1e6}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--cpu-runs", type=int, default=1)
    parser.add_argument("--tune", action="store_true", help="search block sizes and thresholds first")
    parser.add_argument("--plot", action="store_true", help="draw the published figures")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()
    try:
        device = open_device()
    except jtgpu.BackendUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.smoke:
        arguments.networks, arguments.runs = ["Water", "Mildew"], 1
    rates = copy_rate(device)
    tuned: dict[str, Any] = dict(FALLBACK)
    if arguments.tune:
        found = tuning.tune()
        tuning.save(found)
        tuned = {k: v for k, v in found.rules.items() if k != "min_entries"}
        print("tuned:", found.rules, flush=True)
    columns, limits = [], {}
    for name in arguments.networks:
        started = time.perf_counter()
        plan, factors = load(name)
        column = measure(name, plan, factors, runs=arguments.runs, cpu_runs=arguments.cpu_runs, tuned=tuned)
        limits[name] = bounds(plan, rates)
        columns.append(column)
        gains = {k: round(g, 1) for k in ("gpu", "resident", "tuned") if (g := column.gain(k)) is not None}
        print(f"{name}: {time.perf_counter() - started:.0f} s, times faster than published {gains}", flush=True)
    machine = {
        "device": device.name,
        "driver": device.driver,
        "cpu": cpu_name(),
        "commit": commit(),
        "sources": digest(digests())[:16],
        "date": time.strftime("%Y-%m-%d"),
        "runs": arguments.runs,
        "tuned rules": tuned,
        "measured ceilings, GB/s": {k: round(v) for k, v in rates.items()},
        "least ms of traffic": {k: {n: round(x, 3) for n, x in v.items()} for k, v in limits.items()},
    }
    table = TimeTable(columns, machine)
    rows = [] if arguments.smoke else list(variants(device))
    print(table.to_rst())
    for row in rows:
        print({k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()})
    if not arguments.smoke:
        keep(table, rows, arguments.out, arguments.plot)
    return 0


def keep(table: TimeTable, rows: list[dict[str, Any]], folder: Path, plot: bool) -> None:
    """Write the table as JSON, CSV and reST, the kernel variants as JSON lines, and the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "indexed-" + re.sub(r"[^A-Za-z0-9]+", "-", str(table.machine["device"])).strip("-").lower()
    (folder / f"{name}.json").write_text(table.to_json(), encoding="utf-8")
    (folder / f"{name}.csv").write_text(table.to_csv(), encoding="utf-8")
    (folder / f"{name}.rst").write_text(table.to_rst(), encoding="utf-8")
    where = {k: table.machine[k] for k in ("device", "commit", "date")}
    lines = [json.dumps({**where, **row}) for row in rows]
    (folder / f"{name}-kernels.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with (folder / "indexed.jsonl").open("a", encoding="utf-8") as file:
        for column in table.columns:
            row = {"network": column.name, **where, "sources": table.machine["sources"], "runs": table.machine["runs"]}
            file.write(json.dumps({**row, "ms": column.values, "half_range_ms": column.spread}) + "\n")
    if plot:
        from jtgpu.published.junction_trees.measure import draw

        draw(table, folder / name)


if __name__ == "__main__":
    sys.exit(main())
