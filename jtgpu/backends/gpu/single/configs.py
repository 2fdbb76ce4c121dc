"""Configurations of single-case engines: which are measured, and where the quickest is saved.

A time model chooses in a moment and is wrong by a tenth or two; measuring takes seconds and is right. The result is
saved in a file a network and kind of GPU, like FFTW's wisdom (Frigo and Johnson, "The design and implementation of
FFTW3", Proceedings of the IEEE 93, 2005), and every later process uses it: as long as the file is there, results are
bit-identical.
"""

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

from ....errors import JtgpuError
from ....plans.lowering import PRICE
from ....plans.plan import Plan
from ....util.atomic_file import write_text
from ....util.system import cache_folder
from ...base import Evidence
from .case import CaseEngine
from .dataflow.config import DEFAULT, MAX_WARPS, DataflowConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

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

    tried = [measured(Config("dataflow", PRICE, layout)) for layout in LAYOUTS]
    tried.append(measured(Config("levels", PRICE)))
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
        found = data["config"]
        config = Config(found["engine"], float(found["price"]), DataflowConfig(**found["layout"]))
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
