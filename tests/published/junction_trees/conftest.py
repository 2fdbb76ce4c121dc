"""Every test of the published engine runs on emulated GPUs."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def on_emulated_gpu(emulated_gpu: object) -> None:
    """Install the emulation for each test."""
