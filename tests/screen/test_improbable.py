"""Surprise: the improbability of rows, and of their cells."""

from __future__ import annotations

import math

import numpy as np
import pytest

import jtgpu
from jtgpu import DataError, screen
from jtgpu.errors import ArgumentError
from jtgpu.screen.reference import cell_surprise


def test_surprise_is_minus_the_log_likelihood_and_names_the_least_probable_cell() -> None:
    net = jtgpu.load("asia")
    tree = net.compile("reference")
    rows = [{"smoke": "yes", "dysp": "no"}, {"asia": "yes", "smoke": "no"}, {"xray": None, "tub": "no", "id": 7}]
    found = screen.surprise(tree, rows, n=1)
    np.testing.assert_allclose([r["surprise"] for r in found], -tree.log_likelihood(rows))
    assert [r["cell"] for r in found] == [None, "asia", None]
    assert found[1]["p_cell"] == pytest.approx(0.01)
    assert found[2]["id"] == 7
    cells = cell_surprise(tree, rows, [0, 1])
    p = tree.posterior("dysp", {"smoke": "yes"})["no"], tree.posterior("smoke", {"dysp": "no"})["yes"]
    assert cells.probability[0] == pytest.approx(min(p))


def test_an_impossible_row_is_infinitely_surprising_and_its_cell_is_named() -> None:
    tree = jtgpu.load("asia").compile("reference")
    rows = [{"lung": "yes", "either": "no", "smoke": "yes"}, {"smoke": "yes"}]
    found = screen.surprise(tree, rows)
    assert found[0]["surprise"] == math.inf
    assert (found[0]["cell"], found[0]["p_cell"]) == ("lung", 0.0)
    both = [{"lung": "yes", "either": "no", "tub": "yes"}]
    assert screen.surprise(tree, both)[0]["cell"] == "either"
    assert not any(math.isnan(v) for r in found for v in r.values() if isinstance(v, float))


def test_arrays_and_errors() -> None:
    net = jtgpu.load("asia")
    tree = net.compile("reference")
    cases = tree.sample(20, seed=1).states
    np.testing.assert_allclose(screen.surprise(tree, cases), -tree.log_likelihood(cases))
    with pytest.raises(ArgumentError, match="tree must be a compiled network"):
        screen.surprise(net, cases)  # type: ignore[arg-type]
    numbers = jtgpu.MixedNetwork({"x": float}, {}, {"x": jtgpu.Gaussian(0)}).compile("cpu")
    with pytest.raises(ArgumentError, match="tree must be a compiled network of states"):
        screen.surprise(numbers, {"x": [1.0]})  # type: ignore[arg-type]
    with pytest.raises(DataError, match="row 0"):
        screen.surprise(tree, [{"smoke": "perhaps"}])
