"""Contractions state by state in shared memory: against the definition, on networks small enough for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import jtgpu
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as resident
from jtgpu.backends.gpu.single.configs import Way
from jtgpu.backends.gpu.single.levels.engine import CaseEngine, Engine, Memory
from jtgpu.backends.gpu.single.levels.schedule import make_schedule
from jtgpu.backends.gpu.single.select import Maker
from jtgpu.backends.gpu.single.specialised import slab_choice, slab_code, slab_layout, slabs
from jtgpu.device.context import Device
from jtgpu.errors import ImpossibleEvidence, TableTooLarge
from jtgpu.plans.plan import Plan
from tests.on_gpu.conftest import ROOT, nets_folder
from tests.on_gpu.test_resident import TOLERANCE, hold_to_definition, tables


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slabs in small networks too, with few blocks, which have several slices then."""
    for name in ("HEAVY_BYTES", "LEAST_BYTES"):
        monkeypatch.setattr(slabs, name, 0)
    monkeypatch.setattr(slabs, "FEWEST", 4)
    monkeypatch.setattr(slab_code, "SMS", 1)
    monkeypatch.setattr(slab_layout, "MANY_RUNS", 2)


@pytest.fixture(params=[False, True])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether all contractions of two tables that can be are done in blocks for the tensor cores."""
    if request.param:
        for name, value in (("LEAST_SIDE", 1), ("LEAST_SUM", 1), ("BLOCK_FIXED", -(10**9))):
            monkeypatch.setattr(slab_choice, name, value)
    slab_choice.quickest.cache_clear()
    yield request.param
    slab_choice.quickest.cache_clear()


def made(plan: Plan, factors: list[np.ndarray], gpu: Device) -> tuple[Engine, list[CaseEngine]]:
    """An engine with a slab, and the ones that it has asked."""
    schedule = make_schedule(plan, codes=True, slabs=True)
    assert schedule.slab is not None
    asked: list[CaseEngine] = []

    def second() -> CaseEngine:
        asked.append(Engine(plan, factors, make_schedule(plan), gpu))
        return asked[-1]

    return Engine(plan, factors, schedule, gpu, second), asked


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("name", ["alarm", "hailfinder", "win95pts", "insurance"])
@pytest.mark.parametrize("most", [0, 1])
def test_networks(gpu: Device, name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums that a block's warps share, and sums that a thread makes."""
    monkeypatch.setattr(slab_layout, "MANY_RUNS", (2, 1000)[most])
    model = jtgpu.read(ROOT / "nets" / f"{name}.net")
    plan = model.plan(order="min-fill", max_table=None).plan
    engine, _ = made(plan, tables(model), gpu)
    hold_to_definition(plan, tables(model), engine, 4)
    case = Evidence.none(plan.n_variables)
    assert len({engine.run(case).posterior.tobytes() for _ in range(10)}) == 1
    engine.close()


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("seed", range(6))
def test_made_networks(gpu: Device, seed: int, blocks: bool) -> None:
    """Many parents, zeros, variables of one state."""
    rng = np.random.default_rng(seed)
    n = 14
    cards = rng.integers(1, 6 if blocks else 5, n).tolist()
    cards[0] = 4
    states = {f"v{i}": [str(k) for k in range(cards[i])] for i in range(n)}
    parents, cpts = {}, {}
    for i in range(n):
        above = sorted({0, *rng.choice(i, min(i, 3), replace=False).tolist()}) if i else []
        parents[f"v{i}"] = [f"v{u}" for u in above]
        table = rng.random((*(cards[u] for u in above), cards[i]))
        if rng.random() < 0.5:
            table[rng.random(table.shape) < 0.3] = 0.0
            table[..., 0] += 0.1
        cpts[f"v{i}"] = table / table.sum(axis=-1, keepdims=True)
    net = jtgpu.BayesianNetwork(states, parents, cpts)
    plan = net.plan(order="min-fill", max_table=None).plan
    engine, _ = made(plan, tables(net), gpu)
    assert engine.schedule.slab is not None
    assert "slab_blocks<Shape" in engine.schedule.slab.source or not blocks
    hold_to_definition(plan, tables(net), engine, 6)
    engine.close()


