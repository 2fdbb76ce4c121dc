"""Every backend against one oracle, on every kind of model; and inputs that break inference engines."""

from __future__ import annotations

import dataclasses
import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu import backends, errors
from jtgpu.backends import make
from jtgpu.backends.base import Evidence
from jtgpu.backends.cpu import Cpu
from jtgpu.backends.gpu.backend import Gpu
from jtgpu.backends.make import OPTIONS
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans import compiler
from jtgpu.plans.lowering import LOWERINGS
from jtgpu.published.junction_trees.backend import Indexed
from jtgpu.published.junction_trees.rules import Rules
from jtgpu.util.options import BackendName
from tests.plans.test_plan import chain
from tests.support import oracle, random_nets
from tests.support.examples import slow

HERE: tuple[BackendName, ...] = ("reference", "cpu")  # the backends that every machine runs


@pytest.mark.parametrize("backend", HERE)
@given(data=st.data())
def test_backends_agree_with_brute_force(data: st.DataObject, backend: BackendName) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    lowering = data.draw(st.sampled_from(LOWERINGS))
    tree = model.plan(order="min-fill", lowering=lowering, cache=False).compile(backend)
    for _ in range(2):  # the second query on the same tree: nothing of the first is left
        hard, soft = data.draw(random_nets.evidence_weights(model))
        weights = random_nets.all_weights(model, hard, soft)
        expected = oracle.log_evidence(model, weights)
        if expected == -math.inf:
            with pytest.raises(errors.ImpossibleEvidence):
                tree.posteriors(hard, likelihood=soft)
            continue
        post = tree.posteriors(hard, likelihood=soft)
        assert post.log_evidence == pytest.approx(expected, abs=1e-11)
        for v, p in zip(post, oracle.posteriors(model, weights), strict=True):
            np.testing.assert_allclose(post[v], p, atol=1e-12)


