"""Logarithm and exponential by plain arithmetic, compared with 50 decimal digits."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest

from jtgpu.util import elementary

CHANCE = random.Random(1)
LOGARITHMS = [
    *(CHANCE.uniform(0.0, 2.0) for _ in range(1000)),
    *(math.ldexp(CHANCE.random(), CHANCE.randrange(-1022, 1024)) for _ in range(1000)),
    *(1.0 + math.ldexp(CHANCE.uniform(-1.0, 1.0), -CHANCE.randrange(1, 53)) for _ in range(1000)),
    5e-324, 1e-310, 2.2250738585072014e-308, 1.7976931348623157e308, 0.7071067811865475, 0.7071067811865476,
    1.4142135623730951,
]  # fmt: skip
EXPONENTIALS = [
    *(CHANCE.uniform(-745.0, 709.0) for _ in range(1000)), *(CHANCE.uniform(-1.0, 1.0) for _ in range(1000)), -745.1,
    -708.5, 709.78, 0.34657359027997264,
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "many", "exact", "numbers"),
    [
        (elementary.log, elementary.logs, Decimal.ln, LOGARITHMS),
        (elementary.exp, elementary.exps, Decimal.exp, EXPONENTIALS),
    ],
    ids=["log", "exp"],
)  # fmt: skip
def test_functions_are_within_one_unit_in_the_last_place(
    function: Callable[[float], float], many: Callable[[list[float]], np.ndarray], exact: Callable[[Decimal], Decimal],
    numbers: list[float],
) -> None:  # fmt: skip
    found = [function(x) for x in numbers]
    with localcontext() as context:
        context.prec = 50
        for x, y in zip(numbers, found, strict=True):
            expected = exact(Decimal(x))
            assert abs(Decimal(y) - expected) < Decimal(math.ulp(float(expected))), x
    assert many(numbers).tolist() == found  # the compiled loop has the same bits


def test_ends_of_the_range() -> None:
    given = [0.0, -0.0, 1.0, -1.0, math.inf, math.nan]
    np.testing.assert_array_equal([elementary.log(x) for x in given], [-np.inf, -np.inf, 0.0, np.nan, np.inf, np.nan])
    np.testing.assert_array_equal(elementary.logs(given), [-np.inf, -np.inf, 0.0, np.nan, np.inf, np.nan])
    given = [0.0, 1000.0, -1000.0, math.inf, -math.inf, math.nan]
    np.testing.assert_array_equal([elementary.exp(x) for x in given], [1.0, np.inf, 0.0, np.inf, 0.0, np.nan])
    np.testing.assert_array_equal(elementary.exps(given), [1.0, np.inf, 0.0, np.inf, 0.0, np.nan])
    assert elementary.logs(np.ones((2, 3)).T).shape == (3, 2)
