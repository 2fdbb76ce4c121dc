"""Columns of many whole numbers: each value becomes a state with a warning, or by choice."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import learn

RNG = np.random.default_rng(1)
AGES = {"age": RNG.integers(0, 60, 400), "sick": np.array(["no", "yes"])[RNG.integers(0, 2, 400)]}
FEW = {**AGES, "age": AGES["age"] // 10}
fit: Any = learn.fit
WARNS: list[Callable[[], Any]] = [
    lambda: fit({"sick": ["age"]}, AGES),
    lambda: learn.structure(AGES),
    lambda: learn.score_table(AGES),
]
DOES_NOT: list[Callable[[], Any]] = [
    lambda: fit({"sick": ["age"]}, FEW),
    lambda: fit({"sick": ["age"]}, AGES, bins=4),
    lambda: fit({"sick": ["age"]}, AGES, states={"age": range(60)}),
    lambda: fit({"sick": [], "age": ["sick"]}, AGES, continuous="gaussian"),
    lambda: fit({"sick": ["age"]}, AGES, continuous={"age": "states"}),
    lambda: learn.structure(FEW),
    lambda: learn.structure(AGES, states={"age": [*map(str, range(60))]}),
    lambda: learn.structure(AGES, score="bic-cg", continuous=["age"]),
]


@pytest.mark.parametrize("call", WARNS)
def test_a_warning_names_the_choices(call: Callable[[], Any]) -> None:
    with pytest.warns(UserWarning, match=r"is a state: 'age' \(60\); make intervals .* declare") as caught:
        call()
    assert caught[0].filename == __file__


@pytest.mark.parametrize("call", DOES_NOT)
def test_choices_do_not_warn(call: Callable[[], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        call()


def test_categories_are_states() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(AGES)
    frame["age"] = frame["age"].astype("category")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert len(jtgpu.learn.fit({"sick": ["age"]}, frame).network.states("age")) == 60
