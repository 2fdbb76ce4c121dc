"""Lists of products: what is left out is never missed, what a block reads is there, and the kernel on the host."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu.program.nonzero import lowest_root, needed_products
from jtgpu.backends.gpu.program.structs import NONE
from jtgpu.backends.gpu.single.sparse.lists import AHEAD, FOURS, LAST, LIST_WARPS, NO_CELL, STEP, Lists, make_lists
from jtgpu.errors import ImpossibleEvidence
from jtgpu.plans.lowering import LOWERINGS
from jtgpu.plans.plan import Plan
from tests.backends.gpu.test_levels import as_evidence, needs_compiler, tables
from tests.plans.test_plan import chain
from tests.plans.test_program import planned
from tests.support import random_nets
from tests.support.emulated import host_cuda
from tests.support.examples import examples

NETS = Path(__file__).parents[2] / "nets"


def play(lists: Lists, plan: Plan, evidence: Evidence) -> tuple[np.ndarray, float]:
    """Posteriors and the product of the roots, every block by itself from its own memory, as the kernel says."""
    n_image, n_cells, n_first, later, n_lambda, records, *places = lists.layout.tolist()
    entries, passes, arrivals, starts, answers, roots, rows, n_passes, n_levels, n_roots, barriers = places
    given = evidence.vectors(plan.cardinality)
    weights = np.ones(n_lambda)
    for v, n in enumerate(plan.cardinality.tolist()):
        weights[plan.posterior_ptr[v] : plan.posterior_ptr[v] + n] = given.get(v, np.ones(n))
    memory, words = [], []
    for b in range(lists.n_blocks):
        raw = np.full(records + 2 * (n_image - n_cells), np.nan).view(np.uint64)
        raw[:n_lambda] = weights.view(np.uint64)
        raw[n_lambda : n_lambda + 2 * n_cells], raw[records:] = np.split(lists.image[b], [2 * n_cells])
        assert n_lambda + 2 * n_cells <= records
        assert barriers == len(raw)
        assert lists.shared_bytes == raw.nbytes + 8 * (n_levels if lists.n_blocks > 1 else 0)
        cells, word = raw.view(np.float64).copy(), raw.view(np.uint32)
        bounds = word[2 * passes : 2 * passes + n_passes + 1]
        pairs = word[2 * entries : 2 * entries + 2 * bounds[-1]].reshape(-1, 2)
        for p in range(n_passes):
            for where, by in pairs[bounds[p] : bounds[p + 1]].tolist():
                cells[where >> 16] = cells[where & 0xFFFF] * cells[by & 0xFFFF] * cells[by >> 16]
        memory.append(cells)
        words.append(word)
    read_at: dict[int, int] = {}  # the last level that reads each cell
    for level in range(n_levels):
        stores: list[tuple[int, int, float]] = []
        sent: list[tuple[int, int, float]] = []
        for b, word in enumerate(words):
            for warp in range(LIST_WARPS):
                at = int(word[2 * starts + level * LIST_WARPS + warp])
                made, read, end = _rounds(memory[b], word[2 * rows :], at, 1 if lists.n_blocks == 1 else 2)
                end += 32 * (AHEAD - 4)  # a round of four products fetches what eight would take
                assert level >= later or 8 * rows + 4 * end <= 8 * records + 16 * n_first
                stores += [(blocks or 1 << b, cell, value) for blocks, cell, value in made]
                sent += made
                read_at.update(dict.fromkeys(read, level))
        for b, word in enumerate(words):  # answers, which stay in their block, are not counted
            arriving = sum(blocks >> b & 1 for blocks, _, _ in sent)
            assert lists.n_blocks == 1 or word[2 * (arrivals + level)] == 8 * arriving
        for blocks, cell, value in stores:
            assert read_at.get(cell, -1) < level
            for b in range(lists.n_blocks):
                memory[b][cell] = value if blocks >> b & 1 else np.nan  # nobody else may read it
    posterior = np.zeros(int(plan.cardinality.sum()))  # what can only be zero is never written
    for cells, word in zip(memory, words, strict=True):
        n = int(word[2 * answers])
        for where, place in word[2 * answers + 2 : 2 * answers + 2 + 2 * n].reshape(-1, 2).tolist():
            with np.errstate(invalid="ignore"):  # 0 / 0: P(e) is too small, and the answer not used
                posterior[place] = cells[where & 0xFFFF] / cells[where >> 16]
    root = [memory[0][c] for c in words[0][2 * roots : 2 * roots + n_roots].tolist()]
    return posterior, math.prod(root) * 2.0**lists.exponent


def _rounds(
    cells: np.ndarray, word: np.ndarray, at: int, n_heads: int
) -> tuple[list[tuple[int, int, float]], set[int], int]:
    """What a warp stores in one level, (blocks, cell, value), the cells that it reads, and where its words end."""
    stores: list[tuple[int, int, float]] = []
    read: set[int] = set()
    end = 0
    while at != NONE:
        head = word[at : at + 32 * n_heads].reshape(n_heads, 32).astype(np.int64)
        first = int(head[0, 0])
        n, log = first >> 16 & 255, first >> 24 & 7
        assert n % STEP == 0
        at += 32 * n_heads
        end = at + 32 * n
        products = word[at:end].reshape(n, 32).astype(np.int64)
        read.update((products & 0xFFFF).ravel().tolist(), (products >> 16).ravel().tolist())
        pairs = cells[products & 0xFFFF] * cells[products >> 16]
        total = (pairs[::2] * pairs[1::2] if first & FOURS else pairs).sum(axis=0)
        for lane in range(0, 32, 1 << log):
            cell, blocks = int(head[0, lane]) & 0xFFFF, int(head[1, lane]) if n_heads > 1 else 0
            if cell != NO_CELL:
                stores.append((blocks, cell, float(total[lane : lane + (1 << log)].sum())))
        at = NONE if first & LAST else end
    return stores, read, end


def check(lists: Lists | None, plan: Plan, factors: list[np.ndarray], cases: list[Evidence]) -> None:
    assert lists is not None
    definition = reference.prepare(plan, factors)
    for case in cases:
        posterior, p = play(lists, plan, case)
        try:
            expected = definition.run(case)
        except ImpossibleEvidence:
            assert p == 0
            continue
        np.testing.assert_allclose(posterior, expected.posterior, rtol=0, atol=1e-12)
        assert math.log(p) == pytest.approx(expected.log_evidence, abs=1e-10)


@examples(30)
@given(data=st.data(), n_blocks=st.sampled_from([1, 8, 16]))
def test_lists_agree_with_the_definition(data: st.DataObject, n_blocks: int) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(data.draw(st.permutations(range(len(model))))), data.draw(st.sampled_from(LOWERINGS)))
    cases = [as_evidence(len(model), *data.draw(random_nets.evidence_weights(model))) for _ in range(2)]
    with np.errstate(invalid="ignore", divide="ignore"):
        check(make_lists(plan, tables(model), 1 << 19, (n_blocks,)), plan, tables(model), cases)


@needs_compiler
@examples(40)
@given(data=st.data())
def test_the_kernel_agrees_with_the_definition(data: st.DataObject) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(data.draw(st.permutations(range(len(model))))), "pairwise")
    definition, engine = reference.prepare(plan, tables(model)), host_cuda.HostLists(plan, tables(model))
    for _ in range(3):
        case = as_evidence(len(model), *data.draw(random_nets.evidence_weights(model)))
        got = engine.run(case)
        try:
            expected = definition.run(case)
        except ImpossibleEvidence:
            assert got is None
            continue
        if got is None:
            assert expected.log_evidence < -200
            continue
        np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=1e-12)
        assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)


def some_cases(plan: Plan, n: int) -> list[Evidence]:
    rng = np.random.default_rng(4)
    cases = [Evidence.none(plan.n_variables)]
    for _ in range(n):
        state = np.full(plan.n_variables, -1, np.int32)
        for v in rng.choice(plan.n_variables, 4, replace=False).tolist():
            state[v] = rng.integers(plan.cardinality[v])
        cases.append(Evidence(state))
    return cases


@pytest.mark.parametrize(("name", "n_blocks"), [("alarm", 1), ("alarm", 8), ("hailfinder", 1), ("insurance", 16)])
def test_small_networks_as_lists(name: str, n_blocks: int) -> None:
    net = jtgpu.read(NETS / f"{name}.net")
    plan = net.plan(order="min-fill").plan
    with np.errstate(invalid="ignore", divide="ignore"):
        check(make_lists(plan, tables(net), 227 << 10, (n_blocks,)), plan, tables(net), some_cases(plan, 3))


def test_water_is_mostly_zeros(shared_nets: Path) -> None:
    net = jtgpu.read(shared_nets / "RetiEsempio" / "Water.net")
    plan = net.plan(order=shared_nets / "RetiEsempio" / "Water.num").plan
    listed = needed_products(plan, tables(net))
    assert listed.n_products < plan.cost().flops / 2 / 50
    lists = make_lists(plan, tables(net), 227 << 10)
    with np.errstate(invalid="ignore", divide="ignore"):
        check(lists, plan, tables(net), some_cases(plan, 1))


def test_what_doubles_cannot_hold_is_left_to_the_engine_that_scales() -> None:
    n = 400
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    flat = [t.ravel() for t in tables(net)]
    assert -1074 < lowest_root(plan, flat, needed_products(plan, tables(net))) < -900
    lists: Any = make_lists(plan, tables(net), 1 << 19, (1,))
    _, p = play(lists, plan, Evidence((np.arange(n) % 3).astype(np.int32)))
    assert p < lists.lowest


@pytest.mark.parametrize("n", [1, 2, 3, 40])
def test_no_level_waits_for_words_that_nobody_sends(n: int) -> None:
    """A card would wait for ever; the host's kernel copies all words at once."""
    net = chain(n, 2)
    plan = net.plan(order=list(range(n))).plan
    for blocks in ((1,), (8,)):
        lists = make_lists(plan, tables(net), 227 << 10, blocks)
        assert lists is not None
        n_image, n_cells, n_first, later = lists.layout[:4].tolist()
        n_levels = int(lists.layout[-3])
        if n_image - n_cells - n_first:
            assert 0 < later < n_levels
        else:
            assert later == 0
