"""Faults that users and testers found in posteriors over structures."""

from __future__ import annotations

import copy
import itertools
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, FileError, JtgpuError, MissingFileError
from jtgpu.learn import posterior, structure
from jtgpu.learn.dags.chains.run import ChainRun
from tests.learn.dags.data import in_records

DATA = {"a": [*"xxyyxxyyxy"] * 3, "b": [*"xyyyxxyxxy"] * 3, "c": [*"xyxyyxyyxx"] * 3, "d": [*"xxxyyyxyyx"] * 3}
FEW: dict[str, Any] = {"method": "mcmc", "steps": 20_000, "n_chains": 4}


def quietly(**options: Any) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return posterior(DATA, **in_records(options))


@pytest.mark.parametrize(
    "options", [{}, {"graph_prior": "order"}, FEW, {**FEW, "graph_prior": "order"}, {**FEW, "tempering": 3}]
)
def test_posteriors_are_pickled(options: dict[str, Any]) -> None:
    for is_pickle in (True, False):
        found = quietly(**options)
        same = pickle.loads(pickle.dumps(found)) if is_pickle else copy.deepcopy(found)
        assert same.columns() == found.columns()
        assert same.parent_sets("b") == found.parent_sets("b")
        more, own = same.more(steps=100), found.more(steps=100)
        assert np.array_equal(more.edge_probabilities.values, own.edge_probabilities.values)


@pytest.mark.slow
def test_a_posterior_comes_back_from_a_process() -> None:
    with ProcessPoolExecutor(1) as pool:
        found = pool.submit(posterior, DATA).result()
    assert found.columns() == posterior(DATA).columns()


def dags(n: int) -> list[networkx.DiGraph[int]]:
    pairs = [*itertools.combinations(range(n), 2)]
    found = []
    for way in itertools.product((0, 1, 2), repeat=len(pairs)):
        graph: networkx.DiGraph[int] = networkx.DiGraph()
        graph.add_nodes_from(range(n))
        graph.add_edges_from((u, v) if w == 1 else (v, u) for (u, v), w in zip(pairs, way, strict=True) if w)
        if networkx.is_directed_acyclic_graph(graph):
            found.append(graph)
    return found


@pytest.mark.parametrize("prior", ["uniform", "fair", "order", ("edge", 0.2)])
@pytest.mark.parametrize("required", [[], [("c", "a")]])
def test_paths_and_compelled_arcs_of_few_variables_are_exact(prior: Any, required: Any) -> None:
    """Enumeration of all graphs, with networkx for paths and orders, and sets of links and v-structures for classes."""
    found = posterior(DATA, graph_prior=prior, constraints=jtgpu.learn.Constraints(required=required), max_parents=2)
    assert not found.path_mcse.values.any()
    assert not found.compelled_mcse.values.any()
    names, n = found.names, len(found.names)
    scores = jtgpu.learn.score_table(DATA, max_parents=2)
    graphs, weights, keys = dags(n), [], []
    for graph in graphs:
        parents = {v: sorted(graph.predecessors(v)) for v in range(n)}
        possible = all(len(p) <= 2 for p in parents.values())
        possible = possible and all(graph.has_edge(names.index(u), names.index(v)) for u, v in required)
        weight = -np.inf
        if possible:
            weight = sum(scores.score(names[v], [names[u] for u in p]) for v, p in parents.items())
            if prior == "fair":
                weight -= sum(float(np.log([1, 3, 3, 1][len(p)])) for p in parents.values())
            elif prior == "order":
                weight += float(np.log(len([*networkx.all_topological_sorts(graph)])))
            elif prior != "uniform":
                weight += graph.number_of_edges() * float(np.log(0.2 / 0.8))
        weights.append(weight)
        skeleton = frozenset(frozenset(arc) for arc in graph.edges)
        ends = frozenset(
            (u, v, w) for v in range(n) for u, w in itertools.combinations(parents[v], 2)
            if frozenset((u, w)) not in skeleton
        )  # fmt: skip
        keys.append((skeleton, ends))
    p = np.exp(np.array(weights) - max(weights))
    p /= p.sum()
    common: dict[Any, set[Any]] = {}
    for key, graph in zip(keys, graphs, strict=True):
        common[key] = common.get(key, set(graph.edges)) & set(graph.edges)
    for u, v in itertools.permutations(range(n), 2):
        path = sum(x for x, g in zip(p, graphs, strict=True) if networkx.has_path(g, u, v))
        fixed = sum(x for x, key in zip(p, keys, strict=True) if (u, v) in common[key])
        assert found.paths.values[u, v] == pytest.approx(path, abs=1e-10)
        assert found.compelled.values[u, v] == pytest.approx(fixed, abs=1e-10)


@pytest.mark.slow
def test_sampled_properties_have_errors(tmp_path: Path) -> None:
    net = jtgpu.load("asia")
    found = posterior(net.compile("cpu").sample(100, seed=1).to_frame("pandas"), states=net)
    assert 0 < found.path_mcse.values.max() < 0.006
    frame = found.columns()
    assert max(frame["path_mcse"]) == found.path_mcse.values.max()
    found.save(tmp_path / "asia.npz")
    same = jtgpu.learn.load(tmp_path / "asia.npz")
    assert same.columns() == frame


