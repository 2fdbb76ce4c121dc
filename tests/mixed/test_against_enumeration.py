"""Random mixed networks against the sum over all configurations of states with one multivariate normal each."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.mixed.results import NumberPosterior

RNG = np.random.default_rng


def random_network(rng: np.random.Generator, *, n_discrete: int = 4, n_numbers: int = 4, max_sd: float = 2.0) -> Any:
    discrete = [f"d{i}" for i in range(int(rng.integers(0, n_discrete + 1)))]
    numbers = [f"x{i}" for i in range(int(rng.integers(1, n_numbers + 1)))]
    states: dict[str, Any] = {v: [f"s{j}" for j in range(int(rng.integers(1, 4)))] for v in discrete}
    parents, cpts = {}, {}
    for i, v in enumerate(discrete):
        parents[v] = [p for p in discrete[:i] if rng.random() < 0.4]
        table = rng.random([len(states[p]) for p in parents[v]] + [len(states[v])]) + 0.05
        cpts[v] = table / table.sum(axis=-1, keepdims=True)
    for i, v in enumerate(numbers):
        own = [p for p in discrete if rng.random() < 0.35]
        before = [p for p in numbers[:i] if rng.random() < 0.5]
        parents[v] = [*rng.permutation([*own, *before])] if own or before else []
        parents[v] = [str(p) for p in parents[v]]
        shape = [len(states[p]) for p in parents[v] if p in discrete]
        cpts[v] = jtgpu.Gaussian(
            rng.normal(size=shape), {p: rng.normal(size=shape) for p in before}, sd=0.2 + max_sd * rng.random(shape)
        )
    order = [*rng.permutation([*discrete, *numbers])]
    all_states = {**states, **dict.fromkeys(numbers, float)}
    return jtgpu.MixedNetwork({str(v): all_states[str(v)] for v in order}, parents, cpts)


def normal_of(net: Any, states: dict[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of all numbers given all states."""
    names = net.numbers
    at = {v: i for i, v in enumerate(names)}
    n = len(names)
    mean, loads = np.zeros(n), np.zeros((n, n))
    for v in (u for u in net.topological_order() if u in at):
        own = tuple(net.states(p).index(states[p]) for p in net.discrete_parents(v))
        g = net.gaussian(v)
        mean[at[v]] = g.mean[own] + sum(g.coefficients[p][own] * mean[at[p]] for p in net.numeric_parents(v))
        loads[at[v]] = sum((g.coefficients[p][own] * loads[at[p]] for p in net.numeric_parents(v)), np.zeros(n))
        loads[at[v], at[v]] += g.sd[own]
    return mean, loads @ loads.T


def enumerate_case(net: Any, evidence: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Posteriors of all variables, (mean, sd) of numbers, and ln P of the evidence."""
    discrete, names = net.discrete.variables, net.numbers
    seen = [i for i, v in enumerate(names) if v in evidence]
    rest = [i for i, v in enumerate(names) if v not in evidence]
    y = np.array([evidence[names[i]] for i in seen], float)
    logs, parts, rows = [], [], []
    for row in itertools.product(*(net.states(v) for v in discrete)):
        states = dict(zip(discrete, row, strict=True))
        if any(states[v] != evidence[v] for v in discrete if v in evidence):
            continue
        p = 1.0
        for v in discrete:
            p *= net.cpt(v)[tuple(net.states(u).index(states[u]) for u in (*net.parents(v), v))]
        mean, cov = normal_of(net, states)
        s = cov[np.ix_(seen, seen)]
        residual = y - mean[seen]
        solved = np.linalg.solve(s, residual) if seen else residual
        _, log_det = np.linalg.slogdet(s) if seen else (1.0, 0.0)
        logs.append(math.log(p) - 0.5 * (residual @ solved + log_det + len(seen) * math.log(2 * math.pi)))
        cross = cov[np.ix_(rest, seen)]
        m = mean[rest] + cross @ solved
        c = cov[np.ix_(rest, rest)] - (cross @ np.linalg.solve(s, cross.T) if seen else 0.0)
        parts.append((m, np.diagonal(c)))
        rows.append(states)
    top = max(logs)
    w = np.exp(np.array(logs) - top)
    log_evidence = top + math.log(w.sum())
    w /= w.sum()
    result: dict[str, Any] = {}
    for v in discrete:
        own = [[x for x, states in zip(w, rows, strict=True) if states[v] == s] for s in net.states(v)]
        result[v] = np.array([sum(xs) for xs in own])
    for j, i in enumerate(rest):
        m = sum(x * part[0][j] for x, part in zip(w, parts, strict=True))
        second = sum(x * (part[1][j] + part[0][j] ** 2) for x, part in zip(w, parts, strict=True))
        result[names[i]] = m, math.sqrt(second - m * m)
    for i in seen:
        result[names[i]] = evidence[names[i]], 0.0
    return result, log_evidence


def random_evidence(rng: np.random.Generator, net: Any) -> dict[str, Any]:
    evidence: dict[str, Any] = {}
    for v in net.variables:
        if rng.random() < 0.45:
            evidence[v] = float(rng.normal()) if net.is_number(v) else str(rng.choice(net.states(v)))
    return evidence


def check(net: Any, evidence: dict[str, Any], post: Any) -> None:
    expected, log_evidence = enumerate_case(net, evidence)
    assert post.log_evidence == pytest.approx(log_evidence, abs=1e-10, rel=1e-10)
    for v in net.variables:
        if isinstance(post[v], NumberPosterior):
            assert (post[v].mean, post[v].sd) == pytest.approx(expected[v], abs=1e-9, rel=1e-9)
        else:
            assert np.asarray(post[v]) == pytest.approx(expected[v], abs=1e-10)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("seed", range(40))
def test_cases_are_those_of_enumeration(seed: int, backend: str) -> None:
    rng = RNG([seed, 1])
    net = random_network(rng)
    tree = net.compile(backend)
    for _ in range(3):
        evidence = random_evidence(rng, net)
        check(net, evidence, tree.posteriors(evidence))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(500))
def test_larger_networks_are_those_of_enumeration(seed: int) -> None:
    rng = RNG([seed, 2])
    net = random_network(rng, n_discrete=6, n_numbers=6)
    tree = net.compile("cpu")
    evidence = random_evidence(rng, net)
    check(net, evidence, tree.posteriors(evidence))


@pytest.mark.parametrize("seed", range(15))
def test_a_table_has_the_answers_of_its_rows(seed: int) -> None:
    rng = RNG([seed, 3])
    net = random_network(rng)
    tree = net.compile("cpu")
    rows = [random_evidence(rng, net) for _ in range(25)]
    table = {v: [row.get(v) for row in rows] for v in net.variables}
    post = tree.posteriors_batch(table)
    for i, row in enumerate(rows):
        one = tree.posteriors(row)
        assert post.log_evidence[i] == pytest.approx(one.log_evidence, abs=1e-11, rel=1e-11)
        for v in net.variables:
            if net.is_number(v):
                assert (post[v].mean[i], post[v].sd[i]) == pytest.approx((one[v].mean, one[v].sd), abs=1e-10)
                assert post[v].case(i).quantiles([0.1, 0.7]) == pytest.approx(post[v].quantiles([0.1, 0.7])[i])
            else:
                assert post[v][i] == pytest.approx(np.asarray(one[v]), abs=1e-12)
