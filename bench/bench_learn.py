"""Structure learning: scores, exact posteriors, Markov chains, and the best graph, compared with other packages.

    python bench/bench_learn.py                       everything
    python bench/bench_learn.py scores orders         some parts: scores, table, exact, orders, partitions, posterior,
                                                      structure, experiments, gaps
    python bench/bench_learn.py --published           the published table of sizes and times, n = 10 to 300
    python bench/bench_learn.py --gpu                 score tables on a GPU, and the published kernels
    python bench/bench_learn.py --gpu --devices 2     the same, and whole calls on two GPUs
    python bench/bench_learn.py --smoke               small data, one run, nothing stored

Times are CPU seconds of one core (`time.process_time`), which other processes disturb little. Answers are compared
before anything is timed: scores with the formula, posteriors with sums that must be 1, a graph's score with that of
pyAgrum's graph. Other packages run in the same process on the same rows: see learn_peers.py.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from learn_on_gpu import (
    TOLERANCE,
    cards_of,
    formula,
    gpu_exact,
    gpu_orders,
    gpu_partitions,
    gpu_posteriors,
    gpu_published,
    gpu_scores,
    gpu_tables,
    published_sizes,
)
from learn_peers import bootstrapped, peer_graphs
from numpy.typing import NDArray
from rows import cpu_seconds, parser_of, row, store

import jtgpu
from jtgpu import timing
from jtgpu.learn.dags.candidate_tables import candidate_tables, choose_candidates, family_weights
from jtgpu.learn.dags.chains.orders import OrderSampler, run_chains, start_chains
from jtgpu.learn.dags.chains.partitions import PartitionSampler
from jtgpu.learn.dags.chains.partitions import run_chains as run_partitions
from jtgpu.learn.dags.chains.partitions import start_chains as start_partitions
from jtgpu.learn.dags.constraints import make_constraints, make_prior
from jtgpu.learn.dags.exact import exact_by_orders, exact_by_partitions
from jtgpu.learn.dags.graphs import adjacency
from jtgpu.learn.dags.scores.coded import CodedTable
from jtgpu.learn.dags.scores.ranks import n_parent_sets, parent_masks
from jtgpu.learn.dags.scores.rules import ScoreRule
from jtgpu.learn.dags.scores.score_table import ScoreTable, score_families
from jtgpu.learn.dags.set_tables import outer_sets, set_tables
from jtgpu.model.equivalence import structural_hamming_distance

PARTS = (
    "scores", "table", "exact", "orders", "partitions", "posterior", "structure", "published", "experiments", "gaps",
)  # fmt: skip
GPU_PARTS = ("scores", "table", "orders", "partitions", "exact-order", "exact-uniform", "published", "posterior")
CANDIDATES = 16

Rows = Iterator[dict[str, Any]]


def sample(name: str, n_rows: int, seed: int) -> tuple[jtgpu.BayesianNetwork, CodedTable]:
    """A network of nets/, and rows of it."""
    net = jtgpu.load(name)
    assert isinstance(net, jtgpu.BayesianNetwork)
    states = net.compile("cpu").sample(n_rows, seed=seed).states
    codes = np.ascontiguousarray(states.T.astype(np.uint8))
    return net, CodedTable(net.variables, tuple(net.states(v) for v in net.variables), codes)


def check_scores(table: CodedTable, scores: ScoreTable) -> float:
    """Largest difference of 50 scores from the formula."""
    rng, gap = np.random.default_rng(0), 0.0
    for _ in range(50):
        size = int(rng.integers(scores.max_parents + 1))
        v, *parents = rng.choice(len(table.names), size + 1, replace=False).tolist()
        names = table.names
        gap = max(gap, abs(scores.score(names[v], [names[p] for p in parents]) - formula(table, v, parents)))
    if not gap <= TOLERANCE:
        raise SystemExit(f"scores differ from the formula by {gap:g}; nothing is timed")
    return gap


def scores_of_families(smoke: bool, runs: int) -> Rows:
    """All families of up to three parents of alarm."""
    for n_rows, seed in ((1_000, 1),) if smoke else ((1_000, 1), (10_000, 2)):
        name = "asia" if smoke else "alarm"
        _, table = sample(name, n_rows, seed)
        gap = check_scores(table, score_families(table, ScoreRule(), 3))
        spread = cpu_seconds(lambda table=table: score_families(table, ScoreRule(), 3, threads=1), runs)  # type: ignore[misc]
        n = len(table.names) * n_parent_sets(len(table.names), 3)
        yield row("scores", name, "jtgpu", spread, rows=n_rows, families=n, rate=n / spread.median, difference=gap)


def published_table(smoke: bool, runs: int) -> Rows:
    """The published table: all families of up to three parents of ternary variables, 1,000 rows."""
    for n in (20,) if smoke else (40, 100):
        codes = np.random.default_rng(n).integers(0, 3, (n, 1000)).astype(np.uint8)
        table = CodedTable(tuple(f"v{i}" for i in range(n)), (("a", "b", "c"),) * n, codes)
        gap = check_scores(table, score_families(table, ScoreRule(), 3))
        spread = cpu_seconds(lambda table=table: score_families(table, ScoreRule(), 3, threads=1), min(runs, 3))  # type: ignore[misc]
        entries = n * n_parent_sets(n, 3)
        rate = entries / spread.median
        yield row("table", f"ternary {n}", "jtgpu", spread, entries=entries, rate=rate, difference=gap)


def exact_posteriors(smoke: bool, runs: int) -> Rows:
    """Exact posteriors of random weights, up to four parents."""
    sizes = [("orders", 8), ("partitions", 6)]
    if not smoke:
        sizes = [("orders", 16), ("orders", 20), ("partitions", 11), ("partitions", 13)]
    for kind, n in sizes:
        masks = parent_masks(n, 4)
        log_weights = np.random.default_rng(n).normal(0.0, 30.0, (n, len(masks)))

        def work(kind: str = kind, log_weights: Any = log_weights, masks: Any = masks) -> Any:
            if kind == "orders":
                return exact_by_orders(log_weights, masks, threads=1)
            return exact_by_partitions(log_weights, masks)

        gap = float(np.abs(work().families.sum(axis=1) - 1.0).max())
        if not gap <= TOLERANCE:
            raise SystemExit(f"probabilities of parent sets add up to 1 only within {gap:g}; nothing is timed")
        yield row("exact", f"{n} variables", kind, cpu_seconds(work, min(runs, 3)), difference=gap)


def chains_of_orders(smoke: bool, runs: int) -> Rows:
    """Gibbs relocations and mixed steps of one chain on alarm."""
    name = "asia" if smoke else "alarm"
    _, table = sample(name, 1000, 1)
    n = len(table.names)
    rule, prior, constraints = ScoreRule(), make_prior("order", n), make_constraints(table.names, 4)
    weights = family_weights(score_families(table, rule, 3), prior, constraints)
    chosen = choose_candidates(weights, 3, CANDIDATES, constraints)
    tables = candidate_tables(table, rule, prior, constraints, chosen, 4)
    steps = 2_000 if smoke else 200_000
    none = np.empty((n, tables.candidates.shape[1], 0))
    variants = ("relocations", 0.0, none), ("half swaps", 0.5, none), ("with arcs", 0.5, tables.hits())
    for engine, share, hits in variants:
        sampler = OrderSampler(tables, tables.sums(), hits, 0, share)
        state, _ = run_chains(sampler, start_chains(constraints, 1), steps, n)

        def work(sampler: OrderSampler = sampler, state: Any = state) -> Any:
            return run_chains(sampler, state, steps, n, threads=1)

        spread = cpu_seconds(work, runs)
        yield row("orders", name, engine, spread, candidates=tables.candidates.shape[1], rate=steps / spread.median)


def chains_of_partitions(smoke: bool, runs: int) -> Rows:
    """Steps of one chain over partitions on alarm: with reversals and samples, without samples, reversals only."""
    name = "asia" if smoke else "alarm"
    _, table = sample(name, 1000, 1)
    n = len(table.names)
    rule, prior, constraints = ScoreRule(), make_prior("uniform", n), make_constraints(table.names, 4)
    scores, steps = score_families(table, rule, 4), 1_000 if smoke else 100_000
    weights = family_weights(scores.with_max_parents(3), prior, constraints)
    every = family_weights(scores, prior, constraints)
    only, all_sets = "candidates only", "all parent sets"
    variants: tuple[tuple[int, str, str, tuple[float, float, float], int], ...] = (
        (12, all_sets, "0.6 reversals, a graph every n steps", (0.6, 0.13, 0.13), n),
        (12, all_sets, "0.6 reversals", (0.6, 0.13, 0.13), steps),
        (16, only, "0.6 reversals, a graph every n/2 steps", (0.6, 0.13, 0.13), n // 2),
        (16, only, "0.6 reversals", (0.6, 0.13, 0.13), steps),
        (16, only, "reversals only", (1.0, 0.0, 0.0), steps),
        (16, only, "no reversals", (0.0, 0.34, 0.33), steps),
    )
    for k, sets, engine, shares, thin in variants:
        chosen = choose_candidates(weights, 3, min(k, n - 2), constraints)
        tables = candidate_tables(table, rule, prior, constraints, chosen, 4)
        shared = set_tables(tables, outer_sets(every, 4, chosen) if sets == all_sets else None)
        sampler = PartitionSampler(shared, 0, shares)
        first = start_partitions(np.zeros((1, n), np.int64), shared.candidates)
        state, _ = run_partitions(PartitionSampler(shared), first, steps, n // 2)

        def work(sampler: PartitionSampler = sampler, state: Any = state, thin: int = thin) -> Any:
            return run_partitions(sampler, state, steps, thin, threads=1)

        spread = cpu_seconds(work, runs)
        yield row(
            "partitions", name, f"{sets}, {engine}", spread, candidates=chosen.shape[1], rate=steps / spread.median
        )


def posteriors(smoke: bool, runs: int) -> Rows:
    """The default posterior of alarm by two seeds; samples and bootstraps against exact posteriors."""
    del runs  # a run takes long, and the seeds differ
    if not smoke:
        _, table = sample("alarm", 1000, 1)
        first: NDArray[np.float64] | None = None
        for seed in (0, 1):
            begin, wall = time.process_time(), time.perf_counter()
            found = jtgpu.learn.posterior(table, seed=seed)
            seconds, wall = time.process_time() - begin, time.perf_counter() - wall
            arcs = found.edge_probabilities.values
            gap: dict[str, float] = {}
            if first is not None:
                apart = np.abs(arcs - first)
                gap = {"difference": float(apart.max()), "mean_difference": float(apart.mean())}
            first = arcs
            yield row(
                "posterior", "alarm", f"jtgpu, tolerance 0.01, seed {seed}", once(seconds), rows=1000, wall=wall,
                mcse=float(found.mcse.values.max()), rhat=found.rhat, steps=found.n_steps, coverage=found.coverage,
                **gap,
            )  # fmt: skip
    names = ("asia",) if smoke else ("asia", "sachs")
    for name in names:
        _, table = sample(name, 1000, 1)
        begin = time.process_time()
        exact = jtgpu.learn.posterior(table).edge_probabilities.values
        yield row("posterior", name, "jtgpu, exact", once(time.process_time() - begin), rows=1000)
        for tolerance in (0.05,) if smoke else (0.01, 0.003):
            begin = time.process_time()
            found = jtgpu.learn.posterior(table, method="mcmc", chains=jtgpu.learn.Chains(tolerance=tolerance))
            seconds = time.process_time() - begin
            gap_to_exact = float(np.abs(found.edge_probabilities.values - exact).max())
            yield row(
                "posterior", name, f"jtgpu, mcmc, tolerance {tolerance:g}", once(seconds), rows=1000,
                difference=gap_to_exact, mcse=float(found.mcse.values.max()), steps=found.n_steps,
            )  # fmt: skip
        begin = time.process_time()
        shares = bootstrapped(table, 3 if smoke else 200)
        if shares is not None:
            yield row(
                "posterior", name, "pyagrum, bootstrapped hill climbing", once(time.process_time() - begin), rows=1000,
                difference=float(np.abs(shares - exact).max()),
            )  # fmt: skip


def once(seconds: float) -> timing.Spread:
    """The spread of a single run."""
    return timing.Spread.of([seconds])


def best_graphs(smoke: bool, runs: int) -> Rows:
    """The best graph by the whole call, and pyAgrum's tabu search and hill climbing on the same rows."""
    name = "asia" if smoke else "alarm"
    for n_rows, seed in ((1_000, 1),) if smoke else ((1_000, 1), (10_000, 2)):
        net, table = sample(name, n_rows, seed)
        true = adjacency([sorted(net.index(u) for u in net.parents(v)) for v in net.variables])
        found = jtgpu.learn.structure(table, max_parents=3)
        arcs = adjacency([sorted(table.names.index(u) for u in found.parents(v)) for v in table.names])
        theirs = list(peer_graphs(table, runs, slow=smoke))
        for engine, peer_arcs, _ in theirs:
            if peer_arcs.sum(axis=0).max() <= 3 and graph_score(table, peer_arcs) > found.score + TOLERANCE:
                raise SystemExit(f"{engine} has a better graph; nothing is timed")
        for threads in (1, 2):
            begin = time.perf_counter()
            jtgpu.learn.structure(table, max_parents=3, compute=jtgpu.Compute(threads=threads))
            wall = time.perf_counter() - begin
            spread = cpu_seconds(
                lambda t=threads, d=table: jtgpu.learn.structure(  # type: ignore[misc]
                    d, max_parents=3, compute=jtgpu.Compute(threads=t)
                ),
                runs,
            )
            yield row(
                "structure", name, f"jtgpu, {threads} threads", spread, rows=n_rows, score=found.score,
                arcs=int(arcs.sum()), shd=structural_hamming_distance(arcs, true), wall=wall,
            )  # fmt: skip
        for method in ("greedy", "tabu"):
            climbed = jtgpu.learn.structure(table, max_parents=3, method=method)
            arcs = adjacency([sorted(table.names.index(u) for u in climbed.parents(v)) for v in table.names])
            spread = cpu_seconds(lambda m=method, d=table: jtgpu.learn.structure(d, max_parents=3, method=m), runs)  # type: ignore[misc]
            yield row(
                "structure", name, f"jtgpu, {method}", spread, rows=n_rows, score=climbed.score, arcs=int(arcs.sum()),
                shd=structural_hamming_distance(arcs, true),
            )  # fmt: skip
        for engine, peer_arcs, spread in theirs:
            yield row(
                "structure", name, engine, spread, rows=n_rows, score=graph_score(table, peer_arcs),
                arcs=int(peer_arcs.sum()), shd=structural_hamming_distance(peer_arcs, true),
            )  # fmt: skip


