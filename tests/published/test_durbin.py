"""PolyBench's durbin in its published versions: one recurrence, whatever the parity and the number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from jtgpu.errors import ArgumentError, TableTooLarge
from jtgpu.published.durbin import KERNELS, VERSIONS, durbin32


def recurrence(r: NDArray[np.float64]) -> NDArray[np.float64]:
    """The recurrence as PolyBench 3.2 defines it."""
    y, beta, alpha = np.zeros(len(r)), 1.0, r[0]
    y[0] = r[0]
    for k in range(1, len(r)):
        beta -= alpha * alpha * beta
        alpha = -(r[k] + r[k - 1 :: -1] @ y[:k]) * beta
        y[:k] += alpha * y[:k][::-1].copy()
        y[k] = alpha
    return y


@pytest.mark.parametrize("n", [1, 2, 3, 99, 100, 101, 1030])
@pytest.mark.parametrize("version", [v for v in VERSIONS if v not in KERNELS])
def test_the_versions_agree(n: int, version: str) -> None:
    r = np.random.default_rng(n).uniform(-1, 1, n) / np.sqrt(n) / 2
    np.testing.assert_allclose(durbin32(r, version), recurrence(r), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 99, 100, 101, 530])
@pytest.mark.parametrize("version", KERNELS)
@pytest.mark.usefixtures("emulated_gpu")
def test_the_versions_of_the_gpu_agree(n: int, version: str) -> None:
    r = np.random.default_rng(n).uniform(-1, 1, n) / np.sqrt(n) / 2
    found = durbin32(r, version)
    np.testing.assert_allclose(found, recurrence(r), atol=1e-12)
    assert np.array_equal(found, durbin32(r, version))


def test_threads_change_no_bit() -> None:
    r = np.random.default_rng(1).uniform(-1, 1, 1301) / 80
    assert len({durbin32(r, "openmp", threads=n).tobytes() for n in (1, 2, 3)}) == 1


def test_the_recurrence_is_not_a_solver() -> None:
    r = np.array([0.5, 0.25, 0.1])
    assert abs(durbin32(r)[0] - np.linalg.solve([[1, 0.5, 0.25], [0.5, 1, 0.5], [0.25, 0.5, 1]], r)[0]) > 0.01


def test_wrong_versions_and_matrices_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert durbin32([]).shape == (0,)
    with pytest.raises(ArgumentError, match="version must be"):
        durbin32([1.0], "parallel")
    monkeypatch.setattr("jtgpu.published.durbin.free_memory", lambda: 1000)
    with pytest.raises(TableTooLarge, match="use 'reworked'"):
        durbin32(np.ones(100), "sequential")
