"""The resident engine in float32, its kernels run on the host: right to 1e-5, or it says that it is not."""

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
from jtgpu import timing
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu.program import layout as places
from jtgpu.backends.gpu.single.levels import schedule
from jtgpu.device import nvcc as kernels
from jtgpu.errors import ImpossibleEvidence
from jtgpu.model.network import DiscreteModel
from jtgpu.plans import compiler
from jtgpu.plans.lowering import LOWERINGS
from jtgpu.plans.plan import Plan
from tests.backends.gpu.test_levels import as_evidence
from tests.plans.test_plan import chain
from tests.plans.test_program import planned
from tests.support import random_nets
from tests.support.emulated import host_cuda
from tests.support.examples import examples

pytestmark = pytest.mark.skipif(host_cuda.compiler() is None, reason="there is no g++ to build the kernels with")
BOUND = 1e-5  # of a posterior, absolute; of P(e), relative


def tables(model: DiscreteModel) -> list[np.ndarray]:
    return [f.table for f in compiler.model_factors(model)]


def single(plan: Plan, model: DiscreteModel, lists: bool = False) -> host_cuda.HostEngine:
    return host_cuda.HostEngine(plan, tables(model), lists, real="float32")


def agree(engine: host_cuda.HostEngine, definition: reference.Reference, evidence: Evidence) -> bool:
    """Whether float32 trusts its answer, which is right then."""
    try:
        expected = definition.run(evidence)
    except ImpossibleEvidence:
        with pytest.raises(ImpossibleEvidence):
            engine.run(evidence)
        return False
    try:
        got = engine.run(evidence)
    except ImpossibleEvidence:  # lost: the backend asks float64
        return False
    if engine.doubt[0]:
        return False
    np.testing.assert_allclose(got.posterior, expected.posterior, atol=BOUND)
    assert got.log_evidence == pytest.approx(expected.log_evidence, abs=BOUND)
    return True


@pytest.mark.parametrize("lowering", LOWERINGS)
@examples(40)
@given(data=st.data())
def test_float32_agrees_with_the_definition(data: st.DataObject, lowering: str) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(data.draw(st.permutations(range(len(model))))), lowering)
    definition = reference.prepare(plan, tables(model))
    engine = single(plan, model, data.draw(st.booleans()))
    for _ in range(3):  # evidence comes, changes and goes: nothing of the last run is left
        agree(engine, definition, as_evidence(len(model), *data.draw(random_nets.evidence_weights(model))))
    agree(engine, definition, Evidence.none(len(model)))


@pytest.mark.parametrize("name", ["alarm", "hailfinder", "insurance", "win95pts"])
def test_float32_trusts_itself_on_networks_as_they_are(name: str) -> None:
    net = jtgpu.read(timing.benchmark_files([name])[0])
    assert isinstance(net, jtgpu.BayesianNetwork)
    plan = net.plan("min-fill", cache=False).plan
    engine, definition = single(plan, net), reference.prepare(plan, tables(net))
    for share in (0.0, 0.2, 1.0):
        state = np.full(len(net), -1, np.int32)
        for v, k in timing.sample_cases(net, 1, share, 5)[0].items():
            state[net.index(v)] = k
        assert agree(engine, definition, Evidence(state))


def test_probabilities_far_below_the_smallest_float() -> None:
    n = 700
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    engine = single(plan, net)
    got = engine.run(Evidence((np.arange(n) % 3).astype(np.int32)))
    expected = math.log(1 / 3) + (n - 1) * math.log(0.1)
    assert expected < math.log(1e-300)
    assert got.log_evidence == pytest.approx(expected, rel=1e-7)
    assert not engine.doubt[0]