SET_IN_SACHS = ("PKC", "PIP2", "Akt", "Mek", "PIP3")  # in 5 of 9 conditions, of 7,466 rows in all (Sachs et al. 2005)


def experiments(smoke: bool, runs: int) -> Rows:
    """The exact posterior of a table of the shape of Sachs 2005: 11 variables, nine conditions, five of them with one
    variable set. Brier score: over ordered pairs, of the arcs of the network that was sampled. No package here has it.
    """
    net, n_rows = jtgpu.load("sachs"), 600 if smoke else 7466
    assert isinstance(net, jtgpu.BayesianNetwork)
    targets, condition = [*SET_IN_SACHS, *[""] * 4], np.arange(n_rows) % 9
    codes = np.empty((len(net.variables), n_rows), np.uint8)
    rng = np.random.default_rng(7)
    for k, target in enumerate(targets):
        rows = np.flatnonzero(condition == k)
        uniform = rng.integers(3, size=len(rows))
        for s in range(3):  # each state that the variable is set to
            some = rows[uniform == s]
            do = {target: net.states(target)[s]} if target else {}
            sampled = net.compile("cpu").sample(len(some), do=do, seed=10 * k + s).states
            codes[:, some] = sampled.T.astype(np.uint8)
    data = {v: np.array(net.states(v), object)[codes[i]] for i, v in enumerate(net.variables)}
    masks = {v: condition == k for k, v in enumerate(targets) if v}
    for engine, given in (("jtgpu, experiments", masks), ("jtgpu, as if observed", None)):
        post = jtgpu.learn.posterior(data, states=net, interventions=given)

        def work(given: Any = given) -> Any:
            return jtgpu.learn.posterior(data, states=net, interventions=given, compute=jtgpu.Compute(threads=1))

        yield row(
            "experiments", "sachs", engine, cpu_seconds(work, min(runs, 5)), rows=n_rows,
            brier=brier(net, post.edge_probabilities.values),
        )  # fmt: skip


