"""Right at any magnitude: states that fall below 1e-308 of others and come back, against sums of logarithms."""

from __future__ import annotations

import itertools
import math
import platform
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.backends.base import Evidence
from jtgpu.backends.cpu import engine, programs, runner
from jtgpu.backends.cpu.workspace import ModelNumbers, Workspace
from jtgpu.backends.table import Table
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from jtgpu.util.options import BackendName
from tests.support.examples import slow

HERE: tuple[BackendName, ...] = ("reference", "cpu")


def naive_bayes(n: int, error: float) -> BayesianNetwork:
    """A class "c" with n findings, each wrong with a small probability."""
    cpt = [[1 - error, error], [error, 1 - error]]
    names = [f"x{i}" for i in range(n)]
    return BayesianNetwork(
        {"c": ["n", "y"], **{x: ["A", "B"] for x in names}},
        {x: ["c"] for x in names},
        {"c": [0.5, 0.5], **dict.fromkeys(names, cpt)},
    )


def findings(n: int, n_first: int) -> dict[str, str]:
    return {f"x{i}": "A" if i < n_first else "B" for i in range(n)}


def expected(n: int, error: float, n_first: int) -> tuple[list[float], float]:
    """The posterior of the class, and ln P(e)."""
    a, b = math.log1p(-error), math.log(error)
    logs = [math.log(0.5) + k * a + (n - k) * b for k in (n_first, n - n_first)]
    log_evidence = log_sum(logs)
    return [math.exp(x - log_evidence) for x in logs], log_evidence


def log_sum(logs: list[float]) -> float:
    top = max(logs, default=-math.inf)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(x - top) for x in logs))


# findings, error, findings of the first state; faults O1 of the review
CASES = [(300, 1e-4, 151), (150, 1e-6, 75), (600, 0.01, 303), (54, 1e-12, 27), (110, 1e-6, 55), (1000, 0.3, 480)]


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize(("n", "error", "n_first"), [*CASES[:2], *slow(*CASES[2:])])
def test_findings_that_contradict_each_other(backend: BackendName, n: int, error: float, n_first: int) -> None:
    tree = naive_bayes(n, error).compile(backend)
    evidence = findings(n, n_first)
    posterior, log_evidence = expected(n, error, n_first)
    answer = tree.posteriors(evidence)
    np.testing.assert_allclose(answer["c"], posterior, rtol=1e-11)
    assert answer.log_evidence == pytest.approx(log_evidence, rel=1e-12)
    best = tree.mpe(evidence, k=2)
    assert [x.log_joint for x in best.ranked] == pytest.approx(
        sorted((log_evidence + math.log(p) for p in posterior), reverse=True), rel=1e-12
    )
    counts = tree.expected_counts(np.array([[-1, *(int(i >= n_first) for i in range(n))]]))
    np.testing.assert_allclose(counts["c"], posterior, rtol=1e-11)
    drawn = tree.sample(400, evidence, seed=3).states[:, 0].mean()
    assert abs(drawn - posterior[1]) < 0.1


def rows_of(n: int, firsts: list[int]) -> Any:
    return np.array([[-1, *(int(i >= k) for i in range(n))] for k in firsts], np.int32)


def test_rows_side_by_side_with_ordinary_ones() -> None:
    n, error = 300, 1e-4
    tree = naive_bayes(n, error).compile("cpu")
    firsts = [151, 149, 150, 300, 0, 140] * 30
    answer = tree.posteriors_batch(rows_of(n, firsts))
    counts = tree.expected_counts(rows_of(n, firsts))
    for row, k in enumerate(firsts):
        posterior, log_evidence = expected(n, error, k)
        np.testing.assert_allclose(answer["c"][row], posterior, rtol=1e-11, atol=1e-300)
        assert answer.log_evidence[row] == pytest.approx(log_evidence, rel=1e-12)
    np.testing.assert_allclose(counts["c"], np.sum([expected(n, error, k)[0] for k in firsts], axis=0), rtol=1e-12)


