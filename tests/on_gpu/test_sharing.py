"""Several trees and threads on one card, and a card that is full: what was taken comes back, the process goes on."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends import make, reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as gpu_backend
from jtgpu.backends.table import Table
from jtgpu.device.context import Device
from jtgpu.errors import TableTooLarge
from jtgpu.model.discrete import DiscreteModel
from jtgpu.plans import compiler
from tests.on_gpu.conftest import ROOT
from tests.plans.test_plan import chain

pytestmark = pytest.mark.gpu
MB = 1 << 20


def tables(model: DiscreteModel) -> list[np.ndarray]:
    return [f.table for f in compiler.model_factors(model)]


def filled(gpu: Device, left: int) -> list[Any]:
    """Blocks that take all of the card but some bytes."""
    blocks = []
    size = 1 << 40
    while size >= MB:
        try:
            if gpu.free_memory() < left + size:
                raise TableTooLarge("larger than what is left")
            blocks.append(gpu.alloc(size))
        except TableTooLarge:
            size //= 2
    return blocks


@pytest.mark.alone
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_card_that_is_full_at_any_step(gpu: Device, dtype: str) -> None:
    """Whatever is left, an engine is made and answers, or says that there is no memory and leaves none taken."""
    net = jtgpu.read(ROOT / "nets" / "asia.net")
    plan = net.plan(order="min-fill").plan
    nothing = Evidence.none(plan.n_variables)
    states = np.full((2000, plan.n_variables), -1, np.int32)
    expected = reference.prepare(plan, tables(net)).run_case(nothing).posterior
    tolerance = 1e-10 if dtype == "float64" else 1e-5
    gpu_backend.prepare(plan, tables(net), dtype=dtype).close()
    answered, failed = 0, 0
    for left in (0, 1, 2, 3, 4, 6, 8, 16, 32, 64):
        with gpu.active():
            hogs = filled(gpu, left * MB)
            here = gpu.free_memory()
        try:
            backend = gpu_backend.prepare(plan, tables(net), dtype=dtype)
            try:
                np.testing.assert_allclose(backend.run_case(nothing).posterior, expected, rtol=0, atol=tolerance)
                if dtype == "float64":
                    got = backend.run(Table.of(states))
                    np.testing.assert_allclose(got.posterior[-1], expected, rtol=0, atol=tolerance)
                answered += 1
            finally:
                backend.close()
        except TableTooLarge:
            failed += 1
        finally:
            with gpu.active():
                assert here - gpu.free_memory() < 16 * MB
                for hog in hogs:
                    hog.free()
    assert failed
    assert answered
    backend = gpu_backend.prepare(plan, tables(net), dtype=dtype)
    np.testing.assert_allclose(backend.run_case(nothing).posterior, expected, rtol=0, atol=tolerance)
    backend.close()


@pytest.mark.alone
def test_trees_of_both_kinds_and_threads_share_the_card(gpu: Device) -> None:
    """Single cases, tables and sessions of several trees at once, float64 and float32."""
    small = jtgpu.read(ROOT / "nets" / "alarm.net")
    large = jtgpu.read(ROOT / "nets" / "hailfinder.net")
    trees = [
        small.plan(order="min-fill").compile("gpu"),
        small.plan(order="min-fill").compile("gpu", dtype="float32"),
        large.plan(order="min-fill").compile("gpu"),
        large.plan(order="min-fill").compile("gpu", dtype="float32"),
    ]
    expected = [[np.asarray(p) for p in tree.posteriors().values()] for tree in trees]
    wrong: list[str] = []

    def work(i: int) -> None:
        tree = trees[i % len(trees)]
        n = len(tree.model)
        for turn in range(12):
            if turn % 3 == 0 and tree.dtype == "float64":
                got = tree.posteriors_batch(np.full((50, n), -1, np.int32))
                found = [got[v][7] for v in tree.model.variables]
            elif turn % 3 == 1:
                with tree.session() as session:
                    found = [np.asarray(p) for p in session.posteriors().values()]
            else:
                found = [np.asarray(p) for p in tree.posteriors().values()]
            if not all(np.allclose(a, b, rtol=0, atol=1e-5) for a, b in zip(found, expected[i % 4], strict=True)):
                wrong.append(f"{tree!r} {turn}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for tree in trees:
        tree.close()
    assert not wrong


@pytest.mark.alone
def test_a_tree_closed_by_one_thread_reports_it_to_the_others(gpu: Device) -> None:
    net = jtgpu.read(ROOT / "nets" / "alarm.net")
    tree = net.plan(order="min-fill").compile("gpu")
    begun = threading.Barrier(4)
    ended: list[str] = []

    def ask() -> None:
        begun.wait()
        try:
            while True:
                tree.posteriors()
        except jtgpu.JtgpuError as error:
            ended.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for t in threads:
        t.start()
    begun.wait()
    tree.close()
    for t in threads:
        t.join(30)
    assert len(ended) == 3
    assert all("closed" in text for text in ended)


@pytest.mark.alone
def test_auto_looks_at_what_is_free(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"cpu": make.Rates(1.0, 1.0, 1.0), "gpu": make.Rates(0.0, 0.0, 1e-15)}
    monkeypatch.setattr(make, "_rates", lambda: rates)
    plan = chain(8, 1500).plan(order=list(range(8)))
    assert plan.plan.cost().bytes > 100 * MB
    assert make.choose(plan.plan).backend == "gpu"
    with gpu.active():
        hog = gpu.alloc(gpu.free_memory() - 64 * MB)
    try:
        chosen = make.choose(plan.plan)
    finally:
        with gpu.active():
            hog.free()
    assert chosen.backend == "cpu"
    assert "free" in chosen.reason