def gaps(smoke: bool, runs: int) -> Rows:
    """Alarm with gaps in a tenth of the cells: the Brier score of arcs. Augmentation takes a minute of one core."""
    del runs
    name, n_rows = ("asia", 500) if smoke else ("alarm", 10_000)
    net, table = sample(name, n_rows, 7)
    gone = np.random.default_rng(1).random(table.codes.shape) < 0.1
    whole = {v: np.array(net.states(v), object)[table.codes[i]] for i, v in enumerate(net.variables)}
    holes = {v: np.where(gone[i], None, whole[v]) for i, v in enumerate(net.variables)}
    complete = ~gone.any(axis=0)
    options: dict[str, Any] = {"states": net, "compute": jtgpu.Compute(threads=1)}
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        "no gaps": (whole, {}),
        "drop": ({v: x[complete] for v, x in whole.items()}, {}),  # an error where so few rows are left
        "available, bic": (holes, {"missing": "available", "score": "bic"}),
        "augment": (holes, {"missing": "augment", "chains": jtgpu.learn.Chains(steps=5 if smoke else 140)}),
    }
    for engine, (data, more) in ways.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            begin = time.process_time()
            limit: dict[str, Any] = {} if "chains" in more else {"seconds": 5.0 if smoke else 60.0}
            post = jtgpu.learn.posterior(data, **options, **limit, **more)
        yield row(
            "gaps", name, f"jtgpu, {engine}", once(time.process_time() - begin), rows=len(data[net.variables[0]]),
            brier=brier(net, post.edge_probabilities.values), mcse=float(post.mcse.values.max()), rhat=post.rhat,
            steps=post.n_steps,
        )  # fmt: skip
    begin = time.process_time()
    arcs = jtgpu.learn.structure(holes, missing="em", **options).arcs
    learned = np.zeros((len(net.variables),) * 2)
    for u, v in arcs:
        learned[net.index(u), net.index(v)] = 1.0
    seconds = once(time.process_time() - begin)
    yield row("gaps", name, "jtgpu, structural EM", seconds, rows=n_rows, brier=brier(net, learned), arcs=len(arcs))


