"""What the GPU has to compute, compared with the CPU; on emulated and on real GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jtgpu import series
from jtgpu.device.context import Device
from jtgpu.series.gpu_run import BLOCK, CLUSTER, GRID, SchurJob
from tests.series.device_arrays import ByDlpack, ByInterface

__all__ = [
    "check_designs",
    "check_device_arrays",
    "check_fits",
    "check_hard_systems",
    "check_predictors",
    "check_solutions",
]

FIELDS = ("coef", "partial", "sigma2", "mean", "order", "stops_at", "variance")


def random_series(n: int, n_times: int, seed: int) -> NDArray[np.float64]:
    """Series with memory, a level of 100 and some bad ones."""
    rng = np.random.default_rng(seed)
    x: NDArray[np.float64] = rng.standard_normal((n, n_times)).cumsum(1) * 0.3 + rng.standard_normal((n, n_times)) + 100
    if n > 12:
        x[3, n_times // 2], x[7], x[9, 1], x[11] = np.nan, 4.25, np.inf, x[11] * 1e200
    return x


def assert_same(found: series.Autoregression, wanted: series.Autoregression, tolerance: float) -> None:
    """Fail if models differ."""
    for field in FIELDS:
        a, b = getattr(found, field), getattr(wanted, field)
        assert a.shape == b.shape, field
        assert a.dtype == b.dtype, field
        assert np.isfinite(a).all(), field
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=field)


def check_fits(n: int, shapes: list[tuple[int, int]], devices: Any = None) -> None:
    """Models of orders p of series of T values, (p, T); bad ones are flagged and leave the others alone."""
    for p, n_times in shapes:
        x = random_series(n, n_times, p)
        for order in ("bic", "aic", p):
            for demean in (True, False):
                options: dict[str, Any] = {"max_order": p, "demean": demean, "on_error": "flag"}
                found = series.ar(x, order, backend="gpu", devices=devices, **options)
                assert found.backend == "gpu"
                assert_same(found, series.ar(x, order, **options), 1e-10)
        alone = series.ar(x[5], p, backend="gpu")
        assert np.array_equal(alone.partial, series.ar(x, p, on_error="flag", backend="gpu").partial[5])


def check_predictors(sizes: list[tuple[int, int]], devices: Any = None) -> None:
    """Predictors of n systems of order p, (n, p), one of them without some order and one without any."""
    for n, p in sizes:
        rng = np.random.default_rng(p)
        r = series.autocovariance(rng.standard_normal((n, 2 * p + 60)), p)
        if n > 3 and p > 2:
            r[1, 2], r[2, 0], r[3, p] = 3 * r[1, 0], -1.0, np.nan
        found, wanted = (series.levinson(r, backend=b, devices=devices) for b in ("gpu", "cpu"))
        for name, a, b in zip(wanted._fields, found, wanted, strict=True):
            assert np.isfinite(a).all(), name
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11, err_msg=f"{name}, order {p}")
        again = series.levinson(r, backend="gpu", devices=devices)
        assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))


def check_designs(device: Device, n: int, designs: list[tuple[int, int, int]]) -> None:
    """One system by all designs (barrier, blocks, warps): the same answer, launched twice."""
    rng = np.random.default_rng(n)
    r = series.autocovariance(rng.standard_normal(2 * n), n - 1)
    wanted = series.levinson(r)
    with device.active():
        stream = device.stream()
        c = ByInterface(device, r)
        last = ByInterface(device, np.array([n - 1], np.int32))
        try:
            for design in designs:
                job = SchurJob(device, int(c.memory), 1, n, stream, last=int(last.memory), design=design)
                for _ in range(2):
                    job.queue(stream)
                    found = job.download(stream)
                    np.testing.assert_allclose(found.filter[0], wanted.coef, atol=1e-11, err_msg=f"{design}")
                    np.testing.assert_allclose(found.sigma2[0], wanted.sigma2, rtol=1e-11, err_msg=f"{design}")
                job.close()
        finally:
            c.close()
            last.close()
        del stream


def check_solutions(sizes: list[tuple[int, int, int]], devices: Any = None) -> None:
    """Solutions of B systems of size N for K right-hand sides, (B, N, K)."""
    for n_systems, n, k in sizes:
        rng = np.random.default_rng(n)
        c = rng.uniform(-1, 1, (n_systems, n)) / n
        c[:, 0] = 1.0 + rng.uniform(0, 1, n_systems)
        c[0, 0] *= -1.0
        b = rng.standard_normal((n_systems, n, k))
        found, wanted = (series.solve_toeplitz(c, b, backend=name, devices=devices) for name in ("gpu", "cpu"))
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10, err_msg=f"N = {n}")


def check_hard_systems(systems: dict[str, NDArray[np.float64]], exact: Any) -> None:
    """Systems of which the predictors are known to 120 digits."""
    worst = {"even64": 1e-9, "near_singular": 1e-9, "nearer_singular": 1e-5}
    for name, r in systems.items():
        wanted = np.array([float(a) for a in exact(r)[0]])
        for found in (series.levinson(r, backend="gpu"), series.levinson(np.tile(r, (40, 1)), backend="gpu")):
            assert np.abs(found.coef - wanted).max() < worst.get(name, 1e-10), name


def check_device_arrays(device: Device, n: int, n_times: int) -> None:
    """Arrays that are in the GPU's memory are read there, whatever exports them."""
    x = random_series(n, n_times, 1)
    x[11] = 4.0  # values that overflow float32
    wanted = series.ar(x, on_error="flag")
    with device.active():
        arrays = [ByInterface(device, x), ByInterface(device, x.astype(np.float32))]
        padded = np.zeros((n, n_times + 3))
        padded[:, :n_times] = x
        arrays.append(ByInterface(device, padded, (8 * (n_times + 3), 8)))
        arrays[2].shape = x.shape
        r = series.autocovariance(x[:3], 5)
        lags = ByInterface(device, r)
    try:
        for given in (arrays[0], ByDlpack(arrays[0]), arrays[2]):
            found = series.ar(given, on_error="flag")
            assert found.backend == "gpu"
            assert_same(found, wanted, 1e-10)
        assert_same(series.ar(arrays[1], on_error="flag"), series.ar(x.astype(np.float32), on_error="flag"), 1e-9)
        high = series.ar(arrays[0], 40, on_error="flag")
        assert_same(high, series.ar(x, 40, on_error="flag"), 1e-9)
        np.testing.assert_allclose(series.levinson(lags).coef, series.levinson(r).coef, atol=1e-12)
    finally:
        with device.active():
            for array in (*arrays, lags):
                array.close()


DESIGNS = [(BLOCK, 1, 2), (BLOCK, 1, 4), (CLUSTER, 2, 4), (CLUSTER, 3, 2), (GRID, 2, 2), (GRID, 2, 8)]
