"""Regressions from tables in the memory of emulated GPUs, against the fit of the same rows on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.device.arrays import contiguous_strides
from jtgpu.device.context import Device, Memory
from jtgpu.errors import ArgumentError, DataError
from tests.support.emulated.install import needs_compiler

pytestmark = needs_compiler
PARENTS: dict[str, list[str]] = {"a": [], "b": ["a"], "c": ["a", "b"], "d": []}


@pytest.fixture
def gpu(emulated_gpu: Device) -> Device:
    """The first emulated GPU; tests/on_gpu has a real one."""
    return emulated_gpu


class OnDevice:
    """An array in a GPU's memory, as libraries share it."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any):
        self.address, self.shape, self.strides, self.dtype = address, shape, strides, np.dtype(dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.address, False)
        return {"shape": self.shape, "typestr": self.dtype.str, "data": data, "strides": self.strides, "version": 3}

    def column(self, i: int) -> OnDevice:
        return OnDevice(self.address + i * self.strides[1], self.shape[:1], self.strides[:1], self.dtype)


@contextmanager
def uploaded(gpu: Device, rows: np.ndarray) -> Iterator[Any]:
    with gpu.active(), Memory(gpu) as memory:
        address = memory.put(rows, gpu.stream())
        yield OnDevice(address, rows.shape, contiguous_strides(rows.shape, rows.itemsize), rows.dtype)


def net_of(fit: Any) -> Any:
    return fit.network


def table(n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    a = 100 + rng.normal(size=n)
    b = 1e-3 * (2 * a + rng.normal(size=n))
    c = a - 500 * b + rng.normal(size=n)
    return np.column_stack([a, b, c, 1e6 * rng.normal(size=n)])


@pytest.mark.parametrize("n", [7, 1000, 5000])
@pytest.mark.parametrize("prior", [0, 2])
def test_as_on_the_cpu(gpu: Device, n: int, prior: int) -> None:
    rows = table(n)
    expected: Any = jtgpu.learn.fit(
        PARENTS, dict(zip(PARENTS, rows.T, strict=True)), continuous="gaussian", pseudo_counts=prior
    )
    others: list[Any]
    with uploaded(gpu, rows) as whole, uploaded(gpu, np.ascontiguousarray(rows.T)) as turned:
        by_rows = {v: whole.column(i) for i, v in enumerate(PARENTS)}
        side = turned.strides[0]
        starts = {v: turned.address + i * side for i, v in enumerate(PARENTS)}
        dense: dict[str, Any] = {v: OnDevice(at, (n,), (8,), float) for v, at in starts.items()}
        found, *others = (
            jtgpu.learn.fit(PARENTS, x, continuous="gaussian", pseudo_counts=prior) for x in (whole, by_rows, dense)
        )
    assert found.n_rows == n
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-9)
    assert found.objective == pytest.approx(expected.objective, rel=1e-9)
    net: Any = found.network
    for v in PARENTS:
        one, other = net.gaussian(v), expected.network.gaussian(v)
        np.testing.assert_allclose(one.sd, other.sd, rtol=1e-7)
        np.testing.assert_allclose([*one.coefficients.values()], [*other.coefficients.values()], rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-6, atol=1e-2)
        for again in [net_of(x) for x in others]:
            assert (again.gaussian(v).mean, again.gaussian(v).sd) == (one.mean, one.sd)


def test_nearly_collinear_columns_say_how_many_digits_they_have(gpu: Device) -> None:
    rows = np.random.default_rng(1).normal(size=(500, 2))
    rows[:, 1] = rows[:, 0] + 1e-5 * rows[:, 1]
    with uploaded(gpu, rows) as whole, pytest.warns(UserWarning, match="sd of 'b' have about [345] correct digits"):
        jtgpu.learn.fit({"a": [], "b": ["a"]}, whole, continuous="gaussian")


def test_many_columns_of_float32(gpu: Device) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 50)).astype(np.float32)
    parents = {f"x{i}": [f"x{i - 1}"] if i else [] for i in range(50)}
    columns = dict(zip(parents, rows.T.astype(np.float64), strict=True))
    expected: Any = jtgpu.learn.fit(parents, columns, continuous="gaussian").network
    with uploaded(gpu, rows) as whole:
        found: Any = jtgpu.learn.fit(parents, whole, continuous="gaussian").network
    for v in parents:
        np.testing.assert_allclose(found.gaussian(v).mean, expected.gaussian(v).mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.gaussian(v).sd, expected.gaussian(v).sd, rtol=1e-12)


def test_what_cannot_be_fitted(gpu: Device) -> None:
    rows = table(50)
    rows[3, 2] = np.nan
    fit = jtgpu.learn.fit
    with uploaded(gpu, rows) as whole, uploaded(gpu, np.ones((50, 4))) as ones:
        with pytest.raises(DataError, match="'c' of the table on the device has missing"):
            fit(PARENTS, whole, continuous="gaussian")
        with pytest.raises(DataError, match="'a' is constant"):
            fit(PARENTS, ones, continuous="gaussian")
        with pytest.raises(ArgumentError, match="'b' as states"):
            fit(PARENTS, whole, continuous={"a": "gaussian", "c": "gaussian", "d": "gaussian"})
        with pytest.raises(ArgumentError, match="without weights"):
            fit(PARENTS, whole, continuous="gaussian", weights=np.ones(50))
        with pytest.raises(DataError, match=r"expected \(rows, 1"):
            fit({"a": []}, whole, continuous="gaussian")
        columns: dict[str, Any] = {v: whole.column(i) for i, v in enumerate(PARENTS)}
        with pytest.raises(DataError, match="no column 'd'"):
            fit(PARENTS, {v: x for v, x in columns.items() if v != "d"}, continuous="gaussian")
        with pytest.raises(DataError, match="'d' is in host memory"):
            fit(PARENTS, {**columns, "d": rows[:, 3]}, continuous="gaussian")
        short: Any = OnDevice(whole.address, (49,), (8,), float)
        with pytest.raises(DataError, match="'b' has shape"):
            fit(PARENTS, {**columns, "b": short}, continuous="gaussian")
