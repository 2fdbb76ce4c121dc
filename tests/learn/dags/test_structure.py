"""The graph of the highest score: against all graphs, against the data's own network, and equivalence classes."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, DataError, NetworkError, TableTooLarge, UnknownVariable
from jtgpu.learn.dags.graphs import adjacency
from jtgpu.learn.dags.scores.numeric_table import code_table
from jtgpu.model.equivalence import compelled_arcs, structural_hamming_distance
from tests.learn.dags import oracle
from tests.learn.dags.data import in_records, random_table, table_of

RAIN = np.repeat([0, 1], 100)
# 10 % of wet are unlike rain; noise is exactly independent of both
DATA = {"rain": RAIN, "noise": np.tile([0, 1], 100), "wet": np.where(np.arange(200) % 20 < 2, 1 - RAIN, RAIN)}


def best_score(table: Any, graphs: list[oracle.Graph]) -> float:
    scores = jtgpu.learn.score_table(table, max_parents=3)
    names = table.names
    return max(sum(scores.score(names[v], [names[u] for u in p]) for v, p in enumerate(graph)) for graph in graphs)


@pytest.mark.parametrize("method", ["exact", "order"])
@pytest.mark.parametrize("seed", range(3))
def test_no_graph_is_better(method: Any, seed: int) -> None:
    table = random_table(seed, n=4, n_rows=50)
    graphs = list(oracle.all_graphs(4))
    found = jtgpu.learn.structure(table, method=method)
    assert found.score == pytest.approx(best_score(table, graphs), abs=1e-9)
    assert found.log_weight == pytest.approx(found.score, abs=1e-9)
    allowed = [g for g in graphs if 0 in g[1] and 2 not in g[3]]
    found = jtgpu.learn.structure(
        table, method=method, constraints=jtgpu.learn.Constraints(required=[("a", "b")], forbidden=[("c", "d")])
    )
    assert found.score == pytest.approx(best_score(table, allowed), abs=1e-9)
    assert ("a", "b") in found.arcs
    assert ("c", "d") not in found.arcs
    few = [g for g in graphs if all(len(p) <= 1 for p in g) and not g[3]]
    found = jtgpu.learn.structure(table, method=method, max_parents={"a": 1, "b": 1, "c": 1, "d": 0})
    assert found.score == pytest.approx(best_score(table, few), abs=1e-9)


def test_order_search_reaches_the_exact_score() -> None:
    table = random_table(9, n=12, n_rows=300)
    exact = jtgpu.learn.structure(table, max_parents=3)
    assert exact.method == "exact"
    found = [
        jtgpu.learn.structure(
            table,
            method="order",
            max_parents=3,
            search=jtgpu.learn.Search(candidates=6),
            compute=jtgpu.Compute(threads=t),
        )
        for t in (1, 3)
    ]
    assert found[0].arcs == found[1].arcs
    assert found[0].score == pytest.approx(exact.score, abs=1e-6)
    assert found[0].candidates is not None
    assert all(len(c) <= 6 and {*found[0].parents(v)} <= {*c} for v, c in found[0].candidates.items())
    position = {v: i for i, v in enumerate(found[0].order)}
    assert all(position[u] < position[v] for u, v in found[0].arcs)


@pytest.mark.parametrize("method", ["greedy", "tabu"])
@pytest.mark.parametrize("score", ["bdeu", "bds", "k2", "bic"])
def test_no_single_arc_improves_a_climbed_graph(method: Any, score: Any) -> None:
    table = random_table(5, n=5, n_rows=60, weighted=score == "k2")
    options: dict[str, Any] = {"max_parents": 2, "required": [("a", "b")], "forbidden": [("c", "d"), ("e", "a")]}
    found = jtgpu.learn.structure(table, method=method, score=score, graph_prior="fair", **in_records(options))
    scores = jtgpu.learn.score_table(table, score=score, max_parents=2)

    def weight(arcs: set[tuple[str, str]]) -> float:
        total = 0.0
        for v in table.names:
            parents = [u for u, w in arcs if w == v]
            if len(parents) > 2 or ("a" not in parents and v == "b"):
                return -math.inf
            total += scores.score(v, parents) - math.log(math.comb(4, len(parents)))
        graph = tuple(tuple(sorted(table.names.index(u) for u, w in arcs if w == v)) for v in table.names)
        return total if oracle.is_acyclic(graph) and not arcs & {*options["forbidden"]} else -math.inf

    arcs = {*found.arcs}
    assert found.log_weight == pytest.approx(weight(arcs), abs=1e-9)
    for u, v in itertools.permutations(table.names, 2):
        changed = [arcs ^ {(u, v)}] + ([arcs - {(u, v)} | {(v, u)}] if (u, v) in arcs else [])
        assert all(weight(other) <= found.log_weight + 1e-9 for other in changed)
    exact = jtgpu.learn.structure(table, score=score, graph_prior="fair", **in_records(options))
    assert found.log_weight <= exact.log_weight + 1e-9
    position = {v: i for i, v in enumerate(found.order)}
    assert all(position[u] < position[v] for u, v in found.arcs)


def test_tabu_search_leaves_local_optima() -> None:
    found = {
        method: [jtgpu.learn.structure(random_table(s, n=7, n_rows=80), method=method).score for s in range(12)]
        for method in ("greedy", "tabu", "exact")
    }
    assert all(g <= t + 1e-9 <= e + 2e-9 for g, t, e in zip(*found.values(), strict=True))
    assert sum(t > g + 1e-6 for g, t in zip(found["greedy"], found["tabu"], strict=True)) > 0


@pytest.mark.parametrize("method", ["greedy", "tabu", "order"])
def test_no_search_returns_less_than_its_start(method: Any) -> None:
    table = random_table(3, n=9, n_rows=90)
    best = jtgpu.learn.structure(table, max_parents=3)
    for start in (best, best.dag, best.arcs, {v: best.parents(v) for v in best.names}, best.network()):
        found = jtgpu.learn.structure(
            table, method=method, max_parents=3, search=jtgpu.learn.Search(start=start, candidates=1)
        )
        assert found.score == pytest.approx(best.score, abs=1e-6)


def test_restarts_find_better_graphs() -> None:
    tables = [random_table(s, n=8, n_rows=80) for s in range(8)]
    options: dict[str, Any] = {"method": "greedy", "required": [("a", "b")], "tiers": [["b", "c"], ["d"]]}
    once = [jtgpu.learn.structure(table, **in_records(options)) for table in tables]
    again = [jtgpu.learn.structure(table, **in_records({"restarts": 10, **options})) for table in tables]
    gains = [b.score - a.score for a, b in zip(once, again, strict=True)]
    assert min(gains) >= -1e-9
    assert max(gains) > 1e-3
    assert all(b.steps > a.steps > 0 and ("a", "b") in b.arcs for a, b in zip(once, again, strict=True))
    assert not any({("d", "b"), ("d", "c")} & {*b.arcs} for b in again)
    assert again[0].arcs == jtgpu.learn.structure(tables[0], **in_records({"restarts": 10, **options})).arcs


def test_result_for_users() -> None:
    pytest.importorskip("networkx")
    found = jtgpu.learn.structure(DATA, constraints=jtgpu.learn.Constraints(tiers=[["rain", "noise"], ["wet"]]))
    assert found.arcs == [("rain", "wet")]
    assert list(found.dag.edges) == [("rain", "wet")]
    assert list(found.dag.nodes) == ["rain", "noise", "wet"]
    assert sorted(found.cpdag.edges) == [("rain", "wet"), ("wet", "rain")]
    assert "1 arc," in repr(found)
    assert str(found).splitlines()[1:] == ["rain -> wet"]
    assert "<svg" in found._repr_html_()
    assert ">noise</text>" in found._repr_html_()
    assert found.candidates is None
    net = found.network()
    assert net.parents("wet") == ("rain",)
    counts = np.bincount(2 * DATA["rain"] + DATA["wet"], minlength=4).reshape(2, 2)
    assert net.cpt("wet") == pytest.approx((counts + 0.25) / (counts.sum(axis=1, keepdims=True) + 0.5))
    fitted = jtgpu.learn.fit(found, {v: DATA[v].tolist() for v in DATA}, pseudo_counts="bdeu:1").network
    assert fitted.cpt("wet") == pytest.approx(net.cpt("wet"), abs=1e-12)
    half = {v: DATA[v][:100] for v in DATA}
    counts = np.bincount(half["noise"], minlength=2)
    assert found.network(half).cpt("noise") == pytest.approx((counts + 0.5) / 101)
    plain = found.network(ess=0.0)
    assert plain.cpt("noise") == pytest.approx(np.bincount(DATA["noise"]) / 200)
    assert net.compile(backend="reference").posterior("rain", {"wet": "1"})["1"] > 0.5


def test_prior_weighs_arcs() -> None:
    assert jtgpu.learn.structure(DATA, graph_prior=("edge", 1e-60)).arcs == []
    p = np.full((3, 3), 0.5)
    p[0, 2] = 1e-60
    found = jtgpu.learn.structure(DATA, graph_prior=("edge", p))
    assert found.arcs == [("wet", "rain")]
    assert found.log_weight == pytest.approx(found.score, abs=1e-9)
    fair = jtgpu.learn.structure(DATA, graph_prior="fair")
    assert fair.log_weight == pytest.approx(fair.score - math.log(2), abs=1e-9)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "gready"}, ValueError, "method must be"),
        ({"graph_prior": "order"}, ValueError, "weighs orders, not graphs"),
        ({"candidates": 0}, ValueError, "candidates must be"),
        ({"seed": -1}, ValueError, "seed must be"),
        ({"candidates": "some"}, ValueError, "candidates must be"),
        ({"max_parents": -1}, ValueError, "max_parents must be"),
        ({"memory_limit": 100}, TableTooLarge, "limit"),
        ({"memory_limit": 100, "method": "order"}, TableTooLarge, "limit"),
        ({"required": [("rain", "wet"), ("wet", "rain")]}, ArgumentError, "cycle"),
        ({"weights": [1]}, DataError, "weights must be 200"),
        ({"restarts": -1}, ValueError, "restarts must be"),
        ({"within_tiers": 1}, ValueError, "within_tiers must be True or False"),
        ({"start": [("wet", "snow")]}, UnknownVariable, "'snow', which is no column"),
        ({"start": ["wet"]}, NetworkError, "pairs"),
        ({"start": 3}, NetworkError, "the structure must be"),
        ({"start": [("wet", "rain")], "forbidden": [("wet", "rain")]}, NetworkError, "'wet' -> 'rain', which is forb"),
        ({"start": [], "required": [("wet", "rain")]}, NetworkError, "does not have the required arc 'wet' -> 'rain'"),
        ({"start": [("wet", "rain")], "max_parents": 0}, NetworkError, "1 parents of 'rain', more than max_parents=0"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        jtgpu.learn.structure(DATA, **in_records(options))


def test_exact_search_over_too_many_variables() -> None:
    with pytest.raises(TableTooLarge, match="at most 24"):
        jtgpu.learn.structure(random_table(1, n=25), method="exact", max_parents=1)


def test_more_variables_than_bits_of_a_word() -> None:
    table = random_table(3, n=66, n_rows=100, most=3)
    found = jtgpu.learn.structure(table, max_parents=1, search=jtgpu.learn.Search(candidates=4))
    assert found.method == "order"
    alone = jtgpu.learn.score_table(table, max_parents=1)
    assert found.score > sum(alone.score(v) for v in table.names)
    assert found.score == pytest.approx(sum(alone.score(v, found.parents(v)) for v in table.names), abs=1e-6)


def test_compelled_arcs_are_those_of_all_equivalent_graphs() -> None:
    classes: dict[Any, list[oracle.Graph]] = {}
    for graph in oracle.all_graphs(4):
        skeleton = frozenset(frozenset((u, v)) for v, parents in enumerate(graph) for u in parents)
        colliders = frozenset(
            (u, v, w)
            for v, parents in enumerate(graph)
            for u, w in itertools.combinations(parents, 2)
            if frozenset((u, w)) not in skeleton
        )
        classes.setdefault((skeleton, colliders), []).append(graph)
    for members in classes.values():
        arcs = [adjacency(graph) for graph in members]
        common = np.logical_and.reduce(arcs)
        assert all((compelled_arcs(a) == common).all() for a in arcs)
        assert all(structural_hamming_distance(arcs[0], a) == 0 for a in arcs)


def test_structural_hamming_distance_by_hand() -> None:
    chain, collider, empty = adjacency([[], [0], [1]]), adjacency([[], [0, 2], []]), adjacency([[], [], []])
    assert structural_hamming_distance(chain, empty) == 2
    assert structural_hamming_distance(chain, collider) == 2  # both links are directed in the collider only
    assert structural_hamming_distance(collider, collider) == 0


def test_coded_tables_are_accepted() -> None:
    table = code_table(DATA)
    assert jtgpu.learn.structure(table).arcs == jtgpu.learn.structure(DATA).arcs
    with pytest.raises(ValueError, match="CodedTable"):
        jtgpu.learn.structure(table, weights=[1] * 200)


def test_required_parents_beyond_the_candidates() -> None:
    table = random_table(4, n=20, n_rows=60, most=2)
    found = jtgpu.learn.structure(
        table,
        constraints=jtgpu.learn.Constraints(required=[("b", "a"), ("c", "a"), ("d", "a")]),
        search=jtgpu.learn.Search(candidates=2),
        max_parents=3,
    )
    assert found.method == "order"
    assert found.parents("a") == ("b", "c", "d")


def test_required_parents_with_too_many_configurations() -> None:
    rng = np.random.default_rng(5)
    table = table_of(rng.integers(0, 2, (20, 50)) * 200, [201] * 20)
    with pytest.raises(NetworkError, match="leave no parents for 'a'"):
        jtgpu.learn.structure(
            table,
            constraints=jtgpu.learn.Constraints(required=[("b", "a"), ("c", "a")]),
            search=jtgpu.learn.Search(candidates=3),
            max_parents=2,
        )
    with pytest.raises(NetworkError, match="required parents of 'a' have too many configurations"):
        jtgpu.learn.structure(
            table, method="tabu", constraints=jtgpu.learn.Constraints(required=[("b", "a"), ("c", "a")])
        )


def test_scores_are_taken_from_a_table(tmp_path: Path) -> None:
    data = random_table(7, n=8, n_rows=80)
    table = jtgpu.learn.score_table(data, max_parents=3)
    table.save(tmp_path / "scores.npz")
    loaded = jtgpu.learn.ScoreTable.load(tmp_path / "scores.npz")
    options: dict[str, Any]
    for options in ({"max_parents": 2}, {"max_parents": 4}, {"method": "order", "candidates": 3}):
        found = jtgpu.learn.structure(data, **in_records({"scores": loaded, **options}))
        again = jtgpu.learn.structure(data, **in_records(options))
        assert (found.arcs, found.score) == (again.arcs, again.score)
    small = table.with_max_parents(1)
    assert len(small) == 8 * 8
    assert small.score("a", ["b"]) == table.score("a", ["b"])
    with pytest.raises(DataError, match="other data"):
        jtgpu.learn.structure(random_table(8, n=8), search=jtgpu.learn.Search(scores=table))
    with pytest.raises(ValueError, match="the score table has the score"):
        jtgpu.learn.structure(data, search=jtgpu.learn.Search(scores=table), ess=2.0)
