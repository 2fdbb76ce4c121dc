"""Tables of cases on a GPU: every row against the reference, weights, targets, rows of probability zero, chunks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence, TableAnswer
from jtgpu.backends.gpu import backend as gpu_backend
from jtgpu.backends.gpu.batch import engine, levels, tiling
from jtgpu.backends.table import Table
from jtgpu.device.context import Device
from jtgpu.errors import EvidenceError, ImpossibleEvidence, JtgpuError, UnknownState
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans import compiler
from jtgpu.plans.plan import Plan
from tests.on_gpu.conftest import ROOT
from tests.plans.test_plan import chain

TOLERANCE = 1e-10
NAMES = ["asia.net", "child.net", "alarm.net", "win95pts.net", "hailfinder.net", "hepar2.net", "andes.net", "water.net"]
NAMES += ["pigs.net"]


def tables(model: DiscreteModel) -> list[np.ndarray]:
    return [f.table for f in compiler.model_factors(model)]


def made(seed: int) -> BayesianNetwork:
    """A network of a dozen variables of two to five states with zeros in its tables, some variables alone."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 16))
    cards = rng.integers(1, 6, n).tolist()
    states, parents, cpts = {}, {}, {}
    for i in range(n):
        above = sorted(rng.choice(i, min(i, int(rng.integers(0, 4))), replace=False).tolist())
        table = rng.dirichlet(np.ones(cards[i]), size=tuple(cards[p] for p in above))
        table = np.where(rng.random(table.shape) < 0.2, 0.0, table)
        table[..., 0] += 1.0 - table.sum(axis=-1)
        states[f"v{i}"], parents[f"v{i}"] = [f"s{k}" for k in range(cards[i])], [f"v{p}" for p in above]
        cpts[f"v{i}"] = table
    return BayesianNetwork(states, parents, cpts)


