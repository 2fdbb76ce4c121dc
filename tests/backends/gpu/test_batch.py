"""Tables of cases on a GPU: tables read and merged, and the kernels on the emulated GPU."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import lower
from jtgpu.backends.gpu.batch import codegen, generated
from jtgpu.backends.gpu.batch import engine as batch
from jtgpu.backends.gpu.batch import levels as batch_levels
from jtgpu.backends.gpu.batch import parts as batch_parts
from jtgpu.backends.gpu.batch import records as batch_tables
from jtgpu.backends.gpu.batch import tiling as batch_tiles
from jtgpu.backends.gpu.batch.buffers import ChunkBuffers
from jtgpu.backends.gpu.batch.chunk import Chunk, answers_to_rows, enter_columns
from jtgpu.backends.gpu.batch.codegen import generate_kernels
from jtgpu.backends.gpu.batch.sparsity import count_products, find_sparsity
from jtgpu.backends.gpu.batch.table import TableJob, TargetColumns, scale_weights
from jtgpu.backends.gpu.lower import MOST_SUM, Loop, lowered, offsets, split_sums
from jtgpu.backends.gpu.program import layout
from jtgpu.backends.gpu.program.records import NONE
from jtgpu.backends.table import Table
from jtgpu.backends.wrappers.row_queue import RowQueue
from jtgpu.device import nvcc
from jtgpu.device.context import Device
from jtgpu.errors import EvidenceError, ImpossibleEvidence, TableTooLarge
from jtgpu.model.discrete import DiscreteModel
from jtgpu.plans import compiler
from jtgpu.plans.plan import Plan
from tests.backends.gpu.engines import ON_GPU
from tests.conftest import ROOT
from tests.plans.test_plan import chain
from tests.plans.test_program import planned
from tests.support import random_nets
from tests.support.bundled import bundled
from tests.support.emulated.built import kernel
from tests.support.emulated.install import needs_compiler
from tests.support.examples import examples, slow


def tables(model: DiscreteModel) -> list[np.ndarray]:
    return [f.table for f in compiler.model_factors(model)]


def cases(model: DiscreteModel, rng: np.random.Generator, n: int) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """States, observed here and there, and weights of some variables: zeros, ones, very small and very large."""
    card = model.cardinality
    states = np.where(rng.random((n, len(model))) < 0.3, rng.integers(0, card, (n, len(model))), -1)
    soft = {}
    for v in range(len(model)):
        if rng.random() < 0.4:
            weights = rng.random((n, int(card[v]))) * 10.0 ** rng.integers(-200, 200, (n, 1))
            weights[rng.random(n) < 0.3] = 1.0
            soft[v] = np.where(rng.random(weights.shape) < 0.1, 0.0, weights)
    return states.astype(np.int32), soft


def answers(
    engine: batch.BatchEngine, states: np.ndarray, soft: dict[int, np.ndarray], targets: list[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Posteriors and ln P(e) of every row, equal rows included; NaN or -inf where float32 lost P(e)."""
    plan = engine.plan
    table = TableJob.read(Table.of(states, soft or None), TargetColumns.of(plan, targets), plan.cardinality, 1.0)
    engine.answer(table, RowQueue(table.n))
    posterior = table.posterior.copy()
    posterior[np.isneginf(table.log_evidence)] = 0.0
    return posterior, table.log_evidence + table.weights.log_scale


def records_of(plan: Plan, factors: list[np.ndarray] | None = None) -> batch_tables.RecordLayout:
    """The records of a plan; with `factors`, structural zeros are left out."""
    program = split_sums(lowered(plan))
    sparsity = find_sparsity(program, factors) if factors is not None else None
    return batch_tables.record_layout(program, sparsity, layout.make_places(program))


