#!/usr/bin/env python3
"""What an elimination order costs against the seconds spent on it, network by network.

    python bench/bench_ordering.py                         all of ../shared/nets/RetiEsempio and nets/
    python bench/bench_ordering.py FILES ... --time 30     these, searching for 30 seconds each

One JSON line per network and method goes to bench/results/ordering.jsonl (``--out``), a table to stdout. In addition to
"auto" and "best", the table has plain min-fill, the published total if there is one, and pyAgrum's junction tree if it
is installed. The cache is bypassed, and the annealer is compiled before the clock starts.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from jtgpu.formats import read  # noqa: E402
from jtgpu.model.discrete import DiscreteModel  # noqa: E402
from jtgpu.model.network import BayesianNetwork  # noqa: E402
from jtgpu.plans import ordering  # noqa: E402

SHARED = ROOT.parent / "shared" / "nets" / "RetiEsempio"


def order_graph(model: DiscreteModel) -> list[list[int]]:
    """Who shares a factor with whom."""
    around: list[set[int]] = [set() for _ in model.variables]
    for scope, _ in model.factors:
        for v in scope:
            around[v].update(scope)
    return [sorted(s - {v}) for v, s in enumerate(around)]


def agrum_total(model: DiscreteModel) -> int | None:
    """Entries of the clique tables of pyAgrum's own junction tree, or None without pyAgrum."""
    try:
        pyagrum = importlib.import_module("pyagrum")
    except ImportError:
        return None
    if not isinstance(model, BayesianNetwork):
        return None
    bn = pyagrum.BayesNet()
    for i in range(len(model)):
        bn.add(pyagrum.LabelizedVariable(f"v{i}", "", int(model.cardinality[i])))
    for i, v in enumerate(model.variables):
        for p in model.parents(v):
            bn.addArc(model.index(p), i)
    tree = pyagrum.JunctionTreeGenerator().junctionTree(bn)
    return sum(math.prod(int(model.cardinality[v]) for v in tree.clique(c)) for c in tree.nodes())


def measure(path: Path, seconds: float, runs: int, commit: str) -> list[dict[str, Any]]:
    """The rows of one network."""
    model = read(path)
    around = order_graph(model)
    device = f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores"
    shared: dict[str, Any] = {"commit": commit, "device": device, "network": path.name}
    num = path.with_name(path.name.split(".")[0] + ".num")
    published = (
        ordering.order_cost(model.cardinality, around, ordering.read_num(num, model)).entries
        if num.exists() and num.parent.name == "RetiEsempio"
        else None
    )
    shared |= {
        "published": published,
        "min_fill": ordering.find_order(model.cardinality, around, "min-fill").entries,
        "pyagrum": agrum_total(model),
    }
    rows = []
    for method in ("auto", "best"):
        times, result = [], None
        for _ in range(runs if method == "auto" else 1):
            start = time.perf_counter()
            result = ordering.find_order(
                model.cardinality, around, method, time_limit=seconds if method == "best" else None, cache=False
            )
            times.append(time.perf_counter() - start)
        assert result is not None
        rows.append(
            shared
            | {
                "method": method,
                "seconds": round(float(np.median(times)), 4),
                "seconds_min": round(min(times), 4),
                "seconds_max": round(max(times), 4),
                "runs": len(times),
                "cost": result.entries,
                "largest": result.largest,
                "optimal": result.optimal,
                "lower_bound": result.lower_bound,
                "n_steps": result.n_steps,
                "trace": [[round(t.seconds, 3), t.cost, t.rule] for t in result.trace],
            }
        )
    return rows


def show(rows: Sequence[dict[str, Any]]) -> None:
    """One line of the table."""
    auto, best = rows
    reached = next((t for t, cost, _ in best["trace"] if cost <= best["cost"]), best["seconds"])

    def number(n: int | None) -> str:
        return "-" if n is None else f"{n:,}"

    print(
        f"{auto['network']:<20}{number(auto['published']):>14}{number(auto['min_fill']):>16}{number(auto['pyagrum']):>18}"
        f"{number(auto['cost']):>14}{auto['seconds']:>8.2f}s{number(best['cost']):>14}{reached:>8.2f}s"
        f"{'  optimal' if best['optimal'] else ''}",
        flush=True,
    )


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--time", type=float, default=10.0, help="seconds of search for each network")
    parser.add_argument("--runs", type=int, default=3, help="runs of the quick mode; the median is shown")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "ordering.jsonl")
    options = parser.parse_args()
    files = options.files or [*sorted(SHARED.glob("*.net")), *sorted((ROOT / "nets").glob("*.net*"))]
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    ordering.warm_up()
    print(
        f"{'network':<20}{'published':>14}{'min-fill':>16}{'pyAgrum':>18}{'auto':>14}{'':>9}{'best':>14}{'reached':>9}"
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a", encoding="utf-8") as out:
        for path in files:
            rows = measure(path, options.time, options.runs, done.stdout.strip())
            out.writelines(json.dumps(row) + "\n" for row in rows)
            out.flush()
            show(rows)


if __name__ == "__main__":
    main()
