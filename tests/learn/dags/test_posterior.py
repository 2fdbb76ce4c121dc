"""`learn.posterior`: against sums over all graphs, chains against exact posteriors, checkpoints, threads, bad input."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, DataError, JtgpuError, NetworkError, TableTooLarge, UnknownVariable
from jtgpu.learn.dags.best_graph import graph_of_order
from jtgpu.learn.dags.chains import run as driver
from jtgpu.learn.dags.chains.run import ChainRun
from jtgpu.learn.dags.posterior.result import StructurePosterior
from jtgpu.learn.dags.scores.coded import CodedTable
from tests.learn.dags import oracle
from tests.learn.dags.data import in_records, random_table
from tests.support.examples import slow

SMALL = random_table(3, n=4, n_rows=30)


def truth(table: CodedTable, prior: Any = "uniform", allowed: Any = None, ess: float = 1.0) -> Any:
    """Graphs, their probabilities, and ln of the sum over all graphs."""
    n = len(table.names)
    graphs = [g for g in oracle.all_graphs(n) if allowed is None or allowed(g)]
    scores = {}
    for g in graphs:
        for v in range(n):
            if (v, g[v]) not in scores:
                cards = [len(table.states[u]) for u in (*g[v], v)]
                counts = oracle.counts_of([table.codes[u].tolist() for u in (*g[v], v)], cards)
                scores[v, g[v]] = oracle.score(counts, "bdeu", ess, table.n_cases)
    logs = []
    for g in graphs:
        x = sum(scores[v, g[v]] for v in range(n))
        if prior == "fair":
            x -= sum(math.log(math.comb(n - 1, len(p))) for p in g)
        logs.append(x + (math.log(oracle.n_orders(g)) if prior == "order" else 0.0))
    total = oracle.log_sum(logs)
    return graphs, [math.exp(x - total) for x in logs], total


def share(graphs: Any, p: Any, holds: Any) -> float:
    return math.fsum(x for g, x in zip(graphs, p, strict=True) if holds(g))


def has_path(g: Any, u: int, v: int) -> bool:
    return any(w == u or has_path(g, u, w) for w in g[v])


@pytest.mark.parametrize("prior", ["uniform", "fair", "order"])
def test_exact_posteriors_are_sums_over_all_graphs(prior: Any) -> None:
    found = jtgpu.learn.posterior(SMALL, graph_prior=prior, ess=2.0)
    graphs, p, total = truth(SMALL, prior, ess=2.0)
    assert (found.method, found.converged, found.n_steps) == ("exact", True, 0)
    assert found.log_evidence == pytest.approx(total, abs=1e-9)
    for u in range(4):
        for v in range(4):
            if u != v:
                arc = share(graphs, p, lambda g, u=u, v=v: u in g[v])
                assert found.edge_probabilities[u, v] == pytest.approx(arc, abs=1e-10)
                assert found.skeleton[u, v] == pytest.approx(
                    arc + share(graphs, p, lambda g, u=u, v=v: v in g[u]), abs=1e-10
                )
                path = share(graphs, p, lambda g, u=u, v=v: has_path(g, u, v))
                assert found.paths[u, v] == pytest.approx(path, abs=0.05)  # 2,000 independent graphs
    assert (np.asarray(found.mcse) == 0.0).all()
    for parents, q, _ in found.parent_sets("c", 3):
        wanted = tuple(sorted("abcd".index(u) for u in parents))
        assert q == pytest.approx(share(graphs, p, lambda g, w=wanted: g[2] == w), abs=1e-10)
    best = max(
        zip(graphs, p, strict=True), key=lambda item: item[1] / (oracle.n_orders(item[0]) if prior == "order" else 1)
    )
    assert {("abcd"[u], "abcd"[v]) for v in range(4) for u in best[0][v]} == {*found.map.edges}


@pytest.mark.parametrize("method", ["exact", "mcmc"])
def test_constraints_hold_and_change_the_posterior(method: Any) -> None:
    options: dict[str, Any] = {"required": [("a", "b")], "forbidden": [("c", "d")], "max_parents": 2}
    found = jtgpu.learn.posterior(SMALL, method=method, **in_records({"tolerance": 0.01, **options}))
    graphs, p, _ = truth(SMALL, allowed=lambda g: 0 in g[1] and 2 not in g[3] and max(map(len, g)) <= 2)
    error = 1e-10 if method == "exact" else 0.04
    for u in range(4):
        for v in range(4):
            arc = share(graphs, p, lambda g, u=u, v=v: u in g[v])
            assert found.edge_probabilities[u, v] == pytest.approx(arc, abs=error)
    assert found.edge("a", "b") == pytest.approx(1.0)
    assert found.edge("c", "d") == 0.0
    tiered = jtgpu.learn.posterior(
        SMALL,
        method=method,
        constraints=jtgpu.learn.Constraints(tiers=[["d"], ["a", "b"]]),
        chains=jtgpu.learn.Chains(tolerance=0.02),
    )
    assert tiered.edge("a", "d") == tiered.edge("b", "d") == 0.0
    assert all(not g.has_edge("a", "d") for g in tiered.sample_dags(50))


@pytest.mark.parametrize("prior", ["uniform", "fair", "order", ("edge", 0.2)])
def test_chains_have_the_exact_probabilities(prior: Any) -> None:
    table = random_table(5, n=6, n_rows=80)
    exact = jtgpu.learn.posterior(table, graph_prior=prior)
    found = jtgpu.learn.posterior(table, graph_prior=prior, method="mcmc", chains=jtgpu.learn.Chains(tolerance=0.01))
    assert found.method == ("order MCMC" if prior == "order" else "partition MCMC")
    assert found.converged
    assert found.rhat <= 1.05
    assert found.mcse.values.max() <= 0.01
    assert np.abs(found.edge_probabilities.values - exact.edge_probabilities.values).max() < 0.045
    assert np.abs(found.paths.values - exact.paths.values).max() < 0.1
    assert np.abs(found.compelled.values - exact.compelled.values).max() < 0.15
    assert found.map_score == pytest.approx(exact.map_score, abs=1e-9)
    first, sampled = exact.parent_sets("d", 1)[0], {s.parents: s.probability for s in found.parent_sets("d", 20)}
    assert sampled[first.parents] == pytest.approx(first.probability, abs=0.1)


def test_candidates_cover_the_posterior() -> None:
    table = random_table(8, n=8, n_rows=200)
    exact = jtgpu.learn.posterior(table)
    found = jtgpu.learn.posterior(
        table, method="mcmc", search=jtgpu.learn.Search(candidates=5), chains=jtgpu.learn.Chains(tolerance=0.02)
    )
    assert found.candidates is not None
    assert found.coverage is not None
    assert 0.99 < found.coverage <= 1.0
    assert not found.low_coverage
    assert all(len(c) <= 5 for c in found.candidates.values())
    assert "coverage at least" in found.describe()
    assert np.abs(found.edge_probabilities.values - exact.edge_probabilities.values).max() < 0.06
    few = jtgpu.learn.posterior(
        table,
        method="mcmc",
        search=jtgpu.learn.Search(candidates={"c": ["a", "b"]}),
        chains=jtgpu.learn.Chains(tolerance=0.05),
    )
    assert {u for u in few.names if few.edge(u, "c") > 0} <= {"a", "b"}
    assert few.edge("a", "b") == 0.0  # no candidates


@pytest.mark.parametrize("prior", ["uniform", "order"])
def test_lists_of_candidates_exclude_other_parents_from_exact_posteriors(prior: Any) -> None:
    table, lists = random_table(8, n=5, n_rows=60), {"c": ["a", "b"], "a": ["e"]}
    found = jtgpu.learn.posterior(table, graph_prior=prior, search=jtgpu.learn.Search(candidates=lists))
    others = [(u, v) for v in found.names for u in found.names if u != v and u not in lists.get(v, ())]
    same = jtgpu.learn.posterior(table, graph_prior=prior, constraints=jtgpu.learn.Constraints(forbidden=others))
    np.testing.assert_array_equal(found.edge_probabilities.values, same.edge_probabilities.values)
    assert found.method == "exact"
    assert found.edge("d", "c") == 0.0 < found.edge("a", "c")


@pytest.mark.parametrize("wrong", [-1, 0, 2.5, "some"])
def test_candidates_are_checked_in_every_method(wrong: Any) -> None:
    for method in ("exact", "mcmc"):
        with pytest.raises(ArgumentError, match="candidates must be"):
            jtgpu.learn.posterior(
                random_table(8, n=4, n_rows=20), method=method, search=jtgpu.learn.Search(candidates=wrong)
            )


@pytest.mark.parametrize("prior", ["uniform", "order"])
@pytest.mark.parametrize("k", [2, *slow(4)])
def test_few_candidates_have_the_probabilities_of_all(prior: Any, k: int) -> None:
    table = random_table(12, n=7, n_rows=60)
    exact = jtgpu.learn.posterior(table, graph_prior=prior, max_parents=3)
    found = jtgpu.learn.posterior(
        table,
        graph_prior=prior,
        max_parents=3,
        method="mcmc",
        search=jtgpu.learn.Search(candidates=k),
        chains=jtgpu.learn.Chains(tolerance=0.005, n_chains=16),
        seed=2,
    )
    gaps = np.abs(found.edge_probabilities.values - exact.edge_probabilities.values)
    assert (gaps <= 4.0 * found.mcse.values + 1e-3).all()
    assert found.coverage is not None
    assert found.coverage > 0.999
    others = {(u, v) for v in found.names for u in found.names if u not in found.candidates[v]}  # type: ignore[index]
    assert max(found.edge(u, v) for u, v in others) > 0.05


@pytest.mark.parametrize(
    ("seed", "options"),
    [(5, {}), (8, {}), (5, {"required": [("a", "b"), ("c", "b")]}), (8, {"required": [("a", "b"), ("c", "b")]})],
)
def test_outer_sets_that_have_most_of_the_weight(seed: int, options: dict[str, Any]) -> None:
    """Chains over orders were stuck at the best orders of two candidates, and said that they had converged."""
    table = random_table(seed, n=6, n_rows=1500)
    exact = jtgpu.learn.posterior(table, graph_prior="order", **in_records(options))
    found = jtgpu.learn.posterior(
        table, graph_prior="order", method="mcmc", seed=1, **in_records({"candidates": 2, **options})
    )
    gaps = np.abs(found.edge_probabilities.values - exact.edge_probabilities.values)
    assert (gaps <= 5.0 * found.mcse.values + 1e-3).all()


def test_chains_start_from_a_graph() -> None:
    table = random_table(5, n=6, n_rows=80)
    exact = jtgpu.learn.posterior(table)
    far = [("f", "e"), ("e", "d"), ("d", "c"), ("c", "b"), ("b", "a")]
    found = jtgpu.learn.posterior(table, method="mcmc", search=jtgpu.learn.Search(start=far))
    assert np.abs(found.edge_probabilities.values - exact.edge_probabilities.values).max() < 0.045
    with pytest.raises(NetworkError, match="the start graph has a cycle: 'a' -> 'b' -> 'a'"):
        jtgpu.learn.posterior(table, search=jtgpu.learn.Search(start=[("a", "b"), ("b", "a")]))


def sampled(steps: int, threads: int = 2, **options: Any) -> StructurePosterior:
    table = random_table(8, n=6, n_rows=90)
    return jtgpu.learn.posterior(
        table, method="mcmc", seed=4, **in_records({"tolerance": 1e-9, "steps": steps, "threads": threads, **options})
    )


def run(steps: int, threads: int = 2, **options: Any) -> StructurePosterior:
    with pytest.warns(UserWarning, match="not converged"):
        return sampled(steps, threads, **options)


def same(first: StructurePosterior, second: StructurePosterior) -> bool:
    return (
        first.edge_probabilities.values.tobytes() == second.edge_probabilities.values.tobytes()
        and first.mcse.values.tobytes() == second.mcse.values.tobytes()
        and first.trace.tobytes() == second.trace.tobytes()
        and (first.rhat, first.n_samples, first.map_score) == (second.rhat, second.n_samples, second.map_score)
        and [*map(sorted, (g.edges for g in first.sample_dags(40)))]
        == [*map(sorted, (g.edges for g in second.sample_dags(40)))]
    )


@pytest.mark.parametrize("prior", ["uniform", pytest.param("order", marks=pytest.mark.slow)])
def test_threads_and_continuations_have_the_same_bits(prior: Any) -> None:
    whole = run(40_000, 1, graph_prior=prior)
    assert same(whole, run(40_000, 3, graph_prior=prior))
    short = run(8_000, graph_prior=prior)
    assert not same(whole, short)
    assert same(whole, short.more(steps=whole.n_steps - short.n_steps))
    assert not same(
        whole,
        jtgpu.learn.posterior(
            random_table(8, n=6, n_rows=90), method="mcmc", graph_prior=prior, chains=jtgpu.learn.Chains(tolerance=0.2)
        ),
    )


@pytest.mark.parametrize("prior", ["uniform", pytest.param("order", marks=pytest.mark.slow)])
def test_a_checkpoint_continues_with_the_same_bits(prior: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, path = run(80_000, graph_prior=prior), tmp_path / "run.npz"
    monkeypatch.setattr("jtgpu.learn.dags.posterior.chain_posterior.INTERVAL", 0.0)
    rounds, original = [0], ChainRun._run_round

    def interrupted(self: ChainRun) -> None:
        rounds[0] += 1
        if rounds[0] % 3 == 0:  # as by kill -9: nothing is written afterwards
            raise SystemExit
        original(self)

    monkeypatch.setattr(ChainRun, "_run_round", interrupted)
    for _ in range(3):
        with pytest.raises(SystemExit):
            run(80_000, graph_prior=prior, checkpoint=path)
    monkeypatch.setattr(ChainRun, "_run_round", original)
    assert same(whole, run(80_000, graph_prior=prior, checkpoint=path))
    assert same(whole, run(80_000, graph_prior=prior, checkpoint=path))  # complete: nothing is left to do
    with pytest.raises(JtgpuError, match="other run: other score"):
        sampled(80_000, graph_prior=prior, checkpoint=path, ess=2.0)
    with pytest.raises(JtgpuError, match="other run: other data"):
        jtgpu.learn.posterior(
            random_table(9, n=6, n_rows=90),
            method="mcmc",
            graph_prior=prior,
            seed=4,
            chains=jtgpu.learn.Chains(checkpoint=path),
        )
    path.write_bytes(b"no file of numpy")
    with pytest.raises(JtgpuError, match="cannot be read"):
        sampled(80_000, graph_prior=prior, checkpoint=path)


def test_a_checkpoint_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="there is no folder"):
        sampled(80_000, checkpoint=tmp_path / "none" / "run.npz")


def test_many_kept_graphs_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "MAX_KEPT", 16)
    found = run(60_000)
    assert 8 <= found.trace.shape[1] <= 16
    with pytest.raises(ArgumentError, match="have kept"):
        found.sample_dags(1000)


def test_ctrl_c_returns_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ChainRun._run_round

    def interrupted(self: ChainRun) -> None:
        if self.n_rounds == 2:
            raise KeyboardInterrupt
        original(self)

    monkeypatch.setattr(ChainRun, "_run_round", interrupted)
    found = run(1_000_000)
    assert not found.converged
    assert 0 < found.n_steps < 100_000
    assert found.edge_probabilities.values.max() <= 1.0


def test_average_is_exact_inference_over_graphs() -> None:
    found = jtgpu.learn.posterior(SMALL)
    average = found.average(n_dags=2000, backend="reference")
    assert sum(average.weights) == pytest.approx(1.0)
    assert len(average.networks) == len(average.entries) == len(average)
    p = average.posteriors({"a": "s0"})
    graphs, weights = average.networks, average.weights
    of_evidence = [net.compile("reference").posteriors({"a": "s0"}) for net in graphs]
    evidence = np.array([math.exp(q.log_evidence) for q in of_evidence])
    for state in range(len(SMALL.states[2])):
        each = np.array([q["c"][state] for q in of_evidence])
        mean = float((weights * evidence * each).sum() / (weights * evidence).sum())
        assert p["c"][state] == pytest.approx(mean, abs=1e-12)
        spread = math.sqrt(((weights * evidence) / (weights * evidence).sum() * (each - mean) ** 2).sum())
        assert p.spread["c"][state] == pytest.approx(spread, abs=1e-12)
    assert p.log_evidence == pytest.approx(math.log((weights * evidence).sum()), abs=1e-12)
    assert "averaged over" in str(p)
    limit = sorted(average.entries)[len(average) // 2]
    few = found.average(n_dags=2000, max_entries=limit, backend="reference")
    assert max(few.entries) <= limit
    assert 0.0 < few.left_out < 1.0
    assert "left out" in repr(few)
    with pytest.raises(TableTooLarge, match="max_entries=1"):
        found.average(max_entries=1)
    assert len(found.sample_dags(200, max_entries=limit)) < 200
    assert found.structure.clique_entries in average.entries


def test_consensus_of_the_fewest_expected_errors() -> None:
    from jtgpu.learn.dags.posterior.averaging import fewest_errors

    p = np.zeros((5, 5))
    p[0, 1], p[1, 2], p[2, 0], p[2, 3], p[3, 4], p[4, 3] = 0.9, 0.6, 0.7, 0.55, 0.4, 0.45
    assert [*map(tuple, np.argwhere(fewest_errors(p)).tolist())] == [(0, 1), (2, 0), (2, 3)]
    rng = np.random.default_rng(2)
    for _ in range(5):
        p = rng.random((4, 4)) * 0.6 + 0.35
        best = max(
            sum(p[u, v] - 0.5 for v in range(4) for u in g[v]) for g in oracle.all_graphs(4)
        )  # fmt: skip
        found = fewest_errors(p)
        assert (p - 0.5)[found].sum() == pytest.approx(best)
    exact = jtgpu.learn.posterior(SMALL)
    assert {*exact.consensus(None).edges} == {*exact.consensus(0.5).edges}


def test_results_print_and_convert() -> None:
    found = jtgpu.learn.posterior(SMALL)
    lines = str(found).splitlines()
    assert lines[0].startswith("Posterior of 4 variables, exact: ")
    assert lines[1].split() == ["parent", "child", "probability"]
    assert len(lines) == 2 + 12
    assert "ln of the sum over all graphs" in found.describe()
    assert [*found.edges(0.0)[0]][:2] == [found.edges(0.0)[0].parent, found.edges(0.0)[0].child]
    pandas = pytest.importorskip("pandas")
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    names = "parent child probability mcse skeleton path path_mcse compelled compelled_mcse"
    assert [*frame.columns] == names.split()
    assert frame["probability"].is_monotonic_decreasing
    assert len(frame) == 12
    assert [*found.edge_probabilities.to_frame().columns] == ["parent", "a", "b", "c", "d"]
    assert [*found.parent_sets("a").to_frame().columns] == ["parents", "probability", "mcse"]
    net = found.network()
    assert {*net.arcs} == {*found.map.edges}
    assert {*found.network(threshold=0.3).arcs} == {*found.consensus(0.3).edges}
    assert found.more() is not None
    again = found.network(SMALL_FRAME)
    assert again.variables == net.variables


SMALL_FRAME = {v: [SMALL.states[i][c] for c in SMALL.codes[i]] for i, v in enumerate(SMALL.names)}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "order"}, ArgumentError, "method must be 'auto', 'exact' or 'mcmc'"),
        ({"graph_prior": "flat"}, ArgumentError, "graph_prior must be"),
        ({"score": "bgee"}, ArgumentError, "score must be"),
        ({"ess": 0}, ArgumentError, "ess must be"),
        ({"ess": math.nan}, ArgumentError, "ess must be"),
        ({"max_parents": -1}, ArgumentError, "max_parents must be"),
        ({"tolerance": 0}, ArgumentError, "tolerance must be"),
        ({"seconds": 0}, ArgumentError, "seconds must be"),
        ({"steps": 0}, ArgumentError, "steps must be"),
        ({"n_chains": 3}, ArgumentError, "n_chains must be"),
        ({"seed": -1}, ArgumentError, "seed must be"),
        ({"method": "mcmc", "candidates": 0}, ArgumentError, "candidates must be"),
        ({"method": "mcmc", "candidates": {"x": []}}, UnknownVariable, "'x'"),
        ({"method": "mcmc", "candidates": {"a": "b"}}, TypeError, "must be a list"),
        ({"required": [("a", "b"), ("b", "a")]}, ArgumentError, "cycle"),
        ({"required": [("a", "b")], "forbidden": [("a", "b")]}, ArgumentError, "both required and forbidden"),
        ({"required": [("a", "b"), ("c", "b")], "max_parents": 1}, ArgumentError, "more than max_parents"),
        ({"required": [("a", "b")], "tiers": [["b"], ["a"]]}, ArgumentError, "earlier tier"),
        ({"forbidden": [("a", "x")]}, UnknownVariable, "'x'"),
        ({"method": "exact", "memory_limit": 100_000}, TableTooLarge, "use method='mcmc'|lower max_parents"),
        ({"method": "mcmc", "candidates": "all", "memory_limit": 60_000}, TableTooLarge, "limit"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        jtgpu.learn.posterior(random_table(3, n=9, n_rows=30), **in_records(options))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": ["x", None, "y"], "b": [1, 2, 1]}, "row"),
        ({"a": [1, 1, 1], "b": [1, 2, 1]}, "'a'"),
        ({"a": [0.5, 1.5, 0.5], "b": [1, 2, 1]}, "discretise"),
        ({"a": [], "b": []}, "row"),
        ({"a": [1, 2, 1]}, "two"),
        ({"a": [*range(40)], "b": [1, 2] * 20}, "identifier"),
    ],
)
def test_bad_data(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        jtgpu.learn.posterior(data)


def test_unknown_names() -> None:
    found = jtgpu.learn.posterior(SMALL)
    with pytest.raises(UnknownVariable, match="'x'"):
        found.edge("x", "a")
    with pytest.raises(UnknownVariable, match="'x'"):
        found.parent_sets("x")
    with pytest.raises(ArgumentError, match="threshold"):
        found.edges(math.nan)


def test_too_many_variables_for_exact() -> None:
    with pytest.raises(TableTooLarge, match="at most 15 are supported; use method='mcmc'"):
        jtgpu.learn.posterior(random_table(3, n=16, n_rows=30), method="exact", max_parents=2)


def test_extreme_tables() -> None:
    """Equal columns, a deterministic pair, a variable of 255 states: never NaN."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, 300)
    data = {
        "x": x,
        "copy": x,
        "not": 1 - x,
        "many": rng.permutation(np.arange(300) % 255),
        "free": rng.integers(0, 3, 300),
    }
    for method in ("exact", "mcmc"):
        with pytest.warns(UserWarning, match="equal up to the names") as caught:
            found = jtgpu.learn.posterior(data, method=method, chains=jtgpu.learn.Chains(tolerance=0.05, steps=60_000))
        assert len(caught) >= 2
        assert np.isfinite(found.edge_probabilities.values).all()
        assert found.skeleton["x", "copy"] + found.skeleton["x", "not"] > 0.9


