"""Networks of numbers only of pgmpy and pyAgrum, both ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import FormatError
from jtgpu.interop import from_pgmpy, from_pyagrum, to_pgmpy, to_pyagrum
from tests.mixed.test_lauritzen import incinerator


def net() -> jtgpu.MixedNetwork:
    return jtgpu.MixedNetwork(
        {"a": float, "b": float, "c": float}, {"c": ["b", "a"], "b": ["a"]},
        {"a": jtgpu.Gaussian(1.0, sd=0.5), "b": jtgpu.Gaussian(-2.0, {"a": 3.0}, sd=1.5),
         "c": jtgpu.Gaussian(0.25, {"b": -1.0, "a": 0.5}, sd=2.0)},
    )  # fmt: skip


def test_pgmpy() -> None:
    pytest.importorskip("pgmpy")
    theirs = to_pgmpy(net())
    assert theirs.check_model()
    assert from_pgmpy(theirs) == net()
    mean, covariance = theirs.to_joint_gaussian()
    order = list(theirs.nodes()) if len(mean) == 3 else []
    found = dict(zip(order, np.asarray(mean).ravel().tolist(), strict=True))
    ours = net().compile("reference").posteriors()
    assert sorted(found.values()) == pytest.approx(sorted(ours[v].mean for v in "abc"))
    assert sorted(np.diag(np.asarray(covariance))) == pytest.approx(sorted(ours[v].sd ** 2 for v in "abc"))


def test_pyagrum() -> None:
    clg: Any = pytest.importorskip("pyagrum.clg")
    theirs = to_pyagrum(net())
    back: Any = from_pyagrum(theirs)
    answers = net().compile("reference")
    assert isinstance(back, jtgpu.MixedNetwork)
    for seen in ({}, {"c": 2.0}):
        ours, again = answers.posteriors(seen), back.compile("reference").posteriors(seen)
        inference = clg.CLGVariableElimination(theirs)
        inference.updateEvidence(seen)
        for v in "ab":
            expected = inference.posterior(v)
            assert again[v].mean == pytest.approx(ours[v].mean, rel=1e-12)
            assert expected.mu() == pytest.approx(ours[v].mean, rel=1e-6)
            assert expected.sigma() == pytest.approx(ours[v].sd, rel=1e-6)


@pytest.mark.parametrize("convert", [to_pgmpy, to_pyagrum])
def test_states_are_refused(convert: Any) -> None:
    pytest.importorskip("pgmpy")
    pytest.importorskip("pyagrum")
    with pytest.raises(FormatError, match="takes numbers only, and 'F' has states"):
        convert(incinerator())


def test_posteriors_are_those_of_the_libraries() -> None:
    clg: Any = pytest.importorskip("pyagrum.clg")
    engine = clg.CLGVariableElimination(to_pyagrum(net()))
    engine.updateEvidence({"a": 1.5, "b": -0.5})
    ours = net().compile("reference")
    theirs = engine.posterior("c")
    post = ours.posterior("c", {"a": 1.5, "b": -0.5})
    assert (theirs.mu(), theirs.sigma()) == pytest.approx((post.mean, post.sd))
    pytest.importorskip("pgmpy")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.5, 0.0], "b": [-0.5, 2.0]})
    assert np.ravel(to_pgmpy(net()).predict(frame)) == pytest.approx(ours.predict(frame, "c"))
    mean, both = ours.moments(["b", "c"], {"a": 1.5})
    engine = clg.CLGVariableElimination(to_pyagrum(net()))
    engine.updateEvidence({"a": 1.5})
    assert engine.posterior("b").mu() == pytest.approx(mean[0])
    assert engine.posterior("c").sigma() == pytest.approx(np.sqrt(both[1, 1]))


def test_the_kind_of_a_file(tmp_path: Any) -> None:
    jtgpu.write(net(), tmp_path / "a.net")
    assert jtgpu.read(tmp_path / "a.net", kind=jtgpu.MixedNetwork) == net()
    with pytest.raises(FormatError, match="has a MixedNetwork, expected a BayesianNetwork"):
        jtgpu.read(tmp_path / "a.net", kind=jtgpu.BayesianNetwork)
