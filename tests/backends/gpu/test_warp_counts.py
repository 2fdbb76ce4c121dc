"""Expected counts by a warp a case on a GPU: against the CPU and the definition, the same bits for any parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.backends.gpu.backend import Gpu
from jtgpu.backends.gpu.counts import engine, generated, held, warps
from jtgpu.backends.make import make
from jtgpu.backends.table import Table
from jtgpu.device.context import Device
from jtgpu.model.discrete import DiscreteModel
from jtgpu.plans.compiler import model_factors
from tests.backends.gpu.engines import ON_GPU
from tests.backends.gpu.test_batch import cases
from tests.backends.gpu.test_counts import close, planned, two_at_most, two_parts
from tests.backends.test_counts import assert_same, backend_of, other_numbers, random_states
from tests.support import random_nets
from tests.support.bundled import bundled
from tests.support.emulated.install import needs_compiler
from tests.support.examples import examples

pytestmark = needs_compiler


@contextmanager
def by_warps(model: DiscreteModel, cells: int = 1 << 12, **options: Any) -> Iterator[Gpu]:
    """A backend that counts every table this way, a case of at most so many cells, of half as many at first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generated, "GENERATED_FLOPS", -1)
        patch.setattr(warps, "GAIN", 0.0)
        patch.setattr(warps, "CELLS", cells // 2)
        patch.setattr(warps, "MOST_CELLS", cells)
        with closing(make("gpu", *planned(model), replan=False, single=False, **options)) as backend:
            yield backend  # type: ignore[misc]


@examples(25, **ON_GPU)
@given(data=st.data())
def test_counts_agree_with_the_reference(gpu: Device, data: st.DataObject) -> None:
    """Weights of any sign and size, weights of observed and of other variables, impossible cases, little room."""
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    if not len(model):
        return
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    states, soft = cases(model, rng, 40)
    more = rng.random(states.shape) < data.draw(st.sampled_from([0.0, 0.7]))
    states = np.where(more, random_states(model, 40, 0.2, 1), states)
    weights = rng.normal(size=40) * 10.0 ** rng.integers(-9, 9)
    size = float(np.abs(weights).sum())
    with by_warps(model, data.draw(st.sampled_from([1 << 12, 40]))) as backend:
        for given_soft in ({}, soft):
            found = backend.run(Table.counts(states.astype(np.int32), weights, given_soft))
            expected = backend_of(model, "reference").run(Table.counts(states.astype(np.int32), weights, given_soft))
            np.testing.assert_array_equal(found.impossible, expected.impossible)
            for mine, theirs in zip(found.families, expected.families, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12 * size)
            possible = ~expected.impossible
            np.testing.assert_allclose(found.log_evidence[possible], expected.log_evidence[possible], atol=1e-11)
            assert backend.counting.kind == "warps"


@pytest.mark.slow
def test_a_network_of_many_variables(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases of a warp each and of a block each have the same bits."""
    net = bundled("child")
    states = random_states(net, 40, 0.5, 5)
    expected = backend_of(net, "cpu").run(Table.counts(states))
    found = []
    monkeypatch.setattr(warps, "EACH", 0)
    for products in (1 << 20, 1000, 0):
        monkeypatch.setattr(warps, "PRODUCTS", products)
        with by_warps(net, 1 << 14) as backend:
            found.append(backend.run(Table.counts(states)))
        close(found[-1], expected)
        assert_same(found[0], found[-1])


@pytest.mark.slow
def test_the_same_bits_for_any_chunks_and_devices(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one piece, chunk by chunk, without room for rows, on two devices; some cases have too many cells."""
    net = two_parts()
    states, weights = random_states(net, 1000, 0.3, 4), np.random.default_rng(5).normal(size=1000)
    monkeypatch.setattr(engine, "BLOCK", 64)
    monkeypatch.setattr(engine, "PART", 128)
    monkeypatch.setattr(engine, "LEAST_CASES", 128)
    monkeypatch.setattr("jtgpu.backends.wrappers.devices.MIN_ROWS", 1)
    found = []
    much = 1 << 30
    for scratch, share, devices in ((much, 0.8, None), (1, 0.8, None), (much, -1.0, None), (much, 0.8, two_at_most())):
        monkeypatch.setattr(engine, "SCRATCH_BYTES", scratch)  # 1: one block a chunk
        monkeypatch.setattr(held, "HELD_SHARE", share)  # below 0: no rows stay on the device
        with by_warps(net, 25, devices=devices) as backend:
            found += [backend.run(Table.counts(states, weights)), backend.run(Table.counts(states, weights))]
    close(found[0], backend_of(net, "reference").run(Table.counts(states, weights)))
    for other in found[1:]:
        assert_same(found[0], other)


@pytest.mark.parametrize("zeros_too", [False, True])
def test_held_cases_follow_new_numbers(zeros_too: bool, gpu: Device) -> None:
    """Cases with too many cells stay on the device, too."""
    net = two_parts()
    states = random_states(net, 100, 0.3, 4).astype(np.int8)
    with by_warps(net, 25) as backend:
        held_cases: Any = backend.hold(Table.counts(states)).feed
        again = []
        for seed in range(3):
            changed = other_numbers(net, seed, zeros_too)
            backend.reload([f.table for f in model_factors(changed)])
            expected = backend_of(changed, "reference").run(Table.counts(states.astype(np.int32)))
            sums = held_cases.sums()
            for mine, theirs in zip(sums.families, expected.families, strict=True):
                np.testing.assert_allclose(mine, theirs, atol=1e-11)
            assert sums.n_impossible == expected.impossible.sum()
            assert sums.log_likelihood == pytest.approx(float(expected.log_evidence[~expected.impossible].sum()))
            assert {"warps", "tables"} == set(backend.counting.choice.made)
            again.append(held_cases._held[0]._parts[0].again)
        assert again[0] is not None
        assert again == again[:1] * 3
        held_cases.close()


def test_only_tables_with_much_evidence_are_counted_this_way() -> None:
    net = bundled("barley")
    program = warps.WarpProgram(net.plan().whole)
    assert program.supported
    assert program.suits(random_states(net, 3000, 0.1, 1))
    assert not program.suits(random_states(net, 3000, 0.9, 1))
    assert not program.suits(random_states(net, 0, 0.1, 1))
    latent = random_states(net, 2000, 0.0, 2)
    latent[:, :3] = -1
    assert program.suits(latent)
    small = warps.WarpProgram(two_parts().compile("cpu").plan.whole)  # records take less than this takes for nothing
    assert not small.suits(random_states(two_parts(), 100, 0.0, 3))
