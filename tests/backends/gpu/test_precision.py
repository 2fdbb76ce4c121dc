"""float32 on a GPU, emulated or (tests/on_gpu) real: right to 1e-5, or it says that it is not reliable."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import timing
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as gpu_backend
from jtgpu.backends.gpu.levels import schedule
from jtgpu.backends.gpu.program import layout
from jtgpu.device.context import Device
from jtgpu.errors import ImpossibleEvidence
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans.lowering import LOWERINGS
from tests.backends.gpu.engines import ON_GPU, agree, as_evidence, level_engine, tables
from tests.plans.test_plan import chain
from tests.plans.test_program import planned
from tests.support import random_nets
from tests.support.bundled import bundled
from tests.support.examples import examples

BOUND = 1e-5  # of a posterior, absolute; of P(e), relative
DEFAULT_BOUND = 1e-6  # the same, of networks as they are


def observed(net: DiscreteModel, share: float, seed: int) -> Evidence:
    assert isinstance(net, BayesianNetwork)
    state = np.full(len(net), -1, np.int32)
    for v, k in timing.sample_cases(net, 1, share, seed)[0].items():
        state[net.index(v)] = k
    return Evidence(state)


@pytest.mark.parametrize("lowering", LOWERINGS)
@examples(40, **ON_GPU)
@given(data=st.data())
def test_float32_agrees_with_the_definition(gpu: Device, data: st.DataObject, lowering: str) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(data.draw(st.permutations(range(len(model))))), lowering)
    definition = reference.prepare(plan, tables(model))
    with level_engine(gpu, plan, tables(model), "float32") as engine:
        for _ in range(3):  # evidence comes, changes and goes: nothing of the last run is left
            case = as_evidence(len(model), *data.draw(random_nets.evidence_weights(model)))
            agree(engine, definition, case, BOUND)
        agree(engine, definition, Evidence.none(len(model)), BOUND)


@pytest.mark.parametrize("name", ["asia", "child", "alarm", "insurance", "hailfinder", "win95pts"])
def test_float32_is_reliable_on_networks_as_they_are(gpu: Device, name: str) -> None:
    net = bundled(name)
    plan = net.plan("min-fill", cache=False).plan
    definition = reference.prepare(plan, tables(net))
    with level_engine(gpu, plan, tables(net), "float32") as engine:
        for seed, share in enumerate((0.0, 0.2, 1.0)):
            case = observed(net, share, seed)
            expected, got = definition.run(case), engine.run(case)
            assert got is not None
            np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=DEFAULT_BOUND)
            assert got.log_evidence == pytest.approx(expected.log_evidence, rel=1e-7, abs=DEFAULT_BOUND)


def test_probabilities_far_below_the_smallest_float(gpu: Device) -> None:
    n = 700
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    expected = math.log(1 / 3) + (n - 1) * math.log(0.1)
    assert expected < math.log(1e-300)
    with level_engine(gpu, plan, tables(net), "float32") as engine:
        got = engine.run(Evidence((np.arange(n) % 3).astype(np.int32)))
        assert got is not None
        assert got.log_evidence == pytest.approx(expected, rel=1e-7)


def contradicting() -> BayesianNetwork:
    """Many children give evidence for one state of their parent."""
    n, rare = 60, 1e-5
    names = [f"c{i}" for i in range(n)]
    step = np.array([[1 - rare, rare], [rare, 1 - rare]])
    two = ["0", "1"]
    return jtgpu.BayesianNetwork(
        {"root": two, **dict.fromkeys(names, two)}, {c: ["root"] for c in names},
        {"root": [0.5, 0.5], **dict.fromkeys(names, step)},
    )  # fmt: skip


def test_what_float32_cannot_hold_is_not_reliable(gpu: Device) -> None:
    """Many children give evidence for one state of their parent, which is then observed in the other state: its
    probability was lost long before."""
    net = contradicting()
    n = len(net) - 1
    plan = net.plan("min-fill", cache=False).plan
    definition = reference.prepare(plan, tables(net))
    state = np.zeros(n + 1, np.int32)
    state[0] = -1
    half = np.array([0] + [0] * (n // 2) + [1] * (n - n // 2), np.int32)
    answers = []
    with level_engine(gpu, plan, tables(net), "float32") as engine:
        assert agree(engine, definition, Evidence(state), BOUND)
        for first in (-1, 0, 1):
            for case in (state, half, 1 - half):
                given = case.copy()
                given[0] = first
                answers.append(agree(engine, definition, Evidence(given), BOUND))
    assert any(answers)
    assert not all(answers)


def test_what_float32_loses_float64_answers(gpu: Device) -> None:
    """Many children say one thing of their parent, which is then observed in the other state."""
    net = contradicting()
    n = len(net) - 1
    plan = net.plan("min-fill", cache=False).plan
    backend = gpu_backend.prepare(plan, tables(net), dtype="float32")
    exact = gpu_backend.prepare(plan, tables(net))
    not_reliable = 0
    for root in (-1, 0, 1):
        for ones in (0, n // 2, n):
            state = np.array([root] + [1] * ones + [0] * (n - ones), np.int32)
            got, expected = backend.run(Evidence(state)), exact.run(Evidence(state))
            not_reliable += backend.engine.run(Evidence(state)) is None
            np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=1e-5)
            rounded = n * 2.0**-24  # every child's table is, and P(e) has a number of each
            assert got.log_evidence == pytest.approx(expected.log_evidence, rel=1e-6, abs=rounded)
    assert not_reliable
    backend.close()
    exact.close()


def test_impossible_evidence_and_weights(gpu: Device) -> None:
    net = bundled("asia")
    plan = net.plan("min-fill", cache=False).plan
    with net.compile("gpu", dtype="float32") as tree:
        with pytest.raises(ImpossibleEvidence):
            tree.posteriors({"lung": "yes", "either": "no"})
        assert tree.log_evidence({"xray": "yes"}, likelihood={"dysp": [1e-300, 2e-300]}) < -600
    backend = gpu_backend.prepare(plan, tables(net), dtype="float32")
    definition = reference.prepare(plan, tables(net))
    soft = {v: np.array([1e-200, 3e-200]) for v in range(0, len(net), 2)}
    case = Evidence(np.full(len(net), -1, np.int32), soft)
    got, expected = backend.run(case), definition.run(case)
    np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=DEFAULT_BOUND)
    assert got.log_evidence == pytest.approx(expected.log_evidence, rel=1e-8)
    backend.close()


def test_numbers_far_outside_probabilities(gpu: Device) -> None:
    two = ["0", "1"]
    huge, tiny = np.array([[1e300, 2e300], [3e300, 4e300]]), np.array([[1e-300, 2e-300], [3e-300, 5e-300]])
    model = jtgpu.MarkovNetwork(
        {"a": two, "b": two, "c": two, "d": two},
        [(["a", "b"], huge), (["b", "c"], huge), (["c", "d"], tiny), ([], 1e-200), (["a"], [1e-200, 3e-200])],
    )
    plan = planned(model, [0, 1, 2, 3], "pairwise")
    definition = reference.prepare(plan, tables(model))
    weights = {0: np.array([1e-300, 2e-300]), 1: np.array([1e300, 1e300])}
    with level_engine(gpu, plan, tables(model), "float32") as engine:
        for soft in ({}, weights, {}):
            assert agree(engine, definition, as_evidence(4, {}, soft), BOUND)


def test_tables_of_float32_begin_at_sectors_and_take_half() -> None:
    net = bundled("hailfinder")
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


@pytest.mark.parametrize("real", ["float64", "float32"])
def test_large_numbers_run_after_run(gpu: Device, real: str) -> None:
    """Potentials far from 1, in contractions of one table: the constant 1 stays what it is."""
    two = ["0", "1"]
    rng = np.random.default_rng(2)
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
    model = jtgpu.MarkovNetwork(dict.fromkeys("abcde", two), [(p, rng.uniform(1, 2, (2, 2)) * 1e25) for p in pairs])
    plan = planned(model, [0, 1, 2, 3, 4], "pairwise")
    definition = reference.prepare(plan, tables(model))
    with level_engine(gpu, plan, tables(model), real) as engine:
        for _ in range(3):
            assert agree(engine, definition, Evidence.none(5), BOUND)


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
