"""`Online` and `check` with numbers, against least squares, EM and repeated samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import Gaussian
from jtgpu.errors import DataError, ImpossibleEvidence
from jtgpu.learn import NumberCheck, Online, check
from tests.mixed.test_lauritzen import incinerator

fit: Any = jtgpu.learn.fit


def small() -> jtgpu.MixedNetwork:
    line = Gaussian([0, 1.0], {"x": [2, -0.01]}, sd=[1, 2])
    return jtgpu.MixedNetwork(
        {"g": ["a", "b"], "x": float, "y": float}, {"x": ["g"], "y": ["g", "x"]},
        {"g": [0.4, 0.6], "x": Gaussian([1.0, 200.0], sd=[1, 3]), "y": line},
    )  # fmt: skip


def check_equal(one: Any, other: Any, rtol: float = 1e-8) -> None:
    for v in one:
        if one.is_number(v):
            a, b = one.gaussian(v), other.gaussian(v)
            pairs = [(a.mean, b.mean), (a.sd, b.sd), *((a.coefficients[p], b.coefficients[p]) for p in a.coefficients)]
            for p, q in pairs:
                np.testing.assert_allclose(p, q, rtol=rtol, atol=1e-9)
        else:
            np.testing.assert_allclose(one.cpt(v), other.cpt(v), rtol=rtol)


def test_complete_cases_are_counted() -> None:
    net = small()
    cases = net.compile("cpu").sample(300, seed=1).to_frame()
    learner: Any = Online(net, experience=0)
    learner.update(cases[:120])
    learner.update(cases[120:])
    check_equal(learner.network, fit(net, cases, pseudo_counts=0).network)
    assert learner.n_cases == 300
    assert learner.experience("y") == pytest.approx(cases["g"].value_counts()[["a", "b"]])


def test_experience_is_cases_of_the_network() -> None:
    net, n = small(), 7.0
    cases = net.compile("cpu").sample(50, seed=2).to_frame()
    learner: Any = Online(net.compile("cpu"), experience={"y": n}, fixed=["x"])
    check_equal(learner.network, net)
    learner.update(cases)
    for k, (mean, sd, line, s) in enumerate([(1.0, 1.0, [0.0, 2.0], 1.0), (200.0, 3.0, [1.0, -0.01], 2.0)]):
        own = cases[cases["g"] == "ab"[k]]
        z = np.column_stack([np.ones(len(own)), own["x"]])
        old = n * np.array([[1, mean], [mean, mean**2 + sd**2]])
        beta = np.linalg.solve(old + z.T @ z, old @ line + z.T @ own["y"])
        rest = np.array(line) - beta
        square = n * s**2 + rest @ old @ rest + ((own["y"] - z @ beta) ** 2).sum()
        y = learner.network.gaussian("y")
        assert [y.mean[k], y.coefficients["x"][k]] == pytest.approx(beta, rel=1e-6)
        assert y.sd[k] == pytest.approx(np.sqrt(square / (n + len(own))), rel=1e-8)
    assert learner.network.gaussian("x") == net.gaussian("x")


def test_gaps_are_a_step_of_em() -> None:
    net = small()
    cases = net.compile("cpu").sample(200, seed=3).to_frame()
    cases.loc[:60, "x"] = None
    cases.loc[40:90, "g"] = None
    cases.loc[150:, "y"] = None
    learner: Any = Online(net, experience=0)
    learner.update(cases)
    check_equal(learner.network, fit(net, cases, pseudo_counts=0, em=jtgpu.learn.EM(start=net, iterations=1)).network)


def test_fading_taking_back_and_errors() -> None:
    net = small()
    cases = net.compile("cpu").sample(20, seed=4).to_frame().to_dict("records")
    one, many = Online(net, fading=0.9), Online(net, fading=0.9)
    one.update(cases)
    for case in cases:
        many.update(case)
    check_equal(one.network, many.network)
    assert one.experience("x").sum() == pytest.approx(2 * 0.9**20 + sum(0.9**i for i in range(20)))
    back: Any = Online(net)
    back.update(cases)
    back.update(cases, weights=-np.ones(20))
    check_equal(back.network, net, rtol=1e-6)
    before = back.network
    with pytest.raises(DataError, match="would make counts of"):
        back.update(cases, weights=-np.ones(20))
    assert back.network is before
    with pytest.raises(DataError, match="experience= above 0"):
        Online(net, experience=0).update(cases[0])
    sure = net.replace(cpt={"g": [1.0, 0.0]})
    with pytest.raises(ImpossibleEvidence):
        Online(sure).update({"g": "b"})
    Online(sure).update([{"g": "b"}, {"g": "a", "x": 1.0}], on_error="flag")


def test_check_of_samples() -> None:
    net = incinerator()
    names, z = ["B", "E", "D", "Mout"], []
    result: Any = None
    for seed in range(60):
        result = check(net, net.compile("cpu").sample(400, seed=seed).to_frame(), names)
        z.append(result.z[[q.startswith(("mean", "sd")) for q in result.quantities]])
    assert isinstance(result, NumberCheck)
    assert np.mean(z) == pytest.approx(0, abs=0.15)
    assert np.std(z, axis=0) == pytest.approx(np.ones(len(z[0])), abs=0.4)
    mean, cov = net.compile("cpu").moments(["E", "D", "Mout"], {"B": "unstable"})
    rows = [i for i, cell in enumerate(result.cells) if cell == {"B": "unstable"}]
    expected = dict(zip([result.quantities[i] for i in rows], result.expected[rows], strict=True))
    assert expected["mean D"] == pytest.approx(mean[1])
    assert expected["sd Mout"] == pytest.approx(np.sqrt(cov[2, 2]))
    assert expected["correlation E, D"] == pytest.approx(cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1]))
    assert list(result.to_frame()["quantity"]) == result.quantities


@pytest.mark.parametrize("base", [0.0, 1e4])
def test_check_prints_no_rounding(base: float) -> None:
    """A fit without a prior has the moments of its data: z is 0, on every processor (O15), and far from 0 as well."""
    x, noise = np.random.default_rng(0).normal(base, 2, size=(2, 500))
    cases = {"x": x, "y": 1.7 * x + noise}
    found: Any = check(fit({"y": ["x"]}, cases, continuous="gaussian", pseudo_counts=0).network, cases, ["x", "y"])
    assert found.z.tolist() == [0] * 5
    lines = str(found).splitlines()[2:]
    assert [line.split()[-1] for line in lines] == ["0.000000"] * 5


def test_check_of_numbers_far_from_zero() -> None:
    """Times in seconds since 1970: moments about 0 have no digits left for the spread."""
    t = 1.7e9 + np.random.default_rng(0).normal(0, 2, 500)
    cases = {"t": t, "y": t - 1.7e9 + np.random.default_rng(1).normal(0, 0.5, 500)}
    found: Any = check(fit({"y": ["t"]}, cases, continuous="gaussian", pseudo_counts=0).network, cases, ["t", "y"])
    assert found.expected[[1, 3, 4]] == pytest.approx(found.observed[[1, 3, 4]], rel=1e-6)


def test_check_shows_a_missing_arc() -> None:
    net = small()
    cases = net.compile("cpu").sample(500, seed=5).to_frame()
    poor = fit({"x": ["g"], "y": ["g"]}, cases, continuous="gaussian").network
    wrong: Any = check(poor, cases, ["g", "x", "y"])
    by_name = {(c["g"], q): z for c, q, z in zip(wrong.cells, wrong.quantities, wrong.z, strict=True)}
    assert by_name["a", "correlation x, y"] > 10
    assert abs(by_name["a", "mean y"]) < 3
    family: Any = check(net, cases, "y")
    assert np.abs(family.z).max() < 4.5
    assert check(net, cases, "g").rows == 500
    with pytest.raises(DataError, match="probability 0"):
        check(net.replace(cpt={"g": [1.0, 0.0]}), cases, "x")