def test_a_few_rows_as_a_server_gets_them() -> None:
    tree = naive_bayes(300, 1e-4).compile("cpu")
    few = tree._open().run(Table.of(rows_of(300, [151, 300, 149, 10, 150]), recurs=False))
    for row, k in enumerate([151, 300, 149, 10, 150]):
        posterior, log_evidence = expected(300, 1e-4, k)
        np.testing.assert_allclose(few.posterior[row, :2], posterior, rtol=1e-11, atol=1e-300)
        assert few.log_evidence[row] == pytest.approx(log_evidence, rel=1e-12)


def test_several_threads_notice_each_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PARALLEL", 0)
    tree = naive_bayes(300, 1e-4).compile("cpu", threads=2)
    np.testing.assert_allclose(tree.posterior("c", findings(300, 151)), expected(300, 1e-4, 151)[0], rtol=1e-11)


def test_a_session_forgets_tables_that_lost_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SMALL", 0)
    tree = naive_bayes(300, 1e-4).compile("cpu")
    with tree.session(findings(300, 151)) as session:
        np.testing.assert_allclose(session.posterior("c"), expected(300, 1e-4, 151)[0], rtol=1e-11)
        session.set({"x0": "B", "x1": "B"})
        np.testing.assert_allclose(session.posterior("c"), expected(300, 1e-4, 149)[0], rtol=1e-11)
        session.set({f"x{i}": "A" for i in range(300)})
        np.testing.assert_allclose(session.posterior("c"), expected(300, 1e-4, 300)[0], atol=1e-300)


def test_a_case_whose_weights_change() -> None:
    net = naive_bayes(300, 1e-4)
    tree = net.compile("cpu")
    state = np.array([-1, -1, *(int(i >= 151) for i in range(1, 300))], np.int32)
    held = tree._open().hold_case(Evidence(state, {1: np.array([1.0, 1.0])}), [0])
    for weights, k in (([1.0, 0.0], 151), ([0.0, 1.0], 150), ([1e300, 0.0], 151)):
        held.set(1, np.array(weights))
        posterior, log_evidence = expected(300, 1e-4, k)
        assert held.run() == pytest.approx(log_evidence + math.log(max(weights)), rel=1e-12)
        np.testing.assert_allclose(held.cells(0), posterior, rtol=1e-11)
    held.set(1, np.array([1e300, 1e-300]))  # scaled, the second one would be no number
    assert held.run() == pytest.approx(
        log_sum([expected(300, 1e-4, 151)[1] + math.log(1e300), expected(300, 1e-4, 150)[1] + math.log(1e-300)]),
        rel=1e-12,
    )


