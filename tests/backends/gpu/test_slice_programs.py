"""Programs of slices, without a device: sums of single variables."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from jtgpu.backends.gpu.slices.sums import sums_of


@pytest.mark.parametrize("cards", [(8,), (3, 3, 3), (2, 3, 2, 4, 3), (20, 4, 5), (2,) * 9])
def test_sums_of_single_variables(cards: tuple[int, ...]) -> None:
    n = math.prod(cards)
    x = np.random.default_rng(0).random(n)
    states = np.array(list(itertools.product(*map(range, cards)))).T
    columns = np.cumsum([0, *cards])
    groups, singles = sums_of([(states[v], int(columns[v])) for v in range(len(cards))], n)
    table = np.concatenate([x, np.zeros(sum(len(g.terms) for g in groups))])
    row = np.zeros(columns[-1])
    for to, all_sums in ((table, groups), (row, singles)):
        for sums in all_sums:
            to[sums.to : sums.to + len(sums.terms)] = table[sums.terms].sum(axis=1)
    expected = [np.bincount(states[v], x) for v in range(len(cards))]
    np.testing.assert_allclose(row, np.concatenate(expected), rtol=1e-12)