@pytest.mark.usefixtures("everywhere")
def test_what_is_too_small_is_asked_again(gpu: Device) -> None:
    """Numbers that lose digits within a slab, and P(e) = 0."""
    n, rare = 24, 1e-25
    names = [f"v{i}" for i in range(n)]
    step = np.array([[1 - rare, rare], [rare, 1 - rare]])
    states = {"c": list("abcd"), **{v: ["0", "1"] for v in names}}
    parents = {v: ["c", names[i - 1]] if i else ["c"] for i, v in enumerate(names)}
    cpts = {v: np.stack([step] * 4) if i else np.full((4, 2), 0.5) for i, v in enumerate(names)}
    net = jtgpu.BayesianNetwork(states, parents, {"c": np.full(4, 0.25), **cpts})
    plan = net.plan(order="min-fill", max_table=None).plan
    engine, asked = made(plan, tables(net), gpu)
    definition = reference.prepare(plan, tables(net))
    nothing = np.full(n + 1, -1)
    turns = np.append(-1, np.arange(n) % 2)
    for state, seconds in ((nothing, 0), (turns, 1), (np.append(2, np.ones(n)), 1), (nothing, 1)):
        case = Evidence(state.astype(np.int32))
        got, expected = engine.run(case), definition.run(case)
        np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=TOLERANCE)
        assert got.log_evidence == pytest.approx(expected.log_evidence, rel=1e-12, abs=1e-12)
        assert len(asked) == seconds
    weights = {1: np.array([1.0, 0.0])}
    with pytest.raises(ImpossibleEvidence):
        engine.run(Evidence(np.append([-1, 1], np.full(n - 1, -1)).astype(np.int32), weights))
    engine.close()


@pytest.mark.usefixtures("everywhere")
def test_what_is_lost_and_raised_again_is_noticed(gpu: Device) -> None:
    """Pairs of tables that leave 2^-210 of each other, 2^-1050 in all, then tables of up to 2^24: 2^-570 in the end."""
    n_small, n_large = 5, 20
    rare, most = 2.0**-210, 2.0**24
    names = [f"v{i}" for i in range(n_small + n_large)]
    states = {"c": list("abcd"), **{v: ["0", "1"] for v in names}}
    rng = np.random.default_rng(3)
    factors: list[tuple[tuple[str, ...], np.ndarray]] = []
    for i, v in enumerate(names):
        scope = ("c", names[i - 1], v) if i else ("c", v)
        table = rng.random((4, 2, 2) if i else (4, 2)) / 2 + 0.5
        if i < n_small:
            factors += [(scope, table * [1, rare]), (("c", v), np.array([rare, 1]) * (rng.random((4, 1)) / 2 + 0.5))]
        else:
            factors.append((scope, table * most))
    net = jtgpu.MarkovNetwork(states, factors)
    plan = net.plan(order="min-fill", max_table=None).plan
    engine, asked = made(plan, tables(net), gpu)
    hold_to_definition(plan, tables(net), engine, 1)
    assert len(asked) == 1
    engine.close()


@pytest.mark.usefixtures("everywhere")
def test_taken_where_it_pays_and_fits(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time model; given up where the card has no room for the blocks' sums. Answers come all the same."""
    model = jtgpu.read(ROOT / "nets" / "hailfinder.net")
    plan = model.plan(order="min-fill", max_table=None).plan
    monkeypatch.setattr(Maker, "_listed", lambda *_: None)  # what is a list is in no slab
    slab = make_schedule(plan, codes=True, slabs=True).slab
    assert slab is not None
    sums, empty = 8 * slab.n_sums, Memory.empty

    def full(memory: Memory, n_bytes: int) -> int:
        if n_bytes == sums:
            raise TableTooLarge("no room for sums")
        return empty(memory, n_bytes)

    for pays, room in ((True, True), (False, True), (True, False)):
        monkeypatch.setattr(slab_code, "SUMS_NS", -1e9 if pays else 1e9)
        with monkeypatch.context() as patch:
            if not room:
                patch.setattr(Memory, "empty", full)
            engine = Maker(plan, tables(model), gpu).made(Way("levels"))
        assert isinstance(engine, Engine)
        assert (engine.schedule.slab is not None) == (pays and room)
        hold_to_definition(plan, tables(model), engine, 2)
        engine.close()


def test_the_network_of_the_largest_tables(gpu: Device) -> None:
    folder = nets_folder()
    if folder is None:
        pytest.skip("there is no folder of shared networks")
    found = [p for p in folder.rglob("*") if p.name.lower() in ("munin1.net", "munin1.net.gz")]
    orders = [p for p in folder.rglob("*") if p.name.lower() == "munin1.num"]
    if not found or not orders:
        pytest.skip("Munin1 and its order are not among the shared networks")
    model = jtgpu.read(found[0])
    plan = model.plan(order=orders[0], max_table=None, memory_limit=None).plan
    backend = resident.prepare(plan, tables(model), engine="levels")
    assert isinstance(backend.engine, Engine)
    assert backend.engine.schedule.slab is not None
    hold_to_definition(plan, tables(model), backend, 2)
    backend.close()
