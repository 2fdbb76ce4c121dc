"""The three imports that point up. Everything else in jtgpu imports from its own layer or from one below.

A model has methods that need what stands above it: ``net.plan()``, ``net.compile()`` and ``tree.predict_proba()`` (with
what belongs to each: ``plan.compile()`` is the second, ``tree.predict()`` the third). Each opens one door here, which
imports on the first call, so a program that only reads networks never imports the engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["cases", "cluster", "compiling", "planning"]


def planning() -> Any:
    """``net.plan()``: the module `jtgpu.inference.network_plan`."""
    return import_module("jtgpu.inference.network_plan")


def compiling() -> Any:
    """``net.compile()``: the module `jtgpu.inference.tree`."""
    return import_module("jtgpu.inference.tree")


def cases() -> Any:
    """``tree.predict_proba()``: the package `jtgpu.cases`."""
    return import_module("jtgpu.cases")


def cluster() -> Any:
    """``tree.predict_proba(cluster=...)``: the package `jtgpu.cluster`, which answers parts of a table elsewhere."""
    return import_module("jtgpu.cluster")
