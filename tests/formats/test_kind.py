"""``read(path, kind=...)``: the class of the network, for type checkers and at run time."""

from __future__ import annotations

from pathlib import Path

import pytest

import jtgpu
from jtgpu.errors import FormatError


def test_the_kind_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "heights.net"
    jtgpu.write(jtgpu.MixedNetwork({"h": float}, {}, {"h": jtgpu.Gaussian(170.0, sd=8.0)}), path)
    assert jtgpu.read(path, kind=jtgpu.MixedNetwork).numbers == ("h",)
    assert jtgpu.load(path, kind=jtgpu.MixedNetwork).numbers == ("h",)
    assert jtgpu.load("asia", kind=jtgpu.BayesianNetwork).parents("bronc") == ("smoke",)
    with pytest.raises(FormatError, match=r"heights\.net has a MixedNetwork, expected a BayesianNetwork"):
        jtgpu.read(path, kind=jtgpu.BayesianNetwork)
    with pytest.raises(FormatError, match=r"asia\.net has a BayesianNetwork, expected a DecisionNetwork"):
        jtgpu.load("asia", kind=jtgpu.DecisionNetwork)
