"""Backends by name, each imported on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, cast

from ..errors import BackendUnavailable, closest
from .base import Backend, Evidence, Prepare, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ..plans.plan import Plan
    from .wrappers.devices import OnDevices

__all__ = [
    "BACKENDS", "Backend", "Evidence", "Prepare", "Result", "free_on_devices", "get", "on_devices", "resolve",
    "tune_gpu",
]  # fmt: skip

BACKENDS = ("reference", "cpu", "indexed", "gpu")
_MODULE = {"reference": ".reference", "cpu": ".cpu", "indexed": ".published.backend", "gpu": ".gpu.backend"}
ON_GPUS = ("indexed", "gpu")


def resolve(name: str) -> str:
    """A backend's name as it is; `jtgpu.backends.auto` knows what "auto" stands for.

    Raises
    ------
    BackendUnavailable
        For a name that no backend has.
    """
    if name not in BACKENDS:
        raise BackendUnavailable(
            f"there is no backend {name!r}{closest(name, BACKENDS)} (known: auto, {', '.join(BACKENDS)})"
        )
    return name


def get(name: str) -> Prepare:
    """The ``prepare`` function of a backend; imports the backend's module.

    Raises
    ------
    BackendUnavailable
        For an unknown name, or when what the backend needs is not installed.
    """
    name = resolve(name)
    try:
        module = importlib.import_module(_MODULE[name], __package__)
    except ImportError as error:
        raise BackendUnavailable(f"the backend {name!r} cannot be loaded here: {error}") from error
    return cast(Prepare, module.prepare)


def on_devices(name: str, devices: Any) -> OnDevices:
    """The ``prepare`` function of a backend with a worker on each of several GPUs of this machine; for one use.

    Parameters
    ----------
    name : str
    devices : "all", int or sequence of int
        Numbers of CUDA devices; one that stands twice has two workers.

    Raises
    ------
    BackendUnavailable
        For a backend that runs on no GPU, and a device that is not there.
    """
    _check_on_gpus(name)
    device: Any = importlib.import_module("..device.context", __package__)
    several: Any = importlib.import_module(".wrappers.devices", __package__)
    numbers = device.device_numbers(devices)
    each: list[tuple[str, dict[str, Any]]] = [(f"GPU {n}", {"device": n}) for n in numbers]
    if name == "gpu":
        once = importlib.import_module(".wrappers.workers", __package__).Once()
        for i, (_, options) in enumerate(each):  # tables need nothing of what single cases do
            options |= {"once": once, "single": i == 0}
    made: OnDevices = several.OnDevices(get(name), each)
    return made


def free_on_devices(name: str, devices: Any = None) -> int | None:
    """Bytes free on the GPU that a backend would run on, of several the least; None for a backend on the CPU.

    Raises
    ------
    BackendUnavailable
        Where there is no such GPU.
    """
    if devices is None and resolve(name) not in ON_GPUS:
        return None
    _check_on_gpus("gpu" if name == "auto" else name)
    device: Any = importlib.import_module("..device.context", __package__)
    free: list[int] = []
    for number in [None] if devices is None else device.device_numbers(devices):
        card = device.open_device(number)
        with card.active():
            free.append(card.free_memory())
    return min(free)


def tune_gpu(
    plan: Plan, factors: Sequence[NDArray[np.float64]], device: int | None = None
) -> tuple[str, list[Any]]:
    """See ``jtgpu.backends.gpu.single.select.tune``."""
    single: Any = importlib.import_module(".gpu.single.select", __package__)
    name, tried = single.tune(plan, factors, device)
    return str(name), list(tried)


def _check_on_gpus(name: str) -> None:
    if resolve(name) not in ON_GPUS:
        raise BackendUnavailable(f"devices= names GPUs; the backend {name!r} runs on none ({', '.join(ON_GPUS)} do)")
