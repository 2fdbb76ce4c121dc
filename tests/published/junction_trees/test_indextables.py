"""Index tables against their definition by loops, and what they refuse."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu import errors
from jtgpu.published.junction_trees.indextables import (
    Shape,
    build,
    build_all,
    index_dtype,
    layout,
    offsets,
    padded,
    separator_shapes,
    shape_of,
)
from tests.support import random_nets


def by_loops(extents: list[int], kept: list[bool], n_pad: int, m_pad: int, sentinel: int) -> np.ndarray:
    """The definition: walk the clique's configurations in order; each is the next entry of its separator's."""
    table = np.full((m_pad, n_pad), sentinel, np.uint64)
    filled = [0] * n_pad
    for cell, x in enumerate(itertools.product(*(range(e) for e in extents))):
        j = 0
        for state, extent, keep in zip(x, extents, kept, strict=True):
            if keep:
                j = j * extent + state
        table[filled[j], j] = cell
        filled[j] += 1
    return table


@st.composite
def cliques(draw: st.DrawFn) -> tuple[list[int], list[bool]]:
    extents = draw(st.lists(st.integers(1, 6), max_size=6))
    return extents, draw(st.lists(st.booleans(), min_size=len(extents), max_size=len(extents)))


@given(clique=cliques())
def test_a_table_is_what_the_loops_say(clique: tuple[list[int], list[bool]]) -> None:
    extents, kept = clique
    variables = [10 + i for i in range(len(extents))]
    cardinality = np.zeros(10 + len(extents), np.int64)
    cardinality[10:] = extents
    shape = shape_of(variables, [v for v, k in zip(variables, kept, strict=True) if k], cardinality)
    table = build(shape)
    n = math.prod(e for e, k in zip(extents, kept, strict=True) if k)
    assert (table.n, table.m) == (n, math.prod(extents) // n)
    assert table.index.shape == (padded(table.m), padded(table.n))
    assert table.sentinel == 2**32 - 1
    expected = by_loops(extents, kept, table.n_pad, table.m_pad, table.sentinel)
    np.testing.assert_array_equal(table.index, expected)
    assert sorted(table.inner.reshape(-1).tolist()) == list(range(math.prod(extents)))  # every entry once
    assert (table.index == table.sentinel).sum() == table.index.size - math.prod(extents)
    rows, columns = offsets(shape)
    np.testing.assert_array_equal(table.inner, rows[:, None] + columns)


@given(st.integers(0, 10**6))
def test_padding_goes_to_the_next_power_of_two(count: int) -> None:
    p = padded(count)
    assert p & (p - 1) == 0
    assert p >= max(count, 1)
    assert p == 1 or p // 2 < count


def test_index_type_keeps_its_greatest_number_free() -> None:
    assert index_dtype(2**32 - 1) == np.uint32  # greatest index 2**32 - 2, sentinel 2**32 - 1
    assert index_dtype(2**32) == np.uint64
    wide = build(Shape((3, 5), (False, True)), np.empty((4, 8), np.uint64))
    assert wide.sentinel == 2**64 - 1
    assert (wide.index == wide.sentinel).sum() == 32 - 15


def test_equal_shapes_share_a_table_and_tables_are_aligned() -> None:
    shapes = [Shape((2, 3), (False, True)), Shape((5, 7), (True, False)), Shape((2, 3), (False, True))]
    tables = build_all(shapes)
    assert tables[0] is tables[2]
    assert len({id(t) for t in tables}) == 2
    starts, n_bytes = layout(shapes)
    assert all(start % 256 == 0 for start in starts.values())
    assert n_bytes == 512
    assert not tables[0].index.flags.writeable


def test_runs_of_axes_and_single_states_are_merged() -> None:
    cardinality = np.array([2, 1, 3, 4, 1, 5])
    assert shape_of([0, 1, 2, 3, 4, 5], [2, 3], cardinality) == Shape((2, 12, 5), (False, True, False))
    assert shape_of([0, 1, 2], [1], cardinality) == Shape((6,), (False,))
    assert shape_of([], [], cardinality) == Shape((), ())


def test_a_separator_in_another_order_is_refused() -> None:
    with pytest.raises(errors.PlanError):
        shape_of([0, 1, 2], [2, 0], np.array([2, 2, 2]))


def test_what_does_not_fit_is_refused_before_memory_is_taken() -> None:
    huge = Shape((1 << 20, 1 << 20), (False, True))
    with pytest.raises(errors.TableTooLarge) as raised:
        build_all([huge])
    assert raised.value.entries == 1 << 40
    with pytest.raises(errors.TableTooLarge) as raised:
        build_all([huge], max_entries=None)
    assert raised.value.needed == 8 << 40
    assert raised.value.limit < raised.value.needed
    with pytest.raises(errors.TableTooLarge):
        build_all([Shape((1000, 1000), (False, True))], memory_limit=1 << 20)


@given(data=st.data())
def test_tables_of_a_plan_marginalise_and_spread(data: st.DataObject) -> None:
    """Through either table of a separator, sums and products are what einsum says."""
    net = data.draw(random_nets.bayesian_networks())
    plan = net.plan(order="min-fill", cache=False).plan
    child, parent = separator_shapes(plan)
    rng = np.random.default_rng(0)
    for c, up in enumerate(plan.clique_parent.tolist()):
        if up < 0:
            assert child[c] is None
            assert parent[c] is None
            continue
        for clique, shape in ((c, child[c]), (up, parent[c])):
            assert shape is not None
            table = build(shape)
            psi = rng.random([int(plan.cardinality[v]) for v in plan.cliques[clique]])
            out = tuple(i for i, v in enumerate(plan.cliques[clique]) if v not in plan.separators[c])
            expected = psi.sum(axis=out).reshape(-1)
            np.testing.assert_allclose(psi.reshape(-1)[table.inner.astype(np.intp)].sum(axis=0), expected, rtol=1e-12)