def run_records(
    gpu: Device, plan: Plan, factors: list[np.ndarray], states: np.ndarray, soft: dict[int, np.ndarray],
    real: str = "float64",
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """`answers` by kernels that read records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "GENERATED_FLOPS", -1)
        engine = batch.BatchEngine(plan, factors, gpu, real)
    with closing(engine):
        assert engine.kind == "tables"
        return answers(engine, states, soft)


def hold_rows(
    model: DiscreteModel, plan: Plan, states: np.ndarray, soft: dict[int, np.ndarray], posterior: np.ndarray,
    log_evidence: np.ndarray,
) -> None:  # fmt: skip
    expected_by = reference.prepare(plan, tables(model))
    for i, row in enumerate(states):
        try:
            expected = expected_by.run_case(Evidence(row, {v: w[i] for v, w in soft.items()}))
        except ImpossibleEvidence:
            assert log_evidence[i] == -math.inf
            assert not posterior[i].any()
            continue
        np.testing.assert_allclose(posterior[i], expected.posterior, atol=1e-12)
        assert log_evidence[i] == pytest.approx(expected.log_evidence, abs=1e-10)


@examples(25, **ON_GPU)
@given(data=st.data())
def test_records_agree_with_the_reference(emulated_gpu: Device, data: st.DataObject) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(range(len(model))), "pairwise")
    states, soft = cases(model, np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))), 35)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lower, "MOST_SUM", data.draw(st.sampled_from([1, 2, 64])))
        patch.setattr(batch_levels, "SLIM_WARPS", data.draw(st.sampled_from([1, 1 << 20])))
        patch.setattr(batch_levels, "PART_GROUPS", data.draw(st.sampled_from([1, 8])))
        posterior, log_evidence = run_records(emulated_gpu, plan, tables(model), states, soft)
    hold_rows(model, plan, states, soft, posterior, log_evidence)


@needs_compiler
@pytest.mark.parametrize(("real", "share", "kind"), [
    *((real, share, 10) for real in ("float64", "float32") for share in (1.0, 0.3)),
    *((real, share, kind) for kind in (11, 12, 13) for real, share in (("float64", 0.3), ("float32", 1.0))),
])  # fmt: skip
def test_products_agree_with_the_reference(
    emulated_gpu: Device, real: str, share: float, kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wide contractions by blocks of warps, several groups of cases one after another, the last one alone."""
    rng = np.random.default_rng(3)
    sides = {10: (19, 19, 19, 19), 12: (37, 4, 9, 4)}
    card = dict(zip("abcd", sides.get(kind, (37, 6, 7, 6)), strict=True))
    factors = []
    for scope in ("ab", "bc", "cd", "da"):
        shape = tuple(card[v] for v in scope)
        factors.append((list(scope), rng.random(shape) * (rng.random(shape) < share)))
    model = jtgpu.MarkovNetwork({v: [str(k) for k in range(n)] for v, n in card.items()}, factors)
    plan = model.plan(order=[1, 3, 0, 2]).plan
    for name, value in (("PRODUCT_WORK", 0.0), ("STEP_WORK", 0.0)):
        monkeypatch.setattr(batch_tiles, name, value)
    monkeypatch.setattr(batch_tiles, "PRODUCTS", (kind,))
    monkeypatch.setattr(batch_levels, "PRODUCTS", (kind,))
    monkeypatch.setattr(batch_levels, "MANY", 1)
    monkeypatch.setattr(batch_levels, "PART_GROUPS", 2)
    kinds = records_of(plan, tables(model)).products["kind"] & 15
    assert set(kinds.tolist()) == {kind}
    states, soft = cases(model, rng, 32 * 5)
    if real == "float32":
        soft = {}
    posterior, log_evidence = run_records(emulated_gpu, plan, tables(model), states, soft, real)
    if real == "float64":
        hold_rows(model, plan, states, soft, posterior, log_evidence)
    else:
        exact, log_exact = run_records(emulated_gpu, plan, tables(model), states, soft)
        np.testing.assert_allclose(posterior, exact, atol=2e-5)
        np.testing.assert_allclose(log_evidence, log_exact, atol=2e-4)


@examples(15, **ON_GPU)
@given(data=st.data())
def test_float32_marks_what_it_lost(emulated_gpu: Device, data: st.DataObject) -> None:
    """Near the reference, whatever the weights; else ln P(e) is NaN or -inf, and such cases are computed again."""
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(range(len(model))), "pairwise")
    states, soft = cases(model, np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))), 40)
    if data.draw(st.booleans()):
        soft = {}
    posterior, log_evidence = run_records(emulated_gpu, plan, tables(model), states, soft, "float32")
    expected_by = reference.prepare(plan, tables(model))
    known = np.isfinite(log_evidence)
    for i, row in enumerate(states):
        try:
            expected = expected_by.run_case(Evidence(row, {v: w[i] for v, w in soft.items()}))
        except ImpossibleEvidence:
            assert not known[i]
            continue
        if known[i]:
            np.testing.assert_allclose(posterior[i], expected.posterior, atol=2e-3)
            assert log_evidence[i] == pytest.approx(expected.log_evidence, abs=2e-3, rel=1e-6)
        else:
            assert soft  # without weights of 1e-200 nothing of these small networks is lost
    assert known.any() or soft or np.isneginf(log_evidence).all()


