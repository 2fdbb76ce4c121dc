"""A plan by names: cliques, separators and the junction tree as a graph."""

from __future__ import annotations

from itertools import combinations

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.inference.network_plan import NetworkPlan
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.network import BayesianNetwork
from tests.support import random_nets


def check_tree(plan: NetworkPlan, model: DiscreteModel, fixed: frozenset[str] = frozenset()) -> None:
    """The graph is a junction tree of the model without the variables `fixed`."""
    tree = plan.junction_tree()
    assert list(tree) == list(plan.cliques)
    assert networkx.number_of_nodes(tree) == len(plan.cliques) == len(plan.separators)
    assert not plan.cliques or networkx.is_forest(tree)
    for clique in plan.cliques:
        assert [model.index(v) for v in clique] == sorted({model.index(v) for v in clique})
        assert not any(set(clique) < set(other) for other in plan.cliques)
    for factor in model.factors:
        family = {model.variables[v] for v in factor.scope} - fixed
        assert any(family <= set(clique) for clique in plan.cliques) or not family
    for v in set(model.variables) - fixed:  # running intersection: the cliques of a variable are connected
        assert networkx.is_connected(tree.subgraph([clique for clique in tree if v in clique]))
    for a, b, data in tree.edges(data=True):
        assert set(data["separator"]) == set(a) & set(b) != set()
        assert data["separator"] in plan.separators
    assert sum(separator == () for separator in plan.separators) == networkx.number_connected_components(tree)


def check_sizes(plan: NetworkPlan, model: DiscreteModel) -> None:
    tree, cost = plan.junction_tree(), plan.cost()
    sizes = networkx.get_node_attributes(tree, "size").values()
    assert sum(sizes) == cost.entries
    assert max(sizes) == cost.largest
    assert sum(networkx.get_edge_attributes(tree, "size").values()) == cost.separator_entries
    for number, clique in enumerate(plan.plan.cliques):
        names = tuple(model.variables[v] for v in sorted(clique))
        assert plan.cliques[number] == names
        assert tree.nodes[names]["number"] == number


def test_the_tree_of_a_small_network() -> None:
    net = jtgpu.network("asia->tub->either<-lung<-smoke->bronc->dysp<-either->xray", name="asia")
    plan = net.plan("min-fill")
    assert {frozenset(c) for c in plan.cliques} == {
        frozenset(c.split())
        for c in (
            "asia tub", "tub lung either", "xray either", "lung smoke bronc", "lung bronc either", "bronc dysp either",
        )
    }  # fmt: skip
    tree = plan.junction_tree()
    assert tree.graph["name"] == "asia"
    assert tree.edges[("asia", "tub"), ("tub", "either", "lung")] == {"separator": ("tub",), "size": 2}
    assert tree.nodes["tub", "either", "lung"]["size"] == 8
    assert sorted(len(s) for s in plan.separators) == [0, 1, 1, 2, 2, 2]
    assert sorted(plan.order) == sorted(net.variables)
    assert plan.order == plan.elimination_order
    assert net.plan(plan.order).cliques == plan.cliques
    assert plan.search is not None
    assert plan.search.method == "min-fill"


@given(random_nets.bayesian_networks())
def test_trees_of_bayesian_networks(net: BayesianNetwork) -> None:
    plan = net.plan("min-fill", memory_limit="1GiB")
    check_tree(plan, net)
    check_sizes(plan, net)


@given(random_nets.markov_networks())
def test_trees_of_markov_networks(net: DiscreteModel) -> None:
    plan = net.plan("min-fill", memory_limit="1GiB")
    check_tree(plan, net)
    check_sizes(plan, net)


@given(random_nets.bayesian_networks(), st.data())
def test_trees_of_slices(net: BayesianNetwork, data: st.DataObject) -> None:
    fixed = data.draw(st.sets(st.sampled_from(net.variables), min_size=1))
    plan = net.plan("min-fill", slices=sorted(fixed), memory_limit="1GiB")
    check_tree(plan, net, frozenset(fixed))
    assert set(plan.order) == set(net.variables) - fixed


@pytest.mark.parametrize("name", ["alarm", "hailfinder", "munin1"])
def test_trees_of_benchmark_networks(name: str) -> None:
    net = jtgpu.load(name)
    plan = net.plan("min-fill", memory_limit="100GiB", max_table=None)
    check_tree(plan, net)
    check_sizes(plan, net)
    assert len(plan.order) == len(set(plan.order)) == len(net)


def test_cliques_agree_with_networkx() -> None:
    net = jtgpu.load("alarm")
    plan = net.plan("min-fill")
    chordal: networkx.Graph[str] = networkx.Graph()
    for clique in plan.cliques:
        chordal.add_edges_from(combinations(clique, 2))
    assert networkx.is_chordal(chordal)
    assert {frozenset(c) for c in networkx.chordal_graph_cliques(chordal)} == {frozenset(c) for c in plan.cliques}