@pytest.mark.parametrize("backend", ["cpu", *slow("reference")])
def test_a_chain_of_5000_variables_does_not_underflow(backend: BackendName) -> None:
    n = 5000
    net = chain(n, 3)
    tree = net.plan(order=list(range(n))).compile(backend)
    assert tree.posteriors().log_evidence == pytest.approx(0.0, abs=1e-9)
    evidence = {f"x{i}": i % 3 for i in range(n)}
    # every step changes the state: P = 1/3 * 0.1 ** (n - 1), far under the smallest double
    assert tree.log_evidence(evidence) == pytest.approx(math.log(1 / 3) + (n - 1) * math.log(0.1), rel=1e-12)
    thin = {f"x{i}": (i // 7) % 3 for i in range(0, n, 7)}
    post = tree.posteriors(thin)
    assert post.log_evidence < -700
    step = np.linalg.matrix_power(net.cpt("x1"), 7)
    expected = math.log(1 / 3) + sum(math.log(step[(i // 7) % 3, (i // 7 + 1) % 3]) for i in range(0, n - 7, 7))
    assert post.log_evidence == pytest.approx(expected, rel=1e-12)
    for v in ("x1", "x2500", f"x{n - 1}"):
        assert np.asarray(post[v]).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("backend", HERE)
def test_a_star_of_2000_leaves(backend: BackendName) -> None:
    """Naive Bayes: one clique meets all others. The classes' odds go far beyond a double's range and back."""
    n = 2000
    rng = np.random.default_rng(5)
    states = {"c": ["0", "1"], **{f"f{i}": ["0", "1"] for i in range(n)}}
    tables = {f"f{i}": np.array([[p, 1 - p], [q, 1 - q]]) for i, (p, q) in enumerate(rng.uniform(0.1, 0.9, (n, 2)))}
    net = BayesianNetwork(states, {f: ["c"] for f in tables}, {"c": [0.5, 0.5], **tables})
    tree = net.plan(order="min-fill", cache=False).compile(backend)
    evidence = {f: int(rng.integers(2)) for f in list(tables)[:1200]}
    log_joint = np.array([math.log(0.5) + sum(math.log(tables[f][c, s]) for f, s in evidence.items()) for c in (0, 1)])
    top = log_joint.max()
    expected = top + math.log(np.exp(log_joint - top).sum())
    post = tree.posteriors(evidence)
    assert post.log_evidence == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(post["c"], np.exp(log_joint - expected), atol=1e-9)


@pytest.mark.parametrize("backend", HERE)
def test_factors_that_are_no_probabilities(backend: BackendName) -> None:
    two = ["0", "1"]
    huge = np.array([[1e300, 2e300], [3e300, 4e300]])
    tiny = np.array([[1e-300, 2e-300], [3e-300, 5e-324]])
    model = MarkovNetwork(
        {"a": two, "b": two, "c": two, "d": two},
        [(["a", "b"], huge), (["b", "c"], huge), (["c", "d"], tiny), ([], 1e-200), (["a"], [1e-200, 3e-200])],
    )
    tree = model.plan(order=[0, 1, 2, 3]).compile(backend)
    scaled = MarkovNetwork(
        {"a": two, "b": two, "c": two, "d": two},
        [(["a", "b"], huge / 1e300), (["b", "c"], huge / 1e300), (["c", "d"], tiny * 1e300), (["a"], [1.0, 3.0])],
    )
    expected = oracle.log_evidence(scaled) + (300 + 300 - 300 - 200 - 200) * math.log(10)
    assert tree.log_evidence() == pytest.approx(expected, abs=1e-9)
    for p, q in zip(tree.posteriors().values(), oracle.posteriors(scaled), strict=True):
        np.testing.assert_allclose(p, q, atol=1e-12)
    weights = {"a": [1e-300, 2e-300], "b": [1e300, 1e300]}
    got = tree.log_evidence(likelihood=weights)
    assert got == pytest.approx(
        expected + math.log(oracle_share(scaled)) , abs=1e-9
    )


def oracle_share(model: MarkovNetwork) -> float:
    """E[w(a)] for weights 1 and 2, under the model."""
    p = oracle.posteriors(model)[0]
    return float(p[0] + 2 * p[1])


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("constant", [0.0, 0.25])
def test_factors_of_empty_scope(backend: BackendName, constant: float) -> None:
    model = MarkovNetwork({"a": ["0", "1"], "b": ["0"]}, [([], constant), (["a"], [1.0, 3.0])])
    tree = model.plan(order=[0, 1]).compile(backend)
    if constant == 0:
        with pytest.raises(errors.ImpossibleEvidence, match="every configuration"):
            tree.posteriors()
    else:
        assert tree.log_evidence() == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("backend", HERE)
def test_a_closed_backend_raises(backend: BackendName) -> None:
    net = chain(4)
    tree = net.compile(backend, order=[0, 1, 2, 3])
    tree.close()
    tree.close()
    with pytest.raises(errors.JtgpuError, match="closed"):
        tree.posteriors()


def test_unknown_backends_are_named() -> None:
    with pytest.raises(errors.BackendUnavailable, match="did you mean 'cpu'"):
        chain(3).compile("cpus", order=[0, 1, 2])  # type: ignore[arg-type]


SLOW_CPU = {"cpu": make.Rates(1e-5, 5e-8, 1e-8), "gpu": make.Rates(3e-5, 1e-6, 1e-12)}


def test_auto_uses_the_gpu_only_if_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (chain(5, n).plan(order=[0, 1, 2, 3, 4]) for n in (2, 80))
    monkeypatch.setattr(make, "_rates", lambda: SLOW_CPU)
    monkeypatch.setattr(make, "_no_gpu", lambda: "")
    assert make.choose(small.plan).backend == "cpu"
    assert make.choose(large.plan).backend == "gpu"
    assert "backend: gpu (about 3" in large.describe()
    monkeypatch.setattr(make, "_no_gpu", lambda: "no NVIDIA GPU found")
    assert make.choose(large.plan) == ("cpu", "no NVIDIA GPU found")
    assert large.describe().endswith("\nbackend: cpu (no NVIDIA GPU found)")
    assert large.compile("auto").backend == "cpu"


@pytest.mark.parametrize(
    ("present", "reason"), [(False, "no NVIDIA GPU found"), (True, "fewer than 5,000 table entries")]
)
def test_small_plans_open_no_gpu(monkeypatch: pytest.MonkeyPatch, present: bool, reason: str) -> None:
    monkeypatch.setattr(make, "open_device", lambda: pytest.fail("a GPU is opened"))
    monkeypatch.setattr(make, "_DRIVER_FILES", (__file__,) if present else ())
    make._no_gpu.cache_clear()
    assert make.choose(chain(5).plan().plan) == ("cpu", reason)


@pytest.mark.parametrize(
    ("present", "error", "words"),
    [
        (False, "this backend needs PyCUDA, which cannot be imported", "no NVIDIA GPU found"),
        (True, "this machine has no CUDA device", "the NVIDIA GPU "),
    ],
)
def test_the_reason_against_a_gpu_is_short(
    monkeypatch: pytest.MonkeyPatch, present: bool, error: str, words: str
) -> None:
    def fail() -> None:
        raise errors.BackendUnavailable(error)

    monkeypatch.setattr(make, "open_device", fail)
    monkeypatch.setattr(make, "_DRIVER_FILES", (__file__,) if present else ())
    make._no_gpu.cache_clear()
    try:
        assert make._no_gpu().startswith(words)
        assert len(make._no_gpu()) < 90
    finally:
        make._no_gpu.cache_clear()


def test_auto_uses_no_gpu_without_enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = chain(5, 80).plan(order=[0, 1, 2, 3, 4])
    monkeypatch.setattr(make, "_rates", lambda: SLOW_CPU)
    monkeypatch.setattr(make, "_no_gpu", lambda: "")
    monkeypatch.setattr(make, "_free_memory", lambda: 1 << 30)
    assert make.choose(plan.plan).backend == "gpu"
    monkeypatch.setattr(make, "_free_memory", lambda: 1 << 10)
    assert make.choose(plan.plan).backend == "cpu"
    assert "are free)" in plan.describe()


def test_auto_falls_back_to_the_cpu_if_the_gpu_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan = chain(5).plan(order=[0, 1, 2, 3, 4])
    monkeypatch.setattr(make, "choose", lambda plan: make.Choice("gpu", "for this test"))
    get = backends.get

    def full(*given: object, **more: object) -> backends.Backend:
        raise errors.TableTooLarge("the GPU is full")

    monkeypatch.setattr("jtgpu.backends.make.get", lambda name: full if name == "gpu" else get(name))
    with plan.compile(dtype="float32") as tree:
        assert tree.backend == "cpu"
        assert tree.log_evidence() == pytest.approx(0.0, abs=1e-12)
    assert "the GPU is full" in caplog.text
    with pytest.raises(errors.TableTooLarge):
        plan.compile("gpu")


def test_measured_rates_are_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path / "new"))
    path = make._file("a GPU")
    assert make._load(path) is None
    make._save(path, SLOW_CPU)
    assert make._load(path) == SLOW_CPU
    assert make._file("another GPU") != path
    for text in ("{", "{}", '{"cpu": [1, 2, 3], "gpu": [1, 2, NaN]}', '{"cpu": [1, 2, 3], "gpu": [1, 2]}'):
        path.write_text(text)
        assert make._load(path) is None
    make._save(tmp_path / "new" / "no" / ("x" * 300), SLOW_CPU)  # no error


def test_rates_are_measured() -> None:
    rates = make.measure("cpu")
    assert rates.call > 0
    assert rates.step >= 0
    assert rates.operation > 0


def test_backends_give_the_same_bits_twice() -> None:
    net = chain(40, 4)
    for name in HERE:
        plan = net.plan(order="min-fill", cache=False)
        first, second = (plan.compile(name).posteriors({"x7": 2}) for _ in range(2))
        for v in first:
            np.testing.assert_array_equal(np.asarray(first[v]), np.asarray(second[v]))


def test_a_query_changes_nothing() -> None:
    net = chain(10, 3)
    plan = net.plan(order="min-fill", cache=False)
    factors = [f.table.copy() for f in compiler.model_factors(net)]
    for name in HERE:
        backend = backends.get(name)(plan.plan, [f.table for f in compiler.model_factors(net)])
        before = backend.run_case(Evidence.none(10)).posterior
        case = Evidence(np.array([0, -1, 2, -1, 1, -1, -1, -1, -1, 0], np.int32), {3: np.array([0.1, 0.2, 0.7])})
        backend.run_case(case)
        np.testing.assert_array_equal(before, backend.run_case(Evidence.none(10)).posterior)
    for a, f in zip(factors, net.factors, strict=True):
        np.testing.assert_array_equal(a, f.table)


def test_an_unknown_option_names_the_closest_one() -> None:
    plan = chain(3).plan()
    with pytest.raises(TypeError, match="the backend 'cpu' has no option 'thread'; did you mean 'threads'"):
        plan.compile("cpu", thread=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="did you mean 'replan'"):
        plan.compile("reference", repaln=False)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"plan\(\) has no argument 'timelimit'; did you mean 'time_limit'"):
        chain(3).plan(timelimit=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="did you mean 'max_table'"):
        chain(3).compile("cpu", maxtable=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"it belongs to compile: net.compile\(threads=...\)"):
        chain(3).plan(threads=1)  # type: ignore[call-arg]


def test_options_of_backends_are_listed() -> None:
    def keywords(function: Any) -> set[str]:
        return set(inspect.signature(function).parameters) - {"self", "plan", "factors", "options"}

    assert set(OPTIONS["cpu"]) == keywords(Cpu.__init__) - {"maximal"}  # of most probable sequences, not of users
    assert set(OPTIONS["gpu"]) == keywords(Gpu.__init__)
    assert set(OPTIONS["indexed"]) == keywords(Indexed.__init__) | {f.name for f in dataclasses.fields(Rules)}
    assert set(OPTIONS) == set(backends.BACKENDS)
