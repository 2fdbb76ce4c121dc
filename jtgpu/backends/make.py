"""A backend for a plan by its name: one or several devices, with or without a cache of plans for evidence patterns."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..device.context import open_device
from ..errors import BackendUnavailable, JtgpuError, closest, format_bytes
from ..plans.clique_tree import interaction_graph
from ..plans.compiler import MAX_TABLE, MEMORY_SHARE, build_plan
from ..util import atomic_file
from ..util.arguments import choice, flag, report, whole_number
from ..util.system import cache_folder, cpu_name, free_memory
from ..util.version import __version__
from . import device_numbers, get
from .base import Backend, Evidence
from .wrappers import pattern_cache
from .wrappers.cutset import ConditionedSum, SliceJob, Start, on_devices, one_after_another
from .wrappers.devices import DevicePool
from .wrappers.possible_states import without_impossible_states
from .wrappers.questions import LEAST_WORK, CheaperQuestions, QuestionBackend, QuestionLimits
from .wrappers.set_fallback import SetFallback, is_extensible

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..plans.arrays import Cost
    from ..plans.conditioning import SplitModel
    from ..plans.plan import Plan

# ``backend="auto"``: which backend a plan should run on, and why.
#
# A propagation takes about ``call + steps * step + operations * operation`` seconds, where steps are contractions on
# the CPU and dependent levels on a GPU. The three rates of each backend are measured once per machine, on three
# synthetic models, and cached in the user's cache folder (or the folder that JTGPU_CACHE_DIR names). Without a GPU
# nothing is measured. Small plans run on the CPU, which answers before a GPU has started a kernel: for them no GPU is
# opened.

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
        engine.run_case(nothing)
        seconds = []
        for _ in range(RUNS):
            started = time.perf_counter()
            engine.run_case(nothing)
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
            return "the NVIDIA GPU needs more packages: pip install '.[cuda]' in a checkout"
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
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        rates = {name: Rates(*map(float, content[name])) for name in ("cpu", "gpu")}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return rates if all(np.isfinite(r).all() and min(r) >= 0 and r.operation > 0 for r in rates.values()) else None


def _save(path: Path, rates: dict[str, Rates]) -> None:
    """Cache the rates; if the file cannot be written, the next process measures again (about a second)."""
    with contextlib.suppress(OSError):
        atomic_file.write_text(path, json.dumps(rates), durable=False, make_folders=True)


WEIGH_SETS = ("cpu", "reference")  # backends whose likelihoods and targets may be set variables
SINGLE_PRECISION = ("indexed", "gpu")  # backends that can compute in float32
OPTIONS = {
    "reference": (),
    "cpu": ("threads",),
    "gpu": ("device", "engine", "dtype", "single", "stream"),
    "indexed": (
        "engine", "thresholds", "transfers", "dtype", "split_n", "marginalise_threads", "scatter_threads",
        "min_entries", "normalise", "ways", "scatter_ways", "marginalise_m", "scatter", "index_transfers", "streams",
        "graph", "device", "max_entries",
    ),
}  # fmt: skip


TREE_OPTIONS = ("replan", "devices", "executor", "progress")  # of every backend


def make(
    name: str, plan: Plan, factors: Sequence[NDArray[np.float64]], *, devices: Any = None, replan: bool = True,
    limits: Any = None, **options: Any,
) -> Backend:  # fmt: skip
    """A backend of a plan and a model's numbers."""
    # limits: `QuestionLimits` of each question, if the plan has no tree
    # name: See `jtgpu.backends.BACKENDS`
    # factors: sequence of float64 arrays: As in `jtgpu.backends.base.Prepare`
    # devices: "all" or sequence of int: GPUs that share the work
    # replan: Whether evidence patterns that recur may get their own plan, if the backend supports it
    # **options: Of the backend
    _check_options(name, options)
    flag("replan", replan)
    if not plan.is_planned:
        inner = partial(make, name, devices=devices, replan=False, **options)
        limits = limits or QuestionLimits(int(MEMORY_SHARE * free_memory()), MAX_TABLE)
        return QuestionBackend(plan, factors, inner, limits, replan=replan)
    if plan.sets and name not in WEIGH_SETS:
        plain = make(name, plan.without_sets(), factors, devices=devices, replan=replan, **options)
        on_gpu = name == "gpu" and is_extensible(plan)
        again = partial(make, name, devices=devices, replan=False, **options) if on_gpu else get("cpu")
        return SetFallback(plain, plan, factors, again, on_gpu)
    if devices is not None:
        return device_pool(name, devices)(plan, factors, **options)
    prepare = get(name)

    def with_patterns(plan: Plan, factors: Sequence[NDArray[np.float64]]) -> Backend:
        backend = prepare(plan, factors, **options)
        if not replan or plan.cost().flops < pattern_cache.MIN_COST:
            return backend
        return backend.with_patterns(factors, partial(prepare, **options))

    if name != "cpu":
        return with_patterns(plan, factors)
    backend = without_impossible_states(plan, factors, with_patterns)
    if not replan or plan.cost().flops < LEAST_WORK:
        return backend
    return CheaperQuestions(backend, plan, factors, partial(make, name, replan=False, **options))


def make_conditioned(
    name: str, split: SplitModel, plan: Plan, factors: Sequence[NDArray[np.float64]], *, devices: Any = None,
    executor: Start | None = None, **options: Any,
) -> Backend:  # fmt: skip
    """A backend that runs a plan once for every configuration of the split variables, and sums."""
    # plan: Of the split model
    # executor: Makes what runs the slices. Default: this process, one after another or in parallel on `devices`.
    _check_options(name, options)
    if devices is None:
        start = executor or one_after_another
    else:
        start = executor or on_devices(device_pool(name, devices))
    job = SliceJob(split, plan, list(factors), name, get(name), options)
    return ConditionedSum(job, start)


def device_pool(name: str, devices: Any) -> DevicePool:
    """The ``prepare`` function of a backend with a worker on each of several GPUs of this machine; for one use."""
    # devices: "all" or sequence of int: Numbers of CUDA devices; one that is given twice has two workers
    # raises BackendUnavailable: For a backend that runs on no GPU, and for a device that does not exist.
    numbers = device_numbers(name, devices)
    each: list[tuple[str, dict[str, Any]]] = [(f"GPU {n}", {"device": n}) for n in numbers]
    if name == "gpu":
        for i, (_, options) in enumerate(each):  # the first one computes single cases, tables do not need their engine
            options["single"] = i == 0
    return DevicePool(get(name), each)


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise `TypeError` for an option that the backend does not have, naming the closest one."""
    known = OPTIONS.get(name, ())
    for option in options:
        if option not in known:
            all_known = (*known, *TREE_OPTIONS)
            raise TypeError(f"the backend {name!r} has no option {option!r}{closest(option, all_known)}")
    if options.get("threads") is not None:
        whole_number("threads", options["threads"], least=1)


def supported_options(name: str, options: Mapping[str, Any], is_auto: bool) -> dict[str, Any]:
    """The options without a ``dtype`` that the backend has anyway."""
    # raises BackendUnavailable: For float32 on a backend that was named and computes in float64.
    if name in SINGLE_PRECISION or "dtype" not in options:
        return dict(options)
    choice("dtype", options["dtype"], ("float64", "float32"))
    if not is_auto and options["dtype"] != "float64":
        raise BackendUnavailable(f"the backend {name!r} computes in float64; float32 is an option of 'gpu', 'indexed'")
    return {key: value for key, value in options.items() if key != "dtype"}
