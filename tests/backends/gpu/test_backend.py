"""The GPU backend on an emulated GPU: options, fallback, other numbers in the same memory, threads, closing."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as gpu
from jtgpu.backends.table import Table
from jtgpu.device.context import Device
from jtgpu.errors import ImpossibleEvidence, JtgpuError
from tests.backends.gpu.engines import tables
from tests.plans.test_plan import chain
from tests.support.bundled import bundled
from tests.support.examples import slow

OPTIONS: list[dict[str, Any]] = [{"engine": "dataflow"}, {"engine": "levels"}]


def cases(n: int, cards: np.ndarray, seed: int = 0) -> list[Evidence]:
    """Nothing, findings, weights, nothing."""
    rng = np.random.default_rng(seed)
    state = np.full(n, -1, np.int32)
    chosen = rng.choice(n, max(1, n // 5), replace=False)
    state[chosen] = rng.integers(0, cards[chosen])
    soft = {int(v): rng.random(int(cards[v])) + 0.1 for v in rng.choice(n, 2, replace=False)}
    return [Evidence.none(n), Evidence(state), Evidence(np.full(n, -1, np.int32), soft), Evidence.none(n)]


def perturbed(factors: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """Other positive numbers, zeros in other places, each distribution normalised."""
    rng = np.random.default_rng(seed)
    made = [rng.random(f.shape) * (rng.random(f.shape) < 0.9) + 1e-3 for f in factors]
    return [f / f.sum(axis=-1, keepdims=True) for f in made]


@pytest.mark.parametrize("options", [OPTIONS[0], *slow(*OPTIONS[1:])], ids=str)
@pytest.mark.parametrize("name", ["asia", *slow("insurance")])
def test_reloaded_numbers_give_the_answers_of_a_new_backend(
    emulated_gpu: Device, name: str, options: dict[str, Any]
) -> None:
    net = bundled(name)
    plan = net.plan("min-fill", cache=False).plan
    backend = gpu.prepare(plan, tables(net), **options)
    table = np.where(np.random.default_rng(2).random((40, len(net))) < 0.2, 0, -1).astype(np.int32)
    backend.run(Table.of(table))
    for factors in (perturbed(tables(net), 1), perturbed(tables(net), 2), tables(net)):
        for case in cases(len(net), plan.cardinality):
            backend.run_case(case) if not case.state.max() >= 0 else None
        backend.reload(factors)
        fresh = gpu.prepare(plan, factors, **options)
        for case in cases(len(net), plan.cardinality, 3):
            try:
                expected = fresh.run_case(case)
            except ImpossibleEvidence:
                with pytest.raises(ImpossibleEvidence):
                    backend.run_case(case)
                continue
            got = backend.run_case(case)
            np.testing.assert_array_equal(got.posterior, expected.posterior)
            assert got.log_evidence == expected.log_evidence
        np.testing.assert_array_equal(backend.run(Table.of(table)).posterior, fresh.run(Table.of(table)).posterior)
        fresh.close()
    with pytest.raises(ValueError, match="same shapes"):
        backend.reload(tables(net)[1:])
    backend.close()
    with pytest.raises(JtgpuError, match="closed"):
        backend.reload(tables(net))


def test_numbers_that_need_scaling_are_reloaded_too(emulated_gpu: Device) -> None:
    """Doubles without scaling overflow for them, so the fallback answers; and no longer after the next reload."""
    net = bundled("asia")
    plan = net.plan("min-fill", cache=False).plan
    backend = gpu.prepare(plan, tables(net), engine="dataflow")
    none = Evidence.none(len(net))
    huge = [1e29 * f for f in tables(net)]
    backend.reload(huge)
    for _ in range(2):
        got, expected = backend.run_case(none), reference.prepare(plan, huge).run_case(none)
        np.testing.assert_allclose(got.posterior, expected.posterior, atol=1e-12)
        assert got.log_evidence == pytest.approx(expected.log_evidence, rel=1e-12)
    backend.reload(tables(net))
    assert backend.engine.run(none) is not None
    backend.close()


@pytest.mark.slow
def test_a_case_too_improbable_for_the_dataflow_engine_is_computed_by_the_host(emulated_gpu: Device) -> None:
    n = 900
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    backend = gpu.prepare(plan, tables(net), engine="dataflow")
    expected = np.log(1 / 3) + (n - 1) * np.log(0.1)
    improbable = Evidence((np.arange(n) % 3).astype(np.int32))
    for case, log in ((None, 0.0), (improbable, expected), (improbable, expected), (None, 0.0), (None, 0.0)):
        found = backend.run_case(case or Evidence.none(n))
        assert found.log_evidence == pytest.approx(log, rel=1e-12, abs=1e-11)
    backend.close()
    with pytest.raises(JtgpuError, match="closed"):
        backend.run_case(improbable)


def test_impossible_evidence_is_an_error_of_every_engine(emulated_gpu: Device) -> None:
    net = bundled("asia")
    plan = net.plan("min-fill", cache=False).plan
    state = np.full(len(net), -1, np.int32)
    state[net.index("lung")], state[net.index("either")] = 0, 1
    for options in OPTIONS:
        backend = gpu.prepare(plan, tables(net), **options)
        for _ in range(2):
            with pytest.raises(ImpossibleEvidence):
                backend.run_case(Evidence(state))
        assert backend.run_case(Evidence.none(len(net))).log_evidence == pytest.approx(0.0, abs=1e-6)
        backend.close()


@pytest.mark.usefixtures("emulated_gpu")
def test_an_unknown_option_is_an_error_that_names_the_nearest() -> None:
    net = bundled("asia")
    plan = net.plan("min-fill", cache=False)
    with pytest.raises(TypeError, match=r"no option 'lists'"):
        plan.compile("gpu", lists=False)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="did you mean 'engine'"):
        plan.compile("gpu", engines="levels")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="did you mean 'dataflow'"):
        plan.compile("gpu", engine="flow")
    with pytest.raises(ValueError, match="float16"):
        plan.compile("gpu", dtype="float16")  # type: ignore[arg-type]


def test_threads_share_a_backend_while_its_numbers_change(emulated_gpu: Device) -> None:
    """Every answer is that of one set of numbers, never of a mixture."""
    net = bundled("asia")
    plan = net.plan("min-fill", cache=False).plan
    both = [tables(net), perturbed(tables(net), 5)]
    none = Evidence.none(len(net))
    expected = [reference.prepare(plan, f).run_case(none).posterior for f in both]
    for options in OPTIONS[:2]:
        backend = gpu.prepare(plan, both[0], **options)
        wrong: list[Any] = []
        done = threading.Event()

        def query(backend: gpu.Gpu = backend, done: threading.Event = done, wrong: list[Any] = wrong) -> None:
            while not done.is_set():
                found = backend.run_case(none).posterior
                if not any(np.allclose(found, e, rtol=0, atol=1e-12) for e in expected):
                    wrong.append(found)

        threads = [threading.Thread(target=query) for _ in range(2)]
        for t in threads:
            t.start()
        for i in range(6):
            backend.reload(both[i % 2])
        done.set()
        for t in threads:
            t.join()
        assert not wrong
        backend.close()


def test_closed_engines_are_gone_without_a_garbage_collection(emulated_gpu: Device) -> None:
    """One in a circle of references would end in any thread, where its events cannot be destroyed."""
    net = bundled("asia")
    backend = gpu.prepare(net.plan("min-fill", cache=False).plan, tables(net), single=False)
    states = np.full((3, len(net)), -1, np.int32)
    backend.run(Table.of(states))
    backend.run(Table.counts(states))
    backend.run(Table.on_device(states))
    engines = [weakref.ref(x) for x in (backend.tables, backend.counting)]
    gc.disable()
    try:
        backend.close()
        del backend
        assert [engine() for engine in engines] == [None, None]
    finally:
        gc.enable()
