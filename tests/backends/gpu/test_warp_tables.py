"""Tables of cases by a warp a case on a GPU: against the definition and records, by rows and columns, on any GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.backends.gpu.backend import Gpu
from jtgpu.backends.gpu.batch import engine as batch
from jtgpu.backends.gpu.batch import warps
from jtgpu.backends.gpu.batch.table import Room
from jtgpu.backends.make import make
from jtgpu.backends.table import Table
from jtgpu.backends.wrappers.row_queue import RowQueue
from jtgpu.device.context import Device
from jtgpu.model.discrete import DiscreteModel
from jtgpu.plans.plan import Plan
from tests.backends.gpu.engines import ON_GPU
from tests.backends.gpu.test_batch import cases, hold_rows, tables
from tests.backends.gpu.test_counts import two_at_most, two_parts
from tests.backends.test_counts import random_states
from tests.plans.test_program import planned
from tests.support import random_nets
from tests.support.bundled import bundled
from tests.support.emulated.install import needs_compiler
from tests.support.examples import examples

pytestmark = needs_compiler


@contextmanager
def always(room: int = 1 << 12, products: int = 1 << 16) -> Iterator[None]:
    """Every table is answered this way, a case of at most so many cells by a warp, of twice as many by a block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "GENERATED_FLOPS", -1)
        patch.setattr(warps, "LEAST_SECONDS", 0.0)
        patch.setattr(warps, "MOST_MISSING", 1.0)
        patch.setattr(warps, "MOST_CELLS", 2 * room)
        patch.setattr(warps.TableSteps, "room", lambda *_: Room(room, products))
        yield


@contextmanager
def by_warps(gpu: Device, plan: Plan, model: DiscreteModel, *room: int) -> Iterator[batch.BatchEngine]:
    with always(*room), closing(batch.BatchEngine(plan, tables(model), gpu)) as engine:
        yield engine


def much_evidence(model: DiscreteModel, states: np.ndarray, missing: float) -> np.ndarray:
    more = np.random.default_rng(3).random(states.shape) >= missing
    return np.where(more, random_states(model, len(states), 0.0, 1), states).astype(np.int32)


@examples(25, **ON_GPU)
@given(data=st.data())
def test_tables_agree_with_the_reference(gpu: Device, data: st.DataObject) -> None:
    """Weights of observed and of other variables, impossible cases, cases that are too large; by rows and by columns,
    some targets, repeated ones."""
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    if not len(model):
        return
    plan = planned(model, list(range(len(model))), "pairwise")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    states, soft = cases(model, rng, 70)
    states = much_evidence(model, states, data.draw(st.sampled_from([0.2, 0.7, 1.0])))
    with by_warps(gpu, plan, model, data.draw(st.sampled_from([1 << 12, 12]))) as engine:
        for weights in (None, soft):
            found = engine.run(Table.of(states, weights))
            hold_rows(model, plan, states, weights or {}, found.posterior, found.log_evidence)
            np.testing.assert_array_equal(found.impossible, np.isneginf(found.log_evidence))
            targets = rng.integers(0, len(model), 3).tolist()
            some = engine.run(Table.of(states, weights, targets))
            first = np.cumsum([0, *model.cardinality])
            columns = np.concatenate([np.arange(first[v], first[v + 1]) for v in targets])
            np.testing.assert_allclose(some.posterior, found.posterior[:, columns], rtol=0, atol=1e-13)
            np.testing.assert_allclose(some.log_evidence, found.log_evidence, rtol=1e-13)  # fewer cases are too large
        found = engine.run(Table.of(states))
        for kind in (np.int8, np.int16, np.int32):
            order = rng.permutation(len(model))
            codes = states[:, order].T.astype(kind)
            by_column = engine.run(Table.by_columns(order.tolist(), codes, len(model)))
            np.testing.assert_array_equal(by_column.posterior.T, found.posterior)
            np.testing.assert_array_equal(by_column.log_evidence, found.log_evidence)
        assert engine.by_room


def test_columns_that_are_not_there_are_not_observed(gpu: Device) -> None:
    model = two_parts()
    plan = planned(model, list(range(len(model))), "pairwise")
    states = random_states(model, 40, 0.0, 2).astype(np.int32)
    with by_warps(gpu, plan, model) as engine:
        for there in ([2, 0], []):
            found = engine.run(Table.by_columns(there, states[:, there].T, engine.plan.n_variables))
            rows = np.full_like(states, -1)
            rows[:, there] = states[:, there]
            hold_rows(model, plan, rows, {}, found.posterior.T, found.log_evidence)


@pytest.mark.slow
def test_a_block_has_the_bits_of_a_warp(gpu: Device) -> None:
    net = bundled("child")
    states = random_states(net, 40, 0.5, 5).astype(np.int32)
    found = []
    for products in (1 << 20, 300, 0):
        with by_warps(gpu, net.plan().whole, net, 1 << 13, products) as engine:
            table = engine.share(Table.of(states))
            engine.answer(table, RowQueue(table.n))
            assert not np.isnan(table.log_evidence).any()
            found.append(table.result())
    for one in found:
        np.testing.assert_array_equal(one.posterior, found[0].posterior)
        np.testing.assert_array_equal(one.log_evidence, found[0].log_evidence)