def test_a_better_graph_of_the_chains_is_the_best_one(monkeypatch: pytest.MonkeyPatch) -> None:
    table = random_table(5, n=6, n_rows=80)
    exact = jtgpu.learn.posterior(table)

    def poor(tables: Any, *_: Any, **__: Any) -> Any:
        order = np.arange(6)[::-1]
        return graph_of_order(tables, order)

    monkeypatch.setattr("jtgpu.learn.dags.task.best_by_orders", poor)
    found = jtgpu.learn.posterior(table, method="mcmc", chains=jtgpu.learn.Chains(tolerance=0.03))
    assert found.map_score == pytest.approx(exact.map_score, abs=1e-9)
    position = {v: i for i, v in enumerate(found.structure.order)}
    assert all(position[u] < position[v] for u, v in found.structure.arcs)


def test_of_many_arcs_the_most_probable_and_the_uncertain_ones_are_printed() -> None:
    """N18: the six most probable ones were not among the 20."""
    found = jtgpu.learn.posterior(jtgpu.load("sachs").compile("cpu").sample(300, seed=1).to_frame("pandas"))
    lines = str(found).splitlines()
    certain = found.edges(0.99)
    assert lines[1].startswith(f"{len(certain)} arc")
    assert re.search(r"; of the other \d+ arcs the 5 most probable, then \d+ nearest to 0\.5$", lines[1])
    assert lines[2].split() == ["parent", "child", "probability"]
    shown = [float(line.split()[2]) for line in lines[3:]]
    assert len(shown) <= 20
    listed = [a.probability for a in found.edges(0.0)]
    assert len(certain) > 5
    assert "0.99, the 5 most probable first;" in lines[1]
    assert shown[:5] == pytest.approx(listed[:5], abs=1e-6)
    assert all(0.01 < p < 0.99 for p in shown[5:])
    assert shown[5:10] == pytest.approx([p for p in listed if p < 0.99][:5], abs=1e-6)
    distances = [round(abs(p - 0.5), 6) for p in shown[10:]]
    assert distances == sorted(distances)
