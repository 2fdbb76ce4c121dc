"""Which engine answers single cases: by name, by a saved configuration, by a time model, or by measuring."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import BackendUnavailable, JtgpuError
from ...plans.lowering import GPU_US_PER_CRITICAL_US, relowered
from ...plans.plan import Plan
from ...util.arguments import report
from ...util.atomic_file import write_text
from ...util.system import cache_folder
from ..base import Evidence
from .case import CaseEngine
from .dataflow.engine import DataflowEngine
from .dataflow.graph import RestrictedFactors
from .dataflow.schedule import Schedule, make_schedule
from .dataflow.tiling import DEFAULT, MAX_WARPS, DataflowConfig
from .host import Host
from .levels.engine import LevelEngine
from .levels.schedule import make_schedule as make_level_schedule
from .program.layout import MIN_LOG2, smallest_entries

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...device.context import Device
    from ...device.driver import After

# Configurations of single-case engines: which are measured, and where the quickest is saved.
#
# A time model chooses in a moment and is wrong by a tenth or two; measuring takes seconds and is right. The result is
# saved in a file a network and kind of GPU, like FFTW's wisdom (Frigo and Johnson, "The design and implementation of
# FFTW3", Proceedings of the IEEE 93, 2005), and every later process uses it: as long as the file is there, results are
# bit-identical.

ENGINES = ("dataflow", "levels")
FORMAT_VERSION = 3
RUNS = 60  # propagations of which the median counts
PRICES = (16.0, 4.0, 0.0)  # other prices of balancing that are tried with the quickest configuration
LAYOUTS = (  # those that were the quickest of some network on an H100: bench/results/gpu.jsonl
    DEFAULT,
    DataflowConfig(long_batches=True, reserved_warps=0, critical_weight=6.0),
    DataflowConfig(long_batches=True, reserved_warps=4, critical_weight=4.0),
    DataflowConfig(long_batches=False, reserved_warps=0, critical_weight=6.0, other_weight=16.0),
    DataflowConfig(8, long_batches=True, reserved_warps=4, critical_weight=4.0, other_weight=24.0),
    DataflowConfig(8, long_batches=False, reserved_warps=0, critical_weight=6.0, other_weight=4.0, tensor_blocks=True),
    DataflowConfig(8, long_batches=True, reserved_warps=0, critical_weight=12.0, tensor_blocks=True),
)


@dataclass(frozen=True)
class Config:
    """How single cases are computed."""

    engine: str  # {"dataflow", "levels"}
    # Of balancing: at this price the plan is lowered again with fewer levels (`jtgpu.plans.lowering.relowered`). 0: the
    #     plan as it is.
    price: float = 0.0
    layout: DataflowConfig = DEFAULT  # of the dataflow engine

    def __str__(self) -> str:
        words = [self.engine]
        if self.price:
            words.append(f"balance {self.price:g}")
        if self.engine == "dataflow":
            default = asdict(DEFAULT)
            words += [f"{k} {v}".replace("_", " ") for k, v in asdict(self.layout).items() if v != default[k]]
        return ", ".join(words)


@dataclass(frozen=True)
class Trial:
    """A configuration and the median device microseconds of a case; inf if the network or the GPU does not support
    it."""

    config: Config
    microseconds: float


def quickest(
    make: Callable[[Config], CaseEngine], n_variables: int, report: Callable[[str], None] = lambda _: None
) -> list[Trial]:
    """Measure every configuration; the quickest first."""
    # make: Makes an engine; raises `JtgpuError` for a configuration that is not supported
    # report: Called with what is being measured
    nothing = [Evidence.none(n_variables)]

    def measured(config: Config) -> Trial:
        report(f"measuring {config}")
        taken = math.inf
        with contextlib.suppress(JtgpuError):
            engine = make(config)
            try:
                taken = statistics.median(engine.measure(RUNS, nothing))
            finally:
                engine.close()
        return Trial(config, taken)

    tried = [measured(Config("dataflow", GPU_US_PER_CRITICAL_US, layout)) for layout in LAYOUTS]
    tried.append(measured(Config("levels", GPU_US_PER_CRITICAL_US)))
    best = min(tried, key=lambda t: t.microseconds)
    if best.microseconds < math.inf:
        tried += [measured(replace(best.config, price=price)) for price in PRICES]
    return sorted(tried, key=lambda t: (t.microseconds, str(t.config)))


def network_key(plan: Plan, factors: Sequence[NDArray[np.float64]]) -> str:
    """Digest of what the time of a case depends on: the plan, and which entries are zero."""
    digest = hashlib.sha256(plan.to_bytes())
    for table in factors:
        digest.update(np.packbits(np.ascontiguousarray(table) > 0).tobytes())
    return digest.hexdigest()[:24]


def config_file(device: str, plan: Plan, factors: Sequence[NDArray[np.float64]]) -> Path | None:
    """The file of a network's configuration; None if nothing was ever saved for this kind of GPU."""
    folder = _folder(device)
    return folder / f"{network_key(plan, factors)}.json" if folder.is_dir() else None


