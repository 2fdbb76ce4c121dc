"""Results compare by value: arrays cell by cell, NaN equals NaN, and the answer is True or False."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.inference.results.result import Result
from jtgpu.util.equality import ByValue, same


def _tree() -> Any:
    return jtgpu.load("asia").compile("cpu", together=[("lung", "bronc")])


def _mixed() -> Any:
    net = jtgpu.MixedNetwork(
        {"d": ["a", "b"], "x": float}, {"x": ["d"]}, {"d": [1.0, 0.0], "x": jtgpu.Gaussian([0.0, 3.0], sd=[1.0, 2.0])}
    )
    return net.compile("cpu")


def _stream() -> Any:
    dyn = jtgpu.DynamicNetwork(
        {"s": ["a", "b"]}, {"s": [("s", 1)]}, {"s": [[0.7, 0.3], [0.3, 0.7]]}, start={"s": [0.5, 0.5]}
    )
    return dyn.compile("cpu")


X = ("yes", "no")
# a result of a state of one variable, "yes" or "no", "a" or "b"
MAKERS: dict[str, Callable[[int], Any]] = {
    "Posteriors": lambda s: _tree().posteriors({"xray": X[s]}),
    "Posterior": lambda s: _tree().posterior("lung", {"xray": X[s]}),
    "Joints": lambda s: _tree().posteriors({"xray": X[s]}, joints=[("lung", "bronc")]).joint,
    "Joint": lambda s: _tree().joint(["lung", "tub"], {"xray": X[s]}),
    "CasePosteriors": lambda s: _tree().posteriors_batch(
        [{"xray": X[s]}, {"tub": "yes", "either": "no"}], on_error="flag"
    ),
    "Ranking": lambda s: _tree().value_of_information("lung", ["tub", "smoke"], {"xray": X[s]}),
    "Scores": lambda s: _tree().mutual_information("lung", ["tub", "smoke"], {"xray": X[s]}),
    "Explanation": lambda s: _tree().mpe({"xray": X[s]}),
    "Samples": lambda s: _tree().sample(3, {"xray": X[s]}, seed=1),
    "MixedPosteriors": lambda s: _mixed().posteriors({"x": float(s)}),
    "NumberPosterior": lambda s: _mixed().posterior("x", {"x": float(s)}),
    "MixedCasePosteriors": lambda s: _mixed().posteriors_batch([{"d": "ab"[s]}, {"d": "b"}], on_error="flag"),
    "SequencePosteriors": lambda s: _stream().smooth({"s": [["ab"[s], None]]}),
}


@pytest.mark.parametrize("name", MAKERS)
def test_results_compare_by_value(name: str) -> None:
    first, again, other = MAKERS[name](0), MAKERS[name](0), MAKERS[name](1)
    assert type(first).__name__ == name
    assert (first == again) is True
    assert (first == other) is False
    assert (first != other) is True
    with pytest.raises(TypeError, match="unhashable"):
        hash(first)


def test_a_result_with_missing_cells_equals_its_copy() -> None:
    flagged = MAKERS["MixedCasePosteriors"](0)
    assert np.isnan(flagged["x"].mean).any()
    assert (flagged == copy.deepcopy(flagged)) is True
    assert flagged["x"] == copy.deepcopy(flagged["x"])


def test_results_that_are_lists_and_mappings_still_equal_plain_ones() -> None:
    scores = MAKERS["Scores"](0)
    assert scores == dict(scores)
    assert dict(scores) == scores
    posterior = MAKERS["Posterior"](0)
    assert posterior == dict(posterior)
    assert (posterior == 1) is False


@pytest.mark.parametrize("name", ["CasePosteriors", "MixedCasePosteriors", "MixedPosteriors", "SequencePosteriors"])
def test_mappings_of_other_types_are_compared_item_by_item(name: str) -> None:
    found, other = MAKERS[name](0), MAKERS[name](1)
    assert (found == dict(found)) is True
    assert (dict(found) == found) is True
    assert (found == dict(other)) is False
    assert (MAKERS["CasePosteriors"](0) == MAKERS["MixedCasePosteriors"](0)) is False


def test_every_class_of_results_compares_by_value() -> None:
    for name in ("decisions", "dynamic", "graphs", "inference", "learn", "mixed", "screen", "series"):
        package: Any = importlib.import_module(f"jtgpu.{name}")
        for public in package.__all__:
            getattr(package, public)
    left = [Result]
    while left:
        cls = left.pop()
        left += cls.__subclasses__()
        assert cls.__eq__ is ByValue.__eq__, cls
        assert cls.__hash__ is None, cls


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), True),
        (np.array([1.0, np.nan]), np.array([np.nan, 1.0]), False),
        (np.array([1.0]), np.array([1.0, 1.0]), False),
        (np.array(["a", None], object), np.array(["a", None], object), True),
        (np.ma.masked_array([1.0, 2.0], [False, True]), np.ma.masked_array([1.0, 3.0], [False, True]), True),
        (np.ma.masked_array([1.0, 2.0], [False, True]), np.ma.masked_array([1.0, 2.0], [False, False]), False),
        ({"x": [float("nan")]}, {"x": [float("nan")]}, True),
        ((1, "a"), [1, "a"], True),
        (np.array([1.0]), [1.0], False),
        ("ab", "ab", True),
    ],
)  # fmt: skip
def test_values(a: Any, b: Any, equal: bool) -> None:
    assert same(a, b) is equal
