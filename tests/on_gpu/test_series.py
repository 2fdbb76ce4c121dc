"""Series and Toeplitz systems on a GPU: the answers of the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from jtgpu.device.context import Device, device_numbers
from jtgpu.published.durbin import KERNELS, durbin32
from jtgpu.series import gpu_batch
from jtgpu.series.gpu_run import CLUSTER, GRID
from tests.series import gpu_checks as checks

pytestmark = pytest.mark.gpu


@pytest.mark.usefixtures("gpu")
def test_models_are_those_of_the_cpu() -> None:
    checks.check_fits(3000, [(2, 20), (8, 100), (16, 65), (16, 512), (32, 33), (32, 400)])


@pytest.mark.usefixtures("gpu")
def test_models_in_parts_and_by_all_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_batch, "PART", 1 << 20)
    checks.check_fits(2000, [(12, 200)], devices="all")
    checks.check_predictors([(500, 16), (50, 300)], devices=[*device_numbers("all"), 0])


@pytest.mark.usefixtures("gpu")
def test_predictors_are_those_of_the_cpu() -> None:
    checks.check_predictors([(1, 0), (5, 1), (4000, 8), (4000, 16), (400, 32), (300, 33), (100, 900), (9, 2500)])
    checks.check_predictors([(1, 10_000)])


@pytest.mark.usefixtures("gpu")
def test_solutions_are_those_of_the_cpu() -> None:
    checks.check_solutions([(2, 1, 1), (3, 2, 2), (30, 15, 1), (20, 17, 3), (40, 300, 1), (3, 2000, 2), (1, 9999, 1)])


def test_every_design_of_a_long_system(gpu: Device) -> None:
    designs = [*checks.DESIGNS, (CLUSTER, 8, 4), (CLUSTER, 16, 3), (GRID, 20, 2)]
    if gpu.capability < (9, 0):
        designs = [d for d in designs if d[0] != CLUSTER]
    for n in (1300, 5001):
        checks.check_designs(gpu, n, designs)


@pytest.mark.usefixtures("gpu")
def test_hard_systems() -> None:
    pytest.importorskip("mpmath")
    from tests.series.systems import HARD, exact_predictors

    checks.check_hard_systems(HARD, exact_predictors)


def test_arrays_in_the_memory_of_a_gpu(gpu: Device) -> None:
    checks.check_device_arrays(gpu, 2000, 300)


@pytest.mark.usefixtures("gpu")
def test_the_published_versions_agree() -> None:
    for n in (1, 2, 100, 1001, 3000):
        r = np.random.default_rng(n).uniform(-1, 1, n) / np.sqrt(n) / 2
        for version in KERNELS:
            np.testing.assert_allclose(durbin32(r, version), durbin32(r), atol=1e-12)
