"""The GPU part of bench_learn.py: score tables, chains, and the published table of sizes and times.

Answers are compared before anything is timed: all scores of alarm with those of the CPU, those of larger tables with
the formula. Kernel times come from the device's events, the others from the wall clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
from rows import row

from jtgpu import learn, timing
from jtgpu.device.context import device_numbers, open_device
from jtgpu.errors import TableTooLarge
from jtgpu.learn.dags import gpu_exact_orders as workspace
from jtgpu.learn.dags import task
from jtgpu.learn.dags.candidate_tables import candidate_tables, choose_candidates, family_weights
from jtgpu.learn.dags.chains import gpu_movers as movers
from jtgpu.learn.dags.chains import partitions
from jtgpu.learn.dags.chains.gpu_chains import GpuOrderChains, GpuPartitionChains
from jtgpu.learn.dags.chains.orders import OrderSampler, run_chains, start_chains
from jtgpu.learn.dags.chains.run import ChainRun
from jtgpu.learn.dags.constraints import make_constraints, make_prior
from jtgpu.learn.dags.exact import ExactPosterior, exact_by_orders, exact_by_partitions
from jtgpu.learn.dags.gpu_exact import partitions_on_gpu
from jtgpu.learn.dags.gpu_exact_orders import orders_on_gpu
from jtgpu.learn.dags.posterior import chain_posterior, exact_posterior, records
from jtgpu.learn.dags.scores.coded import CodedTable
from jtgpu.learn.dags.scores.gpu_device import DeviceScores, count_problem
from jtgpu.learn.dags.scores.ranks import family_of, n_parent_sets, parent_masks
from jtgpu.learn.dags.scores.rules import ScoreRule
from jtgpu.learn.dags.scores.score_table import score_families
from jtgpu.learn.dags.scores.set_values import MAX_CELLS
from jtgpu.learn.dags.set_tables import outer_sets, set_tables
from jtgpu.options.compute import Compute
from jtgpu.options.learning import Chains
from jtgpu.published.ordering import aligned_rows
from jtgpu.published.ordering_gpu import FamilyKernels
from jtgpu.published.ordering_scores import FamilyScores, published_seconds, table_bytes

TOLERANCE = 1e-8
MAX_MEASURED = 3_000_000  # scores of a table that is measured on one core; times of larger ones follow from the rate

Rows = Iterator[dict[str, Any]]


def ternary(n: int, n_rows: int = 1000) -> CodedTable:
    """Independent variables of three states, those of the published table."""
    codes = np.random.default_rng(n).integers(0, 3, (n, n_rows)).astype(np.uint8)
    return CodedTable(tuple(f"v{i}" for i in range(n)), (("a", "b", "c"),) * n, codes)


def _gpu_row(bench: str, name: str, engine: str, seconds: list[float], **more: Any) -> dict[str, Any]:
    return {**row(bench, name, engine, timing.Spread.of(seconds), **more), "device": open_device().name}


def formula(table: CodedTable, v: int, parents: Sequence[int]) -> float:
    """BDeu score, ess 1, by its definition."""
    family = [*parents, v]
    shape = table.cardinality[family]
    counts = np.zeros(shape, np.int64)
    np.add.at(counts, tuple(table.codes[family]), 1)
    q, r = math.prod(shape[:-1].tolist()), int(shape[-1])
    total = 0.0
    for of_row in counts.reshape(q, r).tolist():
        total += math.lgamma(1 / q) - math.lgamma(1 / q + sum(of_row))
        total += sum(math.lgamma(1 / (q * r) + n) - math.lgamma(1 / (q * r)) for n in of_row)
    return total


def _worker(table: CodedTable, k: int, warps: int | None) -> DeviceScores:
    """A table's planes on the GPU; used while its context is current."""
    rule = ScoreRule()
    functions = rule.functions(table.cardinality, k + 1, MAX_CELLS, table.n_cases)
    return DeviceScores(open_device(), count_problem(table, rule, functions, k, MAX_CELLS), warps)


