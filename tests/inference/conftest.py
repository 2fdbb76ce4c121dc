"""Compiled networks that several tests of queries share."""

from __future__ import annotations

import pytest

import jtgpu
from tests.conftest import ROOT
from tests.support.trees import compiled


@pytest.fixture(scope="module")
def asia() -> jtgpu.JunctionTree:
    """Asia, compiled for the CPU."""
    return compiled(jtgpu.read(ROOT / "nets" / "asia.net"), "cpu")
