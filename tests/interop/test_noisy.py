"""Noisy nodes of pgmpy and pyAgrum."""

from __future__ import annotations

import numpy as np
import pytest

from jtgpu import BayesianNetwork, TableTooLarge, from_pgmpy, from_pyagrum, to_pyagrum


def test_pgmpy() -> None:
    discrete = pytest.importorskip("pgmpy.factors.discrete")
    models = pytest.importorskip("pgmpy.models")
    model = models.DiscreteBayesianNetwork([("a", "c"), ("b", "c")])
    names = {v: ["True", "False"] for v in "ab"}
    roots = [discrete.TabularCPD(v, 2, [[0.2], [0.8]], state_names={v: names[v]}) for v in "ab"]
    model.add_cpds(*roots, discrete.NoisyORCPD("c", [0.75, 0.5], ["a", "b"]))
    net = from_pgmpy(model)
    assert isinstance(net, BayesianNetwork)
    assert [*net.noisy] == ["c"]
    assert np.allclose(np.moveaxis(np.asarray(net.cpt("c")), -1, 0), model.get_cpds("c").values, rtol=0, atol=1e-15)


def test_pyagrum() -> None:
    """Of 40 causes: pyAgrum computes their tables, and cannot make an array of one."""
    gum = pytest.importorskip("pyagrum")
    bn = gum.BayesNet()
    causes = [f"d{i}" for i in range(40)]
    for v in causes:
        bn.add(gum.LabelizedVariable(v, v, 2))
        bn.cpt(v).fillWith([0.9, 0.1])
    for v, add in (("or", bn.addNoisyOR), ("net", bn.addNoisyORNet), ("and", bn.addNoisyAND)):
        add(gum.LabelizedVariable(v, v, 2), 0.125)
        for i, d in enumerate(causes):
            bn.addWeightedArc(d, v, 0.25 + i / 64)
    net = from_pyagrum(bn)
    assert [*net.noisy] == ["or", "net", "and"]
    rng = np.random.default_rng(0)
    for v in net.noisy:
        at = gum.Instantiation(bn.cpt(v))
        for _ in range(5):
            on = rng.integers(0, 2, 40)
            at.fromdict({v: 1, **dict(zip(causes, map(int, on), strict=True))})
            own = np.append(on, 1)[None].astype(np.int32)
            order = [net.parents(v).index(d) for d in causes]
            assert order == sorted(order)
            assert abs(net.noisy[v].at(own)[0] - bn.cpt(v).get(at)) < 1e-12
    assert from_pyagrum(gum.fastBN("a->b<-c")).noisy == {}
    back = from_pyagrum(to_pyagrum(net.remove("and")))
    for v in ("or", "net"):
        assert np.abs(back.noisy[v].rows - net.noisy[v].rows).max() < 1e-12
    with pytest.raises(TableTooLarge):  # in pyAgrum, an absent parent of a noisy-AND has an effect, too
        to_pyagrum(net)
