"""Backends by name, each imported on first use."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from ..errors import BackendUnavailable, closest
from .base import Backend, Evidence, Prepare, Result

if TYPE_CHECKING:
    from ..plan import Plan

__all__ = ["BACKENDS", "Backend", "Evidence", "Prepare", "Result", "get", "resolve"]

BACKENDS = ("reference", "cpu", "indexed", "gpu")

# A rough model of one propagation, in seconds, for "auto" alone: fitted to one core of an AVX-512 Xeon, 0.6 to 1.3 times
# what most of fifteen networks took there; an H100 needs 20 us to be called, 3 us a level, and runs 3e11 operations a second.
CPU_OPERATION, CPU_CONTRACTION, CPU_CALL = 4e-11, 4.6e-8, 6.5e-6
GPU_OPERATION, GPU_LEVEL, GPU_CALL = 1 / 3e11, 3e-6, 2e-5


def resolve(name: str, plan: Plan | None = None) -> str:
    """The backend that a name stands for.

    ``"auto"`` is ``"gpu"`` where there is a GPU and a propagation of `plan` should take less time there, else
    ``"cpu"``.

    Raises
    ------
    BackendUnavailable
        For a name that no backend has.
    """
    if name == "auto":
        return "gpu" if plan is not None and _gpu_pays(plan) and _gpu_is_there() else "cpu"
    if name not in BACKENDS:
        raise BackendUnavailable(
            f"there is no backend {name!r}{closest(name, BACKENDS)} (known: auto, {', '.join(BACKENDS)})"
        )
    return name


def _gpu_pays(plan: Plan) -> bool:
    cost = plan.cost()
    on_cpu = CPU_CALL + cost.flops * CPU_OPERATION + cost.contractions * CPU_CONTRACTION
    return GPU_CALL + cost.program_levels * GPU_LEVEL + cost.flops * GPU_OPERATION < on_cpu


@lru_cache(maxsize=1)
def _gpu_is_there() -> bool:
    """Whether the backend "gpu" can run here; asked once a process."""
    try:
        from .device import open_device

        open_device()
        importlib.import_module("cuda.bindings.driver")
    except (BackendUnavailable, ImportError):
        return False
    return True


def get(name: str) -> Prepare:
    """The ``prepare`` function of a backend; imports the backend's module.

    Raises
    ------
    BackendUnavailable
        For an unknown name, or when what the backend needs is not installed.
    """
    name = resolve(name)
    try:
        module = importlib.import_module(f".{name}", __package__)
    except ImportError as error:
        raise BackendUnavailable(f"the backend {name!r} cannot be loaded here: {error}") from error
    return cast(Prepare, module.prepare)