def _kernels(
    table: CodedTable, k: int, runs: int, checked: int, warps: int | None = None
) -> tuple[list[float], list[float], float]:
    """Kernel seconds of counting and of subtracting, and the largest difference of some scores from the formula."""
    n, device = len(table.names), open_device()
    n_sets = n_parent_sets(n, k)
    counting, filling, gap = [], [], 0.0
    with device.active():
        for run in range(runs + 1):
            worker = _worker(table, k, warps)
            try:
                for size in range(2, k + 2):
                    worker.count(size)
                at_once = max(min(n, int(0.8 * device.free_memory()) // (8 * n_sets)), 1)
                address = worker.memory.empty(8 * n_sets * at_once)
                for first in range(0, n, at_once):
                    worker.fill(address, first, min(at_once, n - first))
                if run:  # the first one warms up, and is compared
                    counting.append(1e-6 * worker.microseconds["count"])
                    filling.append(1e-6 * worker.microseconds["fill"])
                    continue
                found = np.empty(n_sets)
                rng = np.random.default_rng(0)
                for v in {0, n // 2, n - 1}:
                    worker.fill(address, v, 1)
                    device.download(found, address, worker.stream)
                    worker.stream.synchronize()
                    for i in rng.integers(0, n_sets, checked).tolist():
                        _, parents = family_of(v * n_sets + i, n, k)
                        gap = max(gap, abs(found[i] - formula(table, v, parents)))
            finally:
                worker.close()
    if not gap <= TOLERANCE:
        raise SystemExit(f"scores differ from the formula by {gap:g}; nothing is timed")
    return counting, filling, gap


def gpu_scores(name: str, table: CodedTable, runs: int, devices: int) -> Rows:
    """All families of up to three parents of a data set: the kernels, and the whole call."""
    expected = score_families(table, ScoreRule(), 3).scores
    found = score_families(table, ScoreRule(), 3, backend="gpu").scores
    gap = float(np.abs(found - expected).max())
    if not gap <= TOLERANCE:
        raise SystemExit(f"GPU scores differ from the CPU's by {gap:g}; nothing is timed")
    n = found.size
    more = {"rows": table.codes.shape[1], "families": n, "difference": gap}
    for warps in (None, 0, 2, 4, 8, 16):
        label = "" if warps is None else f", {warps} warps share the words" if warps else ", a thread a set"
        counting, filling, _ = _kernels(table, 3, runs, 20, warps)
        seconds = [a + b for a, b in zip(counting, filling, strict=True)]
        rate = n / float(np.median(seconds))
        yield _gpu_row(
            "scores", name, f"jtgpu, GPU kernels{label}", seconds, rate=rate, fill=float(np.median(filling)), **more
        )
    for cards in sorted({1, devices}):
        seconds = []
        for _ in range(runs + 1):
            begin = time.perf_counter()
            score_families(table, ScoreRule(), 3, backend="gpu", devices=list(range(cards)))
            seconds.append(time.perf_counter() - begin)
        rate = n / float(np.median(seconds[1:]))
        yield _gpu_row("scores", name, f"jtgpu, {cards} GPU, whole call", seconds[1:], rate=rate, **more)


def gpu_tables(sizes: list[tuple[int, int]], runs: int) -> Rows:
    """The published tables by today's kernels: (number of variables, parents)."""
    for n, k in sizes:
        table = ternary(n)
        entries = n * n_parent_sets(n, k)
        for warps in (None, 4):
            try:
                counting, filling, gap = _kernels(table, k, runs, 10, warps)
            except TableTooLarge as error:
                print(f"ternary {n}, {k} parents: {error}", flush=True)
                break
            seconds = [a + b for a, b in zip(counting, filling, strict=True)]
            label = "" if warps is None else f", {warps} warps share the words"
            yield _gpu_row(
                "table", f"ternary {n}", f"jtgpu, GPU kernels, {k} parents{label}", seconds, entries=entries,
                rate=entries / float(np.median(seconds)), fill=float(np.median(filling)), difference=gap,
            )  # fmt: skip


def gpu_published(sizes: list[tuple[int, int]]) -> Rows:
    """The published tables by the published kernels."""
    rule, device = ScoreRule(), open_device()
    for n, k in sizes:
        table = ternary(n)
        functions = rule.functions(table.cardinality, k + 1, MAX_CELLS, table.n_cases)
        families = FamilyScores(table, rule, functions, aligned_rows(table.codes))
        n_sets = n_parent_sets(n, k)
        with device.active():
            kernels = FamilyKernels(device, families, k)
            try:
                address = kernels.memory.empty(4 * n_sets)
                kernels.fill(address, range(1), k)
                found = np.empty(n_sets, np.float32)
                device.download(found, address, kernels.stream)
                kernels.stream.synchronize()
                kernels.microseconds = 0.0
                for v in range(n):  # each child over the one before
                    kernels.fill(address, range(v, v + 1), k)
                seconds = 1e-6 * kernels.microseconds
            finally:
                kernels.close()
        gap = 0.0
        for i in np.random.default_rng(0).integers(0, n_sets, 30).tolist():
            expected = formula(table, 0, family_of(i, n, k)[1])
            gap = max(gap, abs(float(found[i]) - expected) / abs(expected))
        if not gap <= 1e-6:
            raise SystemExit(f"published scores differ from the formula by {gap:g} of their value; nothing is timed")
        entries = n * n_sets
        yield _gpu_row(
            "published", f"ternary {n}", f"published kernels, {k} parents", [seconds], entries=entries,
            rate=entries / seconds, printed=published_seconds(n, k), bytes=table_bytes(n, k), difference=gap,
        )  # fmt: skip


def published_sizes(smoke: bool) -> Rows:
    """The published table of sizes and times, n = 10 to 300, and today's table on one core."""
    rate = {}
    for k in (3, 4):
        for n in range(10, 310, 10):
            entries = n * n_parent_sets(n, k)
            more = {"entries": entries, "bytes": table_bytes(n, k), "printed": published_seconds(n, k)}
            if entries <= (MAX_MEASURED // 100 if smoke else MAX_MEASURED):
                table = ternary(n)
                begin = time.process_time()
                score_families(table, ScoreRule(), k, threads=1)
                seconds = time.process_time() - begin
                rate[k] = entries / seconds
                yield row("sizes", f"ternary {n}", f"jtgpu, one core, {k} parents", timing.Spread.of([seconds]), **more)
            else:
                seconds = entries / rate[k]
                yield row(
                    "sizes", f"ternary {n}", f"jtgpu, one core, {k} parents, by its rate", None, **more,
                    median=seconds,
                )  # fmt: skip


def gpu_orders(name: str, table: CodedTable, n_candidates: int, size: tuple[int, int, int], devices: int) -> Rows:
    """Steps of chains over orders, of which none and half are swaps; first compared with the CPU's chains.

    `size`: steps, runs, replicas of eight chains.
    """
    n, (steps, runs, most) = len(table.names), size
    constraints, prior, rule = make_constraints(table.names, 3), make_prior("fair", n), ScoreRule()
    rows = family_weights(score_families(table, rule, 2), prior, constraints)
    chosen = choose_candidates(rows, 2, n_candidates, constraints)
    tables = candidate_tables(table, rule, prior, constraints, chosen, 3)
    chain_tables = set_tables(tables)
    sums, hits = chain_tables.sums, chain_tables.hits
    order = start_chains(constraints, 8, 1).order
    for share in (0.0, 0.5):
        one = GpuOrderChains(chain_tables, 1, replicas=1, share_of_swaps=share)
        begin = one.start(order)
        found = one.run(begin, steps, n)[0].order
        one.close()
        expected = run_chains(OrderSampler(tables, sums, hits, 1, share), begin, steps, n)[0].order
        same = float((found == expected).all(axis=1).mean())
        if same < 0.75:
            raise SystemExit(f"only {same:.0%} of the chains are those of the CPU; nothing is timed")
        for cards in sorted({1, devices}):
            for replicas in (most // 4, most // 2, most):
                engine = GpuOrderChains(
                    chain_tables, 1, replicas=replicas, share_of_swaps=share, devices=list(range(cards))
                )
                state, _ = engine.run(engine.start(order), steps, n)
                seconds = []
                for _ in range(runs):
                    state, _ = engine.run(state, steps, n)
                    seconds.append(engine.seconds)
                engine.close()
                rate = 8 * replicas * steps / float(np.median(seconds))
                label = f"jtgpu, {cards} GPU, {8 * replicas} chains, {share:.0%} swaps"
                yield _gpu_row("orders", name, label, seconds, rate=rate, candidates=n_candidates, same=same)


def gpu_partitions(name: str, table: CodedTable, n_candidates: int, size: tuple[int, int, int], devices: int) -> Rows:
    """Steps of chains over partitions, of which 0.6 reverse arcs; first compared with the CPU's chains.

    `size`: steps, runs, replicas of eight chains.
    """
    n, (steps, runs, most) = len(table.names), size
    constraints, prior, rule = make_constraints(table.names, 3), make_prior("fair", n), ScoreRule()
    rows = family_weights(score_families(table, rule, 2), prior, constraints)
    chosen = choose_candidates(rows, 2, n_candidates, constraints)
    tables = set_tables(candidate_tables(table, rule, prior, constraints, chosen, 3))
    first = partitions.start_chains(np.zeros((8, n), np.int64), tables.candidates)
    first = partitions.run_chains(partitions.PartitionSampler(tables, 1), first, 4 * steps, 4 * steps)[0]
    one = GpuPartitionChains(tables, 1, replicas=1)
    begin = one.start(first)
    found = one.run(begin, steps, n)[0].part
    one.close()
    expected = partitions.run_chains(partitions.PartitionSampler(tables, 1), begin, steps, n)[0].part
    same = float((found == expected).all(axis=1).mean())
    if same < 0.75:
        raise SystemExit(f"only {same:.0%} of the chains are those of the CPU; nothing is timed")
    for cards in sorted({1, devices}):
        for replicas in (most // 4, most // 2, most):
            engine = GpuPartitionChains(tables, 1, replicas=replicas, devices=list(range(cards)))
            state = engine.run(engine.start(first), steps, max(n // 2, 1))[0]
            seconds = []
            for _ in range(runs):
                state = engine.run(state, steps, max(n // 2, 1))[0]
                seconds.append(engine.seconds)
            engine.close()
            rate = 8 * replicas * steps / float(np.median(seconds))
            label = f"jtgpu, {cards} GPU, {8 * replicas} chains"
            yield _gpu_row("partitions", name, label, seconds, rate=rate, candidates=n_candidates, same=same)
    yield from _with_outer_sets(name, table, steps, runs)


def _with_outer_sets(name: str, table: CodedTable, steps: int, runs: int) -> Rows:
    """The default number of chains over partitions, with as many candidates and outer sets as by default."""
    n, k, size = len(table.names), 12, 3
    constraints, prior, rule = make_constraints(table.names, size), make_prior("uniform", n), ScoreRule()
    rows = family_weights(score_families(table, rule, size), prior, constraints)
    chosen = choose_candidates(rows, size, min(k, n - 2), constraints)
    dense = candidate_tables(table, rule, prior, constraints, chosen, size)
    tables = set_tables(dense, outer_sets(rows, size, chosen))
    first = partitions.start_chains(np.zeros((8, n), np.int64), tables.candidates)
    first = partitions.run_chains(partitions.PartitionSampler(tables, 1), first, 2 * steps, 2 * steps)[0]
    engine, steps = GpuPartitionChains(tables, 1), 8 * n
    for thin in (n, 4 * n, 8 * n):
        state = engine.run(engine.start(first), steps, thin)[0]
        seconds = []
        for _ in range(runs):
            state = engine.run(state, steps, thin)[0]
            seconds.append(engine.seconds)
        rate = 8 * engine.replicas * steps / float(np.median(seconds))
        label = f"jtgpu, 1 GPU, {8 * engine.replicas} chains, outer sets, a sample each {thin // n} n steps"
        yield _gpu_row("partitions", name, label, seconds, rate=rate, candidates=k)
    engine.close()


def _stage_seconds(work: Callable[[], object]) -> dict[str, float]:
    """Wall seconds of the stages of a posterior by chains, those within others included, and of the whole."""
    found = dict[str, float]()
    engine = movers.GpuPartitionMover
    places: list[tuple[Any, str]] = [
        (module, name)
        for module in (chain_posterior, exact_posterior, records, task)
        for name in (
            "score_families", "family_weights", "candidate_tables", "best_by_orders", "outer_sets", "set_tables",
            "_first_orders", "covered_shares", "structure_of",
        )
        if hasattr(module, name)
    ]  # fmt: skip
    places += [(engine, name) for name in ("init", "step", "graphs")] + [(ChainRun, "estimate")]
    places += [(task.LearningTask, name) for name in ("scores", "screened_candidates")]
    places += [(GpuPartitionChains, "_run_part"), (chain_posterior.ChainSource, "posterior")]
    kept = [getattr(place, name) for place, name in places]

    def timed(name: str, call: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            begin = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                found[name] = round(found.get(name, 0.0) + time.perf_counter() - begin, 4)

        return run

    for (place, name), call in zip(places, kept, strict=True):
        setattr(place, name, timed(name, call))
    try:
        timed("all", work)()
    finally:
        for (place, name), call in zip(places, kept, strict=True):
            setattr(place, name, call)
    return found


def _launch_seconds(work: Callable[[], object]) -> dict[str, float]:
    """Seconds of each kernel of exact posteriors, which are waited for."""
    launch, found = workspace.Workspace.launch, dict[str, float]()

    def timed(w: workspace.Workspace, name: str, n_blocks: int, arguments: Any, **options: Any) -> None:
        w.stream.synchronize()
        begin = time.perf_counter()
        launch(w, name, n_blocks, arguments, **options)
        w.stream.synchronize()
        found[name] = found.get(name, 0.0) + time.perf_counter() - begin

    workspace.Workspace.launch = timed  # type: ignore[method-assign, assignment]
    try:
        work()
    finally:
        workspace.Workspace.launch = launch  # type: ignore[method-assign]
    return found


def gpu_exact(name: str, table: CodedTable, smoke: bool, runs: int, only: str) -> Rows:
    """Exact posteriors of the first variables of a data set: of the GPU's part, and of the whole call.

    Small ones are compared with the CPU's; of all, the probabilities of a variable's parent sets must add up to 1, and
    two calls must be bit-identical.
    """
    device = open_device()
    sizes: list[tuple[str, list[int], int]] = [("order", [6], 8), ("uniform", [6], 8)]
    if not smoke:
        sizes = [("order", [*range(15, 21), 22, 25, 28], 20), ("uniform", [11, 12, 13, 16, 17, 18, 19], 13)]
    for prior, n, most_on_cpu in [(prior, n, most) for prior, numbers, most in sizes for n in numbers]:
        if only in ("", prior):
            own = CodedTable(table.names[:n], table.states[:n], np.ascontiguousarray(table.codes[:n]))
            scores = score_families(own, ScoreRule(), min(4, n - 1), backend="gpu")
            weigh = make_prior(prior, n)
            rows = family_weights(scores, weigh, make_constraints(own.names, 4))
            masks, by_orders = parent_masks(n, scores.max_parents), prior == "order"

            def run(rows: Any = rows, masks: Any = masks, by_orders: bool = by_orders) -> ExactPosterior:
                if by_orders:
                    return orders_on_gpu(device, rows, masks, np.empty((len(rows), 0)))[0]
                return partitions_on_gpu(device, rows, masks, np.empty((len(rows) + 1, 0)))[0]

            found, again = run(), run()
            gap = float(np.abs(found.families.sum(axis=1) - 1.0).max())
            more: dict[str, Any] = {}
            if n <= most_on_cpu:
                begin = time.process_time()
                expected = exact_by_orders(rows, masks) if by_orders else exact_by_partitions(rows, masks)
                more["cpu"] = time.process_time() - begin
                gap = max(gap, float(np.abs(found.families - expected.families).max()))
            if not gap <= 1e-10 or not (found.families == again.families).all():
                raise SystemExit(f"{prior}, {n} variables: the posterior is wrong by {gap:g}; nothing is timed")
            seconds, whole = [], []
            for _ in range(runs):
                begin = time.perf_counter()
                run()
                seconds.append(time.perf_counter() - begin)
                begin = time.perf_counter()
                learn.posterior(own, graph_prior=cast(Any, prior), method="exact", compute="gpu")
                whole.append(time.perf_counter() - begin)
            kernels = {k: round(x, 5) for k, x in _launch_seconds(run).items()}
            print(f"{prior} {n}: {kernels}", flush=True)
            label = f"first {n} of {name}"
            more |= {"rows": table.codes.shape[1], "difference": gap}
            yield _gpu_row("exact", label, f"jtgpu, 1 GPU, {prior}, sums", seconds, kernels=kernels, **more)
            yield _gpu_row("exact", label, f"jtgpu, 1 GPU, {prior}, whole call", whole, **more)


def gpu_posteriors(cases: list[tuple[str, CodedTable]], runs: int, devices: int) -> Rows:
    """The default posterior by chains to a standard error of .002; two seeds are compared, and one with the CPU's."""
    tolerance = 0.002
    limits: tuple[tuple[str, dict[str, Any]], ...] = (
        ("one round", {"chains": Chains(tolerance=tolerance, steps=1)}),
        (f"tolerance {tolerance}", {"chains": Chains(tolerance=tolerance), "seconds": 15.0}),
    )  # fmt: skip
    for name, table in cases:
        found = [
            learn.posterior(table, compute="gpu", chains=learn.Chains(tolerance=tolerance), seed=s, seconds=15.0)
            for s in (0, 1)
        ]
        gap = float(np.abs(found[0].edge_probabilities.values - found[1].edge_probabilities.values).max())
        if not gap <= 20 * tolerance and all(post.converged for post in found):
            raise SystemExit(f"the posteriors of two seeds differ by {gap:g}; nothing is timed")
        on_cpu = learn.posterior(table, chains=learn.Chains(tolerance=0.01), seed=2, seconds=10.0)
        of_cpu = float(np.abs(found[0].edge_probabilities.values - on_cpu.edge_probabilities.values).max())
        if not of_cpu <= 0.06 and found[0].converged and on_cpu.converged:
            raise SystemExit(f"the posterior differs from the CPU's by {of_cpu:g}; nothing is timed")
        more = {"rows": table.codes.shape[1], "difference": gap, "of_cpu": of_cpu}
        print(
            f"{name}: converged {[post.converged for post in found]}, R-hat {[post.rhat for post in found]}", flush=True
        )
        for cards in sorted({1, devices}):
            on_cards = Compute(backend="gpu", devices=list(range(cards)))
            for label, options in limits:
                seconds, post = [], found[0]
                for seed in range(runs):
                    begin = time.perf_counter()
                    post = learn.posterior(table, compute=on_cards, seed=seed, **options)
                    seconds.append(time.perf_counter() - begin)
                stages = _stage_seconds(
                    lambda table=table, on=on_cards, options=options: learn.posterior(  # type: ignore[misc]
                        table, compute=on, seed=0, **options
                    )
                )
                print(f"{name}, {label}: {stages}", flush=True)
                yield _gpu_row(
                    "posterior", name, f"jtgpu, {cards} GPU, {label}", seconds, stages=stages,
                    mcse=float(post.mcse.values.max()), converged=post.converged, rhat=post.rhat, **more,
                )  # fmt: skip


def cards_of(devices: int) -> int:
    """How many GPUs may be used, at most `devices`."""
    return min(devices, len(device_numbers("all")))