def some_cases(model: DiscreteModel, n: int, seed: int, share: float = 0.1) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """States, observed here and there, and weights of some variables in some rows."""
    rng = np.random.default_rng(seed)
    card = model.cardinality
    states = np.where(rng.random((n, len(model))) < share, rng.integers(0, card, (n, len(model))), -1)
    soft = {}
    for v in rng.choice(len(model), max(1, len(model) // 8), replace=False).tolist():
        weights = rng.random((n, int(card[v]))) * 10.0 ** rng.integers(-200, 200, (n, 1))
        weights[rng.random(n) < 0.5] = 1.0
        soft[v] = np.where(rng.random(weights.shape) < 0.05, 0.0, weights)
    return states.astype(np.int32), soft


def hold_rows(
    plan: Plan, factors: list[np.ndarray], states: np.ndarray, soft: dict[int, np.ndarray], got: TableAnswer,
    rows: range | None = None,
) -> int:  # fmt: skip
    """Compare with the reference; the number of rows of probability above zero."""
    expected_by = reference.prepare(plan, factors)
    possible = 0
    for i in rows or range(len(states)):
        try:
            expected = expected_by.run_case(Evidence(states[i], {v: w[i] for v, w in soft.items()}))
        except ImpossibleEvidence:
            assert got.impossible[i]
            assert got.log_evidence[i] == -math.inf
            assert not got.posterior[i].any()
            continue
        possible += 1
        assert not got.impossible[i]
        np.testing.assert_allclose(got.posterior[i], expected.posterior, rtol=0, atol=TOLERANCE)
        assert got.log_evidence[i] == pytest.approx(expected.log_evidence, abs=1e-9, rel=1e-12)
    return possible


@pytest.mark.parametrize("seed", range(12))
def test_random_networks(gpu: Device, seed: int) -> None:
    model = made(seed)
    plan = model.plan(order="min-fill").plan
    backend = gpu_backend.prepare(plan, tables(model))
    for n in (1, 45):
        states, soft = some_cases(model, n, seed, 0.25)
        hold_rows(plan, tables(model), states, {}, backend.run(Table.of(states)))
        hold_rows(plan, tables(model), states, soft, backend.run(Table.of(states, soft)))
    backend.close()


@pytest.mark.parametrize(
    ("cards", "shape"), [((19, 19, 19, 19), 10), ((37, 6, 7, 6), 11), ((37, 4, 9, 4), 12), ((37, 6, 7, 6), 13)]
)
@pytest.mark.parametrize("real", ["float64", "float32"])
def test_products(gpu: Device, cards: tuple[int, ...], shape: int, real: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide contractions by blocks of warps, several groups of cases one after another; the same bits every run."""
    rng = np.random.default_rng(3)
    card = dict(zip("abcd", cards, strict=True))
    factors = [(list(scope), rng.random([card[v] for v in scope])) for scope in ("ab", "bc", "cd", "da")]
    model = jtgpu.MarkovNetwork({v: [str(k) for k in range(n)] for v, n in card.items()}, factors)
    plan = model.plan(order=[1, 3, 0, 2]).plan
    monkeypatch.setattr(engine, "GENERATED_FLOPS", -1)
    monkeypatch.setattr(tiling, "PRODUCT_WORK", 0.0)
    monkeypatch.setattr(tiling, "STEP_WORK", 0.0)
    monkeypatch.setattr(tiling, "PRODUCTS", (shape,))
    monkeypatch.setattr(levels, "PRODUCTS", (shape,))
    monkeypatch.setattr(levels, "MANY", 1)
    backend = gpu_backend.prepare(plan, tables(model), dtype=real)
    states, _ = some_cases(model, 32 * 21, 5, 0.2)
    found, again = backend.run(Table.of(states)), backend.run(Table.of(states))
    assert backend.tables.kind == "tables"
    np.testing.assert_array_equal(found.posterior, again.posterior)
    expected_by = reference.prepare(plan, tables(model))
    for i in range(0, len(states), 37):
        expected = expected_by.run_case(Evidence(states[i]))
        tolerance = TOLERANCE if real == "float64" else 2e-5
        np.testing.assert_allclose(found.posterior[i], expected.posterior, rtol=0, atol=tolerance)
    backend.close()


@pytest.mark.parametrize("name", NAMES)
def test_networks(gpu: Device, name: str) -> None:
    model = jtgpu.read(ROOT / "nets" / name)
    plan = model.plan(order="min-fill", max_table=None).plan
    backend = gpu_backend.prepare(plan, tables(model))
    n = 40 if plan.cost().entries < 100_000 else 6
    states, soft = some_cases(model, n, 5, 0.05)
    states[0] = -1
    plain, weighed = backend.run(Table.of(states)), backend.run(Table.of(states, soft))
    assert hold_rows(plan, tables(model), states, {}, plain)
    hold_rows(plan, tables(model), states, soft, weighed)
    again = backend.run(Table.of(states))
    np.testing.assert_array_equal(again.posterior, plain.posterior)  # bit-identical in every run
    np.testing.assert_array_equal(again.log_evidence, plain.log_evidence)
    last = len(model) - 1
    ptr = plan.posterior_ptr
    some = backend.run(Table.of(states, soft, [last, 0, last]))
    parts = [weighed.posterior[:, ptr[v] : ptr[v + 1]] for v in (last, 0, last)]
    np.testing.assert_array_equal(some.posterior, np.hstack(parts))
    np.testing.assert_array_equal(some.log_evidence, weighed.log_evidence)
    nothing = backend.run(Table.of(states, None, []))
    assert nothing.posterior.shape == (n, 0)
    np.testing.assert_array_equal(nothing.log_evidence, plain.log_evidence)
    backend.close()


def test_chunks_and_equal_rows(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    from jtgpu.backends.gpu.batch import buffers, engine

    monkeypatch.setattr(buffers, "LARGE", 64)
    model = jtgpu.read(ROOT / "nets" / "alarm.net")
    plan = model.plan(order="min-fill").plan
    backend = gpu_backend.prepare(plan, tables(model))
    states, soft = some_cases(model, 1003, 9)
    for given in ({}, soft):
        whole = backend.run(Table.of(states, given))
        hold_rows(plan, tables(model), states, given, whole, range(0, 1003, 51))
        for n in (1, 31, 33, 64, 65, 400, 1003):  # fewer cases, more cases: memory is reused or allocated again
            part = backend.run(Table.of(states[:n], {v: w[:n] for v, w in given.items()}))
            np.testing.assert_array_equal(part.posterior, whole.posterior[:n])
    pick = np.random.default_rng(1).integers(0, 20, 5000)
    few = backend.run(Table.of(states[:20]))
    monkeypatch.setattr(engine, "SEARCH_FLOPS", 1)  # else a search for equal rows does not pay for so few operations
    merging = gpu_backend.prepare(plan, tables(model))
    for made in (backend, merging):
        np.testing.assert_array_equal(made.run(Table.of(states[pick])).posterior, few.posterior[pick])
        columns = made.run(Table.by_columns(range(len(model)), states[pick].T.astype(np.int8), len(model)))
        np.testing.assert_array_equal(columns.posterior, few.posterior[pick].T)
        np.testing.assert_array_equal(columns.log_evidence, few.log_evidence[pick])
    merging.close()
    assert backend.run(Table.of(states[:0])).posterior.shape == (0, int(plan.posterior_ptr[-1]))
    backend.close()
    with pytest.raises(JtgpuError, match="closed"):
        backend.run(Table.of(states))


@pytest.mark.parametrize("name", ["alarm.net", "andes.net"])
def test_columns(gpu: Device, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evidence and answers by columns: the bits of the answers by rows, in several chunks."""
    from jtgpu.backends.gpu.batch import buffers

    monkeypatch.setattr(buffers, "LARGE", 64)
    monkeypatch.setattr(buffers, "PIPELINE", 7)
    model = jtgpu.read(ROOT / "nets" / name)
    plan = model.plan(order="min-fill").plan
    backend = gpu_backend.prepare(plan, tables(model))
    rng = np.random.default_rng(6)
    seen = sorted(rng.choice(len(model), len(model) // 3, replace=False).tolist())
    states, _ = some_cases(model, 1003, 9, 0.2)
    states[:, [v for v in range(len(model)) if v not in seen]] = -1
    for targets in (None, [3, 0], [5, 5], []):
        whole = backend.run(Table.of(states, None, targets))
        for n, kind in ((1003, np.int8), (500, np.int32), (33, np.int16), (1, np.int64), (0, np.int8)):
            found = backend.run(Table.by_columns(seen, states[:n, seen].T.astype(kind), len(model), targets))
            np.testing.assert_array_equal(found.posterior, whole.posterior[:n].T)
            np.testing.assert_array_equal(found.log_evidence, whole.log_evidence[:n])
            np.testing.assert_array_equal(found.impossible, whole.impossible[:n])
    nothing = backend.run(Table.by_columns([], np.zeros((0, 40), np.int8), len(model)))
    np.testing.assert_array_equal(nothing.posterior.T, backend.run(Table.of(np.full((40, len(model)), -1))).posterior)
    assert backend.tables.device_us > 0
    backend.close()
    with pytest.raises(JtgpuError, match="closed"):
        backend.run(Table.by_columns([1], np.zeros((1, 3), np.int8), len(model)))


@pytest.mark.parametrize("name", ["andes.net", "water.net", "pigs.net"])
def test_float32(gpu: Device, name: str) -> None:
    """By rows and by columns; cases that float32 calls impossible are answered in float64."""
    model = jtgpu.read(ROOT / "nets" / name)
    plan = model.plan(order="min-fill", max_table=None).plan
    single = gpu_backend.prepare(plan, tables(model), dtype="float32")
    exact = gpu_backend.prepare(plan, tables(model))
    states, soft = some_cases(model, 300, 5, 0.1)
    states[0] = -1
    for given in ({}, soft):
        expected, got = exact.run(Table.of(states, given)), single.run(Table.of(states, given))
        np.testing.assert_array_equal(got.impossible, expected.impossible)
        np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=2e-3)
        np.testing.assert_allclose(got.log_evidence, expected.log_evidence, rtol=1e-5, atol=2e-3)
    plain = single.run(Table.of(states))
    columns = single.run(Table.by_columns(range(len(model)), states.T.astype(np.int8), len(model)))
    np.testing.assert_array_equal(columns.posterior.T, plain.posterior)
    np.testing.assert_array_equal(columns.log_evidence, plain.log_evidence)
    single.close()
    exact.close()


def test_frames(gpu: Device) -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("narwhals", reason="narwhals is not installed")
    model = jtgpu.read(ROOT / "nets" / "alarm.net")
    with model.compile(backend="gpu") as tree, model.compile(backend="cpu") as judge:
        states = judge.sample(3000, seed=1).states[:, :9]
        frame = pd.DataFrame({v: pd.Categorical.from_codes(states[:, j], list(model.states(v)))
                              for j, v in enumerate(model.variables[:9])})  # fmt: skip
        frame[frame.columns[2]] = frame[frame.columns[2]].where(np.arange(3000) % 7 > 0)
        for targets in (None, model.variables[20:23]):
            found = tree.predict_proba(frame, targets, log_evidence=True)
            expected = judge.predict_proba(frame, targets, log_evidence=True)
            pd.testing.assert_frame_equal(found, expected, rtol=0, atol=TOLERANCE)
        names = tree.predict(frame, model.variables[20:23])
        pd.testing.assert_frame_equal(names, judge.predict(frame, model.variables[20:23]))


def test_a_chain_does_not_underflow(gpu: Device) -> None:
    n = 1500
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    backend = gpu_backend.prepare(plan, tables(net))
    states = np.stack([np.arange(n) % 3, np.zeros(n, int), np.full(n, -1)]).astype(np.int32)
    got = backend.run(Table.of(states))
    assert got.log_evidence[0] == pytest.approx(math.log(1 / 3) + (n - 1) * math.log(0.1), rel=1e-12)
    assert got.log_evidence[2] == pytest.approx(0.0, abs=1e-11)
    backend.close()


def test_small_weights_do_not_underflow(gpu: Device) -> None:
    """Weights of 1e-250 and 1 on ten variables: far outside the range of a double."""
    model = jtgpu.read(ROOT / "nets" / "alarm.net")
    plan = model.plan(order="min-fill").plan
    backend = gpu_backend.prepare(plan, tables(model))
    states = np.full((40, len(model)), -1, np.int32)
    soft = {}
    for v in range(10):
        soft[v] = np.full((40, int(plan.cardinality[v])), 1e-250)
        soft[v][:, 0] = 1.0
    hold_rows(plan, tables(model), states, soft, backend.run(Table.of(states, soft)), range(2))
    backend.close()


def test_public_methods(gpu: Device) -> None:
    model = jtgpu.read(ROOT / "nets" / "asia.net")
    states, soft = some_cases(model, 200, 2, 0.3)
    weights: dict[Any, np.ndarray] = {model.variables[v]: w for v, w in soft.items()}
    with model.compile(backend="gpu") as tree, model.compile(backend="cpu") as judge:
        choices: tuple[list[str] | None, ...] = (None, ["lung", "asia"])
        for targets in choices:
            got = tree.posteriors_batch(states, likelihood=weights, targets=targets, on_error="flag")
            expected = judge.posteriors_batch(states, likelihood=weights, targets=targets, on_error="flag")
            np.testing.assert_allclose(got.flat, expected.flat, rtol=0, atol=TOLERANCE)
            np.testing.assert_array_equal(got.impossible, expected.impossible)
            np.testing.assert_allclose(got.log_evidence, expected.log_evidence, rtol=1e-11, atol=1e-10)
            assert got.impossible.any()
            assert list(got) == (targets or list(model.variables))
        with pytest.raises(ImpossibleEvidence, match="row"):
            tree.posteriors_batch(states, likelihood=weights)
        session = tree.session()
        session.observe("xray", "yes")
        expected_lung = judge.posterior("lung", evidence={"xray": "yes"})
        np.testing.assert_allclose(np.asarray(session.posterior("lung")), np.asarray(expected_lung), atol=TOLERANCE)
        session.retract("xray")
        np.testing.assert_allclose(np.asarray(session.posterior("lung")), np.asarray(judge.posterior("lung")))
        session.close()


def test_tables_that_are_refused(gpu: Device) -> None:
    """States are checked once, by the public methods; the engine checks the shape alone."""
    model = jtgpu.read(ROOT / "nets" / "asia.net")
    with model.compile(backend="gpu") as tree:
        wrong: list[Any] = [np.zeros((2, 3), np.int32), np.full((2, 8), 0.5), np.full((2, 8), 2)]
        for states in wrong:
            with pytest.raises(EvidenceError if states.shape == (2, 3) or states.dtype == float else UnknownState):
                tree.posteriors_batch(states)
        with pytest.raises(EvidenceError, match="likelihood"):
            tree.posteriors_batch(np.full((2, 8), -1), likelihood={0: np.ones((2, 3))})
    backend = gpu_backend.prepare(model.plan(order="min-fill").plan, tables(model))
    with pytest.raises(EvidenceError, match="shape"):
        backend.run(Table.of(np.zeros((2, 3), np.int32)))
    with pytest.raises(EvidenceError, match="shape"):
        backend.run(Table.by_columns([0, 1], np.zeros((3, 2), np.int8), len(model)))
    backend.close()


@pytest.mark.alone
def test_memory_comes_back(gpu: Device) -> None:
    model = jtgpu.read(ROOT / "nets" / "hailfinder.net")
    plan = model.plan(order="min-fill").plan
    states, soft = some_cases(model, 3000, 4)
    free = []
    for _ in range(6):
        backend = gpu_backend.prepare(plan, tables(model))
        backend.run(Table.of(states))
        backend.run(Table.of(states, soft, [0, 1]))
        backend.close()
        with gpu.active():
            free.append(gpu.free_memory())
    assert free[0] - free[-1] < 16 << 20


@pytest.mark.parametrize("name", ["Water.net", "Mildew.net"])
def test_benchmark_networks(gpu: Device, nets: Path, name: str) -> None:
    model = jtgpu.read(nets / name)
    plan = model.plan(order=nets / name.replace(".net", ".num"), max_table=None).plan
    backend = gpu_backend.prepare(plan, tables(model))
    states, soft = some_cases(model, 6, 3, 0.05)
    states[0] = -1
    assert hold_rows(plan, tables(model), states, {}, backend.run(Table.of(states)))
    hold_rows(plan, tables(model), states, soft, backend.run(Table.of(states, soft)))
    backend.close()
