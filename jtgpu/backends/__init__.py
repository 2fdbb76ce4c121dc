"""Backends by name, each imported on first use."""

from __future__ import annotations

import importlib
from typing import cast

from ..device import context
from ..errors import BackendUnavailable, closest, shown
from .base import Backend, Evidence, Prepare, Result

__all__ = [
    "BACKENDS", "Backend", "Evidence", "Prepare", "Result", "device_numbers", "free_on_devices", "get", "resolve",
]  # fmt: skip

BACKENDS = ("reference", "cpu", "indexed", "gpu")
_MODULE = {
    "reference": ".reference", "cpu": ".cpu", "gpu": ".gpu.backend",
    "indexed": "..published.junction_trees.backend",  # the one import of a published system
}  # fmt: skip
ON_GPUS = ("indexed", "gpu")


def resolve(name: object, *, or_auto: bool = False) -> str:
    """Check a backend's name."""
    # name: As the user gave it
    # or_auto: Whether ``"auto"`` is valid, too; see `jtgpu.backends.make`
    # raises BackendUnavailable: For an unknown name.
    if isinstance(name, str) and (name in BACKENDS or (or_auto and name == "auto")):
        return name
    hint = closest(name, BACKENDS) if isinstance(name, str) else ""
    raise BackendUnavailable(f"there is no backend {shown(name)}{hint} (known: auto, {', '.join(BACKENDS)})")


def get(name: str) -> Prepare:
    """The ``prepare`` function of a backend; imports the backend's module."""
    # raises BackendUnavailable: For an unknown name, or if a package that the backend needs is not installed.
    name = resolve(name)
    try:
        module = importlib.import_module(_MODULE[name], __package__)
    except ImportError as error:
        raise BackendUnavailable(f"the backend {name!r} cannot be loaded here: {error}") from error
    return cast(Prepare, module.prepare)


def device_numbers(name: str, devices: object) -> list[int]:
    """Numbers of the CUDA devices that ``devices=`` names, for a backend that runs on GPUs."""
    # raises BackendUnavailable: For a backend that runs on no GPU, and for a device that does not exist.
    if resolve(name) not in ON_GPUS:
        raise BackendUnavailable(f"devices= names GPUs; the backend {name!r} runs on none ({', '.join(ON_GPUS)} do)")
    return context.device_numbers(devices)


def free_on_devices(name: str, devices: object = None) -> int | None:
    """Free bytes of the GPU that a backend would use, the minimum of several; None for a backend on the CPU."""
    # raises BackendUnavailable: If there is no such GPU.
    if devices is None and resolve(name) not in ON_GPUS:
        return None
    numbers = [None] if devices is None else device_numbers("gpu" if name == "auto" else name, devices)
    free: list[int] = []
    for number in numbers:
        device = context.open_device(number)
        with device.active():
            free.append(device.free_memory())
    return min(free)
