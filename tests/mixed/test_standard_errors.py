"""Standard errors of mixed networks against least squares, and against the spread of repeated fits."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.learn.parameters.value_steps import Values

STRUCTURE: dict[str, list[str]] = {"g": [], "x": ["g"], "y": ["g", "x"]}


def sample(seed: int, n: int = 200) -> dict[str, Any]:
    r = np.random.default_rng(seed)
    g = (r.random(n) < 0.3).astype(int)
    x = 1e3 + 5 * g + 2 * r.normal(size=n)
    y = 1e-3 * (np.array([1.0, -2.0])[g] * x + np.array([1.0, 3.0])[g] * r.normal(size=n))
    return {"g": np.array(["a", "b"])[g], "x": x, "y": y}


def fitted(data: dict[str, Any], **options: Any) -> Any:
    return jtgpu.learn.fit(STRUCTURE, data, continuous={"x": "gaussian", "y": "gaussian"}, pseudo_counts=0, **options)


def test_least_squares() -> None:
    data = sample(0)
    fit = fitted(data)
    errors = fit.standard_errors("y")
    for k, state in enumerate("ab"):
        own = data["g"] == state
        design = np.column_stack([np.ones(own.sum()), data["x"][own]])
        q, r = np.linalg.qr(design)
        residual = data["y"][own] - q @ (q.T @ data["y"][own])
        inverse = np.linalg.inv(r)
        expected = residual.std() * np.sqrt((inverse**2).sum(axis=1))
        got = [errors.mean[k], errors.coefficients["x"][k]]
        np.testing.assert_allclose(got, expected, rtol=1e-7)
        assert errors.sd[k] == pytest.approx(residual.std() / np.sqrt(2 * own.sum()), rel=1e-7)
    n, p = len(data["g"]), float((data["g"] == "a").mean())
    np.testing.assert_allclose(fit.standard_errors("g"), [np.sqrt(p * (1 - p) / n)] * 2, rtol=1e-12)
    assert fit.standard_errors("x").coefficients == {}


@pytest.mark.slow
def test_spread_of_repeated_fits() -> None:
    fits = [fitted(sample(seed)) for seed in range(1, 201)]
    slopes = np.array([f.network.gaussian("y").coefficients["x"] for f in fits])
    spreads = np.array([f.network.gaussian("y").sd for f in fits])
    errors = [f.standard_errors("y") for f in fits]
    np.testing.assert_allclose(np.mean([e.coefficients["x"] for e in errors], axis=0), slopes.std(axis=0), rtol=0.2)
    np.testing.assert_allclose(np.mean([e.sd for e in errors], axis=0), spreads.std(axis=0), rtol=0.2)


def test_what_the_rows_do_not_determine() -> None:
    data = sample(3, 40)
    weights = np.where(data["g"] == "b", 0.0, 2.0)
    fit: Any = jtgpu.learn.fit(STRUCTURE, data, continuous={"x": "gaussian", "y": "gaussian"}, weights=weights)
    errors = fit.standard_errors("y")
    assert np.isinf([errors.mean[1], errors.coefficients["x"][1], errors.sd[1]]).all()
    assert np.isfinite([errors.mean[0], errors.coefficients["x"][0], errors.sd[0]]).all()
    holes = {**data, "x": np.where(np.arange(40) < 2, np.nan, data["x"])}
    assert np.isfinite(fitted(holes).standard_errors("y").sd).all()
    assert np.isfinite(fitted(holes, missing="drop").standard_errors("y").sd).all()


def with_holes(seed: int, n: int) -> dict[str, Any]:
    r = np.random.default_rng(seed)
    missing: Any = None
    return {v: np.where(r.random(n) < 0.25, missing, np.array(x, object)) for v, x in sample(seed, n).items()}


def log_likelihood(theta: Any, data: dict[str, Any]) -> float:
    """Of the rows, by enumeration of g and SciPy's normal distribution of the numbers that are observed."""
    normal = pytest.importorskip("scipy.stats").multivariate_normal
    p = theta[0]
    mean_x, sd_x, mean_y, slope, sd_y = theta[1:].reshape(5, 2)
    total = np.zeros((len(data["g"]), 2))
    for k in (0, 1):
        mean = np.array([mean_x[k], mean_y[k] + slope[k] * mean_x[k]])
        both = slope[k] * sd_x[k] ** 2
        cov = np.array([[sd_x[k] ** 2, both], [both, sd_y[k] ** 2 + slope[k] * both]])
        for i, row in enumerate(zip(*(data[v] for v in "gxy"), strict=True)):
            seen = [j for j in (0, 1) if row[1 + j] is not None]
            density = normal(mean[seen], cov[np.ix_(seen, seen)]).pdf([row[1 + j] for j in seen]) if seen else 1.0
            total[i, k] = density * (p, 1 - p)[k] * (row[0] in ("ab"[k], None))
    return float(np.log(total.sum(axis=1)).sum())


