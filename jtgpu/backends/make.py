"""A backend for a plan by its name: one or several devices, with or without a cache of plans for evidence patterns."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..errors import BackendUnavailable, closest
from ..util.arguments import choice, flag, whole_number
from . import device_numbers, get
from .base import Backend
from .wrappers import pattern_cache
from .wrappers.conditioned import ConditionedSum
from .wrappers.devices import DevicePool
from .wrappers.pattern import CostedBackend
from .wrappers.slices import SliceJob, Start, on_devices, one_after_another

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..plans.conditioning.split import SplitModel
    from ..plans.plan import Plan

SINGLE_PRECISION = ("indexed", "gpu")  # backends that can compute in float32
OPTIONS = {
    "reference": (),
    "cpu": ("threads",),
    "gpu": ("device", "engine", "dtype", "single", "stream", "tune"),
    "indexed": (
        "engine", "thresholds", "transfers", "dtype", "split_n", "marginalise_threads", "scatter_threads",
        "min_entries", "normalise", "ways", "scatter_ways", "marginalise_m", "scatter", "index_transfers", "streams",
        "graph", "device", "max_entries",
    ),
}  # fmt: skip


TREE_OPTIONS = ("replan", "devices", "executor", "progress")  # of every backend


def make(
    name: str, plan: Plan, factors: Sequence[NDArray[np.float64]], *, devices: Any = None, replan: bool = True,
    **options: Any,
) -> Backend:  # fmt: skip
    """A backend of a plan and a model's numbers."""
    # name: See `jtgpu.backends.BACKENDS`
    # factors: sequence of float64 arrays: As in `jtgpu.backends.base.Prepare`
    # devices: "all" or sequence of int: GPUs that share the work
    # replan: Whether evidence patterns that recur may get their own plan, if the backend supports it
    # **options: Of the backend
    _check_options(name, options)
    flag("replan", replan)
    if devices is not None:
        return device_pool(name, devices)(plan, factors, **options)
    prepare = get(name)
    backend = prepare(plan, factors, **options)
    if not replan or plan.cost().flops < pattern_cache.MIN_COST:
        return backend
    if name == "cpu":
        costed = cast("Callable[..., CostedBackend]", partial(prepare, **options))
        return pattern_cache.PatternCache(plan, factors, cast("CostedBackend", backend), costed)
    if name == "gpu":
        patterns: Any = importlib.import_module(".gpu.patterns", __package__)
        made: Backend = patterns.GpuPatternCache(plan, factors, backend)
        return made
    return backend


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
