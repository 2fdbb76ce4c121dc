"""Mixed networks whose numbers lie any distance from the means of some states, against sums of logarithms."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.mixed import fitting, sets
from jtgpu.mixed.evidence import read_cases
from jtgpu.util.options import BackendName
from tests.backends.test_magnitude import log_sum
from tests.support.examples import slow

HERE: tuple[BackendName, ...] = ("reference", "cpu")


def copies(distance: float = 60.0, sd: float = 1.0) -> jtgpu.MixedNetwork:
    """d is a copy of c, and each has a sensor whose means are so many standard deviations apart."""
    sensor = jtgpu.Gaussian([0.0, distance], sd=[sd, sd])
    return jtgpu.MixedNetwork(
        {"c": ["n", "y"], "d": ["n", "y"], "x1": float, "x2": float}, {"d": ["c"], "x1": ["c"], "x2": ["d"]},
        {"c": [0.5, 0.5], "d": [[1, 0], [0, 1]], "x1": sensor, "x2": sensor},
    )  # fmt: skip


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("distance", [60.0, 3e5, *slow(3e3, 3e4)])
def test_sensors_that_contradict_each_other(backend: BackendName, distance: float) -> None:
    tree, seen = copies(distance).compile(backend), {"x1": 0.0, "x2": distance}
    answer = tree.posteriors(seen)
    np.testing.assert_allclose(answer["c"], [0.5, 0.5])
    assert answer.log_evidence == pytest.approx(-math.log(2 * math.pi) - distance**2 / 2, rel=1e-12)
    drawn = tree.sample(400, seen, seed=1)
    assert (drawn["c"] == drawn["d"]).all()
    assert 150 < (drawn["c"] == "y").sum() < 250
    table = {"c": [None] * 400, "d": [None] * 400, "x1": [0.0] * 400, "x2": [distance] * 400}
    filled = tree.impute(table, seed=1)
    assert (filled["c"] == filled["d"]).all()
    assert 150 < (filled["c"] == "y").sum() < 250
    np.testing.assert_allclose(tree.posteriors_batch(table)["c"], np.full((400, 2), 0.5))
    # one reading decides a little: ln of the ratio is what the densities differ by
    near = tree.posterior("c", {"x1": 1e-3 / distance, "x2": distance})
    assert math.log(near["n"] / near["y"]) == pytest.approx(-1e-3, rel=1e-6 + 1e-13 * distance**2)


def test_numbers_that_no_float64_can_compare() -> None:
    tree = copies(1e9).compile("cpu")
    assert tree.posterior("c", {"x1": 0.0})["n"] == 1.0
    with pytest.raises(errors.EvidenceError, match="check their units"):
        tree.posteriors({"x1": 0.0, "x2": 1e9})


@pytest.mark.parametrize("backend", HERE)
def test_likelihoods_interventions_and_intervals(backend: BackendName) -> None:
    tree, seen = copies().compile(backend), {"x1": 0.0, "x2": 60.0}
    answer = tree.posterior("c", seen, likelihood={"c": {"n": 1e-300, "y": 3e-300}, "d": {"n": 2e300, "y": 1e300}})
    np.testing.assert_allclose(answer, [0.4, 0.6])
    cut = tree.posteriors(seen, do={"d": "y"})
    np.testing.assert_allclose(cut["c"], [1.0, 0.0], atol=1e-300)
    assert cut.log_evidence == pytest.approx(-math.log(2 * math.pi) + math.log(0.5))
    mills = (1 - 60**-2 + 3 * 60**-4) / 60  # P(x > 60) over the density at 60
    odds = mills / math.sqrt(2 * math.pi) / 0.5
    above = tree.posterior("c", {"x1": 0.0, "x2": (60.0, math.inf)})
    np.testing.assert_allclose(above, [odds / (1 + odds), 1 / (1 + odds)], rtol=1e-6)
    assert set(tree.sample(20, seen, likelihood={"c": {"n": 1e-300, "y": 0.0}}, seed=2)["d"]) == {"n"}


def test_cases_of_probability_zero_keep_their_gaps() -> None:
    tree = copies().compile("cpu")
    table = {"c": [None, "n"], "d": ["y", "y"], "x1": [0.0, 0.0], "x2": [60.0, None]}
    with pytest.raises(errors.ImpossibleEvidence, match="row 1"):
        tree.impute(table, seed=1)
    filled = tree.impute(table, seed=1, on_error="flag")
    assert filled["c"].tolist() == ["y", None]
    assert np.isnan(filled["x2"][1])


def test_online_learning_and_em() -> None:
    online = jtgpu.learn.Online(copies(), experience=10)
    online.update({"x1": [0.0], "x2": [60.0]})
    learnt: Any = online.network
    mean = np.asarray(learnt.gaussian("x1").mean)
    assert mean[1] == pytest.approx(10 * 60 / 10.5)
    rows = {"c": [None] * 40, "d": [None] * 40, "x1": [0.0, 0.5] * 20, "x2": [60.0, 59.5] * 20}
    start = copies().compile("cpu")
    sums = fitting.one_pass(start, read_cases(start.network, rows, None, None), np.full(40, 2.0))
    np.testing.assert_allclose(sums.counts["d"], [[40, 0], [0, 40]], rtol=1e-9)
    assert sums.log_likelihood == pytest.approx(
        40 * (-2 * math.log(2 * math.pi) - 1800 - (59.5**2 + 0.25) / 2), rel=1e-12
    )


# Small networks by enumeration.


def far(seed: int) -> tuple[jtgpu.MixedNetwork, dict[str, Any], dict[str, dict[str, float]]]:
    """A network, states and numbers, and likelihoods."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    names = [f"v{i}" for i in range(n)]
    states: dict[str, Any] = {v: [f"s{j}" for j in range(int(rng.integers(2, 4)))] for v in names}
    parents, cpts, distance = {}, {}, float(rng.choice([1, 10, 60, 400]))
    for i, v in enumerate(names):
        parents[v] = names[max(0, i - int(rng.integers(0, 3))) : i]
        shape = [len(states[u]) for u in (*parents[v], v)]
        table = 10.0 ** -rng.uniform(0, rng.choice([1, 100, 300]), shape) * (rng.random(shape) > 0.2)
        table[..., 0] = 0.0
        rest = np.maximum(table.sum(axis=-1, keepdims=True), 1.0)
        table = table / (2 * rest)
        table[..., 0] = 1 - table.sum(axis=-1)
        cpts[v] = table
    values: dict[str, Any] = {}
    for k in range(m):
        y = f"x{k}"
        above = sorted(rng.choice(n, size=int(rng.integers(0, 3)), replace=True).tolist())
        parents[y] = [*dict.fromkeys(names[a] for a in above), *(z for z in values if rng.random() < 0.3)]
        shape = [len(states[u]) for u in parents[y] if u in names]
        slopes = {z: rng.normal(0, 1, shape) for z in parents[y] if z not in names}
        cpts[y] = jtgpu.Gaussian(rng.uniform(-1, 1, shape) * distance, slopes, rng.uniform(0.5, 2, shape))
        states[y] = float
        if rng.random() < 0.8:
            values[y] = float(rng.uniform(-1, 1)) * distance
    net = jtgpu.MixedNetwork(states, parents, cpts)
    hard = {v: f"s{rng.integers(len(states[v]))}" for v in names if rng.random() < 0.2}
    soft = {
        v: {s: float(10.0 ** rng.uniform(-300, 300)) for s in states[v]}
        for v in names
        if v not in hard and rng.random() < 0.3
    }
    return net, {**hard, **values}, soft