@pytest.mark.slow
def test_em_has_the_curvature_of_the_likelihood() -> None:
    data = with_holes(4, 40)
    fit = fitted(data, em=jtgpu.learn.EM(tolerance=1e-14, iterations=5000))
    net = fit.network
    x, y = net.gaussian("x"), net.gaussian("y")
    theta = np.concatenate([[net.cpt("g")[0]], x.mean, x.sd, y.mean, y.coefficients["x"], y.sd])
    ex, ey = fit.standard_errors("x"), fit.standard_errors("y")
    errors = np.concatenate([[fit.standard_errors("g")[0]], ex.mean, ex.sd, ey.mean, ey.coefficients["x"], ey.sd])
    assert log_likelihood(theta, data) == pytest.approx(fit.log_likelihood)
    # the intercept of y is for x = 0, far away: y is measured from the mean of x to have a curvature with digits
    n, centre, h = len(theta), np.tile(1e3, 2), np.diag(errors) * 2e-2
    h[5:7, 5:7] = np.diag(ey.coefficients["x"]) * 0.02
    for k in (0, 1):
        h[7 + k, 5 + k] = -centre[k] * h[7 + k, 7 + k]
    hessian = np.empty((n, n))
    for i in range(n):
        for j in range(i + 1):
            corners = [log_likelihood(theta + a * h[i] + b * h[j], data) * a * b for a in (1, -1) for b in (1, -1)]
            hessian[i, j] = hessian[j, i] = sum(corners) / 4
    cov = h.T @ np.linalg.inv(-hessian) @ h
    np.testing.assert_allclose(errors, np.sqrt(np.diagonal(cov)), rtol=5e-3)


def test_em_says_what_it_does_not_know() -> None:
    data = with_holes(5, 50)
    early = fitted(data, em=jtgpu.learn.EM(iterations=1))
    with pytest.warns(UserWarning, match="rough: EM stopped .* standard errors from a peak"):
        early.standard_errors("x")
    weights = np.where(data["g"] == "b", 0.0, 1.0)
    errors = fitted({**data, "g": np.where(data["g"] == "b", "b", "a")}, weights=weights).standard_errors("y")
    assert np.isfinite(errors.sd[0])
    assert np.isinf([errors.mean[1], errors.coefficients["x"][1], errors.sd[1]]).all()


def test_rows_that_have_a_family_are_not_passed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = fitted(with_holes(6, 60), em=jtgpu.learn.EM(tolerance=1e-9))
    found = fit.standard_errors("y")
    fit = fitted(with_holes(6, 60), em=jtgpu.learn.EM(tolerance=1e-9))
    every = np.arange(60)
    monkeypatch.setattr("jtgpu.learn.parameters.value_steps.Values.incomplete", lambda *_: every)
    expected = fit.standard_errors("y")
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-4)
    np.testing.assert_allclose(found.sd, expected.sd, rtol=1e-4)


def test_sums_of_a_moved_family_are_those_of_a_pass() -> None:
    fit = fitted(with_holes(3, 150))
    cases, weights, strength, *_ = fit._rows
    with closing(Values(fit.network, cases, weights, strength, {})) as values:
        theta, rows = values.first, np.arange(0, 150, 2)
        for family in values.families:
            (v,) = family.members
            table = theta[v] ** 0.9 if v == 0 else theta[v] * 0.999
            table = table / table.sum() if v == 0 else table
            _, moved = values.some(theta, (v,), [theta[v], table], rows)
            others = np.setdiff1d(np.arange(150), rows)
            (rest,) = values.some(theta, (v,), [table], others)
            whole = values.evaluate([table if u == v else own for u, own in enumerate(theta)]).sums
            for own, a, b in zip(whole, moved, rest, strict=True):
                np.testing.assert_allclose(a + b, own, rtol=1e-9, atol=1e-9)


def test_scores_of_rows_add_up_to_those_of_a_pass() -> None:
    cases, weights, strength, *_ = fitted(with_holes(3, 150))._rows
    net = fitted(with_holes(4, 150)).network
    with closing(Values(net, cases, weights, strength, {})) as values:
        whole = values.evaluate(values.first).sums
        each = [[weight * x for x in sums] for weight, sums in values.each(values.first)]
        for own, total in zip(zip(*each, strict=True), whole, strict=True):
            np.testing.assert_allclose(np.sum(own, axis=0), total, rtol=1e-9, atol=1e-9)


def test_errors_from_scores_are_near_those_of_the_information() -> None:
    data = with_holes(8, 1500)
    found = [fitted(data, em=jtgpu.learn.EM(standard_errors=how, tolerance=1e-9)) for how in ("information", "scores")]
    for y in ("x", "y"):
        a, b = (f.standard_errors(y) for f in found)
        np.testing.assert_allclose(b.mean, a.mean, rtol=0.15)
        np.testing.assert_allclose(b.sd, a.sd, rtol=0.15)


@pytest.mark.parametrize("apart", [1e-2, 1e-5])
def test_errors_of_complete_rows_keep_digits_where_parents_are_nearly_collinear(apart: float) -> None:
    rng, n = np.random.default_rng(0), 300
    x = rng.normal(size=n)
    z = x + apart * rng.normal(size=n)
    data = {"x": x + 1e3, "z": z + 1e3, "y": x + z + rng.normal(size=n)}
    fit: Any = jtgpu.learn.fit({"z": ["x"], "y": ["x", "z"]}, data, continuous="gaussian", pseudo_counts=0)
    design = np.column_stack([x, z])
    design -= design.mean(axis=0)
    expected = fit.network.gaussian("y").sd * np.sqrt((np.linalg.inv(np.linalg.qr(design)[1]) ** 2).sum(axis=1))
    errors = fit.standard_errors("y").coefficients
    np.testing.assert_allclose([errors["x"], errors["z"]], expected, rtol=1e-4)
    prior: Any = jtgpu.learn.fit({"z": ["x"], "y": ["x", "z"]}, data, continuous="gaussian", pseudo_counts=100)
    shrunk = prior.standard_errors("y").coefficients["x"]
    assert shrunk == pytest.approx(errors["x"] * np.sqrt(n / (n + 100)), rel=1e-3)
