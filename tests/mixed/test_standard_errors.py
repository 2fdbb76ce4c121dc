"""Standard errors of mixed networks against least squares, and against the spread of repeated fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError

STRUCTURE: dict[str, list[str]] = {"g": [], "x": ["g"], "y": ["g", "x"]}


def sample(seed: int, n: int = 200) -> dict[str, Any]:
    r = np.random.default_rng(seed)
    g = (r.random(n) < 0.3).astype(int)
    x = 1e3 + 5 * g + 2 * r.normal(size=n)
    y = 1e-3 * (np.array([1.0, -2.0])[g] * x + np.array([1.0, 3.0])[g] * r.normal(size=n))
    return {"g": np.array(["a", "b"])[g], "x": x, "y": y}


def fitted(data: dict[str, Any], **options: Any) -> Any:
    return jtgpu.learn.fit(STRUCTURE, data, numbers={"x": "gaussian", "y": "gaussian"}, prior=0, **options)


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
    fit: Any = jtgpu.learn.fit(STRUCTURE, data, numbers={"x": "gaussian", "y": "gaussian"}, weights=weights)
    errors = fit.standard_errors("y")
    assert np.isinf([errors.mean[1], errors.coefficients["x"][1], errors.sd[1]]).all()
    assert np.isfinite([errors.mean[0], errors.coefficients["x"][0], errors.sd[0]]).all()
    holes = {**data, "x": np.where(np.arange(40) < 2, np.nan, data["x"])}
    with pytest.raises(ArgumentError, match="need complete rows: fit with missing='drop'"):
        fitted(holes).standard_errors("y")
    assert np.isfinite(fitted(holes, missing="drop").standard_errors("y").sd).all()
