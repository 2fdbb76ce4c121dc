"""Adjustment sets against all subsets and networkx's d-separation, front doors against identification."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest

import jtgpu
from jtgpu.causal import CausalGraph, NotIdentified, cpdag, graph
from jtgpu.errors import ArgumentError, NetworkError


def random_graph(seed: int) -> CausalGraph:
    random = np.random.default_rng(seed)
    n = int(random.integers(3, 7))
    names = list("abcdef"[:n])
    pairs = list(itertools.combinations(names, 2))
    arcs = [p for p in pairs if random.random() < 0.45]
    return CausalGraph(random.permutation(names).tolist(), arcs, [p for p in pairs if random.random() < 0.2])


def is_valid(g: CausalGraph, z: set[str], x: set[str], y: set[str]) -> bool:
    """The adjustment criterion (Shpitser, VanderWeele and Robins, UAI 2010) by its definition."""
    dag: nx.DiGraph[str] = nx.DiGraph(list(g.arcs))
    dag.add_nodes_from(g.variables)
    for k, (u, v) in enumerate(g.common_causes):
        dag.add_edges_from([(f"hidden {k}", u), (f"hidden {k}", v)])
    onward, inner = dag.copy(), dag.copy()
    onward.remove_edges_from(list(dag.in_edges(x)))  # paths leave x at once
    inner.remove_nodes_from(x)
    causal = set().union(*(nx.descendants(onward, v) for v in x)) & y.union(*(nx.ancestors(inner, v) for v in y))
    if z & (x | y) or z & set().union(causal, *(nx.descendants(dag, v) for v in causal)):
        return False
    dag.remove_edges_from([(u, v) for u in x for v in causal if dag.has_edge(u, v)])
    return bool(nx.is_d_separator(dag, x, y, z))


@pytest.mark.parametrize("first", range(0, 150, 50))
def test_adjustment_sets_are_all_minimal_ones(first: int) -> None:
    for seed in range(first, first + 50):
        g = random_graph(seed)
        n_causes, n_outcomes = 1 + seed % 5 // 4, 1 + seed % 7 // 6  # now and then two
        x, y = {*g.variables[:n_causes]}, {*g.variables[n_causes : n_causes + n_outcomes]}
        others = [v for v in g.variables if v not in x | y]
        subsets = [set(s) for k in range(len(others) + 1) for s in itertools.combinations(others, k)]
        valid = [s for s in subsets if is_valid(g, s, x, y)]
        for s in subsets:
            reason = g.is_adjustment_set(s, x, y)
            assert bool(reason) == (s in valid), (str(g), s, str(reason))
        minimal = [s for s in valid if not any(t < s for t in valid)]
        found = g.adjustment_sets(x, y)
        assert sorted(map(sorted, found)) == sorted(map(sorted, minimal)), str(g)
        one = g.adjustment_set(x, y)
        assert one in minimal if minimal else one is None
        costs = {v: 1.0 + i for i, v in enumerate(g.variables)}
        cheap = g.adjustment_set(x, y, cost=costs)
        if valid:
            assert cheap is not None
            assert cheap in valid
            assert sum(costs[v] for v in cheap) == min(sum(costs[v] for v in s) for s in valid)
        else:
            assert cheap is None


def test_required_and_forbidden_variables() -> None:
    g = graph("a -> b -> x; a -> c -> y; x -> y; d")
    assert sorted(map(sorted, g.adjustment_sets("x", "y"))) == [["a"], ["b"], ["c"]]
    assert g.adjustment_sets("x", "y", forbidden=["a", "b"]) == [{"c"}]
    assert g.adjustment_sets("x", "y", required="d", forbidden="a", limit=1) in ([{"b", "d"}], [{"c", "d"}])
    assert g.adjustment_sets("x", "y", required=["a"]) == [{"a"}]
    assert g.best_adjustment_set("x", "y") == {"c"}
    with pytest.raises(NotIdentified, match=r"no adjustment set is known to be best: the path x <-> y is open"):
        graph("x -> y; x <-> y").best_adjustment_set("x", "y")


def is_front_door(g: CausalGraph, z: set[str], x: str, y: str) -> bool:
    """The front-door criterion by its definition."""
    dag: nx.DiGraph[str] = nx.DiGraph(list(g.arcs))
    dag.add_nodes_from(g.variables)
    for k, (u, v) in enumerate(g.common_causes):
        dag.add_edges_from([(f"hidden {k}", u), (f"hidden {k}", v)])
    cut, before, after = dag.copy(), dag.copy(), dag.copy()
    cut.remove_nodes_from(z)
    before.remove_edges_from(list(dag.out_edges(x)))
    after.remove_edges_from(list(dag.out_edges(z)))
    return not nx.has_path(cut, x, y) and all(
        nx.is_d_separator(before, {x}, {v}, set()) and nx.is_d_separator(after, {v}, {y}, {x}) for v in z
    )


def test_front_doors_are_minimal() -> None:
    """Dropping one variable after the other left {b, c} of the first graph, though {b} is enough."""
    doors = 0
    text = "a -> b; a -> f; b -> c; b -> d; c -> d; c -> e; d -> f; f <-> c"
    for g, x, y in [(graph(text), "a", "d"), *((g, *g.variables[:2]) for g in map(random_graph, range(400)))]:
        others = [v for v in g.variables if v not in (x, y)]
        subsets = [set(s) for k in range(len(others) + 1) for s in itertools.combinations(others, k)]
        valid = [s for s in subsets if is_front_door(g, s, x, y)]
        found = g.front_door_set(x, y)
        assert (found in valid and not any(s < found for s in valid)) if found is not None else not valid, str(g)
        doors += bool(found)
    assert doors > 5


def test_front_doors() -> None:
    assert graph("x -> a -> y; x -> b -> y; x <-> y").front_door_set("x", "y") == {"a", "b"}
    assert graph("x -> a -> b -> y; x <-> y").front_door_set("x", "y") in ({"a"}, {"b"})
    assert graph("x -> a -> y; x <-> y; x <-> a").front_door_set("x", "y") is None
    assert graph("x -> a -> y; x -> y; x <-> y").front_door_set("x", "y") is None


def test_the_reason_names_the_path() -> None:
    g = graph("x -> m -> y; m -> d; x <-> k; k -> y")
    assert str(g.is_adjustment_set("d", "x", "y")) == "d is an effect of the cause: x -> m -> d"
    assert str(g.is_adjustment_set([], "x", "y")) == "the path x <-> k -> y is open"
    assert g.is_adjustment_set("k", "x", "y")
    assert g.d_separated("d", "k", "m")
    with pytest.raises(NetworkError, match="d_separated takes disjoint sets: k is given"):
        g.d_separated("d", "k", ["k"])


def test_a_variable_is_not_both_required_and_forbidden() -> None:
    g = graph("a -> x; a -> y; x -> y")
    for call in (g.adjustment_set, g.adjustment_sets):
        with pytest.raises(ArgumentError, match="'a' is required and forbidden"):
            call("x", "y", required="a", forbidden="a")


@pytest.mark.parametrize("cost", ["1", None, -1, float("nan"), True])
def test_costs_are_numbers(cost: object) -> None:
    with pytest.raises(ArgumentError, match="cost of 'a' must be a number of at least 0"):
        graph("a -> x; a -> y; x -> y").adjustment_set("x", "y", cost={"a": cost})


def test_costs_are_a_mapping() -> None:
    with pytest.raises(ArgumentError, match="cost must be a mapping"):
        graph("a -> x; a -> y; x -> y").adjustment_set("x", "y", cost=["a"])


def test_sets_of_a_class_are_those_of_all_its_graphs() -> None:
    """Against all acyclic graphs with the same class, and all subsets."""
    random, n_open, n_sets = np.random.default_rng(0), 0, 0
    for _ in range(250):
        names = list("abcde"[: random.integers(4, 6)])
        pairs = list(itertools.combinations(random.permutation(names).tolist(), 2))
        net = jtgpu.network("; ".join([*names, *(f"{u}->{v}" for u, v in pairs if random.random() < 0.55)]), "{0|1}")
        marks: nx.DiGraph[str] = net.cpdag()
        c = cpdag(net)
        free = [p for p in marks.edges if p[::-1] in marks.edges and p[0] < p[1]]
        fixed = [p for p in marks.edges if p[::-1] not in marks.edges]
        members = []
        for flips in itertools.product((False, True), repeat=len(free)):
            dag = nx.DiGraph([*fixed, *(p[::-1] if flip else p for p, flip in zip(free, flips, strict=True))])
            dag.add_nodes_from(names)
            if nx.is_directed_acyclic_graph(dag):
                other = jtgpu.network("; ".join([*names, *(f"{u}->{v}" for u, v in dag.edges)]), "{0|1}")
                if set(other.cpdag().edges) == set(marks.edges):
                    members.append(CausalGraph(names, dag.edges))
        picked = random.permutation(names).tolist()
        n_causes = int(random.integers(1, 3))
        x, y, others = {*picked[:n_causes]}, {picked[n_causes]}, picked[n_causes + 1 :]
        subsets = [set(s) for k in range(len(others) + 1) for s in itertools.combinations(others, k)]
        valid = [s for s in subsets if all(is_valid(g, s, x, y) for g in members)]
        for s in subsets:
            assert bool(c.is_adjustment_set(s, x, y)) == (s in valid), (str(c), s, x, y, len(members))
        minimal = [s for s in valid if not any(t < s for t in valid)]
        assert sorted(map(sorted, c.adjustment_sets(x, y))) == sorted(map(sorted, minimal)), str(c)
        assert (c.adjustment_set(x, y) in minimal) if minimal else c.adjustment_set(x, y) is None
        n_open, n_sets = n_open + (not valid), n_sets + bool(minimal and minimal[0])
    assert (n_open > 30, n_sets > 3) == (True, True), (n_open, n_sets)


def test_formulas_of_a_class() -> None:
    asia = jtgpu.load("asia")
    c = cpdag(asia.cpdag())
    assert c == cpdag(asia)
    found = c.identify("dysp", do="either")
    table = found.evaluate(asia.compile("cpu"))
    effect = asia.compile("cpu").effect("dysp", of="either").table
    np.testing.assert_allclose(table.probabilities, effect.probabilities, atol=1e-12)
    assert c.best_adjustment_set("either", "dysp") == {"bronc"}
    with pytest.raises(NotIdentified, match=r"smoke - \w+ begins a path to the outcome, and has different directions"):
        c.identify("dysp", do="smoke")
    assert "smoke - " in str(c) or " - smoke" in str(c)
    assert "<svg" not in c._repr_html_()
    cases = asia.compile("cpu").sample(20_000, seed=1).to_frame("pandas")
    fitted = found.fit(cases, states={v: asia.states(v) for v in asia.variables})
    np.testing.assert_allclose(fitted.table.probabilities, effect.probabilities, atol=0.03)
    with pytest.raises(ArgumentError, match="the variables of a CPDAG are measured"):
        c.project("smoke")


@pytest.mark.parametrize("edges", ["ab bc ca", "ab ba cb", "ab"])
def test_other_graphs_are_no_cpdag(edges: str) -> None:
    with pytest.raises(ArgumentError, match="this is no CPDAG"):
        cpdag(nx.DiGraph([(e[0], e[1]) for e in edges.split()]))
    with pytest.raises(ArgumentError, match=r"a CPDAG is a network or a networkx\.DiGraph"):
        cpdag(edges)