def test_what_float32_cannot_hold_is_doubted() -> None:
    """Many children say one thing of their parent, then the parent is observed in the other state: its probability
    was lost long before."""
    n, rare = 60, 1e-5
    names = [f"c{i}" for i in range(n)]
    step = np.array([[1 - rare, rare], [rare, 1 - rare]])
    two = ["0", "1"]
    net = jtgpu.BayesianNetwork(
        {"root": two, **dict.fromkeys(names, two)}, {c: ["root"] for c in names},
        {"root": [0.5, 0.5], **dict.fromkeys(names, step)},
    )  # fmt: skip
    plan = net.plan("min-fill", cache=False).plan
    engine, definition = single(plan, net), reference.prepare(plan, tables(net))
    state = np.zeros(n + 1, np.int32)
    state[0] = -1
    assert agree(engine, definition, Evidence(state))
    half = np.array([0] + [0] * (n // 2) + [1] * (n - n // 2), np.int32)
    answers = []
    for first in (-1, 0, 1):
        for case in (state, half, 1 - half):
            given = case.copy()
            given[0] = first
            answers.append(agree(engine, definition, Evidence(given)))
    assert any(answers)
    assert not all(answers)


def test_numbers_far_outside_probabilities() -> None:
    two = ["0", "1"]
    huge, tiny = np.array([[1e300, 2e300], [3e300, 4e300]]), np.array([[1e-300, 2e-300], [3e-300, 5e-300]])
    model = jtgpu.MarkovNetwork(
        {"a": two, "b": two, "c": two, "d": two},
        [(["a", "b"], huge), (["b", "c"], huge), (["c", "d"], tiny), ([], 1e-200), (["a"], [1e-200, 3e-200])],
    )
    plan = planned(model, [0, 1, 2, 3], "pairwise")
    engine, definition = single(plan, model), reference.prepare(plan, tables(model))
    weights = {0: np.array([1e-300, 2e-300]), 1: np.array([1e300, 1e300])}
    for soft in ({}, weights, {}):
        assert agree(engine, definition, as_evidence(4, {}, soft))


def test_tables_of_float32_begin_at_sectors_and_take_half() -> None:
    net = jtgpu.read(timing.benchmark_files(["hailfinder"])[0])
    plan = net.plan("min-fill", cache=False).plan
    made, usual = schedule.make_schedule(plan, real="float32"), schedule.make_schedule(plan)
    assert not (made.table_cell % 8).any()
    order = np.argsort(made.table_cell)
    begin, size = made.table_cell[order].astype(int), made.table_size[order]
    assert (begin[:-1] + size[:-1] <= begin[1:]).all()
    assert begin[-1] + size[-1] <= made.n_cells
    assert 4 * made.n_cells < 8 * usual.n_cells
    with pytest.raises(ValueError, match="float16"):
        schedule.make_schedule(plan, real="float16")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_the_float32_kernels_compile_without_spills(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text(kernels.read_source("single/levels", real="float32"), encoding="utf-8")
    command = ["nvcc", "-cubin", "-arch=sm_90", "-Xptxas", "-v", "-O3", "-std=c++17", "-o", str(tmp_path / "out.cubin")]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=True)
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill", done.stderr)]
    assert spills
    assert not any(spills), done.stderr


@pytest.mark.parametrize("real", ["float64", "float32"])
def test_large_numbers_run_after_run(real: str) -> None:
    """Potentials that are not scaled, in contractions of one table: the constant 1 stays what it is."""
    two = ["0", "1"]
    rng = np.random.default_rng(2)
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
    model = jtgpu.MarkovNetwork(dict.fromkeys("abcde", two), [(p, rng.uniform(1, 2, (2, 2)) * 1e25) for p in pairs])
    plan = planned(model, [0, 1, 2, 3, 4], "pairwise")
    engine, definition = host_cuda.HostEngine(plan, tables(model), real=real), reference.prepare(plan, tables(model))
    for _ in range(3):
        assert agree(engine, definition, Evidence.none(5))


def test_the_smallest_entries_of_factors() -> None:
    tables = [np.array([0.0, 1.0, 0.25]), np.zeros(3), np.array([3e-57, 1.0]), np.array([[2.0**-167, 0.0], [0.5, 1.0]])]
    found = places.smallest_entries(tables)
    assert found[0] == 39 - 2
    assert found[1] == np.inf
    assert found[2] == pytest.approx(39 + np.log2(3e-57))
    assert found[2] < places.LEAST  # 3e-57 of the largest: digits are gone
    assert found[3] == 39 - 167 < places.LEAST
    for table, low in zip(tables, found, strict=True):
        placed = (table * 2.0 ** (places.PLACE - np.frexp(table.max(initial=0.0))[1])).astype(np.float32)
        normal = placed[placed > 0].min(initial=1.0) >= np.finfo(np.float32).tiny
        assert normal == (low >= places.LEAST)
