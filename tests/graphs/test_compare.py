"""`compare`: distances by definition, the divergence against enumeration, equivalence classes against all graphs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.errors import ArgumentError, NetworkError
from jtgpu.graphs import compare


def random_network(seed: int, n: int = 4, zeros: bool = False, shuffle: bool = True) -> jtgpu.BayesianNetwork:
    rng = np.random.default_rng(seed)
    names = [f"v{i}" for i in range(n)]
    order = rng.permutation(n) if shuffle else np.arange(n)
    states = {v: tuple(f"s{j}" for j in rng.permutation(2 + i % 2)) for i, v in enumerate(names)}
    parents: dict[str, list[str]] = {v: [] for v in names}
    for i, j in itertools.combinations(range(n), 2):
        if rng.random() < 0.5:
            parents[names[order[j]]].append(names[order[i]])
    cpts = {}
    for v in names:
        table = rng.random([*(len(states[u]) for u in parents[v]), len(states[v])]) + 0.05
        if zeros:
            table[..., 0] *= rng.random(table.shape[:-1]) < 0.7
        cpts[v] = table / table.sum(axis=-1, keepdims=True)
    return jtgpu.BayesianNetwork(states, parents, cpts)


def joint_of(net: jtgpu.BayesianNetwork, like: jtgpu.BayesianNetwork) -> dict[tuple[str, ...], float]:
    """P of every configuration, by the states of the variables of another network."""
    table = {}
    for case in itertools.product(*(like.states(v) for v in like)):
        at = dict(zip(like, case, strict=True))
        p = 1.0
        for v in net:
            p *= float(net.cpt(v)[tuple(net.states(u).index(at[u]) for u in (*net.parents(v), v))])
        table[case] = p
    return table


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.booleans())
def test_the_divergence_is_that_of_the_joint_distributions(first: int, second: int, zeros: bool) -> None:
    a, b = random_network(first), random_network(second, zeros=zeros)
    p, q = joint_of(a, a), joint_of(b, a)
    expected = sum(x * (np.log(x) - np.log(q[case])) if q[case] else np.inf for case, x in p.items() if x)
    assert compare(a, b).kl == pytest.approx(expected, abs=1e-10)
    assert compare(a, a).kl == pytest.approx(0.0, abs=1e-12)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_arcs_and_distances_by_definition(first: int, second: int) -> None:
    a, b = random_network(first), random_network(second)
    result, x, y = compare(a, b), {*a.arcs}, {*b.arcs}
    links = [{frozenset(arc) for arc in arcs} for arcs in (x, y)]
    assert {*result.common} == x & y
    assert {*result.turned} == {(u, v) for u, v in x if (v, u) in y}
    assert {*result.missing} == {arc for arc in x if frozenset(arc) not in links[1]}
    assert {*result.added} == {arc for arc in y if frozenset(arc) not in links[0]}
    assert result.shd == len(result.added) + len(result.missing) + len(result.turned)
    classes = [{*net.cpdag().edges} for net in (a, b)]
    different = classes[0] ^ classes[1]
    assert result.shd_class == len({frozenset(arc) for arc in different})
    assert (result.shd_class == 0) == a.is_equivalent(b) == b.is_equivalent(a)


def test_classes_of_all_graphs_of_three_variables() -> None:
    """Graphs are equivalent if they have the same d-separations; an arc is directed if all of them have it."""
    names = "abc"
    pairs = [*itertools.combinations(names, 2)]
    graphs = []
    for kinds in itertools.product((0, 1, 2), repeat=3):
        parents: dict[str, list[str]] = {v: [] for v in names}
        for (u, v), kind in zip(pairs, kinds, strict=True):
            if kind:
                parents[v if kind == 1 else u].append(u if kind == 1 else v)
        try:
            graphs.append(jtgpu.model.directed.DirectedModel(dict.fromkeys(names, ("x", "y")), parents))
        except NetworkError:
            continue

    def separations(g: Any) -> Any:
        return [g.d_separated(u, v, w) for u, v in pairs for w in ([], [w for w in names if w not in (u, v)])]

    assert len(graphs) == 25
    for g in graphs:
        same = [h for h in graphs if separations(h) == separations(g)]
        assert all(g.is_equivalent(h) == (h in same) for h in graphs)
        assert {*g.cpdag().edges} == {arc for h in same for arc in h.arcs}


def test_kinds_of_graphs() -> None:
    networkx = pytest.importorskip("networkx")
    mapping = {"b": ["a"], "c": ["b"]}
    graph = networkx.DiGraph([("a", "b"), ("c", "b")])
    result = compare(mapping, graph)
    assert (result.turned, result.shd, result.shd_class, result.kl) == ((("b", "c"),), 1, 2, None)
    data = jtgpu.load("asia").compile("cpu").sample(300, seed=1).to_frame()
    learned = jtgpu.learn.structure(data, states=jtgpu.load("asia"))
    own = compare(jtgpu.load("asia"), learned)
    assert own.shd == compare(jtgpu.load("asia"), learned.dag).shd
    assert [*own.to_frame().columns] == ["parent", "child", "change"]
    assert f"SHD {own.shd}" in str(own)


def test_wrong_graphs() -> None:
    with pytest.raises(NetworkError, match="'c' is in one of them only"):
        compare({"b": ["a"]}, {"b": ["a", "c"]})
    with pytest.raises(ArgumentError, match="b must be a network, a directed graph"):
        compare({"b": ["a"]}, 5)
    with pytest.raises(NetworkError, match="cycle"):
        compare({"b": ["a"], "a": ["b"]}, {"b": ["a"]})
    a = jtgpu.network("a -> b", "{x|y}")
    with pytest.raises(NetworkError, match="'a' has the states"):
        compare(a, jtgpu.network("a -> b", "{x|z}"))
    with pytest.raises(NetworkError, match="is_equivalent compares graphs of the same variables"):
        a.is_equivalent(jtgpu.network("a -> c", "{x|y}"))
    with pytest.raises(NetworkError, match="is_equivalent compares graphs of the same variables"):
        a.is_equivalent(5)  # type: ignore[arg-type]


def test_a_single_arc_is_singular() -> None:
    text = str(compare({"b": ["a"], "a": []}, {"a": ["b"], "b": []}))
    assert text.startswith("0 arcs in both, 0 arcs added, 0 arcs missing, 1 arc turned")