def _folder(device: str) -> Path:
    name = "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in device).split())
    return cache_folder() / "gpu-configs" / name


def load_config(device: str, plan: Plan, factors: Sequence[NDArray[np.float64]]) -> Config | None:
    """The configuration that was saved for a network on a GPU of this name; None if there is none to be read."""
    path = config_file(device, plan, factors)
    if path is None:
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != FORMAT_VERSION:
            return None
        stored = data["config"]
        config = Config(stored["engine"], float(stored["price"]), DataflowConfig(**stored["layout"]))
        return config if _is_valid(config) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_valid(config: Config) -> bool:
    layout = config.layout
    numbers = (layout.critical_weight, layout.other_weight, config.price)
    return (
        config.engine in ENGINES
        and layout.warps in range(1, MAX_WARPS + 1)
        and layout.long_batches in (None, True, False)
        and layout.reserved_warps in (None, *range(MAX_WARPS))
        and layout.tensor_blocks in (True, False)
        and all(0 <= float(x) < math.inf for x in numbers)
    )


def save_config(device: str, plan: Plan, factors: Sequence[NDArray[np.float64]], tried: Sequence[Trial]) -> Path:
    """Save the first of the trials' configurations; the file's path."""
    # raises OSError: If it cannot be written.
    path = _folder(device) / f"{network_key(plan, factors)}.json"
    rows = [{"config": asdict(t.config), "microseconds": t.microseconds} for t in tried if t.microseconds < math.inf]
    data = {"version": FORMAT_VERSION, "device": device, "config": asdict(tried[0].config), "tried": rows}
    write_text(path, json.dumps(data, indent=1), durable=False, make_folders=True)
    return path


MAX_GROWTH, SMALL_BYTES = 1.5, 1 << 28  # how much larger a balanced plan may be than the plan; or its bytes
LEVELS_US = (8.0, 2.4, 0.6e-6)  # microseconds on an H100 of a kernel a level: in all, a level, an operation
DATAFLOW_CAPABILITY = (7, 0)  # warps of a block that make progress independently


RestrictedSchedule = tuple[Plan, RestrictedFactors, Schedule]


