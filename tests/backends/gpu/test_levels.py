"""The level engine on an emulated GPU, in float64: its schedule, its records, and its kernels."""

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
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as gpu
from jtgpu.backends.gpu.levels import schedule
from jtgpu.backends.gpu.lower import lowered
from jtgpu.backends.gpu.program.records import NONE, reciprocal
from jtgpu.backends.gpu.tile import WARPS
from jtgpu.device import nvcc
from jtgpu.device.context import Device, open_device
from jtgpu.errors import BackendUnavailable
from jtgpu.model.markov import MarkovNetwork
from jtgpu.plans.lowering import LOWERINGS
from tests.backends.gpu.engines import ON_GPU, agree, as_evidence, level_engine, tables
from tests.plans.test_plan import chain
from tests.plans.test_program import planned
from tests.support import random_nets
from tests.support.examples import examples


@pytest.mark.parametrize("lowering", LOWERINGS)
@examples(40, **ON_GPU)
@given(data=st.data())
def test_the_kernels_agree_with_the_definition(emulated_gpu: Device, data: st.DataObject, lowering: str) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(data.draw(st.permutations(range(len(model))))), lowering)
    definition = reference.prepare(plan, tables(model))
    with level_engine(emulated_gpu, plan, tables(model)) as engine:
        for _ in range(3):  # evidence comes, changes and goes: nothing of the last run is left
            agree(engine, definition, as_evidence(len(model), *data.draw(random_nets.evidence_weights(model))))
        agree(engine, definition, Evidence.none(len(model)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Water", "Mildew"])
def test_published_networks_agree_with_the_definition(emulated_gpu: Device, shared_nets: Path, name: str) -> None:
    net = jtgpu.read(shared_nets / "RetiEsempio" / f"{name}.net")
    plan = net.plan(order=shared_nets / "RetiEsempio" / f"{name}.num").plan
    definition = reference.prepare(plan, tables(net))
    with level_engine(emulated_gpu, plan, tables(net)) as engine:
        state = np.full(plan.n_variables, -1, np.int32)
        assert agree(engine, definition, Evidence(state))
        for v in np.random.default_rng(3).choice(plan.n_variables, 3, replace=False).tolist():
            state[v] = 1
        agree(engine, definition, Evidence(state))


def test_probabilities_far_below_the_smallest_double(emulated_gpu: Device) -> None:
    n = 400
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    state = (np.arange(n) % 3).astype(np.int32)  # every step changes the state
    expected = math.log(1 / 3) + (n - 1) * math.log(0.1)
    with level_engine(emulated_gpu, plan, tables(net)) as engine:
        found = engine.run(Evidence(state))
        assert found is not None
        assert found.log_evidence == pytest.approx(expected, rel=1e-13)


def test_numbers_far_outside_probabilities(emulated_gpu: Device) -> None:
    two = ["0", "1"]
    huge, tiny = np.array([[1e300, 2e300], [3e300, 4e300]]), np.array([[1e-300, 2e-300], [3e-300, 5e-324]])
    model = MarkovNetwork(
        {"a": two, "b": two, "c": two, "d": two},
        [(["a", "b"], huge), (["b", "c"], huge), (["c", "d"], tiny), ([], 1e-200), (["a"], [1e-200, 3e-200])],
    )
    plan = planned(model, [0, 1, 2, 3], "pairwise")
    weights = {0: np.array([1e-300, 2e-300]), 1: np.array([1e300, 1e300])}
    definition = reference.prepare(plan, tables(model))
    with level_engine(emulated_gpu, plan, tables(model)) as engine:
        for soft in ({}, weights):
            assert agree(engine, definition, as_evidence(4, {}, soft))


@given(n=st.integers(0, 2**31 - 1), extent=st.integers(2, 2**31 - 1))
def test_division_by_multiplication(n: int, extent: int) -> None:
    magic, shift = reciprocal(extent)
    assert magic < 2**32
    assert (n * magic >> 32) >> shift == n // extent


def test_every_output_has_one_task(shared_nets: Path) -> None:
    """Over all levels of a published network: each contraction's units, each once, and idle warps at the end."""
    net = jtgpu.read(shared_nets / "RetiEsempio" / "Barley.net")
    made = schedule.make_schedule(net.plan(order=shared_nets / "RetiEsempio" / "Barley.num").plan)
    busy = made.tasks[made.tasks["op"] != NONE]
    wide = made.ops["wide"][busy["op"]] == 1
    narrow = busy[~wide]
    assert len(np.unique(narrow)) == len(narrow)
    _, count = np.unique(busy[wide], return_counts=True)
    assert (count == WARPS).all()
    per_op = np.bincount(np.unique(busy)["op"], minlength=len(made.ops))
    tiles = 32 >> made.ops["log_lanes"].astype(int)
    np.testing.assert_array_equal(per_op, -(-made.ops["n_tiles"].astype(int) // tiles) * made.ops["splits"])
    assert sum(x.n_blocks for x in made.levels) * WARPS == len(made.tasks)


def test_contractions_of_many_tables_become_pairs() -> None:
    model = MarkovNetwork(
        {v: ["0", "1", "2"] for v in "abcd"},
        [(["a", "b"], np.ones((3, 3))), (["b", "c"], np.ones((3, 3))), (["c", "d"], np.ones((3, 3)))] * 2,
    )
    plan = planned(model, [0, 1, 2, 3], "clique")
    assert max(len(i) for i in plan.op_inputs) > 2
    program = lowered(plan)
    assert max(len(s.ins) for s in program.steps) == 2
    level = dict.fromkeys(range(plan.n_factors), 0)
    for step, at in zip(program.steps, program.level, strict=True):
        assert all(level[t] < at for t in step.ins)
        level[step.out] = at


def test_the_same_plan_gives_the_same_records(shared_nets: Path) -> None:
    net = jtgpu.read(shared_nets / "RetiEsempio" / "Link.net")
    plan = net.plan(order=shared_nets / "RetiEsempio" / "Link.num").plan
    first, second = schedule.make_schedule(plan), schedule.make_schedule(plan)
    for name in ("ops", "digits", "steps", "tasks", "known", "chunks", "answers", "roots"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
@pytest.mark.slow
def test_the_kernels_compile_without_spills(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text(nvcc.read_source("single/levels"), encoding="utf-8")
    command = ["nvcc", "-cubin", "-arch=sm_90", "-Xptxas", "-v", "-O3", "-std=c++17", "-o", str(tmp_path / "out.cubin")]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=True)
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill", done.stderr)]
    assert spills
    assert not any(spills), done.stderr


def test_large_numbers_run_after_run(emulated_gpu: Device) -> None:
    """Potentials far from 1, in contractions of one table: the constant 1 stays what it is."""
    two = ["0", "1"]
    rng = np.random.default_rng(2)
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
    model = MarkovNetwork(dict.fromkeys("abcde", two), [(p, rng.uniform(1, 2, (2, 2)) * 1e25) for p in pairs])
    plan = planned(model, [0, 1, 2, 3, 4], "pairwise")
    definition = reference.prepare(plan, tables(model))
    with level_engine(emulated_gpu, plan, tables(model)) as engine:
        for _ in range(3):
            assert agree(engine, definition, Evidence.none(5))


def test_without_a_gpu_the_backend_raises() -> None:
    net = chain(3)
    plan = planned(net, [0, 1, 2], "pairwise")
    try:
        open_device()
    except BackendUnavailable:
        with pytest.raises(BackendUnavailable, match=r"PyCUDA|CUDA"):
            gpu.prepare(plan, tables(net))
        return
    backend = gpu.prepare(plan, tables(net))
    assert backend.run_case(Evidence.none(3)).log_evidence == pytest.approx(0.0, abs=1e-12)
    backend.close()
