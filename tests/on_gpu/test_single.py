"""The GPU backend: every answer against the definition, bit-identical in every run, memory freed."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as gpu_backend
from jtgpu.backends.table import Table
from jtgpu.device.context import Device
from jtgpu.errors import ImpossibleEvidence, JtgpuError, TableTooLarge
from jtgpu.model.discrete import DiscreteModel
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


def hold_to_definition(plan: Plan, factors: list[np.ndarray], backend: gpu_backend.Gpu, n: int) -> None:
    definition = reference.prepare(plan, factors)
    for case in cases(plan, n, 7):
        try:
            expected = definition.run_case(case)
        except ImpossibleEvidence:
            with pytest.raises(ImpossibleEvidence):
                backend.run_case(case)
            continue
        got = backend.run_case(case)
        np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=TOLERANCE)
        assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_small_networks(gpu: Device, name: str) -> None:
    model = jtgpu.read(ROOT / "nets" / name)
    plan = model.plan(order="min-fill", max_table=None).plan
    usual = "levels" if name == "munin1.net" else "dataflow"  # by this order munin1 is too large for dataflow
    for engine in (None, "levels"):
        backend = gpu_backend.prepare(plan, tables(model), engine=engine)
        assert backend.kind == (engine or usual)
        hold_to_definition(plan, tables(model), backend, 4)
        backend.close()


@pytest.mark.parametrize("name", ["asia.net", "alarm.net", "hailfinder.net", "andes.net"])
def test_batches(gpu: Device, name: str) -> None:
    model = jtgpu.read(ROOT / "nets" / name)
    plan = model.plan(order="min-fill").plan
    definition = reference.prepare(plan, tables(model))
    rng = np.random.default_rng(5)
    states = np.where(rng.random((70, len(model))) < 0.1, rng.integers(0, model.cardinality, (70, len(model))), -1)
    backend = gpu_backend.prepare(plan, tables(model))
    got = backend.run(Table.of(states))
    again = backend.run(Table.of(np.tile(states, (3, 1))))
    np.testing.assert_array_equal(again.posterior, np.tile(got.posterior, (3, 1)))
    for i, row in enumerate(states.astype(np.int32)):
        try:
            expected = definition.run_case(Evidence(row))
        except ImpossibleEvidence:
            assert got.impossible[i]
            assert got.log_evidence[i] == -math.inf
            continue
        np.testing.assert_allclose(got.posterior[i], expected.posterior, rtol=0, atol=TOLERANCE)
        assert got.log_evidence[i] == pytest.approx(expected.log_evidence, abs=1e-9)
    last = len(model) - 1
    some = backend.run(Table.of(states, targets=[last, 0]))
    ptr = plan.posterior_ptr
    wanted = np.concatenate([got.posterior[:, ptr[last] :], got.posterior[:, : ptr[1]]], axis=1)
    np.testing.assert_array_equal(some.posterior, wanted)
    assert len(backend.run(Table.of(states[:0])).log_evidence) == 0
    with pytest.raises(JtgpuError, match="cases have shape"):
        backend.run(Table.of(states[:, :-1]))
    backend.close()


@pytest.mark.parametrize("name", SHARED)
def test_benchmark_networks(gpu: Device, nets: Path, name: str) -> None:
    model = jtgpu.read(nets / name)
    plan = model.plan(order=nets / name.replace(".net", ".num"), max_table=None).plan
    backend = gpu_backend.prepare(plan, tables(model))
    assert backend.kind == "dataflow"
    hold_to_definition(plan, tables(model), backend, 2)
    backend.close()


@pytest.mark.parametrize("options", [{"engine": "dataflow"}, {"engine": "levels"}], ids=str)
def test_reloaded_numbers_give_the_answers_of_a_new_backend(gpu: Device, options: dict[str, Any]) -> None:
    model = jtgpu.read(ROOT / "nets" / "hailfinder.net")
    plan = model.plan(order="min-fill").plan
    rng = np.random.default_rng(3)
    others = [rng.random(f.shape) * (rng.random(f.shape) < 0.9) + 1e-3 for f in tables(model)]
    backend = gpu_backend.prepare(plan, tables(model), **options)
    nothing = Evidence.none(plan.n_variables)
    for factors in (others, tables(model)):
        backend.run_case(nothing)
        backend.reload(factors)
        fresh = gpu_backend.prepare(plan, factors, **options)
        for case in (nothing, Evidence(np.where(np.arange(plan.n_variables) == 3, 0, -1).astype(np.int32)), nothing):
            got, expected = backend.run_case(case), fresh.run_case(case)
            np.testing.assert_array_equal(got.posterior, expected.posterior)
            assert got.log_evidence == expected.log_evidence
        fresh.close()
    backend.close()


def test_a_chain_of_5000_variables_does_not_underflow(gpu: Device) -> None:
    n = 5000
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    backend = gpu_backend.prepare(plan, tables(net))
    got = backend.run_case(Evidence(np.arange(n, dtype=np.int32) % 3))
    assert got.log_evidence == pytest.approx(math.log(1 / 3) + (n - 1) * math.log(0.1), rel=1e-12)
    backend.close()


def test_the_same_bits_every_run(gpu: Device, nets: Path) -> None:
    model = jtgpu.read(nets / "Water.net")
    plan = model.plan(order=nets / "Water.num").plan
    seen = set()
    for _ in range(2):
        backend = gpu_backend.prepare(plan, tables(model))
        for _ in range(20):
            seen.add(backend.run_case(Evidence.none(plan.n_variables)).posterior.tobytes())
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
            expected[i] = definition.run_case(case).posterior
        except ImpossibleEvidence:
            continue
    shared = gpu_backend.prepare(plan, tables(model))
    wrong: list[int] = []

    def work(own: bool) -> None:
        backend = gpu_backend.prepare(plan, tables(model)) if own else shared
        for _ in range(20):
            for i, p in expected.items():
                if not np.allclose(backend.run_case(given[i]).posterior, p, rtol=0, atol=TOLERANCE):
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
    gpu_backend.prepare(plan, tables(model)).close()
    with gpu.active():
        before = gpu.free_memory()
    backend = gpu_backend.prepare(plan, tables(model))
    for _ in range(40):
        backend.close()
        backend.close()
        backend = gpu_backend.prepare(plan, tables(model))
    backend.close()
    with gpu.active():
        assert before - gpu.free_memory() < 16 << 20
    with pytest.raises(JtgpuError, match="closed"):
        backend.run_case(Evidence.none(plan.n_variables))


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
                gpu_backend.prepare(large, tables(big))
    finally:
        with gpu.active():
            hog.free()
    backend = gpu_backend.prepare(plan, tables(model))
    hold_to_definition(plan, tables(model), backend, 2)
    backend.close()
