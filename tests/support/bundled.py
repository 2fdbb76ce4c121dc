"""The networks of nets/ by name."""

from __future__ import annotations

import jtgpu
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT

__all__ = ["bundled"]


def bundled(name: str) -> BayesianNetwork:
    """One of nets/, plain or packed."""
    path = ROOT / "nets" / f"{name}.net"
    net = jtgpu.read(path if path.exists() else path.with_name(f"{name}.net.gz"))
    assert isinstance(net, BayesianNetwork)
    return net
