"""Tables of cases on a GPU: cases that observe certain variables have kernels without these."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.backends.gpu.batch import engine as batch
from jtgpu.backends.gpu.batch import lots, variants
from jtgpu.backends.gpu.batch.buffers import Buffers
from jtgpu.backends.gpu.batch.fixed import Costs
from jtgpu.backends.gpu.batch.records import RecordProgram
from jtgpu.backends.wrappers.row_queue import RowQueue
from jtgpu.device.context import Device
from jtgpu.errors import TableTooLarge
from jtgpu.model.discrete import DiscreteModel
from jtgpu.plans.plan import Plan
from tests.backends.gpu.engines import ON_GPU
from tests.backends.gpu.test_batch import cases, hold_rows, tables
from tests.plans.test_program import planned
from tests.support import random_nets
from tests.support.examples import examples


@contextmanager
def eager_engine(gpu: Device, plan: Plan, model: DiscreteModel, real: str = "float64") -> Iterator[batch.BatchEngine]:
    """An engine of records that makes every variant at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "GENERATED_FLOPS", -1)
        patch.setattr(variants, "LEVEL", -1.0)
        patch.setattr(variants, "COPIED", math.inf)
        engine = batch.BatchEngine(plan, tables(model), gpu, real, adapts=True)
        with closing(engine):
            assert engine.variants is not None
            engine.variants.price = 0.0
            yield engine


@examples(25, **ON_GPU)
@given(data=st.data())
def test_variants_agree_with_the_reference(gpu: Device, data: st.DataObject) -> None:
    """Observed here and there, a whole column or two, weights of observed variables, impossible cases; by rows, again,
    and by columns."""
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(range(len(model))), "pairwise")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    states, soft = cases(model, rng, 70)
    for v in rng.permutation(len(model))[: data.draw(st.integers(0, 2))]:
        states[:, v] = rng.integers(0, model.cardinality[v], len(states))
    real = data.draw(st.sampled_from(["float64", "float64", "float32"]))
    with eager_engine(gpu, plan, model, real) as engine:
        found, again = engine.run_batch(states, soft), engine.run_batch(states, soft)
        np.testing.assert_array_equal(again.posterior, found.posterior)
        if real == "float64":
            hold_rows(model, plan, states, soft, found.posterior, found.log_evidence)
        hard = engine.run_batch(states)
        columns = engine.run_columns(range(len(model)), states.T.astype(np.int8))
        np.testing.assert_array_equal(columns.posterior.T, hard.posterior)
        np.testing.assert_array_equal(columns.log_evidence, hard.log_evidence)
        if real == "float64":
            hold_rows(model, plan, states, {}, hard.posterior, hard.log_evidence)


def a_network(rng: np.random.Generator) -> tuple[DiscreteModel, Plan]:
    card = dict(zip("abcdef", (5, 4, 6, 3, 4, 5), strict=True))
    scopes = ("abc", "bcd", "cde", "def", "fa")
    factors = [(list(s), rng.random([card[v] for v in s]) * (rng.random([card[v] for v in s]) < 0.7)) for s in scopes]
    model = jtgpu.MarkovNetwork({v: [str(k) for k in range(n)] for v, n in card.items()}, factors)
    return model, planned(model, list(range(6)), "pairwise")


def test_rows_of_one_table_have_several_kernels(gpu: Device) -> None:
    """Rows by what they observe, some targets, chunks of a part; and where memory is short one part after another."""
    rng = np.random.default_rng(5)
    model, plan = a_network(rng)
    states = np.where(rng.random((600, 6)) < 0.3, rng.integers(0, model.cardinality, (600, 6)), -1).astype(np.int32)
    with eager_engine(gpu, plan, model) as engine:
        table = engine.share(states, None, [4, 1])
        assert len(table.parts) > 4
        assert sorted(table.order.tolist()) == list(range(600))  # type: ignore[union-attr]
        first = 0
        for last, fixed in table.parts:
            assert (states[table.rows(first, last)][:, sorted(fixed)] >= 0).all()
            first = last
        assert first == 600
        found = engine.run_batch(states)
        hold_rows(model, plan, states, {}, found.posterior, found.log_evidence)
        few = engine.run_batch(states, None, [4, 1])
        kept = {f: k.buffers._slots for f, k in engine.fixed._made.items()}
        assert all(kept.values())
        engine.run_batch(states[:-9], None, [4, 1])
        assert all(k.buffers._slots is kept[f] for f, k in engine.fixed._made.items())
        ptr = plan.posterior_ptr
        wanted = np.concatenate([np.arange(ptr[v], ptr[v + 1]) for v in (4, 1)])
        np.testing.assert_array_equal(few.posterior, found.posterior[:, wanted])
        engine.answer(table, queue := RowQueue(table.n, 2))
        assert queue.left == 0
        np.testing.assert_array_equal(table.result().posterior, few.posterior)

        with pytest.MonkeyPatch.context() as patch:
            allocate = Buffers.slots

            def slots(self: Buffers, program: Any, table: Any, n: int, share: float = 1.0, room: int = 0) -> Any:
                if share < 1.0:
                    raise TableTooLarge("no room", 1, 0)
                return allocate(self, program, table, n, share, room)

            patch.setattr(Buffers, "fit", lambda *_: False)
            patch.setattr(Buffers, "slots", slots)
            np.testing.assert_array_equal(engine.run_batch(states).posterior, found.posterior)


