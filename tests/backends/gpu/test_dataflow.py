"""The dataflow engine on an emulated GPU: its schedule, its records, and its kernel."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence, columns_of
from jtgpu.backends.gpu.dataflow import schedule
from jtgpu.backends.gpu.dataflow.engine import DataflowEngine
from jtgpu.backends.gpu.dataflow.graph import AWAITED, ENTER_SHAPE, LONG, ROOT_SHAPE, RestrictedFactors
from jtgpu.backends.gpu.dataflow.schedule import DataflowSchedule, make_schedule
from jtgpu.backends.gpu.lower import lowered
from jtgpu.backends.gpu.program.layout import least_root, scaled_factors
from jtgpu.device import nvcc
from jtgpu.device.context import Device
from jtgpu.model.markov import MarkovNetwork
from jtgpu.plans.conditioning import Restriction
from jtgpu.plans.lowering import LOWERINGS
from tests.backends.gpu.engines import ON_GPU, agree, as_evidence, dataflow_engine, tables
from tests.plans.test_plan import chain
from tests.plans.test_program import planned
from tests.support import random_nets
from tests.support.bundled import bundled
from tests.support.examples import examples, slow


def arena_of(engine: DataflowEngine) -> np.ndarray:
    """The arena as the last run left it."""
    found = np.zeros(engine.schedule.n_cells)
    with engine.device.active():
        engine.device.download(found, engine._arena, engine.stream)
        engine.stream.synchronize()
    return found


@pytest.fixture
def unscaled(monkeypatch: pytest.MonkeyPatch, emulated_gpu: Device) -> Device:
    """The emulated GPU, whose tilings are chosen as for a GPU of a hundred multiprocessors."""
    monkeypatch.setattr(schedule, "REFERENCE_SMS", emulated_gpu.multiprocessors)
    return emulated_gpu


@pytest.mark.parametrize("lowering", LOWERINGS)
@examples(40, **ON_GPU)
@given(data=st.data())
def test_the_kernel_agrees_with_the_definition(emulated_gpu: Device, data: st.DataObject, lowering: str) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(data.draw(st.permutations(range(len(model))))), lowering)
    definition = reference.prepare(plan, tables(model))
    with dataflow_engine(emulated_gpu, plan, tables(model)) as engine:
        for _ in range(3):  # evidence comes, changes and goes; the sign of a run alternates
            agree(engine, definition, as_evidence(len(model), *data.draw(random_nets.evidence_weights(model))))
        agree(engine, definition, Evidence.none(len(model)))


@pytest.mark.parametrize("long_batches", [False, *slow(True)])
def test_a_published_network_agrees_with_the_definition(
    unscaled: Device, shared_nets: Path, monkeypatch: pytest.MonkeyPatch, long_batches: bool
) -> None:
    """Tiles of every kind, and sums in parts."""
    monkeypatch.setattr(schedule, "LONG_BATCHES_GAIN", math.inf if long_batches else 0.0)
    net = jtgpu.read(shared_nets / "RetiEsempio" / "Mildew.net")
    plan = net.plan(order=shared_nets / "RetiEsempio" / "Mildew.num").plan
    definition = reference.prepare(plan, tables(net))
    with dataflow_engine(unscaled, plan, tables(net)) as engine:
        assert len(np.unique(engine.schedule.ops["shape"])) > 5
        shapes = engine.schedule.ops["shape"]
        assert (shapes[shapes < ENTER_SHAPE] >= LONG).any() == long_batches
        assert engine.schedule.ops["splits"].max() > 1
        state = np.full(plan.n_variables, -1, np.int32)
        assert agree(engine, definition, Evidence(state))
        for v in np.random.default_rng(3).choice(plan.n_variables, 3, replace=False).tolist():
            state[v] = 1
        agree(engine, definition, Evidence(state))


@pytest.mark.slow
def test_a_network_without_observed_variables_agrees_with_the_whole(emulated_gpu: Device) -> None:
    """Every run selects other parts of the factors, and every cell that is read has the run's sign."""
    net = bundled("hailfinder")
    plan = net.plan(order="min-fill").plan
    rng = np.random.default_rng(7)
    seen = np.zeros(len(net), np.bool_)
    seen[rng.choice(len(net), 12, replace=False)] = True
    definition = reference.prepare(plan, tables(net))
    for part in Restriction(plan.cardinality, plan.factor_scopes, seen).plans(plan.elimination_order.tolist()):
        restricted = RestrictedFactors(part, tables(net), plan.factor_scopes, seen)
        made = make_schedule(part, restricted.largest, emulated_gpu.multiprocessors, restricted)
        assert made is not None
        engine = DataflowEngine(part, made, emulated_gpu, restricted=restricted)
        entered = made.ops[made.ops["shape"] == ENTER_SHAPE]
        selected = [f for f in range(len(restricted.tables)) if restricted.axes(f)]
        assert np.count_nonzero(entered["n_digits"]) == len(selected) > 0
        answered = 0
        for _ in range(8):
            state = np.full(len(net), -1, np.int32)
            state[seen] = rng.integers(0, net.cardinality[seen])
            soft = {int(v): rng.random(int(net.cardinality[v])) + 0.1 for v in restricted.free[:2]}
            try:
                expected = definition.run_case(Evidence(state, soft))
            except jtgpu.ImpossibleEvidence:
                assert engine.run(Evidence(state, soft)) is None
                continue
            got = engine.run(Evidence(state, soft))
            assert got is not None
            assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)
            expected.posterior[columns_of(plan.posterior_ptr, np.flatnonzero(seen).tolist())] = 0.0
            np.testing.assert_allclose(got.posterior, expected.posterior, atol=1e-12)
            answered += 1
            arena = arena_of(engine)
            for op in entered:
                cells = arena[int(op["out"]) : int(op["out"]) + int(op["n_tiles"])]
                assert (np.signbit(cells) == bool(engine._sign)).all()
        assert answered > 1
        engine.close()


