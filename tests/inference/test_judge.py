"""Posteriors of every network in nets/ against pyAgrum's, with 0, 5, 10 and 20 % of the variables observed."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jtgpu import JunctionTree, NetworkPlan
from jtgpu.formats import read
from jtgpu.formats.files import unpacked_name
from jtgpu.model.network import BayesianNetwork
from tests.support import judge
from tests.support.bundled import slow_when_large

NETS = Path(__file__).parents[2] / "nets"
NAMES = sorted(p.name for p in NETS.iterdir() if unpacked_name(p.name).endswith(".net"))
SHARES = (0.0, 0.05, 0.1, 0.2)

# What the judge itself does not answer in reasonable time or memory (without evidence: munin1 needs a minute of two
# cores, link does not answer at all)
BEYOND_THE_JUDGE = {("link.net", 0.0), ("link.net", 0.05), ("munin1.net", 0.0)}
TOLERANCE = 1e-9

pyagrum = pytest.importorskip("pyagrum", reason="pyAgrum, the outside judge, is not installed")


@lru_cache(maxsize=1)
def prepared(name: str) -> tuple[BayesianNetwork, Any, JunctionTree]:
    net = read(NETS / name)
    assert isinstance(net, BayesianNetwork)
    return net, judge.to_pyagrum(net), net.compile("cpu", max_table=None)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", slow_when_large(NAMES))
def test_posteriors_agree_with_pyagrum(name: str, share: float) -> None:
    if (unpacked_name(name), share) in BEYOND_THE_JUDGE:
        pytest.skip("pyAgrum does not answer this one in reasonable time or memory; compared with `reference` below")
    net, bn, tree = prepared(name)
    evidence = judge.sampled_evidence(net, share, seed=2014)
    expected = judge.posteriors(bn, evidence)
    post = tree.posteriors(evidence)
    worst = max(float(np.abs(np.asarray(post[v]) - expected[v]).max()) for v in net.variables)
    assert worst < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize(("name", "share"), sorted(BEYOND_THE_JUDGE))
def test_posteriors_agree_with_the_definition_if_pyagrum_has_no_answer(name: str, share: float) -> None:
    file = next(p for p in NETS.iterdir() if unpacked_name(p.name) == name)
    net, _, tree = prepared(file.name)
    evidence = judge.sampled_evidence(net, share, seed=2014)
    post = tree.posteriors(evidence)
    other = NetworkPlan(net, net.plan(lowering="clique", max_table=None).plan).compile("reference")
    expected = other.posteriors(evidence)
    assert post.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)
    worst = max(float(np.abs(np.asarray(post[v]) - np.asarray(expected[v])).max()) for v in net.variables)
    assert worst < 1e-11
