"""``backend="auto"``: which backend a plan should run on, and why.

A propagation takes about ``call + steps * step + operations * operation`` seconds, where steps are contractions on the
CPU and dependent levels on a GPU. The three rates of each backend are measured once per machine, on three synthetic
models, and cached in the user's cache folder (or the folder that JTGPU_CACHE_DIR names). Without a GPU nothing is
measured. Small plans run on the CPU, which answers before a GPU has started a kernel: for them no GPU is opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import logging
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..device.context import open_device
from ..errors import BackendUnavailable, JtgpuError, format_bytes
from ..plans.compiler import build_plan
from ..plans.moral import interaction_graph
from ..util import atomic_file
from ..util.progress import report
from ..util.system import cache_folder, cpu_name
from ..util.version import __version__
from . import get
from .base import Evidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..plans.cost import Cost
    from ..plans.plan import Plan

_VERSION = 1
GPU_MEMORY = 1.3  # memory that an engine takes, relative to the plan's tables: records, the factors twice
SMALL = 5000  # clique entries; below, a case takes about 10 us on a CPU, and the call of a GPU 20 us
RUNS = 15
NO_GPU = "no NVIDIA GPU found"
_DRIVER_FILES = ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg")  # Linux, containers, WSL


class Rates(NamedTuple):
    """Seconds of the parts of a propagation on one backend."""

    call: float
    step: float  # a contraction (cpu), a level of the program (gpu)
    operation: float  # one multiplication or addition

    def seconds(self, steps: int, operations: int) -> float:
        """Estimated seconds of a propagation."""
        return self.call + steps * self.step + operations * self.operation


class Choice(NamedTuple):
    """A backend, and why it was chosen."""

    backend: str
    reason: str


def choose(plan: Plan) -> Choice:
    """The backend for a plan: ``"gpu"`` if a GPU is available and should be faster than the CPU."""
    cost = plan.cost()
    if cost.entries < SMALL:
        return Choice("cpu", f"fewer than {SMALL:,} table entries" if _has_driver() else NO_GPU)
    why_not = _no_gpu()
    if why_not:
        return Choice("cpu", why_not)
    try:
        rates = _rates()
    except (JtgpuError, MemoryError) as error:
        return Choice("cpu", f"the GPU could not be measured: {error}")
    cpu = rates["cpu"].seconds(cost.contractions, cost.flops)
    gpu = rates["gpu"].seconds(cost.program_levels, cost.flops)
    best, other = ("gpu", "cpu") if gpu < cpu else ("cpu", "gpu")
    times = {"cpu": cpu, "gpu": gpu}
    if best == "gpu":
        free, needed = _free_memory(), round(GPU_MEMORY * cost.bytes)
        if free is not None and needed > free:
            return Choice("cpu", f"on the GPU it would take {format_bytes(needed)}, and {format_bytes(free)} are free")
    return Choice(best, f"about {_time_text(times[best])} a case against {_time_text(times[other])} on the {other}")


def measure(backend: str) -> Rates:
    """Rates of a backend on this machine: takes a second or two, and the time to compile its kernels."""
    tiny, chain, large = (_model(n, card, window) for n, card, window in ((2, 2, 2), (300, 2, 2), (13, 12, 6)))
    call, _ = _time(*tiny, backend)
    t_chain, c = _time(*chain, backend)
    step = max(t_chain - call, 0.0) / _steps(backend, c)
    t_large, c = _time(*large, backend)
    # the remainder is arithmetic; on a fast machine calls and steps may seem to take all the time
    left = max(t_large - call - step * _steps(backend, c), 0.1 * t_large)
    return Rates(call, step, left / c.flops)


def _steps(backend: str, cost: Cost) -> int:
    return cost.contractions if backend == "cpu" else cost.program_levels


def _model(n: int, card: int, window: int) -> tuple[Plan, list[NDArray[np.float64]]]:
    """A plan for n variables with a factor for every two that are less than `window` apart, and the factors."""
    random = np.random.default_rng(1)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, min(i + window, n))]
    plan = build_plan(np.full(n, card, np.int64), pairs, interaction_graph(n, pairs), range(n))
    return plan, [random.uniform(0.5, 1.5, (card, card)) for _ in pairs]


def _time(plan: Plan, factors: list[NDArray[np.float64]], backend: str) -> tuple[float, Cost]:
    engine = get(backend)(plan, factors)
    try:
        nothing = Evidence.none(plan.n_variables)
        engine.run(nothing)
        seconds = []
        for _ in range(RUNS):
            started = time.perf_counter()
            engine.run(nothing)
            seconds.append(time.perf_counter() - started)
        return sorted(seconds)[RUNS // 2], plan.cost()
    finally:
        engine.close()


def _time_text(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.2g} us"


# The machine ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _no_gpu() -> str:
    """Why the backend "gpu" cannot run here, in a few words; empty if it can. Checked once per process."""
    try:
        open_device()
        importlib.import_module("cuda.bindings.driver")
    except (BackendUnavailable, ImportError) as error:
        if not _has_driver():
            return NO_GPU
        if isinstance(error, ImportError) or importlib.util.find_spec("pycuda") is None:
            return "the NVIDIA GPU needs more packages: pip install 'jtgpu[cuda]'"
        return f"the NVIDIA GPU cannot be used: {error}"
    return ""


def _has_driver() -> bool:
    return any(os.path.exists(path) for path in _DRIVER_FILES)


def _free_memory() -> int | None:
    """Free bytes of the GPU; None if they cannot be determined."""
    try:
        device = open_device()
        with device.active():
            return int(device.free_memory())
    except (BackendUnavailable, ImportError):
        return None


@lru_cache(maxsize=1)
def _rates() -> dict[str, Rates]:
    """Rates of both backends, from the cache or measured."""
    path = _file(str(open_device().name))
    rates = _load(path)
    if rates is None:
        logging.getLogger("jtgpu").warning("measuring the CPU and the GPU for backend=\"auto\" (once per machine)")
        report("measuring the CPU and the GPU for --backend auto (once per machine)")
        rates = {name: measure(name) for name in ("cpu", "gpu")}
        _save(path, rates)
    return rates


def _file(device: str) -> Path:
    key = hashlib.sha256(repr((_VERSION, __version__, cpu_name(), device)).encode()).hexdigest()
    return cache_folder() / f"rates-{key[:16]}.json"


def _load(path: Path) -> dict[str, Rates] | None:
    """The rates in a file; None if it does not exist or is damaged."""
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        rates = {name: Rates(*map(float, found[name])) for name in ("cpu", "gpu")}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return rates if all(np.isfinite(r).all() and min(r) >= 0 and r.operation > 0 for r in rates.values()) else None


def _save(path: Path, rates: dict[str, Rates]) -> None:
    """Cache the rates; if the file cannot be written, the next process measures again (about a second)."""
    with contextlib.suppress(OSError):
        atomic_file.write_text(path, json.dumps(rates), durable=False, make_folders=True)