@pytest.mark.slow
def test_float32_of_networks(emulated_gpu: Device) -> None:
    """As accurate as float32 allows, ln P(e) of 1e-300 and below included."""
    for name, order in (("alarm", "alarm.num"), ("win95pts", "win95pts.num")):
        model = jtgpu.read(ROOT / "nets" / f"{name}.net")
        plan = model.plan(order=ROOT / "nets" / order if (ROOT / "nets" / order).exists() else "min-fill").plan
        rng = np.random.default_rng(5)
        states = np.where(rng.random((64, len(model))) < 0.05, rng.integers(0, model.cardinality), -1).astype(np.int32)
        posterior, log_evidence = run_records(emulated_gpu, plan, tables(model), states, {}, "float32")
        exact, log_exact = run_records(emulated_gpu, plan, tables(model), states, {})
        known = np.isfinite(log_evidence)
        assert known.sum() >= np.isfinite(log_exact).sum() - 1
        np.testing.assert_allclose(posterior[known], exact[known], atol=2e-5)
        np.testing.assert_allclose(log_evidence[known], log_exact[known], atol=2e-4, rtol=1e-5)
    n = 1500
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    states = np.stack([np.arange(n) % 3, np.zeros(n, int), np.full(n, -1)]).astype(np.int32)
    _, log_evidence = run_records(emulated_gpu, plan, tables(net), states, {}, "float32")
    assert log_evidence[0] == pytest.approx(math.log(1 / 3) + (n - 1) * math.log(0.1), rel=1e-5)
    assert log_evidence[2] == pytest.approx(0.0, abs=1e-3)


EVERY = TargetColumns([0], 2, None)
CARD = np.array([2, 3, 4])


def columns(
    variables: list[int], codes: np.ndarray, n_variables: int, worth: float = 1.0, targets: TargetColumns = EVERY
) -> TableJob:
    """Cases by columns."""
    return TableJob.read(Table.by_columns(variables, codes, n_variables), targets, CARD, worth)


def test_equal_rows_are_merged() -> None:
    rng = np.random.default_rng(1)
    few = rng.integers(-1, 2, (5, 3), np.int32)
    pick = rng.integers(0, 5, 3000)
    table = TableJob.read(Table.of(few[pick], None), EVERY, CARD, 0.5)
    assert table.kind is not None
    assert table.n <= 5
    np.testing.assert_array_equal(table.cases.states[table.kind], few[pick])
    soft = {1: rng.random((3000, 3))}  # all different: no rows are equal
    table = TableJob.read(Table.of(few[pick], soft), EVERY, CARD, 0.0)
    assert table.kind is None
    assert table.n == 3000
    soft = {1: soft[1][pick]}
    table = TableJob.read(Table.of(few[pick], soft), EVERY, CARD, 0.0)
    assert table.kind is not None
    assert table.n == 5
    np.testing.assert_array_equal(table.weights.values[table.kind], scale_weights(soft, 3000, CARD).values)


def test_equal_columns_are_merged() -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(-1, 2, (3, 5)).astype(np.int8)[:, rng.integers(0, 5, 3000)]
    table = columns([0, 1, 2], codes, 3, 0.5)
    assert table.kind is not None
    assert table.n <= 5
    np.testing.assert_array_equal(table.cases.states[:, table.kind], codes)
    table.posterior[:] = np.arange(table.n) + np.array([[0.0], [0.5]])
    table.log_evidence[:] = np.where(np.arange(table.n) == 1, -np.inf, np.arange(table.n))
    found = table.result()
    np.testing.assert_array_equal(found.log_evidence, np.where(table.kind == 1, -np.inf, table.kind))
    np.testing.assert_array_equal(found.impossible, table.kind == 1)
    np.testing.assert_array_equal(found.posterior[1], np.where(table.kind == 1, 0.0, table.kind + 0.5))
    assert columns([0, 1, 2], codes, 3).kind is None  # a search that cannot pay


def test_different_rows_stay_as_they_are() -> None:
    states = np.arange(64, dtype=np.int32).reshape(-1, 1)
    table = TableJob.read(Table.of(states, None), EVERY, np.array([64]), 0.0)
    assert table.kind is None
    np.testing.assert_array_equal(table.cases.states, states)
    assert table.weights.first.tolist() == [NONE]
    assert table.weights.smallest == 0.0


def test_weights_are_scaled_by_powers_of_two() -> None:
    weights = np.array([[3e250, 1e250], [0.0, 0.0], [1e-280, 4e-280]])
    scaled = scale_weights({1: weights}, 3, np.array([2, 2]))
    assert scaled.first.tolist() == [NONE, 0]
    assert (scaled.values[[0, 2]].max(axis=1) >= 0.5).all()
    assert (scaled.values < 1).all()
    back = scaled.values * np.exp(scaled.log_scale)[:, None]
    np.testing.assert_allclose(back, weights, rtol=1e-12)
    assert -3 < scaled.smallest <= -1


