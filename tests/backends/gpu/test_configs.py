"""What answers single cases on a GPU: measured, kept, and taken from there; engines and their times are played."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import jtgpu
from jtgpu.backends.gpu.single import configs as ways
from jtgpu.backends.gpu.single import select as single
from jtgpu.backends.gpu.single.configs import PRICES, Tried, Way, best_way, keep_way, kept_way
from jtgpu.backends.gpu.single.dataflow import schedule as flow
from jtgpu.backends.gpu.single.dataflow.schedule import FlowWay
from jtgpu.cli.app import app
from jtgpu.errors import BackendUnavailable, JtgpuError
from jtgpu.plans import compiler

ROOT = Path(__file__).parents[1]
ASIA = str(ROOT / "nets" / "asia.net")
CARD = "NVIDIA H100 80GB HBM3"


class Played:
    """An engine that takes so long."""

    open = 0

    def __init__(self, way: Way, microseconds: float):
        self.way, self.kind, self._microseconds = way, way.engine, microseconds
        Played.open += 1

    def measure(self, n: int, cases: Any) -> list[float]:
        return [self._microseconds] * n

    def close(self) -> None:
        Played.open -= 1


def taking(way: Way) -> float:
    """Where eight warps and longer batches gain, and together more; blocks only with eight warps."""
    if way.engine == "lists":
        raise JtgpuError("too many products")
    if way.engine == "levels":
        return 120.0 if way.codes else 140.0
    f, gained = way.flow, 5 * (way.shallow == 16)
    gained += 10 * (f.warps == 8) + 20 * (f.longer is True) - 5 * (f.kept == 4) + (f.slow == 16)
    return 100.0 - gained + f.blocks * (12 - 15 * (f.warps == 8))


@pytest.fixture
def numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[np.ndarray]]:
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path / "cache"))
    net = jtgpu.read(ASIA)
    return net.plan("min-fill").plan, [f.table for f in compiler.model_factors(net)]


def test_the_quickest_way_is_found_step_by_step() -> None:
    told: list[str] = []
    tried = best_way(lambda way: Played(way, taking(way)), 8, told.append)  # type: ignore[arg-type, return-value]
    best = FlowWay(warps=8, longer=True, kept=0, slow=16.0, blocks=True)
    assert tried[0] == Tried(Way("flow", flow=best, shallow=16.0), 61.0)
    assert [t.microseconds for t in tried] == sorted(t.microseconds for t in tried)
    assert tried[-1] == Tried(Way("lists", shallow=PRICES[0]), math.inf)
    assert Played.open == 0
    assert len(told) == len(tried) == len(set(told))


def test_variants_of_an_engine_that_is_far_behind_are_not_tried() -> None:
    tried = best_way(lambda way: Played(way, 50.0 if way.engine == "lists" else 100.0), 8)  # type: ignore[arg-type, return-value]
    assert tried[0].way.engine == "lists"
    assert len(tried) == 2 + len(PRICES)


def test_an_engine_is_closed_when_measuring_it_fails() -> None:
    class Failing(Played):
        def measure(self, n: int, cases: Any) -> list[float]:
            raise BackendUnavailable("lost")

    tried = best_way(lambda way: Failing(way, 1.0), 8)  # type: ignore[arg-type, return-value]
    assert all(t.microseconds == math.inf for t in tried)
    assert Played.open == 0


def test_what_was_found_is_kept_for_the_network_and_the_card(numbers: tuple[Any, list[np.ndarray]]) -> None:
    plan, factors = numbers
    assert ways.ways_file(CARD, plan, factors) is None
    assert kept_way(CARD, plan, factors) is None
    way = Way("flow", flow=FlowWay(8, True, 4, 1.5, 16.0), shallow=64.0)
    path = keep_way(CARD, plan, factors, [Tried(way, 10.0), Tried(Way("lists"), math.inf)])
    assert kept_way(CARD, plan, factors) == way
    assert [f.name for f in path.parent.iterdir()] == [path.name]
    assert kept_way("NVIDIA H200", plan, factors) is None
    other = [np.where(t > 0, t, 1.0) for t in factors]  # a network without zeros has other lists
    assert kept_way(CARD, plan, other) is None
    assert kept_way(CARD, plan, [2.0 * t for t in factors]) == way


@pytest.mark.parametrize(
    "wrong",
    [
        "", "[]", "{}", '{"version": 1}',
        '{"version": 2, "way": {"engine": "flow", "codes": true, "flow": {"warps": 9}, "shallow": 0}}',
        '{"version": 2, "way": {"engine": "magic", "codes": true, "flow": {}, "shallow": 0}}',
        '{"version": 2, "way": {"engine": "flow", "codes": true, "flow": {"slow": NaN}, "shallow": 0}}',
        '{"version": 2, "way": {"engine": "flow", "codes": true, "flow": {"more": 1}, "shallow": 0}}',
        '{"version": 2, "way": {"engine": "flow", "codes": true, "flow": {}, "shallow": -1}}',
    ],
)  # fmt: skip
def test_a_file_that_says_anything_else_is_left_alone(numbers: tuple[Any, list[np.ndarray]], wrong: str) -> None:
    plan, factors = numbers
    path = keep_way(CARD, plan, factors, [Tried(Way("levels", codes=False), 10.0)])
    assert kept_way(CARD, plan, factors) == Way("levels", codes=False)
    path.write_text(wrong)
    assert kept_way(CARD, plan, factors) is None


class Card:
    """As much of a device as choosing an engine needs."""

    name, capability = CARD, (9, 0)

    def active(self) -> Any:
        return nullcontext()

    def free_memory(self) -> int:
        return 1 << 36


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Card:
    """Engines that are played, on a card that is."""
    monkeypatch.setattr(single.Maker, "made", lambda self, way: Played(way, taking(way)))
    monkeypatch.setattr(single, "flow_engine", lambda *_: None)
    monkeypatch.setattr(single.Maker, "_quickest_lists", lambda self: (math.inf, 0.0))
    monkeypatch.setattr("jtgpu.device.context.open_device", lambda *_: Card())
    return Card()


def test_a_kept_way_is_taken_unless_another_is_asked_for(numbers: tuple[Any, list[np.ndarray]], played: Any) -> None:
    plan, factors = numbers
    maker = single.Maker(plan, factors, played)
    assert maker.chosen().kind == "levels"
    tried = maker.tune()
    found: Any = maker.chosen()
    assert found.way == tried[0].way
    assert found.way.engine == "flow"
    assert maker.chosen(lists=False).kind == "levels"
    with pytest.raises(JtgpuError, match="too many products"):
        maker.chosen("lists")
    assert single.Maker(plan, factors, played, "float32").chosen().kind == "levels"


def test_no_engine_at_all_is_an_error(
    numbers: tuple[Any, list[np.ndarray]], played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(self: Any, way: Way) -> Any:
        raise BackendUnavailable("no")

    monkeypatch.setattr(single.Maker, "made", none)
    with pytest.raises(JtgpuError, match="no engine can answer"):
        single.Maker(*numbers, played).tune()


@pytest.mark.usefixtures("played", "numbers")
def test_the_command() -> None:
    words = ["tune", ASIA, "--order", "min-fill"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    way = "flow, shallow 16, warps 8, longer True, kept 0, slow 16.0, blocks True"
    assert f"{CARD}: {way} answers single cases from now on" in shown.stdout
    data = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert data["best"] == way
    assert data["ways"][0]["microseconds"] == 61.0
    assert all(math.isfinite(row["microseconds"]) for row in data["ways"])


def test_defaults_are_the_usual_way() -> None:
    assert Way("flow").flow == flow.USUAL
    assert str(Way("levels")) != str(Way("levels", codes=False))
