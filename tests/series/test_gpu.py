"""Series and Toeplitz systems on emulated GPUs: the answers of the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from jtgpu import DataError, TableTooLarge, series
from jtgpu.device.context import Device, open_device
from jtgpu.errors import ArgumentError, BackendUnavailable
from jtgpu.series import gpu_batch
from tests.series import gpu_checks as checks
from tests.series.device_arrays import ByInterface
from tests.support.emulated.install import compiler, installed


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    """The first of two emulated GPUs."""
    if compiler() is None:
        pytest.skip("there is no g++ to build the kernels with")
    with installed():
        yield open_device(0)


@pytest.mark.slow
@pytest.mark.usefixtures("device")
def test_models_are_those_of_the_cpu() -> None:
    checks.check_fits(40, [(1, 20), (16, 65), (32, 33)])


@pytest.mark.slow
@pytest.mark.usefixtures("device")
def test_models_by_several_gpus_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_batch, "PART", 20_000)
    checks.check_fits(70, [(4, 40)], devices="all")
    checks.check_predictors([(50, 6)], devices=[1, 0, 1])


@pytest.mark.slow
@pytest.mark.usefixtures("device")
def test_predictors_are_those_of_the_cpu() -> None:
    checks.check_predictors([(1, 0), (5, 1), (40, 8), (40, 20), (5, 33), (4, 260)])


@pytest.mark.slow
@pytest.mark.usefixtures("device")
def test_solutions_are_those_of_the_cpu() -> None:
    checks.check_solutions([(2, 1, 1), (3, 2, 2), (3, 15, 1), (2, 17, 3), (1, 300, 1)])
    c = np.array([[1.0, 0.2, 0.1], [1.0, 1.0, 0.2]])
    with pytest.raises(DataError, match="system 1: the leading minor of size 2 is singular"):
        series.solve_toeplitz(c, np.ones(3), backend="gpu")


@pytest.mark.slow
def test_every_design_of_a_long_system(device: Device) -> None:
    checks.check_designs(device, 1300, checks.DESIGNS)


@pytest.mark.slow
@pytest.mark.usefixtures("device")
def test_hard_systems() -> None:
    pytest.importorskip("mpmath")
    from tests.series.systems import HARD, exact_predictors

    checks.check_hard_systems(HARD, exact_predictors)


@pytest.mark.slow
def test_arrays_in_the_memory_of_a_gpu(device: Device) -> None:
    checks.check_device_arrays(device, 35, 50)


def test_arrays_that_the_gpu_cannot_read(device: Device) -> None:
    with device.active():
        given = [ByInterface(device, np.arange(12).reshape(2, 6)), ByInterface(device, np.ones((4, 6)), (8, 32))]
    try:
        with pytest.raises(ArgumentError, match="must be a float32 or float64 array, not int64"):
            series.ar(given[0], 1)
        with pytest.raises(ArgumentError, match="must have contiguous rows"):
            series.ar(given[1], 1)
        with pytest.raises(ArgumentError, match="the array is in a GPU's memory; use backend='gpu'"):
            series.ar(given[1], 1, backend="cpu")
        with pytest.raises(DataError, match="series of 6 values have no model of order 6"):
            series.ar(given[1], 6)
    finally:
        with device.active():
            for array in given:
                array.close()


@pytest.mark.slow
@pytest.mark.usefixtures("device")
def test_errors_name_the_series() -> None:
    x = checks.random_series(20, 30, 1)
    with pytest.raises(DataError, match=r"series 3, time 15: the value is missing \(NaN\)"):
        series.ar(x, 2, backend="gpu")
    with pytest.raises(DataError, match="series 0 is constant"):
        series.ar(x[7:8], 2, backend="gpu")
    with pytest.raises(DataError, match="series 0 has values whose squares overflow"):
        series.ar(x[11], 2, backend="gpu")
    with pytest.raises(BackendUnavailable, match="no CUDA device 7"):
        series.ar(x, 2, backend="gpu", devices=[7])
    with pytest.raises(ArgumentError, match="backend must be"):
        series.whiten(x[:3], series.ar(x[:3], 2), backend="gpu")


def test_a_system_that_does_not_fit_is_refused(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(device), "free_memory", lambda self: 10_000)
    with pytest.raises(TableTooLarge, match=r"a system of order 300 needs .* use backend='cpu'"):
        series.levinson(np.eye(1, 301)[0], backend="gpu")


def test_a_gpu_that_fails_leaves_its_part_to_the_others(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[slice] = []

    def work(on: Device, stream: object, some: slice) -> None:
        if on.ordinal == 0:
            raise BackendUnavailable("it failed")
        done.append(some)

    monkeypatch.setattr(gpu_batch, "PART", 64)
    both = gpu_batch.opened("all")
    gpu_batch.on_devices(work, 100, 8, both, "a series")
    assert sorted(i for some in done for i in range(some.start, some.stop)) == list(range(100))
    with pytest.raises(BackendUnavailable, match="it failed"):
        gpu_batch.on_devices(work, 100, 8, [device], "a series")
