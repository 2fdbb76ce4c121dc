"""What each stage before and after inference adds: screen, learn, infer, whiten, rank; with and without each.

    python bench/pipeline.py [PART ...]       parts: screen, learn, whiten, rank; default: all
    python bench/pipeline.py --smoke          small data, nothing stored

screen  rows of alarm, 0.5 % of them corrupt (some of their cells drawn again): the share of corrupt rows among 100
        that are first by weight, surprise and both; and what leaving these rows out does to the network
learn   the log-score (mean ln P of unseen rows) and the accuracy of a classifier: no arcs, naive Bayes, the learned
        structure, the structure that the rows were drawn from
whiten  two series with memory. The log-score of the next states: rows of the series as they are, with one lag, with the
        lags that lag_parents names. And of 50 faults, how many are among the 50 rows of largest weight or surprise: in
        the values as they are, and in their residuals
rank    the most central variable of 11 (sachs), from 300 rows, repeated: the best graph's against 1,000 sampled graphs'
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rows import parser_of, row, store

import jtgpu

TARGET = "LVEDVOLUME"  # of alarm

Cases = dict[str, Any]
Found = Iterator[tuple[str, str, dict[str, float]]]  # what, how, figures


def network(name: str) -> jtgpu.BayesianNetwork:
    """A bundled Bayesian network."""
    net = jtgpu.load(name)
    assert isinstance(net, jtgpu.BayesianNetwork)
    return net


def sampled(net: Any, n: int, seed: int) -> Cases:
    """Rows of a network, a column of states for each variable."""
    with net.compile("cpu") as tree:
        cases = tree.sample(n, seed=seed)
    return {v: np.asarray(cases[v]) for v in net.variables}


def some_rows(cases: Mapping[str, Any], keep: NDArray[Any]) -> Cases:
    """Some rows of a table."""
    return {name: column[keep] for name, column in cases.items()}


def surprises(net: Any, cases: Cases) -> NDArray[np.float64]:
    """-ln P of each row."""
    with net.compile("cpu") as tree:
        return np.asarray(jtgpu.screen.surprise(tree, cases, n=0)["surprise"], np.float64)


def log_score(net: Any, unseen: Cases) -> float:
    """Mean ln P of unseen rows."""
    return -float(surprises(net, unseen).mean())


def accuracy(structure: Any, seen: Cases, unseen: Cases, target: str) -> float:
    """Share of unseen rows of which a classifier finds the state of the target."""
    classifier = jtgpu.JunctionTreeClassifier(structure, target=target, unknown="missing")
    classifier.fit({v: c for v, c in seen.items() if v != target}, seen[target])
    return float(classifier.score({v: c for v, c in unseen.items() if v != target}, unseen[target]))


def top(scores: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Rows of the largest scores."""
    found: NDArray[np.int64] = np.argsort(-scores, kind="stable")[:n]
    return found