def test_float32_recomputes_what_it_lost() -> None:
    """Rows whose ln P(e) is not finite are answered again, and only those."""
    table = TableJob.read(Table.of(np.arange(12, dtype=np.int32).reshape(4, 3), None), EVERY, CARD, 1.0)
    table.posterior[:], table.log_evidence[:] = 0.5, [-1.0, np.nan, -np.inf, -2.0]

    def again(part: Any) -> None:
        np.testing.assert_array_equal(part.cases.states, table.cases.states[1:3])
        part.posterior[:], part.log_evidence[:] = 0.25, [-7.0, -np.inf]

    table.recompute = again
    found = table.result()
    assert found.log_evidence.tolist() == [-1.0, -7.0, -np.inf, -2.0]
    assert found.posterior[:, 0].tolist() == [0.5, 0.25, 0.0, 0.5]
    assert found.impossible.tolist() == [False, False, True, False]


def test_repeated_targets() -> None:
    plan = jtgpu.read(ROOT / "nets" / "asia.net").plan(order="min-fill").plan
    found = TargetColumns.of(plan, [3, 0, 3])
    assert found.variables == [3, 0]
    assert found.n_out == 4
    assert found.columns is not None
    assert found.columns.tolist() == [0, 1, 2, 3, 0, 1]
    assert TargetColumns.of(plan, None) == (list(range(8)), 16, None)
    assert TargetColumns.of(plan, []) == ([], 0, None)


def test_tables_of_another_shape() -> None:
    with pytest.raises(EvidenceError, match="shape"):
        TableJob.read(Table.of(np.zeros((2, 2), np.int32), None), EVERY, CARD, 0.0)
    with pytest.raises(EvidenceError, match="shape"):
        columns([0], np.zeros((3, 2), np.int8), 3)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32])
def test_columns_are_scattered(dtype: Any) -> None:
    """Codes of any width, to the rows of their variables; other rows do not change."""
    rng = np.random.default_rng(3)
    size, codes = 96, rng.integers(-1, 100, (5, 96)).astype(dtype)
    state = np.full((9, size), -1, np.int32)
    variables = np.array([7, 0, 3, 8, 4], np.uint32)
    chunk = Chunk(
        size, 0, codes.ctypes.data, 0, state.ctypes.data, 0, 0, 0, 0, 0, variables.ctypes.data, 5, codes.dtype.itemsize
    )
    launched: list[tuple[str, int, Any]] = []
    kernels: Any = SimpleNamespace(launch=lambda name, blocks, *_: launched.append((name, blocks, _[-1])))
    enter_columns(kernels, chunk, None)
    name, blocks, arguments = launched.pop()
    kernel(nvcc.read_source("batch/batch"), name)(blocks, 256, arguments.kept(0))
    np.testing.assert_array_equal(state[variables], codes)
    assert (state[[1, 2, 5, 6]] == -1).all()
    answers_to_rows(kernels, chunk, 12, 96, None)
    assert not launched
    answers_to_rows(kernels, replace(chunk, rows=4096), 33, 96, None)
    assert launched[0][:2] == ("batch_rows", 6)  # of 32 columns, for each group of cases


def test_columns_are_copied_in_and_out() -> None:
    rng = np.random.default_rng(4)
    codes = rng.integers(-1, 2, (3, 1000)).astype(np.int8)
    cases = columns([2, 0, 1], codes, 4, targets=TargetColumns([0, 1, 3], 6, None))
    host = cases.host_chunk(320, lambda cells, dtype: np.zeros(cells, dtype))
    assert cases.state_bytes == 3
    posterior, log_evidence = rng.random((6, 1000)), np.where(rng.random(1000) < 0.1, -np.inf, -1.0)
    for first in range(0, 1000, 320):
        last = min(first + 320, 1000)
        cases.fill(host, first, last, 320)
        np.testing.assert_array_equal(host.states[:, : last - first], codes[:, first:last])
        assert (host.states[:, last - first :] == codes[:, [last - 1]]).all()
        host.posterior[:, : last - first] = posterior[:, first:last]
        host.log_evidence[: last - first] = log_evidence[first:last]
        for work in cases.copies(host, first, last):
            work()
    np.testing.assert_array_equal(cases.posterior, posterior)
    np.testing.assert_array_equal(cases.log_evidence, log_evidence)


def test_rows_behind_a_chunk_are_the_last_one() -> None:
    """Rows that observe nothing would take a warp a case longest."""
    states = np.arange(15, dtype=np.int32).reshape(5, 3)
    table = TableJob.read(Table.of(states), TargetColumns([0], 2, None), np.array([2, 2, 2]), 1.0)
    host = table.host_chunk(32, lambda cells, dtype: np.full(cells, -7, dtype))
    table.fill(host, 1, 4, 32)
    np.testing.assert_array_equal(host.states[:3], states[1:4])
    assert (host.states[3:] == states[3]).all()


