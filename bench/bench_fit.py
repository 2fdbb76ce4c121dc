"""Parameters from data: counting and EM by rows, holes and network, compared with pyAgrum and pgmpy.

    python bench/bench_fit.py                  everything
    python bench/bench_fit.py em peers         some parts: count, em, peers, pgmpy
    python bench/bench_fit.py --gpu            EM on a GPU (fit_gpu.py); --devices 2: on two
    python bench/bench_fit.py --gpu wide       only counts of networks with large tables
    python bench/bench_fit.py --gpu tensors    only cases in the memory of a GPU to posteriors in PyTorch
    python bench/bench_fit.py --smoke          small data, one run, nothing stored

Times are CPU seconds of one core (`time.process_time`). Answers are compared before anything is timed: counts of
complete rows with those of `numpy.bincount` and pgmpy, and one iteration with pyAgrum's and pgmpy's.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rows import cpu_seconds, parser_of, row, store

import jtgpu
from jtgpu import timing
from jtgpu.learn import fit

PARTS = ("count", "em", "peers", "pgmpy")
TOLERANCE = 1e-10
ONE = jtgpu.Compute(threads=1)
SHOWN = ["rows", "missing", "iterations", "difference", "rows_per_second", "of_cpu", "call", "iteration_seconds"]
SHOWN += ["upload"]

Rows = Iterator[dict[str, Any]]


def sample(name: str, n_rows: int, missing: float) -> tuple[jtgpu.BayesianNetwork, NDArray[Any]]:
    """A network, and rows of it with cells missing at random."""
    net = jtgpu.load(name)
    assert isinstance(net, jtgpu.BayesianNetwork)
    states = (
        net.compile("cpu").sample(n_rows, seed=1).states.astype(np.int8 if net.cardinality.max() < 128 else np.int32)
    )
    states[np.random.default_rng(0).random(states.shape) < missing] = -1
    return net, states


def counting(smoke: bool, runs: int) -> Rows:
    """Complete rows of alarm."""
    for n in (1_000,) if smoke else (100_000, 1_000_000):
        net, states = sample("alarm", n, 0.0)
        found = fit(net, states, compute=ONE)
        for i, v in enumerate(net):
            family = [*(net.index(p) for p in net.parents(v)), i]
            at = np.ravel_multi_index(tuple(states[:, family].T.astype(np.int64)), net.cpt(v).shape)
            if not np.array_equal(np.bincount(at, minlength=net.cpt(v).size), found.counts[v].ravel()):
                raise SystemExit(f"the counts of {v} are wrong; nothing is timed")
        spread = cpu_seconds(lambda s=states, m=net: fit(m, s, compute=ONE), runs)  # type: ignore[misc]
        yield row("count", "alarm", "jtgpu", spread, rows=n)


def plain_em(n: int) -> jtgpu.learn.EM:
    """So many iterations without extrapolation."""
    return jtgpu.learn.EM(iterations=n, tolerance=0, accelerate=False)


def iterations(smoke: bool, runs: int) -> Rows:
    """EM iterations; the time of a row and iteration is that of a longer run, less that of one iteration."""
    jobs = [("alarm", 10_000, 0.1, 20), ("alarm", 10_000, 0.4, 20), ("alarm", 100_000, 0.1, 5)]
    jobs += [("hepar2", 10_000, 0.1, 5), ("win95pts", 10_000, 0.1, 5), ("munin", 200, 0.1, 3)]
    for name, n, missing, count in [("asia", 200, 0.1, 2)] if smoke else jobs:
        net, states = sample(name, n, missing)

        def run(k: int, net: Any = net, states: Any = states) -> Any:
            return fit(
                net,
                states,
                em=plain_em(k),
                compute=ONE,
            )

        spread, one = cpu_seconds(lambda count=count: run(count), runs), cpu_seconds(lambda: run(1), runs)  # type: ignore[misc]
        each = (spread.minimum - one.minimum) / (n * max(count - 1, 1))
        yield row("em", name, "jtgpu", spread, rows=n, missing=missing, iterations=count, per_row=each)


def peers(smoke: bool, runs: int) -> Rows:
    """The same rows by pyAgrum; pgmpy drops rows with missing cells."""
    try:
        gum = importlib.import_module("pyagrum")
    except ImportError:
        return
    name, n, count = ("cancer", 200, 3) if smoke else ("alarm", 1_000, 3)
    net, states = sample(name, n, 0.1)
    template = jtgpu.to_pyagrum(net)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.csv"
        cells = [["?" if s < 0 else net.states(v)[s] for v, s in enumerate(r)] for r in states.tolist()]
        path.write_text("\n".join(",".join(r) for r in [list(net), *cells]) + "\n")

        def theirs(k: int) -> Any:
            gum.initRandom(1)
            learner = gum.BNLearner(str(path), template, ["?"])
            learner.setNumberOfThreads(1)
            learner.useSmoothingPrior(1.0)
            learner.useEM(1e-20)
            learner.EMenableMaxIter()
            learner.EMsetMaxIter(k)
            return jtgpu.from_pyagrum(learner.learnParameters(template.dag(), False))

        seconds = {}
        made = {}
        for k in (1, 2, count):
            begin = time.process_time()
            made[k] = theirs(k)
            seconds[k] = time.process_time() - begin
    mine = fit(
        made[1],
        states,
        em=jtgpu.learn.EM(start="given", iterations=1),
        pseudo_counts=1,
        compute=ONE,
    ).network
    gap = max(float(np.abs(mine.cpt(v) - made[2].cpt(v)).max()) for v in net)
    if not gap <= TOLERANCE:
        raise SystemExit(f"an iteration differs from pyAgrum's by {gap:g}; nothing is timed")
    each = (seconds[count] - seconds[1]) / (n * (count - 1))
    spread = timing.Spread.of([seconds[count]])
    yield row("peers", name, f"pyagrum {gum.__version__}", spread, rows=n, missing=0.1, iterations=count, per_row=each)
    own, one = (
        cpu_seconds(lambda k=k: fit(net, states, em=plain_em(k), compute=ONE), runs)  # type: ignore[misc]
        for k in (21, 1)
    )
    each = (own.minimum - one.minimum) / (n * 20)
    yield row(
        "peers", name, "jtgpu", own, rows=n, missing=0.1, iterations=21, per_row=each, difference=gap
    )  # fmt: skip


def by_pgmpy(smoke: bool, runs: int) -> Rows:
    """pgmpy: complete rows of alarm, and EM with one hidden variable of asia, the only rows that it does not drop."""
    try:
        import pandas as pd
        import pgmpy
        from pgmpy.factors.discrete import TabularCPD
        from pgmpy.models import DiscreteBayesianNetwork
        from pgmpy.parameter_estimator import DiscreteEM, DiscreteMLE
    except ImportError:
        return
    version = f"pgmpy {pgmpy.__version__}"

    def table(net: Any, states: Any, hidden: tuple[str, ...] = ()) -> Any:
        cells = {v: np.array(net.states(v), object)[states[:, i]] for i, v in enumerate(net) if v not in hidden}
        return pd.DataFrame(cells)

    def difference(net: Any, theirs: Any, mine: Any) -> float:
        """Largest difference of a CPT, over the rows that have data."""
        tables = jtgpu.from_pgmpy(theirs)
        assert isinstance(tables, jtgpu.BayesianNetwork)
        gaps = [0.0]
        for v in net:
            order = [*(net.parents(v)), v]
            own = [*(tables.parents(v)), v]
            cpt = np.transpose(np.asarray(tables.cpt(v)), [own.index(u) for u in order])
            for axis, u in enumerate(order):
                named = tables.states(u)  # of latent variables "0" and "1"
                places = [named.index(s) if s in named else i for i, s in enumerate(net.states(u))]
                cpt = np.take(cpt, places, axis=axis)
            seen = mine.counts[v].sum(axis=-1) > 0
            gaps.append(float(np.abs(cpt - mine.network.cpt(v))[seen].max(initial=0.0)))
        return max(gaps)

    def fitted(estimator: Any, net: Any, frame: Any, latents: set[str]) -> Any:
        model = DiscreteBayesianNetwork(net.arcs, latents=latents)
        model.add_nodes_from(v for v in net if v not in model)
        estimator.fit(model, frame)
        model.add_cpds(*estimator.parameters_)
        return model

    # complete rows
    net, states = sample("cancer" if smoke else "alarm", 200 if smoke else 10_000, 0.0)
    frame, names = table(net, states), {v: list(net.states(v)) for v in net}
    mine = fit(net, frame, pseudo_counts=0, compute=ONE)
    gap = difference(net, fitted(DiscreteMLE(state_names=names), net, frame, set()), mine)
    if not gap <= TOLERANCE:
        raise SystemExit(f"CPTs differ from pgmpy's by {gap:g}; nothing is timed")
    for engine, work in (
        (version, lambda: fitted(DiscreteMLE(state_names=names), net, frame, set())),
        ("jtgpu", lambda: fit(net, frame, pseudo_counts=0, compute=ONE)),
    ):
        yield row("pgmpy", net.name or "alarm", engine, cpu_seconds(work, runs), rows=len(frame), difference=gap)

    # one hidden variable: the first iteration from the same CPTs
    net, states = sample("cancer", 50 if smoke else 500, 0.0)
    frame, names = table(net, states, ("Cancer",)), {v: list(net.states(v)) for v in net if v != "Cancer"}
    start = {}
    for c in jtgpu.to_pgmpy(net).get_cpds():
        above, (card, *cards) = c.variables[1:], map(int, c.cardinality)
        labels = {u: names.get(u, [0, 1]) for u in c.variables}
        start[c.variable] = TabularCPD(
            c.variable, card, c.get_values(), above or None, cards or None, state_names=labels
        )  # fmt: skip

    def theirs(k: int) -> Any:
        estimator = DiscreteEM(state_names=names, max_iter=k, atol=0.0, init_cpds=start, show_progress=False)
        return fitted(estimator, net, frame, {"Cancer"})

    def own(k: int) -> Any:
        return fit(
            net,
            frame,
            hidden="Cancer",
            pseudo_counts=0,
            em=jtgpu.learn.EM(start="given", iterations=k, tolerance=0, accelerate=False),
            compute=ONE,
        )

    gap = difference(net, theirs(1), own(1))
    if not gap <= TOLERANCE:
        raise SystemExit(f"an iteration differs from pgmpy's by {gap:g}; nothing is timed")
    for engine, steps, k in ((version, theirs, 3), ("jtgpu", own, 201)):
        spread, one = cpu_seconds(lambda k=k, s=steps: s(k), runs), cpu_seconds(lambda s=steps: s(1), runs)  # type: ignore[misc]
        each = (spread.minimum - one.minimum) / (len(frame) * (k - 1))
        yield row("pgmpy", "cancer", engine, spread, rows=len(frame), iterations=k, per_row=each, difference=gap)


def main() -> None:
    """Parse, measure, print, store."""
    parser = parser_of(__doc__, "fit.jsonl", runs=5)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS, "tensors", "wide"], help="default: all")
    parser.add_argument("--gpu", action="store_true", help="EM on GPUs, in place of the parts")
    parser.add_argument("--devices", type=int, default=1, help="number of GPUs")
    options = parser.parse_args()
    measured = dict(zip(PARTS, (counting, iterations, peers, by_pgmpy), strict=True))
    if options.gpu:
        from fit_gpu import on_gpu, tensors

        measured = {"gpu": lambda smoke, runs: on_gpu(smoke, runs, options.devices)}
        measured["wide"] = lambda smoke, runs: on_gpu(smoke, runs, options.devices, wide=True)
        measured["tensors"] = lambda smoke, runs: tensors(smoke)
        options.parts = options.parts or ["gpu"]
    for part in options.parts or PARTS:
        for found in measured[part](options.smoke, 1 if options.smoke else options.runs):
            shown: dict[str, Any] = {k: found[k] for k in SHOWN if k in found}
            if "per_row" in found:
                shown["us a row and iteration"] = found["per_row"] * 1e6
            text = "  ".join(f"{k} {v:.6g}" for k, v in shown.items())
            print(f"{part:<8}{found['network']:<10}{found['engine']:<16}{found['minimum']:9.4f} s  {text}", flush=True)
            store(options, [found])


if __name__ == "__main__":
    main()
