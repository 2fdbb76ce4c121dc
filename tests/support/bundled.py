"""The networks of nets/ by name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT

__all__ = ["bundled", "slow_when_large"]

LARGE = {"andes", "barley", "diabetes", "link", "mildew", "munin", "munin1", "munin2", "munin3", "munin4", "pathfinder",
         "pigs"}  # fmt: skip


def bundled(name: str) -> BayesianNetwork:
    """One of nets/, compressed or not."""
    path = ROOT / "nets" / f"{name}.net"
    net = jtgpu.read(path if path.exists() else path.with_name(f"{name}.net.xz"))
    assert isinstance(net, BayesianNetwork)
    return net.with_codes("index")  # tests take states by number


def slow_when_large(networks: Iterable[str | Path]) -> list[Any]:
    """Parameters of a test for each network, a name or a path; the test is ``slow`` for large networks."""
    return [
        pytest.param(n, marks=[pytest.mark.slow] if Path(n).name.split(".")[0] in LARGE else [], id=Path(n).name)
        for n in networks
    ]
