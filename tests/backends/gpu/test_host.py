"""Cases so improbable that a GPU, emulated or (tests/on_gpu) real, loses numbers: against sums of logarithms.

Without the step that notices them each of these tests fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import host
from jtgpu.backends.gpu.backend import Gpu
from jtgpu.backends.gpu.batch.table import TableJob, TargetColumns
from jtgpu.backends.gpu.counts import generated
from jtgpu.backends.gpu.counts import warps as count_warps
from jtgpu.backends.gpu.host import Host
from jtgpu.backends.make import make
from jtgpu.backends.table import Table
from jtgpu.device.context import Device
from jtgpu.errors import ImpossibleEvidence, TableTooLarge
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from tests.backends.gpu.engines import ON_GPU, tables
from tests.backends.gpu.test_counts import planned, two_at_most
from tests.backends.gpu.test_on_device import Exchanged, on_device
from tests.backends.gpu.test_warp_tables import always
from tests.support import random_nets
from tests.support.bundled import bundled
from tests.support.emulated.install import needs_compiler
from tests.support.examples import examples, slow

pytestmark = needs_compiler

FIRSTS = [151, 149, 150, 300, 0, 140, 300]  # findings of the first state; the fourth and fifth are ordinary


def naive_bayes(n: int = 300, error: float = 1e-4) -> BayesianNetwork:
    """A class "c" with n findings, each wrong with a small probability."""
    names, cpt = [f"x{i}" for i in range(n)], [[1 - error, error], [error, 1 - error]]
    states, parents = {"c": ["n", "y"], **{x: ["A", "B"] for x in names}}, {x: ["c"] for x in names}
    return BayesianNetwork(states, parents, {"c": [0.5, 0.5], **dict.fromkeys(names, cpt)})


def rows_of(n: int, firsts: list[int]) -> np.ndarray:
    return np.array([[-1, *(int(i >= k) for i in range(n))] for k in firsts], np.int32)


def expected(n: int, error: float, n_first: int) -> tuple[list[float], float]:
    """The posterior of the class, and ln P(e)."""
    logs = [math.log(0.5) + k * math.log1p(-error) + (n - k) * math.log(error) for k in (n_first, n - n_first)]
    log_evidence = max(logs) + math.log(math.fsum(math.exp(x - max(logs)) for x in logs))
    return [math.exp(x - log_evidence) for x in logs], log_evidence


def assert_right(posterior: Any, log_evidence: Any, dtype: str = "float64") -> None:
    """Hold answers of `FIRSTS`, the class first, to sums of logarithms."""
    for row, k in enumerate(FIRSTS):
        right, log_right = expected(300, 1e-4, k)
        np.testing.assert_allclose(posterior[row], right, rtol=1e-11, atol=1e-12)
        by_float32 = dtype == "float32" and k in (0, 300)
        assert log_evidence[row] == pytest.approx(log_right, rel=1e-5 if by_float32 else 1e-12)


@contextmanager
def backend_of(net: Any, **options: Any) -> Iterator[Gpu]:
    with closing(make("gpu", *planned(net), replan=False, **options)) as made:
        yield made  # type: ignore[misc]


@pytest.mark.parametrize("options", [{"engine": "dataflow"}, {"engine": "levels"}], ids=str)
@pytest.mark.parametrize(("n", "error", "n_first"), [(300, 1e-4, 151), (150, 1e-6, 75), (110, 1e-6, 55)])
def test_single_cases(gpu: Device, options: dict[str, Any], n: int, error: float, n_first: int) -> None:
    with backend_of(naive_bayes(n, error), **options) as backend:
        for k in (n_first, n, n_first):
            found, (right, log_right) = backend.run_case(Evidence(rows_of(n, [k])[0])), expected(n, error, k)
            np.testing.assert_allclose(found.posterior[:2], right, atol=1e-12)
            assert found.log_evidence == pytest.approx(log_right, rel=1e-12, abs=1e-11)


@pytest.mark.slow
def test_probabilities_of_two_to_the_minus_ten_thousand(gpu: Device) -> None:
    n, error = 1000, 1e-6
    with backend_of(naive_bayes(n, error)) as backend:
        found, (right, log_right) = backend.run_case(Evidence(rows_of(n, [501])[0])), expected(n, error, 501)
        assert log_right / math.log(2) < -9900
        np.testing.assert_allclose(found.posterior[:2], right, atol=1e-12)
        assert found.log_evidence == pytest.approx(log_right, rel=1e-12)


@pytest.mark.slow
def test_the_kernels_are_wrong_without_this(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "least", lambda *_, **__: -math.inf)
    with backend_of(naive_bayes()) as backend:
        found = backend.run(Table.of(rows_of(300, FIRSTS))).posterior
        assert found[0, 0] == 0.0
        assert backend.run(Table.counts(rows_of(300, FIRSTS[:1]))).families[0][0] == 0.0


@pytest.mark.parametrize(("dtype", "warps"), [("float64", False), *slow(("float64", True), ("float32", False))])
def test_tables_by_rows_and_columns(gpu: Device, dtype: str, warps: bool) -> None:
    rows = rows_of(300, FIRSTS)
    soft = {5: np.array([[1.0, 1.0]] * 5 + [[3e300, 1e-290], [1e-300, 1e-300]])}
    with always() if warps else pytest.MonkeyPatch.context(), backend_of(naive_bayes(), dtype=dtype) as backend:
        for targets in (None, [0], [3, 0, 0]):
            found, at = backend.run(Table.of(rows, None, targets)), 0 if targets != [3, 0, 0] else 4
            assert_right(found.posterior[:, at : at + 2], found.log_evidence, dtype)
        columns = backend.run(Table.by_columns(range(1, 301), rows[:, 1:].T.astype(np.int8), 301, [0]))
        assert_right(columns.posterior.T, columns.log_evidence, dtype)
        weighed = backend.run(Table.of(rows, soft, [0]))
        definition = reference.prepare(*planned(naive_bayes()))
        for i in range(len(FIRSTS)):
            right = definition.run_case(Evidence(rows[i], {5: soft[5][i]}))
            bound = 1e-12 if dtype == "float64" or FIRSTS[i] not in (0, 300) else 1e-5
            np.testing.assert_allclose(weighed.posterior[i], right.posterior[:2], atol=bound)
            assert weighed.log_evidence[i] == pytest.approx(right.log_evidence, rel=max(bound, 1e-12))


def test_answers_that_stay_on_the_device(gpu: Device) -> None:
    rows, net = rows_of(300, FIRSTS), naive_bayes()
    soft = np.array([[0.5, 0.25]] * 6 + [[1.0, 2.0**-900]])
    right = make("cpu", *planned(net)).run(Table.of(rows, {5: soft}))
    with backend_of(net) as backend, on_device(gpu, rows) as address:
        for states in (rows, Exchanged(address, rows)):
            found = backend.run(Table.on_device(states, None, [0]))
            assert_right(found.posterior.to_host(), found.log_evidence.to_host())
            found = backend.run(Table.on_device(states, {5: soft}, [3, 0]))
            np.testing.assert_allclose(found.posterior.to_host()[:, 2:], right.posterior[:, :2], atol=1e-12)
            np.testing.assert_allclose(found.log_evidence.to_host(), right.log_evidence, rtol=1e-12)
        ordinary = backend.run(Table.on_device(rows[3:5], None, [0]))  # nothing is left of the calls before
        np.testing.assert_allclose(ordinary.posterior.to_host(), [[1.0, 0.0], [0.0, 1.0]], atol=1e-12)


@pytest.mark.parametrize("kind", ["tables", *slow("warps", "lanes")])
def test_expected_counts(gpu: Device, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "GENERATED_FLOPS", 2_000_000 if kind == "lanes" else -1)
    monkeypatch.setattr(count_warps, "GAIN", 0.0 if kind == "warps" else math.inf)
    n, error = (60, 1e-12) if kind == "lanes" else (300, 1e-4)
    firsts = [n // 2 + 1, n // 2 - 1, n, 0, n // 2, n]
    rows, weights = rows_of(n, firsts), np.array([1.0, 2.0, -1.0, 0.5, 1.0, 3.0])
    soft = {1: np.array([[1.0, 1.0]] * 5 + [[1e300, 1e-300]])}
    net = naive_bayes(n, error)
    definition = make("cpu", *planned(net))
    with backend_of(net, single=False) as backend:
        for likelihood in (None, soft):
            right = definition.run(Table.counts(rows, weights, likelihood))
            held: Any = backend.hold(Table.counts(rows, weights, likelihood)).feed
            for _ in range(2):
                found = held.sums()
                for mine, theirs in zip(found.families, right.families, strict=True):
                    np.testing.assert_allclose(mine, theirs, atol=1e-11)
                np.testing.assert_allclose(held.log_evidence(), right.log_evidence, rtol=1e-12)
                assert found.log_likelihood == pytest.approx(float(weights @ right.log_evidence), rel=1e-12)
            assert kind in {kernels.kind for kernels in backend.counting.choice.made.values()}
            held.close()
        other = [np.full(f.shape, 0.5) for f in tables(net)]
        held = backend.hold(Table.counts(rows, weights)).feed
        backend.reload(other)
        definition.reload(other)
        right = definition.run(Table.counts(rows, weights))
        np.testing.assert_allclose(held.sums().families[0], right.families[0], atol=1e-11)
        held.close()


def test_several_devices(gpu: Device) -> None:
    rows = rows_of(300, FIRSTS)
    with backend_of(naive_bayes(), devices=two_at_most()) as backend:
        found = backend.run(Table.of(rows, None, [0]))
        assert_right(found.posterior, found.log_evidence)
        counts = backend.run(Table.counts(rows))
        right = np.sum([expected(300, 1e-4, k)[0] for k in FIRSTS], axis=0)
        np.testing.assert_allclose(counts.families[0], right, rtol=1e-11)


def tiny_numbers(rng: np.random.Generator, model: Any) -> list[np.ndarray]:
    """The tables of a network with entries of 1e-60 to 1e-300."""
    made = []
    for table in tables(model):
        small = rng.random(table.shape) < 0.3
        made.append(np.where(small & (table > 0), 10.0 ** rng.uniform(-300, -60, table.shape), table))
    return made


@examples(6, **ON_GPU)
@given(data=st.data())
def test_tiny_entries_agree_with_the_definition(gpu: Device, data: st.DataObject) -> None:
    """All engines, conditional tables and others, huge factors, possible and impossible rows."""
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    if not len(model):
        return
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    plan, factors = planned(model)[0], tiny_numbers(rng, model)
    if data.draw(st.booleans()):
        factors = [f / f.sum(axis=-1, keepdims=True) if f.ndim and (f.sum(axis=-1) > 0).all() else f for f in factors]
    elif data.draw(st.booleans()):
        factors = [f * 10.0 ** rng.integers(0, 200) for f in factors]
    card = model.cardinality
    states = np.where(rng.random((12, len(model))) < 0.6, rng.integers(0, card, (12, len(model))), -1).astype(np.int32)
    definition = reference.prepare(plan, factors)
    backends = [make("gpu", plan, factors, replan=False, **o) for o in ({}, {"engine": "levels"}, {"dtype": "float32"})]
    answers = [backend.run(Table.of(states)) for backend in backends]
    counts = backends[0].run(Table.counts(states))
    for i, row in enumerate(states):
        try:
            right = definition.run_case(Evidence(row))
        except ImpossibleEvidence:
            assert all(a.impossible[i] for a in answers)
            assert counts.impossible[i]
            for backend in backends:
                with pytest.raises(ImpossibleEvidence):
                    backend.run_case(Evidence(row))
            continue
        for k, (backend, answer) in enumerate(zip(backends, answers, strict=True)):
            single, bound = backend.run_case(Evidence(row)), 1e-12 if k < 2 else 1e-6
            for posterior, log_evidence in ((single.posterior, single.log_evidence),
                                            (answer.posterior[i], answer.log_evidence[i])):  # fmt: skip
                np.testing.assert_allclose(posterior, right.posterior, atol=bound)
                assert log_evidence == pytest.approx(right.log_evidence, rel=bound, abs=10 * bound)
        assert counts.log_evidence[i] == pytest.approx(right.log_evidence, rel=1e-12, abs=1e-11)
    expected_counts = definition.run(Table.counts(states))
    for mine, theirs in zip(counts.families, expected_counts.families, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-11)
    for backend in backends:
        backend.close()


@pytest.mark.parametrize("name", ["asia", "alarm", "child", "insurance", "win95pts"])
def test_ordinary_rows_stay_on_the_device(name: str) -> None:
    """The bound is far below the probability of rows in which everything is observed."""
    net = bundled(name)
    plan, factors = planned(net)
    of = Host(plan, factors)
    rows = net.compile("cpu").sample(50, seed=1).states
    log_evidence = make("cpu", plan, factors).run(Table.of(rows)).log_evidence
    assert of._upper == 0.0
    assert of.least() < -930
    assert of.least() >= of.least(exactly=True) - 60
    assert not len(of.lost(log_evidence))


def test_networks_without_conditional_tables() -> None:
    """A chain of potentials: the bound is that of a propagation, and ordinary rows are above it."""
    names = [f"v{i}" for i in range(60)]
    pair = np.array([[40.0, 10.0], [10.0, 40.0]])
    net = MarkovNetwork({v: ["0", "1"] for v in names}, [((a, b), pair) for a, b in pairwise(names)])
    plan, factors = planned(net)
    of = Host(plan, factors)
    assert of._upper > 60
    assert of.is_right(59 * math.log2(10))
    rows = np.random.default_rng(1).integers(0, 2, (20, 60)).astype(np.int32)
    assert not len(of.lost(make("cpu", plan, factors).run(Table.of(rows)).log_evidence))
    assert len(of.lost(np.array([-3000.0, math.nan, 0.0]))) == 2
    huge = Host(plan, [1e200 * f for f in factors])  # divided by what they have in common, they are the same
    more = 59 * 200 * math.log2(10)
    assert huge.least(exactly=True) == pytest.approx(of.least(exactly=True) + more, abs=1.0)


def test_rows_of_proportional_weights_have_their_own_probability(gpu: Device) -> None:
    net = bundled("asia")
    rows, soft = np.full((40, len(net)), -1, np.int32), {2: np.tile([[0.5, 0.25], [1.0, 0.5]], (20, 1))}
    with backend_of(net) as backend:
        found = backend.run(Table.of(rows, soft))
    np.testing.assert_allclose(np.diff(found.log_evidence)[::2], math.log(2.0), rtol=1e-12)
    plan = backend.maker.plan
    table = TableJob.read(Table.of(rows, soft), TargetColumns.of(plan, None), plan.cardinality, 0.0)
    assert table.n == 2


def test_an_error_says_that_the_hosts_memory_is_too_small(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "LARGE", 0)
    monkeypatch.setattr(host, "free_memory", lambda: 1000)
    with backend_of(naive_bayes()) as backend:
        with pytest.raises(TableTooLarge, match=r"4 cases are so improbable .* 1000 B are free") as raised:
            backend.run(Table.of(rows_of(300, FIRSTS)))
        assert raised.value.limit == 1000 < raised.value.needed
        np.testing.assert_allclose(backend.run(Table.of(rows_of(300, [300]))).posterior[0, 0], 1.0)
