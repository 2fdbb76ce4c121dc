"""Contractions in another order, so that tables between them are never made: the same answers from fewer products."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.backends.cpu import Cpu, records, runner
from jtgpu.backends.wrappers.pattern_cache import PatternCache
from jtgpu.backends.wrappers.questions import CheaperQuestions
from jtgpu.timing import sample_cases
from tests.support import oracle, random_nets
from tests.support.bundled import bundled

NEVER = 1 << 60


def compiled(name: str, cells: int, threads: int = 1) -> jtgpu.JunctionTree:
    """A tree whose program without evidence, and of a sampled case, avoids tables of so many cells."""
    net = bundled(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "AVOIDED", cells)
        tree: jtgpu.JunctionTree = net.plan().compile("cpu", threads=threads)
        tree.posteriors()
        tree.posteriors(case_of(net))
    return tree


def case_of(net: jtgpu.BayesianNetwork) -> dict[str, int]:
    return sample_cases(net, 1, 0.1, 0)[0]


def work(tree: jtgpu.JunctionTree) -> int:
    backend = tree._backend
    while isinstance(backend, (CheaperQuestions, PatternCache)):
        backend = backend.backend
    assert isinstance(backend, Cpu)
    return backend.work(np.zeros(len(tree.model), np.bool_))


@pytest.mark.parametrize("name", ["insurance", "hailfinder", "barley"])
def test_fewer_products_give_the_same_answers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PARALLEL", 0)
    whole, fewer, threaded = compiled(name, NEVER), compiled(name, 1), compiled(name, 1, threads=2)
    assert work(fewer) < work(whole)
    for case in ({}, case_of(bundled(name))):
        expected, found, same = (tree.posteriors(case) for tree in (whole, fewer, threaded))
        assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-11)
        for v in bundled(name).variables:
            np.testing.assert_allclose(found[v], expected[v], atol=1e-12)
            np.testing.assert_array_equal(found[v], same[v])


def test_a_wide_network_avoids_large_tables_by_default() -> None:
    assert work(compiled("barley", records.AVOIDED)) < work(compiled("barley", NEVER))


@given(data=st.data())
def test_answers_of_random_networks(data: st.DataObject) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    hard, soft = data.draw(random_nets.evidence_weights(model))
    weights = random_nets.all_weights(model, hard, soft)
    expected = oracle.log_evidence(model, weights)
    if expected == -math.inf:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "AVOIDED", 1)
        tree = model.plan(order="min-fill", cache=False).compile("cpu")
        found = tree.posteriors(hard, likelihood=soft)
    assert found.log_evidence == pytest.approx(expected, abs=1e-11)
    exact = oracle.posteriors(model, weights)
    for v in range(len(model)):
        np.testing.assert_allclose(found[v], exact[v], atol=1e-12)
