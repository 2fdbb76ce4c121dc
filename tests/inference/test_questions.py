"""Trees whose questions are planned one by one: every answer is that of the whole tree."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from jtgpu import BayesianNetwork, ImpossibleEvidence, JunctionTree, MarkovNetwork, TableTooLarge
from jtgpu.inference.planning import question_plan


def zeros(seed: int, n: int = 8, density: float = 0.4) -> BayesianNetwork:
    """A random network most of whose CPT entries are zero; some variables have one state."""
    rng = np.random.default_rng(seed)
    cards = rng.choice([1, 2, 2, 3, 4], n)
    parents: dict[str, list[str]] = {}
    cpts = {}
    for v in range(n):
        around = sorted(rng.choice(v, min(v, int(rng.integers(0, 4))), replace=False).tolist()) if v else []
        parents[f"x{v}"] = [f"x{u}" for u in around]
        table = rng.random([*cards[around], cards[v]])
        table *= rng.random(table.shape) < (density if rng.random() < 0.8 else 1.0)
        empty = table.sum(axis=-1) == 0
        table[empty, rng.integers(cards[v])] = 1.0
        cpts[f"x{v}"] = table / table.sum(axis=-1, keepdims=True)
    states = {f"x{v}": [f"s{s}" for s in range(c)] for v, c in enumerate(cards.tolist())}
    return BayesianNetwork(states, parents, cpts, name=f"zeros{seed}")


def by_question(net: Any, backend: Any = "reference", **options: Any) -> JunctionTree:
    """A tree of a network that would fit."""
    return question_plan(net, TableTooLarge("the test says so")).compile(backend, **options)


def evidence(net: Any, seed: int, n: int = 3) -> dict[str, dict[str, Any]]:
    """Evidence of all kinds, often impossible."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(net.variables))[:n].tolist()
    hard: dict[str, Any] = {}
    more: dict[str, Any] = {"likelihood": {}}
    for v in chosen:
        name, states = net.variables[v], net.states(v)
        kind = rng.integers(5)
        if kind == 0 and len(states) > 1:
            hard[name] = set(states[1:])
        elif kind == 1:
            weights = rng.random(len(states)) * (rng.random(len(states)) < 0.7)
            more["likelihood"][name] = np.where(weights.any(), weights, 1.0)
        else:
            hard[name] = states[int(rng.integers(len(states)))]
    if isinstance(net, BayesianNetwork) and rng.random() < 0.3:
        v = int(rng.integers(len(net)))
        if net.variables[v] not in hard and net.variables[v] not in more["likelihood"]:
            more["do"] = {net.variables[v]: net.states(v)[-1]}
    return {"evidence": hard, **more}


def same(one: Any, other: Any) -> None:
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-10, atol=1e-12)


def outcome(call: Any) -> Any:
    """An answer, or ImpossibleEvidence."""
    try:
        return call()
    except ImpossibleEvidence as error:
        return type(error)


def pairs(call: Any, whole: JunctionTree, tree: JunctionTree) -> tuple[Any, Any] | None:
    """The answers of both trees; None if both say that the evidence is impossible."""
    a, b = outcome(lambda: call(whole)), outcome(lambda: call(tree))
    assert (a is ImpossibleEvidence) == (b is ImpossibleEvidence)
    return None if a is ImpossibleEvidence else (a, b)


def compare(net: Any, whole: JunctionTree, tree: JunctionTree, seed: int) -> None:
    """Ask both trees everything about some evidence."""
    given, rng = evidence(net, seed), np.random.default_rng(seed)
    scope = [net.variables[v] for v in rng.permutation(len(net.variables))[:3].tolist()]
    for targets in (None, scope, scope[:1], ()):
        both = pairs(lambda t, some=targets: t.posteriors(**given, targets=some), whole, tree)
        if both is not None:
            same(both[0].log_evidence, both[1].log_evidence)
            for v in both[0]:
                same(both[0][v], both[1][v])
    for call in (
        lambda t: t.joint(scope, **given).probabilities,
        lambda t: t.conditional(scope[:1], scope[1:], **given).probabilities,
        lambda t: t.posteriors(**given, joints=[scope[:2]]).joint[tuple(scope[:2])].probabilities,
    ):
        both = pairs(call, whole, tree)
        if both is not None:
            same(*both)
    for call in (lambda t: t.mpe(**given, k=3), lambda t: t.map(scope[:2], **given, k=2)):
        both = pairs(call, whole, tree)
        if both is not None:
            same([one.log_joint for one in both[0].ranked], [one.log_joint for one in both[1].ranked])
            same(both[0].log_evidence, both[1].log_evidence)
            assert list(both[0]) == list(both[1])
    both = pairs(lambda t: t.sample(20, **given, seed=1), whole, tree)
    if both is not None:
        assert (both[1].states >= 0).all()
        for row in both[1].states[:5]:
            case = {v: net.states(v)[s] for v, s in zip(net.variables, row.tolist(), strict=True)}
            assert math.isfinite(whole.log_evidence(case, do=given.get("do")))


@pytest.mark.parametrize("seed", range(25))
def test_every_answer_is_that_of_the_whole_tree(seed: int) -> None:
    net = zeros(seed)
    with net.compile("reference") as whole, by_question(net) as tree:
        assert whole.whole
        assert not tree.whole
        for i in range(3):
            compare(net, whole, tree, 1000 * seed + i)


@pytest.mark.parametrize("seed", range(3))
def test_compiled_loops_agree(seed: int) -> None:
    net = zeros(100 + seed, 12)
    with net.compile("cpu") as whole, by_question(net, "cpu") as tree:
        for i in range(4):
            compare(net, whole, tree, 1000 * seed + i)


@pytest.mark.parametrize("seed", range(6))
def test_markov_networks(seed: int) -> None:
    net = zeros(seed)
    rng = np.random.default_rng(seed)
    tables = [((*net.parents(v), v), 10 ** rng.uniform(-200, 200) * np.asarray(net.cpt(v))) for v in net.variables]
    markov = MarkovNetwork({v: net.states(v) for v in net.variables}, tables)
    with markov.compile("reference") as whole, by_question(markov) as tree:
        for i in range(3):
            compare(markov, whole, tree, 1000 * seed + i)
