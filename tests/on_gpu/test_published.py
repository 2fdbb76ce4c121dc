"""The whole engine on a GPU: networks against the reference, both modes, memory, neighbours in the process."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import errors
from jtgpu.backends import get
from jtgpu.backends.base import Evidence, Result
from jtgpu.device.context import Device
from jtgpu.inference.network_plan import NetworkPlan
from jtgpu.plans.compiler import model_factors
from jtgpu.published.junction_trees.backend import prepare
from jtgpu.published.junction_trees.rules import Rules

NETWORKS = ("Water", "Mildew", "Barley", "Diabetes", "Munin1", "Munin2", "Munin3", "Munin4", "Link", "powerplant")
OPTIONS: list[dict[str, Any]] = [
    {"transfers": "each"},
    {"transfers": "resident"},
    {"transfers": "each", "normalise": "kernel", "min_entries": 0, "streams": 1},
    {"transfers": "each", "index_transfers": "each", "scatter": "fused"},
    {
        "transfers": "resident",
        "graph": False,
        "ways": 8,
        "scatter_ways": 4,
        "marginalise_m": "shuffle",
        "scatter": "fused",
    },
    {"transfers": "resident", "min_entries": 5000},
]


def plan_of(folder: Path, name: str) -> tuple[NetworkPlan, list[np.ndarray]]:
    net = jtgpu.read(folder / f"{name}.net")
    plan = net.plan(order=folder / f"{name}.num", memory_limit=float("inf"))
    return plan, [f.table for f in model_factors(net)]


def cases(plan: Any, factors: list[np.ndarray], reference: Any) -> list[tuple[Evidence, Result]]:
    """No evidence; a tenth of the variables at likely states; likelihoods in addition."""
    none = Evidence.none(plan.n_variables)
    answers = [(none, reference.run_case(none))]
    rng = np.random.default_rng(11)
    ptr, state = plan.posterior_ptr, none.state.copy()
    for v in rng.choice(plan.n_variables, max(1, plan.n_variables // 10), replace=False).tolist():
        state[v] = int(answers[0][1].posterior[ptr[v] : ptr[v + 1]].argmax())
    hard = Evidence(state)
    try:
        answers.append((hard, reference.run_case(hard)))
    except errors.ImpossibleEvidence:
        state[np.flatnonzero(state >= 0)[3:]] = -1
        answers.append((hard, reference.run_case(hard)))
    soft = {
        v: rng.random(int(plan.cardinality[v])) * 1e-30 + 1e-32
        for v in rng.choice(plan.n_variables, 4, replace=False).tolist()
    }
    mixed = Evidence(answers[1][0].state, soft)
    answers.append((mixed, reference.run_case(mixed)))
    return answers


@pytest.mark.parametrize("name", NETWORKS)
def test_propagation_agrees_with_the_reference(gpu: Device, nets: Path, name: str) -> None:
    planned, factors = plan_of(nets, name)
    plan = planned.plan
    expected = cases(plan, factors, get("reference")(plan, factors))
    for options in OPTIONS if name != "Munin1" else OPTIONS[:3]:
        backend = prepare(plan, factors, **options)
        try:
            for evidence, answer in expected:
                for _ in range(2):
                    found = backend.run_case(evidence)
                    np.testing.assert_allclose(
                        found.posterior, answer.posterior, rtol=0, atol=1e-11, err_msg=str(options)
                    )
                    assert found.log_evidence == pytest.approx(answer.log_evidence, abs=1e-11, rel=1e-12), options
        finally:
            backend.close()


def test_the_same_bits_every_run(gpu: Device, nets: Path) -> None:
    planned, factors = plan_of(nets, "Water")
    evidence = Evidence.none(planned.plan.n_variables)
    for transfers in ("each", "resident"):
        backend = prepare(
            planned.plan, factors, transfers=transfers, normalise="kernel" if transfers == "each" else "auto"
        )
        runs = [backend.run_case(evidence) for _ in range(5)]
        backend.close()
        for other in runs[1:]:
            np.testing.assert_array_equal(other.posterior, runs[0].posterior)
            assert other.log_evidence == runs[0].log_evidence


def test_float32_is_near(gpu: Device, nets: Path) -> None:
    planned, factors = plan_of(nets, "Mildew")
    evidence = Evidence.none(planned.plan.n_variables)
    answer = get("reference")(planned.plan, factors).run_case(evidence)
    for transfers in ("each", "resident"):
        backend = prepare(planned.plan, factors, dtype="float32", transfers=transfers)
        found = backend.run_case(evidence)
        backend.close()
        np.testing.assert_allclose(found.posterior, answer.posterior, atol=1e-4)


@pytest.mark.parametrize("transfers", ["each", "resident"])
def test_the_engine_survives_impossible_evidence(gpu: Device, nets: Path, transfers: str) -> None:
    planned, factors = plan_of(nets, "Water")
    plan = planned.plan
    backend = prepare(plan, factors, transfers=transfers)
    fine = backend.run_case(Evidence.none(plan.n_variables))
    v = next(
        v
        for v in range(plan.n_variables)
        if (fine.posterior[plan.posterior_ptr[v] : plan.posterior_ptr[v + 1]] == 0).any()
    )
    state = np.full(plan.n_variables, -1, np.int32)
    state[v] = int(np.argmin(fine.posterior[plan.posterior_ptr[v] : plan.posterior_ptr[v + 1]]))
    with pytest.raises(errors.ImpossibleEvidence):
        backend.run_case(Evidence(state))
    np.testing.assert_array_equal(backend.run_case(Evidence.none(plan.n_variables)).posterior, fine.posterior)
    backend.close()


@pytest.mark.alone
def test_a_thousand_trees_leak_nothing(gpu: Device, nets: Path) -> None:
    planned, factors = plan_of(nets, "powerplant")
    evidence = Evidence.none(planned.plan.n_variables)

    def one(transfers: str) -> None:
        backend = prepare(planned.plan, factors, transfers=transfers, min_entries=0)
        backend.run_case(evidence)
        backend.close()

    for transfers in ("each", "resident"):
        one(transfers)
    gc.collect()
    with gpu.active():
        before = gpu.free_memory()
    for i in range(1000):
        one("resident" if i % 2 else "each")
    gc.collect()
    with gpu.active():
        after = gpu.free_memory()
    assert before - after < 8 << 20, "device memory is lost"


@pytest.mark.alone
def test_out_of_memory_reports_sizes_and_leaves_the_context_usable(gpu: Device, nets: Path) -> None:
    planned, factors = plan_of(nets, "Water")
    evidence = Evidence.none(planned.plan.n_variables)
    backend = prepare(planned.plan, factors, transfers="resident")
    answer = backend.run_case(evidence)
    with gpu.active():
        hog = gpu.alloc(gpu.free_memory() - (48 << 20))
        try:
            with pytest.raises(errors.TableTooLarge) as raised:
                prepare(planned.plan, factors, transfers="resident")
            assert raised.value.needed > raised.value.limit > 0
            with pytest.raises(errors.TableTooLarge):
                gpu.alloc(1 << 40)
        finally:
            hog.free()
    np.testing.assert_array_equal(backend.run_case(evidence).posterior, answer.posterior)
    again = prepare(planned.plan, factors, transfers="resident")
    np.testing.assert_array_equal(again.run_case(evidence).posterior, answer.posterior)
    again.close()
    backend.close()


def test_together_with_pytorch(gpu: Device, nets: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch sees no GPU")
    x = torch.arange(1000.0, device="cuda")
    planned, factors = plan_of(nets, "powerplant")
    backend = prepare(planned.plan, factors, transfers="resident")
    for _ in range(3):
        backend.run_case(Evidence.none(planned.plan.n_variables))
        x = x + 1
        assert float(x.sum()) > 0
    backend.close()
    y = torch.ones(10, device="cuda") * 2
    assert float(y.sum()) == 20.0
    assert float(x[0]) == 3.0


def test_together_with_cupy(gpu: Device, nets: Path) -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(1000.0)
    planned, factors = plan_of(nets, "powerplant")
    for transfers in ("each", "resident"):
        backend = prepare(planned.plan, factors, transfers=transfers, min_entries=0)
        backend.run_case(Evidence.none(planned.plan.n_variables))
        x = x + 1
        backend.close()
    assert float(x.sum()) == 499_500 + 2000


def test_no_context_stays_current(gpu: Device, nets: Path) -> None:
    import pycuda.driver as cuda

    planned, factors = plan_of(nets, "powerplant")
    assert cuda.Context.get_current() is None
    backend = prepare(planned.plan, factors)
    backend.run_case(Evidence.none(planned.plan.n_variables))
    assert cuda.Context.get_current() is None
    backend.close()
    assert cuda.Context.get_current() is None


def test_several_threads_and_trees(gpu: Device, nets: Path) -> None:
    planned, factors = plan_of(nets, "Mildew")
    plan = planned.plan
    evidence = Evidence.none(plan.n_variables)
    answer = get("reference")(plan, factors).run_case(evidence)
    shared = prepare(plan, factors, transfers="resident")
    failures: list[BaseException] = []

    def work() -> None:
        try:
            own = prepare(plan, factors, transfers="each")
            for _ in range(5):
                for backend in (shared, own):
                    np.testing.assert_allclose(backend.run_case(evidence).posterior, answer.posterior, atol=1e-11)
            own.close()
        except BaseException as error:  # a thread's failure is the test's
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    shared.close()
    assert not failures, failures


def test_the_best_device_is_chosen(gpu: Device) -> None:
    import pycuda.driver as cuda

    best = max(cuda.Device(i).compute_capability() for i in range(cuda.Device.count()))
    assert gpu.capability == best
    with pytest.raises(errors.BackendUnavailable):
        prepare_missing_device()


def prepare_missing_device() -> None:
    from jtgpu.device.context import open_device

    open_device(99)


@pytest.mark.alone
def test_tuned_rules_are_measured_saved_and_used(
    gpu: Device, nets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jtgpu.published.junction_trees import tuning

    cubins = tmp_path / "cache"
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(cubins))
    planned, factors = plan_of(nets, "powerplant")
    with pytest.raises(errors.BackendUnavailable, match="tune"):
        prepare(planned.plan, factors, thresholds="tuned")
    found = tuning.tune(sizes=(10, 14), launches=5)
    Rules(**found.rules)
    tuning.save(found)
    backend = prepare(planned.plan, factors, thresholds="tuned")
    assert backend.rules.split_n == found.rules["split_n"]
    assert backend.rules.min_entries == found.rules["min_entries"]
    backend.run_case(Evidence.none(planned.plan.n_variables))
    backend.close()
    resident = prepare(planned.plan, factors, thresholds="tuned", transfers="resident", scatter_threads=64)
    assert resident.rules.threshold == 0
    assert resident.rules.scatter_threads == 64
    resident.close()