def rank_of(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """0 for the largest score, and so on."""
    ranks = np.empty(len(scores), np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return ranks


def refit(structure: Any, cases: Cases, states: Any) -> Any:
    """A network of a structure, its CPTs from some rows."""
    parents = structure if isinstance(structure, dict) else {v: list(structure.parents(v)) for v in states.variables}
    return jtgpu.learn.fit(parents, cases, states={v: list(states.states(v)) for v in states.variables}).network


def screen(smoke: bool) -> Found:
    """Corrupt rows of alarm."""
    net = network("alarm")
    n = 1000 if smoke else 20_000
    n_bad = n // 200
    clean, unseen = sampled(net, n, 1), sampled(net, n, 2)
    for n_cells in (4, 9, 18):
        rng = np.random.default_rng(n_cells)
        bad = rng.choice(n, n_bad, replace=False)
        cases = {v: column.copy() for v, column in clean.items()}
        for r in bad:
            for v in rng.choice(len(net.variables), n_cells, replace=False):
                name = net.variables[v]
                cases[name][r] = rng.choice(list(net.states(name)))
        is_bad = np.zeros(n, np.bool_)
        is_bad[bad] = True
        learned = jtgpu.learn.structure(cases, states=net).network()  # from the corrupt table
        start = time.process_time()
        weight = np.asarray(jtgpu.screen.weights(cases, k=21, net=net)["weight"], np.float64)
        seconds = time.process_time() - start
        surprise = surprises(learned, cases)
        both = -np.maximum(rank_of(weight), rank_of(surprise)).astype(np.float64)
        what = f"{n_bad} of {n} rows with {n_cells} of 37 cells drawn again"
        for how, score in (("weight", weight), ("surprise", surprise), ("both", both)):
            kept = np.ones(n, np.bool_)
            kept[top(score, n_bad)] = False
            without = refit(learned, some_rows(cases, kept), net)
            figures = {"precision": float(is_bad[top(score, n_bad)].mean()), "log_score": log_score(without, unseen)}
            if how == "weight":
                figures["cpu_s"] = seconds
            yield what, f"without the first by {how}", figures
        score_of_all = log_score(refit(learned, cases, net), unseen)
        yield what, "with all rows", {"precision": n_bad / n, "log_score": score_of_all}
        only_good = refit(learned, some_rows(cases, ~is_bad), net)
        yield what, "without the corrupt rows", {"precision": 1.0, "log_score": log_score(only_good, unseen)}


def learn(smoke: bool) -> Found:
    """Structures of alarm: what learning and inference add."""
    net = network("alarm")
    unseen = sampled(net, 500 if smoke else 5000, 12)
    others = [v for v in net.variables if v != TARGET]
    for n in (300,) if smoke else (500, 5000):
        seen = sampled(net, n, 11)
        structures: dict[str, Any] = {
            "no arcs": {},
            "naive Bayes": {v: [TARGET] for v in others},
            "learned structure": jtgpu.learn.structure(seen, states=net).network(),
            "true structure": {v: list(net.parents(v)) for v in net.variables},
        }
        for how, structure in structures.items():
            if isinstance(structure, dict):
                structure = {v: structure.get(v, []) for v in net.variables}
            fitted = refit(structure, seen, net)
            parents = {v: list(fitted.parents(v)) for v in net.variables}
            figures = {"log_score": log_score(fitted, unseen), "accuracy": accuracy(parents, seen, unseen, TARGET)}
            yield f"alarm, {n} rows, target {TARGET}", how, figures


def sensors(n: int, seed: int) -> dict[str, NDArray[np.float64]]:
    """Load drives heat; heat remembers two steps."""
    rng = np.random.default_rng(seed)
    load, heat = np.zeros(n), np.zeros(n)
    for t in range(2, n):
        load[t] = 0.8 * load[t - 1] + rng.standard_normal()
        heat[t] = 0.5 * heat[t - 1] + 0.4 * heat[t - 2] + 0.5 * load[t - 1] + rng.standard_normal()
    return {"load": load, "heat": heat}


def next_state_score(net: Any, cases: Cases, now: Sequence[str]) -> float:
    """Mean ln P(states now | columns of earlier times)."""
    whole = surprises(net, cases)
    earlier = {name: c for name, c in cases.items() if name not in now}
    return -float((whole - surprises(net, earlier)).mean()) if earlier else -float(whole.mean())


def whiten(smoke: bool) -> Found:
    """Series with memory: log-scores of the next states, and faults found."""
    n = 2000 if smoke else 20_000
    seen, unseen = sensors(n, 1), sensors(n, 2)
    fit = jtgpu.series.ar(seen)
    edges = {name: np.quantile(x, [1 / 3, 2 / 3]).tolist() for name, x in seen.items()}
    named = jtgpu.series.lag_parents(fit, 1e-3)
    ways: dict[str, Any] = {"rows as they are": None, "two slices, lag 1": 1, "two slices, lags of lag_parents": named}
    for how, lags in ways.items():
        tables = [jtgpu.series.two_slices(x, lags or 1, bins=edges) for x in (seen, unseen)]
        if lags is None:
            tables = [{name: c for name, c in t.items() if name.endswith("[t]")} for t in tables]
        cases, new = ({name: np.asarray(c) for name, c in t.items()} for t in tables)
        now = [name for name in cases if name.endswith("[t]")]
        tiers = [[name for name in cases if name not in now], now] if lags else None
        net = jtgpu.learn.structure(cases, constraints=jtgpu.learn.Constraints(tiers=tiers)).network()
        yield "log-score of the next states", how, {"value": next_state_score(net, new, now), "columns": len(cases)}

    rng = np.random.default_rng(3)
    n_faults = n // 400
    at = np.sort(rng.choice(np.arange(50, n), n_faults, replace=False))
    for size in (3.0, 4.0, 5.0):
        faulty = {name: x.copy() for name, x in unseen.items()}
        for i, t in enumerate(at):
            name = ("load", "heat")[i % 2]
            faulty[name][t] += size * rng.choice([-1.0, 1.0])
        is_fault = np.zeros(n, np.bool_)
        is_fault[at] = True
        left = jtgpu.series.whiten(faulty, fit)
        residuals = {name: np.ma.filled(x, 0.0) for name, x in left.items()}
        for how, table in (("values as they are", faulty), ("residuals", residuals)):
            weight = np.asarray(jtgpu.screen.weights(table, k=21, scale="std")["weight"], np.float64)
            figures = {"precision": float(is_fault[top(weight, n_faults)].mean())}
            yield f"{n_faults} faults of size {size:g}", f"weight of {how}", figures


def rank(smoke: bool) -> Found:
    """The most central variable of sachs, from few rows."""
    net = network("sachs")
    truth = jtgpu.graphs.betweenness(net, directed=False)
    best = max(truth.values())
    first = {v for v, value in truth.items() if value == best}
    true_rank = {v: 1 + sum(other > value for other in truth.values()) for v, value in truth.items()}
    hits: dict[str, list[float]] = {"best graph": [], "1,000 graphs": []}
    claims, covered, width = [], [], []
    for seed in range(2 if smoke else 12):
        cases = sampled(net, 300, 100 + seed)
        post = jtgpu.learn.posterior(cases, states=net)
        found = jtgpu.graphs.betweenness_posterior(post.sample_dags(100 if smoke else 1000))
        columns = found.columns()
        order = list(columns["variable"])
        p_first = np.asarray(columns["p_first"], np.float64)
        single = jtgpu.graphs.betweenness(jtgpu.learn.structure(cases, states=net).dag.to_undirected())
        hits["best graph"].append(float(max(single, key=single.__getitem__) in first))
        hits["1,000 graphs"].append(float(order[int(p_first.argmax())] in first))
        claims.append(float(p_first.max()))
        for v, low, high in zip(order, columns["rank_low"], columns["rank_high"], strict=True):
            covered.append(float(low <= true_rank[v] <= high))
            width.append(float(high - low + 1))
    for how, values in hits.items():
        figures = {"hits": float(np.mean(values))}
        if how != "best graph":
            figures["claimed"] = float(np.mean(claims))
        yield "most central variable of sachs, 300 rows", how, figures
    figures = {"covered": float(np.mean(covered)), "mean_width": float(np.mean(width))}
    yield "ranks of sachs, intervals of 0.9", "1,000 graphs", figures


PARTS = {"screen": screen, "learn": learn, "whiten": whiten, "rank": rank}


def main() -> None:
    """Run parts and print a line for each figure."""
    parser = parser_of(__doc__, "pipeline.jsonl")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="default: all")
    options = parser.parse_args()
    for part in options.parts or PARTS:
        for what, how, figures in PARTS[part](options.smoke):
            text = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
            print(f"{part:7} {what:52} {how:36} {text}", flush=True)
            store(options, [row(f"pipeline {part}", what, how, None, **figures)])


if __name__ == "__main__":
    main()