def test_every_cell_is_written_once_a_run(emulated_gpu: Device) -> None:
    """All that a run writes has its sign afterwards, zeros included; factors without evidence keep theirs."""
    net = bundled("alarm")
    plan = net.plan(order="min-fill").plan
    with dataflow_engine(emulated_gpu, plan, tables(net)) as engine:
        made, ops = engine.schedule, engine.schedule.ops
        contraction = ops["shape"] < ENTER_SHAPE
        written = np.zeros(made.n_cells, np.int64)
        for op in ops[contraction]:
            size = int(op["scratch"]) if op["splits"] > 1 else table_size(made, int(op["out"]))
            written[int(op["out"]) : int(op["out"]) + size * max(1, int(op["splits"]))] += 1
        for op in ops[ops["shape"] == ENTER_SHAPE]:
            written[int(op["out"]) : int(op["out"]) + int(op["n_tiles"])] += 1
        assert written.max() == 1
        for _ in range(3):
            engine.run(Evidence.none(plan.n_variables))
            signs = np.signbit(arena_of(engine))
            assert (signs[written == 1] == bool(engine._sign)).all()
            assert not signs[written == 0].any()


def table_size(made: DataflowSchedule, cell: int) -> int:
    """Cells of a table without its alignment: those of the contraction that makes it."""
    (op,) = made.ops[(made.ops["shape"] < ENTER_SHAPE) & (made.ops["out"] == cell)]
    size = int(op["n_tiles"])
    for side in ("m", "n"):
        step, extent = int(op[side]["step"]), int(op[side]["extent"])
        if step > 1 or extent > 1:
            size = size // step * extent
    return size


def producers(made: DataflowSchedule) -> list[set[int]]:
    """The records that make what each record reads."""
    by_cell = {int(op["out"]): i for i, op in enumerate(made.ops) if op["shape"] <= ENTER_SHAPE}
    found: list[set[int]] = []
    for op in made.ops:
        cells = []
        if op["shape"] == ROOT_SHAPE:
            cells = [int(c) for c, awaited in made.roots if awaited]
        elif op["shape"] != ENTER_SHAPE:
            cells = [int(op[t]) for t in "ab" if op[f"slot_{t}"] == AWAITED]
        found.append({by_cell[c] for c in cells})
    return found


