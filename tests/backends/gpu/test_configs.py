"""Configurations of single-case engines: the quickest is saved for a network and a kind of GPU. Engines are fakes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from jtgpu.backends.gpu import select as configs
from jtgpu.backends.gpu.dataflow.tiling import DataflowConfig
from jtgpu.backends.gpu.select import LAYOUTS, Config, EngineMaker, Trial, load_config, quickest, save_config
from jtgpu.cli import app
from jtgpu.device.context import Device
from jtgpu.errors import BackendUnavailable, JtgpuError
from jtgpu.plans.lowering import GPU_US_PER_CRITICAL_US
from tests.backends.gpu.engines import tables
from tests.conftest import ROOT
from tests.support.bundled import bundled

ASIA = str(ROOT / "nets" / "asia.net")
CARD = "NVIDIA H100 80GB HBM3"


class Fake:
    """An engine that takes so long."""

    open = 0

    def __init__(self, config: Config, microseconds: float):
        self.config, self.kind, self._microseconds = config, config.engine, microseconds
        Fake.open += 1

    def measure(self, n: int, cases: Any) -> list[float]:
        return [self._microseconds] * n

    def close(self) -> None:
        Fake.open -= 1


def taken(config: Config) -> float:
    """Where eight warps and longer batches gain, and together more; blocks are not supported."""
    if config.engine == "levels":
        return 120.0
    if config.layout.tensor_blocks:
        raise JtgpuError("no tensor cores")
    gain = 5 * (config.price == 16) + 10 * (config.layout.warps == 8) + 20 * (config.layout.long_batches is True)
    return 100.0 - gain


@pytest.fixture
def numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[np.ndarray]]:
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path / "cache"))
    net = bundled("asia")
    return net.plan("min-fill").plan, tables(net)


def test_the_quickest_is_found_and_then_tried_with_other_prices() -> None:
    reported: list[str] = []
    tried = quickest(lambda config: Fake(config, taken(config)), 8, reported.append)  # type: ignore[arg-type, return-value]
    best = next(x for x in LAYOUTS if x.warps == 8 and x.long_batches and not x.tensor_blocks)
    assert tried[0] == Trial(Config("dataflow", 16.0, best), 65.0)
    assert [t.microseconds for t in tried] == sorted(t.microseconds for t in tried)
    assert tried[-1].microseconds == math.inf
    assert Trial(Config("levels", GPU_US_PER_CRITICAL_US), 120.0) in tried
    assert Fake.open == 0
    assert len(reported) == len(tried) == len(set(reported))


def test_an_engine_is_closed_when_measuring_it_fails() -> None:
    class Failing(Fake):
        def measure(self, n: int, cases: Any) -> list[float]:
            raise BackendUnavailable("lost")

    tried = quickest(lambda config: Failing(config, 1.0), 8)  # type: ignore[arg-type, return-value]
    assert all(t.microseconds == math.inf for t in tried)
    assert len(tried) == len(LAYOUTS) + 1
    assert Fake.open == 0


def test_a_configuration_is_saved_for_the_network_and_the_gpu(numbers: tuple[Any, list[np.ndarray]]) -> None:
    plan, factors = numbers
    assert configs.config_file(CARD, plan, factors) is None
    assert load_config(CARD, plan, factors) is None
    config = Config("dataflow", 64.0, DataflowConfig(8, True, 4, 1.5, 16.0))
    path = save_config(CARD, plan, factors, [Trial(config, 10.0), Trial(Config("levels"), math.inf)])
    assert load_config(CARD, plan, factors) == config
    assert [f.name for f in path.parent.iterdir()] == [path.name]
    assert load_config("NVIDIA H200", plan, factors) is None
    other = [np.where(t > 0, t, 1.0) for t in factors]
    assert load_config(CARD, plan, other) is None
    assert load_config(CARD, plan, [2.0 * t for t in factors]) == config


@pytest.mark.parametrize(
    "wrong",
    [
        "", "[]", "{}", '{"version": 1}',
        '{"version": 3, "config": {"engine": "dataflow", "price": 0, "layout": {"warps": 17}}}',
        '{"version": 3, "config": {"engine": "magic", "price": 0, "layout": {}}}',
        '{"version": 3, "config": {"engine": "dataflow", "price": 0, "layout": {"other_weight": NaN}}}',
        '{"version": 3, "config": {"engine": "dataflow", "price": 0, "layout": {"more": 1}}}',
        '{"version": 3, "config": {"engine": "dataflow", "price": -1, "layout": {}}}',
    ],
)  # fmt: skip
def test_a_file_with_other_contents_is_ignored(numbers: tuple[Any, list[np.ndarray]], wrong: str) -> None:
    plan, factors = numbers
    path = save_config(CARD, plan, factors, [Trial(Config("levels"), 10.0)])
    assert load_config(CARD, plan, factors) == Config("levels")
    path.write_text(wrong)
    assert load_config(CARD, plan, factors) is None


def test_a_saved_configuration_is_used_unless_an_engine_is_named(
    numbers: tuple[Any, list[np.ndarray]], emulated_gpu: Device
) -> None:
    plan, factors = numbers
    maker = EngineMaker(plan, factors, emulated_gpu)

    def kind(maker: EngineMaker, name: str | None = None) -> str:
        engine = maker.chosen(name)
        engine.close()
        return engine.kind

    assert kind(maker) == "dataflow"
    save_config(emulated_gpu.name, plan, factors, [Trial(Config("levels"), 10.0)])
    assert kind(maker) == "levels"
    assert kind(maker, "dataflow") == "dataflow"
    save_config(emulated_gpu.name, plan, factors, [Trial(Config("dataflow", layout=DataflowConfig(8)), 10.0)])
    engine: Any = maker.chosen()
    assert engine.schedule.warps == 8
    engine.close()
    assert kind(EngineMaker(plan, factors, emulated_gpu, "float32")) == "levels"


def test_no_engine_at_all_is_an_error(
    numbers: tuple[Any, list[np.ndarray]], emulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(self: Any, config: Config) -> Any:
        raise BackendUnavailable("no")

    monkeypatch.setattr(EngineMaker, "made", unsupported)
    with pytest.raises(JtgpuError, match="no engine can answer"):
        EngineMaker(*numbers, emulated_gpu).tune()


@pytest.mark.usefixtures("numbers")
def test_the_command(emulated_gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineMaker, "made", lambda self, config: Fake(config, taken(config)))
    words = ["tune", ASIA, "--order", "min-fill"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    best = "dataflow, balance 16, warps 8, long batches True, reserved warps 4, critical weight 4.0, other weight 24.0"
    assert f"{emulated_gpu.name}: single cases use {best} from now on" in shown.stdout
    data = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert data["best"] == best
    rows = data["configs"]
    assert rows[0]["microseconds"] == 65.0
    assert all(math.isfinite(row["microseconds"]) for row in rows)