@pytest.mark.parametrize(("n", "most", "wave"), [(5000, 1 << 18, 1024), (100, 1 << 18, 1024), (100_000, 4000, 32), (
    1_000_000, 1 << 18, 33_792), (40_000, 1 << 18, 33_792), (1 << 20, 1 << 14, 32)])  # fmt: skip
def test_chunks_are_whole_waves_or_even(n: int, most: int, wave: int) -> None:
    """As large as allowed and never larger; whole waves if one fits."""
    device: Any = SimpleNamespace(free_memory=lambda: 1 << 36)
    buffers = ChunkBuffers(device, [])
    table = columns([0], np.zeros((1, n), np.int8), 8, targets=TargetColumns(list(range(8)), 16, None))
    program: Any = SimpleNamespace(case_bytes=1000, most_cases=most, wave=wave)
    size, full = buffers.chunk_size(program, table, n)
    assert size % 32 == 0
    assert size <= most
    assert size % wave == 0 or size < wave
    assert size >= min(n, most, 1 << 14) / 2
    assert full == (most < min(n, max(n // 4, 1 << 14)))
    device.free_memory = lambda: 1 << 10
    with pytest.raises(TableTooLarge, match="32 cases"):
        buffers.chunk_size(program, table, n)


def test_columns_of_any_integers() -> None:
    small = np.zeros((1, 2), np.int8)
    variables: Any = np.array([2, 0])
    assert columns(variables, np.zeros((2, 3), np.int8), 3).variables.tolist() == [2, 0]
    assert columns([0], small, 3).cases.states is small
    assert columns([0], small.astype(np.int64), 3).cases.states.dtype == np.int32
    assert columns([], np.zeros((0, 5), np.int8), 3).n == 5


@pytest.mark.slow
@examples(24, **ON_GPU)
@given(data=st.data())
def test_generated_kernels_agree_with_the_reference(emulated_gpu: Device, data: st.DataObject) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(range(len(model))), "pairwise")
    states, soft = cases(model, np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))), 9)
    if data.draw(st.booleans()):
        soft = {}
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):  # several kernels, and large tables wait in memory
            patch.setattr(batch_parts, "MOST_ALONE", 0)
            patch.setattr(batch_parts, "MOST_PART_LINES", data.draw(st.sampled_from([5, 40, 1000])))
            for name in ("LARGE", "LATE"):
                patch.setattr(codegen, name, data.draw(st.integers(1, 12)))
        with closing(batch.BatchEngine(plan, tables(model), emulated_gpu)) as engine:
            hold_rows(model, plan, states, soft, *answers(engine, states, soft))


