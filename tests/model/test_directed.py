"""Questions about the graph, compared with networkx."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.model.network import BayesianNetwork
from tests.support import random_nets

ASIA = "asia->tub->either<-lung<-smoke->bronc->dysp<-either->xray"


def test_relatives_of_a_variable() -> None:
    net = jtgpu.network(ASIA)
    assert net.variables == ("asia", "tub", "either", "lung", "smoke", "bronc", "dysp", "xray")
    assert net.arcs[:3] == (("asia", "tub"), ("tub", "either"), ("lung", "either"))
    assert net.n_arcs == len(net.arcs) == 8
    assert net.parents("either") == ("tub", "lung")
    assert net.children("smoke") == ("lung", "bronc")
    assert net.ancestors("xray") == ("asia", "tub", "either", "lung", "smoke")
    assert net.descendants("tub") == ("either", "dysp", "xray")
    assert net.markov_blanket("either") == ("tub", "lung", "bronc", "dysp", "xray")
    assert net.markov_blanket("asia") == net.children(0) == ("tub",)
    for method in (net.children, net.ancestors, net.descendants, net.markov_blanket):
        with pytest.raises(errors.UnknownVariable, match="did you mean 'smoke'"):
            method("smok")


@given(random_nets.bayesian_networks())
def test_relatives_are_those_of_networkx(net: BayesianNetwork) -> None:
    graph = net.to_networkx()
    assert set(net.arcs) == set(graph.edges)
    moral = networkx.moral_graph(graph)
    for v in net:
        assert set(net.parents(v)) == set(graph.predecessors(v))
        assert set(net.children(v)) == set(graph.successors(v))
        assert set(net.ancestors(v)) == networkx.ancestors(graph, v)
        assert set(net.descendants(v)) == networkx.descendants(graph, v)
        assert set(net.markov_blanket(v)) == set(moral[v])
        assert [net.index(u) for u in net.markov_blanket(v)] == sorted(net.index(u) for u in net.markov_blanket(v))
    position = {v: i for i, v in enumerate(net.topological_order())}
    assert len(position) == len(net)
    assert all(position[p] < position[c] for p, c in net.arcs)


@given(random_nets.bayesian_networks(), st.data())
def test_d_separation_is_that_of_networkx(net: BayesianNetwork, data: st.DataObject) -> None:
    roles = data.draw(st.lists(st.sampled_from("xyz-"), min_size=len(net), max_size=len(net)))
    x, y, z = ({v for v, role in zip(net, roles, strict=True) if role == r} for r in "xyz")
    expected = networkx.is_d_separator(net.to_networkx(), x, y, z) if x and y else True
    assert net.d_separated(x, y, given=z) == net.d_separated(y, x, given=z) == expected


def test_d_separation_of_a_long_chain() -> None:
    n = 20_000
    net = jtgpu.network("->".join(f"v{i}" for i in range(n)))
    assert not net.d_separated("v0", f"v{n - 1}")
    assert net.d_separated("v0", f"v{n - 1}", given="v77")
    assert len(net.descendants("v0")) == n - 1


def test_d_separation_takes_disjoint_sets() -> None:
    net = jtgpu.network(ASIA)
    assert net.d_separated("asia", ["smoke", "bronc"])
    assert not net.d_separated("asia", 4, given=["xray"])
    for x, y, z in (("asia", "asia", ()), ("asia", "tub", "asia"), (["asia", "tub"], "lung", ["lung"])):
        with pytest.raises(errors.NetworkError, match="disjoint"):
            net.d_separated(x, y, z)
    with pytest.raises(errors.UnknownVariable, match="did you mean 'smoke'"):
        net.d_separated("asia", "smoek")


def test_a_cycle_is_named_in_the_direction_of_the_arcs() -> None:
    states = dict.fromkeys("axyz", ("0", "1"))
    cpts = dict.fromkeys("axyz", np.full((2, 2), 0.5))
    with pytest.raises(errors.NetworkError) as caught:
        BayesianNetwork(states, {"a": ["z"], "x": ["z"], "y": ["x"], "z": ["y"]}, cpts)
    assert str(caught.value) in {
        f"the arcs form a cycle: '{a}' -> '{b}' -> '{c}' -> '{a}'" for a, b, c in ("xyz", "yzx", "zxy")
    }
