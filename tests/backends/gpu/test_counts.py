"""Expected counts on a GPU, emulated or (tests/on_gpu) real: against brute force, the same bits for any chunks."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.gpu.backend import Gpu
from jtgpu.backends.gpu.counts import engine, generated, held
from jtgpu.backends.make import make
from jtgpu.backends.table import CountSums, Table
from jtgpu.device.context import Device, device_numbers
from jtgpu.errors import BackendUnavailable, JtgpuError, TableTooLarge
from jtgpu.learn import fit
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans.compiler import build_plan, model_factors, order_graph
from jtgpu.plans.plan import Plan
from tests.backends.test_counts import assert_same, backend_of, other_numbers, random_states
from tests.support.bundled import bundled
from tests.support.emulated.install import needs_compiler

pytestmark = needs_compiler


def planned(model: DiscreteModel) -> tuple[Plan, list[np.ndarray]]:
    factors = model_factors(model)
    order = list(range(len(model)))
    plan = build_plan(model.cardinality, [f.scope for f in factors], order_graph(model), order)
    return plan, [f.table for f in factors]


def two_parts() -> BayesianNetwork:
    """Two components, a variable of one state, and entries of zero."""
    return BayesianNetwork(
        {"a": ["x", "y"], "b": ["x", "y", "z"], "c": ["x", "y"], "d": ["x", "y"], "e": ["x"]},
        {"b": ["a"], "c": ["a", "b"], "e": ["d"]},
        {
            "a": [0.25, 0.75], "b": [[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]], "d": [0.4, 0.6], "e": [[1.0], [1.0]],
            "c": [[[1.0, 0.0], [0.3, 0.7], [0.5, 0.5]], [[0.2, 0.8], [0.6, 0.4], [0.0, 1.0]]],
        },
    )  # fmt: skip


def two_at_most() -> list[int]:
    """Two devices, or the one that there is."""
    return device_numbers("all")[:2]


def close(found: CountSums, expected: CountSums) -> None:
    np.testing.assert_array_equal(found.impossible, expected.impossible)
    for mine, theirs in zip(found.families, expected.families, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, atol=1e-11)
    possible = ~expected.impossible
    np.testing.assert_allclose(found.log_evidence[possible], expected.log_evidence[possible], atol=1e-11)
    assert np.isneginf(found.log_evidence[~possible]).all()


@pytest.fixture(params=["lanes", "tables"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Generated kernels, or those by records."""
    if request.param == "tables":
        monkeypatch.setattr(generated, "GENERATED_FLOPS", -1)
    return str(request.param)


@pytest.mark.parametrize("n", [0, 1, 75])
def test_counts_agree_with_the_definition(n: int, kernels: str, gpu: Device) -> None:
    net = two_parts()
    states, weights = random_states(net, n, 0.4, 1), np.random.default_rng(2).normal(size=n)
    rng = np.random.default_rng(3)
    soft = {0: rng.random((n, 2)) * 10.0 ** rng.integers(-90, 90, (n, 1)), 3: np.ones((n, 2))}
    with closing(make("gpu", *planned(net), replan=False, single=False)) as backend:
        assert isinstance(backend, Gpu)
        for given in ({}, soft):
            expected = backend_of(net, "reference").run(Table.counts(states, weights, given))
            close(backend.run(Table.counts(states, weights, given)), expected)
        assert not n or backend.counting.kind == kernels


@pytest.mark.parametrize("name", ["child", pytest.param("insurance", marks=pytest.mark.slow)])
def test_counts_of_a_real_network_by_records(
    name: str, gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generated, "GENERATED_FLOPS", -1)
    net = bundled(name)
    states = random_states(net, 40, 0.8, 5)
    with closing(make("gpu", *planned(net), replan=False, single=False)) as backend:
        close(backend.run(Table.counts(states)), backend_of(net, "cpu").run(Table.counts(states)))