def test_each_thread_notices_only_its_own() -> None:
    tree = naive_bayes(300, 1e-4).compile("cpu")
    wrong: list[int] = []

    def ask(k: int) -> None:
        posterior = expected(300, 1e-4, k)[0]
        for _ in range(50):
            right = np.allclose(tree.posterior("c", findings(300, k)), posterior, rtol=1e-11, atol=1e-300)
            wrong.extend([] if right else [k])

    threads = [threading.Thread(target=ask, args=(k,)) for k in (151, 300, 290, 299, 149, 0, 10, 295)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_likelihoods_and_factors_of_any_size() -> None:
    weights = {f"v{i}": {"a": 1e300, "b": 1e-300} if i % 2 else {"a": 1e-300, "b": 1e300} for i in range(8)}
    names = list(weights)
    net = BayesianNetwork({v: ["a", "b"] for v in names}, dict.fromkeys(names[1:], names[:1]), {
        v: [0.5, 0.5] if v == "v0" else [[1.0, 0.0], [0.0, 1.0]] for v in names
    })  # fmt: skip
    for backend in HERE:
        answer = net.compile(backend).posteriors(likelihood=weights)
        np.testing.assert_allclose(answer["v0"], [0.5, 0.5])
        assert answer.log_evidence == pytest.approx(0.0, abs=1e-12)
    factors: list[Any] = [(("u", "w"), [[1e300, 1e-300], [1e-300, 1e-300]])]
    factors += [((v,), [1e-300, 1e300]) for v in "uw"]
    markov = MarkovNetwork({"u": ["a", "b"], "w": ["a", "b"]}, factors)
    for backend in HERE:
        post = markov.compile(backend).posteriors()
        np.testing.assert_allclose(post["u"], [0.0, 1.0], atol=1e-290)
        assert post.log_evidence == pytest.approx(math.log(1e300), rel=1e-12)


@pytest.mark.parametrize("backend", HERE)
def test_an_observed_state_of_likelihood_0_and_factors_that_lose_digits(backend: BackendName) -> None:
    factors: list[Any] = [(("a", "b"), [[1e300, 1e-300], [1e-300, 1.0]])]
    tree = MarkovNetwork({"a": ["x", "y"], "b": ["x", "y"]}, factors).compile(backend)
    rows, zero = [{"a": "x"}, {"a": "y"}], [1.0, 0.0]
    assert tree.log_likelihood(rows, likelihood={"a": [zero] * 2})[1] == -math.inf
    with pytest.raises(errors.ImpossibleEvidence):
        tree.posteriors({"a": "y"}, likelihood={"a": zero})
    joint = tree.joint(["a", "b"], likelihood={"a": zero}, how="cases")
    np.testing.assert_allclose(joint, [[1, 0], [0, 0]], atol=1e-300)


# Small networks with entries and likelihoods of 1e-300 to 1e300, by enumeration.


def extreme(seed: int) -> tuple[BayesianNetwork, dict[str, str], dict[str, dict[str, float]]]:
    """A network, states and likelihoods."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 7))
    cards, names = rng.integers(2, 4, n).tolist(), [f"v{i}" for i in range(n)]
    states = {v: [f"s{j}" for j in range(c)] for v, c in zip(names, cards, strict=True)}
    parents, cpts, span = {}, {}, float(rng.choice([5, 60, 170, 300]))
    for i, v in enumerate(names):
        ps = sorted(rng.choice(i, size=min(i, int(rng.integers(0, 3))), replace=False).tolist()) if i else []
        parents[v] = [names[p] for p in ps]
        shape = [cards[p] for p in ps] + [cards[i]]
        table = 10.0 ** -rng.uniform(0, span, shape) * (rng.random(shape) > rng.choice([0, 0.2]))
        for row in table.reshape(-1, cards[i]):
            j = int(rng.integers(cards[i]))
            row[j] = 0.0
            if row.sum() >= 1:
                row /= 2 * row.sum()
            row[j] = 1 - row.sum()
        cpts[v] = table
    hard = {v: f"s{rng.integers(cards[i])}" for i, v in enumerate(names) if rng.random() < 0.35}
    soft = {
        v: {s: float(10.0 ** rng.uniform(-rng.choice([5, 300]), rng.choice([0, 300]))) for s in states[v]}
        for v in names
        if v not in hard and rng.random() < 0.4
    }
    return BayesianNetwork(states, parents, cpts), hard, soft


def configurations(
    net: BayesianNetwork, hard: dict[str, str], soft: dict[str, dict[str, float]]
) -> dict[tuple[str, ...], float]:
    """ln of the weight of every configuration that is possible."""
    logs = {}
    for states in itertools.product(*(net.states(v) for v in net.variables)):
        x = dict(zip(net.variables, states, strict=True))
        if any(x[v] != s for v, s in hard.items()):
            continue
        at = {v: net.states(v).index(s) for v, s in x.items()}
        parts = [float(net.cpt(v)[(*(at[u] for u in net.parents(v)), at[v])]) for v in x]
        parts += [weights[x[v]] for v, weights in soft.items()]
        if min(parts) > 0:
            logs[states] = math.fsum(math.log(p) for p in parts)
    return logs


@pytest.mark.parametrize("backend", HERE)
@given(seed=st.integers(0, 2**32 - 1))
def test_entries_and_likelihoods_of_any_size(backend: BackendName, seed: int) -> None:
    net, hard, soft = extreme(seed)
    logs = configurations(net, hard, soft)
    tree = net.compile(backend)
    if not logs:
        with pytest.raises(errors.ImpossibleEvidence):
            tree.posteriors(hard, likelihood=soft)
        return
    total = log_sum(list(logs.values()))
    answer = tree.posteriors(hard, likelihood=soft)
    assert answer.log_evidence == pytest.approx(total, rel=1e-12, abs=1e-10)
    for i, v in enumerate(net.variables):
        for j, s in enumerate(net.states(v)):
            p = math.exp(log_sum([x for states, x in logs.items() if states[i] == s]) - total)
            assert np.asarray(answer[v])[j] == pytest.approx(p, rel=1e-9, abs=1e-12)
    best = sorted(logs.values(), reverse=True)[:4]
    found = [x.log_joint for x in tree.mpe(hard, likelihood=soft, k=4).ranked]
    assert found == pytest.approx(best, rel=1e-11, abs=1e-9)
    drawn = tree.sample(1, hard, likelihood=soft, seed=1).states[0].tolist()
    assert tuple(net.states(v)[j] for v, j in zip(net.variables, drawn, strict=True)) in logs


# Loops of extended numbers: every form of record gives what ordinary numbers give.


@pytest.mark.parametrize("name", ["alarm", "water", "barley", "hailfinder"])
def test_extended_numbers_are_those_of_ordinary_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = jtgpu.load(name)
    tree = net.compile("cpu", threads=1)
    drawn = tree.sample(1, seed=2).states[0].tolist()
    evidence = {v: net.states(v)[j] for v, j in list(zip(net.variables, drawn, strict=True))[::9]}
    ordinary, best = tree.posteriors(evidence), tree.mpe(evidence)
    samples = tree.sample(20, evidence, seed=4).states
    monkeypatch.setattr(programs, "LOOK", 0)  # structural zeros are left out at once
    monkeypatch.setattr(ModelNumbers, "is_lossy", property(lambda _: True, lambda *_: None), raising=False)
    for again in range(2):
        lossy = net.compile("cpu", threads=1)
        answer = lossy.posteriors(evidence)
        assert answer.log_evidence == pytest.approx(ordinary.log_evidence, rel=1e-12)
        for v in net.variables:
            np.testing.assert_allclose(answer[v], ordinary[v], rtol=1e-9, atol=1e-13)
        assert lossy.mpe(evidence).log_joint == pytest.approx(best.log_joint, rel=1e-12)
        np.testing.assert_array_equal(lossy.sample(20, evidence, seed=4).states, samples)
        monkeypatch.setattr(programs, "FEW", 10**9 * again)


def test_bundled_networks_lose_no_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("extended numbers")

    monkeypatch.setattr(Workspace, "extended", refuse)
    for name in ("asia", "alarm", "insurance", "hailfinder", "hepar2", "win95pts"):
        net = jtgpu.load(name)
        tree = net.compile("cpu")
        samples = tree.sample(60, seed=1).states
        rng = np.random.default_rng(5)
        for share in (0.1, 0.5, 1.0):
            tree.posteriors_batch(np.where(rng.random(samples.shape) < share, samples, -1).astype(np.int32))


def _with_modes(word: int, function: Callable[[], Any]) -> tuple[Any, int]:
    """What a function gives with modes of the processor set; and the modes after it."""
    from numba import njit

    from jtgpu.backends.cpu.loops import vector

    def modes(word: int) -> int:
        before = vector.plain_arithmetic()
        vector.restore_arithmetic(word)
        return int(before)

    set_modes: Any = njit(modes)

    before = set_modes(0x1F80 | word)
    try:
        return function(), set_modes(0x1F80 | word)
    finally:
        set_modes(0x1F80 | 0x8000)
        set_modes(before)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="modes of x86")
@pytest.mark.parametrize("word", [0x8000, 0x0040, 0x8040], ids=["flush-to-zero", "subnormal inputs are 0", "both"])
def test_modes_of_the_caller(word: int) -> None:
    tree = naive_bayes(300, 1e-4).compile("cpu")
    answer, after = _with_modes(word, lambda: np.asarray(tree.posterior("c", findings(300, 151))))
    np.testing.assert_allclose(answer, expected(300, 1e-4, 151)[0], rtol=1e-11)
    assert after & 0x8040 == word
