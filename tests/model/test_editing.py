"""Networks with a variable, an arc, a row or a state more or fewer: joint distributions against brute force, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.model.network import BayesianNetwork
from tests.support import oracle, random_nets

NET = jtgpu.network("rain->wet[3]<-sprinkler; wet->slippery", "{no|yes}", name="lawn", seed=3)


def prior(net: BayesianNetwork, v: str) -> Any:
    return oracle.posteriors(net)[net.index(v)]


@given(random_nets.bayesian_networks(5), st.data())
def test_leaf_added_and_removed(net: BayesianNetwork, data: st.DataObject) -> None:
    parents = data.draw(st.lists(st.sampled_from(net.variables), unique=True, max_size=2))
    more = net.add("new", ["a", "b"], parents)
    np.testing.assert_allclose(oracle.joint(more), oracle.joint(net)[..., None] * [0.5, 0.5], rtol=0, atol=1e-15)
    assert more.remove("new") == net


@given(random_nets.bayesian_networks(5), st.data())
def test_variables_removed(net: BayesianNetwork, data: st.DataObject) -> None:
    """The children's rows are averaged by the prior; leaves and roots of one child leave the others' joint as it is."""
    name = data.draw(st.sampled_from(net.variables))
    if len(net) == 1:
        return
    less = net.remove(name)
    v = net.index(name)
    for child in net.children(name):
        axis = net.parents(child).index(name)
        expected = np.tensordot(prior(net, name), np.moveaxis(np.asarray(net.cpt(child)), axis, 0), 1)
        np.testing.assert_allclose(less.cpt(child), expected, rtol=0, atol=1e-14)
    if not net.children(name) or (not net.parents(name) and len(net.children(name)) == 1):
        np.testing.assert_allclose(oracle.joint(less), oracle.joint(net).sum(axis=v), rtol=0, atol=1e-14)


@given(random_nets.bayesian_networks(5), st.data())
def test_arcs_added_and_removed(net: BayesianNetwork, data: st.DataObject) -> None:
    order = net.topological_order()
    pairs = [(a, b) for i, a in enumerate(order) for b in order[i + 1 :] if a not in net.parents(b)]
    if not pairs:
        return
    parent, child = data.draw(st.sampled_from(pairs))
    more = net.add_arc(parent, child)
    assert more.parents(child) == (*net.parents(child), parent)
    np.testing.assert_array_equal(oracle.joint(more), oracle.joint(net))
    assert more.remove_arc(parent, child) == net


@given(random_nets.bayesian_networks(5), st.data())
def test_states_added_and_merged(net: BayesianNetwork, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(net.variables))
    v, n = net.index(name), int(net.cardinality[net.index(name)])
    more = net.add_state(name, "other")
    joint = oracle.joint(more)
    np.testing.assert_array_equal(np.take(joint, range(n), axis=v), oracle.joint(net))
    assert not np.take(joint, n, axis=v).any()
    merged = more.merge_states(name, [n - 1, "other"], net.states(name)[-1])
    np.testing.assert_allclose(oracle.joint(merged), oracle.joint(net), rtol=0, atol=1e-14)


@given(random_nets.bayesian_networks(5), st.data())
def test_merged_states_keep_their_sum(net: BayesianNetwork, data: st.DataObject) -> None:
    wide = [v for v in net.variables if len(net.states(v)) > 2]
    if not wide:
        return
    name = data.draw(st.sampled_from(wide))
    before, after = prior(net, name), net.merge_states(name, [0, 2], "low")
    assert after.states(name) == ("low", *(s for i, s in enumerate(net.states(name)) if i not in (0, 2)))
    kept = [i for i in range(len(before)) if i not in (0, 2)]
    np.testing.assert_allclose(prior(after, name), [before[0] + before[2], *before[kept]], rtol=0, atol=1e-14)
    for child in net.children(name):
        if net.parents(child) == (name,):
            np.testing.assert_allclose(prior(after, child), prior(net, child), rtol=0, atol=1e-14)


def test_weights() -> None:
    table = np.asarray(NET.cpt("slippery"))
    for weights, mix in [
        ("uniform", np.full(3, 1 / 3)),
        ([1, 0, 3], np.array([0.25, 0, 0.75])),
        ({"2": 3, "0": 1, "1": 0}, np.array([0.25, 0, 0.75])),
        ("prior", prior(NET, "wet")),
        (np.array([0, 1, 0]), np.array([0, 1, 0])),
    ]:
        less = NET.remove_arc("wet", "slippery", weights=weights)  # type: ignore[arg-type]
        np.testing.assert_allclose(less.cpt("slippery"), mix @ table, rtol=0, atol=1e-15)
    with NET.compile("reference") as tree:
        post = tree.posterior("wet", {"rain": "yes"})
    np.testing.assert_allclose(
        NET.remove_arc("wet", "slippery", weights=post).cpt("slippery"), post.probabilities @ table, atol=1e-15
    )


def test_rows() -> None:
    new = NET.replace_row("wet", {"rain": "yes", "sprinkler": "no"}, {"1": 0.5, "0": 0.25, "2": 0.25})
    assert new.cpt("wet")[{"rain": "yes", "sprinkler": "no"}].tolist() == [0.25, 0.5, 0.25]
    changed = (np.asarray(new.cpt("wet")) != np.asarray(NET.cpt("wet"))).any(axis=-1)
    assert np.argwhere(changed).tolist() == [[1, 0]]
    both = NET.replace_row("wet", {"sprinkler": "yes"}, [1, 0, 0])
    assert both.cpt("wet")[:, 1].tolist() == [[1, 0, 0], [1, 0, 0]]
    assert NET.replace_row("rain", {}, [0.5, 0.5]).cpt("rain").tolist() == [0.5, 0.5]


def test_rename() -> None:
    new = NET.rename("wet", "lawn")
    assert new.parents("slippery") == ("lawn",)
    assert new.rename("lawn", "wet") == NET
    with pytest.raises(errors.NetworkError, match="'rain' and 'wet' would both have the name 'rain'"):
        NET.rename("wet", "rain")


def test_what_a_file_says_is_kept() -> None:
    attributes = {"node": {"rain": {"label": "Rain"}, "wet": {"label": "Wet"}}, "potential": {"wet": {"note": "old"}}}
    cpts = {v: NET.cpt(v) for v in NET}
    states, parents = {v: NET.states(v) for v in NET}, {v: NET.parents(v) for v in NET}
    net = BayesianNetwork(states, parents, cpts, attributes=attributes)
    less = net.remove("rain")
    assert less.attributes == {"node": {"wet": {"label": "Wet"}}, "potential": {}}
    assert net.add("new", ["a"]).attributes == attributes


def bad(value: Any) -> Any:
    """A value of a type that the annotation rejects."""
    return value


@pytest.mark.parametrize(
    ("edit", "error", "message"),
    [
        (lambda: NET.add("rain", ["a"]), errors.NetworkError, "there is already a variable 'rain'"),
        (lambda: NET.add("new", ["a"], ["rian"]), errors.NetworkError, "'rian', which is not declared.*'rain'"),
        (lambda: NET.add("new", []), errors.NetworkError, "'new' has no states"),
        (lambda: NET.add("new", bad(3)), errors.NetworkError, "'new': its states must be a sequence of names, not 3"),
        (lambda: NET.replace_row("wet", bad(["yes"]), [0, 1]), errors.ArgumentError, "given must be a mapping"),
        (lambda: NET.add("new", ["a", "b"], ["rain"], [1, 0]), errors.NetworkError, r"'new'.*shape \(2,\)"),
        (lambda: NET.remove("wte"), errors.UnknownVariable, "'wte'.*'wet'"),
        (lambda: NET.add_arc("slippery", "rain"), errors.NetworkError, "cycle: .*'slippery' -> 'rain'"),
        (lambda: NET.add_arc("rain", "rain"), errors.NetworkError, "its own parent"),
        (lambda: NET.add_arc("rain", "wet"), errors.NetworkError, "already an arc 'rain' -> 'wet'"),
        (lambda: NET.remove_arc("wet", "rain"), errors.NetworkError, "no arc .* there is one from 'rain'"),
        (lambda: NET.remove("rain", weights=[1]), errors.NetworkError, r"weights of 'rain': expected 2 numbers"),
        (lambda: NET.remove("rain", weights=[0, 0]), errors.NetworkError, "weights of 'rain' must be finite"),
        (lambda: NET.remove("rain", weights=[np.nan, 1]), errors.NetworkError, "weights of 'rain' must be finite"),
        (lambda: NET.remove("rain", weights="x"), errors.ArgumentError, "weights.*'prior'"),
        (lambda: NET.remove("rain", weights={"no": 1}), errors.NetworkError, "no number for state 'yes'"),
        (lambda: NET.replace_row("wet", {"slippery": "no"}, [1, 0, 0]), errors.NetworkError, "is no parent of 'wet'"),
        (lambda: NET.replace_row("wet", {"rain": "maybe"}, [1, 0, 0]), errors.UnknownState, "'maybe'"),
        (lambda: NET.replace_row("wet", {"rain": "no"}, [1, 0]), errors.NetworkError, "row of 'wet': expected 3"),
        (lambda: NET.replace_row("wet", {"rain": "no"}, [1, 1, 0]), errors.NetworkError, "'wet'.*rain=no"),
        (lambda: NET.add_state("rain", "no"), errors.NetworkError, "already a state 'no'"),
        (lambda: NET.merge_states("wet", ["0"], "x"), errors.NetworkError, "at least two different states"),
        (lambda: NET.merge_states("wet", ["0", "1"], "2"), errors.NetworkError, "already a state '2'"),
    ],
)
def test_errors(edit: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        edit()


def test_tables_too_large() -> None:
    states = {f"v{i}": [*"abcdefgh"] for i in range(10)}
    net = BayesianNetwork(states, {}, {v: np.full(8, 1 / 8) for v in states})
    with pytest.raises(errors.TableTooLarge, match="'new' would have 2,147,483,648 entries"):
        net.add("new", ["a", "b"], [*states])
