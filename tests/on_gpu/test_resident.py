"""The resident engine on a GPU: every answer against the definition, the same bits every run, memory given back."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import jtgpu
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as resident
from jtgpu.backends.gpu.single.levels.engine import CaseEngine, Engine
from jtgpu.backends.gpu.single.levels.schedule import make_schedule
from jtgpu.backends.gpu.single.sparse.engine import ListEngine
from jtgpu.backends.gpu.single.sparse.lists import make_lists
from jtgpu.device.context import Device
from jtgpu.device.driver import most_shared
from jtgpu.errors import ImpossibleEvidence, JtgpuError, TableTooLarge
from jtgpu.model.network import DiscreteModel
from jtgpu.plans import compiler
from jtgpu.plans.plan import Plan
from tests.on_gpu.conftest import ROOT, nets_folder
from tests.plans.test_plan import chain

NAMES = [p.name for p in sorted((ROOT / "nets").glob("*.net"))]
SHARED = [p.name for p in sorted((nets_folder() or ROOT).glob("*.net"))]
TOLERANCE = 1e-10


def tables(model: DiscreteModel) -> list[np.ndarray]:
    return [f.table for f in compiler.model_factors(model)]


def cases(plan: Plan, n: int, seed: int) -> Iterator[Evidence]:
    """Nothing, then hard findings and weights on more and more variables, then nothing again."""
    rng = np.random.default_rng(seed)
    yield Evidence.none(plan.n_variables)
    for i in range(n):
        state = np.full(plan.n_variables, -1, np.int32)
        soft: dict[int, np.ndarray] = {}
        for v in rng.choice(plan.n_variables, max(1, plan.n_variables * (i + 1) // (10 * n)), replace=False).tolist():
            card = int(plan.cardinality[v])
            if rng.random() < 0.7:
                state[v] = int(rng.integers(card))
            else:
                soft[v] = rng.random(card) * 10.0 ** rng.integers(-200, 200)
        yield Evidence(state, soft)
    yield Evidence.none(plan.n_variables)


def hold_to_definition(plan: Plan, factors: list[np.ndarray], backend: resident.Gpu | CaseEngine, n: int) -> None:
    definition = reference.prepare(plan, factors)
    for case in cases(plan, n, 7):
        try:
            expected = definition.run(case)
        except ImpossibleEvidence:
            with pytest.raises(ImpossibleEvidence):
                backend.run(case)
            continue
        got = backend.run(case)
        np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=TOLERANCE)
        assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_small_networks(gpu: Device, name: str) -> None:
    model = jtgpu.read(ROOT / "nets" / name)
    plan = model.plan(order="min-fill", max_table=None).plan
    for lists in (None, False):
        backend = resident.prepare(plan, tables(model), lists=lists)
        hold_to_definition(plan, tables(model), backend, 4)
        backend.close()


@pytest.mark.parametrize("name", ["asia.net", "alarm.net", "hailfinder.net", "andes.net"])
def test_batches(gpu: Device, name: str) -> None:
    model = jtgpu.read(ROOT / "nets" / name)
    plan = model.plan(order="min-fill").plan
    definition = reference.prepare(plan, tables(model))
    rng = np.random.default_rng(5)
    states = np.where(rng.random((70, len(model))) < 0.1, rng.integers(0, model.cardinality, (70, len(model))), -1)
    backend = resident.prepare(plan, tables(model))
    got = backend.run_batch(states)
    again = backend.run_batch(np.tile(states, (3, 1)))
    np.testing.assert_array_equal(again.posterior, np.tile(got.posterior, (3, 1)))
    for i, row in enumerate(states.astype(np.int32)):
        try:
            expected = definition.run(Evidence(row))
        except ImpossibleEvidence:
            assert got.impossible[i]
            assert got.log_evidence[i] == -math.inf
            continue
        np.testing.assert_allclose(got.posterior[i], expected.posterior, rtol=0, atol=TOLERANCE)
        assert got.log_evidence[i] == pytest.approx(expected.log_evidence, abs=1e-9)
    last = len(model) - 1
    some = backend.run_batch(states, targets=[last, 0])
    ptr = plan.posterior_ptr
    wanted = np.concatenate([got.posterior[:, ptr[last] :], got.posterior[:, : ptr[1]]], axis=1)
    np.testing.assert_array_equal(some.posterior, wanted)
    assert len(backend.run_batch(states[:0]).log_evidence) == 0
    with pytest.raises(JtgpuError, match="states"):
        backend.run_batch(np.full((1, len(model)), 1000))
    backend.close()


@pytest.mark.parametrize("name", SHARED)
def test_benchmark_networks(gpu: Device, nets: Path, name: str) -> None:
    model = jtgpu.read(nets / name)
    plan = model.plan(order=nets / name.replace(".net", ".num"), max_table=None).plan
    backend = resident.prepare(plan, tables(model))
    hold_to_definition(plan, tables(model), backend, 2)
    backend.close()


def test_a_chain_of_5000_variables_does_not_underflow(gpu: Device) -> None:
    n = 5000
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    backend = resident.prepare(plan, tables(net))
    got = backend.run(Evidence(np.arange(n, dtype=np.int32) % 3))
    assert got.log_evidence == pytest.approx(math.log(1 / 3) + (n - 1) * math.log(0.1), rel=1e-12)
    backend.close()


def test_the_same_bits_every_run(gpu: Device, nets: Path) -> None:
    model = jtgpu.read(nets / "Water.net")
    plan = model.plan(order=nets / "Water.num").plan
    seen = set()
    for _ in range(2):
        backend = resident.prepare(plan, tables(model))
        for _ in range(20):
            seen.add(backend.run(Evidence.none(plan.n_variables)).posterior.tobytes())
        backend.close()
    assert len(seen) == 1


def test_trees_and_threads_share_the_card(gpu: Device) -> None:
    model = jtgpu.read(ROOT / "nets" / "alarm.net")
    plan = model.plan(order="min-fill").plan
    definition = reference.prepare(plan, tables(model))
    given = list(cases(plan, 6, 3))
    expected = {}
    for i, case in enumerate(given):
        try:
            expected[i] = definition.run(case).posterior
        except ImpossibleEvidence:
            continue
    shared = resident.prepare(plan, tables(model))
    wrong: list[int] = []

    def work(own: bool) -> None:
        backend = resident.prepare(plan, tables(model)) if own else shared
        for _ in range(20):
            for i, p in expected.items():
                if not np.allclose(backend.run(given[i]).posterior, p, rtol=0, atol=TOLERANCE):
                    wrong.append(i)
        if own:
            backend.close()

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    shared.close()
    assert not wrong


@pytest.mark.alone
def test_memory_comes_back(gpu: Device) -> None:
    model = jtgpu.read(ROOT / "nets" / "water.net")
    plan = model.plan(order="min-fill").plan
    resident.prepare(plan, tables(model)).close()
    with gpu.active():
        before = gpu.free_memory()
    backend = resident.prepare(plan, tables(model))
    for _ in range(40):
        backend.close()
        backend.close()
        backend = resident.prepare(plan, tables(model))
    backend.close()
    with gpu.active():
        assert before - gpu.free_memory() < 16 << 20
    with pytest.raises(JtgpuError, match="closed"):
        backend.run(Evidence.none(plan.n_variables))


@pytest.mark.alone
def test_out_of_memory_leaves_the_process_usable(gpu: Device) -> None:
    model = jtgpu.read(ROOT / "nets" / "asia.net")
    plan = model.plan(order="min-fill").plan
    with gpu.active():
        hog = gpu.alloc(gpu.free_memory() - (24 << 20))
    big = jtgpu.read(ROOT / "nets" / "link.net")
    large = big.plan(order="min-fill", max_table=None).plan
    try:
        if large.cost().bytes > 64 << 20:
            with pytest.raises(TableTooLarge):
                resident.prepare(large, tables(big))
    finally:
        with gpu.active():
            hog.free()
    backend = resident.prepare(plan, tables(model))
    hold_to_definition(plan, tables(model), backend, 2)
    backend.close()


@pytest.mark.parametrize(
    ("name", "n_blocks"), [("asia", 8), ("alarm", 1), ("alarm", 8), ("hailfinder", 16), ("insurance", 8)]
)
def test_lists_of_products_over_clusters(gpu: Device, name: str, n_blocks: int) -> None:
    """Every size of cluster, also those that the model would not take."""
    model = jtgpu.read(ROOT / "nets" / f"{name}.net")
    plan = model.plan(order="min-fill").plan
    if n_blocks > 1 and gpu.capability < (9, 0):
        pytest.skip("clusters of blocks came with compute capability 9.0")
    made = make_lists(plan, tables(model), most_shared(gpu), (n_blocks,))
    assert made is not None
    made_later: list[int] = []

    def second() -> CaseEngine:
        made_later.append(1)
        return Engine(plan, tables(model), make_schedule(plan), gpu)

    engine = ListEngine(plan, made, gpu, second)
    definition = reference.prepare(plan, tables(model))
    for case in cases(plan, 6, 9):
        try:
            expected = definition.run(case)
        except ImpossibleEvidence:
            with pytest.raises(ImpossibleEvidence):
                engine.run(case)
            assert made_later == [1]
            continue
        got = engine.run(case)
        np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=TOLERANCE)
        assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)
    assert len({engine.run(Evidence.none(plan.n_variables)).posterior.tobytes() for _ in range(20)}) == 1
    engine.close()


def test_what_is_too_small_for_lists_is_scaled(gpu: Device) -> None:
    n, rare = 60, 1e-9
    names = [f"v{i}" for i in range(n)]
    step = np.array([[1 - rare, rare], [rare, 1 - rare]])
    cpts = {v: step if i else np.array([0.5, 0.5]) for i, v in enumerate(names)}
    net = jtgpu.BayesianNetwork({v: ["0", "1"] for v in names}, dict(zip(names[1:], zip(names), strict=False)), cpts)
    plan = net.plan(order=list(range(n))).plan
    backend = resident.prepare(plan, tables(net), lists=True)
    definition = reference.prepare(plan, tables(net))
    for state in (np.full(n, -1), np.arange(n) % 2, np.full(n, 1), np.full(n, -1)):
        case = Evidence(state.astype(np.int32))
        got, expected = backend.run(case), definition.run(case)
        np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=TOLERANCE)
        assert got.log_evidence == pytest.approx(expected.log_evidence, rel=1e-12, abs=1e-12)
    backend.close()
