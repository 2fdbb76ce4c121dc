"""The GPU of these tests is emulated; tests/on_gpu imports some of them, where the fixture `gpu` is a real one."""

from __future__ import annotations

import zlib

import pytest

from jtgpu.device.context import Device
from tests.support.emulated import built


@pytest.fixture(autouse=True)
def order_of_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads run in another order in each test: a barrier that is missing is seen in some of them."""
    monkeypatch.setattr(built, "order", built.order or zlib.crc32(request.node.name.encode()) % 5)


@pytest.fixture
def gpu(emulated_gpu: Device) -> Device:
    """The first emulated GPU."""
    return emulated_gpu