def test_sampled_graphs_have_a_seed() -> None:
    found = posterior(DATA)
    edges = [[sorted(g.edges) for g in found.sample_dags(5, seed=seed)] for seed in (1, 1, 2)]
    assert edges[0] == edges[1] != edges[2]


def test_map_score_compares_graphs() -> None:
    fair = posterior(DATA, graph_prior="fair", max_parents=1)
    assert fair.map_score == fair.structure.log_weight
    assert fair.map_score < fair.structure.score
    assert "with its prior weight" in fair.describe()


def test_contradictions_are_errors() -> None:
    with pytest.raises(ArgumentError, match=r"the required arc 'a' -> 'b' is excluded by candidates"):
        posterior(
            DATA,
            constraints=jtgpu.learn.Constraints(required=[("a", "b")]),
            search=jtgpu.learn.Search(candidates={"b": ["c"]}),
        )
    with pytest.raises(ArgumentError, match="the required arcs form a cycle"):
        posterior(DATA, constraints=jtgpu.learn.Constraints(required=[("a", "b"), ("b", "a")]))


def test_the_criterion_that_fails_is_said() -> None:
    net = jtgpu.load("asia")
    table = net.compile("cpu").sample(300, seed=1).to_frame("pandas")
    with pytest.warns(UserWarning, match=r"only [\d,]+ of the [\d,]+ steps before the next check"):
        found = posterior(table, states=net, method="mcmc", chains=jtgpu.learn.Chains(steps=21_000, tolerance=0.5))
    assert "steps before the next check" in found.summary()
    assert not found.converged
    assert found.shortfall


def test_orders_must_stay_within_the_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single round with small errors does not end a run over orders."""
    rounds: list[int] = []
    real = ChainRun._run_round

    def count(run: Any) -> None:
        rounds.append(run.n_rounds)
        real(run)

    monkeypatch.setattr(ChainRun, "_run_round", count)
    found = posterior(DATA, graph_prior="order", method="mcmc", chains=jtgpu.learn.Chains(tolerance=0.5))
    assert found.converged
    assert len(rounds) == 6  # 4 before the first check, 1.5 times as many in all


def test_available_cases_are_noted() -> None:
    table = {**DATA, "a": [None, *DATA["a"][1:]]}
    found = posterior(table, missing="available", score="bic")
    assert any("equivalent graphs then have different scores" in note for note in found.notes)
    assert "missing='augment'" in found.describe()
    assert not posterior(DATA, score="bic", missing="available").notes
    with pytest.raises(jtgpu.DataError, match="may look certain"):
        posterior(table)


WRONG: dict[str, tuple[Any, ...]] = {
    "graph_prior": (5, "x", None, ("edge", "x"), ("edge", None), ("edge", [1, 2]), ("x", 1), {}),
    "forbidden": (5, "x", [5], ["ab"], [("a",)], [("a", "b", "c")], [(1, 2)], [([], "a")]),
    "required": (5, "x", [5], ["ab"], [("a", "e")], [(None, "a")]),
    "tiers": (5, "x", ["ab"], [5], [["a"], 5], [["e"]], [["a"], ["a"]]),
    "candidates": (-1, 0.5, "x", {"a": 5}, {"a": "b"}, {"e": []}, {5: ["a"]}, []),
    "states": (5, "x", {"a": 5}, {"e": ["x"]}, {"a": ["x"]}, {"a": None}),
    "scores": (5, "x", [], {}),
    "progress": (5, "x", []),
    "threads": ("x", -1, 0, 1.5),
    "max_parents": ("x", -1, 0.5, {"a": "x"}, {"e": 1}),
    "start": (5, "x", [1], {"a": 5}),
    "checkpoint": (5, "none/x", "."),
    "weights": ("none", [1], [-1] * 30, ["x"] * 30, 5),
    "memory_limit": ("x", -1, []),
    "seed": ("x", -1, 0.5, None),
    "n_chains": ("x", 1, 0.5, None),
    "tempering": ("x", 1, 0.5),
    "tolerance": ("x", 0, -1, None),
    "steps": ("x", 0, 0.5),
    "seconds": ("x", 0, -1),
    "score": ("x", 5, None),
    "ess": ("x", -1, 0, None),
    "missing": ("x", 5, None),
    "within_tiers": (5, "x", None),
    "method": ("x", 5, None),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_wrong_values_are_errors_of_jtgpu(
    name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JtgpuError):
        posterior(DATA, **in_records({name: value}))
    if name in ("forbidden", "required", "tiers", "candidates", "states", "scores", "threads", "start", "graph_prior"):
        with pytest.raises(JtgpuError):
            structure(DATA, **in_records({name: value}))


def test_files_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    found = posterior(DATA)
    for path in (tmp_path / "none" / "x.npz", tmp_path):
        with pytest.raises(FileError, match="cannot write"):
            found.save(path)
    with pytest.raises(MissingFileError, match="cannot read"):
        jtgpu.learn.load(tmp_path / "none.npz")
    with pytest.raises(FileError, match="cannot read"):
        jtgpu.learn.load(tmp_path)