def brier(net: jtgpu.BayesianNetwork, probabilities: Any) -> float:
    """Sum of squared differences of the probabilities of arcs and the arcs of a network."""
    true = adjacency([sorted(net.index(u) for u in net.parents(v)) for v in net.variables])
    return float(np.square(np.asarray(probabilities) - true).sum())


def graph_score(table: CodedTable, arcs: NDArray[np.bool_]) -> float:
    """BDeu score of a graph, by the formula."""
    return math.fsum(formula(table, v, np.flatnonzero(arcs[:, v]).tolist()) for v in range(len(arcs)))


def on_gpu(part: str, smoke: bool, runs: int, devices: int) -> Rows:
    """A part on GPUs."""
    if part == "scores":
        for name, n_rows in (("asia", 300),) if smoke else (("alarm", 1_000), ("alarm", 10_000)):
            yield from gpu_scores(name, sample(name, n_rows, 2)[1], runs, cards_of(devices))
    elif part == "table":
        yield from gpu_tables([(12, 2)] if smoke else [(40, 3), (100, 3), (300, 3), (60, 4), (100, 4)], min(runs, 3))
    elif part in ("orders", "partitions"):
        name, n_rows, k = ("asia", 300, 5) if smoke else ("alarm", 1_000, CANDIDATES)
        size = (100, 1, 4) if smoke else (3_700, runs, 1_056)
        measured = gpu_orders if part == "orders" else gpu_partitions
        yield from measured(name, sample(name, n_rows, 1)[1], k, size, cards_of(devices))
    elif part.startswith("exact"):
        name, n_rows = ("asia", 300) if smoke else ("alarm", 1_000)
        yield from gpu_exact(name, sample(name, n_rows, 1)[1], smoke, min(runs, 3), part[6:])
    elif part == "posterior":
        cases = [(name, sample(name, 1_000, 1)[1]) for name in (("asia",) if smoke else ("alarm", "hailfinder"))]
        yield from gpu_posteriors(cases, min(runs, 3), cards_of(devices))
    else:
        yield from gpu_published([(8, 3)] if smoke else [(40, 3), (100, 3), (60, 4), (200, 3)])


