"""Tests that need a GPU: skipped with a reason where there is none; ``--receipt`` leaves a record of the run."""

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
    """A kernel that never ends would take all of a machine's time with it; `receipt.py` has pytest say before where."""
    over = threading.Timer(HANGS, os._exit, (86,))
    over.daemon = True
    over.start()
    yield
    over.cancel()


@pytest.fixture(scope="session")
def gpu() -> Device:
    """The device; skips where there is none."""
    try:
        return open_device()
    except BackendUnavailable as error:
        if os.environ.get("JTGPU_REQUIRE_GPU"):
            raise
        pytest.skip(str(error))


@pytest.fixture
def active(gpu: Device) -> Iterator[Device]:
    """The device with its context current, and no memory of ours left on it afterwards."""
    with gpu.active():
        yield gpu


def nets_folder() -> Path | None:
    """Where the benchmark networks are: carried along in .data, or shared beside the project."""
    for folder in (ROOT / ".data" / "RetiEsempio", ROOT.parent / "shared" / "nets" / "RetiEsempio"):
        if folder.is_dir():
            return folder
    return None


@pytest.fixture(scope="session")
def nets() -> Path:
    """The benchmark networks' folder; skips where it is absent."""
    folder = nets_folder()
    if folder is None:
        pytest.skip("no .data/RetiEsempio and no ../shared/nets: the networks that may not be copied into the project")
    return folder
