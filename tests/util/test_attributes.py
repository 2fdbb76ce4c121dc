"""First mistakes of a new user: questions to the network, and names of other packages."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import jtgpu
from jtgpu.util import late_imports
from jtgpu.util.attributes import FUNCTIONS, OTHERS, TREES

NET: Any = jtgpu.network(
    "smoke{yes|no}->lung{yes|no}", cpts={"smoke": [0.5, 0.5], "lung": {"yes": [0.1, 0.9], "no": [0.01, 0.99]}}
)
NUMBER = jtgpu.Gaussian([0, 1])
MIXED: Any = jtgpu.MixedNetwork({"c": ["n", "y"], "x": float}, {"x": ["c"]}, {"c": [0.5, 0.5], "x": NUMBER})
SLICES = {"s": [("s", 1)]}, {"s": [[0.9, 0.1], [0.2, 0.8]]}, {"s": [0.5, 0.5]}
DYNAMIC: Any = jtgpu.DynamicNetwork({"s": ["n", "y"]}, *SLICES[:2], start=SLICES[2])
MIXED_DYNAMIC: Any = jtgpu.MixedDynamicNetwork(
    {"s": ["n", "y"], "x": float}, {**SLICES[0], "x": ["s"]}, {**SLICES[1], "x": NUMBER}, start=SLICES[2]
)
DECISION: Any = jtgpu.DecisionNetwork(
    {"a": ["n", "y"]}, {"u": ["a"]}, {}, decisions=["a"], utilities={"u": [0.0, 1.0]}
)
MARKOV: Any = jtgpu.MarkovNetwork({"a": ["n", "y"]}, [(["a"], [1.0, 2.0])])


@pytest.mark.parametrize(("net", "name", "better"), [
    (NET, "posterior", "posterior"), (NET, "query", "posterior"), (NET, "simulate", "sample"), (MARKOV, "mpe", "mpe"),
    (MIXED, "query", "posterior"), (DYNAMIC, "filter", "filter"), (DYNAMIC, "posterior", "smooth"),
    (MIXED_DYNAMIC, "smooth", "smooth"), (MIXED_DYNAMIC, "query", "smooth"), (DECISION, "query", "posterior"),
])  # fmt: skip
def test_a_question_to_a_network_says_compile_first(net: Any, name: str, better: str) -> None:
    with pytest.raises(jtgpu.UnknownAttribute, match=rf"'{name}'; compile\(\) first: net.compile\(\).{better}$"):
        getattr(net, name)
    assert not hasattr(net, name)  # an AttributeError, too
    assert isinstance(pickle.loads(pickle.dumps(copy.copy(net))), type(net))


@pytest.mark.parametrize(("name", "hint"), [
    ("query", "did you mean 'posterior'"), ("map_query", "did you mean 'mpe'"), ("posteriorss", "'posteriors'"),
    ("cpt", "tree.model.cpt"), ("nodes", "tree.model.variables"), ("fit", r"use jtgpu.learn.fit\(net, cases\)"),
])  # fmt: skip
def test_a_tree_names_what_is_meant(name: str, hint: str) -> None:
    with pytest.raises(jtgpu.UnknownAttribute, match=hint):
        getattr(NET.compile("reference"), name)


def test_trees_of_all_kinds_take_the_place_of_query() -> None:
    for net, name in (
        (MARKOV, "posterior"), (MIXED, "posterior"), (DYNAMIC, "smooth"), (MIXED_DYNAMIC, "smooth"),
        (DECISION, "posterior"),
    ):  # fmt: skip
        with pytest.raises(jtgpu.UnknownAttribute, match=f"did you mean '{name}'"):
            net.compile("reference").query("s")


def test_packages_name_what_is_meant() -> None:
    package: Any = jtgpu
    for name, hint in (
        ("TabularCPD", r"use jtgpu\.BayesianNetwork\("), ("fit", r"use jtgpu\.learn\.fit"), ("raed", "'read'"),
    ):  # fmt: skip
        with pytest.raises(jtgpu.UnknownAttribute, match=f"the package jtgpu has no '{name}'; .*{hint}"):
            getattr(package, name)


def test_the_names_that_are_advised_exist() -> None:
    trees = [getattr(getattr(late_imports, opens)(), name) for name, opens in TREES.items()]
    kinds = (*map(type, (NET, MIXED, DYNAMIC)), jtgpu.MarkovNetwork)
    everything = {name for each in (*trees, *kinds) for name in dir(each)} | {"sd"}
    assert {word for words in OTHERS.values() for word in words.split()} <= everything
    for call in FUNCTIONS.values():
        assert eval(call.partition("(")[0].partition(":")[0], {"jtgpu": jtgpu, "net": NET}) is not FUNCTIONS


@pytest.mark.parametrize("call", [
    lambda package: package.BayesianNetwork([("a", "b")]), lambda package: package.DynamicNetwork({}),
    lambda package: package.learn.fit(NET), lambda _: NET.compile("reference").posterior(),
    lambda _: NET.cpt("lung", 1, 2),
])  # fmt: skip
def test_a_call_with_too_few_or_too_many_arguments_lists_them(call: Any) -> None:
    with pytest.raises(jtgpu.ArgumentError, match=r"\(\): (missing|too many) .*its arguments are \("):
        call(jtgpu)


@pytest.mark.parametrize("key", ["yes", ("yes", "no"), "smoke"])
def test_states_of_a_cpt_are_chosen_by_variable(key: Any) -> None:
    with pytest.raises(jtgpu.ArgumentError, match=r"as in cpt\[\{'smoke': 'yes', 'lung': 'yes'\}\]; got"):
        NET.cpt("lung")[key]
