"""Tests that need a GPU; without one they are skipped with a reason."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jtgpu.device.context import Device, open_device
from jtgpu.errors import BackendUnavailable

ROOT = Path(__file__).resolve().parents[2]


HANGS = 240.0  # seconds


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """End the process if a test hangs, since a kernel cannot be interrupted; pytest's faulthandler shows it first."""
    over = threading.Timer(HANGS, os._exit, (86,))
    over.daemon = True
    over.start()
    yield
    over.cancel()


@pytest.fixture(scope="session")
def gpu() -> Device:
    """The device; skips without one."""
    try:
        return open_device()
    except BackendUnavailable as error:
        if os.environ.get("JTGPU_REQUIRE_GPU"):
            raise
        pytest.skip(str(error))


@pytest.fixture
def active(gpu: Device) -> Iterator[Device]:
    """The device with its context current."""
    with gpu.active():
        yield gpu


def nets_folder() -> Path | None:
    """The folder of the benchmark networks: .data, or shared next to the project."""
    for folder in (ROOT / ".data" / "RetiEsempio", ROOT.parent / "shared" / "nets" / "RetiEsempio"):
        if folder.is_dir():
            return folder
    return None


@pytest.fixture(scope="session")
def nets() -> Path:
    """The folder of the benchmark networks; skips if it is absent."""
    folder = nets_folder()
    if folder is None:
        pytest.skip("no .data/RetiEsempio and no ../shared/nets: the networks that may not be copied into the project")
    return folder
