"""Engines of single cases on a GPU, real or emulated, against the definition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck

from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu.dataflow.engine import DataflowEngine
from jtgpu.backends.gpu.dataflow.schedule import make_schedule as dataflow_schedule
from jtgpu.backends.gpu.levels.engine import LevelEngine
from jtgpu.backends.gpu.levels.schedule import make_schedule as level_schedule
from jtgpu.device.context import Device
from jtgpu.errors import ImpossibleEvidence
from jtgpu.model.discrete import DiscreteModel
from jtgpu.plans import compiler
from jtgpu.plans.plan import Plan

# for `examples(n, **ON_GPU)`: all examples of a test share the emulated GPU
ON_GPU: dict[str, Any] = {
    "suppress_health_check": [
        HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large
    ]
}  # fmt: skip


def tables(model: DiscreteModel) -> list[np.ndarray]:
    """The factors' tables."""
    return [f.table for f in compiler.model_factors(model)]


def as_evidence(n: int, hard: dict[int, int], soft: dict[int, np.ndarray]) -> Evidence:
    """A case of n variables."""
    state = np.full(n, -1, np.int32)
    for v, k in hard.items():
        state[v] = k
    return Evidence(state, soft)


@contextmanager
def dataflow_engine(gpu: Device, plan: Plan, factors: list[np.ndarray]) -> Iterator[DataflowEngine]:
    """The dataflow engine of a plan."""
    schedule = dataflow_schedule(plan, factors, gpu.multiprocessors)
    assert schedule is not None
    engine = DataflowEngine(plan, schedule, gpu)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def level_engine(gpu: Device, plan: Plan, factors: list[np.ndarray]) -> Iterator[LevelEngine]:
    """The level engine of a plan."""
    engine = LevelEngine(plan, factors, level_schedule(plan), gpu)
    try:
        yield engine
    finally:
        engine.close()


def agree(engine: Any, definition: reference.Reference, evidence: Evidence, bound: float = 1e-12) -> bool:
    """Hold an engine to the definition; whether it calls its answer reliable. Every engine notices that P(e) = 0."""
    try:
        expected = definition.run_case(evidence)
    except ImpossibleEvidence:
        with suppress(ImpossibleEvidence):
            assert engine.run(evidence) is None
        return False
    got = engine.run(evidence)
    if got is None:
        return False
    np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=bound)
    assert got.log_evidence == pytest.approx(expected.log_evidence, abs=max(1e-10, bound))
    return True