def weigh(
    net: jtgpu.MixedNetwork, seen: dict[str, Any], soft: dict[str, dict[str, float]]
) -> dict[tuple[str, ...], float]:
    """ln of the weight of every possible configuration of states; all observed numbers have observed parents."""
    logs, names = {}, [v for v in net if not net.is_number(v)]
    for states in itertools.product(*(net.states(v) for v in names)):
        x = dict(zip(names, states, strict=True))
        at = {v: net.states(v).index(s) for v, s in x.items()}
        parts = [float(np.asarray(net.cpt(v))[(*(at[u] for u in net.parents(v)), at[v])]) for v in names]
        parts += [w[x[v]] for v, w in soft.items()]
        if any(x[v] != s for v, s in seen.items() if v in x) or min(parts) <= 0:
            continue
        terms = [math.log(p) for p in parts]
        for y in net.numbers:
            if y in seen:
                mean, sd = conditional(net, y, at, seen)
                terms += [-0.5 * ((seen[y] - mean) / sd) ** 2, -math.log(sd), -0.5 * math.log(2 * math.pi)]
        logs[states] = math.fsum(terms)
    return logs


def conditional(net: jtgpu.MixedNetwork, y: str, at: dict[str, int], seen: dict[str, Any]) -> tuple[float, float]:
    g, own = net.gaussian(y), tuple(at[u] for u in net.parents(y) if u in at)
    mean = math.fsum([float(g.mean[own]), *(float(c[own]) * seen[z] for z, c in g.coefficients.items())])
    return mean, float(g.sd[own])


