"""Answers of tables in page-locked memory that the caller gets: the same numbers, and they stay when others come."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.gpu.batch import buffers
from jtgpu.device import lending
from jtgpu.device.context import Device
from tests.support.emulated.install import needs_compiler

pytestmark = needs_compiler
N = 150


def cases(seed: int) -> np.ndarray:
    """Of asia; the last ones equal earlier ones."""
    rng = np.random.default_rng(seed)
    states = np.where(rng.random((N, 8)) < 0.4, rng.integers(0, 2, (N, 8)), -1).astype(np.int32)
    states[-20:] = states[:20]
    states[:, 5] = -1  # the only variable without uncertainty
    return states


def answers(tree: jtgpu.JunctionTree, tables: list[np.ndarray], weights: dict[str, np.ndarray]) -> list[np.ndarray]:
    made = []
    for states in tables:  # more than are lent at a time
        made += [tree.posteriors_batch(states, on_error="flag")["lung"]]
        made += [tree.posteriors_batch(states, likelihood=weights, on_error="flag")["dysp"]]
        made += [tree.posteriors_batch(states, targets="bronc", on_error="flag")["bronc"]]
    return made


@pytest.mark.parametrize("large", [buffers.LARGE, 32])
def test_the_same_numbers_and_they_stay(gpu: Device, monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(buffers, "LARGE", large)  # one chunk, or several
    tables = [cases(seed) for seed in range(4)]
    weights = {"smoke": np.random.default_rng(9).random((N, 2)) + 0.01}
    with jtgpu.load("asia").compile("gpu") as tree:
        ask = partial(answers, tree, tables, weights)
        copied = [x.copy() for x in ask()]
        monkeypatch.setattr(lending, "LEAST", 1)
        lent = ask()
        assert gpu.lender._n_lent == lending.AT_ONCE
    del tree, ask
    for a, b in zip(copied, lent, strict=True):
        np.testing.assert_array_equal(a, b)
    lent[0][:] = 5.0  # the caller's own, of the closed tree too
    np.testing.assert_array_equal(lent[3], copied[3])
    del lent, a, b
    with gpu.active():
        gpu.lender.close()