@pytest.mark.parametrize("n_blocks", [1, 7, 132])
def test_no_warp_waits_forever(shared_nets: Path, n_blocks: int) -> None:
    """With every queue's head running where its inputs are there, all units come to an end, whatever their times."""
    net = jtgpu.read(shared_nets / "RetiEsempio" / "Mildew.net")
    plan = net.plan(order=shared_nets / "RetiEsempio" / "Mildew.num").plan
    made = make_schedule(plan, tables(net), n_blocks)
    assert made is not None
    assert made.n_blocks == n_blocks
    needs = producers(made)
    left = np.bincount(made.tasks["op"], minlength=len(made.ops))
    assert left.min() > 0
    assert len(np.unique(made.tasks)) == len(made.tasks)
    splits = np.maximum(made.ops["splits"].astype(int), 1)
    dense = made.ops["shape"] < ENTER_SHAPE
    units = -(-made.ops["n_tiles"].astype(int) // (32 >> made.ops["log_lanes"].astype(int))) * splits
    np.testing.assert_array_equal(left[dense], units[dense])
    at, end = made.starts[:-1].astype(int), made.starts[1:].astype(int)
    moved = True
    while moved:
        moved = False
        for q in range(len(at)):
            while at[q] < end[q]:
                op = int(made.tasks["op"][at[q]])
                if any(left[m] for m in needs[op]):
                    break
                left[op] -= 1
                at[q] += 1
                moved = True
    assert (at == end).all()


def test_the_same_plan_gives_the_same_queues(shared_nets: Path) -> None:
    net = jtgpu.read(shared_nets / "RetiEsempio" / "Mildew.net")
    plan = net.plan(order=shared_nets / "RetiEsempio" / "Mildew.num").plan
    first, second = (make_schedule(plan, tables(net), 132) for _ in range(2))
    assert first is not None
    assert second is not None
    for name in ("ops", "digits", "steps", "tasks", "starts", "known", "roots"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
    for name in ("arena", "pristine"):
        assert getattr(first.numbers, name).tobytes() == getattr(second.numbers, name).tobytes()


@pytest.mark.slow
def test_what_is_too_small_is_noticed(emulated_gpu: Device) -> None:
    n = 900
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    with dataflow_engine(emulated_gpu, plan, tables(net)) as engine:
        found = engine.run(Evidence.none(n))
        assert found is not None
        assert found.log_evidence == pytest.approx(0.0, abs=1e-12)
        assert engine.run(Evidence((np.arange(n) % 3).astype(np.int32))) is None  # 10^-900
        assert engine.run(Evidence.none(n)) is not None


@examples(15)
@given(data=st.data())
def test_the_bound_counts_what_is_below_the_smallest_double(data: st.DataObject) -> None:
    """It grows with the entries' products and with the number of them, and is infinite where they may overflow."""
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(range(len(model))), "pairwise")
    program = lowered(plan)
    scaled = [table for table, _ in scaled_factors(plan, tables(model))]
    bound = least_root(program, scaled)
    n = sum(math.prod(extent for extent, _ in axes) for axes in program.loops)
    assert bound >= -1074 + 43 + math.log2(n)
    assert least_root(program, [2.0 * t for t in scaled]) >= bound
    assert least_root(program, [1e200 * np.maximum(t, 1.0) for t in scaled]) == math.inf or len(scaled) < 2


def test_a_plan_of_too_many_variables_is_refused() -> None:
    n = schedule.MAX_VARIABLES + 1
    net = chain(n, 2)
    assert make_schedule(net.plan(order=list(range(n))).plan, tables(net), 4) is None
    seen = np.arange(n) % 2 == 1  # a run is given the states of all variables, also of the observed ones
    scopes = net.plan(order=list(range(n))).plan.factor_scopes
    plan = Restriction(net.cardinality, scopes, seen).plans(list(range(n)))[0]
    restricted = RestrictedFactors(plan, tables(net), scopes, seen)
    assert make_schedule(plan, restricted.largest, 4, restricted=restricted) is None


def test_factors_that_nothing_changes_and_numbers_far_from_one(emulated_gpu: Device) -> None:
    two = ["0", "1"]
    model = MarkovNetwork(
        {"a": two, "b": two, "c": two},
        [(["a", "b"], [[1e300, 2e300], [0.0, 4e300]]), (["b", "c"], [[1e-40, 2e-300], [3e-40, 5e-324]]), ([], 1e-200)],
    )
    plan = planned(model, [0, 1, 2], "pairwise")
    definition = reference.prepare(plan, tables(model))
    with dataflow_engine(emulated_gpu, plan, tables(model)) as engine:
        for hard in ({}, {0: 1}, {0: 1, 1: 0}, {}):
            agree(engine, definition, as_evidence(3, hard, {}))


def test_a_smaller_gpu_gets_tilings_that_take_less_of_it() -> None:
    """The time model's shares of a whole GPU are those of the GPU in use."""
    net = bundled("insurance")
    plan = net.plan("min-fill", cache=False).plan
    small, large = (make_schedule(plan, tables(net), n) for n in (4, 132))
    assert small is not None
    assert large is not None
    assert len(small.tasks) < len(large.tasks)
    assert small.microseconds > large.microseconds


def test_interrupted_launches_are_repeated_from_a_clean_arena(
    emulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C it is unknown whether a run was queued, and so which sign its entries have."""
    net = bundled("asia")
    plan = net.plan("min-fill", cache=False).plan
    definition = reference.prepare(plan, tables(net))
    with dataflow_engine(emulated_gpu, plan, tables(net)) as engine:
        launch = engine._launch

        def interrupted() -> None:
            launch()
            raise KeyboardInterrupt

        for seen in (0, 1):
            monkeypatch.setattr(engine, "_launch", interrupted)
            with pytest.raises(KeyboardInterrupt):
                engine.run(as_evidence(len(net), {2: seen}, {}))
            monkeypatch.setattr(engine, "_launch", launch)
            assert agree(engine, definition, as_evidence(len(net), {3: seen}, {}))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_the_kernel_compiles_without_spills(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text(nvcc.read_source("single/dataflow"), encoding="utf-8")
    command = ["nvcc", "-cubin", "-arch=sm_90", "-Xptxas", "-v", "-O3", "-std=c++17", "-o", str(tmp_path / "out.cubin")]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=True)
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill", done.stderr)]
    assert spills
    assert not any(spills), done.stderr