@pytest.mark.slow
def test_a_network_of_many_variables_in_several_chunks(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one GPU and on two, and after other tables: the same bits."""
    net = bundled("child")
    plan = net.plan().whole
    states = random_states(net, 300, 0.2, 5).astype(np.int32)
    monkeypatch.setattr(warps, "MOST_CASES", 64)
    monkeypatch.setattr("jtgpu.backends.wrappers.devices.MIN_ROWS", 1)
    found = []
    with always(60):
        for devices in (None, two_at_most()):
            with closing(make("gpu", plan, tables(net), single=False, devices=devices)) as made:
                backend: Any = made
                found += [backend.run(Table.of(rows)) for rows in (states, states[:200], states)]
                if devices is None:
                    assert isinstance(backend, Gpu)
                    assert backend.tables.share(Table.of(states)).by_warps
    for one in found:
        np.testing.assert_array_equal(one.posterior, found[0].posterior[: len(one.posterior)])
        np.testing.assert_array_equal(one.log_evidence, found[0].log_evidence[: len(one.posterior)])
    hold_rows(net, plan, states[:40], {}, found[0].posterior, found[0].log_evidence)


def test_other_kernels_give_their_memory_back(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what is left would make chunks small; otherwise they keep it."""
    net = bundled("child")
    states = random_states(net, 600, 0.1, 5).astype(np.int32)
    with by_warps(gpu, net.plan().whole, net) as engine:
        warp_kernels, engine._warps = engine._warps, None
        engine.run(Table.of(states))
        engine._warps = warp_kernels
        engine.run(Table.of(states))
        (warps_made,) = engine.by_room.values()
        assert engine._buffers._slots
        assert warps_made.buffers.size >= 600
        with gpu.active():
            warps_made.buffers.close()
        each = warps_made.program.case_bytes

        def free_memory(_: Device) -> int:
            return 100 * each if engine._buffers._slots else 10_000 * each

        monkeypatch.setattr(type(gpu), "free_memory", free_memory)
        engine.run(Table.of(states))
        assert not engine._buffers._slots
        assert warps_made.buffers.size >= 600


def test_earlier_tables_change_nothing(gpu: Device) -> None:
    """Tables with much evidence and with little take turns; kernels of few rooms are kept."""
    net = bundled("child")
    states = random_states(net, 60, 0.5, 5).astype(np.int32)
    with by_warps(gpu, net.plan().whole, net) as engine, pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "MOST_ROOMS", 2)
        first = engine.run(Table.of(states))
        for cells in (13, 14, 15):
            patch.setattr(warps.TableSteps, "room", lambda *_, n=cells: Room(1 << n, 1 << 16))
            engine.run(Table.of(states[:40]))
            assert len(engine.by_room) <= 2
        patch.setattr(warps.TableSteps, "room", lambda *_: None)
        engine.run(Table.of(states))
        patch.setattr(warps.TableSteps, "room", lambda *_: Room(1 << 12, 1 << 16))
        again = engine.run(Table.of(states))
        np.testing.assert_array_equal(again.posterior, first.posterior)
        np.testing.assert_array_equal(again.log_evidence, first.log_evidence)


def test_plans_and_tables_that_other_kernels_answer(gpu: Device) -> None:
    """Variables with weights together, no rows, few observed cells, rows that records answer at once."""
    together = bundled("asia").plan(together=[("lung", "bronc")], cache=False).whole
    assert together.sets
    assert not warps.TableSteps(together).supported
    net = bundled("asia")
    states = random_states(net, 40, 0.0, 2).astype(np.int32)
    few = np.where(np.arange(len(net)) < 1, states, -1).astype(np.int32)
    with by_warps(gpu, net.plan().whole, net) as engine:
        engine.run(Table.of(states[:0]))
        for name, value, table in (("MOST_MISSING", 0.8, few), ("LEAST_SECONDS", 1.0, states)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(warps, name, value)
                engine.run(Table.of(table))
        assert not engine.by_room
        engine.run(Table.of(states))
        assert engine.by_room


def test_only_tables_with_much_evidence_are_answered_this_way() -> None:
    """The room follows what the cases leave."""
    net = bundled("barley")
    steps = warps.TableSteps(net.plan().whole)
    assert steps.supported
    rng = np.random.default_rng(1)
    rooms = [steps.room(rng.random((len(net), 64)) < missing, 3e-5) for missing in (0.02, 0.1, 0.3, 0.9)]
    cells = [x.cells for x in rooms[:3] if x is not None]
    assert cells == sorted(set(cells))
    assert len(cells) == 3
    assert rooms[3] is None
    assert steps.room(rng.random((len(net), 64)) < 0.1, 1e-9) is None
