"""Programs of slices, without a device: contractions in other orders, blocks, and sums of single variables."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.gpu.program.records import Step as Contraction
from jtgpu.backends.gpu.slices.contractions import RUNNING, Pattern, SliceMaker
from jtgpu.backends.gpu.slices.sums import Sums, sums_of
from jtgpu.dynamic.step import Step
from tests.dynamic.random_templates import random_template


def ring(n: int = 4, least: int = 2) -> jtgpu.DynamicNetwork:
    """Hidden variables whose parents are themselves and their left neighbour, one slice earlier; observations."""
    rng = np.random.default_rng(3)
    states = {f"h{i}": ["0", "1", "2"][: max(2 + i % 2, least)] for i in range(n)}
    states |= {f"o{i}": ["0", "1"] for i in range(n)}
    size = {v: len(s) for v, s in states.items()}
    parents: dict[str, Any] = {f"h{i}": [(f"h{(i - 1) % n}", 1), (f"h{i}", 1)] for i in range(n)}
    parents |= {f"o{i}": [f"h{i}"] for i in range(n)}
    cpts = {}
    for v, given in parents.items():
        shape = [size[p if isinstance(p, str) else p[0]] for p in given]
        cpts[v] = rng.dirichlet(np.ones(size[v]), shape)
    start = {f"h{i}": rng.dirichlet(np.ones(size[f"h{i}"])) for i in range(n)}
    return jtgpu.DynamicNetwork(states, parents, cpts, start=start)


def maker_of(dyn: jtgpu.DynamicNetwork, seen: set[int]) -> tuple[SliceMaker, int, int]:
    """The contractions of later slices in which some variables are observed; factor and answer of a message ahead."""
    step = Step(dyn, "cpu", {})
    plan = step.plan.plan
    always = tuple(v in seen for v in range(plan.n_variables))
    columns = tuple(sorted(seen).index(v) if v in seen else -1 for v in range(plan.n_variables))
    pattern = Pattern(always, columns, (-1,) * len(always))
    factors = step.tree(step.order).intervened().factors
    whole = [np.asarray(factors[f]) for f in range(plan.n_factors)]
    before = int(plan.evidence_factor[step.before_number])
    return SliceMaker(plan, whole, pattern), before, int(plan.posterior_table[step.after_number])


def values_of(maker: SliceMaker, steps: list[Contraction], tables: dict[int, Any], answer: int) -> Any:
    """A table, by contractions with `einsum`."""
    found = dict(tables)

    def axes(t: int) -> list[int]:
        return [v for v in maker.scopes[t] if v in maker.axes_of(t)]

    for s in steps:
        inputs = [x for t in s.ins for x in (found[t].reshape([int(maker.cards[v]) for v in axes(t)]), axes(t))]
        found[s.out] = np.einsum(*inputs, axes(s.out))
    return found[answer].ravel()


@pytest.mark.parametrize("seed", range(8))
def test_evidence_apart_from_constants_gives_the_same_message(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dyn = ring(3 + seed % 2) if seed < 2 else random_template(rng)
    hidden = {v for v, lag in dyn.interface_numbers} | {dyn.index(v) for v in dyn.static}
    maker, before, answer = maker_of(dyn, {v for v in range(len(dyn)) if v not in hidden})
    found = []
    for split in (False, True):
        part = maker.part({before: RUNNING}, [answer], 0, split)
        tables = dict(part.consts) | {x.factor: np.linspace(0.1, 1.0, maker.size(x.factor)) for x in part.loads}
        tables |= {f: np.linspace(1.0, 2.0, maker.size(f)) for f in part.message}
        found.append(values_of(maker, part.steps, tables, part.answers[0]))
        blocks = maker.blocks(part, 20_000)
        assert blocks is not None
        assert sorted(s.out for b in blocks for s in b.steps) == sorted(s.out for s in part.steps)
        placed = maker.placed(part, blocks, 0, 0)
        made = set(placed.cell) | set(part.consts)
        assert all(t in made for b in blocks for t in b.inputs)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-13)


def test_a_ring_is_a_chain_of_few_blocks() -> None:
    maker, before, answer = maker_of(ring(), {4, 5, 6, 7})
    part = maker.part({before: RUNNING}, [answer], 0, split=True)
    blocks = maker.blocks(part, 20_000)
    assert blocks is not None
    assert len(part.steps) >= 8
    assert len(blocks) <= 3
    assert sum(t in part.consts for s in part.steps for t in s.ins) == 4  # the CPTs, each by itself


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
    assert all(sums.walk is not None for sums in (*groups, *singles))


def test_sums_that_are_not_regular_are_lists() -> None:
    assert Sums(np.array([[0, 1], [2, 4]]), 0).walk is None
    assert Sums(np.array([[4, 5], [2, 3]]), 0).walk is None
