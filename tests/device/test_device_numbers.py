"""The option ``devices=``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import graphs, learn, screen, series

NET = jtgpu.network("a->b", "{x|y}", seed=1)
TABLE = {"a": [*"xyxyyxyx"], "b": [*"xyyyxxyx"]}
HELD: dict[str, Callable[[Any], object]] = {
    "compile": lambda n: NET.compile("gpu", devices=n),
    "auto": lambda n: NET.compile(devices=n),
    "plan": lambda n: NET.plan(backend="gpu", devices=n),
    "fit": lambda n: learn.fit(NET, {**TABLE, "a": [None, *TABLE["a"][1:]]}, compute=jtgpu.Compute(devices=n)),
    "structure": lambda n: learn.structure(TABLE, compute=jtgpu.Compute(backend="gpu", devices=n)),
    "posterior": lambda n: learn.posterior(TABLE, compute=jtgpu.Compute(backend="gpu", devices=n)),
    "betweenness": lambda n: graphs.betweenness((3, [(0, 1), (1, 2)]), devices=n),
    "ar": lambda n: series.ar(np.arange(9.0) % 4, 2, backend="gpu", devices=n),
    "screen": lambda n: screen.weights(TABLE, 3, backend="gpu", devices=n),
}


@pytest.mark.parametrize("call", HELD)
def test_a_number_alone_is_neither_a_count_nor_a_device(call: str) -> None:
    says = r"devices=2 may be .*: name them, devices=\[2\] for GPU 2, or devices=\[0, 1\] for 2 GPUs"
    with pytest.raises(jtgpu.ArgumentError, match=says):
        HELD[call](2)
    for wrong in ("both", [], {"a": 1}, [0.5], 1.5):
        with pytest.raises(jtgpu.ArgumentError, match=r"devices must be 'all' or a list of the numbers of GPUs"):
            HELD[call](wrong)