class EngineMaker:
    """Makes engines for one plan on one device."""
    # dtype: {"float64", "float32"}: float32 becomes float64 if it does not hold the factors' entries
    # after: A stream of the user whose work precedes every case

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        device: Device,
        dtype: str = "float64",
        after: After | None = None,
    ):
        self.plan, self.factors, self.device, self.dtype, self.after = plan, factors, device, dtype, after
        self.host = Host(plan, factors)
        self._balanced: dict[float, Plan] = {0.0: plan}
        if dtype == "float32" and smallest_entries(factors).min(initial=0.0) < MIN_LOG2:
            self.dtype = "float64"

    def chosen(self, engine: str | None = None) -> CaseEngine:
        """The engine of this name, or the one of the saved configuration, or the one that should be quickest."""
        # raises JtgpuError: If the network or the GPU does not support the named engine.
        report("preparing the GPU engine")
        if self.dtype == "float32" or engine == "levels":
            return self.made(Config("levels", self._price()))
        if engine is not None:
            return self.made(Config(engine, self._price()))
        saved = load_config(self.device.name, self.plan, self.factors)
        for config in [*([saved] if saved is not None else []), Config("dataflow", self._price())]:
            # a saved configuration may be of a whole GPU where this is a share of one
            with contextlib.suppress(BackendUnavailable, _Unsupported):
                return self.made(config)
        return self.made(Config("levels", self._price()))

    def made(self, config: Config) -> CaseEngine:
        """The engine of a configuration."""
        # raises JtgpuError: If the network or the GPU does not support it.
        plan = self._lowered(config.price)
        if config.engine == "levels":
            schedule = make_level_schedule(plan, self.dtype, self.device.multiprocessors)
            return LevelEngine(plan, self.factors, schedule, self.device, self.after, self.host)
        made = None
        if self.device.capability >= DATAFLOW_CAPABILITY:
            made = make_schedule(plan, self.factors, self.device.multiprocessors, config.layout)
        if made is None:
            raise _Unsupported("the dataflow engine supports neither this network on this GPU nor its numbers")
        return DataflowEngine(plan, made, self.device, self.after)

    def fallback(self) -> LevelEngine:
        """The engine for cases, or numbers, for which float32, or doubles without scaling, are not reliable."""
        schedule = make_level_schedule(self.plan, "float64", self.device.multiprocessors)
        return LevelEngine(self.plan, self.factors, schedule, self.device, self.after, self.host)

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """Make engines of these numbers from now on."""
        self.factors = list(factors)
        self.host.reload(factors)

    def restricted_schedule(
        self, plans: Sequence[Plan], observed: NDArray[np.bool_]
    ) -> RestrictedSchedule | None:
        """The quickest schedule by the time model for cases that observe these variables; None if there is none."""
        # plans: sequence of Plan: Of the unobserved variables
        # observed: (V,) bool
        schedules: list[RestrictedSchedule] = []
        for plan in [*plans, *map(relowered, plans)]:
            restricted = RestrictedFactors(plan, self.factors, self.plan.factor_scopes, observed)
            made = make_schedule(plan, restricted.largest, self.device.multiprocessors, restricted=restricted)
            if made is not None:
                schedules.append((plan, restricted, made))
        return min(schedules, key=lambda x: x[2].microseconds, default=None)

    def restricted(self, made: RestrictedSchedule) -> DataflowEngine:
        """The engine of a restricted schedule."""
        plan, restricted, schedule = made
        return DataflowEngine(plan, schedule, self.device, self.after, restricted)

    def tune(self) -> list[Trial]:
        """Measure which configuration is quickest, and save it; the trials, the quickest first."""
        # raises JtgpuError: If no engine supports the network.
        # raises OSError: If the configuration cannot be saved.
        best = quickest(self.made, self.plan.n_variables, report)
        if not best[0].microseconds < math.inf:
            raise JtgpuError(f"no engine can answer cases of this network on {self.device.name}")
        save_config(self.device.name, self.plan, self.factors, best)
        return best

    def _lowered(self, price: float) -> Plan:
        """The plan, or the one of fewer levels that a price gives."""
        if price not in self._balanced:
            self._balanced[price] = relowered(self.plan, price)
        return self._balanced[price]

    def _price(self) -> float:
        """The price of balancing with which the plan should be quicker; 0: as it is."""
        other = self._lowered(GPU_US_PER_CRITICAL_US)
        fits = other.cost().bytes <= max(MAX_GROWTH * self.plan.cost().bytes, SMALL_BYTES)
        return GPU_US_PER_CRITICAL_US if fits and levels_microseconds(other) < levels_microseconds(self.plan) else 0.0


class _Unsupported(JtgpuError):
    """A network, or a GPU, that the dataflow engine does not support."""


def levels_microseconds(plan: Plan) -> float:
    """Roughly what a plan takes as a kernel a level."""
    start, level, operation = LEVELS_US
    return start + level * plan.cost().program_levels + operation * plan.cost().flops


def tune(
    plan: Plan, factors: Sequence[NDArray[np.float64]], device: int | None = None
) -> tuple[str, list[Trial]]:
    """Name of a GPU, and the trials of `EngineMaker.tune` on it; see `NetworkPlan.tune`."""
    from ...device.context import open_device

    opened = open_device(device)
    return opened.name, EngineMaker(plan, factors, opened).tune()