def test_a_smaller_table_runs_fewer_blocks(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory of a larger table: the graph for all of its cases, or kernels for fewer where that takes less time."""
    rng = np.random.default_rng(7)
    model, plan = a_network(rng)
    states, soft = cases(model, rng, 600)
    few = {v: w[:330] for v, w in soft.items()}
    queue, queued = RecordProgram.queue, []

    def recorded(self: RecordProgram, bound: Any, stream: Any, n: int) -> None:
        queued.append(n)
        queue(self, bound, stream, n)

    monkeypatch.setattr(RecordProgram, "queue", recorded)
    with eager_engine(gpu, plan, model) as engine:
        engine.variants = None
        whole, expected = engine.run_batch(states, soft), engine.run_batch(states[:330], few)
        (slot,) = engine._buffers._slots
        for case_us, n in ((math.inf, [352]), (0.0, [])):
            slot.kernels.case_us = case_us
            queued.clear()
            found = engine.run_batch(states[:330], few)
            assert queued == n
            np.testing.assert_array_equal(found.posterior, expected.posterior)
            np.testing.assert_array_equal(found.log_evidence, expected.log_evidence)
        np.testing.assert_array_equal(expected.posterior, whole.posterior[:330])
        with gpu.active():
            slot.kernels._capture(64)
        np.testing.assert_array_equal(engine.run_batch(states[:330], few).posterior, expected.posterior)
        assert queued == [64, 352]


def test_few_kernels_are_kept(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    model, plan = a_network(rng)
    monkeypatch.setattr(lots, "MOST_FIXED", 2)
    monkeypatch.setattr(variants, "MOST_PARTS", 2)
    full = rng.integers(0, model.cardinality, (40, 6)).astype(np.int32)
    with eager_engine(gpu, plan, model) as engine:
        for seen in ([0, 1], [2], [3, 4], [0, 1, 5]):
            states = np.full_like(full, -1)
            states[:, seen] = full[:, seen]
            found = engine.run_batch(states)
            hold_rows(model, plan, states, {}, found.posterior, found.log_evidence)
            assert len(engine.fixed) <= 2


def test_kernels_are_made_once_they_have_paid() -> None:
    """Half of a case's cost depends on variable 0, of two states."""
    costs = Costs(np.array([0, 1, 2, 3]), np.array([0, 0, 1]), np.array([1.0, 1.0, 0.0]) * 1e6)
    made = variants.Variants(SimpleNamespace(costs=costs, levels=[0, 0]), np.array([2, 4]), 100)
    assert made.variables == [0]
    seen = np.array([[False] * 700 + [True] * 300])
    until = 0
    while not made.parts(1000, lambda _: seen)[1]:
        until += 1
    price = variants.STEP * 100 + variants.RECORD * 1e6
    saved = variants.CELL * 1e6 * (300 - variants.PADDING) - 2 * variants.LEVEL
    assert until == int(price / saved)
    order, parts = made.parts(1000, lambda _: seen)
    assert parts == [variants.Part(700, frozenset()), variants.Part(1000, frozenset([0]))]
    np.testing.assert_array_equal(order, np.arange(1000))
    assert made.parts(5, lambda _: seen[:, -5:]) == (None, [])
    assert made.parts(0, lambda _: seen[:, :0]) == (None, [])
    assert made.parts(1000, lambda _: seen, int(variants.COPIED * variants.CELL * 2e6) - 1)[1] == parts
    assert made.parts(1000, lambda _: seen, int(variants.COPIED * variants.CELL * 2e6) + 1) == (None, [])
