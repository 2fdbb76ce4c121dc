"""Tables of cases for the GPU without a GPU: rows read and merged, and the kernels run on the host."""

from __future__ import annotations

import ctypes
import math
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jtgpu
from jtgpu import compiler
from jtgpu.backends import kernels, reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import batch_code, batch_sums, batch_tables
from jtgpu.backends.gpu.batch_code import LANE_THREADS, Part, lane_parts, lines_of
from jtgpu.backends.gpu.batch_live import live_program
from jtgpu.backends.gpu.batch_rows import NO_WEIGHTS, checked_states, read_rows
from jtgpu.backends.gpu.shapes import binary_program
from jtgpu.errors import EvidenceError, ImpossibleEvidence
from jtgpu.network import DiscreteModel
from jtgpu.plan import Plan
from tests import host_cuda, random_nets
from tests.conftest import ROOT
from tests.test_program import planned

needs_compiler = pytest.mark.skipif(host_cuda.compiler() is None, reason="there is no g++ to build the kernels with")


def tables(model: DiscreteModel) -> list[np.ndarray]:
    return [f.table for f in compiler.model_factors(model)]


def cases(
    model: DiscreteModel, rng: np.random.Generator, n: int
) -> tuple[np.ndarray, dict[int, np.ndarray]]:
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


def hold_rows(
    model: DiscreteModel, plan: Plan, states: np.ndarray, soft: dict[int, np.ndarray], posterior: np.ndarray,
    log_evidence: np.ndarray,
) -> None:  # fmt: skip
    definition = reference.prepare(plan, tables(model))
    for i, row in enumerate(states):
        try:
            expected = definition.run(Evidence(row, {v: w[i] for v, w in soft.items()}))
        except ImpossibleEvidence:
            assert log_evidence[i] == -math.inf
            assert not posterior[i].any()
            continue
        np.testing.assert_allclose(posterior[i], expected.posterior, atol=1e-12)
        assert log_evidence[i] == pytest.approx(expected.log_evidence, abs=1e-10)