@pytest.mark.parametrize(("name", "lines"), [("alarm", 6000), *slow(("asia", 60), ("alarm", 1500))])
def test_generated_kernels_of_networks(
    emulated_gpu: Device, name: str, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one kernel, as several, and as so many that contractions are split too."""
    monkeypatch.setattr(batch_parts, "MOST_PART_LINES", lines)
    monkeypatch.setattr(batch_parts, "MOST_ALONE", 8000 if lines == 6000 else 0)
    model = jtgpu.read(ROOT / "nets" / f"{name}.net")
    plan = model.plan(order=ROOT / "nets" / f"{name}.num").plan
    rng = np.random.default_rng(2)
    states = np.where(rng.random((130, len(model))) < 0.1, rng.integers(0, model.cardinality, (130, len(model))), -1)
    states[0] = -1
    states = states.astype(np.int32)
    with closing(batch.BatchEngine(plan, tables(model), emulated_gpu)) as engine:
        assert engine.kind == "lanes"
        posterior, log_evidence = answers(engine, states, {})
        assert log_evidence[0] == pytest.approx(0.0, abs=1e-12)
        some = [0, 1, 2, 127, 128, 129]
        hold_rows(model, plan, states[some], {}, posterior[some], log_evidence[some])
        one, again = answers(engine, states, {}, [3])
        first, last = plan.posterior_ptr[3:5]
        np.testing.assert_array_equal(one, posterior[:, first:last])
        np.testing.assert_array_equal(again, log_evidence)
        assert answers(engine, states, {}, [])[0].shape == (130, 0)


def test_split_sums_compute_the_same_tables() -> None:
    """Every table of the plan is computed once, from tables computed before, over the same variables."""
    model = jtgpu.read(ROOT / "nets" / "water.net")
    plan = model.plan(order=ROOT / "nets" / "water.num").plan
    whole = lowered(plan)
    cut = split_sums(whole)
    assert len(cut.steps) > len(whole.steps)
    assert cut.scopes[: len(whole.scopes)] == whole.scopes
    made = set(range(plan.n_factors))
    for step in cut.steps:
        assert made.issuperset(step.ins)
        assert step.out not in made
        made.add(step.out)
        joint = {v for t in step.ins for v in cut.scopes[t]}
        assert joint.issuperset(cut.scopes[step.out])
        assert plan.size(tuple(joint - set(cut.scopes[step.out]))) <= 2 * MOST_SUM
    assert made == set(range(len(cut.scopes)))


@pytest.mark.slow
def test_structural_zeros_are_found() -> None:
    model = jtgpu.read(ROOT / "nets" / "water.net")
    plan = model.plan(order=ROOT / "nets" / "water.num").plan
    sparsity = find_sparsity(lowered(plan), tables(model))
    assert int(sparsity.count.sum()) < 0.01 * plan.cost().flops
    with_zeros, without = records_of(plan, tables(model)), records_of(plan)
    assert with_zeros.n_cells == without.n_cells
    assert multiply_adds(with_zeros) < 0.05 * multiply_adds(without)
    assert multiply_adds(without) < 0.65 * plan.cost().flops  # two operations each


@examples(20)
@given(data=st.data())
def test_used_entries_are_those_of_terms(data: st.DataObject) -> None:
    """Matrix products find the same entries as a walk over all multiply-adds."""
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(range(len(model))), "pairwise")
    sparsity = find_sparsity(lowered(plan), tables(model))
    needed = [np.zeros(len(x), np.bool_) for x in sparsity.needed]
    for t in (*plan.posterior_table.tolist(), *plan.root_table.tolist()):
        needed[t][:] = True
    for i, s in enumerate(sparsity.program.steps):
        terms = sparsity.terms(i)
        assert sparsity.count[i] == len(terms.out)
        assert np.array_equal(np.unique(terms.out), np.flatnonzero(sparsity.used(s.out)))
        for t, cells in zip(s.ins, (terms.a, terms.b), strict=False):
            needed[t][cells] = True
    assert all(np.array_equal(a, b) for a, b in zip(needed, sparsity.needed, strict=True))


def stored(tiles: batch_tiles.Tiles, t: int) -> list[tuple[int, int]]:
    """Rows and columns of the stored outputs of a tile, or of the tiles of a block."""
    (tm, tn), wide = batch_tiles.SHAPES[tiles.shape], tiles.out_n.shape[1]
    if tiles.shape not in batch_tiles.PRODUCTS:
        return [(i, j) for i in range(tm) for j in range(wide) if tiles.mask[t] >> (i * wide + j) & 1]
    side, words = min(tn, 8), tm * tn // 32
    high = 32 // side
    return [
        (tm * block + i, tn * block + j)
        for block in range(tiles.mask.shape[1] // words) for i in range(tm) for j in range(tn)
        for word in [words * block + (i // (2 * high) * (tn // side) + j // side) * 2 + i // high % 2]
        if tiles.mask[t, word] >> (i % high * side + j % side) & 1
    ]  # fmt: skip


def multiply_adds(layout: batch_tables.RecordLayout) -> int:
    """Those of a case, including padding."""
    sizes = np.array([tm * max(tn, 1) for tm, tn in batch_tiles.SHAPES])
    sizes[batch_tiles.DIAGONAL] = 4
    tiles = layout.tiles
    return int((tiles["n_steps"] * sizes[tiles["kind"] & 15]).sum()) + 256 * int(layout.products["n_steps"].sum())


@examples(60)
@given(data=st.data())
def test_tiles_cover_a_contraction(data: st.DataObject) -> None:
    """Every structurally non-zero product of a stored output, once, and no product of another contraction."""
    kinds = st.sampled_from([(1, 1, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1), (0, 1, 0), (0, 0, 1)])
    drawn = data.draw(st.lists(st.tuples(st.integers(2, 5), kinds), max_size=5))
    alone = data.draw(st.booleans())
    at = [1, 1, 1]
    loops: list[Loop] = []
    for n, tables_of in reversed(drawn):
        in_table = [*tables_of[:2], 0] if alone else list(tables_of)
        if not any(in_table):
            continue
        loops.insert(0, (n, (at[0] * in_table[0], at[1] * in_table[1], at[2] * in_table[2])))
        at = [s * n if x else s for s, x in zip(at, in_table, strict=True)]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    share = data.draw(st.sampled_from([0.2, 0.7, 1.0]))
    live = None if share == 1.0 else [rng.random(n) < share for n in at[: 2 if alone else 3]]
    if live is not None and alone:
        live.append(np.zeros(0, np.bool_))
    more = data.draw(st.sampled_from([(), (batch_tiles.DIAGONAL,), (batch_tiles.DIAGONAL, *batch_tiles.PRODUCTS)]))
    check_tiles(loops, alone, live, more)


@pytest.mark.parametrize(("m", "n", "k", "s"), [(12, 10, 3, 2), (30, 6, 2, 1), (40, 3, 2, 2), (7, 5, 2, 6)])
def test_products_cover_a_contraction(m: int, n: int, k: int, s: int) -> None:
    loops = [(s, (m * n, m * k, n * k)), (m, (n, k, 0)), (n, (1, 0, k)), (k, (0, 1, 1))]
    live = [np.random.default_rng(m).random(size) < 0.9 for size in (s * m * n, s * m * k, s * n * k)]
    for which in (None, live):
        for shape in batch_tiles.PRODUCTS:
            assert check_tiles(loops, False, which, (shape,)) in {*range(9), shape}
    axes = batch_tiles._Axes(tuple(loops), live)
    for shape in {*range(7), *batch_tiles.PRODUCTS}:
        tiles = axes.tiles(shape, False)
        read = [(x != batch_tiles.NONE).sum(axis=1) for x in (tiles.a, tiles.b)]
        cost = len(tiles.count), int(tiles.count.sum()), int((sum(read) * tiles.count).sum())
        assert axes.work(shape) == batch_tiles._work(shape, *cost), shape


def check_tiles(loops: list[Loop], alone: bool, live: Any, more: tuple[int, ...]) -> int:
    """The tiles of a contraction cover it; returns their shape."""
    at = [1, 1, 1]
    for size, strides in loops:
        at = [x * size if stride else x for x, stride in zip(at, strides, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PRODUCT_WORK", "STEP_WORK"):
            patch.setattr(batch_tiles, name, 0.0)
        tiles = batch_tiles.TileMaker().tiles(tuple(loops), alone, live, more)
    tn = batch_tiles.SHAPES[tiles.shape][1]
    assert bool(tn) != alone
    assert tiles.shape < 9 or tiles.shape in more
    assert np.unpackbits(tiles.mask.view(np.uint8)).sum() == (at[0] if live is None else live[0].sum())
    got: list[tuple[int, int, int]] = []
    for t in range(len(tiles.a)):
        steps = tiles.steps[tiles.first[t] : tiles.first[t] + tiles.count[t]].tolist()
        for i, j in stored(tiles, t):
            out = int(tiles.out_m[t, i] + tiles.out_n[t, j])
            b = int(tiles.b[t, i if tiles.shape == batch_tiles.DIAGONAL else j]) if tn else 0
            got += [(out, int(tiles.a[t, i]) + x, b + y) for x, y in steps]
    if tiles.swapped:
        got = [(out, b, a) for out, a, b in got]
    every = list(zip(*(offsets(loops, k) for k in (0, 1, 2)), strict=True))
    assert set(got) <= set(every)
    assert len(set(got)) == len(got)
    wanted = set(every) if live is None else {
        (o, a, b) for o, a, b in every if live[0][o] and live[1][a] and (alone or live[2][b])
    }  # fmt: skip
    assert wanted <= set(got)
    return tiles.shape


def test_kernels_are_small_enough_to_compile() -> None:
    model = jtgpu.read(ROOT / "nets" / "hailfinder.net")
    plan = model.plan(order=ROOT / "nets" / "hailfinder.num").plan
    sparsity = find_sparsity(lowered(plan), tables(model))
    found, cells = generate_kernels(sparsity, weights=False, blocks=2)
    assert len(found) > 1
    assert [x.answers_only for x in found] == sorted(x.answers_only for x in found)
    assert max(x.source.count("\n") for x in found) < 3 * sum(batch_parts.code_lines(sparsity)) / len(found)
    assert 0 < cells < sum(int(sparsity.used(t).sum()) for t in range(len(sparsity.nonzero))) / 3
    again, _ = generate_kernels(sparsity, weights=False, blocks=2)
    assert [x.source for x in again] == [x.source for x in found]


def test_kernels_have_room_for_their_constants() -> None:
    """Large tables over the same variables: every kernel reads factors from 64 KiB of constant memory."""
    n, rng = 14, np.random.default_rng(3)
    scopes = [["a", "b", "c"]] * 3 + [["c", "d"]]
    factors = [(scope, rng.random((n,) * len(scope))) for scope in scopes]
    model = jtgpu.MarkovNetwork({v: [str(k) for k in range(n)] for v in "abcd"}, factors)
    plan = model.plan(order="min-fill").plan
    found, _ = generate_kernels(find_sparsity(lowered(plan), tables(model)), weights=False, blocks=2)
    assert max(len(x.entries) for x in found) <= generated.MOST_CONSTANTS
    assert max(x.source.count("\n") for x in found) < 4 * batch_parts.MOST_PART_LINES


SHAPES = [(2, 42, 500, 40), (1, 20, 18, 4000), (2, 700, 400, 9), (1, 3, 5, 7), (4, 64, 64, 163)]
SHAPES += [(1, 100, 9000, 18), (2, 300, 300, 310), (1, 1, 5, 20_000), (1, 2, 7000, 1), (3, 1, 9, 9)]


@pytest.mark.parametrize("shape", SHAPES)
def test_products_of_counts_in_blocks_are_exact(shape: tuple[int, ...]) -> None:
    s, m, k, n = shape
    rng = np.random.default_rng(1)
    x, y = (rng.integers(0, 3, size).astype(np.float32) for size in ((s, k, m), (s, k, n)))
    x = x.swapaxes(1, 2)
    np.testing.assert_array_equal(count_products(x, y), np.einsum("smk,skn->smn", x.astype(int), y.astype(int)))


def a_network(rng: np.random.Generator) -> tuple[DiscreteModel, Plan]:
    card = dict(zip("abcdef", (5, 4, 6, 3, 4, 5), strict=True))
    scopes = ("abc", "bcd", "cde", "def", "fa")
    factors = [(list(s), rng.random([card[v] for v in s]) * (rng.random([card[v] for v in s]) < 0.7)) for s in scopes]
    model = jtgpu.MarkovNetwork({v: [str(k) for k in range(n)] for v, n in card.items()}, factors)
    return model, planned(model, list(range(6)), "pairwise")


def test_a_smaller_table_runs_fewer_blocks(emulated_gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory of a larger table: the graph for all of its cases, or kernels for fewer where that takes less time."""
    rng = np.random.default_rng(7)
    model, plan = a_network(rng)
    states, soft = cases(model, rng, 600)
    few = {v: w[:330] for v, w in soft.items()}
    queue, queued = batch_tables.RecordProgram.queue, []

    def recorded(self: batch_tables.RecordProgram, bound: Any, stream: Any, n: int) -> None:
        queued.append(n)
        queue(self, bound, stream, n)

    monkeypatch.setattr(batch_tables.RecordProgram, "queue", recorded)
    monkeypatch.setattr(batch, "GENERATED_FLOPS", -1)
    with closing(batch.BatchEngine(plan, tables(model), emulated_gpu)) as engine:
        whole, expected = engine.run(Table.of(states, soft)), engine.run(Table.of(states[:330], few))
        (slot,) = engine._buffers._slots
        for case_us, n in ((math.inf, [352]), (0.0, [])):
            slot.kernels.case_us = case_us
            queued.clear()
            found = engine.run(Table.of(states[:330], few))
            assert queued == n
            np.testing.assert_array_equal(found.posterior, expected.posterior)
            np.testing.assert_array_equal(found.log_evidence, expected.log_evidence)
        np.testing.assert_array_equal(expected.posterior, whole.posterior[:330])
        with emulated_gpu.active():
            slot.kernels._capture(64)
        np.testing.assert_array_equal(engine.run(Table.of(states[:330], few)).posterior, expected.posterior)
        assert queued == [64, 352]


def test_tables_of_float32_begin_at_sectors_and_take_half() -> None:
    plan = bundled("hailfinder").plan("min-fill", cache=False).plan
    made, usual = (layout.make_places(lowered(plan), real) for real in ("float32", "float64"))
    assert not (made.table_cell % 8).any()
    order = np.argsort(made.table_cell)
    begin, size = made.table_cell[order].astype(int), made.table_size[order]
    assert (begin[:-1] + size[:-1] <= begin[1:]).all()
    assert begin[-1] + size[-1] <= made.n_cells
    assert 4 * made.n_cells < 8 * usual.n_cells


def test_the_smallest_entries_of_factors() -> None:
    tables = [np.array([0.0, 1.0, 0.25]), np.zeros(3), np.array([3e-57, 1.0]), np.array([[2.0**-167, 0.0], [0.5, 1.0]])]
    found = layout.smallest_entries(tables)
    assert found[0] == 39 - 2
    assert found[1] == np.inf
    assert found[2] == pytest.approx(39 + np.log2(3e-57))
    assert found[2] < layout.MIN_LOG2  # 3e-57 of the largest: digits are gone
    assert found[3] == 39 - 167 < layout.MIN_LOG2
    for table, low in zip(tables, found, strict=True):
        placed = (table * 2.0 ** (layout.PLACE - np.frexp(table.max(initial=0.0))[1])).astype(np.float32)
        normal = placed[placed > 0].min(initial=1.0) >= np.finfo(np.float32).tiny
        assert normal == (low >= layout.MIN_LOG2)
