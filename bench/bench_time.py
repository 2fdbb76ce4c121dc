"""Times of networks beside pyAgrum's in one process, answers compared before anything is timed.

    python bench/bench_time.py                             the seven networks, 0 and 10 % evidence, to bench/results
    python bench/bench_time.py asia alarm --evidence 0 20  others of nets/, or paths
    python bench/bench_time.py --smoke                     three small networks, one run, nothing kept

Writes JSON lines, one a network, share of evidence and engine: commit, device, network, median, quartiles, bytes. A
propagation takes one case in and gives all posteriors; the cases of one row differ in their states. pyAgrum gets its
CPTs through its API (its readers round), runs with one thread and with all, and its better median is kept. Its
answers stay from call to call: with evidence, one engine takes the cases in turn; without, every run gets a new engine,
tree included, since a second call of the old one computes nothing (the rows say `fresh`).
Every row is made in a process of its own, one after the other.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import jtgpu
from jtgpu import timing
from jtgpu.network import BayesianNetwork

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "time.jsonl"
TOLERANCE = 1e-9  # largest difference of a probability between two engines
# pyAgrum's own trees of these have 1.3e9 and 2.9e8 entries: more than 10 GB, and a minute a run
TOO_LARGE_FOR_PYAGRUM = frozenset({"link", "munin1"})

Answer = dict[str, np.ndarray[Any, np.dtype[np.float64]]]
Solve = Callable[[dict[str, int]], Answer]


def commit() -> str:
    """Short hash of the checkout, with a "+" where files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("+" if git("status", "--porcelain") else "")


def row(name: str, engine: str, spread: timing.Spread, observed: int, **more: Any) -> dict[str, Any]:
    """One result."""
    return {
        "bench": "time",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": timing.cpu_name(),
        "network": name,
        "engine": engine,
        "observed": observed,
        "median": spread.median,
        "low": spread.low,
        "high": spread.high,
        "minimum": spread.minimum,
        "runs": spread.runs,
        **more,
    }


def spread_over(solve: Callable[[dict[str, int]], Any], cases: list[dict[str, int]], runs: int) -> timing.Spread:
    """Time runs that take turns among the cases."""
    turn = iter([cases[i % len(cases)] for i in range(1, runs + 1)])
    return timing.measure(lambda: solve(next(turn)), runs)


def pyagrum_solver(net: BayesianNetwork) -> Callable[[int, bool], Solve]:
    """pyAgrum's LazyPropagation of a network: from threads, and whether every run gets a new engine, to a function
    from evidence to all posteriors."""
    pyagrum: Any = importlib.import_module("pyagrum")  # it has no types
    theirs = pyagrum.BayesNet(net.name)
    for v in net.variables:
        # by number: labels may repeat, and pyAgrum wants them unique
        theirs.add(pyagrum.LabelizedVariable(v, "", [f"s{i}" for i in range(len(net.states(v)))]))
    for v in net.variables:
        for p in net.parents(v):
            theirs.addArc(p, v)
        table = theirs.cpt(v)
        axes = [net.parents(v).index(n) if n != v else len(net.parents(v)) for n in reversed(table.names)]
        table.fillWith(np.transpose(net.cpt(v), axes).ravel().tolist())

    def new(threads: int) -> Any:
        engine = pyagrum.LazyPropagation(theirs)
        engine.setNumberOfThreads(threads)
        return engine

    def solver(threads: int, fresh: bool) -> Solve:
        kept = new(threads)

        def solve(case: dict[str, int]) -> Answer:
            engine = new(threads) if fresh else kept
            engine.setEvidence(case)  # replaces what was set before
            engine.makeInference()
            return {v: engine.posterior(v).toarray() for v in net.variables}

        return solve

    return solver


def compare(ours: Answer, theirs: Answer, name: str) -> float:
    """Largest difference of a probability; refuses to go on where it is too large."""
    gap = max(float(np.abs(ours[v] - theirs[v]).max()) for v in ours)
    if not gap <= TOLERANCE:
        raise SystemExit(f"{name}: the answers differ by {gap:g}; nothing is timed")
    return gap