@needs_compiler
@settings(max_examples=25)
@given(data=st.data())
def test_weights_agree_with_the_definition(data: st.DataObject) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(range(len(model))), "pairwise")
    states, soft = cases(model, np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))), 35)
    lists, span = data.draw(st.booleans()), data.draw(st.integers(1, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_sums, "MOST_SUM", data.draw(st.sampled_from([1, 2, 64])))
        patch.setattr(batch_tables, "LIST_GAIN", data.draw(st.sampled_from([0.5, 1.0, 100.0])))  # none, some, all
        posterior, log_evidence = host_cuda.run_batch(plan, tables(model), states, soft, lists=lists, span=span)
    posterior = np.where(np.isneginf(log_evidence)[:, None], 0.0, posterior)
    hold_rows(model, plan, states, soft, posterior, log_evidence)


def test_rows_are_merged_where_many_are_equal() -> None:
    rng = np.random.default_rng(1)
    card = np.array([2, 3, 4])
    few = rng.integers(-1, 2, (5, 3), np.int32)
    pick = rng.integers(0, 5, 3000)
    rows = read_rows(few[pick], None, card, merge=False)
    assert rows.place is not None
    assert len(rows.states) <= 5
    np.testing.assert_array_equal(rows.states[rows.place], few[pick])
    weights = rng.random((3000, 3))  # all different: nothing is equal any more
    rows = read_rows(few[pick], {1: weights}, card, merge=True)
    assert rows.place is None
    assert len(rows.states) == 3000


def test_different_rows_stay_as_they_are() -> None:
    states = np.arange(64, dtype=np.int32).reshape(-1, 1)
    rows = read_rows(states, None, np.array([64]), merge=True)
    assert rows.place is None
    np.testing.assert_array_equal(rows.states, states)
    assert rows.weight_row.tolist() == [NO_WEIGHTS]
    assert rows.smallest == 0.0


def test_weights_are_scaled_by_powers_of_two() -> None:
    weights = np.array([[3e250, 1e250], [0.0, 0.0], [1e-280, 4e-280]])
    rows = read_rows(np.full((3, 2), -1, np.int32), {1: weights}, np.array([2, 2]), merge=False)
    assert rows.weight_row.tolist() == [NO_WEIGHTS, 0]
    assert (rows.weights[[0, 2]].max(axis=1) >= 0.5).all()
    assert (rows.weights < 1).all()
    back = rows.weights * np.exp(rows.log_scale)[:, None]
    np.testing.assert_allclose(back, weights, rtol=1e-12)
    assert -3 < rows.smallest <= -1


@pytest.mark.parametrize(
    ("states", "likelihood", "match"),
    [
        (np.zeros((2, 2), int), None, "shape"),
        (np.zeros((2, 3)), None, "integers"),
        (np.array([[0, 0, 0], [0, 3, 0]]), None, "case 1: variable 1"),
        (np.array([[0, 0, -2]]), None, "case 0: variable 2"),
        (np.zeros((2, 3), int), {1: np.ones((2, 2))}, "shape"),
        (np.zeros((2, 3), int), {1: -np.ones((2, 3))}, ">= 0"),
        (np.zeros((2, 3), int), {1: np.full((2, 3), np.nan)}, "finite"),
    ],
)
def test_what_is_no_table_of_cases(states: np.ndarray, likelihood: dict[int, np.ndarray] | None, match: str) -> None:
    card = np.array([2, 3, 4])
    with pytest.raises(EvidenceError, match=match):
        read_rows(checked_states(states, card), likelihood, card, merge=True)


_libraries: dict[str, ctypes.CDLL] = {}


def built(part: Part, folder: str, number: int) -> ctypes.CDLL:
    """A generated kernel as a shared library of the host."""
    if part.source in _libraries:
        return _libraries[part.source]
    source = kernels.with_headers(part.source).replace('extern "C" __global__', "__global__")
    call = f"host::launch(n, {LANE_THREADS}, [=] {{ batch_lane(*b); }});"
    call = f'extern "C" void run(unsigned n, Lane* b) {{ {call} }}'
    path = Path(folder, f"part{number}.cpp")
    path.write_text(f"{host_cuda.SHIM.read_text(encoding='utf-8')}\n{source}\n{call}\n", encoding="utf-8")
    out = path.with_suffix(".so")
    command = ["g++", "-O0", "-std=c++17", "-shared", "-fPIC", "-w", "-o", str(out), str(path)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    _libraries[part.source] = ctypes.CDLL(str(out))
    return _libraries[part.source]


def run_lanes(
    model: DiscreteModel, plan: Plan, states: np.ndarray, soft: dict[int, np.ndarray], targets: list[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """What `jtgpu.backends.gpu.batch_lane.LaneProgram` does with one chunk."""
    live = live_program(plan, tables(model))
    parts, cells = lane_parts(plan, live, weights=bool(soft), blocks=3)
    n = len(states)
    rows = read_rows(states, soft, plan.cardinality, merge=False)
    weights = rows.weights if rows.place is None else rows.weights[rows.place]
    log_scale = rows.log_scale if rows.place is None else rows.log_scale[rows.place]
    state, weight = np.ascontiguousarray(states.T), np.ascontiguousarray(weights.T)
    column, at = np.full(plan.n_variables, NO_WEIGHTS, np.uint32), 0
    for v in range(plan.n_variables) if targets is None else targets:
        column[v] = at
        at += int(plan.cardinality[v])
    blocks = -(-n // LANE_THREADS)
    arena = np.full(max(cells, 1) * blocks * LANE_THREADS, np.nan)
    posterior, log_evidence = np.full((n, at), np.nan), np.full(n, np.nan)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        libraries = list(pool.map(lambda x: built(x[1], folder, x[0]), enumerate(parts)))
    for part, library in zip(parts, libraries, strict=True):
        arrays = (arena, part.factors, state, weight, rows.weight_row, column, posterior, log_evidence)
        struct = np.array([*(x.ctypes.data for x in arrays), n | at << 32], np.uint64)
        if at or not part.answers:
            library.run(blocks, ctypes.c_void_p(struct.ctypes.data))
    posterior[np.isneginf(log_evidence)] = 0.0
    return posterior, log_evidence + log_scale


@needs_compiler
@settings(max_examples=12)
@given(data=st.data())
def test_written_kernels_agree_with_the_definition(data: st.DataObject) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(range(len(model))), "pairwise")
    states, soft = cases(model, np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))), 9)
    if data.draw(st.booleans()):
        soft = {}
    hold_rows(model, plan, states, soft, *run_lanes(model, plan, states, soft))


@needs_compiler
@pytest.mark.parametrize(("name", "lines"), [("alarm", 6000), ("alarm", 1500), ("asia", 60)])
def test_written_kernels_of_networks(name: str, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one kernel, as several, and as so many that contractions are cut too."""
    monkeypatch.setattr(batch_code, "MOST_LINES", lines)
    monkeypatch.setattr(batch_code, "MOST_ALONE", 8000 if lines == 6000 else 0)
    model = jtgpu.read(ROOT / "nets" / f"{name}.net")
    plan = model.plan(order=ROOT / "nets" / f"{name}.num").plan
    rng = np.random.default_rng(2)
    states = np.where(rng.random((130, len(model))) < 0.1, rng.integers(0, model.cardinality, (130, len(model))), -1)
    states[0] = -1
    states = states.astype(np.int32)
    posterior, log_evidence = run_lanes(model, plan, states, {})
    assert log_evidence[0] == pytest.approx(0.0, abs=1e-12)
    some = [0, 1, 2, 127, 128, 129]
    hold_rows(model, plan, states[some], {}, posterior[some], log_evidence[some])
    one, again = run_lanes(model, plan, states, {}, [3])
    first, last = plan.posterior_ptr[3:5]
    np.testing.assert_array_equal(one, posterior[:, first:last])
    np.testing.assert_array_equal(again, log_evidence)
    assert run_lanes(model, plan, states, {}, [])[0].shape == (130, 0)


def test_sums_are_cut_and_mean_the_same() -> None:
    """Every table that the plan names is made once, from tables that are there, over the same variables."""
    model = jtgpu.read(ROOT / "nets" / "water.net")
    plan = model.plan(order=ROOT / "nets" / "water.num").plan
    whole = binary_program(plan)
    cut = batch_sums.split_sums(plan, whole)
    assert len(cut.steps) > len(whole.steps)
    assert cut.scopes[: len(whole.scopes)] == whole.scopes
    made = set(range(plan.n_factors))
    for step in cut.steps:
        assert made.issuperset(step.ins)
        assert step.out not in made
        made.add(step.out)
        joint = {v for t in step.ins for v in cut.scopes[t]}
        assert joint.issuperset(cut.scopes[step.out])
        assert plan.size(tuple(joint - set(cut.scopes[step.out]))) <= 2 * batch_sums.MOST_SUM
    assert made == set(range(len(cut.scopes)))


def test_structural_zeros_are_found() -> None:
    model = jtgpu.read(ROOT / "nets" / "water.net")
    plan = model.plan(order=ROOT / "nets" / "water.num").plan
    live = live_program(plan, tables(model))
    assert int(live.count.sum()) < 0.02 * int(live.dense.sum())
    layout = batch_tables.batch_layout(plan, tables(model))
    lists = layout.ops["shape"] == 0
    assert lists.sum() > len(lists) // 2
    assert len(layout.tasks) == sum(n for _, n, _ in layout.levels)
    assert not (batch_tables.batch_layout(plan).ops["shape"] == 0).any()


def test_groups_of_cases_that_a_warp_takes() -> None:
    span_of, enough = batch_tables.span_of, batch_tables.ENOUGH_WARPS
    assert span_of(1, 1) == 1
    assert span_of(10, 100) == 1
    assert span_of(enough, 4) == 4
    assert span_of(enough, 1000) == batch_tables.MOST_SPAN


def test_parts_are_small_enough_to_compile() -> None:
    model = jtgpu.read(ROOT / "nets" / "hailfinder.net")
    plan = model.plan(order=ROOT / "nets" / "hailfinder.num").plan
    live = live_program(plan, tables(model))
    parts, cells = lane_parts(plan, live, weights=False, blocks=3)
    assert len(parts) > 1
    assert [p.answers for p in parts] == sorted(p.answers for p in parts)
    assert max(p.source.count("\n") for p in parts) < 3 * sum(lines_of(live)) / len(parts)
    assert max(len(p.factors) for p in parts) <= 8192  # constant memory
    assert 0 < cells < sum(int(live.live(t).sum()) for t in range(len(live.support)))
    again, _ = lane_parts(plan, live, weights=False, blocks=3)
    assert [p.source for p in again] == [p.source for p in parts]
