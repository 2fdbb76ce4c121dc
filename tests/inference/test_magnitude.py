"""Joint tables, information, derivatives and counts at any magnitude, against sums of logarithms by enumeration."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import jtgpu
from jtgpu.inference.queries import variable_elimination
from jtgpu.util.options import BackendName
from tests.backends.test_magnitude import configurations, extreme, log_sum

HERE: tuple[BackendName, ...] = ("reference", "cpu")
U = 1e-170  # P(e) is 7e-341: no number


def rare(backend: BackendName, **options: Any) -> Any:
    """c = y is possible only where both of its rare causes are there."""
    cpts: dict[str, Any] = {"a": [1 - U, U], "b": [1 - U, U], "c": [[[1, 0], [1, 0]], [[1, 0], [0.3, 0.7]]]}
    states = {v: ["n", "y"] for v in "abc"}
    return jtgpu.BayesianNetwork(states, {"c": ["a", "b"]}, cpts).compile(backend, **options)


def logs_by_state(logs: dict[tuple[str, ...], float], places: tuple[int, ...]) -> dict[tuple[str, ...], float]:
    """ln of the sums over all other variables."""
    sums: dict[tuple[str, ...], list[float]] = {}
    for states, x in logs.items():
        sums.setdefault(tuple(states[i] for i in places), []).append(x)
    return {key: log_sum(values) for key, values in sums.items()}


@pytest.mark.parametrize("backend", HERE)
def test_queries_of_evidence_that_is_no_number(backend: BackendName) -> None:
    tree, seen = rare(backend, together=[("a", "b")]), {"c": "y"}
    for joint in (
        tree.joint(["a", "b"], seen, how="together"),
        tree.joint(["a", "b"], seen, how="cases"),
        tree.posteriors(seen, joints=[("a", "b")]).joint["a", "b"],
    ):
        np.testing.assert_allclose(joint.probabilities, [[0, 0], [0, 1]])
        assert joint.log_evidence == pytest.approx(2 * math.log(U) + math.log(0.7), rel=1e-13)
    np.testing.assert_allclose(tree.expected_counts([seen])["c"], [[[0, 0], [0, 0]], [[0, 0], [0, 1]]])
    gradient = tree.evidence_function([seen]).gradient(weights=[2.0]).cpts["c"]
    assert gradient[1, 1, 1] == pytest.approx(2 / 0.7)
    assert gradient[0, 1, 1] == pytest.approx(2 / (0.7 * U))
    assert gradient[0, 0, 1] == math.inf  # 2.9e340
    of_a = tree.sensitivity(("a", "y"), seen)
    assert of_a.probability == pytest.approx(1.0)
    assert of_a["c"][0, 0, 1] == -math.inf
    assert of_a["c"][0, 0, 0] == math.inf
    assert of_a["c"][0, 1, 1] == pytest.approx(-1 / (0.7 * U))
    assert of_a.at("c", (0, 0, 1), 0.5) == pytest.approx(0.0)
    assert not np.isnan(of_a["c"]).any()


def test_rows_of_conditional_tables_that_are_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = rare("cpu")
    monkeypatch.setattr("jtgpu.inference.queries.joint._choose", lambda tree, scope, _, resolved, *__: (
        variable_elimination.cost(tree, scope, resolved)
    ))  # fmt: skip
    table = tree.conditional("c", ["a", "b"])
    assert table.possible.all()
    np.testing.assert_allclose(table.probabilities[1, 1], [0.3, 0.7])


def test_states_of_probability_1e_340_are_possible() -> None:
    n = 300
    cpts: dict[str, Any] = {"r": [1 - U, U], "a": [np.eye(n)[0], [(1 - U) / (n - 1)] * (n - 1) + [U]]}
    cpts["b"] = [[0.25, 0.75]] * (n - 1) + [[0.5, 0.5]]
    states = {"r": ["n", "y"], "a": [f"s{i}" for i in range(n)], "b": ["n", "y"]}
    tree = jtgpu.BayesianNetwork(states, {"a": ["r"], "b": ["a"]}, cpts).compile("cpu")
    assert tree.conditional("b", ["a"]).possible.all()
    np.testing.assert_allclose(tree.conditional("b", ["a"]).probabilities[-1], [0.5, 0.5])


@pytest.mark.parametrize("backend", HERE)
def test_findings_without_which_a_state_is_no_number(backend: BackendName) -> None:
    cpts: dict[str, Any] = {"a": [1 - U, U], "b": [[1, 0], [1 - U, U]], "c": [[1, 0], [0, 1]]}
    states = {v: ["n", "y"] for v in "abc"}
    tree = jtgpu.BayesianNetwork(states, {"b": ["a"], "c": ["b"]}, cpts).compile(backend)
    [only] = tree.evidence_importance("b", {"c": "y"})
    assert only.kl_without == pytest.approx(-2 * math.log(U))


@pytest.mark.parametrize("backend", HERE)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_joint_tables_counts_and_information(backend: BackendName, seed: int) -> None:
    net, hard, soft = extreme(seed)
    logs = configurations(net, hard, soft)
    if not logs:
        return
    tree, total, places = net.compile(backend), log_sum(list(logs.values())), (len(net) - 1, 0)
    pair = [net.variables[i] for i in places]
    both = {k: math.exp(x - total) for k, x in logs_by_state(logs, places).items()}
    expected = [[both.get((s, t), 0.0) for t in net.states(pair[1])] for s in net.states(pair[0])]
    for how in ("together", "cases"):
        joint = tree.joint(pair, hard, likelihood=soft, how=how)
        np.testing.assert_allclose(joint.probabilities, expected, rtol=1e-9, atol=1e-12)
        assert joint.log_evidence == pytest.approx(total, rel=1e-12, abs=1e-10)
    p, q = ({k: math.exp(x - total) for k, x in logs_by_state(logs, (i,)).items()} for i in places)
    information = math.fsum(x * math.log(x / p[s,] / q[t,]) for (s, t), x in both.items() if x > 1e-280)
    found = tree.mutual_information(pair[0], [pair[1]], hard, likelihood=soft)[pair[1]]
    assert found == pytest.approx(information, rel=1e-9, abs=1e-11)
    counts = tree.expected_counts([hard], likelihood=soft)
    for i, v in enumerate(net.variables):
        family = (*(net.index(u) for u in net.parents(v)), i)
        right = np.zeros(net.cpt(v).shape)
        for key, x in logs_by_state(logs, family).items():
            at = tuple(net.states(u).index(s) for u, s in zip((*net.parents(v), v), key, strict=True))
            right[at] = math.exp(x - total)
        np.testing.assert_allclose(counts[v], right, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("backend", HERE)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_derivatives_by_entries_and_likelihoods(backend: BackendName, seed: int) -> None:
    net, hard, soft = extreme(seed)
    if not configurations(net, hard, soft):
        return
    tree = net.compile(backend)
    weights = {v: [[w[s] for s in net.states(v)]] for v, w in soft.items()}
    gradient = tree.evidence_function([hard]).gradient(likelihood=weights)
    by_cpt = {v: np.zeros(net.cpt(v).shape, object) for v in net}
    by_weight = {v: [Fraction(0)] * len(net.states(v)) for v in soft}
    total = Fraction(0)
    for states in itertools.product(*(net.states(v) for v in net.variables)):
        x = dict(zip(net.variables, states, strict=True))
        if any(x[v] != s for v, s in hard.items()):
            continue
        at = {v: tuple(net.states(u).index(x[u]) for u in (*net.parents(v), v)) for v in net}
        parts = {(0, v): Fraction(float(net.cpt(v)[at[v]])) for v in net}
        parts |= {(1, v): Fraction(w[x[v]]) for v, w in soft.items()}
        total += math.prod(parts.values())
        for kind, v in parts:
            rest = Fraction(math.prod(y for key, y in parts.items() if key != (kind, v)))
            if kind == 0:
                by_cpt[v][at[v]] += rest
            else:
                by_weight[v][net.states(v).index(x[v])] += rest
    for v in net:
        right = [_float(x / total) for x in by_cpt[v].ravel()]
        np.testing.assert_allclose(np.ravel(gradient.cpts[v]), right, rtol=1e-9, atol=1e-12)
    for v in soft:
        right = [_float(x / total) for x in by_weight[v]]
        np.testing.assert_allclose(gradient.likelihood[v][0], right, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("backend", HERE)
def test_derivatives_by_the_smallest_numbers(backend: BackendName) -> None:
    least = 5e-324
    net = jtgpu.BayesianNetwork(
        {"a": ["n", "y"], "c": ["n", "y"]}, {"c": ["a"]}, {"a": [1.0, least], "c": [[0.5, 0.5], [0.7, 0.3]]}
    )
    function = net.compile(backend).evidence_function([{"c": "y"}])
    np.testing.assert_allclose(function.gradient().cpts["a"], [1.0, 0.6])
    gradient = function.gradient(cpts={"a": [1.0, 1.0]}, likelihood={"a": [1.0, least]})
    np.testing.assert_allclose(gradient.likelihood["a"], [[1.0, 0.6]])


@pytest.mark.parametrize("backend", HERE)
def test_values_at_parameters_that_leave_little_evidence(backend: BackendName) -> None:
    cpts: dict[str, Any] = {"a": [0.75, U, 0.25 - U], "b": [[1, 0], [1, 0], [0.5, 0.5]]}
    cpts |= {"c": [[1 - U, U], [U, 1 - U]], "d": [[1 - U, U], [U, 1 - U]]}
    states = {"a": ["x", "y", "z"], **{v: ["n", "y"] for v in "bcd"}}
    tree = jtgpu.BayesianNetwork(states, {"b": ["a"], "c": ["b"], "d": ["b"]}, cpts).compile(backend)
    result = tree.sensitivity(("a", "x"), {"c": "y", "d": "y"})  # b = y, or 1e-340
    assert result.at("a", (2,), 0.0) == pytest.approx(1.0)
    assert result.at("b", (2, 1), 0.0) == pytest.approx(0.75)
    bars = {(b.parameter.variable, b.parameter.entry): b for b in result.tornado(20, spread=1.0)}
    assert (bars["b", (2, 0)].at_low, bars["b", (2, 0)].at_high) == pytest.approx((0.0, 0.75))


@pytest.mark.parametrize("backend", HERE)
@settings(max_examples=25)
@example(seed=28)  # one of the two passes in extended numbers, and likelihoods of two components
@given(seed=st.integers(0, 2**32 - 1))
def test_posteriors_at_other_parameters(backend: BackendName, seed: int) -> None:
    net, hard, soft = extreme(seed)
    free, logs = [v for v in net if v not in hard], configurations(net, hard, soft)
    if not free or not logs:
        return
    place = net.index(free[0])

    def probability(logs: dict[tuple[str, ...], float]) -> Any:
        right = log_sum([x for states, x in logs.items() if states[place] == "s0"])
        return pytest.approx(math.exp(right - log_sum([*logs.values()])), abs=1e-9)

    rng = np.random.default_rng(seed)
    result = net.compile(backend).sensitivity((free[0], "s0"), hard, likelihood=soft)
    assert result.probability == probability(logs)
    for v in net:
        at = tuple(int(rng.integers(n)) for n in net.cpt(v).shape)
        table, value = np.array(net.cpt(v)), float(rng.choice([0.0, 1e-200, 0.5, 1.0]))
        rest = table[at[:-1]].copy()
        rest[at[-1]] = 0.0
        rest = rest / rest.sum() if rest.any() else (np.arange(len(rest)) != at[-1]) / (len(rest) - 1)
        table[at[:-1]] = rest * (1.0 - value)
        table[at] = value
        logs = configurations(net.replace(cpt={v: table}), hard, soft)
        if not logs:
            with pytest.raises(jtgpu.ImpossibleEvidence):
                result.at(v, at, value)
            continue
        assert result.at(v, at, value) == probability(logs)


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("least", [1e-310, 5e-324])
def test_derivatives_by_rows_whose_rest_is_the_smallest_number(backend: BackendName, least: float) -> None:
    cpts: dict[str, Any] = {"a": [1.0, least, 0.0], "c": [[0.5, 0.5], [0.7, 0.3], [0.2, 0.8]]}
    net = jtgpu.BayesianNetwork({"a": ["x", "y", "z"], "c": ["n", "y"]}, {"c": ["a"]}, cpts)
    result = net.compile(backend).sensitivity(("a", "x"), {"c": "y"})
    np.testing.assert_allclose(result["a"], [0.6, -0.6, -1.6])
    assert result.at("a", (0,), 0.5) == pytest.approx(0.625)
    assert [(b.at_low, b.at_high) for b in result.tornado(1)] == [pytest.approx((0.9375, 1.0))]


def _float(x: Any) -> float:
    return float(x) if x < Fraction(10) ** 308 else math.inf
