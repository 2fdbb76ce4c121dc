"""Templates from networks over slices, and from stationary distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import BayesianNetwork, DynamicNetwork, NetworkError

from .test_dynamic import NO_YES, umbrella


def _table(rng: np.random.Generator, *shape: int) -> Any:
    t = rng.random(shape) + 0.1
    return t / t.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("seed", range(5))
def test_the_slices_of_a_template_give_it_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dyn = DynamicNetwork(
        {"kind": NO_YES, "x": ["a", "b", "c"], "y": NO_YES},
        {"x": [("x", 2), "kind", ("y", 1)], "y": ["x", ("y", 1)]},
        {"kind": _table(rng, 2), "x": _table(rng, 3, 2, 2, 3), "y": _table(rng, 3, 2, 2)},
        start={"x": [_table(rng, 2, 3), _table(rng, 2, 2, 3)], "y": _table(rng, 3, 2)}, static=["kind"],
    )  # fmt: skip
    net = dyn.unroll(3)
    labels = {"x[0]": "x[t-2]", "y[0]": "y[t-2]", "x[1]": "x[t-1]", "y[1]": "y[t-1]", "x[2]": "x[t]", "y[2]": "y[t]"}
    slices = BayesianNetwork(
        {labels.get(v, v): net.states(v) for v in net},
        {labels.get(v, v): [labels.get(p, p) for p in net.parents(v)] for v in net},
        {labels.get(v, v): net.cpt(v) for v in net},
    )
    made = DynamicNetwork.from_slices(slices)
    assert (made.static, made.order, made.parents("x")) == (("kind",), 2, (("x", 2), ("kind", 0), ("y", 1)))
    for v in ("kind", "x", "y"):
        np.testing.assert_array_equal(made.cpt(v), dyn.cpt(v))
    joint = np.asarray(slices.compile("reference").joint(["kind", "x[t]"]))
    np.testing.assert_allclose(made.start("x")[0], joint / joint.sum(axis=1, keepdims=True), rtol=1e-12)
    given = {v: dyn.start(v)[0] if len(dyn.start(v)) == 1 else dyn.start(v) for v in ("x", "y")}
    assert DynamicNetwork.from_slices(slices, start=given) == dyn


def test_a_learned_network_over_slices() -> None:
    codes = np.random.default_rng(3).integers(0, 2, 200).cumsum() // 3 % 2
    rows = jtgpu.series.two_slices({"x": [NO_YES[c] for c in codes]}, bins=None)
    net = BayesianNetwork(
        {"x[t-1]": NO_YES, "x[t]": NO_YES}, {"x[t]": ["x[t-1]"]}, {"x[t-1]": [0.5, 0.5], "x[t]": np.full((2, 2), 0.5)}
    )
    made = DynamicNetwork.from_slices(jtgpu.learn.fit(net, rows).network)
    assert made.unroll(2).arcs == (("x[0]", "x[1]"),)


@pytest.mark.parametrize(
    ("states", "parents", "message"),
    [
        ({"x[t-1]": 2}, {}, "no variable 'x.t.'"),
        ({"x[t-1]": 3, "x[t]": 2}, {}, "has the states"),
        ({"x[t-1]": 2, "x[t]": 2}, {"x[t-1]": ["x[t]"]}, "which is later"),
        ({"k": 2, "x[t]": 2}, {"k": ["x[t]"]}, "is static by its name"),
    ],
)
def test_networks_that_are_no_slices(states: dict[str, int], parents: dict[str, list[str]], message: str) -> None:
    tables = {v: np.full([*(states[p] for p in parents.get(v, ())), n], 1.0 / n) for v, n in states.items()}
    net = BayesianNetwork({v: [str(i) for i in range(n)] for v, n in states.items()}, parents, tables)
    with pytest.raises(NetworkError, match=message):
        DynamicNetwork.from_slices(net)
    with pytest.raises(NetworkError, match="needs a BayesianNetwork"):
        DynamicNetwork.from_slices({})  # type: ignore[arg-type]


def test_stationary_chain() -> None:
    """The left eigenvector of the transition matrix."""
    table = [[0.9, 0.1], [0.3, 0.7]]
    dyn = umbrella(cpts={"rain": table, "umbrella": [[0.8, 0.2], [0.1, 0.9]]}).stationary()
    np.testing.assert_allclose(dyn.start("rain")[0], [0.75, 0.25], atol=1e-12)
    net = dyn.unroll(6).compile("reference").posteriors()
    np.testing.assert_allclose(net["rain[5]"].probabilities, [0.75, 0.25], atol=1e-12)


def test_stationary_distribution_of_longer_lags() -> None:
    """Far slices of the unrolled network."""
    rng = np.random.default_rng(5)
    dyn = DynamicNetwork(
        {"k": NO_YES, "x": NO_YES, "y": ["a", "b", "c"]}, {"x": [("x", 3), ("y", 1), "k"], "y": ["x"]},
        {"k": [0.3, 0.7], "x": _table(rng, 2, 3, 2, 2), "y": _table(rng, 2, 3)},
        start={"x": [_table(rng, 2, 2), _table(rng, 3, 2, 2), _table(rng, 3, 2, 2)]}, static=["k"],
    )  # fmt: skip
    far = dyn.unroll(90).compile("cpu")
    start = dyn.stationary().start("x")
    first = np.asarray(far.joint(["k", "x[89]"]))
    second = np.asarray(far.joint(["y[88]", "k", "x[89]"]))
    np.testing.assert_allclose(start[0], first / first.sum(axis=-1, keepdims=True), atol=1e-10)
    np.testing.assert_allclose(start[2], second / second.sum(axis=-1, keepdims=True), atol=1e-10)


def test_chains_without_a_limit() -> None:
    swap = umbrella(cpts={"rain": [[0, 1], [1, 0]], "umbrella": [[0.8, 0.2], [0.1, 0.9]]}, start={"rain": [1, 0]})
    with pytest.raises(NetworkError, match="still changes by 1 after 50 slices; a periodic chain"):
        swap.stationary(50)
    with pytest.raises(jtgpu.ArgumentError, match="limit"):
        swap.stationary(0)