def test_the_same_bits_for_any_chunks_and_devices(
    kernels: str, gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = two_parts()
    states, weights = random_states(net, 1000, 0.3, 4), np.random.default_rng(5).random(1000)
    monkeypatch.setattr(engine, "BLOCK", 64)
    monkeypatch.setattr(engine, "PART", 256)
    monkeypatch.setattr("jtgpu.backends.wrappers.devices.MIN_ROWS", 1)
    found = []
    much = 1 << 30
    for scratch, share, devices in ((much, 0.8, None), (1, 0.8, None), (much, -1.0, None), (much, 0.8, two_at_most())):
        monkeypatch.setattr(engine, "SCRATCH_BYTES", scratch)  # 1: one block a chunk
        monkeypatch.setattr(held, "HELD_SHARE", share)  # below 0: no rows stay on the device
        with closing(make("gpu", *planned(net), replan=False, single=False, devices=devices)) as backend:
            found += [backend.run(Table.counts(states, weights)), backend.run(Table.counts(states, weights))]
    close(found[0], backend_of(net, "reference").run(Table.counts(states, weights)))
    for other in found[1:]:
        assert_same(found[0], other)


def test_cases_outside_of_a_doubles_range_are_counted_by_records(
    gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = two_parts()
    plan, tables = planned(net)
    tables = [t * 1e-200 if f < 2 else t for f, t in enumerate(tables)]
    states, weights = random_states(net, 90, 0.3, 6), np.random.default_rng(5).random(90)
    with closing(make("gpu", plan, tables, replan=False, single=False)) as backend:
        found = backend.run(Table.counts(states, weights))
        assert isinstance(backend, Gpu)
        assert {"plain", "tables"} == set(backend.counting.choice.made)
    scaled = backend_of(net, "cpu")
    scaled.reload(tables)
    close(found, scaled.run(Table.counts(states, weights)))


@pytest.mark.parametrize("zeros_too", [False, True])
def test_held_cases_follow_new_numbers(zeros_too: bool, kernels: str, gpu: Device) -> None:
    net = two_parts()
    states = random_states(net, 100, 0.3, 4).astype(np.int8)
    with closing(make("gpu", *planned(net), replan=False, single=False)) as backend:
        assert isinstance(backend, Gpu)
        cases: Any = backend.hold(Table.counts(states)).feed
        made = None
        for seed in range(3):
            changed = other_numbers(net, seed, zeros_too)
            backend.reload([f.table for f in model_factors(changed)])
            expected = backend_of(changed, "reference").run(Table.counts(states.astype(np.int32)))
            sums = cases.sums()
            for mine, theirs in zip(sums.families, expected.families, strict=True):
                np.testing.assert_allclose(mine, theirs, atol=1e-11)
            assert sums.n_impossible == expected.impossible.sum()
            possible = expected.log_evidence[~expected.impossible]
            assert sums.log_likelihood == pytest.approx(float(possible.sum()))
            if not zeros_too:  # no kernel is made again
                assert made in (None, backend.counting.choice.made)
                made = dict(backend.counting.choice.made)
        cases.close()
        cases.close()


def test_too_little_memory(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MEMORY_SHARE", 1e-9)
    net = two_parts()
    with closing(make("gpu", *planned(net), replan=False, single=False)) as backend:
        with pytest.raises(TableTooLarge, match=r"expected counts of 1024 cases take .* backend='cpu'"):
            backend.run(Table.counts(random_states(net, 10, 0.3, 1)))
        monkeypatch.undo()
        assert backend.run(Table.counts(random_states(net, 10, 0.3, 1))).impossible.shape == (10,)
    with pytest.raises(JtgpuError, match="closed"):
        backend.run(Table.counts(random_states(net, 10, 0.3, 1)))


def test_without_a_compiler_records_count(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BackendUnavailable("nvcc was not found")

    monkeypatch.setattr("jtgpu.backends.gpu.batch.generated.compile_kernels", refuse)
    net = two_parts()
    states = random_states(net, 10, 0.3, 1)
    with closing(make("gpu", *planned(net), replan=False, single=False)) as backend:
        assert isinstance(backend, Gpu)
        close(backend.run(Table.counts(states)), backend_of(net, "reference").run(Table.counts(states)))
        assert backend.counting.kind == "tables"


def test_a_tree_on_a_gpu_counts_there(gpu: Device) -> None:
    net = two_parts()
    states = random_states(net, 30, 0.3, 8)
    with net.compile("gpu") as tree, net.compile("cpu") as other:
        mine, theirs = (t.expected_counts(states, on_error="flag") for t in (tree, other))
    for v in net:
        np.testing.assert_allclose(mine[v], theirs[v], atol=1e-11)
    assert mine.log_likelihood == pytest.approx(theirs.log_likelihood)


@pytest.mark.parametrize("several", [False, True])
def test_fit_on_a_gpu_is_that_of_the_cpu(
    several: bool, gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jtgpu.backends.wrappers.devices.MIN_ROWS", 1)
    net = two_parts()
    states = np.concatenate([random_states(net, 200, 0.3, 9), [[0, 2, 0, 0, 0]]])  # the last one is impossible
    options: Any = {"em": jtgpu.learn.EM(start="given", iterations=4, tolerance=0, on_error="flag")}
    devices = two_at_most() if several else None
    found = [
        fit(net, states, compute=jtgpu.Compute(backend="gpu", devices=devices), **options),
        fit(net, states, compute="cpu", **options),
    ]
    assert found[0].n_impossible == found[1].n_impossible > 0
    assert found[0].log_likelihood == pytest.approx(found[1].log_likelihood)
    for v in net:
        np.testing.assert_allclose(found[0].network.cpt(v), found[1].network.cpt(v), atol=1e-10)


def test_fit_refuses_devices_that_are_not_used() -> None:
    net = two_parts()
    with pytest.raises(jtgpu.ArgumentError, match="devices are GPUs"):
        fit(net, random_states(net, 5, 0.3, 1), compute=jtgpu.Compute(backend="cpu", devices=[0]))
    with pytest.raises(jtgpu.ArgumentError, match="counts on CPUs"):
        fit(net, random_states(net, 5, 0.3, 1), compute=jtgpu.Compute(backend="gpu", cluster="local"))