def show(found: dict[str, Any]) -> None:
    """Print a result."""
    names = (
        "rate", "score", "arcs", "shd", "brier", "wall", "difference", "mcse", "rhat", "steps", "of_cpu", "bytes",
        "printed", "fill",
    )  # fmt: skip
    text = "  ".join(f"{k} {found[k]:.6g}" for k in names if k in found)
    label = f"{found['bench']:<10}{found['network']:<14}{found['engine']:<28}"
    print(f"{label}{found['median']:9.4f} s  {text}", flush=True)


def main() -> None:
    """Parse, measure, print, store."""
    parser = parser_of(__doc__, "learn.jsonl", runs=7)
    parser.add_argument("parts", nargs="*", choices=[[], *dict.fromkeys((*PARTS, *GPU_PARTS))], help="default: all")
    parser.add_argument("--gpu", action="store_true", help="the parts that run on a GPU: " + ", ".join(GPU_PARTS))
    parser.add_argument("--devices", type=int, default=1, help="GPUs that share whole calls")
    parser.add_argument("--published", action="store_true", help="the part of that name only")
    options = parser.parse_args()
    if options.published:
        options.parts = ["published"]
    if options.gpu:
        for part in options.parts or GPU_PARTS:
            for found in on_gpu(part, options.smoke, 1 if options.smoke else options.runs, options.devices):
                show(found)
                store(options, [found])
        return
    measured: dict[str, Callable[[bool, int], Rows]] = dict(
        zip(
            PARTS,
            (
                scores_of_families,
                published_table,
                exact_posteriors,
                chains_of_orders,
                chains_of_partitions,
                posteriors,
                best_graphs,
                lambda smoke, _: published_sizes(smoke),
                experiments,
                gaps,
            ),
            strict=True,
        )
    )
    for part in options.parts or PARTS:
        for found in measured[part](options.smoke, 1 if options.smoke else options.runs):
            show(found)
            store(options, [found])


if __name__ == "__main__":
    main()
