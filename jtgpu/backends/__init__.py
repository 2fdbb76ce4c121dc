"""Backends by name, each imported on first use."""

from __future__ import annotations

import importlib
from typing import cast

from ..errors import BackendUnavailable, closest
from .base import Backend, Evidence, Prepare, Result

__all__ = ["BACKENDS", "Backend", "Evidence", "Prepare", "Result", "get", "resolve"]

BACKENDS = ("reference", "cpu", "indexed", "gpu")

def resolve(name: str) -> str:
    """A backend's name as it is; `jtgpu.choice` knows what "auto" stands for.

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
        module = importlib.import_module(f".{name}", __package__)
    except ImportError as error:
        raise BackendUnavailable(f"the backend {name!r} cannot be loaded here: {error}") from error
    return cast(Prepare, module.prepare)
