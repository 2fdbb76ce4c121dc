"""Networks with numbers on one GPU: tables of the waste incinerator, BGe scores, and a fit from device memory.

    python bench/mixed_gpu.py            rows to bench/results/mixed.jsonl, or to the file that --out names
    python bench/mixed_gpu.py --smoke    small data, nothing stored

Kernels' times come from events on the device; calls are wall-clock times with all copies. Answers are compared with
those of the CPU first, and two runs with each other, bit by bit.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rows import ROOT, append, row

import jtgpu
from jtgpu import timing
from jtgpu.device.context import Device, Memory, open_device
from jtgpu.learn.dags.scores.gpu_numbers import DeviceNumberScores
from jtgpu.learn.dags.scores.numeric_scores import bge_constants
from jtgpu.learn.dags.scores.ranks import n_parent_sets

sys.path.insert(0, str(ROOT))
from tests.mixed.test_gpu_fit import OnDevice
from tests.mixed.test_lauritzen import incinerator

RESULTS = ROOT / "bench" / "results" / "mixed.jsonl"
MISSING, RUNS, COMPARED = 0.3, 7, 5_000


def cases(n: int) -> dict[str, Any]:
    """Samples of the incinerator, 30 % of whose cells are missing."""
    net, rng = incinerator(), np.random.default_rng(0)
    drawn: dict[str, Any] = {}
    for v in net.topological_order():
        own = tuple(drawn[p] for p in net.discrete_parents(v))
        if net.is_number(v):
            g = net.gaussian(v)
            drawn[v] = g.mean[own] + sum(c[own] * drawn[p] for p, c in g.coefficients.items())
            drawn[v] = drawn[v] + g.sd[own] * rng.normal(size=n)
        else:
            drawn[v] = (rng.random(n) >= np.asarray(net.cpt(v))[0]).astype(np.int64)
    table: dict[str, Any] = {}
    for v, x in drawn.items():
        hole = rng.random(n) < MISSING
        if net.is_number(v):
            table[v] = np.where(hole, np.nan, x)
        else:
            table[v] = np.where(hole, None, np.array(net.states(v), dtype=object)[x])
    return table


def tables(n: int, name: str) -> list[dict[str, Any]]:
    net, table = incinerator(), cases(n)
    few = {v: x[:COMPARED] for v, x in table.items()}
    with net.compile("gpu") as tree:
        found, again = (tree.posteriors_batch(few) for _ in range(2))
        same = net.compile("cpu").posteriors_batch(few)
        for v in net:
            pairs = [(x.mean, x.sd) if net.is_number(v) else (x,) for x in (found[v], same[v], again[v])]
            for one, other, twice in zip(*pairs, strict=True):
                if not np.abs(one - other).max() <= 1e-10 or not np.array_equal(one, twice):
                    raise SystemExit(f"posteriors of {v} differ; nothing is timed")
        calls, kernels = [], []
        for _ in range(RUNS):
            begin = time.perf_counter()
            tree.posteriors_batch(table)
            calls.append(time.perf_counter() - begin)
            kernels.append(tree.answerer.gpu.microseconds * 1e-6)  # type: ignore[union-attr]
    return [
        row("mixed_table", "incinerator", engine, timing.Spread.of(times), rows=n, missing=MISSING, device=name)
        for engine, times in (("jtgpu gpu kernels", kernels), ("jtgpu gpu call", calls))
    ]


def scores(n: int, k: int, device: Device) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    matrix = np.corrcoef((rng.normal(size=(1000, n)) @ rng.normal(size=(n, n))).T) * 999 + 0.5 * np.eye(n)
    n_scores, seconds = n * n_parent_sets(n, k), []
    with device.active():
        worker = DeviceNumberScores(device, matrix, bge_constants(1000, k))
        address = worker.memory.empty(8 * n_scores)
        for _ in range(RUNS + 1):
            worker.microseconds = 0.0
            worker.fill(address, 0, n)
            seconds.append(worker.microseconds * 1e-6)
        worker.close()
    spread = timing.Spread.of(seconds[1:])
    more = {"families": n_scores, "parents": k, "device": device.name}
    return row("bge_scores", f"{n} columns", "jtgpu gpu kernels", spread, **more)


def fit(n: int, width: int, device: Device) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(n, width))
    values[:, 1:] += 0.5 * values[:, :-1]
    parents = {f"x{i}": [f"x{j}" for j in range(max(i - 3, 0), i)] for i in range(width)}
    seconds, found = [], []
    with device.active(), Memory(device) as memory:
        table: Any = OnDevice(memory.put(values, device.stream()), values.shape, values.strides, values.dtype)
        for _ in range(RUNS + 1):
            begin = time.perf_counter()
            net: Any = jtgpu.learn.fit(parents, table, continuous="gaussian").network
            seconds.append(time.perf_counter() - begin)
            found.append([float(net.gaussian(v).sd) for v in parents])
    few = values[:, :4]
    expected = np.linalg.lstsq(np.column_stack([np.ones(n), few[:, :3]]), few[:, 3], rcond=None)[1][0] / n
    if not abs(found[0][3] ** 2 / expected - 1) <= 1e-6 or any(x != found[0] for x in found):
        raise SystemExit("fits differ; nothing is timed")
    spread = timing.Spread.of(seconds[1:])
    return row("mixed_fit", f"{width} numbers", "jtgpu gpu call", spread, rows=n, device=device.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small data, nothing stored")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    device, smoke = open_device(), options.smoke
    results = tables(2_000 if smoke else 4_000_000, device.name)
    results += [scores(n, k, device) for n, k in ([(8, 3)] if smoke else [(37, 3), (100, 4), (60, 5)])]
    results.append(fit(2_000 if smoke else 10_000_000, 20, device))
    for result in results:
        print(result)
    if not smoke:
        append(options.out, results)


if __name__ == "__main__":
    main()
