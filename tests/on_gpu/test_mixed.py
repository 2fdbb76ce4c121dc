"""Networks with numbers whose discrete part is on a GPU."""

from __future__ import annotations

from jtgpu.device.context import Device
from tests.mixed.test_gpu import check


def test_the_discrete_part_is_on_the_gpu(gpu: Device) -> None:
    check(2_000)