def bench(path: Path, share: float, runs: int, backend: str, seed: int) -> list[dict[str, Any]]:
    """Rows of one network and share of evidence."""
    net = jtgpu.read(path)
    if not isinstance(net, BayesianNetwork):
        raise SystemExit(f"{path}: no Bayesian network")
    name = timing.stem(path)
    cases = timing.sample_cases(net, max(2, min(runs, 10)), share, seed) if share else [{}]
    plan = net.plan()
    with plan.compile(backend) as tree:
        posteriors = tree.posteriors(cases[0])
        timing.check_answers(posteriors, observed=cases[0])
        ours: Answer = {v: np.asarray(p) for v, p in posteriors.items()}
        peer = None if name in TOO_LARGE_FOR_PYAGRUM else _peer(net, cases, ours, name, runs)
        spread = spread_over(tree.posteriors, cases, runs)
        cost = plan.cost()
        mine = row(
            name, f"jtgpu {backend}", spread, len(cases[0]), share=share, version=jtgpu.__version__,
            bytes=cost.bytes, entries=cost.entries, largest=cost.largest, cliques=cost.cliques,
            log_evidence=posteriors.log_evidence, peak_memory=timing.peak_memory(), backend=tree.backend,
            compared_with_pyagrum=None if peer is None else peer["gap"],
        )  # fmt: skip
    return [mine] if peer is None else [mine, {**peer, "share": share}]


def _peer(
    net: BayesianNetwork, cases: list[dict[str, int]], ours: Answer, name: str, runs: int
) -> dict[str, Any] | None:
    if importlib.util.find_spec("pyagrum") is None:
        return None
    solver = pyagrum_solver(net)
    fresh = len(cases) == 1  # the same case again would be answered from memory
    gap = compare(ours, solver(1, fresh)(cases[0]), name)
    best: tuple[timing.Spread, int] | None = None
    for threads in sorted({1, os.cpu_count() or 1}):
        solve = solver(threads, fresh)
        solve(cases[0])
        spread = spread_over(solve, cases, runs)
        if best is None or spread.median < best[0].median:
            best = spread, threads
    assert best is not None
    return row(
        name,
        "pyagrum",
        best[0],
        len(cases[0]),
        version=importlib.metadata.version("pyagrum"),
        threads=best[1],
        fresh=fresh,
        gap=gap,
    )


def in_a_process(arguments: argparse.Namespace, name: str, share: float) -> list[dict[str, Any]]:
    """`bench` in a process of its own, so that no network pays for another one's memory."""
    command = [
        sys.executable, __file__, "--one", name, "--evidence", str(100 * share), "--runs", str(arguments.runs),
        "--backend", arguments.backend, "--seed", str(arguments.seed),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name}: {done.stderr.strip()}", file=sys.stderr)
        raise SystemExit(1)
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    return rows


def network(name: str) -> Path:
    """A name of nets/, or a path."""
    return Path(name) if Path(name).exists() else timing.benchmark_files([name])[0]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help=f"default: {' '.join(timing.BENCHMARK)}")
    parser.add_argument("--evidence", nargs="+", type=float, default=[0.0, 10.0], help="percent of the variables")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON lines are appended to this file")
    parser.add_argument("--smoke", action="store_true", help="shortest run; nothing is kept")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        timing.warm_up(arguments.backend)
        for r in bench(
            network(arguments.one), arguments.evidence[0] / 100, arguments.runs, arguments.backend, arguments.seed
        ):
            print(json.dumps(r))
        return
    names = arguments.networks or list(timing.BENCHMARK)
    if arguments.smoke:
        names, arguments.runs = ["asia", "alarm", "hailfinder"], 1
    print(f"{'network':<12}{'evidence':>9}{'jtgpu':>12}{'pyagrum':>12}{'ratio':>8}   largest difference")
    for name in names:
        for percent in arguments.evidence:
            rows = in_a_process(arguments, name, percent / 100)
            gap = rows[0]["compared_with_pyagrum"]
            ours, theirs = f"{1e3 * rows[0]['median']:.3f} ms", ""
            told = "not compared"
            if gap is not None:
                theirs = f"{1e3 * rows[1]['median']:.3f} ms{rows[1]['median'] / rows[0]['median']:>8.2f}"
                told = f"{gap:.1e}"
            print(f"{timing.stem(name):<12}{percent:>7.0f} %{ours:>12}{theirs:>20}   {told}", flush=True)
            if not arguments.smoke:
                arguments.out.parent.mkdir(parents=True, exist_ok=True)
                with arguments.out.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(r) + "\n" for r in rows)


if __name__ == "__main__":
    main()
