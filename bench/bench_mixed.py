"""Networks with numbers: a table of Lauritzen's waste incinerator, 46 Gaussian nodes, and BGe scores of 37 columns.

    python bench/bench_mixed.py            1,000,000 rows, 30 % of the cells missing; rows to bench/results/mixed.jsonl
    python bench/bench_mixed.py --smoke    small data, one run, nothing stored

Times are CPU seconds of one thread. The Gaussian nodes are compared with NumPy, which conditions the normal
distribution of all nodes, with pyAgrum (all posteriors of a new pattern) and with pgmpy (a table of 1,000 rows), where
these are installed; the answers are compared as well. The scores are compared with NumPy's determinants.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from rows import ROOT, cpu_seconds, parser_of, row, store

import jtgpu
from jtgpu import timing

sys.path.insert(0, str(ROOT))
from tests.mixed.test_lauritzen import incinerator

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


class Gaussians(NamedTuple):
    """A random network of numbers with mean 0 and sd 1 given their parents."""

    names: list[str]
    arcs: Any  # (n, n) coefficients, [child, parent]
    network: jtgpu.MixedNetwork


def gaussian_nodes() -> Gaussians:
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(NODES)]
    arcs = np.zeros((NODES, NODES))
    for i in range(1, NODES):
        chosen = rng.choice(i, min(i, PARENTS), replace=False)
        arcs[i, chosen] = rng.normal(0, 0.5, len(chosen))
    parents = {v: [names[p] for p in np.flatnonzero(arcs[i])] for i, v in enumerate(names)}
    cpts = {v: jtgpu.Gaussian(0, {p: arcs[i, names.index(p)] for p in parents[v]}) for i, v in enumerate(names)}
    return Gaussians(names, arcs, jtgpu.MixedNetwork(dict.fromkeys(names, float), parents, cpts))


def of_pyagrum(model: Gaussians) -> Any:
    """Makes pyAgrum's inference, which keeps earlier evidence; None where it is not installed."""
    try:
        import pyagrum.clg as clg
    except ImportError:
        return None
    net = clg.CLG()
    for v in model.names:
        net.add(clg.GaussianVariable(v, 0.0, 1.0))
    for child, parent in np.argwhere(model.arcs).tolist():
        net.addArc(model.names[parent], model.names[child], float(model.arcs[child, parent]))
    return lambda: clg.CLGVariableElimination(net)


def new_patterns(runs: int) -> list[dict[str, Any]]:
    """All posteriors of Gaussian nodes, of which another half is observed in each run."""
    rng = np.random.default_rng(1)
    model = gaussian_nodes()
    names, arcs, inference = model.names, model.arcs, of_pyagrum(model)
    tree = model.network.compile("cpu", threads=1)
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
        if inference is not None:
            peer = inference()
            begin = time.process_time()
            peer.updateEvidence({names[i]: x for i, x in zip(seen, values.tolist(), strict=True)})
            theirs = [peer.posterior(names[i]) for i in hidden]
            seconds.setdefault("pyagrum", []).append(time.process_time() - begin)
            theirs_gap = float(np.abs(ours - [(p.mu(), p.sigma()) for p in theirs]).max())
            if not theirs_gap <= 1e-6:
                raise SystemExit(f"pyAgrum's posteriors differ by {theirs_gap:g}; nothing is timed")
        gap = float(np.abs(ours - np.column_stack([mean, np.sqrt(np.diagonal(rest))])).max())
        if not gap <= 1e-9:
            raise SystemExit(f"the posteriors differ by {gap:g}; nothing is timed")
    return [
        row("mixed_pattern", f"{NODES} Gaussian nodes", engine, timing.Spread.of(times[1:]))
        for engine, times in seconds.items()
    ]


def predicted_table(n_rows: int, runs: int) -> list[dict[str, Any]]:
    """Means of the hidden half of the Gaussian nodes in every row of a table."""
    try:
        from pgmpy.factors.continuous import LinearGaussianCPD
        from pgmpy.models import LinearGaussianBayesianNetwork
    except ImportError:
        return []
    model = gaussian_nodes()
    names, tree = model.names, model.network.compile("cpu", threads=1)
    frame = tree.sample(n_rows, seed=1).to_frame()[names[::2]]
    hidden = names[1::2]
    peer = LinearGaussianBayesianNetwork([(names[p], names[c]) for c, p in np.argwhere(model.arcs).tolist()])
    for c, v in enumerate(names):
        own = np.flatnonzero(model.arcs[c])
        peer.add_cpds(LinearGaussianCPD(v, [0.0, *model.arcs[c, own].tolist()], 1.0, [names[p] for p in own]))
    theirs = peer.predict(frame)
    ours = tree.posteriors_batch(frame, targets=hidden)
    gap = max(float(np.abs(np.asarray(ours[v].mean) - np.asarray(theirs[v])).max()) for v in hidden)
    if not gap <= 1e-6:
        raise SystemExit(f"pgmpy's means differ by {gap:g}; nothing is timed")
    timed = {"jtgpu": lambda: tree.posteriors_batch(frame, targets=hidden), "pgmpy": lambda: peer.predict(frame)}
    return [
        row("mixed_predict", f"{NODES} Gaussian nodes", engine, cpu_seconds(call, runs), rows=n_rows)
        for engine, call in timed.items()
    ]


def scores(n: int, runs: int) -> list[dict[str, Any]]:
    """BGe of all families of up to three parents, and the determinants alone of all sets of up to four in NumPy."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1_000, n)) @ rng.normal(size=(n, n))
    matrix = np.corrcoef(x.T) * 999 + 0.5 * np.eye(n)
    sets = [np.array(list(itertools.combinations(range(n), size))) for size in range(1, 5)]

    def determinants() -> None:
        for s in sets:
            np.linalg.slogdet(matrix[s[:, :, None], s[:, None, :]])

    def table() -> jtgpu.learn.ScoreTable:
        return jtgpu.learn.score_table(x, score="bge", max_parents=3, compute=jtgpu.Compute(threads=1))

    timed: dict[str, Callable[[], object]] = {"jtgpu": table, "numpy determinants": determinants}
    return [
        row("bge_scores", f"{n} columns", engine, cpu_seconds(call, runs), families=len(table()))
        for engine, call in timed.items()
    ]


def main() -> None:
    parser = parser_of(__doc__, "mixed.jsonl")
    given = parser.parse_args()
    smoke = given.smoke
    results = [table_of_incinerator(2_000 if smoke else 1_000_000, 1 if smoke else 3)]
    results += new_patterns(2 if smoke else 50)
    results += predicted_table(50 if smoke else 1_000, 1 if smoke else 5)
    results += scores(8 if smoke else 37, 1 if smoke else 7)
    for result in results:
        print(result)
    store(given, results)


if __name__ == "__main__":
    main()
