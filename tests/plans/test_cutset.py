"""Cutset conditioning: the oracle's answers in less memory, on any executor."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.backends.base import Evidence
from jtgpu.backends.cpu import prepare as prepare_cpu
from jtgpu.backends.table import Table
from jtgpu.backends.wrappers.cutset import Partial, SliceJob, SliceTask, on_devices, one_after_another
from jtgpu.backends.wrappers.devices import DevicePool
from jtgpu.formats import bundled
from jtgpu.inference.planning import SlicedPlan
from jtgpu.plans import compiler
from jtgpu.util.options import BackendName
from tests.support import oracle, random_nets


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@given(data=st.data())
def test_slices_sum_to_the_oracles_answers(data: st.DataObject, backend: BackendName) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()).filter(len))
    fixed = data.draw(st.sets(st.integers(0, len(model) - 1), min_size=1, max_size=2))
    plan = model.plan("min-fill", cache=False, slices=sorted(fixed))
    assert isinstance(plan, SlicedPlan)
    assert plan.n_slices == math.prod(int(model.cardinality[v]) for v in fixed)
    hard, soft = data.draw(random_nets.evidence_weights(model))
    targets = data.draw(st.one_of(st.none(), st.lists(st.integers(0, len(model) - 1), max_size=2)))
    weights = random_nets.all_weights(model, hard, soft)
    expected = oracle.log_evidence(model, weights)
    with plan.compile(backend) as tree:
        if expected == -math.inf:
            with pytest.raises(errors.ImpossibleEvidence):
                tree.posteriors(hard, likelihood=soft, targets=targets)
            return
        found = tree.posteriors(hard, likelihood=soft, targets=targets)
        assert found.log_evidence == pytest.approx(expected, abs=1e-11)
        exact = oracle.posteriors(model, weights)
        for v in range(len(model)) if targets is None else targets:
            np.testing.assert_allclose(found[v], exact[v], atol=1e-12)
        batch = tree.posteriors_batch({v: [s, s] for v, s in hard.items()} or np.full((2, len(model)), -1))
        assert batch.log_evidence[0] == batch.log_evidence[1]


def test_auto_slices_make_a_plan_fit() -> None:
    net = jtgpu.read(bundled.benchmark_files(["water"])[0])
    whole = net.plan()
    limit = whole.cost().bytes // 8
    with pytest.raises(errors.TableTooLarge, match="slices"):
        net.plan(memory_limit=limit)
    plan = net.plan(memory_limit=limit, slices="auto")
    assert isinstance(plan, SlicedPlan)
    assert plan.cost().bytes <= limit
    assert f"32 variables, cut into {plan.n_slices} slices by" in plan.describe()
    assert "one slice, with these variables split:" in plan.describe()
    assert not set(plan.slices) & set(plan.elimination_order)
    case = {"CBODD_12_15": "20_MG_L"}
    expected = whole.compile("cpu").posteriors(case)
    tree = plan.compile("cpu")
    found = tree.posteriors(case)
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)
    for v in net.variables:
        np.testing.assert_allclose(found[v], expected[v], atol=1e-12)
    with pytest.raises(errors.JtgpuError, match="whole tree"):
        tree.mpe(case)
    with pytest.raises(errors.PlanError, match="cannot be saved"):
        plan.save("water.plan")


def test_a_plan_that_fits_gets_no_slices() -> None:
    net = jtgpu.read(bundled.benchmark_files(["asia"])[0])
    assert not isinstance(net.plan(slices="auto"), SlicedPlan)


def test_a_model_that_no_slices_make_fit_raises() -> None:
    net = jtgpu.read(bundled.benchmark_files(["asia"])[0])
    with pytest.raises(errors.TableTooLarge, match="it does not fit either"):
        net.plan(slices="auto", memory_limit=100)
    with pytest.raises(errors.TableTooLarge):
        net.plan(slices=["lung"], memory_limit=100)
    with pytest.raises(errors.UnknownVariable):
        net.plan(slices=["lungs"])


# Executors ------------------------------------------------------------------------------------------------------


class Shuffled:
    """An executor that runs tasks in any order on workers made from pickles, as a cluster may."""

    def __init__(self, job: SliceJob, n: int, seed: int):
        self.workers = [pickle.loads(pickle.dumps(job)).open() for _ in range(n)]
        self.rng = np.random.default_rng(seed)
        self.n_tasks = 0

    def run(self, tasks: Iterable[SliceTask]) -> Iterator[tuple[int, Partial]]:
        held: list[tuple[int, SliceTask]] = []
        for pair in enumerate(tasks):
            held.append(pickle.loads(pickle.dumps(pair)))
            if len(held) == 5:
                yield self._one(held)
        while held:
            yield self._one(held)

    def _one(self, held: list[tuple[int, SliceTask]]) -> tuple[int, Partial]:
        number, task = held.pop(int(self.rng.integers(len(held))))
        worker = self.workers[int(self.rng.integers(len(self.workers)))]
        self.n_tasks += 1
        return number, pickle.loads(pickle.dumps(worker.run(task)))

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


@pytest.fixture(scope="module")
def water() -> tuple[Any, SlicedPlan]:
    net = jtgpu.read(bundled.benchmark_files(["water"])[0])
    plan = net.plan(slices=[2, 5, 7])
    assert isinstance(plan, SlicedPlan)
    return net, plan


def same(a: Any, b: Any) -> None:
    assert a.log_evidence == b.log_evidence
    for v in a:
        np.testing.assert_array_equal(a[v], b[v])


@pytest.mark.parametrize("least", [1, 10**12])
def test_answers_have_the_same_bits_for_any_executor(
    water: tuple[Any, SlicedPlan], monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr("jtgpu.backends.wrappers.cutset.MIN_WORK", least)
    net, plan = water
    case = {"CBODD_12_15": "20_MG_L"}
    states = np.full((4, len(net)), -1)
    states[1, 2], states[2, 2], states[3, 8] = 1, 0, 3
    tree = plan.compile("cpu", threads=1)
    expected = tree.posteriors(case)
    table = tree.posteriors_batch(states, on_error="flag")
    started: list[Shuffled] = []

    def start(job: SliceJob) -> Shuffled:
        started.append(Shuffled(job, 3, len(started)))
        return started[-1]

    for seed in range(2):
        with plan.compile("cpu", threads=1, executor=start) as other:
            same(other.posteriors(case), expected)
            found = other.posteriors_batch(states, on_error="flag")
            np.testing.assert_array_equal(found.flat, table.flat)
            np.testing.assert_array_equal(found.log_evidence, table.log_evidence)
        few = 2 * plan.n_slices // int(net.cardinality[2])  # of the two cases that observe one of the three
        assert started[seed].n_tasks == (3 * plan.n_slices + few if least == 1 else 5)
    for n in (1, 2, 3):
        on = DevicePool(prepare_cpu, [(f"card {i}", {"threads": 1}) for i in range(n)])
        backend = plan.prepare("cpu", [f.table for f in compiler.model_factors(net)], executor=on_devices(on))
        found_batch = backend.run(Table.of(states.astype(np.int32)))
        np.testing.assert_array_equal(found_batch.log_evidence, table.log_evidence)
        np.testing.assert_array_equal(found_batch.posterior, table.flat)
        backend.close()


def test_other_workers_take_the_slices_of_one_that_fails(
    water: tuple[Any, SlicedPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jtgpu.backends.wrappers.cutset.MIN_WORK", 1)
    net, plan = water
    factors = [f.table for f in compiler.model_factors(net)]

    def prepare(plan: Any, factors: Any, **options: Any) -> Any:
        if options["number"] == 1:
            raise errors.TableTooLarge("card 1 is full")
        return prepare_cpu(plan, factors, threads=1)

    on = DevicePool(prepare, [(f"card {i}", {"number": i}) for i in range(3)])
    nothing = Evidence.none(len(net))
    expected = plan.prepare("cpu", factors, threads=1).run_case(nothing)
    found = plan.prepare("cpu", factors, executor=on_devices(on)).run_case(nothing)
    assert found.log_evidence == expected.log_evidence
    np.testing.assert_array_equal(found.posterior, expected.posterior)
    with pytest.raises(errors.TableTooLarge, match="card 1 is full"):
        plan.prepare("cpu", factors, executor=on_devices(DevicePool(prepare, on.each[1:2])))


def test_an_executor_needs_a_plan_of_slices() -> None:
    net = jtgpu.read(bundled.benchmark_files(["asia"])[0])
    with pytest.raises(errors.PlanError, match="slices"):
        net.plan().compile("cpu", executor=one_after_another)


def test_a_case_without_a_possible_slice_is_impossible(water: tuple[Any, SlicedPlan]) -> None:
    net, plan = water
    with plan.compile("cpu", threads=1) as tree:
        zero = {net.variables[2]: np.zeros((3, int(net.cardinality[2])))}
        zero[net.variables[2]][1] = 1.0
        found = tree.posteriors_batch(np.full((3, len(net)), -1), likelihood=zero, on_error="flag")
        assert found.impossible.tolist() == [True, False, True]
