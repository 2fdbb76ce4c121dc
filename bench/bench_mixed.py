"""Networks with numbers: a table of Lauritzen's waste incinerator, and new patterns of 46 Gaussian nodes.

    python bench/bench_mixed.py            1,000,000 rows, 30 % of the cells missing; rows to bench/results/mixed.jsonl
    python bench/bench_mixed.py --smoke    small data, one run, nothing stored

Times are CPU seconds of one thread. The Gaussian nodes are compared with NumPy, which conditions the normal
distribution of all nodes; the answers are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
from rows import ROOT, append, cpu_seconds, row

import jtgpu
from jtgpu import timing

sys.path.insert(0, str(ROOT))
from tests.mixed.test_lauritzen import incinerator

RESULTS = ROOT / "bench" / "results" / "mixed.jsonl"
NODES, PARENTS, MISSING = 46, 3, 0.3


def table_of_incinerator(n_rows: int, runs: int) -> dict[str, Any]:
    """All posteriors of a table whose rows have many patterns of missing cells."""
    tree = incinerator().compile("cpu", threads=1)
    frame = tree.sample(n_rows, seed=1).to_frame()
    rng = np.random.default_rng(0)
    for v in frame:
        frame.loc[rng.random(n_rows) < MISSING, v] = None
    spread = cpu_seconds(lambda: tree.posteriors_batch(frame), runs)
    return row("mixed_table", "incinerator", "jtgpu", spread, rows=n_rows, missing=MISSING)


def new_patterns(runs: int) -> list[dict[str, Any]]:
    """All posteriors of Gaussian nodes, of which another half is observed in each run."""
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(NODES)]
    arcs = np.zeros((NODES, NODES))
    for i in range(1, NODES):
        chosen = rng.choice(i, min(i, PARENTS), replace=False)
        arcs[i, chosen] = rng.normal(0, 0.5, len(chosen))
    parents = {v: [names[p] for p in np.flatnonzero(arcs[i])] for i, v in enumerate(names)}
    cpts = {v: jtgpu.Gaussian(0, {p: arcs[i, names.index(p)] for p in parents[v]}) for i, v in enumerate(names)}
    tree = jtgpu.MixedNetwork(dict.fromkeys(names, float), parents, cpts).compile("cpu", threads=1)
    mixing = np.linalg.inv(np.eye(NODES) - arcs)
    cov = mixing @ mixing.T
    seconds: dict[str, list[float]] = {"jtgpu": [], "numpy": []}
    for _ in range(runs + 1):
        seen = np.sort(rng.permutation(NODES)[: NODES // 2])
        values = rng.normal(size=len(seen))
        hidden = np.setdiff1d(np.arange(NODES), seen)
        begin = time.process_time()
        post = tree.posteriors({names[i]: x for i, x in zip(seen, values.tolist(), strict=True)})
        middle = time.process_time()
        gain = np.linalg.solve(cov[np.ix_(seen, seen)], cov[np.ix_(seen, hidden)]).T
        mean, rest = gain @ values, cov[np.ix_(hidden, hidden)] - gain @ cov[np.ix_(seen, hidden)]
        end = time.process_time()
        seconds["jtgpu"].append(middle - begin)
        seconds["numpy"].append(end - middle)
        ours = np.array([(post[names[i]].mean, post[names[i]].sd) for i in hidden])
        gap = float(np.abs(ours - np.column_stack([mean, np.sqrt(np.diagonal(rest))])).max())
        if not gap <= 1e-9:
            raise SystemExit(f"the posteriors differ by {gap:g}; nothing is timed")
    return [
        row("mixed_pattern", f"{NODES} Gaussian nodes", engine, timing.Spread.of(times[1:]))
        for engine, times in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small data, one run, nothing stored")
    smoke = parser.parse_args().smoke
    results = [table_of_incinerator(2_000 if smoke else 1_000_000, 1 if smoke else 3)]
    results += new_patterns(2 if smoke else 50)
    for result in results:
        print(result)
    if not smoke:
        append(RESULTS, results)


if __name__ == "__main__":
    main()