@pytest.mark.parametrize("backend", HERE)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_numbers_any_distance_away(backend: BackendName, seed: int) -> None:
    net, seen, soft = far(seed)
    logs, tree = weigh(net, seen, soft), net.compile(backend)
    names = [v for v in net if not net.is_number(v)]
    if not logs:
        with pytest.raises(errors.ImpossibleEvidence):
            tree.posteriors(seen, likelihood=soft)
        return
    total = log_sum(list(logs.values()))
    answer = tree.posteriors(seen, likelihood=soft)
    assert answer.log_evidence == pytest.approx(total, rel=1e-12, abs=1e-9)
    rows = {v: [seen.get(v)] * 3 for v in net}
    weights = {v: [w[s] for s in net.states(v)] for v, w in soft.items()}
    batch = tree.posteriors_batch(rows, likelihood=weights)
    for i, v in enumerate(names):
        for j, s in enumerate(net.states(v)):
            p = math.exp(log_sum([x for states, x in logs.items() if states[i] == s]) - total)
            assert answer[v][s] == pytest.approx(p, rel=1e-7, abs=1e-11)
            assert batch[v][2][j] == pytest.approx(p, rel=1e-7, abs=1e-11)
    for y in net.numbers:
        if y not in seen:
            mean = 0.0
            for states, x in logs.items():
                at = {v: net.states(v).index(s) for v, s in zip(names, states, strict=True)}
                mean += math.exp(x - total) * conditional(net, y, at, seen)[0]
            assert answer[y].mean == pytest.approx(mean, rel=1e-7, abs=1e-7)
    drawn = tree.sample(3, seen, likelihood=soft, seed=1)
    assert all(tuple(drawn[v][i] for v in names) in logs for i in range(3))
    without = weigh(net, seen, {})
    cases = read_cases(net, rows, None, None)
    assert all(tuple(tree.impute(rows, seed=3)[v][2] for v in names) in without for _ in range(1))
    sums = fitting.one_pass(tree, cases, np.array([1.0, 0.0, 2.0]))
    assert sums.log_likelihood == pytest.approx(3 * log_sum(list(without.values())), rel=1e-12, abs=1e-9)
    for i, v in enumerate(names):
        places = [*(names.index(u) for u in net.parents(v)), i]
        right = np.zeros(np.asarray(net.cpt(v)).shape)
        for states, x in without.items():
            p = math.exp(x - log_sum(list(without.values())))
            right[tuple(net.states(names[k]).index(states[k]) for k in places)] += 3 * p
        np.testing.assert_allclose(sums.counts[v], right, rtol=1e-7, atol=1e-10)


def test_ordinary_cases_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("extended numbers")

    monkeypatch.setattr(sets.ExtendedCase, "__init__", refuse)
    tree = copies().compile("cpu")  # far from one of the states, near the other
    answer = tree.posteriors_batch({"x1": [0.0, 60.0, 1.0], "x2": [0.0, 60.0, 2.0], "c": [None, "y", None]})
    np.testing.assert_allclose(answer["d"], [[1, 0], [0, 1], [1, 0]], atol=1e-300)


@pytest.mark.parametrize("size", [1e-160, 1e160])
def test_densities_whose_squares_are_no_numbers_are_refused(size: float) -> None:
    large = jtgpu.Gaussian(max(size, 1 / size)), jtgpu.Gaussian(0.0, {"b": 1e160})
    for density in (jtgpu.Gaussian(0.0, sd=size), *large):
        states, parents = {"b": float, "a": float}, {"a": ["b"] if density.coefficients else []}
        with pytest.raises(jtgpu.NetworkError, match=r"of 'a' is .*change its unit"):
            jtgpu.MixedNetwork(states, parents, {"a": density, "b": jtgpu.Gaussian(0.0)})


def test_exponents_beyond_integers_are_refused_without_a_warning() -> None:
    states: dict[str, Any] = {"c": ["n", "y"], "d": ["n", "y"], "x1": float, "x2": float}
    densities = {x: jtgpu.Gaussian([0.0, 1e30]) for x in ("x1", "x2")}
    cpts: dict[str, Any] = {"c": [0.5, 0.5], "d": np.eye(2), **densities}
    tree = jtgpu.MixedNetwork(states, {"d": ["c"], "x1": ["c"], "x2": ["d"]}, cpts).compile("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(jtgpu.EvidenceError, match="float64 cannot tell which states"):
            tree.posterior("c", {"x1": 0.0, "x2": 9e29})
