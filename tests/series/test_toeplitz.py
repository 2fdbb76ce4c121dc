"""Levinson's recursion: against 120-digit arithmetic, SciPy and statsmodels; batches, flagged systems, shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jtgpu import DataError, series
from jtgpu.errors import ArgumentError

scipy_linalg = pytest.importorskip("scipy.linalg")
pytest.importorskip("mpmath")
from tests.series.systems import HARD, autocovariances_of, exact_predictors  # noqa: E402

BACKENDS = ("cpu", "reference")


def batch(n: int, p: int, seed: int) -> NDArray[np.float64]:
    """Autocovariances of short random series, (n, p+1)."""
    return series.autocovariance(np.random.default_rng(seed).standard_normal((n, 3 * p + 8)), p)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", HARD)
def test_predictors_agree_with_120_digits(name: str, backend: Any) -> None:
    r = HARD[name]
    found = series.levinson(r, backend=backend)
    coef, partial, _ = exact_predictors(r)
    scipy_error = farthest(scipy_linalg.solve_toeplitz(r[:-1], r[1:]), coef)
    assert found.stops_at == -1
    assert farthest(found.coef, coef) < max(1e-10, 20 * scipy_error)
    assert farthest(found.partial, partial) < max(1e-10, 20 * scipy_error)


def farthest(found: NDArray[np.float64], exact: list[Any]) -> float:
    """The largest error of some numbers."""
    return max(abs(float(x - y)) for x, y in zip(found.tolist(), exact, strict=True))


@pytest.mark.parametrize("n_lags", [1, 2, 3, 16, 17, 65, 66, 130])
def test_all_orders_agree_with_statsmodels(n_lags: int) -> None:
    stattools = pytest.importorskip("statsmodels.tsa.stattools")
    r = batch(1, n_lags - 1, n_lags)[0]
    found = series.levinson(r)
    if n_lags == 1:
        assert found.coef.shape == (0,)
        assert found.sigma2.tolist() == r.tolist()
        return
    _, coef, partial, sigma2, every = stattools.levinson_durbin(r, n_lags - 1, isacov=True)
    np.testing.assert_allclose(found.coef, coef, atol=1e-13)
    np.testing.assert_allclose(found.partial, partial, atol=1e-13)
    np.testing.assert_allclose(found.sigma2[1:], sigma2[1:], rtol=1e-12)
    for m in (0, 1, n_lags // 2):
        np.testing.assert_allclose(found.at_order(m), every[1 : m + 1, m], atol=1e-13)


@pytest.mark.parametrize("p", [7, 16, 64, 65])
def test_a_system_has_the_same_bits_alone_and_in_a_batch(p: int) -> None:
    r = batch(37, p, 3)
    together = series.levinson(r)
    for s in (0, 15, 16, 36):
        for alone, field in zip(series.levinson(r[s]), together, strict=True):
            assert np.array_equal(alone, field[s])


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jtgpu.series.workers.ENOUGH", 100)
    r = batch(50, 12, 4)
    for one, three in zip(series.levinson(r, threads=1), series.levinson(r, threads=3), strict=True):
        assert np.array_equal(one, three)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("p", [9, 70])
def test_bad_systems_are_flagged_and_their_neighbours_untouched(p: int, backend: Any) -> None:
    good = batch(300, p, 5)
    r = good.copy()
    r[17, 4] = np.nan
    r[100, 0] = 0.0
    r[299, 3] = 2 * r[299, 0]  # no covariance
    found, expected = series.levinson(r, backend=backend), series.levinson(good, backend=backend)
    bad = [17, 100, 299]
    assert [int(found.stops_at[s]) for s in bad] == [4, 0, 3]
    others = np.setdiff1d(np.arange(300), bad)
    for field, clean in zip(found, expected, strict=True):
        assert np.array_equal(field[others], clean[others])
        assert np.isfinite(field).all()
    assert np.array_equal(found.partial[17, :4], expected.partial[17, :4])
    assert not found.partial[17, 4:].any()
    np.testing.assert_allclose(found.coef[17, :3], expected.at_order(3)[17], atol=1e-14)
    with pytest.raises(DataError, match="system 17 has no predictor of order 4"):
        series.levinson(r, on_error="error", backend=backend)


@pytest.mark.parametrize("r", [[np.nan, 1.0], [-1.0, 0.5], [np.inf, 1.0], [0.0, 0.0]])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_variance_that_is_none_stops_at_order_zero(r: list[float], backend: Any) -> None:
    found = series.levinson(r, backend=backend)
    assert found.stops_at == 0
    assert found.sigma2.tolist() == [0.0, 0.0]


def test_a_deterministic_series_stops_where_nothing_remains() -> None:
    assert series.levinson(np.cos(0.3 * np.arange(6))).stops_at == 2
    assert series.levinson(autocovariances_of([0.5, 1.0, 0.0])).stops_at == 2


@pytest.mark.parametrize("n", [1, 2, 5, 64, 65, 101])
@pytest.mark.parametrize("backend", BACKENDS)
def test_solutions_agree_with_scipy(n: int, backend: Any) -> None:
    rng = np.random.default_rng(n)
    c = batch(3, n - 1, n) if n > 1 else np.ones((3, 1))
    c[:, 0] *= 1.1
    for b in (rng.standard_normal(n), rng.standard_normal((n, 3)), rng.standard_normal((3, n, 2))):
        found = series.solve_toeplitz(c if b.ndim == 3 else c[0], b, backend=backend)
        wanted = scipy_linalg.solve_toeplitz(c if b.ndim == 3 else c[0], b)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
    b = rng.standard_normal(n)
    np.testing.assert_allclose(series.solve_toeplitz(c, b, backend=backend)[2], scipy_linalg.solve_toeplitz(c[2], b))


@pytest.mark.parametrize("name", HARD)
def test_residuals_of_hard_systems_are_those_of_scipy(name: str) -> None:
    c = HARD[name]
    b = np.random.default_rng(7).standard_normal(len(c))
    ours, theirs = series.solve_toeplitz(c, b), scipy_linalg.solve_toeplitz(c, b)
    matrix = scipy_linalg.toeplitz(c)
    scale = np.abs(theirs).max()
    assert np.abs(matrix @ ours - b).max() < 3 * np.abs(matrix @ theirs - b).max() + 1e-14 * scale


@pytest.mark.parametrize("backend", BACKENDS)
def test_indefinite_systems_are_solved_and_singular_ones_refused(backend: Any) -> None:
    c, b = np.array([1.0, 3.0, 0.5, -2.0]), np.arange(4.0)
    np.testing.assert_allclose(
        series.solve_toeplitz(c, b, backend=backend), np.linalg.solve(scipy_linalg.toeplitz(c), b), atol=1e-13
    )
    with pytest.raises(DataError, match=r"leading minor of size 2 is singular .* numpy.linalg.solve"):
        series.solve_toeplitz([1.0, 1.0, 0.3], [1.0, 2.0, 3.0], backend=backend)
    with pytest.raises(DataError, match="leading minor of size 1"):
        series.solve_toeplitz([0.0, 1.0], [1.0, 2.0], backend=backend)


def test_empty_systems_and_batches() -> None:
    assert series.solve_toeplitz(np.zeros(0), np.zeros(0)).shape == (0,)
    assert series.solve_toeplitz([3.0, 1.0, 1.0], np.zeros((3, 0))).shape == (3, 0)
    assert series.levinson(np.ones((0, 4))).coef.shape == (0, 3)
    with pytest.raises(ArgumentError, match="lag 0"):
        series.levinson(np.zeros((2, 0)))


@pytest.mark.parametrize(
    ("c", "b", "message"),
    [
        ([1.0, 0.5], [1.0], "c has 2 entries, but b has 1 rows"),
        ([1.0, np.nan], [1.0, 2.0], r"c has a value that is not finite at index \(1,\)"),
        (np.ones((2, 3)), np.ones((4, 3, 1)), "cannot be broadcast"),
    ],
)
def test_what_cannot_be_solved_is_said(c: object, b: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        series.solve_toeplitz(c, b)


def test_other_toeplitz_matrices_are_left_to_scipy() -> None:
    with pytest.raises(ArgumentError, match=r"scipy\.linalg\.solve_toeplitz"):
        series.solve_toeplitz(([1.0, 0.5], [1.0, 0.2]), [1.0, 2.0])
