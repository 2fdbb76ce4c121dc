"""The GPU of these tests is emulated; tests/on_gpu imports some of them, where the fixture `gpu` is a real one."""

from __future__ import annotations

import pytest

from jtgpu.device.context import Device


@pytest.fixture
def gpu(emulated_gpu: Device) -> Device:
    """The first emulated GPU."""
    return emulated_gpu
