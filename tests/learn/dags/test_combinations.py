"""Ranks of sets and indices of families."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jtgpu.learn.dags.scores.ranks import (
    binomial_table,
    family_of,
    n_parent_sets,
    parent_index,
    parent_masks,
    parent_members,
    rank,
)
from tests.support.structures_reference import all_families


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_families_have_consecutive_indices(n: int) -> None:
    for k in range(min(n, 5)):
        found = sorted(parent_index(v, parents, n, k) for v, parents in all_families(n, k))
        assert found == list(range(n * n_parent_sets(n, k)))
        assert all(family_of(parent_index(v, p, n, k), n, k) == (v, p) for v, p in all_families(n, k))


def test_index_beyond_32_bits() -> None:
    n, k = 140, 4
    last = n * n_parent_sets(n, k) - 1
    assert last > 2**31
    assert family_of(last, n, k) == (139, (135, 136, 137, 138))
    assert parent_index(139, (135, 136, 137, 138), n, k) == last


def test_ranks_are_colexicographic() -> None:
    for size in range(4):
        sets = sorted(itertools.combinations(range(6), size), key=lambda members: members[::-1])
        assert [rank(members) for members in sets] == list(range(len(sets)))


def test_masks_and_members_are_the_sets_by_index() -> None:
    n, k = 6, 3
    masks, members = parent_masks(n, k), parent_members(n, k)
    for i in range(n_parent_sets(n, k)):
        parents = family_of(i, n, k)[1]  # of variable 0: every parent is squeezed by one
        assert masks[i] == sum(1 << (p - 1) for p in parents)
        assert [m for m in members[i] if m >= 0] == [p - 1 for p in parents]
    assert masks.dtype == np.int64


def test_binomials_do_not_overflow() -> None:
    table = binomial_table(200, 40)
    assert table[5, 2] == 10
    assert table[2, 5] == 0
    assert table[200, 40] == 2**63 - 1
