"""Networks with numbers on a GPU: the tests of the emulated one, on the real one, and large tables."""

from __future__ import annotations

import numpy as np
import pytest

from jtgpu.device.context import Device
from tests.mixed.test_against_enumeration import random_network
from tests.mixed.test_gpu_fit import test_as_on_the_cpu, test_many_columns_of_float32, test_what_cannot_be_fitted
from tests.mixed.test_gpu_tables import (
    check,
    test_numbers_alone,
    test_predictions_and_reloaded_numbers,
    test_states_that_numbers_contradict,
    with_holes,
)
from tests.mixed.test_lauritzen import incinerator

__all__ = [
    "test_as_on_the_cpu", "test_many_columns_of_float32", "test_numbers_alone", "test_predictions_and_reloaded_numbers",
    "test_states_that_numbers_contradict", "test_what_cannot_be_fitted",
]  # fmt: skip


@pytest.mark.parametrize("seed", [1, 5, 15])
def test_random_networks(gpu: Device, seed: int) -> None:
    net = random_network(np.random.default_rng(seed))
    check(net, with_holes(net, 300, seed, share=0.5))


def test_large_tables(gpu: Device) -> None:
    net = incinerator()
    check(net, with_holes(net, 50_000, 1))
